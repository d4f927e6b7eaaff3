//! Messages of remote write: made by hand, and cut anywhere.

use proptest::prelude::*;

use super::*;
use crate::http::message::{put_bytes, put_double, put_integer, varint};

type Made<'a> = (&'a [(&'a str, &'a str)], &'a [(f64, i64)]);

/// A `WriteRequest`.
pub(in crate::http::ingest) fn message(all: &[Made<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    for (labels, samples) in all {
        let mut series = Vec::new();
        for (name, value) in *labels {
            let mut label = Vec::new();
            put_bytes(&mut label, 1, name.as_bytes());
            put_bytes(&mut label, 2, value.as_bytes());
            put_bytes(&mut series, 1, &label);
        }
        for (value, at) in *samples {
            let mut sample = Vec::new();
            put_double(&mut sample, 1, *value);
            put_integer(&mut sample, 2, *at);
            put_bytes(&mut series, 2, &sample);
        }
        put_bytes(&mut message, 1, &series);
    }
    // Metadata, which is ignored.
    put_bytes(&mut message, 3, b"\x08\x01");
    message
}

/// All fields of a message and of the messages in it, as deep as remote write goes.
fn walk(mut text: &[u8], depth: usize) -> Result<usize, NoMessage> {
    let mut count = 0;
    while let Some((_, value)) = field(&mut text)? {
        count += 1;
        if let (Field::Bytes(inner), true) = (value, depth < 3) {
            count += walk(inner, depth + 1).unwrap_or(0);
        }
    }
    Ok(count)
}

#[test]
fn names_are_labels_and_empty_ones_are_none() {
    let made = message(&[(&[("__name__", "up"), ("job", "a"), ("none", "")], &[(1.0, 5)])]);
    let mut text = made.as_slice();
    let Some((1, Field::Bytes(series))) = field(&mut text).unwrap() else { panic!("no series") };
    assert_eq!(names(series), Ok(("up".to_owned(), vec![("job".to_owned(), "a".to_owned())])));
}

#[test]
fn a_message_that_is_cut_off_is_none_unless_it_is_cut_between_fields() {
    let made = message(&[(&[("__name__", "up")], &[(1.0, 5)])]);
    let whole = (0..=made.len()).filter(|end| walk(&made[..*end], 3).is_ok()).count();
    assert_eq!(whole, 3, "nothing, the series, and the series with metadata");
    assert_eq!(varint(&mut &[0xff; 11][..]), Err(NoMessage));
    assert_eq!(walk(&[0x0b], 0), Err(NoMessage), "a group");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = walk(&text, 0);
        let _ = names(&text);
    }
}
