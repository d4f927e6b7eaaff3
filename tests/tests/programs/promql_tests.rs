//! PromQL answered by Debian's `prometheus` and by the program, over the same samples: the answers have to be the same, value by
//! value.
//!
//! Prometheus gets the samples by `promtool tsdb create-blocks-from openmetrics`, the program by its import of Prometheus' text.
//! Every expression of `promql_questions.txt` is asked at some moments and over a range. Debian has Prometheus 2, and the program
//! answers like Prometheus 3, so what is asked is where both say the same: no sample lies on the edge of a window, whose start is
//! a part of it in 2 and not in 3 (samples lie 10 seconds after multiples of 15 since 1970, moments and thereby windows 2 seconds
//! after, steps of subqueries at them), and counters begin far above zero (how far 2 stretches a rate towards a near zero before
//! the first sample differs).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use holdfast_tests::{Launch, run, say};
use serde_json::Value;
use tempfile::TempDir;

use crate::beside::{Program, TIME_MAX};

const QUESTIONS: &str = include_str!("promql_questions.txt");
/// The first sample, in seconds since 1970.
const FIRST: i64 = 1_700_000_005;
const STEP: i64 = 15;
/// Samples of a series that has all of them: two hours.
const COUNT: i64 = 480;
/// Seconds after the first sample: early, in the gap of a series, later, and when some series have ended.
const MOMENTS: [i64; 4] = [1207, 2512, 3607, 7402];
/// First, last and step, in seconds after the first sample.
const SPAN: (i64, i64, i64) = (907, 7987, 120);
/// Both add up to some hundred doubles, in different orders and with different compensation of what rounding loses: some hundred
/// times 1e-16, more where the sum is smaller than what is summed (slopes of a line, spreads). A wrong rule shows far above.
const RELATIVE_ERROR_MAX: f64 = 1e-10;

/// Lists that both have.
const LISTS: [(&str, &str); 5] = [
    ("/api/v1/labels", ""),
    ("/api/v1/labels", "match[]=temperature&match[]=limit"),
    ("/api/v1/series", "match[]=temperature"),
    ("/api/v1/series", "match[]={job%3D%22api%22,code!~%225..%22}&match[]=limit"),
    ("/api/v1/series", "match[]=requests_total{instance%3D~%22b|c%22}"),
];

/// What both have to say for a question to compare something.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    Values,
    Nothing,
    Refusal,
}

/// A value by the number of its sample.
type ValueOf = fn(i64) -> f64;

/// Samples of one series: `metric{labels}`, and values by seconds since 1970.
type Series = (String, Vec<(i64, f64)>);

/// A value between 0 and 1 that looks like chance and is the same everywhere.
fn noise(series: i64, nth: i64) -> f64 {
    let mixed = (series * 7_919 + nth * 104_729 + (nth * nth) % 1_009 * 31) % 1_000;
    f64::from(i32::try_from(mixed).expect("less than a thousand")) / 1000.0
}

fn series() -> Vec<Series> {
    let mut all = Vec::new();
    let mut push = |name: String, value: &mut dyn FnMut(i64) -> Option<f64>| {
        let points = (0..COUNT).filter_map(|nth| Some((FIRST + nth * STEP, value(nth)?)));
        all.push((name, points.collect()));
    };
    let mut number = 0;
    for (job, instance) in [("api", "a"), ("api", "b"), ("web", "a"), ("web", "c")] {
        for code in ["200", "404", "500"] {
            number += 1;
            let mut sum = 500.0;
            // Counters that begin again, each at times of its own.
            push(format!(r#"requests_total{{job="{job}",instance="{instance}",code="{code}"}}"#), &mut |nth| {
                let is_restart = number % 3 == 1 && nth % (90 + number) == 77;
                sum = if is_restart { 2.0 } else { sum + (noise(number, nth) * 40.0).floor() };
                Some(sum)
            });
        }
        push(format!(r#"build_info{{instance="{instance}",job="{job}",version="1.{number}"}}"#), &mut |_| Some(1.0));
        let mut counts = [900.0; 6];
        for (nth_bound, bound) in ["0.1", "0.25", "0.5", "1", "2.5", "+Inf"].iter().enumerate() {
            let name = format!(r#"latency_bucket{{job="{job}",instance="{instance}",le="{bound}"}}"#);
            let own = number + 50;
            push(name, &mut |nth| {
                // Each bucket counts what is at most its bound, so a larger one counts at least as much.
                let passed = |bound: usize| (noise(own + bound as i64, nth) * 9.0).floor();
                counts[nth_bound] += (0..=nth_bound).map(passed).sum::<f64>();
                Some(counts[nth_bound])
            });
        }
    }
    for (job, most) in [("api", 250.5), ("web", 90.25), ("batch", 7.0)] {
        push(format!(r#"limit{{job="{job}"}}"#), &mut |_| Some(most));
    }
    let rooms = [("hall", "0"), ("lab", "1"), ("cellar", "-1"), ("roof", "2")];
    for (room, (name, floor)) in (100..).zip(rooms) {
        push(format!(r#"temperature{{room="{name}",floor="{floor}"}}"#), &mut |nth| {
            let is_there = match name {
                "lab" => !(130..190).contains(&nth),
                // Less often than a value lasts, and twice more often than it.
                "cellar" => nth % 16 == 3 || (nth > 300 && nth % 25 == 0),
                "roof" => nth < 200,
                _ => true,
            };
            // Hundredths tell the rooms apart: which of equal ones `topk` takes is not said.
            is_there.then(|| (noise(room, nth) * 400.0).floor() / 10.0 - 12.5 + (room - 100) as f64 / 100.0)
        });
    }
    let odd: [(&str, ValueOf); 6] = [
        ("nan", |nth| if nth % 7 == 0 { f64::NAN } else { 5.0 }),
        ("infinite", |nth| if nth % 11 == 0 { f64::INFINITY } else { 1.0 }),
        ("negative", |nth| if nth % 40 == 0 { f64::NEG_INFINITY } else { -2.0 }),
        ("zero", |nth| if nth % 2 == 0 { 0.0 } else { -0.0 }),
        ("tiny", |nth| 4.9e-300 * noise(7, nth)),
        ("huge", |nth| 1.0e300 * noise(8, nth)),
    ];
    for (kind, value) in odd {
        push(format!(r#"odd{{kind="{kind}"}}"#), &mut |nth| Some(value(nth)));
    }
    all
}

/// A moment of a sample as one of the formats wants it.
fn exposition(all: &[Series], time: impl Fn(i64) -> i64) -> String {
    let mut text = String::new();
    for (name, points) in all {
        for (at, value) in points {
            let value = match value {
                value if value.is_nan() => "NaN".to_owned(),
                value if value.is_infinite() => format!("{}Inf", if *value > 0.0 { '+' } else { '-' }),
                value => format!("{value:e}"),
            };
            writeln!(text, "{name} {value} {}", time(*at)).expect("a string takes all");
        }
    }
    text
}

/// Asks with a form; the status and the body. HTTP/1.0 has no chunks, and ends with the connection.
fn post(address: SocketAddr, path: &str, kind: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect_timeout(&address, TIME_MAX).expect("it listens");
    stream.set_read_timeout(Some(TIME_MAX)).expect("a socket has a timeout");
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.0\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers, and closes");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {head}")), body.to_owned())
}

/// What one of both answers to a question.
fn ask(address: SocketAddr, query: &str, when: Option<i64>) -> (u16, Value) {
    let mut form = String::from("query=");
    for byte in query.bytes() {
        write!(form, "%{byte:02X}").expect("a string takes all");
    }
    let path = match when {
        Some(seconds) => {
            write!(form, "&time={}", FIRST + seconds).expect("a string takes all");
            "/api/v1/query"
        }
        None => {
            let (start, end, step) = (FIRST + SPAN.0, FIRST + SPAN.1, SPAN.2);
            write!(form, "&start={start}&end={end}&step={step}").expect("a string takes all");
            "/api/v1/query_range"
        }
    };
    let (status, body) = post(address, path, "application/x-www-form-urlencoded", &form);
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{query}: {error}: {body}")))
}

/// One series of an answer: its labels, and times and values.
type Line = (BTreeMap<String, String>, Vec<(f64, f64)>);

fn point(value: &Value) -> (f64, f64) {
    let time = value[0].as_f64().unwrap_or_else(|| panic!("no time: {value}"));
    let text = value[1].as_str().unwrap_or_else(|| panic!("no value: {value}"));
    (time, text.parse().unwrap_or_else(|_| panic!("no number: {value}")))
}

fn lines(answer: &Value) -> Vec<Line> {
    let result = &answer["data"]["result"];
    let line = |line: &Value| {
        let labels = line["metric"].as_object().unwrap_or_else(|| panic!("no labels: {line}"));
        let label = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap_or_default().to_owned());
        let points = match line.get("values") {
            Some(values) => values.as_array().expect("values are a list").iter().map(point).collect(),
            None => vec![point(&line["value"])],
        };
        (labels.iter().map(label).collect(), points)
    };
    match answer["data"]["resultType"].as_str() {
        Some("scalar") => vec![(BTreeMap::new(), vec![point(result)])],
        _ => result.as_array().unwrap_or_else(|| panic!("no result: {answer}")).iter().map(line).collect(),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= RELATIVE_ERROR_MAX * a.abs().max(b.abs())
}

/// How two answers differ; values that were compared when they do not.
fn compare(wanted: &Value, found: &Value, is_ordered: bool) -> Result<usize, String> {
    if wanted["data"]["resultType"] == "string" || wanted["data"]["resultType"] != found["data"]["resultType"] {
        return if wanted["data"] == found["data"] { Ok(1) } else { Err("another type or text".to_owned()) };
    }
    let (mut wanted, mut found) = (lines(wanted), lines(found));
    if !is_ordered {
        wanted.sort_by(|a, b| a.0.cmp(&b.0));
        found.sort_by(|a, b| a.0.cmp(&b.0));
    }
    let labels = |lines: &[Line]| lines.iter().map(|(labels, _)| format!("{labels:?}")).collect::<Vec<_>>();
    if labels(&wanted) != labels(&found) {
        return Err(format!("other series:\n  {:?}\n  {:?}", labels(&wanted), labels(&found)));
    }
    let mut compared = 0;
    for ((labels, wanted), (_, found)) in wanted.iter().zip(&found) {
        let is_same = |(a, b): (&(f64, f64), &(f64, f64))| a.0 == b.0 && is_near(a.1, b.1);
        let first = wanted.iter().zip(found).position(|pair| !is_same(pair));
        if first.is_some() || wanted.len() != found.len() {
            let at = first.unwrap_or(wanted.len().min(found.len()));
            let (lengths, pair) = ((wanted.len(), found.len()), (wanted.get(at), found.get(at)));
            return Err(format!("{labels:?}: {lengths:?} values, the first that differs is {at}: {pair:?}"));
        }
        compared += wanted.len();
    }
    Ok(compared)
}

#[test]
fn prometheus_and_the_program_answer_the_same() {
    let (data, own) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let samples = series();
    let (text, blocks) = (own.path().join("samples"), own.path().join("blocks"));
    let openmetrics = format!("{}# EOF\n", exposition(&samples, |seconds| seconds));
    fs::write(&text, openmetrics).expect("a file of a test can be written");
    let mut promtool = Command::new("promtool");
    let made = run(promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).args([&text, &blocks]), b"", TIME_MAX);
    assert_eq!(made.code, Some(0), "{}", made.text);
    let settings = own.path().join("prometheus.yml");
    fs::write(&settings, "global: {}\n").expect("a file of a test can be written");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", settings.display()));
    command.arg(format!("--storage.tsdb.path={}", blocks.display()));
    command.args(["--storage.tsdb.retention.time=100y", "--web.listen-address=127.0.0.1:0"]);
    let program = Program::start(&mut command);
    let listening = |line: &str| {
        let (_, rest) = line.split_once("msg=\"Listening on\" address=")?;
        rest.split_whitespace().next()?.parse::<SocketAddr>().ok()
    };
    let prometheus = program.output().wait_for(TIME_MAX, listening);
    let prometheus = prometheus.unwrap_or_else(|| panic!("it does not listen:\n{}", program.output().text()));
    // It listens before it has looked through its blocks.
    program.until("readiness", || {
        let (status, _) = post(prometheus, "/api/v1/query", "application/x-www-form-urlencoded", "query=1");
        (status == 200).then_some(())
    });
    let server = Launch::new(data.path()).start();
    let import = exposition(&samples, |seconds| seconds * 1000);
    let (status, body) = post(server.http(), "/api/v1/import/prometheus", "text/plain", &import);
    assert_eq!(status, 204, "{body}");

    let mut wrong = Vec::new();
    let (mut expressions, mut answers, mut refusals, mut values) = (0, 0, 0, 0);
    let is_question = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in QUESTIONS.lines().map(str::trim).filter(is_question) {
        let (wanted, query) = match line.split_once(": ") {
            Some(("refused", query)) => (Wanted::Refusal, query),
            Some(("nothing", query)) => (Wanted::Nothing, query),
            _ => (Wanted::Values, line),
        };
        expressions += 1;
        let (mut seen, mut refused) = (0, 0);
        for when in MOMENTS.into_iter().map(Some).chain([None]) {
            let (theirs, ours) = (ask(prometheus, query, when), ask(server.http(), query, when));
            let told = |what: String| format!("{query} at {when:?}: {what}");
            if (theirs.0, &theirs.1["errorType"]) != (ours.0, &ours.1["errorType"]) {
                wrong.push(told(format!("\n  {} {}\n  {} {}", theirs.0, theirs.1, ours.0, ours.1)));
            } else if theirs.0 != 200 {
                refused += 1;
            } else {
                let is_ordered = when.is_some() && query.starts_with("sort");
                match compare(&theirs.1, &ours.1, is_ordered) {
                    Ok(compared) => seen += compared,
                    Err(what) => wrong.push(told(what)),
                }
                answers += 1;
            }
        }
        let is_as_wanted = match wanted {
            Wanted::Values => seen > 0,
            Wanted::Nothing => seen == 0 && refused == 0,
            Wanted::Refusal => refused == MOMENTS.len() + 1,
        };
        if !is_as_wanted {
            wrong.push(format!("{query}: {wanted:?} wanted, {seen} values and {refused} refusals seen"));
        }
        (values, refusals) = (values + seen, refusals + refused);
    }
    for (path, form) in LISTS {
        let list = |address| {
            let (status, body) = post(address, path, "application/x-www-form-urlencoded", form);
            let body: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
            let mut list = body["data"].as_array().unwrap_or_else(|| panic!("{path} {form}: {status} {body}")).clone();
            list.sort_by_key(Value::to_string);
            list
        };
        let (theirs, ours) = (list(prometheus), list(server.http()));
        if theirs != ours || theirs.is_empty() {
            wrong.push(format!("{path} {form}:\n  {theirs:?}\n  {ours:?}"));
        }
    }
    say!("promql: {expressions} expressions, {answers} answers of {values} values, {refusals} refusals");
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(expressions >= 80 && answers >= 400 && values >= 10_000);
    program.end();
}
