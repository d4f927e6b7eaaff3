//! Questions about points that end: their time is over, or nobody waits for them any more.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use holdfast::series::{Rows, ValueRef};
use serde_json::json;

use super::tests_client::{Door, connect, open_with, read_all};
use crate::http::Limits;
use crate::http::uri::encode;

/// Series of which each has a long text in a tag and in a field.
const SERIES: usize = 400;

fn open(limits: Limits) -> Door {
    let door = open_with(holdfast::Limits::default(), |options| options.limits = limits);
    let mut random = 1u64;
    let mut letter = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if random >> 63 == 0 { 'a' } else { 'b' }
    };
    for database in ["default", "few"] {
        let mut rows = Rows::new(database);
        for nth in 0..if database == "few" { 1 } else { SERIES } {
            let text: String = (0..4_000).map(&mut letter).collect();
            let name = format!("m{nth}");
            let row =
                rows.row(name.as_bytes(), |_| Ok(("m".to_owned(), vec![("h".to_owned(), text.clone())]))).unwrap();
            for (field, value) in [("value", ValueRef::Float(1.0)), ("text", ValueRef::Text(&text))] {
                let slot = rows.field(row, usize::from(field == "text"), field.as_bytes(), |_| Ok(field.to_owned()));
                rows.push(slot.unwrap(), 1_700_000_000_000_000_000, value);
            }
        }
        assert_eq!(door.store.series().write(&mut rows).unwrap().refused, []);
    }
    door
}

/// An expression that takes milliseconds for each of the texts, and that none has.
const SLOW: &str = "[ab]*a[ab]{14}[cd]";
/// How often it stands in a question, which then takes minutes.
const TIMES: usize = 60;

/// Questions in every language: name, path with parameters, body.
fn questions() -> Vec<(&'static str, String, Option<String>)> {
    let influx = vec![format!("text =~ /{SLOW}/"); TIMES].join(" OR ");
    let influx = encode(format!("SELECT text FROM m WHERE {influx}").as_bytes());
    let labels = encode(format!("m{{{}}}", vec![format!("h!~\"{SLOW}\""); TIMES].join(",")).as_bytes());
    let filter = json!({ "type": "regexp", "tagk": "h", "filter": SLOW, "groupBy": false });
    let query = json!({ "metric": "m", "aggregator": "sum", "filters": vec![filter; TIMES] });
    let opentsdb = json!({ "start": 1_600_000_000, "end": 1_800_000_000, "queries": [query] }).to_string();
    vec![
        ("influxql", format!("/query?db=default&q={influx}"), None),
        ("influxql in chunks", format!("/query?db=default&chunked=true&q={influx}"), None),
        ("opentsdb", "/api/query".to_owned(), Some(opentsdb)),
        ("promql", format!("/api/v1/query?time=1700000001&query={labels}"), None),
        ("series", format!("/api/v1/series?match[]={labels}"), None),
        ("export", format!("/api/v1/export?match[]={labels}"), None),
    ]
}

fn request(path: &str, body: Option<&str>) -> String {
    let (verb, body) = (if body.is_some() { "POST" } else { "GET" }, body.unwrap_or_default());
    format!("{verb} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Questions whose clients had gone went on, for minutes, and had the turns of others.
#[test]
fn a_question_whose_client_is_gone_lets_others_have_its_turn() {
    // Nobody waits for a turn for longer than that takes; the time of a question alone would not be over.
    let limits = Limits { queries_max: 1, answer_timeout: Duration::from_secs(20), ..Limits::default() };
    let door = open(limits);
    for (name, path, body) in questions() {
        let mut client = connect(door.running.local_addr());
        client.write_all(request(&path, body.as_deref()).as_bytes()).unwrap();
        // It has its turn, as far as can be seen from here.
        std::thread::sleep(Duration::from_millis(300));
        client.shutdown(Shutdown::Both).unwrap();
        drop(client);
        // Not one that says no more: it would not wait.
        let mut next = connect(door.running.local_addr());
        let path = "/api/v1/query?db=few&time=1700000001&query=count(m)";
        next.write_all(request(path, None).replace("Host: x", "Host: x\r\nConnection: close").as_bytes()).unwrap();
        let answer = read_all(&mut next);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("1700000001,\"1\""), "{name}: {answer}");
    }
}

#[test]
fn a_question_that_takes_too_long_is_told_what_to_do_in_its_language() {
    let door = open(Limits { series_time_max: Duration::from_millis(1), ..Limits::default() });
    let text = "the query was ended after 0.001 s: ask about fewer series, or a shorter time, or raise series.query_seconds_max";
    let influx =
        json!({ "results": [{ "statement_id": 0, "error": format!("query-timeout limit exceeded: {text}") }] });
    for (name, path, body) in questions() {
        let answer = match &body {
            Some(body) => door.send(&format!("POST {path}"), &[], Some(body.as_bytes())),
            None => door.get(&path),
        };
        let said: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let (status, wanted) = match name {
            "opentsdb" => {
                let details = "the server could not answer; its log may tell more";
                (503, json!({ "error": { "code": 503, "message": text, "details": details } }))
            }
            name if name.starts_with("influxql") => (200, influx.clone()),
            _ => {
                let text = format!("query timed out in expression evaluation: {text}");
                (503, json!({ "status": "error", "errorType": "timeout", "error": text }))
            }
        };
        assert_eq!((answer.status, said), (status, wanted), "{name}");
    }
}

/// A client that reads slowly is no question that works for long.
#[test]
fn the_time_that_a_client_takes_does_not_count() {
    let door = open_with(holdfast::Limits::default(), |options| {
        options.limits = Limits { series_time_max: Duration::from_secs(3), ..Limits::default() };
    });
    let mut rows = Rows::new("default");
    let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
    let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
    (0..400_000).for_each(|nth| rows.push(slot, 1_700_000_000_000_000_000 + nth * 1_000_000, ValueRef::Float(0.5)));
    assert_eq!(door.store.series().write(&mut rows).unwrap().refused, []);
    for path in [
        "/api/query?start=1600000000&end=1800000000&ms=true&m=none:m",
        "/api/v1/export?match[]=m",
        "/query?db=default&chunked=true&chunk_size=1000&q=SELECT%20value%20FROM%20m",
    ] {
        let mut client = connect(door.running.local_addr());
        client.write_all(request(path, None).as_bytes()).unwrap();
        // Longer than a question may work; more than the system's buffers hold is still to be made.
        std::thread::sleep(Duration::from_secs(4));
        let mut bytes = Vec::new();
        let mut part = vec![0; 64 << 10];
        while !bytes.ends_with(b"\r\n0\r\n\r\n") {
            let read = std::io::Read::read(&mut client, &mut part).unwrap();
            assert_ne!(read, 0, "{path}: the answer ended after {} bytes", bytes.len());
            bytes.extend_from_slice(&part[..read]);
        }
    }
}
