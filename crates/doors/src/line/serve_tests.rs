//! The door over real sockets, on a store that shows what it is given and fails when it is told to.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Socket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use holdfast::series::{Refused, Rows, Written};
use holdfast::{Position, Window};

use super::*;
use crate::line::Limits;
use crate::numbers::PointTotals;

#[path = "deaf_tests.rs"]
mod deaf;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a store was given, and how it behaves.
#[derive(Default)]
struct Given {
    /// Points by what names their series, in the order of batches.
    points: Mutex<Vec<(String, i64, f64)>>,
    batches: Mutex<Vec<usize>>,
    position: AtomicU64,
    synced: AtomicU64,
    /// Writes that fail from now on.
    failures: AtomicU64,
    syncs_fail: AtomicU64,
    /// Writes wait while somebody holds it.
    gate: Mutex<()>,
}

#[derive(Clone, Default)]
struct Fake(Arc<Given>);

impl Writes for Fake {
    fn write(&self, rows: &mut Rows) -> holdfast::Result<Written> {
        drop(self.0.gate.lock().unwrap());
        if self.0.failures.load(SeqCst) > 0 {
            self.0.failures.fetch_sub(1, SeqCst);
            return Err(failure());
        }
        let (mut points, mut refused) = (self.0.points.lock().unwrap(), Vec::new());
        let before = points.len();
        for (_, pending) in rows.pending() {
            let tags: Vec<String> = pending.row.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let name = format!("{}/{},{}#{}", pending.row.database, pending.row.metric, tags.join(","), pending.field);
            if pending.row.metric == "refused" {
                refused.push(Refused {
                    metric: pending.row.metric.clone(),
                    field: pending.field.to_owned(),
                    points: pending.points.len() as u64,
                    owner: pending.owner,
                    reason: "no more series".to_owned(),
                });
                continue;
            }
            points.extend(pending.points.numbers().map(|(time, value)| (name.clone(), time, value)));
        }
        let count = points.len() - before;
        self.0.batches.lock().unwrap().push(count);
        rows.clear();
        let position = Position::new(self.0.position.fetch_add(10, SeqCst) + 10);
        Ok(Written { position, points: count as u64, refused })
    }

    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        Waits::wait(self, position, durability)
    }

    fn now_ms(&self) -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::try_from(now.as_millis()).unwrap()
    }
}

impl Waits for Fake {
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        if durability == Durability::Synced {
            if self.0.syncs_fail.load(SeqCst) > 0 {
                return Err(failure());
            }
            self.0.synced.fetch_max(position.get() + 1, SeqCst);
        }
        Ok(())
    }

    fn written_and_synced(&self) -> (Position, Position) {
        (Position::new(self.0.position.load(SeqCst) + 1), Position::new(self.0.synced.load(SeqCst)))
    }
}

/// An error as a store's: only a store makes them.
fn failure() -> holdfast::Error {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
    store.close().unwrap();
    store.kv().put(b"b", b"k", b"v", &holdfast::PutOptions::default()).unwrap_err()
}

struct Opened {
    running: Running,
    fake: Fake,
}

fn open(change: impl FnOnce(&mut Options)) -> Opened {
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.delay = Duration::from_millis(1);
    change(&mut options);
    let fake = Fake::default();
    let running = serve_on(fake.clone(), Durability::Synced, options).unwrap();
    Opened { running, fake }
}

impl Opened {
    fn connect(&self) -> Client {
        let socket = Socket::connect(self.running.local_addr()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { reader: BufReader::new(socket.try_clone().unwrap()), socket }
    }

    fn points(&self) -> Vec<(String, i64, f64)> {
        self.fake.0.points.lock().unwrap().clone()
    }

    fn totals(&self) -> PointTotals {
        self.running.numbers().points.unwrap()
    }
}

struct Client {
    socket: Socket,
    reader: BufReader<Socket>,
}

impl Client {
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "{line:?}");
        line.trim_end().to_owned()
    }

    /// Everything that comes until the server closes.
    fn rest(&mut self) -> String {
        let mut text = String::new();
        match self.reader.read_to_string(&mut text) {
            Ok(_) => text,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => text,
            Err(error) => panic!("{error} after {text:?}"),
        }
    }

    /// Says that it is durable; the line.
    fn checkpoint(&mut self) -> String {
        self.say("checkpoint\n");
        self.line()
    }
}

fn point(name: &str, seconds: i64, value: f64) -> (String, i64, f64) {
    (format!("default/{name}"), seconds * 1_000_000_000, value)
}

/// The story: a browser and an Influx client were pointed at this port, and got a complaint about every header.
#[test]
fn a_client_of_http_is_told_that_this_is_another_door_and_the_connection_ends() {
    let door = open(|_| {});
    let headers = "Host: a\r\nContent-Length: 5\r\n\r\nm v=1";
    for first in
        ["GET / HTTP/1.1", "POST /write?db=t&precision=s HTTP/1.1", "PUT /x?q=a=1 HTTP/1.0", "OPTIONS * HTTP/1.1"]
    {
        let mut client = door.connect();
        client.say(&format!("{first}\r\n{headers}"));
        let answer = client.rest();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 400 ") && head.contains(&format!("Content-Length: {}\r\n", text.len())),
            "{answer}"
        );
        assert!(
            text.starts_with("error: this is the door for lines of points; HTTP has a port of its own"),
            "{answer}"
        );
        assert!(text.contains("http.listen") && text.lines().count() == 1, "{answer}");
    }
    assert_eq!((door.totals().written, door.totals().malformed), (0, 4));
    // Behind a line of points, and in another form, it is a line as any.
    let mut client = door.connect();
    client.say("m v=1 1\nGET / HTTP/1.1\nHTTP/1.1\ncheckpoint\n");
    assert!(client.line().starts_with("unknown command: GET / HTTP/1.1."));
    assert!(client.line().starts_with("unknown command: HTTP/1.1."));
    assert!(client.line().ends_with("lines 4 errors 2"));
}

#[test]
fn both_shapes_are_written_and_a_checkpoint_says_up_to_where() {
    let door = open(|_| {});
    let mut client = door.connect();
    assert_eq!(client.checkpoint(), "checkpoint 0000000000000000 lines 1 errors 0");
    client.say("put cpu 1356998400 1.5 host=a\ncpu,host=b user=2,system=3i 1356998400\n");
    let line = client.checkpoint();
    assert!(line.starts_with("checkpoint 00000000000000") && line.ends_with(" lines 4 errors 0"), "{line}");
    let wanted = [
        point("cpu,host=a#value", 1_356_998_400, 1.5),
        point("cpu,host=b#user", 1_356_998_400, 2.0),
        point("cpu,host=b#system", 1_356_998_400, 3.0),
    ];
    assert_eq!(door.points(), wanted);
    let position = line.split(' ').nth(1).unwrap();
    let synced = door.fake.0.synced.load(SeqCst);
    assert!(u64::from_str_radix(position, 16).unwrap() < synced, "{line} but synced is {synced}");
}

#[test]
fn points_are_written_in_time_without_anybody_asking() {
    let door = open(|options| options.delay = Duration::from_millis(5));
    let idle = door.connect();
    let mut client = door.connect();
    client.say("put cpu 1356998400 1 host=a\n");
    let begin = Instant::now();
    while door.points().is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    drop(idle);
    let door = open(|options| options.delay = Duration::ZERO);
    door.connect().say("put cpu 1356998400 1 host=a\n");
    while door.points().is_empty() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

#[test]
fn a_bad_line_gets_a_line_back_and_the_others_are_kept() {
    let door = open(|_| {});
    let mut client = door.connect();
    client.say("put a 1 1\nput b x 1\r\n\nput c 1 3\r\ncpu v=\ncpu v=4 1\nput d 1");
    assert_eq!(
        client.line(),
        "put: illegal argument: invalid time 'x': the time is not a number of digits; write seconds since 1970, or with 13, 16 or 19 digits ms, us or ns (line 2: put b x 1)"
    );
    assert_eq!(
        client.line(),
        "error: unable to parse 'cpu v=': missing field value: a field is a name, = and a value (line 5)"
    );
    client.say("0 5\n");
    assert!(client.checkpoint().ends_with("lines 8 errors 2"));
    let wanted =
        [point("a,#value", 1, 1.0), point("c,#value", 1, 3.0), point("cpu,#v", 1, 4.0), point("d,#value", 10, 5.0)];
    assert_eq!(door.points(), wanted);
    assert_eq!(door.totals().malformed, 2);
}

#[test]
fn commands_are_answered_and_none_stops_the_server() {
    let door = open(|_| {});
    let mut client = door.connect();
    client.say("version\nhelp\n");
    assert_eq!(client.line(), concat!("holdfast ", env!("CARGO_PKG_VERSION")));
    for word in ["put", "<metric>", "checkpoint", "stats", "version", "help", "exit"] {
        assert!(client.line().starts_with(word));
    }
    client.say("put a 1 1\ncheckpoint\nstats\n");
    client.line();
    let stats: Vec<String> = (0..12).map(|_| client.line()).collect();
    for wanted in ["holdfast.line.connections ", "holdfast.line.points.written ", "holdfast.line.batches "] {
        let line = stats.iter().find(|line| line.starts_with(wanted)).unwrap();
        assert!(line.ends_with(" 1") && line.split(' ').count() == 3, "{line}");
    }
    for word in ["diediedie", "shutdown", "GET / HTTP/1.1", "stop"] {
        client.say(&format!("{word}\n"));
        assert!(client.line().starts_with(&format!("unknown command: {word}.  Try `help'. (line ")));
    }
    client.say("exit\nput b 1 1\n");
    assert_eq!(client.rest(), "");
    assert_eq!(door.connect().checkpoint(), "checkpoint 0000000000000000 lines 1 errors 0");
}

#[test]
fn lines_may_arrive_in_any_pieces() {
    let door = open(|options| options.limits = Limits::tiny());
    let mut client = door.connect();
    for (at, byte) in "put cpu 1356998400 1.5 host=a\r\ncpu s=\"a\nb\",v=2 1\n".bytes().enumerate() {
        client.socket.write_all(&[byte]).unwrap();
        if at % 7 == 0 {
            std::thread::yield_now();
        }
    }
    assert!(client.checkpoint().ends_with("errors 0"));
    assert_eq!(door.points(), [point("cpu,host=a#value", 1_356_998_400, 1.5), point("cpu,#v", 1, 2.0)]);
}

#[test]
fn half_a_line_at_the_end_is_no_point() {
    let door = open(|_| {});
    let mut client = door.connect();
    client.say("put a 1 1\nput b 1 12");
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(
        client.rest(),
        "error: unable to parse 'put b 1 12': the connection was closed within the line: end each with a line end (line 2)\n"
    );
    door.running.stop();
    assert_eq!(door.fake.0.points.lock().unwrap().len(), 1);
}

#[test]
fn long_lines_and_texts_without_end_are_skipped_and_what_follows_is_kept() {
    let door = open(|options| options.limits = Limits::tiny());
    let mut client = door.connect();
    client.say(&format!("put a 1 1\nput {} 1 1\nput b 1 2\n", "x".repeat(1000)));
    assert!(client.line().contains("the line is longer than 128 bytes: it was skipped (line 2)"));
    client.say(&format!("cpu v=\"open\n{}put c 1 3\n", "put d 1 4\n".repeat(20)));
    assert!(client.line().contains("unbalanced quotes: a text begins and ends with \" (line 4)"));
    assert!(client.checkpoint().ends_with("lines 26 errors 2"));
    assert_eq!(door.points().len(), 23);
}

#[test]
fn a_text_without_end_holds_lines_of_a_live_connection_back_for_a_moment_only() {
    let door = open(|options| options.limits.text_timeout = Duration::from_millis(20));
    let mut client = door.connect();
    client.say("cpu v=\"open\nput a 1 1\ncheckpoint\n");
    assert!(client.line().contains("unbalanced quotes: a text begins and ends with \" (line 1)"));
    assert!(client.line().ends_with("lines 3 errors 1"));
    client.say("mem v=\"too\nput b 1 2\n");
    assert!(client.line().contains("unbalanced quotes: a text begins and ends with \" (line 4)"));
    assert!(client.checkpoint().ends_with("lines 6 errors 2"));
    assert_eq!(door.points(), [point("a,#value", 1, 1.0), point("b,#value", 1, 2.0)]);
    // One that is ended in time may come in pieces.
    let door = open(|options| options.limits.text_timeout = PATIENCE);
    let mut client = door.connect();
    client.say("log text=\"one\n");
    client.socket.flush().unwrap();
    client.say("two\" 1\nput a 1 1\n");
    assert!(client.checkpoint().ends_with("lines 4 errors 0"));
}

#[test]
fn a_store_that_fails_is_told_and_a_checkpoint_does_not_hide_it() {
    let door = open(|options| options.delay = Duration::from_secs(60));
    let mut client = door.connect();
    door.fake.0.failures.store(1, SeqCst);
    client.say("put a 1 1\nput a 2 2\n");
    client.say("checkpoint\n");
    let line = client.line();
    assert!(line.starts_with("error: 2 points were not written: "), "{line}");
    let line = client.line();
    assert!(line.starts_with("checkpoint failed lines 3 errors 2: "), "{line}");
    client.say("put a 3 3\n");
    assert!(client.checkpoint().starts_with("checkpoint 000000000000000a lines 5 errors 2"));
    assert_eq!((door.totals().lost, door.totals().written), (2, 1));
    door.fake.0.syncs_fail.store(1, SeqCst);
    client.say("put a 4 4\n");
    assert!(client.checkpoint().starts_with("checkpoint failed lines 7 errors 2: "));
}

#[test]
fn points_that_the_store_refuses_are_counted_and_told() {
    let door = open(|options| options.delay = Duration::from_secs(60));
    let mut client = door.connect();
    client.say("put refused 1 1\nput refused 2 2\nput a 1 1\ncheckpoint\n");
    assert_eq!(client.line(), "error: 2 points of refused value were refused: no more series");
    assert!(client.line().ends_with("lines 4 errors 2"));
    assert_eq!((door.totals().refused, door.totals().written), (2, 1));
}

#[test]
fn a_batch_is_written_when_it_is_full() {
    let door = open(|options| {
        options.limits = Limits::tiny();
        options.delay = Duration::from_secs(60);
    });
    let mut client = door.connect();
    client.say(&(0..20).map(|at| format!("put a {at} 1\n")).collect::<String>());
    client.checkpoint();
    assert_eq!(*door.fake.0.batches.lock().unwrap(), [8, 8, 4]);
}

#[test]
fn clients_that_saturate_the_door_all_have_their_turn() {
    const CLIENTS: usize = 50;
    let door = open(|options| options.limits = Limits { turn_bytes: 1 << 10, ..Limits::default() });
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| door.connect()).collect();
    // All sockets' buffers are full before the first of them is read to its end.
    let lines = 4000;
    let text: String = (0..lines).map(|at| format!("put cpu {} 1 host=HOST\n", 1_356_998_400 + at)).collect();
    let writers: Vec<_> = clients
        .iter_mut()
        .enumerate()
        .map(|(at, client)| {
            let (mut socket, text) = (client.socket.try_clone().unwrap(), text.replace("HOST", &at.to_string()));
            std::thread::spawn(move || {
                let begin = Instant::now();
                let mut longest = Duration::ZERO;
                for part in text.as_bytes().chunks(4 << 10) {
                    let before = begin.elapsed();
                    socket.write_all(part).unwrap();
                    longest = longest.max(begin.elapsed() - before);
                }
                longest
            })
        })
        .collect();
    let longest = writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap();
    assert!(longest < Duration::from_secs(5), "one waited for {longest:?}");
    clients.iter_mut().for_each(|client| assert!(client.checkpoint().ends_with("errors 0")));
    assert_eq!(door.totals().written, (CLIENTS * lines) as u64);
}

#[test]
fn a_client_that_does_not_read_its_answers_harms_nobody_and_is_closed() {
    let door = open(|options| options.limits = Limits::tiny());
    let mut deaf = door.connect();
    deaf.socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let questions = "help\n".repeat(1000);
    let begin = Instant::now();
    while deaf.socket.write_all(questions.as_bytes()).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it is read without end");
        let mut client = door.connect();
        client.say("put a 1 1\n");
        assert!(client.checkpoint().ends_with("errors 0"));
    }
    while door.running.numbers().connections > 1 {
        assert!(begin.elapsed() < PATIENCE, "it is not closed");
        door.connect().checkpoint();
    }
}

#[test]
fn errors_that_nobody_reads_are_left_out_and_the_points_go_on() {
    let door = open(|options| options.limits = Limits { output_bytes_max: 1 << 10, ..Limits::default() });
    let mut client = door.connect();
    let text: String = (0..200_000).map(|at| format!("put a {at} 1\nput a x 1\n")).collect();
    client.say(&text);
    client.say("checkpoint\n");
    let last = loop {
        let line = client.line();
        if line.starts_with("checkpoint") {
            break line;
        }
    };
    assert!(last.ends_with("lines 400001 errors 200000"), "{last}");
    assert_eq!(door.totals().written, 200_000);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let door = open(|options| options.limits = Limits::tiny());
    let mut clients: Vec<Client> = (0..4).map(|_| door.connect()).collect();
    clients.iter_mut().for_each(|client| assert!(client.checkpoint().starts_with("checkpoint")));
    assert_eq!(door.connect().rest(), "error: too many connections\n");
    clients.pop();
    let begin = Instant::now();
    while door.running.numbers().connections > 3 {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(door.connect().checkpoint().starts_with("checkpoint"));
}

#[test]
fn idle_connections_are_closed_if_they_are_to_be() {
    let door = open(|options| {
        options.limits = Limits::tiny();
        options.idle_timeout = Some(Duration::from_millis(50));
    });
    assert_eq!(door.connect().rest(), "");
}

#[test]
fn several_threads_share_the_connections_and_stopping_writes_what_was_read() {
    let window = Window { min: Duration::from_millis(1), max: Duration::from_millis(2) };
    for durability in [Durability::Written, Durability::Window(window), Durability::Synced] {
        let door = open(|options| {
            options.reactors = 3;
            options.delay = Duration::from_secs(60);
            options.durability = Some(durability);
        });
        let mut clients: Vec<Client> = (0..9).map(|_| door.connect()).collect();
        for client in &mut clients {
            client.say("put a 1 1\nversion\n");
            client.line();
        }
        let fake = door.fake.clone();
        door.running.stop();
        assert_eq!(fake.0.points.lock().unwrap().len(), 9);
        clients.iter_mut().for_each(|client| assert_eq!(client.rest(), ""));
    }
}

#[test]
fn datagrams_are_taken_with_one_or_more_lines_each_and_what_is_bad_is_counted() {
    let door = open(|options| options.udp_listen = Some("127.0.0.1:0".parse().unwrap()));
    let socket = StdSocket::bind("127.0.0.1:0").unwrap();
    let to = door.running.udp_addr().unwrap();
    for text in ["put a 1 1", "put a 2 2\nput a x 2\ncpu v=3 3\n", "checkpoint", "cpu v=\"open", "", "put a 4 4\n"] {
        socket.send_to(text.as_bytes(), to).unwrap();
    }
    let large: String = (0..3000).map(|at| format!("put big {at} 1\n")).collect();
    socket.send_to(large.as_bytes(), to).unwrap();
    let begin = Instant::now();
    while door.totals().written < 3004 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", door.totals());
        std::thread::yield_now();
    }
    let totals = door.totals();
    assert_eq!((totals.datagrams, totals.malformed, totals.datagrams_dropped), (7, 3, 0));
    let wanted =
        [point("a,#value", 1, 1.0), point("a,#value", 2, 2.0), point("cpu,#v", 3, 3.0), point("a,#value", 4, 4.0)];
    assert!(wanted.iter().all(|point| door.points().contains(point)));
}

#[test]
fn datagrams_without_room_are_counted() {
    let door = open(|options| options.udp_listen = Some("127.0.0.1:0".parse().unwrap()));
    let socket = StdSocket::bind("127.0.0.1:0").unwrap();
    let to = door.running.udp_addr().unwrap();
    let text = "put big 1 1 host=somebody\n".repeat(2000);
    let begin = Instant::now();
    // The system tells of drops with the datagrams that come after them.
    while door.totals().datagrams_dropped == 0 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", door.totals());
        (0..200).for_each(|_| drop(socket.send_to(text.as_bytes(), to)));
    }
}

#[test]
fn what_a_checkpoint_promised_is_in_the_store_when_it_is_opened_again() {
    use holdfast::series::{Points, Range, Select, Source};
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
    let running = serve(store.clone(), Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let socket = Socket::connect(running.local_addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client { reader: BufReader::new(socket.try_clone().unwrap()), socket };
    client.say(
        &(0..1000).map(|at| format!("put cpu {at} {at} host=a\ncpu,host=a user={at}i {at}\n")).collect::<String>(),
    );
    client.say("cpu,host=a user=\"text\" 5\n");
    client.say("checkpoint\n");
    let told = client.line();
    assert!(told.starts_with("error: 1 points of cpu user were refused: field type conflict"), "{told}");
    assert!(client.checkpoint().contains(" lines "), "it is answered");
    running.stop();
    store.close().unwrap();
    let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
    let reader = store.series().reader();
    let found = reader.series(&Select::metric("default", "cpu")).unwrap();
    let mut points = Points::new();
    found.iter().for_each(|series| reader.points(series.id, Range::ALL, &mut points).unwrap());
    assert_eq!(points.len(), 2000);
}

#[test]
fn points_that_are_older_than_they_are_kept_are_told_to_who_sent_them() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut options = holdfast::Options::default();
    let (database, metric) = ("*".to_owned(), "*".to_owned());
    options.series.retention = vec![holdfast::series::Retention { database, metric, keep: Duration::from_secs(3600) }];
    let store = Store::open(folder.path(), options).unwrap();
    let running = serve(store, Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let socket = Socket::connect(running.local_addr()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client { reader: BufReader::new(socket.try_clone().unwrap()), socket };
    client.say("put cpu 1356998400 1\ncpu user=1\ncheckpoint\n");
    assert_eq!(client.line(), "error: 1 points of cpu value were refused: points beyond retention policy");
    assert!(client.line().ends_with(" lines 3 errors 1"));
}
