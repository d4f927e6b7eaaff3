//! Reading and taking entries of a type, and waiting for one.
//!
//! Who waits is in one queue with those who wait over RESP, and takes no thread. Who waits only while a transaction has locked what
//! there is looks now and then whether it is still there.
//!
//! May use: everything of the door but sockets.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::response::Response;
use holdfast::space::{Document, Entries, Entry, ReadOptions, Taking};
use holdfast::{Shown, Store};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::failure::Failure;
use super::gone::{gone, left};
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::object::shown_at;
use super::shared::Stalled;
use super::showing::{Otherwise, Text};
use super::space::{self, Query, Rows, Taken};
use super::space_json;
use super::upload::Upload;
use crate::budget::Share;
use crate::peer::Peer;

/// Entries that a query returns unless its limit says otherwise.
const LIMIT_DEFAULT: usize = 100;
/// How often who waits for a lock looks whether the entry is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Asked<'_> {
    async fn space_query(&self, upload: &mut Upload, is_taking: bool) -> Result<(Query, Share), Failure> {
        let limits = &self.shared.options.limits;
        let limit_default = if is_taking { 1 } else { LIMIT_DEFAULT };
        let bounds = space_json::Bounds { limit: limits.page_entries_max, limit_default, wait: limits.take_wait_max };
        upload.check_present()?;
        let store = self.shared.store.clone();
        let read = move |text: &[u8]| {
            let query = space_json::query(text, (&store, bounds), is_taking)?;
            Ok(Query { wanted: query.wanted.kept(&store)?, ..query })
        };
        self.json(upload, Becomes::Values, read).await
    }

    pub(crate) async fn query_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        // All of it lives for as long as this request does, and the share with it.
        let (query, _share) = self.space_query(upload, false).await?;
        let query = Arc::new(query);
        let (of, wanted) = (place.clone(), Arc::clone(&query));
        let ask = move |store: &Store, stop| space::query(store, (&of, stop), &wanted, durability);
        let mut rows = self.search(ask).await?;
        // What transactions have locked is shown as it was committed last: nobody waits for them.
        let waits = query.limit > 0 && !query.wait.is_zero() && !query.if_exists;
        if waits && matches!(&rows, Rows::Entries(entries) if entries.is_empty()) {
            let entries = place.entries(&self.shared.store)?;
            let came = self.wait_for_entry(&entries, &query, Taking::Read).await?;
            let (position, wanted) = (came.as_ref().map(|shown| shown.position), Arc::clone(&query));
            let settle = move |store: &Store| {
                let position = position.map_or_else(|| entries.absence(&wanted.wanted), Ok)?;
                space::settle(store, &entries, position, shown_at(durability))
            };
            self.shared.ask(settle).await??;
            rows = Rows::Entries(came.into_iter().map(|shown| shown.value).collect());
        }
        let bytes = match &rows {
            Rows::Entries(entries) => space_json::stored_bytes(entries),
            Rows::Documents(documents) => documents.iter().map(|it| it.as_bytes().len()).sum(),
        };
        let show = move |text: &mut Text| match rows {
            Rows::Entries(entries) => {
                text.add("{")?;
                space_json::add_entries(text, &entries)
            }
            Rows::Documents(documents) => {
                text.add("{\"rows\":[")?;
                text.add_list(documents.iter().map(Document::to_json))?;
                text.add("]}")
            }
        };
        let body = self.shared.show((bytes, Otherwise::Refuse), show).await?;
        Ok(say_durability(with_type(JSON, body), durability))
    }

    pub(crate) async fn take_entries(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, durability) = (self.place()?, self.durability()?);
        // All of it lives for as long as this request does, and the share with it.
        let (query, _share) = self.space_query(upload, true).await?;
        let query = Arc::new(query);
        let entries = place.entries(&self.shared.store)?;
        let mut taken = self.take_more(&entries, &query, Taken::default()).await?;
        if taken.entries.is_empty() && !query.wait.is_zero() && query.limit > 0 {
            if query.if_exists {
                taken = self.take_unlocked(&entries, &query).await?;
            } else if let Some(shown) = self.wait_for_entry(&entries, &query, Taking::Take).await? {
                taken.add(&self.shared.store, &entries, shown);
                if self.parts.extensions.get::<Peer>().is_some_and(Peer::is_gone) {
                    return Err(left());
                }
                taken = self.take_more(&entries, &query, taken).await?;
            }
        }
        let settled = self.shared.ask(move |store| taken.settled(store, &entries, &query, durability)).await??;
        let bytes = space_json::stored_bytes(&settled.entries);
        let (keep, kept) = oneshot::channel();
        let show = move |text: &mut Text| {
            text.add("{")?;
            space_json::add_entries(text, &settled.entries)?;
            // When nobody waits for it any more, they go back.
            drop(keep.send(settled));
            Ok(())
        };
        // It has happened: to give back what was taken for want of room would put it at the end of a queue.
        let body = self.shared.show((bytes, Otherwise::Show), show).await?;
        let settled = kept.await.map_err(|_| Stalled)?;
        if self.parts.extensions.get::<Peer>().is_some_and(Peer::is_gone) {
            // That writes, so not here.
            drop(tokio::task::spawn_blocking(move || drop(settled)).await);
            return Err(left());
        }
        settled.keep();
        Ok(say_durability(with_type(JSON, body), durability))
    }

    async fn take_more(&self, entries: &Entries, query: &Arc<Query>, taken: Taken) -> Result<Taken, Failure> {
        let (of, wanted) = (entries.clone(), Arc::clone(query));
        self.search(move |store, stop| taken.more(store, &of.until(stop), &wanted)).await
    }

    /// Waits for the first entry. No thread waits. A door that stops answers now.
    async fn wait_for_entry(
        &self,
        entries: &Entries,
        query: &Arc<Query>,
        taking: Taking,
    ) -> Result<Option<Shown<Entry>>, Failure> {
        let waiting = self.enter(entries, query, taking).await?;
        let mut stop = self.shared.stop.clone();
        tokio::select! {
            granted = waiting => Ok(Some(granted?)),
            () = tokio::time::sleep(query.wait) => Ok(None),
            _ = stop.wait_for(|stop| *stop) => Ok(None),
            () = gone(self.parts.extensions.get::<Peer>()) => Err(left()),
        }
    }

    /// Takes what a transaction has locked once it is free, if it is there then. It is in the queue meanwhile, so that the end of the
    /// lock wakes it; that what is locked goes is told to nobody, and looked for.
    async fn take_unlocked(&self, entries: &Entries, query: &Arc<Query>) -> Result<Taken, Failure> {
        if !self.is_there(entries, query).await? {
            // What was not there a moment ago may have come since.
            return self.take_more(entries, query, Taken::default()).await;
        }
        let (mut stop, until) = (self.shared.stop.clone(), Instant::now() + query.wait);
        let mut waiting = pin!(self.enter(entries, query, Taking::Take).await?);
        loop {
            let look_at = until.min(Instant::now() + LOOK_INTERVAL);
            tokio::select! {
                // What was granted is not given back because time is over as well.
                biased;
                granted = &mut waiting => return self.granted(entries, granted?),
                () = tokio::time::sleep_until(look_at) => {}
                _ = stop.wait_for(|stop| *stop) => return Ok(Taken::default()),
                () = gone(self.parts.extensions.get::<Peer>()) => return Err(left()),
            }
            let is_there = tokio::select! {
                biased;
                granted = &mut waiting => return self.granted(entries, granted?),
                is_there = self.is_there(entries, query) => is_there,
            };
            if Instant::now() < until && matches!(is_there, Ok(true)) {
                continue;
            }
            // What is not there may have been granted a moment ago. What comes between this and the end of waiting goes back.
            return match poll_once(waiting.as_mut()).await {
                Some(granted) => self.granted(entries, granted?),
                None => is_there.map(|_| Taken::default()),
            };
        }
    }

    /// Enters the queue, which looks once more: in a thread, because that may be at all entries.
    async fn enter(
        &self,
        entries: &Entries,
        query: &Arc<Query>,
        taking: Taking,
    ) -> Result<impl Future<Output = holdfast::Result<Shown<Entry>>> + use<>, Failure> {
        let (of, wanted) = (entries.clone(), Arc::clone(query));
        self.search(move |_: &Store, stop| Ok(of.until(stop).waiting(&wanted.wanted, taking)?)).await
    }

    fn granted(&self, entries: &Entries, shown: Shown<Entry>) -> Result<Taken, Failure> {
        let mut taken = Taken::default();
        taken.add(&self.shared.store, entries, shown);
        if self.parts.extensions.get::<Peer>().is_some_and(Peer::is_gone) {
            return Err(left());
        }
        Ok(taken)
    }

    /// Whether there is something that is wanted: what a transaction has locked is there for who reads.
    async fn is_there(&self, entries: &Entries, query: &Arc<Query>) -> Result<bool, Failure> {
        let (of, wanted) = (entries.clone(), Arc::clone(query));
        let look = move |_: &Store, until| {
            Ok(of.until(until).read_shown(&wanted.wanted, &ReadOptions::default())?.value.is_some())
        };
        self.search(look).await
    }
}

/// What a future has come to by now.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
