//! Entries of volatile types in batches and in transactions that stay open: all or nothing with what is durable.

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide};

fn declared() -> Door {
    let door = open_wide();
    assert_eq!(door.put("/spaces/shop/types/orders", &[], "{}").status, 204);
    assert_eq!(door.put("/spaces/shop/types/fast", &[], r#"{"storage":"volatile"}"#).status, 204);
    door
}

/// An operation on entries of a type.
fn on(of: &str, word: &str, fields: &Value) -> Value {
    let mut all = json!({"space": "shop", "type": of});
    all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ word: all })
}

fn write(of: &str, id: u64, n: u64) -> Value {
    on(of, "write", &json!({"document": {"id": id, "n": n}}))
}

fn post(door: &Door, path: &str, operations: &Value) -> Answer {
    let body = json!({ "operations": operations }).to_string();
    door.send(&format!("POST {path}"), &[], Some(body.as_bytes()))
}

fn count(door: &Door, of: &str) -> u64 {
    let entries = door.store.space("shop").entries(of).unwrap();
    entries.count(&holdfast::space::Wanted::all()).unwrap()
}

#[test]
fn a_batch_has_volatile_entries_with_the_rest_and_without_the_journal_where_there_is_no_rest() {
    let door = declared();
    let (appended, digest) = (door.store.watermarks().appended, door.store.digest().unwrap());
    let changes = json!({"id": 1, "changes": [{"increment": "n", "by": 2}], "previous": true});
    let answer = post(
        &door,
        "/batch",
        &json!([
            write("fast", 1, 1),
            write("fast", 2, 2),
            on("fast", "change", &changes),
            on("fast", "take", &json!({"id": 2})),
            on("fast", "read", &json!({"id": 1})),
            on("fast", "count", &json!({})),
        ]),
    );
    let entry = |id: u64, n: u64| json!({"version": null, "expires_ms": null, "document": {"id": id, "n": n}});
    let answers = json!([
        {"id": 1, "version": null},
        {"id": 2, "version": null},
        {"now": entry(1, 3), "previous": entry(1, 1)},
        {"entries": [entry(2, 2)]},
        {"entries": [entry(1, 3)]},
        {"count": 1},
    ]);
    assert_eq!((answer.status, answer.json()), (200, json!({"position": "0000000000000000", "answers": answers})));
    assert_eq!((door.store.watermarks().appended, count(&door, "fast")), (appended, 1));
    assert_eq!(post(&door, "/batch", &json!([on("fast", "clear", &json!({}))])).status, 200);
    assert_eq!((door.store.digest().unwrap(), count(&door, "fast")), (digest, 0));
    // All of it or nothing, whichever part cannot be.
    let absent = json!({"document": {"id": 1}, "absent": true});
    for (first, second) in [("fast", "orders"), ("orders", "fast")] {
        let before = (count(&door, "fast"), count(&door, "orders"));
        assert_eq!(post(&door, "/batch", &json!([write(second, 1, 1)])).status, 200);
        let refused = post(&door, "/batch", &json!([write(first, 7, 7), on(second, "write", &absent)]));
        assert_eq!((refused.status, &refused.json()["operation"]), (412, &json!(1)), "{refused:?}");
        assert_eq!(count(&door, "fast") + count(&door, "orders"), before.0 + before.1 + 1);
    }
    let both = post(&door, "/batch", &json!([write("fast", 9, 9), write("orders", 9, 9)]));
    let told = both.json();
    assert_eq!(told["answers"][0]["version"], Value::Null);
    assert_eq!(told["answers"][1]["version"], told["position"]);
    assert!(told["position"].as_str().unwrap() > "0000000000000000");
    assert_eq!((count(&door, "fast"), count(&door, "orders")), (2, 2));
}

#[test]
fn a_transaction_that_stays_open_has_volatile_entries_with_the_rest() {
    let door = declared();
    assert_eq!(post(&door, "/batch", &json!([write("fast", 1, 1)])).status, 200);
    for (ends, left) in [("rolled back", (1, 0)), ("committed", (1, 1))] {
        let begun = door.send("POST /transactions", &[], Some(b"{}"));
        let path = begun.header("location").unwrap().to_owned();
        let steps = json!([on("fast", "take", &json!({"id": 1})), write("fast", 2, 2), write("orders", 1, 1)]);
        assert_eq!(post(&door, &path, &steps).json()["answers"][1], json!({"id": 2, "version": null}));
        assert_eq!((count(&door, "fast"), count(&door, "orders")), (1, 0));
        // Others do not get what it has.
        let taken = post(&door, "/batch", &json!([on("fast", "take", &json!({"id": 1, "present": true}))]));
        assert_eq!(taken.status, 409, "{taken:?}");
        let read = post(&door, &path, &json!([on("fast", "read", &json!({}))]));
        assert_eq!(read.json()["answers"][0]["entries"][0]["document"]["n"], 2);
        let status = match ends {
            "committed" => door.send(&format!("POST {path}/commit"), &[], None).status,
            _ => door.send(&format!("DELETE {path}"), &[], None).status,
        };
        assert_eq!(status, if ends == "committed" { 200 } else { 204 });
        assert_eq!((count(&door, "fast"), count(&door, "orders")), left, "{ends}");
        // What is rolled back is dropped by a thread.
        assert!((0..1_000_000).any(|_| {
            std::thread::yield_now();
            door.store.open_transactions().is_empty()
        }));
    }
}
