//! Times as text: RFC 3339 in UTC or a zone going out, and what InfluxDB takes for a time coming in.
//!
//! May use: the calendar, `jiff`, `window`. Must not know: clocks.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::window::shown_first;

const SECOND: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// What a statement takes for now, and for the zone of times that do not say theirs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock<'a> {
    /// Nanoseconds since 1970.
    pub(crate) now: i64,
    /// `None` is UTC.
    pub(crate) zone: Option<&'a TimeZone>,
}

impl Clock<'_> {
    pub(crate) fn utc(now: i64) -> Self {
        Self { now, zone: None }
    }
}

/// Appends digits, with zeros before them.
fn push(out: &mut Vec<u8>, number: i64, width: u32) {
    for place in (0..width).rev() {
        let digit = number.unsigned_abs() / 10_u64.pow(place) % 10;
        out.push(b'0' + u8::try_from(digit).unwrap_or(0));
    }
}

/// Appends a time in RFC 3339, with as many digits behind the second as it has.
pub(crate) fn write(out: &mut Vec<u8>, nanos: i64, zone: Option<&TimeZone>) {
    let moment = Timestamp::from_nanosecond(i128::from(nanos)).ok();
    let ahead = zone.zip(moment).map_or(0, |(zone, moment)| i64::from(zone.to_offset(moment).seconds()));
    let (seconds, fraction) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    let seconds = seconds + ahead;
    let (year, month, day) = base::date_of_day(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    push(out, year, 4);
    for (sign, number) in
        [(b'-', month), (b'-', day), (b'T', of_day / 3600), (b':', of_day / 60 % 60), (b':', of_day % 60)]
    {
        out.push(sign);
        push(out, number, 2);
    }
    if fraction != 0 {
        out.push(b'.');
        push(out, fraction, 9);
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
    if ahead == 0 {
        return out.push(b'Z');
    }
    out.push(if ahead < 0 { b'-' } else { b'+' });
    push(out, ahead.abs() / 3600, 2);
    out.push(b':');
    push(out, ahead.abs() / 60 % 60, 2);
}

/// Takes a number of some digits from the front.
fn take(text: &mut &str, digits: usize) -> Option<i64> {
    let (number, rest) = text.split_at_checked(digits)?;
    *text = rest;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

fn take_sign(text: &mut &str, sign: char) -> Option<()> {
    *text = text.strip_prefix(sign)?;
    Some(())
}

/// Nanoseconds since 1970: `2026-01-31`, `2026-01-31 12:30:00.5`, `2026-01-31T12:30:00Z`, with `+02:00` for a zone. What says none
/// is in `zone`.
pub(crate) fn read(text: &str, zone: Option<&TimeZone>) -> Option<i64> {
    let mut rest = text.trim();
    let year = take(&mut rest, 4)?;
    take_sign(&mut rest, '-')?;
    let month = take(&mut rest, 2)?;
    take_sign(&mut rest, '-')?;
    let day = take(&mut rest, 2)?;
    let is_date = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && base::date_of_day(base::day_of_date(year, month, day)).2 == day;
    let mut is_local = true;
    let (mut seconds, mut nanos) = (base::day_of_date(year, month, day) * DAY_SECONDS, 0);
    if !is_date {
        return None;
    }
    if let Some(time) = rest.strip_prefix(['T', 't', ' ']) {
        rest = time;
        let hour = take(&mut rest, 2)?;
        take_sign(&mut rest, ':')?;
        let minute = take(&mut rest, 2)?;
        let mut second = 0;
        if take_sign(&mut rest, ':').is_some() {
            second = take(&mut rest, 2)?;
        }
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
        if let Some(fraction) = rest.strip_prefix('.') {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let (number, after) = fraction.split_at_checked(digits)?;
            nanos = format!("{:0<9.9}", number).parse().ok()?;
            rest = after;
        }
        is_local = rest.is_empty();
        seconds -= ahead(&mut rest)?;
    }
    if !rest.is_empty() {
        return None;
    }
    let time = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos);
    match zone.filter(|_| is_local) {
        Some(zone) => i64::try_from(time).ok().map(|_| shown_first(zone, time)),
        None => i64::try_from(time).ok(),
    }
}

/// Seconds that a zone is ahead of UTC.
fn ahead(text: &mut &str) -> Option<i64> {
    if text.is_empty() || matches!(*text, "Z" | "z") {
        *text = "";
        return Some(0);
    }
    let ahead = if take_sign(text, '+').is_some() { 1 } else { take_sign(text, '-').map(|()| -1)? };
    let hours = take(text, 2)?;
    let _ = take_sign(text, ':');
    let minutes = take(text, 2)?;
    Some(ahead * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(nanos: i64) -> String {
        let mut out = Vec::new();
        write(&mut out, nanos, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_read_and_shown() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_439_856_000_000_000_000, "2015-08-18T00:00:00Z"),
            (951_782_400_123_456_000, "2000-02-29T00:00:00.123456Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
        ] {
            assert_eq!((shown(nanos).as_str(), read(text, None)), (text, Some(nanos)));
        }
        for (text, wanted) in [
            ("2015-08-18", "2015-08-18T00:00:00Z"),
            ("2015-08-18 00:06", "2015-08-18T00:06:00Z"),
            ("2015-08-18 00:06:00.5", "2015-08-18T00:06:00.5Z"),
            ("2015-08-18T02:06:00+02:00", "2015-08-18T00:06:00Z"),
            ("2015-08-17T22:06:00.1234567891-0200", "2015-08-18T00:06:00.123456789Z"),
        ] {
            assert_eq!(read(text, None).map(shown), Some(wanted.to_owned()), "{text}");
        }
        for bad in [
            "",
            "now",
            "2015-02-29",
            "2015-13-01",
            "2015-08-18T25:00:00Z",
            "2015-08-18x",
            "9999-01-01",
            "2015-08-18T00:00:00.Zx",
        ] {
            assert_eq!(read(bad, None), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(nanos in any::<i64>(), text in "\\PC{0,30}") {
            prop_assert_eq!(read(&shown(nanos), None), Some(nanos));
            let _ = read(&text, None);
        }
    }
}
