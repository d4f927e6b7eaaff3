//! The store's background work, one step at a time, and the threads that run the steps.
//!
//! The loops: the journal's (syncs that are due, segments), which must be prompt, the ledgers' (writing out, expiry),
//! which may take long, compaction's, which takes as long as its rate says, those of spaces, series, and the scrubber, and that which makes memory large pages. Without threads the same steps are called through [`Store::step`].
//!
//! May use: partitions, `journal`. Must not know: protocols.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{LargePages, Signal, Worker};
use journal::{Level, Log};
use xa::Stepped;

use crate::compaction::LOOK_INTERVAL;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::Exclusive;
use crate::partition::Partition;
use crate::scrub;
use crate::store::{Inner, Store};

/// How often expiry is looked at when nothing else wakes the loop.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);

/// Starts the body of a thread of this name.
pub(crate) type Spawn<'a> = dyn Fn(&'static str, Box<dyn FnOnce() + Send>) -> std::io::Result<Worker> + 'a;

/// Starts the loops, and hands over each as soon as it runs: also if there is no thread for the next, it has to be told to end. They
/// end when `inner.stopping` is set and all signals are raised.
pub(crate) fn start(inner: &Arc<Inner>, spawn: &Spawn<'_>, workers: &mut Vec<Worker>) -> Result<()> {
    let failed = |error: std::io::Error| Error::new(ErrorKind::Unavailable, format!("no thread to be had: {error}"));
    let mut begin = |name: &'static str, body: fn(&Inner)| -> Result<()> {
        let inner = Arc::clone(inner);
        workers.push(spawn(name, Box::new(move || body(&inner))).map_err(failed)?);
        Ok(())
    };
    begin("holdfast-journal", |inner| run(inner, &inner.journal_wake, None, journal_step))?;
    begin("holdfast-ledger", |inner| {
        base::stand_back();
        run(inner, &inner.ledger_wake, Some(EXPIRY_INTERVAL), ledger_step);
    })?;
    begin("holdfast-compact", |inner| {
        base::stand_back();
        run(inner, &inner.compaction_wake, None, compaction_step);
    })?;
    begin("holdfast-space", |inner| run(inner, &inner.space_wake, None, |inner| Some(inner.step_spaces())))?;
    begin("holdfast-snapshots", |inner| {
        // A snapshot of a partition is tens of milliseconds of work. Writers that give way to each other would wait for all of it.
        base::stand_back();
        run(inner, &inner.spaces.snapshot_wake, None, |inner| Some(inner.step_snapshots()));
    })?;
    begin("holdfast-series", |inner| {
        base::stand_back();
        run(inner, &inner.series_wake, None, |inner| Some(inner.step_series()));
    })?;
    begin("holdfast-merge", |inner| {
        base::stand_back();
        run(inner, &inner.merge_wake, None, |inner| Some(inner.step_merge()));
    })?;
    if inner.options.scrub_bytes_per_second > 0 {
        begin("holdfast-scrub", scrub::run)?;
    }
    if inner.options.large_pages {
        // Nothing needs them.
        let _ = begin("holdfast-pages", make_large_pages);
    }
    Ok(())
}

/// The disk is low when less than this is left, and twice what ledgers hold in memory.
const LOW_DISK_BYTES: u64 = 64 << 20;
/// Then a ledger may hold so much in memory: all of them no more than what compaction spends of the spare space on them.
const LOW_DISK_MEMORY_BYTES: u64 = 16 << 10;

fn run(inner: &Inner, wake: &Signal, at_least: Option<Duration>, step: impl Fn(&Inner) -> Option<Duration>) {
    while !inner.stopping.load(Ordering::Acquire) {
        let again = step(inner);
        let timeout = [again, at_least].into_iter().flatten().min();
        match timeout {
            // Another step, but not before others had a turn: steps keep a processor busy.
            Some(Duration::ZERO) => base::yield_now(),
            timeout => {
                wake.wait(timeout);
            }
        }
    }
}

/// Makes large pages of the process's memory until `inner.stopping` is set and the signal is raised, or there are none to be had.
fn make_large_pages(inner: &Inner) {
    base::stand_back();
    let Some(mut pages) = LargePages::new() else { return };
    rest_between(&inner.pages_wake, &inner.stopping, |rest| {
        // What fails now, for lack of a descriptor, may not later.
        pages.step(rest).unwrap_or(Some(LargePages::LOOK_INTERVAL))
    });
}

/// Calls `step` until it returns `None` or `stopping` is set and the signal raised, and rests in between as long as it says. It may rest within, too,
/// and is told whether to go on.
fn rest_between(
    wake: &Signal,
    stopping: &AtomicBool,
    mut step: impl FnMut(&dyn Fn(Duration) -> bool) -> Option<Duration>,
) {
    let goes_on = || !stopping.load(Ordering::Acquire);
    let rest = |pause| {
        // The signal is raised once, and lowered by whoever waits for it first.
        if goes_on() {
            wake.wait(Some(pause));
        }
        goes_on()
    };
    while let Some(next) = step(&rest) {
        if !rest(next) {
            break;
        }
    }
}

/// Runs what the journal has to do; returns when to come back.
fn journal_step(inner: &Inner) -> Option<Duration> {
    let now = inner.clock.now();
    // A failure has poisoned the journal, and every writer is told; there is nothing more to do here.
    let next = inner.told(&inner.jobs.journal, inner.journal.step(now).map_err(Error::from)).ok().flatten()?;
    Some(next.since(inner.clock.now()))
}

/// Writes out the ledgers that are due, removes what has expired, and ends what took too long; returns when to come back.
fn ledger_step(inner: &Inner) -> Option<Duration> {
    for partition in &inner.partitions {
        // A partition that cannot be rebuilt says so to whoever asks for it.
        let _ = inner.heal(partition);
    }
    // A damaged ledger is noted by `write_out`; a poisoned journal tells its writers.
    let _ = inner.told(&inner.jobs.ledgers, inner.write_out_due().and_then(|()| inner.settle_due()));
    let removed = inner.told(&inner.jobs.expiry, inner.remove_expired()).unwrap_or(0);
    let stepped = inner.step_xa().unwrap_or(Stepped::All);
    (removed >= inner.options.limits.expiry_batch_max || stepped == Stepped::More).then_some(Duration::ZERO)
}

/// Does a piece of compaction; returns when to come back.
fn compaction_step(inner: &Inner) -> Option<Duration> {
    // What failed stays as it was, and is tried again: a full disk may have space by then.
    Some(inner.compact_and_tell().unwrap_or(LOOK_INTERVAL))
}

impl Inner {
    /// A step of compaction. That a piece was moved is no news: what fails may be the end of its segment, again and again.
    fn compact_and_tell(&self) -> Result<Duration> {
        if self.compactor.is_held() {
            return Ok(LOOK_INTERVAL);
        }
        let before = self.compactor.stats().segments;
        let stepped = self.compact_step();
        if stepped.is_ok() && self.compactor.stats().segments == before {
            return stepped;
        }
        self.told(&self.jobs.compaction, stepped)
    }

    /// Whether the disk has so little left that what ledgers hold in memory is to be written out while there is room for it. On a full disk
    /// segments of which nothing lives could not go: after a crash the ledgers would be replayed from them.
    fn is_disk_low(&self) -> bool {
        let memory: u64 = self.partitions.iter().map(|partition| partition.reader.memory_bytes()).sum();
        self.journal.free_bytes().is_some_and(|free| free < LOW_DISK_BYTES + 2 * memory)
    }

    /// Whether a partition's ledger holds so much, or lags so far behind, that it is to be written out.
    fn is_due(&self, partition: &Partition, is_disk_low: bool) -> bool {
        let limits = &self.options.limits;
        let memory = partition.reader.memory_bytes();
        if is_disk_low && memory > LOW_DISK_MEMORY_BYTES {
            return true;
        }
        let persisted = partition.reader.persisted().unwrap_or_default();
        let lag = self.journal.watermarks().appended.get().saturating_sub(persisted.get());
        memory >= limits.ledger_memory_bytes.min(limits.ledger_memory_bytes_max) || lag >= limits.replay_bytes_max / 2
    }

    /// Writes out the ledgers that are due, that with most in memory first, each once.
    ///
    /// # Errors
    /// The first failure; the others are written out all the same.
    fn write_out_due(&self) -> Result<()> {
        // Also when nothing is due: until then the transactions are in memory only.
        let mut outcome = self.meet_damage();
        let mut left: Vec<&Partition> = self.partitions.iter().collect();
        let is_disk_low = self.is_disk_low();
        // Looked at anew each time: while one is written out the others go on.
        while let Some((at, _)) = left
            .iter()
            .enumerate()
            .filter(|(_, partition)| self.is_due(partition, is_disk_low))
            .max_by_key(|(_, partition)| partition.reader.memory_bytes())
        {
            let partition = left.swap_remove(at);
            let written = match self.check_spare() {
                Ok(()) => self.write_out(partition),
                full => full.inspect_err(|error| partition.room.tried(&Err(error.clone()))),
            };
            outcome = outcome.and(written);
        }
        outcome
    }

    /// Merges in ledgers that were not written out for a while, so that ranges and folds look at less. Comes after what is due.
    fn settle_due(&self) -> Result<()> {
        let now = self.clock.now();
        let due = self.partitions.iter().filter(|partition| partition.is_to_settle(now));
        due.map(|partition| self.settle(partition)).fold(Ok(()), Result::and)
    }

    fn settle(&self, partition: &Partition) -> Result<()> {
        // Nothing depends on it: what little is left of a disk is for others.
        if self.stopping.load(Ordering::Acquire) || self.is_disk_low() || self.check_spare().is_err() {
            return Ok(());
        }
        let _one = partition.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        partition.check()?;
        Ok(partition.reader.settle()?)
    }

    /// Refuses to write files beside the journal while its spare space is missing: what is left of the disk is for compaction and for
    /// opening, which would not find it again.
    pub(crate) fn check_spare(&self) -> Result<()> {
        if self.journal.has_spare() {
            return Ok(());
        }
        Err(journal::Error::DiskFull { path: self.dir().to_owned() }.into())
    }

    /// Writes out a partition's ledger, after the journal is on stable storage up to there.
    pub(crate) fn write_out(&self, partition: &Partition) -> Result<()> {
        let outcome = self.try_write_out(partition);
        partition.room.tried(&outcome);
        outcome
    }

    /// Writes out, when the store closes, what opening would have to replay. A full disk is no failure then, and is told: the journal
    /// has all of it.
    pub(crate) fn write_out_all_at_last(&self) -> Result<()> {
        let unwritten = || self.partitions.iter().filter(|partition| partition.reader.memory_bytes() > 0);
        let ledgers = || unwritten().map(|partition| self.write_out_at_last(partition)).fold(Ok(()), Result::and);
        let outcome = self
            .check_spare()
            .and_then(|()| [self.close_spaces(), self.close_series(), ledgers()].into_iter().fold(Ok(()), Result::and));
        let is_full = || !self.journal.has_spare() || self.journal.is_short_of_space();
        match outcome {
            Err(error) if error.kind() == ErrorKind::Unavailable && is_full() => {
                self.tell(&format!(
                    "the disk is full: the store closed without writing out all that is in the journal; nothing is lost, and the next \
                     opening replays it, which takes longer: {error}"
                ));
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn tell(&self, text: &str) {
        self.options.tell(text);
    }

    /// As [`Inner::write_out`], when the store closes. A ledger that is damaged, or that lacks a change, is no failure then: it
    /// is derived, and opening replays or rebuilds it from the journal, which has all of it. That is told.
    fn write_out_at_last(&self, partition: &Partition) -> Result<()> {
        let Err(error) = self.write_out(partition) else { return Ok(()) };
        if !(partition.reader.is_damaged() || partition.check().is_err()) || error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        self.tell(&format!(
            "keys: a ledger could not be written out when the store closed; nothing is lost, and the next opening rebuilds it from the \
             journal, which takes longer: {error}"
        ));
        Ok(())
    }

    fn try_write_out(&self, partition: &Partition) -> Result<()> {
        let _one = partition.writing_out.lock().unwrap_or_else(PoisonError::into_inner);
        partition.check()?;
        {
            let mut engine = partition.lock();
            // Under the partition's lock nothing of it is on its way, so everything to come is at or behind this.
            engine.rotate(self.journal.watermarks().appended);
        }
        // Damage that the ledger has passed is known by now. Should it be rebuilt from here on, what was rotated is gone.
        self.meet_damage()?;
        self.journal.wait(self.newest(), Level::Synced)?;
        // A failure loses nothing: what was not written out stays in memory, and in the journal. A full disk is tried
        // again; a damaged ledger has condemned itself.
        partition.reader.write_out()?;
        partition.unsettle(self.clock.now());
        // Nothing depends on it: what little is left of a disk is for others.
        if self.is_disk_low() || self.check_spare().is_err() {
            return Ok(());
        }
        Ok(partition.reader.merge()?)
    }

    /// Removes objects that have expired, as ordinary batches; returns how many were looked at.
    pub(crate) fn remove_expired(&self) -> Result<usize> {
        let now_ms = self.clock.wall_ms();
        let max = self.options.limits.expiry_batch_max;
        let mut looked_at = 0;
        for partition in &self.partitions {
            // One partition in trouble does not keep the others from forgetting.
            let Ok(expired) = partition.reader.expired(now_ms, max) else { continue };
            if partition.check().is_err() {
                continue;
            }
            for (bucket, key) in &expired {
                let mut exclusive = Exclusive::open_at_once(self, bucket, key)?;
                if exclusive.delete_expired(bucket, key, now_ms)? {
                    exclusive.commit()?;
                    self.expired.fetch_add(1, Ordering::Relaxed);
                }
            }
            looked_at += expired.len();
        }
        Ok(looked_at)
    }
}

impl Store {
    /// Does the background work that is due: for stores that were opened without threads.
    ///
    /// # Errors
    /// The failure of a write or sync.
    pub fn step(&self) -> Result<()> {
        let inner = self.inner();
        inner.told(&inner.jobs.journal, inner.journal.step(inner.clock.now()).map_err(Error::from))?;
        // Each in its turn, whatever became of those before: on a full disk compaction is what helps.
        let ledgers = inner.told(&inner.jobs.ledgers, inner.write_out_due().and_then(|()| inner.settle_due()));
        let expired = inner.told(&inner.jobs.expiry, inner.remove_expired());
        let xa = inner.step_xa();
        inner.step_spaces();
        inner.step_snapshots();
        inner.step_series();
        inner.step_merge();
        let compacted = inner.compact_and_tell();
        ledgers.and(expired.map(drop)).and(xa.map(drop)).and(compacted.map(drop))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;

    use super::*;
    use crate::{Limits, Options, World};

    /// Those that had been started were waited for, and nobody told them to end: opening did not return, and held the folder.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a thread that may hang is not to be waited for")]
    fn a_store_that_gets_no_more_threads_says_so_and_lets_go_of_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let options = || Options { limits: Limits::tiny(), ..Options::default() };
        let (tell, told) = mpsc::channel();
        let opening = std::thread::spawn(move || {
            for threads in 0..7usize {
                let left = Cell::new(threads);
                let spawn: &Spawn<'_> = &|name, body| match left.replace(left.get().saturating_sub(1)) {
                    0 => Err(std::io::ErrorKind::WouldBlock.into()),
                    _ => Worker::start(name, body),
                };
                let world = World::real(&path, &options().limits);
                tell.send(Store::open_with(&world, &path, options(), spawn).err().unwrap()).unwrap();
            }
            tell.send(Store::open(&path, options()).err().unwrap_or(Error::new(ErrorKind::Closed, "it opens")))
                .unwrap();
        });
        for _ in 0..7 {
            let error = told.recv_timeout(Duration::from_secs(60)).expect("opening does not return");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("no thread to be had"), "{error}");
        }
        assert_eq!(told.recv().unwrap().to_string(), "it opens");
        opening.join().unwrap();
    }

    /// Who was told to end while it rested within a step rested once more, a second and longer, and whoever closed the store waited.
    #[test]
    fn a_rest_that_is_broken_off_is_the_last() {
        let (wake, stopping) = (Signal::new(), AtomicBool::new(false));
        let rests = Cell::new(0);
        rest_between(&wake, &stopping, |rest| {
            assert!(rest(Duration::ZERO));
            stopping.store(true, Ordering::Release);
            wake.raise();
            rests.set(rests.get() + 1);
            // Neither of these ever ends by itself.
            assert!(!rest(Duration::from_secs(1 << 20)));
            Some(Duration::from_secs(1 << 20))
        });
        assert_eq!(rests.get(), 1);
    }

    #[test]
    fn a_store_that_makes_large_pages_opens_works_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), Options { large_pages: true, ..Options::default() }).unwrap();
        store.kv().put(b"b", b"k", b"v", &crate::PutOptions::default()).unwrap();
        store.close().unwrap();
    }
}
