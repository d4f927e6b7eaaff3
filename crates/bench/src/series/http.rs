//! The least of an HTTP/1.1 client that does: whole requests made beforehand out, answers in, one connection that is kept.
//!
//! A client of the usual kind would cost more than the servers that are measured. It reads answers of a known length, in chunks, and
//! without a body.
//!
//! May use: tokio's sockets. Must not know: what is asked.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::workload::{Failure, Result};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A count of 200 000 series takes some 50 MB.
const BODY_BYTES_MAX: usize = 512 << 20;
/// As much as the system keeps of what a client sent: some requests. Left alone it keeps megabytes, a whole short run, and a write
/// that nobody answers would seem to take no time although the server has not begun to read.
const SEND_BYTES: u32 = 64 << 10;
const READ_BYTES: usize = 64 << 10;

/// A connection, and room for one answer.
pub(crate) struct Http {
    stream: TcpStream,
    buffer: Vec<u8>,
    body: Vec<u8>,
}

/// What the head of an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    length: Length,
    /// Where the body begins.
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunks,
}

/// Connects, within a time.
pub(crate) async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_send_buffer_size(SEND_BYTES)?;
    let connected = tokio::time::timeout(CONNECT_TIME_MAX, socket.connect(address)).await;
    let stream = connected
        .map_err(|_| Failure::from(format!("{address} does not accept a connection")))?
        .map_err(|error| Failure::from(format!("{address}: {error}")))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Http {
    /// A connection to this address.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = connect(address).await?;
        Ok(Self { stream, buffer: Vec::with_capacity(2 * READ_BYTES), body: Vec::new() })
    }

    /// Sends a request and reads its answer, whose body is there until the next.
    ///
    /// # Errors
    /// When the answer is not one of success, with its beginning.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        let status = self.exchange(request).await?;
        if !(200..300).contains(&status) {
            let start: String = String::from_utf8_lossy(&self.body).chars().take(300).collect();
            return Err(format!("the server answered {status}: {}", start.trim()).into());
        }
        Ok(&self.body)
    }

    /// Sends a request and reads its answer; the status, whichever it is.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<u16> {
        self.buffer.clear();
        self.body.clear();
        let head = loop {
            match head_of(&self.buffer)? {
                Some(head) if head.status == 100 => drop(self.buffer.drain(..head.end)),
                Some(head) => break head,
                None if self.buffer.len() > HEAD_BYTES_MAX => return Err("an answer has a head without end".into()),
                None => self.more().await?,
            }
        };
        let mut at = head.end;
        match head.length {
            Length::Bytes(length) if length > BODY_BYTES_MAX => return Err("an answer is too long".into()),
            Length::Bytes(length) => {
                while self.buffer.len() < at + length {
                    self.more().await?;
                }
                self.body.extend_from_slice(self.buffer.get(at..at + length).unwrap_or_default());
            }
            Length::Chunks => loop {
                match chunk_of(self.buffer.get(at..).unwrap_or_default())? {
                    Some((chunk, used)) => {
                        self.body.extend_from_slice(chunk);
                        at += used;
                        if chunk.is_empty() {
                            break;
                        }
                    }
                    None => {
                        // What was used makes room, so that a long body does not take it twice.
                        drop(self.buffer.drain(..at));
                        at = 0;
                        self.more().await?;
                    }
                }
                if self.body.len() > BODY_BYTES_MAX {
                    return Err("an answer is too long".into());
                }
            },
        }
        Ok(head.status)
    }

    async fn more(&mut self) -> Result<()> {
        if self.buffer.capacity() - self.buffer.len() < READ_BYTES / 2 {
            self.buffer.reserve(READ_BYTES.max(self.buffer.len()));
        }
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err("the server closed the connection before its answer was complete".into()),
            _ => Ok(()),
        }
    }
}

/// The head, once all of it is there.
fn head_of(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default());
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| Failure::from(format!("this is no answer of HTTP: {text}")))?;
    let mut length = Length::Bytes(0);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            let bytes = value.trim().parse().map_err(|_| Failure::from(format!("an answer of length {value}")))?;
            length = Length::Bytes(bytes);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
            length = Length::Chunks;
            break;
        }
    }
    Ok(Some(Head { status, length, end: end + 4 }))
}

/// The next chunk and how many bytes it took, once all of it is there. The last one is empty.
fn chunk_of(bytes: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let Some(line) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let digits = String::from_utf8_lossy(bytes.get(..line).unwrap_or_default());
    let digits = digits.split(';').next().unwrap_or_default().trim();
    let length = usize::from_str_radix(digits, 16).ok().filter(|length| *length <= BODY_BYTES_MAX);
    let length = length.ok_or_else(|| Failure::from(format!("an answer has a chunk of length `{digits}`")))?;
    let (start, used) = (line + 2, line + 2 + length + 2);
    let chunk = bytes.get(start..start + length).filter(|_| bytes.len() >= used);
    Ok(chunk.map(|chunk| (chunk, used)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_head_says_status_and_length_in_any_case() {
        let head = |text: &str| head_of(text.as_bytes()).unwrap().map(|head| (head.status, head.length));
        assert_eq!(head("HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"), Some((204, Length::Bytes(0))));
        assert_eq!(head("HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\n\r\n"), Some((200, Length::Bytes(12))));
        assert_eq!(head("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Some((200, Length::Chunks)));
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Le"), None);
        assert!(
            head_of(b"-ERR no\r\n\r\n").is_err() && head_of(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err()
        );
    }

    #[test]
    fn chunks_are_read_when_they_are_complete() {
        assert_eq!(chunk_of(b"5\r\nabcde\r\n0\r\n").unwrap(), Some((b"abcde".as_slice(), 10)));
        assert_eq!(chunk_of(b"0\r\n\r\n").unwrap(), Some((b"".as_slice(), 5)));
        for part in [b"".as_slice(), b"5", b"5\r\nabc", b"5\r\nabcde\r", b"0\r\n"] {
            assert_eq!(chunk_of(part).unwrap(), None);
        }
        assert!(chunk_of(b"ffffffffffff\r\n").is_err() && chunk_of(b"zz\r\n").is_err());
    }

    #[test]
    fn answers_come_in_pieces_one_after_the_other() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answers: [&[&str]; 4] = [
                &["HTTP/1.1 200 OK\r\nContent-Len", "gth: 5\r\n\r\nab", "cde"],
                &["HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"],
                &["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "c\r\n2\r", "\nde\r\n0\r\n\r\n"],
                &["HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nlost"],
            ];
            for pieces in answers {
                stream.read_exact(&mut [0; 3]).unwrap();
                for piece in pieces {
                    stream.write_all(piece.as_bytes()).unwrap();
                    stream.flush().unwrap();
                    std::thread::yield_now();
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut http = Http::connect(address).await.unwrap();
            assert_eq!(http.ask(b"one").await.unwrap(), b"abcde");
            assert_eq!(http.ask(b"two").await.unwrap(), b"");
            assert_eq!(http.ask(b"tri").await.unwrap(), b"abcde");
            let failure = http.ask(b"for").await.unwrap_err().to_string();
            assert!(failure.contains("400: lost"), "{failure}");
            assert!(http.ask(b"fiv").await.is_err(), "it is closed");
        });
        server.join().unwrap();
    }
}
