//! Counting, clearing and going through entries, through the door.

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide};

const ORDERS: &str = "/spaces/shop/types/orders";

fn post(door: &Door, rest: &str, body: &Value) -> Answer {
    door.send(&format!("POST {ORDERS}/{rest}"), &[], Some(body.to_string().as_bytes()))
}

fn filled(entries: u64) -> Door {
    let door = open_wide();
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    for id in 0..entries {
        assert_eq!(door.put(&format!("{ORDERS}/entries/{id}"), &[], &json!({"n": id % 2}).to_string()).status, 204);
    }
    door
}

#[test]
fn entries_are_counted_and_cleared_by_what_they_are() {
    let door = filled(7);
    assert_eq!(post(&door, "count", &json!({})).json(), json!({"count": 7}));
    let odd = json!({"where": "n = ?", "parameters": [1]});
    assert_eq!(post(&door, "count", &odd).json(), json!({"count": 3}));
    assert_eq!(post(&door, "count", &json!({"id": 9})).json(), json!({"count": 0}));
    let cleared = door.send(&format!("POST {ORDERS}/clear?durability=written"), &[], Some(odd.to_string().as_bytes()));
    assert_eq!((cleared.json(), cleared.header("x-holdfast-durability")), (json!({"cleared": 3}), Some("written")));
    assert_eq!(post(&door, "clear", &odd).json(), json!({"cleared": 0}));
    assert_eq!(post(&door, "clear", &json!({"where": "n = 0 LIMIT 1"})).json(), json!({"cleared": 1}));
    assert_eq!(post(&door, "clear", &json!({"template": {"n": 0}})).json(), json!({"cleared": 3}));
    assert_eq!(post(&door, "count", &json!({})).json(), json!({"count": 0}));
    for path in ["count", "clear"] {
        for (body, wanted) in [
            (json!({"limit": 1}), "limit is not known"),
            (json!({"parameters": [1]}), "parameters"),
            (json!({"where": "n = (("}), ""),
            (json!([]), "JSON object"),
        ] {
            let answer = post(&door, path, &body);
            assert!(answer.status == 400 && answer.text().contains(wanted), "{path} {body}: {answer:?}");
        }
        let none = door.send(&format!("POST /spaces/shop/types/none/{path}"), &[], Some(b"{}"));
        assert_eq!((none.status, door.send(&format!("POST {ORDERS}/{path}"), &[], None).status), (404, 411));
    }
}

#[test]
fn an_iteration_comes_to_every_entry_once() {
    let door = filled(9);
    let mut ids = Vec::new();
    let mut body = json!({"limit": 2});
    loop {
        let page = post(&door, "iterate", &body).json();
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 2 && (entries.len() == 2 || page["cursor"].is_null()), "{page}");
        ids.extend(entries.iter().map(|entry| entry["document"]["id"].as_u64().unwrap()));
        assert!(entries.iter().all(|entry| entry["version"].as_str().is_some_and(|version| version.len() == 16)));
        if page["cursor"].is_null() {
            break;
        }
        body = json!({"limit": 2, "cursor": page["cursor"]});
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..9).collect::<Vec<_>>());
    let odd = post(&door, "iterate", &json!({"where": "n = 1", "limit": 1_000_000})).json();
    assert_eq!(odd["entries"].as_array().map(Vec::len), Some(2), "the door's limit is two");
    // The cursor is of its type, and serves once.
    assert_eq!(door.put("/spaces/shop/types/other", &[], "").status, 204);
    let cursor = json!({"cursor": odd["cursor"]}).to_string();
    let other = door.send("POST /spaces/shop/types/other/iterate", &[], Some(cursor.as_bytes()));
    assert_eq!(other.status, 410);
    assert_eq!(post(&door, "iterate", &json!({"cursor": odd["cursor"]})).status, 200);
    assert_eq!(post(&door, "iterate", &json!({"cursor": odd["cursor"]})).status, 410);
    for (body, wanted) in [
        (json!({"cursor": "x"}), "cursor"),
        (json!({"cursor": 7}), "cursor has to be a string"),
        (json!({"cursor": "7", "where": "n = 1"}), "where is not known"),
        (json!({"where": "n = 1 ORDER BY n"}), ""),
        (json!({"count": 7}), "count is not known"),
        (json!({"lease_ms": 0}), "lease_ms of an iteration is from 1 to 3600000"),
        (json!({"lease_ms": 3_600_001}), "lease_ms of an iteration is from 1 to 3600000"),
        (json!({"lease_ms": "x"}), "lease_ms"),
        (json!({"cursor": "7", "lease_ms": 0}), "lease_ms of an iteration is from 1 to 3600000"),
    ] {
        let answer = post(&door, "iterate", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    assert_eq!(door.send(&format!("POST {ORDERS}/iterate"), &[], None).status, 411);
    // As long as it was told it is remembered, which is long over when the next request comes.
    let short = post(&door, "iterate", &json!({"limit": 1, "lease_ms": 1})).json()["cursor"].clone();
    let until = std::time::Instant::now() + std::time::Duration::from_millis(2);
    while std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(post(&door, "iterate", &json!({"cursor": short})).status, 410);
    let long = post(&door, "iterate", &json!({"limit": 1, "lease_ms": 3_600_000})).json()["cursor"].clone();
    assert_eq!(post(&door, "iterate", &json!({"cursor": long, "lease_ms": 60_000})).status, 200);
}

#[test]
fn how_entries_would_be_found_is_explained_by_id_template_and_query() {
    let door = open_wide();
    let body = r#"{"indexes":[{"name":"city","kind":"hash","paths":["city"]}]}"#;
    assert_eq!(door.put(ORDERS, &[], body).status, 204);
    for id in 0..20 {
        let city = if id % 10 == 0 { "Ulm" } else { "Bonn" };
        assert_eq!(
            door.put(&format!("{ORDERS}/entries/{id}"), &[], &json!({"city": city, "n": 1}).to_string()).status,
            204
        );
    }
    let by = |body: &Value| post(&door, "explain", body).json();
    let one = json!({"by": "id", "index": null, "partitions": 1, "candidates": 1});
    assert_eq!(by(&json!({"id": 1})), json!({"partitions": 1, "candidates": 1, "by": [one]}));
    let all = json!({"by": "all", "index": null, "partitions": 2, "candidates": 20});
    assert_eq!(by(&json!({})), json!({"partitions": 2, "candidates": 20, "by": [all]}));
    assert_eq!(by(&json!({"template": {"n": 1}}))["by"][0]["by"], "all");
    for body in [json!({"template": {"city": "Ulm"}}), json!({"where": "city = ?", "parameters": ["Ulm"]})] {
        let found = by(&body);
        assert_eq!((&found["by"][0]["by"], &found["by"][0]["index"]), (&json!("index"), &json!("city")), "{found}");
        assert_eq!((&found["candidates"], &found["partitions"]), (&json!(2), &json!(2)));
    }
    for (body, wanted) in [
        (json!({"limit": 1}), "limit is not known"),
        (json!({"id": null}), "id is null"),
        (json!({"where": "city = ("}), ""),
        (json!({"template": 1}), "template has to be an object"),
    ] {
        let answer = post(&door, "explain", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    let none = door.send("POST /spaces/shop/types/none/explain", &[], Some(b"{}"));
    assert_eq!((none.status, door.send(&format!("POST {ORDERS}/explain"), &[], None).status), (404, 411));
}
