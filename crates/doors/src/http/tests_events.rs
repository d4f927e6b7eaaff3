//! Events of entries through the door: asked for, waited for, and as a stream.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tests_client::{Answer, Door, connect, open_wide, open_with, read_all};
use super::*;
use crate::auth::{BucketRight, Right, User, Users, hash_password};

const ORDERS: &str = "/spaces/shop/types/orders";

fn declared(definition: &str) -> Door {
    let door = open_wide();
    assert_eq!(door.put(ORDERS, &[], definition).status, 204);
    door
}

fn write(door: &Door, id: u64, body: &str) {
    assert_eq!(door.put(&format!("{ORDERS}/entries/{id}"), &[], body).status, 204);
}

fn post(door: &Door, path: &str, body: &Value) -> Answer {
    door.send(&format!("POST {ORDERS}/{path}"), &[], Some(body.to_string().as_bytes()))
}

/// Answers to a client that keeps its side of the connection open.
fn waiting(door: &Door, head: &str, body: &str) -> TcpStream {
    let mut client = connect(door.running.local_addr());
    let length = if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
    client
        .write_all(format!("{head} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{length}\r\n{body}").as_bytes())
        .unwrap();
    client
}

fn body_of(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn kinds(answer: &Value) -> Vec<(&str, &Value)> {
    let events = answer["events"].as_array().unwrap();
    let id = |event: &'_ Value| if event["now"].is_null() { "before" } else { "now" };
    events.iter().map(|event| (event["kind"].as_str().unwrap(), &event[id(event)]["id"])).collect()
}

#[test]
fn events_are_told_behind_a_bookmark_each_once() {
    let door = declared(r#"{"history":true}"#);
    let begin = door.get(&format!("{ORDERS}/events")).json();
    assert_eq!((&begin["events"], &begin["more"]), (&json!([]), &json!(false)));
    write(&door, 1, r#"{"n":1}"#);
    write(&door, 1, r#"{"n":2}"#);
    write(&door, 2, r#"{"n":1}"#);
    assert_eq!(post(&door, "take", &json!({"id": 1})).status, 200);
    let from = begin["bookmark"].as_str().unwrap();
    let first = door.get(&format!("{ORDERS}/events?from={from}")).json();
    assert_eq!(kinds(&first), [("written", &json!(1)), ("updated", &json!(1))], "the door's limit is two");
    assert_eq!(first["more"], true);
    assert_eq!(first["events"][1]["before"], json!({"id": 1, "n": 1}));
    assert_eq!((&first["bookmark"], &first["events"][1]["reason"]), (&first["events"][1]["bookmark"], &Value::Null));
    let from = first["bookmark"].as_str().unwrap();
    let rest = door.get(&format!("{ORDERS}/events?from={from}")).json();
    assert_eq!(
        (kinds(&rest), &rest["events"][1]["reason"]),
        (vec![("written", &json!(2)), ("taken", &json!(1))], &json!("taken"))
    );
    let end = rest["bookmark"].as_str().unwrap();
    assert_eq!(door.get(&format!("{ORDERS}/events?from={end}")).json()["events"], json!([]));
    let conflated =
        door.get(&format!("{ORDERS}/events?from={}&conflate=true", begin["bookmark"].as_str().unwrap())).json();
    assert_eq!(kinds(&conflated), [("written", &json!(2)), ("taken", &json!(1))], "each entry once");
    assert_eq!((&conflated["bookmark"], &conflated["more"]), (&rest["bookmark"], &json!(false)));
    // By what they are, in the parameters and in a body.
    let path = format!("{ORDERS}/events?from=start&hears=taken,updated&where=n+%3E+%3F&parameters=[1]");
    assert_eq!(kinds(&door.get(&path).json()), [("updated", &json!(1)), ("taken", &json!(1))]);
    let body = json!({"from": "start", "hears": "written", "id": 2});
    assert_eq!(kinds(&post(&door, "events", &body).json()), [("written", &json!(2))]);
    let entered = json!({"from": "start", "hears": "entered,left", "where": "n = 2"});
    assert_eq!(kinds(&post(&door, "events", &entered).json()), [("entered", &json!(1)), ("left", &json!(1))]);
}

#[test]
fn what_cannot_be_heard_is_refused() {
    let door = declared("{}");
    for query in [
        "from=yesterday",
        "from=9999999999.1",
        "hears=all",
        "hears=entered",
        "wait_ms=soon",
        "limit=-1",
        "conflate=maybe",
        "where=n+%3D+((",
        "where=n+%3D+1+LIMIT+1",
        "parameters=[1]",
        "template=7",
        "from=%FF",
    ] {
        let answer = door.get(&format!("{ORDERS}/events?{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
    for body in [
        json!([]),
        json!({"ack": "1.1"}),
        json!({"retain_bytes": 5}),
        json!({"name": "n", "ack": "9999999999.1"}),
        json!({"name": 7}),
        json!({"from": 7}),
        json!({"stop": 7}),
    ] {
        let answer = post(&door, "events", &body);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert_eq!(
        (door.get("/spaces/shop/types/none/events").status, door.get("/spaces/shop/types/none/listeners").status),
        (404, 404)
    );
    assert_eq!(door.send(&format!("POST {ORDERS}/events"), &[], None).status, 411);
}

#[test]
fn a_request_waits_for_the_first_event_and_takes_no_thread() {
    let door = declared("{}");
    let mut client = waiting(&door, &format!("GET {ORDERS}/events?wait_ms=60000&where=n+%3D+5"), "");
    std::thread::scope(|scope| {
        let answer = scope.spawn(move || read_all(&mut client));
        let mut id = 0;
        // Until it listens nothing is told; what does not match does not end it.
        while !answer.is_finished() {
            write(&door, id, r#"{"n":4}"#);
            write(&door, id + 1, r#"{"n":5}"#);
            id += 2;
        }
        let told = body_of(&answer.join().unwrap());
        assert_eq!(told["events"][0]["now"]["n"], 5, "{told}");
    });
    let late = read_all(&mut waiting(&door, &format!("GET {ORDERS}/events?wait_ms=5"), ""));
    assert_eq!(body_of(&late)["events"], json!([]));
    // This client has closed its side: nothing is waited for.
    assert_eq!(door.send_last(&format!("GET {ORDERS}/events?wait_ms=60000"), None).status, 503);
}

#[test]
fn a_listener_by_name_goes_on_behind_what_was_acknowledged() {
    let door = declared("{}");
    let named = |more: &Value| {
        let mut body = json!({"name": "mailer"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        post(&door, "events", &body).json()
    };
    assert_eq!(named(&json!({"retain_bytes": 1_000_000}))["events"], json!([]));
    for id in 1..=3 {
        write(&door, id, "{}");
    }
    let first = named(&json!({"limit": 1}));
    assert_eq!(
        (kinds(&first), kinds(&named(&json!({"limit": 1})))),
        (vec![("written", &json!(1))], vec![("written", &json!(1))])
    );
    let second = named(&json!({"limit": 1, "ack": first["bookmark"]}));
    assert_eq!(kinds(&second), [("written", &json!(2))]);
    // What was done about it and that it is done with are one batch.
    let ack = |name: &str, bookmark: &Value| {
        json!({"operations": [
            {"put": {"bucket": "mail", "key": "2", "value": "sent"}},
            {"acknowledge": {"space": "shop", "type": "orders", "name": name, "bookmark": bookmark}},
        ]})
        .to_string()
    };
    let wrong = door.send("POST /batch", &[], Some(ack("nobody", &second["bookmark"]).as_bytes()));
    assert_eq!((wrong.status, wrong.json()["operation"].clone()), (400, json!(1)));
    assert_eq!(door.get("/buckets/mail/keys/2").status, 404);
    let done = door.send("POST /batch", &[], Some(ack("mailer", &second["bookmark"]).as_bytes()));
    assert_eq!((done.status, &done.json()["answers"][1]), (200, &json!({})));
    assert_eq!(door.get("/buckets/mail/keys/2").text(), "sent");
    assert_eq!(kinds(&named(&json!({}))), [("written", &json!(3))]);
    let known = door.get(&format!("{ORDERS}/listeners")).json();
    let listener = &known["listeners"][0];
    assert_eq!((&listener["name"], &listener["bookmark"]), (&json!("mailer"), &second["bookmark"]));
    assert_eq!((&listener["retain_bytes"], &listener["damaged"]), (&json!(1_000_000), &json!(false)));
    let forget = || door.send(&format!("DELETE {ORDERS}/listeners/mailer"), &[], None).status;
    assert_eq!((forget(), forget()), (204, 404));
    // A GET changes nothing: there is no name in its parameters.
    assert_eq!(door.get(&format!("{ORDERS}/events?name=mailer")).status, 400);
    assert_eq!(door.get(&format!("{ORDERS}/listeners")).json(), json!({"listeners": []}));
}

/// Reads a stream until it has so many events; each as its id and what is told.
fn told(client: &mut impl Read, text: &mut String, events: usize) -> Vec<(String, Value)> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let found: Vec<(String, Value)> = text
            .split("\n\n")
            .filter_map(|block| {
                let id = block.lines().find_map(|line| line.strip_prefix("id: "))?;
                let data = block.lines().find_map(|line| line.strip_prefix("data: "))?;
                // A block that is not all there yet.
                Some((id.to_owned(), serde_json::from_str(data).ok()?))
            })
            .collect();
        if found.len() >= events {
            return found;
        }
        assert!(Instant::now() < end, "{text}");
        let mut bytes = [0; 4096];
        let length = client.read(&mut bytes).unwrap();
        assert!(length > 0, "it ended: {text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
}

#[test]
fn a_stream_tells_events_as_they_happen_and_goes_on_where_it_broke() {
    let door = declared("{}");
    write(&door, 0, "{}");
    let stream = |last: &str| {
        let head = format!("GET {ORDERS}/events HTTP/1.1\r\nhost: h\r\naccept: text/event-stream\r\n{last}\r\n");
        let mut client = connect(door.running.local_addr());
        client.write_all(head.as_bytes()).unwrap();
        client
    };
    let (mut client, mut text) = (stream(""), String::new());
    while !text.contains("id: ") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("content-type: text/event-stream"), "{text}");
    for id in 1..=3 {
        write(&door, id, "{}");
    }
    let events = told(&mut client, &mut text, 3);
    let ids: Vec<_> = events.iter().map(|(_, event)| event["now"]["id"].as_u64().unwrap()).collect();
    assert_eq!((ids, &events[0].1["kind"]), (vec![1, 2, 3], &json!("written")));
    assert!(events.iter().all(|(id, event)| event["bookmark"] == id.as_str()), "{events:?}");
    drop(client);
    // Another connection goes on behind the event that it names.
    let (mut client, mut text) = (stream(&format!("last-event-id: {}\r\n", events[1].0)), String::new());
    let again = told(&mut client, &mut text, 1);
    assert_eq!(again[0].1["now"]["id"], 3);
    write(&door, 4, "{}");
    assert_eq!(told(&mut client, &mut text, 2)[1].1["now"]["id"], 4);
    let bad =
        door.send(&format!("GET {ORDERS}/events"), &[("accept", "text/event-stream"), ("last-event-id", "?")], None);
    assert_eq!(bad.status, 400);
    assert_eq!(door.send(&format!("HEAD {ORDERS}/events"), &[("accept", "text/event-stream")], None).status, 200);
    // A type that goes ends its streams and says so, and a door that stops does not wait for them.
    assert_eq!(door.send(&format!("DELETE {ORDERS}"), &[], None).status, 204);
    while !text.contains("event: failed\ndata: {\"error\":") {
        let mut bytes = [0; 4096];
        let length = client.read(&mut bytes).unwrap();
        assert!(length > 0, "it ended: {text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
}

/// A client that went on from the midst of a page missed what happened to entries that were told behind it.
#[test]
fn a_stream_that_makes_events_one_has_an_id_behind_each_page_alone() {
    let door = declared(r#"{"history":true}"#);
    let from = door.get(&format!("{ORDERS}/events")).json()["bookmark"].as_str().unwrap().to_owned();
    for (id, body) in [(1, "{}"), (2, "{}"), (1, r#"{"n":1}"#)] {
        write(&door, id, body);
    }
    let path = format!("{ORDERS}/events?from={from}&conflate=true");
    let page = door.get(&path).json();
    assert_eq!(kinds(&page), [("written", &json!(2)), ("written", &json!(1))]);
    let mut client = connect(door.running.local_addr());
    let head = format!("GET {path} HTTP/1.1\r\nhost: h\r\naccept: text/event-stream\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    let mut read_until = |end: &str| {
        while !text.contains(end) {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        std::mem::take(&mut text)
    };
    let (first, second) = (read_until("}\n\n"), read_until("}\n\n"));
    assert!(first.contains("retry: 1000\nevent: written\ndata: "), "{first}");
    let bookmark = page["bookmark"].as_str().unwrap();
    assert!(second.starts_with(&format!("id: {bookmark}\nevent: written\ndata: ")), "{second}");
    // What comes later is a page of its own.
    write(&door, 3, "{}");
    let third = read_until("}\n\n");
    assert!(third.contains("id: ") && third.contains("\"id\":3"), "{third}");
}

#[test]
fn a_door_that_stops_ends_its_streams() {
    let door = declared("{}");
    let mut client = connect(door.running.local_addr());
    let head = format!("GET {ORDERS}/events HTTP/1.1\r\nhost: h\r\naccept: text/event-stream\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client.read_exact(&mut [0; 64]).unwrap();
    let begin = Instant::now();
    drop(door);
    let rest = read_all(&mut client);
    assert!(rest.ends_with("0\r\n\r\n") && begin.elapsed() < Duration::from_secs(10), "{rest}");
}

#[test]
fn listeners_are_bounded_and_leave_with_their_connections() {
    let limits = holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() };
    let door = open_with(limits, |options| options.limits = Limits { listeners_max: 1, ..Limits::default() });
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    let stream = [("accept", "text/event-stream")];
    let mut first = connect(door.running.local_addr());
    let head = format!("GET {ORDERS}/events HTTP/1.1\r\nhost: h\r\naccept: text/event-stream\r\n\r\n");
    first.write_all(head.as_bytes()).unwrap();
    first.read_exact(&mut [0; 64]).unwrap();
    let refused = door.send(&format!("GET {ORDERS}/events"), &stream, None);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(door.get(&format!("{ORDERS}/events")).status, 200, "who does not wait needs no place");
    drop(first);
    // Though nothing happens that it would be told: sooner than the door says something of its own accord.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let mut next = connect(door.running.local_addr());
        next.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        next.read_exact(&mut status).unwrap();
        if &status == b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < end, "its place is free again");
        thread::yield_now();
    }
}

#[test]
fn who_may_only_read_has_no_name() {
    let mut ada = User::admin("ada", &hash_password(b"secret").unwrap());
    ada.buckets = vec![BucketRight { pattern: "shop".to_owned(), right: Right::Read }];
    let users = Arc::new(Users::new([ada]).unwrap());
    let door = open_with(holdfast::Limits::default(), |options| {
        options.users = users;
        options.limits = Limits::default();
    });
    for space in ["shop", "other"] {
        door.store.space(space).declare(holdfast::space::Definition::new(space, "orders")).unwrap();
    }
    let basic = [("Authorization", "Basic YWRhOnNlY3JldA==")];
    let ask = |line: &str, body: Option<&str>| door.send(line, &basic, body.map(str::as_bytes)).status;
    assert_eq!(ask(&format!("GET {ORDERS}/events"), None), 200);
    assert_eq!(ask(&format!("POST {ORDERS}/events"), Some("{}")), 200);
    assert_eq!(ask(&format!("POST {ORDERS}/events"), Some(r#"{"name":"n"}"#)), 403);
    assert_eq!(ask(&format!("DELETE {ORDERS}/listeners/n"), None), 403);
    assert_eq!(ask("GET /spaces/other/types/orders/events", None), 403);
    assert_eq!(
        (ask(&format!("POST {ORDERS}/count"), Some("{}")), ask(&format!("POST {ORDERS}/iterate"), Some("{}"))),
        (200, 200)
    );
    assert_eq!(ask(&format!("POST {ORDERS}/clear"), Some("{}")), 403);
}

/// A power cut may take what was told last: who keeps it asks that the server is the one that told it.
#[test]
fn who_names_another_run_of_the_server_is_told_to_begin_anew() {
    let door = open_with(holdfast::Limits::tiny(), |options| {
        (options.limits, options.run) = (Limits::default(), "this".to_owned());
    });
    assert_eq!(door.put(ORDERS, &[], "").status, 204);
    let first = door.get(&format!("{ORDERS}/events"));
    assert_eq!((first.status, first.header("x-holdfast-run")), (200, Some("this")));
    assert_eq!(door.get("/stats").json()["run_id"], "this");
    let from = first.json()["bookmark"].as_str().unwrap().to_owned();
    assert_eq!(door.get(&format!("{ORDERS}/events?from={from}&run=this")).status, 200);
    assert_eq!(post(&door, "events", &json!({"from": from, "run": "this"})).status, 200);
    for answer in [
        door.get(&format!("{ORDERS}/events?from={from}&run=that")),
        door.send(&format!("GET {ORDERS}/events?run=that"), &[("Accept", "text/event-stream")], None),
        post(&door, "events", &json!({"from": from, "run": "that"})),
    ] {
        assert!(answer.status == 410 && answer.text().contains("listen anew"), "{answer:?}");
    }
    assert_eq!(post(&door, "events", &json!({"run": 7})).status, 400);
    // Without being told, each door is a run of its own.
    let run = |door: &Door| door.get("/stats").json()["run_id"].as_str().unwrap().to_owned();
    let (one, other) = (run(&open_wide()), run(&open_wide()));
    assert!(one.len() == 40 && one != other, "{one} {other}");
}
