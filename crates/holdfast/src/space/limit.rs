//! Keeping types and spaces within their limits of memory: refusing, or evicting what was not used for longest, or what its type says.
//!
//! A type's limit is divided among partitions, and kept by evicting in the partition that is written. A space's is one sum, so what is evicted for it may lie in
//! any partition: in those that the writer holds, and then in all that nobody holds at the moment. Nobody waits for one, so there is no order to
//! keep.
//!
//! May use: `space`, partitions. Must not know: what is written, and why.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ::space::{AtLimit, Definition, Document, Engine, Reason, Storage, TypeId, ValueRef};
use journal::{Level, Log, PartitionId, Position, Window};

use super::commit::{Opened, What};
use super::kind::Kind;
use super::route;
use super::space_limit::SpaceMemory;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// Most entries that one batch evicts for a space: it holds locks meanwhile. Who needs more is refused, and may come again.
const EVICTED_MAX: usize = 10_000;
/// When what was evicted for a batch that is refused is synced.
const SYNC_WINDOW: Window = Window { min: Duration::ZERO, max: Duration::from_millis(10) };

/// Bytes that entries of the type may take in one partition: each has its share, so that the limit needs no other partition's
/// lock. `None` is without limit.
fn share(inner: &Inner, definition: &Definition) -> Option<u64> {
    let partitions = if route::is_single(definition) { 1 } else { inner.partitions.len() as u64 };
    (definition.memory_bytes_max > 0).then_some(definition.memory_bytes_max / partitions)
}

/// How much goes, and how much comes.
#[derive(Clone, Copy, Default)]
struct Growth {
    before: u64,
    after: u64,
}

impl Growth {
    fn and(self, other: Self) -> Self {
        Self { before: self.before + other.before, after: self.after + other.after }
    }

    /// Whether something that takes so much comes to take more than `max`.
    fn leads_over(self, bytes: u64, max: u64) -> bool {
        self.after > self.before && bytes.saturating_add(self.after - self.before) > max
    }
}

/// What is to become of entries of one type in one partition.
pub(crate) struct Growing {
    kind: Arc<Kind>,
    partition: PartitionId,
    growth: Growth,
}

impl Growing {
    /// Of entries that were the one and will be the other, where they are there.
    pub(crate) fn of<'d>(
        kind: &Arc<Kind>,
        (partition, engine): (PartitionId, &Engine),
        changes: impl Iterator<Item = (Option<&'d Document>, Option<&'d Document>)>,
    ) -> Self {
        let growth = changes.fold(Growth::default(), |sum, (was, will)| {
            let (before, after) = engine.growth(kind.of, was, will);
            sum.and(Growth { before, after })
        });
        Self { kind: Arc::clone(kind), partition, growth }
    }
}

/// The partitions that the writer has locked.
pub(crate) enum Held<'a, 'b> {
    One(PartitionId, &'a mut Engine),
    Several(&'a mut Opened<'b>),
    /// Behind which nothing is checked any more.
    Each(Vec<(PartitionId, &'a mut Engine)>),
}

impl Held<'_, '_> {
    fn engine(&mut self, partition: PartitionId) -> Option<&mut Engine> {
        match self {
            Self::One(held, engine) => (*held == partition).then_some(engine),
            Self::Several(opened) => opened.engine(partition),
            Self::Each(all) => all.iter_mut().find(|(held, _)| *held == partition).map(|(_, engine)| &mut **engine),
        }
    }

    fn has(&mut self, partition: PartitionId) -> bool {
        self.engine(partition).is_some()
    }
}

/// What may go.
struct Evicting<'a> {
    /// Whether an entry is to stay, by its type, partition and id.
    keeps: Keeps<'a>,
    /// The newest batch that evicted something, if one in the journal did.
    newest: Cell<Option<Position>>,
}

/// Whether an entry is to stay, by its type, partition and id.
pub(crate) type Keeps<'a> = &'a dyn Fn(TypeId, PartitionId, ValueRef<'_>) -> bool;

/// Whether the type or its space has a limit.
pub(crate) fn is_limited(kind: &Kind) -> bool {
    kind.definition().memory_bytes_max > 0 || kind.memory.bytes_max().is_some()
}

/// Sees to it that types and spaces keep to their limits when one batch lets them grow so: entries whose lease has ended go first, and then those of types that
/// say so are evicted, by batches of their own. What never fits drives nobody out.
///
/// # Errors
/// `Limit`.
pub(crate) fn make_room(inner: &Inner, held: &mut Held<'_, '_>, growing: &[Growing], keeps: Keeps<'_>) -> Result<()> {
    let evicting = Evicting { keeps, newest: Cell::new(None) };
    let made = make_room_by(inner, held, growing, &evicting);
    // Others see that they are gone, and nobody waits for a batch that is refused here, or by what a transaction checks behind this.
    let is_alone = made.is_err() || matches!(held, Held::Several(_));
    if let Some(position) = evicting.newest.get().filter(|_| is_alone) {
        inner.journal.wait(position, Level::Window(SYNC_WINDOW))?;
    }
    made
}

fn make_room_by(inner: &Inner, held: &mut Held<'_, '_>, growing: &[Growing], evicting: &Evicting<'_>) -> Result<()> {
    let mut spaces: Vec<Whole<'_>> = Vec::new();
    for one in growing {
        match spaces.iter_mut().find(|space| Arc::ptr_eq(&space.kind.memory, &one.kind.memory)) {
            Some(space) => space.growth = space.growth.and(one.growth),
            None => spaces.push(Whole { kind: &one.kind, growth: one.growth, evicting }),
        }
    }
    spaces.iter().try_for_each(|space| space.check_hope(inner, held))?;
    growing.iter().try_for_each(|one| make_room_in(inner, held, one, evicting))?;
    spaces.iter().try_for_each(|space| space.make_room(inner, held))
}

/// For the limit of a type.
fn make_room_in(inner: &Inner, held: &mut Held<'_, '_>, growing: &Growing, evicting: &Evicting<'_>) -> Result<()> {
    let Growing { kind, partition: id, growth } = growing;
    let definition = kind.definition();
    let Some(max) = share(inner, &definition) else { return Ok(()) };
    let there = inner.partitions.get(id.index()).zip(held.engine(*id));
    let Some((partition, engine)): Option<(&Partition, &mut Engine)> = there else { return Ok(()) };
    let is_over = |engine: &Engine| growth.leads_over(engine.type_bytes(kind.of), max);
    if !is_over(engine) {
        return Ok(());
    }
    inner.expire_in(partition, engine, inner.clock.wall_ms())?;
    while is_over(engine) {
        if growth.after > max || !evict(inner, (partition, engine), kind, evicting)? {
            let (name, limit) = (&definition.name, definition.memory_bytes_max);
            let text = format!(
                "the type {name} has reached its limit of {limit} bytes ({max} in this partition): take or clear \
                 entries, or raise it"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
    }
    Ok(())
}

/// What a batch does to a space.
struct Whole<'a> {
    /// A type of it, whose entries are evicted before those of others.
    kind: &'a Arc<Kind>,
    growth: Growth,
    evicting: &'a Evicting<'a>,
}

impl Whole<'_> {
    fn memory(&self) -> &SpaceMemory {
        &self.kind.memory
    }

    /// The limit, if it is passed.
    fn passed(&self) -> Option<u64> {
        self.memory().bytes_max().filter(|max| self.growth.leads_over(self.memory().bytes(), *max))
    }

    fn refused(&self, max: u64) -> Error {
        let space = &self.kind.definition().space;
        let text =
            format!("the space {space} has reached its limit of {max} bytes: take or clear entries, or raise it");
        Error::new(ErrorKind::Limit, text)
    }

    /// The types that evict, the batch's own first.
    fn evicting(&self, inner: &Inner) -> Vec<Arc<Kind>> {
        let mut kinds = inner.spaces.list(Some(&self.kind.definition().space));
        kinds.retain(|kind| kind.definition().at_limit == AtLimit::Evict);
        kinds.sort_by_key(|kind| kind.of != self.kind.of);
        kinds
    }

    /// Refuses what would not fit if all went that may. Looks no farther than it has to: a cache that is full has enough in each partition.
    fn check_hope(&self, inner: &Inner, held: &mut Held<'_, '_>) -> Result<()> {
        if self.passed().is_none() {
            return Ok(());
        }
        let (kinds, now_ms) = (self.evicting(inner), inner.clock.wall_ms());
        let mut evictable = 0;
        let hopeless = |evictable: u64| {
            let left = self.memory().bytes().saturating_sub(evictable);
            self.passed().filter(|max| self.growth.leads_over(left, *max))
        };
        self.in_all(inner, held, &mut |partition, engine| {
            // Some at a time, as whoever works beside it does.
            inner.expire_in(partition, engine, now_ms)?;
            evictable += kinds.iter().map(|kind| engine.type_bytes(kind.of)).sum::<u64>();
            Ok(hopeless(evictable).is_some())
        })?;
        hopeless(evictable).map_or(Ok(()), |max| Err(self.refused(max)))
    }

    fn make_room(&self, inner: &Inner, held: &mut Held<'_, '_>) -> Result<()> {
        if self.passed().is_none() {
            return Ok(());
        }
        let kinds = self.evicting(inner);
        let mut left = EVICTED_MAX;
        self.in_all(inner, held, &mut |partition, engine| {
            for kind in &kinds {
                while self.passed().is_some() && left > 0 && evict(inner, (partition, engine), kind, self.evicting)? {
                    left -= 1;
                }
            }
            Ok(self.passed().is_some() && left > 0)
        })?;
        self.passed().map_or(Ok(()), |max| Err(self.refused(max)))
    }

    /// Does it in the partitions that are held, and then in those that nobody holds, as long as it says that it goes on.
    fn in_all(
        &self,
        inner: &Inner,
        held: &mut Held<'_, '_>,
        act: &mut dyn FnMut(&Partition, &mut Engine) -> Result<bool>,
    ) -> Result<()> {
        for partition in &inner.partitions {
            if let Some(engine) = held.engine(partition.id)
                && !act(partition, engine)?
            {
                return Ok(());
            }
        }
        // Not always the same first, or it alone would be emptied.
        let first = inner.spaces.next_turn() % inner.partitions.len().max(1);
        let (behind, front) = inner.partitions.split_at(first);
        for partition in front.iter().chain(behind).filter(|partition| partition.check().is_ok()) {
            if held.has(partition.id) {
                continue;
            }
            if let Some(mut engine) = partition.try_space()
                && !act(partition, &mut engine)?
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Evicts the entry of the type that goes first, if the type evicts. False when there is none.
fn evict(
    inner: &Inner,
    (partition, engine): (&Partition, &mut Engine),
    kind: &Kind,
    evicting: &Evicting<'_>,
) -> Result<bool> {
    let definition = kind.definition();
    if definition.at_limit != AtLimit::Evict {
        return Ok(false);
    }
    let id_of = |place| engine.get(place).and_then(|it| it.document.get(&definition.id).map(ValueRef::to_value));
    let is_free = |id: &::space::Value| !(evicting.keeps)(kind.of, partition.id, id.scalar());
    let victim = engine.evictable(kind.of).filter_map(id_of).find(is_free);
    let Some(id) = victim else { return Ok(false) };
    let position = inner.change_space(kind, partition, engine, &What::Remove { id, reason: Reason::Evicted })?;
    if definition.storage == Storage::Durable {
        evicting.newest.set(Some(position));
    }
    Ok(true)
}
