//! The object space of Holdfast: one partition's share of typed documents in memory.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks.

#[cfg(test)]
mod arbitrary;
mod bytes;
mod compare;
mod document;
mod error;
mod key;
mod number;
mod path;
mod template;
mod value;

pub use compare::compare;
pub use document::Document;
pub use error::{Error, Result};
pub use key::{encode_key, key_of};
pub use path::Path;
pub use template::Template;
pub use value::{DEPTH_MAX, Decimal, ListRef, MapRef, StoredValue, Value, ValueRef};
