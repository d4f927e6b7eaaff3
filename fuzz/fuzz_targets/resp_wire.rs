//! Parses foreign bytes as RESP requests: nothing panics, nothing is consumed twice, and how the bytes were cut into pieces
//! does not matter.
//!
//! The parser is private to its crate and uses nothing of it, but its file of numbers, so this compiles the two files.
//!
//! Run: `cargo +nightly fuzz run resp_wire`. May use: the two files.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/doors/src/resp/number.rs"]
#[allow(dead_code, reason = "the door uses more of the numbers than this target")]
mod number;
#[path = "../../crates/doors/src/resp/wire.rs"]
#[allow(dead_code, reason = "the door uses more of the parser than this target")]
mod wire;

use wire::{Parser, Progress, WireLimits};

const LIMITS: WireLimits =
    WireLimits { line_bytes_max: 64, bulk_bytes_max: 256, command_bytes_max: 512, args_max: 16, unauthenticated: None };

/// The commands in the input, and the error that ended it.
fn parse(input: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let (mut parser, mut commands) = (Parser::new(), Vec::new());
    let (mut begin, mut arrived) = (0, 0);
    loop {
        let seen = input.get(begin..arrived).unwrap_or_default();
        match parser.parse(seen, &LIMITS) {
            Ok(Progress::Incomplete) => {
                assert!(parser.needed() >= seen.len(), "it asks for less than it has");
                if arrived == input.len() {
                    return (commands, None);
                }
                arrived = arrived.saturating_add(piece).min(input.len());
            }
            Ok(Progress::Command { consumed }) => {
                assert!(consumed > 0 && consumed <= seen.len(), "a command is made of bytes that arrived");
                let words: Vec<Vec<u8>> = parser.args(seen).iter().map(<[u8]>::to_vec).collect();
                assert!(!words.is_empty() && words.len() <= LIMITS.command_bytes_max, "a command has a name, and an end");
                commands.push(words);
                begin += consumed;
            }
            Ok(Progress::Skip { consumed }) => {
                assert!(consumed > 0 && consumed <= seen.len(), "nothing is skipped that did not arrive");
                begin += consumed;
            }
            Err(error) => return (commands, Some(error.to_string())),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else { return };
    let (whole, whole_error) = parse(bytes, usize::MAX);
    let (pieces, pieces_error) = parse(bytes, usize::from(*piece).max(1));
    // A line that is too long is refused only while its end is not in sight, so pieces may end earlier, and never otherwise.
    assert!(whole.starts_with(&pieces), "the same bytes in pieces are other commands");
    assert!(pieces_error.is_some() || (whole == pieces && whole_error.is_none()), "the same bytes in pieces end otherwise");
});
