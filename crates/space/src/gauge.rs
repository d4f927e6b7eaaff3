//! What shares take of memory, summed up by whoever wants to know it of several without their locks.
//!
//! May use: nothing. Must not know: what is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One share's part of a sum; without it when it is dropped.
#[derive(Debug)]
pub(crate) struct Gauge {
    sum: Arc<AtomicU64>,
    told: u64,
}

impl Gauge {
    pub(crate) fn new(sum: &Arc<AtomicU64>) -> Self {
        Self { sum: Arc::clone(sum), told: 0 }
    }

    /// The share takes so many bytes now.
    pub(crate) fn tell(&mut self, bytes: u64) {
        // Of a sum of what all have told this wraps around by nobody's part.
        self.sum.fetch_add(bytes.wrapping_sub(self.told), Ordering::Relaxed);
        self.told = bytes;
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.tell(0);
    }
}

#[cfg(test)]
mod tests {
    use journal::Position;
    use proptest::prelude::*;

    use super::*;
    use crate::command::{Command, Reason, Removed, TypeId};
    use crate::definition::{Definition, IndexKind, Order};
    use crate::document::Document;
    use crate::engine::Engine;
    use crate::value::ValueRef;

    fn definition(of: u32, is_indexed: bool) -> Definition {
        let order = if of == 2 { Order::Fifo } else { Order::Any };
        let plain = Definition { order, ..Definition::new(if of == 3 { "else" } else { "shop" }, format!("t{of}")) };
        if is_indexed { plain.index("text", IndexKind::Ordered).unwrap() } else { plain }
    }

    /// A key that several had, and one has now, goes with that one.
    #[test]
    fn the_key_of_the_last_of_several_is_foreseen_to_go() {
        let mut engine = Engine::default();
        let apply = |engine: &mut Engine, command: Command<'_>| {
            let mut part = Vec::new();
            command.encode(&mut part);
            engine.apply(Position::new(1), &part, &mut |_| ()).unwrap();
        };
        let of = TypeId(1);
        apply(&mut engine, Command::Declare { of, definition: definition(1, true) });
        let document =
            |id: i64, text: &str| Document::from_pairs([("id", id.into()), ("text", crate::value::Value::from(text))]);
        for (id, text) in [(1, "x"), (2, "x"), (1, "y"), (2, "z")] {
            let (new, had) = (document(id, text), engine.bytes());
            let old = engine.find_id(of, ValueRef::I64(id)).and_then(|place| engine.get(place));
            let (goes, comes) = engine.growth(of, old.as_ref().map(|old| &old.document), Some(&new));
            apply(&mut engine, Command::Write { of, expires_ms: 0, document: new.fields(), before: None });
            assert_eq!(engine.bytes() + goes, had + comes, "{id} {text}");
        }
    }

    proptest! {
        /// Of two spaces, over two partitions, whatever becomes of types and entries, and whenever somebody begins or ends to want it.
        #[test]
        fn the_sum_is_what_the_types_of_the_space_take(
            steps in proptest::collection::vec((0..2usize, 0u8..9, 1u32..4, 0i64..6, "[a-z]{0,40}", 0u64..3), 0..120)
        ) {
            let (mut engines, sum) = ([Engine::default(), Engine::default()], Arc::new(AtomicU64::new(0)));
            let mut is_wanted = false;
            for (at, (which, what, of, id, text, expires_ms)) in (1..).zip(steps) {
                if what == 0 {
                    is_wanted = !is_wanted;
                    engines.iter_mut().for_each(|engine| engine.sum_up("shop", is_wanted.then_some(&sum)));
                }
                let document = Document::from_pairs([("id", id.into()), ("text", crate::value::Value::from(text))]);
                let (of_type, id) = (TypeId(of), ValueRef::I64(id));
                let command = match what {
                    0 | 1 => Command::Declare { of: of_type, definition: definition(of, expires_ms == 1) },
                    2 => Command::Drop { of: of_type },
                    3 => Command::Remove { of: of_type, reason: Reason::Taken, entry: Removed::Id(id) },
                    4 => Command::Renew { of: of_type, expires_ms, id },
                    _ => Command::Write { of: of_type, expires_ms, document: document.fields(), before: None },
                };
                let mut part = Vec::new();
                command.encode(&mut part);
                let engine = &mut engines[which];
                let old = engine.find_id(of_type, id).and_then(|place| engine.get(place));
                let has_lease = expires_ms > 0 || old.as_ref().is_some_and(|old| old.expires_ms > 0);
                let (goes, comes) = engine.growth(of_type, old.as_ref().map(|old| &old.document), Some(&document));
                let had = engine.bytes();
                // Of a type that was not declared it is refused.
                let is_done = engine.apply(Position::new(at), &part, &mut |_| ()).is_ok();
                if what > 4 && is_done && !has_lease {
                    // What was foretold for the limits is what came.
                    prop_assert_eq!(engine.bytes() + goes, had + comes);
                }
                let bytes: u64 = engines.iter().map(|engine| engine.space_bytes("shop")).sum();
                prop_assert_eq!(sum.load(Ordering::Relaxed), if is_wanted { bytes } else { 0 });
            }
            drop(engines);
            prop_assert_eq!(sum.load(Ordering::Relaxed), 0);
        }
    }
}
