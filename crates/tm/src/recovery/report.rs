//! What a round of recovery came to, at its end and as it goes.
//!
//! May use: `xa`. Must not know: how rounds are made.

use std::fmt;
use std::time::Duration;

use xa::{Action, BranchEnd, BranchName, Xid};

use crate::Verdict;
use crate::decisions::against;

/// What a round of recovery came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Resource managers that were asked and answered.
    pub answered: Vec<BranchName>,
    /// Those that did not, why, and how long they are left alone now.
    pub down: Vec<Down>,
    /// What was found and what became of it.
    pub found: Vec<Found>,
    /// What is prepared under names that begin as ours do and cannot be read. It is left alone: nobody can say what it is.
    pub unreadable: Vec<Unreadable>,
}

/// A prepared branch whose name has our format or begins as ours do, and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Where.
    pub manager: BranchName,
    /// Its name, as the resource manager takes it.
    pub name: String,
    /// Whether the last list before did not have it.
    pub is_new: bool,
}

/// A resource manager, or the coordinator, that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// The resource manager; `None` for the coordinator.
    pub manager: Option<BranchName>,
    /// Why.
    pub reason: String,
    /// How long it is left alone.
    pub pause: Duration,
}

/// A branch that was found prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub manager: BranchName,
    /// Its name there.
    pub xid: Xid,
    /// What became of it.
    pub fate: Fate,
    /// The resource manager's words, when it did not just do as it was told.
    pub reason: String,
}

/// What became of a branch that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
    /// Left: its transaction is under way, or the coordinator could not be asked.
    Left,
    /// It has to end so, but did not yet: the next round tries again.
    Postponed,
    /// The resource manager had done something by itself.
    Heuristic,
}

impl Report {
    /// Whether all were reached and nothing is left in doubt.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let is_settled = |found: &Found| !matches!(found.fate, Fate::Left | Fate::Postponed);
        self.down.is_empty() && self.unreadable.is_empty() && self.found.iter().all(is_settled)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Committed => "committed",
            Self::RolledBack => "rolled back",
            Self::Left => "left alone, because its transaction may still commit",
            Self::Postponed => "postponed",
            Self::Heuristic => "ended by the resource manager itself",
        })
    }
}

/// What is known while a round is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// A resource manager has answered.
    Answered {
        /// Which.
        manager: &'a BranchName,
        /// How many branches of Holdfast's making it has prepared, those of other coordinators and those that cannot be read among them.
        prepared: usize,
    },
    /// Somebody could not be asked.
    Down(&'a Down),
    /// This became of a branch.
    Found(&'a Found),
    /// This was found prepared and cannot be read. It is told once, and not with every round.
    Unreadable(&'a Unreadable),
}

pub(super) fn fate_of(action: Action, end: BranchEnd) -> Fate {
    match end {
        BranchEnd::Heuristic(_) if action == Action::Rollback && against(Verdict::Rollback, end).is_none() => {
            Fate::RolledBack
        }
        BranchEnd::Committed | BranchEnd::ReadOnly => Fate::Committed,
        BranchEnd::RolledBack => Fate::RolledBack,
        BranchEnd::Heuristic(_) => Fate::Heuristic,
        BranchEnd::Pending => Fate::Postponed,
    }
}
