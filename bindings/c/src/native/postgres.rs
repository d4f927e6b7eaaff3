//! Two-phase commit as PostgreSQL says it: `BEGIN`, `PREPARE TRANSACTION`, `COMMIT PREPARED`, `ROLLBACK PREPARED`.
//!
//! A prepared transaction belongs to nobody's session, so any connection to the database may end it. Its name is the text
//! of the branch's id. What ends a transaction looks first whether it is the branch's: `postgres_mark.rs` in `tm`.
//!
//! May use: `dialect`. Must not know: libpq.

use std::ffi::c_int;

use tm::{PostgresMark, Xid};

use super::dialect::{Dialect, Step};
use super::{Failure, Reply, Standing};
use crate::abi::{
    XA_OK, XA_RBCOMMFAIL, XA_RBDEADLOCK, XA_RBINTEGRITY, XA_RBOTHER, XA_RBROLLBACK, XA_RBTIMEOUT, XA_RBTRANSIENT,
    XAER_NOTA, XAER_PROTO, XAER_RMERR, XAER_RMFAIL,
};

/// How PostgreSQL says it.
pub(crate) struct Postgres;

impl Dialect for Postgres {
    fn statement(step: Step, xid: &Xid) -> Option<String> {
        // The text of an id has no character that means something in a string literal.
        Some(match step {
            Step::Start => PostgresMark(xid).begin(),
            Step::End => return None,
            Step::Prepare => PostgresMark(xid).checked(&format!("PREPARE TRANSACTION '{xid}'")),
            Step::CommitOnePhase => PostgresMark(xid).checked("COMMIT"),
            Step::CommitPrepared => format!("COMMIT PREPARED '{xid}'"),
            Step::RollbackActive => PostgresMark(xid).checked("ROLLBACK"),
            Step::Clear => "ROLLBACK".to_owned(),
            Step::RollbackPrepared => format!("ROLLBACK PREPARED '{xid}'"),
        })
    }

    fn judge(step: Step, answer: &Result<Reply, Failure>) -> c_int {
        match (step, answer) {
            // A transaction that failed is rolled back by `COMMIT` and `PREPARE TRANSACTION` alike, without an error.
            (Step::Prepare | Step::CommitOnePhase, Ok(reply)) if reply.tag == "ROLLBACK" => XA_RBROLLBACK,
            (_, Ok(_)) => XA_OK,
            (_, Err(Failure::Lost(_))) => XAER_RMFAIL,
            (_, Err(_)) if Self::is_missed(answer) => XAER_PROTO,
            (Step::Start, Err(Failure::Refused { .. })) => XAER_RMERR,
            (Step::CommitPrepared | Step::RollbackPrepared, Err(Failure::Refused { state, .. })) => {
                // 42704: there is no such prepared transaction. Everything else says nothing about it.
                if state == "42704" { XAER_NOTA } else { XAER_RMFAIL }
            }
            (_, Err(Failure::Refused { state, .. })) => rolled_back(state),
        }
    }

    fn is_missed(answer: &Result<Reply, Failure>) -> bool {
        matches!(answer, Err(Failure::Refused { state, text, .. }) if PostgresMark::is_missed(state, text))
    }

    fn judge_end(standing: Standing) -> c_int {
        match standing {
            Standing::Open | Standing::Untold => XA_OK,
            Standing::Failed => XA_RBROLLBACK,
            // The program ended the transaction itself, behind our back.
            Standing::Idle => XAER_PROTO,
        }
    }

    const ASK: Option<&'static str> = Some("SELECT pg_current_xact_id_if_assigned() IS NULL");

    fn changed_nothing(reply: &Reply) -> bool {
        reply.rows.first().and_then(|row| row.first()).is_some_and(|answer| answer == b"t")
    }

    const BINDS_PREPARED: bool = false;

    const LIST: &'static str = "SELECT gid FROM pg_prepared_xacts \
        WHERE database = current_database() AND gid LIKE 'hfxa1.%' ORDER BY prepared";

    fn listed(reply: &Reply) -> Vec<Xid> {
        let texts = reply.rows.iter().filter_map(|row| std::str::from_utf8(row.first()?).ok());
        texts.filter_map(|text| text.parse().ok()).collect()
    }
}

/// Why PostgreSQL rolled back, from the SQLSTATE of an error in a transaction.
fn rolled_back(state: &str) -> c_int {
    match state {
        "40P01" => XA_RBDEADLOCK,
        "40001" => XA_RBTRANSIENT,
        // A statement failed before, and now the question did whether it is the branch.
        "25P02" => XA_RBROLLBACK,
        "57014" | "25P03" => XA_RBTIMEOUT,
        state if state.starts_with("23") || state == "40002" => XA_RBINTEGRITY,
        state if state.starts_with("08") => XA_RBCOMMFAIL,
        _ => XA_RBOTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Failure, Postgres, Reply, Standing, Step};
    use crate::abi::{
        XA_OK, XA_RBINTEGRITY, XA_RBOTHER, XA_RBROLLBACK, XA_RBTRANSIENT, XAER_NOTA, XAER_PROTO, XAER_RMFAIL,
    };

    fn refused(state: &str) -> Result<Reply, Failure> {
        Err(Failure::Refused { state: state.to_owned(), number: 0, text: String::new() })
    }

    fn done(tag: &str) -> Result<Reply, Failure> {
        Ok(Reply { tag: tag.to_owned(), rows: Vec::new() })
    }

    #[test]
    fn a_commit_that_is_a_rollback_is_noticed() {
        assert_eq!(Postgres::judge(Step::CommitOnePhase, &done("ROLLBACK")), XA_RBROLLBACK);
        assert_eq!(Postgres::judge(Step::Prepare, &done("ROLLBACK")), XA_RBROLLBACK);
        assert_eq!(Postgres::judge(Step::Prepare, &done("PREPARE TRANSACTION")), XA_OK);
        assert_eq!(Postgres::judge(Step::RollbackActive, &done("ROLLBACK")), XA_OK);
    }

    #[test]
    fn only_a_plain_yes_says_that_nothing_was_changed() {
        let reply = |rows: &[&str]| Reply {
            tag: String::new(),
            rows: rows.iter().map(|answer| vec![answer.as_bytes().to_vec()]).collect(),
        };
        assert!(Postgres::changed_nothing(&reply(&["t"])));
        assert!(![&["f"][..], &[""], &[]].iter().any(|rows| Postgres::changed_nothing(&reply(rows))));
    }

    #[test]
    fn refusals_are_told_apart() {
        let lost = Err(Failure::Lost("gone".to_owned()));
        assert_eq!(Postgres::judge(Step::CommitOnePhase, &lost), XAER_RMFAIL);
        assert_eq!(Postgres::judge(Step::CommitPrepared, &refused("42704")), XAER_NOTA);
        assert_eq!(Postgres::judge(Step::CommitPrepared, &refused("42501")), XAER_RMFAIL);
        assert_eq!(Postgres::judge(Step::Prepare, &refused("40001")), XA_RBTRANSIENT);
        assert_eq!(Postgres::judge(Step::CommitOnePhase, &refused("23505")), XA_RBINTEGRITY);
        assert_eq!(Postgres::judge(Step::Prepare, &refused("55000")), XA_RBOTHER);
    }

    #[test]
    fn a_transaction_that_the_program_ended_itself_is_noticed() {
        assert_eq!(Postgres::judge_end(Standing::Open), XA_OK);
        assert_eq!(Postgres::judge_end(Standing::Failed), XA_RBROLLBACK);
        assert_eq!(Postgres::judge_end(Standing::Idle), XAER_PROTO);
    }

    #[test]
    fn only_our_branches_are_taken_from_a_list() {
        let row = |text: &str| vec![text.as_bytes().to_vec()];
        let reply = Reply { tag: String::new(), rows: vec![row("hfxa1.tampered"), row("other"), Vec::new()] };
        assert!(Postgres::listed(&reply).is_empty());
    }
}
