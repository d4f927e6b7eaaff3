//! The coordinator's table within a store: loaded from its records, changed by batches that hold them.
//!
//! Order of locks: partitions, then the table, then the journal. Nobody waits for a sync under the table's lock.
//!
//! A request looks at the table first. If there is something to write it takes the locks of the partitions where those
//! records lie, and asks the table again, because both may have changed meanwhile: what it says then is written, and
//! becomes so, before the table's lock is released. So an answer never overtakes what it contradicts.
//!
//! May use: `xa`, exclusive access. Must not know: protocols.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use ::kv::{FoldRange, Reading, Stored};
use ::xa::{
    AbortReason, Answer, BranchName, CoordinatorId, Learned, Lease, MalformedRecord, Needs, Now, Outcome, OwnerId,
    Patience, Plan, Record, RecordKey, Stepped, Table, TableError, TransactionId,
};
use base::Limits;
use journal::{Damage, DamageKind, Level, Log, Position};

use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Committed, Exclusive};
use crate::partition::Partition;
use crate::staged::Change;
use crate::store::{Inner, lock};

/// Where the records lie.
pub(crate) const BUCKET: &[u8] = b"\0xa";
/// Most records that one background batch changes.
const STEP_CHANGES_MAX: usize = 32;
/// Transactions whose branches have learned, that share one batch.
const DONE_MAX: usize = 32;
/// Most background batches in a row.
const STEPS_MAX: usize = 16;
/// How often a request takes other locks because the table has changed meanwhile.
const ATTEMPTS_MAX: usize = 32;

/// The table, and the owner that is this process.
pub(crate) struct Coordinator {
    pub(crate) id: CoordinatorId,
    table: Mutex<Table>,
    /// Why its records could not be read, if they could not: nothing can be answered then.
    failed: OnceLock<Error>,
    pub(crate) own: Mutex<Option<Own>>,
    /// The newest batch of records, for which nobody may wait.
    appended: AtomicU64,
    /// What branches have learned and is not written yet: many share one batch, because nobody waits for it.
    done: Mutex<BTreeMap<TransactionId, BTreeSet<BranchName>>>,
    /// Held while some of that is written.
    writing_done: Mutex<()>,
    /// Damaged ranges of the journal that the table was told of. Held until it is told; before the table's lock.
    damaged: Mutex<usize>,
}

/// The owner that is this process, and the transactions it has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    pub(crate) owner: OwnerId,
    pub(crate) begun: u64,
}

/// A transaction that is decided with a batch.
#[derive(Debug, Clone)]
pub(crate) struct Deciding {
    pub(crate) id: TransactionId,
    pub(crate) branches: Vec<BranchName>,
}

/// Whether a writer waits while partitions have too much in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Wait,
    /// For the thread that makes room.
    AtOnce,
}

impl Coordinator {
    /// An empty one for the store with this identity.
    pub(crate) fn new(store: u128, limits: &Limits) -> Self {
        let id = CoordinatorId(base::hash64(&store.to_be_bytes()));
        let table = Table::load(id, limits, Now::default(), []).expect("no records contradict each other");
        Self {
            id,
            table: Mutex::new(table),
            failed: OnceLock::new(),
            own: Mutex::new(None),
            appended: AtomicU64::new(0),
            done: Mutex::default(),
            writing_done: Mutex::default(),
            damaged: Mutex::new(0),
        }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Table>> {
        match self.failed.get() {
            Some(error) => Err(error.clone()),
            None => Ok(lock(&self.table)),
        }
    }

    pub(crate) fn counters(&self) -> ::xa::Counters {
        lock(&self.table).counters()
    }
}

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        let kind = match error {
            TableError::Limit { .. } => ErrorKind::Limit,
            TableError::Doubtful(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string())
    }
}

/// Names the records that a plan changes.
fn keys_of<T>(plan: &Plan<T>) -> Vec<Vec<u8>> {
    let key = |change: &::xa::Change| match change {
        ::xa::Change::Put(record) => record.key().to_bytes(),
        ::xa::Change::Delete(key) => key.to_bytes(),
    };
    plan.changes().iter().map(key).collect()
}

fn read_records(partition: &Partition, into: &mut Vec<Record>) -> Result<()> {
    let all = FoldRange::all(Some(BUCKET)).bounds(Reading::Sweep);
    let mut items = partition.reader.items(&all, 0);
    while let Some(item) = items.step()? {
        let key = item.key_in(BUCKET);
        let corrupt = |error: MalformedRecord| Error::new(ErrorKind::Corrupt, error.to_string());
        let record = match partition.reader.value_of(&item) {
            Err(error @ ::kv::Error::Ledger { .. }) => return Err(error.into()),
            Err(error) => match Error::from(error) {
                error if error.kind() == ErrorKind::Corrupt => Err(error),
                error => return Err(error),
            },
            Ok(value) => Record::decode(key, &value).map_err(corrupt),
        };
        // Where a value rotted, its key still says the most important.
        into.push(record.or_else(|error| Record::of_key_alone(key).ok_or(error))?);
    }
    Ok(())
}

impl Inner {
    pub(crate) fn xa_now(&self) -> Now {
        Now { time: self.clock.now(), wall_ms: self.clock.wall_ms() }
    }

    /// Loads the table, before anybody else has the store. What is damaged is told to who needs it.
    pub(crate) fn load_xa(&self) {
        let mut records = Vec::new();
        let read = self.partitions.iter().try_for_each(|partition| {
            let before = records.len();
            read_records(partition, &mut records).or_else(|error| {
                if !partition.reader.is_damaged() {
                    return Err(error);
                }
                records.truncate(before);
                self.heal(partition)?;
                read_records(partition, &mut records)
            })
        });
        let limits = &self.options.limits;
        let table = read.and_then(|()| {
            let table = Table::load(self.coordinator.id, limits, self.xa_now(), records);
            table.map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))
        });
        let table = table.map(|mut table| {
            let (count, upto) = self.damaged();
            *lock(&self.coordinator.damaged) = count;
            table.note_damage(upto, self.xa_now());
            table
        });
        match table {
            Ok(table) => *lock(&self.coordinator.table) = table,
            Err(error) => {
                let text = format!("the coordinator of transactions cannot answer: {error}");
                let _ = self.coordinator.failed.set(Error::new(error.kind(), text));
            }
        }
    }

    /// How many damaged ranges of the journal are known that may have cost records, and where the last of them ends. A torn
    /// end of the log costs nothing that was promised.
    fn damaged(&self) -> (usize, u64) {
        let costs =
            |damage: &&Damage| matches!(damage.kind, DamageKind::Record | DamageKind::Missing | DamageKind::Chain);
        let damage = self.journal.recovery().damage;
        let costly = damage.iter().filter(costs);
        (costly.clone().count(), costly.map(|damage| damage.position.get() + damage.bytes).max().unwrap_or(0))
    }

    /// Damage that is met while the store serves may have taken records from the journal, and so from a ledger that is
    /// rebuilt from it, but not from the table: they are written once more. Damage that opening found is noted. To be called
    /// before a ledger is written out, by threads that hold no locks of partitions; until then another opening finds the same damage.
    pub(crate) fn meet_damage(&self) -> Result<()> {
        if self.coordinator.failed.get().is_some() {
            // There is no table that could be written, and what the ledgers have is of use without it.
            return Ok(());
        }
        {
            let mut known = lock(&self.coordinator.damaged);
            let (count, upto) = self.damaged();
            if *known != count {
                self.coordinator.lock()?.meet_damage(upto);
                *known = count;
            }
        }
        let changes_max = STEP_CHANGES_MAX.min(self.options.limits.batch_changes_max);
        while self.coordinator.lock()?.is_exposed() {
            let written = self.ask_xa(Room::AtOnce, |table, now| Ok(table.step(changes_max, now)))?;
            written.show(|_| Ok::<_, Error>(()))?;
        }
        Ok(())
    }

    /// Asks the table, and writes what its answer rests on. Does not wait for durability.
    pub(crate) fn ask_xa<T>(
        &self,
        room: Room,
        mut ask: impl FnMut(&mut Table, Now) -> std::result::Result<Plan<T>, TableError>,
    ) -> Result<Answer<T>> {
        self.check_open()?;
        let now = self.xa_now();
        let mut keys = {
            let mut table = self.coordinator.lock()?;
            let plan = ask(&mut table, now)?;
            if plan.changes().is_empty() {
                return Ok(table.carry_out(plan, 0));
            }
            keys_of(&plan)
        };
        for _ in 0..ATTEMPTS_MAX {
            let mut exclusive = Exclusive::open_own(self, &keys, room)?;
            let mut table = self.coordinator.lock()?;
            let plan = ask(&mut table, now)?;
            keys = keys_of(&plan);
            if keys.is_empty() {
                return Ok(table.carry_out(plan, 0));
            }
            if keys.iter().all(|key| exclusive.holds(BUCKET, key).is_ok()) {
                exclusive.stage_records(plan.changes())?;
                let (mut plan, mut answer) = (Some(plan), None);
                let committed = exclusive.commit_noting(&mut |position| {
                    self.coordinator.appended.fetch_max(position.get(), Ordering::AcqRel);
                    answer = plan.take().map(|plan| table.carry_out(plan, position.get()));
                });
                committed.map_err(|error| if answer.is_some() { Self::half_done(&error) } else { error })?;
                return answer
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "a batch was committed without a position"));
            }
        }
        Err(Error::new(ErrorKind::Conflict, "transactions change faster than can be followed; try again"))
    }

    /// Why a transaction was not committed with its batch, and what has to be synced before that is said.
    fn refused(outcome: Outcome, needs: Needs) -> Error {
        let error = match outcome {
            Outcome::Aborted(reason) => Error::new(ErrorKind::Aborted, reason.to_string()),
            Outcome::Committed => {
                let text = "the transaction is committed already, with what was changed then; nothing was changed now";
                Error::new(ErrorKind::Conflict, text)
            }
        };
        error.resting_on_synced(Position::new(needs.synced.max(needs.asked)))
    }

    /// The batch is in the journal, and so is what it decides; only the ledger does not have it.
    fn half_done(error: &Error) -> Error {
        Error::new(ErrorKind::Unknown, format!("the outcome is not known before the store is opened again: {error}"))
    }

    /// Refuses to commit a transaction, for a reason that is only certain once there is a tombstone.
    fn bury(&self, id: TransactionId, reason: AbortReason) -> Error {
        let mut needs = Needs::default();
        let answer = self.ask_xa(Room::Wait, |table, now| table.abort(id, now));
        let shown = answer.and_then(|answer| {
            answer.show(|of| {
                needs = of;
                Ok(())
            })
        });
        match shown {
            Ok(Outcome::Aborted(_)) => Self::refused(Outcome::Aborted(reason), needs),
            Ok(Outcome::Committed) => Self::refused(Outcome::Committed, needs),
            Err(error) => error,
        }
    }

    /// Notes that branches know of a decision, to be written with others. What is not decided yet has nothing to note: it
    /// would be taken for news of a decision that comes later.
    pub(crate) fn note_done(&self, id: TransactionId, news: &[Learned]) -> Result<()> {
        self.check_open()?;
        let is_full = {
            let mut table = self.coordinator.lock()?;
            if !table.is_news(id, news)? {
                return Ok(());
            }
            table.is_full()
        };
        let is_due = {
            let mut done = lock(&self.coordinator.done);
            done.entry(id).or_default().extend(news.iter().map(|news| news.branch.clone()));
            is_full || done.len() >= DONE_MAX.min(self.options.limits.batch_changes_max)
        };
        if is_due {
            // What cannot be written now is kept, and nobody waits for it.
            let _ = self.write_done(Room::Wait);
        }
        Ok(())
    }

    /// Writes what branches have learned. The thread that makes room does not wait for others who write it.
    pub(crate) fn write_done(&self, room: Room) -> Result<()> {
        let _one = match (room, self.coordinator.writing_done.try_lock()) {
            (_, Ok(one)) => one,
            (_, Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            (Room::AtOnce, Err(TryLockError::WouldBlock)) => return Ok(()),
            (Room::Wait, Err(TryLockError::WouldBlock)) => lock(&self.coordinator.writing_done),
        };
        let changes_max = self.options.limits.batch_changes_max;
        loop {
            let some = {
                let mut done = lock(&self.coordinator.done);
                let next = done.keys().nth(changes_max).copied();
                let rest = next.map(|next| done.split_off(&next)).unwrap_or_default();
                std::mem::replace(&mut *done, rest)
            };
            if some.is_empty() {
                return Ok(());
            }
            let written = self.ask_xa(room, |table, _| Ok(table.forget_all(&some)));
            written.map(drop).inspect_err(|_| {
                // A full disk may have room later.
                let mut done = lock(&self.coordinator.done);
                some.into_iter().for_each(|(id, branches)| done.entry(id).or_default().extend(branches));
            })?;
        }
    }

    /// Does what time has brought about, and has written what nobody waits for; whether more is due.
    pub(crate) fn step_xa(&self) -> Result<Stepped> {
        let stepped = self.step_table()?;
        self.write_done(Room::AtOnce)?;
        let appended = Position::new(self.coordinator.appended.load(Ordering::Acquire));
        if appended > Position::ZERO && self.journal.watermarks().written <= appended {
            self.journal.wait(appended, Level::Written)?;
        }
        Ok(stepped)
    }

    fn step_table(&self) -> Result<Stepped> {
        let changes_max = STEP_CHANGES_MAX.min(self.options.limits.batch_changes_max);
        for _ in 0..STEPS_MAX {
            let answer = self.ask_xa(Room::AtOnce, |table, now| Ok(table.step(changes_max, now)))?;
            if answer.show(|_| Ok::<(), Error>(()))? == Stepped::All {
                return Ok(Stepped::All);
            }
        }
        Ok(Stepped::More)
    }

    pub(crate) fn open_owner(&self, lease: Lease, name: &str) -> Result<Answer<OwnerId>> {
        loop {
            let answer = self.ask_xa(Room::Wait, |table, now| table.open(lease, name, now))?;
            if let Some(opened) = answer.transposed() {
                return Ok(opened);
            }
        }
    }
}

impl Exclusive<'_> {
    /// Decides to commit a distributed transaction with the batch: all branches are prepared, and either everything
    /// happens or nothing. Needs [`crate::Xa::exclusive`] of that transaction.
    ///
    /// Nothing is decided before [`Exclusive::commit`], which then fails with
    ///
    /// * `Aborted` when the transaction can never be committed: roll its branches back, once [`Error::rests_on`] is synced;
    /// * `Conflict` when it is committed already, by an earlier batch.
    ///
    /// # Errors
    /// `Invalid` or `Limit` when the request makes no sense; `Internal` outside the scope.
    pub fn decide(&mut self, id: TransactionId, branches: &[BranchName]) -> Result<()> {
        if branches.is_empty() && !id.shared {
            // It would leave no record, so the same batch sent again would happen again.
            return Err(Error::new(ErrorKind::Invalid, "a decision in a batch names at least one branch"));
        }
        if self.decisions.iter().any(|deciding| deciding.id == id) {
            let text = "the batch decides this transaction already: name all its branches at once";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.holds(BUCKET, &RecordKey::Decision(id).to_bytes())?;
        let now = self.inner.xa_now();
        // Only whether it makes sense: what it says is asked again at the commit.
        drop(self.inner.coordinator.lock()?.commit(id, branches, Patience::Over, now)?);
        self.decisions.push(Deciding { id, branches: branches.to_vec() });
        Ok(())
    }

    pub(crate) fn stage_records(&mut self, changes: &[::xa::Change]) -> Result<()> {
        for change in changes {
            match change {
                ::xa::Change::Put(record) => {
                    let stored = Stored::new(&record.value(), ::kv::Compression::None);
                    let (metadata, indexes) = Default::default();
                    let change = Change::Put { stored, metadata, indexes, expires_ms: 0 };
                    self.stage(BUCKET, &record.key().to_bytes(), change)?;
                }
                ::xa::Change::Delete(key) => self.stage(BUCKET, &key.to_bytes(), Change::Delete)?,
            }
        }
        Ok(())
    }

    /// As [`Exclusive::commit`], with decisions.
    pub(crate) fn commit_deciding(mut self) -> Result<Committed> {
        let inner = self.inner;
        let mut table = inner.coordinator.lock()?;
        let now = inner.xa_now();
        let mut plans = Vec::new();
        for Deciding { id, branches } in std::mem::take(&mut self.decisions) {
            let plan = table.commit(id, &branches, Patience::Over, now)?;
            if let Some(outcome) = plan.settled() {
                let (needs, is_certain) = (plan.needs(), plan.changes().is_empty());
                drop((table, self));
                return Err(match outcome {
                    Outcome::Aborted(reason) if !is_certain => inner.bury(id, reason),
                    outcome => Inner::refused(outcome, needs),
                });
            }
            self.stage_records(plan.changes())?;
            plans.push(plan);
        }
        let mut is_noted = false;
        let committed = self.commit_noting(&mut |position| {
            is_noted = true;
            for plan in plans.drain(..) {
                // Who commits waits for the batch's position, which is what the answer rests on.
                let _ = table.carry_out(plan, position.get());
            }
        });
        committed.map_err(|error| if is_noted { Inner::half_done(&error) } else { error })
    }
}
