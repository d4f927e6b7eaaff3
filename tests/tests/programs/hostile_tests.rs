//! Clients that send nonsense, too much, too little or nothing, and clients that do not read: the server stays up, serves
//! everybody else, and holds a bounded amount of memory for them.

use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Server, Value, budget, say};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// What a hostile client, or a few hundred of them, may cost.
const MEMORY_MAX: u64 = 192 * MIB;

struct Watched {
    server: Server,
    resident_before: u64,
    _folder: TempDir,
}

impl Watched {
    fn start() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let server = Launch::new(folder.path()).durability("written").start();
        let mut client = server.client();
        assert_eq!(client.say("SET witness here"), Value::Simple("OK".into()));
        let resident_before = server.resident_bytes();
        Self { server, resident_before, _folder: folder }
    }

    /// Serves others, quickly, and has not grown.
    fn is_well(&mut self, after: &str) {
        let begin = Instant::now();
        assert!(self.server.is_running(), "the server died of {after}:\n{}", self.server.output().text());
        assert_eq!(self.server.client().say("GET witness"), Value::from("here"), "after {after}");
        assert!(begin.elapsed() < Duration::from_secs(5), "after {after} others wait {:?}", begin.elapsed());
        let grown = self.server.resident_bytes().saturating_sub(self.resident_before);
        assert!(grown < MEMORY_MAX, "{after} costs {} MiB", grown / MIB);
        let text = self.server.output().text();
        assert!(!text.contains("panicked"), "after {after}:\n{text}");
    }
}

#[test]
fn garbage_giant_lengths_and_half_frames_hurt_nobody_else() {
    let mut watched = Watched::start();
    let nested = "*1\r\n".repeat(200_000);
    let attacks: &[(&str, &[u8])] = &[
        ("a giant array", b"*2147483647\r\n$1\r\na\r\n"),
        ("an array longer than any integer", b"*99999999999999999999999999\r\n"),
        ("a negative array", b"*-7\r\nPING\r\n"),
        ("an empty array", b"*0\r\n*0\r\n"),
        ("a giant string", b"*1\r\n$9223372036854775807\r\n"),
        ("a string of 4 GiB", b"*2\r\n$3\r\nGET\r\n$4294967296\r\nx"),
        ("a negative string", b"*1\r\n$-5\r\n"),
        ("a missing string", b"*2\r\n$3\r\nGET\r\n$-1\r\n"),
        ("deep nesting", nested.as_bytes()),
        ("an integer as a word", b"*2\r\n:1\r\n:2\r\n"),
        ("a map as a command", b"%1\r\n+GET\r\n+a\r\n"),
        ("a wrong end of a string", b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n"),
        ("half a header", b"*"),
        ("half a length", b"*3\r\n$"),
        ("half a string", b"*3\r\n$3\r\nSET\r\n$100\r\nabc"),
        ("line ends only", b"\r\n\r\n\n\n\r\r\r\n"),
        ("nothing but zeros", &[0; 70_000]),
        ("a web browser", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\nSET a b\r\n\r\n\r\n"),
        ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ("an inline command with an open quote", b"SET \"a b\r\n"),
        ("an unknown command with a long name", &[b'x'; 60_000]),
    ];
    for (name, bytes) in attacks {
        let mut client = watched.server.client();
        client.takes(bytes, Duration::from_secs(5));
        // Some of these deserve an answer, some a closed door, and some nothing until more comes.
        drop(client.rest(Duration::from_millis(50)));
        watched.is_well(name);
        let half_open = watched.server.client();
        drop(half_open);
    }
}

#[test]
fn a_line_without_an_end_is_cut_off() {
    let mut watched = Watched::start();
    for begin in ["", "*", "*1\r\n$"] {
        let mut client = watched.server.client();
        client.takes(begin.as_bytes(), Duration::from_secs(5));
        let block = vec![b'1'; 1 << 20];
        let taken = (0..512).take_while(|_| client.takes(&block, Duration::from_millis(500))).count();
        watched.is_well("a line without an end");
        assert!(taken < 300, "{taken} MiB of one line were taken after {begin:?}");
    }
}

#[test]
fn many_clients_that_announce_much_and_send_little_cost_little() {
    let mut watched = Watched::start();
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..200 {
        let mut client = watched.server.client();
        // The largest string that is allowed by default: the announcement is no reason to reserve it.
        client.takes(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67000000\r\nx", Duration::from_secs(5));
        if number % 2 == 0 {
            client.takes(&[b'x'; 10_000], Duration::from_secs(5));
        }
        clients.push(client);
    }
    watched.is_well("two hundred unfinished giants");
    drop(clients);
    let mut client = watched.server.client();
    for _ in 0..200 {
        client.takes(b"*1000000\r\n", Duration::from_secs(5));
        client = watched.server.client();
    }
    watched.is_well("two hundred unfinished arrays");
}

#[test]
fn a_client_that_does_not_read_is_held_back_or_dropped() {
    let mut watched = Watched::start();
    let value = vec![b'v'; 1 << 20];
    assert_eq!(watched.server.client().set("large", &value), Value::Simple("OK".into()));
    let mut deaf: Vec<Client> = (0..4).map(|_| watched.server.client()).collect();
    for client in &mut deaf {
        // Two thousand answers of a MiB each: two GiB for each client, if the server kept them.
        let requests = b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n".repeat(2_000);
        client.takes(&requests, Duration::from_secs(2));
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        watched.is_well("clients that do not read");
    }
}

#[test]
fn a_client_that_sends_without_reading_short_answers_is_held_back_or_dropped() {
    let mut watched = Watched::start();
    let mut deaf = watched.server.client();
    let requests = b"*2\r\n$4\r\nECHO\r\n$20\r\naaaaaaaaaaaaaaaaaaaa\r\n".repeat(20_000);
    for _ in 0..400 {
        if !deaf.takes(&requests, Duration::from_millis(500)) {
            break;
        }
    }
    watched.is_well("a client that only sends");
}

/// Connections took the files that the journal needs for its next segment: writes failed until clients left.
#[test]
fn clients_leave_the_store_the_files_that_it_needs() {
    let folder = TempDir::new().expect("a temporary folder");
    let server = Launch::new(folder.path()).durability("written").files_max(256).start();
    let answers = |client: &mut Client| client.call(&["PING"]).is_ok_and(|reply| reply == Value::Simple("PONG".into()));
    let clients = (0..300).filter_map(|_| Client::connect(server.resp()).ok());
    let mut clients: Vec<Client> = clients.filter_map(|mut client| answers(&mut client).then_some(client)).collect();
    assert!((50..200).contains(&clients.len()), "{} of 300", clients.len());
    let value = vec![b'v'; MIB as usize];
    let client = clients.first_mut().expect("there are some");
    // Three segments.
    for number in 0..160 {
        assert_eq!(client.set(&format!("key{number}"), &value), Value::Simple("OK".into()), "{number}");
    }
    assert!(server.output().text().contains("fewer files may be open"));
}

#[test]
fn a_transaction_without_an_end_is_bounded() {
    let mut watched = Watched::start();
    let mut client = watched.server.client();
    assert_eq!(client.say("MULTI"), Value::Simple("OK".into()));
    let value = vec![b'q'; 100_000];
    let mut queued = 0_u64;
    // A GiB in all, if nobody stops it.
    for number in 0..10_000 {
        match client.call(&[b"SET", format!("q{number}").as_bytes(), &value]) {
            Ok(Value::Simple(_)) => queued += 1,
            Ok(_) | Err(_) => break,
        }
    }
    say!("hostile: {queued} commands of 100 kB were queued in one transaction");
    watched.is_well("a transaction without an end");
}

#[test]
fn mutated_commands_find_no_way_to_hurt_the_server() {
    let mut watched = Watched::start();
    let seed = Random::seed();
    say!("hostile: HOLDFAST_SEED={seed}");
    let mut random = Random::new(seed);
    let commands = [
        "SET a 1",
        "GET a",
        "MGET a b c",
        "SET a b PX 10 NX GET",
        "MULTI",
        "EXEC",
        "HELLO 3",
        "SCAN 0 MATCH * COUNT 10",
        "GETRANGE a 0 -1",
        "SETRANGE b 5 x",
        "INCRBYFLOAT f 1.5",
        "CONFIG GET *",
        "COMMAND DOCS get",
        "COPY a b DB 1 REPLACE",
        "EXPIRE a 10 NX",
    ];
    let deadline = Instant::now() + budget("HOLDFAST_MUTATION_SECONDS", 5);
    let mut tried = 0_u64;
    while Instant::now() < deadline {
        let mut client = watched.server.client();
        let mut bytes = Vec::new();
        for _ in 0..=random.below(20) {
            let words: Vec<&str> = commands[random.below(commands.len())].split(' ').collect();
            bytes.extend(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                bytes.extend(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
        }
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.bytes(1)[0],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"0123456789-*$\r\n"[random.below(15)]),
            }
        }
        client.takes(&bytes, Duration::from_secs(5));
        drop(client.rest(Duration::from_millis(2)));
        tried += 1;
        assert!(watched.server.is_running(), "seed {seed}: {}", bytes.escape_ascii());
    }
    say!("hostile: {tried} mutated pipelines");
    watched.server.client().say("SET witness here");
    watched.is_well("mutated commands");
}
