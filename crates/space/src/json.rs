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
//! May use: `base64`, `timestamp`, `value`, `serde_json`. Must not know: doors.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::base64;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::timestamp;
use crate::value::{DEPTH_MAX, Decimal, MapRef, Value, ValueRef};

/// Something of ours as JSON: to be written alone, or as a part of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Json<T>(pub T);

impl Document {
    /// The document as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&Json(self.fields())).expect("all that a document holds has a text")
    }

    /// The document that a JSON text says. Of two fields with one name the later counts.
    ///
    /// # Errors
    /// `Invalid` when it is no JSON object or a value in it is not what its key says; `Limit` when it is too deep.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let fields: BTreeMap<String, Json<Value>> = serde_json::from_slice(text).map_err(wrong)?;
        let fields: BTreeMap<_, _> = fields.into_iter().map(|(name, Json(value))| (name, value)).collect();
        fields.values().try_for_each(|value| value.check_depth(DEPTH_MAX))?;
        Ok(Self::new(&fields))
    }
}

impl Value {
    /// The value as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&Json(self.stored().get())).expect("all that a value holds has a text")
    }

    /// The value that a JSON text says.
    ///
    /// # Errors
    /// `Invalid` when it is no JSON or a value in it is not what its key says; `Limit` when it is too deep.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let Json(value) = serde_json::from_slice::<Json<Self>>(text).map_err(wrong)?;
        value.check_depth(DEPTH_MAX)?;
        Ok(value)
    }
}

fn wrong(error: serde_json::Error) -> Error {
    Error::Invalid { text: format!("JSON: {error}") }
}

impl Serialize for Json<MapRef<'_>> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(name, &Json(value))?;
        }
        map.end()
    }
}

impl Serialize for Json<ValueRef<'_>> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let single = |to: S, name: &str, text: &str| {
            let mut map = to.serialize_map(Some(1))?;
            map.serialize_entry(name, text)?;
            map.end()
        };
        match self.0 {
            ValueRef::Null => to.serialize_unit(),
            ValueRef::Bool(value) => to.serialize_bool(value),
            ValueRef::I64(number) => to.serialize_i64(number),
            ValueRef::U64(number) => to.serialize_u64(number),
            ValueRef::F64(number) if number.is_finite() => to.serialize_f64(number),
            ValueRef::F64(number) => {
                let text = if number.is_nan() {
                    "NaN"
                } else if number > 0.0 {
                    "Infinity"
                } else {
                    "-Infinity"
                };
                single(to, "$f64", text)
            }
            ValueRef::Decimal(number) => single(to, "$decimal", &number.to_string()),
            ValueRef::String(text) => to.serialize_str(text),
            ValueRef::Bytes(bytes) => single(to, "$bytes", &base64::encode(bytes)),
            ValueRef::Timestamp(at) => single(to, "$timestamp", &timestamp::to_text(at)),
            ValueRef::List(list) => {
                let mut items = to.serialize_seq(None)?;
                for item in list.iter() {
                    items.serialize_element(&Json(item))?;
                }
                items.end()
            }
            ValueRef::Map(fields) => {
                let mut entries = fields.iter();
                if let (Some((name, value)), None) = (entries.next(), entries.next())
                    && name.starts_with('$')
                {
                    let mut map = to.serialize_map(Some(1))?;
                    map.serialize_entry(&format!("${name}"), &Json(value))?;
                    return map.end();
                }
                Json(fields).serialize(to)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json<Value> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        // The parser's own limit bounds this recursion.
        from.deserialize_any(Reader).map(Json)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<Value, E> {
        Ok(Value::I64(number))
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> std::result::Result<Value, E> {
        Ok(Value::F64(number))
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> std::result::Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = from.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, Json(value))) = from.next_entry::<String, Json<Value>>()? {
            fields.insert(name, value);
        }
        if fields.len() == 1 && fields.keys().any(|name| name.starts_with('$')) {
            return fields
                .pop_first()
                .map_or(Ok(Value::Null), |(name, value)| typed(name, value))
                .map_err(A::Error::custom);
        }
        Ok(Value::Map(fields))
    }
}

/// What a map of one key that begins with `$` says.
fn typed(name: String, value: Value) -> std::result::Result<Value, String> {
    let read: fn(&str) -> Option<Value> = match name.as_str() {
        "$bytes" => |text| base64::decode(text).map(Value::Bytes),
        "$timestamp" => |text| timestamp::parse(text).map(Value::Timestamp),
        "$decimal" => |text| Decimal::parse(text).map(Value::Decimal),
        "$f64" => |text| match text {
            "NaN" => Some(Value::F64(f64::NAN)),
            "Infinity" => Some(Value::F64(f64::INFINITY)),
            "-Infinity" => Some(Value::F64(f64::NEG_INFINITY)),
            _ => None,
        },
        _ => {
            let name = if name.starts_with("$$") { name.get(1..).map(str::to_owned) } else { None }.unwrap_or(name);
            return Ok(Value::Map(BTreeMap::from([(name, value)])));
        }
    };
    let text = if let Value::String(text) = &value { read(text) } else { None };
    text.ok_or_else(|| {
        let right = match name.as_str() {
            "$bytes" => "base64",
            "$timestamp" => "RFC 3339 between 1677-09-22 and 2262-04-11",
            "$decimal" => "digits, at most 38",
            _ => "NaN, Infinity or -Infinity",
        };
        format!("{name} must be a string of {right}; a map with this key is written ${name}")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{documents, values};

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
            (&deep(100_000), "JSON"),
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

    proptest! {
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
