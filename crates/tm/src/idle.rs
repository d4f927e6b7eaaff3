//! How long a session may be idle in a branch: a program that hangs for as long as its transaction may take loses its sessions, and the
//! locks with them.
//!
//! PostgreSQL is told by the statement that begins a branch (`postgres_mark.rs`). MariaDB has `idle_transaction_timeout`, which is the
//! session's: the statement that begins a branch sets it and keeps what it was, and the one that ends the branch sets that again, in the
//! same request each. It counts while a branch is active, ended or prepared. One that is prepared then outlives its
//! session as it does any other end of it, and is recovery's from then on: as long as the session is there nobody else can end it.
//!
//! What MariaDB alone knows stands in comments that it alone reads, so MySQL, which has no such setting, takes the plain statement.
//!
//! May use: `xa`, the system's clock. Must not know: connections.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xa::Xid;

/// The least time to be idle in: deadlines are of the coordinator's clock, and this program's may be ahead of it.
const IDLE_MIN: Duration = Duration::from_secs(10);

/// What MariaDB takes at the most, in seconds.
const MYSQL_IDLE_MAX: u64 = 31_536_000;

/// How long the session may be idle in the branch; `None` when the transaction has no deadline.
pub(crate) fn idle_time(xid: &Xid, now: SystemTime) -> Option<Duration> {
    let deadline_ms = xid.transaction.deadline_ms;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    (deadline_ms != 0).then(|| Duration::from_millis(deadline_ms).saturating_sub(now).max(IDLE_MIN))
}

/// What bounds how long a session of MariaDB may be idle in a branch. Of MySQL it changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct MysqlIdle<'a>(pub &'a Xid);

impl MysqlIdle<'_> {
    /// Whether there is a bound. Without one the statements stay as they are.
    #[must_use]
    pub fn is_bounded(self) -> bool {
        self.0.transaction.deadline_ms != 0
    }

    /// The statement that begins the branch, and bounds it when it has begun.
    #[must_use]
    pub fn begun(self, statement: &str) -> String {
        self.begun_at(statement, SystemTime::now())
    }

    fn begun_at(self, statement: &str, now: SystemTime) -> String {
        let Some(idle) = idle_time(self.0, now) else { return statement.to_owned() };
        let seconds = idle.as_millis().div_ceil(1000);
        let seconds = u64::try_from(seconds).unwrap_or(MYSQL_IDLE_MAX).min(MYSQL_IDLE_MAX);
        format!(
            "/*M!100300 BEGIN NOT ATOMIC */ {statement} /*M!100300 ; SET @holdfast_idle = @@SESSION.idle_transaction_timeout, \
             SESSION idle_transaction_timeout = {seconds}; END */"
        )
    }

    /// The statement that ends the branch in the session that began it. What was set before comes first: it is so again whatever
    /// the answer is.
    #[must_use]
    pub fn ended(self, statement: &str) -> String {
        if !self.is_bounded() {
            return statement.to_owned();
        }
        format!(
            "/*M!100300 BEGIN NOT ATOMIC SET SESSION idle_transaction_timeout = IFNULL(@holdfast_idle, @@GLOBAL.idle_transaction_timeout); */ \
             {statement} /*M!100300 ; END */"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{MysqlIdle, idle_time};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    use xa::{BranchName, CoordinatorId, OwnerId, TransactionId, Xid};

    fn xid(deadline_ms: u64) -> Xid {
        let (coordinator, owner) = (CoordinatorId(1), OwnerId(2));
        let transaction =
            TransactionId { coordinator, owner, sequence: 3, deadline_ms, shared: false, last_resource: None };
        Xid { transaction, branch: BranchName::new("bank").unwrap() }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    #[test]
    fn the_session_may_be_idle_until_the_deadline() {
        let idle = |deadline_ms| idle_time(&xid(deadline_ms), now());
        assert_eq!(idle(0), None, "a transaction without a deadline");
        assert_eq!(idle(1_000_030_000), Some(Duration::from_secs(30)));
        assert_eq!(idle(1_000_000_001), Some(Duration::from_secs(10)), "a clock may be ahead of the coordinator's");
        assert_eq!(idle(5), Some(Duration::from_secs(10)));
    }

    #[test]
    fn mariadb_is_told_whole_seconds_and_nothing_without_a_deadline() {
        let begun = |deadline_ms| MysqlIdle(&xid(deadline_ms)).begun_at("XA START 'x'", now());
        assert_eq!(begun(0), "XA START 'x'");
        assert!(begun(1_000_030_001).contains("XA START 'x' /*M!100300 ; SET @holdfast_idle ="));
        assert!(begun(1_000_030_001).ends_with("SESSION idle_transaction_timeout = 31; END */"));
        assert!(begun((1 << 48) - 1).ends_with(" = 31536000; END */"));
        assert_eq!(MysqlIdle(&xid(0)).ended("XA ROLLBACK 'x'"), "XA ROLLBACK 'x'");
        let ended = MysqlIdle(&xid(5)).ended("XA ROLLBACK 'x'");
        assert!(ended.contains("idle_transaction_timeout); */ XA ROLLBACK 'x' /*"), "{ended}");
    }
}
