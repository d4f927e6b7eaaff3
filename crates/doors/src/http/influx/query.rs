//! `/query`: rights, then one statement after the other, then the answer to all.
//!
//! What is sent was read of what is as durable as reads have to be: an answer is made whole before that is known, and one in chunks
//! piece by piece.
//!
//! May use: `params`, `leaving`, `gone`, `pages`, the facade's `series`. Must not know: the language.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use holdfast::series::influxql::{self, Change, Document, Env, Layout, Need, Statement};
use holdfast::series::{GoOn, Reader, SeriesError, Source, Stop};
use holdfast::{Durability, ErrorKind, Store};

use super::leaving::{self, Way};
use super::params::Params;
use super::refused;
use crate::auth::{Right, User};
use crate::http::failure::Failure;
use crate::http::gone::left;
use crate::http::handle::{Asked, JSON, with_type};
use crate::http::object::shown_at;
use crate::http::pages::{self, Whole};
use crate::http::upload::Upload;

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const CSV: &str = "text/csv";
const NOT_EXECUTED: &str = "not executed";

/// How a request may change things.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It should not, and is told so: this is a GET.
    Reading,
    Writing,
}

pub(super) async fn query(
    asked: &Asked<'_>,
    user: Option<Arc<User>>,
    upload: &mut Upload,
) -> Result<Response, Failure> {
    let params = match Params::read(asked, upload).await? {
        Ok(params) => params,
        Err(text) => return Ok(refused(StatusCode::BAD_REQUEST, &text)),
    };
    let statements = match influxql::parse(&params.text, &params.parameters) {
        Ok(statements) => statements,
        Err(error) => return Ok(refused(StatusCode::BAD_REQUEST, &error.to_string())),
    };
    if let Some(text) = user.as_ref().and_then(|user| forbidden(user, &statements, &params.database)) {
        return Ok(refused(StatusCode::FORBIDDEN, &text));
    }
    let durability = asked.durability()?;
    let is_post = asked.parts.method == axum::http::Method::POST;
    let mode = if is_post { Mode::Writing } else { Mode::Reading };
    let kind = if params.layout == Layout::Csv { CSV } else { JSON };
    let (way, mut leaving) = leaving::way();
    let is_chunked = matches!(params.layout, Layout::Chunked(_));
    let (stop, watching) = asked.watched();
    // Who sends a change and goes means it.
    let changes = statements.iter().any(|statement| statement.is_change() || statement.is_insert());
    let stop = Stop { cancel: stop.cancel.filter(|_| !changes), ..stop };
    let run = move |store: &Store| {
        let reader = store.series().reader().until(stop);
        run((store, reader), user.as_deref(), &statements, &params, (durability, mode, way))
    };
    let work = asked.shared.query(run);
    tokio::pin!(work);
    let answer = tokio::select! {
        biased;
        Some(first) = leaving.next(), if is_chunked => match first {
            Ok(first) => return Ok(with_type(kind, leaving.body(first, watching))),
            Err(failure) => Err(failure),
        },
        done = &mut work => done.and_then(|ran| ran),
        () = watching.gone(), if !changes => Err(left()),
    };
    Ok(match answer {
        Ok(whole) => {
            let missing = whole.missing();
            pages::telling(with_type(kind, whole.body()), missing.as_ref())
        }
        Err(failure) => refused(failure.code(), failure.text()),
    })
}

fn right(need: Need) -> Right {
    match need {
        Need::Read => Right::Read,
        Need::Write => Right::Write,
        Need::Drop => Right::Admin,
    }
}

/// Why a user may not have these carried out, if that is so.
fn forbidden(user: &User, statements: &[Statement], database: &str) -> Option<String> {
    statements.iter().find_map(|statement| {
        let needs = statement.needs(database).into_iter();
        let mut missing = needs.filter(|(database, need)| !user.may(right(*need), database.as_bytes()));
        let (database, need) = missing.next()?;
        let need = match need {
            Need::Read => "READ",
            Need::Write => "WRITE",
            Need::Drop => "ALL PRIVILEGES",
        };
        let text = statement.text();
        Some(format!(
            "error authorizing query: not authorized to execute statement '{text}', requires {need} on {database}"
        ))
    })
}

fn run(
    (store, reader): (&Store, Reader),
    user: Option<&User>,
    statements: &[Statement],
    params: &Params,
    (durability, mode, way): (Durability, Mode, Way),
) -> Result<Whole, Failure> {
    let bytes = answer(store, (&reader, user), statements, params, (durability, mode, &way));
    let bytes = bytes.and_then(|bytes| reader.settle().map(|()| bytes).map_err(Failure::from));
    if way.is_used() {
        // Nobody is there for it, or it is the end of what was sent.
        way.end(bytes);
        return Ok(Whole::nothing(reader));
    }
    bytes.map(|bytes| Whole::new(bytes, reader))
}

fn answer(
    store: &Store,
    (reader, user): (&Reader, Option<&User>),
    statements: &[Statement],
    params: &Params,
    (durability, mode, way): (Durability, Mode, &Way),
) -> Result<Vec<u8>, Failure> {
    let may_see = |database: &str| user.is_none_or(|user| user.may(Right::Read, database.as_bytes()));
    let now = i64::try_from(store.now_ms()).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let source: &dyn Source = reader;
    let env = Env { source, database: &params.database, now, may_see: &may_see };
    let mut outlet = |piece| {
        reader.settle().map_err(|error| SeriesError::Source { text: error.to_string() })?;
        // It is its client that takes its time.
        reader.pause();
        let sent = way.send(piece);
        reader.resume();
        sent
    };
    let document = Document::new(params.layout, params.epoch, ANSWER_BYTES_MAX);
    let mut document = document.held_by(source).leaving_by(&mut outlet);
    let mut has_failed = false;
    for statement in statements {
        document.begin(statement);
        if has_failed {
            document.fail(NOT_EXECUTED);
            continue;
        }
        let done = if statement.is_insert() {
            insert(store, statement, &env, durability)?.and_then(|rows| influxql::say_inserted(rows, &mut document))
        } else if statement.is_change() {
            change(store, statement, &env, durability)?
        } else {
            influxql::read(&env, statement, &mut document)
        };
        match done {
            Ok(()) if statement.is_change() && mode == Mode::Reading => {
                let text = statement.text();
                document.end(Some(&format!(
                    "deprecated use of '{text}' in a read only context, please use a POST request instead"
                )));
            }
            // What an earlier statement missed is said again: it is one reader.
            Ok(()) => document.end(reader.missing().map(|missing| missing.to_string()).as_deref()),
            Err(error) => {
                document.fail(&match error {
                    // By these words clients know it.
                    SeriesError::Late { .. } => format!("query-timeout limit exceeded: {error}"),
                    error => error.to_string(),
                });
                has_failed = true;
            }
        }
    }
    Ok(document.finish())
}

/// Carries a SELECT INTO out, and waits until what it wrote is as durable as asked. How many rows it was.
fn insert(
    store: &Store,
    statement: &Statement,
    env: &Env<'_>,
    durability: Durability,
) -> Result<Result<u64, SeriesError>, Failure> {
    let inserted = match store.series().insert(env, statement, &GoOn { query: None, may: &|| true })? {
        Ok(inserted) => inserted,
        Err(error) => return Ok(Err(error)),
    };
    if inserted.rows > 0 {
        store.wait(inserted.position, durability)?;
    }
    Ok(Ok(inserted.rows))
}

/// Carries a change out, and waits until it is as durable as asked. What the statement is to blame for is the inner error.
fn change(
    store: &Store,
    statement: &Statement,
    env: &Env<'_>,
    durability: Durability,
) -> Result<Result<(), SeriesError>, Failure> {
    let change = match statement.change(env) {
        Ok(change) => change,
        Err(error) => return Ok(Err(error)),
    };
    let series = store.series();
    let mut last = None;
    match change {
        None => {}
        Some(Change::CreateDatabase(name)) => last = Some(series.create_database(&name)?),
        Some(Change::DropDatabase(name)) => last = Some(series.drop_database(&name)?.0),
        Some(Change::DropSeries(selects)) => {
            for select in selects {
                // A database stays when its last series goes.
                series.create_database(&select.database)?;
                last = last.max(Some(series.drop_series(&select)?.0));
            }
        }
        Some(Change::Delete(selects, range)) => {
            for select in selects {
                last = last.max(Some(series.delete(&select, range)?.0));
            }
        }
        Some(Change::CreateContinuousQuery(query)) => match series.create_continuous_query(&query) {
            Ok(position) => last = Some(position),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Limit) => {
                if let Some(position) = error.rests_on() {
                    store.wait(position, error.told_at(shown_at(durability)))?;
                }
                return Ok(Err(SeriesError::invalid(error.to_string())));
            }
            Err(error) => return Err(error.into()),
        },
        Some(Change::DropContinuousQuery { database, name }) => {
            last = series.drop_continuous_query(&database, &name)?
        }
    }
    if let Some(position) = last {
        store.wait(position, durability)?;
    }
    Ok(Ok(()))
}
