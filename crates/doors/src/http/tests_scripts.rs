//! Scripts that are kept over HTTP: by hash, and in libraries.

use std::time::Duration;

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide};
use super::tests_execute::{Both, execute, open, open_both};
use crate::auth::{BucketRight, Right, User, Users, hash_password};

const STOCK: &str = "#!luau name=stock
redis.register_function('take', function(keys, args) return redis.call('DECRBY', keys[1], args[1]) end)
redis.register_function{function_name='left', description='what there is', flags={'no-writes'},
    callback=function(keys) return redis.call('GET', keys[1]) end}";

fn post(door: &Door, path: &str, body: &Value) -> Answer {
    door.send(&format!("POST {path}"), &[], Some(body.to_string().as_bytes()))
}

fn library(name: &str, function: &str) -> String {
    format!("#!luau name={name}\nredis.register_function('{function}', function() return '{name}' end)")
}

fn names(door: &Door, query: &str) -> Vec<String> {
    let answer = door.get(&format!("/libraries{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let listed = answer.json()["libraries"].as_array().unwrap().clone();
    listed.iter().map(|library| library["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_script_is_loaded_and_run_by_its_hash_until_all_are_forgotten() {
    let Both { http: door, .. } = &open();
    let text = "return 'by hash ' .. ARGV[1]";
    let sha1 = script::sha1hex(text.as_bytes());
    let unknown = door.get(&format!("/scripts/{sha1}"));
    assert!(unknown.status == 404 && unknown.text().starts_with("NOSCRIPT"), "{unknown:?}");
    let loaded = post(door, "/scripts", &json!({ "script": text }));
    assert_eq!((loaded.status, loaded.json()), (200, json!({ "sha1": sha1 })));
    let known = door.get(&format!("/scripts/{}", sha1.to_uppercase()));
    assert_eq!((known.status, known.json()), (200, json!({ "sha1": sha1 })));
    let run = || execute(door, &json!({"sha1": sha1, "arguments": ["x"]}));
    assert_eq!(run().json()["result"], "by hash x");
    assert_eq!(door.send("DELETE /scripts", &[], None).status, 204);
    let gone = run();
    assert!(gone.status == 404 && gone.text().starts_with("NOSCRIPT"), "{gone:?}");
    for (body, wanted) in [
        (json!({"script": "return ("}), "ERR Error compiling script"),
        (json!({}), "script is missing"),
        (json!({"script": 1}), "script has to be a string"),
        (json!({"script": "return 1", "name": "a"}), "name is not known here"),
    ] {
        let answer = post(door, "/scripts", &body);
        assert!(answer.status == 400 && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    assert_eq!(door.send("POST /scripts", &[], None).status, 411);
}

#[test]
fn a_library_is_loaded_listed_replaced_and_deleted() {
    let Both { http: door, .. } = &open();
    let loaded =
        door.send("POST /libraries?durability=synced", &[], Some(json!({"library": STOCK}).to_string().as_bytes()));
    assert_eq!((loaded.status, &loaded.json()["name"]), (201, &json!("stock")), "{loaded:?}");
    assert_eq!(loaded.header("location"), Some("/libraries/stock"));
    assert_eq!(loaded.header("x-holdfast-durability"), Some("synced"));
    assert_eq!(loaded.json()["position"].as_str().unwrap().len(), 16);
    let take = json!({"function": "take", "keys": ["apples"], "arguments": [3]});
    assert_eq!(execute(door, &take).json()["result"], -3);
    let functions = json!([
        {"name": "take", "description": null, "flags": []},
        {"name": "left", "description": "what there is", "flags": ["no-writes"]},
    ]);
    let mut listed = door.get("/libraries").json();
    let sorted = |functions: &Value| {
        let mut all = functions.as_array().unwrap().clone();
        all.sort_by_key(|function| function["name"].to_string());
        all
    };
    assert_eq!(sorted(&listed["libraries"][0]["functions"]), sorted(&functions));
    listed["libraries"][0]["functions"] = json!([]);
    assert_eq!(listed, json!({"libraries": [{"name": "stock", "engine": "LUAU", "functions": []}]}));
    assert_eq!(door.get("/libraries/stock").json()["code"], STOCK);
    // One that is there is replaced only if that is said, and functions belong to one library.
    let other = library("stock", "other");
    for (body, wanted) in [
        (json!({ "library": other }), "ERR Library 'stock' already exists"),
        (json!({"library": library("more", "take"), "replace": true}), "ERR Function take already exists"),
    ] {
        let refused = post(door, "/libraries", &body);
        assert_eq!((refused.status, refused.text().trim_end()), (412, wanted));
    }
    assert_eq!(post(door, "/libraries", &json!({"library": other, "replace": true})).status, 201);
    assert_eq!(execute(door, &take).status, 404);
    assert_eq!(execute(door, &json!({"function": "other"})).json()["result"], "stock");
    assert_eq!(post(door, "/libraries", &json!({ "library": library("sale", "sell") })).status, 201);
    assert_eq!(names(door, ""), ["sale", "stock"]);
    assert_eq!(names(door, "?pattern=st*"), ["stock"]);
    assert_eq!(door.get("/libraries?pattern=s%5Bt%5D*&code=true").json()["libraries"][0]["code"], other);
    assert_eq!(door.send("DELETE /libraries/stock", &[], None).status, 204);
    for answer in [door.send("DELETE /libraries/stock", &[], None), door.get("/libraries/stock")] {
        assert_eq!((answer.status, answer.text()), (404, "ERR Library not found\n"));
    }
    assert_eq!(names(door, ""), ["sale"]);
    assert_eq!(door.send("DELETE /libraries", &[], None).status, 204);
    assert!(names(door, "").is_empty());
    assert_eq!(execute(door, &json!({"function": "sell"})).status, 404);
}

#[test]
fn what_is_wrong_with_a_library_is_told_by_status_and_words() {
    let Both { http: door, .. } = &open();
    for (body, status, wanted) in [
        (json!({}), 400, "library is missing"),
        (json!({"library": 1}), 400, "library has to be a string"),
        (json!({"library": "x", "replace": 1}), 400, "replace has to be true or false"),
        (json!({"library": "x", "name": "y"}), 400, "name is not known here"),
        (json!({"library": "return 1"}), 400, "ERR Missing library metadata"),
        (json!({"library": "#!luau name=a\nreturn ("}), 400, "ERR Error compiling script"),
        (json!({"library": "#!luau name=a\nerror('no')"}), 400, "no"),
        (json!({"library": "#!luau name=a\nlocal x = string.rep('x', 100000000)"}), 413, "script.memory_bytes_max"),
        (json!({"library": "#!luau name=a\nwhile true do end"}), 503, "it took longer"),
    ] {
        let answer = post(door, "/libraries", &body);
        assert!(answer.status == status && answer.text().contains(wanted), "{body}: {answer:?}");
    }
    assert!(names(door, "").is_empty());
    assert_eq!(door.send("POST /libraries", &[], None).status, 411);
    assert_eq!(door.get("/libraries?code=2").status, 400);
    // Nobody has scripts here.
    let none = open_wide();
    for answer in [
        post(&none, "/scripts", &json!({"script": "return 1"})),
        post(&none, "/libraries", &json!({"library": STOCK})),
        none.get("/libraries"),
        none.get("/scripts/0"),
        none.send("DELETE /libraries", &[], None),
    ] {
        assert_eq!((answer.status, answer.text()), (404, "there are no scripts here\n"));
    }
}

/// As FUNCTION LOAD, DELETE and FLUSH want it; who may do nothing but that may list and load scripts.
#[test]
fn libraries_are_changed_by_administrators_alone() {
    let user = |name: &str, pattern: &str, right| User {
        name: name.to_owned(),
        password_hash: hash_password(b"p").unwrap(),
        doors: vec!["http".to_owned()],
        buckets: vec![BucketRight { pattern: pattern.to_owned(), right }],
    };
    let users =
        Users::new([user("ada", "*", Right::Admin), user("eve", "*", Right::Write), user("joe", "j*", Right::Admin)]);
    let Both { http: door, .. } = &open_both(users.unwrap(), Duration::from_secs(8));
    let send = |name: &str, line: &str, body: Option<Value>| {
        let authorization = format!("Bearer {name}:p");
        let body = body.map(|body| body.to_string());
        door.send(line, &[("Authorization", authorization.as_str())], body.as_ref().map(|body| body.as_bytes())).status
    };
    let load = || Some(json!({ "library": STOCK, "replace": true }));
    for name in ["eve", "joe"] {
        assert_eq!(send(name, "POST /libraries", load()), 403);
        assert_eq!(send(name, "DELETE /libraries/stock", None), 403);
        assert_eq!(send(name, "DELETE /libraries", None), 403);
        assert_eq!(send(name, "GET /libraries", None), 200);
        assert_eq!(send(name, "POST /scripts", Some(json!({"script": "return 1"}))), 200);
    }
    assert_eq!(send("ada", "POST /libraries", load()), 201);
    assert_eq!(send("eve", "GET /libraries/stock", None), 200);
    assert_eq!(send("ada", "DELETE /libraries/stock", None), 204);
    assert_eq!(send("ada", "DELETE /libraries", None), 204);
    for line in ["GET /libraries", "DELETE /libraries", "POST /scripts", "DELETE /scripts", "GET /scripts/0"] {
        assert_eq!(door.send(line, &[], None).status, 401, "{line}");
    }
}

#[test]
fn libraries_are_as_many_and_answers_as_large_as_limits_say() {
    let bounds = crate::http::Limits { documents_bytes_max: 2_000, ..Default::default() };
    let both = super::tests_execute::open_limited(Users::open(), Duration::from_secs(8), bounds);
    let door = &both.http;
    let long = format!("{}\n--{}", library("long", "long"), "x".repeat(3_000));
    assert_eq!(post(door, "/libraries", &json!({ "library": long })).status, 201);
    assert_eq!(names(door, ""), ["long"]);
    for path in ["/libraries/long", "/libraries?code=true"] {
        let refused = door.get(path);
        assert!(refused.status == 413 && refused.text().contains("more than 2000 bytes as JSON"), "{refused:?}");
    }
    let mut answer = post(door, "/libraries", &json!({ "library": library("a0", "f0") }));
    let mut count = 1;
    while answer.status == 201 {
        count += 1;
        answer = post(door, "/libraries", &json!({ "library": library(&format!("a{count}"), &format!("f{count}")) }));
    }
    assert_eq!((answer.status, count), (413, 4), "{answer:?}");
    assert!(answer.text().contains("no more may be"), "{answer:?}");
}

#[test]
fn when_the_door_that_keeps_scripts_is_closed_none_is_kept() {
    let Both { http: door, resp, _folder } = open();
    resp.stop();
    for answer in [
        post(&door, "/scripts", &json!({"script": "return 1"})),
        post(&door, "/libraries", &json!({ "library": STOCK })),
        door.get("/libraries"),
    ] {
        assert!(answer.status == 503 && answer.text().starts_with("UNAVAILABLE"), "{answer:?}");
    }
}
