//! In which partitions entries lie.
//!
//! May use: `space`, partitions. Must not know: operations.

use ::space::{Definition, Document, Path, Value, ValueRef, id_hash};

use super::wanted::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// Whether all entries of the type lie in one partition.
pub(crate) fn is_single(definition: &Definition) -> bool {
    definition.is_together()
}

pub(crate) fn check_id(field: &str, id: ValueRef<'_>) -> Result<()> {
    match id {
        ValueRef::I64(_) | ValueRef::U64(_) | ValueRef::String(_) | ValueRef::Bytes(_) => Ok(()),
        other => {
            // Lists and maps are no scalars, and come as null.
            let kind = if other == ValueRef::Null { "null, a list or a map" } else { other.kind() };
            let text = format!(
                "{field} is {kind}: it decides where an entry lies, and has to be a string, an integer or bytes"
            );
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// The partition of entries of the space with this routing value, of whatever type.
pub(crate) fn of_value<'a>(inner: &'a Inner, space: &str, value: &Value) -> Result<&'a Partition> {
    let value = value.scalar();
    check_id("the routing value", value)?;
    Ok(by_hash(inner, space_hash(space) ^ id_hash(value).unwrap_or(0)))
}

/// The partition of all entries of a type that lie together.
pub(crate) fn of_type<'a>(inner: &'a Inner, definition: &Definition) -> Result<&'a Partition> {
    if is_single(definition) {
        return at(inner, definition, None);
    }
    let text =
        format!("entries of the type {} lie in partitions: run it by a routing value, or in all", definition.name);
    Err(Error::new(ErrorKind::Invalid, text))
}

fn space_hash(space: &str) -> u64 {
    base::hash64(space.as_bytes()).rotate_left(1)
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
            check_id(if definition.routed_by().is_some() { "the routing value" } else { "the id" }, value)?;
            id_hash(value).unwrap_or(0)
        }
    };
    Ok(by_hash(inner, space_hash(&definition.space) ^ hash))
}

/// The partition of an entry whose id has this hash, where it lies by that.
pub(crate) fn of_id_hash<'a>(inner: &'a Inner, definition: &Definition, hash: u64) -> Option<&'a Partition> {
    let lies_by_id = !is_single(definition) && definition.routed_by().is_none();
    lies_by_id.then(|| by_hash(inner, space_hash(&definition.space) ^ hash))
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

/// The partitions in which an entry may lie that is wanted. Everything that looks for entries comes by here, so a query of another type
/// ends here.
pub(crate) fn of_wanted<'a>(inner: &'a Inner, definition: &Definition, wanted: &Wanted) -> Result<&'a [Partition]> {
    wanted.check_type(definition)?;
    let value = match (&wanted.routing, &wanted.id, definition.routed_by()) {
        _ if is_single(definition) => None,
        (Some(value), _, _) | (None, Some(value), None) => Some(value.scalar()),
        (None, _, routing) => {
            // A condition may say where as well.
            let said = match routing {
                // As most say nothing, and a path costs an allocation.
                _ if wanted.filter.is_open() => None,
                Some(path) => wanted.filter.id_at(path),
                None => wanted.filter.id_at(&Path::field(&definition.id)),
            };
            let Some(value) = said else { return Ok(&inner.partitions) };
            return at(inner, definition, Some(value.scalar())).map(std::slice::from_ref);
        }
    };
    at(inner, definition, value).map(std::slice::from_ref)
}
