//! Moves money between accounts from several threads: a transaction over two keys, begun again after a conflict.
//!
//! Run it: `cargo run -p holdfast-examples --example transaction`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast::{Durability, ErrorKind, Options, PutOptions, Result, Store, Transaction};

const ACCOUNTS: [&[u8]; 3] = [b"ada", b"charles", b"mary"];
const THREADS: usize = 4;
const TRANSFERS: usize = 100;

/// Reads an account in a transaction; whoever changes it before the commit makes the commit fail with a conflict.
fn balance(transaction: &mut Transaction, account: &[u8]) -> Result<i64> {
    let found = transaction.get(b"accounts", account)?;
    let bytes = found.and_then(|object| object.value[..].try_into().ok());
    Ok(bytes.map_or(0, i64::from_le_bytes))
}

fn set(transaction: &mut Transaction, account: &[u8], balance: i64) -> Result<()> {
    transaction.put(b"accounts", account, &balance.to_le_bytes(), &PutOptions::default())
}

/// Moves one coin: both accounts change, or none.
fn transfer(store: &Store, from: &[u8], to: &[u8], conflicts: &AtomicU64) -> Result<()> {
    loop {
        let moved = attempt(store, from, to);
        match moved {
            // Somebody else changed an account in between: look again, decide again.
            Err(error) if error.kind() == ErrorKind::Conflict => conflicts.fetch_add(1, Ordering::Relaxed),
            done => return done,
        };
    }
}

fn attempt(store: &Store, from: &[u8], to: &[u8]) -> Result<()> {
    let mut transaction = store.begin();
    let (less, more) = (balance(&mut transaction, from)? - 1, balance(&mut transaction, to)? + 1);
    set(&mut transaction, from, less)?;
    set(&mut transaction, to, more)?;
    transaction.commit(Durability::Written)?;
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;
    let mut opening = store.begin();
    for account in ACCOUNTS {
        set(&mut opening, account, 1_000)?;
    }
    opening.commit(Durability::Synced)?;

    let conflicts = AtomicU64::new(0);
    let work = |thread: usize| -> Result<()> {
        let mut accounts = ACCOUNTS.iter().cycle().skip(thread);
        for _ in 0..TRANSFERS {
            if let (Some(from), Some(to)) = (accounts.next(), accounts.next()) {
                transfer(&store, from, to, &conflicts)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("transfers do not panic"))
    })?;

    let mut reading = store.begin();
    let mut sum = 0;
    for account in ACCOUNTS {
        let balance = balance(&mut reading, account)?;
        println!("{:<8} {balance:>5}", String::from_utf8_lossy(account));
        sum += balance;
    }
    // A commit that changes nothing still checks that all reads were true in one instant.
    reading.commit(Durability::Synced)?;
    println!("sum      {sum:>5}, after {} transfers and {} conflicts", THREADS * TRANSFERS, conflicts.into_inner());
    assert_eq!(sum, 3_000, "money is moved, never made");
    Ok(())
}
