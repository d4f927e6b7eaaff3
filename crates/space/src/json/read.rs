//! JSON text as what is stored: see `json.rs`.
//!
//! Fields come in any order, and are put into that of their names only where they are not in it already: clients that write
//! documents again and again mostly have one order for them.
//!
//! May use: `base64`, `timestamp`, `value`, `serde_json`. Must not know: documents.

use std::cell::Cell;
use std::fmt::{Formatter, Result as Formatted};
use std::ops::Range;

use base::{Fields, put_string};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::base64;
use crate::error::{Error, Result};
use crate::timestamp;
use crate::value::{DEPTH_MAX, Decimal, ListRef, MapRef, StoredValue, Value, ValueRef};

/// The stored fields of the object that a text says.
pub(super) fn fields(text: &[u8]) -> Result<Vec<u8>> {
    let mut fields = Vec::with_capacity(text.len());
    read(text, |from, is_too_deep| {
        from.deserialize_map(Object(Put { to: &mut fields, depth: DEPTH_MAX, is_too_deep }))
    })?;
    Ok(fields)
}

/// The value that a text says.
pub(super) fn value(text: &[u8]) -> Result<StoredValue> {
    let mut value = Vec::with_capacity(text.len() + 2);
    read(text, |from, is_too_deep| Put { to: &mut value, depth: DEPTH_MAX, is_too_deep }.deserialize(from))?;
    Ok(StoredValue(value.into()))
}

type Json<'de> = serde_json::Deserializer<serde_json::de::SliceRead<'de>>;

fn read(
    text: &[u8],
    all: impl FnOnce(&mut Json<'_>, &Cell<bool>) -> std::result::Result<(), serde_json::Error>,
) -> Result<()> {
    let is_too_deep = Cell::new(false);
    let mut from = serde_json::Deserializer::from_slice(text);
    all(&mut from, &is_too_deep).and_then(|()| from.end()).map_err(|error| match is_too_deep.get() {
        true => Error::Limit { what: "depth of a document", actual: DEPTH_MAX as u64 + 1, limit: DEPTH_MAX as u64 },
        false => Error::Invalid { text: format!("JSON: {error}") },
    })
}

/// Appends what comes as a stored value.
struct Put<'a> {
    to: &'a mut Vec<u8>,
    /// How many lists and maps may lie within each other here.
    depth: usize,
    is_too_deep: &'a Cell<bool>,
}

impl Put<'_> {
    /// What lies one deeper.
    fn within<'b>(&'b self, to: &'b mut Vec<u8>) -> Put<'b> {
        Put { to, depth: self.depth.saturating_sub(1), is_too_deep: self.is_too_deep }
    }

    fn check_depth<E: serde::de::Error>(&self) -> std::result::Result<(), E> {
        if self.depth > 0 {
            return Ok(());
        }
        self.is_too_deep.set(true);
        Err(E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Put<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        // The parser's own limit bounds this recursion.
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Put<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        ValueRef::Null.write(self.to);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<(), E> {
        ValueRef::Bool(value).write(self.to);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> std::result::Result<(), E> {
        ValueRef::I64(number).write(self.to);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> std::result::Result<(), E> {
        Value::from(number).write(self.to);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> std::result::Result<(), E> {
        ValueRef::F64(number).write(self.to);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<(), E> {
        ValueRef::String(text).write(self.to);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> std::result::Result<(), A::Error> {
        self.check_depth()?;
        let mut items = Vec::new();
        while from.next_element_seed(self.within(&mut items))?.is_some() {}
        ValueRef::List(ListRef(&items)).write(self.to);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> std::result::Result<(), A::Error> {
        let mut fields = Vec::new();
        let count = put_fields(from, self.within(&mut fields))?;
        let mut first = Fields(&fields);
        if count == 1
            && let Some(name) = first.text().filter(|name| name.starts_with('$'))
            && let Some(value) = ValueRef::read(&mut first)
        {
            let value = typed(name, value).map_err(A::Error::custom)?;
            if matches!(value, Value::Map(_)) {
                self.check_depth()?;
            }
            value.write(self.to);
            return Ok(());
        }
        self.check_depth()?;
        ValueRef::Map(MapRef(&fields)).write(self.to);
        Ok(())
    }
}

/// Appends what comes, which has to be an object, as fields.
struct Object<'a>(Put<'a>);

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> std::result::Result<(), A::Error> {
        put_fields(from, self.0).map(drop)
    }
}

/// A field as it was appended.
struct Span {
    name: Range<usize>,
    all: Range<usize>,
}

/// Appends fields in the order of their names, of two with one name the later, to what `to` names, which is empty; how many they are.
fn put_fields<'de, A: MapAccess<'de>>(mut from: A, put: Put<'_>) -> std::result::Result<usize, A::Error> {
    let Put { to, depth, is_too_deep } = put;
    let mut spans: Vec<Span> = Vec::with_capacity(8);
    let mut in_order = true;
    loop {
        let begin = to.len();
        let Some(name) = from.next_key_seed(Name(to))? else { break };
        from.next_value_seed(Put { to, depth, is_too_deep })?;
        in_order &= spans.last().is_none_or(|last| to.get(last.name.clone()) < to.get(name.clone()));
        spans.push(Span { name, all: begin..to.len() });
    }
    if !in_order {
        // Stable, so that the last of those with one name is the one that came last.
        spans.sort_by(|a, b| to.get(a.name.clone()).cmp(&to.get(b.name.clone())));
        let is_last = |(at, span): &(usize, &Span)| {
            spans.get(at + 1).is_none_or(|next| to.get(next.name.clone()) != to.get(span.name.clone()))
        };
        let last: Vec<&Span> = spans.iter().enumerate().filter(is_last).map(|(_, span)| span).collect();
        let sorted: Vec<&[u8]> = last.iter().filter_map(|span| to.get(span.all.clone())).collect();
        let (count, sorted) = (sorted.len(), sorted.concat());
        *to = sorted;
        return Ok(count);
    }
    Ok(spans.len())
}

/// Appends a field's name; where it lies behind its length.
struct Name<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<Range<usize>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> std::result::Result<Range<usize>, E> {
        put_string(self.0, name.as_bytes());
        Ok(self.0.len() - name.len()..self.0.len())
    }
}

/// What a map of one key that begins with `$` says.
fn typed(name: &str, value: ValueRef<'_>) -> std::result::Result<Value, String> {
    let read: fn(&str) -> Option<Value> = match name {
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
            let name = name.strip_prefix('$').filter(|rest| rest.starts_with('$')).unwrap_or(name);
            return Ok(Value::Map([(name.to_owned(), value.to_value())].into()));
        }
    };
    let text = if let ValueRef::String(text) = value { read(text) } else { None };
    text.ok_or_else(|| {
        let right = match name {
            "$bytes" => "base64",
            "$timestamp" => "RFC 3339 between 1677-09-22 and 2262-04-11",
            "$decimal" => "digits, at most 38",
            _ => "NaN, Infinity or -Infinity",
        };
        format!("{name} must be a string of {right}; a map with this key is written ${name}")
    })
}
