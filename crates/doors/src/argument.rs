//! Values of entries as words: in arguments of commands and in paths.
//!
//! A word that is JSON is that value: `42`, `1.5`, `true`, `null`, `"42"`, `{"$bytes": "AP8="}`. Any other is the string that it is:
//! `EU`, `2026-01-31`. Shared by the doors.
//!
//! May use: the facade. Must not know: protocols.

use std::borrow::Cow;

use holdfast::space::{Value, ValueRef};
use holdfast::{Error, ErrorKind};

/// The value that a word says.
pub(crate) fn value(word: &[u8]) -> holdfast::Result<Value> {
    match Value::from_json(word) {
        Ok(value) => Ok(value),
        // What begins like one of these was meant to be JSON.
        Err(error) if matches!(word.first(), Some(b'{' | b'[' | b'"')) => Err(error.into()),
        Err(_) => std::str::from_utf8(word).map(|text| Value::String(text.to_owned())).map_err(|_| {
            let text = "a string has to be UTF-8; bytes are written {\"$bytes\": base64}";
            Error::new(ErrorKind::Invalid, text)
        }),
    }
}

/// The same without a copy, of what most ids are: integers, strings that need no escape, and words that are no JSON.
pub(crate) fn scalar(word: &[u8]) -> Option<ValueRef<'_>> {
    let text = std::str::from_utf8(word).ok()?;
    if let Some(text) = text.strip_prefix('"') {
        let text = text.strip_suffix('"')?;
        let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        return is_plain.then_some(ValueRef::String(text));
    }
    if is_no_json(text) {
        return Some(ValueRef::String(text));
    }
    // A number that begins with zero is none of JSON, or may be no integer.
    let is_integer = text == "0" || !text.trim_start_matches('-').starts_with('0');
    text.parse().ok().filter(|_| is_integer).map(ValueRef::I64)
}

/// How many regular expressions a text of SQL has at most, or one of OpenTSDB's filters.
pub(crate) fn regexes_in(text: &[u8]) -> usize {
    let count = |word: &[u8]| text.windows(word.len()).filter(|found| found.eq_ignore_ascii_case(word)).count();
    count(b"rlike") + count(b"regexp")
}

/// The word that says this value.
pub(crate) fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) if is_no_json(text) || self::value(text.as_bytes()).is_ok_and(|same| same == *value) => {
            Cow::Borrowed(text)
        }
        value => Cow::Owned(value.to_json()),
    }
}

/// Whether a word cannot be JSON, by its first byte; the empty one is none.
fn is_no_json(word: &str) -> bool {
    let begins = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_digit() || b"{[\"-tfn".contains(byte);
    !word.as_bytes().first().is_some_and(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_json_is_a_value_and_all_else_a_string() {
        for (argument, wanted) in [
            ("42", Value::I64(42)),
            ("-1.5", Value::F64(-1.5)),
            ("true", Value::Bool(true)),
            ("null", Value::Null),
            ("\"42\"", "42".into()),
            ("EU", "EU".into()),
            ("042", "042".into()),
            ("2026-01-31", "2026-01-31".into()),
            ("", "".into()),
            (r#"{"$bytes":"AP8="}"#, Value::Bytes(vec![0, 255])),
        ] {
            assert_eq!(value(argument.as_bytes()).unwrap(), wanted, "{argument}");
        }
        let plain = [&b"42"[..], b"-7", b"\"42\"", b"EU", b"", b"a b", "\"é\"".as_bytes()];
        let other = [
            &b"042"[..],
            b"+1",
            b"1.5",
            b"\"a\\n\"",
            b"\"",
            b"\"a\"b\"",
            b"null",
            b"{}",
            b"\xff",
            b"99999999999999999999",
        ];
        for argument in plain {
            assert_eq!(scalar(argument), Some(value(argument).unwrap().scalar()));
        }
        for argument in other.into_iter().filter(|argument| scalar(argument).is_some()) {
            assert_eq!(scalar(argument), value(argument).ok().as_ref().map(Value::scalar), "{argument:?}");
        }
        for argument in [&b"{"[..], b"[1", b"\"open", b"\xff", br#"{"$bytes":"?"}"#] {
            assert!(value(argument).is_err(), "{argument:?}");
        }
    }

    #[test]
    fn ids_can_be_sent_back() {
        for id in ["a", "42", "042", "", "null", "\"", "{", "a b"].map(Value::from) {
            assert_eq!(value(text_of(&id).as_bytes()).unwrap(), id);
        }
        assert_eq!(text_of(&"42".into()), "\"42\"");
        assert_eq!(text_of(&u64::MAX.into()), u64::MAX.to_string());
    }
}
