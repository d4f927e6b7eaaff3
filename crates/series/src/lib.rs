//! The time series of Holdfast: points by series and time, and the languages they are asked for in.
//!
//! A *series* is a database, a metric, tags and a field; a *point* is a time and a value of it. Times are nanoseconds since
//! 1970.
//!
//! May use: `base`, `journal`. Must not know: other engines, partitions other than its own, threads, clocks, files.

mod block;
mod catalog;
mod command;
mod engine;
mod error;
mod held;
pub mod influxql;
mod key;
mod manifest;
#[cfg(test)]
mod model;
mod names;
pub mod opentsdb;
mod paged;
mod points;
mod postings;
pub mod promql;
mod regexes;
mod rollup;
mod rows;
mod sealed;
mod select;
mod slots;
mod source;
mod stage;
mod value;
mod watch;

pub use catalog::Cardinality;
pub use engine::{Engine, Erased, Frozen, LastPoint, View, without_erased};
pub use error::{Error, Result};
pub use key::{FIELD_DEFAULT, Key, check_name};
pub use manifest::{Manifest, Register, Registered, Sealed, SealedFile};
pub use points::Points;
pub use rollup::{Share, Summary, Unit, Windows};
pub use rows::{Owner, Pending, Place, Row, Rows, Slot, Typing};
pub use sealed::{
    BlockAt, Made, PackedBlock, RollupAt, SEALED_HEADER_BYTES, SealedIndex, Sealer, check_sealed_header,
    read_sealed_block, read_sealed_end, read_sealed_rollup,
};
pub use select::{Match, Select, TagMatch};
pub use source::{Piece, PointsOnly, Policy, Range, Series, SeriesId, Source};
pub use stage::{Bounds, Stage, Staged};
pub use value::{Kind, Value, ValueRef};
