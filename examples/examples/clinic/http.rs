//! As little of HTTP/1.1 as browsers need: a thread for each connection, requests with a body of known length.
//!
//! May use: sockets. Must not know: what pages say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clinic::{Clinic, Failure};
use crate::pages::{Answer, answer, page};

const HEAD_BYTES_MAX: u64 = 16 << 10;
const BODY_BYTES_MAX: usize = 64 << 10;
const CONNECTIONS_MAX: usize = 90;
/// A connection that is silent so long is closed.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// One request.
struct Request {
    method: String,
    target: String,
    form: String,
    closes: bool,
}

/// Serves whoever connects, without end.
pub(crate) fn serve(listener: &TcpListener, clinic: &Arc<dyn Clinic>) -> Result<(), Failure> {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (clinic, open) = (Arc::clone(clinic), Arc::clone(&open));
        std::thread::spawn(move || {
            // Whoever breaks off, or speaks another protocol, harms nobody else.
            let _ = connection(&stream, clinic.as_ref());
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

fn connection(stream: &TcpStream, clinic: &dyn Clinic) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let (mut reader, mut desk) = (BufReader::new(stream), clinic.desk()?);
    while let Some(request) = read(&mut reader)? {
        let answer = match request {
            Ok(Request { ref method, ref target, ref form, .. }) => answer(desk.as_mut(), method, target, form)
                .unwrap_or_else(|failure| sorry("500 Internal Server Error", &failure.to_string())),
            Err(status) => sorry(status, "The request is not understood."),
        };
        // After a request that was not understood nobody knows where the next begins.
        let closes = request.map_or(true, |request| request.closes);
        send(stream, &answer, closes)?;
        if closes {
            break;
        }
    }
    Ok(())
}

fn sorry(status: &'static str, text: &str) -> Answer {
    // What went wrong inside is for whoever runs the program, not for whoever looks at it.
    eprintln!("{status}: {text}");
    Answer { status, ..page("Sorry", "<p>That did not work.</p>") }
}

/// The next request; `None` at the end of the connection. What is wrong with it is a status.
fn read(reader: &mut impl BufRead) -> Result<Option<Result<Request, &'static str>>, Failure> {
    let mut head = reader.by_ref().take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(Some(Err("400 Bad Request"))) };
    let (method, target) = (method.to_owned(), target.to_owned());
    let (mut length, mut closes) = (0, false);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(Some(Err("431 Request Header Fields Too Large")));
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            let Ok(bytes) = value.trim().parse::<usize>() else { return Ok(Some(Err("400 Bad Request"))) };
            length = bytes;
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.trim().eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(Some(Err("501 Not Implemented")));
        }
    }
    if length > BODY_BYTES_MAX {
        return Ok(Some(Err("413 Content Too Large")));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let Ok(form) = String::from_utf8(body) else { return Ok(Some(Err("400 Bad Request"))) };
    Ok(Some(Ok(Request { method, target, form, closes })))
}

fn send(mut stream: &TcpStream, answer: &Answer, closes: bool) -> Result<(), Failure> {
    let Answer { status, location, page } = answer;
    let location = location.as_ref().map(|to| format!("Location: {to}\r\n")).unwrap_or_default();
    let connection = if closes { "Connection: close\r\n" } else { "" };
    let whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n{location}{connection}\r\n{page}",
        page.len()
    );
    Ok(stream.write_all(whole.as_bytes())?)
}
