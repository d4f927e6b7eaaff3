//! `/api/v1/export`: the points of series as VictoriaMetrics exports them, a line of JSON for each series.
//!
//! Lines are made while they are sent, so an export of any length costs the memory of one series. Booleans are 0 and 1; texts
//! are left out; NaN is null.
//!
//! May use: `params`, `json`, `pages`. Must not know: expressions.

use std::fmt::Write as _;

use axum::response::Response;
use holdfast::Store;
use holdfast::series::promql::{Named, write_float};
use holdfast::series::{Missing, Points, Range, Reader, Source, Stop, ValueRef};

use super::json;
use super::params::{Params, selectors};
use super::refusal::Refusal;
use crate::http::handle::{Asked, with_type};
use crate::http::pages::{self, Piece, Pieces};

const JSON_LINES: &str = "application/stream+json";
const PIECE_BYTES: usize = 256 << 10;

pub(super) async fn export(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let matches = params.matches()?;
    if matches.is_empty() {
        return Err(Refusal::bad("no match[] parameter provided"));
    }
    let range = params.range()?.unwrap_or(Range::ALL);
    let find = move |store: &Store, stop: Stop| {
        let reader = store.series().reader().until(stop);
        let mut all = Vec::new();
        for selector in selectors(&matches)? {
            all.extend(selector.find(&reader, &database)?);
        }
        all.sort_by(|a: &Named, b| a.labels.cmp(&b.labels));
        all.dedup();
        let mut export = Export { reader, series: all.into_iter(), range, points: Points::new(), told: 0 };
        let first = export.next()?;
        Ok::<_, Refusal>((export, first))
    };
    let (begun, watching) = asked.long_question(find).await?;
    let (mut export, first) = begun?;
    let missing = export.reader.missing();
    export.told = missing.as_ref().map_or(0, Missing::blocks);
    let answer = match first {
        Piece::Last(bytes) | Piece::LastOfIncomplete(bytes, _) => with_type(JSON_LINES, bytes),
        Piece::More(bytes) => with_type(JSON_LINES, pages::continued(bytes, Box::new(export), Some(watching))),
    };
    Ok(pages::telling(answer, missing.as_ref()))
}

struct Export {
    reader: Reader,
    series: std::vec::IntoIter<Named>,
    range: Range,
    points: Points,
    /// Damaged blocks of which the header tells.
    told: usize,
}

impl Pieces for Export {
    fn next(&mut self) -> holdfast::Result<Piece> {
        self.reader.resume();
        let mut text = String::new();
        for named in self.series.by_ref() {
            self.points.clear();
            for id in &named.ids {
                self.reader.points(*id, self.range, &mut self.points)?;
            }
            // As points and as text.
            let bytes = 2 * self.points.memory_bytes() as u64;
            self.reader.hold(bytes)?;
            self.points.sort();
            line(&named, &self.points, &mut text);
            self.reader.give_back(bytes);
            if text.len() > PIECE_BYTES {
                // Until the client has taken it.
                self.reader.pause();
                self.reader.settle()?;
                return Ok(Piece::More(text.into_bytes()));
            }
        }
        self.reader.settle()?;
        Ok(Piece::last(text.into_bytes(), self.reader.missing(), self.told))
    }
}

fn line(named: &Named, points: &Points, to: &mut String) {
    let number = |value: ValueRef<'_>| match value {
        ValueRef::Boolean(value) => Some(f64::from(u8::from(value))),
        other => other.number(),
    };
    let numbers = || points.iter().filter_map(|(time, value)| Some((time, number(value)?)));
    if numbers().next().is_none() {
        return;
    }
    to.push_str("{\"metric\":");
    json::labels(&named.labels, to);
    to.push_str(",\"values\":[");
    for (nth, (_, value)) in numbers().enumerate() {
        if nth > 0 {
            to.push(',');
        }
        match value {
            _ if value.is_nan() => to.push_str("null"),
            _ if value == f64::INFINITY => to.push_str("\"Infinity\""),
            _ if value == f64::NEG_INFINITY => to.push_str("\"-Infinity\""),
            _ => write_float(value, to),
        }
    }
    to.push_str("],\"timestamps\":[");
    for (nth, (time, _)) in numbers().enumerate() {
        let between = if nth > 0 { "," } else { "" };
        write!(to, "{between}{}", time.div_euclid(1_000_000)).expect("a string takes all");
    }
    to.push_str("]}\n");
}
