//! Settles a store's identity where the file `store` holds foreign bytes: nothing panics, and an identity that was made up
//! for bytes that are none is found again.
//!
//! This is private to the facade, so its file is compiled here, with that of its errors.
//!
//! Run: `cargo +nightly fuzz run store_identity`. May use: `base`, the two files.
#![no_main]
#![allow(dead_code, reason = "the facade uses more of these files than this target")]

use std::path::Path;

use base::Files;
use base::memory::Disk;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/holdfast/src/error.rs"]
mod error;
#[path = "../../crates/holdfast/src/identity.rs"]
mod identity;

const DIR: &str = "/store";
const PARTITIONS: u16 = 3;
const ENTROPY: u64 = 5;

fuzz_target!(|input: &[u8]| {
    let disk = Disk::new(1);
    let dir = Path::new(DIR);
    disk.create_dir(dir).expect("a good disk makes folders");
    base::write_new_file(&disk, &dir.join("store"), input).expect("a good disk writes");
    let decoded = identity::Identity::decode(input);
    let settle = |partitions, entropy| {
        let settled =
            identity::settle(&disk, dir, partitions, entropy).expect("a folder without segments becomes a store");
        settled.write(&disk, dir).expect("a good disk writes");
        settled.identity
    };
    let settled = settle(PARTITIONS, ENTROPY);
    match decoded {
        Some(decoded) => {
            assert_eq!(decoded.encode(), input, "an identity has one encoding");
            assert_eq!(decoded, settled, "a whole identity stays");
            assert!((1..=identity::PARTITIONS_MAX).contains(&settled.partitions), "a store has partitions");
        }
        None => assert_eq!(settled.partitions, PARTITIONS, "damage is made good with what was asked for"),
    }
    assert_eq!(settle(PARTITIONS + 1, ENTROPY + 1), settled, "what was settled stays");
});
