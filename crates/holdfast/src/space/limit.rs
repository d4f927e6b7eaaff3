//! Keeping types within their limits of memory: refusing, or evicting what was not used for longest.
//!
//! May use: `space`, partitions. Must not know: what is written, and why.

use ::space::{AtLimit, Definition, Document, Engine, Reason, ValueRef};

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

/// What is to become of entries of one type in one partition.
#[derive(Default)]
pub(crate) struct Growth {
    before: u64,
    after: u64,
}

impl Growth {
    /// Of entries that were the one and will be the other, where they are there.
    pub(crate) fn of<'d>(changes: impl Iterator<Item = (Option<&'d Document>, Option<&'d Document>)>) -> Self {
        let size = |document: Option<&Document>| document.map_or(0, ::space::entry_bytes);
        changes.fold(Self::default(), |sum, (was, will)| Self {
            before: sum.before + size(was),
            after: sum.after + size(will),
        })
    }
}

/// Sees to it that the type keeps to its limit when it grows so: entries whose lease has ended go first, and if the type
/// says so others are evicted, by batches of their own, without those of which `keeps` says that they are to stay. What
/// never fits drives nobody out.
///
/// # Errors
/// `Limit`.
pub(crate) fn make_room(
    inner: &Inner,
    kind: &Kind,
    (partition, engine): (&Partition, &mut Engine),
    growth: &Growth,
    keeps: &dyn Fn(ValueRef<'_>) -> bool,
) -> Result<()> {
    let definition = kind.definition();
    let Some(max) = share(inner, &definition).filter(|_| growth.after > 0) else { return Ok(()) };
    let new = growth.after.saturating_sub(growth.before);
    let is_over = |engine: &Engine| engine.usage(kind.of).map_or(0, |usage| usage.bytes) + new > max;
    if !is_over(engine) {
        return Ok(());
    }
    inner.expire_in(partition, engine, inner.clock.wall_ms())?;
    let evicts = definition.at_limit == AtLimit::Evict && growth.after <= max;
    while is_over(engine) {
        let id_of = |place| engine.get(place).and_then(|it| it.document.get(&definition.id).map(ValueRef::to_value));
        let mut evictable = engine.evictable(kind.of).filter_map(id_of);
        let victim = if evicts { evictable.find(|id| !keeps(id.scalar())) } else { None };
        drop(evictable);
        let Some(id) = victim else {
            let (name, limit) = (&definition.name, definition.memory_bytes_max);
            let text = format!(
                "the type {name} has reached its limit of {limit} bytes ({max} in this partition): take or clear \
                 entries, or raise it"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        };
        inner.change_space(kind, partition, engine, &What::Remove { id, reason: Reason::Evicted })?;
    }
    Ok(())
}
