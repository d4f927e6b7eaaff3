//! A batch as JSON. docs/reference/http.md describes it for users.
//!
//! May use: the facade, `fields`, `space_json`, `crate::line`'s numbers. Must not know: rights, how operations are done.

use axum::http::StatusCode;
use holdfast::space::{Document, Lease, Value};
use holdfast::{Condition, Store};

use super::operation::{Operation, Point, Previous, Which};
use super::{Fault, noted};
use crate::http::failure::Failure;
use crate::http::fields::Fields;
use crate::http::object::{Expiry, Name};
use crate::http::space::Place;
use crate::http::{base64, event_json, space_json};
use crate::line::{Unit, time};

/// The database of points that name none.
const DATABASE: &str = "default";

/// The operations of a body, and how durable it wants them to be.
pub(super) fn batch(
    body: &[u8],
    operations_max: usize,
    store: &Store,
) -> Result<(Vec<Operation>, Option<String>), Fault> {
    let mut fields = Fields::parse(body)?;
    let operations = fields.list("operations")?;
    let durability = fields.text("durability")?;
    fields.end()?;
    Ok((read_all(operations, operations_max, store)?, durability))
}

/// The operations of a body that happen in an open transaction, and for how many milliseconds they may wait for locked entries.
pub(super) fn within(
    body: &[u8],
    operations_max: usize,
    store: &Store,
) -> Result<(Vec<Operation>, Option<u64>), Fault> {
    let mut fields = Fields::parse(body)?;
    let operations = fields.list("operations")?;
    let lock_timeout_ms = fields.number("lock_timeout_ms")?;
    fields.end()?;
    Ok((read_all(operations, operations_max, store)?, lock_timeout_ms))
}

fn read_all(operations: Vec<Value>, operations_max: usize, store: &Store) -> Result<Vec<Operation>, Fault> {
    if operations.is_empty() {
        return Err(Failure::bad("operations has to be a list of at least one operation").into());
    }
    if operations.len() > operations_max {
        let text = format!("a batch has {operations_max} operations at the most, not {}", operations.len());
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text).into());
    }
    // One by one: all of them are there before the first happens.
    let read = |(number, value)| operation(value, store).and_then(|it| it.kept(store)).map_err(Fault::of(number));
    operations.into_iter().enumerate().map(read).collect()
}

const UNKNOWN: &str = "an operation is an object with one of write, read, take, change, change_all, renew, delete, count, select, clear, put, get, points and acknowledge";

fn operation(value: Value, store: &Store) -> Result<Operation, Failure> {
    let (word, value) = Fields::of("an operation", value)?.only().ok_or_else(|| Failure::bad(UNKNOWN))?;
    if word == "points" {
        let Value::List(points) = value else { return Err(Failure::bad("points has to be a list")) };
        return Ok(Operation::Points(points.into_iter().map(point).collect::<Result<_, _>>()?));
    }
    let mut fields = Fields::of(&word, value)?;
    let operation = match word.as_str() {
        "write" => write(&mut fields)?,
        "read" => Operation::Read(which(&mut fields, store, Takes::Conditions)?),
        "take" => take(&mut fields, store)?,
        "change" => change(&mut fields, store)?,
        "change_all" => {
            let which = which(&mut fields, store, Takes::Nothing)?;
            let (changes, lease) = (space_json::changes_of(&mut fields)?, fields.lease()?);
            Operation::ChangeAll { which, changes, lease }
        }
        "delete" if fields.has("space") => Operation::Remove(one(&mut fields, store, &word)?),
        "delete" => Operation::Delete { name: name(&mut fields)?, condition: condition(&mut fields)? },
        "renew" => {
            Operation::Renew { which: one_of(&mut fields, store, &word, Takes::Nothing)?, lease: renewed(&mut fields)? }
        }
        "select" => {
            let (place, sql) = (place(&mut fields)?, fields.needed_text("sql")?);
            Operation::Select { place, sql, parameters: fields.list("parameters")? }
        }
        "count" => Operation::Count(which(&mut fields, store, Takes::Nothing)?),
        "clear" => Operation::Clear(which(&mut fields, store, Takes::Nothing)?),
        "put" => put(&mut fields)?,
        "acknowledge" => {
            let (place, name) = (place(&mut fields)?, fields.needed_text("name")?);
            Operation::Acknowledge { place, name, bookmark: event_json::bookmark(&fields.needed_text("bookmark")?)? }
        }
        "get" => Operation::Get(name(&mut fields)?),
        _ => return Err(Failure::bad(UNKNOWN)),
    };
    fields.end()?;
    Ok(operation)
}

fn place(fields: &mut Fields) -> Result<Place, Failure> {
    Ok(Place { space: fields.needed_text("space")?, name: fields.needed_text("type")? })
}

/// Whether an operation that finds entries may ask for a version, and for there being one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Conditions,
}

fn which(fields: &mut Fields, store: &Store, takes: Takes) -> Result<Which, Failure> {
    let place = place(fields)?;
    let is_id = fields.has("id");
    let wanted = space_json::wanted(fields, store)?;
    let (version, is_needed) = match takes {
        Takes::Nothing => (None, false),
        Takes::Conditions => (fields.version("if_version")?, fields.flag("present")?),
    };
    if version.is_some() && !is_id {
        return Err(Failure::bad("if_version is of one entry, by its id"));
    }
    Ok(Which { place, wanted, version, is_needed })
}

/// Which entry, by its id.
fn one(fields: &mut Fields, store: &Store, word: &str) -> Result<Which, Failure> {
    one_of(fields, store, word, Takes::Conditions)
}

fn one_of(fields: &mut Fields, store: &Store, word: &str, takes: Takes) -> Result<Which, Failure> {
    if !fields.has("id") {
        return Err(Failure::bad(format!("{word} needs the id of the entry")));
    }
    which(fields, store, takes)
}

/// The lease of an operation that does nothing else.
fn renewed(fields: &mut Fields) -> Result<Lease, Failure> {
    match fields.lease()? {
        Lease::Default => Err(Failure::bad("renew needs lease_ms: a number of milliseconds, at least 1, or forever")),
        lease => Ok(lease),
    }
}

fn write(fields: &mut Fields) -> Result<Operation, Failure> {
    let place = place(fields)?;
    let document = match fields.take("document") {
        Some(Value::Map(fields)) => Document::new(&fields),
        _ => return Err(Failure::bad("document has to be an object")),
    };
    let (mode, version) = (space_json::mode(fields)?, fields.version("if_version")?);
    let previous = previous(fields)?;
    Ok(Operation::Write { place, document, mode, version, lease: fields.lease()?, previous })
}

/// Whether what was there before is wanted.
fn previous(fields: &mut Fields) -> Result<Previous, Failure> {
    Ok(if fields.flag("previous")? { Previous::Told } else { Previous::Left })
}

fn take(fields: &mut Fields, store: &Store) -> Result<Operation, Failure> {
    let which = which(fields, store, Takes::Conditions)?;
    let limit = if fields.has("limit") { Some(space_json::limit(fields, &which.wanted, 1)?) } else { None };
    Ok(Operation::Take { which, limit })
}

fn change(fields: &mut Fields, store: &Store) -> Result<Operation, Failure> {
    let which = one(fields, store, "change")?;
    let (changes, lease, previous) = (space_json::changes_of(fields)?, fields.lease()?, previous(fields)?);
    Ok(Operation::Change { which, changes, lease, previous })
}

fn name(fields: &mut Fields) -> Result<Name, Failure> {
    let mut part = |name: &str| {
        let part = fields.bytes(name)?.ok_or_else(|| Failure::bad(format!("{name} is missing")))?;
        if part.is_empty() { Err(Failure::bad(format!("{name} is empty"))) } else { Ok(part) }
    };
    let name = Name { bucket: part("bucket")?, key: part("key")? };
    match name.bucket.first() {
        Some(0) => Err(Failure::bad("buckets whose names begin with the byte 00 are the store's own")),
        _ => Ok(name),
    }
}

fn condition(fields: &mut Fields) -> Result<Condition, Failure> {
    match (fields.flag("absent")?, fields.flag("present")?, fields.version("if_version")?) {
        (false, false, None) => Ok(Condition::None),
        (true, false, None) => Ok(Condition::Absent),
        (false, true, None) => Ok(Condition::Present),
        (false, _, Some(version)) => Ok(Condition::Version(version)),
        _ => Err(Failure::bad("absent goes with neither present nor if_version")),
    }
}

fn put(fields: &mut Fields) -> Result<Operation, Failure> {
    let name = name(fields)?;
    let value = match (fields.bytes("value")?, fields.text("value_base64")?) {
        (Some(value), None) => value,
        (None, Some(text)) => {
            base64::decode(text.as_bytes()).ok_or_else(|| Failure::bad("value_base64 does not decode"))?
        }
        _ => return Err(Failure::bad("put needs value or value_base64")),
    };
    let (metadata, indexes) = (noted::metadata_of(fields)?, noted::indexes_of(fields)?);
    let expiry = match fields.take("ttl") {
        None => Expiry::Never,
        Some(Value::String(text)) if text == "keep" => Expiry::Keep,
        Some(Value::I64(seconds)) if seconds > 0 => Expiry::AfterMs(seconds.unsigned_abs().saturating_mul(1000)),
        Some(_) => return Err(Failure::bad("ttl is a number of seconds, at least 1, or keep")),
    };
    Ok(Operation::Put { name, value, metadata, indexes, expiry, condition: condition(fields)? })
}

fn point(value: Value) -> Result<Point, Failure> {
    use holdfast::series::{FIELD_DEFAULT, Value as Number};
    let mut fields = Fields::of("a point", value)?;
    let database = fields.text("database")?.unwrap_or_else(|| DATABASE.to_owned());
    if database.is_empty() {
        return Err(Failure::bad("database is empty: leave it out for the database default"));
    }
    let metric = fields.needed_text("metric")?;
    let field = fields.text("field")?.unwrap_or_else(|| FIELD_DEFAULT.to_owned());
    let tags = match fields.take("tags") {
        None => Vec::new(),
        Some(Value::Map(tags)) => tags.into_iter().map(tag).collect::<Result<_, _>>()?,
        Some(_) => return Err(Failure::bad("tags has to be an object of texts")),
    };
    let time = match fields.take("timestamp") {
        None => None,
        Some(at @ (Value::I64(_) | Value::F64(_))) => Some(moment(&at.to_json())?),
        Some(Value::String(at)) => Some(moment(&at)?),
        Some(_) => return Err(Failure::bad(WRONG_TIME)),
    };
    let value = match fields.take("value") {
        Some(Value::I64(number)) => Number::Integer(number),
        Some(Value::U64(number)) => Number::Unsigned(number),
        Some(Value::F64(number)) if number.is_finite() => Number::Float(number),
        Some(Value::Bool(is)) => Number::Boolean(is),
        Some(Value::String(text)) => Number::Text(text.as_str().into()),
        _ => return Err(Failure::bad("the value of a point is a number, true, false or a text")),
    };
    fields.end()?;
    Ok(Point { database, metric, tags, field, time, value })
}

const WRONG_TIME: &str = "timestamp is seconds since 1970, or with 13, 16 or 19 digits ms, us or ns";

fn moment(text: &str) -> Result<i64, Failure> {
    time(text.as_bytes(), Unit::Digits).map_err(|wrong| Failure::bad(format!("{WRONG_TIME}: {wrong}")))
}

fn tag((name, value): (String, Value)) -> Result<(String, String), Failure> {
    match value {
        Value::String(value) => Ok((name, value)),
        value @ (Value::Bool(_) | Value::I64(_) | Value::U64(_) | Value::F64(_)) => Ok((name, value.to_json())),
        _ => Err(Failure::bad(format!("the tag {name} has to be a text"))),
    }
}
