//! Applies foreign bytes as commands of the space, and reads them as a snapshot: nothing panics.
//!
//! Run: `cargo +nightly fuzz run space_command`. May use: `space`, `journal`.
#![no_main]

use journal::{PartitionId, Position};
use libfuzzer_sys::fuzz_target;
use space::Engine;

fuzz_target!(|input: &[u8]| {
    let mut engine = Engine::default();
    let _ = engine.apply(Position::new(8), input, &mut |_| ());
    let snapshot = engine.snapshot(Position::new(8)).encode(PartitionId::new(0));
    let again = Engine::restore(&snapshot, PartitionId::new(0)).expect("what was written is read");
    assert_eq!(again.digest(), engine.digest());
    let _ = Engine::restore(input, PartitionId::new(0));
});
