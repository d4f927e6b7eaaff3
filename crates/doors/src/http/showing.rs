//! Answers that are made of documents.
//!
//! A document becomes JSON slowly, some ten megabytes in a second, and one thread serves all connections. So what is more than a little is made in a
//! thread that may take long, by few at a time, and lies in memory until the client has taken it: there it counts among bodies.
//!
//! What can be asked for again is refused where there is no room for it. What a change answers cannot, and counts as far as there is some.
//!
//! May use: the budget, tokio. Must not know: routes, what documents are.

use std::time::Duration;

use axum::body::Body;
use hyper::body::Bytes;

use super::failure::Failure;
use super::shared::{Shared, Stalled};
use crate::budget::{Budget, Exhausted, Share};

/// Documents of so many bytes are made JSON by the thread that all connections share.
const SHORT_BYTES: usize = 16 << 10;
/// A text so long needs no room.
const FREE_BYTES: usize = 16 << 10;
/// Texts that are made at a time.
pub(super) const SHOWING_MAX: usize = 2;
/// So long one waits for room who waits anyway; then what is made counts as far as there is some.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);
/// Stored forms become about so many times as much JSON: less for texts, more for numbers.
const JSON_FACTOR: usize = 2;

/// What a text of so many bytes counts: no more than half of all there is, or it could never be made while its own question is there.
fn counted(bytes: usize, budget: &Budget) -> usize {
    bytes.min(budget.bytes() / 2)
}

/// What becomes of a text for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// It is refused.
    Refuse,
    /// It counts as far as there is some.
    Show,
}

/// JSON that is made, and its share of what all bodies may have.
pub(crate) struct Text {
    text: String,
    share: Share,
    budget: Budget,
    otherwise: Otherwise,
}

impl Text {
    fn new(budget: &Budget, share: Share, otherwise: Otherwise) -> Self {
        Text { text: String::new(), share, budget: budget.clone(), otherwise }
    }

    /// Adds a part.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn add(&mut self, part: &str) -> Result<(), Exhausted> {
        let bytes = self.text.len() + part.len();
        if bytes > FREE_BYTES {
            let grown = self.budget.grow(&mut self.share, counted(bytes, &self.budget));
            if self.otherwise == Otherwise::Refuse {
                grown?;
            }
        }
        self.text.push_str(part);
        Ok(())
    }

    /// Adds parts with commas between them.
    ///
    /// # Errors
    /// When there is no room for them.
    pub(crate) fn add_list(&mut self, parts: impl Iterator<Item = String>) -> Result<(), Exhausted> {
        for (number, part) in parts.enumerate() {
            if number > 0 {
                self.add(",")?;
            }
            self.add(&part)?;
        }
        Ok(())
    }

    fn done(mut self) -> Sent {
        self.share.shrink(if self.text.len() > FREE_BYTES { self.text.len() } else { 0 });
        Sent { text: self.text, _share: self.share }
    }
}

/// A text that is being sent, and its share.
pub(crate) struct Sent {
    text: String,
    _share: Share,
}

impl Sent {
    /// A text that is there.
    ///
    /// # Errors
    /// When there is no room for it, and it may be refused.
    pub(crate) fn of(text: String, budget: &Budget, otherwise: Otherwise) -> Result<Self, Exhausted> {
        let mut made = Text::new(budget, Share::default(), otherwise);
        if text.len() > FREE_BYTES {
            let grown = budget.grow(&mut made.share, counted(text.len(), budget));
            if otherwise == Otherwise::Refuse {
                grown?;
            }
        }
        made.text = text;
        Ok(made.done())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The bytes, which have the share with them until they are sent.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl From<Sent> for Body {
    fn from(sent: Sent) -> Self {
        Body::from(sent.into_bytes())
    }
}

type Made = Result<(), Exhausted>;

impl Shared {
    /// JSON of documents that have so many bytes where they are stored: made here when that is little, and in a thread when it is its turn.
    ///
    /// # Errors
    /// 503 when there is no room for it, and it may be refused.
    pub(crate) async fn show(
        &self,
        (bytes, otherwise): (usize, Otherwise),
        make: impl FnOnce(&mut Text) -> Made + Send + 'static,
    ) -> Result<Sent, Failure> {
        self.show_in(bytes, Text::new(&self.budget, Share::default(), otherwise), make).await
    }

    /// As [`Shared::show`], when there is room for it, or none in a while: for who waits anyway.
    pub(crate) async fn show_patiently(
        &self,
        bytes: usize,
        make: impl FnOnce(&mut Text) -> Made + Send + 'static,
    ) -> Result<Sent, Failure> {
        let mut share = Share::default();
        if bytes > SHORT_BYTES {
            let room = self.budget.wait(bytes.saturating_mul(JSON_FACTOR));
            // Who waits takes what comes free, and all others are refused meanwhile.
            share = tokio::time::timeout(ROOM_TIME_MAX, room).await.unwrap_or_default();
        }
        self.show_in(bytes, Text::new(&self.budget, share, Otherwise::Show), make).await
    }

    async fn show_in(
        &self,
        bytes: usize,
        mut text: Text,
        make: impl FnOnce(&mut Text) -> Made + Send + 'static,
    ) -> Result<Sent, Failure> {
        if bytes <= SHORT_BYTES {
            make(&mut text)?;
            return Ok(text.done());
        }
        let turn = self.showing.clone().acquire_owned().await.map_err(|_| Stalled)?;
        let made = tokio::task::spawn_blocking(move || {
            // It ends with the work, also when nobody waits for it any more.
            let _turn = turn;
            make(&mut text).map(|()| text.done())
        });
        Ok(made.await.map_err(|_| Stalled)??)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::{ThreadId, current};

    use tokio::sync::watch;

    use super::super::options::Options;
    use super::*;

    fn shared(folder: &tempfile::TempDir, bodies_bytes_max: u64) -> Arc<Shared> {
        let limits = holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() };
        let options = holdfast::Options { limits, partitions: 1, ..holdfast::Options::default() };
        let store = holdfast::Store::open(folder.path(), options).unwrap();
        let mut options = Options::new("127.0.0.1:0".parse().unwrap());
        options.limits.bodies_bytes_max = bodies_bytes_max;
        Arc::new(Shared::new(store, options, watch::Sender::new(false).subscribe()).unwrap())
    }

    async fn place(shared: &Shared, bytes: usize) -> ThreadId {
        let (tell, told) = tokio::sync::oneshot::channel();
        let make = move |text: &mut Text| {
            tell.send(current().id()).unwrap();
            text.add("{}")
        };
        shared.show((bytes, Otherwise::Refuse), make).await.unwrap();
        told.await.unwrap()
    }

    /// The story: documents of 1.8 MB became JSON in the one thread that serves all connections, and `/ping` took up to a minute.
    #[tokio::test]
    async fn much_is_made_elsewhere_and_by_few_at_a_time() {
        let folder = tempfile::TempDir::new().unwrap();
        let shared = shared(&folder, 1 << 20);
        assert_eq!(place(&shared, SHORT_BYTES).await, current().id());
        assert_ne!(place(&shared, SHORT_BYTES + 1).await, current().id());
        let turns = shared.showing.clone().acquire_many_owned(u32::try_from(SHOWING_MAX).unwrap()).await.unwrap();
        let here = Arc::clone(&shared);
        let waiting = tokio::spawn(async move { place(&here, SHORT_BYTES + 1).await });
        // Who shows little waits for nobody.
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(place(&shared, 1).await, current().id());
        }
        assert!(!waiting.is_finished());
        drop(turns);
        assert_ne!(waiting.await.unwrap(), current().id());
    }

    #[tokio::test]
    async fn what_is_sent_counts_among_bodies_until_it_is_gone() {
        let folder = tempfile::TempDir::new().unwrap();
        let shared = shared(&folder, 400 << 10);
        let large = |otherwise| shared.show((1 << 20, otherwise), |text| text.add(&"x".repeat(200 << 10)));
        let [first, second] = [large(Otherwise::Refuse), large(Otherwise::Refuse)];
        let two = (first.await.unwrap().into_bytes(), second.await.unwrap().into_bytes());
        assert_eq!(large(Otherwise::Refuse).await.err().map(|failure| failure.status()), Some(503));
        assert!(large(Otherwise::Show).await.is_ok(), "what has happened is told");
        let small = shared.show((1 << 20, Otherwise::Refuse), |text| text.add("{}")).await.unwrap();
        let here = Arc::clone(&shared);
        let patient = async move { here.show_patiently(100 << 10, |text| text.add("{}")).await.is_ok() };
        let patient = tokio::spawn(patient);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!patient.is_finished() && !small.is_empty());
        drop(two);
        assert!(patient.await.unwrap());
        drop(large(Otherwise::Refuse).await.unwrap());
        let whole = || shared.show((1 << 20, Otherwise::Refuse), |text| text.add(&"x".repeat(900 << 10)));
        let two = (whole().await.unwrap().into_bytes(), whole().await.unwrap().into_bytes());
        assert_eq!(whole().await.err().map(|failure| failure.status()), Some(503), "two of them at a time");
        drop(two);
    }
}
