//! Batches through the door: all of it or nothing, and what is said of what is wrong.

use std::sync::Arc;

use holdfast::series::{Points, Range, Select, Source};
use holdfast::space::{ReadOptions, Wanted};
use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide, open_with};
use super::*;
use crate::auth::{BucketRight, Right, User, Users, hash_password};

fn declared() -> Door {
    let door = open_wide();
    for (space, of, body) in [("shop", "orders", "{}"), ("shop", "log", r#"{"lease_ms":3600000}"#)] {
        assert_eq!(door.put(&format!("/spaces/{space}/types/{of}"), &[], body).status, 204);
    }
    door
}

fn send(door: &Door, operations: &Value) -> Answer {
    let body = json!({ "operations": operations }).to_string();
    door.send("POST /batch", &[], Some(body.as_bytes()))
}

fn done(door: &Door, operations: &Value) -> Value {
    let answer = send(door, operations);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{answer:?}");
    answer.json()
}

/// Status, operation and sentence of a batch that does not happen.
fn fault(door: &Door, operations: &Value) -> (u16, Value, String) {
    let before = (door.store.digest().unwrap(), door.store.watermarks().appended);
    let answer = send(door, operations);
    let after = (door.store.digest().unwrap(), door.store.watermarks().appended);
    assert_eq!(before, after, "nothing has happened by {operations}");
    let told = answer.json();
    (answer.status, told["operation"].clone(), told["error"].as_str().unwrap().to_owned())
}

fn order(fields: &str) -> Value {
    let mut all: Value = serde_json::from_str(fields).unwrap();
    all["space"] = json!("shop");
    all["type"] = json!("orders");
    all
}

fn points_of(door: &Door, metric: &str) -> usize {
    let reader = door.store.series().reader();
    let found = reader.series(&Select::metric("default", metric)).unwrap();
    let count = |series: &holdfast::series::Found| {
        let mut points = Points::new();
        reader.points(series.id, Range::ALL, &mut points).unwrap();
        points.len()
    };
    found.iter().map(count).sum()
}

#[test]
fn entries_objects_and_points_change_together() {
    let door = declared();
    door.put("/spaces/shop/types/orders/entries/1", &[], r#"{"state":"open","n":1}"#);
    door.put("/buckets/b/keys/old", &[], "x");
    let answer = done(
        &door,
        &json!([
            {"take": order(r#"{"where":"state = ?","parameters":["open"]}"#)},
            {"write": {"space": "shop", "type": "log", "document": {"id": "l1", "of": 1}}},
            {"write": order(r#"{"document":{"id":2,"state":"open","n":5},"absent":true,"lease_ms":60000}"#)},
            {"change": order(r#"{"id":2,"changes":[{"increment":"n","by":1}]}"#)},
            {"read": order(r#"{"id":2}"#)},
            {"count": order("{}")},
            {"put": {"bucket": "b", "key": "k", "value": "v", "content_type": "text/plain", "absent": true}},
            {"get": {"bucket": "b", "key": "k"}},
            {"delete": {"bucket": "b", "key": "old"}},
            {"delete": {"bucket": "b", "key": "none"}},
            {"put": {"bucket": {"$bytes": "/w=="}, "key": "k", "value_base64": "AP8=", "ttl": 100}},
            {"get": {"bucket": {"$bytes": "/w=="}, "key": "k"}},
            {"get": {"bucket": "b", "key": "none"}},
            {"points": [{"metric": "m", "tags": {"host": "a", "n": 1}, "timestamp": 5, "value": 1.5},
                        {"metric": "m", "tags": {"host": "a", "n": 1}, "value": 2.5},
                        {"metric": "flags", "field": "on", "timestamp": "1500000000000", "value": true}]},
        ]),
    );
    let (version, answers) = (answer["position"].clone(), answer["answers"].as_array().unwrap());
    assert_eq!(answers.len(), 14);
    let taken = &answers[0]["entries"][0];
    assert_eq!(taken["document"], json!({"id": 1, "n": 1, "state": "open"}));
    assert!(taken["version"] != version && taken["version"].as_str().unwrap().len() == 16, "{taken}");
    assert_eq!(answers[1], json!({"id": "l1", "version": version}));
    let now = json!({"id": 2, "state": "open", "n": 6});
    for entry in [&answers[3], &answers[4]["entries"][0]] {
        assert_eq!((&entry["document"], &entry["version"]), (&now, &version));
    }
    assert_eq!(answers[5], json!({"count": 1}));
    let got = json!({"object": {
        "version": version, "expires_ms": null, "content_type": "text/plain", "metadata": {}, "indexes": {}, "value": "v",
    }});
    assert_eq!((&answers[6], &answers[7]), (&json!({ "version": version }), &got));
    assert_eq!((&answers[8], &answers[9]), (&json!({"deleted": true}), &json!({"deleted": false})));
    let bytes = &answers[11]["object"];
    assert!(bytes["value_base64"] == "AP8=" && bytes["expires_ms"].is_u64() && bytes["value"].is_null(), "{bytes}");
    assert_eq!((&answers[12], &answers[13]), (&json!({"object": null}), &json!({"points": 3})));

    let tag = format!("\"{}\"", version.as_str().unwrap());
    let written = door.get("/spaces/shop/types/orders/entries/2");
    assert_eq!((written.header("etag"), written.json()), (Some(tag.as_str()), now));
    assert!(door.get("/spaces/shop/types/log/entries/l1").header("x-holdfast-expires").is_some());
    let object = door.get("/buckets/b/keys/k");
    assert_eq!((object.text(), object.header("content-type")), ("v", Some("text/plain")));
    assert_eq!(object.header("etag"), Some(tag.as_str()));
    assert_eq!(door.get("/buckets/b/keys/old").status, 404);
    assert_eq!((points_of(&door, "m"), points_of(&door, "flags")), (2, 1));
    assert!(door.get("/metrics").text().contains("\nholdfast_points_written_total{door=\"http\"} 3\n"));
}

#[test]
fn each_operation_sees_those_before_it() {
    let door = declared();
    let answer = done(
        &door,
        &json!([
            {"write": order(r#"{"document":{"id":1,"a":1}}"#)},
            {"write": order(r#"{"document":{"id":1,"b":2},"merge":true}"#)},
            {"take": order(r#"{"id":1}"#)},
            {"take": order(r#"{"id":1}"#)},
            {"delete": order(r#"{"id":1}"#)},
            {"write": order(r#"{"document":{"n":1}}"#)},
            {"clear": order(r#"{"where":"n = 1"}"#)},
            {"write": order(r#"{"document":{"id":3},"absent":true}"#)},
        ]),
    );
    let (version, answers) = (&answer["position"], &answer["answers"]);
    let taken = json!({"version": version, "expires_ms": null, "document": {"id": 1, "a": 1, "b": 2}});
    assert_eq!(answers[2], json!({"entries": [taken]}));
    assert_eq!((&answers[3], &answers[4]), (&json!({"entries": []}), &json!({"deleted": false})));
    assert_eq!((&answers[6], &answers[7]["id"]), (&json!({"cleared": 1}), &json!(3)));
    assert_eq!(door.store.space("shop").entries("orders").unwrap().usage().entries, 1);
    // Of reading alone there is no batch in the journal.
    let before = door.store.watermarks().appended;
    let answer = done(&door, &json!([{"read": order("{}")}, {"get": {"bucket": "b", "key": "k"}}]));
    assert_eq!((&answer["answers"][0]["entries"][0]["version"], door.store.watermarks().appended), (version, before));
}

#[test]
fn conditions_hold_or_nothing_happens() {
    let door = declared();
    let made = door.put("/spaces/shop/types/orders/entries/1", &[], r#"{"n":1}"#);
    let version = made.header("etag").unwrap().trim_matches('"').to_owned();
    let made = door.put("/buckets/b/keys/k", &[], "v");
    let of_key = made.header("etag").unwrap().trim_matches('"').to_owned();
    let other = "00000000000000aa";
    let first = json!({"put": {"bucket": "b", "key": "first", "value": "x"}});
    for (operation, status, wanted) in [
        (json!({"write": order(r#"{"document":{"id":1},"absent":true}"#)}), 412, "there already"),
        (json!({"write": order(r#"{"document":{"id":2},"present":true}"#)}), 412, "no entry"),
        (json!({"write": order(r#"{"document":{"id":2},"merge":true}"#)}), 412, "no entry"),
        (json!({"write": order(&format!(r#"{{"document":{{"id":1}},"if_version":"{other}"}}"#))}), 412, "version"),
        (json!({"take": order(&format!(r#"{{"id":1,"if_version":"{other}"}}"#))}), 412, "version"),
        (json!({"take": order(&format!(r#"{{"id":2,"if_version":"{other}"}}"#))}), 412, "no such entry"),
        (json!({"take": order(r#"{"where":"n = 7","present":true}"#)}), 412, "no such entry"),
        (json!({"read": order(r#"{"id":2,"present":true}"#)}), 412, "no such entry"),
        (json!({"delete": order(r#"{"id":2,"present":true}"#)}), 412, "no such entry"),
        (json!({"change": order(r#"{"id":2,"changes":[{"unset":"n"}]}"#)}), 404, "no such entry"),
        (
            json!({"change": order(&format!(r#"{{"id":1,"if_version":"{other}","changes":[{{"unset":"n"}}]}}"#))}),
            412,
            "version",
        ),
        (json!({"put": {"bucket": "b", "key": "k", "value": "", "absent": true}}), 412, ""),
        (json!({"put": {"bucket": "b", "key": "none", "value": "", "present": true}}), 412, ""),
        (json!({"put": {"bucket": "b", "key": "k", "value": "", "if_version": other}}), 412, ""),
        (json!({"delete": {"bucket": "b", "key": "none", "present": true}}), 412, "absent, not there"),
        (json!({"delete": {"bucket": "b", "key": "k", "absent": true}}), 412, ", not absent"),
        (json!({"delete": {"bucket": "b", "key": "k", "if_version": other}}), 412, ", not at version"),
        (json!({"write": {"space": "shop", "type": "none", "document": {}}}), 404, "no type none"),
        (json!({"read": {"space": "none", "type": "orders"}}), 404, "no type orders"),
    ] {
        let (got, number, error) = fault(&door, &json!([first, operation, first]));
        assert_eq!((got, number), (status, json!(1)), "{operation}: {error}");
        assert!(error.contains(wanted), "{operation}: {error}");
    }
    assert_eq!(door.get("/buckets/b/keys/first").status, 404);
    let good = json!([
        first,
        {"change": order(&format!(r#"{{"id":1,"if_version":"{version}","changes":[{{"increment":"n","by":1}}]}}"#))},
        {"put": {"bucket": "b", "key": "k", "value": "w", "if_version": of_key}},
    ]);
    let again = json!({"write": order(&format!(r#"{{"document":{{"id":1}},"if_version":"{version}"}}"#))});
    let (status, number, error) = fault(&door, &json!([good[0], good[1], again]));
    assert_eq!((status, number), (412, json!(2)), "the batch has changed it: {error}");
    done(&door, &good);
    assert_eq!(fault(&door, &good).0, 412, "the versions are others now");
    assert_eq!(
        done(&door, &json!([{"delete": {"bucket": "b", "key": "k", "present": true}}]))["answers"][0]["deleted"],
        true
    );
}

#[test]
fn what_cannot_be_is_told_with_its_operation() {
    let door = declared();
    let fine = json!({"count": order("{}")});
    for (operation, wanted) in [
        (json!(7), "an operation has to be an object"),
        (json!({}), "an operation is an object with one of"),
        (json!({"write": {}, "take": {}}), "an operation is an object with one of"),
        (json!({"write": null}), "write has to be an object"),
        (json!({"burn": {}}), "an operation is an object with one of"),
        (json!({"take": []}), "take has to be an object"),
        (json!({"take": {"space": "shop"}}), "type is missing"),
        (json!({"take": {"space": 7, "type": "orders"}}), "space has to be a string"),
        (json!({"write": order("{}")}), "document has to be an object"),
        (json!({"write": order(r#"{"document":{},"absent":true,"present":true}"#)}), "absent goes with"),
        (json!({"write": order(r#"{"document":{},"wait_ms":5}"#)}), "wait_ms is not known"),
        (json!({"write": order(r#"{"document":{},"lease_ms":0}"#)}), "lease_ms is"),
        (json!({"write": order(r#"{"document":{},"if_version":"7"}"#)}), "16 hexadecimal digits"),
        (json!({"write": order(r#"{"document":{},"if_version":"+00000000000000f"}"#)}), "16 hexadecimal digits"),
        (json!({"take": order(r#"{"where":"n = (("}"#)}), ""),
        (json!({"take": order(r#"{"where":"n = 1","id":1}"#)}), "one at the most"),
        (json!({"take": order(r#"{"where":"n = 1","if_version":"00000000000000aa"}"#)}), "by its id"),
        (json!({"take": order(r#"{"wait_ms":5}"#)}), "wait_ms is not known"),
        (json!({"change": order(r#"{"changes":[{"unset":"n"}]}"#)}), "change needs the id"),
        (json!({"change": order(r#"{"id":1}"#)}), "at least one change"),
        (json!({"delete": order("{}")}), "delete needs the id"),
        (json!({"count": order(r#"{"present":true}"#)}), "present is not known"),
        (json!({"clear": order(r#"{"where":"n > 0 ORDER BY n"}"#)}), ""),
        (json!({"put": {"bucket": "b", "value": ""}}), "key is missing"),
        (json!({"put": {"bucket": "", "key": "k", "value": ""}}), "bucket is empty"),
        (json!({"put": {"bucket": "b", "key": "k"}}), "value or value_base64"),
        (json!({"put": {"bucket": "b", "key": "k", "value": "", "value_base64": ""}}), "value or value_base64"),
        (json!({"put": {"bucket": "b", "key": "k", "value": {"a": 1}}}), "value has to be a string"),
        (json!({"put": {"bucket": "b", "key": "k", "value_base64": "?"}}), "does not decode"),
        (json!({"put": {"bucket": "b", "key": "k", "value": "", "ttl": 0}}), "ttl is"),
        (json!({"put": {"bucket": "\u{0}xa", "key": "k", "value": ""}}), ""),
        (json!({"get": {"bucket": "\u{0}xa", "key": "k"}}), ""),
        (json!({"get": {"bucket": "b", "key": "k", "absent": true}}), "absent is not known"),
        (json!({"points": {}}), "points has to be a list"),
        (json!({"points": [7]}), "a point has to be an object"),
        (json!({"points": [{"value": 1}]}), "metric is missing"),
        (json!({"points": [{"metric": "", "value": 1}]}), "empty"),
        (json!({"points": [{"metric": "m"}]}), "value of a point"),
        (json!({"points": [{"metric": "m", "value": 1, "timestamp": true}]}), "timestamp is"),
        (json!({"points": [{"metric": "m", "value": 1, "timestamp": "soon"}]}), "timestamp is"),
        (json!({"points": [{"metric": "m", "value": 1, "tags": {"a": []}}]}), "the tag a"),
        (json!({"points": [{"metric": "m", "value": 1, "when": 5}]}), "when is not known"),
    ] {
        let (status, number, error) = fault(&door, &json!([fine, fine, operation]));
        assert_eq!((status, number), (400, json!(2)), "{operation}: {error}");
        assert!(error.contains(wanted), "{operation}: {error}");
    }
    let kind = json!({"put": {"bucket": "b", "key": "k", "value": "", "content_type": "nothing"}});
    assert_eq!(fault(&door, &json!([kind])).0, 415);
    for (body, status, wanted) in [
        ("[]", 400, "JSON object"),
        ("{", 400, ""),
        ("", 400, ""),
        ("{}", 400, "at least one operation"),
        (r#"{"operations":[]}"#, 400, "at least one operation"),
        (r#"{"operations":[{"count":{"space":"shop","type":"orders"}}],"if":1}"#, 400, "if is not known"),
        (
            r#"{"operations":[{"count":{"space":"shop","type":"orders"}}],"durability":"soon"}"#,
            400,
            "durability is one",
        ),
    ] {
        let answer = door.send("POST /batch", &[], Some(body.as_bytes()));
        let told = answer.json();
        assert!(answer.status == status && told["operation"].is_null(), "{body}: {answer:?}");
        assert!(told["error"].as_str().unwrap().contains(wanted), "{body}: {answer:?}");
    }
    assert_eq!((door.send("POST /batch", &[], None).status, door.get("/batch").status), (411, 405));
}

#[test]
fn kinds_of_values_and_unique_terms_are_judged_when_all_is_put_together() {
    let door = declared();
    let unique = r#"{"routing":"city","indexes":[{"name":"c","kind":"hash","paths":["city"],"unique":true}]}"#;
    assert_eq!(door.put("/spaces/shop/types/cities", &[], unique).status, 204);
    let city = |id: u64| json!({"write": {"space": "shop", "type": "cities", "document": {"id": id, "city": "Ulm"}}});
    let (status, number, error) = fault(&door, &json!([city(1), city(2)]));
    assert_eq!((status, number), (409, Value::Null), "{error}");
    let point = |value: Value| json!({"points": [{"metric": "m", "timestamp": 5, "value": value}]});
    done(&door, &json!([point(json!(1)), city(1)]));
    let (status, number, error) = fault(&door, &json!([point(json!("text")), {"delete": {"bucket": "b", "key": "k"}}]));
    assert_eq!((status, number), (400, Value::Null), "{error}");
}

#[test]
fn nothing_in_a_batch_waits() {
    let door = declared();
    door.put("/spaces/shop/types/orders/entries/1", &[], r#"{"n":1}"#);
    let entries = door.store.space("shop").entries("orders").unwrap();
    let mut transaction = door.store.begin();
    let locked = entries.within(&mut transaction).take(&Wanted::id(1), &ReadOptions::default()).unwrap();
    assert!(locked.is_some());
    for operation in [
        json!({"write": order(r#"{"document":{"id":1}}"#)}),
        json!({"change": order(r#"{"id":1,"changes":[{"unset":"n"}]}"#)}),
        json!({"take": order(r#"{"id":1}"#)}),
        json!({"read": order(r#"{"id":1}"#)}),
        json!({"delete": order(r#"{"id":1}"#)}),
    ] {
        let (status, number, error) = fault(&door, &json!([operation]));
        assert_eq!((status, number), (409, json!(0)), "{operation}: {error}");
        assert!(error.contains("locked"), "{error}");
    }
    assert_eq!(done(&door, &json!([{"take": order("{}")}]))["answers"][0], json!({"entries": []}));
    drop(transaction);
    assert_eq!(done(&door, &json!([{"delete": order(r#"{"id":1}"#)}]))["answers"][0], json!({"deleted": true}));
}

#[test]
fn batches_are_bounded() {
    let store = holdfast::Limits { value_bytes_max: 64 << 10, batch_bytes_max: 128 << 10, ..holdfast::Limits::tiny() };
    let door = open_with(store, |options| {
        let (tiny, limits) = (Limits::tiny(), Limits::default());
        options.limits = Limits {
            json_body_bytes_max: tiny.json_body_bytes_max,
            batch_operations_max: tiny.batch_operations_max,
            documents_bytes_max: tiny.documents_bytes_max,
            page_entries_max: tiny.page_entries_max,
            ..limits
        };
    });
    assert_eq!(door.put("/spaces/shop/types/orders", &[], "").status, 204);
    let get = json!({"get": {"bucket": "b", "key": "k"}});
    let many = vec![get.clone(); 5];
    let (status, number, error) = fault(&door, &json!(many));
    assert_eq!((status, number), (413, Value::Null), "{error}");
    done(&door, &json!(many[..4]));
    let large = json!({"put": {"bucket": "b", "key": "k", "value": "x".repeat(1 << 10)}});
    assert_eq!(send(&door, &json!([large])).status, 413);
    door.put("/buckets/b/keys/k", &[], &"x".repeat(200));
    let (status, number, _) = fault(&door, &json!([get, get]));
    assert_eq!((status, number), (413, json!(1)), "it is counted together");
    for id in 0..4 {
        let document = json!({"id": id, "text": "x".repeat(100)}).to_string();
        assert_eq!(door.put(&format!("/spaces/shop/types/orders/entries/{id}"), &[], &document).status, 204);
    }
    let take = |limit: u64| json!([{"take": {"space": "shop", "type": "orders", "limit": limit}}]);
    assert_eq!(fault(&door, &json!([get, take(9)[0]])).0, 413);
    assert_eq!(fault(&door, &json!([{"clear": {"space": "shop", "type": "orders"}}])).0, 413);
    // So is what many changes make.
    let grow = |bytes: usize| {
        json!([{"change_all": {"space": "shop", "type": "orders", "where": "id < 2",
            "changes": [{"set": "text", "value": "x".repeat(bytes)}]}}])
    };
    let (status, _, error) = fault(&door, &grow(130));
    assert!(status == 413 && error.contains("more than 256 bytes"), "{error}");
    assert_eq!(fault(&door, &json!([get, grow(40)[0]])).0, 413);
    assert_eq!(done(&door, &grow(90))["answers"][0], json!({"changed": 2}));
    assert_eq!(done(&door, &take(9))["answers"][0]["entries"].as_array().unwrap().len(), 2);
    assert_eq!(done(&door, &take(0))["answers"][0], json!({"entries": []}));
}

#[test]
fn a_batch_is_as_durable_as_it_says() {
    let door = declared();
    let operations = json!([{"put": {"bucket": "b", "key": "k", "value": ""}}]);
    for (path, body, wanted) in [
        ("/batch", json!({"operations": operations}), "synced"),
        ("/batch?durability=written", json!({"operations": operations}), "written"),
        ("/batch", json!({"operations": operations, "durability": "written"}), "written"),
    ] {
        let answer = door.send(&format!("POST {path}"), &[], Some(body.to_string().as_bytes()));
        assert_eq!((answer.status, answer.header("x-holdfast-durability")), (200, Some(wanted)), "{answer:?}");
        let position = u64::from_str_radix(answer.json()["position"].as_str().unwrap(), 16).unwrap();
        assert!(wanted != "synced" || door.store.watermarks().synced.get() > position);
    }
    let both = json!({"operations": operations, "durability": "written"}).to_string();
    assert_eq!(door.send("POST /batch?durability=synced", &[], Some(both.as_bytes())).status, 400);
}

#[test]
fn rights_are_looked_at_before_anything_happens() {
    let mut ada = User::admin("ada", &hash_password(b"secret").unwrap());
    ada.buckets = [("own*", Right::Write), ("seen", Right::Read)]
        .map(|(pattern, right)| BucketRight { pattern: pattern.to_owned(), right })
        .to_vec();
    let users = Arc::new(Users::new([ada]).unwrap());
    let door = open_with(holdfast::Limits::default(), |options| {
        options.users = users;
        options.limits = Limits::default();
    });
    for space in ["own", "seen", "other"] {
        door.store.space(space).declare(holdfast::space::Definition::new(space, "t")).unwrap();
    }
    let basic = [("Authorization", "Basic YWRhOnNlY3JldA==")];
    let ask = |operations: &Value| {
        let body = json!({ "operations": operations }).to_string();
        door.send("POST /batch", &basic, Some(body.as_bytes()))
    };
    let own = json!({"write": {"space": "own", "type": "t", "document": {"id": 1}}});
    let in_space = |word: &str, space: &str| {
        let mut fields = json!({"space": space, "type": "t", "id": 1});
        match word {
            "write" => fields = json!({"space": space, "type": "t", "document": {}}),
            "change" => fields["changes"] = json!([{"set": "n", "value": 1}]),
            _ => {}
        }
        json!({ word: fields })
    };
    let of_key = |word: &str, bucket: &str| match word {
        "put" => json!({"put": {"bucket": bucket, "key": "k", "value": ""}}),
        word => json!({word: {"bucket": bucket, "key": "k"}}),
    };
    let refused = ["write", "take", "change", "delete", "clear"].map(|word| in_space(word, "seen")).into_iter();
    let refused = refused.chain(["read", "count", "take"].map(|word| in_space(word, "other")));
    let refused = refused.chain(["put", "delete"].map(|word| of_key(word, "seen"))).chain([
        of_key("get", "other"),
        json!({"points": [{"metric": "m", "value": 1}]}),
        json!({"points": [{"metric": "m", "value": 1, "database": "own"}, {"metric": "m", "value": 1, "database": "seen"}]}),
    ]);
    for operation in refused {
        let answer = ask(&json!([own, operation]));
        assert_eq!((answer.status, &answer.json()["operation"]), (403, &json!(1)), "{operation}: {answer:?}");
    }
    assert_eq!(door.store.space("own").entries("t").unwrap().usage().entries, 0);
    let mut allowed = vec![own, in_space("read", "seen"), in_space("count", "seen"), of_key("get", "seen")];
    allowed.extend([of_key("put", "own-1"), json!({"points": [{"metric": "m", "value": 1, "database": "own"}]})]);
    assert_eq!(ask(&json!(allowed)).status, 200);
    assert_eq!(door.send("POST /batch", &[], Some(b"{}")).status, 401);
}

#[test]
fn money_is_neither_made_nor_lost_by_transfers_that_meet() {
    let door = declared();
    for id in 0..3 {
        door.put(&format!("/spaces/shop/types/orders/entries/{id}"), &[], r#"{"n":100}"#);
    }
    let transfer = |from: u64, to: u64| {
        let move_by = |id: u64, by: i64| json!({"change": order(&json!({"id": id, "changes": [{"increment": "n", "by": by}]}).to_string())});
        let count = json!({"put": {"bucket": "b", "key": format!("{from}-{to}"), "value": "x"}});
        json!([move_by(from, -1), move_by(to, 1), count])
    };
    std::thread::scope(|scope| {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0)] {
            let (door, transfer) = (&door, &transfer);
            scope.spawn(move || {
                for _ in 0..20 {
                    let status = send(door, &transfer(from, to)).status;
                    assert!(status == 200 || status == 409, "{status}");
                }
            });
        }
    });
    let found =
        door.send("POST /spaces/shop/types/orders/query", &[], Some(br#"{"select":"SELECT SUM(n) AS n FROM orders"}"#));
    assert_eq!(found.json()["rows"][0]["n"], 300);
}

/// Versions were decimal in sentences and hexadecimal everywhere else, and that of what the batch itself had changed was the
/// store's own number for it.
#[test]
fn versions_in_sentences_are_those_of_the_door() {
    let door = declared();
    let of = |fields: Value| {
        let mut all = json!({"bucket": "b", "key": "k", "value": "x"});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "put": all })
    };
    let version = done(&door, &json!([of(json!({}))]))["position"].as_str().unwrap().to_owned();
    let none = "0000000000000007";
    for (operations, number, wanted) in [
        (json!([of(json!({"absent": true}))]), 0, format!("the object is at version {version}, not absent")),
        (
            json!([of(json!({"if_version": none}))]),
            0,
            format!("the object is at version {version}, not at version {none}"),
        ),
        (
            json!([{"delete": {"bucket": "b", "key": "none", "present": true}}]),
            0,
            "the object is absent, not there".to_owned(),
        ),
        (
            json!([{"delete": {"bucket": "b", "key": "k"}}, of(json!({"absent": true})), of(json!({"if_version": none}))]),
            2,
            "the object was changed earlier in the same batch or transaction".to_owned(),
        ),
    ] {
        assert_eq!(fault(&door, &operations), (412, json!(number), wanted));
    }
}

#[test]
fn whatever_is_wrong_with_a_batch_is_told_as_json() {
    let limits = Limits { json_body_bytes_max: 1 << 10, ..Limits::default() };
    let door = open_with(holdfast::Limits::default(), |options| options.limits = limits);
    let ask = |path: &str, headers: &[(&str, &str)], body: Option<&[u8]>| {
        let answer = door.send(&format!("POST {path}"), headers, body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{answer:?}");
        (answer.status, answer.json()["operation"].clone(), answer.json()["error"].as_str().is_some())
    };
    let large = [b' '; 2 << 10];
    assert_eq!(ask("/batch", &[], Some(b"nonsense")), (400, Value::Null, true));
    assert_eq!(ask("/batch?durability=never", &[], Some(b"{}")), (400, Value::Null, true));
    assert_eq!(ask("/batch", &[], None), (411, Value::Null, true));
    assert_eq!(ask("/batch", &[], Some(&large)).0, 413);
}

#[test]
fn who_has_locked_an_entry_is_told() {
    let door = declared();
    door.put("/spaces/shop/types/orders/entries/1", &[], "{}");
    let mut transaction = door.store.begin().with_name("the importer");
    let orders = door.store.space("shop").entries("orders").unwrap();
    orders.within(&mut transaction).take(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap();
    let answer = send(&door, &json!([{"change": order(r#"{"id":1,"changes":[{"set":"n","value":1}]}"#)}]));
    assert_eq!((answer.status, answer.header("retry-after").is_some()), (409, true), "{answer:?}");
    assert_eq!(answer.json()["error"], "a transaction has locked the entry: the importer; try again");
    let answer = door.put("/spaces/shop/types/orders/entries/1", &[], "{}");
    assert!(answer.status == 409 && answer.text().contains(": the importer"), "{answer:?}");
    let taken = send(&door, &json!([{"delete": order(r#"{"id":1}"#)}]));
    assert_eq!((taken.status, taken.header("retry-after").is_some()), (409, true), "{taken:?}");
}

#[test]
fn a_database_has_a_name() {
    let door = declared();
    let (status, number, error) = fault(&door, &json!([{"points": [{"metric": "m", "value": 1, "database": ""}]}]));
    assert_eq!((status, number), (400, json!(0)), "{error}");
}

#[test]
fn what_is_noted_on_objects_is_put_and_shown_in_batches_as_in_headers() {
    let door = open_wide();
    let metadata = json!({"owner": "ada", "Raw": {"$bytes": "AAEK/w=="}});
    let indexes = json!({"age_int": [37, 36, 36], "City_bin": "Ulm", "raw_bin": [{"$bytes": "/w=="}, ""]});
    let answer = done(
        &door,
        &json!([
            {"put": {"bucket": "b", "key": "k", "value": "v", "content_type": "text/plain", "metadata": metadata, "indexes": indexes}},
            {"get": {"bucket": "b", "key": "k"}},
            {"put": {"bucket": "b", "key": "plain", "value": "v"}},
            {"get": {"bucket": "b", "key": "plain"}},
        ]),
    );
    let shown = &answer["answers"][1]["object"];
    assert_eq!((&shown["metadata"], &shown["content_type"]), (&metadata, &json!("text/plain")));
    let wanted = json!({"age_int": [36, 37], "city_bin": ["Ulm"], "raw_bin": ["", {"$bytes": "/w=="}]});
    assert_eq!(shown["indexes"], wanted);
    let plain = &answer["answers"][3]["object"];
    assert_eq!((&plain["metadata"], &plain["indexes"], &plain["value"]), (&json!({}), &json!({}), &json!("v")));

    let object = door.get("/buckets/b/keys/k");
    let headers = ["content-type", "x-riak-meta-owner", "x-riak-index-age_int", "x-riak-index-city_bin"];
    let said = headers.map(|name| object.header(name).unwrap_or_default().to_owned());
    assert_eq!(said, ["text/plain", "ada", "36, 37", "Ulm"]);
    let found = |path: &str| door.get(path).json()["keys"].clone();
    assert_eq!(found("/buckets/b/index/age_int/36"), json!(["k"]));
    assert_eq!(found("/buckets/b/index/city_bin/Ulm"), json!(["k"]));

    // It replaces the whole object.
    done(&door, &json!([{"put": {"bucket": "b", "key": "k", "value": "v"}}]));
    assert_eq!(found("/buckets/b/index/age_int/36"), json!([]));
    assert_eq!(door.get("/buckets/b/keys/k").header("x-riak-meta-owner"), None);
}

#[test]
fn what_cannot_be_noted_is_told() {
    let door = open_wide();
    let put = |noted: &str| {
        let mut put: Value = serde_json::from_str(noted).unwrap();
        put["bucket"] = json!("b");
        put["key"] = json!("k");
        put["value"] = json!("v");
        json!([{"put": put}])
    };
    let wrong = [
        (r#"{"metadata":[]}"#, "metadata has to be an object"),
        (r#"{"metadata":{"n":1}}"#, "metadata n has to be a text"),
        (r#"{"metadata":{":content-type":"text/plain"}}"#, "does not begin with a colon"),
        (r#"{"metadata":{"":"x"}}"#, "is not empty"),
        (r#"{"indexes":"age"}"#, "indexes has to be an object"),
        (r#"{"indexes":{"age":1}}"#, "NAME_int or NAME_bin"),
        (r#"{"indexes":{"_int":1}}"#, "NAME_int or NAME_bin"),
        (r#"{"indexes":{"age_int":"1"}}"#, "a term of age_int is a whole number"),
        (r#"{"indexes":{"age_int":[1.5]}}"#, "a term of age_int is a whole number"),
        (r#"{"indexes":{"c_bin":[["x"]]}}"#, "a term of c_bin is a text"),
    ];
    for (noted, told) in wrong {
        let (status, number, text) = fault(&door, &put(noted));
        assert_eq!((status, number), (400, json!(0)), "{noted}");
        assert!(text.contains(told), "{noted}: {text}");
    }
    let (status, _, text) = fault(&door, &put(r#"{"content_type":"nonsense"}"#));
    assert_eq!((status, text.contains("media type")), (415, true), "{text}");
    let much = json!({"metadata": {"m": "x".repeat(40 << 10)}}).to_string();
    let (status, _, text) = fault(&door, &put(&much));
    assert_eq!((status, text.contains("metadata")), (413, true), "{text}");
}
