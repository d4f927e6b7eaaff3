//! A query kept up to date in memory, and entries kept near by their ids: both are asked without a way to the space, and say how
//! old what they show may be.
//!
//! That bound is stated when they are opened. With `Duration::ZERO` a call shows everything that was acknowledged before it
//! began; with 50 ms, everything that was acknowledged longer than that before. It may show more, and never less.
//!
//! Run it: `cargo run -p holdfast-examples --example views_and_caches`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::{Duration, Instant};

use client::Client;
use grid::{LocalView, NearCache};
use holdfast::space::{Change, Definition, Document, Path, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Options, Store};
use holdfast_examples::Outcome;

const ORDERS: i64 = 100;
/// How old what the cache shows may be.
const STALENESS: Duration = Duration::from_millis(50);

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    // A view has to hear what leaves its query: what an entry was before a change. That is in the journal with history alone.
    let orders = store.space("shop").declare(Definition { history: true, ..Definition::new("shop", "orders") })?;
    let customers = store.space("shop").declare(Definition::new("shop", "customers"))?;
    let all = (0..ORDERS).map(|id| order(id, if id % 2 == 0 { "open" } else { "sent" }));
    for written in orders.write_many(&all.collect::<Vec<_>>(), &WriteOptions::default()) {
        written?;
    }
    for (id, city) in [("ada", "Ulm"), ("bo", "Rom"), ("cy", "Lyon")] {
        customers.write(&Document::from_pairs([("id", id), ("city", city)]), &WriteOptions::default())?;
    }

    view(&store, &orders)?;
    cache(&store, &customers)?;
    Ok(store.close()?)
}

/// The open orders: the whole answer to a query, which changes as the entries do.
fn view(store: &Store, orders: &holdfast::space::Entries) -> Outcome<()> {
    let open = LocalView::open(orders, &Wanted::query("state = 'open'", &[])?, Duration::ZERO)?;
    assert_eq!(open.count()?, 50);
    assert_eq!(open.get(&Value::from(8))?, Some(order(8, "open")));
    assert_eq!(open.get(&Value::from(9))?, None);

    // Elsewhere: another thread, which comes by the client library and knows nothing of the view.
    let elsewhere = Client::embedded(store)?;
    std::thread::spawn(move || -> holdfast::Result<()> {
        let orders = elsewhere.space("shop").entries("orders").wait()?;
        let state = |to: &str| -> holdfast::Result<Vec<Change>> {
            Ok(vec![Change::Set { path: Path::parse("state")?, value: to.into() }])
        };
        orders.change(&Wanted::id(8), &state("sent")?, &WriteOptions::default()).wait()?;
        orders.change(&Wanted::id(9), &state("open")?, &WriteOptions::default()).wait()?;
        orders.write(&order(ORDERS, "open"), &WriteOptions::default()).wait()?;
        orders.take(&Wanted::id(0), &ReadOptions::default()).wait()?;
        Ok(())
    })
    .join()
    .map_err(|_| "the other thread panicked")??;

    // These changes were acknowledged, so a view with no staleness shows them, at once: one left by its change and one by being
    // taken, one came by its change and one was written.
    assert_eq!(open.get(&Value::from(8))?, None);
    assert_eq!(open.get(&Value::from(0))?, None);
    assert_eq!(open.get(&Value::from(9))?, Some(order(9, "open")));
    assert_eq!(open.get(&Value::from(ORDERS))?, Some(order(ORDERS, "open")));
    assert_eq!(open.iter()?.count(), 50);
    println!("the view followed four changes, and shows {} open orders", open.count()?);
    Ok(())
}

/// Customers by their ids: those that were used last, and of these at most two.
fn cache(store: &Store, customers: &holdfast::space::Entries) -> Outcome<()> {
    let near = NearCache::open(store, customers, 2, STALENESS)?;
    let city = |id: &str| -> Outcome<String> {
        let customer = near.read(&Value::from(id))?.ok_or("everybody is there")?;
        let city = customer.document.get("city").map(|city| city.to_value());
        if let Some(Value::String(city)) = city { Ok(city) } else { Err("everybody has a city".into()) }
    };
    assert_eq!((city("ada")?, city("ada")?), ("Ulm".to_owned(), "Ulm".to_owned()));
    let stats = near.stats();
    assert_eq!((stats.misses, stats.hits), (1, 1));

    // Somebody moves. For as long as the bound the cache may go on to say Ulm; a read that begins later does not.
    let moved = Document::from_pairs([("id", "ada"), ("city", "Oslo")]);
    customers.write(&moved, &WriteOptions::default())?;
    let (acknowledged, mut reads) = (Instant::now(), 0);
    loop {
        let begin = Instant::now();
        let shown = city("ada")?;
        reads += 1;
        if shown == "Oslo" {
            break;
        }
        assert!(begin - acknowledged <= STALENESS, "it showed what is too old");
    }
    println!("the cache showed the move at read {reads}, {:?} after it", acknowledged.elapsed());
    assert_eq!(near.stats().invalidated, 1);

    // Of three customers the one that was not used for longest makes room.
    city("bo")?;
    city("cy")?;
    let stats = near.stats();
    assert_eq!((stats.entries, stats.evicted), (2, 1));
    println!("the cache answered {} reads itself, and asked the space for {}", stats.hits, stats.misses);
    Ok(())
}

fn order(id: i64, state: &str) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("state", state.into())])
}
