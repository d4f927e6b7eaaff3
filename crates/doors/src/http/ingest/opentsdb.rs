//! OpenTSDB's `/api/put`: JSON or put lines, answered as OpenTSDB 2.4 does.
//!
//! Without parameters the answer is 204, or 400 when a data point failed. `summary` counts, `details` also names each that
//! failed. `sync` is what always happens here: the answer comes when the points are as durable as asked; with `sync_timeout`
//! it comes at the latest then.
//!
//! May use: `intake`, `json`, `crate::line`. Must not know: sockets.

use std::fmt::Write;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdfast::series::Typing;
use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::handle::{Asked, JSON, say_durability};
use super::super::upload::Upload;
use super::Points;
use super::body::Encoding;
use super::influx;
use super::intake::{Intake, Outcome};
use super::json::{DataPoints, NoJson};
use crate::line::Unit;

const SOME_FAILED: &str = "One or more data points had errors";
const SEE_LOGS: &str = "Please see the TSD logs or append \"details\" to the put request";
const SEE: &str = "append \"details\" to the put request to see them";

/// Why nothing, or not all, was read of a body.
enum Unread {
    Store(holdfast::Error),
    NoJson(NoJson),
}

impl From<holdfast::Error> for Unread {
    fn from(error: holdfast::Error) -> Self {
        Unread::Store(error)
    }
}

impl From<NoJson> for Unread {
    fn from(error: NoJson) -> Self {
        Unread::NoJson(error)
    }
}

/// `POST /api/put`.
pub(crate) async fn put(asked: &Asked<'_>, database: String, upload: &mut Upload) -> Result<Response, Failure> {
    match answer(asked, database, upload).await {
        Ok(answer) => Ok(answer),
        Err(failure) => Ok(refusal(failure.code(), failure.text(), "")),
    }
}

/// Whether a parameter is there; saying `false` is as good as leaving it out.
fn has(asked: &Asked<'_>, name: &str) -> bool {
    asked.query.get(name).is_some_and(|value| value != b"false")
}

async fn answer(asked: &Asked<'_>, database: String, upload: &mut Upload) -> Result<Response, Failure> {
    let (has_summary, has_details) = (has(asked, "summary"), has(asked, "details"));
    let timeout = asked.query.number("sync_timeout")?.filter(|timeout| *timeout > 0).map(Duration::from_millis);
    let durability = asked.durability()?;
    // Who has no patience without end has the waiting done apart.
    let wait = timeout.is_none().then_some(durability);
    let points = Points { database, typing: Typing::Numbers, encoding: Encoding::of(&asked.parts.headers)? };
    let (outcome, read) = super::take(asked, upload, points, wait, read).await?;
    match read {
        Ok(()) => {}
        Err(Unread::Store(error)) => return Err(error.into()),
        Err(Unread::NoJson(NoJson { at, wanted })) => {
            let text = format!("Unable to parse the given JSON: at byte {at} there should be {wanted}");
            let details = format!("{} data points before it were stored", outcome.written);
            return Ok(refusal(StatusCode::BAD_REQUEST, &text, &details));
        }
    }
    let mut timeouts = 0;
    if let Some(timeout) = timeout {
        match tokio::time::timeout(timeout, asked.shared.durable(outcome.position, durability)).await {
            Ok(waited) => waited?,
            Err(_) => timeouts = outcome.written,
        }
    }
    Ok(say_durability(told(&outcome, timeouts, has_summary, has_details), durability))
}

fn read(intake: &mut Intake<'_>, body: &[u8]) -> Result<(), Unread> {
    if !matches!(body.trim_ascii_start(), [b'{' | b'[', ..]) {
        return Ok(influx::lines(intake, body, Unit::Digits)?);
    }
    let mut points = DataPoints::new(body);
    let mut number = 0;
    while let Some(point) = points.next()? {
        number += 1;
        intake.make_room()?;
        if let Err(reason) = point.add(&mut intake.kit.name, &mut intake.kit.rows) {
            intake.complain(number, point.whole, reason);
        }
    }
    Ok(())
}

/// What OpenTSDB says about a put.
fn told(outcome: &Outcome, timeouts: u64, has_summary: bool, has_details: bool) -> Response {
    let is_good = outcome.is_whole() && timeouts == 0;
    let status = if is_good { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let (success, failed) = (outcome.written - timeouts, outcome.malformed_count + outcome.refused_points);
    if !has_summary && !has_details {
        return match is_good {
            true => StatusCode::NO_CONTENT.into_response(),
            false if timeouts > 0 => {
                let text = format!(
                    "The put call has timedout with {success} successful writes, {failed} failed writes and {timeouts} timed out \
                     writes."
                );
                refusal(status, &text, SEE_LOGS)
            }
            false => refusal(status, SOME_FAILED, SEE),
        };
    }
    let mut body = format!("{{\"success\":{success},\"failed\":{failed}");
    if timeouts > 0 {
        // Writing to a string does not fail.
        let _ = write!(body, ",\"timeouts\":{timeouts}");
    }
    if has_details {
        body.push_str(",\"errors\":[");
        let malformed = outcome.malformed.iter().map(|one| (datapoint(&one.sent), one.reason.as_ref()));
        let refused = outcome.refused.iter().map(|one| {
            let point = json!({ "metric": one.metric, "field": one.field, "points": one.points });
            (point, one.reason.as_str())
        });
        for (at, (point, reason)) in malformed.chain(refused).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(body, "{comma}{{\"datapoint\":{point},\"error\":{}}}", Value::from(reason));
        }
        body.push(']');
    }
    body.push('}');
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

/// A data point as it was sent: an object, or else as a text.
fn datapoint(sent: &[u8]) -> Value {
    serde_json::from_slice(sent).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(sent)))
}

/// An error in OpenTSDB's form.
fn refusal(status: StatusCode, message: &str, details: &str) -> Response {
    let error = json!({ "code": status.as_u16(), "message": message, "details": details });
    (status, [(CONTENT_TYPE, JSON)], json!({ "error": error }).to_string()).into_response()
}
