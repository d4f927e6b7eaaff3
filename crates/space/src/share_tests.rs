//! Memory that is counted, and the order of use, through everything that becomes of a type.

use journal::Position;

use crate::command::{Command, Reason, Removed, TypeId};
use crate::definition::{AtLimit, Definition, EvictBy, IndexDefinition, IndexKind};
use crate::document::Document;
use crate::engine::Engine;
use crate::path::Path;
use crate::select::Direction;
use crate::value::ValueRef;

const OF: TypeId = TypeId(1);

fn apply(engine: &mut Engine, command: &Command<'_>) {
    let mut part = Vec::new();
    command.encode(&mut part);
    engine.apply(Position::new(1), &part, &mut |_| ()).unwrap();
}

fn definition(at_limit: AtLimit) -> Definition {
    Definition { at_limit, memory_bytes_max: 1 << 20, ..Definition::new("s", "t") }
}

fn declared(engine: &mut Engine, definition: &Definition) {
    apply(engine, &Command::Declare { of: OF, definition: definition.clone() });
}

/// An engine with entries of these ids, written in their order.
fn loaded(definition: &Definition, ids: &[i64]) -> Engine {
    let mut engine = Engine::default();
    declared(&mut engine, definition);
    for id in ids {
        let document = Document::from_pairs([("id", *id)]);
        apply(&mut engine, &Command::Write { of: OF, expires_ms: 0, document: document.fields(), before: None });
    }
    engine
}

/// The ids, those first that would go first.
fn order(engine: &Engine) -> Vec<i64> {
    let id = |place| match engine.get(place).unwrap().document.get("id") {
        Some(ValueRef::I64(id)) => id,
        other => panic!("{other:?}"),
    };
    engine.evictable(OF).map(id).collect()
}

#[test]
fn declared_again_a_type_is_counted_as_one_that_was_always_so() {
    let (refuses, evicts) = (definition(AtLimit::Refuse), definition(AtLimit::Evict));
    let indexed = evicts.clone().index("id", IndexKind::Ordered).unwrap();
    let ids: Vec<i64> = (0..50).collect();
    for before in [&refuses, &evicts, &indexed] {
        for after in [&refuses, &evicts, &indexed] {
            let mut engine = loaded(before, &ids);
            declared(&mut engine, after);
            assert_eq!(engine.bytes(), loaded(after, &ids).bytes());
            for id in &ids {
                let entry = Removed::Id(ValueRef::I64(*id));
                apply(&mut engine, &Command::Remove { of: OF, reason: Reason::Taken, entry });
            }
            assert_eq!(engine.bytes(), 0);
        }
    }
}

#[test]
fn declared_again_a_type_knows_what_was_used_last() {
    let (refuses, evicts) = (definition(AtLimit::Refuse), definition(AtLimit::Evict));
    let mut engine = loaded(&evicts, &[3, 1, 2]);
    let three = engine.find_id(OF, ValueRef::I64(3)).unwrap();
    engine.touch(three);
    assert_eq!(order(&engine), [1, 2, 3]);
    declared(&mut engine, &evicts.index("id", IndexKind::Hash).unwrap());
    assert_eq!(order(&engine), [1, 2, 3]);
    // Of one that did not evict nobody has noted it: it begins with their places.
    declared(&mut engine, &refuses);
    assert!(order(&engine).is_empty());
    engine.touch(three);
    declared(&mut engine, &definition(AtLimit::Evict));
    assert_eq!(order(&engine), [3, 1, 2]);
}

/// As [`definition`], and the entries with the least or the greatest `n` go first.
fn by_number(direction: Direction) -> Definition {
    let by = EvictBy { path: Path::parse("n").unwrap(), direction };
    Definition { evict_by: Some(by), ..definition(AtLimit::Evict).index("n", IndexKind::Ordered).unwrap() }
}

#[test]
fn entries_go_by_what_the_type_says() {
    let (least, greatest) = (by_number(Direction::Ascending), by_number(Direction::Descending));
    let mut engine = loaded(&least, &[]);
    let write = |engine: &mut Engine, id: i64, n: Option<i64>| {
        let document = match n {
            Some(n) => Document::from_pairs([("id", id), ("n", n)]),
            None => Document::from_pairs([("id", id)]),
        };
        apply(engine, &Command::Write { of: OF, expires_ms: 0, document: document.fields(), before: None });
    };
    for (id, n) in [(1, Some(30)), (2, Some(-5)), (3, None), (4, Some(10)), (5, Some(10))] {
        write(&mut engine, id, n);
    }
    // The one that lacks it stays, and using one changes nothing.
    engine.touch(engine.find_id(OF, ValueRef::I64(2)).unwrap());
    assert_eq!(order(&engine), [2, 4, 5, 1]);
    write(&mut engine, 2, Some(11));
    write(&mut engine, 3, Some(1));
    assert_eq!(order(&engine), [3, 4, 5, 2, 1]);
    engine.set_locked(engine.find_id(OF, ValueRef::I64(3)).unwrap(), true);
    declared(&mut engine, &greatest);
    assert_eq!(order(&engine), [1, 2, 4, 5]);
    declared(&mut engine, &definition(AtLimit::Evict));
    assert_eq!(order(&engine).len(), 4, "by use again");
    let mut fresh = loaded(&definition(AtLimit::Refuse), &[1, 2]);
    declared(&mut fresh, &least);
    assert_eq!(fresh.bytes(), loaded(&least, &[1, 2]).bytes());
    assert!(fresh.bytes() < loaded(&definition(AtLimit::Evict), &[1, 2]).bytes(), "no order of use is kept");
}

#[test]
fn what_a_type_evicts_by_has_an_order_of_one_value() {
    let refused = |definition: Definition| definition.check().unwrap_err().to_string();
    let good = by_number(Direction::Ascending);
    good.check().unwrap();
    let with = |kind: IndexKind, paths: &[&str]| {
        let paths = paths.iter().map(|path| Path::parse(path).unwrap()).collect();
        let index = IndexDefinition { name: "i".into(), kind, unique: false, paths };
        Definition { indexes: vec![index], ..good.clone() }
    };
    with(IndexKind::Ordered, &["n", "m"]).check().unwrap();
    let lacks = "to evict by n the type needs an ordered index of it";
    assert!(refused(with(IndexKind::Ordered, &["m", "n"])).contains(lacks));
    assert!(refused(with(IndexKind::Hash, &["n"])).contains(lacks));
    assert!(refused(Definition { indexes: Vec::new(), ..good.clone() }).contains(lacks));
    assert!(refused(Definition { at_limit: AtLimit::Refuse, ..good.clone() }).contains("only where they are evicted"));
    let by = EvictBy { path: Path::parse("n[*]").unwrap(), direction: Direction::Ascending };
    let items = Definition { evict_by: Some(by), ..with(IndexKind::Ordered, &["n[*]"]) };
    assert!(refused(items).contains("leave out [*]"));
}

/// Stores of before have the old byte, and those of later what it is by.
#[test]
fn how_a_type_evicts_is_stored_as_the_format_says() {
    let byte_of = |definition: &Definition| {
        let mut bytes = Vec::new();
        definition.encode(&mut bytes);
        assert_eq!(Definition::decode(&bytes).unwrap(), *definition);
        // Version, the strings s, t and id, no routing, lease, storage, order, history, and three bytes of the limit.
        bytes[16..].to_vec()
    };
    assert_eq!(byte_of(&definition(AtLimit::Refuse)), [0, 0]);
    assert_eq!(byte_of(&definition(AtLimit::Evict)), [1, 0]);
    let index = [1, 1, b'n', 1, 0, 1, 1, b'n'];
    assert_eq!(byte_of(&by_number(Direction::Ascending)), [[2, 1, b'n'].as_slice(), &index].concat());
    assert_eq!(byte_of(&by_number(Direction::Descending)), [[3, 1, b'n'].as_slice(), &index].concat());
}
