//! Points in the real program: SIGKILL at random moments, while clients write, loses none that was acknowledged: over HTTP (lines,
//! `put`, JSON, Prometheus' remote write) and RESP by the answer, over TCP by a checkpoint.
//!
//! Each client has a series of its own and writes its rows in order, some in a request; the value of a row is known from its number.
//! So after a restart a client's rows have to be those from 0 on without a gap, at least as many as were acknowledged and at most as
//! many as were sent, each with its value. What was on its way when the answers stopped is written again: a later write of the
//! same moment replaces. Rows are minutes apart, so that time goes by fast enough for blocks to be sealed, and segments of
//! the journal are small, so that it lets go of what is sealed. `HOLDFAST_SERIES_SECONDS` says how long, `HOLDFAST_SERIES_POINTS`
//! instead until how many points were acknowledged, `HOLDFAST_SEED` where to begin.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Launch, Random, budget, say};
use tempfile::TempDir;

use crate::crash_tests::die_while_starting;

const CLIENTS: usize = 24;
const LIFE_MAX_MILLIS: usize = 400;
/// Rounds on one folder: enough that most of what is there was sealed, few enough that reading it all stays quick.
const ROUNDS_PER_FOLDER: usize = 12;
const ROWS_PER_REQUEST: u64 = 20;
const FIRST_MILLIS: u64 = 1_699_999_200_000;
const STEP_MILLIS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(60);
const DURABILITIES: &[&str] = &["synced", "written", "window:1ms,20ms"];
const CONFIGURATION: &str = "\
[compaction]
bytes_per_second = 0
dead_percent = 1
keep_bytes = 0
[limits]
segment_bytes = 1048576
";

/// How a client writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `POST /write`.
    Line,
    /// `POST /api/put`, lines.
    Put,
    /// `POST /api/put`, JSON.
    Json,
    /// Influx lines over TCP, with a checkpoint after each request.
    Tcp,
    /// `POST /api/v1/write`, as Prometheus sends it.
    Remote,
    /// `TS.MADD`.
    Madd,
}

/// Where the program listens.
#[derive(Debug, Clone, Copy)]
struct Doors {
    http: SocketAddr,
    line: SocketAddr,
    resp: SocketAddr,
}

/// What one client knows.
#[derive(Debug)]
struct Writer {
    name: usize,
    way: Way,
    acknowledged: u64,
    sent: u64,
}

#[test]
fn no_acknowledged_point_is_lost_when_the_program_is_killed_while_clients_write_in_every_way() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    say!("series: HOLDFAST_SEED={seed}");
    let deadline = Instant::now() + budget("HOLDFAST_SERIES_SECONDS", 30);
    let wanted: Option<u64> = std::env::var("HOLDFAST_SERIES_POINTS").ok().and_then(|text| text.parse().ok());
    let settings = TempDir::new().expect("a temporary folder");
    let configuration = settings.path().join("holdfast.toml");
    fs::write(&configuration, CONFIGURATION).expect("a file of a test can be written");
    let configuration = configuration.to_str().expect("a temporary folder has a plain name");
    let (mut rounds, mut acknowledged, mut compared) = (0, 0, 0);
    while wanted.map_or_else(|| Instant::now() < deadline, |wanted| acknowledged < wanted) {
        let folder = TempDir::new().expect("a temporary folder");
        let mut writers: Vec<Writer> = (0..CLIENTS).map(Writer::new).collect();
        for _ in 0..ROUNDS_PER_FOLDER {
            let durability = DURABILITIES[random.below(DURABILITIES.len())];
            let launch = Launch::new(folder.path()).durability(durability).argument("--config").argument(configuration);
            if random.below(3) == 0 {
                die_while_starting(&launch, &mut random);
            }
            let server = launch.start();
            let told = |what: String| format!("seed {seed}, round {rounds}, {durability}: {what}");
            for writer in &mut writers {
                compared += writer.compare(server.http()).map_err(told).unwrap_or_else(|what| panic!("{what}"));
            }
            let life = Duration::from_millis(random.below(LIFE_MAX_MILLIS) as u64);
            let doors = Doors { http: server.http(), line: server.line(), resp: server.resp() };
            let outcome: Result<(), String> = thread::scope(|scope| {
                let running: Vec<_> =
                    writers.iter_mut().map(|writer| scope.spawn(move || writer.write(doors))).collect();
                thread::sleep(life);
                server.kill();
                running.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
            });
            outcome.map_err(told).unwrap_or_else(|what| panic!("{what}"));
            rounds += 1;
        }
        let server = Launch::new(folder.path()).start();
        for writer in &mut writers {
            compared += writer.compare(server.http()).unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}"));
            acknowledged += writer.acknowledged;
        }
    }
    say!("series: {rounds} rounds, {acknowledged} points acknowledged, {compared} compared, 0 lost");
    assert!(rounds > 0 && acknowledged > 0 && compared >= acknowledged, "nothing was tried");
}

impl Writer {
    fn new(name: usize) -> Self {
        let way = [Way::Line, Way::Put, Way::Json, Way::Tcp, Way::Remote, Way::Madd][name % 6];
        Self { name, way, acknowledged: 0, sent: 0 }
    }

    /// The value of a row, with two decimals that differ from client to client.
    fn value(&self, row: u64) -> f64 {
        ((row * 7_919 + self.name as u64 * 104_729) % 100_000) as f64 / 100.0
    }

    fn request(&self, first: u64) -> Vec<u8> {
        let rows = first..first + ROWS_PER_REQUEST;
        let name = self.name;
        let point = |row: u64| (FIRST_MILLIS + row * STEP_MILLIS, self.value(row));
        let line = |(at, value)| format!("load,client=c{name} value={value} {at}\n");
        let (path, kind, body) = match self.way {
            Way::Line => {
                ("/write?db=default&precision=ms", "text/plain", rows.map(point).map(line).collect::<String>())
            }
            Way::Tcp => return format!("{}checkpoint\n", rows.map(point).map(line).collect::<String>()).into(),
            Way::Madd => return madd(&format!("load,client=c{name}"), rows.map(point)),
            Way::Remote => return remote_write(&format!("c{name}"), rows.map(point)),
            Way::Put => {
                let lines = rows.map(point).map(|(at, value)| format!("put load {at} {value} client=c{name}\n"));
                ("/api/put", "text/plain", lines.collect())
            }
            Way::Json => {
                let one = |(at, value)| {
                    format!(r#"{{"metric":"load","timestamp":{at},"value":{value},"tags":{{"client":"c{name}"}}}}"#)
                };
                (
                    "/api/put",
                    "application/json",
                    format!("[{}]", rows.map(point).map(one).collect::<Vec<_>>().join(",")),
                )
            }
        };
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
            .into()
    }

    /// Writes until the server is gone. Any answer but one of success is a failure.
    fn write(&mut self, doors: Doors) -> Result<(), String> {
        let address = match self.way {
            Way::Tcp => doors.line,
            Way::Madd => doors.resp,
            _ => doors.http,
        };
        let Ok(mut stream) = connect(address) else { return Ok(()) };
        loop {
            let first = self.acknowledged;
            self.sent = self.sent.max(first + ROWS_PER_REQUEST);
            let sent = stream.write_all(&self.request(first));
            let answer = sent.and_then(|()| match self.way {
                Way::Tcp => line(&mut stream),
                Way::Madd => times(&mut stream),
                _ => status(&mut stream),
            });
            let is_good = |answer: &str| match self.way {
                Way::Tcp => answer.starts_with("checkpoint ") && answer.ends_with(" errors 0"),
                Way::Madd => answer.starts_with(&format!("*{ROWS_PER_REQUEST}\r\n:")),
                _ => answer == "204",
            };
            match answer {
                Ok(answer) if is_good(&answer) => {
                    self.acknowledged += ROWS_PER_REQUEST;
                }
                Ok(other) => return Err(format!("client {}, {:?}: answered with {other}", self.name, self.way)),
                Err(_) => return Ok(()),
            }
        }
    }

    /// Looks whether the rows are what they have to be; how many there are.
    fn compare(&mut self, address: SocketAddr) -> Result<u64, String> {
        let wrong = |what: String| format!("client {}, {:?}: {what}", self.name, self.way);
        let found = points(address, self.name).map_err(wrong)?;
        let count = found.len() as u64;
        if count < self.acknowledged || count > self.sent {
            let (acknowledged, sent) = (self.acknowledged, self.sent);
            return Err(wrong(format!("{count} points found, {acknowledged} acknowledged, {sent} sent")));
        }
        for (row, (at, value)) in (0..).zip(found) {
            let wanted = (FIRST_MILLIS + row * STEP_MILLIS, self.value(row));
            if (at, value) != wanted {
                return Err(wrong(format!("row {row} is {:?} and has to be {wanted:?}", (at, value))));
            }
        }
        Ok(count)
    }
}

/// `TS.MADD` as RESP has it.
fn madd(series: &str, points: impl Iterator<Item = (u64, f64)>) -> Vec<u8> {
    let mut words = vec!["TS.MADD".to_owned()];
    points.for_each(|(at, value)| words.extend([series.to_owned(), at.to_string(), value.to_string()]));
    let bulk = |word: &String| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(bulk).collect::<String>()).into()
}

/// A field of protocol buffers whose value has a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    varint(value.len() as u64, &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

fn varint(mut number: u64, to: &mut Vec<u8>) {
    while number > 0x7f {
        to.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// One series of Prometheus' remote write, in a block of snappy that has it as it is.
fn remote_write(client: &str, points: impl Iterator<Item = (u64, f64)>) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in [("__name__", "load"), ("client", client)] {
        series.extend(field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat()));
    }
    for (at, value) in points {
        let mut sample = vec![1 << 3 | 1];
        sample.extend_from_slice(&value.to_le_bytes());
        sample.push(2 << 3);
        varint(at, &mut sample);
        series.extend(field(2, &sample));
    }
    let plain = field(1, &series);
    let mut body = Vec::new();
    varint(plain.len() as u64, &mut body);
    for part in plain.chunks(60) {
        body.push((part.len() as u8 - 1) << 2);
        body.extend_from_slice(part);
    }
    let length = body.len();
    let head = format!(
        "POST /api/v1/write?db=default HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n\
         Content-Type: application/x-protobuf\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), &body].concat()
}

/// The list of times that `TS.MADD` is answered with, or the line of an error.
fn times(stream: &mut TcpStream) -> std::io::Result<String> {
    let lines = |text: &[u8]| if text.starts_with(b"*") { ROWS_PER_REQUEST as usize + 1 } else { 1 };
    read_while(stream, |text| text.iter().filter(|byte| **byte == b'\n').count() < lines(text))
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The status of an answer without a body, or of one whose body does not matter because it ends everything.
fn status(stream: &mut TcpStream) -> std::io::Result<String> {
    let head = until(stream, b"\r\n\r\n")?;
    head.split(' ').nth(1).map(str::to_owned).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// The one line that a checkpoint is answered with.
fn line(stream: &mut TcpStream) -> std::io::Result<String> {
    until(stream, b"\n").map(|line| line.trim_end().to_owned())
}

fn until(stream: &mut TcpStream, end: &[u8]) -> std::io::Result<String> {
    read_while(stream, |text| !text.windows(end.len()).any(|part| part == end))
}

fn read_while(stream: &mut TcpStream, is_unfinished: impl Fn(&[u8]) -> bool) -> std::io::Result<String> {
    let (mut text, mut some) = (Vec::new(), [0; 512]);
    while is_unfinished(&text) {
        match stream.read(&mut some)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => text.extend_from_slice(&some[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// All points of a client, in order of time. HTTP/1.0 has no chunks, and ends with the connection.
fn points(address: SocketAddr, client: usize) -> Result<Vec<(u64, f64)>, String> {
    let query = format!("SELECT%20value%20FROM%20load%20WHERE%20client%20%3D%20%27c{client}%27");
    let request = format!("GET /query?db=default&epoch=ms&q={query} HTTP/1.0\r\nHost: x\r\n\r\n");
    let mut answer = String::new();
    let asked = connect(address).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        stream.read_to_string(&mut answer)
    });
    asked.map_err(|error| format!("asking failed: {error}"))?;
    if answer.contains("database not found") {
        // Nobody has written anything yet.
        return Ok(Vec::new());
    }
    let start: String = answer.chars().take(400).collect();
    if !answer.starts_with("HTTP/1.") || answer.split(' ').nth(1) != Some("200") || answer.contains("\"error\"") {
        return Err(format!("the question was answered with {start}"));
    }
    let Some((_, values)) = answer.split_once("\"values\":[[") else { return Ok(Vec::new()) };
    let (values, _) = values.split_once("]]").ok_or_else(|| format!("an answer without end: {start}"))?;
    let point = |text: &str| text.split_once(',').and_then(|(at, value)| Some((at.parse().ok()?, value.parse().ok()?)));
    let points: Option<Vec<(u64, f64)>> = values.split("],[").map(point).collect();
    points.ok_or_else(|| format!("these are no points: {start}"))
}
