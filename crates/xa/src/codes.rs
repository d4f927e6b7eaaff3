//! What a resource manager answers: the return codes of X/Open XA (C193, chapter 5), and what each means for its branch.
//!
//! The numbers are those of the standard's `xa.h`. A resource manager of another kind says the same by these words.
//!
//! May use: nothing. Must not know: which call comes next.

use crate::record::Heuristic;

/// A return code of the XA interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XaCode {
    /// `XA_OK`: done.
    Ok,
    /// `XA_RBROLLBACK`: rolled back, for a reason that is not said.
    RolledBack,
    /// `XA_RBCOMMFAIL`: rolled back, because communication failed within the resource manager.
    RolledBackCommunication,
    /// `XA_RBDEADLOCK`: rolled back, because of a deadlock.
    RolledBackDeadlock,
    /// `XA_RBINTEGRITY`: rolled back, because the data would not have been consistent.
    RolledBackIntegrity,
    /// `XA_RBOTHER`: rolled back, for a reason that is none of these.
    RolledBackOther,
    /// `XA_RBPROTO`: rolled back, because of an error of protocol within the resource manager.
    RolledBackProtocol,
    /// `XA_RBTIMEOUT`: rolled back, because it took too long.
    RolledBackTimeout,
    /// `XA_RBTRANSIENT`: rolled back; the same may work when it is tried again.
    RolledBackTransient,
    /// `XA_NOMIGRATE`: done, and the branch must be resumed where it was suspended.
    NoMigrate,
    /// `XA_HEURHAZ`: may have been completed by the resource manager itself, one way or another.
    HeuristicHazard,
    /// `XA_HEURCOM`: was committed by the resource manager itself.
    HeuristicCommit,
    /// `XA_HEURRB`: was rolled back by the resource manager itself.
    HeuristicRollback,
    /// `XA_HEURMIX`: was partly committed and partly rolled back by the resource manager itself.
    HeuristicMixed,
    /// `XA_RETRY`: nothing happened; the same call may work later.
    Retry,
    /// `XA_RDONLY`: the branch changed nothing and is ended.
    ReadOnly,
    /// `XAER_ASYNC`: the call goes on already.
    Async,
    /// `XAER_RMERR`: an error in the resource manager.
    ManagerError,
    /// `XAER_NOTA`: no such branch.
    NotKnown,
    /// `XAER_INVAL`: arguments that make no sense.
    Invalid,
    /// `XAER_PROTO`: a call that may not be made now.
    Protocol,
    /// `XAER_RMFAIL`: the resource manager cannot be reached.
    ManagerDown,
    /// `XAER_DUPID`: there is such a branch already.
    Duplicate,
    /// `XAER_OUTSIDE`: the resource manager is doing work outside of any branch.
    Outside,
}

/// A branch's answer to prepare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareAnswer {
    /// It can commit, and holds its changes until it hears what was decided.
    Prepared,
    /// It changed nothing and is ended: whatever is decided does not concern it.
    ReadOnly,
    /// It cannot commit, and is rolled back already or was never there.
    Gone,
    /// It cannot commit, or did not say: it has to be rolled back.
    Refused,
}

/// What became of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BranchEnd {
    /// It changed nothing.
    ReadOnly,
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
    /// Against the decision, or without one, the resource manager did something by itself.
    Heuristic(Heuristic),
    /// It does not know yet: recovery will tell it.
    Pending,
}

impl BranchEnd {
    /// What is recorded of it: what the resource manager did by itself.
    #[must_use]
    pub const fn heuristic(self) -> Option<Heuristic> {
        match self {
            Self::Heuristic(heuristic) => Some(heuristic),
            _ => None,
        }
    }
}

/// The answer to a commit or rollback, and what is left to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What became of the branch.
    pub end: BranchEnd,
    /// Whether the resource manager remembers the branch until it is told to forget it.
    pub remembered: bool,
}

impl XaCode {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Ok,
        Self::RolledBack,
        Self::RolledBackCommunication,
        Self::RolledBackDeadlock,
        Self::RolledBackIntegrity,
        Self::RolledBackOther,
        Self::RolledBackProtocol,
        Self::RolledBackTimeout,
        Self::RolledBackTransient,
        Self::NoMigrate,
        Self::HeuristicHazard,
        Self::HeuristicCommit,
        Self::HeuristicRollback,
        Self::HeuristicMixed,
        Self::Retry,
        Self::ReadOnly,
        Self::Async,
        Self::ManagerError,
        Self::NotKnown,
        Self::Invalid,
        Self::Protocol,
        Self::ManagerDown,
        Self::Duplicate,
        Self::Outside,
    ];

    /// The number in `xa.h`.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::RolledBack => 100,
            Self::RolledBackCommunication => 101,
            Self::RolledBackDeadlock => 102,
            Self::RolledBackIntegrity => 103,
            Self::RolledBackOther => 104,
            Self::RolledBackProtocol => 105,
            Self::RolledBackTimeout => 106,
            Self::RolledBackTransient => 107,
            Self::NoMigrate => 9,
            Self::HeuristicHazard => 8,
            Self::HeuristicCommit => 7,
            Self::HeuristicRollback => 6,
            Self::HeuristicMixed => 5,
            Self::Retry => 4,
            Self::ReadOnly => 3,
            Self::Async => -2,
            Self::ManagerError => -3,
            Self::NotKnown => -4,
            Self::Invalid => -5,
            Self::Protocol => -6,
            Self::ManagerDown => -7,
            Self::Duplicate => -8,
            Self::Outside => -9,
        }
    }

    /// The code of a number; `None` when the standard has none. The safe reading of such an answer is [`Self::Protocol`]:
    /// nothing is known to have happened.
    #[must_use]
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// The name in `xa.h`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "XA_OK",
            Self::RolledBack => "XA_RBROLLBACK",
            Self::RolledBackCommunication => "XA_RBCOMMFAIL",
            Self::RolledBackDeadlock => "XA_RBDEADLOCK",
            Self::RolledBackIntegrity => "XA_RBINTEGRITY",
            Self::RolledBackOther => "XA_RBOTHER",
            Self::RolledBackProtocol => "XA_RBPROTO",
            Self::RolledBackTimeout => "XA_RBTIMEOUT",
            Self::RolledBackTransient => "XA_RBTRANSIENT",
            Self::NoMigrate => "XA_NOMIGRATE",
            Self::HeuristicHazard => "XA_HEURHAZ",
            Self::HeuristicCommit => "XA_HEURCOM",
            Self::HeuristicRollback => "XA_HEURRB",
            Self::HeuristicMixed => "XA_HEURMIX",
            Self::Retry => "XA_RETRY",
            Self::ReadOnly => "XA_RDONLY",
            Self::Async => "XAER_ASYNC",
            Self::ManagerError => "XAER_RMERR",
            Self::NotKnown => "XAER_NOTA",
            Self::Invalid => "XAER_INVAL",
            Self::Protocol => "XAER_PROTO",
            Self::ManagerDown => "XAER_RMFAIL",
            Self::Duplicate => "XAER_DUPID",
            Self::Outside => "XAER_OUTSIDE",
        }
    }

    /// Whether it is one of the `XA_RB*`.
    #[must_use]
    pub const fn is_rollback(self) -> bool {
        matches!(self.number(), 100..=107)
    }

    /// As an answer to prepare. What the standard does not allow there counts as a refusal.
    #[must_use]
    pub const fn as_vote(self) -> PrepareAnswer {
        match self {
            Self::Ok => PrepareAnswer::Prepared,
            Self::ReadOnly => PrepareAnswer::ReadOnly,
            Self::NotKnown => PrepareAnswer::Gone,
            code if code.is_rollback() => PrepareAnswer::Gone,
            _ => PrepareAnswer::Refused,
        }
    }

    /// As an answer to the commit of a prepared branch.
    ///
    /// A branch that is not known any more was committed by somebody's recovery: a decision exists, so nobody was told to
    /// roll it back. `XAER_RMERR` says here that the work is rolled back for ever, as `XA_RB*` would.
    #[must_use]
    pub const fn after_commit(self) -> Ended {
        match self {
            Self::Ok | Self::ReadOnly | Self::NotKnown => Ended::plain(BranchEnd::Committed),
            Self::ManagerError => Ended::plain(BranchEnd::Heuristic(Heuristic::Rollback)),
            code if code.is_rollback() => Ended::plain(BranchEnd::Heuristic(Heuristic::Rollback)),
            code => code.heuristic(),
        }
    }

    /// As an answer to a commit in one phase, of a branch that is not prepared; `None` when it is still there and has to be
    /// rolled back. One that cannot be reached any more may have done either, and nobody will ever know.
    #[must_use]
    pub const fn after_one_phase(self) -> Option<Ended> {
        Some(match self {
            Self::Ok | Self::ReadOnly => Ended::plain(BranchEnd::Committed),
            Self::ManagerError | Self::NotKnown => Ended::plain(BranchEnd::RolledBack),
            Self::ManagerDown => Ended::plain(BranchEnd::Heuristic(Heuristic::Hazard)),
            code if code.is_rollback() => Ended::plain(BranchEnd::RolledBack),
            code => match code.heuristic() {
                Ended { end: BranchEnd::Pending, .. } => return None,
                ended => ended,
            },
        })
    }

    /// As an answer to a rollback.
    #[must_use]
    pub const fn after_rollback(self) -> Ended {
        match self {
            Self::Ok | Self::ReadOnly | Self::NotKnown | Self::ManagerError => Ended::plain(BranchEnd::RolledBack),
            code if code.is_rollback() => Ended::plain(BranchEnd::RolledBack),
            code => code.heuristic(),
        }
    }

    /// A heuristic code, or else that nothing happened yet.
    const fn heuristic(self) -> Ended {
        let deed = match self {
            Self::HeuristicHazard => Heuristic::Hazard,
            Self::HeuristicCommit => Heuristic::Commit,
            Self::HeuristicRollback => Heuristic::Rollback,
            Self::HeuristicMixed => Heuristic::Mixed,
            _ => return Ended::plain(BranchEnd::Pending),
        };
        Ended { end: BranchEnd::Heuristic(deed), remembered: true }
    }
}

impl Ended {
    const fn plain(end: BranchEnd) -> Self {
        Self { end, remembered: false }
    }
}

impl std::fmt::Display for XaCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{BranchEnd, PrepareAnswer, XaCode};
    use crate::record::Heuristic;

    #[test]
    fn numbers_are_distinct_and_found_again() {
        for code in XaCode::ALL {
            assert_eq!(XaCode::of_number(code.number()), Some(code));
        }
        for none in [1, 2, 10, 99, 108, -1, -10, i32::MIN] {
            assert_eq!(XaCode::of_number(none), None);
        }
        assert_eq!(XaCode::ALL.iter().filter(|code| code.is_rollback()).count(), 8);
    }

    #[test]
    fn what_is_in_doubt_after_each_answer() {
        let pending = |end| end == BranchEnd::Pending;
        for code in XaCode::ALL {
            // Only an answer that says so ends a prepared branch; everything else leaves it to recovery.
            let silent = matches!(code.number(), 4 | 9 | -2 | -5 | -6 | -7 | -8 | -9);
            assert_eq!(pending(code.after_commit().end), silent, "{code}");
            assert_eq!(pending(code.after_rollback().end), silent, "{code}");
            // Who is not prepared must be rolled back, unless it is gone or can commit.
            assert_eq!(code.as_vote() == PrepareAnswer::Prepared, code == XaCode::Ok, "{code}");
            assert_eq!(code.after_one_phase().is_none(), silent && code != XaCode::ManagerDown, "{code}");
            assert_eq!(code.after_commit().remembered, matches!(code.number(), 5..=8), "{code}");
        }
        assert_eq!(XaCode::ManagerDown.after_one_phase().unwrap().end, BranchEnd::Heuristic(Heuristic::Hazard));
    }
}
