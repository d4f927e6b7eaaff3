//! Which key of the server's configuration an error of the store is about: the store itself does not know that it has one.
//!
//! The store's errors have no kind for each; their texts are told apart. A test has each of them from a store.
//!
//! May use: the facade's error. Must not know: protocols.

use holdfast::{Error, ErrorKind};

/// How the text ends while the disk is nearly full.
const DISK_LOW: &str = "points are refused until there are more";
/// How the text begins of what is longer than a value may be, and what all that is too long says.
const VALUES: [&str; 2] = ["value of ", "document of "];
const TOO_LONG: &str = " bytes; the limit is ";

/// What the error says, and the key that changes it, if there is one.
pub(crate) fn told(error: &Error) -> String {
    let text = error.to_string();
    match key(error.kind(), &text) {
        Some(key) => format!("{text} ({key})"),
        None => text,
    }
}

fn key(kind: ErrorKind, text: &str) -> Option<&'static str> {
    match kind {
        ErrorKind::Unavailable if text.ends_with(DISK_LOW) => Some("series.free_bytes_min"),
        ErrorKind::Limit if text.contains(TOO_LONG) && VALUES.iter().any(|value| text.starts_with(value)) => {
            Some("limits.value_bytes_max")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use holdfast::series::{Rows, ValueRef};
    use holdfast::space::{Definition, Document, WriteOptions};
    use holdfast::{Limits, Options, PutOptions, Store};

    use super::*;

    #[test]
    fn errors_of_the_store_name_the_key_that_they_are_about() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut options = Options { limits: Limits { value_bytes_max: 2048, ..Limits::tiny() }, ..Options::default() };
        options.series.free_bytes_min = u64::MAX;
        let store = Store::open(folder.path(), options).unwrap();
        let put = |key: &[u8], value: &[u8]| store.kv().put(b"b", key, value, &PutOptions::default()).unwrap_err();
        assert_eq!(told(&put(b"k", &[b'x'; 2049])), "value of 2049 bytes; the limit is 2048 (limits.value_bytes_max)");
        let types = store.space("shop").declare(Definition::new("shop", "order")).unwrap();
        let document =
            Document::from_json(format!(r#"{{"id": 1, "text": "{}"}}"#, "x".repeat(3000)).as_bytes()).unwrap();
        let refused = told(&types.write(&document, &WriteOptions::default()).unwrap_err());
        assert!(refused.starts_with("document of ") && refused.ends_with(" (limits.value_bytes_max)"), "{refused}");
        let mut rows = Rows::new("default");
        let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
        let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
        rows.push(slot, 1, ValueRef::Float(1.0));
        store.step().unwrap();
        let refused = told(&store.series().write(&mut rows).unwrap_err());
        assert!(refused.ends_with("until there are more (series.free_bytes_min)"), "{refused}");
        assert!(told(&put(&[b'k'; 70], b"x")).ends_with("; the limit is 64"), "keys have no setting");
    }
}
