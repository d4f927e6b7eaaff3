//! Points that come in over HTTP: OpenTSDB's puts, Influx lines, Prometheus' text and remote writes.
//!
//! Each protocol is a reader, from bytes to points in [`intake::Intake`], and an answer: `opentsdb` with `json`, `influx`,
//! `prometheus` with `exposition` and `remote`. `body` undoes what compresses a body. An answer comes when the points are as durable as asked.
//! docs/reference/points.md is what clients may rely on.
//!
//! May use: the facade's `series`, `crate::line`'s readers of lines, `handle`, `table`, `upload`. Must not know: sockets.

mod body;
mod exposition;
mod influx;
pub(crate) mod intake;
mod json;
mod opentsdb;
mod prometheus;
mod remote;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use self::body::Encoding;
use super::failure::Failure;
use super::handle::Asked;
use super::shared::Shared;
use super::table::{Access, Route, Verb};
use super::upload::{Share, Upload};
use crate::auth::{Right, User};

/// The database of requests that name none.
const DATABASE: &str = "default";

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
        statuses: &[204, 400, 408, 413, 415, 507],
    }
}

const PUT_QUERY: &[&str] = &["summary", "details", "sync", "sync_timeout", "db", "durability"];
const WRITE_QUERY: &[&str] = &["db", "precision", "rp", "durability"];
const WRITE_V2_QUERY: &[&str] = &["bucket", "org", "precision", "durability"];
const PUT: &str = "Writes points: JSON, or put lines.";
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
    post("/api/v1/write", Operation::Remote, "Writes points: Prometheus' remote write.", &["db", "durability"]),
];

/// Carries a request out.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let database = database(asked)?;
    if user.is_some_and(|user| !user.may(Right::Write, database.as_bytes())) {
        return Err(Failure::new(StatusCode::FORBIDDEN, "this user may not write to this database"));
    }
    match operation {
        Operation::Put => opentsdb::put(asked, database, upload).await,
        Operation::Write => influx::write(asked, database, influx::Dialect::One, upload).await,
        Operation::WriteV2 => influx::write(asked, database, influx::Dialect::Two, upload).await,
        Operation::Import => prometheus::import(asked, database, upload).await,
        Operation::Remote => prometheus::write(asked, database, upload).await,
    }
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
            String::from_utf8(name.to_vec()).map_err(|_| Failure::bad("the name of the database is not UTF-8"))
        }
    }
}

/// The body of a request as it was before it was compressed, for those that ask: they are small.
pub(super) async fn question(asked: &Asked<'_>, upload: &mut Upload) -> Result<Vec<u8>, Failure> {
    match Encoding::of(&asked.parts.headers)? {
        Encoding::Plain => upload.read().await,
        _ => take(asked, upload, |_, _, body| Ok(body.to_vec())).await,
    }
}

/// Reads the body of a request, and lets a thread that may wait do something with what it was before it was compressed.
async fn take<T: Send + 'static>(
    asked: &Asked<'_>,
    upload: &mut Upload,
    act: impl FnOnce(&Shared, &holdfast::Store, &[u8]) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let encoding = Encoding::of(&asked.parts.headers)?;
    let (shared, sent) = (Arc::clone(asked.shared), upload.read().await?);
    let act = move |store: &holdfast::Store| {
        let mut share = Share::default();
        let body = body::plain(&shared, encoding, &sent, &mut share)?;
        act(&shared, store, &body)
    };
    asked.shared.ask(act).await?
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
