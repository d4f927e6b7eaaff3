//! What stands around the data of a space: worker loops that take entries and handle them, a mirror of a type in PostgreSQL or
//! MariaDB, queries kept up to date in memory, and caches of entries. Workers go over the client library, to a store in the process or
//! to a server; all else is embedded: it stands in the process that has the store open. `docs/concepts/space-around.md` shows how to use
//! it.
//!
//! May use: `holdfast`, `client` for workers and for what is awaited, `tm` to reach databases. Must not know: engines, protocols of doors.

mod backoff;
mod drain;
#[cfg(feature = "sql")]
mod mirror;
mod near;
mod view;
mod worker;

pub use backoff::Backoff;
pub use holdfast::space::NotThrough;
#[cfg(feature = "sql")]
pub use mirror::{
    Column, ColumnKind, ColumnTable, Columns, Database, DocumentTable, FieldColumn, IdKind, Loaded, LoadedIds, Loader,
    Mapping, Mirror, MirrorOptions, MirrorStats, Refused, Rest, Table,
};
pub use near::{NearCache, NearStats};
#[cfg(feature = "sql")]
pub use tm::{DatabaseTls, Identity};
pub use view::LocalView;
pub use worker::{Failure, WorkerOptions, WorkerStats, Workers};
