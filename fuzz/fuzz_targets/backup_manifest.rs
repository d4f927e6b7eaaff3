//! Decodes foreign bytes as a backup's manifest: nothing panics, and what decodes encodes to the same bytes.
//!
//! The second half of the inputs gets a right checksum, to reach what is behind it.
//!
//! Run: `cargo +nightly fuzz run backup_manifest`. May use: `base`, `journal`.
#![no_main]

use journal::Manifest;
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    if let Some(Ok(manifest)) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode(), bytes);
        let _ = manifest.bytes();
    }
}

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut summed = input.to_vec();
    summed.extend_from_slice(&base::crc32c(input).to_le_bytes());
    check(&summed);
});
