//! Windows of time: `GROUP BY time(length, offset)`, in UTC or, with `tz('Area/City')`, as clocks there have it.
//!
//! In a zone, windows longer than an hour begin where clocks show a multiple of their length: a day is one, whether it has 23 hours
//! or 25, and of a time that clocks show twice the first is meant. Those of an hour and shorter ones are counted from what clocks
//! show too, but the hour that comes twice has its own each time; one that a change of clocks falls into ends there.
//!
//! May use: `jiff`. Must not know: what is in them.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

const SECOND: i64 = 1_000_000_000;
/// Up to this length windows are counted between changes of clocks.
const SHORT_MAX: i64 = 3600 * SECOND;

/// Windows of one length, which begin at multiples of it and an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) length: i64,
    offset: i64,
    /// `None` is UTC.
    zone: Option<TimeZone>,
}

fn clamped(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn moment(time: i64) -> Option<Timestamp> {
    Timestamp::from_nanosecond(i128::from(time)).ok()
}

fn nanos(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * SECOND
}

/// How far clocks of a zone are ahead of UTC.
fn ahead(zone: &TimeZone, time: i64) -> i64 {
    moment(time).map_or(0, |moment| nanos(zone.to_offset(moment)))
}

/// The last change of clocks before a time, or at it.
fn change_before(zone: &TimeZone, time: i64) -> Option<i64> {
    let found = zone.preceding(moment(time.checked_add(1)?)?).next()?;
    i64::try_from(found.timestamp().as_nanosecond()).ok()
}

/// The next change of clocks after a time.
fn change_after(zone: &TimeZone, time: i64) -> Option<i64> {
    let found = zone.following(moment(time)?).next()?;
    i64::try_from(found.timestamp().as_nanosecond()).ok()
}

/// When clocks of a zone first show a time, or, where they leave it out, a later one.
pub(crate) fn shown_first(zone: &TimeZone, local: i128) -> i64 {
    let Some(shown) = moment(clamped(local)).map(|moment| TimeZone::UTC.to_datetime(moment)) else {
        return clamped(local);
    };
    let with = |offset: Offset| clamped(local - i128::from(nanos(offset)));
    match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => with(offset),
        AmbiguousOffset::Fold { before, .. } => with(before),
        AmbiguousOffset::Gap { before, .. } => change_before(zone, with(before)).unwrap_or_else(|| with(before)),
    }
}

impl Window {
    pub(crate) fn new(length: i64, offset: i64, zone: Option<TimeZone>) -> Self {
        let length = length.max(1);
        Self { length, offset: offset.rem_euclid(length), zone }
    }

    /// The windows of another length with the same offset.
    pub(crate) fn with_length(&self, length: i64) -> Self {
        Self::new(length, self.offset, self.zone.clone())
    }

    /// How far into its window a time is that clocks show.
    fn within(&self, local: i128) -> i128 {
        (local - i128::from(self.offset)).rem_euclid(i128::from(self.length))
    }

    /// Windows begin at multiples of their length and this, if that is so: in a zone it is not.
    pub(crate) fn offset_of_utc(&self) -> Option<i64> {
        self.zone.is_none().then_some(self.offset)
    }

    /// Where the window of a time begins; the first one is cut off where times begin.
    pub(crate) fn start(&self, time: i64) -> i64 {
        match &self.zone {
            None => time.saturating_sub(i64::try_from(self.within(time.into())).unwrap_or(0)),
            Some(zone) => self.bounds(zone, time).0,
        }
    }

    /// The last time of the window of a time.
    pub(crate) fn last(&self, time: i64) -> i64 {
        match &self.zone {
            None => {
                let left = i128::from(self.length) - 1 - self.within(time.into());
                time.saturating_add(i64::try_from(left).unwrap_or(i64::MAX))
            }
            Some(zone) => self.bounds(zone, time).1,
        }
    }

    /// Where the window after that of a time begins.
    pub(crate) fn next(&self, time: i64) -> i64 {
        self.last(time).saturating_add(1)
    }

    /// Where the window before that of a time begins.
    pub(crate) fn before(&self, time: i64) -> i64 {
        self.start(self.start(time).saturating_sub(1))
    }

    /// A time that is so many windows earlier, or later.
    pub(crate) fn moved(&self, time: i64, windows: i64) -> i64 {
        if self.zone.is_none() {
            return time.saturating_add(self.length.saturating_mul(windows));
        }
        let start = self.start(time);
        let mut moved = start;
        for _ in 0..windows.unsigned_abs() {
            moved = if windows < 0 { self.before(moved) } else { self.next(moved) };
        }
        moved.saturating_add(time.saturating_sub(start))
    }

    /// First and last time of the window of a time in a zone.
    fn bounds(&self, zone: &TimeZone, time: i64) -> (i64, i64) {
        let offset = ahead(zone, time);
        let local = i128::from(time) + i128::from(offset);
        let shown = local - self.within(local);
        let length = i128::from(self.length);
        if self.length <= SHORT_MAX {
            let start = clamped(shown - i128::from(offset));
            let last = start.saturating_add(self.length - 1);
            let first = if ahead(zone, start) == offset { None } else { change_before(zone, time) };
            let end = if ahead(zone, last) == offset { None } else { change_after(zone, time) };
            return (first.unwrap_or(start), end.map_or(last, |end| end.saturating_sub(1)));
        }
        // Around a change, what clocks show leads to the window before or after.
        let (mut start, mut next) = (shown_first(zone, shown), shown_first(zone, shown + length));
        if time < start {
            (start, next) = (shown_first(zone, shown - length), start);
        } else if time >= next {
            (start, next) = (next, shown_first(zone, shown + 2 * length));
        }
        (start, next.saturating_sub(1).max(start))
    }
}

/// The indices of sorted times that lie in one window after the other, with the window's start; all of them with 0 when there
/// are no windows.
pub(crate) struct Runs<'a> {
    times: &'a [i64],
    window: Option<&'a Window>,
    at: usize,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(times: &'a [i64], window: Option<&'a Window>) -> Self {
        Self { times, window, at: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = (i64, std::ops::Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.times.get(self.at..)?;
        let first = *rest.first()?;
        let (start, length) = match self.window {
            None => (0, rest.len()),
            Some(window) => {
                let last = window.last(first);
                (window.start(first), rest.partition_point(|time| *time <= last))
            }
        };
        let from = self.at;
        self.at += length.max(1);
        Some((start, from..self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_window() {
        for (length, offset, time, start, last) in [
            (10, 0, 25, 20, 29),
            (10, 0, -1, -10, -1),
            (10, 3, 12, 3, 12),
            (10, -7, 13, 13, 22),
            (10, 0, i64::MAX, i64::MAX - 7, i64::MAX),
            (i64::MAX, 0, 5, 0, i64::MAX - 1),
            (10, 0, i64::MIN, i64::MIN, i64::MIN + 7),
        ] {
            let window = Window::new(length, offset, None);
            assert_eq!((window.start(time), window.last(time)), (start, last), "{length} {offset} {time}");
        }
        let runs: Vec<_> = Runs::new(&[1, 9, 10, 35], Some(&Window::new(10, 0, None))).collect();
        assert_eq!(runs, [(0, 0..2), (10, 2..3), (30, 3..4)]);
        assert_eq!(Runs::new(&[1, 99], None).collect::<Vec<_>>(), [(0, 0..2)]);
    }

    /// Every time lies in one window, windows follow each other, and each begins where clocks show a multiple or have changed.
    #[test]
    fn windows_of_zones_leave_nothing_out_and_overlap_nowhere() {
        let minute = 60 * SECOND;
        for name in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
        {
            let zone = TimeZone::get(name).unwrap();
            for year in ["2021-03-27T12:00Z", "2021-10-30T12:00Z", "2021-04-02T12:00Z", "2018-11-03T12:00Z"] {
                let from: Timestamp = year.replace('Z', ":00Z").parse().unwrap();
                let from = i64::try_from(from.as_nanosecond()).unwrap();
                for minutes in [13, 30, 45, 60, 90, 120, 150, 180, 360, 720, 1440, 10_080] {
                    for offset in [0, 17 * minute, -90 * minute] {
                        let window = Window::new(minutes * minute, offset, Some(zone.clone()));
                        let mut start = window.start(from);
                        assert!(start <= from && window.last(from) >= from, "{name} {minutes}");
                        while start < from + 3 * 1440 * minute {
                            let last = window.last(start);
                            let said = format!("{name} {minutes} {offset} {start} {last}");
                            assert!(last >= start, "{said}");
                            for time in [start, start + (last - start) / 2, last] {
                                assert_eq!((window.start(time), window.last(time)), (start, last), "{said} {time}");
                            }
                            assert_eq!(window.before(last + 1), start, "{said}");
                            let local = i128::from(start) + i128::from(ahead(&zone, start));
                            let is_change = ahead(&zone, start) != ahead(&zone, start - 1);
                            assert!(window.within(local) == 0 || is_change, "{said}");
                            start = last + 1;
                        }
                    }
                }
            }
        }
        let day = Window::new(1440 * minute, 0, TimeZone::get("Europe/Berlin").ok());
        let hours = |time: i64| (day.next(time) - day.start(time)) / (60 * minute);
        assert_eq!([1_616_889_600, 1_635_638_400, 1_616_760_000].map(|seconds| hours(seconds * SECOND)), [23, 25, 24]);
        for window in [day, Window::new(minute, 0, TimeZone::get("Europe/Berlin").ok())] {
            for edge in [i64::MIN, i64::MAX] {
                assert!(window.start(edge) <= edge && window.last(edge) >= edge);
            }
        }
    }
}
