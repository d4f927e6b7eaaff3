//! The object space of Holdfast: one partition's share of typed documents in memory.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks.

mod aggregate;
mod along;
#[cfg(test)]
mod arbitrary;
mod base64;
mod change;
mod command;
mod compare;
mod constraint;
mod decimal;
mod definition;
mod document;
mod ends;
mod engine;
mod entries;
mod error;
mod find;
mod gauge;
mod indexes;
mod json;
mod key;
mod msgpack;
mod number;
mod path;
mod pattern;
mod plan;
mod predicate;
mod select;
mod serde;
mod share;
mod slots;
mod snapshot;
mod sql;
mod sum;
mod template;
mod timestamp;
mod used;
mod value;

pub use crate::serde::Timestamp;
pub use aggregate::{GroupLimits, Groups};
pub use along::{Behind, First};
pub use change::Change;
pub use command::{Command, Commands, Reason, Removed, TypeId};
pub use compare::compare;
pub use constraint::{Allowed, Constraint};
pub use definition::{AtLimit, Definition, EvictBy, IndexDefinition, IndexKind, Order, Placement, Storage};
pub use document::Document;
pub use engine::{Engine, Event, EventKind, Outcome, Place, Usage};
pub use entries::{Stored, id_hash};
pub use error::{Error, Result};
pub use find::{EVERYBODY, Filter, Found, Search};
pub use key::{encode_key, key_of};
pub use path::Path;
pub use pattern::{Like, PATTERN_BYTES_MAX, RLike};
pub use plan::{LooksAt, Plan};
pub use predicate::{
    Choices, Operand, Operator, PREDICATE_DEPTH_MAX, PREDICATE_PARTS_MAX, Pattern, Predicate, RLIKES_MAX,
};
pub use select::{
    Aggregate, Amount, Direction, Function, Nulls, Order as OrderBy, Output, Projection, Query, Shown, Source,
};
pub use snapshot::{Snapshot, SnapshotCheck};
pub use template::Template;
pub use value::{DEPTH_MAX, Decimal, ListRef, MapRef, StoredValue, Value, ValueRef};
