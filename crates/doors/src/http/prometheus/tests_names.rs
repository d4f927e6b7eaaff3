//! Lists of names, as data sources ask for them: right whatever is in the names, and in memory and time for the answer alone.

use serde_json::{Value as Json, json};

use crate::http::tests_client::{Door, open_with};

fn write(door: &Door, database: &str, lines: &str) {
    let answer = door.send(&format!("POST /write?db={database}"), &[], Some(lines.as_bytes()));
    assert_eq!(answer.status, 204, "{answer:?}");
}

fn door(query_memory_bytes: u64) -> Door {
    let limits = holdfast::Limits { series_query_memory_bytes: query_memory_bytes, ..holdfast::Limits::default() };
    open_with(limits, |options| options.limits = crate::http::Limits::default())
}

fn data(door: &Door, path: &str) -> Json {
    let mut answer = door.get(path).json();
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"].take()
}

/// With a million series a list of metrics took seconds, because all series were gone through.
#[test]
fn names_are_listed_without_looking_at_the_series_that_have_them() {
    // Less than the series of one of the metrics would take.
    let door = door(256 << 10);
    let lines: String = (0..1000).map(|host| format!("cpu,host=h{host},dc=d{} user=1,value=2i\n", host % 3)).collect();
    write(&door, "default", &lines);
    write(&door, "default", "mem,host=h1 used=1,text=\"x\"\n");
    assert_eq!(data(&door, "/api/v1/label/__name__/values"), json!(["cpu", "cpu_user", "mem_text", "mem_used"]));
    assert_eq!(data(&door, "/api/v1/label/dc/values"), json!(["d0", "d1", "d2"]));
    let ask = |q: &str| {
        let answer = door.get(&format!("/query?db=default&q={}", q.replace(' ', "+").replace('=', "%3D")));
        answer.json()["results"][0]["series"].clone()
    };
    assert_eq!(
        ask("SHOW FIELD KEYS"),
        json!([
            { "name": "cpu", "columns": ["fieldKey", "fieldType"], "values": [["user", "float"], ["value", "integer"]] },
            { "name": "mem", "columns": ["fieldKey", "fieldType"], "values": [["text", "string"], ["used", "float"]] },
        ])
    );
    assert_eq!(
        ask("SHOW TAG VALUES FROM /c.u/ WITH KEY = dc LIMIT 2"),
        json!([{ "name": "cpu", "columns": ["key", "value"], "values": [["dc", "d0"], ["dc", "d1"]] }])
    );
    assert_eq!(
        ask("SHOW TAG KEYS"),
        json!([
            { "name": "cpu", "columns": ["tagKey"], "values": [["dc"], ["host"]] },
            { "name": "mem", "columns": ["tagKey"], "values": [["host"]] },
        ])
    );
    assert_eq!(ask("SHOW TAG KEYS FROM nothing"), Json::Null);
    // What is dropped is not listed any more.
    assert_eq!(door.send("POST /query?db=default&q=DROP+MEASUREMENT+mem", &[], Some(b"")).status, 200);
    assert_eq!(data(&door, "/api/v1/label/__name__/values"), json!(["cpu", "cpu_user"]));
}

/// Tag and value were joined by a `=` and split again, so a tag `a=b` with the value `c` was shown as a value of the tag `a`.
#[test]
fn a_tag_with_an_equals_sign_in_its_name_is_no_other_tag() {
    let door = door(1 << 20);
    write(&door, "default", "m,a\\=b=c v=1\nm,a=x v=1\nm,a=b\\=c v=1\n");
    assert_eq!(data(&door, "/api/v1/label/a/values"), json!(["b=c", "x"]));
    assert_eq!(data(&door, "/api/v1/label/U__a_3d_b/values"), json!(["c"]));
    let pairs = &data(&door, "/api/v1/status/tsdb")["seriesCountByLabelValuePair"];
    let pair = |name: &str| json!({ "name": name, "value": 1 });
    assert_eq!(pairs, &json!([pair("a=b=c"), pair("a=x"), pair("a=b=c")]));
}

#[test]
fn names_of_labels_may_be_escaped_as_prometheus_does() {
    let door = door(1 << 20);
    write(&door, "default", "m,k\\ ey\\,x=1 value=1\n");
    assert_eq!(data(&door, "/api/v1/label/U__k_20_ey_2c_x/values"), json!(["1"]));
    assert_eq!(data(&door, "/api/v1/label/k%20ey,x/values"), json!(["1"]));
}

#[test]
fn what_is_not_here_has_the_shape_that_clients_look_for() {
    let door = door(1 << 20);
    for (path, wanted) in [
        ("rules", json!({ "groups": [] })),
        ("alerts", json!({ "alerts": [] })),
        ("query_exemplars?query=x", json!([])),
        ("targets", json!({ "activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {} })),
    ] {
        assert_eq!(data(&door, &format!("/api/v1/{path}")), wanted);
    }
    for path in ["/-/healthy", "/-/ready", "/ready"] {
        assert_eq!((door.get(path).status, door.get(path).json()), (200, json!({ "status": "ok" })), "{path}");
    }
    assert!(door.get("/").text().starts_with("Holdfast "));
}

#[test]
fn a_database_may_stand_in_the_path() {
    let door = door(1 << 20);
    let body = br#"{"metric":"oven.heat","timestamp":100,"value":0.5,"tags":{"host":"a"}}"#;
    assert_eq!(door.send("POST /db/plant/api/put", &[], Some(body)).status, 204);
    // It counts before what a client puts there by itself.
    assert_eq!(door.send("POST /db/plant/api/put/?db=other&details", &[], Some(body)).status, 200);
    let found = |path: &str| door.get(&format!("{path}/api/query?start=1&end=200&m=sum:oven.heat")).json();
    assert_eq!(found("/db/plant")[0]["dps"], json!({ "100": 0.5 }));
    assert!(found("")["error"].is_object());
    assert_eq!(door.get("/db/plant/api/suggest?type=metrics").json(), json!(["oven.heat"]));
    assert_eq!(data(&door, "/db/plant/api/v1/label/__name__/values?db=other"), json!(["oven.heat"]));
    assert_eq!(data(&door, "/db/other/api/v1/label/__name__/values"), json!([]));
    for (path, status) in
        [("/db/plant", 404), ("/db//api/version", 404), ("/db/plant/health", 404), ("/db/%ff/api/version", 400)]
    {
        assert_eq!(door.get(path).status, status, "{path}");
    }
}

/// OpenTSDB takes a slash at the end of its paths, and clients send it.
#[test]
fn a_slash_at_the_end_of_a_path_under_api_is_passed_over() {
    let door = door(1 << 20);
    let body = br#"{"metric":"m","timestamp":100,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(door.send("POST /api/put/", &[], Some(body)).status, 204);
    for path in
        ["/api/version/", "/api/suggest/?type=metrics", "/api/query/?start=1&end=200&m=sum:m", "/api/v1/labels/"]
    {
        assert_eq!(door.get(path).status, 200, "{path}");
    }
    for path in ["/api/", "/api/version//", "/buckets/", "/health/", "/buckets/api/keys/"] {
        assert_ne!(door.get(path).status, 200, "{path}");
    }
}
