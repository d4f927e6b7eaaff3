//! What is noted on an object, as headers and back.
//!
//!   Content-Type: V              metadata `:content-type`; none is application/octet-stream
//!   Content-Encoding: V          metadata `:content-encoding`
//!   X-Riak-Meta-NAME: V          metadata `name`; a header's name has no case, so it is stored in lower case
//!   X-Holdfast-Meta64-NAME: V    metadata `name` whose value, here in base64, no header can carry
//!
//! A name that other doors gave and that no header can have is percent-encoded in the header's name.
//!
//! May use: `base64`, `failure`, `uri`. Must not know: where metadata is kept.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use holdfast::Metadata;

use super::failure::Failure;
use super::{base64, uri};

const META: &str = "x-riak-meta-";
const META64: &str = "x-holdfast-meta64-";
/// No header's name begins with a colon, so these are never a client's own names.
pub(crate) const TYPE_NAME: &[u8] = b":content-type";
const ENCODING_NAME: &[u8] = b":content-encoding";
const TYPE_DEFAULT: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// The metadata that a request's headers say.
///
/// # Errors
/// 415 when the content type is none; 400 when a name or base64 does not decode; 431 when all together has more than
/// `bytes_max` bytes.
pub(crate) fn parse(headers: &HeaderMap, bytes_max: usize) -> Result<Metadata, Failure> {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if let Some(value) = headers.get(CONTENT_TYPE) {
        check_type(value.as_bytes())?;
        pairs.push((TYPE_NAME.to_vec(), value.as_bytes().to_vec()));
    }
    if let Some(value) = headers.get(CONTENT_ENCODING) {
        pairs.push((ENCODING_NAME.to_vec(), value.as_bytes().to_vec()));
    }
    for name in headers.keys() {
        let (rest, is_base64) = match (name.as_str().strip_prefix(META), name.as_str().strip_prefix(META64)) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => continue,
        };
        let bad = || Failure::bad(format!("the header {name} does not decode"));
        let key = uri::decode(rest.as_bytes()).filter(|key| !key.is_empty()).ok_or_else(bad)?;
        let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        let value = lines.join(&b", "[..]);
        let value = if is_base64 { base64::decode(&value).ok_or_else(bad)? } else { value };
        pairs.push((key, value));
    }
    let metadata = Metadata::from_pairs(pairs);
    if metadata.len() > bytes_max {
        let text = format!("the metadata has {} bytes; the limit is {bytes_max}", metadata.len());
        return Err(Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
    }
    Ok(metadata)
}

/// Refuses what is no media type.
///
/// # Errors
/// 415.
pub(crate) fn check_type(kind: &[u8]) -> Result<(), Failure> {
    if is_media_type(kind) {
        return Ok(());
    }
    let text = "the Content-Type is no media type, such as text/plain";
    Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

/// Adds the headers that say this metadata.
pub(crate) fn write(metadata: &Metadata, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, TYPE_DEFAULT);
    for (name, value) in metadata.iter() {
        let plain = header_value(value);
        match (name, &plain) {
            (TYPE_NAME, Some(value)) => drop(headers.insert(CONTENT_TYPE, value.clone())),
            (ENCODING_NAME, Some(value)) => drop(headers.insert(CONTENT_ENCODING, value.clone())),
            _ => {
                let prefix = if plain.is_some() { META } else { META64 };
                let value = plain.or_else(|| HeaderValue::from_str(&base64::encode(value)).ok());
                let name = HeaderName::from_bytes(format!("{prefix}{}", uri::encode_name(name)).as_bytes());
                // A name too long for any header is left out; `KV.HEAD` shows it.
                if let (Ok(name), Some(value)) = (name, value) {
                    headers.insert(name, value);
                }
            }
        }
    }
}

/// The bytes as a header's value, if one can carry them just so: parsers take blanks at the ends away.
pub(crate) fn header_value(bytes: &[u8]) -> Option<HeaderValue> {
    let is_trimmed = bytes.trim_ascii().len() == bytes.len();
    HeaderValue::from_bytes(bytes).ok().filter(|_| is_trimmed)
}

/// Whether this is `type/subtype`, with or without parameters, which may say anything.
fn is_media_type(text: &[u8]) -> bool {
    let media = text.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let mut parts = media.split(|byte| *byte == b'/');
    let is_token = |part: &[u8]| !part.is_empty() && HeaderName::from_bytes(part).is_ok();
    parts.next().is_some_and(is_token) && parts.next().is_some_and(is_token) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"));
        }
        map
    }

    fn parsed(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        parse(&headers(lines), 1000).unwrap().iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn headers_become_metadata_under_names_that_other_doors_see() {
        let lines = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("CONTENT-ENCODING", "gzip"),
            ("X-Riak-Meta-Owner", "ada"),
            ("x-riak-meta-owner", "bob"),
            ("x-riak-meta-%41", "100%25"),
            ("X-Holdfast-Meta64-raw", "AAEK"),
            ("X-Other", "no"),
        ];
        let wanted = [
            (":content-encoding", "gzip"),
            (":content-type", "text/plain; charset=utf-8"),
            ("A", "100%25"),
            ("owner", "ada, bob"),
            ("raw", "\0\u{1}\n"),
        ];
        assert_eq!(parsed(&lines), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_does_not_decode_is_refused_with_the_right_status() {
        for (name, value, wanted) in [
            ("content-type", "text", 415),
            ("content-type", "", 415),
            ("content-type", "/", 415),
            ("content-type", "a/b/c", 415),
            ("content-type", "a b/c", 415),
            ("x-riak-meta-", "x", 400),
            ("x-riak-meta-%4", "x", 400),
            ("x-holdfast-meta64-a", "!", 400),
            ("x-riak-meta-a", &"x".repeat(2000), 431),
        ] {
            let failure = parse(&headers(&[(name, value)]), 1000).unwrap_err();
            assert_eq!(failure.status(), wanted, "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn any_metadata_comes_back_from_its_headers(
            pairs in proptest::collection::btree_map(
                proptest::collection::vec(any::<u8>(), 1..12), proptest::collection::vec(any::<u8>(), 0..12), 0..6)
        ) {
            let metadata = Metadata::from_pairs(pairs.clone());
            let mut map = HeaderMap::new();
            write(&metadata, &mut map);
            map.remove(CONTENT_TYPE);
            prop_assert_eq!(parse(&map, 10_000).unwrap(), metadata);
        }
    }
}
