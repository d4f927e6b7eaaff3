//! From a request to its answer: find the route, see who asks, read the parameters and the body, let a thread that may
//! wait ask the store, and say in HTTP what came of it.
//!
//! May use: everything of the door but sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::space::WriteMode;
use holdfast::{Compression, Condition, Durability, Indexes, PutOptions};
use hyper::body::{Bytes, Incoming};

use super::conditions::Conditions;
use super::failure::Failure;
use super::guard::{Refused, Who, admit};
use super::index::{self, Bounds};
use super::listing::{self, Encoding, Form, Keys};
use super::object::{self, DURABILITY, EXPIRES, Expiry, Facts, Fetch, Fetched, Name, Put};
use super::shared::Shared;
use super::table::{Access, Found, Operation, Route, find};
use super::upload::Upload;
use super::uri::{self, Query};
use super::{admin, indexes, influx, ingest, metadata, openapi, opentsdb, pages, prometheus, unserved};
use crate::auth::{Right, User};
use crate::peer::Peer;

pub(crate) const JSON: &str = "application/json";
/// How often a key is made before it is believed that none is free.
const KEYS_TRIED_MAX: usize = 8;

/// Answers one request. `unread` is set when the connection ends though the client may still be sending.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    unread: Arc<AtomicBool>,
    request: axum::http::Request<Incoming>,
) -> Response {
    let (parts, body) = request.into_parts();
    let limits = &shared.options.limits;
    let mut upload = Upload::new(body, &parts.headers, shared.body_bytes_max(), limits, &shared.budget);
    let mut answer = match dispatch(&shared, &parts, &mut upload).await {
        Ok(answer) => answer,
        Err(refused) => refused.into_response(),
    };
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if !upload.finish().await {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        unread.store(true, Relaxed);
    }
    shared.answers.count(answer.status().as_u16());
    answer
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Refused::Failed(failure)
    }
}

async fn dispatch(shared: &Arc<Shared>, parts: &Parts, upload: &mut Upload) -> Result<Response, Refused> {
    check_ambiguous(&parts.headers)?;
    upload.check_declared()?;
    let mut segments = uri::segments(parts.uri.path())?;
    let database = uri::take_database(&mut segments)?;
    let (route, captured) = match find(parts.method.as_str(), &segments) {
        Found::Route(route, captured) => (route, captured),
        Found::Allow(methods) => return Ok(unserved::not_allowed(&segments, &methods)),
        Found::Nothing => return Ok(unserved::not_found(&segments)),
    };
    let mut query = Query::parse(parts.uri.query())?;
    if let Some(database) = &database {
        query.put_first("db", database);
    }
    let who = Who {
        headers: &parts.headers,
        query: route.takes_credentials().then_some(&query),
        peer: parts.extensions.get::<Peer>(),
    };
    let user = admit(shared, who, route.access, captured.first().copied()).await?;
    let asked = Asked { shared, parts, query, captured, database };
    if matches!(route.access, Access::Read | Access::Write) && route.is_of_bucket() {
        asked.check_names(route)?;
    }
    Ok(asked.run(route, user, upload).await?)
}

/// Refuses what a server in front of this one could have understood otherwise (RFC 9112, 3.2), and expectations that are none
/// (RFC 9110, 10.1.1). A request without a host is taken: there is nothing it could be mistaken for.
fn check_ambiguous(headers: &HeaderMap) -> Result<(), Failure> {
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Failure::bad("the request has more than one Host header"));
    }
    let is_known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().all(is_known) {
        return Ok(());
    }
    Err(Failure::new(StatusCode::EXPECTATION_FAILED, "the only expectation that can be met is 100-continue"))
}

pub(crate) fn with_type(kind: &'static str, body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, kind)], body.into()).into_response()
}

/// One request that may be carried out.
pub(crate) struct Asked<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) parts: &'a Parts,
    pub(crate) query: Query,
    captured: Vec<&'a [u8]>,
    /// The database that the path names; it is the first parameter `db` of `query` too.
    pub(crate) database: Option<String>,
}

impl Asked<'_> {
    pub(crate) fn captured(&self, index: usize) -> &[u8] {
        self.captured.get(index).copied().unwrap_or_default()
    }

    /// Bucket and key are there and not too long for the store.
    fn check_names(&self, route: &Route) -> Result<(), Failure> {
        let limits = self.shared.store.limits();
        let has_key = matches!(route.operation, Operation::Fetch | Operation::Store | Operation::Delete);
        let bounds = [("bucket", 0, limits.bucket_bytes_max), ("key", 1, limits.key_bytes_max)];
        for (what, index, bytes_max) in bounds.into_iter().take(if has_key { 2 } else { 1 }) {
            let bytes = self.captured(index).len();
            if bytes == 0 {
                return Err(Failure::bad(format!("the {what} in the path is empty")));
            }
            if bytes > bytes_max {
                let text = format!("the {what} has {bytes} bytes; the limit is {bytes_max}");
                return Err(Failure::new(StatusCode::URI_TOO_LONG, text));
            }
        }
        Ok(())
    }

    async fn run(&self, route: &Route, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Failure> {
        match route.operation {
            Operation::Ping => Ok(influx::ping(self)),
            Operation::Health => Ok(admin::health(self.shared, self.parts).await),
            Operation::Metrics => admin::metrics(self.shared).await,
            Operation::Stats => admin::stats(self.shared).await,
            Operation::Welcome => Ok(admin::welcome(&self.shared.options.version)),
            Operation::OpenApi => Ok(admin::json(StatusCode::OK, &openapi::render(&self.shared.options.version))),
            Operation::Buckets => self.buckets(user).await,
            Operation::Props => Ok(with_type(JSON, listing::props(self.captured(0)).to_string())),
            Operation::Keys => self.keys().await,
            Operation::Create => self.create(upload).await,
            Operation::Fetch => self.fetch().await,
            Operation::Store => self.store(upload).await,
            Operation::Delete => self.delete().await,
            Operation::IndexExact => self.index((self.captured(2), self.captured(2))).await,
            Operation::Batch => Ok(self.batch(user, upload).await),
            Operation::Execute => self.execute(user, upload).await,
            Operation::LoadScript => self.load_script(upload).await,
            Operation::KnownScript => self.known_script(),
            Operation::ForgetScripts => self.forget_scripts(),
            Operation::Libraries => self.libraries().await,
            Operation::Library => self.library().await,
            Operation::LoadLibrary => self.load_library(upload).await,
            Operation::DeleteLibrary => self.delete_library().await,
            Operation::DeleteLibraries => self.delete_libraries(None).await,
            Operation::BeginTransaction => self.begin_transaction(user, upload).await,
            Operation::WithinTransaction => Ok(self.within_transaction(user, upload).await),
            Operation::CommitTransaction => Ok(self.commit_transaction(user).await),
            Operation::RollBackTransaction => self.roll_back_transaction(user),
            Operation::Spaces => self.spaces(user).await,
            Operation::DescribeSpace => self.describe_space().await,
            Operation::LimitSpace => self.limit_space(upload).await,
            Operation::Declare => self.declare(upload).await,
            Operation::Describe => self.describe().await,
            Operation::DropType => self.drop_type().await,
            Operation::CreateEntry => self.create_entry(upload).await,
            Operation::FetchEntry => self.fetch_entry().await,
            Operation::StoreEntry => self.store_entry(WriteMode::Upsert, upload).await,
            Operation::MergeEntry => self.store_entry(WriteMode::Partial, upload).await,
            Operation::ChangeEntry => self.change_entry(upload).await,
            Operation::RenewEntry => self.renew_entry().await,
            Operation::DeleteEntry => self.delete_entry().await,
            Operation::WriteEntries => self.write_entries(upload).await,
            Operation::ChangeEntries => self.change_entries(upload).await,
            Operation::QueryEntries => self.query_entries(upload).await,
            Operation::TakeEntries => self.take_entries(upload).await,
            Operation::CountEntries => self.count_entries(upload).await,
            Operation::ExplainEntries => self.explain_entries(upload).await,
            Operation::ClearEntries => self.clear_entries(upload).await,
            Operation::IterateEntries => self.iterate_entries(upload).await,
            Operation::Events => self.events().await,
            Operation::Listen => self.listen(user, upload).await,
            Operation::Listeners => self.listeners().await,
            Operation::ForgetListener => self.forget_listener().await,
            Operation::Ingest(operation) => ingest::run(self, operation, user, upload).await,
            Operation::OpenTsdb(operation) => opentsdb::run(self, operation, user, upload).await,
            Operation::Influx(operation) => influx::run(self, operation, user, upload).await,
            Operation::Prometheus(operation) => prometheus::run(self, operation, user, upload).await,
            Operation::IndexRange => self.index((self.captured(2), self.captured(3))).await,
        }
    }

    /// How durable the answer is to be: as the parameter says, or as the store is.
    pub(crate) fn durability(&self) -> Result<Durability, Failure> {
        match self.query.get("durability") {
            None => Ok(self.shared.store.durability()),
            Some(name) => self.shared.durability(name),
        }
    }

    fn name(&self) -> Name {
        Name { bucket: self.captured(0).to_vec(), key: self.captured(1).to_vec() }
    }

    async fn buckets(&self, user: Option<Arc<User>>) -> Result<Response, Failure> {
        let (form, encoding) = (Form::parse(&self.query, "buckets")?, Encoding::parse(&self.query)?);
        let durability = object::shown_at(self.durability()?);
        let mut names = Vec::new();
        if form != Form::Nothing {
            let list = move |store: &holdfast::Store| {
                let shown = store.kv().buckets()?;
                store.wait(shown.position, durability)?;
                Ok::<_, Failure>(shown.value)
            };
            names = self.shared.ask(list).await??;
        }
        names.retain(|name| user.as_ref().is_none_or(|user| user.may(Right::Read, name)));
        Ok(with_type(JSON, listing::buckets(&names, form, encoding)))
    }

    async fn keys(&self) -> Result<Response, Failure> {
        let (form, encoding) = (Form::parse(&self.query, "keys")?, Encoding::parse(&self.query)?);
        let durability = object::shown_at(self.durability()?);
        if form == Form::Nothing {
            return Ok(with_type(JSON, "{}"));
        }
        let (bucket, entries_max) = (self.captured(0).to_vec(), self.shared.options.limits.page_entries_max);
        let body = pages::body(self.shared, move |store| {
            Ok(Box::new(Keys::begin(store, bucket, (form, encoding), durability, entries_max)?))
        });
        Ok(with_type(JSON, body.await?))
    }

    async fn index(&self, range: (&[u8], &[u8])) -> Result<Response, Failure> {
        let limits = &self.shared.options.limits;
        let bounds = Bounds { entries_max: limits.page_entries_max, regex_bytes_max: limits.regex_bytes_max };
        let request = index::Request::parse(self.captured(0), self.captured(1), range, &self.query, bounds)?;
        let durability = object::shown_at(self.durability()?);
        let kind = match request.is_stream() {
            true => format!("multipart/mixed;boundary={}", index::BOUNDARY),
            false => JSON.to_owned(),
        };
        let body = pages::body(self.shared, move |store| Ok(Box::new(request.begin(store, durability)?)));
        Ok(([(CONTENT_TYPE, kind)], body.await?).into_response())
    }

    async fn fetch(&self) -> Result<Response, Failure> {
        let (name, budget) = (self.name(), self.shared.budget.clone());
        let (conditions, durability) = (Conditions::parse(&self.parts.headers)?, self.durability()?);
        let wanted = Fetch { conditions, durability, is_head: self.parts.method == Method::HEAD };
        let fetched = self.shared.ask(move |store| object::fetch(store, &budget, &name, &wanted)).await??;
        let (mut answer, is_modified, facts) = match fetched {
            Fetched::NotModified(facts) => (StatusCode::NOT_MODIFIED.into_response(), false, facts),
            Fetched::Object(facts, None) => (Response::new(Body::empty()), true, facts),
            Fetched::Object(facts, Some(sent)) => (Response::new(Body::from(Bytes::from_owner(sent))), true, facts),
        };
        let headers = answer.headers_mut();
        if is_modified {
            facts.write(headers);
        } else {
            facts.write_state(headers);
        }
        // Whoever keeps a copy has to ask whether it is still good.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(say_durability(answer, durability))
    }

    /// What a request wants stored: everything but the body is judged before the body is read.
    async fn put(&self, upload: &mut Upload) -> Result<(Put, bool), Failure> {
        let headers = &self.parts.headers;
        let limits = self.shared.store.limits();
        upload.check_present()?;
        if headers.get_all(LINK).iter().any(|link| link.as_bytes().windows(7).any(|part| part == b"riaktag")) {
            return Err(Failure::bad("links between objects are not supported"));
        }
        let options = PutOptions {
            metadata: metadata::parse(headers, limits.metadata_bytes_max)?,
            indexes: Indexes::from_pairs(indexes::parse(headers)?),
            compression: self.compression()?,
            condition: Condition::None,
            ..PutOptions::default()
        };
        if options.indexes.len() > limits.indexes_bytes_max {
            let text = format!(
                "the index entries have {} bytes; the limit is {}",
                options.indexes.len(),
                limits.indexes_bytes_max
            );
            return Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
        }
        let (expiry, conditions) = (self.expiry()?, Conditions::parse(headers)?);
        let (durability, returns_body) = (self.durability()?, self.query.flag("returnbody")?);
        let value = upload.read().await?;
        Ok((Put { value, options, expiry, conditions, durability }, returns_body))
    }

    fn compression(&self) -> Result<Option<Compression>, Failure> {
        let parse = |name: &[u8]| String::from_utf8_lossy(name).parse().ok();
        let Some(name) = self.query.get("compression") else { return Ok(None) };
        parse(name).map(Some).ok_or_else(|| Failure::bad("compression is one of none, lz4, zstd"))
    }

    fn expiry(&self) -> Result<Expiry, Failure> {
        let bad = || Failure::bad("ttl is a number of seconds, at least 1, or keep");
        let at_ms = self.parts.headers.get(EXPIRES).map(|value| {
            let text = "X-Holdfast-Expires is in milliseconds since 1970";
            uri::number(value.as_bytes()).ok_or_else(|| Failure::bad(text))
        });
        match (self.query.get("ttl"), at_ms.transpose()?) {
            (None, None) => Ok(Expiry::Never),
            (None, Some(at)) => Ok(Expiry::AtMs(at)),
            (Some(_), Some(_)) => Err(Failure::bad("ttl and X-Holdfast-Expires exclude each other")),
            (Some(b"keep"), None) => Ok(Expiry::Keep),
            (Some(seconds), None) => {
                let seconds = uri::number(seconds).filter(|seconds| *seconds > 0).ok_or_else(bad)?;
                seconds.checked_mul(1000).map(Expiry::AfterMs).ok_or_else(bad)
            }
        }
    }

    async fn store(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (put, returns_body) = self.put(upload).await?;
        let (name, durability) = (self.name(), put.durability);
        let stored = self.shared.ask(move |store| object::put(store, &name, &put).map(|facts| (facts, put.value)));
        let (facts, value) = stored.await??;
        let status = if returns_body { StatusCode::OK } else { StatusCode::NO_CONTENT };
        Ok(say_durability(stored_answer(status, &facts, returns_body.then_some(value)), durability))
    }

    async fn create(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (mut put, returns_body) = self.put(upload).await?;
        put.conditions = Conditions::absent();
        let durability = put.durability;
        let (shared, bucket) = (Arc::clone(self.shared), self.captured(0).to_vec());
        let create = move |store: &holdfast::Store| {
            let mut tried = Err(Failure::precondition());
            for _ in 0..KEYS_TRIED_MAX {
                let name = Name { bucket: bucket.clone(), key: shared.new_key().into_bytes() };
                tried = object::put(store, &name, &put).map(|facts| (facts, name));
                if !matches!(&tried, Err(failure) if *failure == Failure::precondition()) {
                    break;
                }
            }
            tried.map(|(facts, name)| (facts, name, put.value))
        };
        let (facts, name, value) = self.shared.ask(create).await??;
        let mut answer = stored_answer(StatusCode::CREATED, &facts, returns_body.then_some(value));
        let location = format!("/buckets/{}/keys/{}", uri::encode(&name.bucket), uri::encode(&name.key));
        if let Ok(location) = HeaderValue::from_str(&location) {
            answer.headers_mut().insert(LOCATION, location);
        }
        Ok(say_durability(answer, durability))
    }

    async fn delete(&self) -> Result<Response, Failure> {
        let (name, durability) = (self.name(), self.durability()?);
        let conditions = Conditions::parse(&self.parts.headers)?;
        self.shared.ask(move |store| object::delete(store, &name, &conditions, durability)).await??;
        Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
    }
}

/// The answer to a put, with the object if it is wanted back.
fn stored_answer(status: StatusCode, facts: &Facts, value: Option<Vec<u8>>) -> Response {
    let mut answer = status.into_response();
    if let Some(value) = value {
        facts.write(answer.headers_mut());
        *answer.body_mut() = Body::from(value);
    } else {
        facts.write_state(answer.headers_mut());
    }
    answer
}

pub(crate) fn say_durability(mut answer: Response, durability: Durability) -> Response {
    if let Ok(value) = HeaderValue::from_str(&durability.to_string()) {
        answer.headers_mut().insert(HeaderName::from_static(DURABILITY), value);
    }
    answer
}
