//! Exact decimal numbers: as text, and added.
//!
//! May use: `value`. Must not know: SQL, JSON.

use crate::value::Decimal;

impl Decimal {
    /// The decimal that a text says: digits with at most one point among them, and a sign. `12.50` keeps its scale of 2.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && behind.is_empty() {
            return None;
        }
        let mut mantissa = 0i128;
        for byte in whole.bytes().chain(behind.bytes()) {
            let digit = i128::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
            // Downwards, because the least i128 has no positive counterpart.
            mantissa = mantissa.checked_mul(10)?.checked_sub(digit)?;
        }
        let mantissa = if negative { mantissa } else { mantissa.checked_neg()? };
        Some(Self { mantissa, scale: u8::try_from(behind.len()).ok()? })
    }

    /// The sum, with the larger scale of both; `None` when it does not fit.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let scale = self.scale.max(other.scale);
        let mantissa = self.mantissa_at(scale)?.checked_add(other.mantissa_at(scale)?)?;
        Some(Self { mantissa, scale })
    }

    fn mantissa_at(self, scale: u8) -> Option<i128> {
        if self.mantissa == 0 {
            return Some(0);
        }
        self.mantissa.checked_mul(10i128.checked_pow(u32::from(scale.checked_sub(self.scale)?))?)
    }

    /// The f64 next to its part of so many equal ones, at least one.
    #[must_use]
    pub fn divided_by(self, parts: u64) -> f64 {
        let parts = i128::from(parts.max(1));
        let (mut digits, mut rest, mut scale) = (self.mantissa / parts, self.mantissa % parts, u32::from(self.scale));
        // As many digits behind as there is room for: more than twice what an f64 tells apart.
        while rest != 0
            && let Some(longer) = digits.checked_mul(10)
            && let Some(tenfold) = rest.checked_mul(10)
            && let Some(next) = longer.checked_add(tenfold / parts)
        {
            (digits, rest, scale) = (next, tenfold % parts, scale + 1);
        }
        rounded(digits, scale)
    }

    /// The f64 next to it.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        rounded(self.mantissa, u32::from(self.scale))
    }
}

/// The f64 next to these digits with so many behind the point.
fn rounded(digits: i128, scale: u32) -> f64 {
    // Through text, because dividing two rounded numbers would round twice.
    format!("{digits}e-{scale}").parse().expect("digits and an exponent are an f64")
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let scale = usize::from(self.scale);
        // At least one digit stands before the point.
        let digits = format!("{:0>width$}", self.mantissa.unsigned_abs(), width = scale + 1);
        match digits.split_at_checked(digits.len() - scale) {
            Some((whole, behind)) if scale > 0 => write!(f, "{sign}{whole}.{behind}"),
            _ => write!(f, "{sign}{digits}"),
        }
    }
}

impl From<i128> for Decimal {
    fn from(mantissa: i128) -> Self {
        Self { mantissa, scale: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_decimals() {
        let table = [
            ("0", 0, 0),
            ("12.50", 1250, 2),
            ("-0.05", -5, 2),
            ("170141183460469231731687303715884105727", i128::MAX, 0),
            ("-1.70141183460469231731687303715884105728", i128::MIN, 38),
        ];
        for (text, mantissa, scale) in table {
            let decimal = Decimal { mantissa, scale };
            assert_eq!(Decimal::parse(text), Some(decimal), "{text}");
            assert_eq!(decimal.to_string(), text);
        }
        assert_eq!(Decimal::parse(".5"), Decimal::parse("0.5"));
        assert_eq!(Decimal::parse("5."), Decimal::parse("5"));
        for wrong in ["", ".", "-", "-.", "+1", "1.2.3", "1e5", "é", "170141183460469231731687303715884105728"] {
            assert_eq!(Decimal::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_sum_is_exact_or_none() {
        let sum = |a: &str, b: &str| {
            Decimal::parse(a).unwrap().checked_add(Decimal::parse(b).unwrap()).map(|sum| sum.to_string())
        };
        assert_eq!(sum("0.1", "0.25").as_deref(), Some("0.35"));
        assert_eq!(sum("-1", "1.00").as_deref(), Some("0.00"));
        assert_eq!(sum("170141183460469231731687303715884105727", "0.1"), None);
        assert_eq!(Decimal { mantissa: -5, scale: 1 }.to_f64(), -0.5);
        assert_eq!(Decimal { mantissa: 1, scale: 255 }.to_f64(), 1e-255);
    }

    #[test]
    fn a_part_is_the_float_next_to_it() {
        let part = |sum: &str, parts: u64| Decimal::parse(sum).unwrap().divided_by(parts);
        for (sum, parts, wanted) in [
            ("0.3", 3, 0.1),
            ("1", 3, 1.0 / 3.0),
            ("-2", 3, -2.0 / 3.0),
            ("7", 1, 7.0),
            ("0", 9, 0.0),
            ("170141183460469231731687303715884105727", 2, 8.507_059_173_023_462e37),
            ("9007199254740993", u64::MAX, 4.882_812_500_000_001e-4),
        ] {
            assert_eq!(part(sum, parts), wanted, "{sum} / {parts}");
        }
    }

    proptest! {
        #[test]
        fn a_part_of_a_whole_number_is_what_floats_say(sum in -(1i64 << 53)..1 << 53, parts in 1u64..1 << 53) {
            prop_assert_eq!(Decimal::from(i128::from(sum)).divided_by(parts), sum as f64 / parts as f64);
        }

        #[test]
        fn text_and_back(mantissa: i128, scale: u8) {
            let decimal = Decimal { mantissa, scale };
            prop_assert_eq!(Decimal::parse(&decimal.to_string()), Some(decimal));
        }
    }
}
