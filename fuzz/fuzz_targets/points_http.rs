//! Parses foreign bytes as what comes in over HTTP: OpenTSDB's JSON, Prometheus' text, its remote writes and
//! reads. Nothing panics, and what is refused adds nothing.
//!
//! The parsers are private to their crate and use only the facade's points and the door's numbers, so this compiles their files.
//!
//! Run: `cargo +nightly fuzz run points_http`. May use: the files.
#![no_main]

use holdfast::series::Rows;
use holdfast::series::promql::Selector;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/doors/src/line"]
#[allow(dead_code, unused_imports, reason = "the doors use more of the parsers than this target")]
mod line {
    mod influx;
    mod number;
    mod put;
    mod wire;

    pub(crate) use number::{Number, Unit, advice, number, time};
    pub(crate) use wire::excerpt;
}

#[path = "../../crates/doors/src/http"]
mod http {
    #[allow(dead_code, reason = "the door writes messages too")]
    pub(crate) mod message;
}

#[path = "../../crates/doors/src/http/ingest/exposition.rs"]
#[allow(dead_code, reason = "the door uses more of the parser than this target")]
mod exposition;
#[path = "../../crates/doors/src/http/ingest/json.rs"]
mod json;
#[path = "../../crates/doors/src/http/prometheus/read_request.rs"]
#[allow(dead_code, reason = "the door uses more of it than this target")]
mod read_request;
#[path = "../../crates/doors/src/http/ingest/remote.rs"]
mod remote;

fn points(bytes: &[u8], rows: &mut Rows) {
    let (mut points, mut name) = (json::DataPoints::new(bytes), Vec::new());
    while let Ok(Some(point)) = points.next() {
        let before = rows.len();
        assert!(!point.whole.is_empty(), "a data point is made of bytes");
        let added = usize::from(point.add(&mut name, rows).is_ok());
        assert_eq!(rows.len(), before + added, "one point, or none");
    }
}

fn lines(bytes: &[u8], rows: &mut Rows) {
    let mut extra = exposition::Extra::default();
    let mut name = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let before = rows.len();
        let added = usize::from(exposition::add(line, &extra, 77, &mut name, rows).is_ok());
        assert_eq!(rows.len(), before + added, "one point, or none");
        let _ = extra.push(line);
    }
}

fn message(mut bytes: &[u8], rows: &mut Rows) {
    let mut name = Vec::new();
    while let Ok(Some(series)) = remote::next(&mut bytes) {
        if remote::add(series, &mut name, rows).is_err() {
            return;
        }
    }
}

fn questions(bytes: &[u8]) {
    for query in read_request::queries(bytes).unwrap_or_default() {
        assert!(query.range.from <= query.range.to, "it ends after it starts");
        let _ = Selector::parse(&query.selector);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let mut rows = Rows::new("default");
    match kind % 4 {
        0 => points(bytes, &mut rows),
        1 => lines(bytes, &mut rows),
        2 => message(bytes, &mut rows),
        _ => questions(bytes),
    }
});
