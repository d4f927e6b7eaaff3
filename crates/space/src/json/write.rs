//! What is stored as JSON text: see `json.rs`.
//!
//! Strings were checked when they were stored, so they are copied as bytes, and looked through for what JSON escapes by many bytes at once:
//! most of a document is text.
//!
//! May use: `base64`, `timestamp`, `value`. Must not know: documents.

use base::Fields;

use crate::base64;
use crate::timestamp;
use crate::value::{ListRef, MapRef, ValueRef, text_bytes};

/// Bytes of text that are looked through at once.
const AT_ONCE: usize = 32;

/// Appends stored fields as an object.
pub(super) fn put_fields(mut fields: Fields<'_>, to: &mut Vec<u8>) {
    to.push(b'{');
    let mut is_first = true;
    while let Some(name) = fields.string() {
        if !is_first {
            to.push(b',');
        }
        is_first = false;
        put_text(name, to);
        to.push(b':');
        put(&mut fields, to);
    }
    to.push(b'}');
}

/// Appends one stored value.
pub(super) fn put(from: &mut Fields<'_>, to: &mut Vec<u8>) {
    if let Some(text) = text_bytes(from) {
        return put_text(text, to);
    }
    // What is stored is whole: a document is checked when it comes, and by its checksum later.
    match ValueRef::read(from).unwrap_or(ValueRef::Null) {
        ValueRef::Null => to.extend_from_slice(b"null"),
        ValueRef::Bool(false) => to.extend_from_slice(b"false"),
        ValueRef::Bool(true) => to.extend_from_slice(b"true"),
        ValueRef::I64(number) => to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        ValueRef::U64(number) => to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        ValueRef::F64(number) if number.is_finite() => {
            to.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes());
        }
        ValueRef::F64(number) if number.is_nan() => put_single("$f64", "NaN", to),
        ValueRef::F64(number) => put_single("$f64", if number > 0.0 { "Infinity" } else { "-Infinity" }, to),
        ValueRef::Decimal(number) => put_single("$decimal", &number.to_string(), to),
        ValueRef::String(text) => put_text(text.as_bytes(), to),
        ValueRef::Bytes(bytes) => put_single("$bytes", &base64::encode(bytes), to),
        ValueRef::Timestamp(at) => put_single("$timestamp", &timestamp::to_text(at), to),
        ValueRef::List(ListRef(items)) => {
            let mut items = Fields(items);
            to.push(b'[');
            while !items.0.is_empty() {
                put(&mut items, to);
                if !items.0.is_empty() {
                    to.push(b',');
                }
            }
            to.push(b']');
        }
        ValueRef::Map(map) => put_map(map, to),
    }
}

/// Appends a map that is no document: one of the user's own that looks like one of ours has one more `$`.
fn put_map(map: MapRef<'_>, to: &mut Vec<u8>) {
    let mut fields = Fields(map.as_bytes());
    let mut after_first = fields;
    let first = after_first.string().filter(|name| name.starts_with(b"$"));
    if let Some(name) = first
        && crate::value::skip(&mut after_first).is_some()
        && after_first.0.is_empty()
    {
        to.push(b'{');
        put_text(&[b"$", name].concat(), to);
        to.push(b':');
        // Past the name.
        let _ = fields.string();
        put(&mut fields, to);
        return to.push(b'}');
    }
    put_fields(fields, to);
}

fn put_single(name: &str, text: &str, to: &mut Vec<u8>) {
    to.push(b'{');
    put_text(name.as_bytes(), to);
    to.push(b':');
    put_text(text.as_bytes(), to);
    to.push(b'}');
}

/// Appends a string.
fn put_text(mut text: &[u8], to: &mut Vec<u8>) {
    to.push(b'"');
    loop {
        let (plain, rest) = text.split_at_checked(plain_bytes(text)).unwrap_or((text, &[]));
        to.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else { break };
        put_escaped(byte, to);
        text = rest;
    }
    to.push(b'"');
}

fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// How many bytes come before the first that is escaped.
fn plain_bytes(text: &[u8]) -> usize {
    // Without a branch for each byte, which the compiler makes wide instructions of.
    let has_none = |chunk: &&[u8]| !chunk.iter().fold(false, |any, byte| any | is_escaped(*byte));
    let whole = text.chunks_exact(AT_ONCE).take_while(has_none).count() * AT_ONCE;
    let rest = text.get(whole..).unwrap_or_default();
    whole + rest.iter().position(|byte| is_escaped(*byte)).unwrap_or(rest.len())
}

fn put_escaped(byte: u8, to: &mut Vec<u8>) {
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            to.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            return;
        }
    };
    to.extend_from_slice(&[b'\\', short]);
}
