//! Lists a bucket page by page from a snapshot, while the store changes beneath it.
//!
//! Run it: `cargo run -p holdfast-examples --example snapshot_and_pages`
#![allow(clippy::print_stdout, reason = "an example prints what it shows")]

use std::ops::Bound;

use holdfast::{Condition, Durability, Options, Page, PutOptions, Store};

const CITIES: [&str; 7] = ["athens", "berlin", "cairo", "delhi", "edinburgh", "florence", "geneva"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let options = Options { durability: Durability::Written, ..Options::default() };
    let store = Store::open(folder.path(), options)?;
    for city in CITIES {
        store.kv().put(b"cities", city.as_bytes(), city.to_uppercase().as_bytes(), &PutOptions::default())?;
    }

    // The snapshot stays as it is, whatever happens to the store; it copies nothing.
    let snapshot = store.snapshot()?;
    store.kv().delete(b"cities", b"delhi", Condition::None)?;
    store.kv().put(b"cities", b"berlin", b"changed", &PutOptions::default())?;
    store.kv().put(b"cities", b"zurich", b"new", &PutOptions::default())?;

    // A page holds at most `limit` objects in key order; the next one starts behind its last key.
    let mut seen = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    for number in 1.. {
        let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let page = Page { bucket: b"cities", start, end: Bound::Unbounded, limit: 3, values: true };
        let found = snapshot.page(&page)?;
        println!("page {number}");
        for (key, head, value) in &found.entries {
            let value = value.as_ref().map(|value| String::from_utf8_lossy(value)).unwrap_or_default();
            println!("  {:<10} {value:<10} version {}", String::from_utf8_lossy(key), head.version);
            seen.push(String::from_utf8_lossy(key).into_owned());
        }
        last = found.entries.last().map(|(key, ..)| key.clone());
        if !found.more {
            break;
        }
    }
    assert_eq!(seen, CITIES, "the snapshot shows what was there when it was taken");

    // The store itself has moved on. A range needs no snapshot: one page is as of one instant anyway.
    let (start, end) = (Bound::Included(&b"b"[..]), Bound::Excluded(&b"f"[..]));
    let now = store.kv().page(&Page { bucket: b"cities", start, end, limit: 100, values: false })?;
    let names: Vec<_> = now.value.entries.iter().map(|(key, ..)| String::from_utf8_lossy(key)).collect();
    println!("from b to f the store has now: {}", names.join(", "));
    assert_eq!(names, ["berlin", "cairo", "edinburgh"]);
    println!("cities in all: {}", store.kv().count(b"cities")?.value);
    Ok(())
}
