//! Two-phase commit as MariaDB and MySQL say it: `XA START`, `XA END`, `XA PREPARE`, `XA COMMIT`, `XA ROLLBACK`.
//!
//! A prepared branch belongs to the session that prepared it until that ends. To any other session the server says that it
//! does not know the branch, although `XA RECOVER` lists it: `branch.rs` looks, before it believes that a branch is gone.
//!
//! May use: `dialect`. Must not know: libmariadb.

use std::ffi::c_int;
use std::fmt::Write as _;

use tm::{FORMAT_ID, MysqlIdle, Xid};

use super::dialect::{Dialect, Step};
use super::{Failure, Reply, Standing};
use crate::abi::{
    XA_OK, XA_RBDEADLOCK, XA_RBINTEGRITY, XA_RBOTHER, XA_RBROLLBACK, XA_RBTIMEOUT, XAER_DUPID, XAER_INVAL, XAER_NOTA,
    XAER_OUTSIDE, XAER_PROTO, XAER_RMERR, XAER_RMFAIL,
};

/// How MariaDB says it.
pub(crate) struct MariaDb;

impl Dialect for MariaDb {
    fn statement(step: Step, xid: &Xid) -> Option<String> {
        let name = literal(xid);
        Some(match step {
            Step::Start => MysqlIdle(xid).begun(&format!("XA START {name}")),
            Step::End => format!("XA END {name}"),
            Step::Prepare => format!("XA PREPARE {name}"),
            Step::CommitOnePhase => format!("XA COMMIT {name} ONE PHASE"),
            Step::CommitPrepared => format!("XA COMMIT {name}"),
            Step::RollbackActive | Step::RollbackPrepared | Step::Clear => format!("XA ROLLBACK {name}"),
        })
    }

    /// How long it may be idle in a branch is said to a session when that begins, and is as it was when that ends.
    fn in_its_session(statement: String, xid: &Xid) -> String {
        MysqlIdle(xid).ended(&statement)
    }

    fn judge(step: Step, answer: &Result<Reply, Failure>) -> c_int {
        let number = match answer {
            Ok(_) => return XA_OK,
            Err(Failure::Lost(_)) => return XAER_RMFAIL,
            Err(Failure::Refused { number, .. }) => *number,
        };
        let prepared = matches!(step, Step::CommitPrepared | Step::RollbackPrepared);
        match number {
            1397 => XAER_NOTA,
            // Of a prepared branch this is said only of one that changed nothing: when its session ends the server lets it go, and
            // keeps the name (MariaDB, `trans_xa_detach`). One with changes is committed, or not known.
            1402 if prepared => XA_OK,
            // What else is said about a prepared branch leaves it as it is.
            _ if prepared => XAER_RMFAIL,
            1398 => XAER_INVAL,
            // The server calls this XAER_RMFAIL, and means that the branch is not in the right state.
            1399 => XAER_PROTO,
            1400 => XAER_OUTSIDE,
            1401 => XAER_RMERR,
            1402 => XA_RBROLLBACK,
            1440 => XAER_DUPID,
            1613 | 1205 => XA_RBTIMEOUT,
            1614 | 1213 => XA_RBDEADLOCK,
            1062 | 1451 | 1452 | 4025 => XA_RBINTEGRITY,
            _ if matches!(step, Step::Start | Step::End) => XAER_RMERR,
            _ => XA_RBOTHER,
        }
    }

    /// MariaDB lets nobody end a branch by other statements.
    fn is_missed(_: &Result<Reply, Failure>) -> bool {
        false
    }

    fn judge_end(_: Standing) -> c_int {
        XA_OK
    }

    /// MariaDB answers `XA PREPARE` of a branch that changed nothing as that of any other.
    const ASK: Option<&'static str> = None;

    fn changed_nothing(_: &Reply) -> bool {
        false
    }

    const BINDS_PREPARED: bool = true;

    const LIST: &'static str = "XA RECOVER";

    fn listed(reply: &Reply) -> Vec<Xid> {
        reply.rows.iter().filter_map(|row| listed(row)).collect()
    }
}

/// `X'..',X'..',number`: both names as hexadecimal literals.
fn literal(xid: &Xid) -> String {
    let mut text = String::new();
    for bytes in [&xid.transaction.to_bytes()[..], xid.branch.as_str().as_bytes()] {
        text.push_str("X'");
        for byte in bytes {
            write!(text, "{byte:02x}").expect("a string takes all that is written");
        }
        text.push_str("',");
    }
    write!(text, "{FORMAT_ID}").expect("a string takes all that is written");
    text
}

/// A row of `XA RECOVER`: format id, both lengths, both names in one.
fn listed(row: &[Vec<u8>]) -> Option<Xid> {
    let [format, gtrid_length, _, names] = row else { return None };
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let (gtrid, bqual) = names.split_at_checked(text(gtrid_length)?.parse().ok()?)?;
    Xid::of_parts(text(format)?.parse().ok()?, gtrid, bqual)
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Failure, MariaDb, Reply, Step, literal};
    use crate::abi::{XA_OK, XA_RBDEADLOCK, XA_RBROLLBACK, XAER_NOTA, XAER_PROTO, XAER_RMFAIL};
    use tm::{BranchName, CoordinatorId, OwnerId, TransactionId, Xid};

    fn xid() -> Xid {
        let id = TransactionId {
            coordinator: CoordinatorId(1),
            owner: OwnerId(2),
            sequence: 3,
            deadline_ms: 0,
            shared: false,
            last_resource: None,
        };
        Xid { transaction: id, branch: BranchName::new("ma").unwrap() }
    }

    #[test]
    fn names_are_hexadecimal_and_found_again_in_lists() {
        let text = literal(&xid());
        assert!(text.starts_with("X'0100") && text.ends_with("',X'6d61',1212569665"), "{text}");
        let mut names = xid().transaction.to_bytes().to_vec();
        names.extend_from_slice(b"ma");
        let row = vec![b"1212569665".to_vec(), b"36".to_vec(), b"2".to_vec(), names];
        let foreign = vec![b"1".to_vec(), b"3".to_vec(), b"0".to_vec(), b"abc".to_vec()];
        let reply = Reply { tag: String::new(), rows: vec![row, foreign, Vec::new()] };
        assert_eq!(MariaDb::listed(&reply), [xid()]);
    }

    #[test]
    fn refusals_are_told_apart() {
        let refused = |number| Err(Failure::Refused { state: "XAE".to_owned(), number, text: String::new() });
        assert_eq!(MariaDb::judge(Step::Prepare, &refused(1614)), XA_RBDEADLOCK);
        assert_eq!(MariaDb::judge(Step::Start, &refused(1399)), XAER_PROTO);
        assert_eq!(MariaDb::judge(Step::CommitPrepared, &refused(1397)), XAER_NOTA);
        assert_eq!(MariaDb::judge(Step::CommitPrepared, &refused(1213)), XAER_RMFAIL);
        assert_eq!(MariaDb::judge(Step::CommitPrepared, &refused(1402)), XA_OK);
        assert_eq!(MariaDb::judge(Step::Prepare, &refused(1402)), XA_RBROLLBACK);
    }
}
