//! The time series of Holdfast: points by series and time, and the languages they are asked for in.
//!
//! A *series* is a database, a metric, tags and a field; a *point* is a time and a value of it. Times are nanoseconds since
//! 1970.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks, files.

mod error;
mod key;
#[cfg(test)]
mod model;
mod points;
mod rows;
mod select;
mod source;
mod value;

pub use error::{Error, Result};
pub use key::{FIELD_DEFAULT, Key};
pub use points::Points;
pub use rows::{Owner, Pending, Place, Row, Rows, Slot};
pub use select::{Match, Select, TagMatch};
pub use source::{Range, Series, SeriesId, Source};
pub use value::{Kind, Value, ValueRef};
