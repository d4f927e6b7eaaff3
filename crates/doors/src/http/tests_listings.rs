//! Listings of buckets and keys through the door.

use holdfast::{Durability, PutOptions};
use serde_json::json;

use super::index::{Bounds, Request};
use super::listing::{Encoding, Form, Keys};
use super::pages::{Piece, Pieces};
use super::tests_client::{Door, open_wide};
use super::uri::Query;

fn fill(door: &Door, keys: &[&[u8]]) {
    for key in keys {
        door.store.kv().put(b"b", key, b"v", &PutOptions::default()).unwrap();
    }
}

/// The JSON objects that stand one after another.
fn objects(text: &str) -> Vec<serde_json::Value> {
    let objects = serde_json::Deserializer::from_str(text).into_iter();
    objects.collect::<Result<_, _>>().unwrap()
}

#[test]
fn keys_are_listed_whole_and_as_a_stream_over_several_pages() {
    let door = open_wide();
    assert_eq!(door.get("/buckets/b/keys?keys=true").json(), json!({ "keys": [] }));
    assert_eq!(objects(door.get("/buckets/b/keys?keys=stream").text()), [json!({ "keys": [] })]);
    fill(&door, &[b"a", b"\"q\"", b"c/d", b"e", b"f"]);
    let all = json!(["\"q\"", "a", "c/d", "e", "f"]);
    let whole = door.get("/buckets/b/keys?keys=true");
    assert_eq!((whole.json(), whole.header("content-type")), (json!({ "keys": all }), Some("application/json")));
    assert_eq!(whole.header("transfer-encoding"), Some("chunked"));
    let parts = objects(door.get("/types/default/buckets/b/keys?keys=stream").text());
    assert_eq!(parts.last(), Some(&json!({ "keys": [] })));
    let found: Vec<_> = parts.iter().flat_map(|part| part["keys"].as_array().unwrap().clone()).collect();
    assert_eq!(serde_json::Value::Array(found), all);
    assert_eq!(door.get("/buckets/b/keys").text(), "{}");
    assert_eq!(door.get("/buckets/b/keys?keys=false").text(), "{}");
    assert_eq!(door.get("/buckets/b/keys?keys=perhaps").status, 400);
    let head = door.send("HEAD /buckets/b/keys?keys=true", &[], None);
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn names_that_are_not_text_are_percent_encoded_and_all_are_when_asked() {
    let door = open_wide();
    fill(&door, &[b"%41", b"a b", b"\xff/"]);
    assert_eq!(door.get("/buckets/b/keys?keys=true").json(), json!({ "keys": ["%41", "a b", "%FF%2F"] }));
    let encoded = door.get("/buckets/b/keys?keys=true&encoding=percent").json();
    assert_eq!(encoded, json!({ "keys": ["%2541", "a%20b", "%FF%2F"] }));
    assert_eq!(door.get("/buckets/b/keys?keys=true&encoding=rot13").status, 400);
}

#[test]
fn buckets_are_listed_in_both_forms_and_have_the_same_properties() {
    let door = open_wide();
    assert_eq!(door.get("/buckets?buckets=true").json(), json!({ "buckets": [] }));
    for bucket in [&b"two"[..], b"one", b"\xfe"] {
        door.store.kv().put(bucket, b"k", b"v", &PutOptions::default()).unwrap();
    }
    let all = json!({ "buckets": ["one", "two", "%FE"] });
    assert_eq!(door.get("/buckets?buckets=true").json(), all);
    assert_eq!(objects(door.get("/buckets?buckets=stream").text()), [all, json!({ "buckets": [] })]);
    assert_eq!(door.get("/buckets").text(), "{}");
    let props = door.get("/buckets/any/props").json();
    assert_eq!((&props["props"]["allow_mult"], &props["props"]["n_val"]), (&json!(false), &json!(1)));
}

#[test]
fn a_listing_shows_one_instant_whatever_changes_while_it_is_sent() {
    let door = open_wide();
    fill(&door, &[b"a", b"c", b"e", b"g", b"i"]);
    let forms = (Form::Whole, Encoding::Plain);
    let keys = Keys::begin(&door.store, b"b".to_vec(), forms, Durability::Synced, 2).unwrap();
    let query = Query::parse(None).unwrap();
    let bounds = Bounds { entries_max: 2, regex_bytes_max: 10 };
    let request = Request::parse(b"b", b"$key", (b"a", b"z"), &query, bounds).unwrap();
    let found = request.begin(&door.store, Durability::Synced).unwrap();
    let both: [Box<dyn Pieces>; 2] = [Box::new(keys), Box::new(found)];
    let mut texts = [Vec::new(), Vec::new()];
    for (mut pieces, text) in both.into_iter().zip(&mut texts) {
        let mut round = 0;
        loop {
            fill(&door, &[b"b", b"d", b"f", b"h"]);
            door.store.kv().delete(b"b", b"g", holdfast::Condition::None).unwrap();
            round += 1;
            match pieces.next().unwrap() {
                Piece::More(bytes) => text.extend(bytes),
                Piece::Last(bytes) | Piece::LastOfIncomplete(bytes, _) => {
                    text.extend(bytes);
                    break;
                }
            }
        }
        assert_eq!(round, 3);
    }
    for text in texts {
        assert_eq!(String::from_utf8(text).unwrap(), "{\"keys\":[\"a\",\"c\",\"e\",\"g\",\"i\"]}");
    }
}
