//! The serializer: appends stored values.
//!
//! May use: `value`. Must not know: documents.

use serde::ser::{self, Serialize, Serializer};

use super::{DECIMAL, TIMESTAMP};
use crate::error::{Error, Result, invalid};
use crate::value::{DEPTH_MAX, Decimal, ListRef, MapRef, Value, ValueRef};
use base::{Fields, put_string};

/// Appends one value; lists and maps may lie so deep within each other.
pub(super) struct Writer<'a> {
    pub(super) to: &'a mut Vec<u8>,
    pub(super) depth: usize,
}

impl<'a> Writer<'a> {
    fn put(self, value: ValueRef<'_>) -> Result<()> {
        value.write(self.to);
        Ok(())
    }

    /// How deep there may be more, so many levels further down.
    fn below(&self, levels: usize) -> Result<usize> {
        let limit = DEPTH_MAX as u64;
        self.depth.checked_sub(levels).ok_or(Error::Limit { what: "depth of a document", actual: limit + 1, limit })
    }

    fn list(self, variant: Option<&'static str>) -> Result<ListWriter<'a>> {
        let depth = self.below(1 + usize::from(variant.is_some()))?;
        Ok(ListWriter { to: self.to, body: Vec::new(), depth, variant })
    }

    fn map(self, variant: Option<&'static str>) -> Result<MapWriter<'a>> {
        let ListWriter { to, body, depth, variant } = self.list(variant)?;
        Ok(MapWriter { to, body, starts: Vec::new(), in_order: true, depth, variant })
    }
}

/// A value in a map by the name of its variant, if it has one.
fn put_tagged(variant: Option<&'static str>, value: ValueRef<'_>, to: &mut Vec<u8>) {
    let Some(variant) = variant else { return value.write(to) };
    let mut body = Vec::new();
    put_string(&mut body, variant.as_bytes());
    value.write(&mut body);
    ValueRef::Map(MapRef(&body)).write(to);
}

pub(super) struct ListWriter<'a> {
    to: &'a mut Vec<u8>,
    body: Vec<u8>,
    depth: usize,
    variant: Option<&'static str>,
}

impl ListWriter<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        value.serialize(Writer { to: &mut self.body, depth: self.depth })
    }

    fn finish(self) {
        put_tagged(self.variant, ValueRef::List(ListRef(&self.body)), self.to);
    }
}

pub(super) struct MapWriter<'a> {
    to: &'a mut Vec<u8>,
    body: Vec<u8>,
    /// Where each name begins.
    starts: Vec<usize>,
    /// Whether names came in order, each once, as they are to be stored.
    in_order: bool,
    depth: usize,
    variant: Option<&'static str>,
}

impl MapWriter<'_> {
    fn name(&mut self, name: &str) {
        let last = self.starts.last().and_then(|start| Fields(self.body.get(*start..)?).string());
        self.in_order &= last.is_none_or(|last| last < name.as_bytes());
        self.starts.push(self.body.len());
        put_string(&mut self.body, name.as_bytes());
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        value.serialize(Writer { to: &mut self.body, depth: self.depth })
    }

    fn finish(mut self) {
        if !self.in_order {
            self.body = sorted(&self.body, &self.starts);
        }
        put_tagged(self.variant, ValueRef::Map(MapRef(&self.body)), self.to);
    }
}

/// The entries by name; of two with one name the later counts.
fn sorted(body: &[u8], starts: &[usize]) -> Vec<u8> {
    let ends = starts.iter().skip(1).copied().chain([body.len()]);
    let mut entries: Vec<&[u8]> = starts.iter().zip(ends).filter_map(|(start, end)| body.get(*start..end)).collect();
    let name = |entry: &[u8]| Fields(entry).string().map(<[u8]>::to_vec);
    entries.reverse();
    entries.sort_by_cached_key(|entry| name(entry));
    entries.dedup_by_key(|entry| name(entry));
    entries.concat()
}

/// The text of a key.
fn key<T: Serialize + ?Sized>(key: &T) -> Result<String> {
    let mut bytes = Vec::new();
    key.serialize(Writer { to: &mut bytes, depth: DEPTH_MAX })?;
    match ValueRef::read(&mut Fields(&bytes)) {
        Some(ValueRef::String(text)) => Ok(text.to_owned()),
        Some(ValueRef::I64(number)) => Ok(number.to_string()),
        Some(ValueRef::U64(number)) => Ok(number.to_string()),
        Some(ValueRef::Bool(value)) => Ok(value.to_string()),
        other => invalid(format!(
            "keys of maps are strings, integers or booleans, not {}",
            other.map_or("this", ValueRef::kind)
        )),
    }
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = ListWriter<'a>;
    type SerializeTuple = ListWriter<'a>;
    type SerializeTupleStruct = ListWriter<'a>;
    type SerializeTupleVariant = ListWriter<'a>;
    type SerializeMap = MapWriter<'a>;
    type SerializeStruct = MapWriter<'a>;
    type SerializeStructVariant = MapWriter<'a>;

    fn serialize_bool(self, value: bool) -> Result<()> {
        self.put(ValueRef::Bool(value))
    }

    fn serialize_i8(self, number: i8) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<()> {
        self.put(ValueRef::I64(number))
    }

    fn serialize_i128(self, number: i128) -> Result<()> {
        let integer = i64::try_from(number).map(Value::I64).or_else(|_| u64::try_from(number).map(Value::U64));
        integer.unwrap_or(Value::Decimal(Decimal::from(number))).write(self.to);
        Ok(())
    }

    fn serialize_u8(self, number: u8) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<()> {
        self.serialize_i64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<()> {
        Value::U64(number).write(self.to);
        Ok(())
    }

    fn serialize_u128(self, number: u128) -> Result<()> {
        match i128::try_from(number) {
            Ok(number) => self.serialize_i128(number),
            Err(_) => invalid(format!("{number} does not fit 128 bits with a sign")),
        }
    }

    fn serialize_f32(self, number: f32) -> Result<()> {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<()> {
        self.put(ValueRef::F64(number))
    }

    fn serialize_char(self, letter: char) -> Result<()> {
        self.put(ValueRef::String(letter.encode_utf8(&mut [0; 4])))
    }

    fn serialize_str(self, text: &str) -> Result<()> {
        self.put(ValueRef::String(text))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        self.put(ValueRef::Bytes(bytes))
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.put(ValueRef::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<()> {
        if name != TIMESTAMP && name != DECIMAL {
            return value.serialize(self);
        }
        let mut within = Vec::new();
        value.serialize(Writer { to: &mut within, depth: 0 })?;
        let value = match ValueRef::read(&mut Fields(&within)) {
            Some(ValueRef::I64(at)) => Some(ValueRef::Timestamp(at)),
            Some(ValueRef::String(text)) => Decimal::parse(text).map(ValueRef::Decimal),
            _ => None,
        };
        value.map_or_else(|| invalid(format!("this is no {name}")), |value| self.put(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let mut map = self.map(None)?;
        map.name(variant);
        map.value(value)?;
        map.finish();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ListWriter<'a>> {
        self.list(None)
    }

    fn serialize_tuple(self, _: usize) -> Result<ListWriter<'a>> {
        self.list(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<ListWriter<'a>> {
        self.list(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ListWriter<'a>> {
        self.list(Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<MapWriter<'a>> {
        self.map(None)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<MapWriter<'a>> {
        self.map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<MapWriter<'a>> {
        self.map(Some(variant))
    }
}

impl ser::SerializeSeq for ListWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.item(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeTuple for ListWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.item(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeTupleStruct for ListWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.item(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeTupleVariant for ListWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.item(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeMap for MapWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<()> {
        self.name(&key(name)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.value(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeStruct for MapWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        self.name(name);
        self.value(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}

impl ser::SerializeStructVariant for MapWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        self.name(name);
        self.value(value)
    }

    fn end(self) -> Result<()> {
        self.finish();
        Ok(())
    }
}
