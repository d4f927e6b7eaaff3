//! Windows that have no points, and what is said of them.
//!
//! May use: `window`, `answer`. Must not know: functions.

use super::answer::Track;
use super::ast::{Fill, Order};
use super::window::Window;
use crate::error::{Error, Result};
use crate::source::Range;
use crate::value::Value;

/// Windows of one series in one answer.
const WINDOWS_MAX: i128 = 2_000_000;
/// Marks what no point was chosen for.
pub(crate) const NO_ORIGIN: (usize, i64) = (usize::MAX, 0);

/// Fills a column, which is in the order of the answer and has one row for each window that has points, over a range. Where the
/// range is open at the end that comes first, it begins with the first row.
pub(crate) fn fill(track: Track, window: &Window, range: Range, fill: Fill, order: Order) -> Result<Track> {
    let (Some(first), Some(last)) = (track.times.first().copied(), track.times.last().copied()) else {
        return Ok(track);
    };
    let bound = |time: i64, open: i64, known: i64| if time == open { known } else { window.start(time) };
    let (first, last) = match order {
        Order::Ascending => (bound(range.from, i64::MIN, first), bound(range.to, i64::MAX, last).max(last)),
        Order::Descending => (bound(range.to, i64::MAX, first), bound(range.from, i64::MIN, last).min(last)),
    };
    let count = (i128::from(last) - i128::from(first)).abs() / i128::from(window.length) + 1;
    if count > WINDOWS_MAX {
        return Err(Error::invalid(format!("max-select-buckets limit exceeded: ({count}/{WINDOWS_MAX})")));
    }
    let has_origins = !track.origins.is_empty();
    let mut full = Track::default();
    let mut next = 0;
    let mut time = first;
    loop {
        if track.times.get(next) == Some(&time) {
            full.push(time, track.cells.get(next).cloned().flatten());
            full.origins.extend(track.origins.get(next));
            next += 1;
        } else {
            full.push(time, filled(&track, next, time, fill));
            full.origins.extend(has_origins.then_some(NO_ORIGIN));
        }
        let step = if order == Order::Ascending { window.next(time) } else { window.before(time) };
        if step == time || (order == Order::Ascending && step > last) || (order == Order::Descending && step < last) {
            break;
        }
        time = step;
    }
    Ok(full)
}

/// What is said of a window that comes before the row `next`.
fn filled(track: &Track, next: usize, time: i64, fill: Fill) -> Option<Value> {
    let before = next.checked_sub(1).and_then(|at| Some((*track.times.get(at)?, track.cells.get(at)?.as_ref()?)));
    match fill {
        Fill::Null | Fill::None => None,
        Fill::Previous => before.map(|(_, value)| value.clone()),
        Fill::Number(number) => Some(constant(number, track.cells.iter().flatten().next())),
        Fill::Linear => {
            let new = track.cells.get(next)?.as_ref()?;
            linear(before?, (*track.times.get(next)?, new), time)
        }
    }
}

/// A number of the type of the column.
pub(crate) fn constant(number: f64, like: Option<&Value>) -> Value {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the fraction is what has no place")]
    match like {
        Some(Value::Integer(_)) => Value::Integer(number as i64),
        Some(Value::Unsigned(_)) => Value::Unsigned(number as u64),
        _ => Value::Float(number),
    }
}

/// The point of the line between two at a time.
fn linear(old: (i64, &Value), new: (i64, &Value), time: i64) -> Option<Value> {
    let (low, high) = (old.1.as_ref().number()?, new.1.as_ref().number()?);
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    let distance = |time: i64| (i128::from(time) - i128::from(old.0)) as f64;
    let slope = (high - low) / distance(new.0);
    Some(constant(slope * distance(time) + low, Some(new.1)))
}
