//! What a branch makes of a database's answers, with a session that says what the test wants.

use std::collections::VecDeque;
use std::marker::PhantomData;

use tm::{BranchName, CoordinatorId, OwnerId, TransactionId, XaCode};

use super::*;
use crate::abi::TMNOFLAGS;
use crate::native::mariadb::MariaDb;

/// Answers in order, each to a statement that begins so.
struct Scripted<D> {
    script: VecDeque<(&'static str, Result<Reply, Failure>)>,
    sent: Option<String>,
    standing: Standing,
    dialect: PhantomData<D>,
}

impl<D: Dialect> Session for Scripted<D> {
    type Dialect = D;

    fn send(&mut self, statement: &str) -> Result<(), Failure> {
        self.sent = Some(statement.to_owned());
        Ok(())
    }

    fn receive(&mut self) -> Result<Reply, Failure> {
        let sent = self.sent.take().unwrap();
        let (start, answer) = self.script.pop_front().unwrap_or_else(|| panic!("{sent} was not expected"));
        assert!(sent.starts_with(start), "{sent} instead of {start}");
        answer
    }

    fn standing(&self) -> Standing {
        self.standing
    }
}

fn xid() -> XidData {
    let id =
        TransactionId { coordinator: CoordinatorId(1), owner: OwnerId(2), sequence: 3, deadline_ms: 0, shared: false };
    XidData::of_branch(id, &BranchName::new("database").unwrap())
}

fn connection<D: Dialect, const N: usize>(
    script: [(&'static str, Result<Reply, Failure>); N],
) -> BranchConnection<Scripted<D>> {
    let script = VecDeque::from(script);
    BranchConnection::new(Scripted { script, sent: None, standing: Standing::Untold, dialect: PhantomData })
}

fn done() -> Result<Reply, Failure> {
    Ok(Reply::default())
}

fn refused(state: &str, number: u32) -> Result<Reply, Failure> {
    Err(Failure::Refused { state: state.to_owned(), number, text: "no".to_owned() })
}

fn lost() -> Result<Reply, Failure> {
    Err(Failure::Lost("gone".to_owned()))
}

/// The branch belonged to a session that was still there, the list that would have told failed, and the branch was taken for
/// committed: its decision was let go of, and the branch rolled back.
#[test]
fn a_branch_that_is_not_known_is_gone_only_where_the_list_says_so() {
    for (list, answer) in [(lost(), XAER_RMFAIL), (refused("HY000", 1227), XAER_RMFAIL), (done(), XAER_NOTA)] {
        for (verb, statement) in [(Verb::Commit, "XA COMMIT"), (Verb::Rollback, "XA ROLLBACK")] {
            let script = [(statement, refused("XAE04", 1397)), ("XA RECOVER", list.clone())];
            let mut connection = connection::<MariaDb, 2>(script);
            assert_eq!(connection.call(verb, &xid(), TMNOFLAGS), answer, "{list:?}");
            assert!(connection.session.script.is_empty());
        }
    }
    let mut connection = connection::<MariaDb, 1>([("XA RECOVER", lost())]);
    assert_eq!(connection.prepared(), Err(XaCode::ManagerDown));
}
