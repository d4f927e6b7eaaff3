//! Request targets: percent-encoding (RFC 3986), segments of a path, parameters of a query. Any byte may be in them.
//!
//! May use: `failure`. Must not know: which paths and parameters there are.

use super::failure::Failure;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The bytes that a text stands for; `None` when a `%` is not followed by two hexadecimal digits.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (pair, after) = rest.split_at_checked(2)?;
        let [high, low] = pair else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    Some(bytes)
}

fn encode_unless(bytes: &[u8], is_plain: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_plain(*byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                text.push(HEX.get(usize::from(digit)).copied().map_or('0', char::from));
            }
        }
    }
    text
}

/// The bytes as one segment of a path: everything but RFC 3986's unreserved characters is encoded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    encode_unless(bytes, |byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

/// The bytes as a part of a header's name, which has no case: everything but lower-case letters, digits and the other
/// characters of a token is encoded.
pub(crate) fn encode_name(bytes: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$&'*+-.^_`|~".contains(&byte);
    encode_unless(bytes, is_plain)
}

/// The bytes as text: themselves if they are UTF-8, else all of them percent-encoded.
pub(crate) fn show(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| encode(bytes), str::to_owned)
}

/// The decoded segments of a path, without the empty one before the first slash.
///
/// # Errors
/// 400 when the percent-encoding is wrong.
pub(crate) fn segments(path: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let bad = || Failure::bad("a % in the path is not followed by two hexadecimal digits");
    rest.split('/').map(|segment| decode(segment.as_bytes()).ok_or_else(bad)).collect()
}

/// Takes the database out of `/db/{database}/api/...`, which is for clients that send no parameters of their own, and the slash from the
/// end of a path under `/api`: OpenTSDB takes both ways of writing it. Elsewhere the empty segment is a name.
///
/// # Errors
/// 400 when the database's name is not UTF-8.
pub(crate) fn take_database(segments: &mut Vec<Vec<u8>>) -> Result<Option<String>, Failure> {
    let database = match segments.as_slice() {
        [db, name, api, ..] if db == b"db" && api == b"api" && !name.is_empty() => {
            let name = String::from_utf8(name.clone());
            Some(name.map_err(|_| Failure::bad("the name of the database is not UTF-8"))?)
        }
        _ => None,
    };
    if database.is_some() {
        segments.drain(..2);
    }
    if matches!(segments.as_slice(), [api, _, .., last] if api == b"api" && last.is_empty()) {
        segments.pop();
    }
    Ok(database)
}

/// The parameters of a query, decoded; of parameters with one name the first counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// # Errors
    /// 400 when the percent-encoding is wrong.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, Failure> {
        let bad = || Failure::bad("a % in the query is not followed by two hexadecimal digits");
        let text = |text: &str| decode(text.replace('+', " ").as_bytes()).ok_or_else(bad);
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((text(name)?, text(value)?))
        });
        Ok(Query(pairs.collect::<Result<_, Failure>>()?))
    }

    /// Puts a parameter before all others.
    pub(crate) fn put_first(&mut self, name: &str, value: &str) {
        self.0.insert(0, (name.into(), value.into()));
    }

    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// Every parameter with its value, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The values of all parameters with a name, in their order.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(found, _)| found == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// Whether a parameter says `true`; one that is not there says `false`.
    ///
    /// # Errors
    /// 400 when it says something else.
    pub(crate) fn flag(&self, name: &'static str) -> Result<bool, Failure> {
        match self.get(name) {
            None | Some(b"") => Ok(false),
            Some(value) if value.eq_ignore_ascii_case(b"true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case(b"false") => Ok(false),
            Some(_) => Err(Failure::bad(format!("{name} is true or false"))),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// 400 when it is none.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        number(value).map(Some).ok_or_else(|| Failure::bad(format!("{name} is a whole number")))
    }
}

/// A whole number of digits alone.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn segments_are_split_before_they_are_decoded() {
        assert_eq!(segments("/a/b%2fc/%00%ff/").unwrap(), [&b"a"[..], b"b/c", b"\0\xff", b""]);
        assert_eq!(segments("/a+b").unwrap(), [b"a+b"]);
        for bad in ["/%", "/%4", "/%zz", "/a%2", "/%+1", "/%\u{e9}"] {
            assert_eq!(segments(bad).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[test]
    fn queries_are_read_as_forms_are() {
        let query = Query::parse(Some("a=1+2&b&c=%26%3D&a=3&&d=")).unwrap();
        assert_eq!(query.get("a"), Some(&b"1 2"[..]));
        assert_eq!(query.get("b"), Some(&b""[..]));
        assert_eq!(query.get("c"), Some(&b"&="[..]));
        assert_eq!((query.get("d"), query.get("e")), (Some(&b""[..]), None));
        assert!(Query::parse(Some("a=%1")).is_err() && Query::parse(Some("%x=1")).is_err());
        let query = Query::parse(Some("y=TRUE&n=false&q=maybe&i=12&j=-1&k=+1&l=99999999999999999999")).unwrap();
        assert!(query.flag("y").unwrap() && !query.flag("n").unwrap() && !query.flag("none").unwrap());
        assert!(query.flag("q").is_err());
        assert_eq!((query.number("i").unwrap(), query.number("none").unwrap()), (Some(12), None));
        assert!(["j", "k", "l"].iter().all(|name| query.number(name).is_err()));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = encode(&bytes);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'?'));
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes.clone()));
            let name = encode_name(&bytes);
            prop_assert_eq!(decode(name.as_bytes()), Some(bytes));
            let name = format!("x{name}");
            prop_assert!(hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok());
        }

        #[test]
        fn no_target_makes_it_panic(text in "\\PC{0,40}") {
            let _ = segments(&text);
            let _ = Query::parse(Some(&text));
        }
    }
}
