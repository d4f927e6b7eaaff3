//! What a transaction has come to in spaces: what it will make of entries, its locks, and its part of the batch.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::space::{Document, Outcome, Reason, Stored, TypeId, ValueRef, key_of};
use journal::{PartitionId, Position};

use super::commit::{Change, Opened, Over, What};
use super::kind::Kind;
use super::limit::{self, Growing, Held};
use super::locks::{Begins, Holder};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// What a transaction makes of an entry.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    pub(super) partition: PartitionId,
    /// What was there when the transaction came to it first.
    pub(super) was: Option<Stored>,
    /// What is to be there; `None` when it is to be gone.
    pub(super) will: Option<(Document, u64)>,
    /// Whether what was there had ended, and was nothing to the transaction.
    pub(super) over: Over,
    /// Whether only the lease is another, which is no event.
    pub(super) renews: bool,
    /// Counts what the transaction has come to: the order in which it was written first, and so that of queues.
    pub(super) number: u64,
}

/// What a transaction will have made of one entry: from
/// [`Transaction::changes_of`](crate::Transaction::changes_of).
#[derive(Debug, Clone, PartialEq)]
pub struct EntryChange {
    /// What was there when the transaction came to it.
    pub before: Option<Document>,
    /// What it leaves there; `None` when the entry goes.
    pub after: Option<Document>,
}

/// Entries with one id, and other routing, may lie in other partitions.
pub(super) type Key = (TypeId, PartitionId, Vec<u8>);

/// What a transaction has come to of one type.
#[derive(Default)]
pub(super) struct OfType {
    /// All of it, by entry key: what looking for others leaves out.
    pub(super) keys: Arc<BTreeSet<Vec<u8>>>,
    /// What is to be there, in the order in which it was written first.
    pub(super) written: BTreeMap<u64, (PartitionId, Vec<u8>)>,
}

/// What one staged entry takes in memory, beside its documents.
const STAGED_BYTES: u64 = 256;

impl Staged {
    pub(super) fn bytes(&self) -> u64 {
        let was = self.was.as_ref().map_or(0, |was| was.document.as_bytes().len());
        let will = self.will.as_ref().map_or(0, |(document, _)| document.as_bytes().len());
        STAGED_BYTES + (was + will) as u64
    }

    /// Where it stands in a queue: what was there has kept its place, and what is new comes behind in the order of writing.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.was.as_ref().map_or(u64::MAX, |was| was.sequence), self.number)
    }

    /// That of what is to be there: a renewal leaves it alone, and of what is written it is known when it is committed.
    pub(super) fn version(&self) -> Position {
        self.was.as_ref().filter(|_| self.renews).map_or(Position::ZERO, |was| was.version)
    }

    /// Whether the entry was not there, and so could not be locked.
    pub(super) fn is_anew(&self) -> bool {
        self.was.is_none()
    }

    /// What is to be there, as the transaction sees it: until its lease ends, as everybody would.
    pub(super) fn seen(&self, now_ms: u64) -> Option<&(Document, u64)> {
        self.will.as_ref().filter(|(_, expires_ms)| *expires_ms == 0 || *expires_ms > now_ms)
    }

    /// What tells the entry from all others of its type.
    pub(super) fn entry_key(&self, definition: &::space::Definition) -> Option<Vec<u8>> {
        let will = self.will.as_ref().map(|(document, _)| document);
        let document = will.or(self.was.as_ref().map(|was| &was.document))?;
        Some(definition.entry_key(document.fields()))
    }
}

/// The part of a transaction that is in spaces.
pub(crate) struct SpaceStage {
    pub(super) store: Store,
    holder: Option<Holder>,
    name: Option<Arc<str>>,
    pub(super) kinds: BTreeMap<TypeId, Arc<Kind>>,
    pub(super) staged: BTreeMap<Key, Staged>,
    /// What of each type is staged, so that no operation goes through all of it.
    pub(super) of_type: BTreeMap<TypeId, OfType>,
    /// The last number of what is staged.
    pub(super) last_number: u64,
    /// How many of what is staged were not there, and so have no lock.
    pub(super) anew: usize,
    /// Bytes of what is staged.
    pub(super) bytes: u64,
    /// Bytes that the transaction keeps of keys.
    key_bytes: u64,
    /// Both, for who asks how much transactions keep.
    held_bytes: Arc<AtomicU64>,
    is_over: bool,
    /// Of one that is joined to a batch: the newest position that its reads rest on.
    joined: Option<Position>,
}

impl SpaceStage {
    pub(crate) fn new(store: Store) -> Self {
        let (kinds, staged, of_type) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            store,
            holder: None,
            name: None,
            kinds,
            staged,
            of_type,
            last_number: 0,
            anew: 0,
            bytes: 0,
            key_bytes: 0,
            held_bytes: Arc::default(),
            is_over: false,
            joined: None,
        }
    }

    /// Has the batch that it is joined to answer for what is read, so that reads do not wait.
    pub(crate) fn will_join(&mut self) {
        self.joined = Some(Position::ZERO);
    }

    /// What its reads rest on that did not wait.
    pub(crate) fn seen(&self) -> Position {
        self.joined.unwrap_or_default()
    }

    /// Waits until what was read may be shown, or notes what it rests on.
    pub(crate) fn show(&mut self, position: Position) -> Result<()> {
        if let Some(seen) = &mut self.joined {
            *seen = (*seen).max(position);
            return Ok(());
        }
        self.store.settle(crate::kv::Shown { value: (), position })
    }

    /// Begins, for so long at the most.
    pub(crate) fn begin(&mut self, lease: Duration) {
        let inner = self.store.inner();
        self.holder.get_or_insert_with(|| {
            let (at, name, held_bytes) = (inner.clock.now(), self.name.clone(), Arc::clone(&self.held_bytes));
            let holder = inner.spaces.locks.begin(Begins { at, until: Some(at.after(lease)), name, held_bytes });
            inner.note_end(lease);
            holder
        });
    }

    /// Whether it was ended for having taken too long.
    pub(crate) fn check(&self) -> Result<()> {
        self.holder.map_or(Ok(()), |holder| self.store.inner().spaces.locks.check(holder))
    }

    pub(super) fn holder(&mut self) -> Result<Holder> {
        self.check()?;
        let inner = self.store.inner();
        Ok(*self.holder.get_or_insert_with(|| {
            let (at, name, held_bytes) = (inner.clock.now(), self.name.clone(), Arc::clone(&self.held_bytes));
            inner.spaces.locks.begin(Begins { at, until: None, name, held_bytes })
        }))
    }

    /// Says how much the transaction keeps of keys.
    pub(crate) fn note_keys(&mut self, bytes: u64) {
        self.key_bytes = bytes;
        self.note_held();
    }

    pub(super) fn note_held(&self) {
        self.held_bytes.store(self.bytes + self.key_bytes, Relaxed);
    }

    /// Counts it as committed, which it is.
    pub(crate) fn count_committed(&self) {
        self.holder.into_iter().for_each(|holder| self.store.inner().spaces.locks.count_committed(holder));
    }

    /// Counts that it was told of a change by somebody else.
    pub(crate) fn count_conflict(&self) {
        if self.holder.is_some() {
            self.store.inner().spaces.locks.count_conflict();
        }
    }

    /// What others are told of it who wait in vain for what it has locked.
    pub(crate) fn set_name(&mut self, name: Arc<str>) {
        if let Some(holder) = self.holder {
            self.store.inner().spaces.locks.set_name(holder, &name);
        }
        self.name = Some(name);
    }

    /// How many entries it has locked or written anew, and the bytes that what it changes takes.
    pub(crate) fn held(&self) -> (usize, u64) {
        let locked = self.holder.map_or(0, |holder| self.store.inner().spaces.locks.count_of(holder));
        (locked + self.anew, self.bytes)
    }

    /// The changes, as they go into the batch: in the order of the first writing, which is that of the queues.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let change = |(of, staged): (&TypeId, &Staged)| {
            let kind = Arc::clone(self.kinds.get(of)?);
            let what = match (&staged.will, &staged.was) {
                (Some((document, expires_ms)), _) if staged.renews => {
                    let id = document.get(&kind.definition().id)?.to_value();
                    What::Renew { id, expires_ms: *expires_ms }
                }
                (Some((document, expires_ms)), _) => {
                    What::Write { document: document.clone(), expires_ms: *expires_ms, over: staged.over }
                }
                (None, Some(was)) => {
                    let id = was.document.get(&kind.definition().id)?.to_value();
                    let reason = if staged.over == Over::Ended { Reason::Expired } else { Reason::Taken };
                    What::Remove { id, reason }
                }
                (None, None) => return None,
            };
            Some(Change { kind, partition: staged.partition, what })
        };
        let mut all: Vec<(&TypeId, &Staged)> = self.staged.iter().map(|((of, ..), staged)| (of, staged)).collect();
        all.sort_unstable_by_key(|(_, staged)| staged.number);
        all.into_iter().filter_map(change).collect()
    }

    /// The types whose entries it changes. Another lease is no change of an entry.
    pub(super) fn changed_kinds(&self) -> Vec<Arc<Kind>> {
        let is_changed = |staged: &Staged| !staged.renews && (staged.was.is_some() || staged.will.is_some());
        let changed = self.staged.iter().filter(|(_, staged)| is_changed(staged));
        let of: BTreeSet<TypeId> = changed.map(|((of, ..), _)| *of).collect();
        of.iter().filter_map(|of| self.kinds.get(of).cloned()).collect()
    }

    /// What becomes of the entries of one type, but for leases.
    pub(crate) fn changes_of(&self, of: TypeId) -> Vec<EntryChange> {
        let of_type = self.staged.iter().filter(|((it, ..), staged)| *it == of && !staged.renews);
        of_type
            .map(|(_, staged)| EntryChange {
                before: staged.was.as_ref().map(|was| was.document.clone()),
                after: staged.will.as_ref().map(|(document, _)| document.clone()),
            })
            .filter(|change| change.before.is_some() || change.after.is_some())
            .collect()
    }

    /// Checks, when all partitions are locked, that what this transaction saw is still so.
    pub(crate) fn validate(&self, opened: &mut Opened<'_>) -> Result<()> {
        self.claim()?;
        let mut of_type: BTreeMap<(TypeId, PartitionId), Vec<Outcome<'_>>> = BTreeMap::new();
        for ((of, ..), staged) in &self.staged {
            let Some(kind) = self.kinds.get(of) else { continue };
            kind.check()?;
            let Some(engine) = opened.engine(staged.partition) else { continue };
            let document = staged.will.as_ref().map(|(document, _)| document);
            let document = document.or(staged.was.as_ref().map(|was| &was.document));
            let id = document.and_then(|document| document.get(&kind.definition().id));
            let place = id.and_then(|id| engine.find_id(*of, id));
            let now = place.and_then(|place| engine.get(place)).map(|stored| stored.version);
            if now != staged.was.as_ref().map(|was| was.version) {
                let text = "somebody else wrote an entry that this transaction writes; begin again";
                let rests_on = if kind.is_durable() { now.unwrap_or(engine.gone(*of)) } else { Position::ZERO };
                return Err(Error::new(ErrorKind::Conflict, text).resting_on(rests_on));
            }
            if let Some(id) = id {
                of_type.entry((*of, staged.partition)).or_default().push((id, staged.will.as_ref().map(|(it, _)| it)));
            }
        }
        for ((of, partition), all) in &of_type {
            opened.engine(*partition).map_or(Ok(()), |engine| engine.check_unique_batch(*of, all))?;
        }
        let mut growing = Vec::new();
        for (of, partition) in of_type.keys() {
            let kind = self.kinds.get(of).filter(|kind| limit::is_limited(kind));
            if let (Some(kind), Some(engine)) = (kind, opened.engine(*partition)) {
                let of_this = |((it, ..), staged): &(&Key, &Staged)| it == of && staged.partition == *partition;
                let changes = self.staged.iter().filter(of_this).map(|(_, staged)| {
                    (staged.was.as_ref().map(|was| &was.document), staged.will.as_ref().map(|(document, _)| document))
                });
                growing.push(Growing::of(kind, (*partition, engine), changes));
            }
        }
        let keeps = |of, partition, id: ValueRef<'_>| self.staged.contains_key(&(of, partition, key_of(id)));
        limit::make_room(self.store.inner(), &mut Held::Several(opened), &growing, &keeps)?;
        Ok(())
    }

    /// Keeps its locks until [`SpaceStage::end`], unless they are lost.
    pub(crate) fn claim(&self) -> Result<()> {
        self.holder.map_or(Ok(()), |holder| self.store.inner().spaces.locks.claim(holder))
    }

    /// Lets go of the locks in partitions that are open, before anybody else gets there.
    pub(crate) fn let_go_in(&self, opened: &mut Opened<'_>) {
        let Some(holder) = self.holder else { return };
        let inner = self.store.inner();
        for at in inner.spaces.locks.begin_end(holder) {
            if let Some(engine) = opened.engine(at.partition) {
                inner.let_go_of(holder, at, engine);
                opened.is_free(at);
            }
        }
    }

    /// Lets go of all locks that are left: with no partition open, because they are anywhere.
    pub(crate) fn end(&mut self) {
        if let Some(holder) = self.holder.filter(|_| !self.is_over) {
            self.is_over = true;
            self.store.inner().end_holder(holder);
        }
    }
}

impl Drop for SpaceStage {
    fn drop(&mut self) {
        self.end();
    }
}
