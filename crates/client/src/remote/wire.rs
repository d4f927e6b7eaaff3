//! RESP3 as a client needs it: requests into bytes, replies out of bytes.
//!
//! A request is an array of strings. Replies arrive in pieces: a [`Scan`] goes on where it stopped, so that a reply of many
//! pieces is looked at once, and is decoded when it is whole. Whoever answers more than the limits is no Holdfast.
//!
//! The transaction manager has a decoder of its own (`tm/src/remote/wire.rs`), for texts only: here replies hold any bytes,
//! and numbers keep their kind.
//!
//! May use: nothing. Must not know: sockets, what commands mean.

/// Most bytes of one reply: more than any server sends.
const REPLY_BYTES_MAX: usize = 512 << 20;
/// Most values in one reply.
const VALUES_MAX: usize = 1 << 24;
/// How deep lists and maps may lie within each other: what scripts answer may be 32 deep.
const DEPTH_MAX: usize = 40;
/// Longest line: lengths, numbers and the texts of errors.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A server's reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Null,
    Bool(bool),
    Integer(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Error(String),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// Nobody asked for it.
    Push,
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak RESP3: {0}")]
pub(crate) struct Malformed(&'static str);

/// A request under way: a command and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    count: usize,
    body: Vec<u8>,
    longest: usize,
}

impl Words {
    pub(crate) fn new(command: &str) -> Self {
        Self { count: 0, body: Vec::with_capacity(128), longest: 0 }.and(command)
    }

    pub(crate) fn and(mut self, word: impl AsRef<[u8]>) -> Self {
        self.add(word);
        self
    }

    pub(crate) fn add(&mut self, word: impl AsRef<[u8]>) {
        let word = word.as_ref();
        self.count += 1;
        self.longest = self.longest.max(word.len());
        header(&mut self.body, b'$', word.len());
        self.body.extend_from_slice(word);
        self.body.extend_from_slice(b"\r\n");
    }

    /// Bytes of the longest word.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Appends the request.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        header(to, b'*', self.count);
        to.extend_from_slice(&self.body);
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body.len() + 16);
        self.write(&mut bytes);
        bytes
    }
}

fn header(to: &mut Vec<u8>, kind: u8, number: usize) {
    to.push(kind);
    match u8::try_from(number) {
        Ok(digit @ 0..=9) => to.push(b'0' + digit),
        _ => to.extend_from_slice(number.to_string().as_bytes()),
    }
    to.extend_from_slice(b"\r\n");
}

/// Finds the end of a reply, going on where the bytes ended before.
#[derive(Debug)]
pub(crate) struct Scan {
    at: usize,
    /// Values that are to come before the reply is whole.
    left: usize,
}

impl Default for Scan {
    fn default() -> Self {
        Self { at: 0, left: 1 }
    }
}

impl Scan {
    /// The length of the first reply in `bytes`, which begin as they did before; `None` while it is not whole.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.left > 0 {
            let Some((line, next)) = line(bytes, self.at)? else { return Ok(None) };
            let (kind, rest) = split(line)?;
            let mut next = next;
            let mut more = 0;
            match kind {
                b'$' | b'=' | b'!' if rest != b"-1" => {
                    next += count(rest, REPLY_BYTES_MAX)? + 2;
                    if next > REPLY_BYTES_MAX {
                        return Err(Malformed("a reply is longer than 512 MiB"));
                    }
                    if bytes.len() < next {
                        return Ok(None);
                    }
                }
                b'*' | b'~' | b'>' if rest != b"-1" => more = count(rest, VALUES_MAX)?,
                b'%' => more = 2 * count(rest, VALUES_MAX)?,
                _ => {}
            }
            self.at = next;
            self.left = self.left - 1 + more;
            if self.left > VALUES_MAX {
                return Err(Malformed("a reply of too many values"));
            }
        }
        Ok(Some(self.at))
    }
}

/// Decodes a reply whose end was found.
pub(crate) fn decode(bytes: &[u8]) -> Result<Reply, Malformed> {
    Decoder { bytes, at: 0 }.reply(0)
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed("it nests too deep"));
        }
        let (line, next) = line(self.bytes, self.at)?.ok_or(Malformed("it ends too early"))?;
        self.at = next;
        let (kind, rest) = split(line)?;
        Ok(match kind {
            b'+' | b'(' => Reply::Bytes(rest.to_vec()),
            b'-' => Reply::Error(text(rest)),
            b':' => Reply::Integer(number(rest)?),
            b',' => Reply::Double(double(rest)?),
            b'#' => Reply::Bool(rest == b"t"),
            b'_' => Reply::Null,
            b'$' | b'*' if rest == b"-1" => Reply::Null,
            b'$' | b'=' => Reply::Bytes(self.take(count(rest, REPLY_BYTES_MAX)?)?.to_vec()),
            b'!' => Reply::Error(text(self.take(count(rest, REPLY_BYTES_MAX)?)?)),
            b'*' | b'~' => Reply::List(self.many(count(rest, VALUES_MAX)?, depth)?),
            b'>' => {
                self.many(count(rest, VALUES_MAX)?, depth)?;
                Reply::Push
            }
            b'%' => {
                let pairs = count(rest, VALUES_MAX)?;
                let pair = |_| Ok((self.reply(depth + 1)?, self.reply(depth + 1)?));
                Reply::Map((0..pairs).map(pair).collect::<Result<_, _>>()?)
            }
            _ => return Err(Malformed("a reply of a kind that RESP3 has not")),
        })
    }

    fn many(&mut self, count: usize, depth: usize) -> Result<Vec<Reply>, Malformed> {
        (0..count).map(|_| self.reply(depth + 1)).collect()
    }

    fn take(&mut self, length: usize) -> Result<&[u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed("a length that makes no sense"))?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed("it ends too early"))?;
        if self.bytes.get(end..end + 2) != Some(b"\r\n") {
            return Err(Malformed("a string does not end where it said"));
        }
        self.at = end + 2;
        Ok(taken)
    }
}

/// The line at `at`, and where the next thing begins; `None` while it has no end.
fn line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, Malformed> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        return if rest.len() < LINE_BYTES_MAX { Ok(None) } else { Err(Malformed("a line has no end")) };
    };
    let line = rest.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").ok_or(Malformed("a line does not end in CR LF"))?;
    Ok(Some((line, at + end + 1)))
}

fn split(line: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    let (kind, rest) = line.split_first().ok_or(Malformed("an empty line"))?;
    if b"+(-:,#_$=!*~>%".contains(kind) {
        return Ok((*kind, rest));
    }
    Err(Malformed("a reply of a kind that RESP3 has not"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(Malformed("a number is none"))
}

fn double(digits: &[u8]) -> Result<f64, Malformed> {
    let digits = std::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or(Malformed("a number is none"))
}

fn count(digits: &[u8], max: usize) -> Result<usize, Malformed> {
    let count = usize::try_from(number(digits)?).ok();
    count.filter(|count| *count <= max).ok_or(Malformed("a length that makes no sense"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Reply, Scan, Words, decode};

    fn one(bytes: &[u8]) -> Reply {
        assert_eq!(Scan::default().end(bytes), Ok(Some(bytes.len())), "{}", bytes.escape_ascii());
        decode(bytes).unwrap()
    }

    #[test]
    fn requests_are_arrays_of_strings() {
        let words = Words::new("PING").and("a long word").and(b"\r\n\0");
        assert_eq!(words.to_bytes(), b"*3\r\n$4\r\nPING\r\n$11\r\na long word\r\n$3\r\n\r\n\0\r\n");
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        assert_eq!(one(b"+OK\r\n"), bytes("OK"));
        assert_eq!(one(b"-ABORTED it was late\r\n"), Reply::Error("ABORTED it was late".to_owned()));
        assert_eq!(one(b"!3\r\nERR\r\n"), Reply::Error("ERR".to_owned()));
        assert_eq!(one(b":-7\r\n"), Reply::Integer(-7));
        assert_eq!(one(b",-1.5\r\n"), Reply::Double(-1.5));
        assert_eq!(one(b",inf\r\n"), Reply::Double(f64::INFINITY));
        assert_eq!(one(b"#t\r\n"), Reply::Bool(true));
        assert_eq!(one(b"$3\r\na\r\n\r\n"), bytes("a\r\n"));
        assert_eq!(one(b"(18446744073709551615\r\n"), bytes("18446744073709551615"));
        for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!(one(null), Reply::Null);
        }
        assert_eq!(one(b"*2\r\n:1\r\n*0\r\n"), Reply::List(vec![Reply::Integer(1), Reply::List(Vec::new())]));
        assert_eq!(one(b"%1\r\n+a\r\n:3\r\n"), Reply::Map(vec![(bytes("a"), Reply::Integer(3))]));
        assert_eq!(one(b">1\r\n+news\r\n"), Reply::Push);
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b"HTTP/1.1 400\r\n"[..],
            b"\r\n",
            b"+no cr\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$1\r\nabc\r\n",
            b"*99999999\r\n",
            b"$999999999999\r\n",
        ] {
            let mut scan = Scan::default();
            let refused = match scan.end(bytes) {
                Ok(Some(end)) => decode(&bytes[..end]).is_err(),
                Ok(None) => false,
                Err(_) => true,
            };
            assert!(refused, "{}", bytes.escape_ascii());
        }
        assert!(decode(&[&b"*1\r\n".repeat(50)[..], b":1\r\n"].concat()).is_err());
        assert!(Scan::default().end(&[b'+'; 70_000]).is_err());
    }

    proptest! {
        #[test]
        fn a_reply_is_the_same_however_it_arrives_and_no_bytes_panic(
            noise in proptest::collection::vec(any::<u8>(), 0..60),
            cuts in proptest::collection::vec(0..45_usize, 0..6),
        ) {
            let whole = b"*4\r\n$2\r\nab\r\n:12\r\n%1\r\n+a\r\n*1\r\n_\r\n,1.5\r\n";
            let mut scan = Scan::default();
            let mut cuts = cuts;
            cuts.sort_unstable();
            for cut in cuts.into_iter().filter(|cut| *cut < whole.len()) {
                prop_assert_eq!(scan.end(&whole[..cut]), Ok(None));
            }
            prop_assert_eq!(scan.end(whole), Ok(Some(whole.len())));
            for bytes in [noise.clone(), [&whole[..20], &noise[..]].concat()] {
                if let Ok(Some(end)) = Scan::default().end(&bytes) {
                    let _ = decode(&bytes[..end]);
                }
                let _ = decode(&bytes);
            }
        }
    }
}
