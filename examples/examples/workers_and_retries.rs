//! Workers that turn orders into invoices: an attempt that fails is tried again, and an order that fails for good is put aside.
//!
//! A worker takes an order in a transaction, hands both to a function, and commits. So the order's end and its invoice are one batch
//! of the journal: a crash between the two cannot lose an order, or bill it twice. What fails is rolled back, and the order
//! is there again; after `attempts_max` failures it becomes a *dead letter*, which somebody mends and sends again.
//!
//! Run it: `cargo run -p holdfast-examples --example workers_and_retries`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Client, Entries};
use grid::{Backoff, Failure, WorkerOptions, WorkerStats, Workers};
use holdfast::space::{Definition, Document, ReadOptions, Value, ValueRef, Wanted, WriteOptions};
use holdfast::{Options, Store};
use holdfast_examples::Outcome;

const ORDERS: i64 = 100;
/// The order that fails once, as when a machine far away does not answer.
const UNLUCKY: i64 = 7;
/// The order that nobody can bill, because it has no price.
const BROKEN: i64 = 13;

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let client = Client::embedded(&store)?;
    let shop = client.space("shop");
    let orders = shop.declare(Definition::new("shop", "orders")).wait()?;
    let invoices = shop.declare(Definition::new("shop", "invoices")).wait()?;
    let letters = shop.declare(Definition::new("shop", "dead")).wait()?;

    let all: Vec<Document> = (0..ORDERS).map(order).collect();
    for written in orders.write_many(&all, &WriteOptions::default()).wait()? {
        written?;
    }

    let options = WorkerOptions {
        // Two entries are handled at once, and up to ten that one thread handled share one commit, and so one sync.
        threads: 2,
        batch_max: 10,
        // The first attempt after a failure comes after 10 ms at the most, the next one after 20, and so on.
        backoff: Backoff { first: Duration::from_millis(10), max: Duration::from_secs(1) },
        attempts_max: 3,
        // Without it an order that fails is tried for ever.
        dead_letters: Some(letters.clone()),
        ..WorkerOptions::default()
    };
    let (to, was_unlucky) = (invoices.clone(), AtomicBool::new(false));
    let workers = Workers::start(&client, &orders, &Wanted::all(), options, move |transaction, order| {
        let id = number(&order.document, "id").ok_or_else(|| Failure::new("an order without an id"))?;
        // The function runs again for an order that was rolled back, so what it does elsewhere has to bear being done twice.
        if id == UNLUCKY && !was_unlucky.swap(true, Ordering::Relaxed) {
            return Err(Failure::new("the machine that knows the taxes does not answer"));
        }
        let price = number(&order.document, "price").ok_or_else(|| Failure::new("the order has no price"))?;
        // Its id is the order's, so that one order cannot have two invoices.
        let invoice = Document::from_pairs([("id", id), ("total", price * 119 / 100)]);
        transaction.write(&to, &invoice, &WriteOptions::default()).wait()?;
        Ok(())
    })?;

    wait_until_empty(&orders, &workers)?;
    println!("{} invoices, and {} dead letters", count(&invoices)?, count(&letters)?);
    assert_eq!((count(&invoices)?, count(&letters)?), (ORDERS as u64 - 1, 1));

    // A dead letter has the order, and says why nobody could bill it. It is taken and sent again in one batch.
    let letter = letters.read(&Wanted::all(), &ReadOptions::default()).wait()?.ok_or("there is one")?;
    let error = letter.document.get("error").map(ValueRef::to_value);
    println!("order {BROKEN} failed {:?} times: {error:?}", number(&letter.document, "attempts"));
    assert_eq!(error, Some("the order has no price".into()));
    assert_eq!(number(&letter.document, "attempts"), Some(3));
    let Some(Value::Map(mut mended)) = letter.document.get("entry").map(ValueRef::to_value) else {
        return Err("a dead letter has the entry in it".into());
    };
    mended.insert("price".to_owned(), Value::from(50));
    let mut batch = client.batch();
    let letter_id = letter.document.get("id").map(ValueRef::to_value).unwrap_or_default();
    // Only if the letter is still the one that was read: two people who mend it do not send it twice.
    let _ = batch.take_version(&letters, &Wanted::id(letter_id), letter.version);
    let _ = batch.write(&orders, &Document::new(&mended), &WriteOptions::default());
    batch.commit().wait()?;

    wait_until_empty(&orders, &workers)?;
    let stats = workers.stop();
    assert_eq!((count(&invoices)?, count(&letters)?), (ORDERS as u64, 0));
    println!("{} orders handled, {} attempts failed: each order has one invoice", stats.handled, stats.failed);
    // The unlucky one failed once, and the broken one three times; nothing of these four attempts is left but the letter.
    assert_eq!(stats, WorkerStats { handled: ORDERS as u64, failed: 4, dead: 1, ..WorkerStats::default() });
    Ok(store.close()?)
}

fn order(id: i64) -> Document {
    let order = Document::from_pairs([("id", id), ("price", 100 + id)]);
    if id == BROKEN { Document::from_pairs([("id", id)]) } else { order }
}

fn number(document: &Document, field: &str) -> Option<i64> {
    if let Some(ValueRef::I64(number)) = document.get(field) { Some(number) } else { None }
}

fn count(entries: &Entries) -> holdfast::Result<u64> {
    entries.count(&Wanted::all()).wait()
}

/// Waits until there are no more orders; an order that waits for its next attempt counts.
fn wait_until_empty(orders: &Entries, workers: &Workers) -> Outcome<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while count(orders)? > 0 {
        if Instant::now() > end {
            return Err(format!("not done in a minute: {:?}", workers.stats()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
