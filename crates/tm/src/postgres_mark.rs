//! How a branch in PostgreSQL is told from another transaction of the same session.
//!
//! The program has the connection, and may end the transaction and begin another. What is open then looks the same, and
//! would be committed as the branch, although the branch's work was committed or rolled back long before. So `BEGIN` sets
//! something for this transaction alone, and the statement that ends it looks for that first, in the same request: no round
//! trip more, and 10 microseconds of the server's processor. Where it is not there an error stops what comes behind it.
//!
//! A savepoint, and going back to one, leave it where it is. `RESET ALL` in the middle of a branch removes it: a branch that
//! cannot be told from another is not committed either.
//!
//! A branch of a transaction with a deadline also says how long its session may be idle in it, so that a program
//! that hangs for as long loses its session and the locks with it. It is said by `SET LOCAL`, which takes no snapshot, so that `SET TRANSACTION` may come next.
//!
//! May use: `idle`, `xa`, the system's clock. Must not know: connections.

use std::time::SystemTime;

use xa::Xid;

use crate::idle::idle_time;

/// What the error says. PostgreSQL translates its errors, but not what they quote.
const WORDS: &str = "the branch is not open any more, and another transaction may be: the program ended it itself";

/// The mark of a branch in PostgreSQL: what begins a transaction with it, and what looks for it.
#[derive(Debug, Clone, Copy)]
pub struct PostgresMark<'a>(pub &'a Xid);

impl PostgresMark<'_> {
    /// Begins the transaction.
    #[must_use]
    pub fn begin(self) -> String {
        // The text of an id has no character that means something in a string literal.
        format!("BEGIN; {}SET LOCAL holdfast.branch = '{}'", self.idle(SystemTime::now()), self.0)
    }

    /// Says how long the session may be idle in the branch, when the transaction has a deadline.
    fn idle(self, now: SystemTime) -> String {
        let Some(left) = idle_time(self.0, now) else { return String::new() };
        // What PostgreSQL takes at the most, 24 days.
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        format!("SET LOCAL idle_in_transaction_session_timeout = {left_ms}; ")
    }

    /// Does this as long as the transaction is the branch's; otherwise it is an error.
    #[must_use]
    pub fn checked(self, statement: &str) -> String {
        format!("{}; {statement}", self.question())
    }

    /// The question alone: a SELECT of one value, to which others may be added.
    pub(crate) fn question(self) -> String {
        // The text is made when it is needed: a literal would be read as a number, and refused, with the question.
        let found = "current_setting('holdfast.branch', true)";
        let xid = self.0;
        format!("SELECT CASE WHEN {found} = '{xid}' THEN 0 ELSE concat('{WORDS}', {found})::int END")
    }

    /// Whether an error, by its SQLSTATE and its text, says that the transaction is not the branch's.
    #[must_use]
    pub fn is_missed(state: &str, text: &str) -> bool {
        state == "22P02" && text.contains(WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::{PostgresMark, WORDS};
    use std::time::{Duration, UNIX_EPOCH};
    use xa::{BranchName, CoordinatorId, OwnerId, TransactionId, Xid};

    #[test]
    fn the_session_may_be_idle_until_the_deadline() {
        let now = Duration::from_secs(1_000_000);
        let idle = |deadline_ms: u64| {
            let (coordinator, owner) = (CoordinatorId(1), OwnerId(2));
            let transaction =
                TransactionId { coordinator, owner, sequence: 3, deadline_ms, shared: false, last_resource: None };
            let xid = Xid { transaction, branch: BranchName::new("bank").unwrap() };
            PostgresMark(&xid).idle(UNIX_EPOCH + now)
        };
        let wanted = |ms: u64| format!("SET LOCAL idle_in_transaction_session_timeout = {ms}; ");
        assert_eq!(idle(0), "", "a transaction without a deadline");
        assert_eq!(idle(1_000_030_000), wanted(30_000));
        assert_eq!(idle(1_000_000_001), wanted(10_000), "a clock may be ahead of the coordinator's");
        assert_eq!(idle(5), wanted(10_000));
        assert_eq!(idle((1 << 48) - 1), wanted(2_147_483_647));
    }

    #[test]
    fn only_the_question_itself_says_that_it_is_another_transaction() {
        let (coordinator, owner) = (CoordinatorId(1), OwnerId(2));
        let transaction =
            TransactionId { coordinator, owner, sequence: 3, deadline_ms: 0, shared: false, last_resource: None };
        let xid = Xid { transaction, branch: BranchName::new("bank").unwrap() };
        assert!(PostgresMark(&xid).begin().ends_with(&format!("holdfast.branch = '{xid}'")));
        let statement = PostgresMark(&xid).checked("COMMIT");
        assert!(statement.contains(&format!("= '{xid}'")) && statement.ends_with("; COMMIT"), "{statement}");
        let said = format!("ungültige Eingabesyntax für Typ integer: »{WORDS}«");
        assert!(PostgresMark::is_missed("22P02", &said));
        // A deferred trigger of the program's.
        assert!(!PostgresMark::is_missed("22P02", "invalid input syntax for type integer: \"x\""));
        assert!(!PostgresMark::is_missed("25P02", &said));
    }
}
