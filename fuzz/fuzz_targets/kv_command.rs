//! Decodes foreign bytes as key-value commands: nothing panics, and what decodes encodes to the same bytes.
//!
//! Run: `cargo +nightly fuzz run kv_command`. May use: `kv`.
#![no_main]

use kv::Recorded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Some((recorded, length)) = Recorded::decode(rest) {
        let mut again = Vec::new();
        match recorded.version {
            Some(version) => recorded.command.encode_kept(version, &mut again),
            None => recorded.command.encode(&mut again),
        }
        let (taken, behind) = rest.split_at(length);
        assert_eq!(again, taken, "a command has one encoding");
        rest = behind;
    }
});
