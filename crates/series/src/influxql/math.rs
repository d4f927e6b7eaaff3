//! Operators and functions of single values.
//!
//! Numbers of one type stay of it but for division, which gives doubles; numbers of different types are compared and computed as
//! doubles. Division by zero gives zero. What makes no sense gives null.
//!
//! May use: `value`, `ast`. Must not know: rows.

use std::cmp::Ordering;

use super::answer::Cell;
use super::ast::Operator;
use crate::value::ValueRef;

/// Compares values of one sort; numbers by what they are worth. A NaN is below every number.
pub(crate) fn compare(left: ValueRef<'_>, right: ValueRef<'_>) -> Option<Ordering> {
    use ValueRef::{Boolean, Integer, Text, Unsigned};
    match (left, right) {
        (Integer(left), Integer(right)) => Some(left.cmp(&right)),
        (Unsigned(left), Unsigned(right)) => Some(left.cmp(&right)),
        (Text(left), Text(right)) => Some(left.cmp(right)),
        (Boolean(left), Boolean(right)) => Some(left.cmp(&right)),
        _ => {
            let (left, right) = (left.number()?, right.number()?);
            Some(left.partial_cmp(&right).unwrap_or_else(|| right.is_nan().cmp(&left.is_nan())))
        }
    }
}

/// Like [`compare`], with an order between sorts of values too.
pub(crate) fn order(left: ValueRef<'_>, right: ValueRef<'_>) -> Ordering {
    compare(left, right).unwrap_or_else(|| left.kind().cmp(&right.kind()))
}

fn compared(operator: Operator, left: ValueRef<'_>, right: ValueRef<'_>) -> Option<bool> {
    let is_nan = |value: ValueRef<'_>| matches!(value, ValueRef::Float(number) if number.is_nan());
    if is_nan(left) || is_nan(right) {
        return Some(operator == Operator::NotEqual);
    }
    let order = compare(left, right)?;
    Some(match operator {
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterEqual => order.is_ge(),
        _ => return None,
    })
}

/// What an operator makes of two values.
pub(crate) fn apply<'a>(operator: Operator, left: Cell<'a>, right: Cell<'a>) -> Cell<'a> {
    use ValueRef::{Boolean, Integer, Unsigned};
    let (left, right) = (left?, right?);
    if operator.is_comparison() {
        return compared(operator, left, right).map(Boolean);
    }
    match (left, right) {
        (Integer(left), Integer(right)) if operator != Operator::Divide => integers(operator, left, right).map(Integer),
        (Unsigned(left), Unsigned(right)) if operator != Operator::Divide => {
            unsigned(operator, left, right).map(Unsigned)
        }
        (Boolean(left), Boolean(right)) => match operator {
            Operator::And => Some(Boolean(left & right)),
            Operator::Or => Some(Boolean(left | right)),
            Operator::Xor => Some(Boolean(left ^ right)),
            _ => None,
        },
        _ => floats(operator, left.number()?, right.number()?).map(ValueRef::Float),
    }
}

fn integers(operator: Operator, left: i64, right: i64) -> Option<i64> {
    Some(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Modulo if right == 0 => 0,
        Operator::Modulo => left.wrapping_rem(right),
        Operator::And => left & right,
        Operator::Or => left | right,
        Operator::Xor => left ^ right,
        _ => return None,
    })
}

fn unsigned(operator: Operator, left: u64, right: u64) -> Option<u64> {
    Some(match operator {
        Operator::Add => left.wrapping_add(right),
        Operator::Subtract => left.wrapping_sub(right),
        Operator::Multiply => left.wrapping_mul(right),
        Operator::Modulo => left.checked_rem(right).unwrap_or(0),
        Operator::And => left & right,
        Operator::Or => left | right,
        Operator::Xor => left ^ right,
        _ => return None,
    })
}

fn floats(operator: Operator, left: f64, right: f64) -> Option<f64> {
    Some(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide if right == 0.0 => 0.0,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
        _ => return None,
    })
}

/// A function of single values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Acos,
    Asin,
    Atan,
    Atan2,
    Ceil,
    Cos,
    Exp,
    Floor,
    Ln,
    Log,
    Log2,
    Log10,
    Pow,
    Round,
    Sin,
    Sqrt,
    Tan,
}

impl Function {
    pub(crate) const ALL: [(&'static str, Self, usize); 18] = [
        ("abs", Self::Abs, 1),
        ("acos", Self::Acos, 1),
        ("asin", Self::Asin, 1),
        ("atan", Self::Atan, 1),
        ("atan2", Self::Atan2, 2),
        ("ceil", Self::Ceil, 1),
        ("cos", Self::Cos, 1),
        ("exp", Self::Exp, 1),
        ("floor", Self::Floor, 1),
        ("ln", Self::Ln, 1),
        ("log", Self::Log, 2),
        ("log2", Self::Log2, 1),
        ("log10", Self::Log10, 1),
        ("pow", Self::Pow, 2),
        ("round", Self::Round, 1),
        ("sin", Self::Sin, 1),
        ("sqrt", Self::Sqrt, 1),
        ("tan", Self::Tan, 1),
    ];

    /// The function of a name, and how many arguments it has.
    pub(crate) fn of(name: &str) -> Option<(Self, usize)> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, function, arguments)| (*function, *arguments))
    }

    /// What it makes of its arguments.
    pub(crate) fn apply<'a>(self, first: Cell<'a>, second: Cell<'a>) -> Cell<'a> {
        match (self, first?) {
            (Self::Abs, ValueRef::Integer(number)) => return Some(ValueRef::Integer(number.wrapping_abs())),
            (
                Self::Abs | Self::Ceil | Self::Floor | Self::Round,
                whole @ (ValueRef::Integer(_) | ValueRef::Unsigned(_)),
            ) => {
                return Some(whole);
            }
            _ => {}
        }
        let x = first?.number()?;
        let second = || second.and_then(ValueRef::number);
        let number = match self {
            Self::Abs => x.abs(),
            Self::Acos => x.acos(),
            Self::Asin => x.asin(),
            Self::Atan => x.atan(),
            Self::Atan2 => x.atan2(second()?),
            Self::Ceil => x.ceil(),
            Self::Cos => x.cos(),
            Self::Exp => x.exp(),
            Self::Floor => x.floor(),
            Self::Ln => x.ln(),
            Self::Log => x.ln() / second()?.ln(),
            Self::Log2 => x.log2(),
            Self::Log10 => x.log10(),
            Self::Pow => x.powf(second()?),
            Self::Round => x.round(),
            Self::Sin => x.sin(),
            Self::Sqrt => x.sqrt(),
            Self::Tan => x.tan(),
        };
        Some(ValueRef::Float(number))
    }
}
