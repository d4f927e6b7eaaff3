//! Whatever indexes there are, the same entries are found; and when all are gone, so are their bytes.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{documents, predicates};
use crate::command::{Command, Reason, Removed};
use crate::definition::{Definition, IndexDefinition, IndexKind};
use crate::path::Path;
use crate::predicate::{Choices, Operand};
use crate::value::{Value, ValueRef};

const OF: TypeId = TypeId(1);

fn apply(engine: &mut Engine, command: &Command<'_>) {
    let mut part = Vec::new();
    command.encode(&mut part);
    engine.apply(Position::new(1), &part, &mut |_| ()).unwrap();
}

fn definition(order: Order, indexes: &[(IndexKind, &[&str])]) -> Definition {
    let index = |(kind, paths): &(IndexKind, &[&str])| IndexDefinition {
        name: format!("{kind:?} {paths:?}"),
        kind: *kind,
        unique: false,
        paths: paths.iter().map(|path| Path::parse(path).unwrap()).collect(),
    };
    Definition { order, indexes: indexes.iter().map(index).collect(), ..Definition::new("s", "t") }
}

fn write(engine: &mut Engine, id: u64, document: &Document, expires_ms: u64) {
    let mut fields = document.to_fields();
    fields.insert("id".into(), Value::from(id));
    let document = Document::new(&fields);
    apply(engine, &Command::Write { of: OF, expires_ms, document: document.fields(), before: None });
}

fn all(filter: &Filter) -> Search<'_> {
    Search { of: OF, filter, by: EVERYBODY, first: None, go_on: &|| ControlFlow::Continue(()) }
}

fn found(engine: &Engine, filter: &Filter) -> Vec<Value> {
    let mut ids = Vec::new();
    let _ = engine.find(all(filter), &mut |found| {
        ids.extend(found.document().get("id").map(ValueRef::to_value));
        ControlFlow::Continue(())
    });
    ids
}

fn sorted(mut ids: Vec<Value>) -> Vec<Value> {
    ids.sort_by(|a, b| crate::compare(a.stored().get(), b.stored().get()));
    ids
}

const KINDS: [&[(IndexKind, &[&str])]; 8] = [
    &[(IndexKind::Hash, &["a"])],
    &[(IndexKind::Ordered, &["a"])],
    &[(IndexKind::Ordered, &["b"]), (IndexKind::Hash, &["c"])],
    &[(IndexKind::Ordered, &["a", "b"])],
    &[(IndexKind::Ordered, &["b", "a", "c"])],
    &[(IndexKind::Hash, &["a", "b"])],
    &[(IndexKind::Ordered, &["a[*]"]), (IndexKind::Hash, &["b[*]"])],
    &[(IndexKind::Ordered, &["b.a"]), (IndexKind::Ordered, &["c", "a"]), (IndexKind::Ordered, &["b[*].a"])],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_index_changes_an_answer_and_none_keeps_bytes(
        all in proptest::collection::vec((documents(), 0u64..12, 0u64..3), 0..24),
        predicate in predicates(),
        gone in proptest::collection::vec(0u64..12, 0..6),
        small in proptest::collection::vec((0u64..4, 0i64..4, 0i64..4), 0..8),
        fifo in proptest::bool::ANY,
    ) {
        let order = || if fifo { Order::Fifo } else { Order::Any };
        let engines = std::iter::once(&[][..]).chain(KINDS).map(|indexes| {
            let mut engine = Engine::default();
            apply(&mut engine, &Command::Declare { of: OF, definition: definition(order(), indexes) });
            let empty = engine.bytes();
            for (document, id, expires_ms) in &all {
                write(&mut engine, *id, document, *expires_ms);
            }
            for (id, a, b) in &small {
                let fields = [("a", Value::from(*a)), ("b", Value::from(*b))];
                write(&mut engine, 20 + id, &Document::from_pairs(fields.into_iter().skip(usize::from(*b == 3))), 0);
            }
            for id in &gone {
                let id = ValueRef::I64(id.cast_signed());
                apply(&mut engine, &Command::Renew { of: OF, expires_ms: 9, id });
                apply(&mut engine, &Command::Remove { of: OF, reason: Reason::Taken, entry: Removed::Id(id) });
            }
            (engine, empty)
        });
        let mut filters = vec![Filter::new(predicate.clone())];
        for text in ["a = 1", "a > 1", "a >= 1 AND b < 3", "a = 2 AND b >= 1", "a IN (1, 2) AND b = 1", "b = 1 AND a > 0", "a <= 2"] {
            filters.push(Filter::new(crate::Query::parse(text).unwrap().predicate));
        }
        let mut expected: Vec<Vec<Value>> = Vec::new();
        for (number, (mut engine, empty)) in engines.enumerate() {
            for (at, filter) in filters.iter().enumerate() {
                let mut ids = found(&engine, filter);
                if !fifo {
                    ids = sorted(ids);
                }
                match expected.get(at) {
                    None => expected.push(ids),
                    Some(expected) => prop_assert_eq!(&ids, expected, "indexes {}, filter {}", number, at),
                }
            }
            // An index that is added later is as one that was there from the beginning.
            let all = KINDS[number % KINDS.len()];
            apply(&mut engine, &Command::Declare { of: OF, definition: definition(order(), all) });
            for (filter, expected) in filters.iter().zip(&expected) {
                prop_assert_eq!(sorted(found(&engine, filter)), sorted(expected.clone()));
            }
            for id in 0..30 {
                let entry = Removed::Id(ValueRef::I64(id));
                apply(&mut engine, &Command::Remove { of: OF, reason: Reason::Cleared, entry });
            }
            prop_assert_eq!(engine.bytes(), empty);
            prop_assert_eq!(engine.next_expiry(), None);
        }
    }
}

/// A query without an index over entries none of which matched was asked nothing until its end.
#[test]
fn a_search_that_finds_nothing_ends_when_it_is_told_to() {
    let mut engine = Engine::default();
    apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Any, &[]) });
    let text = "x".repeat(1 << 10);
    (0..1_000).for_each(|id| write(&mut engine, id, &Document::from_pairs([("a", text.as_str())]), 0));
    let filter = Filter::new(crate::select::Query::parse("a = 'y'").unwrap().predicate);
    let (asked, last) = (std::cell::Cell::new(0), std::cell::Cell::new(u64::MAX));
    let go_on = || {
        asked.set(asked.get() + 1);
        if asked.get() < last.get() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let search = || engine.find(Search { go_on: &go_on, ..all(&filter) }, &mut |_| ControlFlow::Break(()));
    assert!(search().is_continue() && (10..30).contains(&asked.get()), "{}", asked.get());
    asked.set(0);
    last.set(3);
    assert!(search().is_break() && asked.get() == 3);
    // The more there is to be looked at, the sooner.
    let filter = Filter::new(crate::select::Query::parse("a RLIKE 'y'").unwrap().predicate);
    asked.set(0);
    last.set(u64::MAX);
    let search = || engine.find(Search { go_on: &go_on, ..all(&filter) }, &mut |_| ControlFlow::Break(()));
    assert!(search().is_continue() && asked.get() == 1_000, "{}", asked.get());
}

/// Looked up by the id, where a condition names it, an entry is found that all entries would be gone through for; and no others are looked at.
#[test]
fn an_id_in_a_condition_finds_what_going_through_all_would() {
    let ids: Vec<Value> = vec![
        7.into(),
        Value::from(u64::MAX),
        Value::I64(i64::MIN),
        "7".into(),
        "a\0b".into(),
        Value::Bytes(b"7".to_vec()),
        Value::Bytes(vec![]),
        0.into(),
    ];
    for order in [Order::Any, Order::Fifo] {
        let mut engine = Engine::default();
        apply(&mut engine, &Command::Declare { of: OF, definition: definition(order, &[(IndexKind::Hash, &["n"])]) });
        for id in &ids {
            let document = Document::from_pairs([("id", id.clone()), ("n", 1.into())]);
            apply(&mut engine, &Command::Write { of: OF, expires_ms: 0, document: document.fields(), before: None });
        }
        let asked =
            ids.iter().cloned().chain([Value::F64(7.0), Value::F64(7.5), 8.into(), Value::Null, Value::Bool(true)]);
        let asked: Vec<Value> =
            asked.chain([Value::Decimal(crate::value::Decimal { mantissa: 700, scale: 2 }), "8".into()]).collect();
        for (sql, is_by_id) in [
            ("id = ?", true),
            ("id = ? AND n = 1", true),
            ("n = 2 AND id = ?", true),
            ("id IN (?, 7, 'a')", true),
            ("id = ? OR id = '7'", true),
            ("id = ? OR n = 1", false),
            ("NOT id = ?", false),
            ("id >= ?", false),
        ] {
            for value in &asked {
                let query = crate::select::Query::parse(sql).unwrap().bind(std::slice::from_ref(value)).unwrap();
                let filter = Filter::new(query.predicate.clone());
                let through_all: Vec<Value> = ids
                    .iter()
                    .filter(|id| {
                        filter.matches(Document::from_pairs([("id", (*id).clone()), ("n", 1.into())]).fields())
                    })
                    .cloned()
                    .collect();
                assert_eq!(sorted(found(&engine, &filter)), sorted(through_all), "{sql} {value:?}");
                let plan = engine.explain(OF, &filter, None).unwrap();
                // Nothing is above null: no id is wanted at all.
                let is_by_id = is_by_id || sql == "id >= ?" && *value == Value::Null;
                assert_eq!(plan.index.as_deref() == Some("id"), is_by_id, "{sql} {value:?}: {plan:?}");
                assert!(!is_by_id || plan.candidates <= 2, "{sql} {value:?}: {plan:?}");
            }
        }
        for id in &ids {
            let filter = Filter::template(&Document::from_pairs([("id", id.clone())]));
            assert_eq!(
                (found(&engine, &filter), engine.explain(OF, &filter, None).unwrap().candidates),
                (vec![id.clone()], 1)
            );
        }
    }
}

/// Each that was taken had all others of its state put in order.
#[test]
fn the_first_in_a_queue_of_which_many_match_is_found_without_putting_all_in_order() {
    let by_state: &[(IndexKind, &[&str])] = &[(IndexKind::Hash, &["state"])];
    let mut engine = Engine::default();
    apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Fifo, by_state) });
    for id in 0..5000 {
        let state = if id % 10 == 0 { "done" } else { "new" };
        write(&mut engine, id, &Document::from_pairs([("state", state)]), 0);
    }
    let filter = Filter::template(&Document::from_pairs([("state", "new")]));
    let mut first = None;
    let search = Search { go_on: &|| ControlFlow::Break(()), ..all(&filter) };
    let _ = engine.find(search, &mut |found| {
        first = found.document().get("id").map(ValueRef::to_value);
        ControlFlow::Break(())
    });
    assert_eq!(first, Some(Value::from(1)), "and nobody was asked whether it goes on");
    let search = Search { go_on: &|| ControlFlow::Break(()), ..all(&filter) };
    let mut seen = 0;
    let ended = engine.find(search, &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert!(ended.is_break() && seen < 1000, "{seen}");
}

#[test]
fn a_queue_is_gone_through_in_order_wherever_in_it_those_that_match_stand() {
    let many: &[(IndexKind, &[&str])] = &[(IndexKind::Hash, &["tags[*]"])];
    for stand in [0..300u64, 700..1000, 100..590] {
        let engines = [many, &[]].map(|indexes| {
            let mut engine = Engine::default();
            apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Fifo, indexes) });
            for id in 0..1000 {
                let tags = if stand.contains(&id) { vec![Value::from("a"), Value::from("b")] } else { vec![] };
                write(&mut engine, id, &Document::from_pairs([("tags", Value::from(tags))]), 0);
            }
            engine
        });
        let tags = ["a", "b"].map(|tag| Operand::Literal(Value::from(tag).stored()));
        let choices = Choices::new(tags);
        let filter = Filter::new(Predicate::In { path: Path::parse("tags[*]").unwrap(), choices });
        assert_eq!(
            engines.each_ref().map(|engine| engine.explain(OF, &filter, None).unwrap().index.is_some()),
            [true, false]
        );
        let [indexed, plain] = engines.each_ref().map(|engine| found(engine, &filter));
        assert_eq!(indexed, plain, "{stand:?}");
        assert_eq!(indexed.len() as u64, stand.end - stand.start);
    }
}

/// Along an index, in pieces, each behind the last one of the piece before: all of it, once and in order.
#[test]
fn a_search_along_an_index_goes_on_behind_what_it_has_come_to() {
    let mut engine = Engine::default();
    let indexes: &[(IndexKind, &[&str])] = &[(IndexKind::Ordered, &["n"]), (IndexKind::Ordered, &["kind", "n"])];
    apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Any, indexes) });
    for id in 0..500u64 {
        let fields = [("n", Value::from(id * 7 % 90)), ("kind", Value::from(id % 2))];
        write(&mut engine, id, &Document::from_pairs(fields), 0);
    }
    for sql in [
        "n >= 10 ORDER BY n",
        "n > 10 AND n < 80 ORDER BY n DESC",
        "kind = 1 ORDER BY n",
        "kind = 1 ORDER BY n DESC",
        "kind = 0 AND n >= 3 ORDER BY n DESC",
    ] {
        let query = crate::select::Query::parse(sql).unwrap();
        let filter = Filter::new(query.predicate.clone());
        let first = Some(crate::along::First { order: &query.order, enough: 7 });
        let search = Search { first, ..all(&filter) };
        let mut expected = Vec::new();
        let _ = engine.find(search, &mut |found| {
            expected.push(found.place);
            ControlFlow::Continue(())
        });
        assert!(expected.len() > 150, "{sql}");
        for piece in [1, 2, 7, 8, 9, 1000] {
            let (mut came, mut last) = (Vec::new(), None::<(Vec<u8>, Place)>);
            loop {
                let before = last.take();
                let behind = before.as_ref().map(|(rank, place)| Behind { rank, place: *place });
                let mut some = 0;
                let outcome = engine.find_along(search, behind, &mut |found| {
                    came.push(found.place);
                    last = Some((found.rank.to_vec(), found.place));
                    some += 1;
                    if some < piece { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                assert!(came.len() <= expected.len(), "{sql}: each once");
                if outcome.expect("it is along an index") == ControlFlow::Continue(()) {
                    break;
                }
            }
            assert_eq!(came, expected, "{sql}, {piece} at a time");
        }
    }
    // Where keys are not the whole order, or there is no way in it, nothing is looked at.
    for sql in ["n >= 10 ORDER BY n, id", "kind = 1 ORDER BY kind", "id >= 0 ORDER BY id", "n >= 10 ORDER BY kind"] {
        let query = crate::select::Query::parse(sql).unwrap();
        let filter = Filter::new(query.predicate.clone());
        let search = Search { first: Some(crate::along::First { order: &query.order, enough: 7 }), ..all(&filter) };
        assert_eq!(engine.find_along(search, None, &mut |_| panic!("{sql}")), None, "{sql}");
    }
}

/// Whoever goes on behind what he has found has to know that it is as it was.
#[test]
fn every_change_of_entries_is_counted_and_no_look() {
    let mut engine = Engine::default();
    assert_eq!(engine.changes(OF), None);
    apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Any, &[]) });
    let count = |engine: &Engine| engine.changes(OF).unwrap();
    let mut before = count(&engine);
    let mut changed = |engine: &Engine, what: &str| {
        let now = count(engine);
        assert_eq!(now > std::mem::replace(&mut before, now), !what.starts_with("no"), "{what}");
    };
    let document = |n: i64| Document::from_pairs([("n", n)]);
    write(&mut engine, 1, &document(1), 0);
    changed(&engine, "a new entry");
    write(&mut engine, 1, &document(2), 0);
    changed(&engine, "another in its place");
    let id = Value::from(1u64);
    apply(&mut engine, &Command::Renew { of: OF, expires_ms: 7, id: id.scalar() });
    changed(&engine, "another lease");
    let _ = found(&engine, &Filter::all());
    let place = engine.find_id(OF, id.scalar()).unwrap();
    engine.set_locked(place, true);
    engine.touch(place);
    changed(&engine, "no change: it was looked at, locked and used");
    apply(&mut engine, &Command::Declare { of: OF, definition: definition(Order::Any, KINDS[0]) });
    changed(&engine, "other indexes");
    let (reason, entry) = (Reason::Taken, Removed::Id(id.scalar()));
    apply(&mut engine, &Command::Remove { of: OF, reason, entry });
    changed(&engine, "one less");
    apply(&mut engine, &Command::Remove { of: OF, reason, entry: Removed::Id(id.scalar()) });
    changed(&engine, "no change: it was gone");
}
