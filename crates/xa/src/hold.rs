//! Shared transactions that go from one program to the next: who may decide.
//!
//! Who holds one, and what moves it:
//!
//!   first      the program that began it; nobody says so, and there may be no entry yet
//!   nobody     it is suspended: its branches were named, and vote; nobody may commit it
//!   resumed    the one program that resumed it since
//!
//!   first, resumed -> nobody     suspend
//!   nobody -> resumed            resume, by one program; any other is refused
//!
//! So work of two programs never comes to be committed apart: what is not suspended cannot be resumed, and of several that
//! would resume it one may decide. It is in memory only, as all of a shared transaction is before it is decided.
//!
//! One that was suspended and has a deadline outlives its owner: the deadline bounds how long its branches may stay in doubt.
//! Any other ends with the program that began it.
//!
//! May use: `table`, `decide`. Must not know: verdicts, clocks, stores.

use std::time::Duration;

use crate::answer::{Needs, Plan};
use crate::decide::{Shared, Taking};
use crate::error::TableError;
use crate::id::{BranchName, OwnerId, TransactionId};
use crate::table::{Entry, Now, Table};

/// How long a transaction may stay that is suspended and has a timeout.
pub const SUSPENDED_MAX: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Who may decide about a shared transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Holding {
    /// Who began it.
    #[default]
    First,
    /// Nobody: it is suspended.
    Nobody,
    /// Who resumed it.
    Resumed(Resumer),
}

/// A program that resumes a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resumer {
    /// The owner that it is itself, if it is one.
    pub by: Option<OwnerId>,
    /// What tells the same request, made once more because an answer was lost, from any other of this owner. Without it
    /// every request is another one.
    pub number: Option<u64>,
}

impl Resumer {
    /// Whether it is the same request.
    fn is_again(self, earlier: Self) -> bool {
        self.number.is_some() && self == earlier
    }
}

impl Shared {
    /// Whether it goes on when the program that began it has ended.
    pub(crate) fn outlives_owner(&self, id: TransactionId) -> bool {
        self.holding != Holding::First && id.deadline_ms != 0
    }
}

impl Table {
    /// As [`Table::enlist`], by the program that may decide about the transaction and leaves it to whoever resumes it.
    ///
    /// # Errors
    /// As [`Table::enlist`]; `Suspended` and `Resumed` for a program that does not hold it.
    pub fn suspend(
        &mut self,
        id: TransactionId,
        by: Option<OwnerId>,
        branches: &[BranchName],
        now: Now,
    ) -> Result<Plan<Taking>, TableError> {
        if let Some(Entry::Shared(shared)) = self.entries.get(&id) {
            match shared.holding {
                // The same request once more names nothing new.
                Holding::Nobody if branches.iter().any(|branch| !shared.parts.contains_key(branch)) => {
                    return Err(TableError::Suspended(id));
                }
                Holding::Resumed(Resumer { by: Some(holder), .. }) if by != Some(holder) => {
                    return Err(TableError::Resumed(id));
                }
                Holding::First | Holding::Nobody | Holding::Resumed(_) => {}
            }
        }
        self.check_suspending(id, now)?;
        let plan = self.enlist(id, by, branches, now)?;
        if let Some(Entry::Shared(shared)) = self.entries.get_mut(&id) {
            if let Holding::Resumed(resumer @ Resumer { number: Some(_), .. }) = shared.holding {
                if shared.before.len() >= self.limits.xa_branches_max {
                    shared.before.remove(0);
                }
                shared.before.push(resumer);
            }
            shared.holding = Holding::Nobody;
            if id.deadline_ms != 0 {
                self.suspended.insert(id);
            }
        }
        Ok(plan)
    }

    /// What is suspended stays when its owner has ended, until its deadline: that must not be far, nor must there be so many that nobody
    /// has room to commit.
    fn check_suspending(&self, id: TransactionId, now: Now) -> Result<(), TableError> {
        if id.deadline_ms == 0 {
            return Ok(());
        }
        let longest = u64::try_from(SUSPENDED_MAX.as_millis()).unwrap_or(u64::MAX);
        if id.deadline_ms > now.wall_ms.saturating_add(longest) {
            return Err(TableError::TooLongSuspended);
        }
        let max = (self.limits.xa_transactions_max / 2).max(1);
        if self.suspended.len() >= max && !self.suspended.contains(&id) {
            return Err(TableError::Limit { what: "transactions that are suspended, or were", max });
        }
        Ok(())
    }

    /// Goes on with a suspended transaction, and decides about it.
    ///
    /// # Errors
    /// `Foreign`, `NotShared`, `NoSuchOwner`, `Doubtful`; `NotSuspended`: it may be later. `Resumed`: by another program.
    pub fn resume(&mut self, id: TransactionId, resumer: Resumer, now: Now) -> Result<Plan<Taking>, TableError> {
        self.check_owner(resumer.by)?;
        if let Some(plan) = self.take_part(id, now)? {
            return Ok(plan);
        }
        let Some(Entry::Shared(shared)) = self.entries.get_mut(&id) else { return Err(TableError::NotSuspended(id)) };
        match shared.holding {
            Holding::First => return Err(TableError::NotSuspended(id)),
            Holding::Resumed(earlier) if !resumer.is_again(earlier) => return Err(TableError::Resumed(id)),
            // A late copy of a request of who has suspended it since: nobody waits for its answer, so nobody would hold it.
            Holding::Nobody if shared.before.iter().any(|earlier| resumer.is_again(*earlier)) => {
                return Err(TableError::Resumed(id));
            }
            Holding::Nobody | Holding::Resumed(_) => shared.holding = Holding::Resumed(resumer),
        }
        Ok(Plan::nothing(Taking::Part, Needs::default()))
    }
}
