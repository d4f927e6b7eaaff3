//! The points of one request on their way into the store: in batches of a bounded size, with what became of them.
//!
//! May use: the facade's `series`, `crate::line`'s readers. Must not know: protocols, HTTP.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use holdfast::series::{Refused, Rows, Typing, Written};
use holdfast::{Position, Store};

use super::super::shared::Shared;
use crate::line;
use crate::points::nanos;

/// Points that are gathered before they are written: what a request of any size holds in memory at a time.
const BATCH_POINTS_MAX: usize = 32 << 10;
/// Reasons that are kept of one request; what is wrong beyond is counted.
pub(crate) const REASONS_MAX: usize = 1000;
/// Tables of names that are kept for the next requests: there are hardly more readers at work at a time.
const KITS_MAX: usize = 4;

/// What one reader needs.
#[derive(Debug, Default)]
pub(crate) struct Kit {
    /// It remembers the names of series from request to request.
    pub(crate) rows: Rows,
    pub(crate) lines: line::Reader,
    /// A name that is being made.
    pub(crate) name: Vec<u8>,
}

/// What is kept of kits that nobody uses now. The memory for one line is not, which is as long as a client makes it.
#[derive(Debug, Default)]
pub(crate) struct Kits(Mutex<Vec<Rows>>);

impl Kits {
    fn take(&self) -> Kit {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Kit { rows: rows.unwrap_or_default(), ..Kit::default() }
    }

    fn give_back(&self, mut kit: Kit) {
        kit.rows.clear();
        let mut kits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kits.len() < KITS_MAX {
            kits.push(kit.rows);
        }
    }
}

/// What became of a request's points.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Points that are in the store.
    pub(crate) written: u64,
    /// The last batch.
    pub(crate) position: Position,
    /// What was not understood, in order.
    pub(crate) malformed: Vec<Malformed>,
    pub(crate) malformed_count: u64,
    /// What the store refused.
    pub(crate) refused: Vec<Refused>,
    pub(crate) refused_points: u64,
}

/// A line, or a data point, that was not understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Which it was, counted from 1.
    pub(crate) number: usize,
    /// What was sent, or its beginning.
    pub(crate) sent: Vec<u8>,
    pub(crate) reason: Cow<'static, str>,
}

/// Takes the points of one request.
pub(crate) struct Intake<'a> {
    shared: &'a Shared,
    store: &'a Store,
    pub(crate) kit: Kit,
    pub(crate) outcome: Outcome,
    /// The time of points that have none, in nanoseconds since 1970.
    pub(crate) now: i64,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(shared: &'a Shared, store: &'a Store, database: &str, typing: Typing) -> Self {
        let mut kit = shared.kits.take();
        kit.rows.set_database(database);
        kit.rows.set_typing(typing);
        let now = nanos(store.now_ms());
        Intake { shared, store, kit, outcome: Outcome::default(), now }
    }

    /// Makes room for more points: writes those that there are, if they are many or have many names.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn make_room(&mut self) -> holdfast::Result<()> {
        let rows = &self.kit.rows;
        if rows.len() >= BATCH_POINTS_MAX || rows.is_crowded() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> holdfast::Result<()> {
        if self.kit.rows.is_empty() {
            // What was not understood may have left names.
            self.kit.rows.clear();
            return Ok(());
        }
        let points = self.kit.rows.len() as u64;
        let written = self.store.series().write(&mut self.kit.rows);
        if written.is_err() {
            self.shared.points.lost.fetch_add(points, Relaxed);
            self.kit.rows.clear();
        }
        let written = written?;
        self.shared.points.wrote(&written);
        let Written { position, points, refused } = written;
        let outcome = &mut self.outcome;
        outcome.written += points;
        outcome.position = outcome.position.max(position);
        outcome.refused_points += refused.iter().map(|refused| refused.points).sum::<u64>();
        let room = REASONS_MAX.saturating_sub(outcome.refused.len());
        outcome.refused.extend(refused.into_iter().take(room));
        Ok(())
    }

    /// Notes something that was not understood.
    pub(crate) fn complain(&mut self, number: usize, sent: &[u8], reason: Cow<'static, str>) {
        const SENT_BYTES_MAX: usize = 1 << 10;
        self.outcome.malformed_count += 1;
        if self.outcome.malformed.len() < REASONS_MAX {
            let sent = sent.get(..SENT_BYTES_MAX).unwrap_or(sent).to_vec();
            self.outcome.malformed.push(Malformed { number, sent, reason });
        }
    }

    /// Writes what is left. Durable it is when somebody has waited for the outcome's position.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn end(mut self) -> holdfast::Result<Outcome> {
        let flushed = self.flush();
        let Intake { shared, kit, outcome, .. } = self;
        shared.kits.give_back(kit);
        shared.points.malformed.fetch_add(outcome.malformed_count, Relaxed);
        flushed?;
        Ok(outcome)
    }
}

impl Outcome {
    /// Whether all points are in the store.
    pub(crate) fn is_whole(&self) -> bool {
        self.malformed_count == 0 && self.refused_points == 0
    }
}
