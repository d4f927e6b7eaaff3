//! What predicates match, against a table and against the same rules said slowly.
//!
//! May use: everything of the crate. Must not know: nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{documents, predicates};
use crate::document::Document;

fn is(path: &str, operator: Operator, value: impl Into<Value>) -> Predicate {
    Predicate::Compare { path: Path::parse(path).unwrap(), operator, operand: Operand::from(&value.into()) }
}

fn not(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

fn among(path: &str, values: &[Value]) -> Predicate {
    Predicate::In { path: Path::parse(path).unwrap(), choices: Choices::new(values.iter().map(Operand::from)) }
}

fn like(path: &str, pattern: &str) -> Predicate {
    let pattern = Pattern::Like(Like::new(pattern, None).unwrap());
    Predicate::Matches { path: Path::parse(path).unwrap(), pattern }
}

#[test]
fn the_table_of_truth() {
    use Operator::{Equal, Greater, Less, NotEqual};
    use Truth::{False, True, Unknown};
    let document = Document::from_pairs([
        ("name", Value::from("Ada")),
        ("age", 42.into()),
        ("none", Value::Null),
        ("tags", vec!["x", "y"].into()),
        ("holes", Value::List(vec![Value::Null, 1.into()])),
        ("empty", Value::List(vec![])),
        ("address", Value::Map(BTreeMap::from([("city".to_owned(), "Bonn".into())]))),
    ]);
    let between = |low: Value, high: Value| Predicate::Between {
        path: Path::field("age"),
        low: Operand::from(&low),
        high: Operand::from(&high),
    };
    let table: Vec<(Predicate, Truth)> = vec![
        (is("age", Equal, 42.0), True),
        (is("age", NotEqual, 42), False),
        (is("age", Greater, 41.5), True),
        (is("age", Greater, 42), False),
        (is("age", Equal, "42"), False),
        (is("age", NotEqual, "42"), True),
        (is("age", Less, "42"), Unknown),
        (not(is("age", Less, "42")), Unknown),
        (is("age", Equal, Value::Null), Unknown),
        (is("none", Equal, Value::Null), Unknown),
        (is("none", NotEqual, 1), Unknown),
        (is("missing", Equal, 1), Unknown),
        (not(is("missing", Equal, 1)), Unknown),
        (is("address.city", Equal, "Bonn"), True),
        (is("tags[*]", Equal, "y"), True),
        (is("tags[*]", Equal, "z"), False),
        (is("tags[*]", NotEqual, "x"), True),
        (is("holes[*]", Equal, 1), True),
        (is("holes[*]", Equal, 2), Unknown),
        (is("empty[*]", Equal, 1), False),
        (is("missing[*]", Equal, 1), Unknown),
        (Predicate::IsNull(Path::field("none")), True),
        (Predicate::IsNull(Path::field("missing")), True),
        (Predicate::IsNull(Path::field("age")), False),
        (Predicate::IsNull(Path::parse("holes[*]").unwrap()), True),
        (Predicate::IsNull(Path::parse("empty[*]").unwrap()), False),
        (among("age", &[1.into(), 42.0.into()]), True),
        (among("age", &[1.into(), "x".into()]), False),
        (among("age", &[1.into(), Value::Null]), Unknown),
        (not(among("age", &[1.into(), Value::Null])), Unknown),
        (among("missing", &[1.into()]), Unknown),
        (among("age", &[]), False),
        (between(41.into(), 42.into()), True),
        (between(43.into(), 44.into()), False),
        (between(41.into(), Value::Null), Unknown),
        (between(43.into(), Value::Null), False),
        (like("name", "A%"), True),
        (like("name", "a%"), False),
        (like("age", "4%"), False),
        (like("none", "%"), Unknown),
        (Predicate::And(vec![]), True),
        (Predicate::Or(vec![]), False),
        (Predicate::And(vec![is("missing", Equal, 1), Predicate::False]), False),
        (Predicate::And(vec![is("missing", Equal, 1), Predicate::True]), Unknown),
        (Predicate::Or(vec![is("missing", Equal, 1), Predicate::True]), True),
        (Predicate::Or(vec![is("missing", Equal, 1), Predicate::False]), Unknown),
    ];
    for (predicate, truth) in table {
        assert_eq!(predicate.truth(document.fields()), truth, "{predicate:?}");
        assert_eq!(predicate.matches(document.fields()), truth == True);
    }
}

#[test]
fn parameters_are_bound_by_number() {
    let path = |name: &str| Path::field(name);
    let predicate = Predicate::And(vec![
        Predicate::Compare { path: path("a"), operator: Operator::Equal, operand: Operand::Parameter(1) },
        Predicate::In {
            path: path("b"),
            choices: Choices::new([Operand::Parameter(0), Operand::from(&Value::I64(7))]),
        },
        Predicate::Matches { path: path("c"), pattern: Pattern::LikeParameter { number: 2, escape: None } },
        Predicate::Matches { path: path("c"), pattern: Pattern::RLikeParameter(3) },
    ]);
    let document = Document::from_pairs([("a", Value::from(1)), ("b", "x".into()), ("c", "text".into())]);
    assert_eq!(predicate.parameters(), 4);
    assert!(!predicate.matches(document.fields()), "unknown before it is bound");
    let good: [Value; 4] = ["x".into(), 1.into(), "t%".into(), "ex".into()];
    assert!(predicate.bind(&good).unwrap().matches(document.fields()));
    let null_pattern: [Value; 4] = ["x".into(), 1.into(), Value::Null, "ex".into()];
    assert!(!predicate.bind(&null_pattern).unwrap().matches(document.fields()));
    let wrong: [&[Value]; 3] = [
        &["x".into(), 1.into(), "t%".into()],
        &["x".into(), 1.into(), 5.into(), "ex".into()],
        &["x".into(), 1.into(), "t%".into(), "(".into()],
    ];
    for parameters in wrong {
        assert!(predicate.bind(parameters).is_err(), "{parameters:?}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let deep = (0..PREDICATE_DEPTH_MAX).fold(Predicate::True, |inner, _| not(inner));
    assert!(matches!(deep.bind(&[]), Err(Error::Limit { .. })));
    let wide = Predicate::And(vec![Predicate::True; PREDICATE_PARTS_MAX]);
    assert!(matches!(wide.check(), Err(Error::Limit { .. })));
}

/// The rules, without a short cut.
fn slowly(predicate: &Predicate, fields: MapRef<'_>) -> Option<bool> {
    let values = |path: &Path| {
        let mut values = Vec::new();
        let _ = path.values(fields, |value| {
            values.push(value);
            ControlFlow::Continue(())
        });
        values
    };
    let or = |truths: Vec<Option<bool>>| {
        if truths.contains(&Some(true)) {
            Some(true)
        } else if truths.contains(&None) {
            None
        } else {
            Some(false)
        }
    };
    match predicate {
        Predicate::And(parts) => {
            or(parts.iter().map(|part| slowly(part, fields).map(|truth| !truth)).collect()).map(|truth| !truth)
        }
        Predicate::Or(parts) => or(parts.iter().map(|part| slowly(part, fields)).collect()),
        Predicate::Not(part) => slowly(part, fields).map(|truth| !truth),
        Predicate::In { path, choices } => {
            let equals = choices.literals.iter().map(|literal| Predicate::Compare {
                path: path.clone(),
                operator: Operator::Equal,
                operand: Operand::Literal(literal.clone()),
            });
            let of_null = choices.null.then(|| is("missing", Operator::Equal, Value::Null));
            if values(path).iter().all(|value| *value == ValueRef::Null) && !values(path).is_empty() {
                return None;
            }
            let with_null = values(path).contains(&ValueRef::Null).then_some(None);
            let of_null = if values(path).is_empty() { None } else { of_null };
            or(equals.chain(of_null).map(|part| slowly(&part, fields)).chain(with_null).collect())
        }
        other => match other.truth(fields) {
            Truth::True => Some(true),
            Truth::False => Some(false),
            Truth::Unknown => None,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_quick_way_and_the_slow_way_agree(predicate in predicates(), document in documents()) {
        let fields = document.fields();
        let expected = slowly(&predicate, fields);
        prop_assert_eq!(predicate.matches(fields), expected == Some(true));
        prop_assert_eq!(not(predicate.clone()).matches(fields), expected == Some(false));
        prop_assert_eq!(predicate.bind(&[]).unwrap(), predicate);
    }

    #[test]
    fn bytes_that_are_no_document_are_safe(predicate in predicates(), bytes: Vec<u8>) {
        let _ = predicate.matches(MapRef(&bytes));
    }
}

/// Eight megabytes that were asked for in a thousand places took eight gigabytes.
#[test]
fn a_parameter_that_is_asked_for_often_is_there_once() {
    let equal = Predicate::Compare {
        path: Path::parse("a").unwrap(),
        operator: Operator::Equal,
        operand: Operand::Parameter(0),
    };
    let choice = Predicate::In { path: Path::parse("a").unwrap(), choices: Choices::new([Operand::Parameter(0)]) };
    let bound = Predicate::Or(vec![equal.clone(), choice, equal]).bind(&[Value::from("much")]).unwrap();
    let Predicate::Or(parts) = bound else { panic!("{bound:?}") };
    let place = |part: &Predicate| match part {
        Predicate::Compare { operand: Operand::Literal(literal), .. } => literal.as_bytes().as_ptr(),
        Predicate::In { choices, .. } => choices.literals().unwrap()[0].as_bytes().as_ptr(),
        other => panic!("{other:?}"),
    };
    assert!(parts.iter().all(|part| place(part) == place(&parts[0])));
}

#[test]
fn regular_expressions_are_few() {
    let rlike = Predicate::Matches { path: Path::parse("a").unwrap(), pattern: Pattern::RLikeParameter(0) };
    let of = |number: usize| Predicate::Not(Box::new(Predicate::Or(vec![rlike.clone(); number])));
    assert!(of(RLIKES_MAX).bind(&[Value::from("b+")]).is_ok());
    let refused = of(RLIKES_MAX + 1).bind(&[Value::from("b+")]);
    assert!(matches!(refused, Err(Error::Limit { actual: 65, limit: 64, .. })), "{refused:?}");
}
