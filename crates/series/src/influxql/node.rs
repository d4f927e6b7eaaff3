//! Expressions ready to be computed for each row: names and calls have become numbers of slots.
//!
//! May use: `ast`, `math`. Must not know: where the values of slots come from.

use regex::Regex;

use super::answer::Cell;
use super::ast::{Expr, Operator};
use super::math::{self, Function};
use crate::error::{Error, Result};
use crate::value::{Value, ValueRef};

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Slot(usize),
    Constant(Value),
    Match { of: Box<Node>, regex: Regex, operator: Operator },
    Binary(Operator, Box<Node>, Box<Node>),
    Function(Function, Box<Node>, Option<Box<Node>>),
    All(Vec<Node>),
    Any(Vec<Node>),
}

impl Node {
    /// Makes one. `slot` gives the number of a name or of a call that is no function of single values.
    ///
    /// # Errors
    /// What `slot` says; [`Error::Invalid`] when something stands where it cannot.
    pub(crate) fn of(expr: &Expr, slot: &mut impl FnMut(&Expr) -> Result<usize>) -> Result<Self> {
        Ok(match expr {
            Expr::Float(number) => Self::Constant(Value::Float(*number)),
            Expr::Integer(number) | Expr::Duration(number) => Self::Constant(Value::Integer(*number)),
            Expr::Unsigned(number) => Self::Constant(Value::Unsigned(*number)),
            Expr::Text(text) => Self::Constant(Value::Text(text.as_str().into())),
            Expr::Boolean(is_so) => Self::Constant(Value::Boolean(*is_so)),
            Expr::Name(_) | Expr::Cast(_) => Self::Slot(slot(expr)?),
            Expr::Call(call) => {
                let Some((function, wanted)) = Function::of(&call.name) else { return Ok(Self::Slot(slot(expr)?)) };
                let (name, found) = (&call.name, call.arguments.len());
                let (Some(first), true) = (call.arguments.first(), found == wanted) else {
                    return Err(arguments(name, wanted, found));
                };
                let second = call.arguments.get(1).map(|second| Self::of(second, slot)).transpose()?;
                Self::Function(function, Box::new(Self::of(first, slot)?), second.map(Box::new))
            }
            Expr::Binary(binary) => {
                let left = Box::new(Self::of(&binary.left, slot)?);
                match (&binary.right, binary.operator) {
                    (Expr::Regex(regex), operator) => Self::Match { of: left, regex: regex.clone(), operator },
                    (right, operator) => Self::Binary(operator, left, Box::new(Self::of(right, slot)?)),
                }
            }
            Expr::All(parts) => Self::All(parts.iter().map(|part| Self::of(part, slot)).collect::<Result<_>>()?),
            Expr::Any(parts) => Self::Any(parts.iter().map(|part| Self::of(part, slot)).collect::<Result<_>>()?),
            Expr::Regex(_) | Expr::Star(_) => return Err(Error::invalid("unsupported expression with wildcard")),
        })
    }

    /// The value of it for one row.
    pub(crate) fn value<'a>(&'a self, slots: &[Cell<'a>]) -> Cell<'a> {
        match self {
            Self::Slot(slot) => slots.get(*slot).copied().flatten(),
            Self::Constant(value) => Some(value.as_ref()),
            Self::Match { of, regex, operator } => match of.value(slots)? {
                ValueRef::Text(text) => Some(ValueRef::Boolean(regex.is_match(text) == (*operator == Operator::Match))),
                _ => None,
            },
            Self::Binary(operator, left, right) => math::apply(*operator, left.value(slots), right.value(slots)),
            Self::Function(function, first, second) => {
                function.apply(first.value(slots), second.as_ref().and_then(|second| second.value(slots)))
            }
            Self::All(parts) => Some(ValueRef::Boolean(parts.iter().all(|part| part.holds(slots)))),
            Self::Any(parts) => Some(ValueRef::Boolean(parts.iter().any(|part| part.holds(slots)))),
        }
    }

    /// Whether it is true for one row.
    pub(crate) fn holds<'a>(&'a self, slots: &[Cell<'a>]) -> bool {
        matches!(self.value(slots), Some(ValueRef::Boolean(true)))
    }
}

/// A call with the wrong number of arguments.
pub(crate) fn arguments(name: &str, wanted: usize, found: usize) -> Error {
    Error::invalid(format!("invalid number of arguments for {name}, expected {wanted}, got {found}"))
}
