//! `/execute`: a script beside the data, as EVAL, EVALSHA and FCALL run it, with arguments and results of JSON.
//!
//!   {"script": text | "sha1": digits | "function": name,
//!    "keys": [text, ..], "arguments": [any, ..], "database": n, "read_only": true | false}
//!
//! May use: `crate::scripts`, everything of the door but sockets. Must not know: how scripts run, who has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use holdfast::Error;
use holdfast::ErrorKind;
use holdfast::space::Value;
use tokio::time::timeout;

use super::failure::Failure;
use super::fields::Fields;
use super::guard::DOOR;
use super::handle::{Asked, JSON, say_durability, with_type};
use super::json_body::Becomes;
use super::shared::Stalled;
use super::space_json;
use super::upload::Upload;
use crate::auth::User;
use crate::budget::{Budget, Share};
use crate::peer::Peer;
use crate::scripts::{Failed, Ran, Returned, Wanted, Which, Why};

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
            result_bytes_max: self.shared.options.limits.documents_bytes_max,
            durability,
            user,
            address: self.parts.extensions.get::<Peer>().and_then(Peer::address),
            door: DOOR.to_owned(),
            // So that it says itself that its time is over.
            time_max: time_max.mul_f64(0.9),
        };
        let (budget, json_bytes_max) = (self.shared.budget.clone(), wanted.result_bytes_max);
        let accepts = Box::new(move |value: &script::Value| accept(value, &budget, json_bytes_max));
        let running = scripts.run(wanted, accepts, share);
        let Ran { result, rests_on } = timeout(time_max, running).await.map_err(|_| Stalled)?;
        for (durability, position) in rests_on {
            self.shared.durable(position, durability).await?;
        }
        let returned = result?;
        // It may be long: the thread of all connections has no time for it.
        let sent = self.shared.ask(move |_| Sent::of(returned)).await?;
        Ok(say_durability(with_type(JSON, Bytes::from_owner(sent)), durability))
    }
}

/// An answer that is being sent, and its share of the budget.
struct Sent {
    json: String,
    _share: Share,
}

impl Sent {
    fn of(Returned { value: returned, position, mut share }: Returned) -> Self {
        let result = value(returned, position.get()).to_json();
        let json = format!("{{\"result\":{result},\"position\":{}}}", space_json::version(Some(position)));
        share.shrink(json.len());
        Sent { json, _share: share }
    }
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        self.json.as_bytes()
    }
}

/// A value as a script has it, and as it becomes JSON.
const VALUE_BYTES: usize = size_of::<script::Value>() + 3 * size_of::<Value>();
/// A number that is no integer, or that is known by the commit.
const NUMBER_BYTES: usize = 32;
/// A map, of which the first node has room for eleven fields; and one of its fields, where nodes are half full.
const MAP_BYTES: usize = 11 * (size_of::<Value>() + size_of::<String>()) + 64;
const FIELD_BYTES: usize = MAP_BYTES / 5;
/// JSON while it is made: its stored form, what it is written into, which has room for twice as much, and the answer.
pub(crate) const JSON_FACTOR: usize = 4;

/// Takes what the answer needs of memory, from what all bodies may have together.
fn accept(value: &script::Value, budget: &Budget, json_bytes_max: usize) -> holdfast::Result<Share> {
    let Size { json, values } = size(value);
    let (bytes, mut share) = (json.saturating_mul(JSON_FACTOR).saturating_add(values), Share::default());
    if json > json_bytes_max || bytes > budget.bytes() {
        let text = format!("what the script returned has more than {json_bytes_max} bytes as JSON, or too many values");
        return Err(Error::new(ErrorKind::Limit, text));
    }
    let busy = |_| Error::new(ErrorKind::Unavailable, "too many large bodies at a time");
    budget.grow(&mut share, bytes).map_err(busy)?;
    Ok(share)
}

/// The most that a result takes.
#[derive(Clone, Copy, Default)]
struct Size {
    json: usize,
    /// Of memory, beside the texts.
    values: usize,
}

impl Size {
    fn of(json: usize) -> Self {
        Size { json, values: VALUE_BYTES }
    }

    fn and(self, other: Self) -> Self {
        Size { json: self.json.saturating_add(other.json), values: self.values.saturating_add(other.values) }
    }
}

fn size(value: &script::Value) -> Size {
    match value {
        script::Value::Nil | script::Value::Boolean(_) => Size::of("false".len()),
        script::Value::Integer(number) => Size::of(number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 2),
        script::Value::Double(_) | script::Value::CommitPosition => Size::of(NUMBER_BYTES),
        script::Value::Text(text) | script::Value::Status(text) => Size::of(text_bytes(text)),
        script::Value::Error(text) => {
            Size { json: text_bytes(text) + r#"{"err":}"#.len(), values: 2 * VALUE_BYTES + MAP_BYTES }
        }
        script::Value::Array(values) | script::Value::Set(values) => {
            values.iter().fold(Size::of("[]".len()), |all, item| all.and(size(item)).and(Size { json: 1, values: 0 }))
        }
        script::Value::Map(pairs) => {
            let empty = Size { json: "{}".len(), values: VALUE_BYTES + MAP_BYTES };
            let field = Size { json: "[,],".len(), values: FIELD_BYTES };
            pairs.iter().fold(empty, |all, (name, held)| all.and(size(name)).and(size(held)).and(field))
        }
    }
}

/// A text between its quotes, or bytes in base64.
pub(crate) fn text_bytes(text: &[u8]) -> usize {
    if std::str::from_utf8(text).is_err() {
        return r#"{"$bytes":""}"#.len() + text.len().div_ceil(3) * 4;
    }
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' => 2,
        0..0x20 | 0x7f => 6,
        _ => 1,
    };
    2 + text.iter().map(escaped).sum::<usize>()
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

/// A text as JSON has it.
pub(crate) fn bytes(text: Vec<u8>) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_no_less_than_the_json_has() {
        let text = |text: &str| script::Value::Text(text.into());
        let values = vec![
            script::Value::Nil,
            script::Value::Boolean(true),
            script::Value::Integer(i64::MIN),
            script::Value::Integer(0),
            script::Value::Double(f64::MIN),
            script::Value::Double(-f64::MIN_POSITIVE),
            script::Value::Double(f64::NAN),
            script::Value::CommitPosition,
            text("\u{1}\u{7f}\"\\/\n\u{2028}é"),
            script::Value::Text(vec![0xff; 100]),
            script::Value::Status(b"OK".to_vec()),
            script::Value::Error(b"ERR no".to_vec()),
            script::Value::Map(vec![(text("a"), text("b")), (text("c"), script::Value::Nil)]),
            script::Value::Map(vec![(script::Value::Integer(1), text("b"))]),
            script::Value::Set(vec![text("a")]),
        ];
        for one in values.iter().chain([&script::Value::Array(values.clone())]) {
            let (counted, json) = (size(one).json, value(one.clone(), u64::MAX).to_json());
            assert!(counted >= json.len(), "{counted} < {}: {json}", json.len());
        }
    }
}
