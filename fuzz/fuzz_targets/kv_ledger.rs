//! Decodes foreign bytes as ledger keys, entries, metadata and summaries, and as lists, blocks and filters of the ledger's files: nothing
//! panics, and what decodes encodes to the same bytes.
//!
//! These decoders are private to their crate and use little of it, so this compiles their files.
//!
//! Run: `cargo +nightly fuzz run kv_ledger`. May use: the files of the decoders.
#![no_main]
#![allow(dead_code, reason = "the engine uses more of these files than this target")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/kv/src/bytes.rs"]
mod bytes;
#[path = "../../crates/kv/src/compression.rs"]
mod compression;
#[path = "../../crates/kv/src/entry.rs"]
mod entry;
#[path = "../../crates/kv/src/indexes.rs"]
mod indexes;
#[path = "../../crates/kv/src/key.rs"]
mod key;
#[path = "../../crates/kv/src/live.rs"]
mod live;
#[path = "../../crates/kv/src/metadata.rs"]
mod metadata;
#[path = "../../crates/kv/src/owner.rs"]
mod owner;
#[path = "../../crates/kv/src/parts.rs"]
mod parts;
#[path = "../../crates/kv/src/summary.rs"]
mod summary;
#[path = "../../crates/kv/src/tree.rs"]
mod tree;
#[path = "../../crates/kv/src/ledger/block.rs"]
mod block;
#[path = "../../crates/kv/src/ledger/filter.rs"]
mod filter;
#[path = "../../crates/kv/src/ledger/list.rs"]
mod list;
#[path = "../../crates/kv/src/ledger/stored.rs"]
mod stored;
#[path = "../../crates/kv/src/ledger/table.rs"]
mod table;

fuzz_target!(|input: &[u8]| {
    read_files(input);
    if let Some(entry) = entry::Entry::decode(input) {
        assert_eq!(entry.encode(), input, "an entry has one encoding");
        // Metadata and indexes are read as far as they are whole.
        let head = entry.head();
        assert!(head.metadata.iter().count() <= input.len(), "each pair takes bytes");
        assert!(head.indexes.iter().count() <= input.len(), "each entry takes bytes");
    }
    if let Some(summary) = summary::Summary::decode(input) {
        assert_eq!(summary.encode(), input, "a summary has one encoding");
    }
    if let Some((bucket, name)) = key::split_object(input) {
        assert_eq!(key::object(&bucket, name), input, "a ledger key has one encoding");
    }
    if let Some((bucket, name)) = key::split_expiry(input) {
        let expires = input.get(2..10).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        assert_eq!(expires.map(|expires| key::expiry(expires, &bucket, name)).as_deref(), Some(input));
    }
});

/// Reads them as the ledger does.
fn read_files(input: &[u8]) {
    if let Some(list) = list::List::decode(input) {
        assert_eq!(list.encode(), input, "a list has one encoding");
    }
    if let Some(block) = block::Block::of(input.into()) {
        for number in 0..block.len() {
            let spot = block.spot(number);
            let key = block.key(spot);
            let key = [key.prefix, key.rest].concat();
            assert!(block.before(&key) <= block.len() && block.up_to(&key) <= block.len(), "within the block");
            assert!(block.value(spot).len() <= input.len(), "within the bytes");
        }
    }
    if let Some(filter) = filter::Filter::of(input.into()) {
        filter.may_have(filter::hash_of(input));
    }
    if let Some((place, stored)) = stored::Place::decode(input) {
        stored::restore(stored, place);
        // As if it was what its place says.
        let sum = base::hash64(stored);
        stored::restore(stored, stored::Place { sum, ..place });
    }
}
