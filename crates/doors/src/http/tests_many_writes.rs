//! Changing many entries with one request, and what was there before, through the door.

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide, open_with};
use crate::http::Limits;

const ORDERS: &str = "/spaces/shop/types/orders";

fn declared() -> Door {
    let door = open_wide();
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    door
}

fn post(door: &Door, rest: &str, body: &Value) -> Answer {
    door.send(&format!("POST {ORDERS}/{rest}"), &[], Some(body.to_string().as_bytes()))
}

#[test]
fn of_many_writes_each_has_an_outcome_of_its_own() {
    let door = declared();
    let body = json!({"documents": [{"id": 1, "n": 1}, 7, {"n": 2}, {"id": {"a": 1}}, {"id": 2}]});
    let answer = door.send(&format!("POST {ORDERS}/write?durability=written"), &[], Some(body.to_string().as_bytes()));
    assert_eq!((answer.status, answer.header("x-holdfast-durability")), (200, Some("written")));
    let written = answer.json()["written"].as_array().unwrap().clone();
    assert_eq!(written.len(), 5);
    assert_eq!((&written[0]["id"], &written[4]["id"]), (&json!(1), &json!(2)));
    assert!(written[2]["id"].is_i64() && written[2]["version"].as_str().unwrap().len() == 16, "{written:?}");
    assert_eq!(written[1], json!({"error": "a document has to be an object", "kind": "invalid", "status": 400}));
    assert_eq!((&written[3]["kind"], &written[3]["status"]), (&json!("invalid"), &json!(400)));
    assert_eq!(
        door.get(&format!("{ORDERS}/entries/1")).header("etag"),
        written[0]["version"].as_str().map(|it| format!("\"{it}\"")).as_deref()
    );
    // Those that were there are refused, the others are written.
    let again = post(&door, "write", &json!({"documents": [{"id": 1}, {"id": 3}], "absent": true})).json();
    assert_eq!((&again["written"][0]["kind"], &again["written"][0]["status"]), (&json!("conflict"), &json!(412)));
    assert_eq!(again["written"][1]["id"], 3);
    let present = post(&door, "write", &json!({"documents": [{"id": 9}, {"id": 3, "a": 1}], "present": true})).json();
    assert_eq!((&present["written"][0]["kind"], &present["written"][1]["id"]), (&json!("conflict"), &json!(3)));
    let merged = json!({"documents": [{"id": 3, "b": 2}], "merge": true, "previous": true, "lease_ms": 60_000});
    let merged = post(&door, "write", &merged).json();
    assert_eq!(merged["written"][0]["previous"]["document"], json!({"id": 3, "a": 1}));
    assert_eq!(door.get(&format!("{ORDERS}/entries/3")).json(), json!({"id": 3, "a": 1, "b": 2}));
    let version = &merged["written"][0]["version"];
    let body = json!({"documents": [{"id": 3}, {"id": 1}], "if_version": version, "previous": true});
    let conditional = post(&door, "write", &body).json();
    assert_eq!(conditional["written"][0]["previous"]["version"], *version);
    assert_eq!(conditional["written"][1]["kind"], "conflict");
    let new = post(&door, "write", &json!({"documents": [{"id": 8}], "previous": true})).json();
    assert_eq!(new["written"][0]["previous"], json!(null));
}

#[test]
fn what_is_wrong_with_many_writes_as_a_whole_is_refused_before_the_first() {
    let door = declared();
    for (body, wanted) in [
        (json!({}), "at least one document"),
        (json!({"documents": []}), "at least one document"),
        (json!({"documents": {"id": 1}}), "documents has to be a list"),
        (json!({"documents": [{"id": 1}], "absent": true, "present": true}), "absent goes with"),
        (json!({"documents": [{"id": 1}], "if_version": "7"}), "16 hexadecimal digits"),
        (json!({"documents": [{"id": 1}], "lease_ms": 0}), "lease_ms is"),
        (json!({"documents": [{"id": 1}], "previous": 1}), "previous has to be true or false"),
        (json!({"documents": [{"id": 1}], "ttl": 1}), "ttl is not known"),
        (json!([]), "JSON object"),
    ] {
        let answer = post(&door, "write", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    assert_eq!(post(&door, "count", &json!({})).json(), json!({"count": 0}));
    let none = door.send("POST /spaces/shop/types/none/write", &[], Some(br#"{"documents":[{}]}"#));
    assert_eq!((none.status, door.send(&format!("POST {ORDERS}/write"), &[], None).status), (404, 411));
}

#[test]
fn many_writes_have_limits() {
    let limits = holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() };
    let door = open_with(limits, |options| {
        options.limits = Limits { batch_operations_max: 3, documents_bytes_max: 4, ..Limits::default() };
    });
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    let four = json!({"documents": [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]});
    assert_eq!(post(&door, "write", &four).status, 413);
    let three = json!({"documents": [{"id": 1}, {"id": 2}, {"id": 3}]});
    assert_eq!(post(&door, "write", &three).status, 200);
    let previous = json!({"documents": [{"id": 1, "a": 1}, {"id": 2, "a": 1}], "previous": true});
    let written = post(&door, "write", &previous).json()["written"].clone();
    assert_eq!((&written[0]["previous"]["document"], &written[1]["kind"]), (&json!({"id": 1}), &json!("limit")));
    assert_eq!(door.get(&format!("{ORDERS}/entries/2")).json(), json!({"id": 2}));
}

#[test]
fn writes_and_changes_tell_what_was_there_before() {
    let door = declared();
    let put = |rest: &str, body: &str| door.put(&format!("{ORDERS}/entries/{rest}"), &[], body);
    let first = put("1?previous=true", r#"{"n":1}"#);
    let version = first.json()["version"].as_str().unwrap().to_owned();
    assert_eq!(first.json(), json!({"id": 1, "version": version, "previous": null}));
    assert_eq!((first.status, first.header("etag")), (200, Some(format!("\"{version}\"").as_str())));
    let second = put("1?previous=true", r#"{"n":2}"#).json();
    assert_eq!(second["previous"], json!({"version": version, "expires_ms": null, "document": {"id": 1, "n": 1}}));
    assert_eq!(put("1?previous=false", r#"{"n":3}"#).status, 204);
    let merged = post(&door, "entries/1?previous=true", &json!({"m": 1})).json();
    assert_eq!(merged["previous"]["document"], json!({"id": 1, "n": 3}));
    let increment = json!({"changes": [{"increment": "n", "by": 4}]});
    let changed = post(&door, "entries/1/change?previous=true", &increment).json();
    assert_eq!(changed["now"]["document"], json!({"id": 1, "n": 7, "m": 1}));
    assert_eq!(changed["previous"]["document"], json!({"id": 1, "n": 3, "m": 1}));
    assert_eq!(changed["previous"]["version"], merged["version"]);
    assert_eq!(post(&door, "entries/1/change", &increment).json(), json!({"id": 1, "n": 11, "m": 1}));
    assert_eq!(put("1?previous=2", "{}").status, 400);
    assert_eq!(post(&door, "entries/9/change?previous=true", &increment).status, 404);
}

#[test]
fn a_batch_tells_what_was_there_before_each_of_its_operations() {
    let door = declared();
    let entry = |document: Value| json!({"space": "shop", "type": "orders", "document": document, "previous": true});
    let change =
        json!({"space": "shop", "type": "orders", "id": 1, "changes": [{"set": "n", "value": 3}], "previous": true});
    assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], r#"{"n":1}"#).status, 204);
    let body = json!({"operations": [{"write": entry(json!({"id": 1, "n": 2}))}, {"change": change}, {"write": entry(json!({"id": 2}))}]});
    let done = door.send("POST /batch", &[], Some(body.to_string().as_bytes())).json();
    let (position, answers) = (&done["position"], &done["answers"]);
    assert_eq!(answers[0]["previous"]["document"], json!({"id": 1, "n": 1}));
    assert!(answers[0]["version"] == *position && answers[0]["previous"]["version"] != *position, "{done}");
    assert_eq!(answers[1]["now"]["document"], json!({"id": 1, "n": 3}));
    assert_eq!(answers[1]["previous"], json!({"version": position, "expires_ms": null, "document": {"id": 1, "n": 2}}));
    assert_eq!(answers[2], json!({"id": 2, "version": position, "previous": null}));
    let body = json!({"operations": [{"write": {"space": "shop", "type": "orders", "document": {}, "previous": 1}}]});
    assert_eq!(door.send("POST /batch", &[], Some(body.to_string().as_bytes())).status, 400);
}

#[test]
fn all_that_match_are_changed_each_by_itself() {
    let door = declared();
    for id in 0..5 {
        assert_eq!(door.put(&format!("{ORDERS}/entries/{id}"), &[], &json!({"n": id % 2}).to_string()).status, 204);
    }
    let odd = json!({"where": "n = ?", "parameters": [1], "changes": [{"set": "seen", "value": true}, {"increment": "n", "by": 2}]});
    let answer = door.send(&format!("POST {ORDERS}/change?durability=written"), &[], Some(odd.to_string().as_bytes()));
    assert_eq!((answer.json(), answer.header("x-holdfast-durability")), (json!({"changed": 2}), Some("written")));
    assert_eq!(door.get(&format!("{ORDERS}/entries/1")).json(), json!({"id": 1, "n": 3, "seen": true}));
    assert_eq!(post(&door, "change", &odd).json(), json!({"changed": 0}));
    let limited = json!({"where": "n = 0 LIMIT 2", "changes": [{"set": "n", "value": 9}], "lease_ms": 60_000});
    assert_eq!(post(&door, "change", &limited).json(), json!({"changed": 2}));
    let one = json!({"template": {"n": 0}, "changes": [{"set": "n", "value": 9}]});
    assert_eq!(post(&door, "change", &one).json(), json!({"changed": 1}));
    let all = json!({"changes": [{"unset": "seen"}]});
    assert_eq!(post(&door, "change", &all).json(), json!({"changed": 5}));
    for (body, wanted) in [
        (json!({"where": "n = 1"}), "changes has to be a list"),
        (json!({"changes": [{"grow": "n"}]}), "a change is one of"),
        (json!({"id": 1, "template": {}, "changes": [{"unset": "n"}]}), "one at the most"),
        (json!({"limit": 1, "changes": [{"unset": "n"}]}), "limit is not known"),
        (json!({"changes": [{"set": "id", "value": 7}]}), "id"),
        (json!({"changes": [{"unset": "n"}], "lease_ms": -1}), "lease_ms is"),
    ] {
        let answer = post(&door, "change", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    let none = door.send("POST /spaces/shop/types/none/change", &[], Some(br#"{"changes":[{"unset":"n"}]}"#));
    assert_eq!((none.status, door.send(&format!("POST {ORDERS}/change"), &[], None).status), (404, 411));
}

#[test]
fn all_that_match_are_changed_in_one_batch() {
    let door = declared();
    let put = |id: u64| json!({"write": {"space": "shop", "type": "orders", "document": {"id": id, "n": 1}}});
    let of = |more: Value| {
        let mut all = json!({"space": "shop", "type": "orders", "changes": [{"increment": "n", "by": 1}]});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "change_all": all })
    };
    let read = json!({"read": {"space": "shop", "type": "orders", "id": 2}});
    let body = json!({"operations": [put(1), put(2), of(json!({"where": "n = 1"})), of(json!({"id": 7})), read]});
    let done = door.send("POST /batch", &[], Some(body.to_string().as_bytes())).json();
    let (position, answers) = (&done["position"], &done["answers"]);
    assert_eq!((&answers[2], &answers[3]), (&json!({"changed": 2}), &json!({"changed": 0})));
    let entry = &answers[4]["entries"][0];
    assert_eq!((&entry["document"], &entry["version"]), (&json!({"id": 2, "n": 2}), position));
    // More than one operation may change at once.
    let body = json!({"operations": [put(3), of(json!({}))]});
    let refused = door.send("POST /batch", &[], Some(body.to_string().as_bytes()));
    assert!(refused.status == 413 && refused.text().contains("more than 2 entries match"), "{refused:?}");
    assert_eq!(post(&door, "count", &json!({})).json(), json!({"count": 2}));
}

#[test]
fn what_a_transaction_has_locked_ends_a_change_of_many() {
    let door = declared();
    assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], "{}").status, 204);
    let begun = door.send("POST /transactions", &[], Some(b"{}")).json();
    let path = format!("/transactions/{}", begun["transaction"].as_str().unwrap());
    let take = json!({"operations": [{"take": {"space": "shop", "type": "orders", "id": 1}}]}).to_string();
    assert_eq!(door.send(&format!("POST {path}"), &[], Some(take.as_bytes())).status, 200);
    let written = post(&door, "write", &json!({"documents": [{"id": 1}, {"id": 2}]})).json();
    assert_eq!((&written["written"][0]["kind"], &written["written"][0]["status"]), (&json!("timeout"), &json!(409)));
    assert_eq!(written["written"][1]["id"], 2);
    // Within another transaction it says how long it waits.
    let other = door.send("POST /transactions", &[], Some(b"{}")).json();
    let other = format!("POST /transactions/{}", other["transaction"].as_str().unwrap());
    let all = json!({"space": "shop", "type": "orders", "changes": [{"set": "n", "value": 1}]});
    let body = json!({"operations": [{"change_all": all}], "lock_timeout_ms": 0}).to_string();
    let refused = door.send(&other, &[], Some(body.as_bytes()));
    assert!(refused.status == 409 && refused.text().contains("locked"), "{refused:?}");
    assert_eq!(door.send(&format!("DELETE {path}"), &[], None).status, 204);
}

#[test]
fn batches_and_transactions_renew_leases_and_answer_whole_queries() {
    let door = declared();
    let lease = |id: u64| door.get(&format!("{ORDERS}/entries/{id}")).header("x-holdfast-expires").map(str::to_owned);
    assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], r#"{"n":1}"#).status, 204);
    let of = |word: &str, more: Value| {
        let mut all = json!({"space": "shop", "type": "orders"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ word: all })
    };
    let select = |sql: &str, parameters: Value| of("select", json!({"sql": sql, "parameters": parameters}));
    let operations = json!({"operations": [
        of("write", json!({"document": {"id": 2, "n": 5}})),
        select("SELECT SUM(n) AS sum FROM orders WHERE n > ?", json!([0])),
        of("renew", json!({"id": 1, "lease_ms": 60_000})),
        of("renew", json!({"id": 9, "lease_ms": "forever"})),
    ]});
    let batch = |body: &Value| door.send("POST /batch", &[], Some(body.to_string().as_bytes()));
    let done = batch(&operations).json();
    assert_eq!(done["answers"][1], json!({"rows": [{"sum": 6}]}), "{done}");
    assert_eq!((&done["answers"][2], &done["answers"][3]), (&json!({"renewed": true}), &json!({"renewed": false})));
    assert!(lease(1).is_some());
    // Within a transaction that stays open, until it commits, for it alone.
    let begun = door.send("POST /transactions", &[], Some(b"{}")).json();
    let path = format!("/transactions/{}", begun["transaction"].as_str().unwrap());
    let body = json!({"operations": [
        of("take", json!({"id": 2})),
        select("SELECT n FROM orders", json!([])),
        of("renew", json!({"id": 1, "lease_ms": "forever"})),
    ]});
    let within = door.send(&format!("POST {path}"), &[], Some(body.to_string().as_bytes())).json();
    assert_eq!(within["answers"][1], json!({"rows": [{"n": 1}]}), "{within}");
    assert!(lease(1).is_some());
    let only_reads = batch(&json!({"operations": [select("SELECT COUNT(*) AS n FROM orders", json!([]))]})).json();
    assert_eq!(only_reads["answers"][0], json!({"rows": [{"n": 2}]}));
    assert_eq!(door.send(&format!("POST {path}/commit"), &[], None).status, 200);
    assert_eq!((lease(1), post(&door, "count", &json!({})).json()), (None, json!({"count": 1})));
    for (operation, wanted) in [
        (of("renew", json!({"lease_ms": 1})), "renew needs the id"),
        (of("renew", json!({"id": 1})), "renew needs lease_ms"),
        (of("renew", json!({"id": 1, "lease_ms": 0})), "lease_ms is"),
        (of("renew", json!({"id": 1, "lease_ms": 1, "present": true})), "present is not known"),
        (of("select", json!({})), "sql is missing"),
        (of("select", json!({"sql": "SELECT"})), ""),
        (of("select", json!({"sql": "SELECT n FROM others"})), "of the type others"),
        (of("select", json!({"sql": "SELECT n FROM orders", "parameters": [1]})), "parameter"),
        (of("select", json!({"sql": "SELECT n FROM orders", "limit": 1})), "limit is not known"),
    ] {
        let answer = batch(&json!({ "operations": [operation] }));
        assert!(answer.status == 400 && answer.text().contains(wanted), "{operation}: {answer:?}");
    }
    for id in 3..6 {
        assert_eq!(door.put(&format!("{ORDERS}/entries/{id}"), &[], "{}").status, 204);
    }
    let many = batch(&json!({"operations": [select("SELECT n FROM orders", json!([]))]}));
    assert!(many.status == 400 && many.text().contains("more than 2 rows"), "{many:?}");
}

/// What a batch had changed was told with the version of before, which was another document's.
#[test]
fn what_was_there_is_told_with_its_own_version_or_the_batchs() {
    let door = declared();
    let of = |fields: &str| {
        let mut all: Value = serde_json::from_str(fields).unwrap();
        (all["space"], all["type"]) = (json!("shop"), json!("orders"));
        all
    };
    let done = |operations: &Value| {
        let body = json!({ "operations": operations }).to_string();
        let answer = door.send("POST /batch", &[], Some(body.as_bytes()));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let made = door.put(&format!("{ORDERS}/entries/1"), &[], r#"{"n":1}"#);
    let old = json!(made.header("etag").unwrap().trim_matches('"'));
    let write = json!({"write": of(r#"{"document":{"id":1,"n":9},"previous":true}"#)});
    let read = json!({"read": of(r#"{"id":1}"#)});
    let add = json!({"change_all": of(r#"{"changes":[{"increment":"n","by":1}]}"#)});
    let changed = done(&json!([add, write]));
    let was = &changed["answers"][1]["previous"];
    assert_eq!((&was["version"], &was["document"]["n"]), (&changed["position"], &json!(2)));
    assert!(changed["position"] != old);
    // What was renewed alone has its own.
    let renew = json!({"renew": of(r#"{"id":1,"lease_ms":60000}"#)});
    let own = &changed["position"];
    let if_own = json!({"read": of(&format!(r#"{{"id":1,"if_version":{own}}}"#))});
    let renewed = done(&json!([renew, read, if_own, write, read]));
    let answers = &renewed["answers"];
    let versions =
        [&answers[1]["entries"][0], &answers[2]["entries"][0], &answers[3]["previous"], &answers[4]["entries"][0]]
            .map(|entry| &entry["version"]);
    assert_eq!(versions, [own, own, own, &renewed["position"]]);
}
