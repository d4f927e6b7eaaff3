//! Operations on two sides: numbers with numbers, series with numbers. Two sides of series are `matching`.
//!
//! May use: `eval`, `steps`, `matching`. Must not know: selectors, functions.

use promql_parser::parser::BinaryExpr;
use promql_parser::parser::token::{
    T_ADD, T_ATAN2, T_DIV, T_EQLC, T_GTE, T_GTR, T_LAND, T_LOR, T_LSS, T_LTE, T_LUNLESS, T_MOD, T_MUL, T_NEQ, T_POW,
    T_SUB, TokenId,
};

use crate::error::{Error, Result};

use super::eval::{Eval, Out};
use super::matching::{self, Set};
use super::steps::{ABSENT, Steps, Table, is_there};

/// What is done with two numbers.
#[derive(Clone, Copy)]
pub(crate) enum Operator {
    Arithmetic(fn(f64, f64) -> f64),
    /// Keeps what compares so.
    Filter(fn(f64, f64) -> bool),
    /// Says 1 or 0.
    Bool(fn(f64, f64) -> bool),
}

impl Operator {
    fn of(token: TokenId, is_bool: bool) -> Option<Self> {
        let compare: fn(f64, f64) -> bool = match token {
            T_ADD => return Some(Self::Arithmetic(|a, b| a + b)),
            T_SUB => return Some(Self::Arithmetic(|a, b| a - b)),
            T_MUL => return Some(Self::Arithmetic(|a, b| a * b)),
            T_DIV => return Some(Self::Arithmetic(|a, b| a / b)),
            T_MOD => return Some(Self::Arithmetic(|a, b| a % b)),
            T_POW => return Some(Self::Arithmetic(f64::powf)),
            T_ATAN2 => return Some(Self::Arithmetic(f64::atan2)),
            T_EQLC => |a, b| a == b,
            T_NEQ => |a, b| a != b,
            T_GTR => |a, b| a > b,
            T_LSS => |a, b| a < b,
            T_GTE => |a, b| a >= b,
            T_LTE => |a, b| a <= b,
            _ => return None,
        };
        Some(if is_bool { Self::Bool(compare) } else { Self::Filter(compare) })
    }

    /// The result; [`ABSENT`] when a filter keeps nothing. Filters keep the left one.
    pub(crate) fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Arithmetic(of) => of(left, right),
            Self::Bool(of) => f64::from(u8::from(of(left, right))),
            Self::Filter(of) if of(left, right) => left,
            Self::Filter(_) => ABSENT,
        }
    }

    /// Whether the result is of another thing than the metric.
    pub(crate) fn loses_name(self) -> bool {
        !matches!(self, Self::Filter(_))
    }
}

pub(crate) fn evaluate(eval: &Eval<'_>, operation: &BinaryExpr, steps: &Steps) -> Result<Out> {
    let left = eval.value(&operation.lhs, steps)?;
    let right = eval.value(&operation.rhs, steps)?;
    let set = match operation.op.id() {
        T_LAND => Some(Set::And),
        T_LOR => Some(Set::Or),
        T_LUNLESS => Some(Set::Unless),
        _ => None,
    };
    let modifier = operation.modifier.as_ref();
    let operator = Operator::of(operation.op.id(), modifier.is_some_and(|modifier| modifier.return_bool));
    match (left, right, set, operator) {
        (Out::Vector(left), Out::Vector(right), Some(set), _) => {
            eval.spend_cells(left.labels.len() + right.labels.len(), steps)?;
            let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
            Ok(Out::Vector(matching::combine(&left, &right, set, matching)))
        }
        (Out::Vector(left), Out::Vector(right), None, Some(operator)) => {
            eval.spend_cells(left.labels.len().max(right.labels.len()), steps)?;
            matching::operate(&left, &right, operator, modifier).map(Out::Vector)
        }
        (Out::Scalar(left), Out::Scalar(right), None, Some(operator)) => {
            Ok(Out::Scalar(left.into_iter().zip(right).map(|(a, b)| operator.apply(a, b)).collect()))
        }
        (Out::Vector(table), Out::Scalar(numbers), None, Some(operator)) => {
            with_number(table, &numbers, operator, |value, number| operator.apply(value, number)).map(Out::Vector)
        }
        (Out::Scalar(numbers), Out::Vector(table), None, Some(operator)) => {
            let of = |value: f64, number: f64| match operator {
                // What a filter keeps is the series' value, on whichever side it stands.
                Operator::Filter(compare) => {
                    if compare(number, value) {
                        value
                    } else {
                        ABSENT
                    }
                }
                other => other.apply(number, value),
            };
            with_number(table, &numbers, operator, of).map(Out::Vector)
        }
        _ => Err(Error::invalid(format!("the operation {} is not possible between these", operation.op))),
    }
}

fn with_number(mut table: Table, numbers: &[f64], operator: Operator, of: impl Fn(f64, f64) -> f64) -> Result<Table> {
    for row in 0..table.labels.len() {
        let cells = table.cells_mut(row).iter_mut().zip(numbers);
        cells.filter(|(cell, _)| is_there(**cell)).for_each(|(cell, number)| *cell = of(*cell, *number));
    }
    if operator.loses_name() { table.without_names() } else { Ok(table) }
}
