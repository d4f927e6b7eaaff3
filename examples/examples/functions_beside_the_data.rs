//! Functions that go to the data, in place of data that goes to a function: they read, decide and write in one step.
//!
//! Entries with one routing value lie in one partition, of whatever type they are. A function that runs there has the partition
//! to itself and needs no locks, and what it does is one batch of the journal: all of it, or nothing.
//!
//! Run it: `cargo run -p holdfast-examples --example functions_beside_the_data`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use client::Client;
use holdfast::space::{
    Change, Definition, Document, Path, ReadOptions, Space, Task, Value, ValueRef, Wanted, WriteOptions,
};
use holdfast::{Error, ErrorKind, Options, Result, Store};
use holdfast_examples::Outcome;

const OWNERS: [&str; 5] = ["ada", "bo", "cy", "di", "ed"];

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let bank = store.space("bank");
    // An account is found by its owner, who is its id. Payments lie where the account of their owner lies.
    let accounts = bank.declare(Definition::new("bank", "accounts"))?;
    let routing = Some(Path::parse("owner")?);
    let payments = bank.declare(Definition { routing, ..Definition::new("bank", "payments") })?;
    for (owner, coins) in OWNERS.into_iter().zip([100, 200, 300, 400, 500]) {
        let account = Document::from_pairs([("id", Value::from(owner)), ("coins", coins.into())]);
        accounts.write(&account, &WriteOptions::default())?;
    }

    // By name, so that who calls need not be who wrote it. Nothing of it is stored: a program registers at each start.
    bank.register("spend", spend);
    let ada = Value::from("ada");
    let left = bank.call("spend", &ada, &Value::List(vec![ada.clone(), 30.into()]), None)?;
    assert_eq!(left, Value::from(70));

    // The same by the client library, whose call would run a function of that name in a server, were the store in one.
    let client = Client::embedded(&store)?;
    let arguments = Value::List(vec![ada.clone(), 50.into()]);
    let left = client.space("bank").call("spend", &ada, &arguments, None).wait()?;
    assert_eq!(left, Value::from(20));

    // What fails has not happened: the payment that it had written already is not there.
    let refused = bank.call("spend", &ada, &Value::List(vec![ada.clone(), 21.into()]), None);
    let refused = refused.err().ok_or("there were only 20")?;
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(payments.count(&Wanted::all())?, 2);
    println!("ada has 20 coins left of 100, after 2 payments: {refused}");

    // A closure does for what one place alone needs. It runs where the routing value lies.
    let spent = bank.execute(&ada, None, |task| {
        let of_ada = Wanted::template(&Document::from_pairs([("owner", "ada")]));
        Ok(task.read("payments", &of_ada, 100)?.iter().map(|payment| number(&payment.document, "coins")).sum::<i64>())
    })?;
    assert_eq!(spent, 80);

    // What lies elsewhere it cannot have, and is told so: it holds this partition and no other.
    let refusals =
        OWNERS.into_iter().filter_map(|owner| bank.execute(&ada, None, |task| task.get("accounts", owner)).err());
    let refusals: Vec<Error> = refusals.collect();
    assert!(!refusals.is_empty() && refusals.iter().all(|refused| refused.kind() == ErrorKind::Invalid));
    println!("of {} accounts {} lie in other partitions than ada's", OWNERS.len(), refusals.len());

    everywhere(&bank)?;
    let richest = accounts.read(&Wanted::id("ed"), &ReadOptions::default())?.ok_or("it was written")?;
    assert_eq!(number(&richest.document, "coins"), 505);
    Ok(store.close()?)
}

/// Pays coins of an account, and notes it: two entries of one partition.
fn spend(task: &mut Task<'_>, arguments: &Value) -> Result<Value> {
    let Value::List(arguments) = arguments else { return Err(invalid("spend wants an owner and coins")) };
    let [owner, Value::I64(coins)] = arguments.as_slice() else {
        return Err(invalid("spend wants an owner and coins"));
    };
    let payment = Document::from_pairs([("owner", owner.clone()), ("coins", (*coins).into())]);
    task.write("payments", &payment, &WriteOptions::default())?;
    let less = Change::Increment { path: Path::parse("coins")?, by: (-coins).into() };
    let account =
        task.change("accounts", owner.clone(), &[less])?.ok_or_else(|| invalid("there is no such account"))?;
    let left = number(&account, "coins");
    if left < 0 {
        return Err(Error::new(ErrorKind::Conflict, format!("{coins} coins are more than there were")));
    }
    Ok(left.into())
}

/// In all partitions, one after another: each answers for what lies there, and the answers become one.
fn everywhere(bank: &Space) -> Outcome<()> {
    let (found, coins) = bank.execute_all(
        None,
        |task| {
            let here = task.read("accounts", &Wanted::all(), 1_000)?;
            Ok((here.len(), here.iter().map(|account| number(&account.document, "coins")).sum::<i64>()))
        },
        |one, other| (one.0 + other.0, one.1 + other.1),
    )?;
    assert_eq!((found, coins), (5, 20 + 200 + 300 + 400 + 500));
    println!("{found} accounts have {coins} coins together");

    // Interest for each: all of them, or, if one fails, none.
    let interest = Change::Increment { path: Path::parse("coins")?, by: 5.into() };
    let paid = bank.execute_all(
        None,
        |task| {
            let here = task.read("accounts", &Wanted::all(), 1_000)?;
            for account in &here {
                let owner = account.document.get("id").map(ValueRef::to_value).unwrap_or_default();
                task.change("accounts", owner, std::slice::from_ref(&interest))?;
            }
            Ok(here.len())
        },
        |one, other| one + other,
    )?;
    assert_eq!(paid, 5);
    Ok(())
}

fn number(document: &Document, field: &str) -> i64 {
    if let Some(ValueRef::I64(number)) = document.get(field) { number } else { 0 }
}

fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::Invalid, text)
}
