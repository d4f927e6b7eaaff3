//! A door on a store of its own, and a client that is nothing but a socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// An open door.
pub(crate) struct Door {
    pub(crate) running: Running,
    pub(crate) store: holdfast::Store,
    _folder: TempDir,
}

/// A door with the tiny limits, but for what tests would trip over.
pub(crate) fn open(change: impl FnOnce(&mut Options)) -> Door {
    let limits = holdfast::Limits { value_bytes_max: 64 << 10, ..holdfast::Limits::tiny() };
    open_with(limits, change)
}

/// A door on a store with these limits.
pub(crate) fn open_with(limits: holdfast::Limits, change: impl FnOnce(&mut Options)) -> Door {
    open_on(holdfast::Options { limits, partitions: 2, ..holdfast::Options::default() }, change)
}

/// A door on a store with these options.
pub(crate) fn open_on(options: holdfast::Options, change: impl FnOnce(&mut Options)) -> Door {
    let folder = TempDir::new().unwrap();
    let store = holdfast::Store::open(folder.path(), options).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.limits = Limits { header_timeout: Duration::from_secs(20), ..Limits::tiny() };
    change(&mut options);
    let running = serve(store.clone(), options).unwrap();
    Door { running, store, _folder: folder }
}

/// A door for objects: bodies as long as the store takes them, and clients that may take their time.
pub(crate) fn open_wide() -> Door {
    let limits = holdfast::Limits {
        value_bytes_max: 64 << 10,
        batch_bytes_max: 128 << 10,
        metadata_bytes_max: 512,
        indexes_bytes_max: 512,
        ..holdfast::Limits::tiny()
    };
    open_with(limits, |options| {
        options.limits = Limits { page_entries_max: 2, regex_bytes_max: 64, ..Limits::default() };
    })
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

pub(crate) fn read_all(stream: &mut impl Read) -> String {
    String::from_utf8(read_bytes(stream)).unwrap()
}

fn read_bytes(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
    }
    bytes
}

/// One answer, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The first answer in these bytes, and the bytes after it.
    pub(crate) fn take(bytes: &[u8], is_head: bool) -> (Self, &[u8]) {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head: String = bytes[..end].iter().map(|byte| char::from(*byte)).collect();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap_or((line, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        let mut rest = &bytes[end + 4..];
        if answer.header("transfer-encoding") == Some("chunked") && !is_head {
            loop {
                let line = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk has a length");
                let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
                rest = &rest[line + 2..];
                answer.body.extend_from_slice(&rest[..length]);
                rest = &rest[length + 2..];
                if length == 0 {
                    return (answer, rest);
                }
            }
        }
        let length = answer.header("content-length").filter(|_| !is_head && status != 304 && status != 204);
        let length = length.map_or(0, |length| length.parse().unwrap());
        answer.body = rest[..length].to_vec();
        (answer, &rest[length..])
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

fn request(line: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Vec<u8> {
    let mut request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    body.iter().for_each(|body| request.push_str(&format!("Content-Length: {}\r\n", body.len())));
    request.push_str("\r\n");
    [request.as_bytes(), body.unwrap_or_default()].concat()
}

/// The answer to the request of this line, behind which nothing comes.
fn only(bytes: &[u8], line: &str) -> Answer {
    let (answer, rest) = Answer::take(bytes, line.starts_with("HEAD"));
    assert_eq!(rest, b"", "after {answer:?}");
    answer
}

impl Door {
    pub(crate) fn of(running: Running, store: holdfast::Store) -> Self {
        Door { running, store, _folder: TempDir::new().unwrap() }
    }

    /// Sends these bytes, says no more, and returns all that comes back.
    pub(crate) fn say_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.sent(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_bytes(&mut stream)
    }

    /// A connection on which these bytes were sent. A server that has seen enough may close while they are.
    fn sent(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = connect(self.running.local_addr());
        let _ = stream.write_all(bytes);
        stream
    }

    pub(crate) fn say(&self, bytes: &[u8]) -> String {
        String::from_utf8(self.say_bytes(bytes)).unwrap()
    }

    pub(crate) fn ask(&self, line: &str, headers: &str) -> String {
        self.say(format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes())
    }

    /// One request with this body, and its answer, for which the client waits. Without a body none is announced.
    pub(crate) fn send(&self, line: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Answer {
        let bytes = read_bytes(&mut self.sent(&request(line, headers, body)));
        only(&bytes, line)
    }

    /// One request, and the answer to a client that says that it sends no more.
    pub(crate) fn send_last(&self, line: &str, body: Option<&[u8]>) -> Answer {
        only(&self.say_bytes(&request(line, &[], body)), line)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &[], None)
    }

    pub(crate) fn put(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.send(&format!("PUT {path}"), headers, Some(body.as_bytes()))
    }
}
