//! Times and lengths of time as the parameters of Prometheus' HTTP API have them, in milliseconds.
//!
//! A time is seconds since 1970, with a fraction if need be, or RFC 3339. A length is seconds or units: `1h30m`.
//!
//! May use: nothing. Must not know: which parameters there are.

const MS_PER_DAY: i64 = 86_400_000;
/// What Prometheus' own tools send for the first and the last moment there is.
const FIRST: &str = "-292273086-05-16T16:47:06Z";
const LAST: &str = "292277025-08-18T07:12:54.999999999Z";

/// A moment, in milliseconds since 1970: of seconds since then, or of RFC 3339.
#[must_use]
pub fn parse_moment(text: &str) -> Option<i64> {
    match text {
        FIRST => Some(i64::MIN),
        LAST => Some(i64::MAX),
        _ => seconds(text).or_else(|| rfc3339(text)),
    }
}

/// A length of time, in milliseconds: of seconds, or of units as in `1h30m`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<i64> {
    seconds(text).or_else(|| units(text))
}

#[expect(clippy::cast_possible_truncation, reason = "out of range it saturates, which is meant")]
fn seconds(text: &str) -> Option<i64> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
    Some((value * 1000.0).round() as i64)
}

/// Each unit once at most, the large ones first.
fn units(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut sum = 0i64;
    for (unit, ms) in [
        ("y", 365 * MS_PER_DAY),
        ("w", 7 * MS_PER_DAY),
        ("d", MS_PER_DAY),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let named = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        if number.is_empty() || after.get(..named)? != unit {
            continue;
        }
        sum = sum.checked_add(number.parse::<i64>().ok()?.checked_mul(ms)?)?;
        rest = after.get(named..)?;
    }
    (rest.is_empty() && !text.is_empty()).then_some(sum)
}

fn rfc3339(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let sign = |at: usize, signs: &[u8]| text.as_bytes().get(at).filter(|byte| signs.contains(byte));
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    for (at, signs) in [(4, &b"-"[..]), (7, b"-"), (10, b"Tt "), (13, b":"), (16, b":")] {
        sign(at, signs)?;
    }
    let is_possible = (1..=12).contains(&month) && (1..=base::days_in_month(year, month)).contains(&day);
    if !is_possible || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut ms = 0;
    if sign(at, b".").is_some() {
        let digits = text.get(at + 1..)?.bytes().take_while(u8::is_ascii_digit).count();
        let padded = format!("{:0<3}", text.get(at + 1..at + 1 + digits).filter(|digits| !digits.is_empty())?);
        ms = padded.get(..3)?.parse().ok()?;
        at += 1 + digits;
    }
    let offset = match sign(at, b"Zz+-")? {
        b'Z' | b'z' if text.len() == at + 1 => 0,
        sign if text.len() == at + 6 && text.as_bytes().get(at + 3) == Some(&b':') => {
            let minutes = number(at + 1, at + 3)? * 60 + number(at + 4, at + 6)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let days = base::day_of_date(year, month, day);
    Some(days * MS_PER_DAY + (hour * 60 + minute - offset) * 60_000 + second * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_or_dates() {
        for (text, wanted) in [
            ("1435781430.781", Some(1_435_781_430_781)),
            ("1435781430", Some(1_435_781_430_000)),
            ("-1.5", Some(-1500)),
            ("1e300", Some(i64::MAX)),
            ("2015-07-01T20:10:30.781Z", Some(1_435_781_430_781)),
            ("2015-07-01T22:10:30.78123+02:00", Some(1_435_781_430_781)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("2024-12-31T23:59:59Z", Some(1_735_689_599_000)),
            ("1970-01-01T00:00:00.1Z", Some(100)),
            (FIRST, Some(i64::MIN)),
            (LAST, Some(i64::MAX)),
            ("2023-02-29T00:00:00Z", None),
            ("2015-13-01T00:00:00Z", None),
            ("2015-07-01T20:10:30", None),
            ("2015-07-01T20:10:30.Z", None),
            ("2015-07-01T20:10:30Zx", None),
            ("NaN", None),
            ("inf", None),
            ("now", None),
            ("", None),
            ("2015-07-01T20:10:3\u{e9}Z", None),
        ] {
            assert_eq!(parse_moment(text), wanted, "{text}");
        }
    }

    #[test]
    fn lengths_are_seconds_or_units() {
        for (text, wanted) in [
            ("15", Some(15_000)),
            ("0.5", Some(500)),
            ("15s", Some(15_000)),
            ("1h30m", Some(5_400_000)),
            ("5ms", Some(5)),
            ("1d1ms", Some(86_400_001)),
            ("1y2w", Some(379 * MS_PER_DAY)),
            ("5", Some(5000)),
            ("30m1h", None),
            ("5x", None),
            ("h", None),
            ("", None),
            ("99999999999999999999y", None),
        ] {
            assert_eq!(parse_duration(text), wanted, "{text}");
        }
    }
}
