//! Bodies of JSON: how long they may be, what they may become in memory, and how they may be compressed.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;

use super::Limits;
use super::tests_client::{Answer, Door, open_with};

const JOBS: &str = "/spaces/shop/types/jobs";

fn declared(limits: Limits) -> Door {
    let door = open_with(holdfast::Limits::default(), |options| options.limits = limits);
    assert_eq!(door.put(JOBS, &[], "").status, 204);
    door
}

fn post(door: &Door, path: &str, body: &str) -> Answer {
    door.send(&format!("POST {path}"), &[], Some(body.as_bytes()))
}

fn lists(count: usize) -> String {
    format!("[{}[]]", "[],".repeat(count - 1))
}

/// A batch of 8 MB took 400 MB, and a question of 60 MB a gigabyte.
#[test]
fn a_body_with_more_values_than_all_bodies_may_take_is_refused_before_they_are_made() {
    let door = declared(Limits::default());
    let many = lists(1 << 20);
    for (path, body) in [
        (
            "/batch",
            format!(
                r#"{{"operations":[{{"write":{{"space":"shop","type":"jobs","document":{{"id":1,"a":{many}}}}}}}]}}"#
            ),
        ),
        (&format!("{JOBS}/query"), format!(r#"{{"where":"a = 1","parameters":{many}}}"#)),
        (&format!("{JOBS}/query"), format!(r#"{{"select":"SELECT * FROM jobs","parameters":{many}}}"#)),
        (&format!("{JOBS}/take"), format!(r#"{{"template":{{"a":{many}}}}}"#)),
        (&format!("{JOBS}/count"), format!(r#"{{"id":{many}}}"#)),
        (&format!("{JOBS}/clear"), format!(r#"{{"template":{{"a":{many}}}}}"#)),
        (&format!("{JOBS}/iterate"), format!(r#"{{"template":{{"a":{many}}}}}"#)),
        (&format!("{JOBS}/events"), format!(r#"{{"template":{{"a":{many}}}}}"#)),
    ] {
        let answer = post(&door, path, &body);
        assert!(
            answer.status == 413 && answer.text().contains("too many values"),
            "{path}: {} {:.200}",
            answer.status,
            answer.text()
        );
    }
    // As a document it is its stored form, and that is short.
    let stored = door.put(&format!("{JOBS}/entries/1"), &[], &format!(r#"{{"a":{many}}}"#));
    assert_eq!(stored.status, 204, "{}", stored.text());
    let changed =
        post(&door, &format!("{JOBS}/entries/1/change"), &format!(r#"{{"changes":[{{"set":"a","value":{many}}}]}}"#));
    assert_eq!(changed.status, 413);
    // Nothing of it is held any more.
    let mut operations = String::new();
    for id in 0..10_000 {
        write!(operations, r#"{}{{"write":{{"space":"shop","type":"jobs","document":{{"id":{id},"state":"new","of":"ada","size":12.5}}}}}}"#, if id > 0 { "," } else { "" }).unwrap();
    }
    let answer = post(&door, "/batch", &format!(r#"{{"operations":[{operations}]}}"#));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn what_is_no_document_is_as_long_as_a_batch_may_be() {
    let door = declared(Limits { json_body_bytes_max: 1 << 10, ..Limits::default() });
    let long = "x".repeat(1 << 10);
    for path in ["/batch".to_owned(), format!("{JOBS}/query"), format!("{JOBS}/count"), format!("{JOBS}/events")] {
        let answer = post(&door, &path, &format!(r#"{{"where":"a = '{long}'"}}"#));
        assert!(answer.status == 413 && answer.text().contains("at most 1024 bytes"), "{path}: {answer:?}");
    }
    assert_eq!(door.put(&format!("{JOBS}/entries/1"), &[], &format!(r#"{{"a":"{long}"}}"#)).status, 204);
}

#[test]
fn a_query_with_another_number_of_parameters_is_refused() {
    let door = declared(Limits::default());
    for (asks, parameters) in [("where", json!([])), ("where", json!([1, 2])), ("select", json!([1, 2]))] {
        let text = if asks == "where" { "a = ?" } else { "SELECT * FROM jobs WHERE a = ?" };
        let answer = post(&door, &format!("{JOBS}/query"), &json!({asks: text, "parameters": parameters}).to_string());
        assert!(answer.status == 400 && answer.text().contains("1 parameters"), "{answer:?}");
    }
}

#[test]
fn bodies_of_json_may_be_compressed() {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    let door = declared(Limits::default());
    let gzip = |body: &str| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(body.as_bytes()).unwrap();
        packed.finish().unwrap()
    };
    let packed = |path: &str, encoding: &str, body: &[u8]| {
        door.send(&format!("POST {path}"), &[("Content-Encoding", encoding)], Some(body))
    };
    let batch = r#"{"operations":[{"write":{"space":"shop","type":"jobs","document":{"id":1}}}]}"#;
    assert_eq!(packed("/batch", "gzip", &gzip(batch)).status, 200);
    assert_eq!(packed(&format!("{JOBS}/entries"), "gzip", &gzip(r#"{"id":2}"#)).status, 201);
    for (path, wanted) in [("query", 2), ("take", 1)] {
        let answer = packed(&format!("{JOBS}/{path}"), "gzip", &gzip("{}"));
        assert_eq!(answer.json()["entries"].as_array().unwrap().len(), wanted, "{answer:?}");
    }
    let unknown = packed("/batch", "br", batch.as_bytes());
    assert!(unknown.status == 415 && unknown.json()["error"].as_str().unwrap().contains("send gzip"), "{unknown:?}");
    assert_eq!(packed(&format!("{JOBS}/query"), "br", b"{}").status, 415);
    assert_eq!(packed(&format!("{JOBS}/query"), "gzip", b"{}").status, 400);
    let bomb = packed(&format!("{JOBS}/query"), "gzip", &gzip(&" ".repeat(20 << 20)));
    assert!(bomb.status == 413 && bomb.text().contains("when it is decompressed"), "{bomb:?}");
}
