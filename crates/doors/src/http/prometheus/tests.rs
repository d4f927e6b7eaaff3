//! Prometheus' HTTP API from outside.

use holdfast::series::Rows;
use serde_json::json;

use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::http::tests_client::{Answer, Door, open_wide, open_with};
use crate::http::uri::encode;

/// Writes points to a database: `metric,tag=value field time-in-seconds number` each.
pub(super) fn write(door: &Door, database: &str, points: &[(&str, &str, i64, f64)]) {
    let mut rows = Rows::new(database);
    for (series, field, seconds, value) in points {
        let parse = |raw: &[u8]| {
            let mut parts = std::str::from_utf8(raw).unwrap().split(',');
            let metric = parts.next().unwrap().to_owned();
            Ok((metric, parts.map(|tag| tag.split_once('=').unwrap()).map(|(a, b)| (a.into(), b.into())).collect()))
        };
        let row = rows.row(series.as_bytes(), parse).unwrap();
        let slot = rows.field(row, 0, field.as_bytes(), |raw| Ok(String::from_utf8_lossy(raw).into_owned())).unwrap();
        rows.push_float(slot, seconds * 1_000_000_000, *value);
    }
    let written = door.store.series().write(&mut rows).unwrap();
    assert_eq!(written.refused, []);
}

/// What iot-benchmark writes: devices with sensors, tagged with the database of the benchmark.
pub(super) fn devices() -> Door {
    let door = open_wide();
    let mut points = Vec::new();
    for seconds in 0..20 {
        points.push(("g_0,db=test,device=d_0,sensor=s_0", "value", 1000 + seconds * 60, seconds as f64));
        points.push(("g_0,db=test,device=d_1,sensor=s_0", "value", 1000 + seconds * 60, 100.0));
    }
    points.push(("cpu,host=a", "user", 1000, 1.5));
    write(&door, "default", &points);
    write(&door, "other", &[("up,job=x", "value", 1000, 1.0)]);
    door
}

fn query(door: &Door, path: &str, params: &[(&str, &str)]) -> Answer {
    let params: Vec<String> =
        params.iter().map(|(name, value)| format!("{name}={}", encode(value.as_bytes()))).collect();
    door.get(&format!("{path}?{}", params.join("&")))
}

fn data(answer: &Answer) -> serde_json::Value {
    let mut all = answer.json();
    assert_eq!((answer.status, &all["status"]), (200, &json!("success")), "{answer:?}");
    all["data"].take()
}

fn refused(answer: &Answer) -> (u16, String, String) {
    let all = answer.json();
    assert_eq!(all["status"], "error");
    (answer.status, all["errorType"].as_str().unwrap().to_owned(), all["error"].as_str().unwrap().to_owned())
}

#[test]
fn a_moment_is_answered_as_prometheus_does() {
    let door = devices();
    let answer = query(&door, "/api/v1/query", &[("query", "g_0{device=\"d_0\"}"), ("time", "1120.5")]);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let wanted = concat!(
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"g_0","db":"test","#,
        r#""device":"d_0","sensor":"s_0"},"value":[1120.500,"2"]}]}}"#
    );
    assert_eq!(answer.text(), wanted);
    for (text, time, wanted) in [
        ("1 + 1", "5", r#"{"resultType":"scalar","result":[5,"2"]}"#),
        ("\"a\\n\"", "5", r#"{"resultType":"string","result":[5,"a\n"]}"#),
        (
            "sum(g_0)",
            "1970-01-01T00:20:00Z",
            r#"{"resultType":"vector","result":[{"metric":{},"value":[1200,"103"]}]}"#,
        ),
        ("cpu_user / 0", "1000", r#"{"resultType":"vector","result":[{"metric":{"host":"a"},"value":[1000,"+Inf"]}]}"#),
        (
            "cpu_user[5m]",
            "1000",
            r#"{"resultType":"matrix","result":[{"metric":{"__name__":"cpu_user","host":"a"},"values":[[1000,"1.5"]]}]}"#,
        ),
        ("nothing", "1000", r#"{"resultType":"vector","result":[]}"#),
    ] {
        let answer = query(&door, "/api/v1/query", &[("query", text), ("time", time)]);
        assert_eq!(answer.text(), format!(r#"{{"status":"success","data":{wanted}}}"#), "{text}");
    }
    // Without a time it is now.
    assert_eq!(data(&query(&door, "/api/v1/query", &[("query", "time() > bool 1e9")]))["result"][1], "1");
    let of_other = query(&door, "/api/v1/query", &[("query", "up"), ("time", "1000"), ("db", "other")]);
    assert_eq!(data(&of_other)["result"][0]["metric"]["job"], "x");
}

#[test]
fn a_query_is_answered_with_no_more_series_than_its_limit() {
    let door = devices();
    let ask = |path: &str, limit: &str| {
        query(&door, path, &[("query", "g_0"), ("time", "1060"), ("start", "1000"), ("end", "1060"), ("limit", limit)])
    };
    for path in ["/api/v1/query", "/api/v1/query_range"] {
        for (limit, series, warnings) in
            [("", 2, None), ("0", 2, None), ("2", 2, None), ("1", 1, Some(json!(["results truncated due to limit"])))]
        {
            let answer = ask(path, limit);
            assert_eq!(answer.json().get("warnings"), warnings.as_ref(), "{path} {limit}");
            let data = data(&answer);
            let found = data["result"].as_array().unwrap();
            assert_eq!((found.len(), &found[0]["metric"]["device"]), (series, &json!("d_0")), "{path} {limit}");
        }
        assert_eq!(refused(&ask(path, "x")).0, 400);
    }
    // What has no series has no limit.
    let scalar = query(&door, "/api/v1/query", &[("query", "1"), ("time", "5"), ("limit", "1")]);
    assert_eq!(scalar.json().get("warnings"), None);
}

#[test]
fn a_range_is_answered_by_get_and_by_form() {
    let door = devices();
    let params = "query=g_0%7Bdevice%3D%22d_0%22%7D+%3E+1&start=1000&end=1180&step=1m";
    let by_get = door.get(&format!("/api/v1/query_range?{params}"));
    let kind = [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")];
    let by_form = door.send("POST /api/v1/query_range", &kind, Some(params.as_bytes()));
    let by_both = door.send("POST /api/v1/query_range?step=1&end=1180", &kind, Some(params.as_bytes()));
    assert_eq!((by_get.text(), by_get.text()), (by_form.text(), by_both.text()));
    let data = data(&by_get);
    assert_eq!(data["resultType"], "matrix");
    assert_eq!(data["result"][0]["values"], json!([[1120, "2"], [1180, "3"]]));
}

#[test]
fn iot_benchmark_gets_its_answers() {
    let door = open_wide();
    let mut lines = "cpu_user{host=\"a\"} 1.5 1000000\n".to_owned();
    for nth in 0..20 {
        lines.push_str(&format!("g_0{{device=\"d_0\",sensor=\"s_0\"}} {nth} {}\n", 1_000_000 + nth * 60_000));
    }
    let kind = [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")];
    let path = "POST /api/v1/import/prometheus?extra_label=db=test";
    let (first, rest) = lines.split_once('\n').unwrap();
    assert_eq!(door.send("POST /api/v1/import/prometheus", &kind, Some(first.as_bytes())).status, 204);
    assert_eq!(door.send(path, &kind, Some(rest.as_bytes())).status, 204);
    let selector = "%7bdb=%22test%22,device=%22d_0%22,sensor=%22s_0%22%7d";
    let of = |path: &str| data(&door.get(path))["result"].clone();
    // A precise point, a range, a value filter, aggregations, groups by time, the latest point.
    assert_eq!(of(&format!("/api/v1/query?query={selector}&time=1060"))[0]["value"], json!([1060, "1"]));
    let range = of(&format!("/api/v1/query_range?query={selector}&start=1060&end=1310"));
    assert_eq!(range[0]["values"], json!([[1060, "1"]]));
    let filtered = of(&format!("/api/v1/query_range?query={selector}%3E5.0&start=1000&end=2200"));
    assert_eq!(filtered[0]["values"].as_array().unwrap().len(), 3);
    let counted = of(&format!("/api/v1/query_range?query=count%28{selector}%3E-5%29&start=1000&end=1300"));
    assert_eq!(counted[0]["values"], json!([[1000, "1"], [1300, "1"]]));
    let sorted = of(&format!("/api/v1/query_range?query=sort_desc%28{selector}%3E5.0%29&start=1000&end=2200"));
    assert_eq!(sorted, filtered);
    let grouped = of(&format!("/api/v1/query_range?query=count%28{selector}%5B60000ms%5D%29&start=1000&end=1300"));
    assert_eq!(grouped[0]["values"], json!([[1000, "1"], [1300, "1"]]));
    // Years without a step: steps as long as the bound on their number needs.
    let latest = of(&format!("/api/v1/query_range?query=max_over_time%28{selector}%29&start=0&end=157680000"));
    assert_eq!(latest[0]["values"][0][1], "19");
    // The cleanup before a run, as its client sends it: a form without a body.
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let path = "POST /api/v1/admin/tsdb/delete_series?match%5B%5D=%7Bdb=%22test%22%7D";
    assert_eq!(door.send(path, &kind, Some(b"")).status, 204);
    assert_eq!(of(&format!("/api/v1/query?query={selector}&time=1060")), json!([]));
    assert_eq!(of("/api/v1/query?query=cpu_user&time=1060")[0]["value"][1], "1.5");
}

#[test]
fn labels_values_and_series_are_listed() {
    let door = devices();
    assert_eq!(data(&door.get("/api/v1/labels")), json!(["__name__", "db", "device", "host", "sensor"]));
    let some = query(&door, "/api/v1/labels", &[("match[]", "cpu_user"), ("match[]", "nothing")]);
    assert_eq!(data(&some), json!(["__name__", "host"]));
    assert_eq!(data(&door.get("/api/v1/label/device/values")), json!(["d_0", "d_1"]));
    assert_eq!(data(&door.get("/api/v1/label/__name__/values")), json!(["cpu_user", "g_0"]));
    assert_eq!(data(&door.get("/api/v1/label/none/values")), json!([]));
    // What ended before the start is left out.
    assert_eq!(
        data(&door.get("/api/v1/label/__name__/values?match[]=%7B__name__!=%22%22%7D&start=1500")),
        json!(["g_0"])
    );
    let few = door.get("/api/v1/label/device/values?limit=1").json();
    assert_eq!((&few["data"], few["warnings"].is_array()), (&json!(["d_0"]), true));
    let series = query(&door, "/api/v1/series", &[("match[]", "{host=~\".+\"}"), ("match[]", "cpu_user")]);
    assert_eq!(data(&series), json!([{ "__name__": "cpu_user", "host": "a" }]));
    assert_eq!(refused(&door.get("/api/v1/series")), (400, "bad_data".into(), "no match[] parameter provided".into()));
    assert_eq!(data(&door.get("/api/v1/labels?db=nowhere")), json!([]));
}

#[test]
fn grafana_finds_out_what_this_is() {
    let door = devices();
    assert_eq!(data(&door.get("/api/v1/metadata")), json!({}));
    assert_eq!(data(&door.get("/api/v1/status/buildinfo"))["version"], "3.0.0");
    let counts = data(&door.get("/api/v1/status/tsdb?limit=2"));
    assert_eq!(counts["headStats"], json!({ "numSeries": 3, "numLabelPairs": 7 }));
    let named = |name: &str, value: u64| json!({ "name": name, "value": value });
    assert_eq!(counts["seriesCountByMetricName"], json!([named("g_0", 2), named("cpu", 1)]));
    assert_eq!(counts["labelValueCountByLabelName"], json!([named("__name__", 2), named("device", 2)]));
    assert_eq!(counts["seriesCountByLabelValuePair"], json!([named("db=test", 2), named("sensor=s_0", 2)]));
}

#[test]
fn points_of_a_range_are_deleted_and_the_others_stay() {
    let door = devices();
    let path = "/api/v1/admin/tsdb/delete_series?match[]=%7Bdevice%3D%22d_0%22%7D&match[]=cpu_user&start=1060&end=1120";
    let answer = door.send(&format!("POST {path}"), &[], Some(b""));
    assert_eq!((answer.status, answer.text()), (204, ""));
    let left = query(&door, "/api/v1/query", &[("query", "g_0{device=\"d_0\"}[5m]"), ("time", "1180")]);
    assert_eq!(data(&left)["result"][0]["values"], json!([[1000, "0"], [1180, "3"]]));
    let path = "POST /api/v1/admin/tsdb/delete_series";
    assert_eq!(refused(&door.send(path, &[], Some(b""))).0, 400);
    assert_eq!(door.get("/api/v1/admin/tsdb/delete_series").status, 405);
}

#[test]
fn an_export_has_a_line_for_each_series() {
    let door = devices();
    let answer =
        query(&door, "/api/v1/export", &[("match[]", "{device=\"d_0\"}"), ("match[]", "cpu_user"), ("end", "1060")]);
    let wanted = concat!(
        r#"{"metric":{"__name__":"cpu_user","host":"a"},"values":[1.5],"timestamps":[1000000]}"#,
        "\n",
        r#"{"metric":{"__name__":"g_0","db":"test","device":"d_0","sensor":"s_0"},"values":[0,1],"timestamps":[1000000,1060000]}"#,
        "\n",
    );
    assert_eq!(answer.text(), wanted);
}

#[test]
fn long_answers_are_sent_in_parts() {
    let door = devices();
    let line = |nth: u32| format!("label_replace(vector({nth}), \"nth\", \"{nth}\", \"\", \"\")");
    let text = (0..5).map(line).collect::<Vec<_>>().join(" or ");
    let params = [("query", text.as_str()), ("start", "0"), ("end", "10999"), ("step", "1")];
    let answer = query(&door, "/api/v1/query_range", &params);
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let result = data(&answer)["result"].clone();
    let lengths: Vec<usize> =
        result.as_array().unwrap().iter().map(|line| line["values"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [11_000; 5]);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let door = devices();
    for (path, status, kind, reason) in [
        ("/api/v1/query", 400, "bad_data", "cannot parse the expression"),
        ("/api/v1/query?query=sum(", 400, "bad_data", "cannot parse the expression"),
        ("/api/v1/query?query=mad_over_time(x[5m])", 400, "bad_data", "the function mad_over_time is not supported"),
        ("/api/v1/query?query=1&time=yesterday", 400, "bad_data", "invalid parameter \"time\""),
        ("/api/v1/query?query=%ff", 400, "bad_data", "percent-encoded UTF-8"),
        ("/api/v1/query_range?query=1&start=0&end=11001&step=1", 400, "bad_data", "exceeded maximum resolution"),
        ("/api/v1/query_range?query=1&start=5&end=1&step=1", 400, "bad_data", "must not be before start"),
        ("/api/v1/query_range?query=1&start=1&end=2&step=0", 400, "bad_data", "positive step"),
        ("/api/v1/query_range?query=1&start=1&end=2&step=x", 400, "bad_data", "invalid parameter \"step\""),
        ("/api/v1/query_range?query=x[5m]&start=1&end=2&step=1", 400, "bad_data", "a range of points"),
        ("/api/v1/query?query=g_0/on()g_0&time=1000", 422, "execution", "found duplicate series"),
        ("/api/v1/query?query=g_0&timeout=0", 503, "timeout", "query timed out"),
        ("/api/v1/label/x/values?match[]=1", 400, "bad_data", "is no selector"),
        ("/api/v1/labels?limit=x", 400, "bad_data", "invalid parameter \"limit\""),
        ("/api/v1/series?match[]=x&start=2&end=1", 400, "bad_data", "must not be before start"),
    ] {
        let (found, found_kind, text) = refused(&door.get(path));
        assert_eq!((found, found_kind.as_str()), (status, kind), "{path}: {text}");
        assert!(text.contains(reason), "{path}: {text}");
    }
}

#[test]
fn users_see_the_databases_that_they_may_and_only_admins_delete() {
    let hash = hash_password(b"secret").unwrap();
    let user = |name: &str, pattern: &str, right: Right| User {
        name: name.to_owned(),
        password_hash: hash.clone(),
        doors: Vec::new(),
        buckets: vec![BucketRight { pattern: pattern.to_owned(), right }],
    };
    let users =
        Users::new(vec![user("reader", "default", Right::Read), user("admin", "default", Right::Admin)]).unwrap();
    let door = open_with(holdfast::Limits::tiny(), |options| options.users = users.into());
    let ask = |line: &str, name: &str| {
        let credentials = crate::http::base64::encode(format!("{name}:secret").as_bytes());
        door.send(line, &[("Authorization", &format!("Basic {credentials}"))], Some(b"")).status
    };
    assert_eq!(door.get("/api/v1/query?query=1").status, 401);
    assert_eq!(ask("GET /api/v1/query?query=1", "reader"), 200);
    assert_eq!(ask("GET /api/v1/query?query=1&db=other", "reader"), 403);
    assert_eq!(ask("POST /api/v1/admin/tsdb/delete_series?match[]=x", "reader"), 403);
    assert_eq!(ask("POST /api/v1/admin/tsdb/delete_series?match[]=x", "admin"), 204);
}
