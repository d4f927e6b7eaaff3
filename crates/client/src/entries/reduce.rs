//! All entries that match, folded into one value.
//!
//! May use: as `entries`. Must not know: sockets.

use holdfast::space::{Document, Wanted};
use holdfast::{Error, ErrorKind, Result};

use super::{At, Entries};
use crate::call::Call;

/// Entries that are asked of a server at once: the most that it gives.
const BATCH: usize = 10_000;

impl Entries {
    /// Folds all entries that match into one value, part by part, and merges what came out of the parts:
    /// [`holdfast::space::Entries::reduce`]. The parts are partitions, each as it was when it was come to; of a server they are batches of
    /// [`Entries::iterate`], so that every document that matches comes here: what [`Entries::select`] can say, it does beside the data.
    ///
    /// # Errors
    /// As there, and as [`Entries::iterate`].
    pub fn reduce<A: Send + 'static>(
        &self,
        wanted: &Wanted,
        start: impl Fn() -> A + Send + 'static,
        mut add: impl FnMut(&mut A, &Document) + Send + 'static,
        mut merge: impl FnMut(A, A) -> A + Send + 'static,
    ) -> Call<A> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                here.elsewhere(move || entries.reduce(&wanted, start, add, merge))
            }
            At::There(..) if wanted.limit().is_some() => {
                let text = "reducing is of all entries that match: leave LIMIT out";
                Call::done(Err(Error::new(ErrorKind::Invalid, text)))
            }
            At::There(..) => self.iterate(wanted).and_then(move |mut iteration| {
                Call::running(async move {
                    let mut all = start();
                    loop {
                        let found = iteration.next(BATCH).await?;
                        if found.is_empty() {
                            return Result::Ok(all);
                        }
                        let mut part = start();
                        found.iter().for_each(|entry| add(&mut part, &entry.document));
                        all = merge(all, part);
                    }
                })
            }),
        }
    }
}
