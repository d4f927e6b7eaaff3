//! Points over HTTP, byte by byte as clients send them, and what is in the store then.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use holdfast::series::{Points, Range, Retention, Select, Source, Value};
use serde_json::json;

use super::intake::Intake;
use super::writers::{Done, Job};
use super::{DATABASE, Encoding, Request, Share, Shared, Store, Typing};
use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::http::tests_client::{Answer, Door, connect, open_on, open_wide};

/// The points of a database, one a line.
pub(in crate::http) fn points(door: &Door, database: &str) -> Vec<String> {
    let reader = door.store.series().reader();
    let mut lines = Vec::new();
    for series in reader.series(&Select { database: database.to_owned(), ..Select::default() }).unwrap() {
        let mut points = Points::new();
        reader.points(series.id, Range::ALL, &mut points).unwrap();
        let key = &series.key;
        let tags: Vec<String> = key.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for (time, value) in points.iter() {
            let value = match value.to_value() {
                Value::Float(value) => format!("{value:?}"),
                Value::Integer(value) => format!("{value}i"),
                Value::Unsigned(value) => format!("{value}u"),
                Value::Boolean(value) => value.to_string(),
                Value::Text(value) => format!("{value:?}"),
            };
            lines.push(format!("{}{{{}}}{} {time} {value}", key.metric, tags.join(","), key.field));
        }
    }
    lines
}

pub(super) fn post(door: &Door, path: &str, body: &str) -> Answer {
    door.send(&format!("POST {path}"), &[], Some(body.as_bytes()))
}

#[test]
fn a_put_is_answered_as_opentsdb_does_it() {
    let door = open_wide();
    let good = r#"{"metric":"cpu","timestamp":1356998400,"value":1.5,"tags":{"host":"a"}}"#;
    let both = format!(r#"[{good}, {{"metric":"cpu","timestamp":1356998401,"value":"x","tags":{{"host":"a"}}}}]"#);
    let answer = post(&door, "/api/put", good);
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.header("x-holdfast-durability"), Some("synced"));
    assert_eq!(points(&door, "default"), ["cpu{host=a}value 1356998400000000000 1.5"]);
    for (path, body, status, wanted) in [
        ("/api/put?summary", good, 200, r#"{"success":1,"failed":0}"#),
        ("/api/put?details", good, 200, r#"{"success":1,"failed":0,"errors":[]}"#),
        ("/api/put?summary=false", good, 204, ""),
        ("/api/put?sync&sync_timeout=10000&summary", good, 200, r#"{"success":1,"failed":0}"#),
        ("/api/v1/put?summary=true&details=true", good, 200, r#"{"success":1,"failed":0,"errors":[]}"#),
        ("/api/put?summary", both.as_str(), 400, r#"{"success":1,"failed":1}"#),
        (
            "/api/put?details",
            both.as_str(),
            400,
            r#"{"success":1,"failed":1,"errors":[{"datapoint":{"metric":"cpu","tags":{"host":"a"},"timestamp":1356998401,"value":"x"},"error":"unable to parse value 'x' to a number"}]}"#,
        ),
        (
            "/api/put",
            both.as_str(),
            400,
            r#"{"error":{"code":400,"details":"append \"details\" to the put request to see them","message":"One or more data points had errors"}}"#,
        ),
        (
            "/api/put",
            r#"[{"metric":"cpu""#,
            400,
            r#"{"error":{"code":400,"details":"0 data points before it were stored","message":"Unable to parse the given JSON: at byte 16 there should be , or }"}}"#,
        ),
        ("/api/put?summary", "[]", 200, r#"{"success":0,"failed":0}"#),
        ("/api/put", "", 204, ""),
    ] {
        let answer = post(&door, path, body);
        assert_eq!((answer.status, answer.text()), (status, wanted), "{path} {body}");
    }
    assert_eq!(points(&door, "default").len(), 1);
    assert_eq!(door.send("GET /api/put", &[], None).status, 405);
}

#[test]
fn put_lines_over_http_are_put_lines() {
    let door = open_wide();
    let answer = post(&door, "/api/put?details", "put a 1 1 host=a\nput a x 1 host=a\nput a 2 2 host=a");
    let wanted = r#"{"success":2,"failed":1,"errors":[{"datapoint":"put a x 1 host=a","error":"invalid time 'x': the time is not a number of digits; write seconds since 1970, or with 13, 16 or 19 digits ms, us or ns"}]}"#;
    assert_eq!((answer.status, answer.text()), (400, wanted));
    assert_eq!(points(&door, "default"), ["a{host=a}value 1000000000 1i", "a{host=a}value 2000000000 2i"]);
}

#[test]
fn limits_of_the_store_are_told_as_errors_of_points() {
    let door = open_wide();
    let body = r#"[{"metric":"cpu","timestamp":1,"value":1,"tags":{"a":"1","b":"2","c":"3","d":"4"}},{"metric":"cpu","timestamp":1,"value":1}]"#;
    let answer = post(&door, "/api/put?details", body);
    let wanted = r#"{"success":1,"failed":1,"errors":[{"datapoint":{"field":"value","metric":"cpu","points":1},"error":"a series has at most 3 tags, not 4"}]}"#;
    assert_eq!((answer.status, answer.text()), (400, wanted));
}

#[test]
fn iot_benchmark_is_understood_byte_by_byte() {
    let door = open_wide();
    let body = r#"[{"metric":"g_0.d_0","timestamp":1535558400000,"value":99.51,"tags":{"sensor":"s_0","device":"d_0"}},{"metric":"g_0.d_0","timestamp":1535558405000,"value":-5,"tags":{"device":"d_0","sensor":"s_0"}}]"#;
    // As its OpenTSDB adapter sends it: a form's content type, lower-case headers, the body in a segment of its own.
    let mut stream = connect(door.running.local_addr());
    let head = format!(
        "POST /api/put?summary HTTP/1.1\r\naccept: */*\r\nconnection: close\r\nuser-agent: Java/1.8.0_252\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    std::thread::yield_now();
    stream.write_all(body.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let (answer, _) = Answer::take(&bytes, false);
    assert_eq!((answer.status, answer.text()), (200, r#"{"success":2,"failed":0}"#));
    let wanted = [
        "g_0.d_0{device=d_0,sensor=s_0}value 1535558400000000000 99.51",
        "g_0.d_0{device=d_0,sensor=s_0}value 1535558405000000000 -5.0",
    ];
    assert_eq!(points(&door, "default"), wanted);
}

#[test]
fn chunks_and_expectations_are_understood() {
    let door = open_wide();
    let chunked = "POST /write?precision=s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
        7\r\ncpu v=1\r\n3\r\n 5\n\r\nd\r\ncpu,a=b v=2 6\r\n0\r\n\r\n";
    assert!(door.say(chunked.as_bytes()).starts_with("HTTP/1.1 204 "));
    assert_eq!(points(&door, "default"), ["cpu{}v 5000000000 1.0", "cpu{a=b}v 6000000000 2.0"]);
    let mut stream = connect(door.running.local_addr());
    let head =
        "POST /write HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"mem v=3 7").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("HTTP/1.1 204 "), "{rest}");
    assert_eq!(points(&door, "default").len(), 3);
}

#[test]
fn influx_lines_are_answered_as_influxdb_does_it() {
    let door = open_wide();
    let answer =
        post(&door, "/write?db=telegraf&rp=autogen&precision=ms", "cpu,host=a v=1,t=\"x\",n=7i,b=t 1356998400123\n");
    assert_eq!((answer.status, answer.text()), (204, ""));
    let wanted = [
        "cpu{host=a}b 1356998400123000000 true",
        "cpu{host=a}n 1356998400123000000 7i",
        "cpu{host=a}t 1356998400123000000 \"x\"",
        "cpu{host=a}v 1356998400123000000 1.0",
    ];
    assert_eq!(points(&door, "telegraf"), wanted);
    assert!(points(&door, "default").is_empty());
    let answer = post(&door, "/write?precision=s", "cpu v=1 1\nbad\n\n# nothing\ncpu v=\ncpu v=2 2");
    let wanted = "partial write: unable to parse 'bad': missing fields: write a measurement, a blank, and field=value (line 2)\nunable to parse 'cpu v=': missing field value: a field is a name, = and a value (line 5) dropped=0";
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(wanted)));
    assert!(answer.header("x-influxdb-error").unwrap().starts_with("partial write: unable to parse 'bad'"));
    assert_eq!(points(&door, "default"), ["cpu{}v 1000000000 1.0", "cpu{}v 2000000000 2.0"]);
    // Where no line makes sense nothing was written in part, says InfluxDB 1.8.
    let answer = post(&door, "/write", "bad\ncpu v=\n");
    let wanted = "unable to parse 'bad': missing fields: write a measurement, a blank, and field=value (line 1)\nunable to parse 'cpu v=': missing field value: a field is a name, = and a value (line 2)";
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(wanted)));
    let answer = post(&door, "/api/write?precision=s", "cpu v=1i 3\ncpu w=1 3");
    let wanted = "partial write: field type conflict: input field \"v\" on measurement \"cpu\" is type integer, already exists as type float dropped=1";
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(wanted)));
    assert_eq!(points(&door, "default").len(), 3);
    // Of several conflicts the first is told.
    let answer = post(&door, "/write?precision=s", "cpu v=1i,w=t 4");
    assert_eq!(answer.json()["error"].as_str(), Some(wanted.replace("dropped=1", "dropped=2").as_str()));
    let answer = post(&door, "/write?precision=x", "cpu v=1");
    let wanted = "invalid precision \"x\" (use n, u, ms, s, m or h)";
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(wanted)));
    assert_eq!(post(&door, "/write", "").status, 204);
}

#[test]
fn influxdb_2_has_buckets_and_its_own_errors() {
    let door = open_wide();
    assert_eq!(post(&door, "/api/v2/write?org=o&bucket=b1/autogen&precision=ns", "cpu v=1 5").status, 204);
    assert_eq!(points(&door, "b1"), ["cpu{}v 5 1.0"]);
    let answer = post(&door, "/api/v2/write?bucket=b1", "cpu");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (400, Some("invalid")));
}

/// What was written with another policy's name replaced points of the same name and time.
#[test]
fn a_retention_policy_that_there_is_not_is_refused() {
    let mut options = holdfast::Options { partitions: 2, ..holdfast::Options::default() };
    let (database, metric) = ("d".to_owned(), "cpu.*".to_owned());
    options.series.retention = vec![Retention { database, metric, keep: Duration::from_secs(3600) }];
    let door = open_on(options, |options| options.limits = crate::http::Limits::default());
    for rp in ["", "autogen", "cpu.*"] {
        assert_eq!(post(&door, &format!("/write?db=d&rp={rp}"), "m v=1").status, 204, "{rp}");
        assert_eq!(post(&door, &format!("/api/v2/write?bucket=d/{rp}"), "m v=1").status, 204, "{rp}");
        assert_eq!(post(&door, &format!("/api/v1/prom/write?db=d&rp={rp}"), "\0").status, 204, "{rp}");
    }
    let wanted = "retention policy not found: 1y";
    let answer = post(&door, "/write?db=d&rp=1y", "m v=1");
    assert_eq!((answer.status, answer.json()["error"].as_str()), (404, Some(wanted)));
    assert_eq!(answer.header("x-influxdb-error"), Some(wanted));
    let answer = post(&door, "/api/v2/write?bucket=d/1y", "m v=1");
    assert_eq!((answer.status, answer.json()["message"].as_str()), (404, Some(wanted)));
    assert_eq!(answer.json()["code"].as_str(), Some("not found"));
    assert_eq!(post(&door, "/write?db=other&rp=cpu.*", "m v=1").status, 404, "nothing keeps it so in this database");
    assert_eq!(post(&door, "/api/v1/prom/write?db=d&rp=1y", "\0").status, 404);
}

#[test]
fn every_precision_is_known_and_points_without_time_are_of_now() {
    let door = open_wide();
    for (name, wanted) in [
        ("n", 7),
        ("ns", 7),
        ("u", 7_000),
        ("us", 7_000),
        ("ms", 7_000_000),
        ("s", 7_000_000_000_i64),
        ("m", 420_000_000_000),
        ("h", 25_200_000_000_000),
    ] {
        assert_eq!(post(&door, &format!("/write?db={name}&precision={name}"), "m v=1 7").status, 204);
        assert_eq!(points(&door, name), [format!("m{{}}v {wanted} 1.0")]);
    }
    let before = door.store.now_ms();
    assert_eq!(post(&door, "/write?db=now", "m v=1").status, 204);
    let line = points(&door, "now").remove(0);
    let at: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((before..=door.store.now_ms()).contains(&(at / 1_000_000)), "{line}");
}

#[test]
fn compressed_bodies_are_decompressed_and_stay_bounded() {
    let door = open_wide();
    let body = b"cpu v=1 1\ncpu v=2 2\n";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body).unwrap();
    zlib.write_all(body).unwrap();
    deflate.write_all(body).unwrap();
    let twice = gzip.finish().unwrap().repeat(2);
    for (name, bytes) in [("gzip", twice), ("deflate", zlib.finish().unwrap()), ("deflate", deflate.finish().unwrap())]
    {
        let answer = door.send("POST /write?db=z", &[("Content-Encoding", name)], Some(&bytes));
        assert_eq!(answer.status, 204, "{name} {answer:?}");
        assert_eq!(points(&door, "z").len(), 2);
        let cut = bytes.get(..bytes.len() / 2 - 4).unwrap();
        assert_eq!(door.send("POST /write?db=z", &[("content-encoding", name)], Some(cut)).status, 400);
    }
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b'\n'; 1 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let answer = door.send("POST /write", &[("Content-Encoding", "gzip")], Some(&bomb));
    assert_eq!(answer.status, 413);
    assert!(answer.json()["error"].as_str().unwrap().contains("when it is decompressed"));
    assert_eq!(door.send("POST /write", &[("Content-Encoding", "br")], Some(b"x")).status, 415);
}

#[test]
fn prometheus_text_becomes_points() {
    let door = open_wide();
    let body = "# HELP up x\n# TYPE up gauge\nup{job=\"a\"} 1 1500\nup{job=\"b\",} NaN 1500 # {trace=\"1\"} 2\nload 0.5\n\nbad{\nup{job=\"a\"} x\n";
    let answer = post(&door, "/api/v1/import/prometheus?timestamp=9&extra_label=job=x&extra_label=dc=e=1", body);
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.header("x-holdfast-skipped"), Some("2; line 7: write metric{label=\"value\"} value"));
    let wanted = ["load{dc=e=1,job=x}value 9000000 0.5", "up{dc=e=1,job=x}value 1500000000 NaN"];
    assert_eq!(points(&door, "default"), wanted);
    assert_eq!(post(&door, "/api/v1/import/prometheus?db=p", "up 1\n").status, 204);
    assert_eq!(points(&door, "p").len(), 1);
    assert_eq!(post(&door, "/api/v1/import/prometheus?extra_label=x", "up 1\n").status, 400);
    // What is no such text at all is refused.
    let answer = post(&door, "/api/v1/import/prometheus", "up{a=\"\u{e9}\n{}\nup{job=\"a\"} x\n");
    let wanted = "0 points were stored, 3 were not: 1: write metric{label=\"value\"} value; 2: write metric{label=\"value\"} value; 3: invalid value 'x': write a number such as 7, 1.5, NaN or +Inf\n";
    assert_eq!((answer.status, answer.text()), (400, wanted));
    let answer = post(&door, "/api/v1/import/prometheus", "up{job=\"a\"} \u{e9}\nup 1\n");
    assert_eq!((answer.status, answer.header("x-holdfast-skipped").is_some()), (204, true));
    let many: String = (0..65).map(|nth| format!("t{nth}=\"1\",")).collect();
    let answer = post(&door, "/api/v1/import/prometheus", &format!("up{{{many}}} 1\ndown 1\n"));
    assert_eq!(answer.status, 400, "{answer:?}");
}

#[test]
fn remote_write_becomes_points() {
    let door = open_wide();
    let message = super::remote::tests::message(&[
        (&[("__name__", "up"), ("job", "a"), ("empty", "")], &[(1.0, 1500), (f64::NAN, 2500)]),
        (&[("__name__", "up"), ("job", "b")], &[(-2.5, -1)]),
    ]);
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    let headers = [
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
        ("X-Prometheus-Remote-Write-Version", "0.1.0"),
    ];
    assert_eq!(door.send("POST /api/v1/write", &headers, Some(&body)).status, 204);
    let wanted = ["up{job=a}value 1500000000 1.0", "up{job=a}value 2500000000 NaN", "up{job=b}value -1000000 -2.5"];
    assert_eq!(points(&door, "default"), wanted);
    assert_eq!(door.send("POST /api/v1/write?db=x", &[], Some(&body)).status, 204);
    // As InfluxDB 1.8 calls it.
    assert_eq!(door.send("POST /api/v1/prom/write?db=p&rp=autogen", &headers, Some(&body)).status, 204);
    assert_eq!(points(&door, "p"), points(&door, "x"));
    assert_eq!(points(&door, "x").len(), 3);
    assert_eq!(door.send("POST /api/v1/write", &headers, Some(&message)).status, 400);
    let broken = snap::raw::Encoder::new().compress_vec(&message[..message.len() - 3]).unwrap();
    assert_eq!(door.send("POST /api/v1/write", &headers, Some(&broken)).status, 400);
    let second = [("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")];
    assert_eq!(door.send("POST /api/v1/write", &second, Some(&body)).status, 415);
}

/// They were acknowledged, and shown by no query.
#[test]
fn points_that_are_older_than_they_are_kept_are_refused_in_every_protocols_words() {
    let mut options = holdfast::Options { partitions: 2, ..holdfast::Options::default() };
    let (database, metric) = ("*".to_owned(), "*".to_owned());
    options.series.retention = vec![Retention { database, metric, keep: Duration::from_secs(3600) }];
    let door = open_on(options, |options| options.limits = crate::http::Limits::default());
    let now = door.store.now_ms();
    let lines = format!("cpu v=1 {now}\ncpu v=2 7\ncpu v=3 8\n");
    let answer = post(&door, "/write?db=a&precision=ms", &lines);
    let wanted = "partial write: points beyond retention policy dropped=2";
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some(wanted)));
    let answer = post(&door, "/api/v2/write?bucket=b&precision=ms", &lines);
    assert_eq!((answer.status, answer.json()["message"].as_str()), (400, Some(wanted)));
    let put = |at: u64| format!(r#"{{"metric":"cpu","timestamp":{at},"value":1}}"#);
    let answer = post(&door, "/api/put?details&db=c", &format!("[{},{}]", put(now), put(7)));
    let wanted = r#"{"success":1,"failed":1,"errors":[{"datapoint":{"field":"value","metric":"cpu","points":1},"error":"points beyond retention policy"}]}"#;
    assert_eq!((answer.status, answer.text()), (400, wanted));
    let wanted = "1 points were stored, 1 were not: cpu: points beyond retention policy";
    let answer = post(&door, "/api/v1/import/prometheus?db=d", &format!("cpu 1 {now}\ncpu 1 7\n"));
    assert_eq!((answer.status, answer.text().trim_end()), (400, wanted));
    let samples = [(1.0, now.cast_signed()), (2.0, 7)];
    let message = super::remote::tests::message(&[(&[("__name__", "cpu")], &samples)]);
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    let answer = door.send("POST /api/v1/write?db=e", &[], Some(&body));
    assert_eq!((answer.status, answer.text().trim_end()), (400, wanted));
    for database in ["a", "b", "c", "d", "e"] {
        assert_eq!(points(&door, database).len(), 1, "{database}");
    }
}

#[test]
fn points_are_counted() {
    let door = open_wide();
    post(&door, "/write", "cpu v=1,w=2 1\nbad\n");
    let metrics = door.get("/metrics");
    for line in ["written_total{door=\"http\"} 2", "malformed_total{door=\"http\"} 1", "batches_total{door=\"http\"} 1"]
    {
        assert!(metrics.text().contains(&format!("\nholdfast_points_{line}\n")), "{}", metrics.text());
    }
    assert_eq!(door.get("/stats").json()["doors"]["http"]["points_written"], 2);
}

#[test]
fn a_user_writes_to_databases_as_to_buckets() {
    let mut ada = User::admin("ada", &hash_password(b"secret").unwrap());
    ada.buckets = vec![BucketRight { pattern: "plant-*".to_owned(), right: Right::Write }];
    let door = crate::http::tests_client::open(|options| {
        options.users = std::sync::Arc::new(Users::new([ada]).unwrap());
        options.limits =
            crate::http::Limits { answer_timeout: Duration::from_secs(20), ..crate::http::Limits::default() };
    });
    let basic = [("Authorization", "Basic YWRhOnNlY3JldA==")];
    assert_eq!(door.send("POST /write?db=plant-1", &basic, Some(b"m v=1")).status, 204);
    let told = r#"user "ada" may not write to database "other": the right "write" is lacking"#;
    let (one, two) = (json!({ "error": told }), json!({ "code": "forbidden", "message": told }));
    for (path, wanted) in [("/write?db=other", one), ("/api/v2/write?bucket=other", two)] {
        let answer = door.send(&format!("POST {path}"), &basic, Some(b"m v=1"));
        assert_eq!((answer.status, answer.json()), (403, wanted), "{path}");
    }
    let answer = door.send("POST /api/put?db=other", &basic, Some(b"put m 1 1 a=b"));
    assert!(answer.status == 403 && answer.text().contains(told), "{}", answer.text());
    assert_eq!(door.send("POST /write?db=plant-1", &[], Some(b"m v=1")).status, 401);
}

#[test]
fn large_bodies_are_written_in_several_batches() {
    let door = crate::http::tests_client::open_with(holdfast::Limits::default(), |options| {
        options.limits =
            crate::http::Limits { answer_timeout: Duration::from_secs(60), ..crate::http::Limits::default() };
    });
    let body: String = (0..50_000).map(|at| format!("m v={at} {at}\n")).collect();
    assert_eq!(post(&door, "/write", &body).status, 204);
    assert_eq!(points(&door, "default").len(), 50_000);
    assert_eq!(door.get("/stats").json()["doors"]["http"]["points_batches"], 2);
}

#[test]
fn bodies_that_are_large_or_become_so_are_written_as_small_ones_are() {
    let door = crate::http::tests_client::open_with(holdfast::Limits::default(), |options| {
        options.limits =
            crate::http::Limits { small_body_bytes: 100, large_writes_max: 1, ..crate::http::Limits::default() };
    });
    let body: String = (0..200).map(|at| format!("m v={at}i {at}\n")).collect();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all("m v=1 1\n".repeat(500).as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    assert!(packed.len() < 100, "it seems small: {}", packed.len());
    for durability in ["synced", "written", "window"] {
        for (database, headers, bytes, count) in [
            ("small", &[][..], &b"m v=1 1\n"[..], 1),
            ("large", &[][..], body.as_bytes(), 200),
            ("packed", &[("Content-Encoding", "gzip")][..], packed.as_slice(), 1),
        ] {
            let path = format!("POST /write?db={database}-{durability}&durability={durability}");
            let answer = door.send(&path, headers, Some(bytes));
            assert_eq!((answer.status, answer.header("x-holdfast-durability")), (204, Some(durability)), "{path}");
            assert_eq!(points(&door, &format!("{database}-{durability}")).len(), count, "{path}");
        }
    }
    assert_eq!(post(&door, "/write?db=large-synced", &format!("{body}m v=x 1\n")).status, 400);
}

#[test]
fn what_many_write_at_the_same_time_is_told_to_each_and_all_there() {
    let door = crate::http::tests_client::open_with(holdfast::Limits::default(), |options| {
        options.limits = crate::http::Limits { write_threads: 2, ..crate::http::Limits::default() };
    });
    std::thread::scope(|scope| {
        for client in 0..16 {
            let door = &door;
            scope.spawn(move || {
                for at in 0..10 {
                    let durability = ["synced", "written", "window"][at % 3];
                    // One in four has a bad point, which its own answer tells, and the others' do not.
                    let bad = if (client + at) % 4 == 0 { "put bad x y\n" } else { "" };
                    let body = format!("put m {at} 1 client={client}\n{bad}put n {at} 2 client={client}\n");
                    let answer = post(door, &format!("/api/put?summary&durability={durability}"), &body);
                    let failed = u16::from(!bad.is_empty());
                    let wanted = (if failed > 0 { 400 } else { 200 }, format!("{{\"success\":2,\"failed\":{failed}}}"));
                    assert_eq!((answer.status, answer.text().to_owned()), wanted);
                }
            });
        }
    });
    assert_eq!(points(&door, "default").len(), 16 * 10 * 2);
}

/// A request that its client had given up was still written, and its body was outside the budget: who tried again waited behind
/// what it had given up.
#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_written_and_stays_in_the_budget_until_it_is_forgotten() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let store = holdfast::Store::open(dir.path(), holdfast::Options::default()).unwrap();
    let mut options = crate::http::Options::new("127.0.0.1:0".parse().unwrap());
    options.limits = crate::http::Limits { answer_timeout: Duration::from_millis(1), ..crate::http::Limits::tiny() };
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let shared = Arc::new(Shared::new(store, options, stopped).unwrap());
    // What keeps the only thread busy.
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let act = Box::new(move |_: &Store| {
        may_go_on.recv().unwrap();
        Done { wanted: None, tell: Box::new(|_| ()) }
    });
    shared.writers.push(Job { bytes: 0, act });
    let all = usize::try_from(shared.options.limits.bodies_bytes_max).unwrap();
    let mut share = Share::default();
    shared.budget.grow(&mut share, all / 2).unwrap();
    let was_read = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&was_read);
    let read = move |_: &mut Intake<'_>, _: &[u8]| -> Result<(), ()> {
        noted.store(true, Ordering::SeqCst);
        Ok(())
    };
    let points = super::Points { database: DATABASE.to_owned(), typing: Typing::Strict, encoding: Encoding::Plain };
    let request = Request { shared: Arc::clone(&shared), points, sent: b"m v=1 1".to_vec(), _share: share, read };
    assert!(request.take_here(None).await.is_err(), "it takes too long");
    assert!(shared.budget.grow(&mut Share::default(), all).is_err(), "its body is still there");
    go_on.send(()).unwrap();
    let (told, tells) = tokio::sync::oneshot::channel();
    let tell = Box::new(move |_: holdfast::Result<()>| told.send(()).unwrap());
    shared.writers.push(Job { bytes: 0, act: Box::new(move |_: &Store| Done { wanted: None, tell }) });
    tells.await.unwrap();
    assert!(!was_read.load(Ordering::SeqCst), "nobody wants to know");
    shared.budget.grow(&mut Share::default(), all).expect("it is forgotten");
    shared.stop();
}

/// A body of 60 MB that is one name, and compressed is 60 KB, left 120 MB with each thread that reads; lines that are bad left names
/// as long as there were no points.
#[test]
fn names_that_bodies_leave_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), holdfast::Options::default()).unwrap();
    let options = crate::http::Options::new("127.0.0.1:0".parse().unwrap());
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let shared = Shared::new(store.clone(), options, stopped).unwrap();
    let intake = || Intake::new(&shared, &store, DATABASE, Typing::Strict);
    let unit = crate::line::Unit::Nanos(1);
    let mut reader = intake();
    let long = format!("m,t={} f=1", "a".repeat(2 << 20));
    super::influx::lines(&mut reader, long.as_bytes(), unit).unwrap();
    assert_eq!(
        reader.outcome.malformed.first().map(|one| one.reason.as_ref()),
        Some("the name of a series has at most 1048576 bytes with its tags, not 2097156")
    );
    assert!(reader.kit.rows.name_bytes() < 1 << 20);
    for from in (0..200_000).step_by(10_000) {
        let lines: Vec<u8> =
            (from..from + 10_000).flat_map(|nth| [format!("m,t={nth} ").as_bytes(), b"\xff=1\n"].concat()).collect();
        super::influx::lines(&mut reader, &lines, unit).unwrap();
        let name_bytes = reader.kit.rows.name_bytes();
        assert!(name_bytes < 32 << 20, "{name_bytes} bytes of names");
    }
    let outcome = reader.end().unwrap();
    assert_eq!((outcome.malformed_count, outcome.written), (200_001, 0));
    assert_eq!(intake().kit.name.capacity(), 0, "memory for one line is not kept");
    shared.stop();
}
