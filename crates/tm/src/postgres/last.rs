//! PostgreSQL as the last resource, over tokio-postgres. The table, and why it is safe: `postgres_decisions.rs`.
//!
//! May use: `branch`, `postgres_decisions`, tokio-postgres. Must not know: coordinators.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::{Client, Error, SimpleQueryMessage};
use xa::{BranchName, LastResourceId, TransactionId};

use super::manager::PostgresManager;
use super::said;
use crate::branch::BoxFuture;
use crate::last_resource::{Kept, LastResource};
use crate::postgres_decisions::PostgresDecisions;

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
        check_rights(&client, id).await?;
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
            settled.ok_or_else(|| format!("the table {} is gone", PostgresDecisions(self.id).table()))
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

/// What it means that a decision was refused, where the database's words do not tell.
pub(super) fn advice(error: &Error) -> Option<&'static str> {
    let error = error.as_db_error()?;
    PostgresDecisions::advice(error.code().code(), error.message())
}

async fn found(client: &Client) -> Result<Option<LastResourceId>, String> {
    let row = client.query_opt(PostgresDecisions::FIND, &[]).await.map_err(|error| said(&error))?;
    let name = row.and_then(|row| row.try_get::<_, String>(0).ok());
    Ok(name.as_deref().and_then(PostgresDecisions::of_name).map(|decisions| decisions.0))
}

async fn made(client: &Client) -> Result<LastResourceId, String> {
    let plain = |error: Error| format!("{}: {}", PostgresDecisions::CANNOT_MAKE, said(&error));
    client.batch_execute(&PostgresDecisions::begin_making()).await.map_err(plain)?;
    if let Some(id) = found(client).await? {
        client.batch_execute("COMMIT").await.map_err(plain)?;
        return Ok(id);
    }
    // The standard library seeds each of these from the operating system.
    let id = LastResourceId(RandomState::new().hash_one(0));
    let mut making = format!("{}; COMMIT", PostgresDecisions(id).make());
    let row = client.query_one(PostgresDecisions::HAS_NO_SCHEMA, &[]).await.map_err(plain)?;
    if row.try_get(0).map_err(plain)? {
        making = format!("{}; {making}", PostgresDecisions::MAKE_SCHEMA);
    }
    client.batch_execute(&making).await.map_err(plain)?;
    Ok(id)
}

async fn check_rights(client: &Client, id: LastResourceId) -> Result<(), String> {
    let plain = |error: Error| said(&error);
    let row = client.query_one(&PostgresDecisions(id).rights(), &[]).await.map_err(plain)?;
    let (role, has_all): (String, Option<bool>) = (row.try_get(0).map_err(plain)?, row.try_get(1).map_err(plain)?);
    if has_all == Some(true) { Ok(()) } else { Err(PostgresDecisions(id).no_rights(&role)) }
}

/// What this database decided, or decides by that; `None` when it is not the last resource that is meant.
pub(super) async fn settle(
    manager: &PostgresManager,
    last: LastResourceId,
    ids: &[TransactionId],
) -> Result<Option<Vec<bool>>, String> {
    let client = manager.connect().await?;
    let asking = manager.cancelling(&client);
    let settled = settle_by(&client, last, ids).await;
    asking.over();
    settled
}

async fn settle_by(client: &Client, last: LastResourceId, ids: &[TransactionId]) -> Result<Option<Vec<bool>>, String> {
    let plain = |error: Error| said(&error);
    let decisions = PostgresDecisions(last);
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&decisions.table()]).await.map_err(plain)?;
    if !there.try_get::<_, bool>(0).map_err(plain)? {
        return Ok(None);
    }
    for id in ids {
        // Each in a transaction of its own, which waits for nothing else while it holds its row.
        client.batch_execute(&decisions.note(*id)).await.map_err(plain)?;
    }
    let read = format!("{}; {}; COMMIT", PostgresDecisions::begin_looking(), decisions.look(ids));
    let mut decided = BTreeMap::new();
    for row in client.simple_query(&read).await.map_err(plain)? {
        if let SimpleQueryMessage::Row(row) = row
            && row.len() == 2
            && let (Some(id), Some(committed)) = (row.get(0), row.get(1))
        {
            decided.insert(id.to_owned(), committed == "t");
        }
    }
    drop(client.batch_execute(&decisions.let_go_old()).await);
    let settled = ids.iter().map(|id| {
        let committed = decided.get(&id.to_string()).copied();
        committed.ok_or_else(|| format!("the decision about {id} went while it was read"))
    });
    settled.collect::<Result<_, _>>().map(Some)
}

/// The decisions to commit that are older than this and wanted. What others keep, and this one leaves, is read past.
pub(super) async fn kept(
    manager: &PostgresManager,
    age: Duration,
    is_wanted: &(dyn Fn(&Kept) -> bool + Sync),
) -> Result<Vec<Kept>, String> {
    let client = manager.connect().await?;
    let Some(last) = found(&client).await? else { return Ok(Vec::new()) };
    let query = format!(
        "SELECT id, branches FROM {} WHERE committed AND decided < clock_timestamp() - interval '{} milliseconds' AND id > $1 \
         ORDER BY id LIMIT {PAGE_ROWS}",
        PostgresDecisions(last).table(),
        age.as_millis()
    );
    let (mut kept, mut after) = (Vec::new(), String::new());
    loop {
        let rows = client.query(&query, &[&after]).await.map_err(|error| said(&error))?;
        for row in &rows {
            let text = |at: usize| row.try_get::<_, String>(at).map_err(|error| said(&error));
            let (id, branches) = (text(0)?, text(1)?);
            kept.extend(as_kept(&id, &branches).filter(is_wanted));
            after = id;
        }
        if rows.len() < PAGE_ROWS || kept.len() >= KEPT_MAX {
            return Ok(kept);
        }
    }
}

fn as_kept(id: &str, branches: &str) -> Option<Kept> {
    let branches = branches.split_whitespace().map(BranchName::new).collect::<Result<_, _>>().ok()?;
    Some(Kept { id: id.parse().ok()?, branches })
}

/// Rows that are read at once, and decisions that are sought at once: the next sweep comes to the others.
const PAGE_ROWS: usize = 1_000;
const KEPT_MAX: usize = 10_000;

/// Lets go of decisions that nobody needs.
pub(super) async fn let_go(client: &Client, last: LastResourceId, ids: &[TransactionId]) -> Result<(), String> {
    let delete = PostgresDecisions(last).let_go(ids);
    client.batch_execute(&delete).await.map_err(|error| said(&error))
}
