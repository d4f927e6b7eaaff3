//! In which partitions entries lie.
//!
//! May use: `space`, partitions. Must not know: operations.

use ::space::{AtLimit, Definition, Document, Engine, Order, Reason, Value, ValueRef};

use super::commit::What;
use super::kind::Kind;
use super::wanted::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// Whether all entries of the type lie in one partition.
pub(crate) fn is_single(definition: &Definition) -> bool {
    definition.order == Order::Fifo
}

/// Bytes that entries of the type may take in one partition: each has its share, so that the limit needs no other partition's
/// lock. `None` is without limit.
pub(crate) fn memory_share(inner: &Inner, definition: &Definition) -> Option<u64> {
    let partitions = if is_single(definition) { 1 } else { inner.partitions.len() as u64 };
    (definition.memory_bytes_max > 0).then_some(definition.memory_bytes_max / partitions)
}

/// What changes that are made together do to a type in one partition.
pub(crate) struct Growth<'a> {
    /// Bytes of the entries before and after.
    pub(crate) sizes: (u64, u64),
    /// Whether the entry with this id is among them, and so is not to be evicted.
    pub(crate) has: &'a dyn Fn(ValueRef<'_>) -> bool,
}

/// Sees to it that changes that are made together keep to the type's limit: evicts others, by batches of their own, if the type
/// says so.
pub(crate) fn make_room(
    inner: &Inner,
    kind: &Kind,
    (partition, engine): (&Partition, &mut Engine),
    growth: &Growth<'_>,
) -> Result<()> {
    let definition = kind.definition();
    let Some(max) = memory_share(inner, &definition) else { return Ok(()) };
    let (before, after) = growth.sizes;
    let used = |engine: &Engine| engine.usage(kind.of).map_or(0, |usage| usage.bytes);
    while after > before && used(engine).saturating_sub(before) + after > max {
        let id_of = |place| engine.get(place).and_then(|it| it.document.get(&definition.id).map(ValueRef::to_value));
        let evicts = definition.at_limit == AtLimit::Evict && after <= max;
        let victim = if evicts {
            engine.evictable(kind.of).filter_map(id_of).find(|id| !(growth.has)(id.scalar()))
        } else {
            None
        };
        let Some(id) = victim else {
            let (name, limit) = (&definition.name, definition.memory_bytes_max);
            let text = format!(
                "the type {name} would exceed its limit of {limit} bytes ({max} in this partition): take or clear entries, \
                 or raise it"
            );
            return Err(Error::new(ErrorKind::Limit, text));
        };
        inner.change_space(kind, partition, engine, &What::Remove { id, reason: Reason::Evicted })?;
    }
    Ok(())
}

pub(crate) fn check_id(field: &str, id: ValueRef<'_>) -> Result<()> {
    match id {
        ValueRef::I64(_) | ValueRef::U64(_) | ValueRef::String(_) | ValueRef::Bytes(_) => Ok(()),
        other => {
            let text = format!(
                "{field} is {}: it decides where an entry lies, and has to be a string, an integer or bytes",
                other.kind()
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// The partition of entries of the space with this routing value, of whatever type.
pub(crate) fn of_value<'a>(inner: &'a Inner, space: &str, value: &Value) -> Result<&'a Partition> {
    let value = value.scalar();
    check_id("the routing value", value)?;
    Ok(by_hash(inner, space_hash(space) ^ value_hash(value)))
}

fn space_hash(space: &str) -> u64 {
    base::hash64(space.as_bytes()).rotate_left(1)
}

fn value_hash(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::I64(number) => base::hash64(&number.to_le_bytes()),
        ValueRef::U64(number) => base::hash64(&number.to_be_bytes()),
        ValueRef::String(text) => base::hash64(text.as_bytes()),
        ValueRef::Bytes(bytes) => base::hash64(bytes) ^ 1,
        _ => 0,
    }
}

fn by_hash(inner: &Inner, hash: u64) -> &Partition {
    let spread = (u128::from(hash) * inner.partitions.len() as u128) >> 64;
    let at = usize::try_from(spread).expect("below the number of partitions");
    inner.partitions.get(at).expect("the product's high half is below the number of partitions")
}

/// A type whose entries lie together lies by its name; all others by the value, whatever their type.
fn at<'a>(inner: &'a Inner, definition: &Definition, value: Option<ValueRef<'_>>) -> Result<&'a Partition> {
    let hash = match value {
        None => base::hash64(definition.name.as_bytes()),
        Some(value) => {
            check_id("the routing value", value)?;
            value_hash(value)
        }
    };
    Ok(by_hash(inner, space_hash(&definition.space) ^ hash))
}

/// The partition of an entry.
pub(crate) fn of_document<'a>(inner: &'a Inner, definition: &Definition, document: &Document) -> Result<&'a Partition> {
    if is_single(definition) {
        return at(inner, definition, None);
    }
    let Some(path) = definition.routed_by() else { return at(inner, definition, document.get(&definition.id)) };
    match path.first(document.fields()) {
        ValueRef::Null => {
            let text = format!("the entry lacks {path}, which decides where it lies");
            Err(Error::new(ErrorKind::Invalid, text))
        }
        value => at(inner, definition, Some(value)),
    }
}

/// The partitions in which an entry may lie that is wanted.
pub(crate) fn of_wanted<'a>(inner: &'a Inner, definition: &Definition, wanted: &Wanted) -> Result<Vec<&'a Partition>> {
    let by = |value: &Value| at(inner, definition, Some(value.scalar())).map(|partition| vec![partition]);
    if is_single(definition) {
        return at(inner, definition, None).map(|partition| vec![partition]);
    }
    match (&wanted.routing, &wanted.id, definition.routed_by()) {
        (Some(routing), _, _) => by(routing),
        (None, Some(id), None) => by(id),
        _ => Ok(inner.partitions.iter().collect()),
    }
}
