//! A table in PostgreSQL that follows the entries of a space, and a space that is loaded from the table when its program starts.
//!
//! The mirror writes behind: who writes into the space does not wait for the database, and the table has it a moment later, in the
//! same order and each change once. A transaction that has to be in both before it is answered is written through.
//!
//! Run it: `cargo run -p holdfast-examples --example mirror_and_load -- --postgres "host=127.0.0.1 user=postgres dbname=postgres"`. It
//! makes a table of its own there, and removes it; `holdfast_mirror`, where mirrors keep their bookmarks, stays. Without a database there is nothing to show. Over MariaDB the same mapping ends
//! with `.in_mariadb()`, and the address begins with `mysql://`.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grid::{Database, DocumentTable, IdKind, Loader, Mapping, Mirror, MirrorOptions};
use holdfast::space::{Definition, Document, Entries, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Options, Store};
use holdfast_examples::Outcome;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

/// The table, and the name of the mirror by which the database keeps its bookmark.
const NAME: &str = "mirror_and_load_orders";
/// How long the database may take.
const LONG: Duration = Duration::from_secs(30);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = match words.as_slice() {
        ["--postgres", address] => *address,
        [] => {
            println!(
                "no database was given, by --postgres \"host=... user=... dbname=...\", so there is nothing to mirror to"
            );
            return Ok(());
        }
        _ => return Err("it is told --postgres and an address, or nothing".into()),
    };
    let database = Sql::connect(address)?;
    database.forget()?;
    let shown = show(address, &database);
    database.forget()?;
    shown
}

fn show(address: &str, database: &Sql) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (store, orders) = open(folder.path())?;
    let mirror = Mirror::start(&orders, mapping(&orders), MirrorOptions::new(NAME, address))?;

    // Behind: the answers come from the space, and the table follows. To flush waits until it has what was acknowledged.
    for id in 1..=4 {
        orders.write(&order(id, "open"), &WriteOptions::default())?;
    }
    orders.write(&order(2, "sent"), &WriteOptions::default())?;
    orders.take(&Wanted::id(4), &ReadOptions::default())?;
    if !mirror.flush(LONG) {
        return Err(format!("the table is behind: {:?}", mirror.stats()).into());
    }
    assert_eq!(database.table()?, ["1 open", "2 sent", "3 open"]);

    // Through: the answer comes when space and table have it, or neither has.
    let mut transaction = store.begin();
    orders.within(&mut transaction).write(&order(5, "open"), &WriteOptions::default())?;
    mirror.commit(transaction, store.durability(), LONG)?;
    assert_eq!(database.table()?, ["1 open", "2 sent", "3 open", "5 open"]);
    println!("the table followed: {}", database.table()?.join(", "));
    mirror.stop();
    store.close()?;
    drop((orders, store));

    // The machine with the store is lost, and the table counts. The bookmark in it is of the old store, so it has to go before a mirror
    // of the new one begins; and the table is loaded before that.
    let folder = tempfile::tempdir()?;
    database.forget_bookmark()?;
    let (store, orders) = open(folder.path())?;
    let loaded = Loader::new(&store, &orders, mapping(&orders), &Database::new(address))?.load()?;
    assert_eq!((loaded.rows, loaded.written, orders.count(&Wanted::all())?), (4, 4, 4));
    let sent = Wanted::template(&Document::from_pairs([("state", "sent")]));
    let sent = orders.read(&sent, &ReadOptions::default())?.ok_or("it was in the table")?;
    assert_eq!(sent.document, order(2, "sent"));
    println!("a new store has {} orders from the table", loaded.written);

    // From now on the table follows this store. What the space has not is read from the table when somebody asks for it.
    let mirror = Mirror::start(&orders, mapping(&orders), MirrorOptions::new(NAME, address))?;
    let loader = Loader::beside(&store, &mirror)?;
    database.run(&format!(r#"INSERT INTO {NAME} VALUES (9, '{{"id": 9, "state": "open"}}')"#))?;
    assert_eq!(orders.count(&Wanted::id(9))?, 0);
    let read = loader.read(&Value::from(9), LONG)?.ok_or("it is in the table")?;
    assert_eq!((read.document, orders.count(&Wanted::id(9))?), (order(9, "open"), 1));
    // What was taken does not come back from its row: the loader waits until the table has it, too.
    orders.take(&Wanted::id(9), &ReadOptions::default())?;
    assert_eq!(loader.read(&Value::from(9), LONG)?, None);
    assert_eq!(database.table()?, ["1 open", "2 sent", "3 open", "5 open"]);
    println!("an order that was in the table alone was read through, and taken from both");
    mirror.stop();
    Ok(store.close()?)
}

/// The store, and its orders. A mirror reads in the journal what happened to them, so the type has history.
fn open(folder: &Path) -> Outcome<(Store, Entries)> {
    let store = Store::open(folder, Options::default())?;
    let orders = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "orders") })?;
    Ok((store, orders))
}

/// Rows of an id and the document as JSON. Columns of one's own are another `Mapping`.
fn mapping(orders: &Entries) -> Arc<dyn Mapping> {
    Arc::new(DocumentTable::of(&orders.definition(), IdKind::Integer).in_table(NAME))
}

fn order(id: i64, state: &str) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("state", state.into())])
}

/// The database as its other users see it.
struct Sql {
    runtime: Runtime,
    client: tokio_postgres::Client,
}

impl Sql {
    fn connect(address: &str) -> Outcome<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (client, connection) = runtime.block_on(tokio_postgres::connect(address, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    fn run(&self, sql: &str) -> Outcome<()> {
        Ok(self.runtime.block_on(self.client.batch_execute(sql))?)
    }

    /// Each row in a line.
    fn table(&self) -> Outcome<Vec<String>> {
        let sql = format!("SELECT id || ' ' || (document->>'state') FROM {NAME} ORDER BY id");
        let rows = self.runtime.block_on(self.client.query(&sql, &[]))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Removes what this example has left, also one that was killed.
    fn forget(&self) -> Outcome<()> {
        self.run(&format!("DROP TABLE IF EXISTS {NAME}"))?;
        self.forget_bookmark()
    }

    /// The table of bookmarks is made by the first mirror.
    fn forget_bookmark(&self) -> Outcome<()> {
        let delete = format!("DELETE FROM holdfast_mirror WHERE name = '{NAME}';");
        self.run(&format!("DO $$ BEGIN IF to_regclass('holdfast_mirror') IS NOT NULL THEN {delete} END IF; END $$"))
    }
}
