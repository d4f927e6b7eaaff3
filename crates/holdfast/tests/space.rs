//! The object space through the store: what is written is there, what is taken is taken once, and all of it after a restart.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "space/absences.rs"]
mod absences;
#[path = "space/edges.rs"]
mod edges;
#[path = "space/entries.rs"]
mod entries;
#[path = "space/instants.rs"]
mod instants;
#[path = "space/listening.rs"]
mod listening;
#[path = "space/memory.rs"]
mod memory;
#[path = "space/ordered.rs"]
mod ordered;
#[path = "space/pages.rs"]
mod pages;
#[path = "space/prepared.rs"]
mod prepared;
#[path = "space/queries.rs"]
mod queries;
#[path = "space/refusals.rs"]
mod refusals;
#[path = "space/routing.rs"]
mod routing;
#[path = "space/transactions.rs"]
mod transactions;
#[path = "space/unique.rs"]
mod unique;
#[path = "space/volatile.rs"]
mod volatile;
#[path = "space/volatile_model.rs"]
mod volatile_model;
#[path = "space/within.rs"]
mod within;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast::space::{Definition, Document, Entries, IndexKind, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Durability, Limits, MemoryLedgers, Options, Store, World};

/// A world without threads on a disk in memory.
pub(crate) fn world(disk: &base::memory::Disk, ledgers: &MemoryLedgers) -> World {
    World {
        files: Arc::new(disk.clone()),
        clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
        ledgers: Arc::new(ledgers.clone()),
        threads: false,
        entropy: 42,
    }
}

/// A store in such a world, whose clock stands still until it is told.
pub(crate) fn with_clock() -> (Store, Arc<base::ManualClock>) {
    let clock = Arc::new(base::ManualClock::at(1_700_000_000_000));
    let world = world(&base::memory::Disk::new(1), &MemoryLedgers::new());
    let world = World { clock: Arc::clone(&clock) as _, ..world };
    (Store::open_in(&world, std::path::Path::new("/store"), options()).unwrap(), clock)
}

pub(crate) fn options() -> Options {
    Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() }
}

pub(crate) fn order(id: i64, customer: &str, total: i64) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("customer", customer.into()), ("total", total.into())])
}

pub(crate) fn orders(store: &Store) -> Entries {
    let definition = Definition::new("shop", "order").index("customer", IndexKind::Hash).unwrap();
    store.space("shop").declare(definition.index("total", IndexKind::Ordered).unwrap()).unwrap()
}

pub(crate) fn ids(entries: &[holdfast::space::Entry]) -> BTreeSet<i64> {
    entries.iter().map(id).collect()
}

pub(crate) fn id(entry: &holdfast::space::Entry) -> i64 {
    match entry.document.get("id") {
        Some(holdfast::space::ValueRef::I64(id)) => id,
        other => panic!("no id: {other:?}"),
    }
}

pub(crate) fn example(customer: &str) -> Wanted {
    Wanted::template(&Document::from_pairs([("customer", customer)]))
}

pub(crate) fn upsert() -> WriteOptions {
    WriteOptions::default()
}

pub(crate) fn now() -> ReadOptions {
    ReadOptions::default()
}

pub(crate) fn waits(ms: u64) -> ReadOptions {
    ReadOptions { wait: Some(Duration::from_millis(ms)), ..ReadOptions::default() }
}
