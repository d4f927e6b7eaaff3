//! What all connections of one HTTP door share.
//!
//! May use: the facade, `options`. Must not know: sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use holdfast::{Stats, Store};
use tokio::time::timeout;

use super::options::Options;
use crate::numbers::DoorNumbers;

/// What all connections of one door share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) started: Instant,
    pub(crate) connections: AtomicU64,
    pub(crate) answers: Answers,
}

/// Answers by the first digit of their status.
#[derive(Default)]
pub(crate) struct Answers([AtomicU64; 5]);

/// Everything that `/metrics` and `/stats` say, as of one moment.
pub(crate) struct Snapshot {
    pub(crate) stats: Stats,
    pub(crate) shared: Arc<Shared>,
    /// This door and the others, by name.
    pub(crate) doors: Vec<(String, DoorNumbers)>,
}

/// The store did not say how it is within the time there is.
#[derive(Debug)]
pub(crate) struct Stalled;

impl Shared {
    pub(crate) fn new(store: Store, options: Options) -> Self {
        Shared { store, options, started: Instant::now(), connections: AtomicU64::new(0), answers: Answers::default() }
    }

    /// The store's statistics. They take each partition's lock for a moment, which a stuck disk can make a long one, so
    /// they are asked for in a thread that may wait.
    pub(crate) async fn stats(&self) -> Result<Stats, Stalled> {
        let store = self.store.clone();
        let asked = tokio::task::spawn_blocking(move || store.stats());
        match timeout(self.options.limits.answer_timeout, asked).await {
            Ok(Ok(stats)) => Ok(stats),
            Ok(Err(_)) | Err(_) => Err(Stalled),
        }
    }

    /// The statistics with the doors' numbers.
    pub(crate) async fn snapshot(self: &Arc<Self>) -> Result<Snapshot, Stalled> {
        let stats = self.stats().await?;
        let own = DoorNumbers { connections: self.connections.load(Relaxed), totals: None };
        let others = self.options.doors.iter().map(|(name, numbers)| (name.clone(), numbers()));
        let doors = others.chain([("http".to_owned(), own)]).collect();
        Ok(Snapshot { stats, shared: Arc::clone(self), doors })
    }
}

impl Answers {
    pub(crate) fn count(&self, status: u16) {
        if let Some(class) = self.0.get(usize::from(status / 100).wrapping_sub(1)) {
            class.fetch_add(1, Relaxed);
        }
    }

    /// The classes that occur, such as `2xx`, each with its count.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["1xx", "2xx", "3xx", "4xx", "5xx"]
            .into_iter()
            .zip(&self.0)
            .skip(1)
            .map(|(name, count)| (name, count.load(Relaxed)))
    }
}
