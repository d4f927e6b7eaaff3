//! The flow as one space in one process: a worker's transaction takes the message and does the rest.
//!
//! May use: the space, workers and the client library that they go over. Must not know: clients' clocks.

use std::path::Path as Folder;

use client::Transaction;
use grid::{WorkerOptions, Workers};
use holdfast::Store;
use holdfast::space::{
    Change, Definition, Document, Entries, Entry, Path, ReadOptions, Value, ValueRef, Wanted, WriteOptions,
};

use super::{ACCOUNTS, Client, Flow, MONEY, Message, PATIENCE, PRODUCTS, price};
use crate::space::Kept;
use crate::workload::{Failure, Result};

/// The types.
struct Types {
    products: Entries,
    accounts: Entries,
    orders: Entries,
    replies: Entries,
}

/// Those that workers touch, as workers have them.
struct Handled {
    products: client::Entries,
    accounts: client::Entries,
    orders: client::Entries,
    replies: client::Entries,
}

/// The whole flow.
pub(super) struct Whole {
    store: Store,
    messages: Entries,
    types: Types,
    workers: Workers,
}

impl Whole {
    pub(super) fn start(dir: &Folder, kept: Kept, workers: u16) -> Result<Self> {
        let options = kept.options();
        let durability = options.durability;
        let store = Store::open(dir, options)?;
        let declare = |name: &str| store.space("flow").declare(Definition::new("flow", name));
        let messages = declare("message")?;
        let types = Types {
            products: declare("product")?,
            accounts: declare("account")?,
            orders: declare("order")?,
            replies: declare("reply")?,
        };
        for id in 0..PRODUCTS {
            let product = Document::from_pairs([("id", Value::from(id)), ("price", price(id).into())]);
            let _ = types.products.write_shown(&product, &WriteOptions::default())?;
        }
        for id in 0..ACCOUNTS {
            let account = Document::from_pairs([("id", Value::from(id)), ("money", MONEY.into())]);
            let _ = types.accounts.write_shown(&account, &WriteOptions::default())?;
        }
        let client = client::Client::embedded(&store)?;
        let entries = |name: &str| client.space("flow").entries(name).wait();
        let of = Handled {
            products: entries("product")?,
            accounts: entries("account")?,
            orders: entries("order")?,
            replies: entries("reply")?,
        };
        let money = Path::parse("money")?;
        let options = WorkerOptions { threads: usize::from(workers), durability, ..WorkerOptions::default() };
        let workers =
            Workers::start(&client, &entries("message")?, &Wanted::all(), options, move |transaction, message| {
                handle(&of, &money, transaction, message)
            })?;
        Ok(Self { store, messages, types, workers })
    }

    /// Ends the workers.
    pub(super) fn stop(self) -> Result<()> {
        let stats = self.workers.stop();
        if stats.failed > 0 {
            return Err(Failure::from(format!("{} times a worker failed: {:?}", stats.failed, stats.trouble)));
        }
        Ok(self.store.close()?)
    }
}

fn number(document: &Document, field: &str) -> i64 {
    if let Some(ValueRef::I64(number)) = document.get(field) { number } else { 0 }
}

fn handle(
    types: &Handled,
    money: &Path,
    transaction: &mut Transaction,
    message: &Entry,
) -> std::result::Result<(), grid::Failure> {
    let message = &message.document;
    let (id, account) = (number(message, "id"), number(message, "account"));
    let product = types.products.read(&Wanted::id(number(message, "product")), &ReadOptions::default()).wait()?;
    let product = product.ok_or_else(|| grid::Failure::new("there is no such product"))?;
    let total = number(&product.document, "price") * number(message, "quantity");
    let paid = [Change::Increment { path: money.clone(), by: (-total).into() }];
    let write = WriteOptions::default();
    let changed = transaction.change(&types.accounts, &Wanted::id(account), &paid, &write).wait()?;
    changed.ok_or_else(|| grid::Failure::new("there is no such account"))?;
    let order = Document::from_pairs([("id", id), ("account", account), ("total", total)]);
    transaction.write(&types.orders, &order, &write).wait()?;
    let reply = Document::from_pairs([("id", id), ("total", total)]);
    transaction.write(&types.replies, &reply, &write).wait()?;
    Ok(())
}

impl Flow for Whole {
    fn client<'a>(&'a self, _number: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(self))
    }

    fn totals(&self) -> Result<(u64, i64)> {
        let sum = self.types.accounts.select("SELECT SUM(money) AS money FROM account", &[])?;
        let money = sum.first().map_or(0, |row| number(row, "money"));
        Ok((self.types.orders.count(&Wanted::all())?, money))
    }
}

impl Client for &Whole {
    fn order(&mut self, message: &Message) -> Result<i64> {
        let id = i64::try_from(message.id)?;
        let document = Document::from_pairs([
            ("id", Value::from(id)),
            ("product", message.product.into()),
            ("account", message.account.into()),
            ("quantity", message.quantity.into()),
        ]);
        self.messages.write(&document, &WriteOptions::default())?;
        let waits = ReadOptions { wait: Some(PATIENCE), ..ReadOptions::default() };
        let reply = self.types.replies.take(&Wanted::id(id), &waits)?;
        let reply = reply.ok_or_else(|| Failure::from(format!("nothing came out for message {id}")))?;
        Ok(number(&reply.document, "total"))
    }
}
