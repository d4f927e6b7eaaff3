//! Rust types there and back, and what is no document.
//!
//! May use: everything of the crate. Must not know: nothing.

use std::collections::BTreeMap;

use ::serde::{Deserialize, Serialize};
use proptest::prelude::*;

use super::*;
use crate::arbitrary::documents;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    zip: String,
    number: u64,
    small: i8,
    letter: char,
    huge: i128,
    price: Decimal,
    at: Timestamp,
    note: Option<String>,
    missing: Option<u8>,
    lines: Vec<Line>,
    by_number: BTreeMap<u32, bool>,
    state: State,
    more: Vec<State>,
    pair: (i32, String),
    unit: (),
    any: Value,
    #[serde(flatten)]
    rest: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    sku: Sku,
    amount: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sku(String);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum State {
    Open,
    Paid(u32),
    Sent(u32, bool),
    Closed { by: String, at: Option<Timestamp> },
}

fn order() -> Order {
    Order {
        zip: "53111".into(),
        number: u64::MAX,
        small: -5,
        letter: 'é',
        huge: i128::MIN,
        price: Decimal { mantissa: 1250, scale: 2 },
        at: Timestamp(-7),
        note: Some("x".into()),
        missing: None,
        lines: vec![Line { sku: Sku("s1".into()), amount: 1.5 }, Line { sku: Sku("s2".into()), amount: 2.0 }],
        by_number: BTreeMap::from([(10, true), (9, false)]),
        state: State::Open,
        more: vec![State::Paid(1), State::Sent(2, true), State::Closed { by: "me".into(), at: Some(Timestamp(1)) }],
        pair: (-1, "y".into()),
        unit: (),
        any: Value::List(vec![
            Value::Timestamp(5),
            Value::Decimal(Decimal { mantissa: 5, scale: 1 }),
            Value::Bytes(vec![1]),
        ]),
        rest: BTreeMap::from([("color".into(), "red".into())]),
    }
}

#[test]
fn a_struct_is_a_document_and_comes_back() {
    let mut order = order();
    order.any = Value::Null;
    order.price = Decimal { mantissa: 1, scale: 0 };
    let document = Document::from_serialize(&order).unwrap();
    assert_eq!(Document::from_stored(document.as_bytes()).as_ref(), Ok(&document), "sorted and in one form");
    assert_eq!(document.at(&["at"]), Some(ValueRef::Timestamp(-7)));
    assert_eq!(document.get("state"), Some(ValueRef::String("Open")));
    assert_eq!(document.at(&["by_number", "10"]), Some(ValueRef::Bool(true)));
    assert_eq!(document.get("missing"), Some(ValueRef::Null));
    assert_eq!(document.get("small"), Some(ValueRef::I64(-5)));
    assert_eq!(document.get("price"), Some(ValueRef::Decimal(Decimal { mantissa: 1, scale: 0 })));
    assert_eq!(document.get("color"), Some(ValueRef::String("red")));
}

/// Without `flatten`, which reads fields through a buffer of serde's own that has no timestamps.
#[test]
fn all_kinds_come_back() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        price: Decimal,
        at: Timestamp,
        lines: Vec<Line>,
        by_number: BTreeMap<u32, bool>,
        more: Vec<State>,
        huge: i128,
        letter: char,
        note: Option<String>,
        missing: Option<u8>,
        pair: (i32, String),
        any: Value,
        unit: (),
    }
    let Order { price, at, lines, by_number, more, huge, letter, note, missing, pair, any, unit, .. } = order();
    let all = All { price, at, lines, by_number, more, huge, letter, note, missing, pair, any, unit };
    let document = Document::from_serialize(&all).unwrap();
    assert_eq!(document.deserialize::<All>().unwrap(), all);
    #[derive(Debug, PartialEq, Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        note: &'a str,
        price: f64,
        at: i64,
        #[serde(default)]
        other: u8,
    }
    assert_eq!(document.deserialize::<Part<'_>>().unwrap(), Part { note: "x", price: 12.5, at: -7, other: 0 });
}

#[test]
fn what_is_no_document_is_refused() {
    #[derive(Serialize)]
    struct Deep(Vec<Deep>);
    let deep = |levels: usize| (0..levels).fold(Deep(vec![]), |inner, _| Deep(vec![inner]));
    assert!(Document::from_serialize(&BTreeMap::from([("a", deep(DEPTH_MAX - 1))])).is_ok());
    assert!(matches!(Document::from_serialize(&BTreeMap::from([("a", deep(DEPTH_MAX))])), Err(Error::Limit { .. })));
    let errors = [
        Document::from_serialize(&1),
        Document::from_serialize(&vec![1]),
        Document::from_serialize(&State::Open),
        Document::from_serialize(&BTreeMap::from([(vec![1], 1)])),
        Document::from_serialize(&BTreeMap::from([("a", u128::MAX)])),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Invalid { .. })), "{error:?}");
    }
    let document = Document::from_pairs([("sku", Value::from(1)), ("amount", "x".into())]);
    let error = document.deserialize::<Line>().unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    assert!(Document::from_pairs([("amount", 1)]).deserialize::<Line>().unwrap_err().to_string().contains("sku"));
}

#[test]
fn an_enum_is_tagged_by_its_name() {
    for (state, expected) in [
        (State::Paid(1), Value::Map([("Paid".to_owned(), 1.into())].into())),
        (State::Sent(1, true), Value::Map([("Sent".to_owned(), Value::List(vec![1.into(), true.into()]))].into())),
    ] {
        let document = Document::from_serialize(&BTreeMap::from([("s", state.clone())])).unwrap();
        assert_eq!(document.get("s").map(ValueRef::to_value), Some(expected));
        assert_eq!(document.deserialize::<BTreeMap<String, State>>().unwrap().get("s"), Some(&state));
    }
}

proptest! {
    #[test]
    fn any_document_is_a_map_of_values(document in documents()) {
        let fields: BTreeMap<String, Value> = document.deserialize().unwrap();
        prop_assert_eq!(&Document::from_serialize(&fields).unwrap(), &document);
        // Whatever it holds, it is an order or refused.
        let _ = document.deserialize::<Order>();
        let _ = document.deserialize::<BTreeMap<String, State>>();
    }
}
