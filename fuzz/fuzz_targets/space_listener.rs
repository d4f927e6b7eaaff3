//! Decodes foreign bytes as what the store keeps of a listener by name: nothing panics, and what decodes reads back.
//!
//! This is private to the facade, so its file is compiled here.
//!
//! Run: `cargo +nightly fuzz run space_listener`. May use: the facade's bookmarks, the file.
#![no_main]
#![allow(dead_code, reason = "the facade uses more of this file than this target")]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/holdfast/src/space/kept.rs"]
mod kept;

/// Where the file looks for bookmarks.
mod notify {
    pub(crate) use holdfast::space::Bookmark;
}

fuzz_target!(|input: &[u8]| {
    if let Some(kept) = kept::Kept::decode(input) {
        assert_eq!(kept::Kept::decode(kept.encode().as_bytes()), Some(kept), "what was decoded reads back");
    }
    if let Some((of, name)) = kept::split_key(input) {
        assert_eq!(kept::key_of(of, name), input, "a key has one encoding");
    }
});
