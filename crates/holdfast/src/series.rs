//! Time series as users see them: points written by series and time, and everything that queries ask of them.
//!
//! May use: the `series` engine, the commit path. Must not know: protocols, query languages.

mod background;
pub(crate) mod backup;
pub(crate) mod folder;
mod insert;
mod merge;
mod missing;
mod pace;
pub(crate) mod queries;
mod read;
mod remove;
mod retention;
mod scrub;
pub(crate) mod seal;
pub(crate) mod shelf;
mod summaries;
mod worked;
mod write;

use std::sync::atomic::Ordering;

use journal::Position;

pub use ::series::{
    Error as SeriesError, FIELD_DEFAULT, Key, Kind, Match, Owner, Row, Rows, Slot, TagMatch, Typing, Value, ValueRef,
    check_name,
};
pub use ::series::{
    Piece, Points, PointsOnly, Range, Select, Series as Found, SeriesId, Share, Source, Summary, Windows,
};
pub use ::series::{influxql, opentsdb, promql};

pub use crate::space::{Cancel, Stop};
pub use ::series::Cardinality;
pub use insert::{GoOn, Inserted};
pub use missing::Missing;
pub use read::Reader;
pub use retention::{Retention, SeriesOptions, SeriesStats};

pub(crate) use scrub::SealedScrub;
pub(crate) use write::{SERIES_PART, Writing};

use self::pace::Pace;
use self::remove::Removal;
use crate::error::{ErrorKind, Result};
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
    /// Who has written them, if it is one and was named: see [`Rows::set_owner`].
    pub owner: Option<Owner>,
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
        self.store.inner().write_series(rows)
    }

    /// Blocks while points come faster than they are sealed, for whoever is about to write so many of them with
    /// [`Exclusive::add_points`](crate::Exclusive::add_points): that does not wait, and refuses them when memory is full. To be
    /// called before the exclusive is taken. [`Series::write`] does it by itself.
    ///
    /// # Errors
    /// `Unavailable` when memory is full because the disk refuses.
    pub fn make_room(&self, points: usize) -> Result<()> {
        self.store.inner().await_room_for_series(points)
    }

    /// Whether [`Series::make_room`] would block now. For who must not block, and has somebody else do it then.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.store.inner().holds_series_back()
    }

    /// What queries read. Ask for a new one for each request, and call [`Reader::settle`] before answering. It goes on for as long as
    /// that takes: see [`Reader::until`].
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.store.clone())
    }

    /// Removes the points of a range in all series that are meant. Does not wait for durability. How many series it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn delete(&self, select: &Select, range: Range) -> Result<(Position, u64)> {
        self.store.inner().remove_series(select, Removal::Points(range))
    }

    /// Removes all series that are meant, with their points. Does not wait for durability. How many it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_series(&self, select: &Select) -> Result<(Position, u64)> {
        self.store.inner().remove_series(select, Removal::Series)
    }

    /// Seals all points that are in memory, and merges files as far as that is worth it. Blocks for as long as that takes; done in
    /// the background when it is due.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn seal(&self) -> Result<()> {
        let inner = self.store.inner();
        inner.seal_series(seal::When::Now)?;
        // Who merges in the background, and has to be waited for, makes haste.
        inner.shelf.hurried.fetch_add(1, Ordering::Relaxed);
        inner.merge_wake.raise();
        let merged = loop {
            match inner.merge_series(&mut Pace::Unlimited) {
                Ok(true) => {}
                // That file is left alone from now on, and is told of: there may be others.
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                outcome => break outcome,
            }
        };
        inner.shelf.hurried.fetch_sub(1, Ordering::Relaxed);
        merged.map(|_| ())
    }

    /// Makes a database known that has no series yet.
    ///
    /// # Errors
    /// `Invalid` when the name is empty; `Unavailable` when the disk refuses.
    pub fn create_database(&self, name: &str) -> Result<Position> {
        self.store.inner().create_database(name)
    }

    /// Removes a database with all its series and continuous queries. How many series it was.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses.
    pub fn drop_database(&self, name: &str) -> Result<(Position, u64)> {
        self.store.inner().drop_database(name)
    }
}
