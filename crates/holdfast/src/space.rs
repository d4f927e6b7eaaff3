//! The object space as users see it: named spaces of typed entries, in memory and in the journal.
//!
//! May use: the `space` engine, the commit path. Must not know: protocols.

mod background;
mod cancel;
mod commit;
mod entries;
pub(crate) mod files;
mod grouped;
mod kept;
pub(crate) mod kind;
mod limit;
mod listen;
mod locks;
mod many;
mod memory;
mod merged;
mod named;
mod near;
mod notify;
mod prepared;
mod query_cache;
mod ranked;
mod read;
mod route;
mod scrub;
mod select;
mod space_limit;
mod stage;
mod stop;
mod task;
mod through;
mod wait;
mod wanted;
mod within;
mod write;

use std::sync::Arc;

use ::space::{Command, TypeId};
use journal::{Batch, Log, Position};

pub use ::space::{
    AtLimit, Change, Decimal, Definition, Direction, Document, EvictBy, IndexDefinition, IndexKind, ListRef, MapRef,
    Order, Path, Placement, Plan, Query, Reason, Storage, Usage, Value, ValueRef, compare, key_of,
};
pub use cancel::Cancel;
pub use entries::{Entries, Entry};
pub use many::{Iteration, Outlook};
pub use memory::Held;
pub use named::{KnownListener, ListenName};
pub use near::{NearCounts, NearTable};
pub use notify::{BUFFER_EVENTS, Bookmark, Hears, Listen, Listener, Notice, NoticeKind, NoticePage, PageLimit};
pub use prepared::{PreparedQuery, ToQuery};
pub use read::{ReadOptions, Taking};
pub use space_limit::SpaceUsage;
pub use stage::EntryChange;
pub use stop::{GoOn, Stop};
pub use task::Task;
pub(crate) use task::check_outside;
pub use through::{NotThrough, WriteThrough};
pub use wanted::{Wanted, WantedBy};
pub use within::{ManyChanged, ReadLock, Within, WithinIteration};
pub use write::{Changed, Lease, WriteMode, WriteOptions, Written};

pub(crate) use commit::{Opened, SPACE_PART};
pub(crate) use kind::{Kind, Registry};
pub(crate) use memory::QueryMemory;
pub(crate) use named::{Known as KnownListeners, is_of_listeners};
pub(crate) use query_cache::QueryCache;
pub(crate) use scrub::SnapshotScrub;
pub(crate) use stage::SpaceStage;

use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::stats::OpenTransaction;
use crate::store::{Inner, Store, lock};

/// A named space of the store: types, and entries of them.
#[derive(Clone)]
pub struct Space {
    store: Store,
    name: String,
}

impl Store {
    /// The space of this name; it is there as soon as a type is declared in it.
    #[must_use]
    pub fn space(&self, name: &str) -> Space {
        Space { store: self.clone(), name: name.to_owned() }
    }

    /// The transactions that may hold locks, the oldest first.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.inner().spaces.locks.open(self.inner().clock.now())
    }

    /// The names of all spaces in which types were declared.
    #[must_use]
    pub fn spaces(&self) -> Vec<String> {
        self.inner().spaces.names()
    }
}

impl Space {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declares a type, or changes one that is there: adds and removes indexes, while it is used. The definition's space has
    /// to be this one. Blocks until that is on stable storage.
    ///
    /// # Errors
    /// `Invalid` says what to change; `Conflict` when entries that are there do not fit, such as two with one value of a
    /// unique index; `Unavailable` when the disk refuses.
    pub fn declare(&self, definition: Definition) -> Result<Entries> {
        if definition.space != self.name {
            let text = format!("the definition is of the space {}, not of {}", definition.space, self.name);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        definition.check()?;
        let inner = self.store.inner();
        inner.check_open()?;
        let mut last = lock(&inner.spaces.declaring);
        let found = inner.spaces.find(&self.name, &definition.name);
        if let Some(kind) = &found {
            let old = kind.definition();
            if **old == definition {
                return Ok(Entries::new(self.store.clone(), Arc::clone(kind)));
            }
            old.check_change(&definition)?;
        }
        // From the first type on there are snapshots, so that opening knows that there is something to look for.
        inner.begin_spaces()?;
        let of = found.as_ref().map_or(TypeId(*last + 1), |kind| kind.of);
        let definition = Arc::new(definition);
        let declare = Command::Declare { of, definition: Definition::clone(&definition) };
        let position = self.store.told(self.journal_everywhere(&declare, || ()), Durability::Synced)?;
        self.store.wait(position, Durability::Synced)?;
        *last = (*last).max(of.0);
        let kind = match found {
            Some(kind) => {
                kind.redefine(definition);
                kind
            }
            None => {
                let kind = Arc::new(Kind::new(of, definition, inner.spaces.memory_of(&self.name)));
                inner.load_space_limit(&self.name);
                inner.spaces.add(Arc::clone(&kind));
                kind
            }
        };
        Ok(Entries::new(self.store.clone(), kind))
    }

    /// Removes a type with all its entries. False if there is none. Blocks until that is on stable storage.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_type(&self, name: &str) -> Result<bool> {
        let inner = self.store.inner();
        inner.check_open()?;
        let _one = lock(&inner.spaces.declaring);
        let Some(kind) = inner.spaces.find(&self.name, name) else { return Ok(false) };
        // Before it, because at opening nobody can tell whether a type was dropped or could not be read.
        inner.drop_listeners(kind.of)?;
        let position = self.journal_drop(&kind)?;
        self.store.wait(position, Durability::Synced)?;
        inner.spaces.remove(&kind);
        // Those that came between.
        inner.drop_listeners(kind.of)?;
        Ok(true)
    }

    /// Drops the type for everybody who comes to a partition from now on; not yet durably.
    fn journal_drop(&self, kind: &Kind) -> Result<Position> {
        let dropped = || {
            kind.drop_it();
            self.store.inner().key_watchers.tell_entries_cleared(&kind.definition());
        };
        self.journal_everywhere(&Command::Drop { of: kind.of }, dropped)
    }

    /// Makes one batch with the command for every partition; `then` happens before anybody else comes to one.
    fn journal_everywhere(&self, command: &Command<'_>, then: impl FnOnce()) -> Result<Position> {
        let inner = self.store.inner();
        let mut part = Vec::new();
        command.encode(&mut part);
        let mut guards: Vec<_> = inner.partitions.iter().map(Partition::space).collect();
        inner.partitions.iter().try_for_each(Partition::check)?;
        if let Command::Declare { of, definition } = command {
            guards.iter().try_for_each(|engine| engine.check_redeclare(*of, definition))?;
        }
        let mut batch = Batch::new();
        for partition in &inner.partitions {
            batch.section(partition.id, |to| kv::put_other_part(to, SPACE_PART, &part));
        }
        let position = inner.journal.append(&batch)?.position;
        for engine in &mut guards {
            engine.apply(position, &part, &mut |_| ())?;
        }
        then();
        Ok(position)
    }

    /// The entries of a type.
    ///
    /// # Errors
    /// `Invalid` when there is no such type: declare it first.
    pub fn entries(&self, name: &str) -> Result<Entries> {
        let kind = self.store.inner().spaces.find(&self.name, name);
        let kind = kind.ok_or_else(|| ::space::Error::NoType { space: self.name.clone(), name: name.to_owned() })?;
        Ok(Entries::new(self.store.clone(), kind))
    }

    /// The types that were declared, by name.
    #[must_use]
    pub fn types(&self) -> Vec<Arc<Definition>> {
        self.store.inner().spaces.list(Some(&self.name)).iter().map(|kind| Arc::clone(&kind.definition())).collect()
    }
}

impl Inner {
    /// Makes known what types the engines have, when the store was opened.
    pub(crate) fn load_spaces(&self) {
        let Some(first) = self.partitions.first() else { return };
        let last = self.partitions.iter().map(|partition| partition.space().last_type()).max();
        *lock(&self.spaces.declaring) = last.unwrap_or(0);
        for (of, definition) in first.space().types() {
            let memory = self.spaces.memory_of(&definition.space);
            self.spaces.add(Arc::new(Kind::new(of, Arc::clone(definition), memory)));
        }
        let newest = self.partitions.iter().filter_map(|partition| partition.space().newest_id()).max();
        self.spaces.note_id(newest.unwrap_or(0));
        self.spaces.names().iter().for_each(|space| self.load_space_limit(space));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::PutOptions;
    use crate::options::Options;

    /// While the drop was on its way to the disk, what others wrote of the type was journaled, could not be applied, and the
    /// partition refused everything from then on, keys too.
    #[test]
    fn whoever_writes_a_type_while_it_is_dropped_is_refused_and_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options::default()).unwrap();
        let space = store.space("shop");
        let entries = space.declare(Definition::new("shop", "order")).unwrap();
        let order = Document::from_pairs([("id", 1i64)]);
        let mut transaction = store.begin();
        entries.within(&mut transaction).write(&order, &WriteOptions::default()).unwrap();
        transaction.put(b"b", b"staged", b"v", &PutOptions::default()).unwrap();

        space.journal_drop(&entries.kind).unwrap();
        let task =
            space.execute(&Value::from(1i64), None, |task| task.write("order", &order, &WriteOptions::default()));
        assert_eq!(task.unwrap_err().kind(), ErrorKind::Invalid);
        let committed = transaction.commit(Durability::Written);
        assert_eq!(committed.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(store.kv().get(b"b", b"staged").unwrap().is_none(), "all of it or nothing");
        for number in 0..100u8 {
            store.kv().put(b"b", &[number], b"v", &PutOptions::default()).unwrap();
        }
        for partition in &store.inner().partitions {
            partition.check().unwrap();
        }
    }
}
