//! How a mirror follows: what it has heard and not applied yet, and what it does when something fails.
//!
//! May use: `target`, `through`, `aside`. Must not know: SQL.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use holdfast::space::{AtLimit, Bookmark, Document, Listen, Listener, Notice, Reason, ValueRef, Wanted};
use holdfast::{Durability, Error, ErrorKind, Position, Result};

use super::Shared;
use super::aside::{self, Aside, Change, Checks};
use super::target::{Failure, Stands, Step, Target};

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
    /// What of that is set aside, if the target has committed it.
    pub(super) aside: Aside,
    /// Hearing has failed: of what is pending the rest of a batch may be lost.
    is_torn: bool,
}

impl Follower {
    fn new(mut listener: Listener, at: Bookmark) -> Self {
        // What is pending is nowhere else than in memory until the target has it.
        listener.keep_from(at);
        Self { listener, at, pending: Vec::new(), next: None, aside: Aside::default(), is_torn: false }
    }

    /// The next that there is.
    pub(super) fn hear(&mut self) -> Result<Option<Notice>> {
        let heard = self.listener.poll();
        self.is_torn |= heard.is_err();
        heard
    }

    fn move_to(&mut self, to: Bookmark) {
        self.pending.clear();
        self.at = to;
        self.listener.keep_from(to);
    }

    /// Up to where everything is heard, when the target has all of it and the bookmark there is far behind.
    fn passed_by(&self) -> Option<Bookmark> {
        let heard = self.listener.bookmark();
        let bytes = heard.position().get().saturating_sub(self.at.position().get());
        (self.pending.is_empty() && self.next.is_none() && bytes >= QUIET_BYTES_MAX).then_some(heard)
    }
}

/// What others had asked for before everything was heard.
#[derive(Default)]
struct Asked {
    /// The last who flushes.
    flush: u64,
    /// The last who writes through.
    request: u64,
}

/// What ends a session with the target.
enum End {
    /// Try again.
    Failed(Error),
    /// It cannot go on.
    Over(Error),
}

impl End {
    /// What the target or the store said while something was applied.
    fn of(error: Error) -> Self {
        if error.kind() == ErrorKind::Closed { Self::Over(error) } else { Self::Failed(error) }
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Shared {
    /// Follows until stopped.
    pub(super) async fn run(&self, first: Follower) {
        let stopped = async {
            self.stopping.notified().await;
            tokio::time::sleep(STOP_TIME_MAX).await;
        };
        tokio::select! {
            () = self.follow(first) => {}
            () = stopped => {}
        }
        self.refuse_requests();
        self.changed.notify_all();
    }

    /// Holds all that the journal has: where the target stands is not known yet.
    pub(super) fn first(&self) -> Result<Follower> {
        self.follower(Bookmark::START)
    }

    async fn follow(&self, first: Follower) {
        let mut follower = Some(first);
        let mut failures = 0;
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
        let name = &self.options.name;
        target.make_tables(name, &self.follows(), self.mapping.table()).await?;
        if self.sets_aside() {
            target.make_refused().await?;
        }
        let ended = self.follow_in(&mut target, kept).await;
        if let Err(End::Over(error)) = &ended
            && error.kind() != ErrorKind::Closed
        {
            // Started again, it may find its bookmark among positions of another history, and would go on from there.
            let _ = target.note_end(name, &self.follows(), &error.to_string()).await;
        }
        ended
    }

    /// Goes on in this target, or begins there.
    async fn follow_in(&self, target: &mut Target, kept: &mut Option<Follower>) -> std::result::Result<(), End> {
        let name = &self.options.name;
        let follower = match target.stands(name).await? {
            None => kept.insert(self.begin(target).await?),
            Some(stands) => {
                self.check_stands(&stands).map_err(End::Over)?;
                if stands.follows.is_none() {
                    target.adopt(name, &self.follows()).await?;
                }
                let at: Bookmark = stands.bookmark.parse().map_err(End::Over)?;
                self.state().stats.position = at.position();
                self.go_on(kept, at)?
            }
        };
        let ended = self.serve(target, follower).await;
        if matches!(ended, Err(End::Failed(_))) && follower.is_torn {
            // The journal tells it again, and is held by the old listener until the new one holds it.
            *follower = self.follower(follower.at).map_err(End::Over)?;
        }
        ended
    }

    /// What the bookmark is of.
    fn follows(&self) -> String {
        let definition = self.entries.definition();
        let (store, table) = (self.entries.store().identity(), &self.mapping.table().name);
        // One that was dropped and declared anew has another number.
        let (name, space, number) = (&definition.name, &definition.space, self.entries.type_number());
        format!("type {name} of space {space}, number {number} in store {store:032x}, table {table}")
    }

    /// A bookmark of something else would have the mirror pass over what came before, without a word.
    fn check_stands(&self, stands: &Stands) -> Result<()> {
        let (name, mine) = (&self.options.name, self.follows());
        let remedy = format!(
            "to begin anew delete the row {name} of holdfast_mirror, and rows of the table that should not be there"
        );
        let text = match (&stands.ended, &stands.follows) {
            (Some(why), _) => format!("the mirror {name} has ended: {why}; {remedy}"),
            (None, Some(theirs)) if *theirs != mine => {
                format!(
                    "the bookmark {name} is of {theirs}, and this is {mine}: give each mirror a name of its own, or, {remedy}"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Invalid, text))
    }

    async fn serve(&self, target: &mut Target, follower: &mut Follower) -> std::result::Result<(), End> {
        loop {
            let asked = match self.gather(follower).await {
                Ok(Some(asked)) => asked,
                Ok(None) => return Ok(()),
                Err(error) => return Err(if is_final(&error) { End::Over(error) } else { End::Failed(error) }),
            };
            self.apply(target, follower).await.map_err(End::of)?;
            // The table is up to date with what there was when they asked.
            if follower.next.is_none() {
                self.answer(asked.flush);
                self.write_through(target, follower, asked.request).await.map_err(End::of)?;
            }
            let mut state = self.state();
            if state.stops {
                return Ok(());
            }
            state.stats.trouble = None;
        }
    }

    fn listen(&self, from: Option<Bookmark>) -> Result<Listener> {
        self.entries.listen(&Wanted::all(), Listen { from, ..Listen::default() })
    }

    fn follower(&self, at: Bookmark) -> Result<Follower> {
        Ok(Follower::new(self.listen(Some(at))?, at))
    }

    /// Begins with a copy of all that is there. What happens meanwhile is heard, and applied to the copy.
    async fn begin(&self, target: &mut Target) -> std::result::Result<Follower, End> {
        // Of a type whose entries are evicted, what is in memory is not all there was: the journal says the rest, from as far back as it reaches. What is
        // copied is written over by that, in order, up to what it is now.
        let evicts = self.entries.definition().at_limit == AtLimit::Evict;
        let listener = self.listen(evicts.then_some(Bookmark::START)).map_err(End::Over)?;
        let at = listener.bookmark();
        let mut copied = self.copy(target, at, Checks::AtEnd).await;
        if let Err(Failure::Row(_)) = &copied
            && self.sets_aside()
        {
            // It was checked at the end, which says of no entry that it is this one.
            target.run("ROLLBACK").await?;
            copied = self.copy(target, at, Checks::Each).await;
        }
        copied.map_err(Error::from)?;
        Ok(Follower::new(listener, at))
    }

    async fn copy(&self, target: &mut Target, at: Bookmark, checks: Checks) -> std::result::Result<(), Failure> {
        target.run("BEGIN").await?;
        let mut all = self.entries.iterate(&Wanted::all())?;
        let (mut copied, mut aside) = (0, Aside::default());
        loop {
            let entries = all.next(COPY_ENTRIES)?;
            if entries.is_empty() {
                break;
            }
            let parts = self.parts_of_copy(at, copied, &entries)?;
            aside.and(self.apply_parts(target, &parts, checks).await?);
            copied += entries.len();
        }
        target.set_bookmark(&self.options.name, &at.to_string(), &self.follows()).await?;
        // What was copied may be newer than the bookmark.
        self.settle(Position::MAX).await?;
        target.commit().await?;
        self.passed(at.position(), 0, aside);
        Ok(())
    }

    /// Goes on from where the target stands: with what was pending, behind it if it was applied after all, or anew.
    fn go_on<'a>(
        &self,
        kept: &'a mut Option<Follower>,
        stands: Bookmark,
    ) -> std::result::Result<&'a mut Follower, End> {
        let mut old = kept.take();
        if let Some(follower) = &mut old
            && follower.pending.last().is_some_and(|last| last.bookmark == stands)
        {
            self.applied(follower, stands);
        }
        Ok(match old {
            Some(follower) if follower.at == stands => kept.insert(follower),
            // Holds the journal until the new one does.
            _old => kept.insert(self.follower(stands).map_err(End::Over)?),
        })
    }

    /// Waits for whole batches to apply, if none are pending, or for transactions to write through. `None` when the mirror is
    /// stopped.
    async fn gather(&self, follower: &mut Follower) -> Result<Option<Asked>> {
        let mut asked = Asked::default();
        while follower.pending.is_empty() {
            {
                // Before it hears: what was there when they asked is heard then, and what comes with a later one may not be.
                let state = self.state();
                if state.stops {
                    return Ok(None);
                }
                asked = Asked { flush: state.asked, request: state.requested };
            }
            follower.pending.extend(follower.next.take());
            while let Some(notice) = follower.hear()? {
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
            self.answer(asked.flush);
            tokio::select! {
                () = heard(&follower.listener) => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
        Ok(Some(asked))
    }

    /// The target has what was there when this one asked.
    fn answer(&self, asked: u64) {
        let mut state = self.state();
        state.answered = state.answered.max(asked);
        state.stats.trouble = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Applies what is pending, and moves the bookmark behind it; or behind what happened to others alone, which after a restart
    /// the journal may not have any more.
    async fn apply(&self, target: &mut Target, follower: &mut Follower) -> Result<()> {
        let last = follower.pending.last().map(|notice| notice.bookmark);
        let Some(to) = last.or_else(|| follower.passed_by()) else { return Ok(()) };
        follower.aside = Aside::default();
        match self.apply_at_once(target, follower, to).await {
            Err(Failure::Row(_)) if self.sets_aside() => self.apply_in_parts(target, follower, to).await?,
            applied => applied?,
        }
        self.applied(follower, to);
        Ok(())
    }

    async fn apply_at_once(
        &self,
        target: &mut Target,
        follower: &Follower,
        to: Bookmark,
    ) -> std::result::Result<(), Failure> {
        let mut steps = Vec::new();
        for notice in &follower.pending {
            steps.extend(self.step(notice).map_err(aside::of_mapping)?);
        }
        self.settle(to.position()).await?;
        target.run("BEGIN").await?;
        // First, because it locks: another mirror of this name waits here, and then finds that it is too late.
        target.move_bookmark(&self.options.name, &follower.at.to_string(), &to.to_string()).await?;
        target.apply(self.mapping.table(), &steps).await?;
        target.commit().await
    }

    /// Applies what is not refused, and sets aside the rest.
    async fn apply_in_parts(&self, target: &mut Target, follower: &mut Follower, to: Bookmark) -> Result<()> {
        target.run("ROLLBACK").await?;
        target.run("BEGIN").await?;
        target.move_bookmark(&self.options.name, &follower.at.to_string(), &to.to_string()).await?;
        let parts = self.parts_of(batches(&follower.pending))?;
        follower.aside = self.apply_parts(target, &parts, Checks::Each).await?;
        Ok(target.commit().await?)
    }

    /// Waits until the journal has everything up to there on stable storage, whatever durability it was acknowledged at. What a power cut took from the
    /// journal would stay in the target else, and the bookmark would stand among positions that are given again: what comes there would be passed over.
    pub(super) async fn settle(&self, position: Position) -> Result<()> {
        let store = self.entries.store().clone();
        // A bookmark may stand where the next batch will be, which nobody can wait for.
        let newest = store.watermarks().appended.get().saturating_sub(1);
        let position = position.min(Position::new(newest));
        let waited = tokio::task::spawn_blocking(move || store.wait(position, Durability::Synced)).await;
        waited.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the wait for the disk ended without an answer")))
    }

    /// The target has what was pending.
    pub(super) fn applied(&self, follower: &mut Follower, to: Bookmark) {
        self.passed(to.position(), follower.pending.len(), std::mem::take(&mut follower.aside));
        follower.move_to(to);
    }

    fn passed(&self, position: Position, events: usize, aside: Aside) {
        let mut state = self.state();
        state.stats.position = position;
        state.stats.events += events as u64;
        state.stats.transactions += 1;
        state.stats.set_aside += aside.positions.len() as u64;
        state.stats.refusal = aside.reason.or(state.stats.refusal.take());
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
        self.change_of(notice).map_or(Ok(None), |(before, after)| self.step_to(before, after))
    }

    /// What an event is for the table, if it is anything.
    pub(super) fn change_of<'a>(&self, notice: &'a Notice) -> Option<Change<'a>> {
        let is_loaded = self.loaded().contains(&notice.bookmark.position());
        // What is evicted went from memory, not from the world.
        let is_of_table = !is_loaded && notice.removed != Some(Reason::Evicted);
        is_of_table.then_some((notice.before.as_ref(), notice.after.as_ref()))
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

/// The events of each Holdfast batch.
pub(super) fn batches(notices: &[Notice]) -> impl Iterator<Item = &[Notice]> {
    notices.chunk_by(|one, next| one.bookmark.position() == next.bookmark.position())
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
