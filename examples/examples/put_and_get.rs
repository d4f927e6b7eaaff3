//! Puts objects with different durabilities, and gets them back after the store was closed and opened again.
//!
//! Run it: `cargo run -p holdfast-examples --example put_and_get`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::time::{Duration, Instant};

use holdfast::{Durability, Metadata, Options, PutOptions, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(folder.path(), Options::default())?;

    // Durability is chosen for each request: how much waiting is safety worth for this one?
    let window = Durability::window(Duration::from_millis(1), Duration::from_millis(10));
    for durability in [Durability::Synced, window, Durability::Written] {
        let begin = Instant::now();
        let key = durability.to_string();
        let put = store.kv().put_at(b"letters", key.as_bytes(), b"Dear Ada", &PutOptions::default(), durability)?;
        println!("{durability}: acknowledged after {:?}, at position {}", begin.elapsed(), put.position);
    }

    // What a power cut would take now is a number.
    let stats = store.stats();
    println!("unsynced: {} batches, {} bytes", stats.unsynced_batches, stats.unsynced_bytes);

    // An object carries metadata, which is read without its value.
    let metadata = Metadata::from_pairs([("sender", "Charles"), ("year", "1843")]);
    let options = PutOptions { metadata, ..PutOptions::default() };
    store.kv().put(b"letters", b"signed", &[b'.'; 10_000], &options)?;
    store.close()?;
    drop(store);

    let store = Store::open(folder.path(), Options::default())?;
    let head = store.kv().head(b"letters", b"signed")?.ok_or("it was put")?;
    println!("signed: {} bytes", head.value_bytes);
    for (name, value) in head.metadata.iter() {
        println!("  {} = {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    }
    let letter = store.kv().get(b"letters", b"written")?.ok_or("it was put")?;
    println!("written: {}", String::from_utf8_lossy(&letter.value));
    Ok(())
}
