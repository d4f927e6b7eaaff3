//! Places of connections: so many, and when all are taken, the one whose client has let the server wait longest makes room.
//!
//! A connection waits while it reads and nothing comes, between requests, within headers or within a body, or while its client takes
//! nothing of an answer. What comes makes up for the time that it may take to come, at a least rate: bytes that drip do not keep a place.
//! While a request is being answered the connection waits for nobody, and keeps its place.
//!
//! May use: tokio. Must not know: HTTP.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Who sends less than this each second is waited for.
const RATE_MIN_BYTES: u64 = 1 << 10;
/// How long a connection that was told to leave may take.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
/// Bytes that one read brings at most: less than the 8 KiB that hyper's buffer of a connection begins with, so that it does not grow. It
/// grows to twice what one read brings, and is kept as long as the connection is there: of 200 clients that was 20 MiB.
const READ_BYTES_MAX: usize = 7 << 10;
/// Who has sent more than this since its last answer sends something large, of which more is read at once.
const LARGE_BYTES: usize = 64 << 10;
const LARGE_READ_BYTES_MAX: usize = 64 << 10;

/// The places of one door.
pub(crate) struct Places {
    max: usize,
    /// Who was waited for so long may be told to leave.
    patience: Duration,
    epoch: Instant,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    next: u64,
    signs: BTreeMap<u64, Arc<Sign>>,
}

/// What a connection shows of itself.
struct Sign {
    epoch: Instant,
    is_waiting: AtomicBool,
    /// Until when, in milliseconds after `epoch`, what came has taken no longer than it may.
    paid_ms: AtomicU64,
    was_told: AtomicBool,
    leave: Notify,
}

/// A connection's place, given back when it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    sign: Arc<Sign>,
}

impl Places {
    pub(crate) fn new(max: usize, patience: Duration) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Places { max, patience, epoch: Instant::now(), taken, freed: Notify::new() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place; `None` when all are taken by those who keep nobody waiting.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<Place> {
        if let Some(place) = self.try_take() {
            return Some(place);
        }
        self.make_room()?;
        let freed = async {
            loop {
                self.freed.notified().await;
                if let Some(place) = self.try_take() {
                    return place;
                }
            }
        };
        timeout(LEAVE_TIME_MAX, freed).await.ok()
    }

    fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken();
        if taken.signs.len() >= self.max {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        let sign = Arc::new(Sign {
            epoch: self.epoch,
            is_waiting: AtomicBool::new(true),
            paid_ms: AtomicU64::new(0),
            was_told: AtomicBool::new(false),
            leave: Notify::new(),
        });
        sign.pay_all();
        taken.signs.insert(number, Arc::clone(&sign));
        Some(Place { places: Arc::clone(self), number, sign })
    }

    /// Tells somebody to leave, if there is one to be told.
    fn make_room(&self) -> Option<()> {
        let (now, patience) = (millis(self.epoch.elapsed()), millis(self.patience));
        let taken = self.taken();
        let slowest = taken
            .signs
            .values()
            .filter(|sign| sign.is_waiting.load(Relaxed) && !sign.was_told.load(Relaxed))
            .map(|sign| (sign.paid_ms.load(Relaxed), sign))
            .filter(|(paid, _)| now.saturating_sub(*paid) >= patience)
            .min_by_key(|(paid, _)| *paid);
        let (paid, sign) = slowest?;
        tracing::debug!(milliseconds = now - paid, "a connection that kept the server waiting makes room for another");
        sign.was_told.store(true, Relaxed);
        sign.leave.notify_one();
        Some(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Sign {
    fn now(&self) -> u64 {
        millis(self.epoch.elapsed())
    }

    /// An answer moved, or the connection is new: the client may take its time from here.
    fn pay_all(&self) {
        self.paid_ms.store(self.now(), Relaxed);
    }

    /// So many bytes came.
    fn pay(&self, bytes: usize) {
        let time = (bytes as u64).saturating_mul(1000) / RATE_MIN_BYTES;
        let paid = self.paid_ms.load(Relaxed).saturating_add(time);
        self.paid_ms.store(paid.min(self.now()), Relaxed);
    }
}

impl Place {
    /// Returns when the connection is to end.
    pub(crate) async fn told_to_leave(&self) {
        self.sign.leave.notified().await;
    }

    /// The connection's stream, which shows when it waits.
    pub(crate) fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched { stream, sign: Arc::clone(&self.sign), unanswered: 0 }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().signs.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// A stream that shows when it waits for its peer.
pub(crate) struct Watched<S> {
    stream: S,
    sign: Arc<Sign>,
    /// Bytes that came since something was sent.
    unanswered: usize,
}

impl<S> Watched<S> {
    fn moved<T>(&mut self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.sign.is_waiting.store(done.is_pending(), Relaxed);
        if done.is_ready() {
            self.unanswered = 0;
            self.sign.pay_all();
        }
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = if self.unanswered > LARGE_BYTES { LARGE_READ_BYTES_MAX } else { READ_BYTES_MAX };
        let room = to.remaining().min(most);
        let mut part = ReadBuf::new(to.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let count = part.filled().len();
        to.advance(count);
        self.unanswered = self.unanswered.saturating_add(count);
        self.sign.is_waiting.store(read.is_pending(), Relaxed);
        self.sign.pay(count);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.moved(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.moved(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Places of a door that opened ten seconds ago.
    fn places(max: usize) -> Arc<Places> {
        let mut places = Places::new(max, Duration::from_secs(1));
        let old = Arc::get_mut(&mut places).expect("nobody else has it");
        old.epoch = old.epoch.checked_sub(Duration::from_secs(10)).expect("the machine runs for longer");
        places
    }

    fn leaves(place: Place) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { place.told_to_leave().await })
    }

    #[tokio::test]
    async fn who_lets_the_server_wait_longest_makes_room_and_bytes_that_drip_do_not_help() {
        let places = places(4);
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.push(places.take().await.expect("there are four"));
        }
        assert!(places.take().await.is_none(), "nobody was waited for long enough");
        let [fast, dripping, resting, busy] = taken.try_into().ok().expect("four");
        for place in [&fast, &dripping, &resting, &busy] {
            place.sign.paid_ms.store(0, Relaxed);
        }
        // In ten seconds: enough, much too little, half; and one is being answered.
        fast.sign.pay(64 << 10);
        dripping.sign.pay(9);
        resting.sign.pay(5 << 10);
        busy.sign.is_waiting.store(false, Relaxed);
        let (dripping, resting) = (leaves(dripping), leaves(resting));
        let _fifth = places.take().await.expect("one makes room");
        dripping.await.expect("it was the one that drips");
        assert!(!resting.is_finished());
        let _sixth = places.take().await.expect("one makes room");
        resting.await.expect("it was the one that rests");
        assert!(places.take().await.is_none(), "the others are fast, new, or being answered");
    }

    #[tokio::test]
    async fn a_stream_shows_when_it_waits_for_its_peer() {
        let places = places(1);
        let place = places.take().await.expect("it is free");
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = place.watch(near);
        let is_waiting = || place.sign.is_waiting.load(Relaxed);
        far.write_all(&[0; 8]).await.expect("there is room");
        near.read_exact(&mut [0; 8]).await.expect("it came");
        assert!(!is_waiting(), "what came is being handled");
        near.write_all(&[0; 8]).await.expect("there is room");
        assert!(!is_waiting());
        let more = timeout(Duration::ZERO, near.write_all(&[0; 8])).await;
        assert!(more.is_err() && is_waiting(), "nobody takes it");
        place.sign.paid_ms.store(0, Relaxed);
        far.read_exact(&mut [0; 8]).await.expect("it was sent");
        near.write_all(&[0; 8]).await.expect("there is room");
        assert!(!is_waiting() && place.sign.paid_ms.load(Relaxed) > 9_000, "an answer that moves pays for all");
        let more = timeout(Duration::ZERO, near.read(&mut [0; 1])).await;
        assert!(more.is_err() && is_waiting(), "nothing comes");
    }
}
