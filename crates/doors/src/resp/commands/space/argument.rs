//! Values and documents as arguments and in replies.
//!
//! An argument that is JSON is that value: `42`, `1.5`, `true`, `null`, `"42"`, `{"$bytes": "AP8="}`. Any other is the string
//! that it is: `EU`, `2026-01-31`. An id in a reply is written such that it can be sent back as an argument.
//!
//! May use: `call`, the facade. Must not know: commands.

use holdfast::space::{Document, Value};

use crate::resp::call::Fail;
use crate::resp::reply::Reply;

fn invalid(error: impl Into<holdfast::Error>) -> Fail {
    Fail::Store(error.into())
}

/// The value that an argument says.
pub(crate) fn value(argument: &[u8]) -> Result<Value, Fail> {
    match Value::from_json(argument) {
        Ok(value) => Ok(value),
        // What begins like one of these was meant to be JSON.
        Err(error) if matches!(argument.first(), Some(b'{' | b'[' | b'"')) => Err(invalid(error)),
        Err(_) => std::str::from_utf8(argument)
            .map(|text| Value::String(text.to_owned()))
            .map_err(|_| "ERR a string has to be UTF-8; bytes are written {\"$bytes\": base64}".into()),
    }
}

/// The document that an argument says.
pub(crate) fn document(argument: &[u8]) -> Result<Document, Fail> {
    Document::from_json(argument).map_err(invalid)
}

/// The argument that says this value.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) if self::value(text.as_bytes()).is_ok_and(|same| same == *value) => text.clone(),
        value => value.to_json(),
    }
}

/// An id: an integer where RESP has it.
pub(crate) fn write_id(reply: &mut Reply, id: &Value) {
    match id {
        Value::I64(number) => reply.integer(*number),
        id => reply.text(&text_of(id)),
    }
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
