//! What Prometheus and its kin write over HTTP: its text format, and remote writes.
//!
//! May use: `intake`, `exposition`, `remote`. Must not know: sockets.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use holdfast::series::Typing;
use memchr::memchr_iter;

use super::super::failure::Failure;
use super::super::handle::{Asked, say_durability};
use super::super::message::NoMessage;
use super::super::upload::Upload;
use super::Points;
use super::body::Encoding;
use super::exposition::{self, Extra, MILLISECOND};
use super::intake::{Intake, Outcome};
use super::{remote, series_lines};
use crate::line::{Unit, time};

/// Says what of a request was not understood, where the rest was stored.
const SKIPPED: HeaderName = HeaderName::from_static("x-holdfast-skipped");
const SECOND_VERSION: &[u8] = b"io.prometheus.write.v2.Request";

/// How points are written that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Prometheus' text.
    Text,
    /// VictoriaMetrics' lines of JSON.
    Lines,
}

/// `POST /api/v1/import/prometheus` and `/api/v1/import`.
pub(crate) async fn import(
    asked: &Asked<'_>,
    form: Form,
    database: String,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let durability = asked.durability()?;
    let extra = extra(asked.query.all("extra_label"))?;
    let at = asked.query.get("timestamp").map(|at| time(at, Unit::Nanos(MILLISECOND))).transpose();
    let at = at.map_err(|wrong| Failure::bad(format!("timestamp: {wrong}; it is in milliseconds since 1970")))?;
    let points = Points { database, typing: Typing::Numbers, encoding: Encoding::of(&asked.parts.headers)? };
    let read = move |intake: &mut Intake<'_>, body: &[u8]| {
        let now = at.unwrap_or(intake.now);
        match form {
            Form::Text => lines(intake, body, &extra, now),
            Form::Lines => series_lines::read(intake, body, &extra),
        }
    };
    let (outcome, read) = super::take(asked, upload, points, Some(durability), read).await?;
    read?;
    if outcome.written == 0 || outcome.refused_points > 0 {
        partial(&outcome)?;
    }
    // VictoriaMetrics, whose path this is, passes over lines that it does not understand, and its clients send such lines: sensors
    // that are text. To them 400 means that nothing was stored.
    let mut answer = say_durability(StatusCode::NO_CONTENT.into_response(), durability);
    if let Some(skipped) = skipped(&outcome) {
        answer.headers_mut().insert(SKIPPED, skipped);
    }
    Ok(answer)
}

/// How many lines were not understood, if any, and the first of them.
fn skipped(outcome: &Outcome) -> Option<HeaderValue> {
    let first = outcome.malformed.first()?;
    let count = outcome.malformed_count;
    let told = HeaderValue::from_str(&format!("{count}; line {}: {}", first.number, first.reason));
    // A reason may quote what no header can carry.
    Some(told.unwrap_or_else(|_| HeaderValue::from(count)))
}

/// `POST /api/v1/write`.
pub(crate) async fn write(asked: &Asked<'_>, database: String, upload: &mut Upload) -> Result<Response, Failure> {
    let kind = asked.parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if kind.windows(SECOND_VERSION.len()).any(|part| part == SECOND_VERSION) {
        let text = "remote write 2.0 is not spoken here: send prometheus.WriteRequest";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    super::check_policy(asked, &database)?;
    let durability = asked.durability()?;
    let encoding = Encoding::of_remote(&asked.parts.headers)?;
    let points = Points { database, typing: Typing::Numbers, encoding };
    let (outcome, read) = super::take(asked, upload, points, Some(durability), request).await?;
    match read {
        Ok(()) => {}
        Err(Unread::Store(error)) => return Err(error.into()),
        Err(Unread::NoMessage) => return Err(Failure::bad("the body is no message prometheus.WriteRequest")),
    }
    partial(&outcome)?;
    Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
}

enum Unread {
    Store(holdfast::Error),
    NoMessage,
}

impl From<NoMessage> for Unread {
    fn from(_: NoMessage) -> Self {
        Unread::NoMessage
    }
}

impl From<holdfast::Error> for Unread {
    fn from(error: holdfast::Error) -> Self {
        Unread::Store(error)
    }
}

fn request(intake: &mut Intake<'_>, mut text: &[u8]) -> Result<(), Unread> {
    let mut number = 0;
    while let Some(series) = remote::next(&mut text)? {
        number += 1;
        intake.make_room()?;
        if let Err(reason) = remote::add(series, &mut intake.kit.name, &mut intake.kit.rows)? {
            intake.complain(number, b"", reason);
        }
    }
    Ok(())
}

/// # Errors
/// 400 when not all points were stored, with the first reasons.
fn partial(outcome: &Outcome) -> Result<(), Failure> {
    const REASONS_MAX: usize = 20;
    if outcome.is_whole() {
        return Ok(());
    }
    let failed = outcome.malformed_count + outcome.refused_points;
    let mut text = format!("{} points were stored, {failed} were not:", outcome.written);
    let malformed = outcome.malformed.iter().map(|one| format!(" {}: {};", one.number, one.reason));
    let refused = outcome.refused.iter().map(|one| format!(" {}: {};", one.metric, one.reason));
    malformed.chain(refused).take(REASONS_MAX).for_each(|reason| text.push_str(&reason));
    Err(Failure::bad(text.trim_end_matches(';').to_owned()))
}

fn extra<'q>(parameters: impl Iterator<Item = &'q [u8]>) -> Result<Extra, Failure> {
    let mut extra = Extra::default();
    for parameter in parameters {
        extra.push(parameter).ok_or_else(|| Failure::bad("extra_label is a name, = and a value"))?;
    }
    Ok(extra)
}

fn lines(intake: &mut Intake<'_>, body: &[u8], extra: &Extra, now: i64) -> holdfast::Result<()> {
    let ends = memchr_iter(b'\n', body).chain([body.len()]);
    let mut begin = 0;
    for (number, end) in (1..).zip(ends) {
        let line = body.get(begin..end).unwrap_or_default().trim_ascii();
        begin = end + 1;
        if matches!(line, [] | [b'#', ..]) {
            continue;
        }
        intake.make_room()?;
        if let Err(reason) = exposition::add(line, extra, now, &mut intake.kit.name, &mut intake.kit.rows) {
            intake.complain(number, line, reason);
        }
    }
    Ok(())
}
