//! How answers are kept from being shown too early.
//!
//! A call of the table returns a [`Plan`]: an answer that nobody can read yet, and the changes of records that it rests on.
//! The caller writes the changes and hands the plan back with the *mark* of the write, which makes it an [`Answer`]: the
//! table has changed now, and the answer says which marks have to be durable. Only [`Answer::show`] opens it, and it asks
//! for that first. A plan that is dropped has changed nothing.
//!
//! May use: `record`. Must not know: what a mark is; to a store it is a position.

use crate::record::Change;

/// Names a write: later ones have higher marks. 0 is what was found at the start.
pub type Mark = u64;

/// What has to be durable before an answer may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Everything up to this mark, as durable as who asks wants it.
    pub asked: Mark,
    /// Everything up to this mark, on stable storage whatever anybody wants.
    pub synced: Mark,
}

/// How durable the changes of a plan have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rests {
    /// It does not matter when they become so.
    Lazily,
    /// As durable as who asks wants it.
    AsAsked,
    /// On stable storage.
    Synced,
}

/// Changes to be written, and an answer that rests on them.
#[must_use = "its changes have to be written, and it handed back"]
#[derive(Debug, Clone)]
pub struct Plan<T> {
    pub(crate) value: T,
    pub(crate) changes: Vec<Change>,
    pub(crate) rests: Rests,
    pub(crate) needs: Needs,
    /// How many verdicts it gives.
    pub(crate) verdicts: u64,
}

/// An answer that may be shown once it is durable enough.
#[must_use = "it may be shown once it is durable enough"]
#[derive(Debug, Clone)]
pub struct Answer<T> {
    pub(crate) value: T,
    pub(crate) needs: Needs,
}

impl Answer<()> {
    /// That something was taken, which rests on nothing.
    pub fn taken() -> Self {
        Self { value: (), needs: Needs::default() }
    }
}

impl Needs {
    pub(crate) fn asked(mark: Mark) -> Self {
        Self { asked: mark, synced: 0 }
    }

    pub(crate) fn synced(mark: Mark) -> Self {
        Self { asked: 0, synced: mark }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { asked: self.asked.max(other.asked), synced: self.synced.max(other.synced) }
    }
}

impl<T> Plan<T> {
    pub(crate) fn nothing(value: T, needs: Needs) -> Self {
        Self { value, changes: Vec::new(), rests: Rests::Lazily, needs, verdicts: 0 }
    }

    pub(crate) fn writing(value: T, rests: Rests, changes: Vec<Change>) -> Self {
        Self { value, changes, rests, needs: Needs::default(), verdicts: 0 }
    }

    /// What is to be written, all or nothing.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(crate) fn map<U>(self, to: impl FnOnce(T) -> U) -> Plan<U> {
        let Self { value, changes, rests, needs, verdicts } = self;
        Plan { value: to(value), changes, rests, needs, verdicts }
    }
}

impl Plan<crate::Commit> {
    /// What was settled already, or would be by its changes; `None` for a new decision to commit. Not to be shown before
    /// what it rests on is durable.
    #[must_use]
    pub fn settled(&self) -> Option<crate::Outcome> {
        match self.value {
            crate::Commit::Settled(outcome) => Some(outcome),
            crate::Commit::Waiting => Some(crate::Outcome::Aborted(crate::AbortReason::NotPrepared)),
            crate::Commit::Decided => None,
        }
    }
}

impl<T> Plan<T> {
    /// What the answer rests on besides the plan's own changes.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.needs
    }
}

impl Answer<crate::Commit> {
    /// Whether it has to be asked again, which rests on nothing.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.value == crate::Commit::Waiting
    }
}

impl<T> Answer<Option<T>> {
    /// `None` when the answer is.
    #[must_use]
    pub fn transposed(self) -> Option<Answer<T>> {
        let needs = self.needs;
        self.value.map(|value| Answer { value, needs })
    }
}

impl<T> Answer<T> {
    /// The answer, once `durable` has made sure of what it needs.
    ///
    /// # Errors
    /// What `durable` says; the answer is not to be known then.
    pub fn show<E>(self, durable: impl FnOnce(Needs) -> Result<(), E>) -> Result<T, E> {
        durable(self.needs)?;
        Ok(self.value)
    }
}
