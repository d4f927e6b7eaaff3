//! Parses foreign bytes as lines of points: nothing panics, a bad line adds nothing, nothing is consumed twice, and how the
//! bytes were cut into pieces does not matter.
//!
//! The parser is private to its crate and uses only the facade's points, so this compiles its files.
//!
//! Run: `cargo +nightly fuzz run line_wire`. May use: the files.
#![no_main]

use holdfast::series::Rows;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/doors/src/line"]
#[allow(dead_code, unused_imports, reason = "the door uses more of the parser than this target")]
mod line {
    mod influx;
    mod number;
    mod put;
    mod wire;

    pub(crate) use number::Unit;
    pub(crate) use wire::{After, Reader, Step, Times};
}

use line::{After, Reader, Step, Times, Unit};

/// The points of the input, and how many lines were refused.
fn read(input: &[u8], piece: usize) -> (Vec<String>, usize) {
    let (mut reader, mut rows, mut bad) = (Reader::default(), Rows::new("default"), 0);
    let (mut begin, mut arrived) = (0, 0);
    let times = Times { now: 77, unit: Unit::Digits };
    loop {
        let after = if arrived == input.len() { After::Nothing } else { After::More };
        let seen = input.get(begin..arrived).unwrap_or_default();
        if seen.is_empty() && after == After::Nothing {
            let shown = rows.pending().flat_map(|(_, it)| {
                it.points.iter().map(|(time, value)| format!("{:?} {} {time} {value:?}", it.row, it.field)).collect::<Vec<_>>()
            });
            return (shown.collect(), bad);
        }
        let before = rows.len();
        let consumed = match reader.step(seen, after, times, &mut rows) {
            Step::Incomplete => {
                assert_eq!(after, After::More, "there is nothing more to wait for");
                assert_eq!(rows.len(), before, "what is not complete adds nothing");
                arrived = arrived.saturating_add(piece).min(input.len());
                continue;
            }
            Step::Points { bytes, points, .. } => {
                assert_eq!(rows.len(), before + points, "as many points as it says");
                bytes
            }
            Step::Word { bytes, .. } | Step::Bad { bytes, .. } => {
                assert_eq!(rows.len(), before, "a bad line adds nothing");
                bad += 1;
                bytes
            }
        };
        assert!(consumed > 0 && consumed <= seen.len(), "a line is made of bytes that arrived");
        begin += consumed;
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else { return };
    let whole = read(bytes, usize::MAX);
    let pieces = read(bytes, usize::from(*piece).max(1));
    assert_eq!(whole, pieces, "the same bytes in pieces are other points");
});
