//! What questions about time series may hold of memory together: each language is refused when that is used up, says which setting it
//! is, and gives back what it had, however it ends.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use holdfast::series::{Rows, ValueRef};
use serde_json::Value as Json;

use super::Limits;
use super::tests_client::{Answer, Door, connect, open_with};

const SETTING: &str = "(series.query_memory_bytes)";
const POINTS: i64 = 100_000;
/// Less than the points take, and more than some hundred of them do.
const LITTLE: u64 = 1 << 20;

/// A series of so many points, a second apart, and a host for each of the first hundred.
fn door(query_memory_bytes: u64) -> Door {
    let limits = holdfast::Limits { series_query_memory_bytes: query_memory_bytes, ..holdfast::Limits::default() };
    let door = open_with(limits, |options| options.limits = Limits::default());
    let mut rows = Rows::new("default");
    let mut put = |tags: Vec<(String, String)>, count: i64| {
        let name = tags.first().map_or(String::new(), |(_, host)| host.clone());
        let row = rows.row(name.as_bytes(), |_| Ok(("m".to_owned(), tags))).unwrap();
        let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
        for second in 0..count {
            rows.push(slot, second * 1_000_000_000, ValueRef::Float(second as f64 / 8.0));
        }
    };
    put(vec![], POINTS);
    (0..100).for_each(|host| put(vec![("host".to_owned(), format!("h{host}"))], 1));
    assert_eq!(door.store.series().write(&mut rows).unwrap().refused, []);
    door.store.series().seal().unwrap();
    door
}

fn held(door: &Door) -> u64 {
    door.store.stats().series.query_bytes
}

/// Waits until nothing is held any more: what has been answered is given back just after.
fn check_given_back(door: &Door, what: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while held(door) > 0 {
        assert!(Instant::now() < end, "{what}: {} bytes are still held", held(door));
        std::thread::yield_now();
    }
}

fn form(door: &Door, path: &str, form: &str) -> Answer {
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    door.send(&format!("POST {path}"), &[kind], Some(form.as_bytes()))
}

#[test]
fn a_question_in_any_language_that_needs_too_much_is_refused_and_gives_it_back() {
    let door = door(LITTLE);
    let opentsdb = |m: &str| door.get(&format!("/api/query?start=0&end=100000&m={m}"));
    let influxql = |q: &str| form(&door, "/query", &format!("q={q}"));
    let promql = |query: &str| form(&door, "/api/v1/query", &format!("time=99999&query={query}"));
    let range = |query: &str| form(&door, "/api/v1/query_range", &format!("start=0&end=99999&step=10&query={query}"));
    for round in 0..3 {
        for (what, status, answer) in [
            ("points for an aggregate", 413, opentsdb("sum:m")),
            ("points of one series", 413, opentsdb("none:m")),
            ("intervals", 413, opentsdb("sum:1s-sum-zero:m")),
            ("rows", 200, influxql("SELECT value FROM m")),
            ("all points of a window", 200, influxql("SELECT median(value) FROM m")),
            ("windows", 200, influxql("SELECT max(value) FROM m WHERE time < 100000s GROUP BY time(1s)")),
            ("an inner selection", 200, influxql("SELECT max(v) FROM (SELECT value AS v FROM m)")),
            ("a window", 422, promql("max_over_time(m[2d])")),
            ("points as they are", 422, promql("m[2d]")),
            ("values at steps", 422, range("m * 2 %2B m * 3")),
            ("an export", 413, door.get("/api/v1/export?match[]=m")),
        ] {
            let text = answer.text();
            assert!(
                answer.status == status && text.contains(SETTING),
                "{round}, {what}: {} {text:.300}",
                answer.status
            );
            check_given_back(&door, what);
        }
        // What takes little is answered all the same.
        assert_eq!(opentsdb("sum:1h-sum:m").status, 200);
        let counted = influxql("SELECT count(value), mean(value) FROM m WHERE time < 100s").json();
        assert_eq!(counted["results"][0]["series"][0]["values"][0][1], 200);
        assert_eq!(promql("count(m)").json()["data"]["result"][0]["value"][1], "1");
        check_given_back(&door, "what was answered");
    }
}

/// As many rows as a chunk each: with what each says around it, far more than may be held.
#[test]
fn an_answer_in_chunks_leaves_while_it_is_made() {
    let door = door(8 << 20);
    let answer = form(&door, "/query", "q=SELECT value FROM m WHERE host = ''&epoch=s&chunked=true&chunk_size=1");
    assert_eq!((answer.status, answer.header("transfer-encoding")), (200, Some("chunked")));
    assert!(answer.body.len() > 12 << 20, "{}", answer.body.len());
    let mut rows = 0;
    for line in answer.text().lines() {
        let chunk: Json = serde_json::from_str(line).unwrap();
        let result = &chunk["results"][0];
        assert_eq!((&result["statement_id"], result.get("error")), (&Json::from(0), None));
        assert_eq!(result["series"][0]["values"][0][0], rows);
        rows += 1;
        assert_eq!(result.get("partial").is_some(), rows < POINTS);
    }
    assert_eq!(rows, POINTS);
    check_given_back(&door, "an answer in chunks");
    // The same as one document is more than there is.
    let whole = form(&door, "/query", "q=SELECT value FROM m; SELECT value, value, value, value FROM m");
    assert!(whole.json()["results"][1]["error"].as_str().is_some_and(|error| error.contains(SETTING)));
    // What fails after chunks have left is told in a chunk of its own.
    let failing =
        form(&door, "/query", "q=SELECT value FROM m WHERE host = ''; SELECT nonsense(value) FROM m&chunked=true");
    let last: Json = serde_json::from_str(failing.text().lines().last().unwrap()).unwrap();
    assert!(failing.text().lines().count() > 10);
    assert_eq!(last["results"][0]["error"], "undefined function nonsense()");
    check_given_back(&door, "one that failed");
}

#[test]
fn what_a_client_held_that_is_gone_comes_back() {
    let door = door(64 << 20);
    for request in [
        "GET /api/query?start=0&end=100000&arrays&m=sum:m",
        "GET /api/v1/export?match[]=m",
        "GET /api/v1/query?time=99999&query=m[2d]",
        "GET /query?q=SELECT%20value%20FROM%20m",
        "GET /query?chunked=true&chunk_size=1&q=SELECT%20value%20FROM%20m",
    ] {
        let mut stream = connect(door.running.local_addr());
        write!(stream, "{request} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut first = [0; 64];
        stream.read_exact(&mut first).unwrap();
        assert!(first.starts_with(b"HTTP/1.1 200"), "{request}: {}", String::from_utf8_lossy(&first));
        drop(stream);
        check_given_back(&door, request);
    }
}

/// Compressed questions of InfluxQL and PromQL, and bombs.
#[test]
fn questions_may_be_compressed_and_bombs_are_not_unpacked() {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    let door = door(64 << 20);
    let gzip = |body: &[u8]| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(body).unwrap();
        packed.finish().unwrap()
    };
    let zlib = |body: &[u8]| {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        packed.write_all(body).unwrap();
        packed.finish().unwrap()
    };
    let deflate = |body: &[u8]| {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
        packed.write_all(body).unwrap();
        packed.finish().unwrap()
    };
    let post = |path: &str, encoding: &str, body: &[u8]| {
        let headers = [("Content-Encoding", encoding), ("Content-Type", "application/x-www-form-urlencoded")];
        door.send(&format!("POST {path}"), &headers, Some(body))
    };
    for (path, body) in [
        ("/query", "q=SELECT count(value) FROM m"),
        ("/api/v1/query", "query=count(m)&time=100"),
        ("/api/v1/query_range", "query=count(m)&start=0&end=100&step=10"),
        ("/api/v1/series", "match[]=m{host=\"h1\"}"),
        ("/api/v1/labels", "match[]=m"),
    ] {
        let wanted = form(&door, path, body);
        assert_eq!(wanted.status, 200, "{path}");
        let body = body.as_bytes();
        for (encoding, packed) in [("gzip", gzip(body)), ("deflate", zlib(body)), ("deflate", deflate(body))] {
            let answer = post(path, encoding, &packed);
            assert_eq!((answer.status, answer.text()), (200, wanted.text()), "{path} {encoding}");
            assert_eq!(post(path, encoding, packed.get(..packed.len() / 2).unwrap()).status, 400, "{path} {encoding}");
        }
        assert_eq!(post(path, "br", body).status, 415, "{path}");
        let bomb = post(path, "gzip", &gzip(&vec![b'x'; 20 << 20]));
        assert!(bomb.status == 413 && bomb.text().contains("when it is decompressed"), "{path}: {bomb:?}");
    }
}
