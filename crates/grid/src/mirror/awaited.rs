//! What blocks of mirrors and loaders, as calls of a client: awaited, each blocks one of the client's threads and none of the caller's.
//!
//! May use: `load`, `through`, calls of the client library. Must not know: SQL, how mirrors follow.

use std::time::{Duration, Instant};

use client::{Call, Client};
use holdfast::space::{Entry, NotThrough, Value, WriteThrough};
use holdfast::{Committed, Durability, Transaction};

use super::load::{Loaded, LoadedIds, Loader};
use super::{Mirror, MirrorStats};

impl Mirror {
    /// [`Mirror::flush`] in a thread of the client's. A call that is dropped changes nothing for the mirror.
    ///
    /// # Errors
    /// `Closed` and `Internal` as [`Client::elsewhere`]: none of the mirror's.
    pub fn flush_with(&self, client: &Client, wait: Duration) -> Call<bool> {
        let shared = self.shared.clone();
        client.elsewhere(move || Ok(shared.flush(wait)))
    }

    /// [`Mirror::commit`] in a thread of the client's, of which there are 64: `wait` begins now, also where all of them are taken by calls that wait for
    /// this transaction's locks. A call that is dropped before it has begun rolls the transaction back; one that is
    /// dropped later may be committed or not.
    ///
    /// # Errors
    /// As [`Client::elsewhere`]. What [`Mirror::commit`] answers is within.
    pub fn commit_with(
        &self,
        client: &Client,
        transaction: Transaction,
        durability: Durability,
        wait: Duration,
    ) -> Call<std::result::Result<Committed, NotThrough>> {
        let (shared, until) = (self.shared.clone(), Instant::now() + wait);
        client.elsewhere(move || {
            // It may have stood behind others that wait for the locks of this transaction.
            let left = until.saturating_duration_since(Instant::now());
            Ok(shared.commit(transaction, durability, left))
        })
    }

    /// [`Mirror::stop`] in a thread of the client's. It is told to stop at once. A call that is dropped goes on to stop it; one that is
    /// dropped before it has begun does so where it is dropped, and blocks there, as dropping a mirror does.
    ///
    /// # Errors
    /// As [`Client::elsewhere`].
    pub fn stop_with(self, client: &Client) -> Call<MirrorStats> {
        self.request_stop();
        client.elsewhere(move || Ok(self.stop()))
    }
}

impl Loader {
    /// [`Loader::load`] in a thread of the client's. A call that is dropped after it has begun goes on to load.
    ///
    /// # Errors
    /// As there.
    pub fn load_with(&self, client: &Client) -> Call<Loaded> {
        let this = self.clone();
        client.elsewhere(move || this.load())
    }

    /// [`Loader::read`] in a thread of the client's. A call that is dropped after it has begun may load the entry.
    ///
    /// # Errors
    /// As there.
    pub fn read_with(&self, client: &Client, id: &Value, wait: Duration) -> Call<Option<Entry>> {
        let (this, id) = (self.clone(), id.clone());
        client.elsewhere(move || this.read(&id, wait))
    }

    /// [`Loader::load_ids`] in a thread of the client's. A call that is dropped after it has begun may load all of them, or none.
    ///
    /// # Errors
    /// As there.
    pub fn load_ids_with(&self, client: &Client, ids: &[Value], wait: Duration) -> Call<LoadedIds> {
        let (this, ids) = (self.clone(), ids.to_vec());
        client.elsewhere(move || this.load_ids(&ids, wait))
    }
}
