//! Decodes foreign bytes as key-value commands: nothing panics, and what decodes encodes to the same bytes.
//!
//! Run: `cargo +nightly fuzz run kv_command`. May use: `kv`.
#![no_main]

use kv::Command;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Some((command, length)) = Command::decode(rest) {
        let mut again = Vec::new();
        command.encode(&mut again);
        let (taken, behind) = rest.split_at(length);
        assert_eq!(again, taken, "a command has one encoding");
        rest = behind;
    }
});
