//! Functions of a window: what becomes of the numbers in it.
//!
//! Each is given one window of one series, and answers with a number, or with [`ABSENT`] when there are too few.
//!
//! May use: `window`, `sums`. Must not know: expressions, where windows come from.

use super::steps::ABSENT;
use super::sums::{Mean, Spread, Sum, quantile};
use super::window::Window;

const NANOS_PER_SECOND: f64 = 1e9;
/// A series whose last sample is further from the window's edge than this many average distances ends before the edge.
const GAP_MAX: f64 = 1.1;

/// What functions get besides the window.
pub(crate) struct Beside<'a> {
    /// The number that some have.
    pub(crate) param: f64,
    /// The moment of the evaluation, which an offset does not move.
    pub(crate) now: i64,
    /// Room for sorting.
    pub(crate) scratch: &'a mut Vec<f64>,
}

/// A function of a window.
pub(crate) type OfWindow = fn(&Window<'_>, &mut Beside<'_>) -> f64;

/// A function by its name.
pub(crate) fn by_name(name: &str) -> Option<OfWindow> {
    Some(match name {
        "rate" => |window, _| extrapolated(window, Of::Rate),
        "increase" => |window, _| extrapolated(window, Of::Increase),
        "delta" => |window, _| extrapolated(window, Of::Delta),
        "irate" => |window, _| last_two(window, Of::Rate),
        "idelta" => |window, _| last_two(window, Of::Delta),
        "deriv" => |window, _| line(window, window.to).map_or(ABSENT, |(slope, _)| slope),
        "predict_linear" => |window, beside| {
            line(window, beside.now).map_or(ABSENT, |(slope, intercept)| slope * beside.param + intercept)
        },
        "changes" => |window, _| count_pairs(window, |before, now| before != now && !(before.is_nan() && now.is_nan())),
        "resets" => |window, _| if window.values.is_empty() { ABSENT } else { count(window.drops.len()) },
        "avg_over_time" => |window, _| if_any(window, |values| values.iter().copied().collect::<Mean>().value()),
        "min_over_time" => |window, _| if_any(window, |values| extreme(values, |a, b| a < b)),
        "max_over_time" => |window, _| if_any(window, |values| extreme(values, |a, b| a > b)),
        "sum_over_time" => |window, _| if_any(window, |values| values.iter().copied().collect::<Sum>().value()),
        "count_over_time" => |window, _| if_any(window, |values| count(values.len())),
        "first_over_time" => |window, _| window.values.first().copied().unwrap_or(ABSENT),
        "last_over_time" => |window, _| window.values.last().copied().unwrap_or(ABSENT),
        "stdvar_over_time" => {
            |window, _| if_any(window, |values| values.iter().copied().collect::<Spread>().variance())
        }
        "stddev_over_time" => {
            |window, _| if_any(window, |values| values.iter().copied().collect::<Spread>().variance().sqrt())
        }
        "present_over_time" => |window, _| if_any(window, |_| 1.0),
        "quantile_over_time" => |window, beside| {
            if window.values.is_empty() {
                return ABSENT;
            }
            beside.scratch.clear();
            beside.scratch.extend_from_slice(window.values);
            quantile(beside.param, beside.scratch)
        },
        _ => return None,
    })
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn seconds(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / NANOS_PER_SECOND
}

fn if_any(window: &Window<'_>, of: impl Fn(&[f64]) -> f64) -> f64 {
    if window.values.is_empty() { ABSENT } else { of(window.values) }
}

/// The one that is before all others; NaN only when there is nothing else.
fn extreme(values: &[f64], is_before: impl Fn(f64, f64) -> bool) -> f64 {
    let better = |best: f64, value: &f64| if is_before(*value, best) || best.is_nan() { *value } else { best };
    values.iter().fold(f64::NAN, better)
}

fn count_pairs(window: &Window<'_>, is_counted: impl Fn(f64, f64) -> bool) -> f64 {
    if window.values.is_empty() {
        return ABSENT;
    }
    let pairs = window.values.iter().zip(window.values.iter().skip(1));
    count(pairs.filter(|(before, now)| is_counted(**before, **now)).count())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Rate,
    Increase,
    Delta,
}

/// By how much the value changed in the window, as if the first and the last sample lay at its edges: the change between them
/// is stretched to the edges when they are near, and half an average distance beyond when not. A counter is not stretched
/// back to where it would have been less than zero.
fn extrapolated(window: &Window<'_>, of: Of) -> f64 {
    let ([first_time, .., last_time], [first, .., last]) = (window.times, window.values) else { return ABSENT };
    let is_counter = of != Of::Delta;
    let mut change = last - first;
    if is_counter {
        change = window.drops.iter().fold(change, |change, (_, before)| change + before);
    }
    let sampled = seconds(*first_time, *last_time);
    let distance = sampled / count(window.values.len() - 1);
    let within = |gap: f64| if gap >= distance * GAP_MAX { distance / 2.0 } else { gap };
    let mut to_start = within(seconds(window.from, *first_time));
    if is_counter && change > 0.0 && *first >= 0.0 {
        to_start = to_start.min(sampled * (first / change));
    }
    let to_end = within(seconds(*last_time, window.to));
    let mut factor = (sampled + to_start + to_end) / sampled;
    if of == Of::Rate {
        factor /= seconds(window.from, window.to);
    }
    change * factor
}

fn last_two(window: &Window<'_>, of: Of) -> f64 {
    let ([.., before_time, time], [.., before, value]) = (window.times, window.values) else { return ABSENT };
    if of == Of::Delta {
        return value - before;
    }
    let change = if value < before { *value } else { value - before };
    change / seconds(*before_time, *time)
}

/// Slope by second and value at `origin` of the line with the least squares.
fn line(window: &Window<'_>, origin: i64) -> Option<(f64, f64)> {
    let [first, _, ..] = window.values else { return None };
    if window.values.iter().all(|value| value == first) {
        return Some(if first.is_finite() { (0.0, *first) } else { (f64::NAN, f64::NAN) });
    }
    let (mut xs, mut ys) = (Mean::default(), Mean::default());
    for (time, value) in window.times.iter().zip(window.values) {
        xs.add(seconds(origin, *time));
        ys.add(*value);
    }
    let (x_mean, y_mean) = (xs.value(), ys.value());
    let (mut products, mut squares) = (Sum::default(), Sum::default());
    for (time, value) in window.times.iter().zip(window.values) {
        let x = seconds(origin, *time) - x_mean;
        products.add(x * (value - y_mean));
        squares.add(x * x);
    }
    let slope = products.value() / squares.value();
    Some((slope, y_mean - slope * x_mean))
}
