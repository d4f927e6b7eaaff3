//! The fields of a JSON object, taken out one by one: what is left over is not known, and said to be.
//!
//! A field that is null is as one that is not there.
//!
//! May use: the facade, `failure`. Must not know: what fields mean.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast::Position;
use holdfast::space::{Lease, Path, Value};

use super::failure::Failure;

/// What of an object was not taken out yet.
#[derive(Debug, Default)]
pub(crate) struct Fields(BTreeMap<String, Value>);

impl Fields {
    /// The object that a body is.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Failure> {
        Self::of("the body", Value::from_json(text).map_err(holdfast::Error::from)?)
    }

    /// `what` is a value.
    pub(crate) fn of(what: &str, value: Value) -> Result<Self, Failure> {
        match value {
            Value::Map(fields) => Ok(Fields(fields)),
            _ if what == "the body" => Err(Failure::bad("the body has to be a JSON object")),
            _ => Err(Failure::bad(format!("{what} has to be an object"))),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| *value != Value::Null)
    }

    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| *value != Value::Null)
    }

    /// A field that may be null.
    pub(crate) fn take_any(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// The one field that there has to be.
    pub(crate) fn only(self) -> Option<(String, Value)> {
        let mut all = self.0.into_iter();
        all.next().filter(|_| all.next().is_none())
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::bad(format!("{name} has to be a string"))),
        }
    }

    /// A text that has to be there.
    pub(crate) fn needed_text(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| Failure::bad(format!("{name} is missing")))
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let number = match self.take(name) {
            None => return Ok(None),
            Some(Value::I64(number)) => u64::try_from(number).ok(),
            Some(Value::U64(number)) => Some(number),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| Failure::bad(format!("{name} has to be a whole number")))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Failure::bad(format!("{name} has to be true or false"))),
        }
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Vec<Value>, Failure> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(Failure::bad(format!("{name} has to be a list"))),
        }
    }

    pub(crate) fn path(&mut self, name: &str) -> Result<Option<Path>, Failure> {
        self.text(name)?.map(|text| path(&text)).transpose()
    }

    /// A text, or bytes as `{"$bytes": base64}`.
    pub(crate) fn bytes(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.into_bytes())),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err(Failure::bad(format!("{name} has to be a string, or {{\"$bytes\": base64}}"))),
        }
    }

    /// `lease_ms`: how long an entry lives.
    pub(crate) fn lease(&mut self) -> Result<Lease, Failure> {
        let bad = || Failure::bad("lease_ms is a number of milliseconds, at least 1, or forever");
        match self.take("lease_ms") {
            None => Ok(Lease::Default),
            Some(Value::String(text)) if text == "forever" => Ok(Lease::Forever),
            Some(Value::I64(ms)) if ms > 0 => Ok(Lease::For(Duration::from_millis(ms.unsigned_abs()))),
            Some(_) => Err(bad()),
        }
    }

    /// A version, as answers have it: 16 hexadecimal digits.
    pub(crate) fn version(&mut self, name: &str) -> Result<Option<Position>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let digits =
            Some(text.as_str()).filter(|text| text.len() == 16 && text.bytes().all(|it| it.is_ascii_hexdigit()));
        let version = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let version = version.ok_or_else(|| Failure::bad(format!("{name} is a version: 16 hexadecimal digits")))?;
        Ok(Some(Position::new(version)))
    }

    pub(crate) fn end(self) -> Result<(), Failure> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Failure::bad(format!("{name} is not known here"))),
        }
    }
}

pub(crate) fn path(text: &str) -> Result<Path, Failure> {
    Ok(Path::parse(text).map_err(holdfast::Error::from)?)
}
