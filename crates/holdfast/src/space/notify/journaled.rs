//! Events as the journal has them.
//!
//! May use: `space`, `journal`. Must not know: listeners.

use std::collections::VecDeque;

use ::space::{Command, Commands, Document, Event, EventKind, Removed, TypeId, ValueRef};
use journal::{Position, Record};

use super::Bookmark;
use crate::error::Result;
use crate::space::commit::SPACE_PART;
use crate::space::listen::Heard;

/// What the journal tells of an event of a type without history: the same, whether it was read there or not.
pub(super) fn as_journaled(Heard { number, event, .. }: Heard, id_field: &str) -> Heard {
    let only_id =
        |document: &Document| document.get(id_field).map(|id| Document::from_pairs([(id_field, id.to_value())]));
    let event = match event.kind {
        EventKind::Written | EventKind::Updated => Event { kind: EventKind::Written, before: None, ..event },
        EventKind::Removed(_) => Event { before: event.before.as_ref().and_then(only_id), ..event },
    };
    Heard::new(number, event)
}

/// The events of one type in a batch, behind the bookmark.
pub(super) fn events(
    record: &Record<'_>,
    of: TypeId,
    id_field: &str,
    begin: Bookmark,
    to: &mut VecDeque<Heard>,
) -> Result<()> {
    let position = record.position;
    let mut told = 0;
    for section in &record.sections {
        for (_, part) in kv::other_parts(section.commands).filter(|(engine, _)| *engine == SPACE_PART) {
            for command in Commands::new(part) {
                let Some(event) = event(&command?, of, id_field, position) else { continue };
                told += 1;
                if (Bookmark { position, told }) > begin {
                    to.push_back(Heard::new(told, event));
                }
            }
        }
    }
    Ok(())
}

fn event(command: &Command<'_>, wanted: TypeId, id_field: &str, position: Position) -> Option<Event> {
    let document = |fields: &::space::MapRef<'_>| Document::from_stored(fields.as_bytes()).ok();
    let only_id = |id: &ValueRef<'_>| Document::from_pairs([(id_field, id.to_value())]);
    match command {
        Command::Write { of, document: after, before, .. } if *of == wanted => {
            let before = before.as_ref().and_then(document);
            let kind = if before.is_some() { EventKind::Updated } else { EventKind::Written };
            Some(Event { of: *of, kind, before, after: document(after), position })
        }
        Command::Remove { of, reason, entry } if *of == wanted => {
            let before = match entry {
                Removed::Id(id) => Some(only_id(id)),
                Removed::Document(fields) => document(fields),
            };
            Some(Event { of: *of, kind: EventKind::Removed(*reason), before, after: None, position })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::space::Definition;
    use journal::{Batch, Log, PartitionId};

    use super::*;
    use crate::space::{Listen, NoticeKind, Wanted, WriteOptions};
    use crate::{ErrorKind, Options, Store};

    /// What was read before it went away with the error.
    #[test]
    fn events_before_a_batch_that_does_not_decode_are_told_before_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let definition = Definition { history: true, ..Definition::new("shop", "order") };
        let orders = store.space("shop").declare(definition).unwrap();
        let write =
            |id: i64| drop(orders.write(&Document::from_pairs([("id", id)]), &WriteOptions::default()).unwrap());
        write(1);
        write(2);
        let mut batch = Batch::new();
        // Its first command reads, and is of the type; nothing of a batch is told alone.
        let first = Document::from_pairs([("id", 3_i64)]);
        batch.section(PartitionId::new(0), |to| {
            let mut part = Vec::new();
            let write = Command::Write { of: orders.kind.of, document: first.fields(), expires_ms: 0, before: None };
            write.encode(&mut part);
            part.push(0xff);
            kv::put_other_part(to, SPACE_PART, &part);
        });
        store.inner().journal.append(&batch).unwrap();
        write(4);
        for conflate in [false, true] {
            let listen = Listen { from: Some(Bookmark::START), conflate, ..Listen::default() };
            let mut listener = orders.listen(&Wanted::all(), listen).unwrap();
            for id in [1_i64, 2] {
                let notice = listener.next(Duration::ZERO).unwrap().unwrap();
                assert_eq!(notice.kind, NoticeKind::Written);
                assert_eq!(notice.after, Some(Document::from_pairs([("id", id)])));
            }
            // It stands before what it cannot read, and goes past nothing that it has not told.
            for _ in 0..2 {
                assert_eq!(listener.next(Duration::ZERO).unwrap_err().kind(), ErrorKind::Corrupt);
            }
        }
    }
}
