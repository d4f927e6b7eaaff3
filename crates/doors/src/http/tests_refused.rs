//! What is refused over HTTP because of what others have written waits for that: see `space.rs` and `object.rs`. And names that nobody
//! could see are refused.

use holdfast::space::{Document, Entries, ReadOptions, Value, Wanted, WriteOptions};
use holdfast::{Durability, Options, Position, PutOptions};

use super::tests_client::{Door, open_on, open_wide};
use crate::http::Limits;

const USERS: &str = "/spaces/s/types/users";

/// Entry 1 and key `k`, which somebody has written an instant ago, and entry 2, which is gone since: the newest of them.
fn others(door: &Door) -> Position {
    let users: Entries = door.store.space("s").entries("users").unwrap();
    let document = |id: i64, name: &str| Document::from_pairs([("id", Value::from(id)), ("name", name.into())]);
    users.write_shown(&document(2, "bob"), &WriteOptions::default()).unwrap();
    users.take_shown(&Wanted::id(2), &ReadOptions::default()).unwrap().value.unwrap();
    users.write_shown(&document(1, "ada"), &WriteOptions::default()).unwrap();
    door.store.kv().put_no_wait(b"b", b"k", b"v", &PutOptions::default()).unwrap().position
}

#[test]
fn a_refusal_is_told_when_what_it_rests_on_is_durable() {
    let door = open_on(Options { durability: Durability::Synced, partitions: 1, ..Options::default() }, |options| {
        options.limits = Limits::default();
    });
    let declared =
        r#"{"placement":"together","indexes":[{"name":"name","kind":"hash","unique":true,"paths":["name"]}]}"#;
    assert_eq!(door.put(USERS, &[], declared).status, 204);
    let (one, two, many) = (format!("{USERS}/entries/1"), format!("{USERS}/entries/2"), format!("{USERS}/write"));
    let absent: &[(&str, &str)] = &[("If-None-Match", "*")];
    let other: &[(&str, &str)] = &[("If-Match", "\"0000000000000001\"")];
    let there: &[(&str, &str)] = &[("If-Match", "*")];
    let begun = others(&door);
    for (line, headers, body, status) in [
        (format!("PUT {one}"), absent, "{}", 412),
        (format!("PUT {one}"), other, "{}", 412),
        (format!("PUT {two}"), there, "{}", 412),
        (format!("PUT {two}"), &[][..], r#"{"name":"ada"}"#, 412),
        (format!("POST {two}"), &[][..], "{}", 412),
        (format!("POST {USERS}/entries"), &[][..], r#"{"id":1}"#, 412),
        (format!("DELETE {one}"), other, "", 412),
        (format!("DELETE {two}"), &[][..], "", 404),
        (format!("GET {one}"), other, "", 412),
        (format!("POST {many}"), &[][..], r#"{"documents":[{"id":1}],"absent":true}"#, 200),
        ("PUT /buckets/b/keys/k".to_owned(), absent, "x", 412),
        ("DELETE /buckets/b/keys/k".to_owned(), other, "", 412),
        (
            "POST /batch".to_owned(),
            &[][..],
            r#"{"operations":[{"write":{"space":"s","type":"users","document":{"id":1},"absent":true}}]}"#,
            412,
        ),
    ] {
        // What the request rests on at the least: the last but one of them.
        let before = door.store.watermarks().appended;
        let newest = others(&door);
        assert!(door.store.watermarks().synced <= before, "{line}: nobody waits yet");
        let answer = door.send(&line, headers, (!body.is_empty()).then_some(body.as_bytes()));
        assert_eq!(answer.status, status, "{line} {headers:?}: {answer:?}");
        assert!(door.store.watermarks().synced > before && newest > begun, "{line} {headers:?}");
    }
}

#[test]
fn names_with_control_characters_are_refused() {
    let door = open_wide();
    for (line, body) in [
        ("POST /write?db=%00xa", "cpu value=1"),
        ("POST /api/v2/write?bucket=a%1b", "cpu value=1"),
        ("POST /write?db=x", "c\u{1}pu value=1"),
        ("POST /write?db=x", "cpu,ho\u{7f}st=a value=1"),
        ("POST /write?db=x", "cpu val\u{1}ue=1"),
        (
            "POST /api/put?details",
            "{\"metric\":\"c\\u0000\",\"timestamp\":1700000000,\"value\":1,\"tags\":{\"a\":\"b\"}}",
        ),
        ("POST /query?q=CREATE+DATABASE+%22a%01b%22", ""),
        ("PUT /spaces/a%01b/types/c", ""),
        ("PUT /spaces/a/types/c%7f", ""),
    ] {
        let answer = door.send(line, &[], Some(body.as_bytes()));
        let (status, text) = (answer.status, answer.text().to_owned());
        assert!(
            (status == 400 || line.contains("/query")) && text.contains("control characters"),
            "{line}: {answer:?}"
        );
        assert!(!text.trim_end().contains(char::is_control), "{line}: {text:?}");
    }
    let databases = door.get("/query?q=SHOW+DATABASES");
    assert!(!databases.text().contains("xa") && !databases.text().contains("\\u"), "{}", databases.text());
}
