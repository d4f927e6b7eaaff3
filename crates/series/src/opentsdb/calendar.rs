//! Where the intervals of a downsampling begin and end.
//!
//! Intervals of a fixed length are counted from 1970 in UTC, as OpenTSDB does. Those of the calendar begin where people
//! begin to count, in the zone of the query: milliseconds in the second, seconds in the minute, minutes in the hour, hours
//! at midnight, weeks on Sunday, months in January. A count that does not divide the larger unit begins at the next larger
//! one (7 minutes: at midnight), and there the last interval is shorter; days more than one begin with the year, weeks and
//! years more than one are counted from 1970.
//!
//! May use: `time`, `jiff`. Must not know: what is done with points.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

use super::time::{Duration, Unit};

/// One interval: times from `start` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: i64,
    pub(crate) end: i64,
}

/// How time is cut.
#[derive(Debug, Clone)]
pub(crate) enum Grid {
    /// One interval, named by its start.
    All { start: i64 },
    /// Intervals of this many nanoseconds.
    Fixed(i64),
    /// By the calendar of a zone.
    Calendar(Duration, TimeZone),
}

impl Grid {
    /// The interval that a time lies in.
    pub(crate) fn interval(&self, time: i64) -> Interval {
        match self {
            Self::All { start } => Interval { start: *start, end: i64::MAX },
            Self::Fixed(length) => {
                let start = time.saturating_sub(time.rem_euclid(*length));
                Interval { start, end: start.saturating_add(*length) }
            }
            Self::Calendar(duration, zone) => in_calendar(*duration, zone, time)
                .filter(|interval| interval.start <= time && time < interval.end)
                .unwrap_or_else(|| Grid::Fixed(duration.nanoseconds()).interval(time)),
        }
    }
}

fn nanoseconds(moment: Timestamp) -> Option<i64> {
    i64::try_from(moment.as_nanosecond()).ok()
}

fn start_of(date: Date, zone: &TimeZone) -> Option<i64> {
    nanoseconds(zone.to_timestamp(date.to_datetime(Time::midnight())).ok()?)
}

/// The interval of a fixed length within a span that begins and ends where people begin to count.
fn within(span: (i64, i64), length: i64, time: i64) -> Option<Interval> {
    let (start, end) = span;
    let start = start.checked_add((time - start).div_euclid(length) * length)?;
    Some(Interval { start, end: start.checked_add(length)?.min(end) })
}

fn in_calendar(duration: Duration, zone: &TimeZone, time: i64) -> Option<Interval> {
    let Duration { count, unit } = duration;
    let local = zone.to_datetime(Timestamp::from_nanosecond(i128::from(time)).ok()?);
    let date = local.date();
    let (divided, next) = match unit {
        Unit::Millisecond => (1_000, Unit::Minute),
        Unit::Second => (60, Unit::Hour),
        Unit::Minute => (60, Unit::Day),
        // A day is one, whether it has 23 hours or 25.
        Unit::Hour if count == 24 => return by_dates(Duration { count: 1, unit: Unit::Day }, zone, date),
        Unit::Hour => (24, Unit::Month),
        Unit::Day | Unit::Week | Unit::Month | Unit::Year => return by_dates(duration, zone, date),
    };
    let larger = match unit {
        _ if divided % count != 0 => next,
        Unit::Millisecond => Unit::Second,
        Unit::Second => Unit::Minute,
        Unit::Minute => Unit::Hour,
        _ => Unit::Day,
    };
    within(span(larger, local, zone, time)?, duration.nanoseconds(), time)
}

/// From where a unit began before a time to where the next begins. Seconds, minutes and hours are told from the offset that
/// holds at the time, so that in the hour that comes twice each is found once.
fn span(unit: Unit, local: DateTime, zone: &TimeZone, time: i64) -> Option<(i64, i64)> {
    let date = local.date();
    match unit {
        Unit::Day => Some((start_of(date, zone)?, start_of(date.tomorrow().ok()?, zone)?)),
        Unit::Month => {
            let first = date.first_of_month();
            Some((start_of(first, zone)?, start_of(first.checked_add(1.month()).ok()?, zone)?))
        }
        _ => {
            let offset = zone.to_offset(Timestamp::from_nanosecond(i128::from(time)).ok()?);
            let shift = i64::from(offset.seconds()) * 1_000_000_000;
            let start = time - (time.checked_add(shift)?).rem_euclid(unit.nanoseconds());
            Some((start, start.checked_add(unit.nanoseconds())?))
        }
    }
}

fn by_dates(duration: Duration, zone: &TimeZone, date: Date) -> Option<Interval> {
    let count = duration.count;
    let years = |date: Date| i64::from(date.year());
    let (start, end) = match duration.unit {
        Unit::Day if count == 1 => (date, date.tomorrow().ok()?),
        Unit::Day => {
            let day = i64::from(date.day_of_year()) - 1;
            let start = date.first_of_year().checked_add((day - day % count).days()).ok()?;
            let next_year = date.last_of_year().tomorrow().ok()?;
            (start, next_year.min(start.checked_add(Span::new().try_days(count).ok()?).ok()?))
        }
        Unit::Week => {
            let sunday = date.checked_sub(i64::from(date.weekday().since(Weekday::Sunday)).days()).ok()?;
            // The first Sunday of 1970.
            let origin = Date::new(1970, 1, 4).ok()?;
            let weeks = i64::from(sunday.since(origin).ok()?.get_days()) / 7;
            let start = sunday.checked_sub(weeks.rem_euclid(count).weeks()).ok()?;
            (start, start.checked_add(Span::new().try_weeks(count).ok()?).ok()?)
        }
        Unit::Month => {
            let month = i64::from(date.month()) - 1;
            let start = date.first_of_year().checked_add((month - month % count).months()).ok()?;
            let next_year = date.last_of_year().tomorrow().ok()?;
            (start, next_year.min(start.checked_add(Span::new().try_months(count).ok()?).ok()?))
        }
        _ => {
            let year = years(date) - (years(date) - 1970).rem_euclid(count);
            let start = Date::new(i16::try_from(year).ok()?, 1, 1).ok()?;
            (start, Date::new(i16::try_from(year.checked_add(count)?).ok()?, 1, 1).ok()?)
        }
    };
    Some(Interval { start: start_of(start, zone)?, end: start_of(end, zone)? })
}
