//! Requests as Prometheus makes them, made by hand; and cut anywhere.

use proptest::prelude::*;

use super::super::read_request::{QUERIES_MAX, queries};
use super::super::tests::{devices, write};
use super::*;
use crate::http::message::{Field, field, put_varint};
use crate::http::tests_client::{Answer, Door};

type Matcher<'a> = (u64, &'a str, &'a str);

fn query_message((start, end): (i64, i64), matchers: &[Matcher<'_>]) -> Vec<u8> {
    let mut query = Vec::new();
    put_integer(&mut query, 1, start);
    put_integer(&mut query, 2, end);
    for (kind, name, value) in matchers {
        let mut matcher = Vec::new();
        put_integer(&mut matcher, 1, kind.cast_signed());
        put_bytes(&mut matcher, 2, name.as_bytes());
        put_bytes(&mut matcher, 3, value.as_bytes());
        put_bytes(&mut query, 3, &matcher);
    }
    // Hints, which are ignored.
    put_bytes(&mut query, 4, b"\x08\x01");
    query
}

/// A request with these queries that accepts these types of answers.
fn message(queries: &[Vec<u8>], accepted: &[u64]) -> Vec<u8> {
    let mut message = Vec::new();
    queries.iter().for_each(|query| put_bytes(&mut message, 1, query));
    for kind in accepted {
        put_varint(&mut message, 2 << 3);
        put_varint(&mut message, *kind);
    }
    message
}

fn ask(door: &Door, path: &str, message: &[u8]) -> Answer {
    let body = snap::raw::Encoder::new().compress_vec(message).unwrap();
    let headers = [
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
        ("X-Prometheus-Remote-Read-Version", "0.1.0"),
    ];
    door.send(&format!("POST {path}"), &headers, Some(&body))
}

/// The series of each result: `name=value,... time:value ...`.
fn results(answer: &Answer) -> Vec<Vec<String>> {
    assert_eq!((answer.status, answer.header("content-encoding")), (200, Some("snappy")), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    let plain = snap::raw::Decoder::new().decompress_vec(&answer.body).unwrap();
    let parts = |text: &[u8], number: u64| {
        let (mut rest, mut parts) = (text, Vec::new());
        while let Some((key, value)) = field(&mut rest).unwrap() {
            if let (true, Field::Bytes(bytes)) = (key == number, value) {
                parts.push(bytes.to_vec());
            }
        }
        parts
    };
    let label = |label: &Vec<u8>| {
        let text = |number| String::from_utf8(parts(label, number).remove(0)).unwrap();
        format!("{}={}", text(1), text(2))
    };
    let sample = |sample: &Vec<u8>| {
        let (mut rest, mut value, mut at) = (sample.as_slice(), 0.0, 0);
        while let Some((key, found)) = field(&mut rest).unwrap() {
            match (key, found) {
                (1, Field::Fixed64(bits)) => value = f64::from_bits(bits),
                (2, Field::Varint(ms)) => at = ms.cast_signed(),
                other => panic!("{other:?}"),
            }
        }
        format!("{at}:{value}")
    };
    let series = |series: &Vec<u8>| {
        let labels: Vec<String> = parts(series, 1).iter().map(label).collect();
        let samples: Vec<String> = parts(series, 2).iter().map(sample).collect();
        format!("{} {}", labels.join(","), samples.join(" "))
    };
    parts(&plain, 1).iter().map(|result| parts(result, 1).iter().map(series).collect()).collect()
}

#[test]
fn each_query_has_a_result_of_sorted_series_and_samples() {
    let door = devices();
    let name = (0, "__name__", "g_0");
    let queries = [
        query_message((1_000_000, 1_120_000), &[name, (0, "device", "d_0")]),
        query_message((1_060_000, 1_060_000), &[name, (2, "device", "d_.+"), (1, "sensor", "x"), (3, "db", "a|b")]),
        query_message((0, 1), &[name]),
        query_message((0, i64::MAX), &[(0, "__name__", "cpu_user")]),
    ];
    let wanted: [&[&str]; 4] = [
        &["__name__=g_0,db=test,device=d_0,sensor=s_0 1000000:0 1060000:1 1120000:2"],
        &[
            "__name__=g_0,db=test,device=d_0,sensor=s_0 1060000:1",
            "__name__=g_0,db=test,device=d_1,sensor=s_0 1060000:100",
        ],
        &[],
        &["__name__=cpu_user,host=a 1000000:1.5"],
    ];
    for accepted in [&[][..], &[1, 0], &[0]] {
        assert_eq!(results(&ask(&door, "/api/v1/read", &message(&queries, accepted))), wanted);
    }
    // Packed, and very many.
    for (more, last) in [(&[0x81, 0x01][..], 0), (&[1, 0, 1], 1)] {
        let mut packed = message(&queries, &[]);
        put_bytes(&mut packed, 2, &[more.repeat(10_000), vec![last]].concat());
        assert_eq!(results(&ask(&door, "/api/v1/read", &packed)), wanted);
    }
    // As InfluxDB 1.8 calls it.
    assert_eq!(results(&ask(&door, "/api/v1/prom/read?db=default&rp=autogen", &message(&queries, &[]))), wanted);
    let other = message(&[query_message((0, 2_000_000), &[(0, "job", "x")])], &[]);
    assert_eq!(results(&ask(&door, "/api/v1/read?db=other", &other)), [["__name__=up,job=x 1000000:1"]]);
    assert_eq!(results(&ask(&door, "/api/v1/read", &other)), [Vec::<String>::new()]);
}

#[test]
fn texts_are_quoted_and_the_last_of_a_millisecond_counts() {
    let door = devices();
    let odd = "a\"b\\c\n\u{e9}{}";
    write(&door, "odd", &[(&format!("m,t={odd}"), "value", 1, 7.0)]);
    let lines = "m,t=x v=1,b=true,s=\"text\" 1000000\nm,t=x v=2 1000001\nm,t=x v=3 1999999\nm,t=x v=4 2000000\n";
    assert_eq!(door.send("POST /write?db=odd", &[], Some(lines.as_bytes())).status, 204);
    let queries = [
        query_message((0, 5_000), &[(0, "t", odd)]),
        query_message((0, 5_000), &[(0, "__name__", "m_v")]),
        query_message((0, 5_000), &[(2, "__name__", "m_[bs]")]),
        query_message((1, 1), &[(0, "__name__", "m_v")]),
    ];
    let found = results(&ask(&door, "/api/v1/read?db=odd", &message(&queries, &[])));
    assert_eq!(found[0], [format!("__name__=m,t={odd} 1000:7")]);
    assert_eq!(found[1], ["__name__=m_v,t=x 1:3 2:4"]);
    assert_eq!(found[2], ["__name__=m_b,t=x 1:1"]);
    assert_eq!(found[3], ["__name__=m_v,t=x 1:3"]);
}

#[test]
fn no_series_is_read_for_a_client_that_was_told_it_took_too_long() {
    let door = devices();
    let reader = door.store.series().reader();
    let found = || Selector::parse("{__name__=\"g_0\"}").unwrap().find(&reader, "default").unwrap();
    let range = Range { from: 0, to: i64::MAX };
    assert_eq!(found().len(), 2);
    assert!(result(&reader, found(), range).is_ok());
    let stop = Stop { time_max: Some(std::time::Duration::ZERO), ..Stop::default() };
    let late = door.store.series().reader().until(stop);
    let refused = result(&late, found(), range).map_err(|refusal| refusal.into_response().status().as_u16());
    assert_eq!(refused, Err(503));
    assert_eq!(late.position(), holdfast::Position::ZERO, "nothing was read");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let door = devices();
    let name = (0, "__name__", "g_0");
    let many: Vec<Vec<u8>> = (0..=QUERIES_MAX).map(|_| query_message((0, 1), &[name])).collect();
    for (message, wanted) in [
        (b"\x0a\x7f".to_vec(), "the body is no message prometheus.ReadRequest"),
        (message(&[query_message((2, 1), &[name])], &[]), "a query ends before it starts"),
        (message(&[query_message((0, 1), &[name])], &[1]), "chunks are not sent here"),
        (b"\x12\x02\x80\x01".to_vec(), "chunks are not sent here"),
        (b"\x12\x01\x80".to_vec(), "the body is no message prometheus.ReadRequest"),
        (message(&[query_message((0, 1), &[(4, "a", "b")])], &[]), "the type of a matcher is not known"),
        (message(&[query_message((0, 1), &[(0, "a.b", "b")])], &[]), "the label \"a.b\" cannot be asked for"),
        (message(&[query_message((0, 1), &[(2, "a", "(")])], &[]), "bad regular expression"),
        (message(&[query_message((0, 1), &[])], &[]), "at least one non-empty matcher"),
        (message(&many, &[]), "there are more than 100 queries"),
    ] {
        let answer = ask(&door, "/api/v1/read", &message);
        assert_eq!(answer.status, 400, "{wanted}: {answer:?}");
        let text = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(text.contains(wanted), "{text}: {wanted}");
    }
    // The body is snappy's, whether headers say so or not.
    let plain = message(&[query_message((0, 1), &[name])], &[]);
    assert_eq!(door.send("POST /api/v1/read", &[], Some(&plain)).status, 400);
    let packed = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
    assert_eq!(door.send("POST /api/v1/read", &[], Some(&packed)).status, 200);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..100), end in 0..60usize) {
        let _ = queries(&text);
        let whole = message(&[query_message((1, 2), &[(2, "a", "b\"")])], &[0, 1]);
        let _ = queries(&whole[..end.min(whole.len())]);
    }
}
