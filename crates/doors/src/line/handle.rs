//! The few commands of the door: words that are no points.
//!
//! May use: `door`. Must not know: sockets, batches.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::door::Door;
use super::wire::{Shape, excerpt};

const HELP: &str = "put <metric> <time> <value> [<tag>=<value> ...]  a point, as OpenTSDB's; unanswered unless it is wrong\n\
    <metric>[,<tag>=<value>...] <field>=<value>[,...] [<time>]  points, as InfluxDB's; unanswered unless it is wrong\n\
    checkpoint  answers when everything that this connection sent is on stable storage\n\
    stats       what the door has counted\n\
    version     which program this is\n\
    help        this text\n\
    exit        closes this connection\n";

/// What a command asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Lines.
    Text(String),
    /// A line when everything before is durable.
    Checkpoint,
    /// The end of the connection.
    Exit,
}

/// What a line that has no points is answered with; `None` when there is no such command.
pub(crate) fn word(door: &Door, line: &[u8]) -> Option<Answer> {
    let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    Some(match word {
        b"checkpoint" => Answer::Checkpoint,
        b"exit" => Answer::Exit,
        b"version" => Answer::Text(format!("holdfast {}\n", door.options.version)),
        b"help" => Answer::Text(HELP.to_owned()),
        b"stats" => Answer::Text(stats(door)),
        _ => return None,
    })
}

/// Name, time in seconds, value: lines that OpenTSDB's own collectors can read.
fn stats(door: &Door) -> String {
    let points = door.points.totals();
    let seconds = door.store.now_ms() / 1000;
    let mut text = String::new();
    for (name, value) in [
        ("connections", door.connections.load(Relaxed) as u64),
        ("connections.accepted", door.accepted.load(Relaxed)),
        ("connections.rejected", door.rejected.load(Relaxed)),
        ("bytes.received", door.received_bytes.load(Relaxed)),
        ("points.written", points.written),
        ("points.refused", points.refused),
        ("points.lost", points.lost),
        ("lines.malformed", points.malformed),
        ("errors.unsaid", door.unsaid.load(Relaxed)),
        ("batches", points.batches),
        ("datagrams", points.datagrams),
        ("datagrams.dropped", points.datagrams_dropped),
    ] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "holdfast.line.{name} {seconds} {value}");
    }
    text
}

/// What is said about a bad line.
pub(crate) fn complaint(shape: Shape, number: u64, line: &[u8], reason: &str) -> String {
    let line = excerpt(line);
    match shape {
        Shape::Put => format!("put: illegal argument: {reason} (line {number}: {line})"),
        Shape::Influx => format!("error: unable to parse '{line}': {reason} (line {number})"),
    }
}

/// Whether it is how a request of HTTP begins.
pub(crate) fn is_http(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ');
    let is_method = words.next().is_some_and(|word| !word.is_empty() && word.iter().all(u8::is_ascii_uppercase));
    is_method
        && words.count() == 2
        && line.rsplit(|byte| *byte == b' ').next().is_some_and(|word| word.starts_with(b"HTTP/"))
}

/// What is said to a client of HTTP, in its own words: it would show no others.
pub(crate) fn answer_http() -> String {
    let text = "error: this is the door for lines of points; HTTP has a port of its own, which is 7412 unless http.listen of the \
                server's configuration names another\n";
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}

/// What is said about a word that is no command.
pub(crate) fn unknown(number: u64, line: &[u8]) -> String {
    format!("unknown command: {}.  Try `help'. (line {number})", excerpt(line))
}
