//! Functions that make a row of values of another: changes, averages of neighbours, sums so far.
//!
//! Values come in the order of the answer. Where it descends, so do they: a derivative has the opposite sign then, as InfluxDB's.
//!
//! May use: `call`, `answer`. Must not know: where values come from.

use std::collections::VecDeque;

use super::answer::Track;
use super::ast::Order;
use super::call::{Sign, Transform};
use crate::error::{Error, Result};
use crate::value::{Kind, Value};

/// What a derivative is for each of, when neither it nor windows say.
const UNIT_DEFAULT: i64 = 1_000_000_000;

/// How many windows before the range have to be looked at so that the first in it has a value.
pub(crate) fn windows_before(transform: Transform) -> i64 {
    match transform {
        Transform::Derivative(..) | Transform::Difference(_) | Transform::Elapsed(_) => 1,
        Transform::MovingAverage(points) => i64::try_from(points).unwrap_or(i64::MAX).saturating_sub(1),
        Transform::CumulativeSum => 0,
    }
}

fn number(transform: Transform, value: &Value) -> Result<f64> {
    value.as_ref().number().ok_or_else(|| {
        let name = match transform {
            Transform::Derivative(..) => "derivative",
            Transform::Difference(_) => "difference",
            Transform::MovingAverage(_) => "moving average",
            Transform::CumulativeSum => "cumulative sum",
            Transform::Elapsed(_) => "elapsed",
        };
        let kind: Kind = value.as_ref().kind();
        Error::invalid(format!("unsupported {name} iterator type: {}", kind.name()))
    })
}

fn subtract(transform: Transform, new: &Value, old: &Value) -> Result<Value> {
    Ok(match (new, old) {
        (Value::Integer(new), Value::Integer(old)) => Value::Integer(new.wrapping_sub(*old)),
        (Value::Unsigned(new), Value::Unsigned(old)) if new >= old => Value::Unsigned(new - old),
        (Value::Unsigned(new), Value::Unsigned(old)) => Value::Integer(new.wrapping_sub(*old).cast_signed()),
        _ => Value::Float(number(transform, new)? - number(transform, old)?),
    })
}

fn is_negative(value: &Value) -> bool {
    match value {
        Value::Float(number) => *number < 0.0,
        Value::Integer(number) => *number < 0,
        _ => false,
    }
}

/// Applies a function; `every` is the length of windows. Nulls are passed over.
#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
pub(crate) fn apply(transform: Transform, input: &Track, every: Option<i64>, order: Order) -> Result<Track> {
    let mut output = Track::default();
    let mut before: Option<(i64, &Value)> = None;
    let mut sum: Option<Value> = None;
    let (mut recent, mut recent_sum) = (VecDeque::new(), 0.0);
    for (time, cell) in input.iter() {
        let Some(value) = cell else { continue };
        match transform {
            Transform::MovingAverage(points) => {
                let number = number(transform, value)?;
                if recent.len() == points {
                    recent_sum -= recent.pop_front().unwrap_or(0.0);
                }
                recent.push_back(number);
                recent_sum += number;
                if recent.len() == points {
                    output.push(time, Some(Value::Float(recent_sum / points as f64)));
                }
            }
            Transform::CumulativeSum => {
                let next = match (&sum, value) {
                    (Some(Value::Integer(sum)), Value::Integer(value)) => Value::Integer(sum.wrapping_add(*value)),
                    (Some(Value::Unsigned(sum)), Value::Unsigned(value)) => Value::Unsigned(sum.wrapping_add(*value)),
                    (None, Value::Integer(_) | Value::Unsigned(_)) => value.clone(),
                    (sum, value) => {
                        let sum = sum.as_ref().map(|sum| number(transform, sum)).transpose()?;
                        Value::Float(sum.unwrap_or(0.0) + number(transform, value)?)
                    }
                };
                output.push(time, Some(next.clone()));
                sum = Some(next);
            }
            Transform::Elapsed(unit) => {
                if let Some((earlier, _)) = before {
                    output.push(time, Some(Value::Integer(time.saturating_sub(earlier) / unit)));
                }
                before = Some((time, value));
            }
            Transform::Derivative(..) | Transform::Difference(_) => {
                number(transform, value)?;
                let Some((earlier, old)) = before else {
                    before = Some((time, value));
                    continue;
                };
                // Of points of one time, which many series may have, the first counts.
                if earlier == time {
                    continue;
                }
                before = Some((time, value));
                let difference = subtract(transform, value, old)?;
                match transform {
                    Transform::Difference(Sign::NonNegative) | Transform::Derivative(_, Sign::NonNegative)
                        if is_negative(&difference) => {}
                    Transform::Derivative(unit, _) => {
                        let unit = unit.or(every).unwrap_or(UNIT_DEFAULT) as f64;
                        let elapsed = match order {
                            Order::Ascending => i128::from(time) - i128::from(earlier),
                            Order::Descending => i128::from(earlier) - i128::from(time),
                        };
                        let change = number(transform, &difference)?;
                        output.push(time, Some(Value::Float(change / (elapsed as f64 / unit))));
                    }
                    _ => output.push(time, Some(difference)),
                }
            }
        }
    }
    Ok(output)
}
