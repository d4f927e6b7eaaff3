//! Reading and taking one entry, and waiting for it.
//!
//! May use: everything of this folder. Must not know: protocols.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use ::space::{Definition, EVERYBODY, Engine, Found, Order, Place, Reason, Search, Storage, Stored, ValueRef, key_of};
use base::Time;
use journal::Position;

use super::cancel::Cancel;
use super::commit::{Over, What};
use super::entries::{Entries, Entry};
use super::kind::Kind;
use super::locks::{LockedPlace, Mode, NOBODY};
use super::route;
use super::stop::Watch;
use super::wait::{Granted, Purpose, Waiter, Waiting};
use super::wanted::Wanted;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::Shown;
use crate::partition::Partition;
use crate::store::{Inner, Store};

/// How to read or take.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// How long to wait for an entry; `None` is not at all.
    pub wait: Option<Duration>,
    /// Only wait while there is an entry that is locked by a transaction. Reading outside of transactions never does: it shows what
    /// was committed last.
    pub if_exists: bool,
    /// For a take by id: only if the entry has this version.
    pub version: Option<Position>,
    /// When a take's answer comes; `None` is as the store does.
    pub durability: Option<Durability>,
    /// Ends the waiting from elsewhere, as if the time were over.
    pub cancel: Option<Cancel>,
}

/// How long who waits for a lock waits before looking whether something else is free.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What is looked for, by whom, and for how long.
#[derive(Clone, Copy)]
struct Asked<'a> {
    wanted: &'a Wanted,
    options: &'a ReadOptions,
    purpose: Purpose,
    watch: &'a Watch<'a>,
}

/// What was found in one partition.
enum Look {
    Got(Granted),
    /// An entry is there, and locked by a transaction.
    Locked(LockedPlace),
    Nothing,
}

pub(crate) fn is_visible(found: &Found<'_>, now_ms: u64) -> bool {
    found.expires_ms() == 0 || found.expires_ms() > now_ms
}

/// Has those look again who wait for locks.
struct LooksAgain(Store);

impl Wake for LooksAgain {
    fn wake(self: Arc<Self>) {
        self.0.inner().spaces.locks.look_again();
    }
}

impl Entries {
    /// Reads one entry; blocks as long as [`ReadOptions::wait`] says while there is none. Of a type with an order the first.
    ///
    /// # Errors
    /// `Invalid`; `Unavailable` when what it would show cannot be made durable; `Closed`.
    pub fn read(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Entry>> {
        self.get(wanted, options, Purpose::Read(NOBODY))
    }

    /// Reads one entry and removes it, atomically: of all who take, one gets it. Blocks as long as [`ReadOptions::wait`]
    /// says while there is none; those who wait are served in the order in which they came.
    ///
    /// # Errors
    /// As [`Entries::read`]; `Conflict` when the entry has another version.
    pub fn take(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Option<Entry>> {
        self.get(wanted, options, Purpose::Take)
    }

    fn get(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Option<Entry>> {
        // Readers do not: it cost up to a third of the reads of twenty threads, and their longest pause fell by no more.
        if let Purpose::Take = purpose {
            self.give_way(options.durability);
        }
        let durability = options.durability.filter(|_| matches!(purpose, Purpose::Take));
        let granted = self.told(self.find_or_wait(wanted, options, purpose), durability)?;
        let position = match &granted {
            Some(granted) => granted.position,
            None => Some(self.absence(wanted)?).filter(|position| *position != Position::ZERO),
        };
        if let Some(position) = position {
            match purpose {
                Purpose::Take => self.settle_change(position, options.durability)?,
                _ => self.store.settle(Shown { value: (), position })?,
            }
        }
        Ok(granted.map(|granted| granted.entry.into()))
    }

    /// One entry, without waiting for it or for durability: what the answer rests on is beside it, that there is none too, and of a refusal
    /// with the [error](Error::rests_on).
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn take_shown(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Shown<Option<Entry>>> {
        self.get_shown(wanted, options, Purpose::Take)
    }

    /// As [`Entries::take_shown`], and leaves the entry.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_shown(&self, wanted: &Wanted, options: &ReadOptions) -> Result<Shown<Option<Entry>>> {
        self.get_shown(wanted, options, Purpose::Read(NOBODY))
    }

    fn get_shown(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Shown<Option<Entry>>> {
        Ok(match self.find_or_wait(wanted, &ReadOptions { wait: None, ..options.clone() }, purpose)? {
            Some(granted) => {
                let Shown { value, position } = shown(granted);
                Shown { value: Some(value), position }
            }
            None => Shown { value: None, position: self.absence(wanted)? },
        })
    }

    /// What an answer rests on that none was there of what is wanted, of who has just looked: whatever last went where it would be. That may
    /// not be durable yet, and without it the entry would be there again after a crash.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn absence(&self, wanted: &Wanted) -> Result<Position> {
        self.check()?;
        if !self.is_durable() {
            return Ok(Position::ZERO);
        }
        let partitions = route::of_wanted(self.inner(), &self.kind.definition(), wanted)?;
        Ok(partitions.iter().map(|it| it.space().gone(self.kind.of)).max().unwrap_or_default())
    }

    pub(crate) fn find_or_wait(
        &self,
        wanted: &Wanted,
        options: &ReadOptions,
        purpose: Purpose,
    ) -> Result<Option<Granted>> {
        self.check()?;
        wanted.check_unordered("reading or taking one entry")?;
        let found = self.look(wanted, options, purpose)?;
        let (Some(wait), Look::Nothing | Look::Locked(_)) = (options.wait, &found) else {
            return Ok(if let Look::Got(granted) = found { Some(granted) } else { None });
        };
        let deadline = self.inner().clock.now().after(wait);
        if options.if_exists {
            return self.once_unlocked(found, deadline, (wanted, options, purpose));
        }
        let waiter = self.enqueue(wanted, options, purpose)?;
        let locks = &self.inner().spaces.locks;
        // Of one entry alone it is known that nothing but the end of its lock helps.
        let waits_for = match (&found, purpose) {
            (Look::Locked(at), Purpose::Lock(holder, _)) if self.is_of_one(wanted) => Some((holder, *at)),
            _ => None,
        };
        if let Some((holder, at)) = waits_for
            && let Err(error) = locks.begin_waiting(holder, at)
        {
            self.kind.waiters.leave(&waiter);
            return waiter.close().unwrap_or(Err(error)).map(Some);
        }
        if let Some(cancel) = &options.cancel {
            cancel.enter(&waiter);
        }
        let granted = waiter.wait(Some(deadline.since(self.inner().clock.now())));
        self.kind.waiters.leave(&waiter);
        if let Some((holder, _)) = waits_for {
            locks.end_waiting(holder);
        }
        if let Some(cancel) = &options.cancel {
            cancel.leave(&waiter);
        }
        granted.transpose()
    }

    /// Whether no more than one entry can be the one that is wanted.
    fn is_of_one(&self, wanted: &Wanted) -> bool {
        wanted.id.is_some() && (wanted.routing.is_some() || self.kind.definition().routed_by().is_none())
    }

    /// Waits while an entry is there and locked.
    fn once_unlocked(
        &self,
        mut found: Look,
        deadline: Time,
        (wanted, options, purpose): (&Wanted, &ReadOptions, Purpose),
    ) -> Result<Option<Granted>> {
        let locks = &self.inner().spaces.locks;
        let is_canceled = || options.cancel.as_ref().is_some_and(Cancel::is_canceled);
        let waker = Waker::from(Arc::new(LooksAgain(self.store.clone())));
        let known = options.cancel.as_ref().map(|cancel| (cancel, cancel.wake_with(&waker)));
        let mut wait = || -> Result<Option<Granted>> {
            while let Look::Locked(at) = found {
                if is_canceled() {
                    return Ok(None);
                }
                let left = deadline.since(self.inner().clock.now());
                // Another that is wanted may be let go of, or come.
                let until_a_look = left.min(LOOK_INTERVAL);
                match locks.wait_while((purpose.holder(), at, mode(purpose)), until_a_look, &|| !is_canceled()) {
                    Err(error) if error.kind() == ErrorKind::Timeout && left <= LOOK_INTERVAL => return Ok(None),
                    Err(error) if error.kind() == ErrorKind::Timeout => locks.check(purpose.holder())?,
                    waited => waited?,
                }
                found = self.look(wanted, options, purpose)?;
            }
            Ok(if let Look::Got(granted) = std::mem::replace(&mut found, Look::Nothing) { Some(granted) } else { None })
        };
        let waited = wait();
        if let Some((cancel, number)) = known {
            cancel.forget(number);
        }
        waited
    }

    /// Waits in the queue, and looks once more: what came between the look and the queue is not missed.
    fn enqueue(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Arc<Waiter>> {
        let waiter = Waiter::new(wanted.kept(&self.store)?, purpose);
        let definition = self.kind.definition();
        // Before it enters: who is refused must not stay in the queue, where entries would be taken for nobody.
        let partitions = route::of_wanted(self.inner(), &definition, wanted)?;
        self.kind.waiters.enter(Arc::clone(&waiter));
        // Who closed the store, or dropped the type, before this has not seen it.
        self.check().inspect_err(|_| self.kind.waiters.leave(&waiter))?;
        let watch = self.watch_for(wanted);
        let asked = Asked { wanted, options, purpose, watch: &watch };
        for partition in partitions {
            let mut engine = partition.space();
            // Whoever grants holds the partition, so that nothing is granted twice.
            let is_over = waiter.offer(|| match self.look_locked(&definition, partition, &mut engine, asked) {
                Ok(Look::Got(granted)) => Some(Ok(granted)),
                Ok(Look::Locked(_) | Look::Nothing) => None,
                Err(error) => Some(Err(error)),
            });
            if is_over {
                break;
            }
        }
        Ok(waiter)
    }

    /// Reads or takes one entry in whatever runtime polls the future, which waits until there is one. Dropping it stops
    /// waiting; an entry that was taken by then and not handed out is written back.
    ///
    /// The answer is not waited for to be durable: what it rests on is beside it.
    ///
    /// # Errors
    /// As [`Entries::take`].
    pub fn waiting(
        &self,
        wanted: &Wanted,
        takes: Taking,
    ) -> Result<impl Future<Output = Result<Shown<Entry>>> + Send + use<>> {
        self.check()?;
        wanted.check_unordered("reading or taking one entry")?;
        let purpose = if takes == Taking::Take { Purpose::Take } else { Purpose::Read(NOBODY) };
        let waiter = self.enqueue(wanted, &ReadOptions::default(), purpose)?;
        let (this, left) = (self.clone(), Arc::clone(&waiter));
        let stop = move |granted: Option<Result<Granted>>| {
            this.kind.waiters.leave(&left);
            if let (Some(Ok(granted)), Purpose::Take) = (granted, purpose) {
                this.give_back(&granted.entry);
            }
        };
        let waiting = Waiting { waiter, stop: Some(Box::new(stop)) };
        Ok(async move { waiting.await.map(shown) })
    }

    /// Writes back what was taken for somebody who is gone, unless another entry has its place by now.
    fn give_back(&self, entry: &Stored) {
        let definition = self.kind.definition();
        let Ok(partition) = route::of_document(self.inner(), &definition, &entry.document) else { return };
        let mut engine = partition.space();
        let is_there = entry.document.get(&definition.id).and_then(|id| engine.find_id(self.kind.of, id)).is_some();
        if is_there || engine.check_unique(self.kind.of, &entry.document).is_err() {
            return;
        }
        let (document, expires_ms) = (entry.document.clone(), entry.expires_ms);
        let what = What::Write { document, expires_ms, over: Over::Any };
        // A store that refuses writes is reopened, and has the taking or not.
        if self.inner().change_space(&self.kind, partition, &mut engine, &what).is_ok()
            && let Some(id) = entry.document.get(&definition.id)
            && let Some(place) = engine.find_id(self.kind.of, id)
        {
            self.inner().offer(&self.kind, partition, &mut engine, place);
        }
    }

    /// Who wants an entry by its id goes through nothing, and need not ask the clock.
    fn watch_for(&self, wanted: &Wanted) -> Watch<'_> {
        if wanted.id.is_some() { Watch::never(&*self.inner().clock) } else { self.watch() }
    }

    /// Looks in all partitions where an entry may be, those first whose turn it is.
    fn look(&self, wanted: &Wanted, options: &ReadOptions, purpose: Purpose) -> Result<Look> {
        let definition = self.kind.definition();
        let partitions = route::of_wanted(self.inner(), &definition, wanted)?;
        let first =
            if partitions.len() > 1 { self.kind.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) } else { 0 };
        let (behind, front) = partitions.split_at(first % partitions.len().max(1));
        let watch = self.watch_for(wanted);
        let asked = Asked { wanted, options, purpose, watch: &watch };
        let mut locked = None;
        for partition in front.iter().chain(behind) {
            match self.look_locked(&definition, partition, &mut partition.space(), asked)? {
                Look::Got(granted) => return Ok(Look::Got(granted)),
                Look::Locked(at) => locked = Some(at),
                Look::Nothing => {}
            }
        }
        Ok(locked.map_or(Look::Nothing, Look::Locked))
    }

    fn look_locked(
        &self,
        definition: &Definition,
        partition: &Partition,
        engine: &mut Engine,
        asked: Asked<'_>,
    ) -> Result<Look> {
        self.inner().look_locked((&self.kind, definition), partition, engine, asked)
    }
}

impl Inner {
    /// Gives those who wait for entries of the type what there is for them in a partition, in their order. For types with an
    /// order of their own: there the end of one entry makes another free, which nobody wrote or let go of.
    pub(crate) fn serve(&self, kind: &Kind, partition: &Partition, engine: &mut Engine) {
        if !kind.waiters.any() {
            return;
        }
        let definition = kind.definition();
        let options = ReadOptions::default();
        let watch = Watch::never(&*self.clock);
        kind.waiters.retain(|waiter| {
            !waiter.offer(|| {
                let (wanted, purpose) = (&waiter.wanted, waiter.purpose);
                let asked = Asked { wanted, options: &options, purpose, watch: &watch };
                match self.look_locked((kind, &definition), partition, engine, asked) {
                    Ok(Look::Got(granted)) => Some(Ok(granted)),
                    // A partition that cannot be used says so to whoever looks next; others may still serve this one.
                    Ok(Look::Locked(_) | Look::Nothing) | Err(_) => None,
                }
            })
        });
    }

    /// Looks in a partition that is locked.
    fn look_locked(
        &self,
        (kind, definition): (&Kind, &Definition),
        partition: &Partition,
        engine: &mut Engine,
        Asked { wanted, options, purpose, watch }: Asked<'_>,
    ) -> Result<Look> {
        let inner = self;
        partition.check()?;
        let who = purpose.holder();
        let mode = mode(purpose);
        let is_durable = definition.storage == Storage::Durable;
        // What a transaction has locked is here as it was committed last: who only reads that is in nobody's way.
        let only_reads = matches!(purpose, Purpose::Read(_));
        let (mut place, mut entry, mut locked) = (None, None, None);
        let mut consider = |here: Place, sequence: u64, is_locked: bool| {
            let at = LockedPlace { partition: partition.id, place: here, sequence };
            if is_locked && !only_reads && inner.spaces.locks.is_in_the_way(who, at, mode) {
                locked = Some(at);
                return ControlFlow::Continue(());
            }
            place = Some(here);
            ControlFlow::Break(())
        };
        match &wanted.id {
            Some(id) => {
                let found = engine.find_id(kind.of, id.scalar());
                let found = found.and_then(|place| Some((place, engine.get(place)?)));
                if let Some((place, stored)) = found
                    && (stored.expires_ms == 0 || stored.expires_ms > inner.clock.wall_ms())
                    && wanted.matches(definition, stored.document.fields())
                {
                    if options.version.is_some_and(|version| version != stored.version) {
                        let rests_on = if is_durable { stored.version } else { Position::ZERO };
                        let text = "the entry has another version: read it again";
                        return Err(Error::new(ErrorKind::Conflict, text).resting_on(rests_on));
                    }
                    if !only_reads && engine.is_held(place, who) {
                        return Ok(Look::Nothing);
                    }
                    let _ = consider(place, stored.sequence, engine.is_locked(place));
                    entry = Some(stored);
                }
            }
            None => {
                let by = if only_reads { EVERYBODY } else { who };
                let (now_ms, go_on) = (inner.clock.wall_ms(), || watch.go_on());
                let search = Search { of: kind.of, filter: &wanted.filter, by, first: None, go_on: &go_on };
                // Who has locked an entry to write or take it holds its group; who only reads it under a lock does not, and nobody
                // takes what stands behind it all the same.
                let groups = if let Order::Groups(path) = &definition.order { Some(path) } else { None };
                let mut stand_still = BTreeSet::new();
                let _ = engine.find(search, &mut |found| {
                    let fields = found.document().fields();
                    if !is_visible(&found, now_ms) || !wanted.names(definition, fields) {
                        return ControlFlow::Continue(());
                    }
                    let group = groups.filter(|_| found.is_locked() || !stand_still.is_empty());
                    let group = group.map(|path| key_of(path.first(fields)));
                    if group.as_ref().is_some_and(|group| stand_still.contains(group)) {
                        return ControlFlow::Continue(());
                    }
                    let passed = consider(found.place, found.sequence(), found.is_locked());
                    if passed.is_continue() {
                        stand_still.extend(group);
                    }
                    passed
                });
            }
        }
        let Some(place) = place else {
            // It may not have looked at all of them.
            watch.check()?;
            return Ok(locked.map_or(Look::Nothing, Look::Locked));
        };
        let Some(entry) = entry.or_else(|| engine.get(place)) else { return Ok(Look::Nothing) };
        let mut rests_on = entry.version;
        match purpose {
            Purpose::Read(_) => {
                engine.touch(place);
                if definition.order != Order::Any {
                    // That it is the first.
                    rests_on = rests_on.max(engine.gone(kind.of));
                }
            }
            Purpose::Take => {
                let id = entry.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                let what = What::Remove { id, reason: Reason::Taken };
                rests_on = inner.change_space(kind, partition, engine, &what)?;
                if wanted.id.is_none() {
                    // Other partitions have their turn before, and meanwhile it comes.
                    engine.fetch_first_ahead(kind.of);
                }
            }
            Purpose::Lock(holder, mode) => {
                let at = LockedPlace::of(engine, partition.id, place);
                if inner.lock_entry(holder, at, mode, engine).is_none() {
                    return Ok(Look::Locked(at));
                }
            }
        }
        Ok(Look::Got(Granted { entry, position: is_durable.then_some(rests_on), partition: partition.id }))
    }
}

/// Whether who waits for an entry leaves it or takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// It stays.
    Read,
    /// It is removed.
    Take,
}

fn shown(granted: Granted) -> Shown<Entry> {
    Shown { value: granted.entry.into(), position: granted.position.unwrap_or_default() }
}

/// What must not stand in the way.
fn mode(purpose: Purpose) -> Mode {
    match purpose {
        Purpose::Read(_) => Mode::Shared,
        Purpose::Take => Mode::Exclusive,
        Purpose::Lock(_, mode) => mode,
    }
}
