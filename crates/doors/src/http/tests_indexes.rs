//! Queries of secondary indexes through the door.

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, open_wide};

fn filled() -> Door {
    let door = open_wide();
    for (key, age, city) in [
        ("ada", "36", "london"),
        ("bob", "-5", "ulm, paris"),
        ("cyd", "7", "ulm"),
        ("dan", "36", "oslo"),
        ("eve", "40", "a"),
    ] {
        let headers = [("x-riak-index-age_int", age), ("x-riak-index-city_bin", city)];
        assert_eq!(door.put(&format!("/buckets/b/keys/{key}"), &headers, "v").status, 204);
    }
    assert_eq!(door.put("/buckets/b/keys/%ff", &[("x-holdfast-index64-city_bin", "/w==")], "v").status, 204);
    door
}

fn index(door: &Door, rest: &str) -> Value {
    let answer = door.get(&format!("/buckets/b/index/{rest}"));
    assert_eq!(answer.status, 200, "{rest}: {answer:?}");
    answer.json()
}

/// The parts of a multipart answer.
fn parts(answer: &Answer) -> Vec<Value> {
    let boundary = answer.header("content-type").unwrap().strip_prefix("multipart/mixed;boundary=").unwrap();
    let mut parts: Vec<&str> = answer.text().split(&format!("\r\n--{boundary}")).collect();
    assert_eq!((parts.remove(0), parts.pop()), ("", Some("--\r\n")));
    let json = |part: &str| part.strip_prefix("\r\nContent-Type: application/json\r\n\r\n").unwrap().parse().unwrap();
    parts.into_iter().map(json).collect()
}

#[test]
fn terms_are_found_alone_and_in_ranges_in_order() {
    let door = filled();
    for (rest, wanted) in [
        ("age_int/36", json!({ "keys": ["ada", "dan"] })),
        ("AGE_int/36", json!({ "keys": ["ada", "dan"] })),
        ("age_int/-5/36", json!({ "keys": ["bob", "cyd", "ada", "dan"] })),
        ("age_int/37/39", json!({ "keys": [] })),
        ("age_int/9/1", json!({ "keys": [] })),
        ("age_bin/36", json!({ "keys": [] })),
        ("none_bin/a/z", json!({ "keys": [] })),
        ("city_bin/ulm", json!({ "keys": ["bob", "cyd"] })),
        ("city_bin/%ff", json!({ "keys": ["%FF"] })),
        ("city_bin//m", json!({ "keys": ["eve", "ada"] })),
        ("city_bin/a/z?return_terms=true&term_regex=^u.m$", json!({ "results": [{ "ulm": "bob" }, { "ulm": "cyd" }] })),
        ("age_int/0/10?return_terms=true", json!({ "results": [{ "7": "cyd" }] })),
        ("city_bin/ulm?return_terms=true", json!({ "results": [{ "ulm": "bob" }, { "ulm": "cyd" }] })),
        ("$key/b/d", json!({ "keys": ["bob", "cyd"] })),
        ("$key/bob", json!({ "keys": ["bob"] })),
        ("$key/z/a", json!({ "keys": [] })),
        (
            "$key/a/z?term_regex=[bd]&return_terms=true",
            json!({ "results": [{ "ada": "ada" }, { "bob": "bob" }, { "cyd": "cyd" }, { "dan": "dan" }] }),
        ),
        ("$key/a/z?term_regex=e$", json!({ "keys": ["eve"] })),
        ("$bucket/b", json!({ "keys": ["ada", "bob", "cyd", "dan", "eve", "%FF"] })),
    ] {
        assert_eq!(index(&door, rest), wanted, "{rest}");
    }
    // Storing again replaces the entries, and deleting removes them.
    assert_eq!(door.put("/buckets/b/keys/ada", &[("x-riak-index-age_int", "1")], "v").status, 204);
    assert_eq!(door.send("DELETE /buckets/b/keys/dan", &[], None).status, 204);
    assert_eq!(index(&door, "age_int/-9/99"), json!({ "keys": ["bob", "ada", "cyd", "eve"] }));
}

#[test]
fn pages_go_on_where_their_continuation_says() {
    let door = filled();
    for (rest, count) in [("city_bin/a/z?x", 6), ("age_int/-9/99?x", 5), ("$key/a/z?x", 5), ("$bucket/b?x", 6)] {
        let whole = index(&door, rest);
        assert_eq!(whole["continuation"], Value::Null);
        for size in 1..=count + 1 {
            let (mut found, mut continuation, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let page = index(&door, &format!("{rest}&max_results={size}{continuation}"));
                found.extend(page["keys"].as_array().unwrap().clone());
                pages += 1;
                let Some(next) = page["continuation"].as_str() else { break };
                continuation = format!("&continuation={next}");
            }
            assert_eq!((json!(found), pages), (whole["keys"].clone(), usize::div_ceil(count, size)), "{rest}, {size}");
        }
    }
}

#[test]
fn pages_of_what_an_expression_matches_are_complete_and_none_is_too_long() {
    let door = filled();
    for (rest, count) in
        [("city_bin/a/z?term_regex=l", 4), ("$key/a/z?term_regex=[ae]$", 2), ("city_bin/a/z?term_regex=xyz", 0)]
    {
        let whole = index(&door, rest);
        assert_eq!(whole["keys"].as_array().unwrap().len(), count, "{rest}");
        for size in 1..=count + 1 {
            let (mut found, mut continuation) = (Vec::new(), String::new());
            loop {
                let page = index(&door, &format!("{rest}&max_results={size}{continuation}"));
                let keys = page["keys"].as_array().unwrap();
                assert!(keys.len() <= size, "{rest}, {size}: {page}");
                found.extend(keys.clone());
                let Some(next) = page["continuation"].as_str() else { break };
                continuation = format!("&continuation={next}");
            }
            assert_eq!(json!(found), whole["keys"], "{rest}, {size}");
        }
    }
}

#[test]
fn a_stream_is_parts_of_json_with_the_continuation_last() {
    let door = filled();
    let all = door.get("/buckets/b/index/age_int/-9/99?stream=true&return_terms=true");
    let found: Vec<Value> = parts(&all).iter().flat_map(|part| part["results"].as_array().unwrap().clone()).collect();
    let wanted = [
        json!({ "-5": "bob" }),
        json!({ "7": "cyd" }),
        json!({ "36": "ada" }),
        json!({ "36": "dan" }),
        json!({ "40": "eve" }),
    ];
    assert_eq!(found, wanted);
    let some = parts(&door.get("/buckets/b/index/age_int/-9/99?stream=true&max_results=3"));
    let continuation = some.last().unwrap()["continuation"].as_str().unwrap();
    let rest = parts(&door.get(&format!("/buckets/b/index/age_int/-9/99?stream=true&continuation={continuation}")));
    let rest: Vec<Value> = rest.iter().flat_map(|part| part["keys"].as_array().unwrap().clone()).collect();
    assert_eq!(rest, [json!("dan"), json!("eve")]);
    assert_eq!(parts(&door.get("/buckets/b/index/age_int/1000?stream=true")), Vec::<Value>::new());
}

#[test]
fn bad_queries_are_refused() {
    let door = filled();
    let long = format!("city_bin/a/z?term_regex={}", "a".repeat(65));
    for rest in [
        "age/1",
        "age_float/1",
        "$other/1",
        "_int/1",
        "age_int/x",
        "age_int/",
        "age_int/1/2x",
        "age_int/9223372036854775808",
        "age_int/1/2?term_regex=1",
        "city_bin/a/z?term_regex=(",
        "city_bin/a/z?term_regex=(a{1000}){1000}",
        "city_bin/a/z?term_regex=%ff",
        "city_bin/a/z?continuation=garbage",
        "city_bin/a/z?continuation=%ff",
        "city_bin/a/z?continuation=k-ada",
        "$key/a/z?continuation=69",
        "$key/a/z?continuation=k-%254",
        "city_bin/a/z?max_results=0",
        "city_bin/a/z?max_results=-1",
        "city_bin/a/z?max_results=x",
        "city_bin/a/z?return_terms=yes",
        "city_bin/a/z?stream=1",
        "city_bin/%4",
        &long,
    ] {
        let answer = door.get(&format!("/buckets/b/index/{rest}"));
        assert_eq!(answer.status, 400, "{rest}: {answer:?}");
        assert!(answer.text().len() > 5, "{rest}: {answer:?}");
    }
    assert_eq!(door.get("/buckets/b/index/age_int").status, 404);
    assert_eq!(door.send("PUT /buckets/b/index/age_int/1", &[], Some(b"x")).status, 405);
}
