//! Secondary index entries of an object, as headers and back, and terms in paths.
//!
//!   X-Riak-Index-NAME_int: 1, 2          index `name`, integer terms 1 and 2
//!   X-Riak-Index-NAME_bin: a, "b, c"     index `name`, binary terms `a` and `b, c`
//!   X-Holdfast-Index64-NAME_bin: AAEK    index `name`, binary terms in base64 that no header can carry
//!
//! The suffix says the type of the terms and is no part of the index's name. A header may be there several times. A term
//! with a comma, a quote or blanks at its ends stands in double quotes, in which a double quote is doubled, as in CSV. A
//! header's name has no case, so names are stored in lower case; one that other doors gave and that no header can have is
//! percent-encoded in the header's name.
//!
//! May use: `base64`, `failure`, `uri`. Must not know: how indexes are kept and searched.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use holdfast::Term;

use super::failure::Failure;
use super::metadata::header_value;
use super::{base64, uri};

const INDEX: &str = "x-riak-index-";
const INDEX64: &str = "x-holdfast-index64-";
const INTEGER: &str = "_int";
const BINARY: &str = "_bin";

/// The type of an index's terms, which a suffix says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Binary,
}

impl Kind {
    /// What the names of such indexes end with.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Integer => INTEGER,
            Self::Binary => BINARY,
        }
    }
}

/// Takes the suffix off a name.
fn split_name(name: &[u8]) -> Option<(&[u8], Kind)> {
    let (name, kind) = match name.strip_suffix(INTEGER.as_bytes()) {
        Some(name) => (name, Kind::Integer),
        None => (name.strip_suffix(BINARY.as_bytes())?, Kind::Binary),
    };
    (!name.is_empty()).then_some((name, kind))
}

/// The index and the type that a segment of a path names, in lower case as headers store it.
///
/// # Errors
/// 400 when the suffix is missing.
pub(crate) fn index_of(segment: &[u8]) -> Result<(Vec<u8>, Kind), Failure> {
    let lower = segment.to_ascii_lowercase();
    let (name, kind) =
        split_name(&lower).ok_or_else(|| Failure::bad("an index is named NAME_int or NAME_bin, $key or $bucket"))?;
    Ok((name.to_vec(), kind))
}

/// A term in a path or a header.
///
/// # Errors
/// 400 when an integer is wanted and this is none.
pub(crate) fn term(kind: Kind, text: &[u8]) -> Result<Term, Failure> {
    if kind == Kind::Binary {
        return Ok(Term::Binary(text.to_vec()));
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    number.map(Term::Integer).ok_or_else(|| Failure::bad("a term of an _int index is a whole number of 64 bits"))
}

/// The index entries that a request's headers say.
///
/// # Errors
/// 400 when a name, a list or a number is badly formed.
pub(crate) fn parse(headers: &HeaderMap) -> Result<Vec<(Vec<u8>, Term)>, Failure> {
    let mut pairs = Vec::new();
    for (header, value) in headers {
        let (rest, is_base64) = match (header.as_str().strip_prefix(INDEX), header.as_str().strip_prefix(INDEX64)) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => continue,
        };
        let bad = |why: &str| Failure::bad(format!("the header {header} {why}"));
        let name = uri::decode(rest.as_bytes()).ok_or_else(|| bad("does not decode"))?;
        let (name, kind) = split_name(&name).ok_or_else(|| bad("ends neither in _int nor in _bin"))?;
        for text in items(value.as_bytes()).ok_or_else(|| bad("has a quote that does not end where an item does"))? {
            let text = match is_base64 {
                true => base64::decode(&text).ok_or_else(|| bad("does not decode"))?,
                false => text,
            };
            pairs.push((name.to_vec(), term(kind, &text)?));
        }
    }
    Ok(pairs)
}

/// The items of a list with commas between; `None` when a quote is not closed, or not at the end of its item.
fn items(list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    let mut rest = list.trim_ascii();
    while !rest.is_empty() {
        let after = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let (item, after) = unquote(quoted)?;
                items.push(item);
                let after = after.trim_ascii_start();
                if !after.is_empty() && !after.starts_with(b",") {
                    return None;
                }
                after
            }
            None => {
                let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
                let (item, after) = rest.split_at_checked(end)?;
                if !item.trim_ascii().is_empty() {
                    items.push(item.trim_ascii().to_vec());
                }
                after
            }
        };
        rest = after.strip_prefix(b",").unwrap_or(after).trim_ascii_start();
    }
    Some(items)
}

/// What stands before the closing quote, and what behind it.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut item, mut rest) = (Vec::new(), quoted);
    loop {
        rest = match rest {
            [b'"', b'"', after @ ..] => {
                item.push(b'"');
                after
            }
            [b'"', after @ ..] => return Some((item, after)),
            [byte, after @ ..] => {
                item.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

/// A term as an item of a list, if a header can carry it.
fn item(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_plain =
        header_value(bytes).is_some() && !bytes.is_empty() && !bytes.iter().any(|byte| b",\"".contains(byte));
    if is_plain {
        return Some(bytes.to_vec());
    }
    let mut quoted = vec![b'"'];
    for byte in bytes {
        if *byte == b'"' {
            quoted.push(b'"');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    header_value(&quoted).map(|_| quoted)
}

/// Adds the headers that say these entries.
pub(crate) fn write<'e>(entries: impl Iterator<Item = (&'e [u8], Term)>, headers: &mut HeaderMap) {
    let mut lists: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, term) in entries {
        let (prefix, suffix, item) = match term {
            Term::Integer(number) => (INDEX, INTEGER, number.to_string().into_bytes()),
            Term::Binary(bytes) => match item(&bytes) {
                Some(item) => (INDEX, BINARY, item),
                None => (INDEX64, BINARY, base64::encode(&bytes).into_bytes()),
            },
        };
        lists.entry(format!("{prefix}{}{suffix}", uri::encode_name(name))).or_default().push(item);
    }
    for (name, items) in lists {
        let name = HeaderName::from_bytes(name.as_bytes());
        // A name too long for any header is left out; other doors show it.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&items.join(&b", "[..]))) {
            headers.insert(name, value);
        }
    }
}

/// A term as text: the number, or the bytes as [`uri::show`] has them.
pub(crate) fn show(term: &Term) -> String {
    match term {
        Term::Integer(number) => number.to_string(),
        Term::Binary(bytes) => uri::show(bytes),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(lines: &[(&str, &str)]) -> Result<Vec<(String, Term)>, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"));
        }
        let text = |name: Vec<u8>| String::from_utf8(name).expect("the tests use text");
        let pairs = parse(&map).map_err(|failure| failure.status())?;
        Ok(pairs.into_iter().map(|(name, term)| (text(name), term)).collect())
    }

    fn binary(text: &str) -> Term {
        Term::Binary(text.into())
    }

    #[test]
    fn values_come_with_commas_and_in_repeated_headers_of_any_case() {
        let lines = [
            ("X-Riak-Index-Age_INT", "1,-2 , 9223372036854775807"),
            ("x-riak-index-age_int", "3"),
            ("X-Riak-Index-City_bin", "Ulm, \"a, \"\"b\"\"\",, 100%25,x\"y"),
            ("x-holdfast-index64-raw_bin", "AAE=, Ag=="),
            ("x-riak-index-empty_bin", ""),
            ("x-riak-index-blank_bin", "\"\""),
            ("x-riak-meta-age_int", "4"),
        ];
        let wanted = [
            ("age", Term::Integer(1)),
            ("age", Term::Integer(-2)),
            ("age", Term::Integer(i64::MAX)),
            ("age", Term::Integer(3)),
            ("city", binary("Ulm")),
            ("city", binary("a, \"b\"")),
            ("city", binary("100%25")),
            ("city", binary("x\"y")),
            ("raw", binary("\0\u{1}")),
            ("raw", binary("\u{2}")),
            ("blank", binary("")),
        ];
        assert_eq!(parsed(&lines).unwrap(), wanted.map(|(name, term)| (name.to_owned(), term)));
    }

    #[test]
    fn what_is_no_index_entry_is_refused() {
        for (name, value) in [
            ("x-riak-index-age_int", "x"),
            ("x-riak-index-age_int", "1, 2x"),
            ("x-riak-index-age_int", "1.5"),
            ("x-riak-index-age_int", "9223372036854775808"),
            ("x-riak-index-age_int", "0x10"),
            ("x-riak-index-age", "1"),
            ("x-riak-index-_int", "1"),
            ("x-riak-index-", "1"),
            ("x-riak-index-%4_bin", "1"),
            ("x-riak-index-a_bin", "\"open"),
            ("x-riak-index-a_bin", "\"a\"b"),
            ("x-holdfast-index64-a_bin", "?"),
        ] {
            assert_eq!(parsed(&[(name, value)]), Err(400), "{name}: {value}");
        }
        assert!(index_of(b"age").is_err() && index_of(b"_bin").is_err() && index_of(b"$other").is_err());
        assert_eq!(index_of(b"Age_Int").unwrap(), (b"age".to_vec(), Kind::Integer));
    }

    proptest! {
        #[test]
        fn any_entries_come_back_from_their_headers(
            entries in proptest::collection::btree_set(
                (proptest::collection::vec(any::<u8>(), 1..8), prop_oneof![
                    any::<i64>().prop_map(Term::Integer),
                    proptest::collection::vec(any::<u8>(), 0..8).prop_map(Term::Binary),
                    "[ ,\"a]{0,4}".prop_map(|text| Term::Binary(text.into())),
                ]), 0..8)
        ) {
            let mut map = HeaderMap::new();
            write(entries.iter().map(|(name, term)| (name.as_slice(), term.clone())), &mut map);
            let back: std::collections::BTreeSet<_> = parse(&map).unwrap().into_iter().collect();
            prop_assert_eq!(back, entries);
        }
    }
}
