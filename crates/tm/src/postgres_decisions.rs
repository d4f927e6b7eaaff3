//! The table in which PostgreSQL keeps decisions as a last resource, as statements.
//!
//! ```sql
//! CREATE TABLE holdfast.decisions_0123456789abcdef (   -- the number of the last resource
//!     id text PRIMARY KEY,                             -- of the transaction
//!     committed boolean NOT NULL,                      -- false: it never will be
//!     branches text NOT NULL,                          -- that may not know of it, with spaces between
//!     began timestamptz NOT NULL, decided timestamptz NOT NULL, deadline timestamptz)
//! ```
//!
//! The key does the work. Who asks writes a row that says no, unless there is one; PostgreSQL lets it wait for a transaction that has
//! just written one that says yes, until that is over. Later that transaction's own row is refused, and so is its commit.
//! Such a no can go after two days, because none is committed a day after it began, both by the clock of PostgreSQL.
//!
//! May use: `postgres_mark`, `xa`. Must not know: connections.

use xa::{BranchName, LastResourceId, TransactionId, Xid};

use crate::postgres_mark::PostgresMark;

/// A session whose commits do not wait for the disk waits in this transaction: others are told at once what it decided.
const WAIT_FOR_DISK: &str =
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";
/// A transaction of its own, whatever those of the session are like.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const TABLE_START: &str = "decisions_";

/// The decisions of a last resource in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresDecisions(pub LastResourceId);

impl PostgresDecisions {
    /// Finds the name of a table; programs that made one at the same time agree on the first.
    pub const FIND: &str = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = 'holdfast' AND c.relkind = 'r' AND c.relname ~ '^decisions_[0-9a-f]{16}$' ORDER BY c.relname LIMIT 1";
    /// Asks whether the schema has to be made before the table.
    pub const HAS_NO_SCHEMA: &str = "SELECT to_regnamespace('holdfast') IS NULL";
    /// Makes the schema.
    pub const MAKE_SCHEMA: &str = "CREATE SCHEMA holdfast";

    /// Those in a table that was found.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        u64::from_str_radix(name.strip_prefix(TABLE_START)?, 16).ok().map(|number| Self(LastResourceId(number)))
    }

    /// The table. Its number is in the name: what was meant for another database finds no table.
    #[must_use]
    pub fn table(self) -> String {
        format!("holdfast.{TABLE_START}{:016x}", self.0.0)
    }

    /// Makes it.
    #[must_use]
    pub fn make(self) -> String {
        format!(
            "CREATE TABLE {} (id text PRIMARY KEY, committed boolean NOT NULL, branches text NOT NULL, \
             began timestamptz NOT NULL DEFAULT transaction_timestamp(), \
             decided timestamptz NOT NULL DEFAULT clock_timestamp(), deadline timestamptz, \
             CONSTRAINT the_deadline_has_passed CHECK (decided < deadline), \
             CONSTRAINT it_began_a_day_ago CHECK (decided < began + interval '1 day'))",
            self.table()
        )
    }

    /// Commits the transaction of a branch, and with it the decision of which `others` are to hear.
    #[must_use]
    pub fn commit(self, xid: &Xid, others: &[BranchName]) -> String {
        let (id, table) = (xid.transaction, self.table());
        let deadline = match id.deadline_ms {
            0 => "NULL".to_owned(),
            at_ms => format!("to_timestamp({at_ms} / 1000.0)"),
        };
        let others = others.iter().map(BranchName::as_str).collect::<Vec<_>>().join(" ");
        PostgresMark(xid).checked(&format!(
            "{WAIT_FOR_DISK}; INSERT INTO {table} (id, committed, branches, deadline) VALUES ('{id}', true, '{others}', {deadline}); \
             COMMIT"
        ))
    }

    /// Notes that a transaction never will be committed, unless it is decided.
    #[must_use]
    pub fn note(self, id: TransactionId) -> String {
        format!(
            "{BEGIN}; {WAIT_FOR_DISK}; INSERT INTO {} (id, committed, branches) VALUES ('{id}', false, '') \
             ON CONFLICT (id) DO NOTHING; COMMIT",
            self.table()
        )
    }

    /// Asks what is noted of a transaction: one row with `t` or `f`.
    #[must_use]
    pub fn look(self, id: TransactionId) -> String {
        format!("SELECT committed FROM {} WHERE id = '{id}'", self.table())
    }

    /// Lets go of notes that can be in the way of no commit any more.
    #[must_use]
    pub fn let_go_old(self) -> String {
        format!("DELETE FROM {} WHERE NOT committed AND decided < clock_timestamp() - interval '2 days'", self.table())
    }

    /// Lets go of decisions that nobody needs. They may be back after a crash: that is no harm.
    #[must_use]
    pub fn let_go(self, ids: &[TransactionId]) -> String {
        let ids = ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
        format!("{BEGIN}; SET LOCAL synchronous_commit = off; DELETE FROM {} WHERE id IN ({ids}); COMMIT", self.table())
    }
}
