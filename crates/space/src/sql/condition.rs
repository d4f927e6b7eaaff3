//! Conditions and literals of SQL, as predicates and operands.
//!
//! May use: `path`, `predicate`, `sqlparser`. Must not know: the clauses of a query.

use sqlparser::ast::{self, BinaryOperator, Expr, UnaryOperator};

use crate::compare::Class;
use crate::error::{Error, Result, invalid, limit};
use crate::path::Path;
use crate::pattern::{Like, RLike};
use crate::predicate::{Choices, Operand, Operator, Pattern, Predicate, RLIKES_MAX};
use crate::timestamp;
use crate::value::{Decimal, Value, ValueRef};

/// Makes predicates of expressions. `resolve` says which path a name or an aggregate is.
pub(super) struct Conditions<'r> {
    pub(super) resolve: &'r mut dyn FnMut(&Expr) -> Result<Path>,
    /// How many regular expressions there have been: they are counted before they take their room.
    pub(super) rlikes: usize,
}

impl Conditions<'_> {
    /// The depth of this recursion is bounded by the parser's limit: chains of one operator are gone through in a loop.
    pub(super) fn condition(&mut self, expr: &Expr) -> Result<Predicate> {
        let negate = |negated: bool, predicate: Predicate| {
            if negated { Predicate::Not(Box::new(predicate)) } else { predicate }
        };
        Ok(match expr {
            Expr::Nested(inner) => self.condition(inner)?,
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => negate(true, self.condition(expr)?),
            Expr::BinaryOp { op: BinaryOperator::And, .. } => Predicate::And(self.chain(expr, &BinaryOperator::And)?),
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => Predicate::Or(self.chain(expr, &BinaryOperator::Or)?),
            Expr::BinaryOp { left, op, right } => match operator(op) {
                Some(operator) => self.comparison(left, operator, right)?,
                None => return Err(unsupported(expr)),
            },
            Expr::IsNull(inner) => Predicate::IsNull((self.resolve)(inner)?),
            Expr::IsNotNull(inner) => negate(true, Predicate::IsNull((self.resolve)(inner)?)),
            Expr::InList { expr, list, negated } => {
                let path = (self.resolve)(expr)?;
                let choices = Choices::new(list.iter().map(needed_operand).collect::<Result<Vec<_>>>()?);
                negate(*negated, Predicate::In { path, choices })
            }
            Expr::Between { expr, negated, low, high } => {
                let path = (self.resolve)(expr)?;
                let (low, high) = (needed_operand(low)?, needed_operand(high)?);
                negate(*negated, Predicate::Between { path, low, high })
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let escape = escape_char.as_ref().map(escape).transpose()?;
                let of_text = |text: &str| Like::new(text, escape).map(Pattern::Like);
                let of_parameter = |number| Pattern::LikeParameter { number, escape };
                negate(*negated, self.matches(expr, pattern, of_text, of_parameter)?)
            }
            Expr::RLike { negated, expr, pattern, regexp: _ } => {
                self.rlikes += 1;
                limit("number of regular expressions in a condition", self.rlikes, RLIKES_MAX)?;
                let of_text = |text: &str| RLike::new(text).map(Pattern::RLike);
                negate(*negated, self.matches(expr, pattern, of_text, Pattern::RLikeParameter)?)
            }
            Expr::Value(ast::ValueWithSpan { value: ast::Value::Boolean(true), .. }) => Predicate::True,
            Expr::Value(ast::ValueWithSpan { value: ast::Value::Boolean(false), .. }) => Predicate::False,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) => Predicate::Compare {
                path: (self.resolve)(expr)?,
                operator: Operator::Equal,
                operand: Operand::from(&Value::Bool(true)),
            },
            other => return Err(unsupported(other)),
        })
    }

    /// `a AND b AND c` lies as deep as it is long, to the left.
    fn chain(&mut self, expr: &Expr, of: &BinaryOperator) -> Result<Vec<Predicate>> {
        let (mut parts, mut rest) = (Vec::new(), expr);
        while let Expr::BinaryOp { left, op, right } = rest
            && op == of
        {
            parts.push(self.condition(right)?);
            rest = left;
        }
        parts.push(self.condition(rest)?);
        parts.reverse();
        Ok(parts)
    }

    fn comparison(&mut self, left: &Expr, operator: Operator, right: &Expr) -> Result<Predicate> {
        let (path, operator, operand) = match (operand(left)?, operand(right)?) {
            (None, Some(operand)) => ((self.resolve)(left)?, operator, operand),
            (Some(operand), None) => ((self.resolve)(right)?, flipped(operator), operand),
            (Some(Operand::Literal(a)), Some(Operand::Literal(b))) => return constant(a.get(), operator, b.get()),
            _ => {
                return invalid(format!(
                    "`{} .. {}`: compare a path with a literal or a parameter",
                    short(left),
                    short(right)
                ));
            }
        };
        Ok(Predicate::Compare { path, operator, operand })
    }

    fn matches(
        &mut self,
        text: &Expr,
        pattern: &Expr,
        of_text: impl Fn(&str) -> Result<Pattern>,
        of_parameter: impl Fn(usize) -> Pattern,
    ) -> Result<Predicate> {
        let path = (self.resolve)(text)?;
        let pattern = match needed_operand(pattern)? {
            Operand::Parameter(number) => of_parameter(number),
            Operand::Literal(literal) => match literal.get() {
                ValueRef::String(text) => of_text(text)?,
                other => return invalid(format!("a pattern is a string, not {}", other.kind())),
            },
        };
        Ok(Predicate::Matches { path, pattern })
    }
}

/// `1 = 1`, as programs that build queries write it.
fn constant(a: ValueRef<'_>, operator: Operator, b: ValueRef<'_>) -> Result<Predicate> {
    if Class::of(a) != Class::of(b) || a == ValueRef::Null {
        return invalid("compare a path with a literal or a parameter");
    }
    Ok(if operator.holds(crate::compare::compare(a, b)) { Predicate::True } else { Predicate::False })
}

fn operator(of: &BinaryOperator) -> Option<Operator> {
    Some(match of {
        BinaryOperator::Eq => Operator::Equal,
        BinaryOperator::NotEq => Operator::NotEqual,
        BinaryOperator::Lt => Operator::Less,
        BinaryOperator::LtEq => Operator::LessOrEqual,
        BinaryOperator::Gt => Operator::Greater,
        BinaryOperator::GtEq => Operator::GreaterOrEqual,
        _ => return None,
    })
}

/// What `literal operator path` is as `path operator literal`.
fn flipped(operator: Operator) -> Operator {
    match operator {
        Operator::Equal | Operator::NotEqual => operator,
        Operator::Less => Operator::Greater,
        Operator::LessOrEqual => Operator::GreaterOrEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterOrEqual => Operator::LessOrEqual,
    }
}

fn needed_operand(expr: &Expr) -> Result<Operand> {
    match operand(expr)? {
        Some(operand) => Ok(operand),
        None => invalid(format!("{} must be a literal or a parameter", name_of(expr))),
    }
}

/// The literal or parameter that an expression is, if it is one.
pub(super) fn operand(expr: &Expr) -> Result<Option<Operand>> {
    let value = match expr {
        Expr::Nested(inner) => return operand(inner),
        Expr::Value(ast::ValueWithSpan { value: ast::Value::Placeholder(text), .. }) => {
            let number: Option<usize> = text.strip_prefix('$').and_then(|digits| digits.parse().ok());
            // Numbered from 1 by `token.rs`.
            return Ok(number.and_then(|number| number.checked_sub(1)).map(Operand::Parameter));
        }
        Expr::Value(value) => literal(&value.value)?,
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(digits, false), .. }) => {
                number(&format!("-{digits}"))?
            }
            _ => return Ok(None),
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => return operand(expr),
        Expr::TypedString(ast::TypedString { data_type: ast::DataType::Timestamp(None, _), value, .. }) => {
            match &value.value {
                ast::Value::SingleQuotedString(text) => match timestamp::parse(text) {
                    Some(at) => Value::Timestamp(at),
                    None => {
                        return invalid(format!(
                            "TIMESTAMP '{text}': a timestamp is 2026-01-31T12:30:00.5Z, between 1677-09-22 and 2262-04-11"
                        ));
                    }
                },
                _ => return Err(unsupported(expr)),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(Operand::from(&value)))
}

fn literal(value: &ast::Value) -> Result<Value> {
    match value {
        ast::Value::Number(digits, false) => number(digits),
        ast::Value::SingleQuotedString(text) => Ok(Value::String(text.clone())),
        ast::Value::Boolean(value) => Ok(Value::Bool(*value)),
        ast::Value::Null => Ok(Value::Null),
        ast::Value::HexStringLiteral(digits) => match bytes(digits) {
            Some(bytes) => Ok(Value::Bytes(bytes)),
            None => invalid(format!("X'{digits}': bytes are pairs of 0-9 and A-F")),
        },
        other => invalid(format!(
            "`{other}` is no literal of ours: numbers, 'strings', TRUE, FALSE, NULL, TIMESTAMP '..', X'..'"
        )),
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
    digits?.chunks(2).map(|pair| if let [high, low] = pair { Some(high << 4 | low) } else { None }).collect()
}

/// An integer as I64 or U64, or Decimal when it is larger; with a point as Decimal; with an exponent as F64.
fn number(text: &str) -> Result<Value> {
    let value = if text.contains(['e', 'E']) {
        text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::F64)
    } else {
        let integer = text.parse().map(Value::I64).or_else(|_| text.parse().map(Value::U64));
        integer.ok().or_else(|| Decimal::parse(text).map(Value::Decimal))
    };
    value.map_or_else(|| invalid(format!("{} is no number that fits", short(&text))), Ok)
}

fn escape(value: &ast::Value) -> Result<char> {
    if let ast::Value::SingleQuotedString(text) = value {
        let mut letters = text.chars();
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            return Ok(letter);
        }
    }
    invalid("behind ESCAPE comes one character in quotes")
}

/// Names what is not supported and says what is.
pub(super) fn unsupported(expr: &Expr) -> Error {
    let text = format!(
        "{} is not supported here; conditions compare a path with a literal or a parameter by = <> < <= > >=, LIKE, RLIKE, \
         IN (..), BETWEEN and IS NULL, and are joined by AND, OR and NOT",
        name_of(expr)
    );
    Error::Invalid { text }
}

/// What an expression is, for messages. Without what lies within it: the parser prints its tree recursively, and the tree
/// may be deeper than the stack.
pub(super) fn name_of(expr: &Expr) -> String {
    let name = match expr {
        Expr::Identifier(ident) => return ident.value.clone(),
        Expr::CompoundIdentifier(idents) => {
            let names: Vec<_> = idents.iter().map(|ident| ident.value.as_str()).collect();
            return names.join(".").replace(".*", "[*]");
        }
        Expr::Function(function) => return format!("the function {}", function.name),
        Expr::BinaryOp { op, .. } => return format!("the operator {op}"),
        Expr::UnaryOp { op, .. } => return format!("the operator {op}"),
        Expr::Value(value) => return format!("`{}`", short(&value.value)),
        Expr::TypedString(ast::TypedString { data_type, value, .. }) => {
            return format!("{} {}", short(data_type), short(&value.value));
        }
        Expr::Nested(inner) => return name_of(inner),
        Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) => "a subquery",
        Expr::AnyOp { .. } => "ANY",
        Expr::AllOp { .. } => "ALL",
        Expr::Case { .. } => "CASE",
        Expr::Cast { .. } | Expr::Convert { .. } => "CAST",
        Expr::ILike { .. } => "ILIKE",
        Expr::SimilarTo { .. } => "SIMILAR TO",
        Expr::Like { .. } | Expr::RLike { .. } => "LIKE",
        Expr::InList { .. } | Expr::InUnnest { .. } => "IN",
        Expr::Between { .. } => "BETWEEN",
        Expr::IsNull(_) | Expr::IsNotNull(_) => "IS NULL",
        Expr::IsTrue(_) | Expr::IsNotTrue(_) | Expr::IsFalse(_) | Expr::IsNotFalse(_) => "IS TRUE",
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => "IS DISTINCT FROM",
        Expr::Interval(_) => "INTERVAL",
        Expr::Tuple(_) => "a list of values",
        Expr::Array(_) => "ARRAY",
        Expr::Extract { .. } => "EXTRACT",
        Expr::Substring { .. } => "SUBSTRING",
        Expr::Trim { .. } => "TRIM",
        Expr::Ceil { .. } | Expr::Floor { .. } => "CEIL or FLOOR",
        Expr::Collate { .. } => "COLLATE",
        _ => "such an expression",
    };
    name.to_owned()
}

/// The beginning of a literal, for messages.
fn short(of: &impl std::fmt::Display) -> String {
    let text = of.to_string();
    if text.chars().count() > 80 { text.chars().take(77).chain("...".chars()).collect() } else { text }
}
