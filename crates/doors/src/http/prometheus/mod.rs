//! What Prometheus' clients ask: PromQL, labels, series, and how many there are.
//!
//! Parameters come in the query or, as a form, in the body. Answers and refusals are JSON as Prometheus has it:
//!   {"status":"success","data":...}
//!   {"status":"error","errorType":"bad_data","error":"..."}
//!
//! May use: the facade's `series`, `handle`, `table`, `upload`. Must not know: sockets.

mod catalog;
mod escaped;
mod export;
mod json;
mod params;
mod queries;
mod read_request;
mod refusal;
mod remote_read;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_names;

use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::failure::Failure;
use super::handle::{Asked, JSON, with_type};
use super::ingest::{question, remote_question};
use super::table::{Access, Operation as Any, Route, Verb};
use super::upload::Upload;
use crate::auth::{Right, User};
use params::{Params, selectors};
use refusal::Refusal;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Query,
    QueryRange,
    Labels,
    Values,
    Series,
    Metadata,
    BuildInfo,
    Cardinality,
    DeleteSeries,
    Export,
    RemoteRead,
    /// What is not there, in the shape that clients look at.
    Nothing(Nothing),
}

/// What Prometheus has and this server does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    Rules,
    Alerts,
    Exemplars,
    Targets,
}

impl Nothing {
    const fn data(self) -> &'static str {
        match self {
            Nothing::Rules => r#"{"groups":[]}"#,
            Nothing::Alerts => r#"{"alerts":[]}"#,
            Nothing::Exemplars => "[]",
            Nothing::Targets => r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}"#,
        }
    }
}

const QUERY: &[&str] = &["query", "time", "timeout", "limit", "db"];
const QUERY_RANGE: &[&str] = &["query", "start", "end", "step", "timeout", "limit", "db"];
const MATCH: &[&str] = &["match[]", "start", "end", "limit", "db"];
const REMOTE_READ: &str = "The points of series, by Prometheus' remote read.";
const NO_EXEMPLARS: &str = "Nothing: exemplars are not kept.";
const ANSWERS: &[u16] = &[200, 400, 422];

const fn route(verb: Verb, path: &'static str, operation: Operation, summary: &'static str) -> Route {
    let query = match operation {
        Operation::Query => QUERY,
        Operation::QueryRange => QUERY_RANGE,
        Operation::Labels | Operation::Values | Operation::Series | Operation::Export => MATCH,
        Operation::DeleteSeries => &["match[]", "start", "end", "db", "durability"],
        Operation::Cardinality => &["limit", "db"],
        Operation::RemoteRead => &["db"],
        Operation::Metadata | Operation::BuildInfo | Operation::Nothing(_) => &[],
    };
    let statuses: &[u16] = match operation {
        Operation::DeleteSeries => &[204, 400, 507],
        _ => ANSWERS,
    };
    Route { verb, path, operation: Any::Prometheus(operation), access: Access::User, summary, query, statuses }
}

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    route(Verb::Get, "/api/v1/query", Operation::Query, "Evaluates PromQL at one moment."),
    route(Verb::Post, "/api/v1/query", Operation::Query, "Evaluates PromQL at one moment; the parameters are a form."),
    route(Verb::Get, "/api/v1/query_range", Operation::QueryRange, "Evaluates PromQL at each step of a range."),
    route(
        Verb::Post,
        "/api/v1/query_range",
        Operation::QueryRange,
        "Evaluates PromQL at each step of a range; the parameters are a form.",
    ),
    route(Verb::Get, "/api/v1/labels", Operation::Labels, "The names of labels."),
    route(Verb::Post, "/api/v1/labels", Operation::Labels, "The names of labels; the parameters are a form."),
    route(Verb::Get, "/api/v1/label/{name}/values", Operation::Values, "The values of a label."),
    route(Verb::Get, "/api/v1/series", Operation::Series, "The labels of series that selectors mean."),
    route(Verb::Post, "/api/v1/series", Operation::Series, "The labels of series; the parameters are a form."),
    route(Verb::Get, "/api/v1/metadata", Operation::Metadata, "Nothing: metrics have no descriptions here."),
    route(Verb::Get, "/api/v1/rules", Operation::Nothing(Nothing::Rules), "Nothing: there are no rules here."),
    route(Verb::Get, "/api/v1/alerts", Operation::Nothing(Nothing::Alerts), "Nothing: there are no alerts here."),
    route(Verb::Get, "/api/v1/query_exemplars", Operation::Nothing(Nothing::Exemplars), NO_EXEMPLARS),
    route(Verb::Post, "/api/v1/query_exemplars", Operation::Nothing(Nothing::Exemplars), NO_EXEMPLARS),
    route(Verb::Get, "/api/v1/targets", Operation::Nothing(Nothing::Targets), "Nothing: nobody is scraped from here."),
    route(Verb::Get, "/api/v1/status/buildinfo", Operation::BuildInfo, "Which Prometheus this is like."),
    route(Verb::Get, "/api/v1/status/tsdb", Operation::Cardinality, "What there are many series of."),
    route(
        Verb::Post,
        "/api/v1/admin/tsdb/delete_series",
        Operation::DeleteSeries,
        "Removes the points of series in a range; without a range also the series.",
    ),
    route(Verb::Get, "/api/v1/export", Operation::Export, "The points of series, a line of JSON for each."),
    route(Verb::Post, "/api/v1/export", Operation::Export, "The points of series; the parameters are a form."),
    route(Verb::Post, "/api/v1/read", Operation::RemoteRead, REMOTE_READ),
    route(Verb::Post, "/api/v1/prom/read", Operation::RemoteRead, REMOTE_READ),
];

const DATABASE_DEFAULT: &str = "default";
const FORM: &str = "application/x-www-form-urlencoded";

/// Carries a request out.
pub(crate) async fn run(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let form = match operation {
        Operation::RemoteRead => remote_question(asked, upload).await?,
        _ => read_form(asked, upload).await?,
    };
    Ok(match answer(asked, operation, user, form).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.into_response(),
    })
}

/// A refusal in Prometheus' form, of a path or method that is not served.
pub(crate) fn refused(status: StatusCode, text: &str) -> Response {
    Refusal::unserved(status, text).into_response()
}

/// The body, when it is one of parameters. Other bodies are not asked for.
async fn read_form(asked: &Asked<'_>, upload: &mut Upload) -> Result<Vec<u8>, Failure> {
    let kind = asked.parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_form = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM));
    if asked.parts.method == Method::POST && is_form { question(asked, upload).await } else { Ok(Vec::new()) }
}

async fn answer(
    asked: &Asked<'_>,
    operation: Operation,
    user: Option<Arc<User>>,
    body: Vec<u8>,
) -> Result<Response, Refusal> {
    let form = if operation == Operation::RemoteRead { &[] } else { body.as_slice() };
    let params = Params::parse(form, asked.parts.uri.query())?;
    let named = asked.database.as_deref().or_else(|| params.get("db"));
    let database = named.unwrap_or(DATABASE_DEFAULT).to_owned();
    let right = if operation == Operation::DeleteSeries { Right::Admin } else { Right::Read };
    if user.is_some_and(|user| !user.may(right, database.as_bytes())) {
        return Err(Refusal::forbidden(&database));
    }
    match operation {
        Operation::Query => queries::instant(asked, &params, database).await,
        Operation::QueryRange => queries::range(asked, &params, database).await,
        Operation::Labels => catalog::labels(asked, &params, database).await,
        Operation::Values => catalog::values(asked, &params, database).await,
        Operation::Series => catalog::series(asked, &params, database).await,
        Operation::Metadata => Ok(success("{}")),
        Operation::Nothing(of) => Ok(success(of.data())),
        Operation::BuildInfo => Ok(success(&json::build_info(&asked.shared.options.version))),
        Operation::Cardinality => catalog::cardinality(asked, &params, database).await,
        Operation::DeleteSeries => delete(asked, &params, database).await,
        Operation::Export => export::export(asked, &params, database).await,
        Operation::RemoteRead => remote_read::read(asked, body, database).await,
    }
}

/// An answer with this as its data.
fn success(data: &str) -> Response {
    with_type(JSON, json::success(data))
}

async fn delete(asked: &Asked<'_>, params: &Params, database: String) -> Result<Response, Refusal> {
    let matches = params.matches()?;
    if matches.is_empty() {
        return Err(Refusal::bad("no match[] parameter provided"));
    }
    let range = params.range()?;
    let durability = asked.durability().map_err(|_| Refusal::bad("durability is one of synced, window, written"))?;
    let remove = move |store: &holdfast::Store, stop| {
        let (series, reader) = (store.series(), store.series().reader().until(stop));
        let mut last = None;
        for selector in selectors(&matches)? {
            for select in selector.selects(&reader, &database)? {
                let removed = match range {
                    Some(range) => series.delete(&select, range)?,
                    None => series.drop_series(&select)?,
                };
                last = Some(last.map_or(removed.0, |last| removed.0.max(last)));
            }
        }
        match last {
            Some(position) => store.wait(position, durability)?,
            None => reader.settle()?,
        }
        Ok::<_, Refusal>(())
    };
    asked.change_points(remove).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}
