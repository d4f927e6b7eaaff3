//! What a door refuses: bytes that are no commands, commands and replies that are too large.
//!
//! May use: the fixture of `serve_tests.rs`. Must not know: the inside of the door.

use super::*;

#[test]
fn garbage_gets_an_error_and_a_closed_connection() {
    let server = start(Durability::Written, |_| {});
    for (send, error) in [
        (b"PING\r\n*1\r\n$-5\r\n".as_slice(), "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n:5\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        (
            b"*9999999999\r\n",
            "-ERR Protocol error: invalid multibulk length: a command may have 1048576 arguments at the most\r\n",
        ),
        (
            b"*1\r\n$99999999999\r\n",
            "-ERR Protocol error: invalid bulk length: an argument may have 67108864 bytes at the most (limits.value_bytes_max)\r\n",
        ),
        (b"SET k \"v\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"*1\r\n*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "-ERR wrong number of arguments for 'get' command\r\n-ERR this is the RESP port; HTTP has a port of its own\r\n",
        ),
    ] {
        let mut stream = server.connect();
        stream.write_all(send).unwrap();
        assert_eq!(rest(&mut stream), error);
    }
    exchange(&mut server.connect(), b"PING\r\n", "+PONG\r\n");
}

/// A socket that is closed with bytes that nobody has read resets the connection, and the error on its way is lost.
#[test]
fn who_sends_too_large_a_value_to_its_end_is_told_the_limit() {
    let server = start(Durability::Written, |options| options.limits.bulk_bytes_max = 1 << 20);
    let mut stream = server.connect();
    let value = vec![b'x'; 20 << 20];
    stream.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).as_bytes()).unwrap();
    stream.write_all(&value).unwrap();
    let error = "-ERR Protocol error: invalid bulk length: an argument may have 1048576 bytes at the most (limits.value_bytes_max)\r\n";
    exchange(&mut stream, b"\r\n", error);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "behind it the connection is closed, not reset");
}

#[test]
fn a_reply_that_is_too_big_is_an_error_and_its_command_does_nothing() {
    let server = start(Durability::Written, |options| options.limits.output_bytes_max = 100_000);
    let mut stream = server.connect();
    exchange(&mut stream, format!("SET k {}\r\n", "x".repeat(60_000)).as_bytes(), "+OK\r\n");
    exchange(&mut stream, b"MGET k k\r\nPING\r\n", "-ERR the reply would exceed 100000 bytes\r\n+PONG\r\n");
    // Nor is what no reply has room for read first, also where the values alone would just fit.
    exchange(&mut stream, format!("SET half {}\r\n", "x".repeat(50_000)).as_bytes(), "+OK\r\n");
    for key in [" k", " half"] {
        let many = format!("MGET{}\r\nPING\r\n", key.repeat(10_000));
        exchange(&mut stream, many.as_bytes(), "-ERR the reply would exceed 100000 bytes\r\n+PONG\r\n");
    }
    let error = "-EXECABORT Transaction discarded: ERR the reply would exceed 100000 bytes\r\n";
    let expect = format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n{error}:0\r\n");
    exchange(&mut stream, b"MULTI\r\nSET a 1\r\nGET k\r\nGETDEL k\r\nEXEC\r\nEXISTS a\r\n", &expect);
}
