//! The object space of Holdfast: one partition's share of typed documents in memory.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks.

mod bytes;
mod document;
mod error;
mod value;

pub use document::Document;
pub use error::{Error, Result};
pub use value::{DEPTH_MAX, Decimal, ListRef, MapRef, StoredValue, Value, ValueRef};
