//! The 80-bit floating-point numbers in which Redis computes INCRBYFLOAT, in software.
//!
//! Redis adds with the x87 `long double` (64-bit mantissa) and prints `%.17Lf` without trailing zeros; computing in `f64`
//! would answer 10.59999999999999964 where Redis answers 10.6. Only what INCRBYFLOAT needs is here: reading, adding and
//! printing, each rounded half to even. Numbers too small to be normal become zero; hexadecimal is not read.
//!
//! May use: nothing. Must not know: anything else of the door.

/// The largest exponent of ten worth looking at: beyond, `long double` overflows or vanishes.
const DECIMAL_EXPONENT_MAX: i64 = 5_000;
/// Digits that may decide a rounding: the rest only counts as "something follows".
const DIGITS_MAX: usize = 1_200;
/// `mantissa * 2^exponent` overflows `long double` above this exponent (16383 - 63).
const EXPONENT_MAX: i32 = 16_320;
/// Below this exponent the number is not normal any more.
const EXPONENT_MIN: i32 = -16_445;

/// `(-1)^negative * mantissa * 2^exponent`; the mantissa of everything but zero has its highest bit set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// What a text means as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Number(Extended),
    Infinite,
    Invalid,
}

impl Extended {
    const ZERO: Extended = Extended { negative: false, mantissa: 0, exponent: 0 };

    /// Reads what `strtold` would, all of it, without leading spaces.
    pub(crate) fn parse(text: &[u8]) -> Parsed {
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Parsed::Infinite;
        }
        let Some((digits, exponent, sticky)) = decimal(rest) else {
            return Parsed::Invalid;
        };
        if digits.is_empty() {
            return Parsed::Number(Extended { negative, ..Extended::ZERO });
        }
        if exponent.unsigned_abs() > DECIMAL_EXPONENT_MAX as u64 {
            return Parsed::Invalid;
        }
        let mut big = Big::default();
        for digit in &digits {
            big.multiply_add(10, u32::from(*digit));
        }
        let mut shift = 0i32;
        let mut sticky = sticky;
        if exponent >= 0 {
            for _ in 0..exponent {
                big.multiply_add(10, 0);
            }
        } else {
            // Room for the quotient: 10 needs less than 3.33 bits, and 66 bits must be left to round.
            let places = exponent.unsigned_abs() as u32;
            let room = places * 10 / 3 + 68;
            big.shift_left(room);
            shift = -(room as i32);
            for _ in 0..places {
                sticky |= big.divide(10) != 0;
            }
        }
        let (mantissa, exponent) = big.round(sticky);
        match Extended::normal(negative, mantissa, exponent + shift) {
            Some(number) if number.mantissa != 0 => Parsed::Number(number),
            _ => Parsed::Invalid,
        }
    }

    /// The sum, or nothing when it overflows.
    pub(crate) fn add(self, other: Extended) -> Option<Extended> {
        if self.mantissa == 0 {
            return Some(other);
        }
        if other.mantissa == 0 {
            return Some(self);
        }
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        // 62 bits of room below the higher number's mantissa: what falls out further below only matters as a sticky bit.
        let distance = high.exponent.abs_diff(low.exponent);
        let high_bits = i128::from(high.mantissa) << 62;
        let low_wide = u128::from(low.mantissa) << 62;
        let low_bits =
            if distance >= 127 { 1 } else { low_wide >> distance | u128::from(low_wide & ((1 << distance) - 1) != 0) };
        let signed = |negative: bool, bits: i128| if negative { -bits } else { bits };
        let sum = signed(high.negative, high_bits) + signed(low.negative, low_bits as i128);
        if sum == 0 {
            return Some(Extended::ZERO);
        }
        let (mantissa, shift) = round_bits(sum.unsigned_abs(), false);
        Extended::normal(sum < 0, mantissa, high.exponent - 62 + shift)
    }

    /// As Redis prints it: 17 decimals at most, without trailing zeros and without exponent.
    pub(crate) fn print(self) -> String {
        let (integer, decimals) = if self.exponent >= 0 {
            let mut big = Big::default();
            big.multiply_add(1, (self.mantissa >> 32) as u32);
            big.shift_left(32);
            big.multiply_add(1, self.mantissa as u32);
            big.shift_left(self.exponent as u32);
            (big.into_decimal(), 0)
        } else {
            let places = self.exponent.unsigned_abs();
            // 64 + 57 bits: the product with 10^17 fits 128.
            let wide = u128::from(self.mantissa) * 10u128.pow(17);
            let scaled = if places >= 128 {
                0
            } else {
                let (whole, rest, half) = (wide >> places, wide & ((1 << places) - 1), 1u128 << (places - 1));
                whole + u128::from(rest > half || rest == half && whole & 1 == 1)
            };
            ((scaled / 10u128.pow(17)).to_string(), (scaled % 10u128.pow(17)) as u64)
        };
        let mut text = integer;
        if decimals != 0 {
            let digits = format!("{decimals:017}");
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }

    fn normal(negative: bool, mantissa: u64, exponent: i32) -> Option<Extended> {
        match exponent {
            _ if mantissa == 0 => Some(Extended::ZERO),
            exponent if exponent > EXPONENT_MAX => None,
            exponent if exponent < EXPONENT_MIN => Some(Extended::ZERO),
            exponent => Some(Extended { negative, mantissa, exponent }),
        }
    }
}

/// Significant digits without leading zeros, the power of ten of the last one, and whether more than zeros was cut off.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64, bool)> {
    let (number, exponent) = match text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'e')) {
        Some(at) => (text.get(..at)?, exponent(text.get(at + 1..)?)?),
        None => (text, 0),
    };
    let mut digits = Vec::new();
    let (mut exponent, mut sticky, mut point, mut any) = (exponent, false, false, false);
    for byte in number {
        match byte {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                any = true;
                exponent -= i64::from(point);
                if digits.is_empty() && *byte == b'0' {
                    continue;
                }
                if digits.len() < DIGITS_MAX {
                    digits.push(byte - b'0');
                } else {
                    sticky |= *byte != b'0';
                    exponent += 1;
                }
            }
            _ => return None,
        }
    }
    any.then_some((digits, exponent, sticky))
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1_000_000_000));
    Some(if negative { -value } else { value })
}

/// The highest 64 bits, rounded half to even, and the power of two they stand for.
fn round_bits(bits: u128, sticky: bool) -> (u64, i32) {
    let length = 128 - bits.leading_zeros();
    if length <= 64 {
        let up = 64 - length;
        // Nothing to round: the callers have more than 64 bits whenever something follows below.
        return ((bits as u64) << up.min(63), -(up as i32));
    }
    let cut = length - 64;
    let (mut mantissa, rest, half) = (bits >> cut, bits & ((1 << cut) - 1), 1u128 << (cut - 1));
    if rest > half || rest == half && (sticky || mantissa & 1 == 1) {
        mantissa += 1;
    }
    if mantissa >> 64 == 1 { (1 << 63, cut as i32 + 1) } else { (mantissa as u64, cut as i32) }
}

/// An unsigned integer of any size; the lowest word first.
#[derive(Default)]
struct Big {
    words: Vec<u32>,
}

impl Big {
    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.words {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.words.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.words.is_empty() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        self.words.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
    }

    /// Divides and answers the remainder.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for word in self.words.iter_mut().rev() {
            rest = rest << 32 | u64::from(*word);
            *word = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        rest as u32
    }

    fn round(&self, sticky: bool) -> (u64, i32) {
        // The four highest words hold at least 97 significant bits; what is below them is sticky.
        let low = self.words.len().saturating_sub(4);
        let (below, top) = self.words.split_at(low);
        let bits = top.iter().rev().fold(0u128, |bits, word| bits << 32 | u128::from(*word));
        let sticky = sticky || below.iter().any(|word| *word != 0);
        let (mantissa, exponent) = round_bits(bits, sticky);
        (mantissa, exponent + low as i32 * 32)
    }

    fn into_decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.words.is_empty() {
            groups.push(self.divide(1_000_000_000));
        }
        let mut text = groups.pop().unwrap_or_default().to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(left: &str, right: &str) -> String {
        match (Extended::parse(left.as_bytes()), Extended::parse(right.as_bytes())) {
            (Parsed::Number(left), Parsed::Number(right)) => {
                left.add(right).map_or("overflow".to_owned(), Extended::print)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn sums_print_as_redis_prints_them() {
        // The expected column is what redis-server 7.0.15 answers to SET and INCRBYFLOAT.
        for (left, right, expected) in [
            ("10.5", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("3.0e3", "200", "3200"),
            ("5.0e3", "2.0e2", "5200"),
            ("1", "-1", "0"),
            ("-1.5", "1", "-0.5"),
            ("1e20", "1", "100000000000000000000"),
            ("0", "1e-17", "0.00000000000000001"),
            ("0", "1e-18", "0"),
            ("0", "3.141592653589793238462643", "3.14159265358979324"),
            ("9223372036854775807", "1", "9223372036854775808"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("1e-5", "1e5", "100000.00001000000000317"),
            ("0", "-0", "0"),
            ("1.", ".5", "1.5"),
        ] {
            assert_eq!(sum(left, right), expected, "{left} + {right}");
        }
    }

    #[test]
    fn texts_that_are_no_numbers_are_refused() {
        for text in ["", "-", ".", "e5", "1e", "1e+", "nan", " 1", "1 ", "0x10", "1.2.3", "--1", "1e99999", "1e-99999"]
        {
            assert_eq!(Extended::parse(text.as_bytes()), Parsed::Invalid, "{text:?}");
        }
        assert_eq!(Extended::parse(b"-inf"), Parsed::Infinite);
        assert_eq!(Extended::parse(b"Infinity"), Parsed::Infinite);
    }

    #[test]
    fn long_digits_cost_bounded_time() {
        let text = "9".repeat(100_000);
        assert_eq!(Extended::parse(text.as_bytes()), Parsed::Invalid);
        let text = format!("0.{}", "9".repeat(4_000));
        assert_eq!(sum(&text, "0"), "1");
    }
}
