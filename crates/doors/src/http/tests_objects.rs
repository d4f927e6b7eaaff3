//! Objects through the door: what is stored, what comes back, and under which conditions.

use std::sync::Arc;

use super::tests_client::{Door, open, open_wide, open_with};
use super::*;
use crate::auth::{BucketRight, Right, User, Users, hash_password};

const KEY: &str = "/buckets/b/keys/k";

#[test]
fn an_object_comes_back_with_all_that_was_said_of_it() {
    let door = open_wide();
    let headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("content-encoding", "identity"),
        ("X-RIAK-META-Owner", "ada"),
        ("x-riak-index-age_int", "36, 7"),
        ("X-Riak-Index-City_bin", "Ulm"),
        ("X-Riak-Index-City_bin", "\"a, b\""),
    ];
    let stored = door.put(&format!("{KEY}?r=1&w=quorum&dw=3&timeout=5"), &headers, "value");
    assert_eq!((stored.status, stored.text()), (204, ""));
    assert_eq!(stored.header("x-holdfast-durability"), Some("synced"));
    let got = door.get(KEY);
    assert_eq!((got.status, got.text()), (200, "value"));
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-encoding", "identity"),
        ("content-length", "5"),
        ("x-riak-meta-owner", "ada"),
        ("x-riak-index-age_int", "7, 36"),
        ("x-riak-index-city_bin", "Ulm, \"a, b\""),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(got.header(name), Some(value), "{name}");
    }
    for name in ["etag", "x-riak-vclock", "last-modified"] {
        assert!(got.header(name).is_some() && got.header(name) == stored.header(name), "{name}: {got:?}");
    }
    let head = door.send(&format!("HEAD {KEY}"), &[], None);
    assert_eq!((head.status, head.body.len()), (200, 0));
    for name in ["content-length", "etag", "content-type", "x-riak-index-age_int"] {
        assert_eq!(head.header(name), got.header(name), "{name}");
    }
    let object = door.store.kv().get(b"b", b"k").unwrap().unwrap();
    let notes: Vec<_> =
        object.head.metadata.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(notes, [":content-encoding", ":content-type", "owner"]);
    assert_eq!(door.send(&format!("DELETE {KEY}"), &[], None).status, 204);
    assert_eq!(door.send(&format!("DELETE {KEY}"), &[], None).status, 404);
    let gone = door.get(KEY);
    assert_eq!((gone.status, gone.text()), (404, "not found\n"));
    assert_eq!(door.send(&format!("HEAD {KEY}"), &[], None).status, 404);
}

#[test]
fn any_bytes_are_buckets_keys_and_values_and_aliases_are_the_same_objects() {
    let door = open_wide();
    let body: Vec<u8> = (0..=255).collect();
    assert_eq!(door.send("PUT /buckets/%01%ff%2F/keys/a%2fb%25", &[], Some(&body)).status, 204);
    assert_eq!(*door.store.kv().get(b"\x01\xff/", b"a/b%").unwrap().unwrap().value, body);
    let got = door.get("/types/default/buckets/%01%FF%2f/keys/a%2Fb%25");
    assert_eq!((got.status, &got.body, got.header("content-type")), (200, &body, Some("application/octet-stream")));
    assert_eq!(door.send("PUT /buckets/%00xa/keys/k", &[], Some(&body)).status, 400, "the store's own");
    assert_eq!(door.get("/types/other/buckets/b/keys/k").status, 404);
    assert_eq!(door.put(KEY, &[], "").status, 204);
    let got = door.get(KEY);
    assert_eq!((got.status, got.header("content-length"), got.body.len()), (200, Some("0"), 0));
}

#[test]
fn the_server_makes_keys_and_returns_what_it_stored_when_asked() {
    let door = open_wide();
    let made = door.send("POST /buckets/b%2f/keys", &[("content-type", "a/b")], Some(b"1"));
    let location = made.header("location").unwrap().to_owned();
    assert_eq!((made.status, made.body.len()), (201, 0));
    assert!(location.starts_with("/buckets/b%2F/keys/") && location.len() == 41, "{location}");
    assert_eq!(door.get(&location).text(), "1");
    let other = door.send("POST /buckets/b%2f/keys?returnbody=true", &[("x-riak-meta-a", "b")], Some(b"2"));
    assert_eq!((other.status, other.text(), other.header("x-riak-meta-a")), (201, "2", Some("b")));
    assert_ne!(other.header("location"), Some(location.as_str()));
    let stored = door.put(&format!("{KEY}?returnbody=true"), &[("content-type", "c/d")], "3");
    assert_eq!((stored.status, stored.text(), stored.header("content-type")), (200, "3", Some("c/d")));
    assert_eq!(stored.header("etag"), door.get(KEY).header("etag"));
    assert_eq!(door.send(&format!("POST {KEY}"), &[], Some(b"4")).status, 204);
    assert_eq!(door.get(KEY).text(), "4");
}

#[test]
fn conditions_are_judged_in_the_instant_of_the_change() {
    let door = open_wide();
    assert_eq!(door.put(KEY, &[("If-Match", "*")], "0").status, 412);
    assert_eq!(door.put(KEY, &[("If-None-Match", "*")], "1").status, 204);
    assert_eq!(door.put(KEY, &[("If-None-Match", "*")], "2").status, 412);
    let first = door.get(KEY);
    let (tag, clock) = (first.header("etag").unwrap(), first.header("x-riak-vclock").unwrap());
    assert_eq!(door.send(&format!("GET {KEY}"), &[("If-None-Match", tag)], None).status, 304);
    assert_eq!(door.send(&format!("GET {KEY}"), &[("If-Match", "\"x\"")], None).status, 412);
    assert_eq!(door.put(KEY, &[("If-Match", tag)], "3").status, 204);
    assert_eq!(door.put(KEY, &[("If-Match", tag)], "4").status, 412);
    let stale = door.put(KEY, &[("X-Riak-Vclock", clock)], "5");
    assert_eq!(stale.status, 409);
    assert!(stale.text().contains("X-Riak-Vclock"), "{stale:?}");
    assert_eq!(door.send(&format!("DELETE {KEY}"), &[("X-Riak-Vclock", clock)], None).status, 409);
    assert_eq!(door.send(&format!("DELETE {KEY}"), &[("If-Match", tag)], None).status, 412);
    let second = door.get(KEY);
    assert_eq!(second.text(), "3");
    let (tag, clock) = (second.header("etag").unwrap(), second.header("x-riak-vclock").unwrap());
    let not_modified = door.send(&format!("GET {KEY}"), &[("If-None-Match", tag)], None);
    assert_eq!((not_modified.status, not_modified.header("etag")), (304, Some(tag)));
    assert_eq!(door.put(KEY, &[("X-Riak-Vclock", clock)], "6").status, 204);
    let tag = door.get(KEY).header("etag").unwrap().to_owned();
    assert_eq!(door.send(&format!("DELETE {KEY}"), &[("If-Match", &tag)], None).status, 204);
    assert_eq!(door.put(KEY, &[("X-Riak-Vclock", clock)], "7").status, 409);
    assert_eq!(door.get(KEY).status, 404);
}

#[test]
fn objects_expire_when_they_were_told_to() {
    let door = open_wide();
    let expires = || door.get(KEY).header("x-holdfast-expires").map(|at| at.parse::<u64>().unwrap());
    let now = door.store.now_ms();
    assert_eq!(door.put(&format!("{KEY}?ttl=1000"), &[], "1").status, 204);
    let at = expires().unwrap();
    assert!((now + 1_000_000..now + 1_060_000).contains(&at), "{at}");
    assert_eq!(door.put(&format!("{KEY}?ttl=keep"), &[], "2").status, 204);
    assert_eq!(expires(), Some(at));
    assert_eq!(door.put(KEY, &[], "3").status, 204);
    assert_eq!(expires(), None);
    let later = (now + 50_000).to_string();
    assert_eq!(door.put(KEY, &[("X-Holdfast-Expires", &later)], "4").status, 204);
    assert_eq!(expires(), Some(now + 50_000));
    for (query, header) in [
        ("?ttl=0", None),
        ("?ttl=-1", None),
        ("?ttl=x", None),
        ("?ttl=18446744073709551615", None),
        ("?ttl=5", Some("99999999999999")),
        ("", Some("1000")),
        ("", Some("tomorrow")),
    ] {
        let headers: Vec<_> = header.iter().map(|value| ("x-holdfast-expires", *value)).collect();
        assert_eq!(door.put(&format!("{KEY}{query}"), &headers, "5").status, 400, "{query} {header:?}");
    }
    assert_eq!(door.get(KEY).text(), "4");
}

#[test]
fn durability_and_compression_are_chosen_per_request() {
    let door = open_wide();
    for durability in ["synced", "written", "window", "WRITTEN"] {
        let stored = door.put(&format!("{KEY}?durability={durability}"), &[], "x");
        assert_eq!(stored.header("x-holdfast-durability"), Some(&*durability.to_lowercase()));
        let got = door.send(&format!("GET {KEY}?durability={durability}"), &[], None);
        assert_eq!((got.status, got.text()), (200, "x"));
    }
    let text = "holdfast ".repeat(500);
    for compression in ["none", "lz4", "zstd"] {
        assert_eq!(door.put(&format!("{KEY}?compression={compression}"), &[], &text).status, 204);
        assert_eq!(door.get(KEY).text(), text);
        assert_eq!(door.store.kv().head(b"b", b"k").unwrap().unwrap().compression.to_string(), compression);
    }
    for query in ["durability=maybe", "durability=", "compression=gzip", "returnbody=1"] {
        assert_eq!(door.put(&format!("{KEY}?{query}"), &[], "x").status, 400, "{query}");
    }
}

#[test]
fn bad_requests_are_refused_with_the_right_status_and_change_nothing() {
    let door = open_wide();
    let long = |count: usize| "x".repeat(count);
    for (line, headers, wanted) in [
        ("PUT /buckets/b/keys/".to_owned(), &[][..], 400),
        ("PUT /buckets//keys/k".to_owned(), &[], 400),
        ("PUT /buckets/b/keys/%4".to_owned(), &[], 400),
        ("PUT /buckets/%zz/keys/k".to_owned(), &[], 400),
        ("PUT /buckets/b/keys/k?a=%1".to_owned(), &[], 400),
        (format!("PUT /buckets/{}/keys/k", long(17)), &[], 414),
        (format!("PUT /buckets/b/keys/{}", long(65)), &[], 414),
        (format!("PUT {KEY}"), &[("content-type", "text")], 415),
        (format!("PUT {KEY}"), &[("x-riak-index-a_int", "1x")], 400),
        (format!("PUT {KEY}"), &[("x-riak-index-a", "1")], 400),
        (format!("PUT {KEY}"), &[("x-riak-vclock", "!")], 400),
        (format!("PUT {KEY}"), &[("if-match", "\"")], 400),
        (format!("PUT {KEY}"), &[("link", "</buckets/b/keys/o>; riaktag=\"friend\"")], 400),
        (format!("PUT {KEY}/more"), &[], 404),
        (format!("PATCH {KEY}"), &[], 405),
        (format!("OPTIONS {KEY}"), &[], 405),
        ("PUT /buckets/b/props".to_owned(), &[], 405),
    ] {
        let answer = door.send(&line, headers, Some(b"x"));
        assert_eq!(answer.status, wanted, "{line} {headers:?}: {answer:?}");
        assert_eq!(answer.header("allow").is_some(), wanted == 405, "{answer:?}");
    }
    let much = long(600);
    assert_eq!(door.put(KEY, &[("x-riak-meta-a", &much)], "x").status, 431);
    assert_eq!(door.put(KEY, &[("x-riak-index-a_bin", &much)], "x").status, 431);
    assert_eq!(door.send(&format!("PUT {KEY}"), &[], None).status, 411);
    assert_eq!(door.store.kv().buckets().unwrap().value, Vec::<Vec<u8>>::new());
    let up = [("link", "</buckets/b>; rel=\"up\"")];
    assert_eq!(door.put(KEY, &up, "x").status, 204, "what Riak itself said of a bucket may come back");
}

#[test]
fn a_store_that_refuses_writes_says_503_and_a_full_disk_507() {
    use holdfast::World;
    let limits = holdfast::Limits::tiny();
    for (fault, wanted) in [(base::memory::Fault::Error, 503), (base::memory::Fault::Full, 507)] {
        let disk = base::memory::Disk::new(1);
        let ledgers = Arc::new(holdfast::MemoryLedgers::new());
        let world =
            World { files: Arc::new(disk.clone()), ledgers, ..World::real(std::path::Path::new("/nowhere"), &limits) };
        let options = holdfast::Options { limits: limits.clone(), partitions: 1, ..holdfast::Options::default() };
        let store = holdfast::Store::open_in(&world, std::path::Path::new("/data"), options).unwrap();
        store.kv().put(b"b", b"k", b"v", &holdfast::PutOptions::default()).unwrap();
        (0..64).for_each(|operation| disk.plan(operation, fault));
        let running = serve(store.clone(), Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let door = Door::of(running, store);
        let big = "x".repeat(8 << 10);
        let refused = (0..20).map(|_| door.put("/buckets/b/keys/new", &[], &big)).find(|answer| answer.status != 204);
        let refused = refused.expect("the disk is broken");
        assert_eq!(refused.status, wanted, "{refused:?}");
        assert_eq!(refused.header("retry-after").is_some(), wanted == 503);
        assert_eq!(door.get(KEY).text(), "v", "reading goes on");
    }
}

#[test]
fn rights_on_buckets_hold_for_every_route() {
    let hash = hash_password(b"p").unwrap();
    let rule = |pattern: &str, right| BucketRight { pattern: pattern.to_owned(), right };
    let mut ada = User::admin("ada", &hash);
    ada.buckets = vec![rule("logs", Right::Read), rule("own", Right::Write)];
    let users = Arc::new(Users::new([ada]).unwrap());
    let door = open_with(holdfast::Limits::tiny(), |options| {
        options.limits = Limits::default();
        options.users = users;
    });
    for bucket in [&b"logs"[..], b"own", b"secret"] {
        door.store.kv().put(bucket, b"k", b"v", &holdfast::PutOptions::default()).unwrap();
    }
    let status = |line: &str| {
        let body = line.starts_with('P').then_some(&b"x"[..]);
        let named = door.send(line, &[("Authorization", "Bearer ada:p")], body);
        assert_eq!(door.send(line, &[], body).status, 401, "{line}");
        named.status
    };
    for (line, logs, own, secret) in [
        ("GET /buckets/B/keys/k", 200, 200, 403),
        ("HEAD /types/default/buckets/B/keys/k", 200, 200, 403),
        ("PUT /buckets/B/keys/k", 403, 204, 403),
        ("POST /buckets/B/keys/k", 403, 204, 403),
        ("POST /buckets/B/keys", 403, 201, 403),
        ("GET /buckets/B/keys?keys=true", 200, 200, 403),
        ("GET /buckets/B/keys?keys=stream", 200, 200, 403),
        ("GET /buckets/B/props", 200, 200, 403),
        ("GET /buckets/B/index/$key/a/z", 200, 200, 403),
        ("GET /buckets/B/index/$bucket/B", 200, 200, 403),
        ("GET /buckets/B/index/a_int/1", 200, 200, 403),
        ("DELETE /buckets/B/keys/k", 403, 204, 403),
        ("DELETE /buckets/B/keys/none", 403, 404, 403),
    ] {
        for (bucket, wanted) in [("logs", logs), ("own", own), ("secret", secret)] {
            let line = line.replace('B', bucket);
            assert_eq!(status(&line), wanted, "{line}");
        }
    }
    assert_eq!(door.send("GET /buckets/logs/keys/k", &[("Authorization", "Bearer ada:wrong")], None).status, 401);
    let listed = door.send("GET /buckets?buckets=true", &[("Authorization", "Bearer ada:p")], None);
    assert_eq!(listed.json(), serde_json::json!({ "buckets": ["logs", "own"] }));
    assert_eq!(door.get("/buckets?buckets=true").status, 401);
    assert_eq!(door.get("/openapi.json").status, 200);
}

/// What the document says of objects is what they answer.
#[test]
fn the_document_has_the_headers_that_objects_are_asked_and_answer_with() {
    let door = open(|_| {});
    let document = door.get("/openapi.json").json();
    let key = &document["paths"]["/buckets/{bucket}/keys/{key}"];
    let asked = |method: &str| -> Vec<String> {
        let parameters = key[method]["parameters"].as_array().unwrap().iter();
        let headers = parameters.filter(|one| one["in"] == "header");
        headers.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(asked("get"), ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"]);
    assert!(asked("put").contains(&"X-Riak-Vclock".to_owned()) && asked("delete").contains(&"If-Match".to_owned()));
    let expiring = [("X-Holdfast-Expires", "4000000000000")];
    let put = door.send("PUT /buckets/b/keys/k", &expiring, Some(b"v"));
    for (method, answer) in [("put", put), ("get", door.get("/buckets/b/keys/k"))] {
        let headers = &key[method]["responses"][answer.status.to_string()]["headers"];
        for (name, _) in headers.as_object().unwrap() {
            assert!(answer.header(&name.to_ascii_lowercase()).is_some(), "{method}: {name} of {answer:?}");
        }
    }
}

#[test]
fn every_route_is_in_the_document_and_the_document_names_no_other() {
    let door = open(|_| {});
    let document = door.get("/openapi.json").json();
    let mut listed = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            listed.insert((method.to_uppercase(), path.clone()));
            let described = |of: &serde_json::Value| of["schema"].is_object();
            assert!(operation["parameters"].as_array().unwrap().iter().all(described), "{method} {path}");
            let names: Vec<_> = operation["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
            assert!(path.matches('{').count() <= names.len() && !operation["summary"].as_str().unwrap().is_empty());
            let real = path.replace(['{', '}'], "").replace("index/index/", "index/i_bin/");
            let answer = door.send(&format!("{} {real}", method.to_uppercase()), &[], None);
            let is_ours = answer.status != 405
                && (answer.status != 404
                    || ["", "not found\n"].contains(&answer.text())
                    || answer.text().contains("no such transaction")
                    || answer.text().contains("there are no scripts here")
                    || answer.text().contains("has no type type"));
            assert!(is_ours, "{method} {path}: {answer:?}");
            let documented = operation["responses"].as_object().unwrap().contains_key(&answer.status.to_string());
            assert!(documented, "{method} {path} answers {}", answer.status);
        }
    }
    for route in table::routes() {
        for method in route.verb.methods().split(',') {
            assert!(listed.remove(&(method.to_owned(), route.path.to_owned())), "{method} {}", route.path);
            let alias = (method.to_owned(), format!("{}{}", table::TYPES_PREFIX, route.path));
            assert_eq!(listed.remove(&alias), route.has_alias());
            let of_database = (method.to_owned(), format!("{}{}", table::DATABASE_PREFIX, route.path));
            assert_eq!(listed.remove(&of_database), route.has_database());
        }
    }
    assert!(listed.is_empty(), "{listed:?}");
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    // Each protocol of time series has a page of its own.
    let pages = ["http.md", "points.md", "opentsdb.md", "influxql.md", "promql.md"];
    let manual: String = pages.iter().map(|page| std::fs::read_to_string(manual.join(page)).unwrap()).collect();
    for route in table::routes() {
        for word in route.verb.methods().split(',').chain([route.path]).chain(route.query.iter().copied()) {
            assert!(manual.contains(&format!("`{word}`")), "the manual does not name {word} of {}", route.path);
        }
    }
}
