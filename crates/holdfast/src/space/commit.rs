//! How changes of spaces become batches: one change by itself, or several with those of other engines.
//!
//! May use: `space`, partitions, `journal`. Must not know: conditions, who asks.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};

use ::space::{
    Command, Definition, Document, Engine, Event, Order, Place, Reason, Removed, Storage, TypeId, Value, ValueRef,
};
use journal::{Batch, Log, PartitionId, Position};

use super::kind::Kind;
use super::listen::Telling;
use super::locks::{Holder, LockedPlace, Mode};
use super::wait::{Granted, Purpose, Waiter};
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// The space's part of a section: see `kv::put_other_part`.
pub(crate) const SPACE_PART: u8 = 64;

/// What is to become of an entry.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Write { document: Document, expires_ms: u64, over: Over },
    Remove { id: Value, reason: Reason },
    Renew { id: Value, expires_ms: u64 },
}

/// What a write writes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The entry that is there, if one is.
    Any,
    /// What is there, if anything, had ended when it was looked at. It goes first, as if it had been removed in time: listeners are
    /// told, and its place in a queue is nobody's.
    Ended,
}

/// What single changes are written into: memory for a document of usual size took the allocator long, each time.
#[derive(Default)]
struct Spare {
    batch: Batch,
    part: Vec<u8>,
}

/// How much of it a thread keeps of each.
const SPARE_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SPARE: Cell<Spare> = Cell::default();
}

impl Spare {
    fn clear(&mut self) {
        self.batch.clear(SPARE_BYTES_MAX);
        self.part.clear();
        self.part.shrink_to(SPARE_BYTES_MAX);
    }
}

/// One change of a batch.
pub(crate) struct Change {
    pub(crate) kind: Arc<Kind>,
    pub(crate) partition: PartitionId,
    pub(crate) what: What,
}

impl What {
    /// The id of the entry that it is about.
    fn id<'w>(&'w self, definition: &Definition) -> Option<ValueRef<'w>> {
        match self {
            Self::Write { document, .. } => document.get(&definition.id),
            Self::Remove { id, .. } | Self::Renew { id, .. } => Some(id.scalar()),
        }
    }

    /// When the entry ends that it writes or renews; 0 where it does not.
    fn expires_ms(&self) -> u64 {
        match self {
            Self::Write { expires_ms, .. } | Self::Renew { expires_ms, .. } => *expires_ms,
            Self::Remove { .. } => 0,
        }
    }

    /// What it writes.
    pub(super) fn written(&self) -> Option<&Document> {
        match self {
            Self::Write { document, .. } => Some(document),
            Self::Remove { .. } | Self::Renew { .. } => None,
        }
    }

    /// Tells those who hear of entries that change, now that it is done.
    pub(super) fn tell(&self, inner: &Inner, definition: &Definition) {
        if let Some(id) = self.id(definition) {
            inner.key_watchers.tell_entry(definition, id);
        }
    }

    /// Appends the command, as the type's definition wants it told.
    pub(super) fn encode(&self, kind: &Kind, history: bool, engine: &Engine, to: &mut Vec<u8>) {
        let of = kind.of;
        let before = |id: &Value| {
            let place = if history { engine.find_id(of, id.scalar()) } else { None };
            place.and_then(|place| engine.get(place)).map(|stored| stored.document)
        };
        match self {
            Self::Write { document, expires_ms, over } => {
                let mut was = None;
                if history || *over == Over::Ended {
                    let id = document.get(&kind.definition().id).map(ValueRef::to_value).unwrap_or_default();
                    match over {
                        Over::Any => was = before(&id),
                        Over::Ended if engine.find_id(of, id.scalar()).is_some() => {
                            Self::Remove { id, reason: Reason::Expired }.encode(kind, history, engine, to);
                        }
                        Over::Ended => {}
                    }
                }
                let (expires_ms, before) = (*expires_ms, was.as_ref().map(Document::fields));
                Command::Write { of, expires_ms, document: document.fields(), before }.encode(to);
            }
            Self::Remove { id, reason } => {
                let before = before(id);
                let entry = before.as_ref().map_or(Removed::Id(id.scalar()), |it| Removed::Document(it.fields()));
                Command::Remove { of, reason: *reason, entry }.encode(to);
            }
            Self::Renew { id, expires_ms } => {
                Command::Renew { of, expires_ms: *expires_ms, id: id.scalar() }.encode(to);
            }
        }
    }
}

impl Inner {
    /// Makes one change. The caller holds the partition's space; who waits for entries is not told here.
    pub(crate) fn change_space(
        &self,
        kind: &Kind,
        partition: &Partition,
        engine: &mut Engine,
        what: &What,
    ) -> Result<Position> {
        // Whoever looked before the partition was locked may have come too late.
        kind.check()?;
        let definition = kind.definition();
        // A transaction that a thread keeps may end with the thread, when the spare is gone already.
        let mut spare = SPARE.try_with(Cell::take).unwrap_or_default();
        let mut telling = kind.listeners.telling();
        let tell = &mut |event| {
            if let Some(telling) = &mut telling {
                telling.tell(&event, &definition);
            }
        };
        let (position, applied) = match definition.storage {
            Storage::Durable => {
                let batch = &mut spare.batch;
                batch.section(partition.id, |to| {
                    kv::write_other_part(to, SPACE_PART, |to| what.encode(kind, definition.history, engine, to));
                });
                let journal = &self.journal;
                let removes = matches!(what, What::Remove { .. });
                let position = if removes { journal.append_freeing(batch) } else { journal.append(batch) }?.position;
                let mut parts = batch.sections().flat_map(|(_, _, section)| kv::other_parts(section));
                let (_, part) = parts.next().expect("it was written a moment ago");
                (position, engine.apply_made(position, part, what.written(), tell))
            }
            Storage::Volatile => {
                what.encode(kind, definition.history, engine, &mut spare.part);
                let version = Position::new(self.spaces.next_version(self.clock.wall_ms()));
                (version, engine.apply_volatile(version, &spare.part, what.written(), tell))
            }
        };
        spare.clear();
        let _ = SPARE.try_with(|kept| kept.set(spare));
        // Also of what could not be applied: it is there when the store is opened again.
        what.tell(self, &definition);
        applied?;
        Ok(position)
    }

    /// Bounds what is in no journal, which bounds the rest of a batch.
    pub(super) fn check_in_memory<'p>(&self, parts: impl Iterator<Item = &'p Parts<'p>>) -> Result<()> {
        let bytes: usize = parts.map(|part| part.in_memory.commands.len()).sum();
        let bytes_max = self.options.limits.batch_bytes_max;
        if bytes > bytes_max {
            let text = format!("a batch changes at most {bytes_max} bytes of entries of volatile types, not {bytes}");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        Ok(())
    }

    /// The version that changes have which are in no journal, if there are any.
    pub(super) fn version_of<'p>(&self, mut parts: impl Iterator<Item = &'p Parts<'p>>) -> Position {
        // All who change durable entries would count up the same number else.
        let is_any = parts.any(|part| !part.in_memory.commands.is_empty());
        if is_any { Position::new(self.spaces.next_version(self.clock.wall_ms())) } else { Position::ZERO }
    }

    /// Offers the entry at `place`, which just came or became free, to those who wait. The caller holds the partition.
    pub(crate) fn offer(&self, kind: &Kind, partition: &Partition, engine: &mut Engine, place: Place) {
        if !kind.waiters.any() {
            return;
        }
        let definition = kind.definition();
        if definition.order != Order::Any {
            // Another may come before it: one that was let go of a moment ago, and is offered next.
            return self.serve(kind, partition, engine);
        }
        let now_ms = self.clock.wall_ms();
        let is_durable = definition.storage == Storage::Durable;
        kind.waiters.retain(|waiter| {
            let Some(entry) = engine.get(place) else { return true };
            let is_gone = entry.expires_ms != 0 && entry.expires_ms <= now_ms;
            let fields = entry.document.fields();
            if is_gone || !waiter.wanted.matches(&definition, fields) {
                return true;
            }
            let mut grant = || {
                let granted = |position| Granted { entry: entry.clone(), position, partition: partition.id };
                let rests_on = |position: Position| is_durable.then_some(position);
                self.may_use(waiter, partition.id, place, engine)?;
                match waiter.purpose {
                    Purpose::Read(_) => Some(Ok(granted(rests_on(entry.version)))),
                    Purpose::Lock(..) => Some(Ok(granted(rests_on(entry.version)))),
                    Purpose::Take => {
                        let id = entry.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                        let what = What::Remove { id, reason: Reason::Taken };
                        let taken = self.change_space(kind, partition, engine, &what);
                        Some(taken.map(|position| granted(rests_on(position))))
                    }
                }
            };
            !waiter.offer(&mut grant)
        });
    }

    /// Locks an entry for a transaction, if nobody stands in the way. The caller holds the partition.
    pub(crate) fn lock_entry(&self, holder: Holder, at: LockedPlace, mode: Mode, engine: &mut Engine) -> Option<()> {
        let is_new = self.spaces.locks.try_lock(holder, at, mode)?;
        engine.set_locked(at.place, true);
        if is_new && mode == Mode::Exclusive {
            engine.hold_group(at.place, holder, true);
        }
        Some(())
    }

    /// Whether one who waits may have the entry, given who has locked it; locks it for a transaction.
    fn may_use(&self, waiter: &Waiter, partition: PartitionId, place: Place, engine: &mut Engine) -> Option<()> {
        let at = LockedPlace::of(engine, partition, place);
        match waiter.purpose {
            // As for those who do not wait: what was committed last is shown past locks and groups.
            Purpose::Read(_) => Some(()),
            Purpose::Take => {
                let who = waiter.purpose.holder();
                let free = !engine.is_locked(place) || !self.spaces.locks.is_in_the_way(who, at, Mode::Exclusive);
                (free && !engine.is_held(place, who)).then_some(())
            }
            Purpose::Lock(holder, mode) => {
                if engine.is_held(place, holder) {
                    return None;
                }
                self.lock_entry(holder, at, mode, engine)
            }
        }
    }
}

/// A partition's commands, and the documents that they write, in their order: those of types in the journal, or of others.
#[derive(Default)]
pub(super) struct Part<'a> {
    commands: Vec<u8>,
    documents: Vec<&'a Document>,
}

impl<'a> Part<'a> {
    /// Adds one change, as the partition has it now.
    pub(super) fn add(&mut self, kind: &Kind, history: bool, engine: &Engine, what: &'a What) {
        what.encode(kind, history, engine, &mut self.commands);
        self.documents.extend(what.written());
    }

    pub(super) fn commands(&self) -> &[u8] {
        &self.commands
    }
}

/// What a batch does in one partition. What is in memory only is in no journal, and happens at the same moment: when the rest of it has
/// its position.
#[derive(Default)]
pub(super) struct Parts<'a> {
    pub(super) durable: Part<'a>,
    pub(super) in_memory: Part<'a>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(&mut self, storage: Storage) -> &mut Part<'a> {
        match storage {
            Storage::Durable => &mut self.durable,
            Storage::Volatile => &mut self.in_memory,
        }
    }

    /// Does it, at the batch's position and the version of what is in no journal.
    pub(super) fn apply(
        &self,
        engine: &mut Engine,
        (position, version): (Position, Position),
        tell: &mut dyn FnMut(Event),
    ) -> ::space::Result<()> {
        let Self { durable, in_memory } = self;
        if !durable.commands.is_empty() {
            engine.apply_made(position, &durable.commands, durable.documents.iter().copied(), tell)?;
        }
        if !in_memory.commands.is_empty() {
            engine.apply_volatile(version, &in_memory.commands, in_memory.documents.iter().copied(), tell)?;
        }
        Ok(())
    }
}

/// Several changes that are one batch: their partitions locked, their commands made.
pub(crate) struct Opened<'a> {
    inner: &'a Inner,
    changes: &'a [Change],
    guards: BTreeMap<PartitionId, (&'a Partition, MutexGuard<'a, Engine>)>,
    parts: BTreeMap<PartitionId, Parts<'a>>,
    telling: BTreeMap<TypeId, Telling<'a>>,
    /// What nobody has locked any more.
    free: Vec<LockedPlace>,
}

impl<'a> Opened<'a> {
    /// Locks the partitions. The caller has those of other engines that it needs; listeners are told in the order of the
    /// types, so that nobody waits in a circle.
    pub(crate) fn lock(inner: &'a Inner, changes: &'a [Change]) -> Result<Self> {
        let mut ids: Vec<PartitionId> = changes.iter().map(|change| change.partition).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut guards = BTreeMap::new();
        for id in ids {
            let partition = inner.partitions.get(id.index());
            let partition =
                partition.ok_or_else(|| Error::new(ErrorKind::Internal, "a partition that is not there"))?;
            guards.insert(id, (partition, partition.space()));
        }
        Ok(Self { inner, changes, guards, parts: BTreeMap::new(), telling: BTreeMap::new(), free: Vec::new() })
    }

    /// The engine of a partition.
    pub(crate) fn engine(&mut self, partition: PartitionId) -> Option<&mut Engine> {
        self.guards.get_mut(&partition).map(|(_, engine)| &mut **engine)
    }

    /// Makes the commands; nothing may come between this and [`Opened::apply`] but the batch's position.
    ///
    /// # Errors
    /// `Limit` when what is in memory only has more bytes than a batch may have.
    pub(crate) fn encode(&mut self) -> Result<()> {
        for Change { kind, partition, what } in self.changes {
            let definition = kind.definition();
            let Some((_, engine)) = self.guards.get(partition) else { continue };
            let part = self.parts.entry(*partition).or_default().of(definition.storage);
            part.add(kind, definition.history, engine, what);
        }
        self.inner.check_in_memory(self.parts.values())?;
        let kinds: BTreeMap<TypeId, &'a Kind> =
            self.changes.iter().map(|change| (change.kind.of, &*change.kind)).collect();
        self.telling =
            kinds.into_iter().filter_map(|(of, kind)| kind.listeners.telling().map(|telling| (of, telling))).collect();
        Ok(())
    }

    /// The partitions and their commands that are to be journaled.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (PartitionId, &[u8])> {
        let parts = self.parts.iter().map(|(id, part)| (*id, part.durable.commands()));
        parts.filter(|(_, commands)| !commands.is_empty())
    }

    /// Applies the commands, now that nothing can fail any more: the batch has its position, or has nothing for the journal.
    pub(crate) fn apply(&mut self, position: Position) -> Result<()> {
        let Self { inner, guards, parts, telling, .. } = self;
        // While the listeners' lists are held, so that they hear of it in the order of versions.
        let version = inner.version_of(parts.values());
        let mut applied = Ok(());
        for (id, part) in &*parts {
            let Some((partition, engine)) = guards.get_mut(id) else { continue };
            let tell = &mut |event: Event| {
                if let (Some(telling), Some(kind)) = (telling.get_mut(&event.of), inner.spaces.get(event.of)) {
                    telling.tell(&event, &kind.definition());
                }
            };
            let here = part.apply(engine, (position, version), tell);
            // What does not apply here leaves none of the others behind.
            applied = applied.and(here.inspect_err(|_| partition.set_broken()));
        }
        // Also of what could not be applied: it is there when the store is opened again.
        for Change { kind, what, .. } in self.changes {
            what.tell(self.inner, &kind.definition());
        }
        Ok(applied?)
    }

    /// Notes that the entry, if it is still there, is to be offered to those who wait.
    pub(crate) fn is_free(&mut self, at: LockedPlace) {
        self.free.push(at);
    }

    /// Offers what was written, and what is free again, to those who wait for it.
    pub(crate) fn offer(mut self) {
        self.telling.clear();
        // Of types with an order of their own, whoever waits looks at all there is: once.
        let mut served = BTreeSet::new();
        let mut is_due =
            |kind: &Kind, of: PartitionId| kind.definition().order == Order::Any || served.insert((kind.of, of));
        for at in &self.free {
            if let (Some((partition, engine)), Some(kind)) =
                (self.guards.get_mut(&at.partition), self.inner.spaces.get(at.place.of))
                && is_due(&kind, at.partition)
            {
                self.inner.offer(&kind, partition, engine, at.place);
            }
        }
        for Change { kind, partition, what } in self.changes {
            self.inner.note_lease(what.expires_ms());
            let What::Write { document, .. } = what else { continue };
            if !is_due(kind, *partition) {
                continue;
            }
            let Some((partition, engine)) = self.guards.get_mut(partition) else { continue };
            let place = document.get(&kind.definition().id).and_then(|id| engine.find_id(kind.of, id));
            if let Some(place) = place {
                self.inner.offer(kind, partition, engine, place);
            }
        }
    }
}
