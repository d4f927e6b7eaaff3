//! Times and durations as OpenTSDB's clients write them.
//!
//!   1355961600            digits: seconds up to 10 of them, milliseconds up to 13, microseconds up to 16, nanoseconds up to 19
//!   1355961600.123        seconds and milliseconds
//!   1h-ago                before now; also `now`
//!   2012/12/20-00:00:00   also without seconds, without a time, and with a space for the `-`; in the query's time zone
//!
//! May use: `jiff`. Must not know: queries.

use jiff::civil;
use jiff::tz::TimeZone;

use crate::error::{Error, Result};

pub(crate) const MILLISECOND: i64 = 1_000_000;
pub(crate) const SECOND: i64 = 1_000 * MILLISECOND;
pub(crate) const HOUR: i64 = 3_600 * SECOND;

/// A unit of durations. In durations a month has 30 days and a year 365.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "ms" => Self::Millisecond,
            "s" => Self::Second,
            "m" => Self::Minute,
            "h" => Self::Hour,
            "d" => Self::Day,
            "w" => Self::Week,
            "n" => Self::Month,
            "y" => Self::Year,
            _ => return None,
        })
    }

    pub(crate) fn nanoseconds(self) -> i64 {
        match self {
            Self::Millisecond => MILLISECOND,
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => HOUR,
            Self::Day => 24 * HOUR,
            Self::Week => 7 * 24 * HOUR,
            Self::Month => 30 * 24 * HOUR,
            Self::Year => 365 * 24 * HOUR,
        }
    }
}

/// So many of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duration {
    pub(crate) count: i64,
    pub(crate) unit: Unit,
}

impl Duration {
    /// `5m`, `250ms`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!(
                "Invalid duration: {text}: write a number from 1 and one of ms, s, m, h, d, w, n, y"
            ))
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at(digits);
        let duration = Self { count: count.parse().map_err(|_| bad())?, unit: Unit::parse(unit).ok_or_else(bad)? };
        if duration.count == 0 || duration.count.checked_mul(duration.unit.nanoseconds()).is_none() {
            return Err(bad());
        }
        Ok(duration)
    }

    pub(crate) fn nanoseconds(self) -> i64 {
        self.count.saturating_mul(self.unit.nanoseconds())
    }
}

/// The zone with this name; UTC when there is none.
pub(crate) fn zone(name: Option<&str>) -> Result<TimeZone> {
    match name.filter(|name| !name.is_empty()) {
        None | Some("UTC" | "GMT") => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| {
            Error::invalid(format!(
                "Invalid timezone name: {name}: names are those of the tz database, as Europe/Berlin"
            ))
        }),
    }
}

/// A moment that was written, and how long it is meant to last: a moment in milliseconds is the whole millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at: i64,
    pub(crate) lasts: i64,
}

/// The moment that a text names, in nanoseconds since 1970.
pub(crate) fn moment(text: &str, now: i64, zone: &TimeZone) -> Result<Moment> {
    let milliseconds = |at: i64| Moment { at, lasts: MILLISECOND };
    let lower = text.trim().to_ascii_lowercase();
    if lower == "now" {
        return Ok(milliseconds(now));
    }
    if let Some(ago) = lower.strip_suffix("-ago") {
        return Ok(milliseconds(now.saturating_sub(Duration::parse(ago)?.nanoseconds())));
    }
    if text.contains(['/', ':']) {
        return formatted(text.trim(), zone).map(milliseconds);
    }
    digits(text.trim())
}

fn digits(text: &str) -> Result<Moment> {
    let bad = || {
        Error::invalid(format!(
            "Invalid time: {text}: write seconds or milliseconds since 1970, 1h-ago, or 2012/12/20-00:00:00"
        ))
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // As JSON writes a whole number that is a double.
    let fraction = fraction.strip_suffix('0').map_or(fraction, |rest| rest.trim_end_matches('0'));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_seconds_and_more = whole.len() <= 10 && fraction.len() <= 9;
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || !(fraction.is_empty() || is_seconds_and_more) {
        return Err(bad());
    }
    let (unit, lasts) = match whole.len() {
        0..=10 => (SECOND, MILLISECOND),
        11..=13 => (MILLISECOND, MILLISECOND),
        14..=16 => (1_000, 1_000),
        _ => (1, 1),
    };
    let at = whole.parse::<i64>().ok().and_then(|count| count.checked_mul(unit)).ok_or_else(bad)?;
    let part = format!("{fraction:0<9}").parse::<i64>().map_err(|_| bad())?;
    Ok(Moment { at: at.checked_add(part).ok_or_else(bad)?, lasts })
}

fn formatted(text: &str, zone: &TimeZone) -> Result<i64> {
    let bad = || {
        Error::invalid(format!(
            "Invalid date: {text}: write 2012/12/20, 2012/12/20-13:45 or 2012/12/20-13:45:30, or a space for the -"
        ))
    };
    let (date, time) = text.split_once(['-', ' ']).unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, between: char| -> Option<Vec<i64>> {
        text.split(between)
            .map(|part| part.parse().ok().filter(|_| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())))
            .collect()
    };
    let (date, time) = (numbers(date, '/').ok_or_else(bad)?, numbers(time, ':').ok_or_else(bad)?);
    let &[year, month, day] = date.as_slice() else { return Err(bad()) };
    let (hour, minute, second) = match *time.as_slice() {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(bad()),
    };
    let small = |number: i64| i8::try_from(number).ok();
    let civil = (|| {
        let date = civil::Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?).ok()?;
        Some(date.to_datetime(civil::Time::new(small(hour)?, small(minute)?, small(second)?, 0).ok()?))
    })();
    let moment = civil.and_then(|civil| zone.to_timestamp(civil).ok()).ok_or_else(bad)?;
    i64::try_from(moment.as_nanosecond()).map_err(|_| bad())
}
