//! What people ask a remote coordinator.
//!
//! May use: `wire`. Must not know: how answers are shown.

use std::time::Duration;

use xa::{BranchName, TransactionId};

use super::wire::Reply;
use super::{Remote, good, ok, strange};
use crate::State;
use crate::administration::{Administration, BranchStatus, Forget, Page, Settling, Status};
use crate::decisions::Result;

impl Administration for Remote {
    fn status(&self, id: TransactionId) -> Result<Status> {
        let reply = good(self.inner.ask(&self.inner.side, &["XA.STATUS", &id.to_string()])?)?;
        status_of(&reply, Some(id)).ok_or_else(|| strange(&reply))
    }

    fn list(&self, cursor: &str) -> Result<Page> {
        let mut words = vec!["XA.LIST", "COUNT", "200"];
        if cursor != "0" {
            words.extend(["CURSOR", cursor]);
        }
        let reply = good(self.inner.ask(&self.inner.side, &words)?)?;
        let Some([next, transactions]) = reply.list() else { return Err(strange(&reply)) };
        let transactions = transactions.list().ok_or_else(|| strange(&reply))?;
        let next = next.text().map(std::borrow::Cow::into_owned);
        let transactions: Option<Vec<_>> = transactions.iter().map(|status| status_of(status, None)).collect();
        Ok(Page { transactions: transactions.ok_or_else(|| strange(&reply))?, next })
    }

    fn forget(&self, id: TransactionId, forget: Forget) -> Result<()> {
        let id = id.to_string();
        let mut words = vec!["XA.FORGET", &id];
        if forget == Forget::EvenInDoubt {
            words.push("FORCE");
        }
        // Twice would be once.
        ok(self.inner.ask(&self.inner.main, &words)?)
    }

    fn settle(&self, id: TransactionId, settling: Settling<'_>) -> Result<()> {
        let id = id.to_string();
        let count;
        let mut words = match settling {
            Settling::Rollback => vec!["XA.ROLLBACK", &id],
            Settling::Commit(branches) => {
                count = branches.len().to_string();
                let mut words = vec!["XA.COMMIT", &id, "BRANCHES", &count];
                words.extend(branches.iter().map(BranchName::as_str));
                words
            }
        };
        words.push("OPERATOR");
        ok(self.inner.ask(&self.inner.main, &words)?)
    }
}

fn status_of(reply: &Reply, known: Option<TransactionId>) -> Option<Status> {
    let id = match reply.field("id").and_then(Reply::text) {
        Some(text) => text.parse().ok()?,
        None => known?,
    };
    let state = match reply.field("state")?.text()?.as_ref() {
        "committed" => State::Committed,
        "aborted" => State::Aborted,
        "last-resource" => State::LastResource,
        "active" => State::Active,
        "suspended" => State::Suspended,
        "doubtful" => State::Doubtful,
        _ => State::Unknown,
    };
    let branches = match reply.field("branches") {
        None | Some(Reply::Null) => Vec::new(),
        Some(branches) => branches_of(branches)?,
    };
    let decided = reply.field("settled").and_then(Reply::number).filter(|at| *at > 0).map(Duration::from_millis);
    let owner_name = reply.field("owner_name").and_then(Reply::text).map(std::borrow::Cow::into_owned);
    let owner_name = owner_name.filter(|name| !name.is_empty());
    Some(Status { id, state, decided, owner_name, branches })
}

/// Branches are pairs of a name and a state.
fn branches_of(reply: &Reply) -> Option<Vec<BranchStatus>> {
    let branch = |pair: &Reply| match pair.list()? {
        [name, state] => {
            Some(BranchStatus { branch: BranchName::new(&name.text()?).ok()?, state: state.text()?.into_owned() })
        }
        _ => None,
    };
    reply.list()?.iter().map(branch).collect()
}
