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

#[test]
fn a_tag_with_an_equals_sign_in_its_name_is_no_other_tag() {
    let door = door(1 << 20);
    write(&door, "default", "m,a\\=b=c v=1\nm,a=x v=1\nm,a=b\\=c v=1\n");
    assert_eq!(data(&door, "/api/v1/label/a/values"), json!(["b=c", "x"]));
    let pairs = &data(&door, "/api/v1/status/tsdb")["seriesCountByLabelValuePair"];
    let pair = |name: &str| json!({ "name": name, "value": 1 });
    assert_eq!(pairs, &json!([pair("a=b=c"), pair("a=x"), pair("a=b=c")]));
}
