//! Decodes foreign bytes as ids and records of transactions: nothing panics, and what decodes encodes to the same bytes.
//!
//! Run: `cargo +nightly fuzz run xa_record`. May use: `xa`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xa::{CoordinatorId, OwnerId, Record, RecordKey, TransactionId, Xid};

fuzz_target!(|input: &[u8]| {
    if let Ok(id) = TransactionId::from_bytes(input) {
        assert_eq!(id.to_bytes().as_slice(), input, "an id has one encoding");
    }
    if let Ok(xid) = std::str::from_utf8(input).unwrap_or_default().parse::<Xid>() {
        assert_eq!(xid.to_string().as_bytes(), input, "a branch has one text");
    }
    // A checksum is not to be guessed, so keys with a right id are tried as well.
    let coordinator = CoordinatorId(1);
    let id = TransactionId { coordinator, owner: OwnerId(2), sequence: 3, deadline_ms: 4, shared: true, last_resource: None };
    let known = [RecordKey::Decision(id), RecordKey::Tombstone(id), RecordKey::Ended(OwnerId(5)), RecordKey::Owners];
    let (key, rest) = input.split_at(input.len().min(9));
    for (key, value) in known.map(|key| (key.to_bytes(), input)).into_iter().chain([(key.to_vec(), rest)]) {
        if let Ok(record) = Record::decode(&key, value) {
            assert_eq!((record.key().to_bytes(), record.value()), (key, value.to_vec()), "a record has one encoding");
        }
    }
});
