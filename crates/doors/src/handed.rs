//! An entry that was taken for a client and has not been sent to it yet: if the client is gone, the entry goes back.
//!
//! It goes back as a new write, unless an entry with its id was written meanwhile: where order counts, at the end.
//!
//! May use: the facade. Must not know: connections, commands.

use std::time::Duration;

use holdfast::space::{Entries, Entry, Lease, WriteMode, WriteOptions};
use holdfast::{ErrorKind, Store};

/// An entry that goes back when this is dropped.
pub(crate) struct Handed {
    entries: Entries,
    entry: Option<Entry>,
    store: Store,
}

impl Handed {
    /// `entry` was taken from `entries` of the store.
    pub(crate) fn new(store: &Store, entries: &Entries, entry: Entry) -> Self {
        Handed { entries: entries.clone(), entry: Some(entry), store: store.clone() }
    }

    /// The client has it.
    pub(crate) fn keep(mut self) {
        self.entry = None;
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let lease = match entry.expires_ms {
            None => Lease::Forever,
            Some(at) => Lease::For(Duration::from_millis(at.saturating_sub(self.store.now_ms()))),
        };
        if lease == Lease::For(Duration::ZERO) {
            return;
        }
        let lock_timeout = Some(Duration::ZERO);
        let options = WriteOptions { mode: WriteMode::Insert, lease, lock_timeout, ..WriteOptions::default() };
        match self.entries.write_shown(&entry.document, &options) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => tracing::warn!(%error, "an entry whose taker is gone could not be written back"),
        }
    }
}
