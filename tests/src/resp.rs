//! A small blocking client of the RESP protocol, versions 2 and 3, with pipelining.
//!
//! May use: std. Must not know: what the commands mean.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes longer than this, on the slowest machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Nested deeper than this, an answer is wrong.
const DEPTH_MAX: usize = 16;

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+OK`
    Simple(String),
    /// `-ERR ...`
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$3`, and `=` without its three letters of format
    Bytes(Vec<u8>),
    /// `$-1`, `*-1` or `_`
    Nil,
    /// `*2` and `~2`
    Array(Vec<Value>),
    /// `%1`
    Map(Vec<(Value, Value)>),
    /// `,1.5`
    Double(f64),
    /// `#t`
    Boolean(bool),
    /// `>2`
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of a string of either kind; `None` for anything else.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// The text of an error; `None` for anything else.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(text) = self { Some(text) } else { None }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    unsent: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIME_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self { stream: BufReader::new(stream), unsent: Vec::new() })
    }

    /// Adds a command to what the next `flush` sends.
    pub fn add<A: AsRef<[u8]>>(&mut self, words: &[A]) {
        self.unsent.extend(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let word = word.as_ref();
            self.unsent.extend(format!("${}\r\n", word.len()).as_bytes());
            self.unsent.extend(word);
            self.unsent.extend(b"\r\n");
        }
    }

    /// Sends what was added.
    ///
    /// # Errors
    /// When the connection is gone or the other side does not read.
    pub fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.unsent);
        self.unsent.clear();
        sent
    }

    /// Sends these bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone or the other side does not read.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Whether the other side takes these bytes within the time.
    pub fn takes(&mut self, bytes: &[u8], time_max: Duration) -> bool {
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(time_max)).is_ok() && stream.write_all(bytes).is_ok()
    }

    /// Sends one command and takes its answer.
    ///
    /// # Errors
    /// When the connection is gone, or the answer is not RESP or does not come.
    pub fn call<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Value> {
        self.add(words);
        self.flush()?;
        self.answer()
    }

    /// Sends one command, written with spaces, and takes its answer.
    ///
    /// # Panics
    /// When there is no answer: for tests in which the server must not fail.
    pub fn say(&mut self, line: &str) -> Value {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.call(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Sets a key to any bytes and takes the answer.
    ///
    /// # Panics
    /// When there is no answer: for tests in which the server must not fail.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Value {
        self.call(&[b"SET", key.as_bytes(), value]).unwrap_or_else(|error| panic!("SET {key}: {error}"))
    }

    /// Takes the next answer.
    ///
    /// # Errors
    /// When the connection is gone, or the answer is not RESP or does not come.
    pub fn answer(&mut self) -> io::Result<Value> {
        self.nested_answer(0)
    }

    /// Reads until the other side closes, and returns what it still said.
    pub fn rest(&mut self, time_max: Duration) -> Vec<u8> {
        let mut rest = Vec::new();
        if self.stream.get_mut().set_read_timeout(Some(time_max)).is_ok() {
            // Closed, reset or silent: what came before that is what counts.
            drop((&mut self.stream).take(1 << 20).read_to_end(&mut rest));
        }
        rest
    }

    fn nested_answer(&mut self, depth: usize) -> io::Result<Value> {
        if depth > DEPTH_MAX {
            return Err(bad("nested too deeply"));
        }
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| bad("empty line"))?;
        match kind {
            "+" => Ok(Value::Simple(rest.to_owned())),
            "-" => Ok(Value::Error(rest.to_owned())),
            ":" => rest.parse().map(Value::Integer).map_err(|_| bad(&line)),
            "," => rest.parse().map(Value::Double).map_err(|_| bad(&line)),
            "#" => Ok(Value::Boolean(rest == "t")),
            "_" => Ok(Value::Nil),
            "$" => Ok(self.bulk(rest)?.map_or(Value::Nil, Value::Bytes)),
            "=" => {
                Ok(self.bulk(rest)?.map_or(Value::Nil, |text| Value::Bytes(text.get(4..).unwrap_or_default().to_vec())))
            }
            "*" | "~" => Ok(self.items(rest, depth)?.map_or(Value::Nil, Value::Array)),
            ">" => Ok(self.items(rest, depth)?.map_or(Value::Nil, Value::Push)),
            "%" => self.pairs(rest, depth),
            _ => Err(bad(&line)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.strip_suffix(b"\r\n").ok_or_else(|| bad("a line that does not end with CR LF"))?;
        String::from_utf8(text.to_vec()).map_err(|_| bad("a line that is not text"))
    }

    fn bulk(&mut self, length: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(length) = count(length)? else { return Ok(None) };
        let mut bytes = vec![0; length];
        let mut end = [0; 2];
        self.stream.read_exact(&mut bytes)?;
        self.stream.read_exact(&mut end)?;
        if &end == b"\r\n" { Ok(Some(bytes)) } else { Err(bad("a string that does not end with CR LF")) }
    }

    fn items(&mut self, length: &str, depth: usize) -> io::Result<Option<Vec<Value>>> {
        let Some(length) = count(length)? else { return Ok(None) };
        (0..length).map(|_| self.nested_answer(depth + 1)).collect::<io::Result<_>>().map(Some)
    }

    fn pairs(&mut self, length: &str, depth: usize) -> io::Result<Value> {
        let length = count(length)?.unwrap_or(0);
        let pairs = (0..length).map(|_| Ok((self.nested_answer(depth + 1)?, self.nested_answer(depth + 1)?)));
        pairs.collect::<io::Result<_>>().map(Value::Map)
    }
}

/// A length; `None` for -1, which stands for nothing.
fn count(text: &str) -> io::Result<Option<usize>> {
    if text == "-1" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| bad(text))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}
