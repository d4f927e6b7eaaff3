//! Rust types as documents, and back, through serde and straight to and from the stored form.
//!
//! A struct or a map is a document; its fields are the document's. Within it: integers, bool, strings, bytes, sequences and
//! maps are what they are called; an f32 is the f64 of the same value; a char is a string; None, () and unit structs are null;
//! i128 and u128 are integers where they fit 64 bits, and else decimals. Enums are externally tagged as in JSON: a variant
//! without data is a string of its name, any other a map from its name to its data. Keys of maps are strings, or integers and
//! booleans as text.
//!
//! [`Timestamp`] and [`Decimal`] keep what they are; so does [`Value`], whatever it holds, unless it is read through serde's own
//! buffer (`flatten`, untagged enums), where a timestamp is an integer and a decimal a string.
//!
//! May use: `document`, `value`. Must not know: JSON.

mod read;
mod write;

use std::collections::BTreeMap;

use ::serde::de::{self, Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use ::serde::ser::{self, Serialize, Serializer};

use crate::document::Document;
use crate::error::{Error, Result, invalid};
use crate::value::{DEPTH_MAX, Decimal, Value, ValueRef};

/// Nanoseconds since 1970-01-01 UTC, as a field of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
#[serde(rename = "holdfast::Timestamp")]
pub struct Timestamp(pub i64);

/// The names of newtypes by which our own writer and reader know what is more than serde has words for. To other formats
/// they are what lies within.
const TIMESTAMP: &str = "holdfast::Timestamp";
const DECIMAL: &str = "holdfast::Decimal";
const VALUE: &str = "holdfast::Value";

impl Document {
    /// The document that a struct or map is.
    ///
    /// # Errors
    /// `Invalid` when it is neither, or holds what no document can; `Limit` when it is too deep.
    pub fn from_serialize(from: &impl Serialize) -> Result<Self> {
        let mut bytes = Vec::new();
        from.serialize(write::Writer { to: &mut bytes, depth: DEPTH_MAX + 1 })?;
        match ValueRef::read(&mut base::Fields(&bytes)) {
            Some(ValueRef::Map(fields)) => Ok(Self::trusted(fields.as_bytes())),
            Some(other) => invalid(format!("a document is made of a struct or a map, not of {}", other.kind())),
            None => invalid("a document is made of a struct or a map"),
        }
    }

    /// What the document says as a Rust type. Strings and bytes may be borrowed from it.
    ///
    /// # Errors
    /// `Invalid` when a field is missing or is something else.
    pub fn deserialize<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        T::deserialize(read::Reader(ValueRef::Map(self.fields())))
    }
}

impl ser::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Invalid { text: text.to_string() }
    }
}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Invalid { text: text.to_string() }
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_newtype_struct(DECIMAL, &self.to_string())
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(::serde::Deserialize)]
        #[serde(rename = "holdfast::Decimal")]
        struct Text(String);
        let Text(text) = Text::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("`{text}` is no decimal: 12.50 is one")))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::I64(number) => to.serialize_i64(*number),
            Self::U64(number) => to.serialize_u64(*number),
            Self::F64(number) => to.serialize_f64(*number),
            Self::Decimal(number) => number.serialize(to),
            Self::String(text) => to.serialize_str(text),
            Self::Bytes(bytes) => to.serialize_bytes(bytes),
            Self::Timestamp(at) => Timestamp(*at).serialize(to),
            Self::List(items) => to.collect_seq(items),
            Self::Map(fields) => to.collect_map(fields),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_newtype_struct(VALUE, AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    /// Only our own reader comes here, with what serde has no word for.
    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> std::result::Result<Value, A::Error> {
        let (kind, value) = from.variant::<String>()?;
        Ok(match kind.as_str() {
            TIMESTAMP => Value::Timestamp(value.newtype_variant()?),
            _ => Value::Decimal(value.newtype_variant()?),
        })
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Value, D::Error> {
        Value::deserialize(from)
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

    fn visit_bytes<E>(self, bytes: &[u8]) -> std::result::Result<Value, E> {
        Ok(Value::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = from.next_entry()? {
            fields.insert(name, value);
        }
        Ok(Value::Map(fields))
    }
}

#[cfg(test)]
mod tests;
