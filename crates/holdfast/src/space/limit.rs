//! Keeping types and spaces within their limits of memory: refusing, or evicting what was not used for longest.
//!
//! May use: `space`, partitions. Must not know: what is written, and why.

use ::space::{AtLimit, Definition, Document, Engine, Reason, TypeId, ValueRef};

use super::commit::What;
use super::kind::Kind;
use super::route;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// Bytes that entries of the type may take in one partition: each has its share, so that the limit needs no other partition's
/// lock. `None` is without limit.
fn share(inner: &Inner, definition: &Definition) -> Option<u64> {
    let partitions = if route::is_single(definition) { 1 } else { inner.partitions.len() as u64 };
    (definition.memory_bytes_max > 0).then_some(definition.memory_bytes_max / partitions)
}

/// Whether the type or its space has a limit.
pub(crate) fn is_limited(kind: &Kind) -> bool {
    kind.definition().memory_bytes_max > 0 || kind.memory.bytes_max().is_some()
}

/// What is to become of entries of one type in one partition.
#[derive(Default)]
pub(crate) struct Growth {
    before: u64,
    after: u64,
}

impl Growth {
    /// Of entries of a type that were the one and will be the other, where they are there.
    pub(crate) fn of<'d>(
        engine: &Engine,
        of: TypeId,
        changes: impl Iterator<Item = (Option<&'d Document>, Option<&'d Document>)>,
    ) -> Self {
        changes.fold(Self::default(), |sum, (was, will)| {
            let (before, after) = engine.growth(of, was, will);
            Self { before: sum.before + before, after: sum.after + after }
        })
    }

    /// How much more there will be.
    pub(crate) fn added(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

/// What grows, and how much.
pub(crate) struct Growing<'a> {
    pub(crate) kind: &'a Kind,
    /// In the partition.
    pub(crate) growth: Growth,
    /// What the same batch adds to the same space elsewhere.
    pub(crate) beside: u64,
    /// Whether an entry is to stay, by its type and id.
    pub(crate) keeps: &'a dyn Fn(TypeId, ValueRef<'_>) -> bool,
}

impl Growing<'_> {
    fn is_over(&self, engine: &Engine, max: Option<u64>) -> bool {
        let new = self.growth.added();
        max.is_some_and(|max| engine.usage(self.kind.of).map_or(0, |usage| usage.bytes) + new > max)
    }

    fn is_space_over(&self) -> bool {
        let memory = &self.kind.memory;
        memory.bytes_max().is_some_and(|max| memory.bytes() + self.beside + self.growth.added() > max)
    }
}

/// Sees to it that the type and its space keep to their limits when it grows so: entries whose lease has ended go first, and then others of types that say so
/// are evicted, by batches of their own. What never fits drives nobody out.
///
/// # Errors
/// `Limit`.
pub(crate) fn make_room(
    inner: &Inner,
    (partition, engine): (&Partition, &mut Engine),
    growing: &Growing<'_>,
) -> Result<()> {
    let kind = growing.kind;
    let definition = kind.definition();
    let (max, space_max) = (share(inner, &definition), kind.memory.bytes_max());
    if growing.growth.after == 0 || !(growing.is_over(engine, max) || growing.is_space_over()) {
        return Ok(());
    }
    inner.expire_in(partition, engine, inner.clock.wall_ms())?;
    let fits = |max: Option<u64>| max.is_none_or(|max| growing.growth.after <= max);
    while growing.is_over(engine, max) {
        if !fits(max) || !evict(inner, (partition, engine), kind, growing)? {
            let (name, limit) = (&definition.name, definition.memory_bytes_max);
            let text = format!(
                "the type {name} has reached its limit of {limit} bytes ({} in this partition): take or clear \
                 entries, or raise it",
                max.unwrap_or(limit)
            );
            return Err(Error::new(ErrorKind::Limit, text));
        }
    }
    let mut others = None;
    while growing.is_space_over() {
        let mut evicts = || -> Result<bool> {
            if !fits(space_max) {
                return Ok(false);
            }
            if evict(inner, (partition, engine), kind, growing)? {
                return Ok(true);
            }
            for other in others.get_or_insert_with(|| inner.spaces.list(Some(&definition.space))) {
                if evict(inner, (partition, engine), other, growing)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        if !evicts()? {
            let (name, limit) = (&definition.space, space_max.unwrap_or(0));
            let text =
                format!("the space {name} has reached its limit of {limit} bytes: take or clear entries, or raise it");
            return Err(Error::new(ErrorKind::Limit, text));
        }
    }
    Ok(())
}

/// Evicts the entry of the type that was not used for longest, if the type says so. False when there is none.
fn evict(
    inner: &Inner,
    (partition, engine): (&Partition, &mut Engine),
    kind: &Kind,
    growing: &Growing<'_>,
) -> Result<bool> {
    let definition = kind.definition();
    if definition.at_limit != AtLimit::Evict {
        return Ok(false);
    }
    let id_of = |place| engine.get(place).and_then(|it| it.document.get(&definition.id).map(ValueRef::to_value));
    let victim = engine.evictable(kind.of).filter_map(id_of).find(|id| !(growing.keeps)(kind.of, id.scalar()));
    let Some(id) = victim else { return Ok(false) };
    inner.change_space(kind, partition, engine, &What::Remove { id, reason: Reason::Evicted })?;
    Ok(true)
}
