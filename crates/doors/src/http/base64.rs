//! Base64 (RFC 4648, section 4): credentials, versions, and metadata that no header can carry as it is.
//!
//! May use: nothing. Must not know: who uses it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes as text, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut wide = [0; 4];
        for (to, from) in wide.iter_mut().skip(1).zip(chunk) {
            *to = *from;
        }
        let bits = u32::from_be_bytes(wide);
        for sextet in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * sextet) & 63).unwrap_or(0);
            let byte = ALPHABET.get(index).copied().unwrap_or(b'=');
            text.push(if sextet <= chunk.len() { char::from(byte) } else { '=' });
        }
    }
    text
}

/// The bytes that a text stands for; the padding may be missing.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let padding = text.len() - end;
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(end * 3 / 4);
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in text.get(..end)? {
        let sextet = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(sextet);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    // One sextet alone is no byte.
    (held < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_go_both_ways() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
            assert_eq!(encode(bytes.as_bytes()), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = encode(&bytes);
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            decode(&bytes);
        }
    }
}
