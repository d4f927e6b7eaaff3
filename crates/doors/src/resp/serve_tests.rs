//! The door through real sockets: pipelines, pieces, garbage, slow readers, limits, TLS-less authentication, stopping.
//! Every read has a time limit, so that a test that fails does not hang.
//!
//! May use: the public surface of the door, how many wait for the feed, and what unfinished commands hold. Must not know: the rest of its inside.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::{Durability, Store};

use crate::auth::{User, Users, hash_password};
use crate::budget::Share;
use crate::numbers::{DoorNumbers, DoorTotals};
use crate::resp::{Limits, Options, Running, serve};

#[path = "reactors_tests.rs"]
mod reactors;

const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    running: Running,
    _dir: tempfile::TempDir,
}

fn start(durability: Durability, change: impl FnOnce(&mut Options)) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let store = holdfast::Options { durability, ..holdfast::Options::default() };
    let store = Store::open(dir.path(), store).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    change(&mut options);
    Server { running: serve(store, options).unwrap(), _dir: dir }
}

impl Server {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.running.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// Sends bytes and reads exactly the expected answer.
fn exchange(stream: &mut TcpStream, send: &[u8], expect: &str) {
    stream.write_all(send).unwrap();
    let mut answer = vec![0; expect.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expect);
}

/// Everything until the other side closes; a reset counts as closed.
fn rest(stream: &mut TcpStream) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the connection should have been closed: {error}"),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_pipeline_is_answered_in_order_at_every_durability() {
    let window = Durability::window(Duration::from_millis(1), Duration::from_millis(5));
    for durability in [Durability::Written, Durability::Synced, window] {
        let server = start(durability, |_| {});
        let mut stream = server.connect();
        let (mut send, mut expect) = (Vec::new(), String::new());
        for number in 1..=2_000 {
            send.extend_from_slice(format!("SET k{} v{number}\r\nINCR n\r\n", number % 7).as_bytes());
            send.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$2\r\nk{}\r\n", number % 7).as_bytes());
            let value = format!("v{number}");
            expect.push_str(&format!("+OK\r\n:{number}\r\n${}\r\n{value}\r\n", value.len()));
        }
        exchange(&mut stream, &send, &expect);
    }
}

#[test]
fn a_backup_is_made_off_the_event_loop_and_answered_in_its_turn() {
    let server = start(Durability::Written, |options| options.reactors = 1);
    let mut stream = server.connect();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("backup").display().to_string();
    exchange(&mut stream, b"SET k v\r\n", "+OK\r\n");
    let process = std::process::id();
    let send = format!(
        "BACKUP backup\r\nBACKUP {dir} STORE 0\r\nBACKUP {dir} NOW\r\nBACKUP {dir} STORE\r\nBACKUP {dir} PROCESS 1\r\nBACKUP {dir} process {process}\r\nGET k\r\n"
    );
    stream.write_all(send.as_bytes()).unwrap();
    stream.write_all(b"MULTI\r\nBACKUP x\r\nQUIT\r\n").unwrap();
    let all = rest(&mut stream);
    let lines: Vec<&str> = all.split("\r\n").collect();
    assert!(lines[0].starts_with("-ERR the directory must be an absolute path"), "{all}");
    assert_eq!(lines[1], "-ERR this server serves another store");
    assert!(lines[2].starts_with("-ERR syntax error: it is BACKUP "), "{}", lines[2]);
    assert!(lines[3].starts_with("-ERR syntax error: it is BACKUP "), "{}", lines[3]);
    assert_eq!(lines[4], "-ERR this server serves another store");
    assert_eq!(&lines[5..7], ["*20", "$8"], "{all}");
    assert!(
        all.contains("$8\r\nsegments\r\n:1\r\n")
            && all.contains("removed-segments\r\n:0\r\n$14\r\ndamaged-ranges\r\n:0\r\n$1\r\nv\r\n"),
        "{all}"
    );
    assert!(std::path::Path::new(&dir).join("backup").exists());
}

#[test]
fn a_commit_waits_for_votes_beside_other_connections_and_an_owner_ends_with_its_own() {
    let server = start(Durability::Synced, |options| options.reactors = 1);
    let (mut owner, mut other) = (server.connect(), server.connect());
    let mut begin = |options: &str| {
        owner.write_all(format!("XA.BEGIN {options}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 61];
        owner.read_exact(&mut reply).unwrap();
        String::from_utf8_lossy(&reply).split("\r\n").nth(1).unwrap().to_owned()
    };
    let (shared, alone) = (begin("SHARED"), begin(""));
    exchange(&mut other, format!("XA.ENLIST {shared} theirs\r\n").as_bytes(), "+OK\r\n");
    // It waits, and neither the event loop nor the vote waits for it.
    owner.write_all(format!("XA.COMMIT {shared} BRANCHES 1 ours WAIT 20000\r\n").as_bytes()).unwrap();
    exchange(&mut other, format!("PING\r\nXA.PREPARED {shared} theirs\r\n").as_bytes(), "+PONG\r\n+OK\r\n");
    exchange(&mut owner, b"", "+OK\r\n");
    exchange(
        &mut other,
        format!("XA.RECOVER {shared} {alone}\r\n").as_bytes(),
        "*2\r\n$6\r\ncommit\r\n$5\r\nleave\r\n",
    );
    owner.write_all(b"QUIT\r\n").unwrap();
    assert_eq!(rest(&mut owner), "+OK\r\n");
    // The socket may be closed a moment before the session is.
    let mut verdict = || {
        other.write_all(format!("XA.RECOVER {alone}\r\n").as_bytes()).unwrap();
        let mut head = [0; 8];
        other.read_exact(&mut head).unwrap();
        let mut word = vec![0; usize::from(head[5] - b'0') + 2];
        other.read_exact(&mut word).unwrap();
        String::from_utf8_lossy(&word).trim_end().to_owned()
    };
    let ended = std::iter::repeat_with(&mut verdict).take(100_000).any(|verdict| verdict == "rollback");
    assert!(ended, "its owner outlived the connection");
}

#[test]
fn half_frames_are_put_together() {
    let server = start(Durability::Written, |_| {});
    let mut stream = server.connect();
    stream.set_nodelay(true).unwrap();
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nb\r\r\nGET k\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    exchange(&mut stream, b"", "+OK\r\n$5\r\na\r\nb\r\r\n");
}

#[test]
fn a_big_value_arrives_whole() {
    let server = start(Durability::Synced, |_| {});
    let mut stream = server.connect();
    let value: Vec<u8> = (0..5_000_000u32).map(|number| number as u8).collect();
    let mut send = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    send.extend_from_slice(&value);
    send.extend_from_slice(b"\r\n");
    exchange(&mut stream, &send, "+OK\r\n");
    exchange(&mut stream, b"GET k\r\n", "$5000000\r\n");
    let mut back = vec![0; value.len() + 2];
    stream.read_exact(&mut back).unwrap();
    assert!(back[..value.len()] == value[..]);
    exchange(&mut stream, b"PING\r\n", "+PONG\r\n");
}

#[test]
fn replies_are_sent_before_a_connection_that_quits_is_closed() {
    let server = start(Durability::Synced, |_| {});
    let mut stream = server.connect();
    stream.write_all(b"SET k v\r\nGET k\r\nQUIT\r\nGET k\r\n").unwrap();
    assert_eq!(rest(&mut stream), "+OK\r\n$1\r\nv\r\n+OK\r\n");
    // A client that closes its half first still gets everything.
    let mut stream = server.connect();
    stream.write_all(b"SET k w\r\nGET k\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut stream), "+OK\r\n$1\r\nw\r\n");
}

#[test]
fn a_client_that_does_not_read_is_paused_and_loses_nothing_when_it_reads_again() {
    let server = start(Durability::Written, |options| options.limits.output_pause_bytes = 64 << 10);
    let mut stream = server.connect();
    exchange(&mut stream, format!("SET k {}\r\n", "x".repeat(60_000)).as_bytes(), "+OK\r\n");
    // Sixty megabytes of replies to a client that does not read: the door must stop reading, not grow.
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&b"GET k\r\n".repeat(1_000)).is_ok());
    let mut one = vec![0; 60_000 + 10];
    for _ in 0..1_000 {
        stream.read_exact(&mut one).unwrap();
        assert!(one.starts_with(b"$60000\r\nxxx") && one.ends_with(b"x\r\n"));
    }
    assert!(sending.join().unwrap());
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let server = start(Durability::Written, |options| {
        options.limits.output_pause_bytes = 64 << 10;
        options.stall_timeout = Some(Duration::from_millis(500));
    });
    let mut stream = server.connect();
    exchange(&mut stream, format!("SET k {}\r\n", "x".repeat(60_000)).as_bytes(), "+OK\r\n");
    let requests = b"GET k\r\n".repeat(10_000);
    // The write fails, or succeeds into buffers; either way the door drops the connection.
    let _ = stream.write_all(&requests);
    let mut other = server.connect();
    let deadline = std::time::Instant::now() + PATIENCE;
    while server.running.clients() > 1 {
        assert!(std::time::Instant::now() < deadline, "the stalled client is still connected");
        exchange(&mut other, b"PING\r\n", "+PONG\r\n");
    }
}

#[test]
fn connections_are_counted_and_refused_above_the_limit() {
    let server = start(Durability::Written, |options| options.limits = Limits { clients_max: 2, ..Limits::default() });
    let (mut first, mut second) = (server.connect(), server.connect());
    exchange(&mut first, b"PING\r\n", "+PONG\r\n");
    exchange(&mut second, b"PING\r\n", "+PONG\r\n");
    assert_eq!(rest(&mut server.connect()), "-ERR max number of clients reached\r\n");
    exchange(&mut second, b"QUIT\r\n", "+OK\r\n");
    assert_eq!(rest(&mut second), "");
    let deadline = std::time::Instant::now() + PATIENCE;
    while server.running.clients() > 1 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    exchange(&mut server.connect(), b"PING\r\n", "+PONG\r\n");
}

#[test]
fn a_connection_can_be_killed_from_another_one() {
    let server = start(Durability::Written, |options| options.reactors = 2);
    let (mut first, mut second) = (server.connect(), server.connect());
    exchange(&mut first, b"CLIENT SETNAME victim\r\n", "+OK\r\n");
    exchange(&mut second, b"CLIENT KILL ID 1\r\n", ":1\r\n");
    assert_eq!(rest(&mut first), "");
}

#[test]
fn passwords_are_checked_and_the_pipeline_behind_them_waits() {
    let users = Users::new([User::admin("default", &hash_password(b"secret").unwrap())]).unwrap();
    let server = start(Durability::Written, |options| options.users = Arc::new(users));
    let mut stream = server.connect();
    exchange(
        &mut stream,
        b"GET k\r\nAUTH wrong\r\nGET k\r\n",
        concat!(
            "-NOAUTH Authentication required.\r\n",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
            "-NOAUTH Authentication required.\r\n"
        ),
    );
    exchange(&mut stream, b"AUTH secret\r\nSET k v\r\nGET k\r\n", "+OK\r\n+OK\r\n$1\r\nv\r\n");
    let mut other = server.connect();
    exchange(&mut other, b"HELLO 3 AUTH default secret\r\n", "%8\r\n$6\r\nserver\r\n$5\r\nredis\r\n");
    let mut hostile = server.connect();
    hostile.write_all(b"*1\r\n$100000\r\n").unwrap();
    assert_eq!(rest(&mut hostile), "-ERR Protocol error: unauthenticated bulk length\r\n");
}

/// The story: a user for HTTP alone was told that the password is wrong.
#[test]
fn a_user_who_may_not_come_in_here_is_told_so_and_only_with_the_password() {
    let guest = User { doors: vec!["http".to_owned()], ..User::admin("guest", &hash_password(b"secret").unwrap()) };
    let users = Users::new([guest]).unwrap();
    let server = start(Durability::Written, |options| options.users = Arc::new(users));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let other =
        "-NOPERM this user may not come in over RESP: users.doors of the server's configuration names other doors\r\n";
    let closed = "-NOAUTH Authentication required.\r\n";
    // The second time the password is known from the first.
    for _ in 0..2 {
        exchange(&mut server.connect(), b"AUTH guest wrong\r\nGET k\r\n", &[wrong, closed].concat());
        exchange(&mut server.connect(), b"AUTH guest secret\r\nGET k\r\n", &[other, closed].concat());
        exchange(&mut server.connect(), b"HELLO 3 AUTH guest secret\r\nGET k\r\n", &[other, closed].concat());
        exchange(&mut server.connect(), b"HELLO 3 AUTH guest wrong\r\nGET k\r\n", &[wrong, closed].concat());
    }
}

/// The story: sixty clients that stopped in the middle of large values took 3 GiB.
#[test]
fn unfinished_commands_of_all_share_one_room_and_give_it_back() {
    let server = start(Durability::Written, |options| options.limits.input_bytes_max = 3 << 20);
    let half = |megabytes: usize| {
        let mut stream = server.connect();
        let begin = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 32 << 20);
        // Who is refused has the connection closed under what it still sends.
        let _ = stream.write_all(&[begin.as_bytes(), &vec![b'x'; megabytes << 20]].concat());
        stream
    };
    let refused = "-ERR unfinished commands of all clients take all the memory that they may";
    let mut alone = half(4);
    assert!(rest(&mut alone).starts_with(refused) || alone.take_error().unwrap().is_some());
    let holds: Vec<TcpStream> = (0..2).map(|_| half(1)).collect();
    // Others go on, whoever holds the room.
    let mut other = server.connect();
    exchange(&mut other, b"SET k v\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n");
    drop(holds);
    // The server hears of it when it gets to them.
    let until = Instant::now() + PATIENCE;
    while server.running.door.inputs.grow(&mut Share::default(), 5 << 19).is_err() {
        assert!(Instant::now() < until, "the room is not given back");
        std::thread::yield_now();
    }
    let value = "y".repeat(1 << 20);
    let whole = format!("*3\r\n$3\r\nSET\r\n$1\r\nl\r\n${}\r\n{value}\r\n", value.len());
    for _ in 0..8 {
        exchange(&mut other, whole.as_bytes(), "+OK\r\n");
    }
}

/// The story: what was queued in MULTI was bounded for each client and not for all of them.
#[test]
fn queued_commands_of_all_share_the_room_of_unfinished_ones() {
    let server = start(Durability::Written, |options| options.limits.input_bytes_max = 2 << 20);
    let set = |kilobytes: usize| format!("SET k {}\r\n", "x".repeat(kilobytes << 10));
    let queue = |stream: &mut TcpStream, count: usize| {
        stream.write_all(b"MULTI\r\n").unwrap();
        (0..count).for_each(|_| stream.write_all(set(30).as_bytes()).unwrap());
        exchange(stream, b"", &format!("+OK\r\n{}", "+QUEUED\r\n".repeat(count)));
    };
    let (mut one, mut other) = (server.connect(), server.connect());
    queue(&mut one, 50);
    queue(&mut other, 2);
    (0..50).for_each(|_| other.write_all(set(30).as_bytes()).unwrap());
    other.write_all(b"EXEC\r\nQUIT\r\n").unwrap();
    let said = rest(&mut other);
    assert!(said.contains("-ERR unfinished commands, queued ones and open transactions of all clients take"), "{said}");
    assert!(said.ends_with("-EXECABORT Transaction discarded because of previous errors.\r\n+OK\r\n"), "{said}");
    exchange(&mut one, b"EXEC\r\n", &format!("*50\r\n{}", "+OK\r\n".repeat(50)));
    queue(&mut one, 60);
}

#[test]
fn waitaof_waits_for_the_sync() {
    let server = start(Durability::Written, |_| {});
    let mut stream = server.connect();
    exchange(
        &mut stream,
        b"SET k v\r\nWAITAOF 1 0 0\r\nWAITAOF 1 0 1000\r\nPING\r\n",
        "+OK\r\n*2\r\n:1\r\n:0\r\n*2\r\n:1\r\n:0\r\n+PONG\r\n",
    );
}

#[test]
fn who_waits_for_the_feed_hinders_nobody_and_gets_what_comes_or_an_answer_when_the_door_closes() {
    let server = start(Durability::Synced, |options| {
        options.reactors = 1;
        options.limits.long_commands_max = 1;
        options.limits.feed_waiters_max = 3;
    });
    let mut writer = server.connect();
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"FEED FROM 0 BLOCK 60000\r\nPING\r\n").unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    while server.running.door.feed_waiters.available_permits() > 0 {
        std::thread::yield_now();
    }
    // The only turn of the long commands is free.
    exchange(&mut writer, b"KV.FOLD COUNT\r\n", "*3\r\n:0\r\n$-1\r\n$6\r\nsynced\r\n");
    let silent =
        waiting.iter_mut().all(|stream| stream.read(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
    assert!(silent, "there is nothing to say yet");
    exchange(&mut writer, b"SET k v\r\n", "+OK\r\n");
    for stream in &mut waiting {
        stream.set_nonblocking(false).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"+PONG\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("$3\r\nput\r\n$3\r\ndb0\r\n$1\r\nk\r\n$1\r\nv\r\n"), "{answer}");
        let next = answer.split("\r\n").nth(1).and_then(|word| word.strip_prefix(':')).unwrap();
        stream.write_all(format!("FEED FROM {next} BLOCK 60000\r\n").as_bytes()).unwrap();
    }
    let stopping = std::time::Instant::now();
    server.running.stop();
    assert!(stopping.elapsed() < Duration::from_secs(4), "stopping waits for nobody who waits for the feed");
    for stream in &mut waiting {
        let last = rest(stream);
        assert!(last.is_empty() || last.ends_with("\r\n*0\r\n"), "{last}");
    }
}

#[test]
fn stopping_sends_what_is_ready_and_ends() {
    let server = start(Durability::Synced, |options| options.reactors = 2);
    let mut streams: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut streams {
        exchange(stream, b"SET k v\r\n", "+OK\r\n");
    }
    let address = server.running.local_addr();
    server.running.stop();
    streams.iter_mut().for_each(|stream| assert_eq!(rest(stream), ""));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn many_clients_at_once_see_their_own_writes() {
    let server = start(Durability::Synced, |options| options.reactors = 2);
    let address = server.running.local_addr();
    let clients: Vec<_> = (0..16)
        .map(|client| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                for number in 1..=50 {
                    let command = format!("INCR c{client}\r\n");
                    exchange(&mut stream, command.as_bytes(), &format!(":{number}\r\n"));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let mut stream = server.connect();
    for client in 0..16 {
        exchange(&mut stream, format!("GET c{client}\r\n").as_bytes(), "$2\r\n50\r\n");
    }
}

#[test]
fn a_connection_can_be_encrypted() {
    use rustls::pki_types::{CertificateDer, ServerName};
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    assert!(crate::tls::server_config(&key, &certificate, &[]).is_err(), "the files are the wrong way round");
    let tls = crate::tls::server_config(&certificate, &key, &[]).unwrap();
    let server = start(Durability::Synced, |options| options.tls = Some(tls));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let mut session = rustls::ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut socket = server.connect();
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    let value = "x".repeat(300_000);
    stream
        .write_all(
            format!("SET k {value}\r\n").replace("SET k ", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n").as_bytes(),
        )
        .unwrap();
    stream.write_all(b"GET k\r\n").unwrap();
    let expect = format!("+OK\r\n$300000\r\n{value}\r\n");
    let mut answer = vec![0; expect.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == expect.as_bytes());
    // Who does not speak TLS gets nothing.
    let mut plain = server.connect();
    plain.write_all(b"PING\r\n").unwrap();
    assert!(!rest(&mut plain).contains("PONG"));
}

#[path = "refused_tests.rs"]
mod refused_tests;

#[path = "fair_tests.rs"]
mod fair_tests;
#[path = "open_tests.rs"]
mod open_tests;
#[path = "script_room_tests.rs"]
mod script_room_tests;
#[cfg(test)]
#[path = "series_serve_tests.rs"]
mod series_serve_tests;
#[cfg(test)]
#[path = "space_serve_tests.rs"]
mod space_serve_tests;
