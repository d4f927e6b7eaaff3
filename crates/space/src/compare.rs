//! The total order of values that queries and ordered indexes use.
//!
//! Classes, from below: null, booleans, numbers, timestamps, strings, bytes, lists, maps. Numbers of all kinds compare by
//! their value (see `number.rs`): -0.0 equals 0, NaN lies below all numbers and equals itself, infinities lie at the ends.
//! Strings and bytes compare byte by byte, lists item by item, maps entry by entry, names before values. What ends first is
//! less.
//!
//! `key.rs` writes bytes in the same order: whoever changes one changes both, and its test says so.
//!
//! May use: `number`, `value`. Must not know: the form of keys.

use std::cmp::Ordering;

use crate::number::{EXACT_MAX, Number};
use crate::value::{ListRef, MapRef, ValueRef};

/// What kind of thing a value is, in the order of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Null,
    Bool,
    Number,
    Timestamp,
    String,
    Bytes,
    List,
    Map,
}

impl Class {
    pub(crate) fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Bool(_) => Self::Bool,
            ValueRef::I64(_) | ValueRef::U64(_) | ValueRef::F64(_) | ValueRef::Decimal(_) => Self::Number,
            ValueRef::Timestamp(_) => Self::Timestamp,
            ValueRef::String(_) => Self::String,
            ValueRef::Bytes(_) => Self::Bytes,
            ValueRef::List(_) => Self::List,
            ValueRef::Map(_) => Self::Map,
        }
    }
}

/// Which of two values is less in the order of queries and indexes, in which `1`, `1.0` and decimal `1.00` are equal.
///
/// Allocates nothing. What cannot be read of a list or map counts as its end; documents are checked when they are made.
#[must_use]
pub fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    use ValueRef::{Bool, Bytes, Decimal, F64, I64, List, Map, String, Timestamp, U64};
    match (a, b) {
        (I64(a), I64(b)) | (Timestamp(a), Timestamp(b)) => a.cmp(&b),
        (String(a), String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (F64(a), F64(b)) => compare_f64(a, b),
        (U64(a), U64(b)) => a.cmp(&b),
        (I64(a), U64(b)) => u64::try_from(a).map_or(Ordering::Less, |a| a.cmp(&b)),
        (U64(a), I64(b)) => u64::try_from(b).map_or(Ordering::Greater, |b| a.cmp(&b)),
        (F64(a), I64(b)) if b.unsigned_abs() <= EXACT_MAX => compare_f64(a, b as f64),
        (I64(a), F64(b)) if a.unsigned_abs() <= EXACT_MAX => compare_f64(a as f64, b),
        (Decimal(a), Decimal(b)) if a.scale == b.scale => a.mantissa.cmp(&b.mantissa),
        (Bool(a), Bool(b)) => a.cmp(&b),
        (Bytes(a), Bytes(b)) => a.cmp(b),
        (List(a), List(b)) => compare_lists(a, b),
        (Map(a), Map(b)) => compare_maps(a, b),
        (F64(a), Decimal(b)) => match short_f64(b) {
            Some(b) => compare_f64(a, b),
            None => compare_numbers(ValueRef::F64(a), ValueRef::Decimal(b)),
        },
        (Decimal(a), F64(b)) => match short_f64(a) {
            Some(a) => compare_f64(a, b),
            None => compare_numbers(ValueRef::Decimal(a), ValueRef::F64(b)),
        },
        (a, b) => Class::of(a).cmp(&Class::of(b)).then_with(|| compare_numbers(a, b)),
    }
}

fn compare_numbers(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match (Number::of(a), Number::of(b)) {
        (Some(a), Some(b)) => a.compare(b),
        _ => Ordering::Equal,
    }
}

/// The f64 whose shortest decimal this is, for decimals of at most 15 digits.
///
/// Different decimals of 15 digits are different f64, so none but this one can be the shortest of its f64; and a division of
/// two f64 that are exact is rounded once. A literal such as 12.50 beside a field that is an f64 is the usual case of
/// `price > 12.50`, and printing the f64 costs 100 ns.
fn short_f64(decimal: crate::value::Decimal) -> Option<f64> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    ];
    let power = POWERS.get(usize::from(decimal.scale))?;
    let is_short = decimal.mantissa.unsigned_abs() < 1_000_000_000_000_000;
    is_short.then(|| decimal.mantissa as f64 / power)
}

/// Shortest decimals lie in the same order as the numbers they stand for, so the numbers decide.
fn compare_f64(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

fn compare_lists(a: ListRef<'_>, b: ListRef<'_>) -> Ordering {
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => compare(a, b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_maps(a: MapRef<'_>, b: MapRef<'_>) -> Ordering {
    let (mut a, mut b) = (a.iter(), b.iter());
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some((name, value)), Some((other_name, other))) => {
                name.as_bytes().cmp(other_name.as_bytes()).then_with(|| compare(value, other))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::values;
    use crate::value::{Decimal, Value};

    fn decimal(mantissa: i128, scale: u8) -> Value {
        Value::Decimal(Decimal { mantissa, scale })
    }

    /// Each row lies above the row before, and what stands in one row is equal.
    #[test]
    fn the_table_of_the_order() {
        let map = |name: &str, value: i64| Value::Map(BTreeMap::from([(name.to_owned(), Value::I64(value))]));
        let rows: Vec<Vec<Value>> = vec![
            vec![Value::Null],
            vec![false.into()],
            vec![true.into()],
            vec![f64::NAN.into(), (-f64::NAN).into()],
            vec![f64::NEG_INFINITY.into()],
            vec![f64::MIN.into()],
            vec![decimal(i128::MIN, 0)],
            vec![i64::MIN.into(), decimal(i128::from(i64::MIN), 0)],
            vec![(-1).into(), (-1.0).into(), decimal(-100, 2)],
            vec![decimal(-1, 1), (-0.1).into()],
            vec![decimal(-1, 255), (-1e-255).into()],
            vec![(-f64::from_bits(1)).into()],
            vec![0.into(), Value::U64(0), 0.0.into(), (-0.0).into(), decimal(0, 7)],
            vec![f64::from_bits(1).into()],
            vec![decimal(1, 255)],
            vec![decimal(1, 1), 0.1.into()],
            vec![decimal(1_000_000_000_000_000_055, 19)],
            vec![1.into(), 1.0.into(), Value::U64(1), decimal(10, 1)],
            vec![9_007_199_254_740_991_i64.into(), 9_007_199_254_740_991.0.into()],
            vec![9_007_199_254_740_992_i64.into(), 9_007_199_254_740_992.0.into()],
            vec![9_007_199_254_740_993_i64.into()],
            vec![i64::MAX.into()],
            vec![u64::MAX.into()],
            vec![1e23.into(), decimal(100_000_000_000_000_000_000_000, 0)],
            vec![decimal(i128::MAX, 0)],
            vec![2e38.into(), 200_000_000_000_000_000_000_000_000_000_000_000_000.0.into()],
            vec![9e38.into()],
            vec![f64::MAX.into()],
            vec![f64::INFINITY.into()],
            vec![Value::Timestamp(i64::MIN)],
            vec![Value::Timestamp(-1)],
            vec![Value::Timestamp(0)],
            vec!["".into()],
            vec!["\0".into()],
            vec!["\0\0".into()],
            vec!["\u{1}".into()],
            vec!["a".into()],
            vec!["a\0b".into()],
            vec!["ab".into()],
            vec!["é".into()],
            vec![Value::Bytes(vec![])],
            vec![Value::Bytes(vec![0])],
            vec![Value::Bytes(vec![0, 255])],
            vec![Value::Bytes(vec![255])],
            vec![Value::List(vec![])],
            vec![Value::List(vec![Value::Null])],
            vec![vec![1].into(), vec![1.0].into()],
            vec![vec![1, 1].into()],
            vec![vec![2].into()],
            vec![Value::List(vec![vec![2].into()])],
            vec![Value::Map(BTreeMap::new())],
            vec![map("a", 9)],
            vec![map("b", 1)],
            vec![map("b", 2)],
        ];
        for (i, row) in rows.iter().enumerate() {
            for (j, other_row) in rows.iter().enumerate() {
                for (a, b) in row.iter().flat_map(|a| other_row.iter().map(move |b| (a, b))) {
                    assert_eq!(compare(a.stored().get(), b.stored().get()), i.cmp(&j), "{a:?} and {b:?}");
                    let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
                    crate::key::encode_key(a.stored().get(), &mut a_key);
                    crate::key::encode_key(b.stored().get(), &mut b_key);
                    assert_eq!(a_key.cmp(&b_key), i.cmp(&j), "keys of {a:?} and {b:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_total_order(a in values(), b in values(), c in values()) {
            let (a, b, c) = (a.stored(), b.stored(), c.stored());
            let (a, b, c) = (a.get(), b.get(), c.get());
            prop_assert_eq!(compare(a, a), Ordering::Equal);
            prop_assert_eq!(compare(a, b), compare(b, a).reverse());
            if compare(a, b).is_le() && compare(b, c).is_le() {
                prop_assert!(compare(a, c).is_le());
            }
        }

        /// The long way round, through text, says the same of f64 and decimals as the fast paths do.
        #[test]
        fn an_f64_equals_the_decimal_that_is_printed_for_it(mantissa in -10_000_000_000_i64..10_000_000_000, scale in 0u8..12) {
            let decimal = Decimal { mantissa: i128::from(mantissa), scale };
            let number: f64 = format!("{mantissa}e-{scale}").parse().unwrap();
            prop_assert_eq!(compare(ValueRef::F64(number), ValueRef::Decimal(decimal)), Ordering::Equal);
            prop_assert_eq!(
                compare(ValueRef::F64(number.next_up()), ValueRef::Decimal(decimal)), Ordering::Greater);
        }

        #[test]
        fn the_short_way_and_the_long_way_agree(mantissa: i64, cut in 0..18u32, scale in 0..24u8, number: f64, near in -2..3i32) {
            let decimal = Decimal { mantissa: i128::from(mantissa / 10i64.pow(cut)), scale };
            let mut beside = decimal.to_f64();
            for _ in 0..near.abs() {
                beside = if near > 0 { beside.next_up() } else { beside.next_down() };
            }
            for number in [beside, number] {
                let (number, decimal) = (ValueRef::F64(number), ValueRef::Decimal(decimal));
                prop_assert_eq!(compare(number, decimal), compare_numbers(number, decimal));
                prop_assert_eq!(compare(decimal, number), compare_numbers(decimal, number));
            }
        }
    }
}
