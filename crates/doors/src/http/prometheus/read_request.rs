//! `prometheus.ReadRequest`: what a remote read asks for.
//!
//! ```text
//! ReadRequest  1 queries*, 2 accepted types of answers*
//! Query        1 start, 2 end (milliseconds, both included), 3 matchers*
//! Matcher      1 type (0 =, 1 !=, 2 =~, 3 !~), 2 name, 3 value
//! ```
//! Answers are of the type 0, samples; the type 1, chunks that are streamed, is Prometheus' own form of storage. Other fields, such as
//! hints, are ignored.
//!
//! May use: `message`, the facade's `series`. Must not know: HTTP, series.

use std::fmt::Write as _;

use holdfast::series::Range;

use crate::http::message::{Field, NoMessage, field, varint};

/// Queries of one request: Prometheus sends one.
pub(crate) const QUERIES_MAX: usize = 100;
const NANOS_PER_MS: i64 = 1_000_000;
/// The type of answers that is given.
const SAMPLES: u64 = 0;

/// One question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// A selector as PromQL writes it.
    pub(crate) selector: String,
    pub(crate) range: Range,
}

/// The questions in a request.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn queries(body: &[u8]) -> Result<Vec<Query>, String> {
    let none = |NoMessage| "the body is no message prometheus.ReadRequest".to_owned();
    let (mut text, mut queries) = (body, Vec::new());
    // Whether any type is named, and whether that which is given is.
    let (mut names_any, mut names_samples) = (false, false);
    while let Some((key, value)) = field(&mut text).map_err(none)? {
        match (key, value) {
            (1, Field::Bytes(one)) => queries.push(query(one).map_err(none)??),
            (2, Field::Varint(kind)) => (names_any, names_samples) = (true, names_samples | (kind == SAMPLES)),
            // Numbers that are repeated may be packed.
            (2, Field::Bytes(mut kinds)) => {
                while !kinds.is_empty() {
                    (names_any, names_samples) = (true, names_samples | (varint(&mut kinds).map_err(none)? == SAMPLES));
                }
            }
            _ => {}
        }
        if queries.len() > QUERIES_MAX {
            return Err(format!("there are more than {QUERIES_MAX} queries"));
        }
    }
    if names_any && !names_samples {
        return Err("chunks are not sent here: accept answers of the type SAMPLES too".to_owned());
    }
    Ok(queries)
}

fn query(mut text: &[u8]) -> Result<Result<Query, String>, NoMessage> {
    let (mut start, mut end, mut selector) = (0, 0, String::from("{"));
    while let Some((key, value)) = field(&mut text)? {
        match (key, value) {
            (1, Field::Varint(ms)) => start = ms.cast_signed(),
            (2, Field::Varint(ms)) => end = ms.cast_signed(),
            (3, Field::Bytes(matcher)) => {
                if let Err(wrong) = write_matcher(matcher, &mut selector)? {
                    return Ok(Err(wrong));
                }
            }
            _ => {}
        }
    }
    selector.push('}');
    let from = start.saturating_mul(NANOS_PER_MS);
    // All of the last millisecond.
    let to = end.saturating_mul(NANOS_PER_MS).saturating_add(NANOS_PER_MS - 1);
    if to < from {
        return Ok(Err("a query ends before it starts".to_owned()));
    }
    Ok(Ok(Query { selector, range: Range { from, to } }))
}

/// Adds a matcher to a selector.
fn write_matcher(mut text: &[u8], selector: &mut String) -> Result<Result<(), String>, NoMessage> {
    let (mut kind, mut name, mut value) = (0, &b""[..], &b""[..]);
    while let Some((key, found)) = field(&mut text)? {
        match (key, found) {
            (1, Field::Varint(found)) => kind = found,
            (2, Field::Bytes(bytes)) => name = bytes,
            (3, Field::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    let operator = match kind {
        0 => "=",
        1 => "!=",
        2 => "=~",
        3 => "!~",
        _ => return Ok(Err("the type of a matcher is not known".to_owned())),
    };
    let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
        return Ok(Err("a matcher is not UTF-8".to_owned()));
    };
    let is_word = !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_word {
        return Ok(Err(format!("the label {name:?} cannot be asked for: its name is no word")));
    }
    let _ = write!(selector, "{name}{operator}\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => selector.extend(['\\', character]),
            '\n' => selector.push_str("\\n"),
            _ => selector.push(character),
        }
    }
    selector.push_str("\",");
    Ok(Ok(()))
}
