//! What a branch makes of a database's answers, with a session that says what the test wants.

use std::collections::VecDeque;
use std::marker::PhantomData;

use tm::{BranchName, CoordinatorId, OwnerId, PostgresMark, TransactionId, XaCode};

use super::*;
use crate::abi::{TMNOFLAGS, TMSUCCESS, XA_RBTIMEOUT};
use crate::native::mariadb::MariaDb;
use crate::native::postgres::Postgres;

type Line = (&'static str, Result<Reply, Failure>, Standing);

/// Answers in order, each to a statement that begins so, and how the session stands then.
struct Scripted<D> {
    script: VecDeque<Line>,
    sent: Option<String>,
    standing: Standing,
    /// Whether the connection is not the program's.
    is_ours: bool,
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
        let (start, answer, standing) = self.script.pop_front().unwrap_or_else(|| panic!("{sent} was not expected"));
        assert!(sent.starts_with(start), "{sent} instead of {start}");
        self.standing = standing;
        answer
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn reopen(&mut self) -> Option<Result<(), Failure>> {
        self.is_ours.then_some(Ok(()))
    }
}

fn xid() -> XidData {
    xid_of(3)
}

fn other_xid() -> XidData {
    xid_of(4)
}

fn xid_of(sequence: u64) -> XidData {
    let id = TransactionId {
        coordinator: CoordinatorId(1),
        owner: OwnerId(2),
        sequence,
        deadline_ms: 0,
        shared: false,
        last_resource: None,
    };
    XidData::of_branch(id, &BranchName::new("database").unwrap())
}

fn connection<D: Dialect, const N: usize>(script: [Line; N], standing: Standing) -> BranchConnection<Scripted<D>> {
    let script = script.into();
    BranchConnection::new(Scripted { script, sent: None, standing, is_ours: true, dialect: PhantomData })
}

fn done() -> Result<Reply, Failure> {
    Ok(Reply::default())
}

fn refused(state: &str, number: u32) -> Result<Reply, Failure> {
    Err(Failure::Refused { state: state.to_owned(), number, text: "no".to_owned() })
}

/// How the statement begins that does this to a branch which is looked for first.
fn checked(statement: &str) -> &'static str {
    PostgresMark(&xid().to_xid().unwrap()).checked(statement).leak()
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
            let not_known = (statement, refused("XAE04", 1397), Standing::Untold);
            let script = [not_known, ("XA RECOVER", list.clone(), Standing::Untold)];
            let mut connection = connection::<MariaDb, 2>(script, Standing::Untold);
            assert_eq!(connection.call(verb, &xid(), TMNOFLAGS), answer, "{list:?}");
            assert!(connection.session.script.is_empty());
        }
    }
    let mut connection = connection::<MariaDb, 1>([("XA RECOVER", lost(), Standing::Untold)], Standing::Untold);
    assert_eq!(connection.prepared(), Err(XaCode::ManagerDown));
}

/// A statement that was cancelled before it took effect left the session in a failed transaction, and every later branch was
/// refused: `TX_OUTSIDE`, until the program rolled back by itself.
#[test]
fn a_refused_prepare_or_commit_leaves_no_transaction_in_the_session() {
    let begin = || ("BEGIN", done(), Standing::Open);
    let start = |connection: &mut BranchConnection<Scripted<Postgres>>| {
        assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(Verb::End, &xid(), TMNOFLAGS), XA_OK);
    };
    for (verb, flags, statement) in
        [(Verb::Prepare, TMNOFLAGS, "PREPARE TRANSACTION"), (Verb::Commit, TMONEPHASE, "COMMIT")]
    {
        let statement = checked(statement);
        let cancelled = |standing| (statement, refused("57014", 0), standing);
        let rollback = ("ROLLBACK", done(), Standing::Idle);
        let mut left = connection([begin(), cancelled(Standing::Failed), rollback, begin()], Standing::Idle);
        // What the server has rolled back by itself is not rolled back once more.
        let mut cleared = connection([begin(), cancelled(Standing::Idle), begin()], Standing::Idle);
        for connection in [&mut left, &mut cleared] {
            start(connection);
            assert_eq!(connection.call(verb, &xid(), flags), XA_RBTIMEOUT);
            start(connection);
            assert!(connection.session.script.is_empty());
        }
    }
}

/// What was open was committed, and the branch's own work had been rolled back long before, or committed alone.
#[test]
fn a_transaction_that_is_not_the_branchs_is_neither_prepared_nor_committed() {
    let text =
        "invalid input: the branch is not open any more, and another transaction may be: the program ended it itself";
    let other = || Err(Failure::Refused { state: "22P02".to_owned(), number: 0, text: text.to_owned() });
    for (verb, flags, statement, answer) in [
        (Verb::Prepare, TMNOFLAGS, "PREPARE TRANSACTION", XAER_PROTO),
        (Verb::Commit, TMONEPHASE, "COMMIT", XAER_PROTO),
        (Verb::Rollback, TMNOFLAGS, "ROLLBACK", XA_HEURHAZ),
    ] {
        let script = [
            ("BEGIN; SET LOCAL", done(), Standing::Open),
            (checked(statement), other(), Standing::Failed),
            ("ROLLBACK", done(), Standing::Idle),
            ("BEGIN; SET LOCAL", done(), Standing::Open),
        ];
        let mut connection = connection::<Postgres, 4>(script, Standing::Idle);
        assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(Verb::End, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(verb, &xid(), flags), answer);
        assert!(last_error::text().contains("ended the transaction itself"), "{}", last_error::text());
        assert_eq!(connection.call(Verb::Rollback, &xid(), TMNOFLAGS), XA_HEURHAZ);
        assert_eq!(connection.call(Verb::Forget, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XA_OK);
        assert!(connection.session.script.is_empty());
    }
}

/// A statement of two parts fails as a whole, and what began the transaction had been done.
#[test]
fn a_branch_that_does_not_begin_leaves_no_transaction_in_the_session() {
    let script = [("BEGIN; SET LOCAL", refused("57014", 0), Standing::Failed), ("ROLLBACK", done(), Standing::Idle)];
    let mut connection = connection::<Postgres, 2>(script, Standing::Idle);
    assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XAER_RMERR);
    assert!(connection.session.script.is_empty());
}

/// The code was that of an error for ever, and one said later that it had passed: MariaDB binds a prepared branch to its
/// connection, whatever the coordinator does.
#[test]
fn a_branch_left_in_doubt_does_not_keep_the_next_from_beginning() {
    for (is_ours, answer) in [(true, XA_OK), (false, XAER_RMERR)] {
        let step = |statement| (statement, done(), Standing::Untold);
        let script = [step("XA START"), step("XA END"), step("XA PREPARE"), step("XA START")];
        let mut connection = connection::<MariaDb, 4>(script, Standing::Untold);
        connection.session.is_ours = is_ours;
        assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(Verb::End, &xid(), TMSUCCESS), XA_OK);
        assert_eq!(connection.call(Verb::Prepare, &xid(), TMNOFLAGS), XA_OK);
        assert_eq!(connection.call(Verb::Start, &other_xid(), TMNOFLAGS), answer);
        let is_told = last_error::text().contains("holdfast_tm_recover, or use another connection");
        assert!(is_ours || is_told, "{}", last_error::text());
    }
}

#[test]
fn a_connection_whose_transaction_is_suspended_begins_no_other() {
    let mut connection = connection::<Postgres, 1>([("BEGIN", done(), Standing::Open)], Standing::Idle);
    assert_eq!(connection.call(Verb::Start, &xid(), TMNOFLAGS), XA_OK);
    assert_eq!(connection.call(Verb::End, &xid(), TMSUSPEND), XA_OK);
    assert_eq!(connection.call(Verb::Start, &other_xid(), TMNOFLAGS), XAER_RMERR);
    assert!(last_error::text().contains("which is suspended: it has to be resumed"), "{}", last_error::text());
    assert_eq!(connection.call(Verb::Start, &xid(), TMRESUME), XA_OK);
}

/// A program that used its connection while a commit was under way got the answer to that, and its own statement's was taken for
/// the commit's: the decision was let go of, and recovery rolled the branch back.
#[test]
fn a_commit_whose_answer_may_be_anothers_is_looked_for() {
    let mut name = xid().to_xid().unwrap().transaction.to_bytes().to_vec();
    name.extend_from_slice(b"database");
    let row = vec![tm::FORMAT_ID.to_string().into_bytes(), b"36".to_vec(), b"8".to_vec(), name];
    let listed = || Ok(Reply { tag: String::new(), rows: vec![row.clone()] });
    for (list, answer) in [(listed(), XAER_RMFAIL), (lost(), XAER_RMFAIL), (done(), XA_OK)] {
        let script = [("XA COMMIT", done(), Standing::Untold), ("XA RECOVER", list, Standing::Untold)];
        let mut connection = connection::<MariaDb, 2>(script, Standing::Untold);
        let handle = connection.call(Verb::Commit, &xid(), TMASYNC);
        assert_eq!(connection.complete_late(handle + 1), XAER_INVAL);
        assert_eq!(connection.complete_late(handle), answer);
        assert!(connection.session.script.is_empty());
        // What is left to recovery does not keep the next from beginning: the connection is opened anew.
        assert_eq!(connection.current.is_some(), answer == XAER_RMFAIL);
        connection.session.script.push_back(("XA START", done(), Standing::Untold));
        assert_eq!(connection.call(Verb::Start, &other_xid(), TMNOFLAGS), XA_OK);
    }
    // A refusal says enough.
    let script = [("XA COMMIT", refused("XAE", 1205), Standing::Untold)];
    let mut connection = connection::<MariaDb, 1>(script, Standing::Untold);
    let handle = connection.call(Verb::Commit, &xid(), TMASYNC);
    assert_eq!(connection.complete_late(handle), XAER_RMFAIL);
}

/// `COMMIT PREPARED` of what was found was refused within the program's transaction, which had failed then.
#[test]
fn nothing_is_recovered_within_a_transaction_of_the_programs_own() {
    for standing in [Standing::Open, Standing::Failed] {
        let mut connection = connection::<Postgres, 0>([], standing);
        assert_eq!(connection.prepared(), Err(XaCode::Outside));
        assert!(last_error::text().contains("that the program began itself"), "{}", last_error::text());
    }
}

/// A branch that another session prepared says nothing about how this one may be idle. Ending one made the session forget its own, which is
/// prepared in it still.
#[test]
fn a_session_is_put_back_only_where_the_branch_began() {
    let deadline = |xid: XidData| {
        let mut xid = xid.to_xid().unwrap();
        xid.transaction.deadline_ms = 5;
        XidData::of(&xid)
    };
    let idle = "/*M!100300 BEGIN NOT ATOMIC SET SESSION idle_transaction_timeout = ";
    let ok = |statement| (statement, done(), Standing::Untold);
    let begin = || ok("/*M!100300 BEGIN NOT ATOMIC */ XA START");
    let (own, other) = (deadline(xid()), deadline(other_xid()));
    let script = [
        begin(),
        ok("XA END"),
        ok("XA PREPARE"),
        ok("XA COMMIT"),
        ok("XA ROLLBACK"),
        ok(idle),
        begin(),
        ok("XA END"),
        ok(idle),
    ];
    let mut connection = connection::<MariaDb, 9>(script, Standing::Untold);
    for (verb, xid) in [
        (Verb::Start, &own),
        (Verb::End, &own),
        (Verb::Prepare, &own),
        (Verb::Commit, &other),
        (Verb::Rollback, &other),
        (Verb::Commit, &own),
        (Verb::Start, &own),
        (Verb::End, &own),
        (Verb::Rollback, &own),
    ] {
        assert_eq!(connection.call(verb, xid, TMNOFLAGS), XA_OK, "{verb:?}");
    }
    assert!(connection.session.script.is_empty());
}
