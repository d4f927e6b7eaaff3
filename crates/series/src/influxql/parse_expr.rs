//! Expressions: numbers, names, calls, operators by precedence.
//!
//! Chains of AND and OR become lists. Everything else that nests, or chains to the left, is bounded by [`DEPTH_MAX`], which is what
//! makes walking over expressions by recursion safe.
//!
//! May use: `words`, `ast`. Must not know: statements.

use super::ast::{Binary, Call, Cast, Expr, Operand, Operator, Star};
use super::lexer::Token;
use super::words::{Parameter, Words};
use crate::error::Result;
use crate::value::{Kind, Value};

/// How deep expressions nest.
pub(crate) const DEPTH_MAX: usize = 64;

const BINARY: [(&str, u8, Operator); 17] = [
    ("=", 3, Operator::Equal),
    ("==", 3, Operator::Equal),
    ("!=", 3, Operator::NotEqual),
    ("<>", 3, Operator::NotEqual),
    ("<", 3, Operator::Less),
    ("<=", 3, Operator::LessEqual),
    (">", 3, Operator::Greater),
    (">=", 3, Operator::GreaterEqual),
    ("=~", 3, Operator::Match),
    ("!~", 3, Operator::NotMatch),
    ("+", 4, Operator::Add),
    ("-", 4, Operator::Subtract),
    ("|", 4, Operator::Or),
    ("^", 4, Operator::Xor),
    ("*", 5, Operator::Multiply),
    ("/", 5, Operator::Divide),
    ("%", 5, Operator::Modulo),
];

/// An expression of any kind.
pub(crate) fn expr(words: &mut Words<'_>, depth: usize) -> Result<Expr> {
    if depth > DEPTH_MAX {
        return Err(words.error("expressions nest too deeply"));
    }
    let mut any = vec![conjunction(words, depth)?];
    while words.takes("OR")? {
        any.push(conjunction(words, depth)?);
    }
    Ok(one_or(any, Expr::Any))
}

fn one_or(mut parts: Vec<Expr>, many: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.pop() {
        Some(part) if parts.is_empty() => part,
        part => {
            parts.extend(part);
            many(parts)
        }
    }
}

fn conjunction(words: &mut Words<'_>, depth: usize) -> Result<Expr> {
    let mut all = vec![chain(words, 3, depth)?];
    while words.takes("AND")? {
        all.push(chain(words, 3, depth)?);
    }
    Ok(one_or(all, Expr::All))
}

fn binary(words: &mut Words<'_>) -> Result<Option<(u8, Operator)>> {
    let Token::Sign(sign) = words.peek()? else { return Ok(None) };
    if *sign == "&" {
        return Ok(Some((5, Operator::And)));
    }
    Ok(BINARY.iter().find(|(found, ..)| found == sign).map(|(_, level, operator)| (*level, *operator)))
}

/// Operators of a level and those that bind closer.
fn chain(words: &mut Words<'_>, level: u8, depth: usize) -> Result<Expr> {
    if level > 5 {
        return operand(words, depth);
    }
    let mut left = chain(words, level + 1, depth)?;
    let mut links = depth;
    while let Some((_, operator)) = binary(words)?.filter(|(found, _)| *found == level) {
        links += 1;
        if links > DEPTH_MAX {
            return Err(words.error("too many operators in a row: use parentheses"));
        }
        words.next()?;
        let right = match operator {
            Operator::Match | Operator::NotMatch => match words.regex()? {
                Some(regex) => Expr::Regex(regex),
                None => return Err(words.expected("regex")),
            },
            _ => chain(words, level + 1, depth + 1)?,
        };
        left = Expr::Binary(Box::new(Binary { operator, left, right }));
    }
    Ok(left)
}

fn operand(words: &mut Words<'_>, depth: usize) -> Result<Expr> {
    if let Some(regex) = words.regex()? {
        return Ok(Expr::Regex(regex));
    }
    if words.is_name()? {
        return named(words, depth);
    }
    Ok(match words.peek()?.clone() {
        Token::Text(text) => taken(words, Expr::Text(text))?,
        Token::Float(number) => taken(words, Expr::Float(number))?,
        Token::Integer(number) => {
            let number = i64::try_from(number).map_or(Expr::Unsigned(number), Expr::Integer);
            taken(words, number)?
        }
        Token::Duration(nanos) => taken(words, Expr::Duration(nanos))?,
        Token::Sign("(") => {
            words.next()?;
            let inner = expr(words, depth + 1)?;
            words.take_sign(")")?;
            inner
        }
        Token::Sign("*") => {
            words.next()?;
            match cast(words)? {
                None => Expr::Star(Star::All),
                Some(Cast::Field) => Expr::Star(Star::Fields),
                Some(Cast::Tag) => Expr::Star(Star::Tags),
                Some(Cast::To(_)) => return Err(words.error("a star is cast to field or tag")),
            }
        }
        Token::Sign("$") => {
            words.next()?;
            let name = words.name()?;
            parameter(words, &name)?
        }
        Token::Sign("-") => {
            words.next()?;
            let depth = depth_within(words, depth)?;
            negated(operand(words, depth)?)
        }
        Token::Sign("+") => {
            words.next()?;
            let depth = depth_within(words, depth)?;
            operand(words, depth)?
        }
        _ => return Err(words.expected("identifier, string, number, bool")),
    })
}

fn depth_within(words: &mut Words<'_>, depth: usize) -> Result<usize> {
    if depth >= DEPTH_MAX { Err(words.error("expressions nest too deeply")) } else { Ok(depth + 1) }
}

fn taken(words: &mut Words<'_>, expr: Expr) -> Result<Expr> {
    words.next()?;
    Ok(expr)
}

fn negated(expr: Expr) -> Expr {
    match expr {
        Expr::Float(number) => Expr::Float(-number),
        Expr::Integer(number) => Expr::Integer(number.wrapping_neg()),
        Expr::Unsigned(number) if number == i64::MIN.unsigned_abs() => Expr::Integer(i64::MIN),
        Expr::Duration(nanos) => Expr::Duration(nanos.wrapping_neg()),
        other => Expr::Binary(Box::new(Binary { operator: Operator::Multiply, left: Expr::Integer(-1), right: other })),
    }
}

/// A parameter that is no single word.
fn parameter(words: &mut Words<'_>, name: &str) -> Result<Expr> {
    let parameters = words.parameters;
    match parameters.get(name) {
        Some(Parameter::Value(Value::Float(number))) => Ok(Expr::Float(*number)),
        Some(Parameter::Value(Value::Integer(number))) => Ok(Expr::Integer(*number)),
        Some(Parameter::Duration(nanos)) => Ok(Expr::Duration(*nanos)),
        _ => Err(words.error(&format!("the parameter {name} cannot stand here"))),
    }
}

/// What stands after `::`, if that is there.
pub(crate) fn cast(words: &mut Words<'_>) -> Result<Option<Cast>> {
    if !words.takes_sign("::")? {
        return Ok(None);
    }
    let name = words.take_one(&["FLOAT", "INTEGER", "UNSIGNED", "STRING", "BOOLEAN", "FIELD", "TAG"]);
    let name = name.map_err(|_| words.expected("float, integer, unsigned, string, boolean, field, tag"))?;
    Ok(Some(match name {
        "FLOAT" => Cast::To(Kind::Float),
        "INTEGER" => Cast::To(Kind::Integer),
        "UNSIGNED" => Cast::To(Kind::Unsigned),
        "STRING" => Cast::To(Kind::Text),
        "BOOLEAN" => Cast::To(Kind::Boolean),
        "FIELD" => Cast::Field,
        _ => Cast::Tag,
    }))
}

fn named(words: &mut Words<'_>, depth: usize) -> Result<Expr> {
    let is_word = matches!(words.peek()?, Token::Word(_));
    let name = words.name()?;
    let lower = name.to_ascii_lowercase();
    if is_word && words.takes_sign("(")? {
        return call(words, lower, depth);
    }
    if is_word && lower == "distinct" && words.is_name()? {
        let argument = Expr::Name(words.name()?);
        return Ok(Expr::Call(Call { name: lower, arguments: vec![argument] }));
    }
    if is_word && matches!(lower.as_str(), "true" | "false") {
        return Ok(Expr::Boolean(lower == "true"));
    }
    let cast = cast(words)?;
    if is_word && lower == "time" {
        return Ok(Expr::Name(lower));
    }
    Ok(if cast.is_some() { Expr::Cast(Operand { name, cast }) } else { Expr::Name(name) })
}

fn call(words: &mut Words<'_>, name: String, depth: usize) -> Result<Expr> {
    let mut arguments = Vec::new();
    if !words.takes_sign(")")? {
        loop {
            arguments.push(expr(words, depth + 1)?);
            if !words.takes_sign(",")? {
                break;
            }
        }
        words.take_sign(")")?;
    }
    Ok(Expr::Call(Call { name, arguments }))
}
