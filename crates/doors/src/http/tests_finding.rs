//! Waiting for entries to read, and for those that transactions have locked, through the door.

use std::time::{Duration, Instant};

use holdfast::space::{Document, ReadOptions, Wanted, WriteOptions};
use serde_json::{Value, json};

use super::Limits;
use super::tests_client::{Answer, Door, open, open_wide};

const ORDERS: &str = "/spaces/shop/types/orders";

fn declared() -> Door {
    let door = open_wide();
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    door
}

fn post(door: &Door, rest: &str, body: &Value) -> Answer {
    door.send(&format!("POST {ORDERS}/{rest}"), &[], Some(body.to_string().as_bytes()))
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_query_waits_for_the_first_entry_and_leaves_it() {
    let door = declared();
    let entries = door.store.space("shop").entries("orders").unwrap();
    for (number, which) in
        [json!({"id": 0}), json!({"where": "n = ?", "parameters": [1]}), json!({"template": {"n": 2}})]
            .into_iter()
            .enumerate()
    {
        let mut body = which.clone();
        body.as_object_mut().unwrap().insert("wait_ms".to_owned(), json!(60_000));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| post(&door, "query", &body));
            until("it waits", || entries.waiters() == 1);
            let n = i64::try_from(number).unwrap();
            entries.write_shown(&Document::from_pairs([("id", n), ("n", n)]), &WriteOptions::default()).unwrap();
            let found = waiting.join().unwrap().json();
            assert_eq!(found["entries"][0]["document"], json!({"id": number, "n": number}), "{which}");
            assert_eq!(found["entries"].as_array().map(Vec::len), Some(1));
        });
    }
    assert_eq!((entries.usage().entries, entries.waiters()), (3, 0));
    // What is there is answered at once.
    assert_eq!(
        post(&door, "query", &json!({"limit": 2, "wait_ms": 60_000})).json()["entries"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_query_waits_no_longer_than_it_is_told() {
    let door = declared();
    assert_eq!(post(&door, "query", &json!({"id": 1, "wait_ms": 5})).json(), json!({"entries": []}));
    assert_eq!(post(&door, "query", &json!({"id": 1, "wait_ms": 0})).json(), json!({"entries": []}));
    assert_eq!(post(&door, "query", &json!({"id": 1, "wait_ms": 60_000, "limit": 0})).json(), json!({"entries": []}));
    // This client has closed its side: nothing is waited for.
    let waiting = br#"{"id":3,"wait_ms":60000}"#;
    assert_eq!(door.send_last(&format!("POST {ORDERS}/query"), Some(waiting)).status, 503);
    for (body, wanted) in [
        (json!({"wait_ms": -1}), "wait_ms has to be a whole number"),
        (json!({"wait_ms": "long"}), "wait_ms has to be a whole number"),
        (json!({"if_exists": 1}), "if_exists has to be true or false"),
        (json!({"where": "n = 1 ORDER BY n", "wait_ms": 5}), "ORDER BY and OFFSET"),
        (json!({"select": "SELECT n FROM orders", "if_exists": true}), "waits for nothing"),
    ] {
        let answer = post(&door, "query", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    let many = post(&door, "take", &json!({"if_exists": true, "limit": 2}));
    assert!(many.status == 400 && many.text().contains("one entry"), "{many:?}");
    assert_eq!(post(&door, "query", &json!({"if_exists": true, "limit": 2})).status, 200);
}

#[test]
fn a_take_waits_for_what_a_transaction_has_locked_if_it_is_there() {
    let door = declared();
    assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], "{}").status, 204);
    let entries = door.store.space("shop").entries("orders").unwrap();
    let take = |id: u64, wait_ms: u64| post(&door, "take", &json!({"id": id, "wait_ms": wait_ms, "if_exists": true}));
    // What is not there is not waited for, and nobody stands in the queue.
    let began = Instant::now();
    assert_eq!(take(9, 60_000).json(), json!({"entries": []}));
    assert!(began.elapsed() < Duration::from_secs(30));
    let lock = || {
        let mut transaction = door.store.begin();
        let taken = entries.within(&mut transaction).take(&Wanted::id(1), &ReadOptions::default()).unwrap();
        assert!(taken.is_some());
        transaction
    };
    let locked = lock();
    let began = Instant::now();
    assert_eq!(take(1, 120).json(), json!({"entries": []}));
    assert!(began.elapsed() >= Duration::from_millis(120));
    assert_eq!(take(1, 0).json(), json!({"entries": []}));
    // Reading shows what was committed last, and waits for nobody.
    let read = post(&door, "query", &json!({"id": 1, "wait_ms": 60_000, "if_exists": true})).json();
    assert_eq!(read["entries"][0]["document"], json!({"id": 1}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| take(1, 60_000));
        drop(locked);
        assert_eq!(waiting.join().unwrap().json()["entries"][0]["document"], json!({"id": 1}));
    });
    assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], "{}").status, 204);
    let locked = lock();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| take(1, 60_000));
        // It is gone when the lock is.
        locked.commit(holdfast::Durability::Written).unwrap();
        assert_eq!(waiting.join().unwrap().json(), json!({"entries": []}));
    });
    assert_eq!(entries.usage().entries, 0);
}

/// Who waited for a lock looked every 50 ms, and who came later could have the entry before.
#[test]
fn who_waits_for_a_lock_is_in_the_queue_and_is_woken_by_its_end() {
    let door = declared();
    let entries = door.store.space("shop").entries("orders").unwrap();
    for round in 0..20 {
        assert_eq!(door.put(&format!("{ORDERS}/entries/1"), &[], "{}").status, 204);
        let mut locked = door.store.begin();
        assert!(entries.within(&mut locked).take(&Wanted::id(1), &ReadOptions::default()).unwrap().is_some());
        let take = |body: Value| post(&door, "take", &body);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| take(json!({"id": 1, "wait_ms": 60_000, "if_exists": true})));
            until("the first waits", || entries.waiters() == 1);
            let second = scope.spawn(|| take(json!({"id": 1, "wait_ms": 60_000, "if_exists": true})));
            until("both wait", || entries.waiters() == 2);
            if round % 2 == 0 {
                drop(locked);
                assert_eq!(first.join().unwrap().json()["entries"][0]["document"], json!({"id": 1}), "{round}");
            } else {
                locked.commit(holdfast::Durability::Written).unwrap();
                assert_eq!(first.join().unwrap().json(), json!({"entries": []}), "{round}");
            }
            // It is gone for who came later.
            assert_eq!(second.join().unwrap().json(), json!({"entries": []}), "{round}");
        });
        until("nobody waits", || entries.waiters() == 0);
        assert_eq!(entries.usage().entries, 0);
    }
}

/// The story: sixty clients that did not read had 18 MB of JSON each made for them, and all of it lay in memory.
#[test]
fn documents_count_among_bodies_and_what_was_taken_is_shown_in_any_case() {
    let door = open(|options| {
        options.limits =
            Limits { bodies_bytes_max: 150 << 10, body_bytes_max: 32 << 10, small_body_bytes: 1, ..Limits::default() };
    });
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    let entries = door.store.space("shop").entries("orders").unwrap();
    let text = "x".repeat(20 << 10);
    for id in 0..8_i64 {
        let document = Document::from_pairs([("id", holdfast::space::Value::from(id)), ("x", text.as_str().into())]);
        entries.write_shown(&document, &WriteOptions::default()).unwrap();
    }
    let count = |answer: Answer| answer.json()["entries"].as_array().map(Vec::len);
    let events = format!("GET {ORDERS}/events?from=start");
    // Whoever has all of an answer may be faster than the server, which still holds room for it.
    let patiently = |ask: &dyn Fn() -> Answer| {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = ask();
            if answer.status != 503 || Instant::now() > end {
                return answer;
            }
        }
    };
    for limit in [2, 5] {
        assert_eq!(count(patiently(&|| post(&door, "query", &json!({"limit": limit})))), Some(limit));
        let events = patiently(&|| door.send(&format!("{events}&limit={limit}"), &[], None));
        assert_eq!(events.json()["events"].as_array().map(Vec::len), Some(limit));
    }
    // One that is larger than all together may be counts for a part.
    assert_eq!(count(patiently(&|| post(&door, "query", &json!({"limit": 8})))), Some(8));
    assert_eq!(patiently(&|| door.send(&events, &[], None)).json()["events"].as_array().map(Vec::len), Some(8));
    // What was taken is gone, so there is nothing to refuse; the question itself may be.
    let take = || patiently(&|| post(&door, "take", &json!({"limit": 4})));
    let taken: Vec<Answer> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..2).map(|_| scope.spawn(take)).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    assert_eq!(taken.into_iter().map(count).collect::<Vec<_>>(), [Some(4), Some(4)]);
    assert_eq!(entries.usage().entries, 0);
}
