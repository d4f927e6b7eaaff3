//! Matches orders of buyers and sellers: orders of one symbol in the order in which they came, those of several symbols at the
//! same time. What an order does, to the book and in trades, is one batch with taking it; so nothing is lost or done twice.
//!
//! Run it: `cargo run -p holdfast-examples --example order_matching [HOST:PORT]`. With an address it runs over that server, which
//! has to have no space `market` yet. Without, it runs over a store in the process, and then over a server that it
//! starts, if `cargo build` or `cargo build --release` has made one. The workers are the same.
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::collections::BTreeMap;
use std::time::Instant;

use client::{Client, ConnectOptions, Entries, Transaction};
use grid::{Failure, WorkerOptions, Workers};
use holdfast::space::{
    Definition, Document, Entry, IndexKind, Order, Path, ReadOptions, Value, ValueRef, Wanted, WriteOptions,
};
use holdfast::{Durability, Options, Store};
use holdfast_examples::{Outcome, Server};

const SYMBOLS: [&str; 4] = ["ACME", "INIT", "HOLD", "UMBR"];
const ORDERS: i64 = 2000;

fn main() -> Outcome<()> {
    if let Some(address) = std::env::args().nth(1) {
        return trade(&Client::connect(ConnectOptions::new(&address)).wait()?);
    }
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options { durability: Durability::Written, ..Options::default() })?;
    println!("over a store in this process");
    trade(&Client::embedded(&store)?)?;
    store.close()?;
    let Some(server) = Server::start()? else {
        println!("no server was built: that is all");
        return Ok(());
    };
    println!("over a server at {}", server.address());
    trade(&Client::connect(ConnectOptions::new(server.address())).wait()?)
}

/// The program. It does not know where its store is.
fn trade(client: &Client) -> Outcome<()> {
    let market = client.space("market");
    // Orders wait in groups by symbol: one transaction holds a symbol at a time, so no two change its book at once.
    let groups = Order::Groups(Path::parse("symbol")?);
    let orders = market.declare(Definition { order: groups, ..Definition::new("market", "order") }).wait()?;
    let book = market.declare(Definition::new("market", "book").index("symbol", IndexKind::Hash)?).wait()?;
    let trades = market.declare(Definition::new("market", "trade")).wait()?;
    let letters = market.declare(Definition::new("market", "dead")).wait()?;

    let durability = Durability::Written;
    let options = WorkerOptions { threads: 4, dead_letters: Some(letters.clone()), durability, ..Default::default() };
    let (of_worker, to) = (book.clone(), trades.clone());
    let begin = Instant::now();
    let workers = Workers::start(client, &orders, &Wanted::all(), options, move |transaction, order| {
        fill(&of_worker, &to, transaction, order)
    })?;

    // Two brokers write orders, while workers match them.
    std::thread::scope(|scope| -> Result<(), holdfast::Error> {
        let brokers = [0, 1].map(|broker| {
            let orders = &orders;
            scope.spawn(move || (0..ORDERS / 2).try_for_each(|number| send(orders, number * 2 + broker)))
        });
        brokers.into_iter().try_for_each(|broker| broker.join().unwrap_or(Ok(())))
    })?;
    while orders.usage().wait()?.entries > 0 {
        std::thread::yield_now();
    }
    let stats = workers.stop();
    println!("  {} orders matched in {:?}: {} trades", stats.handled, begin.elapsed(), trades.usage().wait()?.entries);

    // What of each order was traded, and what rests in the book, is what was ordered.
    let mut found: BTreeMap<i64, i64> = BTreeMap::new();
    for trade in trades.read_many(&Wanted::all(), 10_000).wait()? {
        for side in ["buy", "sell"] {
            *found.entry(number(&trade.document, side)).or_default() += number(&trade.document, "quantity");
        }
    }
    for rest in book.read_many(&Wanted::all(), 10_000).wait()? {
        *found.entry(number(&rest.document, "id")).or_default() += number(&rest.document, "quantity");
    }
    assert_eq!(found, (0..ORDERS).map(|id| (id, number(&order(id), "quantity"))).collect());
    assert_eq!((stats.handled, letters.usage().wait()?.entries), (ORDERS as u64, 0));
    println!("  nothing lost: {} orders are in trades and in the book", found.len());
    Ok(())
}

/// An order that looks random, and is the same each time.
fn order(id: i64) -> Document {
    let dice = (id + 1).wrapping_mul(0x5DEE_CE66_D1CE_4E5B) >> 20 & 0xfff_ffff;
    let symbol = usize::try_from(dice % 4).map_or("ACME", |at| SYMBOLS[at]);
    Document::from_pairs([
        ("id", Value::from(id)),
        ("symbol", symbol.into()),
        ("side", if dice / 4 % 2 == 0 { "buy" } else { "sell" }.into()),
        ("price", (90 + dice / 8 % 21).into()),
        ("quantity", (1 + dice / 256 % 50).into()),
    ])
}

fn send(orders: &Entries, id: i64) -> holdfast::Result<()> {
    orders.write(&order(id), &WriteOptions::default()).wait().map(|_| ())
}

fn number(document: &Document, field: &str) -> i64 {
    if let Some(ValueRef::I64(number)) = document.get(field) { number } else { 0 }
}

/// Fills an order from the other side of the book, best price first; what is left of it rests in the book.
fn fill(book: &Entries, trades: &Entries, transaction: &mut Transaction, order: &Entry) -> Result<(), Failure> {
    let order = &order.document;
    let symbol = order.get("symbol").map(ValueRef::to_value).unwrap_or_default();
    let buys = order.get("side") == Some(ValueRef::String("buy"));
    let sql = if buys {
        "symbol = ? AND side = 'sell' AND price <= ? ORDER BY price, id"
    } else {
        "symbol = ? AND side = 'buy' AND price >= ? ORDER BY price DESC, id"
    };
    let others = Wanted::query(sql, &[symbol, number(order, "price").into()])?;
    let (id, mut left) = (number(order, "id"), number(order, "quantity"));
    // As many as an order has at the most, and each of these has one at least.
    for other in book.read_many(&others, 50).wait()? {
        if left == 0 {
            break;
        }
        let other_id = number(&other.document, "id");
        let taken = transaction.take(book, &Wanted::id(other_id), &ReadOptions::default()).wait()?;
        let Some(taken) = taken else { return Err(Failure::new("somebody else has the book of this symbol")) };
        let quantity = left.min(number(&taken.document, "quantity"));
        let (buy, sell) = if buys { (id, other_id) } else { (other_id, id) };
        let price = number(&taken.document, "price");
        let trade = [("buy", buy), ("sell", sell), ("price", price), ("quantity", quantity)];
        transaction.write(trades, &Document::from_pairs(trade), &WriteOptions::default()).wait()?;
        left -= quantity;
        rest(book, transaction, &taken.document, number(&taken.document, "quantity") - quantity)?;
    }
    rest(book, transaction, order, left)?;
    Ok(())
}

/// Writes what is left of an order into the book, if anything is.
fn rest(book: &Entries, transaction: &mut Transaction, order: &Document, quantity: i64) -> holdfast::Result<()> {
    if quantity == 0 {
        return Ok(());
    }
    let mut fields = order.to_fields();
    fields.insert("quantity".to_owned(), quantity.into());
    transaction.write(book, &Document::new(&fields), &WriteOptions::default()).wait().map(|_| ())
}
