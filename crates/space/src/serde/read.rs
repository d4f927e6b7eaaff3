//! The deserializer: reads stored values where they lie.
//!
//! May use: `value`. Must not know: documents.

use serde::de::value::{BorrowedStrDeserializer, I64Deserializer, StringDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::{DECIMAL, TIMESTAMP, VALUE};
use crate::error::{Error, Result, invalid};
use crate::value::{MapRef, ValueRef};

/// One value to be read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'de>(pub(super) ValueRef<'de>);

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Null => visitor.visit_unit(),
            ValueRef::Bool(value) => visitor.visit_bool(value),
            ValueRef::I64(number) => visitor.visit_i64(number),
            ValueRef::U64(number) => visitor.visit_u64(number),
            ValueRef::F64(number) => visitor.visit_f64(number),
            ValueRef::Decimal(number) => visitor.visit_string(number.to_string()),
            ValueRef::String(text) => visitor.visit_borrowed_str(text),
            ValueRef::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            ValueRef::Timestamp(at) => visitor.visit_i64(at),
            ValueRef::List(list) => visitor.visit_seq(Items(list.iter())),
            ValueRef::Map(fields) => visitor.visit_map(Entries { rest: fields.iter(), value: ValueRef::Null }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Decimal(number) => visitor.visit_f64(number.to_f64()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Decimal(number) if number.scale == 0 => visitor.visit_i128(number.mantissa),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.0 {
            ValueRef::Decimal(number) if number.scale == 0 && number.mantissa >= 0 => {
                visitor.visit_u128(number.mantissa.unsigned_abs())
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        match (name, self.0) {
            (VALUE, ValueRef::Timestamp(_) | ValueRef::Decimal(_)) => visitor.visit_enum(Special(self.0)),
            (TIMESTAMP, ValueRef::Timestamp(at)) => visitor.visit_newtype_struct(I64Deserializer::new(at)),
            (DECIMAL, ValueRef::Decimal(number)) => {
                visitor.visit_newtype_struct(StringDeserializer::new(number.to_string()))
            }
            (DECIMAL, ValueRef::I64(number)) => {
                visitor.visit_newtype_struct(StringDeserializer::new(number.to_string()))
            }
            (DECIMAL, ValueRef::U64(number)) => {
                visitor.visit_newtype_struct(StringDeserializer::new(number.to_string()))
            }
            (TIMESTAMP, other) => invalid(format!("there is {}, not a timestamp", other.kind())),
            (DECIMAL, other) => invalid(format!("there is {}, not a decimal", other.kind())),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.0 {
            ValueRef::String(variant) => visitor.visit_enum(Tagged { variant, value: None }),
            ValueRef::Map(fields) => match single(fields) {
                Some((variant, value)) => visitor.visit_enum(Tagged { variant, value: Some(value) }),
                None => invalid("an enum is a map of one name, that of its variant"),
            },
            other => invalid(format!("an enum is a string or a map of one name, not {}", other.kind())),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

fn single(fields: MapRef<'_>) -> Option<(&str, ValueRef<'_>)> {
    let mut entries = fields.iter();
    let first = entries.next()?;
    entries.next().is_none().then_some(first)
}

struct Items<I>(I);

impl<'de, I: Iterator<Item = ValueRef<'de>>> SeqAccess<'de> for Items<I> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        self.0.next().map(|item| seed.deserialize(Reader(item))).transpose()
    }
}

struct Entries<'de, I> {
    rest: I,
    value: ValueRef<'de>,
}

impl<'de, I: Iterator<Item = (&'de str, ValueRef<'de>)>> MapAccess<'de> for Entries<'de, I> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = value;
        seed.deserialize(Key(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(Reader(self.value))
    }
}

/// The key of a map: text, which also integers and booleans are written as.
struct Key<'de>(&'de str);

macro_rules! parsed {
    ($($method:ident $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.0.parse() {
                Ok(key) => visitor.$visit(key),
                Err(_) => Err(serde::de::Error::invalid_type(Unexpected::Str(self.0), &visitor)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(Tagged { variant: self.0, value: None })
    }

    parsed! {
        deserialize_bool visit_bool
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

/// An enum's variant and its data.
struct Tagged<'de> {
    variant: &'de str,
    value: Option<ValueRef<'de>>,
}

impl<'de> EnumAccess<'de> for Tagged<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let variant: BorrowedStrDeserializer<'_, Error> = BorrowedStrDeserializer::new(self.variant);
        Ok((seed.deserialize(variant)?, self))
    }
}

impl<'de> Tagged<'de> {
    fn data(self) -> Result<Reader<'de>> {
        match self.value {
            Some(value) => Ok(Reader(value)),
            None => invalid(format!("the variant {} needs its data: a map from its name to it", self.variant)),
        }
    }
}

impl<'de> VariantAccess<'de> for Tagged<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        match self.value {
            None | Some(ValueRef::Null) => Ok(()),
            Some(_) => invalid(format!("the variant {} has no data", self.variant)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self.data()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.data()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.data()?.deserialize_any(visitor)
    }
}

/// A timestamp or decimal on its way to a [`crate::Value`], which serde has no word for.
struct Special<'de>(ValueRef<'de>);

impl<'de> EnumAccess<'de> for Special<'de> {
    type Error = Error;
    type Variant = Tagged<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Tagged<'de>)> {
        let variant = if matches!(self.0, ValueRef::Timestamp(_)) { TIMESTAMP } else { DECIMAL };
        let name: serde::de::value::StrDeserializer<'_, Error> = variant.into_deserializer();
        Ok((seed.deserialize(name)?, Tagged { variant, value: Some(self.0) }))
    }
}
