//! What a resource manager has to offer to take part in transactions and in their recovery.
//!
//! May use: `xa`. Must not know: any resource manager, coordinators.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use xa::{BranchName, LastResourceId, TransactionId, XaCode, Xid};

use crate::last_resource::Kept;

/// A future in a box, so that different resource managers fit into one list.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a resource manager answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// In the words of X/Open XA.
    pub code: XaCode,
    /// In its own words, for people; empty when all is well.
    pub reason: String,
}

impl Answer {
    /// An answer with its reason.
    #[must_use]
    pub fn new(code: XaCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl From<XaCode> for Answer {
    fn from(code: XaCode) -> Self {
        Self { code, reason: String::new() }
    }
}

/// One resource manager's part of a transaction, which was started and has the program's work in it.
///
/// Each call comes at most once and none while another is under way. A branch is dropped after its end; one that is dropped
/// before must end its work, unless it is prepared: then it is recovery's.
pub trait Branch: Send {
    /// Ends the work and gets ready to commit, so that neither a crash of the resource manager nor of this program undoes
    /// it; or says that it cannot.
    fn prepare(&mut self) -> BoxFuture<'_, Answer>;

    /// Commits work that was not prepared. Asked of a transaction's only branch.
    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer>;

    /// Commits work that was not prepared, and with it, as one, the record that the transaction is committed, of which `others` are to
    /// hear: see [`LastResource`](crate::LastResource). Asked of the branch that is the transaction's last resource; a resource
    /// manager that has no such record refuses.
    fn commit_last<'a>(&'a mut self, _others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::new(XaCode::Protocol, "this resource manager cannot be the last resource") })
    }

    /// Commits what was prepared.
    fn commit(&mut self) -> BoxFuture<'_, Answer>;

    /// Rolls back, whether it was prepared or not.
    fn rollback(&mut self) -> BoxFuture<'_, Answer>;

    /// Lets go what the resource manager remembers of having decided by itself. Few do.
    fn forget(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { XaCode::Ok.into() })
    }
}

/// What is prepared in a resource manager under names that begin as Holdfast's do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InDoubt {
    /// The branches.
    pub branches: Vec<Xid>,
    /// Names that are none: damaged, or made by a version to come, or by somebody else who begins them as we do. As the resource
    /// manager takes them, so that a person can end them. Recovery leaves them alone, and tells of them.
    pub unreadable: Vec<String>,
}

impl From<Vec<Xid>> for InDoubt {
    fn from(branches: Vec<Xid>) -> Self {
        Self { branches, unreadable: Vec::new() }
    }
}

/// A resource manager as recovery sees it: reached by a connection of its own, and anew for each round.
pub trait ResourceManager: Send + Sync {
    /// Its name, which is that of its branches.
    fn name(&self) -> &BranchName;

    /// Its place in the order of commits: those with a lower number commit first, also when recovery does it.
    fn order(&self) -> u32 {
        0
    }

    /// The branches that are prepared there, as far as Holdfast made their names; or why that cannot be learned.
    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>>;

    /// Commits a branch that was found.
    ///
    /// `NotKnown` says that it is surely gone. One that is only out of reach, because the connection that prepared it is
    /// still there, is answered with `Retry`.
    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer>;

    /// Rolls back a branch that was found.
    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer>;

    /// Lets go what it remembers of having decided by itself.
    fn forget<'a>(&'a self, _xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { XaCode::Ok.into() })
    }

    /// Whether each of these transactions was committed by their last resource, if this resource manager has that; see
    /// [`LastResource::settle`](crate::LastResource::settle). `None` when it has not.
    fn settle_last<'a>(
        &'a self,
        _last: LastResourceId,
        _ids: &'a [TransactionId],
    ) -> BoxFuture<'a, Result<Option<Vec<bool>>, String>> {
        Box::pin(async { Ok(None) })
    }

    /// The decisions to commit that are kept here, as last resource, for longer than `age`, and that are wanted: of very many the first.
    fn kept<'a>(
        &'a self,
        _age: Duration,
        _is_wanted: &'a (dyn Fn(&Kept) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Kept>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Lets go of decisions that are kept here.
    fn let_go<'a>(&'a self, _ids: &'a [TransactionId]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// What is wrong with it, in plain words with what to do; empty when it can take part.
    fn check(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async { self.in_doubt().await.err().into_iter().collect() })
    }
}
