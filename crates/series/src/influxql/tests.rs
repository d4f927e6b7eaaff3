//! Statements and their answers, over a model.

use super::*;
use crate::model::{Bounded, Model, key};
use crate::value::Value;

pub(crate) const SECOND: i64 = 1_000_000_000;

/// What is answered, without the frame around results.
pub(crate) fn answer(model: &Model, text: &str) -> String {
    let whole = answer_with(model, text, Layout::Plain, Epoch::Units(SECOND));
    let inner = whole.strip_prefix("{\"results\":[").and_then(|rest| rest.strip_suffix("]}\n"));
    inner.unwrap_or(&whole).replace("{\"statement_id\":0,\"series\":", "").replace("]}]}", "]}]")
}

pub(crate) fn answer_with(model: &Model, text: &str, layout: Layout, epoch: Epoch) -> String {
    let env = Env { source: model, database: "db", now: 1000 * SECOND, may_see: &|name| name != "hidden" };
    let statements = match parse(text, &Parameters::new()) {
        Ok(statements) => statements,
        Err(error) => return error.to_string(),
    };
    let mut document = Document::new(layout, epoch, 1 << 20);
    for statement in &statements {
        document.begin(statement);
        match read(&env, statement, &mut document) {
            Ok(()) => document.end(None),
            Err(error) => document.fail(&error.to_string()),
        }
    }
    String::from_utf8(document.finish()).unwrap()
}

/// `cpu` with the hosts a and b: `user` and `idle` are doubles, `n` an integer, `up` a boolean, `note` a text. `mem` has `used`.
pub(crate) fn machines() -> Model {
    let mut model = Model::default();
    let mut write = |metric: &str, tags: &str, field: &str, seconds: i64, value: Value| {
        model.write(&key("db", metric, tags, field), seconds * SECOND, value);
    };
    for (seconds, a, b) in [(0, 1.0, 10.0), (10, 2.0, 20.0), (20, 4.0, 40.0), (40, 3.0, 30.0)] {
        write("cpu", "host=a,region=eu", "user", seconds, Value::Float(a));
        write("cpu", "host=b,region=us", "user", seconds, Value::Float(b));
    }
    for (seconds, idle) in [(0, 0.5), (30, 0.25)] {
        write("cpu", "host=a,region=eu", "idle", seconds, Value::Float(idle));
    }
    for (seconds, n) in [(0, 5), (10, 7), (20, 6)] {
        write("cpu", "host=b,region=us", "n", seconds, Value::Integer(n));
    }
    write("cpu", "host=a,region=eu", "up", 10, Value::Boolean(true));
    write("cpu", "host=a,region=eu", "note", 20, Value::Text("it's <ok>".into()));
    write("mem", "host=a", "used", 5, Value::Integer(77));
    write("mem", "host=c", "used", 15, Value::Integer(88));
    model.write(&key("hidden", "x", "", "value"), 0, Value::Float(1.0));
    model
}

fn check(table: &[(&str, &str)]) {
    let model = machines();
    for (text, wanted) in table {
        assert_eq!(answer(&model, text), *wanted, "{text}");
    }
}

#[test]
fn rows_of_fields_come_by_time_with_nulls_where_there_is_nothing() {
    check(&[
        (
            "SELECT user FROM cpu WHERE host = 'a'",
            r#"[{"name":"cpu","columns":["time","user"],"values":[[0,1],[10,2],[20,4],[40,3]]}]"#,
        ),
        (
            "SELECT user, idle FROM cpu WHERE host='a'",
            r#"[{"name":"cpu","columns":["time","user","idle"],"values":[[0,1,0.5],[10,2,null],[20,4,null],[30,null,0.25],[40,3,null]]}]"#,
        ),
        (
            "SELECT * FROM cpu WHERE time <= 10s",
            r#"[{"name":"cpu","columns":["time","host","idle","n","note","region","up","user"],"values":[[0,"a",0.5,null,null,"eu",null,1],[0,"b",null,5,null,"us",null,10],[10,"a",null,null,null,"eu",true,2],[10,"b",null,7,null,"us",null,20]]}]"#,
        ),
        (
            "SELECT user FROM cpu GROUP BY host LIMIT 1",
            r#"[{"name":"cpu","tags":{"host":"a"},"columns":["time","user"],"values":[[0,1]]},{"name":"cpu","tags":{"host":"b"},"columns":["time","user"],"values":[[0,10]]}]"#,
        ),
        (
            "SELECT user FROM cpu GROUP BY * LIMIT 1 OFFSET 1 SLIMIT 1 SOFFSET 1",
            r#"[{"name":"cpu","tags":{"host":"b","region":"us"},"columns":["time","user"],"values":[[10,20]]}]"#,
        ),
        (
            "SELECT user FROM cpu WHERE host='b' ORDER BY time DESC LIMIT 2",
            r#"[{"name":"cpu","columns":["time","user"],"values":[[40,30],[20,40]]}]"#,
        ),
        (
            "SELECT user, host FROM cpu ORDER BY time DESC LIMIT 1",
            r#"[{"name":"cpu","columns":["time","user","host"],"values":[[40,30,"b"]]}]"#,
        ),
        (
            "SELECT user * 2 AS twice, user + n, -user FROM cpu WHERE host = 'b' LIMIT 1",
            r#"[{"name":"cpu","columns":["time","twice","user_n","user"],"values":[[0,20,15,-10]]}]"#,
        ),
        (
            "SELECT n / 2, n % 4, n & 4, abs(-n), user FROM cpu WHERE n > 5",
            r#"[{"name":"cpu","columns":["time","n","n_1","n_2","abs","user"],"values":[[10,3.5,3,4,7,20],[20,3,2,4,6,40]]}]"#,
        ),
        (
            "SELECT user, user FROM cpu WHERE time = 10s AND host =~ /^a/",
            r#"[{"name":"cpu","columns":["time","user","user_1"],"values":[[10,2,2]]}]"#,
        ),
        ("SELECT host FROM cpu", r#"{"statement_id":0}"#),
        ("SELECT nothing FROM cpu", r#"{"statement_id":0}"#),
        ("SELECT user FROM nothing", r#"{"statement_id":0}"#),
        ("SELECT note FROM cpu", r#"[{"name":"cpu","columns":["time","note"],"values":[[20,"it's \u003cok\u003e"]]}]"#),
        (
            "SELECT used, user FROM cpu, mem WHERE host = 'a' AND time <= 5s",
            r#"[{"name":"cpu","columns":["time","used","user"],"values":[[0,null,1]]},{"name":"mem","columns":["time","used","user"],"values":[[5,77,null]]}]"#,
        ),
        (
            "SELECT /us/ FROM \"db\".\"autogen\"./^(cpu|mem)$/ WHERE host != 'b' AND time < 10s",
            r#"[{"name":"cpu","columns":["time","used","user"],"values":[[0,null,1]]},{"name":"mem","columns":["time","used","user"],"values":[[5,77,null]]}]"#,
        ),
    ]);
}

#[test]
fn conditions_choose_times_tags_and_values() {
    let count = |condition: &str| answer(&machines(), &format!("SELECT count(user) FROM cpu WHERE {condition}"));
    let wanted =
        |time: i64, count: i64| format!(r#"[{{"name":"cpu","columns":["time","count"],"values":[[{time},{count}]]}}]"#);
    for (condition, from, number) in [
        ("host = 'a' OR host = 'b'", 0, 8),
        ("(host = 'a' OR region = 'us') AND time >= '1970-01-01T00:00:10Z'", 10, 6),
        ("host = 'a' AND user >= 2 AND user <> 4", 0, 2),
        ("(host = 'a' AND user > 3) OR (host = 'b' AND user > 30)", 0, 2),
        ("time > now() - 990s", 10, 4),
        ("time >= 10000000000 AND time < 20s", 10, 2),
        ("time = 10s OR time = 40s", 0, 4),
        ("40s <= time", 40, 2),
        ("up = true", 0, 1),
        ("note = 'it\\'s <ok>'", 0, 1),
        ("note =~ /ok/", 0, 1),
        ("n = 7 AND host !~ /a/", 0, 1),
        ("nohost = ''", 0, 8),
        ("region != ''", 0, 8),
        ("n < user", 0, 3),
        ("user - n * 2 >= 6", 0, 2),
        ("user > 1e1", 0, 3),
    ] {
        assert_eq!(count(condition), wanted(from, number), "{condition}");
    }
    for nothing in [
        "host = 'z'",
        "user = 'text'",
        "time > 50s",
        "time > 5s AND time < 3s",
        "nohost = 'x'",
        "note != 'it\\'s <ok>'",
    ] {
        assert_eq!(count(nothing), r#"{"statement_id":0}"#, "{nothing}");
    }
}

#[test]
fn functions_answer_at_the_start_of_the_range_and_selectors_at_their_point() {
    check(&[
        (
            "SELECT sum(user), mean(user), count(n), spread(n) FROM cpu",
            r#"[{"name":"cpu","columns":["time","sum","mean","count","spread"],"values":[[0,110,13.75,3,2]]}]"#,
        ),
        (
            "SELECT max(user) FROM cpu WHERE time > 5s",
            r#"[{"name":"cpu","columns":["time","max"],"values":[[20,40]]}]"#,
        ),
        (
            "SELECT max(user), min(user) FROM cpu WHERE time > 5s",
            r#"[{"name":"cpu","columns":["time","max","min"],"values":[[5,40,2]]}]"#,
        ),
        (
            "SELECT max(user), host, n FROM cpu",
            r#"[{"name":"cpu","columns":["time","max","host","n"],"values":[[20,40,"b",6]]}]"#,
        ),
        (
            "SELECT last(user) FROM cpu GROUP BY host",
            r#"[{"name":"cpu","tags":{"host":"a"},"columns":["time","last"],"values":[[40,3]]},{"name":"cpu","tags":{"host":"b"},"columns":["time","last"],"values":[[40,30]]}]"#,
        ),
        (
            "SELECT last(user) FROM cpu WHERE time < 40s AND host='a'",
            r#"[{"name":"cpu","columns":["time","last"],"values":[[20,4]]}]"#,
        ),
        (
            "SELECT first(note) FROM cpu",
            r#"[{"name":"cpu","columns":["time","first"],"values":[[20,"it's \u003cok\u003e"]]}]"#,
        ),
        (
            "SELECT percentile(user, 50), host FROM cpu",
            r#"[{"name":"cpu","columns":["time","percentile","host"],"values":[[20,4,"a"]]}]"#,
        ),
        (
            "SELECT median(user), mode(n), stddev(n), median(n) FROM cpu",
            r#"[{"name":"cpu","columns":["time","median","mode","stddev","median_1"],"values":[[0,7,5,1,6]]}]"#,
        ),
        (
            "SELECT distinct(n) FROM cpu",
            r#"[{"name":"cpu","columns":["time","distinct"],"values":[[0,5],[0,7],[0,6]]}]"#,
        ),
        ("SELECT count(distinct n) FROM cpu", r#"[{"name":"cpu","columns":["time","count"],"values":[[0,3]]}]"#),
        ("SELECT top(user, 2) FROM cpu", r#"[{"name":"cpu","columns":["time","top"],"values":[[20,40],[40,30]]}]"#),
        (
            "SELECT bottom(user, host, 5), region FROM cpu",
            r#"[{"name":"cpu","columns":["time","bottom","host","region"],"values":[[0,1,"a","eu"],[0,10,"b","us"]]}]"#,
        ),
        (
            "SELECT mean(*) FROM cpu WHERE host='b'",
            r#"[{"name":"cpu","columns":["time","mean_idle","mean_n","mean_user"],"values":[[0,null,6,25]]}]"#,
        ),
        (
            "SELECT count(/n/) FROM cpu",
            r#"[{"name":"cpu","columns":["time","count_n","count_note"],"values":[[0,3,1]]}]"#,
        ),
        (
            "SELECT max(user) - min(user) AS range, round(mean(user)) FROM cpu",
            r#"[{"name":"cpu","columns":["time","range","round"],"values":[[0,39,14]]}]"#,
        ),
        (
            "SELECT derivative(user, 10s) FROM cpu WHERE host='a'",
            r#"[{"name":"cpu","columns":["time","derivative"],"values":[[10,1],[20,2],[40,-0.5]]}]"#,
        ),
        (
            "SELECT non_negative_difference(n), difference(n) FROM cpu",
            r#"[{"name":"cpu","columns":["time","non_negative_difference","difference"],"values":[[10,2,2],[20,null,-1]]}]"#,
        ),
        (
            "SELECT cumulative_sum(n) FROM cpu",
            r#"[{"name":"cpu","columns":["time","cumulative_sum"],"values":[[0,5],[10,12],[20,18]]}]"#,
        ),
        (
            "SELECT moving_average(n, 2) FROM cpu",
            r#"[{"name":"cpu","columns":["time","moving_average"],"values":[[10,6],[20,6.5]]}]"#,
        ),
        (
            "SELECT elapsed(user, 1s) FROM cpu WHERE host='a'",
            r#"[{"name":"cpu","columns":["time","elapsed"],"values":[[10,10],[20,10],[40,20]]}]"#,
        ),
        (
            "SELECT integral(user) FROM cpu WHERE host='a' AND time >= 10s",
            r#"[{"name":"cpu","columns":["time","integral"],"values":[[0,100]]}]"#,
        ),
    ]);
}

#[test]
fn windows_are_filled_as_asked() {
    let filled = |fill: &str| {
        let text = format!(
            "SELECT mean(user) FROM cpu WHERE host='a' AND time >= 0s AND time < 60s GROUP BY time(10s) {fill}"
        );
        let answer = answer(&machines(), &text);
        let values = answer.split_once("\"values\":").map(|(_, values)| values.trim_end_matches("}]").to_owned());
        values.unwrap_or(answer)
    };
    assert_eq!(filled(""), "[[0,1],[10,2],[20,4],[30,null],[40,3],[50,null]]");
    assert_eq!(filled("fill(none)"), "[[0,1],[10,2],[20,4],[40,3]]");
    assert_eq!(filled("fill(previous)"), "[[0,1],[10,2],[20,4],[30,4],[40,3],[50,3]]");
    assert_eq!(filled("fill(linear)"), "[[0,1],[10,2],[20,4],[30,3.5],[40,3],[50,null]]");
    assert_eq!(filled("fill(-1.5)"), "[[0,1],[10,2],[20,4],[30,-1.5],[40,3],[50,-1.5]]");
    assert_eq!(filled("fill(0) ORDER BY time DESC LIMIT 3"), "[[50,0],[40,3],[30,0]]");
    check(&[
        (
            "SELECT count(user) FROM cpu WHERE host='a' AND time >= 20s AND time < 50s GROUP BY time(10s)",
            r#"[{"name":"cpu","columns":["time","count"],"values":[[20,1],[30,0],[40,1]]}]"#,
        ),
        (
            "SELECT max(user), n FROM cpu WHERE time < 40s GROUP BY time(20s, 5s), region fill(none)",
            r#"[{"name":"cpu","tags":{"region":"eu"},"columns":["time","max","n"],"values":[[-15,1,null],[5,4,null]]},{"name":"cpu","tags":{"region":"us"},"columns":["time","max","n"],"values":[[-15,10,5],[5,40,6]]}]"#,
        ),
        (
            "SELECT derivative(mean(user), 10s) FROM cpu WHERE host='a' AND time >= 10s AND time < 30s GROUP BY time(10s)",
            r#"[{"name":"cpu","columns":["time","derivative"],"values":[[10,1],[20,2]]}]"#,
        ),
        (
            "SELECT mean(user), sum(n) FROM cpu WHERE time >= 0s AND time < 40s GROUP BY time(20s), host fill(none)",
            r#"[{"name":"cpu","tags":{"host":"a"},"columns":["time","mean","sum"],"values":[[0,1.5,null],[20,4,null]]},{"name":"cpu","tags":{"host":"b"},"columns":["time","mean","sum"],"values":[[0,15,12],[20,40,6]]}]"#,
        ),
        (
            "SELECT mean(user) FROM cpu WHERE host='a' GROUP BY time(500s)",
            r#"[{"name":"cpu","columns":["time","mean"],"values":[[0,2.5],[500,null],[1000,null]]}]"#,
        ),
        (
            "SELECT mean(user) FROM cpu WHERE time >= '1900-01-01' GROUP BY time(1s)",
            r#"{"statement_id":0,"error":"max-select-buckets limit exceeded: (2208989801/2000000)"}"#,
        ),
        (
            "SELECT integral(user, 1s) FROM cpu WHERE host='a' AND time <= 40s GROUP BY time(20s)",
            r#"[{"name":"cpu","columns":["time","integral"],"values":[[0,45],[20,70]]}]"#,
        ),
    ]);
}

#[test]
fn selections_may_be_made_of_selections() {
    check(&[
        (
            "SELECT max(mean) FROM (SELECT mean(user) FROM cpu WHERE time < 60s GROUP BY host)",
            r#"[{"name":"cpu","columns":["time","max"],"values":[[0,25]]}]"#,
        ),
        (
            "SELECT sum(top) FROM (SELECT top(user, 1) FROM cpu GROUP BY host) WHERE time < 30s GROUP BY host",
            r#"[{"name":"cpu","tags":{"host":"a"},"columns":["time","sum"],"values":[[0,4]]},{"name":"cpu","tags":{"host":"b"},"columns":["time","sum"],"values":[[0,40]]}]"#,
        ),
        (
            "SELECT mean(d) * 10 FROM (SELECT difference(user) AS d FROM cpu WHERE host = 'a') WHERE d > 0",
            r#"[{"name":"cpu","columns":["time","mean"],"values":[[0,15]]}]"#,
        ),
        (
            "SELECT user FROM (SELECT user, host FROM cpu ORDER BY time DESC) WHERE host = 'b' AND time > 15s",
            r#"[{"name":"cpu","columns":["time","user"],"values":[[20,40],[40,30]]}]"#,
        ),
    ]);
}

#[test]
fn what_there_is_can_be_shown() {
    check(&[
        ("SHOW DATABASES", r#"[{"name":"databases","columns":["name"],"values":[["db"]]}]"#),
        ("show measurements", r#"[{"name":"measurements","columns":["name"],"values":[["cpu"],["mem"]]}]"#),
        ("SHOW MEASUREMENTS LIMIT 1 OFFSET 1", r#"[{"name":"measurements","columns":["name"],"values":[["mem"]]}]"#),
        (
            "SHOW MEASUREMENTS ON db WITH MEASUREMENT =~ /(?i)C/",
            r#"[{"name":"measurements","columns":["name"],"values":[["cpu"]]}]"#,
        ),
        ("SHOW MEASUREMENTS WITH MEASUREMENT = nothing", r#"{"statement_id":0}"#),
        ("SHOW MEASUREMENTS WHERE host = 'c'", r#"[{"name":"measurements","columns":["name"],"values":[["mem"]]}]"#),
        (
            "SHOW TAG KEYS",
            r#"[{"name":"cpu","columns":["tagKey"],"values":[["host"],["region"]]},{"name":"mem","columns":["tagKey"],"values":[["host"]]}]"#,
        ),
        ("SHOW TAG KEYS FROM \"mem\"", r#"[{"name":"mem","columns":["tagKey"],"values":[["host"]]}]"#),
        (
            "SHOW TAG VALUES WITH KEY = \"host\"",
            r#"[{"name":"cpu","columns":["key","value"],"values":[["host","a"],["host","b"]]},{"name":"mem","columns":["key","value"],"values":[["host","a"],["host","c"]]}]"#,
        ),
        (
            "SHOW TAG VALUES FROM cpu WITH KEY IN (host, region) WHERE region = 'us' OR host = 'z'",
            r#"[{"name":"cpu","columns":["key","value"],"values":[["host","b"],["region","us"]]}]"#,
        ),
        (
            "SHOW TAG VALUES WITH KEY =~ /reg/",
            r#"[{"name":"cpu","columns":["key","value"],"values":[["region","eu"],["region","us"]]}]"#,
        ),
        (
            "SHOW TAG VALUES FROM cpu WITH KEY != host LIMIT 1",
            r#"[{"name":"cpu","columns":["key","value"],"values":[["region","eu"]]}]"#,
        ),
        (
            "SHOW FIELD KEYS FROM cpu",
            r#"[{"name":"cpu","columns":["fieldKey","fieldType"],"values":[["idle","float"],["n","integer"],["note","string"],["up","boolean"],["user","float"]]}]"#,
        ),
        ("SHOW SERIES FROM cpu WHERE host = 'a'", r#"[{"columns":["key"],"values":[["cpu,host=a,region=eu"]]}]"#),
        (
            "SHOW RETENTION POLICIES ON \"db\"",
            r#"[{"columns":["name","duration","shardGroupDuration","replicaN","default"],"values":[["autogen","0s","168h0m0s",1,true]]}]"#,
        ),
        ("SHOW MEASUREMENTS ON nowhere", r#"{"statement_id":0}"#),
        ("SHOW TAG KEYS ON nowhere", r#"{"statement_id":0,"error":"database not found: nowhere"}"#),
        ("SELECT v FROM nowhere..m", r#"{"statement_id":0,"error":"database not found: nowhere"}"#),
    ]);
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_influxdb() {
    check(&[
        (
            "FOO",
            "error parsing query: found FOO, expected SELECT, DELETE, SHOW, CREATE, DROP, EXPLAIN, GRANT, REVOKE, ALTER, SET, KILL at line 1, char 1",
        ),
        (
            "SELECT FROM x",
            "error parsing query: found FROM, expected identifier, string, number, bool at line 1, char 8",
        ),
        ("SELECT x", "error parsing query: found EOF, expected FROM at line 1, char 10"),
        ("SELECT x FROM y y", "error parsing query: found y, expected ; at line 1, char 17"),
        ("SELECT x\nFROM y WHERE x = 'a", "error parsing query: found ' without its end at line 2, char 18"),
        (
            "SELECT mean(x), y FROM m",
            r#"{"statement_id":0,"error":"mixing aggregate and non-aggregate queries is not supported"}"#,
        ),
        (
            "SELECT max(x), min(x), y FROM m",
            r#"{"statement_id":0,"error":"mixing multiple selector functions with tags or fields is not supported"}"#,
        ),
        ("SELECT foo(x) FROM m", r#"{"statement_id":0,"error":"undefined function foo()"}"#),
        (
            "SELECT x FROM m GROUP BY time(1m)",
            r#"{"statement_id":0,"error":"GROUP BY requires at least one aggregate function"}"#,
        ),
        (
            "SELECT mean(x, 1) FROM m",
            r#"{"statement_id":0,"error":"invalid number of arguments for mean, expected 1, got 2"}"#,
        ),
        ("SELECT time FROM m", r#"{"statement_id":0,"error":"at least 1 non-time field must be queried"}"#),
        (
            "SELECT mean(note) FROM cpu",
            r#"{"statement_id":0,"error":"unsupported mean iterator type: *query.stringInterruptIterator"}"#,
        ),
        (
            "SELECT distinct(x), max(x) FROM m",
            r#"{"statement_id":0,"error":"aggregate function distinct() cannot be combined with other functions or fields"}"#,
        ),
        ("", ""),
    ]);
}

#[test]
fn answers_have_the_shapes_of_influxdb() {
    let model = machines();
    let two = "SELECT n FROM cpu LIMIT 1; SHOW DATABASES; SELECT x FROM nowhere..y";
    assert_eq!(
        answer_with(&model, two, Layout::Plain, Epoch::Text),
        concat!(
            r#"{"results":[{"statement_id":0,"series":[{"name":"cpu","columns":["time","n"],"values":[["1970-01-01T00:00:00Z",5]]}]},"#,
            r#"{"statement_id":1,"series":[{"name":"databases","columns":["name"],"values":[["db"]]}]},"#,
            r#"{"statement_id":2,"error":"database not found: nowhere"}]}"#,
            "\n"
        )
    );
    assert_eq!(
        answer_with(
            &model,
            "SELECT n FROM cpu GROUP BY host; SELECT x FROM y",
            Layout::Chunked(2),
            Epoch::Units(SECOND)
        ),
        concat!(
            r#"{"results":[{"statement_id":0,"series":[{"name":"cpu","tags":{"host":"b"},"columns":["time","n"],"values":[[0,5],[10,7]],"partial":true}],"partial":true}]}"#,
            "\n",
            r#"{"results":[{"statement_id":0,"series":[{"name":"cpu","tags":{"host":"b"},"columns":["time","n"],"values":[[20,6]]}]}]}"#,
            "\n",
            r#"{"results":[{"statement_id":1}]}"#,
            "\n"
        )
    );
    assert_eq!(
        answer_with(&model, "SHOW MEASUREMENTS LIMIT 1", Layout::Pretty, Epoch::Text),
        "{\n    \"results\": [\n        {\n            \"statement_id\": 0,\n            \"series\": [\n                {\n                    \"name\": \"measurements\",\n                    \"columns\": [\n                        \"name\"\n                    ],\n                    \"values\": [\n                        [\n                            \"cpu\"\n                        ]\n                    ]\n                }\n            ]\n        }\n    ]\n}\n"
    );
    assert_eq!(
        answer_with(&model, "SELECT user,note FROM cpu WHERE time=20s GROUP BY host,region", Layout::Csv, Epoch::Text),
        "name,tags,time,user,note\ncpu,\"host=a,region=eu\",20000000000,4,it's <ok>\ncpu,\"host=b,region=us\",20000000000,40,\n"
    );
}

/// The rows of one series were looked at to the end, whoever waited: a regular expression over long texts takes minutes.
#[test]
fn rows_ask_whether_to_go_on_whether_they_are_wanted_or_not() {
    let mut model = Model::default();
    let series = key("db", "log", "", "text");
    (0..5_000).for_each(|second| model.write(&series, second * SECOND, Value::Text("nothing".into())));
    let asked = |text: &str| {
        let source = Bounded::new(&model, u64::MAX);
        let env = Env { source: &source, database: "db", now: 1000 * SECOND, may_see: &|_| true };
        let mut document = Document::new(Layout::Plain, Epoch::Text, 1 << 20);
        let statements = parse(text, &Parameters::new()).unwrap();
        statements.iter().for_each(|statement| read(&env, statement, &mut document).unwrap());
        source.asked()
    };
    for text in [
        "SELECT text FROM log",
        "SELECT text FROM log WHERE text =~ /some/",
        "SELECT count(text) FROM log WHERE text =~ /some/",
    ] {
        assert!((10..100).contains(&asked(text)), "{text}: {}", asked(text));
    }
}
