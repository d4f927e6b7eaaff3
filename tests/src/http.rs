//! One question over HTTP, and all that is answered.
//!
//! May use: std. Must not know: what is asked.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// No answer takes longer than this, on the slowest machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// What a GET is answered, headers and body.
///
/// # Panics
/// When nothing is.
pub fn http_get(address: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).expect("a socket has a time limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}
