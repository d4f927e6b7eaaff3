//! The routes under `/spaces`: parameters, headers and bodies, and what came of them in HTTP.
//!
//! May use: everything of the door but sockets.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::space::{Document, Entry, Lease, Stop, Value, WriteMode};
use serde_json::json;

use super::conditions::{Conditions, tag};
use super::failure::Failure;
use super::gone::{Ends, gone_for_a_while, left};
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::object::EXPIRES;
use super::showing::{Otherwise, Text};
use super::space::{self, How, One, Place};
use super::upload::Upload;
use super::{admin, space_json, uri};
use crate::argument;
use crate::auth::{Right, User};
use crate::budget::Share;
use crate::peer::Peer;
use crate::through::load_and_look;

fn name(segment: &[u8]) -> Result<String, Failure> {
    String::from_utf8(segment.to_vec()).map_err(|_| Failure::bad("names of spaces and types are UTF-8"))
}

fn write_state(entry: &Entry, headers: &mut HeaderMap) {
    if let Ok(tag) = HeaderValue::from_str(&tag(entry.version)) {
        headers.insert(ETAG, tag);
    }
    if let Some(at) = entry.expires_ms {
        headers.insert(HeaderName::from_static(EXPIRES), HeaderValue::from(at));
    }
}

/// Does this with what a body became, which counts as a body until it is done: also when nobody waits for it any more.
pub(crate) fn holding<T>(share: Share, act: impl FnOnce(&Store) -> T + Send) -> impl FnOnce(&Store) -> T + Send {
    move |store| {
        let _share = share;
        act(store)
    }
}

/// The same with what goes through entries.
pub(crate) fn searching<T>(
    share: Share,
    act: impl FnOnce(&Store, Stop) -> T + Send,
) -> impl FnOnce(&Store, Stop) -> T + Send {
    move |store, stop| {
        let _share = share;
        act(store, stop)
    }
}

impl Asked<'_> {
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Ok(Place { space: name(self.captured(0))?, name: name(self.captured(1))? })
    }

    fn one(&self) -> Result<One, Failure> {
        let routing = self.query.get("routing").map(argument::value).transpose()?;
        let id = argument::value(self.captured(2))?;
        if id == Value::Null {
            // A document that is written with it would be given an id, each time another.
            return Err(Failure::bad("null is no id; the text is written with quotes: entries/%22null%22"));
        }
        Ok(One { place: self.place()?, id, routing })
    }

    fn how(&self, mode: WriteMode) -> Result<How, Failure> {
        let lease = match self.query.get("lease_ms") {
            None => Lease::Default,
            Some(b"forever") => Lease::Forever,
            Some(ms) => {
                let ms = uri::number(ms).filter(|ms| *ms > 0);
                let ms =
                    ms.ok_or_else(|| Failure::bad("lease_ms is a number of milliseconds, at least 1, or forever"))?;
                Lease::For(Duration::from_millis(ms))
            }
        };
        let conditions = Conditions::parse(&self.parts.headers)?;
        Ok(How { mode, lease, conditions, durability: self.durability()? })
    }

    async fn document(&self, upload: &mut Upload) -> Result<(Document, Share), Failure> {
        upload.check_present()?;
        let read = |text: &[u8]| Ok(Document::from_json(text).map_err(holdfast::Error::from)?);
        self.json(upload, Becomes::Document, read).await
    }

    /// As [`Shared::ask`](super::shared::Shared::ask), for what goes through entries: it ends when its time is over, and when the client
    /// is gone.
    pub(crate) async fn search<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Store, Stop) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (limits, ends) = (&self.shared.options.limits, Ends::default());
        // So that it says itself that its time is over.
        let time_max = limits.space_time_max.min(limits.answer_timeout.mul_f64(0.9));
        let stop = Stop { time_max: Some(time_max), cancel: Some(ends.cancel()), ..Stop::default() };
        tokio::select! {
            biased;
            answer = self.shared.ask(move |store| act(store, stop)) => answer?,
            () = gone_for_a_while(self.parts.extensions.get::<Peer>()) => Err(left()),
        }
    }

    pub(crate) async fn spaces(&self, user: Option<Arc<User>>) -> Result<Response, Failure> {
        let list = move |store: &Store| {
            let may_read = |space: &String| user.as_ref().is_none_or(|user| user.may(Right::Read, space.as_bytes()));
            let types = |space: String| {
                let types: Vec<String> = store.space(&space).types().iter().map(|it| it.name.clone()).collect();
                json!({ "space": space, "types": types })
            };
            json!({ "spaces": store.spaces().into_iter().filter(may_read).map(types).collect::<Vec<_>>() })
        };
        Ok(admin::json(StatusCode::OK, &self.shared.ask(list).await?))
    }

    pub(crate) async fn describe_space(&self) -> Result<Response, Failure> {
        let space = name(self.captured(0))?;
        let describe = move |store: &Store| -> Result<_, Failure> {
            let space = store.space(&space);
            let types: Vec<String> = space.types().iter().map(|it| it.name.clone()).collect();
            let memory = space.memory()?;
            Ok(
                json!({ "space": space.name(), "bytes": memory.bytes, "memory_bytes_max": memory.bytes_max.unwrap_or(0), "types": types }),
            )
        };
        Ok(admin::json(StatusCode::OK, &self.shared.ask(describe).await??))
    }

    pub(crate) async fn limit_space(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let space = name(self.captured(0))?;
        let (bytes_max, _share) = self.json(upload, Becomes::Values, space_json::memory_limit).await?;
        self.shared.ask(move |store| store.space(&space).limit_memory(bytes_max)).await??;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    pub(crate) async fn declare(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let place = self.place()?;
        let read = move |text: &[u8]| space_json::definition(&place, text);
        let (definition, _share) = self.json(upload, Becomes::Values, read).await?;
        self.shared.ask(move |store| space::declare(store, definition)).await??;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    pub(crate) async fn describe(&self) -> Result<Response, Failure> {
        let place = self.place()?;
        let describe = move |store: &Store| {
            let entries = place.entries(store)?;
            Ok::<_, Failure>(space_json::describe(&entries.definition(), &entries.usage(), entries.waiters()))
        };
        Ok(admin::json(StatusCode::OK, &self.shared.ask(describe).await??))
    }

    pub(crate) async fn drop_type(&self) -> Result<Response, Failure> {
        let place = self.place()?;
        let drop = move |store: &Store| store.space(&place.space).drop_type(&place.name);
        match self.shared.ask(drop).await?? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(Failure::not_found()),
        }
    }

    pub(crate) async fn create_entry(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (place, how) = (self.place()?, self.how(WriteMode::Insert)?);
        let ((document, share), durability) = (self.document(upload).await?, how.durability);
        let at = place.clone();
        let create = holding(share, move |store| space::create(store, &place, &document, &how));
        let written = self.shared.ask(create).await??;
        let id = argument::text_of(&written.id);
        let body = format!("{{\"id\":{},\"version\":\"{:016x}\"}}\n", written.id.to_json(), written.version.get());
        let mut answer = (StatusCode::CREATED, [(CONTENT_TYPE, JSON)], body).into_response();
        let (space, of) = (uri::encode(at.space.as_bytes()), uri::encode(at.name.as_bytes()));
        let location = format!("/spaces/{space}/types/{of}/entries/{}", uri::encode(id.as_bytes()));
        if let (Ok(location), Ok(tag)) =
            (HeaderValue::from_str(&location), HeaderValue::from_str(&tag(written.version)))
        {
            answer.headers_mut().insert(LOCATION, location);
            answer.headers_mut().insert(ETAG, tag);
        }
        Ok(say_durability(answer, durability))
    }

    pub(crate) async fn fetch_entry(&self) -> Result<Response, Failure> {
        let (one, conditions, durability) = (self.one()?, Conditions::parse(&self.parts.headers)?, self.durability()?);
        let read = || {
            let (one, conditions) = (one.clone(), conditions.clone());
            async { self.shared.ask(move |store| space::fetch(store, &one, &conditions, durability)).await? }
        };
        let (space, name) = (&*one.place.space, &*one.place.name);
        let through = self.shared.options.read_through.as_ref().filter(|through| through.is_for(space, name));
        let fetched = match (read().await?, through) {
            (None, Some(through)) => {
                let entries = one.place.entries(&self.shared.store)?;
                load_and_look(&**through, (&entries, &one.id, one.routing.as_ref()), read).await?
            }
            (fetched, _) => fetched,
        };
        let missing = || if conditions.needs_object() { Failure::precondition() } else { Failure::not_found() };
        let (entry, is_known) = fetched.ok_or_else(missing)?;
        let mut answer = match is_known {
            true => StatusCode::NOT_MODIFIED.into_response(),
            // Whoever asked by HEAD is told the length of what is left out.
            false => {
                let (bytes, document) = (space_json::stored_bytes([&entry]), entry.document.clone());
                let show = move |text: &mut Text| text.add(&document.to_json());
                with_type(JSON, self.shared.show((bytes, Otherwise::Refuse), show).await?)
            }
        };
        write_state(&entry, answer.headers_mut());
        Ok(say_durability(answer, durability))
    }

    pub(crate) async fn store_entry(&self, mode: WriteMode, upload: &mut Upload) -> Result<Response, Failure> {
        let (one, how) = (self.one()?, self.how(mode)?);
        let previous = self.query.flag("previous")?;
        let ((document, share), durability) = (self.document(upload).await?, how.durability);
        let put = holding(share, move |store| space::put(store, &one, &document, &how));
        let written = self.shared.ask(put).await??;
        let mut answer = match previous {
            false => StatusCode::NO_CONTENT.into_response(),
            true => {
                let bytes = space_json::stored_bytes(written.previous.as_ref());
                let (id, previous) = (written.id, written.previous);
                let show = move |text: &mut Text| {
                    let previous = Some(space_json::maybe_entry(previous.as_ref()));
                    text.add(&space_json::written(&id, Some(written.version), previous))
                };
                with_type(JSON, self.shared.show((bytes, Otherwise::Show), show).await?)
            }
        };
        if let Ok(tag) = HeaderValue::from_str(&tag(written.version)) {
            answer.headers_mut().insert(ETAG, tag);
        }
        Ok(say_durability(answer, durability))
    }

    pub(crate) async fn change_entry(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let (one, how) = (self.one()?, self.how(WriteMode::Update)?);
        upload.check_present()?;
        let (changes, share) = self.json(upload, Becomes::Values, space_json::changes).await?;
        let (durability, previous) = (how.durability, self.query.flag("previous")?);
        let change = holding(share, move |store| space::change(store, &one, &changes, &how));
        let changed = self.shared.ask(change).await??;
        let (now, before) = (changed.now.clone(), changed.before);
        let bytes = space_json::stored_bytes([&now, &before]);
        let show = move |text: &mut Text| match previous {
            false => text.add(&now.document.to_json()),
            true => {
                let entry = |entry: &Entry| space_json::entry(entry, Some(entry.version));
                text.add(&space_json::changed(entry(&now), Some(entry(&before))))
            }
        };
        let mut answer = with_type(JSON, self.shared.show((bytes, Otherwise::Show), show).await?);
        write_state(&changed.now, answer.headers_mut());
        Ok(say_durability(answer, durability))
    }

    pub(crate) async fn renew_entry(&self) -> Result<Response, Failure> {
        let (one, how) = (self.one()?, self.how(WriteMode::Update)?);
        if how.lease == Lease::Default {
            return Err(Failure::bad("say lease_ms: a number of milliseconds, at least 1, or forever"));
        }
        let durability = how.durability;
        self.shared.ask(move |store| space::renew(store, &one, &how)).await??;
        Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
    }

    pub(crate) async fn delete_entry(&self) -> Result<Response, Failure> {
        let (one, conditions, durability) = (self.one()?, Conditions::parse(&self.parts.headers)?, self.durability()?);
        self.shared.ask(move |store| space::delete(store, &one, &conditions, durability)).await??;
        Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
    }
}
