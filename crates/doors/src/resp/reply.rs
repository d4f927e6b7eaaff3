//! The reply side of RESP: values in, bytes out, for RESP2 and RESP3.
//!
//! Where RESP2 lacks a type, the value takes the form that Redis gives it: a map is a flat array, a double and a big
//! number a bulk string, a boolean an integer, a null a null bulk string, a set or push an array.
//!
//! A reply may name the position of its own commit before that position exists: [`Reply::commit_position`] leaves a gap
//! that [`Reply::resolve`] fills. The buffer is bounded: past its maximum nothing is added and [`Reply::take_overflow`] says so.
//!
//! May use: `number`, the facade's `Document`. Must not know: sockets, commands, the store.

use holdfast::space::Document;

use super::number::Decimal;

/// The version of the protocol a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Resp2,
    Resp3,
}

/// How a client wants documents written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Documents {
    #[default]
    Json,
    MessagePack,
}

/// How replies to a client are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    protocol: Protocol,
    documents: Documents,
}

/// The replies of one connection that have not been handed on yet.
pub(crate) struct Reply {
    out: Vec<u8>,
    pub(crate) protocol: Protocol,
    pub(crate) documents: Documents,
    bytes_max: usize,
    overflowed: bool,
    /// Where in `out` a commit position is to be inserted, ascending.
    gaps: Vec<usize>,
}

impl Reply {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (protocol, documents) = (Protocol::Resp2, Documents::Json);
        Reply { out: Vec::new(), protocol, documents, bytes_max, overflowed: false, gaps: Vec::new() }
    }

    /// One that is to become a part of another.
    pub(crate) fn of_form(form: Form, bytes_max: usize) -> Self {
        Reply { protocol: form.protocol, documents: form.documents, ..Self::new(bytes_max) }
    }

    pub(crate) fn form(&self) -> Form {
        Form { protocol: self.protocol, documents: self.documents }
    }

    /// A document, as the client wants them.
    pub(crate) fn document(&mut self, document: &Document) {
        match self.documents {
            Documents::Json => self.made(document.as_bytes().len(), |out| document.write_json(out)),
            Documents::MessagePack => self.bulk(&document.to_msgpack()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether something did not fit, since this was asked last: what was written must be taken back.
    pub(crate) fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }

    /// Takes back everything behind `len`, a former [`Reply::len`].
    pub(crate) fn truncate(&mut self, len: usize) {
        self.out.truncate(len);
        while self.gaps.last().is_some_and(|gap| *gap > len) {
            self.gaps.pop();
        }
    }

    /// Hands over what has been written, and goes on in `spare`, an empty buffer.
    pub(crate) fn take(&mut self, spare: Vec<u8>) -> Vec<u8> {
        std::mem::replace(&mut self.out, spare)
    }

    /// Adds a reply that another [`Reply`] of the same protocol wrote.
    pub(crate) fn append(&mut self, written: &[u8]) {
        self.put(written);
    }

    /// As [`Reply::append`], without copying it where it stands alone: it may be large.
    pub(crate) fn join(&mut self, written: Vec<u8>) {
        let may_take = self.out.is_empty() && written.len() > self.out.capacity() && written.len() <= self.bytes_max;
        if may_take { self.out = written } else { self.put(&written) }
    }

    /// Where in the written bytes a commit position is to be inserted, ascending.
    pub(crate) fn gaps(&self) -> &[usize] {
        &self.gaps
    }

    /// Everything written so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.bytes_max {
            self.overflowed = true;
            return;
        }
        self.out.extend_from_slice(bytes);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        // One reservation for the whole line; the header of a bulk string is the commonest thing written.
        self.put(&[kind]);
        self.put(text);
        self.put(b"\r\n");
    }

    fn header(&mut self, kind: u8, count: usize) {
        self.line(kind, Decimal::of_u64(count as u64).as_bytes());
    }

    /// `+OK` and its like.
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    pub(crate) fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// An error. Line ends inside, which a client may have sent, become spaces.
    pub(crate) fn error(&mut self, text: &str) {
        if text.bytes().any(|byte| byte == b'\r' || byte == b'\n') {
            let text = text.replace(['\r', '\n'], " ");
            self.line(b'-', text.as_bytes());
        } else {
            self.line(b'-', text.as_bytes());
        }
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.line(b':', Decimal::of_i64(value).as_bytes());
    }

    /// An unsigned number. RESP integers are signed: what does not fit saturates.
    pub(crate) fn unsigned(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(crate) fn bulk(&mut self, value: &[u8]) {
        if self.out.len() + value.len() + 32 > self.bytes_max {
            self.overflowed = true;
            return;
        }
        self.out.reserve(value.len() + 32);
        self.header(b'$', value.len());
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A bulk string that `write` appends to what is there, of about so many bytes: it is never anywhere else.
    fn made(&mut self, about: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let begins = self.out.len();
        if begins + 32 > self.bytes_max {
            self.overflowed = true;
            return;
        }
        self.out.reserve(about + 32);
        self.header(b'$', about);
        let behind = self.out.len();
        write(&mut self.out);
        let length = self.out.len() - behind;
        if begins + length + 32 > self.bytes_max {
            self.overflowed = true;
            self.out.truncate(begins);
            return;
        }
        if length != about {
            let digits = Decimal::of_u64(length as u64);
            self.out.splice(begins + 1..behind - 2, digits.as_bytes().iter().copied());
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Makes room for so many bytes more, which are about to come: to grow by and by is to copy what is there each time.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes.min(self.bytes_max.saturating_sub(self.out.len())));
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.bulk(value.as_bytes());
    }

    pub(crate) fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.put(b"$-1\r\n"),
            Protocol::Resp3 => self.put(b"_\r\n"),
        }
    }

    /// The null that RESP2 writes where an array was due.
    pub(crate) fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.put(b"*-1\r\n"),
            Protocol::Resp3 => self.put(b"_\r\n"),
        }
    }

    /// Starts an array of `count` values.
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// Starts a map of `count` pairs: the caller writes keys and values in turn.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count * 2),
            Protocol::Resp3 => self.header(b'%', count),
        }
    }

    /// Starts a set of `count` values.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'~', count),
        }
    }

    /// Starts a message nobody asked for, of `count` values.
    pub(crate) fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'>', count),
        }
    }

    /// A floating-point number.
    pub(crate) fn double(&mut self, value: f64) {
        let text = if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() }
        } else {
            value.to_string()
        };
        match self.protocol {
            Protocol::Resp2 => self.text(&text),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) {
        match (self.protocol, value) {
            (Protocol::Resp2, value) => self.integer(i64::from(value)),
            (Protocol::Resp3, true) => self.put(b"#t\r\n"),
            (Protocol::Resp3, false) => self.put(b"#f\r\n"),
        }
    }

    /// An integer of any size, as decimal digits.
    #[cfg_attr(not(test), expect(dead_code, reason = "completes the protocol; no command answers a big number yet"))]
    pub(crate) fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.text(digits),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Text for people: `txt` format in RESP3.
    pub(crate) fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.text(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() + 4);
                self.put(b"txt:");
                self.put(text.as_bytes());
                self.put(b"\r\n");
            }
        }
    }

    /// The position of the commit that this reply belongs to; [`Reply::resolve`] writes it.
    pub(crate) fn commit_position(&mut self) {
        self.gaps.push(self.out.len());
    }

    /// Writes `position` wherever [`Reply::commit_position`] left a gap.
    pub(crate) fn resolve(&mut self, position: u64) {
        if self.gaps.is_empty() {
            return;
        }
        let number = Decimal::of_i64(i64::try_from(position).unwrap_or(i64::MAX));
        let first = self.gaps.first().copied().unwrap_or_default();
        let tail = self.out.split_off(first);
        let mut done = first;
        for gap in std::mem::take(&mut self.gaps) {
            let piece = tail.get(done - first..gap - first).unwrap_or_default();
            self.out.extend_from_slice(piece);
            self.line(b':', number.as_bytes());
            done = gap;
        }
        self.out.extend_from_slice(tail.get(done - first..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Reply)) -> String {
        let mut reply = Reply::new(1 << 20);
        reply.protocol = protocol;
        write(&mut reply);
        String::from_utf8(reply.as_bytes().to_vec()).unwrap()
    }

    /// What is made in place is told to be about as long as it is stored, which has more digits or fewer.
    #[test]
    fn what_is_made_in_place_is_what_would_be_copied() {
        for (about, length) in [(0, 0), (0, 1), (9, 10), (10, 9), (100, 1000), (1000, 100), (1057, 1060), (5, 12_345)] {
            let text = vec![b'x'; length];
            let (mut made, mut copied) = (Reply::new(1 << 20), Reply::new(1 << 20));
            for reply in [&mut made, &mut copied] {
                reply.ok();
                reply.reserve(7);
            }
            made.made(about, |out| out.extend_from_slice(&text));
            copied.bulk(&text);
            [&mut made, &mut copied].into_iter().for_each(Reply::ok);
            assert!(made.as_bytes() == copied.as_bytes(), "{about} {length}");
            assert!(!made.take_overflow());
            // Where one fits the other does, and nothing is left of one that does not.
            for room in 0..80 {
                let (mut made, mut copied) = (Reply::new(length + room), Reply::new(length + room));
                [&mut made, &mut copied].into_iter().for_each(Reply::ok);
                made.made(about, |out| out.extend_from_slice(&text));
                copied.bulk(&text);
                assert_eq!(made.as_bytes(), copied.as_bytes(), "{about} {length} {room}");
                assert_eq!(made.take_overflow(), copied.take_overflow(), "{about} {length} {room}");
            }
        }
    }

    #[test]
    fn every_type_has_its_form_in_both_protocols() {
        type Write = fn(&mut Reply);
        let table: [(Write, &str, &str); 15] = [
            (|r| r.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.integer(-7), ":-7\r\n", ":-7\r\n"),
            (|r| r.bulk(b"a\0b"), "$3\r\na\0b\r\n", "$3\r\na\0b\r\n"),
            (|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.array(0), "*0\r\n", "*0\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.push(2), "*2\r\n", ">2\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.big_number("123"), "$3\r\n123\r\n", "(123\r\n"),
            (|r| r.verbatim("hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ];
        for (write, resp2, resp3) in table {
            assert_eq!(written(Protocol::Resp2, write), resp2);
            assert_eq!(written(Protocol::Resp3, write), resp3);
        }
        assert_eq!(written(Protocol::Resp3, |r| r.double(f64::NEG_INFINITY)), ",-inf\r\n");
    }

    #[test]
    fn a_commit_position_is_filled_in_wherever_it_is_named() {
        let mut reply = Reply::new(1 << 20);
        reply.ok();
        reply.array(2);
        reply.commit_position();
        reply.text("x");
        reply.commit_position();
        reply.ok();
        reply.resolve(42);
        assert_eq!(reply.as_bytes(), b"+OK\r\n*2\r\n:42\r\n$1\r\nx\r\n:42\r\n+OK\r\n");
        reply.resolve(43);
        assert_eq!(reply.as_bytes().len(), 31);
    }

    #[test]
    fn what_is_truncated_leaves_no_gap_behind() {
        let mut reply = Reply::new(1 << 20);
        reply.ok();
        let mark = reply.len();
        reply.array(1);
        reply.commit_position();
        reply.truncate(mark);
        reply.resolve(42);
        assert_eq!(reply.as_bytes(), b"+OK\r\n");
    }

    #[test]
    fn the_buffer_stops_at_its_maximum() {
        let mut reply = Reply::new(100);
        reply.bulk(&[b'x'; 60]);
        assert!(!reply.take_overflow());
        reply.bulk(&[b'x'; 60]);
        assert!(reply.take_overflow() && !reply.take_overflow());
        assert!(reply.len() <= 100);
    }
}
