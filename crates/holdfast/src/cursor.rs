//! Cursors as text: letters and digits only, so that they pass through URLs and protocols unharmed.
//!
//! A cursor is a byte that says what it is for and bytes that mean something there, in hexadecimal. It is a place, not a
//! promise: whatever it holds, going on from there is safe.
//!
//! May use: nothing. Must not know: what the bytes mean.

use crate::error::{Error, ErrorKind, Result};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn encode(kind: u8, bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(*DIGITS.get(usize::from(value & 15)).expect("sixteen digits"));
    std::iter::once(&kind).chain(bytes).flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

pub(crate) fn decode(kind: u8, text: &str) -> Result<Vec<u8>> {
    let value = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(value(high)? << 4 | value(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let invalid = || Error::new(ErrorKind::Invalid, "the continuation is not one that this store has given out");
    let (first, rest) = bytes.as_deref().and_then(<[u8]>::split_first).ok_or_else(invalid)?;
    if *first == kind { Ok(rest.to_vec()) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_refused() {
        assert_eq!(decode(b'i', &encode(b'i', b"\x00\xFFz")).unwrap(), b"\x00\xFFz");
        for wrong in ["", "6", "69z", "zz", "66", "ä", "6g"] {
            assert!(decode(b'i', wrong).is_err(), "{wrong}");
        }
    }
}
