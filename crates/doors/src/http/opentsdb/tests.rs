//! OpenTSDB's questions over HTTP, as its clients send them.

use std::sync::Arc;

use holdfast::series::{FIELD_DEFAULT, Rows, Source, ValueRef};
use serde_json::{Value as Json, json};

use super::super::Limits;
use super::super::tests_client::{Answer, Door, open_with};
use crate::auth::{BucketRight, Right, User, Users, hash_password};

fn door() -> Door {
    open_with(holdfast::Limits::default(), |options| options.limits = Limits::default())
}

/// Writes points to series named as `metric host=a`, times in seconds.
fn write(door: &Door, database: &str, series: &str, points: &[(i64, ValueRef<'_>)]) {
    let mut rows = Rows::new(database);
    let (metric, tags) = series.split_once(' ').unwrap();
    let tags: Vec<_> = tags.split(',').filter_map(|tag| tag.split_once('=')).collect();
    let tags = tags.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let row = rows.row(series.as_bytes(), |_| Ok((metric.to_owned(), tags))).unwrap();
    let slot = rows.field(row, 0, FIELD_DEFAULT.as_bytes(), |_| Ok(FIELD_DEFAULT.to_owned())).unwrap();
    for (seconds, value) in points {
        rows.push(slot, seconds * 1_000_000_000, *value);
    }
    assert_eq!(door.store.series().write(&mut rows).unwrap().refused, []);
}

pub(super) fn two_hosts() -> Door {
    let door = door();
    let whole = |value| ValueRef::Integer(value);
    write(&door, "default", "sys.cpu dc=lga,host=web01", &[(100, whole(5)), (120, whole(10)), (140, whole(20))]);
    write(&door, "default", "sys.cpu dc=lga,host=web02", &[(110, whole(10)), (130, whole(20))]);
    write(&door, "default", "sys.mem host=web01", &[(100, ValueRef::Float(1.5)), (160, ValueRef::Float(f64::NAN))]);
    write(&door, "plant", "oven.heat unit=C", &[(100, ValueRef::Float(0.1))]);
    door
}

fn post(door: &Door, path: &str, body: &str) -> Answer {
    // The content type that Java's HttpURLConnection sends unless it is told another.
    let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("accept", "*/*")];
    door.send(&format!("POST {path}"), &headers, Some(body.as_bytes()))
}

fn error_of(answer: &Answer) -> (u16, String) {
    let told = answer.json();
    assert_eq!(told["error"]["code"], answer.status);
    assert!(told["error"]["details"].is_string());
    (answer.status, told["error"]["message"].as_str().unwrap().to_owned())
}

#[test]
fn points_are_read_in_every_way_that_clients_ask() {
    let door = two_hosts();
    let answer = door.get("/api/query?start=100&end=140&m=sum:sys.cpu%7Bhost=*%7D");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json; charset=UTF-8"));
    assert_eq!(
        answer.text(),
        concat!(
            r#"[{"metric":"sys.cpu","tags":{"dc":"lga","host":"web01"},"aggregateTags":[],"dps":{"100":5,"120":10,"140":20}},"#,
            r#"{"metric":"sys.cpu","tags":{"dc":"lga","host":"web02"},"aggregateTags":[],"dps":{"110":10,"130":20}}]"#,
        )
    );
    // Braces as they are, several m, arrays in milliseconds.
    let answer = door.get("/api/query?start=100&end=140&arrays&ms&m=sum:sys.cpu{host=web01}&m=avg:20s-avg:sys.cpu");
    let found = answer.json();
    assert_eq!(found[0]["dps"], json!([[100_000, 5], [120_000, 10], [140_000, 20]]));
    assert_eq!(found[1]["dps"], json!([[100_000, 7.5], [120_000, 15.0], [140_000, 20.0]]));
    assert_eq!(found[1]["aggregateTags"], json!(["host"]));

    let body = r#"{"start":99.999,"end":"140.001","msResolution":true,"queries":[{"aggregator":"none","metric":"sys.cpu",
        "tags":{"host":"web01|web02"},"downsample":"0all-count"}]}"#;
    let found = post(&door, "/api/query?summary", body).json();
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!((&found[0]["dps"], &found[1]["dps"]), (&json!({ "99999": 3.0 }), &json!({ "99999": 2.0 })));
    let answer = door.get("/api/query?start=100&end=200&m=sum:sys.mem");
    assert!(answer.text().ends_with(r#""dps":{"100":1.5,"160":"NaN"}}]"#), "{answer:?}");
    assert_eq!(door.get("/api/query?start=100&db=plant&m=sum:oven.heat").json()[0]["dps"], json!({ "100": 0.1 }));
    assert_eq!(door.send("HEAD /api/query?start=100&m=sum:sys.cpu", &[], None).status, 200);
}

#[test]
fn what_cannot_be_answered_is_told_as_opentsdb_tells_it() {
    let door = two_hosts();
    let (status, message) = error_of(&door.get("/api/query?start=1h-ago&m=sum:no.such"));
    assert_eq!((status, message.as_str()), (400, "No such name for 'metrics': 'no.such'"));
    for (answer, wanted) in [
        (door.get("/api/query?m=sum:sys.cpu"), "Missing start time"),
        (door.get("/api/query?start=1h-ago&m=some:sys.cpu"), "No such aggregator: some"),
        (door.get("/api/query?start=1h-ago&m=sum:%ff"), "UTF-8"),
        (door.get("/api/query/last"), "Missing queries"),
        (door.get("/api/suggest?type=x"), "Invalid 'type' parameter:x"),
        (door.get("/api/search/lookup"), "Missing parameter m"),
        (door.get("/api/uid/assign"), "Missing names"),
        (post(&door, "/api/query", ""), "Missing request content"),
        (post(&door, "/api/query", "{"), "Unable to parse the given JSON"),
        (post(&door, "/api/query", "[]"), "it must be an object"),
        (post(&door, "/api/query", r#"{"start":1,"queries":[{"aggregator":"sum","metric":"x"}]}"#), "'metrics': 'x'"),
        (post(&door, "/api/query/last", "{}"), "Missing queries"),
    ] {
        let (status, message) = error_of(&answer);
        assert!(status == 400 && message.contains(wanted), "{wanted}: {message}");
    }
    let answer = door.send("PUT /api/query", &[], Some(b""));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET,HEAD,POST,DELETE")));
}

#[test]
fn last_points_names_and_series_are_found() {
    let door = two_hosts();
    let found = door.get("/api/query/last?timeseries=sys.cpu{host=web02}&resolve=true&back_scan=24").json();
    assert_eq!((&found[0]["timestamp"], &found[0]["value"]), (&json!(130_000), &json!("20")));
    assert_eq!(found[0]["tags"], json!({ "dc": "lga", "host": "web02" }));
    let id = found[0]["tsuid"].as_str().unwrap().to_owned();
    let body = format!(r#"{{"queries":[{{"tsuids":["{id}"]}},{{"metric":"sys.mem"}}]}}"#);
    let found = post(&door, "/api/query/last", &body).json();
    assert_eq!((&found[0]["value"], &found[1]["value"]), (&json!("20"), &json!("NaN")));
    assert!(found[0].get("metric").is_none());
    let by_id = door.get(&format!("/api/query?start=100&end=140&tsuid=sum:{id}")).json();
    assert_eq!(by_id[0]["dps"], json!({ "110": 10, "130": 20 }));

    assert_eq!(door.get("/api/suggest?type=metrics&q=sys&max=1000").json(), json!(["sys.cpu", "sys.mem"]));
    assert_eq!(door.get("/api/suggest?type=metrics&db=plant").json(), json!(["oven.heat"]));
    assert_eq!(post(&door, "/api/suggest", r#"{"type":"tagv","q":"web","max":1}"#).json(), json!(["web01"]));
    let found = door.get("/api/search/lookup?m=sys.cpu{host=*}&limit=1000").json();
    assert_eq!((&found["totalResults"], &found["results"][1]["tags"]["host"]), (&json!(2), &json!("web02")));
    let found = post(&door, "/api/search/lookup", r#"{"metric":"*","tags":[{"key":"host","value":"web01"}]}"#).json();
    assert_eq!(found["totalResults"], 2);
}

#[test]
fn what_is_asked_of_the_server_itself_has_the_shapes_that_clients_know() {
    let door = door();
    let aggregators = door.get("/api/aggregators").json();
    for name in ["none", "sum", "zimsum", "mimmax", "squareSum", "p999", "ep50r3", "ep999r7"] {
        assert!(aggregators.as_array().unwrap().contains(&json!(name)), "{name}");
    }
    let filters = door.get("/api/config/filters").json();
    for name in
        ["literal_or", "iliteral_or", "not_literal_or", "not_iliteral_or", "wildcard", "iwildcard", "regexp", "not_key"]
    {
        assert!(filters[name]["examples"].is_string() && filters[name]["description"].is_string(), "{name}");
    }
    assert_eq!(door.get("/api/version").json()["version"], "2.4.0");
    assert!(door.get("/api/config").json().as_object().unwrap().values().all(Json::is_string));
    let stats = door.get("/api/stats").json();
    assert!(stats.as_array().unwrap().iter().all(|point| point["metric"].is_string() && point["value"].is_string()));
    let assigned = post(&door, "/api/uid/assign", r#"{"metric":["sys.cpu.0","sys.cpu.1"],"tagk":["host"]}"#).json();
    assert_eq!(assigned["metric"].as_object().unwrap().len(), 2);
    assert_eq!(door.get("/api/uid/assign?metric=sys.cpu.0&tagk=host").json()["tagk"], assigned["tagk"]);
}

#[test]
fn points_that_are_deleted_are_answered_once_more() {
    let door = two_hosts();
    let answer = door.send("DELETE /api/query?start=100&end=120&m=sum:sys.cpu{host=web01}", &[], None);
    assert_eq!((answer.status, &answer.json()[0]["dps"]), (200, &json!({ "100": 5, "120": 10 })));
    let left = |door: &Door| door.get("/api/query?start=100&end=200&m=none:sys.cpu").json();
    assert_eq!(left(&door)[0]["dps"], json!({ "140": 20 }));
    assert_eq!(left(&door)[1]["dps"], json!({ "110": 10, "130": 20 }));
    let body = r#"{"start":100,"end":200,"queries":[{"aggregator":"sum","metric":"sys.cpu","tags":{"host":"web02"}}]}"#;
    let answer = door.send("DELETE /api/query", &[], Some(body.as_bytes()));
    assert_eq!(answer.json()[0]["dps"], json!({ "110": 10, "130": 20 }));
    assert_eq!(left(&door).as_array().unwrap().len(), 1);
    let body = r#"{"start":100,"end":200,"delete":true,"queries":[{"aggregator":"sum","metric":"sys.cpu"}]}"#;
    assert_eq!(post(&door, "/api/query", body).json()[0]["dps"], json!({ "140": 20 }));
    assert_eq!(left(&door), json!([]));
}

#[test]
fn a_long_answer_comes_whole_in_chunks() {
    let door = door();
    let points: Vec<_> = (0..60_000).map(|second| (second, ValueRef::Float(second as f64 / 8.0))).collect();
    write(&door, "default", "long a=b", &points);
    let answer = door.get("/api/query?start=0&end=60000&arrays&m=none:long");
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let found = answer.json();
    let found = found[0]["dps"].as_array().unwrap();
    assert_eq!((found.len(), &found[59_999]), (60_000, &json!([59_999, 7_499.875])));
}

#[test]
fn what_was_put_is_read() {
    let door = door();
    let body = r#"[{"metric":"g_0","timestamp":1535558400000,"value":1,"tags":{"device":"d_0","sensor":"s_0"}},
        {"metric":"g_0","timestamp":1535558405000,"value":2,"tags":{"device":"d_0","sensor":"s_0"}},
        {"metric":"g_0","timestamp":1535558405000,"value":0.1,"tags":{"device":"d_1","sensor":"s_0"}}]"#;
    assert_eq!(post(&door, "/api/put?summary", body).status, 200);
    let body = r#"{"msResolution":true,"start":1535558399999,"end":1535558405001,"queries":[
        {"aggregator":"none","metric":"g_0","tags":{"device":"d_0|d_1","sensor":"s_0"}}]}"#;
    let found = post(&door, "/api/query", body);
    assert_eq!(
        found.text(),
        concat!(
            r#"[{"metric":"g_0","tags":{"device":"d_0","sensor":"s_0"},"aggregateTags":[],"#,
            r#""dps":{"1535558400000":1,"1535558405000":2}},"#,
            r#"{"metric":"g_0","tags":{"device":"d_1","sensor":"s_0"},"aggregateTags":[],"dps":{"1535558405000":0.1}}]"#,
        )
    );
}

#[test]
fn users_see_the_databases_they_may() {
    let right = |pattern: &str, right| BucketRight { pattern: pattern.to_owned(), right };
    let user = |name: &str, buckets: Vec<BucketRight>| User {
        name: name.to_owned(),
        password_hash: hash_password(b"p").unwrap(),
        doors: Vec::new(),
        buckets,
    };
    let users = Users::new([user("a", vec![right("plant", Right::Read)]), user("b", vec![right("*", Right::Write)])]);
    let door = open_with(holdfast::Limits::default(), |options| {
        options.limits = Limits::default();
        options.users = Arc::new(users.unwrap());
    });
    write(&door, "default", "m a=b", &[(1, ValueRef::Integer(1))]);
    write(&door, "plant", "m a=b", &[(1, ValueRef::Integer(2))]);
    // "a:p" and "b:p", as Basic has them.
    let ask = |method: &str, path: &str, user: &str| {
        let user = if user == "a" { "Basic YTpw" } else { "Basic Yjpw" };
        door.send(&format!("{method} {path}"), &[("Authorization", user)], None)
    };
    assert_eq!(ask("GET", "/api/query?start=1&end=2&m=sum:m&db=plant", "a").json()[0]["dps"], json!({ "1": 2 }));
    assert_eq!(error_of(&ask("GET", "/api/query?start=1&end=2&m=sum:m", "a")).0, 403);
    assert_eq!(error_of(&ask("DELETE", "/api/query?start=1&end=2&m=sum:m&db=plant", "a")).0, 403);
    assert_eq!(ask("DELETE", "/api/query?start=1&end=2&m=sum:m&db=plant", "b").status, 200);
    assert_eq!(ask("GET", "/api/query?start=1&end=2&m=sum:m&db=plant", "a").json(), json!([]));
    assert_eq!(ask("GET", "/api/aggregators", "a").status, 200);
    assert_eq!(door.get("/api/suggest?type=metrics").status, 401);
}

#[test]
fn questions_may_be_compressed() {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    let door = two_hosts();
    let body = r#"{"start":100,"end":140,"queries":[{"aggregator":"sum","metric":"sys.cpu"}]}"#;
    let wanted = post(&door, "/api/query", body);
    assert_eq!(wanted.status, 200);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(body.as_bytes()).unwrap();
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
    deflate.write_all(body.as_bytes()).unwrap();
    let sent = |encoding: &str, body: &[u8]| {
        door.send(
            "POST /api/query",
            &[("Content-Encoding", encoding), ("Content-Type", "application/json")],
            Some(body),
        )
    };
    for (encoding, body) in
        [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap()), ("deflate", deflate.finish().unwrap())]
    {
        let answer = sent(encoding, &body);
        assert_eq!((answer.status, answer.text()), (200, wanted.text()), "{encoding}");
        assert_eq!(error_of(&sent(encoding, body.get(..body.len() / 2).unwrap())).0, 400);
    }
    let (status, text) = error_of(&sent("br", body.as_bytes()));
    assert_eq!((status, text.contains("gzip, deflate")), (415, true), "{text}");
}

/// Every way in says why.
#[test]
fn numbers_that_doubles_do_not_reach_are_refused_wherever_they_come_in() {
    let door = door();
    let reason = "it is out of range: doubles reach from -1.7976931348623157e308 to 1.7976931348623157e308";
    for (path, body) in [
        ("/api/put?details", r#"[{"metric":"m","timestamp":1,"value":1e400,"tags":{"a":"b"}}]"#),
        ("/api/put?details", r#"[{"metric":"m","timestamp":1,"value":"-1e400","tags":{"a":"b"}}]"#),
        ("/api/put?details", "put m 1 1e400 a=b"),
        ("/write", "m,a=b v=1e400 1"),
        ("/write", "m,a=b v=-1e400 1"),
        ("/api/v1/import/prometheus", "m{a=\"b\"} 1e400"),
    ] {
        let answer = door.send(&format!("POST {path}"), &[], Some(body.as_bytes()));
        assert_eq!(answer.status, 400, "{path} {body}: {}", answer.text());
        assert!(answer.text().contains(reason), "{path} {body}: {}", answer.text());
    }
    assert!(door.store.series().reader().databases().unwrap().is_empty(), "nothing was stored");
}
