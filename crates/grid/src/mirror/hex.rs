//! Bytes as hexadecimal digits, in which they travel to databases and back.
//!
//! May use: std. Must not know: databases.

use std::fmt::Write as _;

/// Two digits for each byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of these digits, in either case; `None` when they are no such digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_digits_and_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(
            (encode(&[0, 0xAB]), decode("00aB"), decode("")),
            ("00ab".to_owned(), Some(vec![0, 0xAB]), Some(vec![]))
        );
        for wrong in ["0", "0g", "+1", "é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
