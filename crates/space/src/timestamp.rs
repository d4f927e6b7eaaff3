//! Timestamps as people write them, and back: RFC 3339 with nanoseconds.
//!
//! Days are counted as in Howard Hinnant's `chrono-Compatible Low-Level Date Algorithms`: years begin in March, so that the
//! leap day is the last of its year. Leap seconds do not exist, as in POSIX time.
//!
//! May use: nothing. Must not know: SQL, JSON.

const DAY_SECONDS: i64 = 86_400;

/// `2026-01-31T12:30:00.000000001Z`: always UTC, with as many digits behind the point as there are, in threes.
pub(crate) fn to_text(nanoseconds: i64) -> String {
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let fraction = nanoseconds.rem_euclid(1_000_000_000);
    let (year, month, day) = base::date_of_day(seconds.div_euclid(DAY_SECONDS));
    let second = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = match fraction {
        0 => String::new(),
        _ if fraction % 1_000_000 == 0 => format!(".{:03}", fraction / 1_000_000),
        _ if fraction % 1_000 == 0 => format!(".{:06}", fraction / 1_000),
        _ => format!(".{fraction:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Nanoseconds since 1970-01-01 UTC. The time may be missing, and is 0 then; so may the zone, and is UTC then; a blank may
/// stand for the T. `None` when it is no time, or none between 1677-09-21 and 2262-04-11.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let mut rest = Text(text.as_bytes());
    let year = rest.number(4)?;
    rest.expect(b"-")?;
    let month = rest.number(2)?;
    rest.expect(b"-")?;
    let day = rest.number(2)?;
    if !(1..=12).contains(&month) || day < 1 || day > base::days_in_month(year, month) {
        return None;
    }
    let mut seconds = base::day_of_date(year, month, day) * DAY_SECONDS;
    let mut fraction = 0;
    if !rest.0.is_empty() {
        rest.expect(b"Tt ")?;
        let hour = rest.number(2)?;
        rest.expect(b":")?;
        let minute = rest.number(2)?;
        rest.expect(b":")?;
        let second = rest.number(2)?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += hour * 3600 + minute * 60 + second;
        if rest.expect(b".").is_some() {
            fraction = rest.fraction()?;
        }
        seconds -= rest.offset()?;
    }
    // In i128, so that the first representable second does not overflow before its fraction is added.
    let nanoseconds = i128::from(seconds) * 1_000_000_000 + i128::from(fraction);
    rest.0.is_empty().then(|| i64::try_from(nanoseconds).ok())?
}

struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn expect(&mut self, one_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        one_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    fn digit(&mut self) -> Option<i64> {
        self.expect(b"0123456789").map(|byte| i64::from(byte - b'0'))
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        (0..digits).try_fold(0, |number, _| Some(number * 10 + self.digit()?))
    }

    /// One to nine digits, as nanoseconds.
    fn fraction(&mut self) -> Option<i64> {
        let mut nanoseconds = self.digit()?;
        for _ in 1..9 {
            nanoseconds = nanoseconds * 10 + self.digit().unwrap_or(0);
        }
        Some(nanoseconds)
    }

    /// Seconds that the zone is ahead of UTC.
    fn offset(&mut self) -> Option<i64> {
        if self.0.is_empty() {
            return Some(0);
        }
        let sign = match self.expect(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return Some(0),
        };
        let hours = self.number(2)?;
        self.expect(b":")?;
        let minutes = self.number(2)?;
        (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_timestamps() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (1_767_225_600_001_000_000, "2026-01-01T00:00:00.001Z"),
            (1_767_225_600_000_001_000, "2026-01-01T00:00:00.000001Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ];
        for (nanoseconds, text) in table {
            assert_eq!(to_text(nanoseconds), text);
            assert_eq!(parse(text), Some(nanoseconds), "{text}");
        }
        let noon = parse("2026-01-01T12:00:00Z");
        for text in ["2026-01-01 12:00:00", "2026-01-01t14:00:00.0+02:00", "2025-12-31T23:30:00-12:30"] {
            assert_eq!(parse(text), noon, "{text}");
        }
        assert_eq!(parse("1970-01-02"), Some(86_400_000_000_000));
        for wrong in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "1900-02-29",
            "2026-01-00",
            "2026-01-01T",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.0000000001Z",
            "2026-01-01T00:00:00+2",
            "2026-01-01T00:00:00Z ",
            "9999-01-01",
            "0000-01-01",
            "2026-01-01T00:00",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn text_and_back(nanoseconds: i64) {
            prop_assert_eq!(parse(&to_text(nanoseconds)), Some(nanoseconds));
        }

        #[test]
        fn any_text_is_safe(text in "[0-9T:Z.+é-]{0,32}") {
            let _ = parse(&text);
        }
    }
}
