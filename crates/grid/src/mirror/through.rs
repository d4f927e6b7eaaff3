//! Writing through: the table takes what a transaction does to the type before the space commits it, and both have it when the
//! caller is answered.
//!
//! The mirror's own connection does it, in the mirror's order. It begins a transaction of the target, locks the bookmark, and has the table
//! take the rows. If the table refuses, nothing has changed anywhere. Else the space commits; then the bookmark moves behind that, and
//! the target's transaction ends. So the space decides: whatever fails behind its commit is what happens to any mirror, and the bookmark
//! in the target tells whether the table has it.
//!
//! What the space made of a transaction, and what others did meanwhile, is heard as ever and compared with what the table took. Should it
//! differ, the table takes what was heard instead.
//!
//! What the caller wrote is refused to the caller. What others wrote behind, and comes into the table with it, is set aside if the mirror sets aside.
//!
//! May use: `target`, `follow`, `aside`. Must not know: SQL beyond savepoints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast::space::{NotThrough, WriteThrough};
use holdfast::{Committed, Durability, Error, ErrorKind, Position, Result, Transaction};

use super::aside::{Aside, Checks};
use super::follow::{Follower, batches};
use super::target::{self, Failure, Step, Target};
use super::{Mirror, Shared};

/// Transactions that share one of the target. Each that waits is a thread that blocks, so more do not gather without bound.
const SHARE_MAX: usize = 64;

/// A transaction that waits to be written through, in the hands of the mirror. Dropping it answers it.
pub(super) struct Request {
    steps: Vec<Step>,
    durability: Durability,
    place: Arc<Place>,
    /// Until when its caller waits.
    until: Instant,
    number: u64,
    /// It has waited through a failure of the target already.
    is_tried: bool,
}

/// Where mirror and caller meet.
struct Place {
    stage: Mutex<Stage>,
    changed: Condvar,
}

enum Stage {
    /// Who takes the transaction away says what becomes of it: the mirror commits it, the caller gives up.
    Waiting(Box<Transaction>),
    Taken,
    /// By the space.
    Committed(Committed),
    Done(std::result::Result<Committed, NotThrough>),
}

impl Place {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.stage() = stage;
        self.changed.notify_all();
    }

    /// Blocks until the answer, or until it has taken too long.
    fn wait(&self, wait: Duration) -> std::result::Result<Committed, NotThrough> {
        let deadline = Instant::now() + wait;
        let ms = (wait.as_secs_f64() * 1000.0).round();
        let late = |text: &str| Error::new(ErrorKind::Timeout, format!("{text} within {ms} ms"));
        let mut stage = self.stage();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Done(answer) => return answer,
                Stage::Waiting(transaction) if left.is_zero() => {
                    drop(stage);
                    // Lets go of what it has locked.
                    drop(transaction);
                    return Err(NotThrough::Nothing(late("the table did not take it")));
                }
                Stage::Committed(committed) if left.is_zero() => {
                    let reason = late("the target did not answer");
                    return Err(NotThrough::TableBehind { committed, reason });
                }
                // The store commits it now, and has no use for a deadline.
                Stage::Taken if left.is_zero() => {
                    stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
                }
                other => {
                    *stage = other;
                    stage = self.changed.wait_timeout(stage, left).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

impl Mirror {
    /// Commits a transaction as [`Transaction::commit`] does, but only once the table has taken what it does to entries of the
    /// mirror's type (*write-through*). When this returns, space and table have it. What it does elsewhere, to keys and to
    /// other types, is committed with it.
    ///
    /// Blocks, up to `wait` for the target; the entries that the transaction has locked stay locked meanwhile. Not to be called from
    /// within an asynchronous runtime.
    ///
    /// # Errors
    /// [`NotThrough`] says which of the two have it. `Nothing` of kind `Invalid` is a row that the table refuses, of kind `Unavailable` a
    /// target that cannot be reached, of kind `Timeout` one that takes too long; of the other kinds as [`Transaction::commit`].
    pub fn commit(
        &self,
        transaction: Transaction,
        durability: Durability,
        wait: Duration,
    ) -> std::result::Result<Committed, NotThrough> {
        self.shared.commit(transaction, durability, wait)
    }
}

impl WriteThrough for Shared {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn commit(
        &self,
        transaction: Transaction,
        durability: Durability,
        wait: Duration,
    ) -> std::result::Result<Committed, NotThrough> {
        let steps = self.steps_of(&transaction).map_err(NotThrough::Nothing)?;
        let stage = Mutex::new(Stage::Waiting(Box::new(transaction)));
        let place = Arc::new(Place { stage, changed: Condvar::new() });
        {
            let mut state = self.state();
            if state.stops {
                let why = state.stats.ended.as_deref().unwrap_or("it was stopped");
                let text = format!("the mirror has ended: {why}");
                return Err(NotThrough::Nothing(Error::new(ErrorKind::Closed, text)));
            }
            state.requested += 1;
            let (place, until, number) = (Arc::clone(&place), Instant::now() + wait, state.requested);
            state.requests.push_back(Request { steps, durability, place, until, number, is_tried: false });
        }
        self.wake.notify_one();
        let answer = place.wait(wait);
        if answer.is_err() {
            self.forget_request(&place);
        }
        answer
    }
}

impl Request {
    /// Whether somebody still waits for it to begin.
    fn is_waiting(&self) -> bool {
        matches!(*self.place.stage(), Stage::Waiting(_))
    }

    /// Has the space commit it. `None` when it does not, or nobody waits any more.
    fn commit(&self) -> Option<Committed> {
        let transaction = {
            let mut stage = self.place.stage();
            match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Waiting(transaction) => transaction,
                other => {
                    *stage = other;
                    return None;
                }
            }
        };
        match transaction.commit(self.durability) {
            Ok(committed) => {
                self.place.set(Stage::Committed(committed));
                Some(committed)
            }
            Err(error) => {
                self.place.set(Stage::Done(Err(NotThrough::of_commit(error))));
                None
            }
        }
    }

    /// The target has it as well, if the space does.
    fn succeed(&self) {
        let mut stage = self.place.stage();
        if let Stage::Committed(committed) = *stage {
            *stage = Stage::Done(Ok(committed));
            drop(stage);
            self.place.changed.notify_all();
        }
    }

    /// Answers it, unless it is answered.
    fn fail(&self, error: &Error) {
        let mut stage = self.place.stage();
        let answer = match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Waiting(transaction) => {
                drop(transaction);
                Err(NotThrough::Nothing(error.clone()))
            }
            Stage::Committed(committed) => Err(NotThrough::TableBehind { committed, reason: error.clone() }),
            Stage::Taken => Err(NotThrough::Unknown(error.clone())),
            Stage::Done(answer) => answer,
        };
        *stage = Stage::Done(answer);
        drop(stage);
        self.place.changed.notify_all();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.fail(&Error::new(ErrorKind::Closed, "the mirror was stopped"));
    }
}

/// What a request is told that failed with the mirror: what the target said may be about a row of somebody else.
fn stands_still(error: &Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the mirror cannot go on: {error}"))
}

/// What became of each key.
fn by_key(steps: &[Step]) -> BTreeMap<&str, &Step> {
    steps.iter().map(|step| (step.key(), step)).collect()
}

impl Shared {
    fn steps_of(&self, transaction: &Transaction) -> Result<Vec<Step>> {
        let changes = transaction.changes_of(&self.entries);
        let steps = changes.iter().map(|change| self.step_to(change.before.as_ref(), change.after.as_ref()));
        steps.filter_map(Result::transpose).collect()
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.state().requests.is_empty()
    }

    /// Its caller has given up.
    fn forget_request(&self, place: &Arc<Place>) {
        let mut state = self.state();
        let index = state.requests.iter().position(|request| Arc::ptr_eq(&request.place, place));
        let forgotten = index.and_then(|index| state.requests.remove(index));
        drop(state);
        drop(forgotten);
    }

    /// The target has failed. A connection that was idle may have been dead for long: so each is tried on another.
    pub(super) fn retry_requests(&self, error: &Error) {
        let mut requests = std::mem::take(&mut self.state().requests);
        requests.retain_mut(|request| {
            let again = !std::mem::replace(&mut request.is_tried, true);
            if !again {
                request.fail(&stands_still(error));
            }
            again
        });
        let mut state = self.state();
        requests.extend(state.requests.drain(..));
        state.requests = requests;
    }

    /// The mirror ends, and takes no more.
    pub(super) fn refuse_requests(&self) {
        let mut state = self.state();
        state.stops = true;
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        drop(requests);
    }

    /// Writes through what waits for it, up to this number: what was written before one that came later may not be in the table.
    pub(super) async fn write_through(&self, target: &mut Target, follower: &mut Follower, last: u64) -> Result<()> {
        if self.state().requests.front().is_none_or(|first| first.number > last) {
            return Ok(());
        }
        // Before they are taken from the queue: if this fails, they wait for the next connection.
        target.run("BEGIN").await?;
        let requests: Vec<Request> = {
            let mut state = self.state();
            let many = state.requests.iter().take(SHARE_MAX).take_while(|request| request.number <= last).count();
            state.requests.drain(..many).collect()
        };
        let ended = self.carry_through(target, follower, &requests).await;
        match &ended {
            Ok(()) => requests.iter().for_each(Request::succeed),
            Err(error) => requests.iter().for_each(|request| request.fail(&stands_still(error))),
        }
        ended
    }

    async fn carry_through(&self, target: &mut Target, follower: &mut Follower, requests: &[Request]) -> Result<()> {
        let (name, table) = (&self.options.name, self.mapping.table());
        // Locked from here on: no other mirror of this name comes between.
        match target.bookmark(name).await? {
            Some(at) if at == follower.at.to_string() => {}
            Some(_) => return Err(target::moved_by_another(name)),
            None => {
                let text = format!("the row {name} of holdfast_mirror is gone: it begins anew, with a copy");
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
        target.run("SAVEPOINT holdfast_all").await?;
        let (mut positions, mut taken) = (BTreeSet::new(), Vec::new());
        for request in requests.iter().filter(|request| request.is_waiting()) {
            // A row that somebody else has locked holds up its own caller, and those who come later for no longer than he waits.
            let left = request.until.saturating_duration_since(Instant::now());
            target.savepoint_within("holdfast_one", left).await?;
            let committed = match target.apply_checked(table, &request.steps).await {
                Ok(()) => request.commit(),
                Err(Failure::Row(error) | Failure::Refused(error)) => {
                    request.fail(&error);
                    None
                }
                Err(Failure::Down(error)) => return Err(error),
            };
            match committed {
                // One that changes no entry of the type has a position that may be another's.
                Some(_) if request.steps.is_empty() => {}
                Some(committed) => {
                    positions.insert(committed.position);
                    taken.extend(request.steps.iter().cloned());
                }
                None => target.run("ROLLBACK TO SAVEPOINT holdfast_one").await?,
            }
        }
        target.unlimit().await?;
        let Some(last) = positions.last() else { return target.run("ROLLBACK").await };
        hear_up_to(*last, follower)?;
        let Some(to) = follower.pending.last().map(|notice| notice.bookmark) else {
            let text = "what was written through was not heard";
            return Err(Error::new(ErrorKind::Internal, text));
        };
        let all = self.parts_of(batches(&follower.pending))?;
        let own = all.only(|position| positions.contains(&position));
        let others = all.only(|position| !positions.contains(&position));
        let has = by_key(&taken);
        follower.aside = Aside::default();
        let aside = if by_key(own.steps()) == has && others.steps().iter().all(|step| !has.contains_key(step.key())) {
            self.apply_parts(target, &others, Checks::Each).await?
        } else {
            target.run("ROLLBACK TO SAVEPOINT holdfast_all").await?;
            self.apply_parts(target, &all, Checks::Each).await?
        };
        if aside.positions.iter().any(|position| positions.contains(position)) {
            // Its caller is told that the table does not have it; then it is what any event is.
            let why = aside.reason.unwrap_or_default();
            let text = format!("the table does not take it behind what others wrote before: {why}");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        follower.aside = aside;
        target.move_bookmark(name, &follower.at.to_string(), &to.to_string()).await?;
        self.settle(to.position()).await?;
        target.commit().await?;
        self.applied(follower, to);
        Ok(())
    }
}

/// Hears whole batches up to this one. Whoever committed it has told of it already.
fn hear_up_to(last: Position, follower: &mut Follower) -> Result<()> {
    while let Some(notice) = follower.hear()? {
        if notice.bookmark.position() > last {
            follower.next = Some(notice);
            break;
        }
        follower.pending.push(notice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use holdfast::Store;
    use holdfast::space::{Definition, Document, Value, WriteOptions};

    use super::super::{DocumentTable, IdKind, MirrorOptions};
    use super::*;

    /// They stayed, with what they wanted to write, for as long as the target said nothing.
    #[test]
    fn who_gives_up_leaves_no_request_behind() {
        // Connections are taken, and nobody answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
        let definition = Definition { history: true, ..Definition::new("shop", "order") };
        let orders = store.space("shop").declare(definition).unwrap();
        let mapping = Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer));
        let address = format!("host=127.0.0.1 port={} user=ada", silent.local_addr().unwrap().port());
        let mirror = Mirror::start(&orders, mapping, MirrorOptions::new("orders", address)).unwrap();
        for id in 0..3_i64 {
            let mut transaction = store.begin();
            let document = Document::from_pairs([("id", Value::from(id))]);
            orders.within(&mut transaction).write(&document, &WriteOptions::default()).unwrap();
            let told = mirror.commit(transaction, Durability::Written, Duration::from_millis(20));
            assert!(matches!(&told, Err(NotThrough::Nothing(error)) if error.kind() == ErrorKind::Timeout), "{told:?}");
            assert!(!mirror.shared.has_requests());
        }
        drop(silent);
        mirror.stop();
    }
}
