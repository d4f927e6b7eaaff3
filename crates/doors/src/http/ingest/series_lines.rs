//! Lines of JSON as VictoriaMetrics exports them, a series each: they are what `/api/v1/export` answers, there and here.
//!
//! ```text
//! {"metric":{"__name__":"up","job":"a"},"values":[1,null,"Infinity"],"timestamps":[1356998400000,1356998460000,1356998520000]}
//! ```
//! Times are milliseconds since 1970; `null` is NaN. Values are read where they lie, so a long line takes no more memory than its text. A
//! line is understood whole or not at all. Labels become tags, and those of `extra_label` are added, and beat the line's own.
//!
//! May use: `intake`, `json`'s scanner, `crate::line`'s numbers, the facade's `series`. Must not know: HTTP.

use std::borrow::Cow;

use holdfast::series::SeriesError;
use memchr::memchr;
use serde_json::{Map, Value};

use super::exposition::{Extra, MILLISECOND};
use super::intake::Intake;
use super::json::{bare, members};
use crate::line::{Unit, advice, excerpt, number, time};

/// Points of one line that are added before the batch is looked at: a line may have millions.
const POINTS_MAX: usize = 4 << 10;

/// A line's parts, as they were sent; of the arrays what is between the brackets.
struct Line<'t> {
    metric: &'t [u8],
    values: &'t [u8],
    timestamps: &'t [u8],
}

/// Adds the points of all lines of a body.
///
/// # Errors
/// What the store says.
pub(super) fn read(intake: &mut Intake<'_>, body: &[u8], extra: &Extra) -> holdfast::Result<()> {
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match Line::parse(line) {
            Ok(parsed) => parsed.add(intake, (number, line), extra)?,
            Err(reason) => intake.complain(number, line, reason),
        }
    }
    Ok(())
}

impl<'t> Line<'t> {
    /// # Errors
    /// What is wrong, and what would be right.
    fn parse(line: &'t [u8]) -> Result<Self, Cow<'static, str>> {
        let (mut metric, mut values, mut timestamps) = (None, None, None);
        let whole = members(line, |key, value| match key {
            b"\"metric\"" => metric = Some(value),
            b"\"values\"" => values = Some(value),
            b"\"timestamps\"" => timestamps = Some(value),
            _ => {}
        });
        whole.map_err(|wrong| format!("it is no JSON: at byte {} there should be {}", wrong.at, wrong.wanted))?;
        let metric = metric.ok_or("there is no metric: it is an object with __name__ and labels")?;
        let values = inner(values).ok_or("there are no values: they are an array of numbers")?;
        let timestamps = inner(timestamps).ok_or("there are no timestamps: they are an array of milliseconds")?;
        let parsed = Line { metric, values, timestamps };
        let (values, timestamps) = (elements(values).count(), elements(timestamps).count());
        if values != timestamps {
            return Err(format!("there are {values} values and {timestamps} timestamps: each value has one").into());
        }
        parsed.points().try_for_each(|point| point.map(drop))?;
        Ok(parsed)
    }

    fn points(&self) -> impl Iterator<Item = Result<(i64, f64), Cow<'static, str>>> {
        elements(self.timestamps).zip(elements(self.values)).map(|(at, value)| Ok((milliseconds(at)?, double(value)?)))
    }

    fn add(&self, intake: &mut Intake<'_>, (number, line): (usize, &[u8]), extra: &Extra) -> holdfast::Result<()> {
        let mut points = self.points().filter_map(Result::ok).peekable();
        while points.peek().is_some() {
            intake.make_room()?;
            let kit = &mut intake.kit;
            extra.name(b"\nv", self.metric, &mut kit.name);
            let slot = match kit.rows.series(&kit.name, |_| names(self.metric, extra)) {
                Ok(slot) => slot,
                Err(error) => {
                    intake.complain(number, line, error.to_string().into());
                    return Ok(());
                }
            };
            points.by_ref().take(POINTS_MAX).for_each(|(at, value)| kit.rows.push_float(slot, at, value));
        }
        Ok(())
    }
}

/// What is between the brackets of an array.
fn inner(value: Option<&[u8]>) -> Option<&[u8]> {
    Some(value?.strip_prefix(b"[")?.strip_suffix(b"]")?.trim_ascii())
}

/// The elements of an array of numbers and short texts, none of which has a comma in it.
fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(array).filter(|array| !array.is_empty());
    std::iter::from_fn(move || {
        let array = rest?;
        let end = memchr(b',', array);
        rest = end.and_then(|end| array.get(end + 1..));
        Some(array.get(..end.unwrap_or(array.len())).unwrap_or_default().trim_ascii())
    })
}

fn milliseconds(at: &[u8]) -> Result<i64, Cow<'static, str>> {
    time(at, Unit::Nanos(MILLISECOND)).map_err(|wrong| {
        format!("invalid timestamp '{}': {wrong}; it is in milliseconds since 1970", excerpt(at)).into()
    })
}

fn double(value: &[u8]) -> Result<f64, Cow<'static, str>> {
    if value == b"null" {
        return Ok(f64::NAN);
    }
    let value = bare(value);
    let found = number(value).ok_or_else(|| {
        let advice = advice(value, "write a number, null, or \"Infinity\"");
        format!("invalid value '{}': {advice}", excerpt(value))
    })?;
    Ok(found.float())
}

/// Metric and labels of a line.
fn names(metric: &[u8], extra: &Extra) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let labels: Map<String, Value> = serde_json::from_slice(metric)
        .map_err(|error| SeriesError::invalid(format!("the metric is no object of texts: {error}")))?;
    let (mut name, mut tags) = (String::new(), Vec::new());
    for (label, value) in labels {
        let Value::String(value) = value else {
            return Err(SeriesError::invalid(format!("the label {label} has no text as its value")));
        };
        if label == "__name__" { name = value } else { tags.push((label, value)) }
    }
    if name.is_empty() {
        return Err(SeriesError::invalid("the metric has no __name__"));
    }
    extra.add_to(&mut tags);
    Ok((name, tags))
}

#[cfg(test)]
#[path = "series_lines_tests.rs"]
mod tests;
