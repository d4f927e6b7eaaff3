//! How a mirror follows: what it has heard and not applied yet, and what it does when something fails.
//!
//! May use: `target`, `through`. Must not know: SQL.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use holdfast::space::{Bookmark, Document, Listen, Listener, Notice, Reason, ValueRef, Wanted};
use holdfast::{Error, ErrorKind, Position, Result};

use super::Shared;
use super::target::{Step, Target};

/// Entries copied at once when a mirror begins.
const COPY_ENTRIES: usize = 500;
/// How long a target may take to end what is in work when the mirror is stopped.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a mirror looks for which nothing happens: its listener holds the journal from where it looked last.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How many bytes of journal, of what others do, the bookmark in the target may be behind when nothing happens to the type.
const QUIET_BYTES_MAX: u64 = 1 << 20;

/// Where a mirror stands.
pub(super) struct Follower {
    pub(super) listener: Listener,
    /// What the target has, if what is pending was not applied.
    pub(super) at: Bookmark,
    /// Whole batches, heard and not known to be applied.
    pub(super) pending: Vec<Notice>,
    /// Heard already, of the batch behind those.
    pub(super) next: Option<Notice>,
}

impl Follower {
    /// Up to where everything is heard, when the target has all of it and the bookmark there is far behind.
    fn passed_by(&self) -> Option<Bookmark> {
        let heard = self.listener.bookmark();
        let bytes = heard.position().get().saturating_sub(self.at.position().get());
        (self.pending.is_empty() && self.next.is_none() && bytes >= QUIET_BYTES_MAX).then_some(heard)
    }
}

/// What ends a session with the target.
enum End {
    /// Try again.
    Failed(Error),
    /// It cannot go on.
    Over(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Shared {
    /// Follows until stopped.
    pub(super) async fn run(&self) {
        let stopped = async {
            self.stopping.notified().await;
            tokio::time::sleep(STOP_TIME_MAX).await;
        };
        tokio::select! {
            () = self.follow() => {}
            () = stopped => {}
        }
        self.refuse_requests();
        self.changed.notify_all();
    }

    async fn follow(&self) {
        let (mut follower, mut failures) = (None, 0);
        while !self.state().stops {
            let before = self.state().stats.transactions;
            match self.session(&mut follower).await {
                Ok(()) => return,
                Err(End::Over(error)) => {
                    self.state().stats.ended = Some(error.to_string());
                    return;
                }
                Err(End::Failed(error)) => {
                    self.retry_requests(&error);
                    failures = if self.state().stats.transactions > before { 1 } else { failures + 1 };
                    let mut state = self.state();
                    state.stats.failures += 1;
                    state.stats.trouble = Some(error.to_string());
                }
            }
            let pause = tokio::time::sleep(self.options.backoff.after(failures));
            tokio::pin!(pause);
            // Whoever flushes wakes too, and is not to hurry a target that is down. Whoever writes through wants an answer.
            while !self.state().stops && !self.has_requests() {
                tokio::select! {
                    () = &mut pause => break,
                    () = self.wake.notified() => {}
                }
            }
        }
    }

    /// Follows over one connection, until something fails or the mirror is stopped.
    async fn session(&self, kept: &mut Option<Follower>) -> std::result::Result<(), End> {
        let mut target = self.address.connect().await?;
        target.make_tables(self.mapping.table()).await?;
        let stands = target.bookmark(&self.options.name).await?;
        let follower = match stands {
            None => kept.insert(self.begin(&mut target).await?),
            Some(text) => {
                let stands: Bookmark = text.parse().map_err(End::Over)?;
                self.go_on(kept, stands)?
            }
        };
        loop {
            let gathered = self.gather(follower).await;
            match gathered {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    // What the listener had told may be lost with the error: the journal tells it again.
                    *kept = None;
                    return Err(if is_final(&error) { End::Over(error) } else { End::Failed(error) });
                }
            }
            self.apply(&mut target, follower).await?;
            // Only when the table is up to date, so that it is asked about what is there.
            if follower.next.is_none()
                && let Err(error) = self.write_through(&mut target, follower).await
            {
                *kept = None;
                return Err(End::Failed(error));
            }
            let mut state = self.state();
            if state.stops {
                return Ok(());
            }
            state.stats.trouble = None;
        }
    }

    fn listen(&self, from: Option<Bookmark>) -> std::result::Result<Listener, End> {
        self.entries.listen(&Wanted::all(), Listen { from, ..Listen::default() }).map_err(End::Over)
    }

    /// Begins with a copy of all that is there. What happens meanwhile is heard, and applied to the copy.
    async fn begin(&self, target: &mut Target) -> std::result::Result<Follower, End> {
        let listener = self.listen(None)?;
        let at = listener.bookmark();
        target.run("BEGIN").await?;
        let mut all = self.entries.iterate(&Wanted::all())?;
        loop {
            let entries = all.next(COPY_ENTRIES)?;
            if entries.is_empty() {
                break;
            }
            let steps = entries.iter().map(|entry| self.put(&entry.document)).collect::<Result<Vec<_>>>()?;
            target.apply(self.mapping.table(), &steps).await.map_err(Error::from)?;
        }
        target.move_bookmark(&self.options.name, None, &at.to_string()).await?;
        target.run("COMMIT").await?;
        self.passed(at.position(), 0);
        Ok(Follower { listener, at, pending: Vec::new(), next: None })
    }

    /// Goes on from where the target stands: with what was pending, behind it if it was applied after all, or anew.
    fn go_on<'a>(
        &self,
        kept: &'a mut Option<Follower>,
        stands: Bookmark,
    ) -> std::result::Result<&'a mut Follower, End> {
        let fits = kept.take().and_then(|mut follower| {
            let applied = follower.pending.last().map(|notice| notice.bookmark);
            if applied == Some(stands) {
                self.passed(stands.position(), follower.pending.len());
                follower.pending.clear();
                follower.at = stands;
            }
            (follower.at == stands).then_some(follower)
        });
        let follower = match fits {
            Some(follower) => follower,
            None => Follower { listener: self.listen(Some(stands))?, at: stands, pending: Vec::new(), next: None },
        };
        Ok(kept.insert(follower))
    }

    /// Waits for whole batches to apply, if none are pending, or for transactions to write through. False when the mirror is
    /// stopped.
    async fn gather(&self, follower: &mut Follower) -> Result<bool> {
        while follower.pending.is_empty() {
            let (asked, stops) = {
                let state = self.state();
                (state.asked, state.stops)
            };
            if stops {
                return Ok(false);
            }
            follower.pending.extend(follower.next.take());
            while let Some(notice) = follower.listener.poll()? {
                let position = notice.bookmark.position();
                let is_next = follower.pending.last().is_some_and(|last| last.bookmark.position() != position);
                if is_next && follower.pending.len() >= self.options.batch_events_max {
                    follower.next = Some(notice);
                    break;
                }
                follower.pending.push(notice);
            }
            if !follower.pending.is_empty() || follower.passed_by().is_some() || self.has_requests() {
                break;
            }
            {
                let mut state = self.state();
                state.answered = asked;
                state.stats.trouble = None;
            }
            self.changed.notify_all();
            tokio::select! {
                () = heard(&follower.listener) => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
        Ok(true)
    }

    /// Applies what is pending, and moves the bookmark behind it; or behind what happened to others alone, which after a restart
    /// the journal may not have any more.
    async fn apply(&self, target: &mut Target, follower: &mut Follower) -> Result<()> {
        let last = follower.pending.last().map(|notice| notice.bookmark);
        let Some(to) = last.or_else(|| follower.passed_by()) else { return Ok(()) };
        let mut steps = Vec::new();
        for notice in &follower.pending {
            steps.extend(self.step(notice)?);
        }
        target.run("BEGIN").await?;
        // First, because it locks: another mirror of this name waits here, and then finds that it is too late.
        target.move_bookmark(&self.options.name, Some(&follower.at.to_string()), &to.to_string()).await?;
        target.apply(self.mapping.table(), &steps).await?;
        target.run("COMMIT").await?;
        self.applied(follower, to);
        Ok(())
    }

    /// The target has what was pending.
    pub(super) fn applied(&self, follower: &mut Follower, to: Bookmark) {
        self.passed(to.position(), follower.pending.len());
        follower.pending.clear();
        follower.at = to;
    }

    fn passed(&self, position: Position, events: usize) {
        let mut state = self.state();
        state.stats.position = position;
        state.stats.events += events as u64;
        state.stats.transactions += 1;
        drop(state);
        self.loaded().retain(|loaded| *loaded > position);
    }

    fn put(&self, document: &Document) -> Result<Step> {
        Ok(Step::Put { key: self.key(document)?, row: self.mapping.row(document)? })
    }

    fn key(&self, document: &Document) -> Result<String> {
        self.mapping.key(document.get(&self.entries.definition().id).unwrap_or(ValueRef::Null))
    }

    /// What an event does to the table.
    pub(super) fn step(&self, notice: &Notice) -> Result<Option<Step>> {
        let is_loaded = self.loaded().contains(&notice.bookmark.position());
        match (notice.removed, &notice.after, &notice.before) {
            _ if is_loaded => Ok(None),
            // It went from memory, not from the world.
            (Some(Reason::Evicted), ..) => Ok(None),
            (_, after, before) => self.step_to(before.as_ref(), after.as_ref()),
        }
    }

    /// What a change of an entry does to the table.
    pub(super) fn step_to(&self, before: Option<&Document>, after: Option<&Document>) -> Result<Option<Step>> {
        match (before, after) {
            (_, Some(after)) => self.put(after).map(Some),
            (Some(before), None) => Ok(Some(Step::Remove { key: self.key(before)? })),
            (None, None) => Ok(None),
        }
    }
}

/// Ready when there may be an event.
async fn heard(listener: &Listener) {
    let mut is_registered = false;
    poll_fn(|context| {
        if is_registered {
            return Poll::Ready(());
        }
        is_registered = true;
        listener.wake_with(context.waker());
        Poll::Pending
    })
    .await;
}

fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed | ErrorKind::Invalid | ErrorKind::Corrupt)
}
