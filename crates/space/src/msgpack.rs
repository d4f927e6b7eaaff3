//! Values and documents as MessagePack (<https://github.com/msgpack/msgpack/blob/master/spec.md>). This comment says what is
//! ours to say.
//!
//! nil, boolean, integers, float 64, str, bin, array and map are what we have for them; a float 32 is read as the f64 of the same
//! value, and integers are written in their shortest form. A timestamp is the extension -1, written in the shortest of its three
//! forms and read in all. A decimal is the extension 1: scale 1 | mantissa, signed, big-endian, without the leading bytes that
//! only repeat the sign. Keys of maps must be strings. Other extensions are refused.
//!
//! What is read is bounded by its own length: no count or length in it is trusted before there are so many bytes.
//!
//! May use: `bytes`, `value`. Must not know: doors.

use std::collections::BTreeMap;

use crate::document::Document;
use crate::error::{Error, Result, invalid};
use crate::value::{DEPTH_MAX, Decimal, MapRef, Value, ValueRef};
use base::Fields;

const TIMESTAMP: i8 = -1;
const DECIMAL: i8 = 1;

impl Document {
    /// The document as MessagePack.
    #[must_use]
    pub fn to_msgpack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.as_bytes().len());
        put_map(self.fields(), &mut bytes);
        bytes
    }

    /// The document that MessagePack says. Of two fields with one name the later counts.
    ///
    /// # Errors
    /// `Malformed` when it is no MessagePack, `Invalid` when it is something else than a map or holds what is not ours, `Limit`
    /// when it is too deep.
    pub fn from_msgpack(bytes: &[u8]) -> Result<Self> {
        match read(bytes, DEPTH_MAX + 1)? {
            Value::Map(fields) => Ok(Self::new(&fields)),
            other => invalid(format!("a document is a map, not {}", other.stored().get().kind())),
        }
    }
}

impl Value {
    /// The value as MessagePack.
    #[must_use]
    pub fn to_msgpack(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(self.stored().get(), &mut bytes);
        bytes
    }

    /// The value that MessagePack says.
    ///
    /// # Errors
    /// `Malformed` when it is no MessagePack, `Invalid` when it holds what is not ours, `Limit` when it is too deep.
    pub fn from_msgpack(bytes: &[u8]) -> Result<Self> {
        read(bytes, DEPTH_MAX)
    }
}

fn put(value: ValueRef<'_>, to: &mut Vec<u8>) {
    match value {
        ValueRef::Null => to.push(0xc0),
        ValueRef::Bool(value) => to.push(0xc2 + u8::from(value)),
        ValueRef::I64(number) => match u64::try_from(number) {
            Ok(number) => put_u64(number, to),
            Err(_) => put_negative(number, to),
        },
        ValueRef::U64(number) => put_u64(number, to),
        ValueRef::F64(number) => {
            to.push(0xcb);
            to.extend_from_slice(&number.to_be_bytes());
        }
        ValueRef::Decimal(Decimal { mantissa, scale }) => {
            let bytes = mantissa.to_be_bytes();
            // Bytes that only repeat the sign: 00 before a clear bit, FF before a set one.
            let repeated = bytes.windows(2).take_while(|pair| {
                matches!(pair, [0, next] if *next < 0x80) || matches!(pair, [0xff, next] if *next >= 0x80)
            });
            let body = [&[scale], bytes.get(repeated.count()..).unwrap_or_default()].concat();
            put_extension(DECIMAL, &body, to);
        }
        ValueRef::String(text) => {
            match text.len() {
                len @ 0..32 => to.push(0xa0 | len as u8),
                len => put_length(len, [Some(0xd9), Some(0xda), Some(0xdb)], to),
            }
            to.extend_from_slice(text.as_bytes());
        }
        ValueRef::Bytes(bytes) => {
            put_length(bytes.len(), [Some(0xc4), Some(0xc5), Some(0xc6)], to);
            to.extend_from_slice(bytes);
        }
        ValueRef::Timestamp(at) => put_timestamp(at, to),
        ValueRef::List(list) => {
            match list.iter().count() {
                len @ 0..16 => to.push(0x90 | len as u8),
                len => put_length(len, [None, Some(0xdc), Some(0xdd)], to),
            }
            list.iter().for_each(|item| put(item, to));
        }
        ValueRef::Map(fields) => put_map(fields, to),
    }
}

fn put_map(fields: MapRef<'_>, to: &mut Vec<u8>) {
    match fields.iter().count() {
        len @ 0..16 => to.push(0x80 | len as u8),
        len => put_length(len, [None, Some(0xde), Some(0xdf)], to),
    }
    for (name, value) in fields.iter() {
        put(ValueRef::String(name), to);
        put(value, to);
    }
}

fn put_u64(number: u64, to: &mut Vec<u8>) {
    if number < 0x80 {
        to.push(number as u8);
    } else if let Ok(number) = u8::try_from(number) {
        to.extend_from_slice(&[0xcc, number]);
    } else if let Ok(number) = u16::try_from(number) {
        to.push(0xcd);
        to.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        to.push(0xce);
        to.extend_from_slice(&number.to_be_bytes());
    } else {
        to.push(0xcf);
        to.extend_from_slice(&number.to_be_bytes());
    }
}

fn put_negative(number: i64, to: &mut Vec<u8>) {
    if number >= -32 {
        to.push(number as u8);
    } else if let Ok(number) = i8::try_from(number) {
        to.extend_from_slice(&[0xd0, number.cast_unsigned()]);
    } else if let Ok(number) = i16::try_from(number) {
        to.push(0xd1);
        to.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = i32::try_from(number) {
        to.push(0xd2);
        to.extend_from_slice(&number.to_be_bytes());
    } else {
        to.push(0xd3);
        to.extend_from_slice(&number.to_be_bytes());
    }
}

/// A length behind the first of three tags that has room for it: 1, 2 and 4 bytes.
fn put_length(len: usize, [one, two, four]: [Option<u8>; 3], to: &mut Vec<u8>) {
    if let (Some(tag), Ok(len)) = (one, u8::try_from(len)) {
        to.extend_from_slice(&[tag, len]);
    } else if let (Some(tag), Ok(len)) = (two, u16::try_from(len)) {
        to.push(tag);
        to.extend_from_slice(&len.to_be_bytes());
    } else {
        // Entries are far below 4 GiB.
        to.extend(four);
        to.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
    }
}

fn put_extension(kind: i8, body: &[u8], to: &mut Vec<u8>) {
    match body.len() {
        1 => to.push(0xd4),
        2 => to.push(0xd5),
        4 => to.push(0xd6),
        8 => to.push(0xd7),
        16 => to.push(0xd8),
        len => put_length(len, [Some(0xc7), Some(0xc8), Some(0xc9)], to),
    }
    to.push(kind.cast_unsigned());
    to.extend_from_slice(body);
}

fn put_timestamp(at: i64, to: &mut Vec<u8>) {
    let (seconds, nanoseconds) = (at.div_euclid(1_000_000_000), at.rem_euclid(1_000_000_000) as u32);
    match (u32::try_from(seconds), u64::try_from(seconds)) {
        (Ok(seconds), _) if nanoseconds == 0 => put_extension(TIMESTAMP, &seconds.to_be_bytes(), to),
        // 34 bits hold seconds up to the year 2514, and so all that an i64 of nanoseconds does.
        (_, Ok(seconds)) => put_extension(TIMESTAMP, &(u64::from(nanoseconds) << 34 | seconds).to_be_bytes(), to),
        _ => {
            let body = [nanoseconds.to_be_bytes().as_slice(), &seconds.to_be_bytes()].concat();
            put_extension(TIMESTAMP, &body, to);
        }
    }
}

fn read(bytes: &[u8], depth: usize) -> Result<Value> {
    let mut from = Reader(Fields(bytes));
    let value = from.value(depth)?;
    if from.0.0.is_empty() { Ok(value) } else { Err(MALFORMED) }
}

const MALFORMED: Error = Error::Malformed { what: "MessagePack" };

struct Reader<'a>(Fields<'a>);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.0.array().ok_or(MALFORMED)
    }

    /// A big-endian length of so many bytes.
    fn length(&mut self, bytes: usize) -> Result<usize> {
        let bytes = self.take(bytes)?;
        Ok(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        self.0.take(len).ok_or(MALFORMED)
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        let [tag] = self.array()?;
        Ok(match tag {
            0x00..=0x7f => Value::I64(i64::from(tag)),
            0x80..=0x8f => self.map(usize::from(tag & 15), depth)?,
            0x90..=0x9f => self.list(usize::from(tag & 15), depth)?,
            0xa0..=0xbf => Value::String(self.text(usize::from(tag & 31))?),
            0xc0 => Value::Null,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xc4..=0xc6 => {
                let len = self.length(1 << (tag - 0xc4))?;
                Value::Bytes(self.take(len)?.to_vec())
            }
            0xc7..=0xc9 => {
                let len = self.length(1 << (tag - 0xc7))?;
                self.extension(len)?
            }
            0xca => Value::F64(f32::from_be_bytes(self.array()?).into()),
            0xcb => Value::F64(f64::from_be_bytes(self.array()?)),
            0xcc => Value::I64(u8::from_be_bytes(self.array()?).into()),
            0xcd => Value::I64(u16::from_be_bytes(self.array()?).into()),
            0xce => Value::I64(u32::from_be_bytes(self.array()?).into()),
            0xcf => Value::from(u64::from_be_bytes(self.array()?)),
            0xd0 => Value::I64(i8::from_be_bytes(self.array()?).into()),
            0xd1 => Value::I64(i16::from_be_bytes(self.array()?).into()),
            0xd2 => Value::I64(i32::from_be_bytes(self.array()?).into()),
            0xd3 => Value::I64(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.extension(1 << (tag - 0xd4))?,
            0xd9..=0xdb => {
                let len = self.length(1 << (tag - 0xd9))?;
                Value::String(self.text(len)?)
            }
            0xdc | 0xdd => {
                let len = self.length(2 << (tag - 0xdc))?;
                self.list(len, depth)?
            }
            0xde | 0xdf => {
                let len = self.length(2 << (tag - 0xde))?;
                self.map(len, depth)?
            }
            0xe0..=0xff => Value::I64(i64::from(tag.cast_signed())),
            0xc1 => return Err(MALFORMED),
        })
    }

    fn text(&mut self, len: usize) -> Result<String> {
        std::str::from_utf8(self.take(len)?).map(str::to_owned).map_err(|_| MALFORMED)
    }

    /// How many levels there may be within a list or map of so many items, each of which has at least one byte.
    fn below(&self, items: usize, depth: usize) -> Result<usize> {
        if items > self.0.0.len() {
            return Err(MALFORMED);
        }
        let limit = DEPTH_MAX as u64;
        depth.checked_sub(1).ok_or(Error::Limit { what: "depth of a document", actual: limit + 1, limit })
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Value> {
        let below = self.below(len, depth)?;
        // Grown as items come: a count for each of many levels would be trusted for far more than there is.
        let mut items = Vec::new();
        for _ in 0..len {
            items.push(self.value(below)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value> {
        let below = self.below(len, depth)?;
        let mut fields = BTreeMap::new();
        for _ in 0..len {
            let name = match self.value(0)? {
                Value::String(name) => name,
                other => return invalid(format!("keys of maps are strings, not {}", other.stored().get().kind())),
            };
            fields.insert(name, self.value(below)?);
        }
        Ok(Value::Map(fields))
    }

    fn extension(&mut self, len: usize) -> Result<Value> {
        let [kind] = self.array()?;
        let body = self.take(len)?;
        let value = match kind.cast_signed() {
            TIMESTAMP => timestamp(body).map(Value::Timestamp),
            DECIMAL => decimal(body).map(Value::Decimal),
            kind => {
                return invalid(format!(
                    "the MessagePack extension {kind} is none of ours: -1 is a timestamp, 1 a decimal"
                ));
            }
        };
        value.map_or_else(|| invalid("a MessagePack extension holds no timestamp or decimal that fits"), Ok)
    }
}

fn timestamp(body: &[u8]) -> Option<i64> {
    let mut fields = Fields(body);
    let (seconds, nanoseconds) = match body.len() {
        4 => (i64::from(u32::from_be_bytes(fields.array()?)), 0),
        8 => {
            let both = u64::from_be_bytes(fields.array()?);
            (i64::try_from(both & ((1 << 34) - 1)).ok()?, u32::try_from(both >> 34).ok()?)
        }
        12 => {
            let nanoseconds = u32::from_be_bytes(fields.array()?);
            (i64::from_be_bytes(fields.array()?), nanoseconds)
        }
        _ => return None,
    };
    let at = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    (nanoseconds < 1_000_000_000).then(|| i64::try_from(at).ok())?
}

fn decimal(body: &[u8]) -> Option<Decimal> {
    let (scale, mantissa) = body.split_first()?;
    let sign = if mantissa.first()? & 0x80 == 0 { 0 } else { -1 };
    let fits = mantissa.len() <= 16;
    fits.then(|| mantissa.iter().fold(sign, |number: i128, byte| number << 8 | i128::from(*byte)))
        .map(|mantissa| Decimal { mantissa, scale: *scale })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{documents, values};

    #[test]
    fn the_table_of_bytes() {
        let decimal = |mantissa, scale| Value::Decimal(Decimal { mantissa, scale });
        let table: Vec<(Value, Vec<u8>)> = vec![
            (Value::Null, vec![0xc0]),
            (true.into(), vec![0xc3]),
            (127.into(), vec![0x7f]),
            (128.into(), vec![0xcc, 0x80]),
            (256.into(), vec![0xcd, 1, 0]),
            (65_536.into(), vec![0xce, 0, 1, 0, 0]),
            (u64::MAX.into(), [vec![0xcf], vec![0xff; 8]].concat()),
            ((-32).into(), vec![0xe0]),
            ((-33).into(), vec![0xd0, 0xdf]),
            ((-129).into(), vec![0xd1, 0xff, 0x7f]),
            (1.5.into(), vec![0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]),
            ("é".into(), vec![0xa2, 0xc3, 0xa9]),
            ("x".repeat(32).into(), [vec![0xd9, 32], vec![b'x'; 32]].concat()),
            (Value::Bytes(vec![1]), vec![0xc4, 1, 1]),
            (Value::Timestamp(1_000_000_000), vec![0xd6, 0xff, 0, 0, 0, 1]),
            (Value::Timestamp(1_000_000_001), vec![0xd7, 0xff, 0, 0, 0, 4, 0, 0, 0, 1]),
            (Value::Timestamp(-1), [vec![0xc7, 12, 0xff, 0x3b, 0x9a, 0xc9, 0xff], vec![0xff; 8]].concat()),
            (decimal(1250, 2), vec![0xc7, 3, 1, 2, 4, 0xe2]),
            (decimal(-1, 0), vec![0xd5, 1, 0, 0xff]),
            (decimal(128, 0), vec![0xc7, 3, 1, 0, 0, 0x80]),
            (vec![1, 2].into(), vec![0x92, 1, 2]),
            (Value::Map([("a".to_owned(), 1.into())].into()), vec![0x81, 0xa1, b'a', 1]),
        ];
        for (value, bytes) in table {
            assert_eq!(value.to_msgpack(), bytes, "{value:?}");
            assert_eq!(Value::from_msgpack(&bytes), Ok(value));
        }
        for len in [0usize, 15, 16, 255, 256, 65_536] {
            let list = Value::List(vec![Value::Null; len]);
            assert_eq!(Value::from_msgpack(&list.to_msgpack()), Ok(list));
            let text = Value::from("x".repeat(len));
            assert_eq!(Value::from_msgpack(&text.to_msgpack()), Ok(text));
        }
        assert_eq!(Value::from_msgpack(&[0xca, 0x3f, 0xc0, 0, 0]), Ok(1.5.into()));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let deep = |levels: usize| [vec![0x91; levels], vec![0xc0]].concat();
        assert!(Value::from_msgpack(&deep(DEPTH_MAX)).is_ok());
        let table: [&[u8]; 12] = [
            &[],
            &[0xc1],
            &[1, 2],
            &[0xa2, b'x'],
            &[0xa1, 0xff],
            &[0xdd, 0xff, 0xff, 0xff, 0xff],
            &[0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0],
            &[0x81, 1, 1],
            &[0xd4, 5, 0],
            &[0xd4, 0xff, 0],
            &[0xc7, 18, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
            &deep(100_000),
        ];
        for bytes in table {
            assert!(Value::from_msgpack(bytes).is_err(), "{:?}", bytes.get(..20));
        }
        assert!(matches!(Value::from_msgpack(&deep(DEPTH_MAX + 1)), Err(Error::Limit { .. })));
        assert!(Document::from_msgpack(&[0xc0]).is_err());
    }

    proptest! {
        #[test]
        fn there_and_back(value in values(), document in documents()) {
            prop_assert_eq!(Value::from_msgpack(&value.to_msgpack()).unwrap().stored(), value.stored());
            prop_assert_eq!(Document::from_msgpack(&document.to_msgpack()).unwrap(), document);
        }

        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>, tail in proptest::collection::vec(0x80u8.., 0..20)) {
            for bytes in [bytes, tail] {
                if let Ok(document) = Document::from_msgpack(&bytes) {
                    prop_assert_eq!(&Document::from_stored(document.as_bytes()).unwrap(), &document);
                }
            }
        }
    }
}
