//! InfluxQL over HTTP, against a real store.

use std::sync::Arc;

use holdfast::series::{Rows, ValueRef};
use serde_json::{Value, json};

use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::http::tests_client::{Answer, Door, open_wide, open_with};
use crate::http::uri::encode;

const SECOND: i64 = 1_000_000_000;

/// Writes `host=<host>` of the measurement `cpu`, a point every ten seconds.
fn write(door: &Door, database: &str, host: &str, values: &[f64]) {
    let mut rows = Rows::new(database);
    let tags = vec![("host".to_owned(), host.to_owned())];
    let row = rows.row(host.as_bytes(), |_| Ok(("cpu".to_owned(), tags))).unwrap();
    let slot = rows.field(row, 0, b"value", |_| Ok("value".to_owned())).unwrap();
    for (time, value) in (0..).zip(values) {
        rows.push(slot, time * 10 * SECOND, ValueRef::Float(*value));
    }
    let written = door.store.series().write(&mut rows).unwrap();
    assert_eq!(written.points, values.len() as u64);
}

fn door() -> Door {
    let door = open_wide();
    write(&door, "db", "a", &[1.0, 2.0, 4.0]);
    write(&door, "db", "b", &[10.0, 20.0, 40.0]);
    door
}

fn get(door: &Door, text: &str, more: &str) -> Answer {
    door.get(&format!("/query?db=db&epoch=s&q={}{more}", encode(text.as_bytes())))
}

fn post(door: &Door, form: &str) -> Answer {
    let kind = ("Content-Type", "application/x-www-form-urlencoded");
    door.send("POST /query", &[kind], Some(form.as_bytes()))
}

fn values(answer: &Answer) -> Value {
    answer.json()["results"][0]["series"][0]["values"].clone()
}

#[test]
fn queries_are_answered_by_get_and_by_post() {
    let door = door();
    let answer = get(&door, "SELECT value FROM cpu WHERE host = 'a'", "");
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.text(),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"cpu\",\"columns\":[\"time\",\"value\"],\"values\":[[0,1],[10,2],[20,4]]}]}]}\n"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-influxdb-version"), Some("1.8.10"));
    let answer = post(&door, "q=SELECT+max(value),host+FROM+cpu&db=db");
    assert_eq!(values(&answer), json!([["1970-01-01T00:00:20Z", 40, "b"]]));
    // The parameters of the path and of the form together, as Telegraf and influxdb-java mix them.
    let answer = door.send("POST /query?db=db&epoch=ms", &[], Some(b"q=SELECT last(value) FROM cpu WHERE host='a'"));
    assert_eq!(values(&answer), json!([[20_000, 4]]));
    let bound =
        "q=SELECT+value+FROM+cpu+WHERE+host=$host+AND+value>$least&db=db&epoch=s&params={\"host\":\"b\",\"least\":15}";
    assert_eq!(values(&post(&door, bound)), json!([[10, 20], [20, 40]]));
    let csv = format!("GET /query?db=db&q={}", encode(b"SELECT sum(value) FROM cpu GROUP BY host"));
    let csv = door.send(&csv, &[("Accept", "application/csv")], None);
    assert_eq!(
        (csv.header("content-type"), csv.text()),
        (Some("text/csv"), "name,tags,time,sum\ncpu,host=a,0,7\ncpu,host=b,0,70\n")
    );
    let chunked = get(&door, "SELECT value FROM cpu GROUP BY host", "&chunked=true&chunk_size=2");
    assert_eq!(chunked.text().lines().count(), 4);
    assert!(get(&door, "SHOW DATABASES", "&pretty=true").text().starts_with("{\n    \"results\": [\n"));
}

#[test]
fn refusals_are_those_of_influxdb() {
    let door = door();
    for (path, status, text) in [
        ("/query?db=db", 400, "missing required parameter \"q\""),
        (
            "/query?q=SELEC",
            400,
            "error parsing query: found SELEC, expected SELECT, DELETE, SHOW, CREATE, DROP, EXPLAIN, GRANT, REVOKE, ALTER, SET, KILL at line 1, char 1",
        ),
    ] {
        let answer = door.get(path);
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(text)));
        assert_eq!(
            (answer.header("x-influxdb-error"), answer.header("x-influxdb-version")),
            (Some(text), Some("1.8.10"))
        );
    }
    let answer = door.get("/query?db=nowhere&q=SELECT+x+FROM+y;SHOW+DATABASES");
    assert_eq!(answer.status, 200);
    let results = &answer.json()["results"];
    assert_eq!(results[0], json!({"statement_id": 0, "error": "database not found: nowhere"}));
    assert_eq!(results[1], json!({"statement_id": 1, "error": "not executed"}));
    assert_eq!(door.get("/query?q=SHOW+DATABASES&durability=maybe").status, 400);
    assert_eq!(door.send("DELETE /query", &[], None).status, 405);
}

#[test]
fn databases_series_and_points_come_and_go() {
    let door = door();
    // As Telegraf does it.
    let created = door.send("POST /query?q=CREATE+DATABASE+%22telegraf%22", &[], Some(b""));
    assert_eq!((created.status, created.text()), (200, "{\"results\":[{\"statement_id\":0}]}\n"));
    let names = |door: &Door| values(&door.get("/query?q=SHOW+DATABASES"));
    assert_eq!(names(&door), json!([["db"], ["telegraf"]]));
    assert_eq!(door.get("/query?db=telegraf&q=SELECT+x+FROM+y").text(), "{\"results\":[{\"statement_id\":0}]}\n");
    let warned = door.get("/query?q=CREATE+DATABASE+other").json();
    assert_eq!(warned["results"][0]["messages"][0]["level"], "warning");
    assert_eq!(
        warned["results"][0]["messages"][0]["text"],
        "deprecated use of 'CREATE DATABASE other' in a read only context, please use a POST request instead"
    );
    let count = |door: &Door| values(&get(door, "SELECT count(value) FROM cpu", ""))[0][1].clone();
    assert_eq!(count(&door), 6);
    post(&door, "db=db&q=DELETE FROM cpu WHERE time < 10s");
    assert_eq!(count(&door), 4);
    post(&door, "db=db&q=DELETE WHERE host = 'a' AND time = 10s");
    assert_eq!(count(&door), 3);
    write(&door, "db", "c", &[1.0]);
    write(&door, "db", "d", &[1.0]);
    post(&door, "db=db&q=DROP SERIES FROM cpu WHERE host = 'c' OR (host =~ /d/ AND host != 'x')");
    assert_eq!(count(&door), 3);
    let shown = get(&door, "SHOW SERIES", "");
    assert_eq!(values(&shown), json!([["cpu,host=a"], ["cpu,host=b"]]));
    post(&door, "db=db&q=DROP SERIES WHERE host='b'");
    assert_eq!(count(&door), 1);
    post(&door, "db=db&q=DROP MEASUREMENT cpu");
    assert_eq!(get(&door, "SHOW MEASUREMENTS", "").text(), "{\"results\":[{\"statement_id\":0}]}\n");
    post(&door, "q=DROP DATABASE db; DROP DATABASE other; DROP DATABASE never");
    assert_eq!(names(&door), json!([["telegraf"]]));
    let gone = get(&door, "SELECT value FROM cpu", "").json();
    assert_eq!(gone["results"][0]["error"], "database not found: db");
    for (text, error) in [
        ("DROP SERIES FROM x WHERE time > 5", "DROP SERIES doesn't support time in WHERE clause"),
        ("DROP MEASUREMENT x", "database not found: none"),
    ] {
        let answer = post(&door, &format!("db=none&q={text}"));
        assert_eq!(answer.json()["results"][0]["error"], error, "{text}");
    }
}

#[test]
fn what_is_selected_can_be_written() {
    let door = door();
    let written =
        post(&door, "db=db&epoch=s&q=SELECT mean(value) INTO avg FROM cpu GROUP BY time(20s), host fill(none)");
    assert_eq!(
        written.text(),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"result\",\"columns\":[\"time\",\"written\"],\"values\":[[0,4]]}]}]}\n"
    );
    assert_eq!(values(&get(&door, "SELECT * FROM avg WHERE host = 'b'", "")), json!([[0, "b", 15], [20, "b", 40]]));
    let refused =
        post(&door, "db=db&q=SELECT host::tag AS h, value INTO typed FROM cpu; SELECT value AS h INTO typed FROM cpu");
    let error = &refused.json()["results"][1]["error"];
    let wanted = "partial write: field type conflict: input field \"h\" on measurement \"typed\" is type float, already exists as type string dropped=6";
    assert_eq!(error.as_str(), Some(wanted));
    let warned = get(&door, "SELECT value INTO copy FROM cpu", "").json();
    assert_eq!(warned["results"][0]["messages"][0]["level"], "warning");
    assert_eq!(values(&get(&door, "SELECT count(value) FROM copy", "")), json!([[0, 3]]));
    let nowhere = post(&door, "db=db&q=SELECT value INTO nowhere..copy FROM cpu").json();
    assert_eq!(nowhere["results"][0]["error"], "database not found: nowhere");
    assert_eq!(get(&door, "SHOW SERIES CARDINALITY", "").json()["results"][0]["series"][0]["values"], json!([[6]]));
}

#[test]
fn continuous_queries_are_created_shown_and_dropped() {
    let door = door();
    let create = |resample: &str| {
        format!(
            "CREATE CONTINUOUS QUERY q ON db {resample} BEGIN SELECT mean(value) INTO avg FROM cpu GROUP BY time(1m), host END"
        )
    };
    assert_eq!(post(&door, &format!("q={}", create(""))).text(), "{\"results\":[{\"statement_id\":0}]}\n");
    assert_eq!(post(&door, &format!("q={}", create(""))).text(), "{\"results\":[{\"statement_id\":0}]}\n");
    let other = post(&door, &format!("q={}", create("RESAMPLE FOR 2m"))).json();
    assert_eq!(other["results"][0]["error"], "continuous query already exists");
    assert_eq!(
        door.get("/query?q=SHOW+CONTINUOUS+QUERIES").text(),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"db\",\"columns\":[\"name\",\"query\"],\"values\":[[\"q\",\"CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(value) INTO db.autogen.avg FROM db.autogen.cpu GROUP BY time(1m), host END\"]]}]}]}\n"
    );
    post(&door, "q=DROP CONTINUOUS QUERY q ON db; DROP CONTINUOUS QUERY never ON db");
    let none = json!([{"name": "db", "columns": ["name", "query"]}]);
    assert_eq!(door.get("/query?q=SHOW+CONTINUOUS+QUERIES").json()["results"][0]["series"], none);
    post(&door, &format!("q={}", create("")));
    post(&door, "q=DROP DATABASE db");
    assert!(door.store.series().continuous_queries().unwrap().is_empty());
}

#[test]
fn a_ping_is_answered_as_the_client_expects() {
    let door = door();
    let version = Some("1.8.10");
    let ping = |line: &str, headers: &[(&str, &str)]| {
        let answer = door.send(line, headers, None);
        assert_eq!(answer.header("x-influxdb-version"), version, "{line}");
        (answer.status, answer.text().to_owned())
    };
    let (ok, none) = ((200, "OK\n".to_owned()), (204, String::new()));
    assert_eq!(ping("GET /ping", &[]), ok);
    assert_eq!(ping("GET /ping", &[("User-Agent", "curl/8.5.0")]), ok);
    assert_eq!(ping("HEAD /ping", &[]), none);
    assert_eq!(ping("GET /ping?wait_for_leader=5s", &[]), none);
    assert_eq!(ping("GET /ping?verbose=true", &[]), (200, "{\"version\":\"1.8.10\"}\n".to_owned()));
    for agent in ["InfluxDBClient", "influxdb-client-go/2", "Telegraf/1.30"] {
        assert_eq!(ping("GET /ping", &[("User-Agent", agent)]), none, "{agent}");
    }
    let python = [("User-Agent", "python-requests/2.31.0"), ("Accept", "application/x-msgpack")];
    assert_eq!(ping("GET /ping", &python), none);
}

#[test]
fn clients_of_influxdb_2_are_told_how_it_is_in_their_form() {
    let door = door();
    let health = |agent: &str| door.send("GET /health", &[("User-Agent", agent)], None).json();
    let wanted = json!({"name": "influxdb", "message": "ready for queries and writes", "status": "pass", "checks": [],
        "version": "1.8.10"});
    assert_eq!(health("influxdb-client-python/1.50.0"), wanted);
    assert_eq!(health("influxdb-client-go/2.14.0 (linux; amd64)"), wanted);
    assert_eq!(health("curl/8.5.0"), json!({"status": "ok"}));
}

#[test]
fn users_see_and_change_what_their_rights_reach() {
    let mut ada = User::admin("ada", &hash_password(b"love").unwrap());
    ada.buckets = vec![
        BucketRight { pattern: "db".to_owned(), right: Right::Read },
        BucketRight { pattern: "own*".to_owned(), right: Right::Write },
    ];
    let users = Arc::new(Users::new([ada]).unwrap());
    let door = open_with(holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() }, |options| {
        options.users = users;
        options.limits = crate::http::Limits::default();
    });
    write(&door, "db", "a", &[1.0]);
    write(&door, "secret", "a", &[1.0]);
    let ask = |text: &str| door.get(&format!("/query?u=ada&p=love&db=db&q={}", encode(text.as_bytes())));
    assert_eq!(door.get("/query?q=SHOW+DATABASES").status, 401);
    assert_eq!(door.get("/query?q=SHOW+DATABASES&u=ada&p=hate").status, 401);
    assert_eq!(door.get("/buckets?u=ada&p=love").status, 401, "elsewhere there are no passwords in paths");
    assert_eq!(values(&ask("SHOW DATABASES")), json!([["db"]]));
    assert_eq!(values(&ask("SELECT value FROM cpu")), json!([["1970-01-01T00:00:00Z", 1]]));
    assert_eq!(ask("CREATE DATABASE own1").status, 200);
    for forbidden in [
        "SELECT value FROM secret..cpu",
        "SELECT value FROM (SELECT value FROM secret..cpu)",
        "SHOW MEASUREMENTS ON secret",
        "SHOW TAG KEYS FROM secret..cpu",
        "DROP MEASUREMENT cpu",
        "DELETE FROM cpu",
        "DROP DATABASE own1",
        "SELECT value INTO cpu2 FROM cpu",
        "SELECT value INTO secret..cpu FROM cpu",
        "SELECT value INTO own1..cpu FROM secret..cpu",
        "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT mean(value) INTO own1..m FROM cpu GROUP BY time(1m) END",
        "CREATE CONTINUOUS QUERY q ON own1 BEGIN SELECT mean(value) INTO db..m FROM db..cpu GROUP BY time(1m) END",
        "CREATE CONTINUOUS QUERY q ON own1 BEGIN SELECT mean(value) INTO m FROM secret..cpu GROUP BY time(1m) END",
        "DROP CONTINUOUS QUERY q ON db",
        "SHOW DATABASES; CREATE DATABASE other",
    ] {
        let answer = ask(forbidden);
        assert_eq!(answer.status, 403, "{forbidden}");
        assert!(answer.text().contains("error authorizing query"), "{}", answer.text());
    }
    assert_eq!(values(&ask("SELECT value INTO own1..copy FROM cpu")), json!([["1970-01-01T00:00:00Z", 1]]));
    let create = "CREATE CONTINUOUS QUERY q ON own1 BEGIN SELECT mean(value) INTO m FROM db..cpu GROUP BY time(1m) END";
    assert_eq!(ask(create).status, 200);
    let shown = ask("SHOW CONTINUOUS QUERIES").json()["results"][0]["series"].clone();
    let names: Vec<&str> = shown.as_array().unwrap().iter().filter_map(|series| series["name"].as_str()).collect();
    assert_eq!(names, ["db", "own1"]);
    let basic = door.send("GET /query?q=SHOW+DATABASES", &[("Authorization", "Basic YWRhOmxvdmU=")], None);
    assert_eq!(basic.status, 200);
}
