//! Prometheus' text format: `<metric>{<label>="<value>",...} <value> [<time>]`, a line for each point.
//!
//! Times are milliseconds since 1970; a line without one is of now, or of `timestamp` in the query. What begins with `#` is
//! ignored, behind a value too. Labels become tags, and those of `extra_label` are added, and beat the line's own.
//!
//! May use: `crate::line`'s numbers, the facade's `series`. Must not know: HTTP.

use std::borrow::Cow;

use holdfast::series::{Rows, SeriesError};
use memchr::memchr;

use crate::line::{Unit, advice, excerpt, number, time};

/// Nanoseconds of one.
pub(crate) const MILLISECOND: i64 = 1_000_000;
const SHAPE: &str = "write metric{label=\"value\"} value";

/// Labels that are added to all points of a request.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    labels: Vec<(String, String)>,
    /// What distinguishes names with these labels from those with others.
    raw: Vec<u8>,
}

impl Extra {
    /// Adds a label, `<name>=<value>`; `None` when it is none.
    pub(crate) fn push(&mut self, parameter: &[u8]) -> Option<()> {
        let (name, value) = std::str::from_utf8(parameter).ok()?.split_once('=')?;
        self.labels.push((name.to_owned(), value.to_owned()));
        self.raw.extend_from_slice(parameter);
        self.raw.push(b'\n');
        Some(())
    }

    /// Writes what names of series are known by: `kind`, these labels, and the name as it was sent.
    pub(super) fn name(&self, kind: &[u8], raw: &[u8], to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(kind);
        to.extend_from_slice(&self.raw);
        to.push(b'\n');
        to.extend_from_slice(raw);
    }

    /// The tags with these labels, which beat them. An empty label is as good as none, says Prometheus.
    pub(super) fn add_to(&self, tags: &mut Vec<(String, String)>) {
        for (name, value) in &self.labels {
            tags.retain(|(other, _)| other != name);
            tags.push((name.clone(), value.clone()));
        }
        tags.retain(|(_, value)| !value.is_empty());
    }
}

/// Where the name with its labels ends.
fn name_end(line: &[u8]) -> Option<usize> {
    let is_end = |byte: &u8| matches!(byte, b'{' | b' ' | b'\t');
    let end = line.iter().position(is_end)?;
    let blanks = line.get(end..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    if line.get(end + blanks) != Some(&b'{') {
        return Some(end);
    }
    let (mut at, mut is_quoted) = (end + blanks + 1, false);
    loop {
        match line.get(at)? {
            b'\\' if is_quoted => at += 1,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}

/// Adds the point of a line that is neither empty nor a comment; without a time it is of `now`. `name` is memory for its name.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn add(
    line: &[u8],
    extra: &Extra,
    now: i64,
    name: &mut Vec<u8>,
    rows: &mut Rows,
) -> Result<(), Cow<'static, str>> {
    let end = name_end(line).ok_or(SHAPE)?;
    let (raw, rest) = line.split_at_checked(end).ok_or(SHAPE)?;
    // An exemplar.
    let rest = memchr(b'#', rest).and_then(|at| rest.get(..at)).unwrap_or(rest);
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let value = words.next().ok_or(SHAPE)?;
    let value = number(value).ok_or_else(|| {
        let advice = advice(value, "write a number such as 7, 1.5, NaN or +Inf");
        format!("invalid value '{}': {advice}", excerpt(value))
    })?;
    let at = match words.next() {
        None => now,
        Some(at) => time(at, Unit::Nanos(MILLISECOND)).map_err(|wrong| {
            format!("invalid timestamp '{}': {wrong}; it is in milliseconds since 1970", excerpt(at))
        })?,
    };
    if let Some(more) = words.next() {
        return Err(format!("'{}' is too much: a line ends with its timestamp", excerpt(more)).into());
    }
    extra.name(b"\np", raw, name);
    let refused = |error: SeriesError| Cow::Owned(error.to_string());
    let slot = rows.series(name, |_| names(raw, extra)).map_err(refused)?;
    rows.push_float(slot, at, value.float());
    Ok(())
}

/// Metric and labels of a name.
fn names(raw: &[u8], extra: &Extra) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let text = std::str::from_utf8(raw).map_err(|_| SeriesError::invalid("the name is not UTF-8"))?;
    let (metric, labels) = text.split_once('{').unwrap_or((text, ""));
    let mut rest = labels.strip_suffix('}').unwrap_or(labels).trim_start();
    let mut metric = metric.trim().to_owned();
    let mut tags: Vec<(String, String)> = Vec::new();
    let shape = || SeriesError::invalid("a label is a name, = and a value in quotes");
    while !rest.is_empty() {
        // `{"a metric of any letters", label="value"}` is how names that are no words are written.
        if metric.is_empty() && rest.starts_with('"') {
            let after;
            (metric, after) = quoted(rest).ok_or_else(shape)?;
            rest = next(after).ok_or_else(shape)?;
            continue;
        }
        let (name, after) = match rest.starts_with('"') {
            true => {
                let (name, after) = quoted(rest).ok_or_else(shape)?;
                (name, after.trim_start().strip_prefix('=').ok_or_else(shape)?)
            }
            false => {
                let (name, after) = rest.split_once('=').ok_or_else(shape)?;
                (name.trim_end().to_owned(), after)
            }
        };
        let (value, after) = quoted(after.trim_start()).ok_or_else(shape)?;
        rest = next(after).ok_or_else(shape)?;
        tags.push((name, value));
    }
    // `promtool tsdb dump` writes `{__name__="up", ...}`.
    if let Some(at) = tags.iter().position(|(name, _)| metric.is_empty() && name == "__name__") {
        metric = tags.swap_remove(at).1;
    }
    extra.add_to(&mut tags);
    Ok((metric, tags))
}

/// What comes behind a comma, or nothing at the end.
fn next(text: &str) -> Option<&str> {
    let text = text.trim_start();
    if text.is_empty() { Some(text) } else { text.strip_prefix(',').map(str::trim_start) }
}

/// The text in quotes that `text` begins with, and what comes behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (at, '"') => return Some((value, text.get(at + 1..)?)),
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => {
                    if !matches!(other, '"' | '\\') {
                        value.push('\\');
                    }
                    value.push(other);
                }
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
mod tests;
