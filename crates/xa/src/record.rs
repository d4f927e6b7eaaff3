//! What a coordinator remembers, as objects of the bucket `\0xa`. This comment is the format's specification.
//!
//! Format: docs/formats/xa.md
//!
//! Integers are big-endian, sizes in bytes. Every value begins with its version: 1, and 2 for an 'a' with deeds.
//!
//!   key                      value
//!   'd' | transaction 36     version 1 | decided at 8 | branches 2 | branch*          decided: commit
//!   'a' | transaction 36     version 1 | at 8                                         will never be committed
//!                            version 2 | at 8 | branches 2 | branch*                  the same, with deeds: at least one
//!   'e' | owner 8            version 1 | at 8                                         the owner has ended
//!   'n'                      version 1 | next 8 | floor 8 | lease 8 | alive 4 | owner 8 *
//!   'q'                      version 1 | up to 8 | below 8                            what is not known since damage
//!
//!   branch   state 1 | length 1 | name
//!   state    0 open, 1 done, 2 to 5 what the branch did by itself: commit, rollback, mixed, hazard; of an 'a' 2 to 5
//!
//! Times are milliseconds since 1970. In `n`: owners below `next` may have been given out, those at or above were not; those
//! below `floor` have ended, but the `alive` ones, which stand in ascending order and of which one may have ended by a
//! record of its own; no lease that was granted is longer than `lease` milliseconds, so that a coordinator that starts
//! knows after what time an owner that kept silent is gone.
//!
//! In `q`: records that were written before the position `up to` may have been lost, and with them decisions about transactions of
//! owners below `below`.
//!
//! A transaction is the 36 bytes of its id. There is never a 'd' and an 'a' of the same.
//!
//! May use: `id`. Must not know: who keeps records.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::id::{BranchName, OwnerId, TransactionId};

const VERSION: u8 = 1;
const VERSION_WITH_DEEDS: u8 = 2;
const DECISION: u8 = b'd';
const TOMBSTONE: u8 = b'a';
const ENDED: u8 = b'e';
const OWNERS: u8 = b'n';
const DAMAGE: u8 = b'q';

/// Names one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    /// The decision to commit a transaction.
    Decision(TransactionId),
    /// The decision never to commit it.
    Tombstone(TransactionId),
    /// An owner's end.
    Ended(OwnerId),
    /// Which owners there are.
    Owners,
    /// What is not known since the journal was damaged.
    Damage,
}

/// What one record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The transaction is committed.
    Decision(TransactionId, Decision),
    /// The transaction will never be committed.
    Tombstone(TransactionId, Abort),
    /// The owner has ended: what it has not decided will never be committed.
    Ended(OwnerId, Tombstone),
    /// Which owners there are.
    Owners(OwnersRecord),
    /// What is not known since the journal was damaged.
    Damage(DamageRecord),
}

/// What is not known since the journal was damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DamageRecord {
    /// Records written before this mark may be lost.
    pub upto: u64,
    /// About transactions of owners with lower numbers something may have been decided that is lost.
    pub below: u64,
}

/// A decision to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The branches that have to learn of it.
    pub branches: Vec<(BranchName, BranchState)>,
}

/// A decision never to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What resource managers did by themselves with branches; each branch once.
    pub deeds: Vec<Deed>,
}

/// What a resource manager did by itself with a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// The branch.
    pub branch: BranchName,
    /// What it did.
    pub did: Heuristic,
}

/// That something is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// When that was settled, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Which owners there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnersRecord {
    /// The first number that was not reserved.
    pub next: u64,
    /// Every owner below has ended, but those that are alive.
    pub floor: u64,
    /// The longest lease of those that may be alive, in whole milliseconds.
    pub lease: Duration,
    /// Owners below the floor that had not ended when this was written.
    pub alive: BTreeSet<OwnerId>,
}

/// How far a branch of a committed transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BranchState {
    /// It may not have learned of the decision.
    Open,
    /// It knows.
    Done,
    /// Its resource manager has decided by itself.
    Heuristic(Heuristic),
}

/// What a resource manager decided by itself about a prepared branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heuristic {
    /// Committed.
    Commit,
    /// Rolled back.
    Rollback,
    /// Partly the one, partly the other.
    Mixed,
    /// It may have done either.
    Hazard,
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The record is now this.
    Put(Record),
    /// The record, which is there, goes.
    Delete(RecordKey),
}

/// A record that no coordinator of this version wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of transactions is damaged: {0}")]
pub struct MalformedRecord(&'static str);

impl MalformedRecord {
    pub(crate) const CONTRADICTION: Self = Self("a transaction is both decided and rolled back");
}

impl RecordKey {
    /// The object's key.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, of) = match self {
            Self::Decision(id) => (DECISION, id.to_bytes().to_vec()),
            Self::Tombstone(id) => (TOMBSTONE, id.to_bytes().to_vec()),
            Self::Ended(owner) => (ENDED, owner.0.to_be_bytes().to_vec()),
            Self::Owners => (OWNERS, Vec::new()),
            Self::Damage => (DAMAGE, Vec::new()),
        };
        [&[kind], of.as_slice()].concat()
    }

    /// The record that an object's key names.
    ///
    /// # Errors
    /// When it names none.
    pub fn from_bytes(key: &[u8]) -> Result<Self, MalformedRecord> {
        let id = |bytes: &[u8]| TransactionId::from_bytes(bytes).map_err(|_| MalformedRecord("its key is no id"));
        match key.split_first() {
            Some((&DECISION, rest)) => id(rest).map(Self::Decision),
            Some((&TOMBSTONE, rest)) => id(rest).map(Self::Tombstone),
            Some((&ENDED, rest)) => match rest.try_into() {
                Ok(number) => Ok(Self::Ended(OwnerId(u64::from_be_bytes(number)))),
                Err(_) => Err(MalformedRecord("an owner has 8 bytes")),
            },
            Some((&OWNERS, [])) => Ok(Self::Owners),
            Some((&DAMAGE, [])) => Ok(Self::Damage),
            _ => Err(MalformedRecord("its key names no record")),
        }
    }
}

impl Record {
    /// Its name.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Decision(id, _) => RecordKey::Decision(*id),
            Self::Tombstone(id, _) => RecordKey::Tombstone(*id),
            Self::Ended(owner, _) => RecordKey::Ended(*owner),
            Self::Owners(_) => RecordKey::Owners,
            Self::Damage(_) => RecordKey::Damage,
        }
    }

    /// What a record says whose value is lost, as far as its key tells: that the transaction is committed or rolled back,
    /// that the owner has ended. A decision then has one branch, `damaged`, of which nobody knows what became of it: so it
    /// is held until somebody forgets it by force. `None` for the record of owners, without which nothing can be said.
    #[must_use]
    pub fn of_key_alone(key: &[u8]) -> Option<Self> {
        let over = Tombstone { at_ms: 0 };
        match RecordKey::from_bytes(key).ok()? {
            RecordKey::Decision(id) => {
                let damaged = BranchName::new("damaged").expect("that is a name");
                let branches = vec![(damaged, BranchState::Heuristic(Heuristic::Hazard))];
                Some(Self::Decision(id, Decision { at_ms: 0, branches }))
            }
            RecordKey::Tombstone(id) => Some(Self::Tombstone(id, Abort { at_ms: over.at_ms, deeds: Vec::new() })),
            RecordKey::Ended(owner) => Some(Self::Ended(owner, over)),
            RecordKey::Owners => None,
            RecordKey::Damage => Some(Self::Damage(DamageRecord::default())),
        }
    }

    /// The object's value.
    ///
    /// # Panics
    /// When a transaction has more than 65,535 branches, or more owners are alive than 32 bits count.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        match self {
            Self::Decision(_, Decision { at_ms, branches }) => {
                to.extend_from_slice(&at_ms.to_be_bytes());
                write_branches(&mut to, branches.iter().map(|(name, state)| (name, *state)));
            }
            Self::Tombstone(_, Abort { at_ms, deeds }) if !deeds.is_empty() => {
                to = vec![VERSION_WITH_DEEDS];
                to.extend_from_slice(&at_ms.to_be_bytes());
                write_branches(&mut to, deeds.iter().map(|deed| (&deed.branch, BranchState::Heuristic(deed.did))));
            }
            Self::Tombstone(_, Abort { at_ms, .. }) | Self::Ended(_, Tombstone { at_ms }) => {
                to.extend_from_slice(&at_ms.to_be_bytes());
            }
            Self::Damage(DamageRecord { upto, below }) => {
                to.extend_from_slice(&upto.to_be_bytes());
                to.extend_from_slice(&below.to_be_bytes());
            }
            Self::Owners(owners) => {
                let lease_ms = u64::try_from(owners.lease.as_millis()).unwrap_or(u64::MAX);
                for number in [owners.next, owners.floor, lease_ms] {
                    to.extend_from_slice(&number.to_be_bytes());
                }
                let count = u32::try_from(owners.alive.len()).expect("the table bounds owners below 2^32");
                to.extend_from_slice(&count.to_be_bytes());
                owners.alive.iter().for_each(|owner| to.extend_from_slice(&owner.0.to_be_bytes()));
            }
        }
        to
    }

    /// The record of an object.
    ///
    /// # Errors
    /// When no coordinator of this version wrote it.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, MalformedRecord> {
        let mut from = Bytes(value);
        let [version] = from.take::<1>()?;
        let record = match (RecordKey::from_bytes(key)?, version) {
            (RecordKey::Tombstone(id), VERSION_WITH_DEEDS) => Self::Tombstone(id, from.abort_with_deeds()?),
            (key, VERSION) => from.record(key)?,
            _ => return Err(MalformedRecord("it is of a version that this program does not know")),
        };
        if from.0.is_empty() { Ok(record) } else { Err(MalformedRecord("it has bytes behind its end")) }
    }
}

impl BranchState {
    fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Done => 1,
            Self::Heuristic(Heuristic::Commit) => 2,
            Self::Heuristic(Heuristic::Rollback) => 3,
            Self::Heuristic(Heuristic::Mixed) => 4,
            Self::Heuristic(Heuristic::Hazard) => 5,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Open,
            1 => Self::Done,
            2 => Self::Heuristic(Heuristic::Commit),
            3 => Self::Heuristic(Heuristic::Rollback),
            4 => Self::Heuristic(Heuristic::Mixed),
            5 => Self::Heuristic(Heuristic::Hazard),
            _ => return None,
        })
    }
}

fn write_branches<'b>(to: &mut Vec<u8>, branches: impl ExactSizeIterator<Item = (&'b BranchName, BranchState)>) {
    let count = u16::try_from(branches.len()).expect("the table bounds branches below 2^16");
    to.extend_from_slice(&count.to_be_bytes());
    for (name, state) in branches {
        let name = name.as_str().as_bytes();
        to.extend([state.code(), u8::try_from(name.len()).expect("a name has 64 bytes at most")]);
        to.extend_from_slice(name);
    }
}

/// Bytes of a value that were not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MalformedRecord> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(MalformedRecord("it is cut"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64, MalformedRecord> {
        self.take().map(u64::from_be_bytes)
    }

    fn name(&mut self) -> Result<BranchName, MalformedRecord> {
        let [length] = self.take::<1>()?;
        let split: Option<(&'a [u8], &'a [u8])> = self.0.split_at_checked(usize::from(length));
        let (name, rest) = split.ok_or(MalformedRecord("it is cut"))?;
        self.0 = rest;
        let name = std::str::from_utf8(name).ok().and_then(|name| BranchName::new(name).ok());
        name.ok_or(MalformedRecord("a branch's name is none"))
    }

    /// A record of the first version.
    fn record(&mut self, key: RecordKey) -> Result<Record, MalformedRecord> {
        Ok(match key {
            RecordKey::Decision(id) => Record::Decision(id, self.decision()?),
            RecordKey::Tombstone(id) => Record::Tombstone(id, Abort { at_ms: self.number()?, deeds: Vec::new() }),
            RecordKey::Ended(owner) => Record::Ended(owner, Tombstone { at_ms: self.number()? }),
            RecordKey::Owners => Record::Owners(self.owners()?),
            RecordKey::Damage => Record::Damage(DamageRecord { upto: self.number()?, below: self.number()? }),
        })
    }

    fn decision(&mut self) -> Result<Decision, MalformedRecord> {
        Ok(Decision { at_ms: self.number()?, branches: self.branches()? })
    }

    fn abort_with_deeds(&mut self) -> Result<Abort, MalformedRecord> {
        let at_ms = self.number()?;
        let deed = |(branch, state)| match state {
            BranchState::Heuristic(did) => Ok(Deed { branch, did }),
            BranchState::Open | BranchState::Done => Err(MalformedRecord("a deed is none")),
        };
        let deeds: Vec<Deed> = self.branches()?.into_iter().map(deed).collect::<Result<_, _>>()?;
        if deeds.is_empty() { Err(MalformedRecord("it has no deed")) } else { Ok(Abort { at_ms, deeds }) }
    }

    fn branches(&mut self) -> Result<Vec<(BranchName, BranchState)>, MalformedRecord> {
        let count = u16::from_be_bytes(self.take()?);
        let mut branches = Vec::new();
        for _ in 0..count {
            let [code] = self.take::<1>()?;
            let state = BranchState::of_code(code).ok_or(MalformedRecord("a branch's state is none"))?;
            branches.push((self.name()?, state));
        }
        Ok(branches)
    }

    fn owners(&mut self) -> Result<OwnersRecord, MalformedRecord> {
        let (next, floor, lease_ms) = (self.number()?, self.number()?, self.number()?);
        let count = u32::from_be_bytes(self.take()?);
        let mut alive = BTreeSet::new();
        for _ in 0..count {
            let owner = OwnerId(self.number()?);
            if owner.0 >= floor || alive.last().is_some_and(|last| *last >= owner) {
                return Err(MalformedRecord("its owners are not ascending, or not below its floor"));
            }
            alive.insert(owner);
        }
        if floor > next {
            return Err(MalformedRecord("its floor is above its next number"));
        }
        Ok(OwnersRecord { next, floor, lease: Duration::from_millis(lease_ms), alive })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
