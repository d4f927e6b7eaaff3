//! Points that come in over HTTP: OpenTSDB's puts, Influx lines, Prometheus' text and remote writes.
//!
//! Each protocol is a reader, from bytes to points in [`intake::Intake`], and an answer: `opentsdb` with `json`, `influx`,
//! `prometheus` with `exposition` and `remote`. `body` undoes what compresses a body; the threads of `writers` read and write what is
//! not large. An answer comes when the points are as durable as asked.
//! docs/reference/points.md is what clients may rely on.
//!
//! May use: the facade's `series`, `crate::line`'s readers of lines, `handle`, `table`, `upload`. Must not know: sockets.

pub(crate) mod body;
mod exposition;
mod influx;
pub(crate) mod intake;
mod json;
mod opentsdb;
mod prometheus;
mod remote;
mod series_lines;
pub(crate) mod writers;

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use holdfast::series::{Typing, influxql};
use holdfast::{Durability, Position, Store};
use tokio::sync::oneshot;

use self::body::Encoding;
use self::intake::{Intake, Outcome};
use self::writers::{Done, Job};
use super::failure::Failure;
use super::handle::Asked;
use super::shared::{Shared, Stalled};
use super::table::{Access, Route, Verb};
use super::upload::Upload;
use crate::auth::{Right, User};
use crate::budget::Share;

/// The database of requests that name none.
const DATABASE: &str = "default";
/// What a compressed question may become: far more than anybody asks, far less than a body of points.
const QUESTION_BYTES_MAX: usize = 16 << 20;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// OpenTSDB's `/api/put`.
    Put,
    /// InfluxDB 1's `/write`.
    Write,
    /// InfluxDB 2's `/api/v2/write`.
    WriteV2,
    /// Prometheus' text.
    Import,
    /// VictoriaMetrics' lines of JSON.
    ImportLines,
    /// Prometheus' remote write.
    Remote,
}

const fn post(
    path: &'static str,
    operation: Operation,
    summary: &'static str,
    query: &'static [&'static str],
) -> Route {
    Route {
        verb: Verb::Post,
        path,
        operation: super::table::Operation::Ingest(operation),
        access: Access::User,
        summary,
        query,
        statuses: &[204, 400, 404, 408, 413, 415, 507],
    }
}

const PUT_QUERY: &[&str] = &["summary", "details", "sync", "sync_timeout", "db", "durability"];
const WRITE_QUERY: &[&str] = &["db", "precision", "rp", "durability"];
const WRITE_V2_QUERY: &[&str] = &["bucket", "org", "precision", "durability"];
const PUT: &str = "Writes points: JSON, or put lines.";
const REMOTE_QUERY: &[&str] = &["db", "rp", "durability"];
const REMOTE: &str = "Writes points: Prometheus' remote write.";
const WRITE: &str = "Writes points: Influx lines.";

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    post("/api/put", Operation::Put, PUT, PUT_QUERY),
    post("/api/v1/put", Operation::Put, PUT, PUT_QUERY),
    post("/write", Operation::Write, WRITE, WRITE_QUERY),
    post("/api/write", Operation::Write, WRITE, WRITE_QUERY),
    post("/api/v2/write", Operation::WriteV2, WRITE, WRITE_V2_QUERY),
    post(
        "/api/v1/import/prometheus",
        Operation::Import,
        "Writes points: Prometheus' text format.",
        &["extra_label", "timestamp", "db", "durability"],
    ),
    post(
        "/api/v1/import",
        Operation::ImportLines,
        "Writes points: VictoriaMetrics' lines of JSON.",
        &["extra_label", "db", "durability"],
    ),
    post("/api/v1/write", Operation::Remote, REMOTE, REMOTE_QUERY),
    post("/api/v1/prom/write", Operation::Remote, REMOTE, REMOTE_QUERY),
];

/// Carries a request out.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let database = database(asked)?;
    if let Some(user) = user.filter(|user| !user.may(Right::Write, database.as_bytes())) {
        let text =
            format!("user \"{}\" may not write to database \"{database}\": the right \"write\" is lacking", user.name);
        return match operation {
            Operation::Write => Ok(influx::refusal(StatusCode::FORBIDDEN, &text, influx::Dialect::One)),
            Operation::WriteV2 => Ok(influx::refusal(StatusCode::FORBIDDEN, &text, influx::Dialect::Two)),
            _ => Err(Failure::new(StatusCode::FORBIDDEN, text)),
        };
    }
    match operation {
        Operation::Put => opentsdb::put(asked, database, upload).await,
        Operation::Write => influx::write(asked, database, influx::Dialect::One, upload).await,
        Operation::WriteV2 => influx::write(asked, database, influx::Dialect::Two, upload).await,
        Operation::Import => prometheus::import(asked, prometheus::Form::Text, database, upload).await,
        Operation::ImportLines => prometheus::import(asked, prometheus::Form::Lines, database, upload).await,
        Operation::Remote => prometheus::write(asked, database, upload).await,
    }
}

/// A refusal in InfluxDB 2's form.
pub(crate) fn refused_two(status: StatusCode, text: &str) -> Response {
    influx::refusal(status, text, influx::Dialect::Two)
}

/// The database that a request names; InfluxDB 2 calls it a bucket, and may name a retention policy with it.
fn database(asked: &Asked<'_>) -> Result<String, Failure> {
    let named = asked.query.get("db").or_else(|| {
        let bucket = asked.query.get("bucket")?;
        bucket.split(|byte| *byte == b'/').next()
    });
    match named {
        None | Some([]) => Ok(DATABASE.to_owned()),
        Some(name) => {
            let name = String::from_utf8(name.to_vec());
            let name = name.map_err(|_| Failure::bad("the name of the database is not UTF-8"))?;
            holdfast::series::check_name("database", &name).map_err(|error| Failure::bad(error.to_string()))?;
            Ok(name)
        }
    }
}

/// Refuses a retention policy that there is not, as InfluxDB does. Those that there are keep their points by name, so what a request
/// says changes nothing.
fn check_policy(asked: &Asked<'_>, database: &str) -> Result<(), Failure> {
    let behind = |name: &[u8]| name.split(|byte| *byte == b'/').nth(1).map(<[u8]>::to_vec);
    let of_bucket = || asked.query.get("bucket").and_then(behind);
    let Some(policy) = asked.query.get("rp").map(<[u8]>::to_vec).or_else(of_bucket) else { return Ok(()) };
    let policy = String::from_utf8_lossy(&policy);
    let reader = asked.shared.store.series().reader();
    match influxql::has_policy(&reader, database, &policy) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new(StatusCode::NOT_FOUND, format!("retention policy not found: {policy}"))),
        Err(error) => Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// The body of a request as it was before it was compressed, for those that ask: they are small. It counts as a body for as long as
/// the request lasts.
pub(super) async fn question(asked: &Asked<'_>, upload: &mut Upload) -> Result<Vec<u8>, Failure> {
    plain_question(asked, upload, Encoding::of(&asked.parts.headers)?).await
}

/// The same of a request of Prometheus' remote read.
pub(super) async fn remote_question(asked: &Asked<'_>, upload: &mut Upload) -> Result<Vec<u8>, Failure> {
    plain_question(asked, upload, Encoding::of_remote(&asked.parts.headers)?).await
}

async fn plain_question(asked: &Asked<'_>, upload: &mut Upload, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let sent = upload.read().await?;
    if matches!(encoding, Encoding::Plain) {
        return Ok(sent);
    }
    let (shared, mut share) = (Arc::clone(asked.shared), upload.take_share());
    let act = move |_: &Store| -> Result<(Vec<u8>, Share), Failure> {
        let plain = body::plain(&shared, encoding, &sent, QUESTION_BYTES_MAX, &mut share)?;
        let plain = plain.map(Cow::into_owned).ok_or_else(|| {
            let text = format!("a question holds at most {QUESTION_BYTES_MAX} bytes when it is decompressed");
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
        Ok((plain, share))
    };
    let (plain, share) = asked.shared.ask(act).await??;
    upload.give_share(share);
    Ok(plain)
}

/// What the points of a request are.
struct Points {
    database: String,
    typing: Typing,
    encoding: Encoding,
}

/// What became of a request's points, and what ended their reading, if anything did.
type Taken<E> = (Outcome, Result<(), E>);

/// Reads the body of a request, and has somebody `read` it and write its points: who has time for small ones, or a thread that may
/// take long. Then they are as durable as asked; without `durability` they need not be.
async fn take<E: Send + 'static>(
    asked: &Asked<'_>,
    upload: &mut Upload,
    points: Points,
    durability: Option<Durability>,
    read: impl FnOnce(&mut Intake<'_>, &[u8]) -> Result<(), E> + Send + 'static,
) -> Result<Taken<E>, Failure> {
    let shared = asked.shared;
    let sent = upload.read().await?;
    let request = Request { shared: Arc::clone(shared), points, sent, _share: upload.take_share(), read };
    let (outcome, read) = if request.sent.len() > shared.options.limits.small_body_bytes {
        request.take_long(durability).await?
    } else {
        match request.take_here(durability).await? {
            Small::Taken(taken) => *taken,
            Small::Large(request) => request.take_long(durability).await?,
        }
    };
    if durability == Some(Durability::Synced) && outcome.position > Position::ZERO {
        shared.durable(outcome.position, Durability::Synced).await?;
    }
    Ok((outcome, read))
}

/// A body and what is to be done with it.
struct Request<R> {
    shared: Arc<Shared>,
    points: Points,
    sent: Vec<u8>,
    /// Of the budget of bodies: it is given back when nobody has the body any more, which may be after who sent it went away.
    _share: Share,
    read: R,
}

/// What comes of a body that seemed small.
enum Small<R, E> {
    Taken(Box<Taken<E>>),
    /// It is not when it is decompressed.
    Large(Box<Request<R>>),
}

impl<R, E> Request<R>
where
    R: FnOnce(&mut Intake<'_>, &[u8]) -> Result<(), E> + Send + 'static,
    E: Send + 'static,
{
    /// Reads and writes the points. Blocks, but not for durability.
    fn run(self, store: &Store, body: &[u8]) -> Result<Taken<E>, Failure> {
        let Points { database, typing, .. } = &self.points;
        let mut intake = Intake::new(&self.shared, store, database, *typing);
        let read = (self.read)(&mut intake, body);
        Ok((intake.end()?, read))
    }

    /// By a thread that is there for small bodies.
    async fn take_here(self, durability: Option<Durability>) -> Result<Small<R, E>, Failure> {
        let shared = Arc::clone(&self.shared);
        let (answer, answered) = oneshot::channel();
        let bytes = self.sent.len();
        let act = move |store: &Store| {
            if answer.is_closed() {
                // Nobody waits for it any more, and most likely its client sends it again: both would keep others waiting.
                return Done { wanted: None, tell: Box::new(|_| ()) };
            }
            let small = self.run_small(store);
            let position = match &small {
                Ok(Small::Taken(taken)) => taken.0.position,
                Ok(Small::Large(_)) | Err(_) => Position::ZERO,
            };
            let soon = durability.filter(|durability| *durability != Durability::Synced && position > Position::ZERO);
            let tell = move |waited: holdfast::Result<()>| {
                let small = match waited {
                    Ok(()) => small,
                    Err(error) => Err(error.into()),
                };
                // It fails when nobody wants to know any more.
                let _ = answer.send(small);
            };
            Done { wanted: soon.map(|durability| (position, durability)), tell: Box::new(tell) }
        };
        shared.writers.push(Job { bytes, act: Box::new(act) });
        match tokio::time::timeout(shared.options.limits.answer_timeout, answered).await {
            Ok(Ok(small)) => small,
            Ok(Err(_)) | Err(_) => Err(Stalled.into()),
        }
    }

    fn run_small(mut self, store: &Store) -> Result<Small<R, E>, Failure> {
        let (shared, sent) = (Arc::clone(&self.shared), std::mem::take(&mut self.sent));
        let mut share = Share::default();
        match body::plain(&shared, self.points.encoding, &sent, shared.options.limits.small_body_bytes, &mut share)? {
            Some(plain) => Ok(Small::Taken(Box::new(self.run(store, &plain)?))),
            None => {
                self.sent = sent;
                Ok(Small::Large(Box::new(self)))
            }
        }
    }

    /// By a thread that may take long, of which there are not many at a time.
    async fn take_long(mut self, durability: Option<Durability>) -> Result<Taken<E>, Failure> {
        let shared = Arc::clone(&self.shared);
        let turn = Arc::clone(&shared.large_writes).acquire_owned();
        let turn = tokio::time::timeout(shared.options.limits.body_timeout, turn).await.map_err(|_| Stalled)?;
        let act = move |store: &Store| {
            let _turn = turn;
            let (shared, sent) = (Arc::clone(&self.shared), std::mem::take(&mut self.sent));
            let mut share = Share::default();
            let plain = body::plain(&shared, self.points.encoding, &sent, usize::MAX, &mut share)?;
            let taken = self.run(store, plain.as_deref().unwrap_or_default())?;
            if let Some(durability) = durability.filter(|durability| *durability != Durability::Synced) {
                store.wait(taken.0.position, durability)?;
            }
            Ok(taken)
        };
        shared.ask(act).await?
    }
}

#[cfg(test)]
#[path = "tests.rs"]
pub(super) mod tests;
