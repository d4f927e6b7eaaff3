//! Decodes foreign bytes as documents, stored, in JSON and in MessagePack: nothing panics, and what decodes encodes to a document
//! that is equal.
//!
//! Run: `cargo +nightly fuzz run space_document`. May use: `space`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use space::Document;

fuzz_target!(|input: &[u8]| {
    let read = [Document::from_stored(input), Document::from_json(input), Document::from_msgpack(input)];
    for document in read.into_iter().flatten() {
        let again = Document::from_stored(document.as_bytes()).expect("a document is stored in its one form");
        assert_eq!(again, document);
        let from_json = Document::from_json(document.to_json().as_bytes()).expect("what we write in JSON can be read");
        assert_eq!(from_json, document);
        let from_msgpack = Document::from_msgpack(&document.to_msgpack()).expect("what we write in MessagePack can be read");
        assert_eq!(from_msgpack, document);
    }
});
