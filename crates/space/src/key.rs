//! Values as bytes that compare like the values: what indexes hold.
//!
//! Format: docs/formats/space.md
//!
//! A key lives in memory only: it is made again from the documents, and may change its form.
//!
//!   null 10 | false 20 | true 21 | timestamp 40, nanoseconds with the sign flipped, big-endian 8
//!   number     NaN 30 | -infinity 31 | negative 32, complement of what follows a positive | 0 33 | positive 34 | infinity 35
//!              positive: exponent to base 100 | digits to base 100, first not 0, last not 0
//!              exponent e: -100..=100 as 128 + e; below: 0, 255 + 100 + e; above: 255, e - 101
//!              digit d: 2 * d + 1, and 2 * d for the last, which ends the number
//!   string 50, bytes 60: each byte, 00 as 00 FF; then 00 00
//!   list 70: keys of the items; then 01
//!   map 80: (02 | name as a string is written, without 50 | key of the value)*; then 01
//!
//! No key is the beginning of another, so a compound key is the keys one after another.
//!
//! May use: `number`, `value`. Must not know: indexes.

use crate::compare::Class;
use crate::number::{Finite, Number};
use crate::value::{Value, ValueRef};

const END: u8 = 0x01;
const ENTRY: u8 = 0x02;

const NAN: u8 = 0x30;
const NEGATIVE_INFINITY: u8 = 0x31;
const NEGATIVE: u8 = 0x32;
const ZERO: u8 = 0x33;
const POSITIVE: u8 = 0x34;
const INFINITY: u8 = 0x35;

/// Appends the bytes of a value: of two values the lesser has the lesser bytes, and equal ones (see [`crate::compare`])
/// have the same.
pub fn encode_key(value: ValueRef<'_>, to: &mut Vec<u8>) {
    match value {
        ValueRef::Null => to.push(class_byte(Class::Null)),
        ValueRef::Bool(value) => to.push(class_byte(Class::Bool) + u8::from(value)),
        ValueRef::Timestamp(at) => {
            to.push(class_byte(Class::Timestamp));
            to.extend_from_slice(&(at ^ i64::MIN).to_be_bytes());
        }
        ValueRef::String(text) => {
            to.push(class_byte(Class::String));
            escape(text.as_bytes(), to);
        }
        ValueRef::Bytes(bytes) => {
            to.push(class_byte(Class::Bytes));
            escape(bytes, to);
        }
        ValueRef::List(list) => {
            to.push(class_byte(Class::List));
            list.iter().for_each(|item| encode_key(item, to));
            to.push(END);
        }
        ValueRef::Map(map) => {
            to.push(class_byte(Class::Map));
            for (name, value) in map.iter() {
                to.push(ENTRY);
                escape(name.as_bytes(), to);
                encode_key(value, to);
            }
            to.push(END);
        }
        ValueRef::I64(_) | ValueRef::U64(_) | ValueRef::F64(_) | ValueRef::Decimal(_) => match Number::of(value) {
            None | Some(Number::Nan) => to.push(NAN),
            Some(Number::NegativeInfinity) => to.push(NEGATIVE_INFINITY),
            Some(Number::Infinity) => to.push(INFINITY),
            Some(Number::Finite(number)) => finite(number, to),
        },
    }
}

/// The key of one value.
#[must_use]
pub fn key_of(value: ValueRef<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key(value, &mut key);
    key
}

/// The value of a key, where that may be an id: a string, an integer or bytes. Of equal values it is the one that an id may be: 7 of the key of 7.0.
pub(crate) fn id_of_key(key: &[u8]) -> Option<Value> {
    let (class, rest) = key.split_first()?;
    match *class {
        ZERO => Some(Value::I64(0)),
        POSITIVE => integer(rest.iter().copied()).map(Value::from),
        NEGATIVE => {
            let size = integer(rest.iter().map(|byte| !byte))?;
            0i64.checked_sub_unsigned(size).map(Value::I64)
        }
        class if class == class_byte(Class::String) => String::from_utf8(unescape(rest)?).ok().map(Value::String),
        class if class == class_byte(Class::Bytes) => unescape(rest).map(Value::Bytes),
        _ => None,
    }
}

/// The number, if it is whole and has 64 bits, of what follows the class of a positive one.
fn integer(mut bytes: impl Iterator<Item = u8>) -> Option<u64> {
    let mut places = bytes.next()?.checked_sub(128)?;
    let mut number = 0u64;
    for digit in bytes {
        places = places.checked_sub(1)?;
        number = number.checked_mul(100)?.checked_add(u64::from(digit >> 1))?;
    }
    (0..places).try_fold(number, |number, _| number.checked_mul(100))
}

/// Below the keys of all values of a class, and above those of all lesser classes.
pub(crate) fn class_byte(class: Class) -> u8 {
    match class {
        Class::Null => 0x10,
        Class::Bool => 0x20,
        Class::Number => NAN,
        Class::Timestamp => 0x40,
        Class::String => 0x50,
        Class::Bytes => 0x60,
        Class::List => 0x70,
        Class::Map => 0x80,
    }
}

/// The key of a string without its end: all strings that begin so have keys that begin so.
pub(crate) fn string_prefix_key(text: &str) -> Vec<u8> {
    let mut key = key_of(ValueRef::String(text));
    key.truncate(key.len().saturating_sub(2));
    key
}

fn escape(bytes: &[u8], to: &mut Vec<u8>) {
    for (i, piece) in bytes.split(|&byte| byte == 0).enumerate() {
        if i > 0 {
            to.extend_from_slice(&[0, 0xff]);
        }
        to.extend_from_slice(piece);
    }
    to.extend_from_slice(&[0, 0]);
}

/// What [`escape`] was given; `None` where it ends before its end.
fn unescape(escaped: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    loop {
        match (*rest.next()?, rest.as_slice().first()) {
            (0, Some(0xff)) => {
                bytes.push(0);
                rest.next();
            }
            (0, _) => return Some(bytes),
            (byte, _) => bytes.push(byte),
        }
    }
}

fn finite(number: Finite, to: &mut Vec<u8>) {
    if number.mantissa == 0 {
        to.push(ZERO);
        return;
    }
    to.push(if number.negative { NEGATIVE } else { POSITIVE });
    let start = to.len();
    let magnitude = number.magnitude();
    let exponent = magnitude.div_euclid(2) + magnitude.rem_euclid(2);
    // i32 to u8: an f64 goes from 10^-324 to 10^308 and a decimal from 10^-255 to 10^38, so both ends fit a byte.
    match exponent {
        ..-100 => to.extend_from_slice(&[0, (355 + exponent) as u8]),
        -100..=100 => to.push((128 + exponent) as u8),
        101.. => to.extend_from_slice(&[255, (exponent - 101) as u8]),
    }
    digits(number, magnitude.rem_euclid(2) == 1, to);
    if number.negative {
        to.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
}

/// The mantissa to base 100, its point at an even place: `odd` says that a 0 goes before the first digit.
fn digits(number: Finite, odd: bool, to: &mut Vec<u8>) {
    let start = to.len();
    let count = number.mantissa.checked_ilog10().map_or(0, |log| log + 1) + u32::from(odd);
    let mut rest = number.mantissa;
    let mut last = 0;
    if !count.is_multiple_of(2) {
        to.push((rest % 10 * 20) as u8);
        rest /= 10;
        last = 1;
    }
    while rest > u128::from(u64::MAX) {
        to.push((rest % 100 * 2) as u8 + last);
        rest /= 100;
        last = 1;
    }
    let mut rest = rest as u64;
    while rest > 0 {
        to.push((rest % 100 * 2) as u8 + last);
        rest /= 100;
        last = 1;
    }
    if let Some(written) = to.get_mut(start..) {
        written.reverse();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::values;
    use crate::compare::compare;

    #[test]
    fn small_numbers_have_short_keys() {
        for (number, bytes) in [(0, 1), (7, 3), (-42, 3), (100, 3), (1234, 4), (i64::MAX, 12)] {
            assert_eq!(key_of(ValueRef::I64(number)).len(), bytes, "{number}");
        }
    }

    #[test]
    fn a_prefix_key_holds_all_that_begins_so() {
        let prefix = string_prefix_key("a\0b");
        assert!(key_of(ValueRef::String("a\0b")).starts_with(&prefix));
        assert!(key_of(ValueRef::String("a\0bc")).starts_with(&prefix));
        assert!(!key_of(ValueRef::String("a\0")).starts_with(&prefix));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn keys_lie_like_their_values(a in values(), b in values()) {
            let (a, b) = (a.stored(), b.stored());
            prop_assert_eq!(key_of(a.get()).cmp(&key_of(b.get())), compare(a.get(), b.get()));
        }

        #[test]
        fn compound_keys_lie_like_lists(a in proptest::collection::vec(values(), 2), b in proptest::collection::vec(values(), 2)) {
            let compound = |values: &[Value]| values.iter().flat_map(|value| key_of(value.stored().get())).collect::<Vec<_>>();
            let (a_list, b_list) = (Value::List(a.clone()).stored(), Value::List(b.clone()).stored());
            prop_assert_eq!(compound(&a).cmp(&compound(&b)), compare(a_list.get(), b_list.get()));
        }

        #[test]
        fn an_id_is_found_in_its_key_and_nothing_else_is(value in values(), number in proptest::num::u64::ANY, shift in 0u32..64) {
            let number = number >> shift;
            for id in [Value::from(number), Value::I64((number >> 1).cast_signed().wrapping_neg()), Value::I64(i64::MIN)] {
                prop_assert_eq!(id_of_key(&key_of(id.stored().get())), Some(id));
            }
            let stored = value.stored();
            let read = id_of_key(&key_of(stored.get()));
            match value {
                Value::I64(_) | Value::U64(_) | Value::String(_) | Value::Bytes(_) => prop_assert_eq!(read, Some(value)),
                Value::F64(_) | Value::Decimal(_) => {
                    // One that is equal, if there is one.
                    let equal = read.map(|read| compare(read.stored().get(), stored.get()));
                    prop_assert!(equal.is_none_or(|equal| equal == std::cmp::Ordering::Equal));
                }
                _ => prop_assert_eq!(read, None),
            }
        }

        #[test]
        fn no_key_begins_another(a in values(), b in values()) {
            let (a, b) = (key_of(a.stored().get()), key_of(b.stored().get()));
            prop_assert!(a == b || !a.starts_with(&b));
        }
    }
}
