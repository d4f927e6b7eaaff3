//! Memory that is counted, and the order of use, through everything that becomes of a type.

use journal::Position;

use crate::command::{Command, Reason, Removed, TypeId};
use crate::definition::{AtLimit, Definition, IndexKind};
use crate::document::Document;
use crate::engine::Engine;
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
