//! Distributed transactions as users of a store see them: the store is a coordinator.
//!
//! What is decided is a record in the store, written in one batch with whatever the transaction changes in the store
//! itself. Resource managers are not this crate's: it decides, remembers and answers.
//!
//! May use: the coordinator's table, exclusive access. Must not know: protocols, resource managers.

use std::time::Duration;

use ::xa::{
    AbortReason, Answer, BranchName, Commit, CoordinatorId, Deed, Forgetting, Learned, Lease, Listed, Needs, Outcome,
    OwnerId, Patience, RecordKey, Resumer, Status, Taking, TransactionId, Verdict, Vote,
};
use base::Signal;
use journal::Position;

use crate::coordinator::{BUCKET, Own, Room};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::store::{Store, lock};

/// How often a commit that waits for others looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Latest deadline, in milliseconds since 1970.
const DEADLINE_MAX: u64 = (1 << 48) - 1;

/// The store as a coordinator of distributed transactions.
///
/// Not to be called by a thread that has an [`Exclusive`], which it would wait for.
///
/// Calls do not wait for durability but return a [`Pending`] answer, which does. They may wait for locks, as every writer.
#[derive(Clone, Copy)]
pub struct Xa<'a> {
    pub(crate) store: &'a Store,
}

/// An answer that may be shown once it is durable enough. Until then nobody can read it.
#[must_use = "it may be shown once it is durable enough"]
pub struct Pending<'a, T> {
    store: &'a Store,
    answer: Answer<T>,
}

/// What an answer rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestsOn {
    /// To be as durable as who asks wants it; `Position::ZERO` for nothing.
    pub asked: Position,
    /// To be synced, whatever anybody wants; `Position::ZERO` for nothing.
    pub synced: Position,
}

/// How a transaction of this process begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Begin {
    /// How long it may take until its decision; `None` for as long as the store is open.
    pub timeout: Option<Duration>,
    /// Who takes part.
    pub sharing: Sharing,
}

/// Who takes part in a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// The program that began it.
    #[default]
    Alone,
    /// Several programs: each enlists its branches, and says that they are prepared.
    Shared,
}

/// What is to be committed.
#[derive(Debug, Clone, Copy)]
pub struct CommitRequest<'a> {
    /// The transaction.
    pub id: TransactionId,
    /// Branches that are prepared, besides those that said so themselves.
    pub branches: &'a [BranchName],
    /// How long to wait for those of a shared transaction that have not voted yet.
    pub wait: Duration,
}

impl<'a, T> Pending<'a, T> {
    fn new(store: &'a Store, answer: Answer<T>) -> Self {
        Self { store, answer }
    }

    /// Blocks until the answer is durable enough, and returns it.
    ///
    /// # Errors
    /// `Unknown` when a write or sync failed: what was asked may have happened, and be lost, or not.
    pub fn wait(self, durability: Durability) -> Result<T> {
        let store = self.store;
        let unknown = |error: Error| Error::new(ErrorKind::Unknown, format!("the outcome is not known: {error}"));
        self.answer.show(|Needs { asked, synced }| {
            if asked > 0 {
                store.wait(Position::new(asked), durability).map_err(unknown)?;
            }
            if synced > 0 {
                store.wait(Position::new(synced), Durability::Synced).map_err(unknown)?;
            }
            Ok(())
        })
    }

    /// The answer for whoever sees to it by other means that nobody is shown it before what it rests on is as durable as
    /// it has to be: `note` is told. Does not block.
    pub fn show_after(self, note: impl FnOnce(RestsOn)) -> T {
        let shown = self.answer.show(|Needs { asked, synced }| {
            note(RestsOn { asked: Position::new(asked), synced: Position::new(synced) });
            Ok::<(), std::convert::Infallible>(())
        });
        shown.unwrap_or_else(|never| match never {})
    }
}

impl Store {
    /// The store as a coordinator of distributed transactions.
    #[must_use]
    pub fn xa(&self) -> Xa<'_> {
        Xa { store: self }
    }
}

impl<'a> Xa<'a> {
    fn pending<T>(self, answer: Result<Answer<T>>) -> Result<Pending<'a, T>> {
        answer.map(|answer| Pending::new(self.store, answer))
    }

    /// Which coordinator this is: a hash of the store's identity, the same for ever, also after a restore.
    #[must_use]
    pub fn coordinator(self) -> CoordinatorId {
        self.store.inner().coordinator.id
    }

    /// The owner that is this process. The first call writes and blocks; it ends every owner of earlier runs of the
    /// store, which are dead, because one process has the directory at a time. Not for a server whose clients are owners.
    /// After it was ended there is another one.
    ///
    /// # Errors
    /// `Unavailable`; `Unknown`; `Corrupt` when the records of transactions are damaged, here as everywhere.
    pub fn own(self) -> Result<OwnerId> {
        self.own_next(0).map(|own| own.owner)
    }

    fn own_next(self, begins: u64) -> Result<Own> {
        let inner = self.store.inner();
        let mut own = lock(&inner.coordinator.own);
        let living = match *own {
            // It ends with the process, or because it has rolled back too many transactions: then another one goes on.
            Some(own) => self.renew(own.owner)?.wait(Durability::Synced)?.is_ok().then_some(own),
            None => None,
        };
        let now = match living {
            Some(own) => own,
            None => {
                let earlier = inner.ask_xa(Room::Wait, |table, _| Ok(table.end_earlier()));
                self.pending(earlier)?.wait(Durability::Synced)?;
                Own { owner: self.open(Lease::Held, "embedded")?.wait(Durability::Synced)?, begun: 0 }
            }
        };
        let now = Own { begun: now.begun + begins, ..now };
        *own = Some(now);
        Ok(now)
    }

    /// Begins a transaction of [`Xa::own`]. Only the first call of a process writes and blocks, and one after that owner was
    /// ended.
    ///
    /// # Errors
    /// As [`Xa::own`].
    pub fn begin(self, begin: &Begin) -> Result<TransactionId> {
        let own = self.own_next(1)?;
        let shared = begin.sharing == Sharing::Shared;
        Ok(TransactionId {
            coordinator: self.coordinator(),
            owner: own.owner,
            sequence: own.begun,
            deadline_ms: self.deadline_ms(begin.timeout),
            shared,
            last_resource: None,
        })
    }

    /// The deadline of a transaction that begins now.
    #[must_use]
    pub fn deadline_ms(self, timeout: Option<Duration>) -> u64 {
        timeout.map_or(0, |timeout| {
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            self.store.now_ms().saturating_add(timeout_ms).clamp(1, DEADLINE_MAX)
        })
    }

    /// Gives out a new owner.
    ///
    /// # Errors
    /// `Invalid` for a lease or name that is too long; `Limit`; `Unavailable`.
    pub fn open(self, lease: Lease, name: &str) -> Result<Pending<'a, OwnerId>> {
        self.pending(self.store.inner().open_owner(lease, name))
    }

    /// Notes that an owner lives; says why it does not any more.
    ///
    /// # Errors
    /// `Invalid` when there was never such an owner; `Limit`.
    pub fn renew(self, owner: OwnerId) -> Result<Pending<'a, std::result::Result<(), AbortReason>>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.renew(owner, now)))
    }

    /// Nobody watches a [`Lease::Held`] owner any more: it is ended soon. Writes nothing.
    pub fn release(self, owner: OwnerId) {
        // Without a table nobody is told that it lives either.
        if let Ok(mut table) = self.store.inner().coordinator.lock() {
            table.release(owner, self.store.inner().xa_now());
        }
    }

    /// Ends an owner: what it has not decided will never be committed.
    ///
    /// # Errors
    /// `Invalid` when there was never such an owner; `Unavailable`.
    pub fn end(self, owner: OwnerId) -> Result<Pending<'a, ()>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.end(owner, now)))
    }

    /// Decides to commit, waits for `durability`, and returns. Asked again it says the same.
    ///
    /// # Errors
    /// `Aborted`: the transaction will never be committed, which is on stable storage; roll all branches back. `Unknown`:
    /// it may be decided; ask again, or [`Xa::abort`]. All others: nothing was decided.
    pub fn commit(self, request: &CommitRequest<'_>, durability: Durability) -> Result<()> {
        match self.decide_within(request)?.wait(durability)? {
            Commit::Decided | Commit::Settled(Outcome::Committed) => Ok(()),
            Commit::Settled(Outcome::Aborted(reason)) => Err(Error::new(ErrorKind::Aborted, reason.to_string())),
            Commit::Waiting => Err(Error::new(ErrorKind::Internal, "a commit waits that was not to")),
        }
    }

    /// As [`Xa::decide`], but blocks up to the request's time for those that have not voted; not for durability.
    ///
    /// # Errors
    /// As [`Xa::decide`].
    pub fn decide_within(self, request: &CommitRequest<'_>) -> Result<Pending<'a, Commit>> {
        let clock = &self.store.inner().clock;
        let until = clock.now().after(request.wait);
        let idle = Signal::new();
        loop {
            let patience = if clock.now() < until { Patience::Waits } else { Patience::Over };
            let decided = self.decide(request.id, request.branches, patience)?;
            if !decided.answer.is_waiting() {
                return Ok(decided);
            }
            idle.wait(Some(LOOK_INTERVAL.min(until.since(clock.now()))));
        }
    }

    /// Decides to commit a transaction whose `branches` are prepared, besides those of a shared one that said so
    /// themselves. The first half of [`Xa::commit`]: the second is [`Pending::wait`].
    ///
    /// # Errors
    /// `Invalid` or `Limit` when the request makes no sense, also because another program enlisted a branch that is named;
    /// `Unavailable`. Nothing was decided. `Corrupt` when damage to
    /// the journal may have taken what was decided: leave all branches as they are, because an operator decides.
    pub fn decide(self, id: TransactionId, branches: &[BranchName], patience: Patience) -> Result<Pending<'a, Commit>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.commit(id, branches, patience, now)))
    }

    /// As [`Xa::decide`], for an operator who has looked at all branches: also about what is doubtful since the journal was
    /// damaged, where programs are refused.
    ///
    /// # Errors
    /// As [`Xa::decide`].
    pub fn decide_by_operator(self, id: TransactionId, branches: &[BranchName]) -> Result<Pending<'a, Commit>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.commit_by_operator(id, branches, now)))
    }

    /// As [`Xa::abort`], for an operator who has looked at all branches: see [`Xa::decide_by_operator`].
    ///
    /// # Errors
    /// As [`Xa::abort`].
    pub fn abort_by_operator(self, id: TransactionId) -> Result<Pending<'a, Outcome>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.abort_by_operator(id, now)))
    }

    /// As [`Store::exclusive`], for a batch that also decides these transactions: see [`Exclusive::decide`].
    ///
    /// # Errors
    /// As [`Store::exclusive`].
    pub fn exclusive(self, scope: &Scope<'_>, ids: &[TransactionId]) -> Result<Exclusive<'a>> {
        let Scope::Keys(keys) = scope else { return self.store.exclusive(scope) };
        let inner = self.store.inner();
        inner.check_open()?;
        scope.check(inner)?;
        self.exclusive_of(keys, ids)
    }

    /// The same for keys of which some may be the store's own.
    pub(crate) fn exclusive_of(self, keys: &[(&[u8], &[u8])], ids: &[TransactionId]) -> Result<Exclusive<'a>> {
        let inner = self.store.inner();
        inner.check_open()?;
        let records: Vec<Vec<u8>> = ids.iter().map(|id| RecordKey::Decision(*id).to_bytes()).collect();
        let records = records.iter().map(|key| (BUCKET, key.as_slice()));
        let all: Vec<(&[u8], &[u8])> = keys.iter().copied().chain(records).collect();
        Exclusive::open(inner, &Scope::Keys(&all))
    }

    /// Notes that branches learned of the decision to commit, and lets go of it when all have; without branches, lets go
    /// of the transaction. Nobody has to wait for the answer: what was lost is asked again by recovery.
    ///
    /// # Errors
    /// `Invalid` when the transaction has no such branch, or something is left that only [`Forgetting::Everything`] lets
    /// go of; `Unavailable`.
    pub fn forget(self, id: TransactionId, learned: &[Learned], forgetting: Forgetting) -> Result<Pending<'a, ()>> {
        let inner = self.store.inner();
        let is_news = forgetting == Forgetting::Known && !learned.is_empty();
        if is_news && learned.iter().all(|learned| learned.heuristic.is_none()) {
            inner.note_done(id, learned)?;
            return Ok(Pending::new(self.store, Answer::taken()));
        }
        // What was noted comes first; if it cannot be written, this cannot either.
        let _ = inner.write_done(Room::Wait);
        self.pending(inner.ask_xa(Room::Wait, |table, _| table.forget(id, learned, forgetting)))
    }

    /// Decides never to commit a transaction, unless it is committed already: which of both is the answer.
    ///
    /// # Errors
    /// `Invalid` when it is of another coordinator or of an owner that never was; `Limit`; `Unavailable`; `Corrupt` as
    /// [`Xa::decide`].
    pub fn abort(self, id: TransactionId) -> Result<Pending<'a, Outcome>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.abort(id, now)))
    }

    /// As [`Xa::abort`], and notes what resource managers did by themselves with branches of the transaction, until
    /// [`Xa::forget`] of everything. Nothing is noted when it is committed, for then that is told with [`Xa::forget`].
    ///
    /// # Errors
    /// As [`Xa::abort`].
    pub fn note_deeds(self, id: TransactionId, deeds: &[Deed]) -> Result<Pending<'a, Outcome>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.note_deeds(id, deeds, now)))
    }

    /// What to do with each transaction that was found prepared somewhere.
    ///
    /// # Errors
    /// `Limit` for more ids than half of what a batch may change; `Unavailable`.
    pub fn verdicts(self, ids: &[TransactionId]) -> Result<Pending<'a, Vec<Verdict>>> {
        let max = self.verdicts_max();
        if ids.len() > max {
            return Err(Error::new(ErrorKind::Limit, format!("at most {max} transactions are judged at once")));
        }
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| Ok(table.verdicts(ids, now))))
    }

    /// Most transactions that one call of [`Xa::verdicts`] takes.
    #[must_use]
    pub fn verdicts_max(self) -> usize {
        (self.store.limits().batch_changes_max / 2).min(1000)
    }

    /// Branches belong to a shared transaction, and have to vote before it commits. `by` is the owner that the program which
    /// asks is itself, if it is one: then a name that another program chose too is not taken for the same request once more.
    ///
    /// # Errors
    /// `Invalid` when it is not shared, or no transaction of this coordinator, or another program has a branch of this name;
    /// `Limit`; `Unavailable`; `Corrupt` as [`Xa::decide`].
    pub fn enlist(
        self,
        id: TransactionId,
        by: Option<OwnerId>,
        branches: &[BranchName],
    ) -> Result<Pending<'a, Taking>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.enlist(id, by, branches, now)))
    }

    /// As [`Xa::enlist`], by the program that may decide about the transaction and leaves it to whoever resumes it. Nobody can
    /// commit it before. With a deadline it goes on when the program that began it ends.
    ///
    /// # Errors
    /// As [`Xa::enlist`]; `Invalid` also for a program that does not hold it.
    pub fn suspend(
        self,
        id: TransactionId,
        by: Option<OwnerId>,
        branches: &[BranchName],
    ) -> Result<Pending<'a, Taking>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.suspend(id, by, branches, now)))
    }

    /// Goes on with a suspended transaction, as the only one, and decides about it.
    ///
    /// # Errors
    /// `Invalid` when it is not suspended, also because another program has resumed it, or is no shared transaction of this
    /// coordinator; `Unavailable`; `Corrupt` as [`Xa::decide`].
    pub fn resume(self, id: TransactionId, resumer: Resumer) -> Result<Pending<'a, Taking>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.resume(id, resumer, now)))
    }

    /// A branch of a shared transaction voted.
    ///
    /// # Errors
    /// `Invalid` when it is not enlisted; `Unavailable`; `Corrupt` as [`Xa::decide`].
    pub fn vote(self, id: TransactionId, branch: &BranchName, vote: Vote) -> Result<Pending<'a, Taking>> {
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, now| table.vote(id, branch, vote, now)))
    }

    /// What is remembered of a transaction.
    ///
    /// # Errors
    /// `Closed`.
    pub fn status(self, id: TransactionId) -> Result<Pending<'a, Status>> {
        // Shown as it is written, which a full disk may prevent.
        let _ = self.store.inner().write_done(Room::AtOnce);
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, _| Ok(table.status(id))))
    }

    /// What is remembered of all transactions behind `after`, in order of ids.
    ///
    /// # Errors
    /// `Closed`.
    pub fn list(self, after: Option<TransactionId>, limit: usize) -> Result<Pending<'a, Listed>> {
        let limit = limit.min(self.store.limits().page_entries_max);
        // Shown as it is written, which a full disk may prevent.
        let _ = self.store.inner().write_done(Room::AtOnce);
        self.pending(self.store.inner().ask_xa(Room::Wait, |table, _| Ok(table.list(after, limit))))
    }
}
