//! `/api/v1/query` and `/api/v1/query_range`.
//!
//! May use: `params`, `json`, `pages`. Must not know: how expressions are evaluated.

use std::time::{Duration, Instant};

use axum::response::Response;
use holdfast::Store;
use holdfast::series::promql::{Answer, Expression, Limits, Line, STEP_MS, STEPS_MAX, Scope, Span};
use holdfast::series::{Reader, Stop};

use super::json;
use super::params::Params;
use super::refusal::Refusal;
use crate::http::handle::{Asked, JSON, with_type};
use crate::http::pages::{self, Piece, Pieces};

/// Answers of more bytes are sent while they are written.
const PIECE_BYTES: usize = 256 << 10;
/// Eight bytes each; a query takes no more memory than a few of the largest results.
const CELLS_MAX: u64 = 20_000_000;

pub(super) async fn instant(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let time = params.moment("time")?.unwrap_or_else(|| now(asked));
    let parse = |text: &str| Expression::parse(text, STEP_MS);
    evaluate(asked, params, (database, parse), move |expression, scope| expression.instant(scope, time)).await
}

pub(super) async fn range(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let now = now(asked);
    let end_ms = params.moment("end")?.unwrap_or(now);
    let start_ms = params.moment("start")?.unwrap_or(end_ms.saturating_sub(STEP_MS));
    // Without a step it is VictoriaMetrics' five minutes, or as much as keeps the answer within its bounds.
    let step_ms = match params.duration("step")? {
        Some(step_ms) => step_ms,
        None => STEP_MS.max(end_ms.saturating_sub(start_ms) / STEPS_MAX + 1),
    };
    let span = Span { start_ms, end_ms, step_ms };
    span.check().map_err(|error| Refusal::bad(error.to_string()))?;
    let parse = move |text: &str| Expression::parse_for_range(text, step_ms);
    evaluate(asked, params, (database, parse), move |expression, scope| expression.range(scope, span)).await
}

fn now(asked: &Asked<'_>) -> i64 {
    i64::try_from(asked.shared.store.now_ms()).unwrap_or(i64::MAX)
}

/// An answer that is written, or the one whose beginning is.
enum Written {
    All(String),
    Begun(Vec<u8>, Box<Rest>),
}

async fn evaluate(
    asked: &Asked<'_>,
    params: &Params,
    (database, parse): (
        String,
        impl FnOnce(&str) -> Result<Expression, holdfast::series::SeriesError> + Send + 'static,
    ),
    act: impl FnOnce(&Expression, Scope<'_>) -> Result<Answer, holdfast::series::SeriesError> + Send + 'static,
) -> Result<Response, Refusal> {
    let timeout = params.duration("timeout")?.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let text = params.get("query").unwrap_or_default().to_owned();
    let limit = params.limit()?;
    // Parsed where it may take a while, because of regular expressions.
    let evaluated = asked.long_question(move |store: &Store, stop: Stop| {
        let invalid = |error| Refusal::bad(format!("invalid parameter \"query\": {error}"));
        let expression = parse(&text).map_err(invalid)?;
        let reader = store.series().reader().until(stop);
        let go_on = || end.is_none_or(|end| Instant::now() < end);
        let limits = Limits { cells_max: CELLS_MAX, ..Limits::default() };
        let scope = Scope { source: &reader, database: &database, limits, go_on: &go_on };
        let answer =
            act(&expression, scope).map_err(|error| if go_on() { Refusal::from(error) } else { Refusal::late() })?;
        reader.settle()?;
        let mut rest = Rest::of(answer, reader, limit);
        Ok::<_, Refusal>(match rest.next_piece() {
            (text, true) => Written::All(text),
            (text, false) => Written::Begun(text.into_bytes(), Box::new(rest)),
        })
    });
    let (written, watching) = evaluated.await?;
    match written? {
        Written::All(text) => Ok(with_type(JSON, text)),
        Written::Begun(first, rest) => Ok(with_type(JSON, pages::continued(first, rest, Some(watching)))),
    }
}

/// What is still to be written of an answer.
struct Rest {
    /// Holds the memory of the lines.
    _reader: Reader,
    lines: std::vec::IntoIter<Line>,
    write: fn(&Line, &mut String),
    is_list: bool,
    is_first: bool,
    end: String,
    text: String,
}

impl Rest {
    /// At most `limit` of the answer's series, if there is a limit.
    fn of(answer: Answer, reader: Reader, limit: Option<usize>) -> Self {
        let mut text = String::new();
        json::head(&answer, &mut text);
        let (mut lines, write, is_list): (_, fn(&Line, &mut String), _) = match answer {
            Answer::Vector(lines) => (lines, json::vector_line, true),
            Answer::Matrix(lines) => (lines, json::matrix_line, true),
            Answer::Scalar(..) | Answer::Text(..) => (Vec::new(), json::vector_line, false),
        };
        let limit = limit.unwrap_or(usize::MAX);
        let truncated = (lines.len() > limit).then(|| json::TRUNCATED.to_owned());
        let missing = reader.missing().map(|missing| missing.to_string());
        let warnings: Vec<String> = missing.into_iter().chain(truncated).collect();
        lines.truncate(limit);
        Self {
            _reader: reader,
            lines: lines.into_iter(),
            write,
            is_list,
            is_first: true,
            end: json::end(&warnings),
            text,
        }
    }

    /// The next part, and whether it is the last.
    fn next_piece(&mut self) -> (String, bool) {
        let mut text = std::mem::take(&mut self.text);
        for line in self.lines.by_ref() {
            if !std::mem::take(&mut self.is_first) {
                text.push(',');
            }
            (self.write)(&line, &mut text);
            if text.len() > PIECE_BYTES {
                return (text, false);
            }
        }
        if self.is_list {
            text.push(']');
        }
        text.push_str(&self.end);
        (text, true)
    }
}

impl Pieces for Rest {
    fn next(&mut self) -> holdfast::Result<Piece> {
        Ok(match self.next_piece() {
            (text, true) => Piece::Last(text.into_bytes()),
            (text, false) => Piece::More(text.into_bytes()),
        })
    }
}
