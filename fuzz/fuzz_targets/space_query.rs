//! Parses foreign text as queries and matches foreign bytes with them: nothing panics, and what matches satisfies the constraints
//! that an index would be asked with.
//!
//! Run: `cargo +nightly fuzz run space_query`. May use: `space`.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use space::{Document, Query, key_of};

fuzz_target!(|input: (&str, &[u8])| {
    let (text, json) = input;
    let (Ok(query), Ok(document)) = (Query::parse(text), Document::from_json(json)) else { return };
    if query.predicate.matches(document.fields()) {
        for constraint in query.predicate.constraints() {
            let mut satisfied = false;
            let _ = constraint.path.values(document.fields(), |value| {
                satisfied |= constraint.allows(&key_of(value));
                ControlFlow::Continue(())
            });
            assert!(satisfied, "{constraint:?}");
        }
    }
});
