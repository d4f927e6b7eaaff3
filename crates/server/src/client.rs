//! A client of the own server's RESP door, for the one command that a subcommand needs.
//!
//! May use: std's sockets. Must not know: what the commands mean.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest line and string of an answer: ours are short.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const ITEMS_MAX: usize = 1000;

/// One connection. There is no time limit for an answer: a backup may have much to copy.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and takes its answer: the strings and numbers in it as text, or an error's text.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> io::Result<Result<Vec<String>, String>> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Result<Vec<String>, String>> {
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("-", text)) => Ok(Err(text.to_owned())),
            Some(("*", count)) => {
                let count = count.parse().ok().filter(|count| *count <= ITEMS_MAX).ok_or_else(|| no_resp(&line))?;
                (0..count).map(|_| self.item()).collect::<io::Result<_>>().map(Ok)
            }
            _ => self.item_of(&line).map(|item| Ok(vec![item])),
        }
    }

    fn item(&mut self) -> io::Result<String> {
        let line = self.line()?;
        self.item_of(&line)
    }

    fn item_of(&mut self, line: &str) -> io::Result<String> {
        match line.split_at_checked(1) {
            Some(("+" | ":", text)) => Ok(text.to_owned()),
            Some(("$", length)) => {
                let length = length.parse::<usize>().ok().filter(|length| *length <= ANSWER_BYTES_MAX);
                let mut bytes = vec![0; length.ok_or_else(|| no_resp(line))? + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => Err(no_resp(line)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.stream).take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection without an answer"));
        }
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| no_resp(&line))
    }
}

fn no_resp(line: &str) -> io::Error {
    // What TLS begins to tell somebody with who does not speak it.
    if line.starts_with("\u{15}\u{3}") {
        return io::Error::new(io::ErrorKind::InvalidData, "it speaks TLS");
    }
    let start: String = line.chars().take(40).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("it does not speak RESP: {}", start.escape_debug()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answer(bytes: &'static [u8]) -> io::Result<Result<Vec<String>, String>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 14];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(&asked, b"*1\r\n$4\r\nPING\r\n");
            stream.write_all(bytes).unwrap();
        });
        let answer = Client::connect(address).unwrap().call(&[b"PING"]);
        server.join().unwrap();
        answer
    }

    #[test]
    fn answers_are_taken_apart_and_garbage_is_an_error() {
        assert_eq!(answer(b"+PONG\r\n").unwrap(), Ok(vec!["PONG".to_owned()]));
        assert_eq!(answer(b"-ERR no\r\n").unwrap(), Err("ERR no".to_owned()));
        assert_eq!(answer(b"*2\r\n$1\r\na\r\n:7\r\n").unwrap(), Ok(vec!["a".to_owned(), "7".to_owned()]));
        for garbage in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n", b"*9999\r\n", b"$99999999\r\n", b"+no end"] {
            assert!(answer(garbage).is_err(), "{}", garbage.escape_ascii());
        }
    }
}
