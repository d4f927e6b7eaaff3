//! Entries of spaces through the door.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::tests_client::{Answer, Door, connect, open_wide, open_with, read_all};
use crate::http::Limits;

const ORDERS: &str = "/spaces/shop/types/orders";

fn declared() -> Door {
    let door = open_wide();
    let body = r#"{"indexes":[{"name":"city","kind":"hash","paths":["address.city"]}],"lease_ms":3600000}"#;
    assert_eq!(door.put(ORDERS, &[], body).status, 204);
    door
}

fn post(door: &Door, rest: &str, body: &str) -> Answer {
    door.send(&format!("POST {ORDERS}{rest}"), &[], Some(body.as_bytes()))
}

fn entry(id: &str) -> String {
    format!("{ORDERS}/entries/{id}")
}

/// A client that waits for this entry, and does not close its side of the connection.
fn waiting_for(door: &Door, id: i64, wait_ms: u64) -> TcpStream {
    let mut client = connect(door.running.local_addr());
    let body = format!(r#"{{"id":{id},"wait_ms":{wait_ms}}}"#);
    let head = format!("POST {ORDERS}/take HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {}", body.len());
    client.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    client
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn types_are_declared_described_listed_and_dropped() {
    let door = declared();
    assert_eq!(door.put("/spaces/a%2Fb/types/c", &[], "").status, 204);
    let listed = door.get("/spaces").json();
    assert_eq!(listed, json!({"spaces": [{"space": "a/b", "types": ["c"]}, {"space": "shop", "types": ["orders"]}]}));
    let described = door.get(ORDERS).json();
    assert_eq!(described["definition"]["indexes"][0]["paths"], json!(["address.city"]));
    assert_eq!((&described["entries"], &described["definition"]["lease_ms"]), (&json!(0), &json!(3_600_000)));
    // What is described can be declared.
    assert_eq!(door.put(ORDERS, &[], &described["definition"].to_string()).status, 204);
    for (body, wanted) in [
        ("[]", "JSON object"),
        (r#"{"colour":1}"#, "colour is not known"),
        (r#"{"order":"groups"}"#, "order is"),
        (r#"{"placement":"here"}"#, "placement is spread or together"),
        (r#"{"indexes":[{"name":"email","kind":"hash","unique":true,"paths":["email"]}]}"#, "lie together"),
        (r#"{"indexes":[{"name":"a","kind":"tree"}]}"#, "hash or ordered"),
        (r#"{"id":"key"}"#, "fixed"),
        (r#"{"memory_bytes_max":-1}"#, "whole number"),
        (r#"{"at_limit":"evict","evict_by":"n"}"#, "needs an ordered index"),
        (r#"{"at_limit":"evict","evict_order":"asc"}"#, "goes with evict_by"),
        (r#"{"at_limit":"evict","evict_by":"n","evict_order":"up"}"#, "evict_order is asc or desc"),
        ("{", "JSON"),
    ] {
        let answer = door.put(ORDERS, &[], body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.text().contains(wanted), "{body}: {}", answer.text());
    }
    let offers = json!({
        "placement": "together", "memory_bytes_max": 3_000, "at_limit": "evict", "evict_by": "n", "evict_order": "desc",
        "indexes": [{"name": "n", "kind": "ordered", "paths": ["n"]}],
    });
    assert_eq!(door.put("/spaces/shop/types/offers", &[], &offers.to_string()).status, 204);
    let described = door.get("/spaces/shop/types/offers").json()["definition"].clone();
    assert_eq!((&described["evict_by"], &described["evict_order"]), (&json!("n"), &json!("desc")));
    assert_eq!(door.put("/spaces/shop/types/offers", &[], &described.to_string()).status, 204);
    for n in 0..40 {
        let path = format!("/spaces/shop/types/offers/entries/{n}");
        assert_eq!(door.put(&path, &[], &json!({ "n": n }).to_string()).status, 204);
    }
    let there = |id: u32| door.get(&format!("/spaces/shop/types/offers/entries/{id}")).status;
    assert_eq!((there(0), there(38), there(39)), (200, 404, 200));
    let together =
        r#"{"placement":"together","indexes":[{"name":"email","kind":"hash","unique":true,"paths":["email"]}]}"#;
    assert_eq!(door.put("/spaces/shop/types/users", &[], together).status, 204);
    let users = door.get("/spaces/shop/types/users").json();
    assert_eq!(users["definition"]["placement"], "together");
    assert_eq!(door.put("/spaces/shop/types/users", &[], &users["definition"].to_string()).status, 204);
    let user = |id: u32| {
        let path = format!("/spaces/shop/types/users/entries/{id}");
        door.put(&path, &[], r#"{"email":"ada@x"}"#).status
    };
    assert_eq!((user(1), user(2), user(1)), (204, 412, 204));
    let dropped = door.send(&format!("DELETE {ORDERS}"), &[], None);
    assert_eq!(dropped.status, 204);
    assert_eq!(door.send(&format!("DELETE {ORDERS}"), &[], None).status, 404);
    assert_eq!((door.get(ORDERS).status, door.get(&entry("1")).status), (404, 404));
}

#[test]
fn a_space_has_a_limit_of_memory() {
    let door = declared();
    let described =
        |bytes_max: u64| json!({"space": "shop", "bytes": 0, "memory_bytes_max": bytes_max, "types": ["orders"]});
    assert_eq!(door.get("/spaces/shop").json(), described(0));
    assert_eq!(door.put("/spaces/shop", &[], r#"{"memory_bytes_max":50}"#).status, 204);
    assert_eq!(door.get("/spaces/shop").json(), described(50));
    assert!(door.get("/metrics").text().contains("holdfast_space_limit_bytes{space=\"shop\"} 50\n"));
    let refused = post(&door, "/entries", r#"{"address":{"city":"Ulm"}}"#);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.text().contains("the space shop has reached its limit of 50 bytes"), "{}", refused.text());
    for (body, wanted) in [
        ("{}", "memory_bytes_max is missing"),
        (r#"{"memory_bytes_max":-1}"#, "whole number"),
        (r#"{"memory_bytes_max":1,"colour":2}"#, "colour is not known"),
        ("", "JSON"),
    ] {
        let answer = door.put("/spaces/shop", &[], body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(answer.text().contains(wanted), "{body}: {}", answer.text());
    }
    assert_eq!(door.put("/spaces/shop", &[], r#"{"memory_bytes_max":0}"#).status, 204);
    assert_eq!(post(&door, "/entries", r#"{"address":{"city":"Ulm"}}"#).status, 201);
}

#[test]
fn entries_have_versions_as_tags_and_conditions_hold() {
    let door = declared();
    let made = post(&door, "/entries", r#"{"address":{"city":"Ulm"}}"#);
    assert_eq!(made.status, 201);
    let location = made.header("location").unwrap().to_owned();
    let read = door.get(&location);
    assert_eq!((read.header("etag"), read.header("content-type")), (made.header("etag"), Some("application/json")));
    assert!(read.header("x-holdfast-expires").is_some());
    assert_eq!(read.json()["address"]["city"], "Ulm");
    let tag = made.header("etag").unwrap();
    assert_eq!(door.send(&format!("GET {location}"), &[("if-none-match", tag)], None).status, 304);
    assert_eq!(door.send(&format!("GET {location}"), &[("if-match", "\"1\"")], None).status, 412);

    assert_eq!(door.put(&entry("%2242%22"), &[("if-none-match", "*")], r#"{"n":1}"#).status, 204);
    assert_eq!(door.put(&entry("%2242%22"), &[("if-none-match", "*")], r#"{"n":1}"#).status, 412);
    assert_eq!(door.get(&entry("%2242%22")).json(), json!({"id": "42", "n": 1}));
    assert_eq!(door.get(&entry("42")).status, 404);
    let other = door.put(&entry("42"), &[], r#"{"id":7}"#);
    assert!(other.status == 400 && other.text().contains("not the id in the path"), "{other:?}");
    let tag = door.get(&entry("%2242%22")).header("etag").unwrap().to_owned();
    let merged = door.send(&format!("POST {}", entry("%2242%22")), &[("if-match", &tag)], Some(br#"{"m":2}"#));
    assert_eq!(merged.status, 204);
    assert_eq!(door.put(&entry("%2242%22"), &[("if-match", &tag)], "{}").status, 412);
    assert_eq!(
        door.get(&format!("{}?durability=synced", entry("%2242%22"))).json(),
        json!({"id": "42", "m": 2, "n": 1})
    );
    assert_eq!(post(&door, "/entries/none", "{}").status, 412, "there is nothing to merge with");
    let delete = |headers: &[(&str, &str)]| door.send(&format!("DELETE {}", entry("%2242%22")), headers, None).status;
    assert_eq!((delete(&[("if-match", &tag)]), delete(&[]), delete(&[])), (412, 204, 404));
    assert_eq!(door.put(&format!("{}?lease_ms=0", entry("1")), &[], "{}").status, 400);
    assert_eq!(door.put(&entry("1"), &[], "no").status, 400);
}

/// Renewing took no notice of them, and what was to be renewed only as it was had its lease ended; so was what was written anew.
#[test]
fn conditions_hold_for_renewing_and_for_what_is_written_anew() {
    let door = declared();
    assert_eq!(door.put(&entry("1"), &[], "{}").status, 204);
    let tag = door.get(&entry("1")).header("etag").unwrap().to_owned();
    let renew = |headers: &[(&str, &str)]| {
        door.send(&format!("POST {}?lease_ms=forever", entry("1/renew")), headers, None).status
    };
    let never = ("if-unmodified-since", "Sat, 01 Jan 2050 00:00:00 GMT");
    for (headers, wanted) in [
        (&[("if-match", "\"0000000000000001\"")][..], 412),
        (&[("if-none-match", "*")], 412),
        (&[never], 412),
        (&[("if-match", &tag)], 204),
        (&[("if-none-match", "\"0000000000000001\"")], 204),
    ] {
        assert_eq!(renew(headers), wanted, "{headers:?}");
    }
    for (headers, wanted) in [(&[("if-match", "*")][..], 412), (&[("if-none-match", "*")], 201)] {
        let made = door.send(&format!("POST {ORDERS}/entries"), headers, Some(br#"{"id":9}"#));
        assert_eq!(made.status, wanted, "{headers:?}");
    }
}

/// Each time another entry was written, under an id that nobody was told.
#[test]
fn null_is_no_id_and_a_routing_is_the_documents() {
    let door = declared();
    let null = door.put(&entry("null"), &[], "{}");
    assert!(null.status == 400 && null.text().contains("null is no id"), "{null:?}");
    assert_eq!(door.put("/spaces/shop/types/routed", &[], r#"{"routing":"to.city"}"#).status, 204);
    let routed = |id: &str| format!("/spaces/shop/types/routed/entries/{id}?routing=Ulm");
    assert_eq!(door.put(&routed("1"), &[], r#"{"n":1}"#).status, 204);
    assert_eq!(door.send(&format!("POST {}", routed("1")), &[], Some(br#"{"m":2}"#)).status, 204);
    assert_eq!(door.get(&routed("1")).json(), json!({"id": 1, "n": 1, "m": 2, "to": {"city": "Ulm"}}));
    let other = door.put(&routed("1"), &[], r#"{"to":{"city":"Bonn"}}"#);
    assert!(other.status == 400 && other.text().contains("to.city in the document is not the routing"), "{other:?}");
    let head = door.send(&format!("HEAD {}", routed("1")), &[], None);
    let length = head.header("content-length").map(str::to_owned);
    assert_eq!(length, Some(door.get(&routed("1")).text().len().to_string()));
    let both = post(&door, "/query", r#"{"select":"SELECT id FROM orders","limit":2}"#);
    assert!(both.status == 400 && both.text().contains("LIMIT is said in the SQL"), "{both:?}");
}

#[test]
fn entries_are_changed_in_place_and_their_leases_renewed() {
    let door = declared();
    door.put(&entry("1"), &[], r#"{"n":1,"tags":["a"]}"#);
    let changes = r#"{"changes":[{"increment":"n","by":2},{"set":"at.city","value":"Ulm"},{"append":"tags","value":"b"},
        {"add":"tags","value":"a"},{"put_key":"map","key":"l","value":4}]}"#;
    let changed = post(&door, "/entries/1/change", changes);
    assert_eq!(changed.status, 200, "{changed:?}");
    let now = json!({"id": 1, "n": 3, "tags": ["a", "b"], "at": {"city": "Ulm"}, "map": {"l": 4}});
    assert_eq!(changed.json(), now);
    assert_eq!(changed.header("etag"), door.get(&entry("1")).header("etag"));
    let stale = door.send(
        &format!("POST {}/change", entry("1")),
        &[("if-match", "\"0000000000000001\"")],
        Some(br#"{"changes":[{"unset":"n"}]}"#),
    );
    assert_eq!(stale.status, 412);
    let less =
        r#"{"changes":[{"unset":"n"},{"remove":"tags","value":"a"},{"remove_key":"map","key":"l"},{"unset":"at"}]}"#;
    assert_eq!(post(&door, "/entries/1/change", less).json(), json!({"id": 1, "tags": ["b"], "map": {}}));
    for (body, wanted) in [
        ("{}", "at least one"),
        (r#"{"changes":[7]}"#, "an object"),
        (r#"{"changes":[{"double":"n"}]}"#, "a change is one of"),
        (r#"{"changes":[{"set":"n"}]}"#, "set needs value"),
        (r#"{"changes":[{"put_key":"n","value":1}]}"#, "put_key needs key"),
        (r#"{"changes":[{"set":"n","value":1,"by":2}]}"#, "by is not known"),
        (r#"{"changes":[{"set":"id","value":2}]}"#, "fixed"),
        (r#"{"changes":[{"set":7,"value":2}]}"#, "set has to be a string"),
    ] {
        let answer = post(&door, "/entries/1/change", body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    assert_eq!(post(&door, "/entries/9/change", less).status, 404);
    let renew = |path: &str| door.send(&format!("POST {ORDERS}/entries/{path}"), &[], None).status;
    let lease = |door: &Door| door.get(&entry("1")).header("x-holdfast-expires").map(str::to_owned);
    let before = lease(&door);
    assert_eq!((renew("1/renew?lease_ms=forever"), lease(&door)), (204, None));
    assert_eq!(renew("1/renew?lease_ms=900000"), 204);
    assert!(lease(&door).is_some() && lease(&door) != before);
    assert_eq!((renew("1/renew"), renew("1/renew?lease_ms=0"), renew("9/renew?lease_ms=5")), (400, 400, 404));
}

#[test]
fn queries_find_entries_and_takes_remove_them() {
    let door = declared();
    for (id, city) in [(1, "Ulm"), (2, "Ulm"), (3, "Bonn")] {
        door.put(&entry(&id.to_string()), &[], &format!(r#"{{"address":{{"city":"{city}"}},"n":{id}}}"#));
    }
    let found = post(&door, "/query", r#"{"where":"address.city = ? ORDER BY n DESC","parameters":["Ulm"]}"#).json();
    let numbers: Vec<_> = found["entries"].as_array().unwrap().iter().map(|entry| &entry["document"]["n"]).collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(found["entries"][0]["version"].as_str().unwrap().len(), 16);
    let one = post(&door, "/query", r#"{"template":{"address":{"city":"Ulm"}},"limit":1}"#).json();
    assert_eq!(one["entries"].as_array().unwrap().len(), 1);
    let select = r#"{"select":"SELECT address.city AS city, SUM(n) AS n FROM orders GROUP BY address.city ORDER BY n DESC, city"}"#;
    let rows = post(&door, "/query", select).json();
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(2), "{rows}");
    for (body, wanted) in [
        (r#"{"where":"n = (("}"#, ""),
        (r#"{"where":"n = ?","template":{}}"#, "one at the most"),
        (r#"{"parameters":[1]}"#, "parameters"),
        (r#"{"limits":1}"#, "limits is not known"),
        (r#"{"select":"SELECT n FROM orders","wait_ms":1}"#, "waits for nothing"),
        ("7", "JSON object"),
    ] {
        let answer = post(&door, "/query", body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    let taken = post(&door, "/take", r#"{"id":3}"#).json();
    assert_eq!(taken["entries"][0]["document"]["n"], 3);
    assert_eq!(post(&door, "/take", r#"{"id":3}"#).json(), json!({"entries": []}));
    // This client has closed its side: nothing is waited for.
    let waiting = br#"{"id":3,"wait_ms":60000}"#;
    assert_eq!(door.send_last(&format!("POST {ORDERS}/take"), Some(waiting)).status, 503);
    let late = read_all(&mut waiting_for(&door, 3, 5));
    assert!(late.starts_with("HTTP/1.1 200") && late.ends_with(r#"{"entries":[]}"#), "{late}");
    assert_eq!(post(&door, "/take", r#"{"limit":10}"#).json()["entries"].as_array().unwrap().len(), 2);
    let entries = door.store.space("shop").entries("orders").unwrap();
    std::thread::scope(|scope| {
        let mut client = waiting_for(&door, 9, 60_000);
        let waiting = scope.spawn(move || read_all(&mut client));
        until("it waits", || entries.waiters() == 1);
        let document = holdfast::space::Document::from_pairs([("id", 9)]);
        entries.write_shown(&document, &holdfast::space::WriteOptions::default()).unwrap();
        let answer = waiting.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"document\":{\"id\":9}"), "{answer}");
    });
    assert_eq!(entries.usage().entries, 0);
}

#[test]
fn who_vanishes_while_waiting_takes_nothing() {
    let door = declared();
    let entries = door.store.space("shop").entries("orders").unwrap();
    for id in 0..2 {
        let client = waiting_for(&door, id, 60_000);
        until("it waits", || entries.waiters() == 1);
        drop(client);
        // The first time before the door has noticed, as likely as not.
        until("the door notices", || id == 0 || entries.waiters() == 0);
        let document = holdfast::space::Document::from_pairs([("id", id)]);
        entries.write_shown(&document, &holdfast::space::WriteOptions::default()).unwrap();
        until("nobody waits", || entries.waiters() == 0);
    }
    until("both are there", || entries.usage().entries == 2);
}

#[test]
fn what_a_transaction_has_locked_is_neither_changed_nor_said_to_be_gone_nor_waited_for() {
    use holdfast::space::{ReadOptions, Wanted};
    let door = declared();
    door.put(&entry("1"), &[], r#"{"n":1}"#);
    let entries = door.store.space("shop").entries("orders").unwrap();
    let mut transaction = door.store.begin();
    assert!(entries.within(&mut transaction).take(&Wanted::id(1), &ReadOptions::default()).unwrap().is_some());
    let one = entry("1");
    for (request, body) in [
        (format!("PUT {one}"), r#"{"n":2}"#),
        (format!("POST {one}"), r#"{"n":2}"#),
        (format!("POST {one}/change"), r#"{"changes":[{"unset":"n"}]}"#),
        (format!("POST {one}/renew?lease_ms=5000"), ""),
        (format!("DELETE {one}"), ""),
    ] {
        let answer = door.send(&request, &[], Some(body.as_bytes()));
        assert_eq!(
            (answer.status, answer.header("retry-after").is_some()),
            (409, true),
            "{request}: {}",
            answer.text()
        );
    }
    assert_eq!(door.get(&one).status, 200);
    drop(transaction);
    assert_eq!(door.send(&format!("DELETE {one}"), &[], None).status, 204);
}

#[test]
fn a_query_that_takes_too_long_is_ended_and_told_what_to_do() {
    let door = open_with(holdfast::Limits::default(), |options| {
        options.limits = Limits { space_time_max: Duration::ZERO, ..Limits::default() };
    });
    assert_eq!(door.put(ORDERS, &[], "{}").status, 204);
    door.put(&entry("1"), &[], "{}");
    for (rest, body) in [
        ("/query", r#"{"where":"n = 1"}"#),
        ("/query", r#"{"select":"SELECT COUNT(*) FROM orders"}"#),
        ("/count", r#"{"where":"n = 1"}"#),
        ("/clear", r#"{"where":"n = 1"}"#),
        ("/iterate", r#"{"where":"n = 1"}"#),
        ("/take", r#"{"where":"n = 1"}"#),
    ] {
        let answer = post(&door, rest, body);
        assert_eq!(answer.status, 503, "{rest}: {}", answer.text());
        assert!(answer.text().contains("ended after 0 s: ask for less"), "{}", answer.text());
    }
    assert_eq!(door.get(&entry("1")).status, 200);
}

#[test]
fn a_text_that_was_parsed_before_is_not_parsed_again_and_means_the_same() {
    let door = declared();
    for (id, city) in (1..).zip(["Ulm", "Bonn", "Ulm"]) {
        let body = json!({ "address": { "city": city }, "n": id });
        assert!(door.put(&entry(&id.to_string()), &[], &body.to_string()).status < 300);
    }
    let query = |rest: &str, city: &str| {
        post(&door, rest, &json!({ "where": "address.city = ?", "parameters": [city] }).to_string())
    };
    assert_eq!(query("/count", "Ulm").json(), json!({"count": 2}));
    assert_eq!(query("/count", "Bonn").json(), json!({"count": 1}));
    assert_eq!(query("/query", "Ulm").json()["entries"].as_array().map(Vec::len), Some(2));
    for _ in 0..2 {
        let body = json!({ "select": "SELECT sum(n) AS s FROM orders WHERE n > ?", "parameters": [1] });
        assert_eq!(post(&door, "/query", &body.to_string()).json(), json!({"rows": [{"s": 5}]}));
    }
    let operation = |city: &str| json!({"count": {"space": "shop", "type": "orders", "where": "address.city = ?", "parameters": [city]}});
    let body = json!({ "operations": [operation("Ulm"), operation("Bonn")] });
    assert_eq!(door.send("POST /batch", &[], Some(body.to_string().as_bytes())).status, 200);
    let wrong = post(&door, "/count", r#"{"where":"address.city = ?"}"#);
    assert_eq!(
        (wrong.status, wrong.text().contains("has 1 parameters, 0 were given")),
        (400, true),
        "{}",
        wrong.text()
    );
    let metrics = door.get("/metrics");
    let of = |name: &str| {
        metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix(&format!("holdfast_space_query_cache_{name} "))?.parse().ok())
    };
    assert_eq!((of("hits_total"), of("misses_total"), of("queries")), (Some(6), Some(2), Some(2)));
}
