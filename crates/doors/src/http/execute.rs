//! `/execute`: a script beside the data, as EVAL, EVALSHA and FCALL run it, with arguments and results of JSON.
//!
//!   {"script": text | "sha1": digits | "function": name,
//!    "keys": [text, ..], "arguments": [any, ..], "database": n, "read_only": true | false}
//!
//! May use: `crate::scripts`, everything of the door but sockets. Must not know: how scripts run, who has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use holdfast::Error;
use holdfast::ErrorKind;
use holdfast::space::Value;
use tokio::time::timeout;

use super::failure::Failure;
use super::fields::Fields;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::shared::Stalled;
use super::space_json;
use super::upload::Upload;
use crate::auth::User;
use crate::peer::Peer;
use crate::scripts::{Failed, Ran, Wanted, Which, Why};

/// What a body says.
struct Said {
    which: Which,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    is_reading: bool,
    database: u16,
}

impl Asked<'_> {
    pub(crate) async fn execute(&self, user: Option<Arc<User>>, upload: &mut Upload) -> Result<Response, Failure> {
        let durability = self.durability()?;
        upload.check_present()?;
        let (said, share) = self.json(upload, Becomes::Values, said).await?;
        let scripts = self.shared.options.scripts.as_ref();
        let scripts = scripts.ok_or_else(|| Failure::missing("there are no scripts here"))?;
        let time_max = self.shared.options.limits.answer_timeout;
        let wanted = Wanted {
            which: said.which,
            keys: said.keys,
            arguments: said.arguments,
            is_reading: said.is_reading,
            database: said.database,
            durability,
            user,
            address: self.parts.extensions.get::<Peer>().and_then(Peer::address),
            // So that it says itself that its time is over.
            time_max: time_max.mul_f64(0.9),
        };
        let Ran { result, rests_on } = timeout(time_max, scripts.run(wanted, share)).await.map_err(|_| Stalled)?;
        for (durability, position) in rests_on {
            self.shared.durable(position, durability).await?;
        }
        let returned = result?;
        let (result, position) = (value(returned.value, returned.position.get()), Some(returned.position));
        let body = format!("{{\"result\":{},\"position\":{}}}", result.to_json(), space_json::version(position));
        Ok(say_durability(with_type(JSON, body), durability))
    }
}

fn said(body: &[u8]) -> Result<Said, Failure> {
    let mut fields = Fields::parse(body)?;
    let words = (fields.bytes("script")?, fields.text("sha1")?, fields.text("function")?);
    let which = match words {
        (Some(text), None, None) => Which::Text(text),
        (None, Some(sha), None) => Which::Hash(sha),
        (None, None, Some(name)) => Which::Function(name),
        _ => return Err(Failure::bad("say which script: script, sha1 or function, and one of them")),
    };
    let keys = fields.list("keys")?.into_iter().map(key).collect::<Result<_, _>>()?;
    let arguments = fields.list("arguments")?.into_iter().map(argument).collect();
    let database = fields.number("database")?.unwrap_or(0);
    let database = u16::try_from(database).map_err(|_| Failure::bad("there is no such database"))?;
    let said = Said { which, keys, arguments, is_reading: fields.flag("read_only")?, database };
    fields.end()?;
    Ok(said)
}

fn key(value: Value) -> Result<Vec<u8>, Failure> {
    match value {
        Value::String(text) => Ok(text.into_bytes()),
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Failure::bad("keys are strings, or {\"$bytes\": base64}")),
    }
}

/// What a script has of it in ARGV: a text as it is, anything else as JSON, which `cjson.decode` reads.
fn argument(value: Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.into_bytes(),
        Value::Bytes(bytes) => bytes,
        other => other.to_json().into_bytes(),
    }
}

/// What a script returned, of which the version of what it wrote is known by now. Its depth is bounded by the limits of scripts.
fn value(returned: script::Value, position: u64) -> Value {
    let list = |values: Vec<script::Value>| values.into_iter().map(|item| value(item, position)).collect();
    match returned {
        script::Value::Nil => Value::Null,
        script::Value::Boolean(flag) => Value::Bool(flag),
        script::Value::Integer(number) => Value::I64(number),
        script::Value::Double(number) => Value::F64(number),
        script::Value::Text(text) | script::Value::Status(text) => bytes(text),
        script::Value::Error(text) => Value::Map(BTreeMap::from([("err".to_owned(), bytes(text))])),
        script::Value::Array(values) | script::Value::Set(values) => Value::List(list(values)),
        script::Value::Map(pairs) => map(pairs, position),
        script::Value::CommitPosition => Value::U64(position),
    }
}

fn bytes(text: Vec<u8>) -> Value {
    String::from_utf8(text).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::String)
}

/// An object, or, where names are none that an object may have, a list of pairs.
fn map(pairs: Vec<(script::Value, script::Value)>, position: u64) -> Value {
    let pairs: Vec<(Value, Value)> =
        pairs.into_iter().map(|(name, held)| (value(name, position), value(held, position))).collect();
    if pairs.iter().all(|(name, _)| matches!(name, Value::String(_))) {
        let named = pairs.into_iter().filter_map(|(name, held)| match name {
            Value::String(name) => Some((name, held)),
            _ => None,
        });
        return Value::Map(named.collect());
    }
    Value::List(pairs.into_iter().map(|(name, held)| Value::List(vec![name, held])).collect())
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        let status = match failed.why {
            Why::Missing => StatusCode::NOT_FOUND,
            Why::Malformed => StatusCode::BAD_REQUEST,
            Why::Denied => StatusCode::FORBIDDEN,
            Why::Stopped => StatusCode::SERVICE_UNAVAILABLE,
            // An error of the store ends the script, and is none of what was sent.
            Why::Raised | Why::Store(ErrorKind::Invalid) => StatusCode::UNPROCESSABLE_ENTITY,
            Why::Store(kind) => return Failure::from(Error::new(kind, failed.text)),
        };
        Failure::new(status, failed.text)
    }
}
