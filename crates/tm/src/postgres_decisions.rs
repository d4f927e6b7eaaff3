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
    "CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END";
/// Roles and databases may have others as defaults, by which nothing is written, or two who ask are in each other's way.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
const DEADLINE: &str = "the_deadline_has_passed";
const DAY: &str = "it_began_a_day_ago";
/// The number of the lock of those who make a table: "HFXA" twice.
const MAKING: u64 = 0x4846_5841_4846_5841;
const TABLE_START: &str = "decisions_";

/// The decisions of a last resource in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresDecisions(pub LastResourceId);

impl PostgresDecisions {
    /// Finds the name of a table.
    pub const FIND: &str = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = 'holdfast' AND c.relkind = 'r' AND c.relname ~ '^decisions_[0-9a-f]{16}$' ORDER BY c.relname LIMIT 1";
    /// Asks whether the schema has to be made before the table.
    pub const HAS_NO_SCHEMA: &str = "SELECT to_regnamespace('holdfast') IS NULL";
    /// Makes the schema. With IF NOT EXISTS the right to make one would be needed also where it is.
    pub const MAKE_SCHEMA: &str = "CREATE SCHEMA holdfast";
    /// What the error begins with when the table cannot be made.
    pub const CANNOT_MAKE: &str = "cannot make a table for decisions in the schema holdfast";

    /// Begins to make the table, when nobody else does: programs that do so at the same time wait for each other, because two
    /// tables would be two last resources. Look again for one before it is made, and COMMIT.
    #[must_use]
    pub fn begin_making() -> String {
        format!("{BEGIN}; SELECT pg_advisory_xact_lock({MAKING})")
    }

    /// Begins to look at what is noted. What is read may be on this machine alone yet: a commit whose wait for a synchronous standby was
    /// ended by a kill or a restart is visible. A commit that wrote something, which this does for it, waits for all before it: so
    /// COMMIT before anything is believed.
    #[must_use]
    pub fn begin_looking() -> String {
        format!("{BEGIN}; SELECT {WAIT_FOR_DISK}; SELECT pg_logical_emit_message(true, 'holdfast', '')")
    }

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
             CONSTRAINT {DEADLINE} CHECK (decided < deadline), \
             CONSTRAINT {DAY} CHECK (decided < began + interval '1 day'))",
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
        // In one statement with the question: each takes PostgreSQL some 20 us.
        let question = PostgresMark(xid).question();
        format!(
            "{question}, {WAIT_FOR_DISK}; \
             INSERT INTO {table} (id, committed, branches, deadline) VALUES ('{id}', true, '{others}', {deadline}); COMMIT"
        )
    }

    /// What it means that a decision was refused with this SQLSTATE and text, where the database's words do not tell. PostgreSQL
    /// translates them, but not names.
    #[must_use]
    pub fn advice(state: &str, text: &str) -> Option<&'static str> {
        let is_of = |state_of: &str, name: &str| state == state_of && text.contains(name);
        if is_of("23514", DEADLINE) {
            Some("the transaction's deadline has passed")
        } else if is_of("23514", DAY) {
            Some("the transaction began in this database more than a day ago, which is the longest one may take")
        } else if is_of("23505", TABLE_START) {
            Some("recovery gave it up, because the program seemed to be gone or the deadline had passed: repeat it")
        } else if is_of("42P01", TABLE_START) {
            Some("the branch is of another database than the last resource, or its table was dropped")
        } else if state == "25006" {
            Some("a last resource has to write its decision, and this branch is read only: let another one decide")
        } else {
            None
        }
    }

    /// Notes that a transaction never will be committed, unless it is decided.
    #[must_use]
    pub fn note(self, id: TransactionId) -> String {
        format!(
            "{BEGIN}; SELECT {WAIT_FOR_DISK}; INSERT INTO {} (id, committed, branches) VALUES ('{id}', false, '') \
             ON CONFLICT (id) DO NOTHING; COMMIT",
            self.table()
        )
    }

    /// Asks for the role, and whether it has the rights without which every commit would fail, and every question.
    #[must_use]
    pub fn rights(self) -> String {
        let table = self.table();
        format!(
            "SELECT current_user::text, bool_and(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, word)) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) word \
             WHERE n.nspname = 'holdfast' AND c.relname = '{}'",
            table.trim_start_matches("holdfast.")
        )
    }

    /// Why a role without them is refused, and what to do.
    #[must_use]
    pub fn no_rights(self, role: &str) -> String {
        format!(
            "the role {role} may not use the table for decisions; whoever made it can let it: GRANT USAGE ON SCHEMA holdfast TO \
             \"{role}\"; GRANT SELECT, INSERT, DELETE ON {} TO \"{role}\"",
            self.table()
        )
    }

    /// Asks what is noted of these: rows of an id, and `t` or `f`. Between [`Self::begin_looking`] and COMMIT.
    #[must_use]
    pub fn look(self, ids: &[TransactionId]) -> String {
        format!("SELECT id, committed FROM {} WHERE id IN ({})", self.table(), listed(ids))
    }

    /// Lets go of notes that can be in the way of no commit any more. If that cannot be done now, whoever asks next does it.
    #[must_use]
    pub fn let_go_old(self) -> String {
        format!(
            "{BEGIN}; SET LOCAL synchronous_commit = off; \
             DELETE FROM {} WHERE NOT committed AND decided < clock_timestamp() - interval '2 days'; COMMIT",
            self.table()
        )
    }

    /// Lets go of decisions that nobody needs. They may be back after a crash: that is no harm.
    #[must_use]
    pub fn let_go(self, ids: &[TransactionId]) -> String {
        let ids = listed(ids);
        format!("{BEGIN}; SET LOCAL synchronous_commit = off; DELETE FROM {} WHERE id IN ({ids}); COMMIT", self.table())
    }
}

fn listed(ids: &[TransactionId]) -> String {
    ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ")
}
