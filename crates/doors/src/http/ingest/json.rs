//! OpenTSDB's data points as JSON, read where they lie: an object, or an array of them.
//!
//! ```text
//! {"metric": "cpu", "timestamp": 1356998400, "value": 1.5, "tags": {"host": "a"}}
//! ```
//! Of each value only its bounds are found; names are decoded when they come for the first time. A data point that makes no
//! sense is passed over, and told; what is no JSON ends the reading. Keys that are not known are ignored.
//!
//! May use: `crate::line`'s numbers, the facade's `series`, serde_json. Must not know: HTTP.

use std::borrow::Cow;

use holdfast::series::{Rows, SeriesError, ValueRef};
use memchr::memchr2;
use serde_json::Value;

use crate::line::{Number, Unit, advice, excerpt, number, time};

/// How deep values may be in each other, in what is ignored.
const DEPTH_MAX: usize = 64;

/// Bytes that are no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoJson {
    /// Where.
    pub(crate) at: usize,
    /// What should be there.
    pub(crate) wanted: &'static str,
}

/// A data point's parts, as they were sent.
#[derive(Debug, Default)]
pub(crate) struct DataPoint<'t> {
    metric: Option<&'t [u8]>,
    timestamp: Option<&'t [u8]>,
    value: Option<&'t [u8]>,
    tags: Option<&'t [u8]>,
    /// All of it.
    pub(crate) whole: &'t [u8],
}

/// Reads data points, one after the other.
#[derive(Debug)]
pub(crate) struct DataPoints<'t> {
    text: &'t [u8],
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    /// Within an array, before its first data point, or behind one.
    First,
    Next,
    End,
}

impl<'t> DataPoints<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        DataPoints { text, at: 0, state: State::Begin }
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// Where it is no JSON.
    pub(crate) fn next(&mut self) -> Result<Option<DataPoint<'t>>, NoJson> {
        match (self.state, self.peek()) {
            (State::End, None) => return Ok(None),
            (State::End, Some(_)) => return Err(self.wanted("the end")),
            (State::Begin, Some(b'[')) => {
                self.at += 1;
                self.state = State::First;
                return self.next();
            }
            (State::First | State::Next, Some(b']')) => {
                self.at += 1;
                self.state = State::End;
                return self.next();
            }
            (State::Next, Some(b',')) => {
                self.at += 1;
                self.peek();
            }
            (State::Next, _) => return Err(self.wanted(", or ]")),
            (State::Begin | State::First, _) => {}
        }
        let point = self.object()?;
        self.state = if self.state == State::Begin { State::End } else { State::Next };
        Ok(Some(point))
    }

    fn wanted(&self, wanted: &'static str) -> NoJson {
        NoJson { at: self.at, wanted }
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                found => return found.copied(),
            }
        }
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), NoJson> {
        if self.peek() != Some(byte) {
            return Err(self.wanted(wanted));
        }
        self.at += 1;
        Ok(())
    }

    fn object(&mut self) -> Result<DataPoint<'t>, NoJson> {
        let mut point = DataPoint::default();
        point.whole = self.keys(|key, value| match key {
            b"\"metric\"" => point.metric = Some(value),
            b"\"timestamp\"" => point.timestamp = Some(value),
            b"\"value\"" => point.value = Some(value),
            b"\"tags\"" => point.tags = Some(value),
            _ => {}
        })?;
        Ok(point)
    }

    /// Goes behind an object, and gives each of its keys with its value. All of it.
    fn keys(&mut self, mut give: impl FnMut(&'t [u8], &'t [u8])) -> Result<&'t [u8], NoJson> {
        self.peek();
        let begin = self.at;
        self.expect(b'{', "{")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.wanted("a key in quotes"));
                }
                let key = self.value(0)?;
                self.expect(b':', ":")?;
                give(key, self.value(0)?);
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => {
                        self.at += 1;
                        break;
                    }
                    _ => return Err(self.wanted(", or }")),
                }
            }
        }
        Ok(self.text.get(begin..self.at).unwrap_or_default())
    }

    /// A value of any kind, with its quotes or braces.
    fn value(&mut self, depth: usize) -> Result<&'t [u8], NoJson> {
        if depth > DEPTH_MAX {
            return Err(self.wanted("values that are not so deep in each other"));
        }
        let first = self.peek();
        let begin = self.at;
        match first {
            Some(b'"') => self.string()?,
            Some(open @ (b'{' | b'[')) => {
                self.at += 1;
                let close = if open == b'{' { b'}' } else { b']' };
                if self.peek() == Some(close) {
                    self.at += 1;
                } else {
                    self.members(open, close, depth)?;
                }
            }
            _ => {
                let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let rest = self.text.get(begin..).unwrap_or_default();
                self.at += rest.iter().take_while(|byte| is_plain(byte)).count();
                if self.at == begin {
                    return Err(self.wanted("a value"));
                }
            }
        }
        Ok(self.text.get(begin..self.at).unwrap_or_default())
    }

    fn members(&mut self, open: u8, close: u8, depth: usize) -> Result<(), NoJson> {
        loop {
            if open == b'{' {
                if self.peek() != Some(b'"') {
                    return Err(self.wanted("a key in quotes"));
                }
                self.string()?;
                self.expect(b':', ":")?;
            }
            self.value(depth + 1)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.wanted("a comma, or the end of the value")),
            }
        }
    }

    /// Goes behind a string.
    fn string(&mut self) -> Result<(), NoJson> {
        let mut at = self.at + 1;
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            at += memchr2(b'"', b'\\', rest).ok_or_else(|| self.wanted("a string that ends"))?;
            if self.text.get(at) == Some(&b'"') {
                self.at = at + 1;
                return Ok(());
            }
            at += 2;
        }
    }
}

/// Gives each key of the object that `text` is, in its quotes, with its value as it was sent.
///
/// # Errors
/// Where it is no JSON.
pub(super) fn members<'t>(text: &'t [u8], give: impl FnMut(&'t [u8], &'t [u8])) -> Result<(), NoJson> {
    let mut scanner = DataPoints::new(text);
    scanner.keys(give)?;
    if scanner.peek().is_some() { Err(scanner.wanted("the end")) } else { Ok(()) }
}

/// What is between the quotes, if there are any.
pub(super) fn bare(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

impl DataPoint<'_> {
    /// Adds the point. `name` is memory for its name.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub(crate) fn add(&self, name: &mut Vec<u8>, rows: &mut Rows) -> Result<(), Cow<'static, str>> {
        let metric = self.metric.ok_or("there is no metric: it is a text")?;
        let at = bare(
            self.timestamp
                .ok_or("there is no timestamp: seconds since 1970, or with 13, 16 or 19 digits ms, us or ns")?,
        );
        let value = bare(self.value.ok_or("there is no value: it is a number")?);
        let at = time(at, Unit::Digits).map_err(|wrong| format!("invalid timestamp '{}': {wrong}", excerpt(at)))?;
        let value = number(value).ok_or_else(|| {
            let text = format!("unable to parse value '{}' to a number", excerpt(value));
            match advice(value, "") {
                "" => text,
                advice => format!("{text}: {advice}"),
            }
        })?;
        // A line end, so that it is no name of a line.
        name.clear();
        name.extend_from_slice(b"\nj");
        name.extend_from_slice(metric);
        name.push(b' ');
        name.extend_from_slice(self.tags.unwrap_or(b"null"));
        let refused = |error: SeriesError| Cow::Owned(error.to_string());
        let slot = rows.series(name, names).map_err(refused)?;
        match value {
            Number::Float(value) => rows.push_float(slot, at, value),
            Number::Integer(value) => rows.push(slot, at, ValueRef::Integer(value)),
        }
        Ok(())
    }
}

/// Metric and tags of a name.
fn names(raw: &[u8]) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let raw = raw.strip_prefix(b"\nj").unwrap_or(raw);
    let mut values = serde_json::Deserializer::from_slice(raw).into_iter::<Value>();
    let mut next = |what: &str| match values.next() {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(SeriesError::invalid(format!("{what} is no JSON: {error}"))),
        None => Ok(Value::Null),
    };
    let Value::String(metric) = next("the metric")? else {
        return Err(SeriesError::invalid("the metric is no text in quotes"));
    };
    let tags = match next("tags")? {
        Value::Null => Vec::new(),
        Value::Object(tags) => tags.into_iter().map(tag).collect::<Result<_, _>>()?,
        _ => return Err(SeriesError::invalid("tags are no object: write {\"name\":\"value\"}")),
    };
    Ok((metric, tags))
}

fn tag((name, value): (String, Value)) -> Result<(String, String), SeriesError> {
    match value {
        Value::String(value) => Ok((name, value)),
        Value::Number(value) => Ok((name, value.to_string())),
        Value::Bool(value) => Ok((name, value.to_string())),
        _ => Err(SeriesError::invalid(format!("the tag {name} has no text as its value"))),
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
