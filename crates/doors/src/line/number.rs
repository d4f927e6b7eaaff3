//! Numbers and times as they stand in lines and in JSON: decimal digits, read without copying.
//!
//! A decimal of at most 15 digits is exact as a product or quotient of two doubles that are themselves exact (Clinger,
//! "How to read floating point numbers accurately", 1990): nearly all values are such, and cost a few nanoseconds. The
//! others are std's.
//!
//! May use: std. Must not know: lines, names.

/// A number: an integer is one that has neither a point nor an exponent, and fits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

/// What a time without a unit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// As many digits say: up to 10 seconds, 13 milliseconds, 16 microseconds, 19 nanoseconds.
    Digits,
    /// So many nanoseconds.
    Nanos(i64),
}

pub(crate) const SECOND: i64 = 1_000_000_000;
const TIME_RANGE: &str = "the time is out of range: years 1678 to 2261 can be stored";

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Up to so many digits an integer is exact as a double.
const EXACT_DIGITS: usize = 15;
/// So many digits do not overflow 64 bits.
const SAFE_DIGITS: usize = 18;

/// A decimal that is being read: its digits as one integer.
struct Digits {
    value: u64,
    count: usize,
}

impl Digits {
    /// Reads digits from `text`, and returns what follows them.
    fn read<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let mut rest = text;
        while let [byte @ b'0'..=b'9', after @ ..] = rest {
            self.value = self.value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.count += 1;
            rest = after;
        }
        rest
    }
}

/// Reads the number that `text` begins with, and returns what follows it. `None` when it is not of digits, a sign and a
/// point alone, or is too long to be exact: the caller finds its end, and asks [`number`].
pub(crate) fn leading(text: &[u8]) -> Option<(Number, &[u8])> {
    let (is_negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut digits = Digits { value: 0, count: 0 };
    let rest = digits.read(unsigned);
    if let [b'.', fraction @ ..] = rest {
        let before = digits.count;
        let rest = digits.read(fraction);
        let decimals = digits.count - before;
        if digits.count == 0 || digits.count > EXACT_DIGITS || matches!(rest, [b'e' | b'E', ..]) {
            return None;
        }
        let power = POWERS.get(decimals)?;
        #[expect(clippy::cast_precision_loss, reason = "fifteen digits are exact")]
        let value = digits.value as f64 / power;
        return Some((Number::Float(if is_negative { -value } else { value }), rest));
    }
    if digits.count == 0 || digits.count > SAFE_DIGITS || matches!(rest, [b'e' | b'E', ..]) {
        return None;
    }
    let value = digits.value.cast_signed();
    Some((Number::Integer(if is_negative { -value } else { value }), rest))
}

/// Whether `text` is a decimal that is farther from zero than doubles reach.
fn is_out_of_range(text: &[u8]) -> bool {
    let number: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.is_some_and(f64::is_infinite) && text.iter().any(u8::is_ascii_digit)
}

/// What would be right instead of what [`number`] does not take: `usual`, unless it is a number all the same.
pub(crate) fn advice(text: &[u8], usual: &'static str) -> &'static str {
    if is_out_of_range(text) {
        "it is out of range: doubles reach from -1.7976931348623157e308 to 1.7976931348623157e308"
    } else {
        usual
    }
}

/// The number that all of `text` is; `NaN`, `inf` and `Infinity` in any case, with a sign or without, are numbers too. Decimals that
/// doubles do not reach are not: an infinity is stored only for who says so.
pub(crate) fn number(text: &[u8]) -> Option<Number> {
    if let Some((number, [])) = leading(text) {
        return Some(number);
    }
    let text = std::str::from_utf8(text).ok()?;
    let is_integer =
        text.bytes().enumerate().all(|(at, byte)| byte.is_ascii_digit() || at == 0 && b"+-".contains(&byte));
    if is_integer && let Ok(integer) = text.parse() {
        return Some(Number::Integer(integer));
    }
    text.parse().ok().filter(|_| !is_out_of_range(text.as_bytes())).map(Number::Float)
}

impl Number {
    /// As a double.
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    pub(crate) fn float(self) -> f64 {
        match self {
            Number::Integer(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// The time that all of `text` is, in nanoseconds since 1970.
///
/// # Errors
/// What would be right.
pub(crate) fn time(text: &[u8], unit: Unit) -> Result<i64, &'static str> {
    let (is_negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut digits = Digits { value: 0, count: 0 };
    let rest = digits.read(unsigned);
    if digits.count == 0 {
        return Err("the time is not a number of digits");
    }
    let value = match (rest, unit) {
        ([], _) if digits.count > 19 => return Err(TIME_RANGE),
        ([], Unit::Nanos(nanos)) => i64::try_from(digits.value).ok().and_then(|value| value.checked_mul(nanos)),
        ([], Unit::Digits) => {
            let nanos = match digits.count {
                0..=10 => SECOND,
                11..=13 => 1_000_000,
                14..=16 => 1_000,
                _ => 1,
            };
            i64::try_from(digits.value).ok().and_then(|value| value.checked_mul(nanos))
        }
        ([b'.', fraction @ ..], Unit::Digits) if digits.count <= 10 => {
            let mut decimals = Digits { value: 0, count: 0 };
            let rest = decimals.read(fraction);
            if !rest.is_empty() || !(1..=9).contains(&decimals.count) {
                return Err("the time has a fraction that is not of 1 to 9 digits");
            }
            let nanos = decimals.value.cast_signed() * 10_i64.pow(9 - u32::try_from(decimals.count).unwrap_or(9));
            let seconds = digits.value.cast_signed();
            seconds.checked_mul(SECOND).and_then(|whole| whole.checked_add(nanos))
        }
        _ => return Err("the time is not a number of digits"),
    };
    value.map(|value| if is_negative { -value } else { value }).ok_or(TIME_RANGE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        match number(text.as_bytes()) {
            Some(Number::Integer(value)) => format!("i{value}"),
            Some(Number::Float(value)) => format!("f{value}"),
            None => "nothing".to_owned(),
        }
    }

    #[test]
    fn integers_stay_integers_and_everything_else_is_a_double() {
        for (text, wanted) in [
            ("0", "i0"),
            ("-7", "i-7"),
            ("+7", "i7"),
            ("007", "i7"),
            ("9223372036854775807", "i9223372036854775807"),
            ("-9223372036854775808", "i-9223372036854775808"),
            ("9223372036854775808", "f9223372036854776000"),
            ("1.0", "f1"),
            ("-0.0", "f-0"),
            (".5", "f0.5"),
            ("5.", "f5"),
            ("1e3", "f1000"),
            ("1.5E-3", "f0.0015"),
            ("0.1234567890123456789", "f0.12345678901234568"),
            ("NaN", "fNaN"),
            ("nan", "fNaN"),
            ("Infinity", "finf"),
            ("-inf", "f-inf"),
            ("+Inf", "finf"),
            ("", "nothing"),
            ("-", "nothing"),
            (".", "nothing"),
            ("1,5", "nothing"),
            ("0x10", "nothing"),
            ("1_000", "nothing"),
            (" 1", "nothing"),
            ("--1", "nothing"),
            ("1e", "nothing"),
            ("1e400", "nothing"),
            ("-1e309", "nothing"),
            ("1e-400", "f0"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
    }

    #[test]
    fn the_digits_of_a_time_say_its_unit() {
        for (text, wanted) in [
            ("1356998400", Ok(1_356_998_400_000_000_000)),
            ("1356998400123", Ok(1_356_998_400_123_000_000)),
            ("1356998400123456", Ok(1_356_998_400_123_456_000)),
            ("1356998400123456789", Ok(1_356_998_400_123_456_789)),
            ("1356998400.123", Ok(1_356_998_400_123_000_000)),
            ("1356998400.5", Ok(1_356_998_400_500_000_000)),
            ("0", Ok(0)),
            ("-1", Ok(-1_000_000_000)),
            ("9999999999999999999", Err(TIME_RANGE)),
            ("9999999999", Err(TIME_RANGE)),
            ("13569984001234567890", Err(TIME_RANGE)),
            ("1356998400.", Err("the time has a fraction that is not of 1 to 9 digits")),
            ("1356998400.1234567890", Err("the time has a fraction that is not of 1 to 9 digits")),
            ("1356998400123.5", Err("the time is not a number of digits")),
            ("now", Err("the time is not a number of digits")),
            ("", Err("the time is not a number of digits")),
            ("1x", Err("the time is not a number of digits")),
        ] {
            assert_eq!(time(text.as_bytes(), Unit::Digits), wanted, "{text}");
        }
        assert_eq!(time(b"12", Unit::Nanos(1_000)), Ok(12_000));
        assert_eq!(time(b"-12", Unit::Nanos(1)), Ok(-12));
        assert!(time(b"9999999999999", Unit::Nanos(SECOND)).is_err() && time(b"1.5", Unit::Nanos(SECOND)).is_err());
    }

    proptest! {
        #[test]
        fn decimals_are_what_std_makes_of_them(mantissa in any::<i64>(), shift in 0u32..40, decimals in 0usize..25) {
            let text = format!("{:.*}", decimals, (mantissa >> shift.min(63)) as f64 / 1000.0);
            let wanted: f64 = text.parse().unwrap();
            prop_assert_eq!(number(text.as_bytes()).map(|it| it.float().to_bits()), Some(wanted.to_bits()), "{}", text);
        }

        #[test]
        fn every_double_comes_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let text = format!("{value:?}");
            let back = number(text.as_bytes()).map(Number::float).unwrap();
            prop_assert!(back.to_bits() == bits || value.is_nan() && back.is_nan(), "{}", text);
        }

        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = (number(&bytes), time(&bytes, Unit::Digits), time(&bytes, Unit::Nanos(1)));
        }
    }
}
