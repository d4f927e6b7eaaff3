//! Values and documents as JSON text. This comment is the specification.
//!
//! Null, booleans, strings, lists and maps are what JSON has for them. Integers are written with all their digits; a number
//! with a point or an exponent is an f64, and so is an integer that does not fit 64 bits. An f64 is always written with a
//! point or an exponent, so it stays one. What JSON has not is a map of one key:
//!   {"$bytes": "AP8="}                          base64
//!   {"$timestamp": "2026-01-31T12:30:00.5Z"}    RFC 3339, up to nine digits behind the point
//!   {"$decimal": "12.50"}                       its digits; the scale is how many stand behind the point
//!   {"$f64": "NaN" | "Infinity" | "-Infinity"}  the f64 that JSON has not
//! A map of the user's own with one key that begins with `$` is written with one more `$` before the key, and one is taken
//! away when it is read: {"$$bytes": 1} is the map {"$bytes": 1}. Another key that begins with one `$` is read as it is.
//! All this is within the fields: a document as a whole is never one of these, so its own fields are read as they are.
//!
//! `read.rs` makes the stored form of what a text says, `write.rs` the text of what is stored: neither has a tree of values between.
//!
//! May use: `base64`, `timestamp`, `value`, `serde_json`. Must not know: doors.

mod read;
mod write;

use crate::document::Document;
use crate::error::Result;
use crate::value::Value;
use base::Fields;

impl Document {
    /// The document as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = Vec::with_capacity(self.as_bytes().len() + 16);
        self.write_json(&mut text);
        into_text(text)
    }

    /// Appends the document as JSON text.
    pub fn write_json(&self, to: &mut Vec<u8>) {
        write::put_fields(Fields(self.as_bytes()), to);
    }

    /// The document that a JSON text says. Of two fields with one name the later counts.
    ///
    /// # Errors
    /// `Invalid` when it is no JSON object or a value in it is not what its key says; `Limit` when it is too deep.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        read::fields(text).map(|fields| Self::trusted(&fields))
    }
}

impl Value {
    /// The value as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = Vec::new();
        write::put(&mut Fields(self.stored().as_bytes()), &mut text);
        into_text(text)
    }

    /// The value that a JSON text says.
    ///
    /// # Errors
    /// `Invalid` when it is no JSON or a value in it is not what its key says; `Limit` when it is too deep.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        Ok(read::value(text)?.get().to_value())
    }
}

/// What is stored as text was text, and so is what is written of it.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{documents, values};
    use crate::value::{DEPTH_MAX, Decimal};

    #[test]
    fn the_table_of_texts() {
        let map = |name: &str, value: Value| Value::Map(BTreeMap::from([(name.to_owned(), value)]));
        let table: Vec<(Value, &str)> = vec![
            (Value::Null, "null"),
            (true.into(), "true"),
            ((-5).into(), "-5"),
            (i64::MIN.into(), "-9223372036854775808"),
            (u64::MAX.into(), "18446744073709551615"),
            (5.0.into(), "5.0"),
            (1e300.into(), "1e+300"),
            (0.1.into(), "0.1"),
            (f64::NEG_INFINITY.into(), r#"{"$f64":"-Infinity"}"#),
            ("a\"\u{1}é".into(), "\"a\\\"\\u0001é\""),
            (Value::Bytes(vec![0, 255]), r#"{"$bytes":"AP8="}"#),
            (Value::Timestamp(1_500_000_000), r#"{"$timestamp":"1970-01-01T00:00:01.500Z"}"#),
            (Value::Decimal(Decimal { mantissa: 1250, scale: 2 }), r#"{"$decimal":"12.50"}"#),
            (vec![1, 2].into(), "[1,2]"),
            (map("a", 1.into()), r#"{"a":1}"#),
            (map("$bytes", 1.into()), r#"{"$$bytes":1}"#),
            (map("$$bytes", 1.into()), r#"{"$$$bytes":1}"#),
            (map("$", 1.into()), r#"{"$$":1}"#),
            (Value::Map([("$bytes".into(), 1.into()), ("b".into(), 2.into())].into()), r#"{"$bytes":1,"b":2}"#),
        ];
        for (value, text) in table {
            assert_eq!(value.to_json(), text);
            assert_eq!(Value::from_json(text.as_bytes()), Ok(value), "{text}");
        }
        let read: [(&str, Value); 4] = [
            ("18446744073709551616", 18_446_744_073_709_551_616.0.into()),
            (" 1e2 ", 100.0.into()),
            (r#"{"$own":1}"#, map("$own", 1.into())),
            (r#"{"a":1,"a":2}"#, map("a", 2.into())),
        ];
        for (text, value) in read {
            assert_eq!(Value::from_json(text.as_bytes()), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Value::from_json(deep(DEPTH_MAX).as_bytes()).is_ok());
        let table = [
            ("", "JSON"),
            ("{", "JSON"),
            ("1 2", "JSON"),
            (r#"{"$bytes":"?"}"#, "base64"),
            (r#"{"$bytes":1}"#, "$$bytes"),
            (r#"{"$timestamp":"now"}"#, "RFC 3339"),
            (r#"{"$decimal":"1e5"}"#, "digits"),
            (r#"{"$f64":"1"}"#, "NaN"),
            (&deep(DEPTH_MAX + 1), "depth"),
            (&deep(100_000), "depth"),
        ];
        for (text, word) in table {
            let error = Value::from_json(text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(word), "{text}: {error}");
        }
        for text in ["1", "[]", "null", "\"x\""] {
            assert!(Document::from_json(text.as_bytes()).is_err(), "{text}");
        }
        let own = Document::from_json(br#"{"$bytes":"x"}"#).unwrap();
        assert_eq!(own, Document::from_pairs([("$bytes", "x")]));
        assert_eq!(own.to_json(), r#"{"$bytes":"x"}"#);
    }

    #[test]
    fn what_stands_for_a_value_is_no_deeper_than_it() {
        let within = |inner: &str, levels: usize| "[".repeat(levels) + inner + &"]".repeat(levels);
        let decimal = r#"{"$decimal":"1"}"#;
        assert!(Value::from_json(within(decimal, DEPTH_MAX).as_bytes()).is_ok());
        for (inner, levels) in [(r#"{"$$decimal":"1"}"#, DEPTH_MAX), ("{}", DEPTH_MAX), (decimal, DEPTH_MAX + 1)] {
            let error = Value::from_json(within(inner, levels).as_bytes()).unwrap_err();
            assert!(error.to_string().contains("depth"), "{inner}: {error}");
        }
    }

    #[test]
    fn fields_come_in_any_order_and_the_later_of_two_counts() {
        let text = br#"{"b":{"z":1,"a":[2,{"y":0,"x":1}]},"a":1,"c":"x","a":2,"b0":null,"c":3,"":0}"#;
        let wanted = r#"{"":0,"a":2,"b":{"a":[2,{"x":1,"y":0}],"z":1},"b0":null,"c":3}"#;
        let document = Document::from_json(text).unwrap();
        assert_eq!(document.to_json(), wanted);
        assert_eq!(Document::from_stored(document.as_bytes()), Ok(document));
        assert_eq!(Document::from_json(br#"{"a":{"$b":1,"$b":2}}"#).unwrap().to_json(), r#"{"a":{"$$b":2}}"#);
    }

    proptest! {
        #[test]
        fn text_is_what_another_reader_reads(text in "[ -~\u{0}-\u{20}\"\\\\é€𝄞]{0,100}") {
            let json = Value::String(text.clone()).to_json();
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text.clone());
            prop_assert_eq!(json, serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn there_and_back(value in values(), document in documents()) {
            let again = Value::from_json(value.to_json().as_bytes()).unwrap();
            prop_assert_eq!(again.stored(), value.stored());
            let again = Document::from_json(document.to_json().as_bytes()).unwrap();
            prop_assert_eq!(again, document);
        }

        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>, text in "[\\[\\]{}\":,$a1.e-]{0,24}") {
            let _ = Value::from_json(&bytes);
            if let Ok(document) = Document::from_json(text.as_bytes()) {
                prop_assert_eq!(&Document::from_stored(document.as_bytes()).unwrap(), &document);
            }
        }
    }
}
