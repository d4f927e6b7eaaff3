//! Influx lines over HTTP, answered as InfluxDB 1.8 and 2 do.
//!
//! May use: `intake`, `crate::line`. Must not know: sockets.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use holdfast::series::Typing;
use serde_json::json;

use super::super::failure::Failure;
use super::super::handle::{Asked, JSON, say_durability};
use super::super::upload::Upload;
use super::Points;
use super::body::Encoding;
use super::intake::{Intake, Malformed, Outcome};
use crate::line::{After, SECOND, Step, Times, Unit, excerpt};

/// Lines that an answer names.
const LINES_MAX: usize = 20;
/// Where InfluxDB says what is wrong, too.
const ERROR: &str = "x-influxdb-error";

/// Which InfluxDB's answers the client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    One,
    Two,
}

/// `POST /write`, `/api/write` and `/api/v2/write`.
pub(crate) async fn write(
    asked: &Asked<'_>,
    database: String,
    dialect: Dialect,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    match store(asked, database, upload).await {
        Ok(Written { outcome, answer }) if outcome.is_whole() => Ok(answer),
        Ok(Written { outcome, .. }) => Ok(refusal(StatusCode::BAD_REQUEST, &reason(&outcome), dialect)),
        Err(failure) => Ok(refusal(failure.code(), failure.text(), dialect)),
    }
}

struct Written {
    outcome: Outcome,
    answer: Response,
}

async fn store(asked: &Asked<'_>, database: String, upload: &mut Upload) -> Result<Written, Failure> {
    super::check_policy(asked, &database)?;
    let unit = precision(asked.query.get("precision"))?;
    let durability = asked.durability()?;
    let points = Points { database, typing: Typing::Strict, encoding: Encoding::of(&asked.parts.headers)? };
    let read = move |intake: &mut Intake<'_>, body: &[u8]| lines(intake, body, unit);
    let (outcome, read) = super::take(asked, upload, points, Some(durability), read).await?;
    read?;
    Ok(Written { outcome, answer: say_durability(StatusCode::NO_CONTENT.into_response(), durability) })
}

/// Reads all lines of a body.
///
/// # Errors
/// What the store says.
pub(crate) fn lines(intake: &mut Intake<'_>, body: &[u8], unit: Unit) -> holdfast::Result<()> {
    let times = Times { now: intake.now, unit };
    let (mut rest, mut number) = (body, 1);
    while !rest.is_empty() {
        intake.make_room()?;
        let (step, reader) = (&mut intake.kit.rows, &mut intake.kit.lines);
        let bytes = match reader.step(rest, After::Nothing, times, step) {
            Step::Points { bytes, lines, .. } => {
                number += lines;
                bytes
            }
            Step::Bad { bytes, line, reason, .. } => {
                intake.complain(number, line, reason);
                number += 1;
                bytes
            }
            Step::Word { bytes, line } => {
                intake.complain(number, line, "missing fields: write a measurement, a blank, and field=value".into());
                number += 1;
                bytes
            }
            Step::Incomplete => break,
        };
        rest = rest.get(bytes..).unwrap_or_default();
    }
    Ok(())
}

fn precision(name: Option<&[u8]>) -> Result<Unit, Failure> {
    Ok(Unit::Nanos(match name {
        None | Some(b"" | b"n" | b"ns") => 1,
        Some(b"u" | b"us" | b"\xc2\xb5" | b"\xc2\xb5s") => 1_000,
        Some(b"ms") => 1_000_000,
        Some(b"s") => SECOND,
        Some(b"m") => 60 * SECOND,
        Some(b"h") => 3600 * SECOND,
        Some(other) => {
            let text = format!("invalid precision \"{}\" (use n, u, ms, s, m or h)", excerpt(other));
            return Err(Failure::bad(text));
        }
    }))
}

/// What InfluxDB says when not all of a request could be stored.
fn reason(outcome: &Outcome) -> String {
    let Outcome { written, malformed, malformed_count, refused, refused_points, .. } = outcome;
    let say = |Malformed { number, sent, reason }: &Malformed| {
        format!("unable to parse '{}': {reason} (line {number})", excerpt(sent))
    };
    let mut reasons: Vec<String> = malformed.iter().take(LINES_MAX).map(say).collect();
    let more = malformed_count.saturating_sub(reasons.len() as u64);
    reasons.extend((more > 0).then(|| format!("and {more} more lines")));
    // Of conflicts InfluxDB says the first.
    reasons.extend(refused.first().map(|refused| refused.reason.clone()));
    let reasons = reasons.join("\n");
    if *written == 0 && *refused_points == 0 {
        // Nothing could be parsed, so nothing was written in part.
        return reasons;
    }
    // Only what could be parsed was dropped, as InfluxDB counts.
    format!("partial write: {reasons} dropped={refused_points}")
}

pub(super) fn refusal(status: StatusCode, text: &str, dialect: Dialect) -> Response {
    let body = match dialect {
        Dialect::One => json!({ "error": text }),
        Dialect::Two => {
            let code = match status {
                StatusCode::BAD_REQUEST => "invalid",
                StatusCode::FORBIDDEN => "forbidden",
                StatusCode::NOT_FOUND => "not found",
                StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
                StatusCode::PAYLOAD_TOO_LARGE => "request too large",
                StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported media type",
                StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => "unavailable",
                _ => "internal error",
            };
            json!({ "code": code, "message": text })
        }
    };
    let mut answer = (status, [(CONTENT_TYPE, JSON)], format!("{body}\n")).into_response();
    let line = text.split('\n').next().unwrap_or_default();
    if let Ok(line) = HeaderValue::from_str(line) {
        answer.headers_mut().insert(HeaderName::from_static(ERROR), line);
    }
    answer
}
