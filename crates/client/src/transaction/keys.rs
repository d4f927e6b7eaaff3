//! Listings of keys within a transaction that stays open.
//!
//! May use: what `transaction` may. Must not know: sockets.

use std::time::Duration;

use holdfast::Page;

use super::{Came, Patience, Transaction, one};
use crate::call::Call;
use crate::kv::Keys;
use crate::kv::listing::{Owned, keys_of, keys_words, read_keys};

impl Transaction {
    /// The keys of a page of a bucket, in order: as [`Kv::keys`](crate::Kv::keys), with what this transaction has changed. They are not
    /// looked at again by the commit: read a key on which something rests.
    ///
    /// # Errors
    /// As there; `Timeout` when the transaction's lease has ended.
    pub fn keys(&mut self, wanted: &Page<'_>) -> Call<Keys> {
        let wanted = Owned::of(&Page { values: false, ..*wanted });
        let words = Ok(keys_words(&wanted.page()));
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            Ok(Came::Done(keys_of(transaction.page_unwatched(&wanted.page())?)))
        };
        self.run(one(here, words, Duration::ZERO, read_keys))
    }
}
