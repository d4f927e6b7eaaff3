//! `/scripts` and `/libraries`: scripts that are kept, by hash until the server stops and by name in the store, as SCRIPT and FUNCTION
//! keep them.
//!
//!   POST /scripts    {"script": text}                              {"sha1": digits}
//!   POST /libraries  {"library": text, "replace": true | false}    {"name": name, "position": version}
//!
//! Compiling takes the turns that running takes, so that nobody has more of the processors by it.
//!
//! May use: `crate::scripts`, `execute`, everything of the door but sockets. Must not know: who keeps them, and where.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use axum::response::{IntoResponse, Response};
use holdfast::space::Value;
use serde_json::json;
use tokio::time::timeout;

use super::execute::{JSON_FACTOR, bytes, text_bytes};
use super::failure::Failure;
use super::fields::Fields;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::shared::{Shared, Stalled};
use super::upload::Upload;
use super::uri;
use crate::budget::{Budget, Share};
use crate::scripts::{Failed, KeepsScripts, Libraries, Library, Load, Scripts};

/// What a library or a function takes as JSON beside its texts: the names of the fields, and what is between them.
const FRAME_BYTES: usize = 96;

/// Libraries as JSON, and their share of the budget until they are sent.
struct Sent {
    json: String,
    _share: Share,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        self.json.as_bytes()
    }
}

fn scripts(shared: &Shared) -> Result<Scripts, Failure> {
    shared.options.scripts.clone().ok_or_else(|| Failure::missing("there are no scripts here"))
}

impl Asked<'_> {
    /// Does this with the scripts in a thread that may wait, and holds the share until it is done.
    async fn with_scripts<T: Send + 'static>(
        &self,
        share: Share,
        act: impl FnOnce(&dyn KeepsScripts) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failure> {
        let scripts = scripts(self.shared)?;
        let act = move |_: &holdfast::Store| {
            let _share = share;
            act(scripts.kept())
        };
        Ok(self.shared.ask(act).await??)
    }

    /// The same with what compiles, when it is its turn.
    async fn compiling<T: Send + 'static>(
        &self,
        share: Share,
        act: impl FnOnce(&dyn KeepsScripts) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failure> {
        let waits = scripts(self.shared)?.kept().turn();
        let turn = timeout(self.shared.options.limits.answer_timeout, waits).await.map_err(|_| Stalled)??;
        let act = move |scripts: &dyn KeepsScripts| {
            let _turn = turn;
            act(scripts)
        };
        self.with_scripts(share, act).await
    }

    pub(crate) async fn load_script(&self, upload: &mut Upload) -> Result<Response, Failure> {
        upload.check_present()?;
        let said = |body: &[u8]| {
            let mut fields = Fields::parse(body)?;
            let text = fields.bytes("script")?.ok_or_else(|| Failure::bad("script is missing"))?;
            fields.end()?;
            Ok(text)
        };
        let (text, share) = self.json(upload, Becomes::Values, said).await?;
        let sha1 = self.compiling(share, move |scripts| scripts.remember(&text)).await?;
        Ok(with_type(JSON, json!({ "sha1": sha1 }).to_string()))
    }

    pub(crate) fn known_script(&self) -> Result<Response, Failure> {
        let sha1 = String::from_utf8_lossy(self.captured(0)).to_ascii_lowercase();
        scripts(self.shared)?.kept().find(&sha1)?;
        Ok(with_type(JSON, json!({ "sha1": sha1 }).to_string()))
    }

    pub(crate) fn forget_scripts(&self) -> Result<Response, Failure> {
        scripts(self.shared)?.kept().forget()?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    pub(crate) async fn load_library(&self, upload: &mut Upload) -> Result<Response, Failure> {
        let durability = self.durability()?;
        upload.check_present()?;
        let said = |body: &[u8]| {
            let mut fields = Fields::parse(body)?;
            let text = fields.bytes("library")?.ok_or_else(|| Failure::bad("library is missing"))?;
            let load = if fields.flag("replace")? { Load::Replace } else { Load::New };
            fields.end()?;
            Ok((text, load))
        };
        let ((text, load), share) = self.json(upload, Becomes::Values, said).await?;
        let (name, position) = self.compiling(share, move |scripts| scripts.load(&text, load)).await?;
        self.shared.durable(position, durability).await?;
        let told = json!({ "name": name, "position": format!("{:016x}", position.get()) });
        let mut answer = with_type(JSON, told.to_string());
        *answer.status_mut() = StatusCode::CREATED;
        if let Ok(location) = HeaderValue::from_str(&format!("/libraries/{}", uri::encode(name.as_bytes()))) {
            answer.headers_mut().insert(LOCATION, location);
        }
        Ok(say_durability(answer, durability))
    }

    pub(crate) async fn delete_library(&self) -> Result<Response, Failure> {
        let name = String::from_utf8_lossy(self.captured(0)).into_owned();
        self.delete_libraries(Some(name)).await
    }

    pub(crate) async fn delete_libraries(&self, name: Option<String>) -> Result<Response, Failure> {
        let durability = self.durability()?;
        let remove = move |scripts: &dyn KeepsScripts| scripts.remove(name.as_deref());
        let position = self.with_scripts(Share::default(), remove).await?;
        self.shared.durable(position, durability).await?;
        Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
    }

    pub(crate) async fn libraries(&self) -> Result<Response, Failure> {
        let pattern = self.query.get("pattern").map(<[u8]>::to_vec);
        let shows = if self.query.flag("code")? { Shows::Code } else { Shows::Functions };
        let listed = move |scripts: &dyn KeepsScripts| scripts.libraries(pattern.as_deref());
        let send = move |libraries: Vec<Arc<Library>>| {
            let all = libraries.iter().map(|library| shown(library, shows)).collect();
            Value::Map(BTreeMap::from([("libraries".to_owned(), Value::List(all))]))
        };
        self.show(shows, listed, send).await
    }

    pub(crate) async fn library(&self) -> Result<Response, Failure> {
        let name = String::from_utf8_lossy(self.captured(0)).into_owned();
        let listed = move |scripts: &dyn KeepsScripts| scripts.library(&name);
        let send = |libraries: Vec<Arc<Library>>| {
            libraries.first().map(|library| shown(library, Shows::Code)).unwrap_or_default()
        };
        self.show(Shows::Code, listed, send).await
    }

    /// Answers libraries, as durable as is asked. What they take of memory is taken before they are made JSON.
    async fn show(
        &self,
        shows: Shows,
        listed: impl FnOnce(&dyn KeepsScripts) -> Result<Libraries, Failed> + Send + 'static,
        send: impl FnOnce(Vec<Arc<Library>>) -> Value + Send + 'static,
    ) -> Result<Response, Failure> {
        let durability = self.durability()?;
        let Libraries { libraries, position } = self.with_scripts(Share::default(), listed).await?;
        self.shared.durable(position, durability).await?;
        let (budget, json_bytes_max) = (self.shared.budget.clone(), self.shared.options.limits.documents_bytes_max);
        let make = move |_: &holdfast::Store| {
            let mut share = accept(&libraries, shows, &budget, json_bytes_max)?;
            let json = send(libraries).to_json();
            share.shrink(json.len());
            Ok::<_, Failure>(Sent { json, _share: share })
        };
        let sent = self.shared.ask(make).await??;
        Ok(say_durability(with_type(JSON, Bytes::from_owner(sent)), durability))
    }
}

/// What of libraries is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Functions,
    /// Their texts, too.
    Code,
}

/// Takes what the answer needs of memory, from what all bodies may have together.
fn accept(all: &[Arc<Library>], shows: Shows, budget: &Budget, json_bytes_max: usize) -> Result<Share, Failure> {
    let json: usize = all.iter().map(|library| size(library, shows)).sum();
    if json > json_bytes_max {
        let text = format!("the libraries have more than {json_bytes_max} bytes as JSON: ask for them one by one");
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let mut share = Share::default();
    budget.grow(&mut share, json.saturating_mul(JSON_FACTOR).min(budget.bytes()))?;
    Ok(share)
}

/// No less than it has as JSON.
fn size(library: &Library, shows: Shows) -> usize {
    let functions = library.functions.iter().map(|function| {
        let description = function.description.as_deref().unwrap_or_default();
        FRAME_BYTES + text_bytes(function.name.as_bytes()) + text_bytes(description.as_bytes())
    });
    let code = if shows == Shows::Code { text_bytes(&library.source) } else { 0 };
    FRAME_BYTES + text_bytes(library.name.as_bytes()) + code + functions.sum::<usize>()
}

fn shown(library: &Library, shows: Shows) -> Value {
    let functions = library.functions.iter().map(|function| {
        let flags = if function.is_reading { vec![Value::from("no-writes")] } else { Vec::new() };
        let description = function.description.as_deref().map_or(Value::Null, Value::from);
        Value::Map(BTreeMap::from([
            ("name".to_owned(), Value::from(function.name.as_str())),
            ("description".to_owned(), description),
            ("flags".to_owned(), Value::List(flags)),
        ]))
    });
    let mut fields = BTreeMap::from([
        ("name".to_owned(), Value::from(library.name.as_str())),
        ("engine".to_owned(), Value::from("LUAU")),
        ("functions".to_owned(), Value::List(functions.collect())),
    ]);
    if shows == Shows::Code {
        fields.insert("code".to_owned(), bytes(library.source.clone()));
    }
    Value::Map(fields)
}
