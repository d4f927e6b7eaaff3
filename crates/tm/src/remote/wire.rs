//! RESP as the client of a coordinator needs it: requests into bytes, replies out of bytes.
//!
//! Requests are arrays of strings. Replies are those of RESP2 and RESP3, within limits: whoever answers more than that is
//! no coordinator.
//!
//! May use: nothing. Must not know: sockets, what commands mean.

/// Most bytes of one reply.
pub(crate) const REPLY_BYTES_MAX: usize = 64 << 20;
/// Most elements of one array or map.
const ITEMS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 8;
/// Longest line: lengths, numbers and the texts of errors.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Ok,
    Null,
    Text(String),
    Integer(i64),
    Error(String),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak RESP: {0}")]
pub(crate) struct Malformed(&'static str);

/// Appends a request.
pub(crate) fn request(to: &mut Vec<u8>, words: &[&str]) {
    length(to, b'*', words.len());
    for word in words {
        length(to, b'$', word.len());
        to.extend_from_slice(word.as_bytes());
        to.extend_from_slice(b"\r\n");
    }
}

fn length(to: &mut Vec<u8>, kind: u8, number: usize) {
    to.push(kind);
    match u8::try_from(number) {
        // Nearly always: without the machinery of formatting.
        Ok(digit @ 0..=9) => to.push(b'0' + digit),
        _ => to.extend_from_slice(number.to_string().as_bytes()),
    }
    to.extend_from_slice(b"\r\n");
}

/// Takes the first reply from `bytes`: it and its length, or `None` while it is not whole.
pub(crate) fn reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.reply(0) {
        Ok(reply) => Ok(Some((reply, cursor.at))),
        Err(Stop::More) if bytes.len() > REPLY_BYTES_MAX => Err(Malformed("a reply is longer than 64 MiB")),
        Err(Stop::More) => Ok(None),
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

impl Reply {
    /// Its text, if it is one; numbers count.
    pub(crate) fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(text.into()),
            Self::Integer(number) => Some(number.to_string().into()),
            Self::Ok => Some("OK".into()),
            _ => None,
        }
    }

    /// Its number, if it is one; text that is a number counts.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Its elements, if it is a list.
    pub(crate) fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a key, in a map or in the flat list that RESP2 makes of it.
    pub(crate) fn field(&self, name: &str) -> Option<&Reply> {
        let is_it = |key: &Reply| key.text().is_some_and(|key| key.eq_ignore_ascii_case(name));
        match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
            Self::List(items) => items.chunks_exact(2).find_map(|pair| match pair {
                [key, value] if is_it(key) => Some(value),
                _ => None,
            }),
            _ => None,
        }
    }
}

enum Stop {
    More,
    Malformed(Malformed),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > DEPTH_MAX {
            return Err(malformed("it nests too deep"));
        }
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed("an empty line"))?;
        Ok(match kind {
            b"+" if rest == b"OK" => Reply::Ok,
            b"+" | b"," | b"(" => Reply::Text(text(rest)),
            b"-" => Reply::Error(text(rest)),
            b":" => Reply::Integer(number(rest)?),
            b"#" => Reply::Integer(i64::from(rest == b"t")),
            b"_" => Reply::Null,
            b"$" | b"=" | b"!" if rest != b"-1" => {
                let length = count(rest, REPLY_BYTES_MAX)?;
                let body = text(self.take(length)?);
                if self.take(2)? != b"\r\n" {
                    return Err(malformed("a string does not end where it said"));
                }
                match kind {
                    b"!" => Reply::Error(body),
                    _ => Reply::Text(body),
                }
            }
            b"*" | b"~" | b">" if rest != b"-1" => {
                let items = count(rest, ITEMS_MAX)?;
                Reply::List((0..items).map(|_| self.reply(depth + 1)).collect::<Result<_, _>>()?)
            }
            b"%" => {
                let items = count(rest, ITEMS_MAX)?;
                let pair = |_| Ok((self.reply(depth + 1)?, self.reply(depth + 1)?));
                Reply::Map((0..items).map(pair).collect::<Result<_, _>>()?)
            }
            b"$" | b"*" => Reply::Null,
            _ => return Err(malformed("a reply of a kind that RESP has not")),
        })
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
            return Err(if rest.len() < LINE_BYTES_MAX { Stop::More } else { malformed("a line has no end") });
        };
        self.at += end + 1;
        let line = rest.get(..end).unwrap_or_default();
        line.strip_suffix(b"\r").ok_or_else(|| malformed("a line does not end in CR LF"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let taken = self.bytes.get(self.at..self.at + length).ok_or(Stop::More)?;
        self.at += length;
        Ok(taken)
    }
}

fn malformed(what: &'static str) -> Stop {
    Stop::Malformed(Malformed(what))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(digits: &[u8]) -> Result<i64, Stop> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| malformed("a number is none"))
}

fn count(digits: &[u8], max: usize) -> Result<usize, Stop> {
    let count = usize::try_from(number(digits)?).ok();
    count.filter(|count| *count <= max).ok_or_else(|| malformed("a length that makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::{Reply, reply, request};
    use proptest::prelude::*;

    fn one(bytes: &[u8]) -> Reply {
        let (reply, length) = reply(bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        reply
    }

    #[test]
    fn requests_are_arrays_of_strings() {
        let mut to = Vec::new();
        request(&mut to, &["PING", "a long word"]);
        assert_eq!(to, b"*2\r\n$4\r\nPING\r\n$11\r\na long word\r\n");
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let text = |text: &str| Reply::Text(text.to_owned());
        assert_eq!(one(b"+OK\r\n"), Reply::Ok);
        assert_eq!(one(b"+PONG\r\n"), text("PONG"));
        assert_eq!(one(b"-ABORTED it was late\r\n"), Reply::Error("ABORTED it was late".to_owned()));
        assert_eq!(one(b":-7\r\n"), Reply::Integer(-7));
        assert_eq!(one(b"$3\r\na\r\n\r\n"), text("a\r\n"));
        for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!(one(null), Reply::Null);
        }
        let map = one(b"%2\r\n+state\r\n$6\r\nactive\r\n+owner\r\n:3\r\n");
        let flat = one(b"*4\r\n+state\r\n$6\r\nactive\r\n+owner\r\n:3\r\n");
        for map in [map, flat] {
            assert_eq!(map.field("state"), Some(&text("active")));
            assert_eq!(map.field("OWNER").and_then(Reply::number), Some(3));
            assert_eq!(map.field("none"), None);
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in
            [&b"HTTP/1.1 400\r\n"[..], b"\r\n", b"+no cr\n", b"$x\r\n", b"$-2\r\n", b"$1\r\nabc\r\n", b"*9999999\r\n"]
        {
            assert!(reply(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(reply(&b"*1\r\n".repeat(20)).is_err());
        assert!(reply(&[b'+'; 70_000]).is_err());
    }

    proptest! {
        #[test]
        fn a_reply_is_the_same_however_it_arrives_and_no_bytes_panic(
            noise in proptest::collection::vec(any::<u8>(), 0..60),
            cut in 0..37_usize,
        ) {
            let whole = b"*3\r\n$2\r\nab\r\n:12\r\n%1\r\n+a\r\n*1\r\n_\r\n";
            if cut < whole.len() {
                prop_assert_eq!(reply(&whole[..cut]), Ok(None));
            }
            let _ = reply(&noise);
            let _ = reply(&[&whole[..cut.min(whole.len())], &noise[..]].concat());
        }
    }
}
