//! In which partitions entries lie.
//!
//! May use: `space`, partitions. Must not know: operations.

use ::space::{Definition, Document, Order, Value, ValueRef};

use super::wanted::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// Whether all entries of the type lie in one partition.
pub(crate) fn is_single(definition: &Definition) -> bool {
    definition.order == Order::Fifo
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

fn at<'a>(inner: &'a Inner, definition: &Definition, value: Option<ValueRef<'_>>) -> Result<&'a Partition> {
    let type_hash = base::hash64(definition.name.as_bytes()) ^ base::hash64(definition.space.as_bytes()).rotate_left(1);
    let value_hash = match value {
        None => 0,
        Some(ValueRef::I64(number)) => base::hash64(&number.to_le_bytes()),
        Some(ValueRef::U64(number)) => base::hash64(&number.to_be_bytes()),
        Some(ValueRef::String(text)) => base::hash64(text.as_bytes()),
        Some(ValueRef::Bytes(bytes)) => base::hash64(bytes) ^ 1,
        Some(other) => return check_id("the routing value", other).map(|()| unreachable_partition(inner)),
    };
    let spread = (u128::from(type_hash ^ value_hash) * inner.partitions.len() as u128) >> 64;
    let at = usize::try_from(spread).expect("below the number of partitions");
    Ok(inner.partitions.get(at).expect("the product's high half is below the number of partitions"))
}

fn unreachable_partition(inner: &Inner) -> &Partition {
    inner.partitions.first().expect("a store has partitions")
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
    let by = |value: &Value| at(inner, definition, Some(value.stored().get())).map(|partition| vec![partition]);
    if is_single(definition) {
        return at(inner, definition, None).map(|partition| vec![partition]);
    }
    match (&wanted.routing, &wanted.id, definition.routed_by()) {
        (Some(routing), _, _) => by(routing),
        (None, Some(id), None) => by(id),
        _ => Ok(inner.partitions.iter().collect()),
    }
}
