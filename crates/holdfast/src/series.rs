//! Time series as users see them: points written by series and time, and everything that queries ask of them.
//!
//! May use: the `series` engine, the commit path. Must not know: protocols, query languages.

use std::sync::atomic::{AtomicU64, Ordering};

use journal::Position;

pub use ::series::{
    Error as SeriesError, FIELD_DEFAULT, Key, Kind, Match, Owner, Row, Rows, Slot, TagMatch, Value, ValueRef,
};
pub use ::series::{Points, Range, Select, Series as Found, SeriesId, Source};

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// The time series of a store.
#[derive(Clone)]
pub struct Series {
    store: Store,
}

/// What became of points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The batch's position: wait for it ([`Store::wait`]) before telling anybody.
    pub position: Position,
    /// Points that were written.
    pub points: u64,
    /// What was not, and why.
    pub refused: Vec<Refused>,
}

/// Points of one series that were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The metric.
    pub metric: String,
    /// The field.
    pub field: String,
    /// How many points.
    pub points: u64,
    /// Why: `field type conflict: ...`, or a limit.
    pub reason: String,
}

impl Store {
    /// The time series.
    #[must_use]
    pub fn series(&self) -> Series {
        Series { store: self.clone() }
    }
}

impl Series {
    /// Writes points as one batch, and clears `rows`. Does not wait for durability. Series that were never written come to be.
    ///
    /// # Errors
    /// `Unavailable` when the disk is full or an earlier write failed: nothing was written, and `rows` is as it was. Points that
    /// cannot be are no error: see [`Written::refused`].
    pub fn write(&self, rows: &mut Rows) -> Result<Written> {
        let _ = rows;
        let _ = &self.store;
        Err(Error::new(ErrorKind::Internal, "not there yet"))
    }

    /// What queries read. Ask for a new one for each request, and call [`Reader::settle`] before answering.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { store: self.store.clone(), seen: AtomicU64::new(0) }
    }

    /// Removes the points of a range in all series that are meant. Does not wait for durability. How many series it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn delete(&self, select: &Select, range: Range) -> Result<(Position, u64)> {
        let _ = (select, range);
        Err(Error::new(ErrorKind::Internal, "not there yet"))
    }

    /// Removes all series that are meant, with their points. Does not wait for durability. How many it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_series(&self, select: &Select) -> Result<(Position, u64)> {
        let _ = select;
        Err(Error::new(ErrorKind::Internal, "not there yet"))
    }

    /// Makes a database known that has no series yet.
    ///
    /// # Errors
    /// `Invalid` when the name is empty; `Unavailable` when the disk refuses.
    pub fn create_database(&self, name: &str) -> Result<Position> {
        let _ = name;
        Err(Error::new(ErrorKind::Internal, "not there yet"))
    }

    /// Removes a database with all its series. How many series it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_database(&self, name: &str) -> Result<(Position, u64)> {
        let _ = name;
        Err(Error::new(ErrorKind::Internal, "not there yet"))
    }
}

/// What queries read. It remembers the newest change that it showed.
pub struct Reader {
    store: Store,
    seen: AtomicU64,
}

impl Reader {
    /// Blocks until everything that was read is as durable as the store's reads have to be.
    ///
    /// # Errors
    /// `Unavailable` when a write or sync failed.
    pub fn settle(&self) -> Result<()> {
        self.store.settle(crate::kv::Shown { value: (), position: Position::new(self.seen.load(Ordering::Relaxed)) })
    }
}

impl Source for Reader {
    fn series(&self, _: &Select) -> ::series::Result<Vec<::series::Series>> {
        Ok(Vec::new())
    }

    fn points(&self, _: SeriesId, _: Range, _: &mut Points) -> ::series::Result<()> {
        Ok(())
    }

    fn last(&self, _: SeriesId) -> ::series::Result<Option<(i64, Value)>> {
        Ok(None)
    }

    fn databases(&self) -> ::series::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn metrics(&self, _: &str) -> ::series::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn tag_names(&self, _: &str) -> ::series::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn tag_values(&self, _: &str) -> ::series::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
