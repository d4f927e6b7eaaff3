//! Bytes as base64 (RFC 4648, section 4), for JSON.
//!
//! May use: nothing. Must not know: values.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        let [a, b, c] = three.map(u32::from);
        let bits = a << 16 | b << 8 | c;
        for i in 0..4 {
            let letter = LETTERS.get((bits >> (18 - 6 * i) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if i > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

/// `None` when it is not what `encode` writes; the padding may be missing.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = match text.len() % 4 {
        0 => text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text),
        _ => text,
    };
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3 + 2);
    for chunk in letters.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for letter in chunk {
            bits = bits << 6 | u32::from(value(*letter)?);
        }
        // What is left over of the last letter is 0, so that bytes have one text only.
        match chunk.len() {
            4 => bytes.extend_from_slice(&[(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]),
            3 if bits & 3 == 0 => bytes.extend_from_slice(&[(bits >> 10) as u8, (bits >> 2) as u8]),
            2 if bits & 15 == 0 => bytes.push((bits >> 4) as u8),
            _ => return None,
        }
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_the_standard() {
        let table = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{3fb}\u{fb}", "z7vDuw=="),
        ];
        for (bytes, text) in table {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(decode("Zg").as_deref(), Some(b"f".as_slice()));
        for wrong in ["Z", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Z g=", "Zm9vé"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn any_text_is_safe(text in "[A-Za-z0-9+/=é]{0,12}") {
            let _ = decode(&text);
        }
    }
}
