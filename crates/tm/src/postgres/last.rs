//! PostgreSQL as the last resource: decisions are rows of a table of its own, written by the transaction that they are about.
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
//! May use: `branch`, `postgres_mark`, tokio-postgres. Must not know: coordinators.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};
use xa::{BranchName, LastResourceId, TransactionId, Xid};

use super::manager::PostgresManager;
use super::said;
use crate::branch::BoxFuture;
use crate::last_resource::{Kept, LastResource};
use crate::postgres_mark::PostgresMark;

/// Decisions that are let go of together.
const LET_GO: usize = 64;

/// A PostgreSQL database as the last resource of transactions.
pub struct PostgresLastResource {
    id: LastResourceId,
    letting_go: Arc<LettingGo>,
}

/// What is known to everybody, and how the database is told so.
struct LettingGo {
    manager: PostgresManager,
    id: LastResourceId,
    known: Mutex<Vec<TransactionId>>,
    client: tokio::sync::Mutex<Option<Client>>,
}

impl PostgresLastResource {
    /// Makes the database of `manager` one, or finds that it is: a table in the schema `holdfast`, for which whoever is the first
    /// needs the right to make it. Others need USAGE of the schema, and SELECT, INSERT and DELETE of the table.
    ///
    /// # Errors
    /// In plain words.
    pub async fn open(manager: &PostgresManager) -> Result<Self, String> {
        let client = manager.connect().await?;
        let id = match found(&client).await? {
            Some(id) => id,
            None => made(&client).await?,
        };
        let (known, client) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { id, letting_go: Arc::new(LettingGo { manager: manager.clone(), id, known, client }) })
    }
}

impl LastResource for PostgresLastResource {
    fn id(&self) -> LastResourceId {
        self.id
    }

    fn settle<'a>(&'a self, ids: &'a [TransactionId]) -> BoxFuture<'a, Result<Vec<bool>, String>> {
        Box::pin(async {
            let settled = settle(&self.letting_go.manager, self.id, ids).await?;
            settled.ok_or_else(|| format!("the table {} is gone", table(self.id)))
        })
    }

    fn let_go(&self, id: TransactionId) {
        let batch = {
            let mut known = self.letting_go.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.push(id);
            (known.len() >= LET_GO).then(|| std::mem::take(&mut *known))
        };
        if let Some(batch) = batch {
            self.letting_go.spawn(batch);
        }
    }
}

impl Drop for PostgresLastResource {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut *self.letting_go.known.lock().unwrap_or_else(PoisonError::into_inner));
        if !batch.is_empty() {
            self.letting_go.spawn(batch);
        }
    }
}

impl LettingGo {
    /// What cannot be let go of now is left to a sweep.
    fn spawn(self: &Arc<Self>, batch: Vec<TransactionId>) {
        let this = Arc::clone(self);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let mut kept = this.client.lock().await;
                let client = match kept.take().filter(|client| !client.is_closed()) {
                    Some(client) => client,
                    None => match this.manager.connect().await {
                        Ok(client) => client,
                        Err(_) => return,
                    },
                };
                if let_go(&client, this.id, &batch).await.is_ok() {
                    *kept = Some(client);
                }
            });
        }
    }
}

/// The table of a last resource. Its number is in the name: what was meant for another database finds no table.
fn table(id: LastResourceId) -> String {
    format!("holdfast.decisions_{:016x}", id.0)
}

/// Commits the transaction of a branch, and the decision about all with it. A session whose commits do not wait for the disk waits
/// this time: the others are told at once.
pub(super) fn commit_last(xid: &Xid, last: LastResourceId, others: &[BranchName]) -> String {
    let id = xid.transaction;
    let deadline = match id.deadline_ms {
        0 => "NULL".to_owned(),
        at_ms => format!("to_timestamp({at_ms} / 1000.0)"),
    };
    let others = others.iter().map(BranchName::as_str).collect::<Vec<_>>().join(" ");
    let row = format!(
        "{WAIT_FOR_DISK}; INSERT INTO {} (id, committed, branches, deadline) VALUES ('{id}', true, '{others}', {deadline}); COMMIT",
        table(last)
    );
    PostgresMark(xid).checked(&row)
}

const WAIT_FOR_DISK: &str =
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

async fn found(client: &Client) -> Result<Option<LastResourceId>, String> {
    // Programs that made one at the same time agree on the first.
    let query = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'holdfast' \
                 AND c.relkind = 'r' AND c.relname ~ '^decisions_[0-9a-f]{16}$' ORDER BY c.relname LIMIT 1";
    let row = client.query_opt(query, &[]).await.map_err(|error| said(&error))?;
    let name = row.and_then(|row| row.try_get::<_, String>(0).ok());
    let digits = name.as_deref().and_then(|name| name.strip_prefix("decisions_"));
    Ok(digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).map(LastResourceId))
}

async fn made(client: &Client) -> Result<LastResourceId, String> {
    // The standard library seeds each of these from the operating system.
    let id = LastResourceId(RandomState::new().hash_one(0));
    let schema = "SELECT to_regnamespace('holdfast') IS NULL";
    let row = client.query_one(schema, &[]).await.map_err(|error| said(&error))?;
    let mut making = String::new();
    if row.try_get::<_, bool>(0).unwrap_or(false) {
        making.push_str("CREATE SCHEMA holdfast; ");
    }
    let table = table(id);
    write!(
        making,
        "CREATE TABLE {table} (id text PRIMARY KEY, committed boolean NOT NULL, branches text NOT NULL, \
         began timestamptz NOT NULL DEFAULT transaction_timestamp(), \
         decided timestamptz NOT NULL DEFAULT clock_timestamp(), deadline timestamptz, \
         CONSTRAINT the_deadline_has_passed CHECK (decided < deadline), \
         CONSTRAINT it_began_a_day_ago CHECK (decided < began + interval '1 day'))"
    )
    .expect("a string takes all");
    if let Err(error) = client.batch_execute(&making).await {
        // Somebody else made the schema, or the table, in between.
        return match found(client).await? {
            Some(id) => Ok(id),
            None => Err(format!("cannot make a table for decisions in the schema holdfast: {}", said(&error))),
        };
    }
    // Whoever makes one at the same time finds the same first.
    Ok(found(client).await?.unwrap_or(id))
}

/// What this database decided, or decides by that; `None` when it is not the last resource that is meant.
pub(super) async fn settle(
    manager: &PostgresManager,
    last: LastResourceId,
    ids: &[TransactionId],
) -> Result<Option<Vec<bool>>, String> {
    let client = manager.connect().await?;
    let plain = |error: tokio_postgres::Error| said(&error);
    let table = table(last);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await.map_err(plain)?;
    if !there.try_get::<_, bool>(0).map_err(plain)? {
        return Ok(None);
    }
    let mut settled = Vec::with_capacity(ids.len());
    for id in ids {
        // Each in a transaction of its own, which waits for nothing else while it holds its row.
        let note = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {WAIT_FOR_DISK}; \
             INSERT INTO {table} (id, committed, branches) VALUES ('{id}', false, '') ON CONFLICT (id) DO NOTHING; COMMIT"
        );
        client.batch_execute(&note).await.map_err(plain)?;
        let query = format!("SELECT committed FROM {table} WHERE id = '{id}'");
        let rows = client.simple_query(&query).await.map_err(plain)?;
        let committed = rows.iter().find_map(|row| match row {
            SimpleQueryMessage::Row(row) => row.get(0).map(|word| word == "t"),
            _ => None,
        });
        settled.push(committed.ok_or_else(|| format!("the decision about {id} went while it was read"))?);
    }
    // None of these can be in the way of a commit any more.
    let old = format!("DELETE FROM {table} WHERE NOT committed AND decided < clock_timestamp() - interval '2 days'");
    client.batch_execute(&old).await.map_err(plain)?;
    Ok(Some(settled))
}

/// The decisions to commit that are older than this.
pub(super) async fn kept(manager: &PostgresManager, age: Duration) -> Result<Vec<Kept>, String> {
    let client = manager.connect().await?;
    let Some(last) = found(&client).await? else { return Ok(Vec::new()) };
    let query = format!(
        "SELECT id, branches FROM {} WHERE committed AND decided < clock_timestamp() - interval '{} milliseconds' LIMIT {KEPT_MAX}",
        table(last),
        age.as_millis()
    );
    let rows = client.query(&query, &[]).await.map_err(|error| said(&error))?;
    let kept = rows.iter().filter_map(|row| {
        let (id, branches): (String, String) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
        let branches = branches.split_whitespace().map(BranchName::new).collect::<Result<_, _>>().ok()?;
        Some(Kept { id: id.parse().ok()?, branches })
    });
    Ok(kept.collect())
}

/// Decisions that one sweep looks at.
const KEPT_MAX: usize = 10_000;

/// Removes decisions that nobody needs. They may be back after a crash: that is no harm.
pub(super) async fn let_go(client: &Client, last: LastResourceId, ids: &[TransactionId]) -> Result<(), String> {
    let ids = ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
    let delete = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = off; \
         DELETE FROM {} WHERE id IN ({ids}); COMMIT",
        table(last)
    );
    client.batch_execute(&delete).await.map_err(|error| said(&error))
}
