//! A commit that is the decision about a distributed transaction too.
//!
//! May use: `transaction`, `remote`, the facade. Must not know: sockets, resource managers.

use std::time::Duration;

use holdfast::{BranchName, Error, ErrorKind, Result, TransactionId};

use super::{Came, Patience, Transaction, one};
use crate::call::Call;
use crate::remote::{Reply, Words};

impl Transaction {
    /// Decides to commit a distributed transaction of the same store with this one's batch: all its branches are prepared, and
    /// either everything happens or nothing. Nothing is decided before [`Transaction::commit`], which then fails with `Aborted`
    /// when the distributed transaction will never be committed, and with `Conflict` when it is committed already.
    ///
    /// Without branches there is nothing to decide, and this does nothing.
    ///
    /// This is what `holdfast_tm`'s `Transaction::commit_with` is given to call.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn decide(&mut self, id: TransactionId, branches: &[BranchName]) -> Call<()> {
        if branches.is_empty() {
            return Call::done(Ok(()));
        }
        let words = Words::new("XA.COMMIT").and(id.to_string()).and("BRANCHES").and(branches.len().to_string());
        let words = branches.iter().fold(words, |words, branch| words.and(branch.as_str()));
        let branches = branches.to_vec();
        let here = move |transaction: &mut holdfast::Transaction, _: &Patience| {
            transaction.decide(id, &branches);
            Ok(Came::Done(()))
        };
        self.run(one(here, Ok(words), Duration::ZERO, noted))
    }
}

/// What a server answers to a decision that waits for the commit.
fn noted(reply: Reply) -> Result<()> {
    match reply.good()?.text()?.as_ref() {
        "QUEUED" => Ok(()),
        other => Err(Error::new(ErrorKind::Internal, format!("the server decided at once, and answered {other}"))),
    }
}
