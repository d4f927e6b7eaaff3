//! Numbers as arguments of commands.
//!
//! May use: nothing. Must not know: Luau.

/// A number as text: whole ones without a fraction, others with the fewest digits that read back the same.
pub(crate) fn text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Up to here every whole number is exact.
    if number.fract() == 0.0 && number.abs() < 1e17 {
        return (number as i64).to_string();
    }
    if number.abs() >= 1e17 || number.abs() < 1e-6 { format!("{number:e}") } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (10.0, "10"),
            (-7.0, "-7"),
            (1.5, "1.5"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e300, "1e300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(number), expected);
        }
    }

    proptest! {
        #[test]
        fn every_number_reads_back_the_same(number in proptest::num::f64::NORMAL) {
            prop_assert_eq!(text(number).parse::<f64>().unwrap(), number);
        }
    }
}
