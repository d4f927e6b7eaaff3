//! Everything that Grafana's OpenTSDB data source sends, for each version of OpenTSDB that it can be told (1: up to 2.1, 2: 2.2, 3: 2.3,
//! 4: 2.4), and each answer decoded as strictly as it decodes it.
//!
//! Queries come from its backend (Go's HTTP client: seconds, a query each, `arrays=true` for 2.4), from browsers of older versions
//! (milliseconds, all queries in one, `msResolution`, `globalAnnotations`, for 2.3 `showQuery`), names from the same paths in both.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::super::tests_client::{Answer, Door};
use super::tests::two_hosts;

/// One series as Grafana has it: its name, labels, tags that were aggregated, and points.
#[derive(Debug, PartialEq)]
struct Frame {
    metric: String,
    tags: BTreeMap<String, String>,
    aggregated: Vec<String>,
    points: Vec<(i64, f64)>,
}

/// Goes by its client, byte for byte.
fn go(door: &Door, line: &str, body: Option<&str>) -> Answer {
    let head = format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:7412\r\nUser-Agent: Grafana/12.1.0\r\n");
    let request = match body {
        None => format!("{head}Accept-Encoding: gzip\r\n\r\n"),
        Some(body) => format!(
            "{head}Content-Length: {}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n{body}",
            body.len()
        ),
    };
    let bytes = door.say_bytes(request.as_bytes());
    let (answer, rest) = Answer::take(&bytes, false);
    assert_eq!(rest, b"", "after {answer:?}");
    // Its client unpacks gzip, and nothing else.
    assert!(answer.header("content-encoding").is_none_or(|encoding| encoding == "gzip"));
    answer
}

/// What Go makes of a number: `null` is its zero, a text is an error.
fn number(value: &Json) -> f64 {
    if value.is_null() { 0.0 } else { value.as_f64().unwrap_or_else(|| panic!("{value} is no number")) }
}

/// `ParseResponse`.
fn frames(answer: &Answer, version: u8) -> Vec<Frame> {
    assert_eq!(answer.status / 100, 2, "{answer:?}");
    let text = |value: &Json| value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned();
    let frame = |series: &Json| {
        let tags = series["tags"].as_object().expect("tags are an object");
        let points = if version == 4 {
            let pair = |pair: &Json| (pair[0].as_i64().expect("a time is a number"), number(&pair[1]));
            series["dps"].as_array().expect("arrays").iter().map(pair).collect()
        } else {
            let by_time = series["dps"].as_object().expect("an object");
            let mut points: Vec<(i64, f64)> =
                by_time.iter().map(|(time, value)| (time.parse().expect("ParseInt"), number(value))).collect();
            points.sort_by_key(|(time, _)| *time);
            points
        };
        Frame {
            metric: text(&series["metric"]),
            tags: tags.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            aggregated: series["aggregateTags"].as_array().expect("a list").iter().map(text).collect(),
            points,
        }
    };
    answer.json().as_array().expect("a list").iter().map(frame).collect()
}

/// What the backend asks, for a version.
fn query(door: &Door, version: u8, query: &Json) -> Vec<Frame> {
    let body = json!({ "start": 100, "end": 140, "queries": [query] }).to_string();
    let path = if version == 4 { "POST /api/query?arrays=true" } else { "POST /api/query" };
    frames(&go(door, path, Some(&body)), version)
}

#[test]
fn the_backend_of_every_version_is_answered() {
    let door = two_hosts();
    for version in 1..=4 {
        let plain =
            query(&door, version, &json!({"aggregator": "none", "metric": "sys.cpu", "tags": {"host": "web01"}}));
        let tags = |host: &str| [("dc", "lga"), ("host", host)].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        assert_eq!(
            plain,
            [Frame {
                metric: "sys.cpu".to_owned(),
                tags: tags("web01"),
                aggregated: Vec::new(),
                points: vec![(100, 5.0), (120, 10.0), (140, 20.0)],
            }]
        );
        let downsampled = |downsample: &str| {
            let mut found =
                query(&door, version, &json!({"aggregator": "sum", "downsample": downsample, "metric": "sys.cpu"}));
            assert_eq!((found.len(), &found[0].aggregated[..]), (1, &["host".to_owned()][..]));
            found.remove(0).points
        };
        assert_eq!(downsampled("20s-avg"), [(100, 15.0), (120, 30.0), (140, 20.0)]);
        // Filled with what Go takes for zero. `nan` is a text in JSON: Grafana fails on it, with OpenTSDB as here.
        for fill in ["null", "zero"] {
            assert_eq!(
                downsampled(&format!("10000ms-avg-{fill}")),
                [(100, 5.0), (110, 10.0), (120, 10.0), (130, 20.0), (140, 20.0)]
            );
        }
        let rate = json!({"aggregator": "avg", "metric": "sys.cpu", "rate": true,
            "rateOptions": {"counter": false, "dropResets": true}, "tags": {"host": "web02"}});
        assert_eq!(query(&door, version, &rate)[0].points, [(130, 0.5)]);
        let counter = json!({"aggregator": "avg", "metric": "sys.cpu", "rate": true,
            "rateOptions": {"counter": true, "counterMax": 100.5, "resetValue": 0.25}, "tags": {"host": "web02"}});
        assert_eq!(query(&door, version, &counter)[0].points, [(130, 0.5)]);
        let filters = json!({"aggregator": "max", "explicitTags": true, "metric": "sys.cpu", "downsample": "1m-max",
            "filters": [{"type": "wildcard", "tagk": "host", "filter": "web*", "groupBy": true},
                {"filter": "lga|fra", "groupBy": false, "tagk": "dc", "type": "literal_or"}]});
        let found = query(&door, version, &filters);
        let hosts: Vec<&str> = found.iter().map(|frame| frame.tags["host"].as_str()).collect();
        assert_eq!(hosts, ["web01", "web02"]);
        // What is refused has no status of success, and that is all that it looks at.
        let unknown = json!({ "start": 1, "end": 2, "queries": [{"aggregator": "sum", "metric": "no.such"}] });
        assert_eq!(go(&door, "POST /api/query", Some(&unknown.to_string())).status, 400);
    }
}

#[test]
fn browsers_are_answered() {
    let door = two_hosts();
    for version in 1..=3 {
        for is_fine in [false, true] {
            let mut body = json!({
                "start": 100_000_000_000_i64, "end": 140_000_000_000_i64, "msResolution": is_fine,
                "globalAnnotations": true,
                "queries": [
                    {"metric": "sys.mem", "aggregator": "sum", "tags": {}},
                    {"metric": "sys.cpu", "aggregator": "sum", "downsample": "20s-avg", "tags": {"host": "web01|web02"},
                        "rate": true, "rateOptions": {"counter": false, "dropResets": true}},
                ],
            });
            // Times of today are thirteen digits; these of the seventies are seconds.
            (body["start"], body["end"]) = (json!(100), json!(140));
            if version == 3 {
                body["showQuery"] = json!(true);
            }
            let answer = go(&door, "POST /api/query", Some(&body.to_string()));
            let found = frames(&answer, version);
            assert_eq!(found.len(), 3);
            let unit = if is_fine { 1000 } else { 1 };
            assert_eq!(found[0].points, [(100 * unit, 1.5)]);
            // Which target a series belongs to: its index in 2.3, its metric and tags before.
            if version == 3 {
                let indexes: Vec<Json> =
                    answer.json().as_array().unwrap().iter().map(|series| series["query"]["index"].clone()).collect();
                assert_eq!(indexes, [0, 1, 1]);
            }
        }
    }
    // Annotations: there are none, and no members that would say so.
    let body = r#"{"start":1,"queries":[{"aggregator":"sum","metric":"sys.cpu"}],"msResolution":false,"globalAnnotations":true,"end":200}"#;
    let first = go(&door, "POST /api/query", Some(body)).json()[0].clone();
    assert!(first.get("annotations").is_none() && first.get("globalAnnotations").is_none(), "{first}");
    let by_url = door.get("/api/query?start=100&show_query&m=sum:sys.mem&m=sum:20s-avg:sys.cpu").json();
    assert_eq!((&by_url[0]["query"]["index"], &by_url[1]["query"]["index"]), (&json!(0), &json!(1)));
    assert_eq!(by_url[1]["query"]["m"], "sum:20s-avg:sys.cpu");
}

#[test]
fn names_are_found_as_its_editor_asks_for_them() {
    let door = two_hosts();
    let texts = |path: &str| {
        let answer = go(&door, &format!("GET {path}"), None);
        assert_eq!(answer.status, 200, "{path}");
        let list: Vec<String> = serde_json::from_value(answer.json()).expect("a list of texts");
        list
    };
    // Health.
    assert!(texts("/api/suggest?q=cpu&type=metrics").is_empty());
    assert_eq!(texts("/api/suggest?type=metrics&q=sys&max=1000"), ["sys.cpu", "sys.mem"]);
    assert_eq!(texts("/api/suggest?type=tagk&q=&max=1000"), ["dc", "host"]);
    assert_eq!(texts("/api/suggest?type=tagv&q=web&max=1000"), ["web01", "web02"]);
    assert!(texts("/api/aggregators").contains(&"zimsum".to_owned()));
    // The types of filters are the names of an object.
    let filters = go(&door, "GET /api/config/filters", None).json();
    assert!(filters.as_object().is_some_and(|filters| filters.contains_key("literal_or")));
    // `tag_names(sys.cpu)`, `tag_values(sys.cpu, host)`, `tag_values(sys.cpu, host, dc=lga)`.
    let lookup = |m: &str, tag: &str| {
        let found = go(&door, &format!("GET /api/search/lookup?m={m}&limit=1000"), None).json();
        let results = found["results"].as_array().expect("a list").clone();
        results.iter().map(|series| series["tags"][tag].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(lookup("sys.cpu", "host"), ["web01", "web02"]);
    assert_eq!(lookup("sys.cpu%7Bhost%3D*%7D", "host"), ["web01", "web02"]);
    assert_eq!(lookup("sys.cpu%7Bhost%3D*,dc%3Dlga%7D", "host"), ["web01", "web02"]);
    assert_eq!(lookup("sys.cpu{host=*,dc=fra}", "host"), Vec::<String>::new());
}
