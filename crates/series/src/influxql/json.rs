//! JSON as Go writes it, which is what InfluxDB's clients are used to: numbers as `strconv` and `encoding/json` have them, texts
//! with `<`, `>` and `&` escaped.
//!
//! May use: `value`. Must not know: what is written.

use std::io::Write;

use crate::value::ValueRef;

/// From here on numbers have an exponent.
const PLAIN_MAX: f64 = 1e21;
/// Below this too.
const PLAIN_MIN: f64 = 1e-6;

/// Appends a text in quotes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for char in text.chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\u{20}' => {
                write!(out, "\\u{:04x}", u32::from(char)).expect("memory takes what is written");
            }
            _ => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends a double; what is no number is null, which JSON has instead.
pub(crate) fn float(out: &mut Vec<u8>, number: f64) {
    let size = number.abs();
    let written = if !number.is_finite() {
        out.write_all(b"null")
    } else if number == 0.0 || (PLAIN_MIN..PLAIN_MAX).contains(&size) {
        write!(out, "{number}")
    } else if size >= PLAIN_MAX {
        let shown = format!("{number:e}");
        out.write_all(shown.replace('e', "e+").as_bytes())
    } else {
        write!(out, "{number:e}")
    };
    written.expect("memory takes what is written");
}

/// Appends a value, or null.
pub(crate) fn value(out: &mut Vec<u8>, value: Option<ValueRef<'_>>) {
    let written = match value {
        None => out.write_all(b"null"),
        Some(ValueRef::Float(number)) => return float(out, number),
        Some(ValueRef::Integer(number)) => write!(out, "{number}"),
        Some(ValueRef::Unsigned(number)) => write!(out, "{number}"),
        Some(ValueRef::Boolean(is_so)) => write!(out, "{is_so}"),
        Some(ValueRef::Text(said)) => return text(out, said),
    };
    written.expect("memory takes what is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_written_as_go_does() {
        for (number, wanted) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (1e-9, "1e-9"),
            (1e-10, "1e-10"),
            (123_456_789.125, "123456789.125"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
        ] {
            let mut out = Vec::new();
            float(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
        let mut out = Vec::new();
        text(&mut out, "a\"\\\n\u{1}<é>&\u{2028}");
        assert_eq!(String::from_utf8(out).unwrap(), r#""a\"\\\n\u0001\u003cé\u003e\u0026\u2028""#);
    }
}
