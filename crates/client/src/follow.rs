//! Follows what happens to the entries of a type on behalf of views and caches, and knows how late it is.
//!
//! A task asks for events, again and again, and notes when it asked: everything that was acknowledged before then is in what it
//! has applied, if the answer said that there was no more. So how old its knowledge may be is measured here, by this program's own
//! clock, and a server that does not answer, or a connection that swallows everything, makes it older and not wrong.
//!
//! May use: `listen`, `entries`, tokio. Must not know: what is kept.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{Bookmark, Hears, Listen, Notice, Wanted};
use holdfast::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::call::{Call, Step};
use crate::entries::{At, Entries};
use crate::listen::{Listener, Page, page};
use crate::remote::{Again, Remote, Words};

/// The longest that one question waits for events.
const BLOCK_MAX: Duration = Duration::from_secs(10);
/// How often something is heard although nobody asks for it, where a question does not wait: what is not heard gets out of the
/// journal in the end.
const IDLE: Duration = Duration::from_secs(1);
/// The shortest and the longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// What is kept up to date.
pub(crate) trait Keeps: Send + 'static {
    /// What happened.
    fn apply(&mut self, notices: Vec<Notice>);
    /// Begins anew, because events may have been missed: what is to be there from now on, heard from a bookmark.
    fn begin(&mut self) -> Call<()>;
    /// Takes what [`Keeps::begin`] has read.
    fn begun(&mut self);
}

/// How far it has heard.
#[derive(Clone)]
struct Heard {
    /// Everything acknowledged before this is known.
    at: Option<Instant>,
    error: Option<Error>,
}

/// What follows, with what it keeps. Dropping it ends it.
pub(crate) struct Follow<K> {
    shared: Arc<Shared<K>>,
    task: AbortHandle,
    handle: Handle,
    staleness: Duration,
    patience: Duration,
}

pub(crate) struct Shared<K> {
    kept: Mutex<K>,
    heard: watch::Sender<Heard>,
    demand: Notify,
}

impl<K> Shared<K> {
    pub(crate) fn kept(&self) -> MutexGuard<'_, K> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where events come from.
pub(crate) struct Feed {
    entries: Entries,
    wanted: Wanted,
    hears: Hears,
    from: Option<Bookmark>,
    /// Which run of the server it began with. Another one may have lost what was heard or read last, as a power cut takes what was acknowledged before
    /// it was on stable storage, and tells nobody.
    run: String,
    here: Option<Listener>,
}

impl Feed {
    pub(crate) fn new(entries: &Entries, wanted: &Wanted, hears: Hears) -> Self {
        Self { entries: entries.clone(), wanted: wanted.clone(), hears, from: None, run: String::new(), here: None }
    }

    /// What a server is asked, while it is the one that it was.
    fn words(&self) -> Result<Words> {
        Ok(self.entries.listen_words(&self.wanted)?.and("RUN").and(&self.run))
    }

    /// Begins to listen now.
    async fn begin(&mut self) -> Result<()> {
        self.from = None;
        let listen = Listen { hears: self.hears, ..Listen::default() };
        match &self.entries.at {
            At::Here(..) => self.here = Some(self.entries.listen(&self.wanted, listen).await?),
            At::There(there, _) => {
                self.run = run_of(there).await?;
                let words = self.words()?;
                self.from = Some(page(there, &words, &listen, None, Duration::ZERO).await?.bookmark);
            }
        }
        Ok(())
    }

    /// The next events.
    async fn page(&mut self, block: Duration) -> Result<Page> {
        match &self.entries.at {
            At::There(there, _) => {
                let words = self.words()?;
                let listen = Listen { hears: self.hears, ..Listen::default() };
                let page = match page(there, &words, &listen, self.from, block).await {
                    // A server lets only so many wait; who does not wait is always answered.
                    Err(_) if !block.is_zero() => {
                        let page = page(there, &words, &listen, self.from, Duration::ZERO).await?;
                        if page.notices.is_empty() {
                            tokio::time::sleep(block.min(IDLE)).await;
                        }
                        page
                    }
                    page => page?,
                };
                self.from = Some(page.bookmark);
                Ok(page)
            }
            At::Here(..) => {
                let listener = self.here.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "nobody listens"))?;
                listener.page_here(block).await
            }
        }
    }
}

/// Which run of the server this is.
fn run_of(there: &Remote) -> Call<String> {
    there.call(&Words::new("INFO").and("server"), Again::May, |reply| {
        let text = reply.bytes()?;
        let text = String::from_utf8_lossy(&text);
        let run = text.lines().find_map(|line| line.strip_prefix("run_id:"));
        let old = || {
            Error::new(
                ErrorKind::Unavailable,
                "the server is too old to be followed: it does not say which run of it this is",
            )
        };
        run.map(|run| run.trim_end().to_owned()).ok_or_else(old)
    })
}

impl<K: Keeps> Follow<K> {
    /// Begins to follow; the answer comes when all is there that was acknowledged before.
    pub(crate) fn start(feed: Feed, kept: K, staleness: Duration) -> Call<Self> {
        let (handle, patience) = match &feed.entries.at {
            At::Here(here, _) => (here.handle().clone(), Duration::from_secs(30)),
            At::There(there, _) => (there.handle().clone(), there.timeout()),
        };
        let heard = watch::Sender::new(Heard { at: None, error: None });
        let shared = Arc::new(Shared { kept: Mutex::new(kept), heard, demand: Notify::new() });
        Call::new(move |_| {
            let begin = Instant::now();
            let following = Arc::clone(&shared);
            let task = handle.spawn(async move { following.run(feed, staleness).await }).abort_handle();
            let this = Self { shared, task, handle, staleness, patience };
            Step::Running(Box::pin(async move {
                let mut heard = this.shared.heard.subscribe();
                // The first failure is told: the type may be of a kind that cannot be followed.
                let first = heard.wait_for(|heard| heard.at.is_some() || heard.error.is_some());
                let first = first.await.map_err(|_| ended())?.clone();
                match (first.at, first.error) {
                    (None, Some(error)) => Err(error),
                    _ => this.fresh(begin).await.map(|()| this),
                }
            }))
        })
    }

    /// What is kept, once it shows everything that was acknowledged longer than the staleness before now.
    pub(crate) fn look<T: Send + 'static>(&self, look: impl FnOnce(&mut K) -> T + Send + 'static) -> Call<T> {
        let begin = Instant::now();
        let is_fresh = is_fresh(&self.shared.heard.borrow(), begin, self.staleness);
        if is_fresh {
            return Call::done(Ok(look(&mut self.shared.kept())));
        }
        let shared = Arc::clone(&self.shared);
        let waiting = self.fresh(begin);
        Call::new(move |_| Step::Running(Box::pin(async move { waiting.await.map(|()| look(&mut shared.kept())) })))
    }

    pub(crate) fn kept(&self) -> Arc<Shared<K>> {
        Arc::clone(&self.shared)
    }

    fn fresh(&self, begin: Instant) -> impl Future<Output = Result<()>> + Send + use<K> {
        let (shared, staleness, patience) = (Arc::clone(&self.shared), self.staleness, self.patience);
        let handle = self.handle.clone();
        async move {
            shared.demand.notify_one();
            let mut heard = shared.heard.subscribe();
            let mut late = std::pin::pin!(sleep_in(&handle, patience.saturating_add(staleness)));
            let mut fresh = std::pin::pin!(heard.wait_for(|heard| is_fresh(heard, begin, staleness)));
            let outcome = std::future::poll_fn(|context| {
                if let std::task::Poll::Ready(fresh) = fresh.as_mut().poll(context) {
                    return std::task::Poll::Ready(Some(fresh.map(|_| ())));
                }
                late.as_mut().poll(context).map(|()| None)
            })
            .await;
            match outcome {
                Some(Ok(())) => Ok(()),
                Some(Err(_)) => Err(ended()),
                None => {
                    let why = shared.heard.borrow().error.clone();
                    let why = why.map_or_else(|| "no answer came".to_owned(), |error| error.to_string());
                    let text = format!("what is kept here is older than {staleness:?}: {why}");
                    Err(Error::new(ErrorKind::Unavailable, text))
                }
            }
        }
    }
}

/// A pause that any runtime may poll.
fn sleep_in(handle: &Handle, time: Duration) -> tokio::time::Sleep {
    let _entered = handle.enter();
    tokio::time::sleep(time)
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the client is closed")
}

fn is_fresh(heard: &Heard, begin: Instant, staleness: Duration) -> bool {
    // What may be older than this clock can tell is fresh.
    heard.at.is_some_and(|at| at.checked_add(staleness).is_none_or(|until| until >= begin))
}

impl<K> Drop for Follow<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K: Keeps> Shared<K> {
    async fn run(&self, mut feed: Feed, staleness: Duration) {
        let mut pause = PAUSE.0;
        let mut is_begun = false;
        let block = (staleness / 2).min(BLOCK_MAX);
        loop {
            let heard = self.round(&mut feed, block, &mut is_begun).await;
            match heard {
                Ok(()) => pause = PAUSE.0,
                Err(error) => {
                    // Events that are not in the journal any more, or of a type that was dropped, do not come back.
                    is_begun &= !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Limit | ErrorKind::Corrupt);
                    self.heard.send_modify(|heard| heard.error = Some(error));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    async fn round(&self, feed: &mut Feed, block: Duration, is_begun: &mut bool) -> Result<()> {
        if !*is_begun {
            let begin = Instant::now();
            feed.begin().await?;
            let read = self.kept().begin();
            read.await?;
            self.kept().begun();
            *is_begun = true;
            // What happened while it was read comes first, so that it begins as of one instant.
            return self.hear(feed, Duration::ZERO, begin).await;
        }
        if block.is_zero() {
            // Nobody needs it before somebody looks.
            let _ = tokio::time::timeout(IDLE, self.demand.notified()).await;
        }
        self.hear(feed, block, Instant::now()).await
    }

    async fn hear(&self, feed: &mut Feed, block: Duration, begin: Instant) -> Result<()> {
        let mut block = block;
        loop {
            let page = feed.page(block).await?;
            if !page.notices.is_empty() {
                self.kept().apply(page.notices);
            }
            if !page.has_more {
                break;
            }
            block = Duration::ZERO;
        }
        self.heard.send_modify(|heard| *heard = Heard { at: Some(begin), error: None });
        Ok(())
    }
}
