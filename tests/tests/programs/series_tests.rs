//! Points in the real program: SIGKILL at random moments, while clients write, loses none that was acknowledged: over HTTP by the
//! answer, over TCP by a checkpoint.
//!
//! Each client has a series of its own and writes its rows in order, some in a request; the value of a row is known from its number.
//! So after a restart a client's rows have to be those from 0 on without a gap, at least as many as were acknowledged and at most as
//! many as were sent, each with its value. What was on its way when the answers stopped is written again: a later write of the
//! same moment replaces. Rows are minutes apart, so that time goes by fast enough for blocks to be sealed, and segments of
//! the journal are small, so that it lets go of what is sealed. `HOLDFAST_SERIES_SECONDS` says how long, `HOLDFAST_SEED` where to begin.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Launch, Random, budget};
use tempfile::TempDir;

use crate::crash_tests::die_while_starting;

const CLIENTS: usize = 20;
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
}

/// Where the program listens.
#[derive(Debug, Clone, Copy)]
struct Doors {
    http: SocketAddr,
    line: SocketAddr,
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
fn no_acknowledged_point_is_lost_when_the_program_is_killed_while_twenty_clients_write() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    println!("series: HOLDFAST_SEED={seed}");
    let deadline = Instant::now() + budget("HOLDFAST_SERIES_SECONDS", 30);
    let settings = TempDir::new().expect("a temporary folder");
    let configuration = settings.path().join("holdfast.toml");
    fs::write(&configuration, CONFIGURATION).expect("a file of a test can be written");
    let configuration = configuration.to_str().expect("a temporary folder has a plain name");
    let (mut rounds, mut acknowledged, mut compared) = (0, 0, 0);
    while Instant::now() < deadline {
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
            let doors = Doors { http: server.http(), line: server.line() };
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
    println!("series: {rounds} rounds, {acknowledged} points acknowledged, {compared} compared, 0 lost");
    assert!(rounds > 0 && acknowledged > 0 && compared >= acknowledged, "nothing was tried");
}

impl Writer {
    fn new(name: usize) -> Self {
        let way = [Way::Line, Way::Put, Way::Json, Way::Tcp][name % 4];
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
        let address = if self.way == Way::Tcp { doors.line } else { doors.http };
        let Ok(mut stream) = connect(address) else { return Ok(()) };
        loop {
            let first = self.acknowledged;
            self.sent = self.sent.max(first + ROWS_PER_REQUEST);
            let sent = stream.write_all(&self.request(first));
            let answer = sent.and_then(|()| if self.way == Way::Tcp { line(&mut stream) } else { status(&mut stream) });
            match answer {
                Ok(answer) if answer == "204" || answer.starts_with("checkpoint ") && answer.ends_with(" errors 0") => {
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
    let (mut text, mut some) = (Vec::new(), [0; 512]);
    while !text.windows(end.len()).any(|part| part == end) {
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
