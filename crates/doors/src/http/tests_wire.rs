//! HTTP itself: bodies in chunks, continuing, pipelining, limits, and clients that are slow, late or gone.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::tests_client::{Answer, Door, connect, open, open_wide, open_with};
use super::*;

const PUT: &str = "PUT /buckets/b/keys/k HTTP/1.1\r\nhOsT: x\r\n";

fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let (answer, rest) = Answer::take(bytes, false);
        answers.push(answer);
        bytes = rest;
    }
    answers
}

fn statuses(door: &Door, bytes: &[u8]) -> Vec<u16> {
    answers(&door.say_bytes(bytes)).iter().map(|answer| answer.status).collect()
}

#[test]
fn bodies_in_chunks_are_put_together_and_bad_chunks_are_refused() {
    let door = open_wide();
    let chunked = |chunks: &str| format!("{PUT}tRANSFER-eNCODING: chunked\r\n\r\n{chunks}").into_bytes();
    let good = chunked("3;name=value\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n");
    assert_eq!(statuses(&door, &good), [204]);
    assert_eq!(door.get("/buckets/b/keys/k").text(), "abc0123456789");
    assert_eq!(statuses(&door, &chunked("0\r\n\r\n")), [204]);
    assert_eq!(door.get("/buckets/b/keys/k").text(), "");
    for bad in ["x\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "3\r\nab", "", "ffffffffffffffffff\r\nx", "-1\r\n"] {
        assert_eq!(statuses(&door, &chunked(bad)), [400], "{bad:?}");
    }
    assert_eq!(statuses(&door, format!("{PUT}Content-Length: 5\r\n\r\nab").as_bytes()), [400]);
    assert_eq!(door.get("/buckets/b/keys/k").text(), "", "what did not arrive in whole changes nothing");
}

#[test]
fn what_a_server_in_front_may_have_understood_otherwise_is_refused() {
    let door = open_wide();
    for (headers, wanted) in [
        ("Host: y\r\nContent-Length: 1\r\n\r\nx", 400),
        ("Expect: 200-ok\r\nContent-Length: 1\r\n\r\nx", 417),
        ("Expect: 100-continue\r\nExpect: foo\r\nContent-Length: 1\r\n\r\nx", 417),
        ("Content-Length: 1\r\n\r\nx", 204),
    ] {
        let said = statuses(&door, format!("{PUT}{headers}").as_bytes());
        assert_eq!(said.last(), Some(&wanted), "{headers:?}: {said:?}");
    }
}

#[test]
fn requests_that_come_at_once_are_answered_in_order_on_one_connection() {
    let door = open_wide();
    let mut requests = Vec::new();
    for number in 0..20 {
        let request =
            format!("{PUT}Content-Length: 2\r\n\r\n{number:02}GET /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\n\r\n");
        requests.extend_from_slice(request.as_bytes());
        // A refused request with a small body does not end the connection.
        requests.extend_from_slice(
            b"PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nIf-Match: \"x\"\r\nContent-Length: 3\r\n\r\nbad",
        );
        requests.extend_from_slice(b"PATCH /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nbad");
    }
    let answers = answers(&door.say_bytes(&requests));
    assert_eq!(answers.len(), 80);
    for (number, four) in answers.chunks(4).enumerate() {
        let statuses: Vec<u16> = four.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [204, 200, 412, 405]);
        assert_eq!(four[1].text(), format!("{number:02}"));
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked_or_refused_before() {
    let door = open_wide();
    let begin = |headers: &str| {
        let mut stream = connect(door.running.local_addr());
        stream.write_all(format!("{PUT}Expect: 100-continue\r\n{headers}\r\n").as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (stream, String::from_utf8(first.to_vec()).unwrap())
    };
    let (mut stream, first) = begin("Content-Length: 3\r\nConnection: close\r\n");
    assert_eq!(first, "HTTP/1.1 100");
    stream.write_all(b"abc").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("HTTP/1.1 204"), "{rest:?}");
    for (headers, wanted) in [
        ("Content-Length: 99999999\r\n", "HTTP/1.1 413"),
        ("Content-Length: 3\r\nIf-Match: \"\r\n", "HTTP/1.1 400"),
        ("Content-Length: 3\r\nContent-Type: x\r\n", "HTTP/1.1 415"),
    ] {
        let (mut stream, first) = begin(headers);
        assert_eq!(first, wanted);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("connection: close\r\n"), "{rest}");
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_whether_or_not_it_was_announced() {
    let door = open_wide();
    let most = 64 << 10;
    assert_eq!(door.send("PUT /buckets/b/keys/k", &[], Some(&vec![7; most])).status, 204);
    assert_eq!(door.get("/buckets/b/keys/k").body.len(), most);
    // The client says all of it and only then listens: the answer must not be lost.
    let large = vec![7; 4 << 20];
    let announced = [format!("{PUT}Content-Length: {}\r\n\r\n", large.len()).as_bytes(), &large].concat();
    let length = format!("{:x}\r\n", large.len());
    let head = format!("{PUT}Transfer-Encoding: chunked\r\n\r\n{length}");
    let chunked = [head.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat();
    for request in [announced, chunked] {
        let answers = answers(&door.say_bytes(&request));
        assert_eq!((answers.len(), answers[0].status), (1, 413));
        assert_eq!(answers[0].header("connection"), Some("close"));
    }
    assert_eq!(door.get("/buckets/b/keys/k").body.len(), most);
}

#[test]
fn targets_and_headers_that_are_too_long_have_statuses_of_their_own() {
    let door = open_wide();
    let long = format!("GET /buckets/b/keys/{}", "x".repeat(70 << 10));
    assert_eq!(door.send(&long, &[], None).status, 414);
    let many: Vec<_> = (0..300).map(|_| ("x-many", "x")).collect();
    assert_eq!(door.send("GET /ping", &many, None).status, 431);
    let much = "x".repeat(200 << 10);
    assert_eq!(door.send("GET /ping", &[("x-much", &much)], None).status, 431);
}

#[test]
fn a_client_that_stops_in_the_middle_of_its_body_is_sent_away() {
    let door = open(|options| options.limits.body_bytes_max = 1000);
    let begin = Instant::now();
    let mut stream = connect(door.running.local_addr());
    stream.write_all(format!("{PUT}Content-Length: 10\r\n\r\nabc").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && begin.elapsed() < Duration::from_secs(10), "{answer}");
    // One who sends a byte now and then is given some time, and not more.
    let mut slow = connect(door.running.local_addr());
    slow.write_all(format!("{PUT}Content-Length: 1000\r\n\r\n").as_bytes()).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut first = [0; 12];
    let mut sent = 0;
    while slow.read_exact(&mut first).is_err() {
        sent += 1;
        assert!(sent < 500, "nobody ends it");
        slow.write_all(b"x").unwrap();
    }
    assert_eq!((&first, sent > 5), (b"HTTP/1.1 408", true));
    assert!(door.store.kv().buckets().unwrap().value.is_empty());
}

#[test]
fn bodies_together_are_bounded_and_room_comes_back() {
    let (value_bytes_max, batch_bytes_max) = (64 << 10, 128 << 10);
    let limits = holdfast::Limits { value_bytes_max, batch_bytes_max, ..holdfast::Limits::tiny() };
    let door = open_with(limits, |options| {
        options.limits = Limits { bodies_bytes_max: 80 << 10, ..Limits::default() };
    });
    let mut first = connect(door.running.local_addr());
    first.write_all(format!("{PUT}Content-Length: 60000\r\n\r\n").as_bytes()).unwrap();
    first.write_all(&[7; 50_000]).unwrap();
    let whole = [7; 60_000];
    let begin = Instant::now();
    // Who is answered after them came after them: they are not still arriving when the next body is.
    assert_eq!(door.put("/buckets/b/keys/small", &[], "x").status, 204);
    while door.send("PUT /buckets/b/keys/other", &[], Some(&whole)).status != 503 {
        assert!(begin.elapsed() < Duration::from_secs(10), "both fit");
    }
    assert_eq!(door.put("/buckets/b/keys/small", &[], "x").status, 204);
    first.write_all(&[7; 10_000]).unwrap();
    let mut answer = [0; 12];
    first.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
    let begin = Instant::now();
    while door.send("PUT /buckets/b/keys/other", &[], Some(&whole)).status != 204 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the room does not come back");
    }
}

#[test]
fn uploads_that_stand_still_make_room_when_the_door_is_full() {
    let door = open_with(holdfast::Limits::default(), |options| {
        options.limits = Limits { connections_max: 2, give_way_after: Duration::ZERO, ..Limits::default() };
    });
    let half = || {
        let mut stream = connect(door.running.local_addr());
        stream.write_all(format!("{PUT}Content-Length: 10\r\n\r\nhalf").as_bytes()).unwrap();
        stream
    };
    let halves = [half(), half()];
    // As often as one likes: the door is never shut.
    for _ in 0..20 {
        assert_eq!(door.put("/buckets/b/keys/other", &[], "x").status, 204);
    }
    for mut stream in halves {
        // Its connection is gone, or goes when there is more to be read.
        let _ = stream.write_all(b"of it.");
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        assert!(read.is_err() || answer.is_empty() || answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
    assert_eq!(door.get("/buckets/b/keys/other").text(), "x");
}
