//! Objects over HTTP with real clients, curl and Python's `http.client`, and with clients that misbehave; what was
//! acknowledged survives kills and full disks here as it does for Redis clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Server, SmallDisk, Value, python, run, say};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

/// Runs curl against the server; status and body of the last answer.
fn curl(server: &Server, path: &str, arguments: &[&str]) -> (String, Vec<u8>) {
    let folder = TempDir::new().expect("a temporary folder");
    let body = folder.path().join("body");
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--globoff",
        "--max-time",
        "60",
        "--write-out",
        "%{http_code}",
        "--output",
    ]);
    command.arg(&body).args(arguments).arg(format!("http://{}{path}", server.http()));
    let done = run(&mut command, b"", Duration::from_secs(90));
    assert_eq!(done.code, Some(0), "curl {arguments:?} {path}: {}", done.text);
    (done.text, fs::read(&body).unwrap_or_default())
}

fn text(server: &Server, path: &str, arguments: &[&str]) -> (String, String) {
    let (status, body) = curl(server, path, arguments);
    (status, String::from_utf8(body).expect("an answer of these is text"))
}

fn answer(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

#[test]
fn curl_stores_reads_lists_finds_and_removes() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let key = "/buckets/users/keys/ada%20l";
    let put = [
        "-X",
        "PUT",
        "-H",
        "Content-Type: text/plain",
        "-H",
        "X-Riak-Meta-Title: countess",
        "-H",
        "X-Riak-Index-born_int: 1815",
        "-d",
        "Ada",
    ];
    assert_eq!(text(&server, key, &put), answer("204", ""));
    assert_eq!(text(&server, key, &[]), answer("200", "Ada"));
    let (status, headers) = text(&server, key, &["--head"]);
    assert_eq!(status, "200");
    for line in
        ["content-length: 3", "content-type: text/plain", "x-riak-meta-title: countess", "x-riak-index-born_int: 1815"]
    {
        assert!(headers.lines().any(|found| found == line), "no {line} in\n{headers}");
    }
    let found = "{\"results\":[{\"1815\":\"ada l\"}]}";
    let range = "/buckets/users/index/born_int/1800/1900?return_terms=true";
    assert_eq!(text(&server, range, &[]), answer("200", found));
    assert_eq!(text(&server, "/buckets/users/keys?keys=true", &[]), answer("200", "{\"keys\":[\"ada l\"]}"));
    assert_eq!(text(&server, "/buckets?buckets=true", &[]), answer("200", "{\"buckets\":[\"users\"]}"));
    let (status, location) = text(&server, "/buckets/users/keys", &["-X", "POST", "-d", "x", "-D", "-"]);
    assert!(
        status.ends_with("201") && status.to_lowercase().contains("location: /buckets/users/keys/"),
        "{status}{location}"
    );
    assert_eq!(text(&server, key, &["-X", "PUT", "-d", "B", "-H", "If-None-Match: *"]).0, "412");
    assert_eq!(text(&server, key, &["-X", "PUT", "-H", "Content-Length:"]).0, "411");
    assert_eq!(text(&server, key, &["-X", "PATCH", "-d", "B"]).0, "405");
    assert_eq!(text(&server, key, &["-X", "DELETE"]).0, "204");
    assert_eq!(text(&server, key, &[]), answer("404", "not found\n"));
    let bad =
        ["/buckets/users/index/born_int/x", "/buckets/users/keys/%4", "/buckets/users/index/a_bin/a/b?term_regex=("];
    for path in bad {
        assert_eq!(text(&server, path, &[]).0, "400", "{path}");
    }
}

#[test]
fn curl_sends_large_bodies_whole_in_chunks_and_after_asking() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let file = folder.path().join("large");
    let value = Random::new(7).bytes(20 * MIB + 7);
    fs::write(&file, &value).expect("the file can be written");
    let name = file.display().to_string();
    let from_file = format!("@{name}");
    let ways: [&[&str]; 4] = [
        &["-T", &name],
        &["-T", &name, "-H", "Transfer-Encoding: chunked"],
        &["-X", "PUT", "--data-binary", &from_file, "-H", "Expect: 100-continue"],
        &["-X", "PUT", "--data-binary", &from_file, "-H", "Expect:"],
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let key = format!("/buckets/b/keys/{number}");
        assert_eq!(curl(&server, &key, way).0, "204", "{way:?}");
        assert!(curl(&server, &key, &[]) == ("200".to_owned(), value.clone()), "{way:?} changes the value");
    }
    // Larger than any value may be: refused, and the refusal arrives.
    fs::write(&file, vec![1; 65 * MIB]).expect("the file can be written");
    for way in ways {
        assert_eq!(curl(&server, "/buckets/b/keys/0", way).0, "413", "{way:?}");
    }
    assert!(curl(&server, "/buckets/b/keys/0", &[]).1 == value, "a refused put changes nothing");
}

#[test]
fn redis_clients_see_the_same_objects() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let mut client = server.client();
    assert_eq!(client.say("SET counter 41"), Value::Simple("OK".into()));
    assert_eq!(text(&server, "/buckets/db0/keys/counter", &[]), answer("200", "41"));
    assert_eq!(text(&server, "/buckets/db0/keys/greeting", &["-X", "PUT", "-d", "hello"]).0, "204");
    assert_eq!(client.say("GET greeting"), Value::from("hello"));
    let stored = client.say("KV.PUT b k v META owner ada META :content-type text/css");
    assert!(stored.error().is_none(), "{stored:?}");
    let headers = text(&server, "/buckets/b/keys/k", &["--head"]).1;
    for line in ["content-type: text/css", "x-riak-meta-owner: ada"] {
        assert!(headers.lines().any(|found| found == line), "no {line} in\n{headers}");
    }
}

#[test]
fn pythons_http_client_finds_what_the_manual_says() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("py/http_door.py");
    let mut command = Command::new(python());
    command.arg("-B").arg(&path).args(["--port", &server.http().port().to_string()]);
    let done = run(&mut command, b"", Duration::from_secs(180));
    assert_eq!(done.code, Some(0), "{}", done.text);
    let checks = done.text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    assert!(checks.is_some_and(|checks| checks >= 80), "{}", done.text);
    say!("http.client: {} checks", checks.unwrap_or(0));
}

/// One connection that is kept.
struct Kept(TcpStream);

impl Kept {
    fn to(server: &Server) -> Self {
        let stream = TcpStream::connect(server.http()).expect("the server accepts");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time can be set");
        stream.set_nodelay(true).expect("delay can be turned off");
        Self(stream)
    }

    /// The status of the answer to a put, whose body, if it has one, is read away; `None` when the server is gone.
    fn put(&mut self, key: usize, value: &[u8]) -> Option<u16> {
        let head = format!("PUT /buckets/b/keys/{key} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", value.len());
        self.0.write_all(head.as_bytes()).and_then(|()| self.0.write_all(value)).ok()?;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).ok()?;
            bytes.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        self.0.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    }
}

#[test]
fn what_was_answered_with_204_is_there_after_a_kill() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut first = 0;
    for round in 0..3 {
        let server = Launch::new(folder.path()).durability("synced").start();
        let mut kept = Kept::to(&server);
        for key in first..first + 200 {
            assert_eq!(kept.put(key, format!("value {key}").as_bytes()), Some(204));
        }
        first += 200;
        server.kill();
        let server = Launch::new(folder.path()).start();
        let mut client = server.client();
        for key in 0..first {
            let Value::Array(got) = client.say(&format!("KV.GET b {key}")) else {
                panic!("round {round}: {key} is lost")
            };
            assert_eq!(got.first(), Some(&Value::from(&*format!("value {key}"))), "round {round}");
        }
    }
}

#[test]
fn a_full_disk_is_507_reading_goes_on_and_nothing_acknowledged_is_lost() {
    let size = 256 * MIB;
    let disk = match SmallDisk::mount(size as u64) {
        Ok(disk) => disk,
        Err(reason) => {
            say!("SKIPPED a full disk over HTTP: cannot mount a small one: {reason}");
            return;
        }
    };
    let ballast = disk.ballast(64 * MIB);
    let data = disk.path().join("data");
    let server = Launch::new(&data).durability("written").start();
    let mut kept = Kept::to(&server);
    let value = vec![b'v'; MIB];
    let count = (0..2 * size / MIB).find(|key| match kept.put(*key, &value) {
        Some(204) => false,
        Some(507) => true,
        other => panic!("a put on a disk that fills is answered with {other:?}"),
    });
    let count = count.expect("twice the size of the disk was acknowledged");
    assert!(count > 0, "nothing fitted");
    for key in [0, count / 2, count - 1] {
        assert!(curl(&server, &format!("/buckets/b/keys/{key}"), &[]) == ("200".to_owned(), value.clone()), "{key}");
    }
    assert_eq!(kept.put(count, &value), Some(507), "the connection goes on");
    server.kill();
    fs::remove_file(ballast).expect("the ballast is there");
    let server = Launch::new(&data).start();
    for key in 0..count {
        assert!(curl(&server, &format!("/buckets/b/keys/{key}"), &[]).1 == value, "{key} of {count} is lost");
    }
    assert_eq!(Kept::to(&server).put(count, &value), Some(204), "after space was freed");
}

#[test]
fn half_requests_garbage_and_slow_clients_hurt_nobody_else() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut server = Launch::new(folder.path()).durability("written").start();
    assert_eq!(text(&server, "/buckets/b/keys/witness", &["-X", "PUT", "-d", "here"]).0, "204");
    let before = server.resident_bytes();
    let put = "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: x\r\n";
    let attacks: Vec<(&str, Vec<u8>)> = vec![
        ("half a request line", b"GET /buc".to_vec()),
        ("half the headers", put.into()),
        ("half a body", format!("{put}Content-Length: 1000000\r\n\r\nabc").into()),
        ("a length that is never sent", format!("{put}Content-Length: 67108864\r\n\r\n").into()),
        ("a length of no number", format!("{put}Content-Length: many\r\n\r\nabc").into()),
        ("two lengths", format!("{put}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd").into()),
        ("half a chunk", format!("{put}Transfer-Encoding: chunked\r\n\r\nffff\r\nabc").into()),
        ("a giant chunk", format!("{put}Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nabc").into()),
        ("no chunk at all", format!("{put}Transfer-Encoding: chunked\r\n\r\nzz\r\n").into()),
        ("headers without end", format!("{put}{}", "X: y\r\n".repeat(100_000)).into()),
        ("a header without end", format!("{put}X: {}", "y".repeat(4 << 20)).into()),
        ("a line without end", format!("GET /{}", "y".repeat(4 << 20)).into()),
        ("another protocol", b"*1\r\n$4\r\nPING\r\n".to_vec()),
        ("TLS in the clear", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("zeros", vec![0; 100_000]),
    ];
    let mut held = Vec::new();
    for (what, bytes) in &attacks {
        for _ in 0..10 {
            let mut kept = Kept::to(&server);
            // Some end the connection while this is still sending.
            let _ = kept.0.write_all(bytes);
            held.push(kept);
        }
        assert!(server.is_running(), "the server died of {what}:\n{}", server.output().text());
        let begin = Instant::now();
        assert_eq!(text(&server, "/buckets/b/keys/witness", &[]), answer("200", "here"), "after {what}");
        assert!(begin.elapsed() < Duration::from_secs(5), "after {what} others wait {:?}", begin.elapsed());
    }
    let mut random = Random::new(11);
    for _ in 0..50 {
        let _ = Kept::to(&server).0.write_all(&random.bytes(800));
    }
    assert_eq!(text(&server, "/buckets/b/keys/k", &[]).0, "404", "half a request stores nothing");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 192 * MIB as u64, "it costs {} MiB", grown / MIB as u64);
    assert!(!server.output().text().contains("panicked"), "{}", server.output().text());
    drop(held);
    let mut client: Client = server.client();
    assert_eq!(client.say("PING"), Value::Simple("PONG".into()));
}
