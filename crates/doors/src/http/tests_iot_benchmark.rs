//! Everything that iot-benchmark's adapters `opentsdb`, `influxdb` and `victoriametrics` send, byte for byte, from clean-up to clean-up;
//! each answer is read as the adapter reads it.
//!
//! The first and the last use Java's `HttpURLConnection`, which sends a form's content type whatever the body is and fails on any status
//! from 400 on; `influxdb` uses influxdb-java 2.7, which is OkHttp, and looks for the version in a ping.

use serde_json::{Value as Json, json};

use super::Limits;
use super::tests_client::{Answer, Door, open_with};

/// What `HttpURLConnection` sends before the body.
const JAVA: &str = "accept: */*\r\nconnection: Keep-Alive\r\nuser-agent: Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1;SV1)\r\n\
                    Host: 127.0.0.1:7412\r\n";
const OKHTTP: &str =
    "Host: 127.0.0.1:7412\r\nConnection: Keep-Alive\r\nAccept-Encoding: gzip\r\nUser-Agent: okhttp/3.7.0\r\n";
/// The benchmark's first moment, in milliseconds, and its distance of points.
const START: i64 = 1_535_558_400_000;
const STEP: i64 = 5_000;

fn door() -> Door {
    open_with(holdfast::Limits::default(), |options| options.limits = Limits::default())
}

/// One answer to these bytes.
fn say(door: &Door, request: &str) -> Answer {
    let bytes = door.say_bytes(request.as_bytes());
    let (answer, rest) = Answer::take(&bytes, false);
    assert_eq!(rest, b"", "after {answer:?}");
    answer
}

/// `HttpRequest.sendPost` and `sendDelete`: what fails throws, and the benchmark counts it as a failure.
fn java(door: &Door, line: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\n{JAVA}Content-type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = say(door, &request);
    assert!(answer.status < 400, "{line}: {answer:?}");
    answer.text().to_owned()
}

const FORM: &str = "application/x-www-form-urlencoded";

fn java_get(door: &Door, path: &str) -> Json {
    let answer = say(door, &format!("GET {path} HTTP/1.1\r\n{JAVA}\r\n"));
    assert!(answer.status < 400, "{path}: {answer:?}");
    answer.json()
}

/// Two devices with two sensors each, ten points each, as `JSON.toJSONString` of the adapter's models writes them.
fn opentsdb_batch(device: &str) -> String {
    let mut models = Vec::new();
    for nth in 0..10 {
        for (sensor, value) in [("s_0", format!("{nth}.25")), ("s_1", format!("{}", nth * 7))] {
            models.push(format!(
                r#"{{"metric":"group_0","tags":{{"sensor":"{sensor}","device":"{device}"}},"timestamp":{},"value":{value}}}"#,
                START + nth * STEP
            ));
        }
    }
    format!("[{}]", models.join(","))
}

/// `getOneQueryPointNum`.
fn opentsdb_points(door: &Door, query: &str, is_latest: bool) -> usize {
    let answer: Json = serde_json::from_str(&java(door, "POST /api/query", FORM, query)).expect("JSON.parseArray");
    let groups = answer.as_array().expect("a list");
    if is_latest {
        return groups.len();
    }
    groups.iter().map(|group| group["dps"].as_object().expect("getJSONObject").len()).sum()
}

#[test]
fn the_opentsdb_adapter_is_answered() {
    let door = door();
    for device in ["d_0", "d_1"] {
        java(&door, "POST /api/put?summary", FORM, &opentsdb_batch(device));
    }
    // `queries` of all kinds have the downsample `0all-count` unless the kind sets another.
    let query = |range: (i64, i64), aggregator: &str, downsample: &str, tags: &str| {
        format!(
            r#"{{"msResolution":true,"start":{},"end":{},"queries":[{{"downsample":"{downsample}","metric":"group_0","aggregator":"{aggregator}","tags":{tags}}}]}}"#,
            range.0 - 1,
            range.1 + 1
        )
    };
    let (one, both) = (r#"{"sensor":"s_0","device":"d_0"}"#, r#"{"sensor":"s_1|s_0","device":"d_0|d_1"}"#);
    let all = (START, START + 9 * STEP);
    let precise = (START + STEP, START + STEP);
    for (range, aggregator, downsample, tags, points) in [
        (precise, "none", "0all-count", one, 1),
        (precise, "none", "0all-count", both, 4),
        (all, "none", "0all-count", one, 1),
        (all, "none", "0all-count", both, 4),
        (all, "count", "0all-count", one, 1),
        (all, "avg", "0all-count", both, 4),
        (all, "count", "20000ms-count", one, 3),
        (all, "sum", "20000ms-sum", both, 12),
        // Nothing is there.
        ((1_000, 2_000), "none", "0all-count", one, 0),
    ] {
        let query = query(range, aggregator, downsample, tags);
        assert_eq!(opentsdb_points(&door, &query, false), points, "{query}");
    }
    assert_eq!(opentsdb_points(&door, &query(all, "none", "0all-last", one), true), 1);
    assert_eq!(opentsdb_points(&door, &query(all, "none", "0all-last", both), true), 4);
    // What is counted is what was written.
    let counted = java(&door, "POST /api/query", FORM, &query(all, "none", "0all-count", one));
    assert_eq!(
        counted,
        r#"[{"metric":"group_0","tags":{"device":"d_0","sensor":"s_0"},"aggregateTags":[],"dps":{"1535558399999":10.0}}]"#
    );
    let last = java(&door, "POST /api/query", FORM, &query(all, "none", "0all-last", one));
    assert!(last.ends_with(r#""dps":{"1535558399999":9.25}}]"#), "{last}");

    let clean_up = format!("DELETE /api/query?start={START}&m=sum:1ms-sum:group_0");
    java(&door, &clean_up, FORM, "");
    assert_eq!(opentsdb_points(&door, &query(all, "none", "0all-count", both), false), 0);
    java(&door, &clean_up, FORM, "");
    java(&door, "POST /api/put?summary", FORM, &opentsdb_batch("d_0"));
    assert_eq!(opentsdb_points(&door, &query(all, "none", "0all-last", both), true), 2);
}

/// A call of OkHttp with an empty body or none; `isSuccessful`, and Moshi's `QueryResult`.
fn okhttp(door: &Door, line: &str) -> Json {
    let announced = if line.starts_with("POST") { "Content-Length: 0\r\n" } else { "" };
    let answer = say(door, &format!("{line} HTTP/1.1\r\n{announced}{OKHTTP}\r\n"));
    assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
    assert_eq!(answer.header("content-encoding"), None, "it may be gzip, and is not");
    let result = answer.json();
    for result in result["results"].as_array().expect("results are a list") {
        for series in result["series"].as_array().into_iter().flatten() {
            let texts = |list: &Json| list.as_array().is_some_and(|list| list.iter().all(Json::is_string));
            assert!(series["name"].is_string() && texts(&series["columns"]), "{series}");
            let columns = series["columns"].as_array().map_or(0, Vec::len);
            let is_row = |row: &Json| row.as_array().is_some_and(|row| row.len() == columns);
            assert!(series.get("values").is_none_or(|all| all.as_array().is_some_and(|all| all.iter().all(is_row))));
        }
    }
    result
}

/// `executeQueryAndGetStatus`: values without times.
fn influx_points(door: &Door, sql: &str) -> usize {
    let encoded: String = sql
        .chars()
        .map(|char| match char {
            ' ' => "+".to_owned(),
            char if char.is_ascii_alphanumeric() || "_.-*".contains(char) => char.to_string(),
            char => format!("%{:02X}", u32::from(char)),
        })
        .collect();
    let result = okhttp(door, &format!("GET /query?db=test&q={encoded}"));
    let mut count = 0;
    for result in result["results"].as_array().expect("a list") {
        assert!(result.get("error").is_none(), "{sql}: {result}");
        for series in result["series"].as_array().into_iter().flatten() {
            let columns = series["columns"].as_array().expect("a list").len();
            count += series["values"].as_array().expect("a list").len() * (columns - 1);
        }
    }
    count
}

#[test]
fn the_influxdb_adapter_is_answered() {
    let door = door();
    let databases = || okhttp(&door, "GET /query?q=SHOW+DATABASES")["results"][0]["series"][0]["values"].clone();
    let has_test = || databases().as_array().is_some_and(|all| all.contains(&json!(["test"])));
    // Cleaning up: `databaseExists`, which reads `series[0].values` of an empty list too.
    assert!(!has_test());
    // `createDatabase` asks for the version first.
    let ping = say(&door, &format!("GET /ping HTTP/1.1\r\n{OKHTTP}\r\n"));
    assert!(ping.header("x-influxdb-version").is_some_and(|version| !version.starts_with("0.")), "{ping:?}");
    let created = okhttp(&door, "POST /query?q=CREATE+DATABASE+%22test%22");
    assert_eq!(created, json!({"results": [{"statement_id": 0}]}));
    assert!(has_test());

    for device in ["d_0", "d_1"] {
        // Types of the benchmark: boolean, int32, int64, float, double, text.
        let line = |nth: i64| {
            format!(
                "group_0,device={device} s_0={nth}.5,s_1={}i,s_2={},s_3=\"text {nth}\",s_4=-{nth}.125 {}\n",
                nth * 1_000_000_007,
                nth % 2 == 0,
                (START + nth * STEP) * 1_000_000
            )
        };
        let body: String = (0..10).map(line).collect();
        let request = format!(
            "POST /write?db=test&rp=autogen&precision=n&consistency=all HTTP/1.1\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\n{OKHTTP}\r\n{body}",
            body.len()
        );
        let answer = say(&door, &request);
        assert_eq!((answer.status, answer.text()), (204, ""));
    }
    let (first, last) = (START * 1_000_000, (START + 9 * STEP) * 1_000_000);
    let (one, both) =
        (" FROM group_0 WHERE ( device = 'd_0' )", " FROM group_0 WHERE ( device = 'd_0' OR device = 'd_1' )");
    let range = format!(" AND time >= {first} AND time <= {last}");
    for (sql, points) in [
        (format!("SELECT s_0{one} AND time = {first}"), 1),
        (format!("SELECT s_0, s_4{both} AND time = {first}"), 4),
        (format!("SELECT s_0{one}{range}"), 10),
        (format!("SELECT s_3, s_2{one}{range}"), 20),
        (format!("SELECT s_0{one}{range} AND s_0 > -5.0"), 10),
        (format!("SELECT s_0, s_4{both}{range} AND s_0 > 4.0 AND s_4 > -6.0"), 8),
        (format!("SELECT count(s_0){one}{range}"), 1),
        (format!("SELECT count(s_0), count(s_3){both}{range}"), 2),
        (format!("SELECT max(s_1){one} AND s_1 > -5.0"), 1),
        (format!("SELECT count(s_0){one}{range} AND s_0 > -5.0"), 1),
        (format!("SELECT count(s_0){one}{range} GROUP BY time(20000ms)"), 3),
        (format!("SELECT last(s_2){one}"), 1),
        (format!("SELECT last(s_0), last(s_1){both}"), 2),
        (format!("SELECT s_0{one}{range} ORDER BY time DESC"), 10),
        (format!("SELECT s_0{one}{range} AND s_0 > 4.0 ORDER BY time DESC"), 6),
    ] {
        assert_eq!(influx_points(&door, &sql), points, "{sql}");
    }
    // Verifying joins moments with OR, which InfluxDB takes for AND, so that it finds nothing; here they are found.
    let verify = format!("SELECT s_0 FROM group_0 WHERE ( device = 'd_0' )and (time = {first} or time = {last})");
    assert_eq!(influx_points(&door, &verify), 2);

    assert!(has_test());
    assert_eq!(okhttp(&door, "POST /query?q=DROP+DATABASE+%22test%22"), json!({"results": [{"statement_id": 0}]}));
    assert!(!has_test());
}

#[test]
fn the_victoriametrics_adapter_is_answered() {
    let door = door();
    let import = "POST /api/v1/import/prometheus?extra_label=db=test";
    // Types of the benchmark: booleans as 0 and 1, numbers, and text as it is, which VictoriaMetrics passes over.
    for device in ["d_0", "d_1"] {
        let line = |nth: i64| {
            let at = START + nth * STEP;
            format!(
                "group_0{{sensor=\"s_0\",device=\"{device}\"}} {nth}.5 {at}\n\
                 group_0{{sensor=\"s_1\",device=\"{device}\"}} {} {at}\n\
                 group_0{{sensor=\"s_2\",device=\"{device}\"}} hqFkBwgd {at}\n",
                nth % 2
            )
        };
        let body: String = (0..10).map(line).collect();
        java(&door, import, "text/plain; version=0.0.4; charset=utf-8", &body);
    }
    // `queryAndGetPoint`: how many series there are in `data.result`.
    let points = |path: &str| java_get(&door, path)["data"]["result"].as_array().expect("JSONArray").len();
    let one = "%7bdb=%22test%22,device=%22d_0%22,sensor=%22s_0%22%7d";
    let (first, last) = (START / 1000, (START + 9 * STEP) / 1000);
    let now = first + 86_400;
    let (moment, range) = ("/api/v1/query?query=", "/api/v1/query_range?query=");
    for (path, wanted) in [
        (format!("{moment}{one}&time={first}"), 1),
        (format!("{moment}{one}&time={}", first - 1), 0),
        (format!("{range}{one}&start={first}&end={last}"), 1),
        (format!("{range}{one}%3E-5.0&start={first}&end={last}"), 1),
        (format!("{range}{one}%3E500.0&start={first}&end={last}"), 0),
        (format!("{range}count%28{one}%29&start={first}&end={last}"), 1),
        (format!("{range}count%28{one}%29&start={first}&end={now}"), 1),
        (format!("{range}max%28{one}%3E-5.0%29&start={first}&end={last}"), 1),
        (format!("{range}count%28{one}%5B20000ms%5D%29&start={first}&end={now}"), 1),
        (format!("{range}max_over_time%28{one}%29&start={first}&end={now}"), 1),
        (format!("{range}sort_desc%28{one}%29&start={first}&end={last}"), 1),
        (format!("{range}sort_desc%28{one}%3E-5.0%29&start={first}&end={last}"), 1),
    ] {
        assert_eq!(points(&path), wanted, "{path}");
    }
    let found = java_get(&door, &format!("{moment}{one}&time={last}"));
    assert_eq!(found["data"]["result"][0]["value"], json!([last, "9.5"]));

    // Cleaning up: a POST whose body is never written.
    let clean_up = "POST /api/v1/admin/tsdb/delete_series?match%5B%5D=%7Bdb=%22test%22%7D";
    assert_eq!(java(&door, clean_up, FORM, ""), "");
    assert_eq!(points(&format!("{moment}{one}&time={first}")), 0);
    assert_eq!(java(&door, clean_up, FORM, ""), "");
}
