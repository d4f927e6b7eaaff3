//! The stored form, byte by byte: what is written once is read for ever.
//!
//! May use: everything of the crate. Must not know: nothing.

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{documents, values};
use crate::document::Document;

#[test]
fn the_bytes_of_each_kind() {
    let map = |name: &str, value: Value| Value::Map(BTreeMap::from([(name.to_owned(), value)]));
    let table: Vec<(Value, Vec<u8>)> = vec![
        (Value::Null, vec![0]),
        (false.into(), vec![1]),
        (true.into(), vec![2]),
        (0.into(), vec![3, 0]),
        ((-1).into(), vec![3, 1]),
        (1.into(), vec![3, 2]),
        (64.into(), vec![3, 0x80, 1]),
        (i64::MIN.into(), vec![3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        (Value::U64(5), vec![3, 10]),
        ((1u64 << 63).into(), vec![4, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1]),
        (1.5.into(), vec![5, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f]),
        ((-f64::NAN).into(), vec![5, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f]),
        (Value::Decimal(Decimal { mantissa: -2, scale: 1 }), [vec![6, 1, 254], vec![255; 15]].concat()),
        ("é".into(), vec![7, 2, 0xc3, 0xa9]),
        (Value::Bytes(vec![0, 255]), vec![8, 2, 0, 255]),
        (Value::Timestamp(1), vec![9, 1, 0, 0, 0, 0, 0, 0, 0]),
        (vec![1, 2].into(), vec![10, 4, 3, 2, 3, 4]),
        (map("a", true.into()), vec![11, 3, 1, b'a', 2]),
    ];
    for (value, bytes) in table {
        assert_eq!(value.stored().as_bytes(), bytes, "{value:?}");
        let document = [&[1, b'x'], bytes.as_slice()].concat();
        assert_eq!(Document::from_stored(&document).map(|document| document.as_bytes().to_vec()), Ok(document));
    }
}

#[test]
fn another_form_of_the_same_is_refused() {
    let deep = |levels: usize| {
        let value = (0..levels).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        Document::from_pairs([("a", value)])
    };
    assert!(Document::from_stored(deep(DEPTH_MAX).as_bytes()).is_ok());
    let too_deep = deep(DEPTH_MAX + 1);
    let table: [&[u8]; 14] = [
        &[1, b'a'],
        &[1, b'a', 12],
        &[1, b'a', 3],
        &[1, b'a', 3, 0x80, 0],
        &[1, b'a', 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        &[1, b'a', 4, 5],
        &[1, b'a', 5, 1, 0, 0, 0, 0, 0, 0xf8, 0x7f],
        &[0x81, 0, b'a', 0],
        &[1, b'b', 0, 1, b'a', 0],
        &[1, b'a', 0, 1, b'a', 0],
        &[1, 0xff, 0],
        &[1, b'a', 7, 1, 0xff],
        &[1, b'a', 10, 1, 12],
        too_deep.as_bytes(),
    ];
    let accepted: Vec<_> = table.iter().filter(|bytes| Document::from_stored(bytes).is_ok()).collect();
    assert!(accepted.is_empty(), "{accepted:?}");
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in values(), document in documents()) {
        prop_assert_eq!(value.stored().get().to_value().stored(), value.stored());
        prop_assert_eq!(&Document::from_stored(document.as_bytes()).unwrap(), &document);
        prop_assert_eq!(&Document::new(&document.to_fields()), &document);
        for (name, value) in document.fields().iter() {
            prop_assert_eq!(document.get(name).map(ValueRef::stored), Some(value.stored()));
        }
        prop_assert_eq!(document.get("~"), None);
    }

    #[test]
    fn any_bytes_are_a_document_or_refused(document in documents(), at: prop::sample::Index, byte: u8, bytes: Vec<u8>) {
        let mut changed = document.as_bytes().to_vec();
        if !changed.is_empty() {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        for bytes in [changed, bytes] {
            if let Ok(document) = Document::from_stored(&bytes) {
                prop_assert_eq!(&Document::new(&document.to_fields()), &document, "one form for each document");
            }
        }
    }
}

#[test]
fn numbers_and_texts_are_read_as_what_they_fit() {
    let of = |value: Value| value.stored();
    for (value, signed, unsigned, float) in [
        (Value::I64(7), Some(7), Some(7), Some(7.0)),
        (Value::I64(-7), Some(-7), None, Some(-7.0)),
        (Value::U64(u64::MAX), None, Some(u64::MAX), Some(u64::MAX as f64)),
        (Value::F64(7.0), None, None, Some(7.0)),
        (Value::Decimal(Decimal { mantissa: 7, scale: 0 }), None, None, None),
        (Value::from("7"), None, None, None),
        (Value::Timestamp(7), None, None, None),
    ] {
        let stored = of(value);
        let it = stored.get();
        assert_eq!((it.as_i64(), it.as_u64(), it.as_f64()), (signed, unsigned, float), "{it:?}");
    }
    assert_eq!((of("a".into()).get().as_str(), of(1.into()).get().as_str()), (Some("a"), None));
    assert_eq!((of(true.into()).get().as_bool(), of(1.into()).get().as_bool()), (Some(true), None));
}
