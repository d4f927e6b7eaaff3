//! What a field of an entry may be, as it is used and as it is stored. This comment is the format's specification.
//!
//! Format: docs/formats/space.md
//!
//! A stored value is a tag and what belongs to it; lengths are LEB128 numbers, other integers little-endian:
//!   null       0
//!   false      1
//!   true       2
//!   i64        3 | zigzag LEB128
//!   u64        4 | LEB128; only what is no i64
//!   f64        5 | IEEE 754, 8; NaN as 7FF8000000000000
//!   decimal    6 | scale 1 | mantissa, signed, 16
//!   string     7 | length | UTF-8
//!   bytes      8 | length | bytes
//!   timestamp  9 | nanoseconds since 1970-01-01 UTC, signed, 8
//!   list      10 | length in bytes | values
//!   map       11 | length in bytes | (length of name | name | value)*, by name in byte order, each name once
//!
//! A list and a map say how long they are, so that a field is found by passing over the others.
//!
//! May use: `bytes`. Must not know: documents, types.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use base::{Fields, put_string, put_varint, unzigzag, zigzag};

/// How deep lists and maps may lie within each other.
pub const DEPTH_MAX: usize = 32;

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const I64: u8 = 3;
const U64: u8 = 4;
const F64: u8 = 5;
const DECIMAL: u8 = 6;
const STRING: u8 = 7;
const BYTES: u8 = 8;
const TIMESTAMP: u8 = 9;
const LIST: u8 = 10;
const MAP: u8 = 11;

/// A value that owns what it holds.
///
/// Equality here is identity of type and content; [`crate::compare`] is the order that queries use, in which `1` and `1.0`
/// are equal.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer; what fits is better an [`Value::I64`].
    U64(u64),
    /// A floating-point number.
    F64(f64),
    /// `mantissa` / 10^`scale`, exactly.
    Decimal(Decimal),
    /// Text.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nanoseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// Values in order.
    List(Vec<Value>),
    /// Values by name.
    Map(BTreeMap<String, Value>),
}

/// An exact decimal number: `mantissa` / 10^`scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// All digits.
    pub mantissa: i128,
    /// How many of them stand behind the point.
    pub scale: u8,
}

/// A value as it lies in a stored document. Lists and maps are read when they are gone through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueRef<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A floating-point number.
    F64(f64),
    /// An exact decimal number.
    Decimal(Decimal),
    /// Text.
    String(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Nanoseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// Values in order.
    List(ListRef<'a>),
    /// Values by name.
    Map(MapRef<'a>),
}

/// A stored list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListRef<'a>(pub(crate) &'a [u8]);

/// A stored map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapRef<'a>(pub(crate) &'a [u8]);

impl<'a> ListRef<'a> {
    /// Its values, in order.
    pub fn iter(self) -> impl Iterator<Item = ValueRef<'a>> {
        let mut rest = Fields(self.0);
        std::iter::from_fn(move || ValueRef::read(&mut rest))
    }
}

impl<'a> MapRef<'a> {
    /// Names and values, in byte order of the names.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, ValueRef<'a>)> {
        let mut rest = Fields(self.0);
        std::iter::from_fn(move || Some((rest.text()?, ValueRef::read(&mut rest)?)))
    }

    /// The value of this name.
    #[must_use]
    pub fn get(self, name: &str) -> Option<ValueRef<'a>> {
        let mut rest = Fields(self.0);
        loop {
            let here = rest.string()?;
            match here.cmp(name.as_bytes()) {
                std::cmp::Ordering::Equal => return ValueRef::read(&mut rest),
                std::cmp::Ordering::Greater => return None,
                std::cmp::Ordering::Less => skip(&mut rest)?,
            }
        }
    }

    /// Its bytes as they are stored: equal bytes are equal maps.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Passes over one value.
pub(crate) fn skip(from: &mut Fields<'_>) -> Option<()> {
    match from.u8()? {
        NULL | FALSE | TRUE => {}
        I64 | U64 => drop(from.varint()?),
        F64 | TIMESTAMP => drop(from.take(8)?),
        DECIMAL => drop(from.take(17)?),
        STRING | BYTES | LIST | MAP => drop(from.string()?),
        _ => return None,
    }
    Some(())
}

/// The next stored value's text, if it is a string: its bytes, which are not looked at.
#[inline]
pub(crate) fn text_bytes<'a>(from: &mut Fields<'a>) -> Option<&'a [u8]> {
    let (&STRING, rest) = from.0.split_first()? else { return None };
    let mut rest = Fields(rest);
    let text = rest.string()?;
    *from = rest;
    Some(text)
}

/// Passes over one value and gives its bytes.
pub(crate) fn raw<'a>(from: &mut Fields<'a>) -> Option<&'a [u8]> {
    let before = from.0;
    skip(from)?;
    before.get(..before.len() - from.0.len())
}

/// Whether two stored values are equal for queries, without reading them where their bytes decide.
pub(crate) fn is_equal_stored(a: &[u8], b: &[u8]) -> bool {
    let may_differ_in_form = |bytes: &[u8]| matches!(bytes.first(), Some(&(I64 | U64 | F64 | DECIMAL | LIST | MAP)));
    a == b
        || (may_differ_in_form(a) && may_differ_in_form(b) && {
            match (ValueRef::read(&mut Fields(a)), ValueRef::read(&mut Fields(b))) {
                (Some(a), Some(b)) => crate::compare::compare(a, b).is_eq(),
                _ => false,
            }
        })
}

impl<'a> ValueRef<'a> {
    /// The next stored value; `None` when it is not whole or no value.
    pub(crate) fn read(from: &mut Fields<'a>) -> Option<Self> {
        Some(match from.u8()? {
            NULL => Self::Null,
            FALSE => Self::Bool(false),
            TRUE => Self::Bool(true),
            I64 => Self::I64(unzigzag(from.varint()?)),
            U64 => Self::U64(from.varint()?),
            F64 => Self::F64(f64::from_le_bytes(from.array()?)),
            DECIMAL => {
                let scale = from.u8()?;
                Self::Decimal(Decimal { mantissa: i128::from_le_bytes(from.array()?), scale })
            }
            STRING => Self::String(from.text()?),
            BYTES => Self::Bytes(from.string()?),
            TIMESTAMP => Self::Timestamp(i64::from_le_bytes(from.array()?)),
            LIST => Self::List(ListRef(from.string()?)),
            MAP => Self::Map(MapRef(from.string()?)),
            _ => return None,
        })
    }

    /// Appends the value as it is stored.
    pub(crate) fn write(self, to: &mut Vec<u8>) {
        match self {
            Self::Null => to.push(NULL),
            Self::Bool(no_or_yes) => to.push(FALSE + u8::from(no_or_yes)),
            Self::I64(number) => {
                to.push(I64);
                put_varint(to, zigzag(number));
            }
            Self::U64(number) => {
                to.push(U64);
                put_varint(to, number);
            }
            Self::F64(number) => {
                // One form for each number: all NaN are one.
                let number = if number.is_nan() { f64::NAN } else { number };
                to.push(F64);
                to.extend_from_slice(&number.to_le_bytes());
            }
            Self::Decimal(Decimal { mantissa, scale }) => {
                to.extend_from_slice(&[DECIMAL, scale]);
                to.extend_from_slice(&mantissa.to_le_bytes());
            }
            Self::String(text) => {
                to.push(STRING);
                put_string(to, text.as_bytes());
            }
            Self::Bytes(bytes) => {
                to.push(BYTES);
                put_string(to, bytes);
            }
            Self::Timestamp(at) => {
                to.push(TIMESTAMP);
                to.extend_from_slice(&at.to_le_bytes());
            }
            Self::List(ListRef(bytes)) => {
                to.push(LIST);
                put_string(to, bytes);
            }
            Self::Map(MapRef(bytes)) => {
                to.push(MAP);
                put_string(to, bytes);
            }
        }
    }

    /// Whether it is true, if it is a boolean.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(value) } else { None }
    }

    /// The number, if it is an integer and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::I64(number) => Some(number),
            Self::U64(number) => i64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The number, if it is an integer and not below zero.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::I64(number) => u64::try_from(number).ok(),
            Self::U64(number) => Some(number),
            _ => None,
        }
    }

    /// The floating-point number, or the integer as the nearest one. A [`Decimal`] is exact, and none.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::F64(number) => Some(number),
            Self::I64(number) => Some(number as f64),
            Self::U64(number) => Some(number as f64),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// A copy that owns what it holds.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::I64(value) => Value::I64(value),
            Self::U64(value) => Value::U64(value),
            Self::F64(value) => Value::F64(value),
            Self::Decimal(value) => Value::Decimal(value),
            Self::String(text) => Value::String(text.to_owned()),
            Self::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Self::Timestamp(at) => Value::Timestamp(at),
            Self::List(list) => Value::List(list.iter().map(Self::to_value).collect()),
            Self::Map(map) => Value::Map(map.iter().map(|(name, value)| (name.to_owned(), value.to_value())).collect()),
        }
    }

    /// A copy in stored form.
    #[must_use]
    pub fn stored(self) -> StoredValue {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        StoredValue(bytes.into())
    }

    /// How many bytes it has, roughly.
    pub(crate) fn bytes_len(self) -> usize {
        let more = match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) | Self::List(ListRef(bytes)) | Self::Map(MapRef(bytes)) => bytes.len(),
            _ => 0,
        };
        more + size_of::<u64>()
    }

    /// What it is, in a word, for messages.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::I64(_) | Self::U64(_) | Self::F64(_) | Self::Decimal(_) => "a number",
            Self::String(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "a timestamp",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Value {
    /// Appends the value as it is stored.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Null => ValueRef::Null.write(to),
            Self::Bool(value) => ValueRef::Bool(*value).write(to),
            Self::I64(value) => ValueRef::I64(*value).write(to),
            // One form for each number: what fits is an I64.
            Self::U64(value) => match i64::try_from(*value) {
                Ok(value) => ValueRef::I64(value).write(to),
                Err(_) => ValueRef::U64(*value).write(to),
            },
            Self::F64(value) => ValueRef::F64(*value).write(to),
            Self::Decimal(value) => ValueRef::Decimal(*value).write(to),
            Self::String(text) => ValueRef::String(text).write(to),
            Self::Bytes(bytes) => ValueRef::Bytes(bytes).write(to),
            Self::Timestamp(at) => ValueRef::Timestamp(*at).write(to),
            Self::List(values) => {
                let mut body = Vec::new();
                values.iter().for_each(|value| value.write(&mut body));
                ValueRef::List(ListRef(&body)).write(to);
            }
            Self::Map(fields) => {
                let mut body = Vec::new();
                write_fields(fields, &mut body);
                ValueRef::Map(MapRef(&body)).write(to);
            }
        }
    }

    /// Refuses lists and maps that lie deeper than `depth` within each other; a document holds [`DEPTH_MAX`].
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_depth(&self, depth: usize) -> Result<()> {
        let below = |value: &Self| match depth.checked_sub(1) {
            Some(below) => value.check_depth(below),
            None => Ok(()),
        };
        match self {
            Self::List(_) | Self::Map(_) if depth == 0 => {
                let limit = DEPTH_MAX as u64;
                Err(Error::Limit { what: "depth of a document", actual: limit + 1, limit })
            }
            Self::List(values) => values.iter().try_for_each(below),
            Self::Map(fields) => fields.values().try_for_each(below),
            _ => Ok(()),
        }
    }

    /// What it takes of memory, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let more = match self {
            Self::String(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.iter().map(Self::memory_bytes).sum(),
            // A node of the tree has room for eleven, and is half full.
            Self::Map(fields) => {
                let of =
                    |(name, value): (&String, &Self)| 2 * size_of::<String>() + name.len() + 2 * value.memory_bytes();
                fields.iter().map(of).sum()
            }
            _ => 0,
        };
        size_of::<Self>() + more
    }

    /// The value as it compares with stored ones, without storing it. Lists and maps have no such form, and are null here: what
    /// may be an id or a routing value has it.
    #[must_use]
    pub fn scalar(&self) -> ValueRef<'_> {
        match self {
            Self::Null | Self::List(_) | Self::Map(_) => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::I64(value) => ValueRef::I64(*value),
            Self::U64(value) => i64::try_from(*value).map_or(ValueRef::U64(*value), ValueRef::I64),
            Self::F64(value) => ValueRef::F64(*value),
            Self::Decimal(value) => ValueRef::Decimal(*value),
            Self::String(text) => ValueRef::String(text),
            Self::Bytes(bytes) => ValueRef::Bytes(bytes),
            Self::Timestamp(at) => ValueRef::Timestamp(*at),
        }
    }

    /// The value in stored form, for comparisons with stored ones.
    #[must_use]
    pub fn stored(&self) -> StoredValue {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        StoredValue(bytes.into())
    }
}

/// One value in stored form. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue(pub(crate) Arc<[u8]>);

impl StoredValue {
    /// The value.
    #[must_use]
    pub fn get(&self) -> ValueRef<'_> {
        ValueRef::read(&mut Fields(&self.0)).unwrap_or(ValueRef::Null)
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the fields of a map, without its tag and length.
pub(crate) fn write_fields(fields: &BTreeMap<String, Value>, to: &mut Vec<u8>) {
    for (name, value) in fields {
        put_string(to, name.as_bytes());
        value.write(to);
    }
}

/// Whether these bytes are the fields of a map, canonical in every part.
pub(crate) fn is_canonical_map(bytes: &[u8], depth: usize) -> bool {
    let mut rest = Fields(bytes);
    let mut last: Option<&str> = None;
    while !rest.0.is_empty() {
        let Some(name) = rest.text() else { return false };
        if last.is_some_and(|last| last >= name) || !is_canonical(&mut rest, depth) {
            return false;
        }
        last = Some(name);
    }
    true
}

fn is_canonical(rest: &mut Fields<'_>, depth: usize) -> bool {
    let before = rest.0;
    let Some(value) = ValueRef::read(rest) else { return false };
    let inside = match value {
        ValueRef::List(ListRef(body)) => {
            let mut items = Fields(body);
            let mut good = depth > 0;
            while good && !items.0.is_empty() {
                good = is_canonical(&mut items, depth - 1);
            }
            good
        }
        ValueRef::Map(MapRef(body)) => depth > 0 && is_canonical_map(body, depth - 1),
        ValueRef::U64(number) => i64::try_from(number).is_err(),
        _ => true,
    };
    // Longer spellings of a number would make equal documents differ.
    let mut again = Vec::new();
    inside && {
        value.write(&mut again);
        before.get(..before.len() - rest.0.len()) == Some(again.as_slice())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::I64(i64::from(value))
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::U64(value), Self::I64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
