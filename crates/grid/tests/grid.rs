//! What stands around the data of a space: nothing is lost, done twice, out of order or stale, whatever fails.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "grid/views.rs"]
mod views;
#[path = "grid/workers.rs"]
mod workers;

use std::time::{Duration, Instant};

use holdfast::space::{Document, Entry, ReadOptions, Value, ValueRef, WriteOptions};
use holdfast::{Durability, Limits, Options};

pub(crate) fn options() -> Options {
    Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() }
}

pub(crate) fn order(id: i64, customer: &str, total: i64) -> Document {
    Document::from_pairs([("id", Value::from(id)), ("customer", customer.into()), ("total", total.into())])
}

pub(crate) fn integer(document: &Document, field: &str) -> i64 {
    match document.get(field) {
        Some(ValueRef::I64(number)) => number,
        other => panic!("{field} is {other:?}"),
    }
}

pub(crate) fn id(entry: &Entry) -> i64 {
    integer(&entry.document, "id")
}

pub(crate) fn upsert() -> WriteOptions {
    WriteOptions::default()
}

pub(crate) fn now() -> ReadOptions {
    ReadOptions::default()
}

/// A number that looks random and is the same for the same seed.
pub(crate) fn dice(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Waits for what other threads do; fails when it takes too long.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::yield_now();
    }
}
