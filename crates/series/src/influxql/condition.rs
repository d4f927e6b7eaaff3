//! What WHERE says, taken apart: a range of times, conditions on tags that the index can answer, and the rest.
//!
//! Whether a name is a tag or a field is not known here. A comparison of a name with a text is taken for one of a tag; whoever asks
//! the index finds out, and says which names are fields.
//!
//! May use: `ast`, `select`, `times`. Must not know: sources.

use super::ast::{Cast, Expr, Operand, Operator};
use super::times::{self, Clock};
use crate::error::{Error, Result};
use crate::select::{Match, TagMatch};
use crate::source::Range;

#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) range: Range,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    expr: Expr,
    /// The same for the index, if it has only to do with one tag.
    tag: Option<TagMatch>,
}

/// Nanoseconds of an expression of times; `None` when it is no constant.
///
/// # Errors
/// [`Error::Invalid`] when a text is no time.
pub(crate) fn nanos(expr: &Expr, clock: Clock<'_>) -> Result<Option<i64>> {
    Ok(match expr {
        Expr::Integer(nanos) | Expr::Duration(nanos) => Some(*nanos),
        Expr::Unsigned(_) => Some(i64::MAX),
        #[expect(clippy::cast_possible_truncation, reason = "the cast stops at the ends of the range")]
        Expr::Float(nanos) => Some(*nanos as i64),
        Expr::Text(text) => {
            let nanos = times::read(text, clock.zone);
            let bad = "invalid operation: time and *influxql.StringLiteral are not compatible";
            Some(nanos.ok_or_else(|| Error::invalid(bad))?)
        }
        Expr::Call(call) if call.name == "now" && call.arguments.is_empty() => Some(clock.now),
        Expr::Binary(binary) => {
            let (Some(left), Some(right)) = (nanos(&binary.left, clock)?, nanos(&binary.right, clock)?) else {
                return Ok(None);
            };
            match binary.operator {
                Operator::Add => Some(left.saturating_add(right)),
                Operator::Subtract => Some(left.saturating_sub(right)),
                Operator::Multiply => Some(left.saturating_mul(right)),
                Operator::Divide => Some(left.checked_div(right).unwrap_or(0)),
                _ => None,
            }
        }
        _ => None,
    })
}

fn is_time(expr: &Expr) -> bool {
    matches!(expr, Expr::Name(name) if name == "time")
}

/// The comparison of `time` with a constant that this is.
fn time(expr: &Expr, clock: Clock<'_>) -> Result<Option<(Operator, i64)>> {
    let Expr::Binary(binary) = expr else { return Ok(None) };
    if !binary.operator.is_comparison() {
        return Ok(None);
    }
    let (operator, other) = match (&binary.left, &binary.right) {
        (left, right) if is_time(left) => (binary.operator, right),
        (left, right) if is_time(right) => (binary.operator.mirrored(), left),
        _ => return Ok(None),
    };
    match nanos(other, clock)? {
        Some(nanos) => Ok(Some((operator, nanos))),
        None => Err(Error::invalid("invalid operation: time is compared with times only")),
    }
}

/// Replaces times by numbers wherever `time` is compared.
fn with_times(expr: &Expr, clock: Clock<'_>) -> Result<Expr> {
    if let (Expr::Binary(binary), Some((operator, nanos))) = (expr, time(expr, clock)?) {
        let mut binary = binary.clone();
        (binary.operator, binary.left, binary.right) = (operator, Expr::Name("time".to_owned()), Expr::Integer(nanos));
        return Ok(Expr::Binary(binary));
    }
    let all = |parts: &[Expr]| parts.iter().map(|part| with_times(part, clock)).collect::<Result<Vec<_>>>();
    Ok(match expr {
        Expr::All(parts) => Expr::All(all(parts)?),
        Expr::Any(parts) => Expr::Any(all(parts)?),
        other => other.clone(),
    })
}

/// The condition on one tag that this may be.
fn tag(expr: &Expr) -> Option<TagMatch> {
    match expr {
        Expr::Binary(binary) => {
            let (name, other) = match (&binary.left, &binary.right) {
                (Expr::Name(name), other) | (other, Expr::Name(name)) if name != "time" => (name, other),
                (Expr::Cast(Operand { name, cast: Some(Cast::Tag) }), other)
                | (other, Expr::Cast(Operand { name, cast: Some(Cast::Tag) })) => (name, other),
                _ => return None,
            };
            let value = match (binary.operator, other) {
                (Operator::Equal, Expr::Text(text)) => Match::is(text.clone()),
                (Operator::NotEqual, Expr::Text(text)) => Match::NotIn(vec![text.clone()]),
                (Operator::Match, Expr::Regex(regex)) => Match::Regex(regex.clone()),
                (Operator::NotMatch, Expr::Regex(regex)) => Match::NotRegex(regex.clone()),
                _ => return None,
            };
            Some(TagMatch { tag: name.clone(), value })
        }
        // One of several values of one tag.
        Expr::Any(parts) => {
            let mut parts = parts.iter().map(tag);
            let mut all = parts.next()??;
            let Match::In(values) = &mut all.value else { return None };
            for part in parts {
                match part? {
                    TagMatch { tag, value: Match::In(more) } if tag == all.tag => values.extend(more),
                    _ => return None,
                }
            }
            Some(all)
        }
        _ => None,
    }
}

impl Condition {
    /// # Errors
    /// [`Error::Invalid`] when a time is none.
    pub(crate) fn of(expr: Option<&Expr>, clock: Clock<'_>) -> Result<Self> {
        let mut condition = Self { range: Range::ALL, parts: Vec::new() };
        if let Some(expr) = expr {
            condition.add(expr, clock)?;
        }
        Ok(condition)
    }

    fn add(&mut self, expr: &Expr, clock: Clock<'_>) -> Result<()> {
        if let Expr::All(parts) = expr {
            return parts.iter().try_for_each(|part| self.add(part, clock));
        }
        match time(expr, clock)? {
            Some((operator, nanos)) if operator != Operator::NotEqual => self.narrow(operator, nanos),
            _ => {
                let expr = with_times(expr, clock)?;
                self.parts.push(Part { tag: tag(&expr), expr });
                Ok(())
            }
        }
    }

    fn narrow(&mut self, operator: Operator, nanos: i64) -> Result<()> {
        let (from, to) = match operator {
            Operator::Equal => (nanos, nanos),
            Operator::Less => (i64::MIN, nanos.saturating_sub(1)),
            Operator::LessEqual => (i64::MIN, nanos),
            Operator::Greater => (nanos.saturating_add(1), i64::MAX),
            Operator::GreaterEqual => (nanos, i64::MAX),
            _ => return Err(Error::invalid("invalid time comparison operator")),
        };
        self.range = Range { from: self.range.from.max(from), to: self.range.to.min(to) };
        Ok(())
    }

    /// The conditions on tags, with `fields` being no tags.
    pub(crate) fn tags(&self, fields: &[String]) -> Vec<TagMatch> {
        self.parts.iter().filter_map(|part| part.tag.clone()).filter(|tag| !fields.contains(&tag.tag)).collect()
    }

    /// The names that are taken for tags.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| part.expr.names())
    }

    /// What is no condition on a tag alone, with `fields` being no tags.
    pub(crate) fn rest(&self, fields: &[String]) -> Option<Expr> {
        let is_rest = |part: &&Part| part.tag.as_ref().is_none_or(|tag| fields.contains(&tag.tag));
        let parts: Vec<Expr> = self.parts.iter().filter(is_rest).map(|part| part.expr.clone()).collect();
        (!parts.is_empty()).then_some(Expr::All(parts))
    }
}
