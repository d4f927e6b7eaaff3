//! Floating-point numbers as Prometheus writes them.
//!
//! May use: nothing. Must not know: JSON.

use std::fmt::Write as _;

/// Appends a number as Prometheus' HTTP API has it: the shortest digits that mean it, with an exponent only when it is
/// below a millionth or at least 10^21.
pub fn write_float(value: f64, to: &mut String) {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) || !value.is_finite() {
        return write_plain(value, to);
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    let _ = write!(to, "{digits}e{sign}{exponent:0>2}");
}

/// Appends a number as labels have it: never with an exponent.
pub(crate) fn write_plain(value: f64, to: &mut String) {
    let written = match value {
        _ if value == f64::INFINITY => to.write_str("+Inf"),
        _ if value == f64::NEG_INFINITY => to.write_str("-Inf"),
        _ => write!(to, "{value}"),
    };
    written.expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::write_float;

    #[test]
    fn numbers_are_written_as_prometheus_does() {
        for (value, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-2.5e20, "-250000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1.25e-7, "1.25e-07"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            let mut text = String::new();
            write_float(value, &mut text);
            assert_eq!(text, wanted);
        }
    }
}
