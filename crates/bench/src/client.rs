//! A small RESP client: enough to ping a server and to load it.
//!
//! May use: sockets. Must not know: what is measured.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::workload::{Failure, Result, Values};

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Commands that are sent before their answers are read.
const PIPELINE: u64 = 512;

/// RESP carries no longer string.
const BULK_BYTES_MAX: usize = 512 << 20;
/// Answers within answers; the deepest that is asked for has four.
const DEPTH_MAX: usize = 8;
/// Parts of one answer.
const PARTS_MAX: i64 = 1 << 20;

/// A connection, and room for one answer.
pub(crate) struct Client(BufReader<TcpStream>, Vec<u8>);

/// A whole answer of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A simple string or a number, without its sign.
    Line(String),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// An array.
    Many(Vec<Answer>),
}

impl Answer {
    /// The part of an array.
    pub(crate) fn part(&self, at: usize) -> Option<&Self> {
        if let Self::Many(parts) = self { parts.get(at) } else { None }
    }

    /// Its text, if it is a string or a number.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Line(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Nil | Self::Many(_) => None,
        }
    }
}

/// What [`Client::load`] puts: `SET` of as many keys, spelt as redis-benchmark spells them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::with_capacity(64 << 10, stream), Vec::new()))
    }

    /// Sends one command and returns the first line of its answer. Only for commands whose answer is one line.
    pub(crate) fn call(&mut self, parts: &[&[u8]]) -> Result<String> {
        let mut out = Vec::new();
        encode(&mut out, parts);
        self.0.get_mut().write_all(&out)?;
        self.line()
    }

    /// Sends one command whose answer is a bulk string, and shows that. False if the answer is nil.
    pub(crate) fn bulk(&mut self, parts: &[&[u8]], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let line = self.call(parts)?;
        let length: i64 = line
            .strip_prefix('$')
            .and_then(|length| length.parse().ok())
            .ok_or_else(|| Failure::from(format!("the server answered `{line}`, not a bulk string")))?;
        let Ok(length) = usize::try_from(length) else { return Ok(false) };
        if length > BULK_BYTES_MAX {
            return Err(format!("the server answered {length} bytes").into());
        }
        self.1.resize(length + 2, 0);
        self.0.read_exact(&mut self.1)?;
        see(self.1.get(..length).unwrap_or_default());
        Ok(true)
    }

    /// Sends one command and returns its whole answer.
    ///
    /// # Errors
    /// What the server answers as an error, at the top.
    pub(crate) fn ask(&mut self, parts: &[&[u8]]) -> Result<Answer> {
        let mut out = Vec::new();
        encode(&mut out, parts);
        self.0.get_mut().write_all(&out)?;
        self.answer()
    }

    /// Waits for an answer to what was sent, or a message of a subscription.
    pub(crate) fn answer(&mut self) -> Result<Answer> {
        self.answer_within(DEPTH_MAX)
    }

    fn answer_within(&mut self, depth: usize) -> Result<Answer> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or("the server answered nothing")?;
        let odd = || Failure::from(format!("the server answered `{line}`"));
        match kind {
            "+" | ":" => Ok(Answer::Line(rest.to_owned())),
            "$" => {
                let length: i64 = rest.parse().map_err(|_| odd())?;
                let Ok(length) = usize::try_from(length) else { return Ok(Answer::Nil) };
                if length > BULK_BYTES_MAX {
                    return Err(odd());
                }
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Ok(Answer::Bulk(bytes))
            }
            "*" => {
                let count: i64 = rest.parse().map_err(|_| odd())?;
                let depth = depth.checked_sub(1).filter(|_| count <= PARTS_MAX).ok_or_else(odd)?;
                match count {
                    ..0 => Ok(Answer::Nil),
                    _ => (0..count).map(|_| self.answer_within(depth)).collect::<Result<_>>().map(Answer::Many),
                }
            }
            _ => Err(odd()),
        }
    }

    /// Sends commands many at once, and reads every answer.
    ///
    /// # Errors
    /// The first answer that is an error.
    pub(crate) fn pour(&mut self, commands: impl IntoIterator<Item = Vec<Vec<u8>>>) -> Result<()> {
        let mut commands = commands.into_iter();
        let mut out = Vec::new();
        loop {
            out.clear();
            let mut sent = 0;
            for command in commands.by_ref().take(usize::try_from(PIPELINE)?) {
                encode(&mut out, &command.iter().map(Vec::as_slice).collect::<Vec<_>>());
                sent += 1;
            }
            if sent == 0 {
                return Ok(());
            }
            self.0.get_mut().write_all(&out)?;
            for _ in 0..sent {
                self.answer()?;
            }
        }
    }

    /// Sets keys 0 to `load.keys`, many at once.
    pub(crate) fn load(&mut self, load: Load) -> Result<()> {
        let mut values = Values::new(load.value_bytes, 1);
        let mut out = Vec::new();
        for first in (0..load.keys).step_by(usize::try_from(PIPELINE)?) {
            let until = (first + PIPELINE).min(load.keys);
            out.clear();
            for number in first..until {
                encode(&mut out, &[b"SET", format!("key:{number:012}").as_bytes(), values.next()]);
            }
            self.0.get_mut().write_all(&out)?;
            for _ in first..until {
                self.line()?;
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.by_ref().take(4096).read_line(&mut line)?;
        match line.as_bytes().first() {
            Some(b'-') => Err(Failure::from(line.trim_end().to_owned())),
            Some(_) if line.ends_with('\n') => Ok(line.trim_end().to_owned()),
            _ => Err("the server closed the connection".into()),
        }
    }
}

/// Appends a command as an array of bulk strings.
fn encode(to: &mut Vec<u8>, parts: &[&[u8]]) {
    to.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        to.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        to.extend_from_slice(part);
        to.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut to = Vec::new();
        encode(&mut to, &[b"SET", b"k", b"\r\n"]);
        assert_eq!(to, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n");
    }

    #[test]
    fn bulk_answers_are_shown_and_nil_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n-ERR no\r\n:1\r\n$999999999999\r\n").unwrap();
            stream
        });
        let mut client = Client::connect(address).unwrap();
        let mut seen = Vec::new();
        let mut get = || client.bulk(&[b"GET", b"k"], &mut |value| seen.push(value.to_vec()));
        assert!(get().unwrap() && !get().unwrap() && get().unwrap());
        for part in ["-ERR no", ":1", "999999999999 bytes"] {
            let failure = get().unwrap_err().to_string();
            assert!(failure.contains(part), "{failure}");
        }
        assert_eq!(seen, [b"a\r\nbc".as_slice(), b""]);
        drop(server.join().unwrap());
    }

    #[test]
    fn whole_answers_are_read_to_their_end_and_no_further() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"*3\r\n:7\r\n*1\r\n$2\r\nab\r\n$-1\r\n+OK\r\n*-1\r\n").unwrap();
            stream.write_all(b"*9999999\r\n-ERR no\r\n!x\r\n").unwrap();
            stream.write_all(&b"*1\r\n".repeat(DEPTH_MAX + 1)).unwrap();
            stream
        });
        let mut client = Client::connect(address).unwrap();
        let many = client.ask(&[b"X"]).unwrap();
        assert_eq!(many.part(0).and_then(Answer::text), Some("7"));
        assert_eq!(many.part(1).and_then(|part| part.part(0)).and_then(Answer::text), Some("ab"));
        assert_eq!((many.part(2), many.part(3)), (Some(&Answer::Nil), None));
        assert_eq!(client.answer().unwrap().text(), Some("OK"));
        assert_eq!(client.answer().unwrap(), Answer::Nil);
        for part in ["*9999999", "ERR no", "!x", "*1"] {
            let failure = client.answer().unwrap_err().to_string();
            assert!(failure.contains(part), "{failure}");
        }
        drop(server.join().unwrap());
    }

    #[test]
    fn a_load_sends_every_key_and_reads_every_answer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut keys = 0;
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).unwrap() > 0 {
                if line.starts_with(b"key:") {
                    keys += 1;
                    let answer: &[u8] = if keys == 700 { b"-ERR full\r\n" } else { b"+OK\r\n" };
                    reader.get_mut().write_all(answer).unwrap();
                }
                line.clear();
            }
            keys
        });
        // Empty values: one with a line end in it would confuse this simple server.
        let mut client = Client::connect(address).unwrap();
        client.load(Load { keys: 600, value_bytes: 0 }).unwrap();
        let failure = client.load(Load { keys: 100, value_bytes: 0 }).unwrap_err();
        assert_eq!(failure.to_string(), "-ERR full");
        drop(client);
        assert_eq!(server.join().unwrap(), 700);
    }
}
