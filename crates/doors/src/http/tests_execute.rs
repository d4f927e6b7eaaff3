//! Scripts through the door, which the RESP door beside it runs.

use std::sync::Arc;
use std::time::Duration;

use holdfast::PutOptions;
use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide, open_with};
use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::http::Limits;
use crate::resp;

/// Both doors of one store. Scripts may take their time: the machine may have much else to do.
pub(super) struct Both {
    pub(super) http: Door,
    pub(super) resp: resp::Running,
    pub(super) _folder: Door,
}

pub(super) fn open_both(users: Users, time_max: Duration) -> Both {
    open_limited(users, time_max, Limits::default())
}

pub(super) fn open_limited(users: Users, time_max: Duration, bounds: Limits) -> Both {
    let users = Arc::new(users);
    let limits = holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() };
    let alone = open_with(limits, |_| {});
    let mut options = resp::Options::new("127.0.0.1:0".parse().unwrap());
    options.users = Arc::clone(&users);
    options.script.time_max = time_max;
    options.script.steps_max = 20_000_000;
    options.limits.libraries_max = 4;
    let resp = resp::serve(alone.store.clone(), options).unwrap();
    let mut options = super::Options::new("127.0.0.1:0".parse().unwrap());
    (options.limits, options.users, options.scripts) = (bounds, users, Some(resp.scripts()));
    let http = super::serve(alone.store.clone(), options).unwrap();
    Both { http: Door::of(http, alone.store.clone()), resp, _folder: alone }
}

pub(super) fn open() -> Both {
    open_both(Users::open(), Duration::from_secs(8))
}

pub(super) fn execute(door: &Door, body: &Value) -> Answer {
    door.send("POST /execute", &[], Some(body.to_string().as_bytes()))
}

fn result(door: &Door, script: &str) -> Value {
    let answer = execute(door, &json!({ "script": script }));
    assert_eq!(answer.status, 200, "{script}: {answer:?}");
    answer.json()["result"].clone()
}

#[test]
fn a_script_has_arguments_of_json_and_answers_json() {
    let both = open();
    let door = &both.http;
    let body = json!({"script": "return {KEYS[1], ARGV[1], ARGV[2], cjson.decode(ARGV[3]).a, ARGV[4], ARGV[5]}",
        "keys": ["k"], "arguments": ["text", 7, {"a": "b"}, true, {"$bytes": "AP8="}]});
    let answer = execute(door, &body).json();
    assert_eq!(answer["result"], json!(["k", "text", "7", "b", "true", {"$bytes": "AP8="}]));
    for (script, wanted) in [
        ("return nil", json!(null)),
        ("return 3.7", json!(3)),
        ("return {double = 2.5}", json!(2.5)),
        ("return {ok = 'YES'}", json!("YES")),
        ("return {1, {2, 'x'}}", json!([1, [2, "x"]])),
        ("return {map = {a = 1}}", json!({"a": 1})),
        ("return {map = {[7] = 1}}", json!([[7, 1]])),
        ("return {set = {a = true}}", json!(["a"])),
        ("return {1, redis.pcall('get')}", json!([1, {"err": "ERR wrong number of arguments for 'get' command"}])),
        ("return redis.call('set', 'a', 'b')", json!("OK")),
        ("return redis.call('get', 'a')", json!("b")),
    ] {
        assert_eq!(result(door, script), wanted, "{script}");
    }
}

#[test]
fn what_a_script_changes_is_one_batch_and_its_position_is_told() {
    let both = open();
    let door = &both.http;
    assert_eq!(door.put("/spaces/shop/types/orders", &[], "").status, 204);
    assert_eq!(door.put("/spaces/shop/types/orders/entries/1", &[], r#"{"price":10}"#).status, 204);
    let script = "local order = redis.call('SPACE.TAKE', 'shop', 'orders', 'ID', ARGV[1]) \
        if not order then return redis.error_reply('GONE somebody else has it') end \
        redis.call('SET', KEYS[1], order[1]) return redis.call('SPACE.WRITE', 'shop', 'orders', '{\"id\":2}')";
    let body = json!({"script": script, "keys": ["taken"], "arguments": [1], "database": 3});
    let answer = door.send("POST /execute?durability=synced", &[], Some(body.to_string().as_bytes()));
    assert_eq!((answer.status, answer.header("x-holdfast-durability")), (200, Some("synced")));
    let (position, written) = (answer.json()["position"].clone(), answer.json()["result"].clone());
    let version = u64::from_str_radix(position.as_str().unwrap(), 16).unwrap();
    assert_eq!(written, json!([2, version]));
    let read = door.get("/spaces/shop/types/orders/entries/2");
    assert_eq!(read.header("etag"), Some(format!("\"{}\"", position.as_str().unwrap()).as_str()));
    let kept = door.store.kv().get(b"db3", b"taken").unwrap().unwrap();
    assert_eq!(&kept.value[..], br#"{"id":1,"price":10}"#);
    // What it returns as an error undoes all of it.
    let again = execute(door, &body);
    assert_eq!((again.status, again.text()), (422, "GONE somebody else has it\n"));
    let failing = execute(door, &json!({"script": "redis.call('set', 'x', '1') error('no')"}));
    assert_eq!((failing.status, failing.text()), (422, "ERR script:1: no\n"));
    assert!(door.store.kv().get(b"db0", b"x").unwrap().is_none());
}

#[test]
fn scripts_are_known_by_their_hash_and_functions_by_their_name() {
    let both = open();
    let door = &both.http;
    let script = "return 'by hash'";
    let sha1 = script::sha1hex(script.as_bytes());
    let by_hash = json!({ "sha1": sha1.to_uppercase() });
    let unknown = execute(door, &by_hash);
    assert!(unknown.status == 404 && unknown.text().starts_with("NOSCRIPT"), "{unknown:?}");
    assert_eq!(result(door, script), "by hash");
    assert_eq!(execute(door, &by_hash).json()["result"], "by hash");
    let library = "#!luau name=stock\n\
        redis.register_function('take', function(keys, args) return redis.call('DECRBY', keys[1], args[1]) end)\n\
        redis.register_function{function_name='left', flags={'no-writes'}, callback=function(keys) return redis.call('SET', keys[1], '0') end}";
    use std::io::{Read, Write};
    let mut client = super::tests_client::connect(both.resp.local_addr());
    let load = format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${}\r\n{library}\r\n", library.len());
    client.write_all(load.as_bytes()).unwrap();
    let mut reply = [0; 11];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"$5\r\nstock\r\n");
    let take = json!({"function": "take", "keys": ["apples"], "arguments": [3]});
    assert_eq!(execute(door, &take).json()["result"], -3);
    let reading = json!({"function": "take", "keys": ["apples"], "arguments": [3], "read_only": true});
    for body in [reading, json!({"function": "left", "keys": ["apples"]})] {
        let refused = execute(door, &body);
        assert!(refused.status == 422 && refused.text().contains("read-only scripts"), "{refused:?}");
    }
    let missing = execute(door, &json!({"function": "none"}));
    assert_eq!((missing.status, missing.text()), (404, "ERR Function not found\n"));
}

#[test]
fn what_is_wrong_with_a_script_is_told_by_status_and_words() {
    let both = open();
    let door = &both.http;
    let long = "k".repeat(63_000);
    for (body, status, wanted) in [
        (json!({}), 400, "say which script"),
        (json!({"script": "return 1", "sha1": "x"}), 400, "one of them"),
        (json!({"script": 7}), 400, "script has to be a string"),
        (json!({"script": "return 1", "keys": [1]}), 400, "keys are strings"),
        (json!({"script": "return 1", "keys": "a"}), 400, "keys has to be a list"),
        (json!({"script": "return 1", "arguments": 1}), 400, "arguments has to be a list"),
        (json!({"script": "return 1", "read_only": 1}), 400, "read_only has to be true or false"),
        (json!({"script": "return 1", "database": 70_000}), 400, "no such database"),
        (json!({"script": "return 1", "database": 16}), 400, "DB index is out of range"),
        (json!({"script": "return 1", "argv": []}), 400, "argv is not known"),
        (json!({"script": "return 1", "keys": [long]}), 400, "the key exceeds"),
        (json!({"script": "return ("}), 400, "ERR Error compiling script"),
        (json!({"script": "return nosuch"}), 422, "nosuch"),
        (json!({"script": "return redis.call('SPACE.READ', 'shop', 'none', 'ANY')"}), 422, "has no type none"),
        (json!({"script": "return {err = 'CONFLICT mine'}"}), 412, "CONFLICT mine"),
        (json!({"script": "return string.rep('x', 100000000)"}), 413, "script.memory_bytes_max"),
        (json!({"script": "for i = 1, 4e7 do end"}), 413, "it made more steps than it may (script.steps_max)"),
        (json!({"script": "return redis.call('blpop', 'a', 0)"}), 422, "ERR "),
    ] {
        let answer = execute(door, &body);
        assert!(
            answer.status == status && answer.text().contains(wanted),
            "{:.80}: {} {:.200}",
            body.to_string(),
            answer.status,
            answer.text()
        );
    }
    assert_eq!(door.send("POST /execute", &[], None).status, 411);
    assert_eq!(door.send("POST /execute?durability=x", &[], Some(b"{}")).status, 400);
    // Nobody has scripts here.
    let none = execute(&open_wide(), &json!({"script": "return 1"}));
    assert_eq!((none.status, none.text()), (404, "there are no scripts here\n"));
}

#[test]
fn a_script_that_goes_on_for_too_long_is_ended_and_nothing_has_happened() {
    let both = open_both(Users::open(), Duration::from_millis(20));
    let answer = execute(&both.http, &json!({"script": "redis.call('set', 'x', '1') while true do end"}));
    assert!(answer.status == 503 && answer.text().contains("script.time_milliseconds_max"), "{answer:?}");
    assert!(both.http.store.kv().get(b"db0", b"x").unwrap().is_none());
}

/// What a script returned was copied, and made six times as much of JSON, however much it was, and counted as nothing.
#[test]
fn what_a_script_returns_is_bounded_and_counted_before_it_is_committed() {
    let bounds = Limits { documents_bytes_max: 60_000, bodies_bytes_max: 200_000, ..Limits::default() };
    let both = open_limited(Users::open(), Duration::from_secs(8), bounds);
    let door = &both.http;
    let returns = |what: &str| execute(door, &json!({"script": format!("redis.call('set', 'x', '1') return {what}")}));
    for (what, wanted) in [
        // More than is taken from a script, more as JSON, and more in memory than all bodies may have.
        ("string.rep('x', 60001)", "it is too big"),
        ("string.rep('\\1', 10001)", "more than 60000 bytes as JSON"),
        ("string.rep('\\255', 50000)", "more than 60000 bytes as JSON"),
        ("string.rep('x', 50000)", "too many values"),
        ("table.create(5000, 1)", "too many values"),
    ] {
        let answer = returns(what);
        assert!(answer.status == 413 && answer.text().contains(wanted), "{what}: {answer:?}");
    }
    assert!(door.store.kv().get(b"db0", b"x").unwrap().is_none(), "none of it has happened");
    for _ in 0..3 {
        let answer = returns("string.rep('\\1', 7000)");
        assert_eq!((answer.status, answer.json()["result"].as_str().unwrap().len()), (200, 7000), "{answer:?}");
    }
    assert!(door.store.kv().get(b"db0", b"x").unwrap().is_some());
}

#[test]
fn a_script_may_do_what_its_user_may() {
    let user = |name: &str, pattern: &str, right| User {
        name: name.to_owned(),
        password_hash: hash_password(b"p").unwrap(),
        doors: vec!["http".to_owned()],
        buckets: vec![BucketRight { pattern: pattern.to_owned(), right }],
    };
    let users = Users::new([user("ada", "db0", Right::Read), user("eve", "db0", Right::Write)]).unwrap();
    let both = open_both(users, Duration::from_secs(8));
    let door = &both.http;
    door.store.kv().put(b"db0", b"k", b"v", &PutOptions::default()).unwrap();
    let body = |script: &str, database: u16| json!({"script": script, "database": database}).to_string();
    let (get, set) = ("return redis.call('get', 'k')", "return redis.call('set', 'k', 'w')");
    for (name, script, database, status) in [
        ("ada", get, 0, 200),
        ("ada", set, 0, 403),
        ("ada", get, 1, 403),
        ("eve", set, 0, 200),
        ("eve", "return redis.call('SPACE.READ', 'shop', 'orders', 'ANY')", 0, 403),
    ] {
        let authorization = format!("Bearer {name}:p");
        let headers = [("Authorization", authorization.as_str())];
        let answer = door.send("POST /execute", &headers, Some(body(script, database).as_bytes()));
        assert_eq!(answer.status, status, "{name} {script}: {answer:?}");
    }
    assert_eq!(door.send("POST /execute", &[], Some(body(get, 0).as_bytes())).status, 401);
}

/// Of scripts that took their time over HTTP nobody was told.
#[test]
fn a_script_that_takes_long_is_in_the_slow_log() {
    use std::io::{Read, Write};
    let both = open();
    let mut client = super::tests_client::connect(both.resp.local_addr());
    let mut ask = |command: &str| {
        client.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 64 << 10];
        let length = client.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..length]).replace("\r\n", " ")
    };
    let busy = "local sum = 0 for i = 1, 1e6 do sum = sum + i end return KEYS[1] .. ARGV[1]";
    assert_eq!(execute(&both.http, &json!({"script": "return 1"})).status, 200);
    assert_eq!(ask("CONFIG SET slowlog-log-slower-than 1000"), "+OK ");
    assert_eq!(ask("SLOWLOG RESET"), "+OK ");
    let body = json!({"script": busy, "keys": ["k"], "arguments": [7], "read_only": true});
    assert_eq!(execute(&both.http, &body).json()["result"], "k7");
    // Twice what there is of the text, and that it came by this door.
    let log = ask("SLOWLOG GET");
    assert!(log.contains(&format!("*5 $7 EVAL_RO ${} {busy} $1 1 $1 k $1 7 ", busy.len())), "{log}");
    assert!(log.contains(" $4 http "), "{log}");
    assert!(log.contains("127.0.0.1:"), "{log}");
    // By hash, in the words of those who sent it; and one that fails.
    let body = json!({"sha1": script::sha1hex(busy.as_bytes())});
    assert_eq!(execute(&both.http, &body).status, 422);
    let log = ask("SLOWLOG GET 1");
    assert!(log.contains("$7 EVALSHA $40 "), "{log}");
    assert_eq!(ask("CONFIG SET slowlog-log-slower-than -1"), "+OK ");
    assert_eq!(ask("SLOWLOG RESET"), "+OK ");
    assert_eq!(execute(&both.http, &body).status, 422);
    assert_eq!(ask("SLOWLOG LEN"), ":0 ");
}

#[test]
fn when_the_door_with_the_scripts_is_closed_none_runs() {
    let Both { http, resp, _folder } = open();
    assert_eq!(result(&http, "return 1"), 1);
    resp.stop();
    let answer = execute(&http, &json!({"script": "return 1"}));
    assert!(answer.status == 503 && answer.text().starts_with("UNAVAILABLE"), "{answer:?}");
}
