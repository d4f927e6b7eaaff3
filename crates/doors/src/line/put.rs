//! OpenTSDB's line: `put <metric> <time> <value> <name>=<value> ...`, and that of its files, which has no `put`.
//!
//! Words are parted by blanks or tabs. Names are any UTF-8 without these, which is wider than OpenTSDB's letters. The time
//! is a number whose digits say its unit. The value is an integer, or a double if it has a point, an exponent, or is NaN
//! or an infinity. There may be no tags.
//!
//! May use: `number`, `wire`, the facade's `Rows`. Must not know: sockets.

use std::borrow::Cow;

use holdfast::series::{Rows, SeriesError, ValueRef};
use memchr::memchr2;

use super::number::{Number, Unit, advice, number, time};
use super::wire::excerpt;

/// The name of a row: metric and tags as they were sent, with the value between them left out. It begins with a blank, so that
/// it is no name of another protocol.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    name: Vec<u8>,
}

/// The first word, and what follows the blanks behind it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr2(b' ', b'\t', text).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, &[]));
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (word, rest.get(blanks..).unwrap_or_default())
}

/// Whether a line without leading blanks has this shape.
pub(crate) fn is_put(line: &[u8]) -> bool {
    match line.strip_prefix(b"put") {
        Some([]) => true,
        Some(rest @ [b' ' | b'\t', ..]) => !word(rest.trim_ascii_start()).0.contains(&b'='),
        _ => false,
    }
}

/// Whether a line without leading blanks is one of those that `tsdb scan --import` writes: metric, time, value, and a tag at least. The
/// second word of an Influx line has a `=`, and a command has none at all.
pub(crate) fn is_import(line: &[u8]) -> bool {
    let (metric, rest) = word(line);
    let (at, rest) = word(rest);
    let (value, tags) = word(rest);
    !metric.iter().any(|byte| b",=".contains(byte))
        && time(at, Unit::Digits).is_ok()
        && number(value).is_some()
        && word(tags).0.contains(&b'=')
}

impl Reader {
    /// Adds the point of a line that [`is_put`], or [`is_import`].
    ///
    /// # Errors
    /// What is wrong, and what would be right: nothing was added.
    pub(crate) fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), Cow<'static, str>> {
        let rest = if is_put(line) { line.strip_prefix(b"put").unwrap_or_default() } else { line };
        let (metric, rest) = word(rest.trim_ascii_start());
        let (at, rest) = word(rest);
        let (value, tags) = word(rest);
        if value.is_empty() {
            return Err(
                "not enough arguments: put needs a metric, a time and a value, and then tags, such as put cpu \
                        1356998400 1.5 host=a"
                    .into(),
            );
        }
        let at = time(at, Unit::Digits).map_err(|wrong| {
            format!(
                "invalid time '{}': {wrong}; write seconds since 1970, or with 13, 16 or 19 digits ms, us or ns",
                excerpt(at)
            )
        })?;
        let value = number(value).ok_or_else(|| {
            let advice = advice(value, "write a number such as 7, 1.5, -2e9 or NaN");
            format!("invalid value '{}': {advice}", excerpt(value))
        })?;
        self.name.clear();
        self.name.push(b' ');
        self.name.extend_from_slice(metric);
        self.name.push(b' ');
        self.name.extend_from_slice(tags.trim_ascii_end());
        let refused = |error: SeriesError| Cow::Owned(error.to_string());
        let slot = rows.series(&self.name, name).map_err(refused)?;
        match value {
            Number::Float(value) => rows.push_float(slot, at, value),
            Number::Integer(value) => rows.push(slot, at, ValueRef::Integer(value)),
        }
        Ok(())
    }
}

/// Metric and tags of a name.
fn name(raw: &[u8]) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let raw = raw.strip_prefix(b" ").unwrap_or(raw);
    let (metric, mut rest) = word(raw);
    let mut tags = Vec::new();
    while !rest.is_empty() {
        let (tag, after) = word(rest);
        rest = after;
        let tag = text(tag)?;
        let (name, value) = tag
            .split_once('=')
            .ok_or_else(|| SeriesError::invalid(format!("invalid tag '{tag}': a tag is a name, = and a value")))?;
        tags.push((name.to_owned(), value.to_owned()));
    }
    Ok((text(metric)?, tags))
}

fn text(bytes: &[u8]) -> Result<String, SeriesError> {
    let wrong = || SeriesError::invalid(format!("'{}' is not UTF-8", excerpt(bytes)));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong())?;
    if text.chars().any(char::is_control) {
        return Err(SeriesError::invalid(format!("'{}' has control characters", excerpt(bytes))));
    }
    Ok(text.to_owned())
}
