//! Orders, a space of them, a mirror in PostgreSQL, and a look at what is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grid::{Backoff, DocumentTable, IdKind, Mirror, MirrorOptions};
use holdfast::space::{Definition, Document, Entries, Value, ValueRef, Wanted};
use holdfast::{Durability, Limits, Options, Store};
use tokio_postgres::{Client, NoTls};

use super::databases::Postgres;

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A table that notes every row that is put or removed.
pub(crate) const SCHEMA: &str = r#"
    CREATE TABLE "order" (id bigint PRIMARY KEY, document jsonb NOT NULL);
    CREATE TABLE applied (number bigserial PRIMARY KEY, id bigint, total bigint);
    CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN
        IF TG_OP = 'DELETE' THEN INSERT INTO applied (id, total) VALUES (OLD.id, -1);
        ELSE INSERT INTO applied (id, total) VALUES (NEW.id, (NEW.document->>'total')::bigint); END IF;
        RETURN NULL;
    END $$ LANGUAGE plpgsql;
    CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON "order" FOR EACH ROW EXECUTE FUNCTION note();
"#;

pub(crate) fn order(id: i64, total: i64) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("customer", "ada".into()), ("total", total.into())])
}

pub(crate) fn open(folder: &std::path::Path) -> (Store, Entries) {
    let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
    let store = Store::open(folder, options).unwrap();
    let orders = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "order") }).unwrap();
    (store, orders)
}

/// Small batches, and short waits.
pub(crate) fn quick(address: impl Into<String>) -> MirrorOptions {
    let backoff = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(50) };
    MirrorOptions { batch_events_max: 20, backoff, ..MirrorOptions::new("orders", address) }
}

pub(crate) fn mirror(orders: &Entries, postgres: &Postgres) -> Mirror {
    let mapping = DocumentTable::of(&orders.definition(), IdKind::Integer);
    Mirror::start(orders, Arc::new(mapping), quick(postgres.connection())).unwrap()
}

/// A client of the database, for the test to look at it.
pub(crate) struct Database {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
}

impl Database {
    pub(crate) fn connect(postgres: &Postgres) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&postgres.connection(), NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    pub(crate) fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub(crate) fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
        let rows = self.runtime.block_on(self.client.query(sql, &[])).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.runtime.block_on(self.client.query(sql, &[])).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) fn table(&self) -> Vec<(i64, i64)> {
        self.pairs(r#"SELECT id, (document->>'total')::bigint FROM "order" ORDER BY id"#)
    }

    /// What was applied to each row, in order.
    pub(crate) fn applied(&self) -> BTreeMap<i64, Vec<i64>> {
        let mut applied: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for (id, total) in self.pairs("SELECT id, total FROM applied ORDER BY number") {
            applied.entry(id).or_default().push(total);
        }
        applied
    }
}

pub(crate) fn entries(orders: &Entries) -> Vec<(i64, i64)> {
    let number = |document: &Document, field: &str| match document.get(field) {
        Some(ValueRef::I64(number)) => number,
        other => panic!("{other:?}"),
    };
    let all = orders.read_many(&Wanted::all(), usize::MAX).unwrap();
    let mut all: Vec<(i64, i64)> =
        all.iter().map(|it| (number(&it.document, "id"), number(&it.document, "total"))).collect();
    all.sort_unstable();
    all
}
