//! Random values for tests, small enough that equal and neighbouring ones meet.
//!
//! May use: everything of the crate. Must not know: what is tested.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::document::Document;
use crate::path::Path;
use crate::pattern::Like;
use crate::predicate::{Choices, Operand, Operator, Pattern, Predicate};
use crate::template::Template;
use crate::value::{Decimal, Value};

/// Numbers of all kinds: few of them many times, the edges, and anything.
pub(crate) fn numbers() -> impl Strategy<Value = Value> {
    let edges = [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX, 1 << 53, (1 << 53) + 1, 0, 1, -1, 10, 99, 100, 101];
    let floats =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, 0.01, 1e23, f64::MIN_POSITIVE, f64::MAX, 9.5e-323];
    let any_decimal =
        (any::<i128>(), any::<u8>()).prop_map(|(mantissa, scale)| Value::Decimal(Decimal { mantissa, scale }));
    let small_decimal =
        (-2000..2000i128, 0..4u8).prop_map(|(mantissa, scale)| Value::Decimal(Decimal { mantissa, scale }));
    prop_oneof![
        (-20..20i64).prop_map(Value::I64),
        proptest::sample::select(edges.to_vec()).prop_map(Value::I64),
        proptest::sample::select(edges.to_vec()).prop_map(|number| Value::F64(number as f64)),
        any::<i64>().prop_map(Value::I64),
        any::<u64>().prop_map(Value::from),
        proptest::sample::select(floats.to_vec()).prop_map(Value::F64),
        (-2000..2000i64).prop_map(|number| Value::F64(number as f64 / 100.0)),
        any::<u64>().prop_map(|bits| Value::F64(f64::from_bits(bits))),
        any_decimal,
        small_decimal,
    ]
}

/// Values that hold no others.
pub(crate) fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        8 => numbers(),
        1 => (-3..3i64).prop_map(Value::Timestamp),
        1 => any::<i64>().prop_map(Value::Timestamp),
        3 => "[a-c\u{0}\u{1}]{0,3}".prop_map(Value::String),
        1 => any::<String>().prop_map(Value::String),
        2 => vec(prop_oneof![Just(0u8), Just(255), any::<u8>()], 0..4).prop_map(Value::Bytes),
    ]
}

/// All values.
pub(crate) fn values() -> impl Strategy<Value = Value> {
    scalars().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::List),
            btree_map("[a-b\u{0}]{0,2}", inner, 0..3).prop_map(Value::Map),
        ]
    })
}

/// Documents whose fields are often called `a`, `b` and `c`.
pub(crate) fn documents() -> impl Strategy<Value = Document> {
    btree_map("[a-c]|[a-z]{1,3}", values(), 0..5).prop_map(|fields| Document::new(&fields))
}

fn operands() -> impl Strategy<Value = Operand> {
    scalars().prop_map(|value| Operand::from(&value))
}

/// Predicates over the fields that `documents` have, without parameters.
pub(crate) fn predicates() -> impl Strategy<Value = Predicate> {
    use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    let texts = ["a", "b", "c", "a[*]", "b[*]", "a.b", "a[*].b", "missing"];
    let paths = || proptest::sample::select(texts.to_vec()).prop_map(|text| Path::parse(text).unwrap());
    let operators = proptest::sample::select(vec![Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual]);
    let leaf = prop_oneof![
        Just(Predicate::True),
        Just(Predicate::False),
        (paths(), operators, operands()).prop_map(|(path, operator, operand)| Predicate::Compare {
            path,
            operator,
            operand
        }),
        (paths(), vec(operands(), 0..4))
            .prop_map(|(path, operands)| Predicate::In { path, choices: Choices::new(operands) }),
        (paths(), operands(), operands()).prop_map(|(path, low, high)| Predicate::Between { path, low, high }),
        (paths(), "[a-c%_]{0,3}").prop_map(|(path, pattern)| {
            Predicate::Matches { path, pattern: Pattern::Like(Like::new(&pattern, None).unwrap()) }
        }),
        paths().prop_map(Predicate::IsNull),
        documents().prop_map(|document| Predicate::Template(Template::new(document))),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Predicate::And),
            vec(inner.clone(), 0..3).prop_map(Predicate::Or),
            inner.prop_map(|part| Predicate::Not(Box::new(part))),
        ]
    })
}
