//! Functions that need all points of a window, in the order of their times.
//!
//! May use: `call`, `window`, `math`. Must not know: where points come from.

use std::cmp::Ordering;
use std::ops::Range;

use super::answer::Track;
use super::call::Aggregate;
use super::math::order;
use super::reduce::unsupported;
use super::window::{Runs, Window};
use crate::error::Result;
use crate::points::Points;
use crate::value::{Kind, Value, ValueRef};

/// A point of several series while these are joined: its place in the order, itself once more, and whose it is.
pub(crate) const JOINED_BYTES: u64 = 36;
/// A point where those of a window are sorted by their values, which takes half as much again on the way.
pub(crate) const SORTED_BYTES: u64 = 3 * size_of::<(ValueRef<'_>, usize)>() as u64 / 2;

/// Points of many series, sorted by time, and whose each is.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) points: Points,
    /// Empty when all are of one.
    members: Vec<u32>,
    one: usize,
}

impl Gathered {
    /// Puts the points of members together; those of one time stay in the order of their members.
    pub(crate) fn of(mut parts: Vec<(usize, Points)>) -> Self {
        if parts.len() <= 1 {
            return parts.pop().map_or_else(Self::default, |(one, points)| Self { points, members: Vec::new(), one });
        }
        let mut order = Vec::with_capacity(parts.iter().map(|(_, points)| points.len()).sum());
        for (nth, (_, points)) in (0_u32..).zip(&parts) {
            order.extend((0_u32..).zip(points.times()).map(|(at, time)| (*time, nth, at)));
        }
        order.sort_unstable();
        let mut all = Self::default();
        all.points.reserve(order.len());
        all.members.reserve(order.len());
        for (time, nth, at) in order {
            if let Some((member, points)) = parts.get(nth as usize)
                && let Some((_, value)) = points.get(at as usize)
            {
                all.points.push(time, value);
                all.members.push(u32::try_from(*member).unwrap_or(u32::MAX));
            }
        }
        all
    }

    pub(crate) fn member(&self, at: usize) -> usize {
        self.members.get(at).map_or(self.one, |member| *member as usize)
    }

    /// How many points are sorted by their values at a time, and how many results there are at most.
    pub(crate) fn counts(&self, aggregate: &Aggregate, window: Option<&Window>) -> (usize, usize) {
        let (mut longest, mut runs) = (0, 0);
        for (_, run) in Runs::new(self.points.times(), window) {
            longest = longest.max(run.len());
            runs += 1;
        }
        let is_many = matches!(aggregate, Aggregate::Top(..) | Aggregate::Bottom(..) | Aggregate::Distinct);
        let is_sorted = !matches!(aggregate, Aggregate::Integral(_) | Aggregate::Stddev);
        (if is_sorted { longest } else { 0 }, if is_many { self.points.len() } else { runs })
    }

    fn value(&self, at: usize) -> Option<ValueRef<'_>> {
        self.points.get(at).map(|(_, value)| value)
    }

    /// The points' indices, by their values and, where these are equal, times.
    fn by_value(&self, run: Range<usize>) -> Vec<(ValueRef<'_>, usize)> {
        let mut sorted: Vec<_> = run.filter_map(|at| Some((self.value(at)?, at))).collect();
        sorted.sort_by(|(left, _), (right, _)| order(*left, *right));
        sorted
    }

    fn track(self) -> Track {
        let mut track = Track::default();
        for (at, (time, value)) in self.points.iter().enumerate() {
            track.push_from(time, value.to_value(), (self.member(at), time));
        }
        track
    }
}

/// All points as they are.
pub(crate) fn raw(gathered: Gathered) -> Track {
    gathered.track()
}

/// The results of a function for each window that has some, at the windows' starts, which without windows is 0. Where a point is
/// chosen, its origin is said; the times of `top` and `bottom` are those of the points.
pub(crate) fn reduce(
    gathered: &Gathered,
    aggregate: &Aggregate,
    window: Option<&Window>,
    tag: &dyn Fn(usize, &str) -> String,
) -> Result<Track> {
    let mut track = Track::default();
    let takes_all = matches!(aggregate, Aggregate::Mode | Aggregate::Distinct | Aggregate::CountDistinct);
    let kinds = [Kind::Text, Kind::Boolean];
    if let Some(kind) =
        kinds.into_iter().find(|kind| (0..gathered.points.len()).any(|at| gathered.points.kind_at(at) == Some(*kind)))
        && !takes_all
    {
        return Err(unsupported(aggregate, kind));
    }
    if let Aggregate::Integral(unit) = aggregate {
        return Ok(integral(&gathered.points, *unit, window));
    }
    for (start, run) in Runs::new(gathered.points.times(), window) {
        match aggregate {
            Aggregate::Top(most, tags) => top(gathered, run, *most, tags, Ordering::reverse, tag, &mut track),
            Aggregate::Bottom(most, tags) => top(gathered, run, *most, tags, |order| order, tag, &mut track),
            Aggregate::Distinct => {
                let mut values = gathered.by_value(run);
                values.dedup_by(|(right, _), (left, _)| left == right);
                // In the order in which they came first.
                values.sort_by_key(|(_, at)| *at);
                for (value, at) in values {
                    track.push_from(start, value.to_value(), (gathered.member(at), start));
                }
            }
            Aggregate::CountDistinct => {
                let mut values = gathered.by_value(run);
                values.dedup_by(|(right, _), (left, _)| left == right);
                track.push(start, Some(Value::Integer((values.len() as u64).cast_signed())));
            }
            Aggregate::Percentile(percent) => {
                if let Some(at) = percentile(gathered, run, *percent)
                    && let Some((time, value)) = gathered.points.get(at)
                {
                    track.push_from(start, value.to_value(), (gathered.member(at), time));
                }
            }
            Aggregate::Median => track.push(start, median(&gathered.by_value(run))),
            Aggregate::Mode => track.push(start, mode(gathered, run)),
            _ => track.push(start, stddev(gathered, run)),
        }
    }
    Ok(track)
}

fn percentile(gathered: &Gathered, run: Range<usize>, percent: f64) -> Option<usize> {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "counts of points are small")]
    let nth = (run.len() as f64 * percent / 100.0 + 0.5).floor() as i64 - 1;
    let nth = usize::try_from(nth).ok()?;
    gathered.by_value(run).get(nth).map(|(_, at)| *at)
}

fn median(sorted: &[(ValueRef<'_>, usize)]) -> Option<Value> {
    let value = |at: usize| sorted.get(at).map(|(value, _)| *value);
    let half = sorted.len() / 2;
    let high = value(half)?;
    if sorted.len() % 2 == 1 {
        return high.number().map(Value::Float);
    }
    let low = value(half.checked_sub(1)?)?;
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    let difference = match (low, high) {
        // Integers are subtracted as such, which keeps the digits that doubles have not.
        (ValueRef::Integer(low), ValueRef::Integer(high)) => high.wrapping_sub(low) as f64,
        (ValueRef::Unsigned(low), ValueRef::Unsigned(high)) => high.wrapping_sub(low) as f64,
        _ => high.number()? - low.number()?,
    };
    Some(Value::Float(low.number()? + difference / 2.0))
}

/// The value that is there most often; of several the one whose last came first, and of values that are there once the least.
fn mode(gathered: &Gathered, run: Range<usize>) -> Option<Value> {
    let booleans = |is_so: bool| {
        run.clone().filter(|at| matches!(gathered.value(*at), Some(ValueRef::Boolean(value)) if value == is_so)).count()
    };
    if matches!(gathered.value(run.start), Some(ValueRef::Boolean(_))) {
        return Some(Value::Boolean(booleans(true) >= booleans(false)));
    }
    let sorted = gathered.by_value(run);
    let times = gathered.points.times();
    let mut best: Option<(usize, i64, ValueRef<'_>)> = None;
    for group in sorted.chunk_by(|(left, _), (right, _)| left == right) {
        let (Some((value, first)), Some((_, last))) = (group.first(), group.last()) else { continue };
        let (first, last) = (times.get(*first).copied()?, times.get(*last).copied()?);
        let is_better = match best {
            None => true,
            Some((count, time, _)) => group.len() > count || (group.len() == count && count > 1 && first <= time),
        };
        if is_better {
            best = Some((group.len(), last, *value));
        }
    }
    best.map(|(_, _, value)| value.to_value())
}

/// The deviation of a sample; null of less than two points.
fn stddev(gathered: &Gathered, run: Range<usize>) -> Option<Value> {
    if run.len() < 2 {
        return None;
    }
    let numbers = || run.clone().filter_map(|at| gathered.value(at)?.number()).filter(|number| !number.is_nan());
    let (mut mean, mut count) = (0.0, 0.0);
    for number in numbers() {
        count += 1.0;
        mean += (number - mean) / count;
    }
    let squares = numbers().fold(0.0, |sum, number| sum + (number - mean) * (number - mean));
    Some(Value::Float((squares / (count - 1.0)).sqrt()))
}

/// The points with the greatest values by `ranked`; of equal ones the first. With tags, one point for each of their values.
fn top(
    gathered: &Gathered,
    run: Range<usize>,
    most: usize,
    tags: &[String],
    ranked: impl Fn(Ordering) -> Ordering,
    tag: &dyn Fn(usize, &str) -> String,
    to: &mut Track,
) {
    let mut sorted: Vec<(ValueRef<'_>, usize)> = run.filter_map(|at| Some((gathered.value(at)?, at))).collect();
    sorted.sort_by(|(left, _), (right, _)| ranked(order(*left, *right)));
    let mut chosen: Vec<usize> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (_, at) in sorted {
        if chosen.len() == most {
            break;
        }
        let member = gathered.member(at);
        if tags.is_empty() || seen.insert(tags.iter().map(|name| tag(member, name)).collect::<Vec<_>>()) {
            chosen.push(at);
        }
    }
    // By time, and of one time in the order of their rank.
    chosen.sort_by_key(|at| gathered.points.times().get(*at).copied());
    for at in chosen {
        if let Some((time, value)) = gathered.points.get(at) {
            to.push_from(time, value.to_value(), (gathered.member(at), time));
        }
    }
}

/// The area under the line through the points, in units of `unit` nanoseconds. At the end of a window the line is cut; what lies
/// between there and the next point counts for the window of that point, as InfluxDB has it.
#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn integral(points: &Points, unit: i64, window: Option<&Window>) -> Track {
    let mut track = Track::default();
    let mut numbers = points.numbers();
    let Some(mut before) = numbers.next() else { return track };
    let bounds =
        |time: i64| window.map_or((0, i64::MAX), |window| (window.start(time), window.last(time).saturating_add(1)));
    let (mut start, mut end) = bounds(before.0);
    let mut sum = 0.0;
    let area = |(from, low): (i64, f64), (to, high): (i64, f64)| {
        0.5 * (low + high) * ((i128::from(to) - i128::from(from)) as f64 / unit as f64)
    };
    for point in numbers {
        if point.0 == before.0 {
            before = point;
            continue;
        }
        if window.is_some() && point.0 >= end {
            if before.0 != end {
                let share = (i128::from(end) - i128::from(before.0)) as f64
                    / (i128::from(point.0) - i128::from(before.0)) as f64;
                let cut = (end, before.1 + (point.1 - before.1) * share);
                sum += area(before, cut);
                before = cut;
            }
            track.push(start, Some(Value::Float(sum)));
            (start, end) = bounds(point.0);
            sum = 0.0;
        }
        sum += area(before, point);
        before = point;
    }
    if window.is_none() || before.0 != start {
        track.push(start, Some(Value::Float(sum)));
    }
    track
}
