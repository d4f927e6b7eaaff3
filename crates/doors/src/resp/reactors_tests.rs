//! Which event loop a connection is on, through real sockets: numbers over all of them, loops of those that commit, those that pipeline.
//!
//! May use: what the other tests of the door use. Must not know: the inside of event loops.

use super::*;

#[test]
fn numbers_are_sums_over_all_reactors() {
    let server = start(Durability::Written, |options| {
        options.reactors = 2;
        options.limits = Limits { clients_max: 2, ..Limits::default() };
    });
    // Connections are handed round, so that each of the two is with a reactor of its own.
    let (mut first, mut second) = (server.connect(), server.connect());
    exchange(&mut first, b"SET k v\r\nGET k\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n$1\r\nv\r\n");
    exchange(&mut second, b"GET k\r\nGET no\r\nNONSENSE\r\n", "$1\r\nv\r\n$-1\r\n-ERR unknown command 'NONSENSE'");
    assert_eq!(rest(&mut server.connect()), "-ERR max number of clients reached\r\n");
    assert_eq!(server.running.numbers().connections, 2);
    let mut sent_bytes = 5 + 7 + 7 + 7 + 5 + "-ERR unknown command 'NONSENSE'".len() as u64;
    for stream in [&mut first, &mut second] {
        stream.write_all(b"QUIT\r\n").unwrap();
        sent_bytes += rest(stream).len() as u64;
    }
    // A connection leaves the list when there is nothing left that it could count.
    let deadline = std::time::Instant::now() + PATIENCE;
    while server.running.numbers().connections > 0 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    let totals = DoorTotals {
        connections_accepted: 2,
        connections_rejected: 1,
        commands: 8,
        errors: 1,
        hits: 3,
        misses: 1,
        received_bytes: 9 + 7 + 7 + 7 + 8 + 10 + 6 + 6,
        sent_bytes,
    };
    assert_eq!(
        server.running.numbers(),
        DoorNumbers { connections: 0, totals: Some(totals), points: Some(Default::default()) }
    );
}

/// Begins and commits a distributed transaction.
fn commit(client: &mut TcpStream) {
    client.write_all(b"XA.BEGIN\r\n").unwrap();
    let mut id = [0; 5 + 54 + 2];
    client.read_exact(&mut id).unwrap();
    let id = std::str::from_utf8(&id[5..59]).unwrap();
    exchange(client, format!("XA.COMMIT {id} BRANCHES 2 a b\r\n").as_bytes(), "+OK\r\n");
    exchange(client, format!("XA.FORGET {id} BRANCH a BRANCH b\r\n").as_bytes(), "+OK\r\n");
}

/// Who commits has a reactor alone, while there is one; who comes later is served beside all others.
#[test]
fn connections_that_commit_have_a_reactor_of_their_own_until_they_end() {
    let server = start(Durability::Synced, |options| (options.pipeline_reactors, options.commit_reactors) = (2, 2));
    let commands =
        |reactor: usize| server.running.door.counters[reactor].commands.load(std::sync::atomic::Ordering::Relaxed);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        exchange(client, format!("SELECT {number}\r\n").as_bytes(), "+OK\r\n");
        for _ in 0..40 {
            commit(client);
        }
        exchange(client, b"SET k v\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n");
    }
    let alone = (commands(2), commands(3));
    assert!(alone.0 > 60 && alone.1 > 60, "{alone:?}");
    assert!(commands(0) > 150, "the third has no place");
    // One that pipelines as well stays, and one whose place is free again is given to who still asks.
    for _ in 0..10 {
        exchange(&mut clients[0], "PING\r\n".repeat(10).as_bytes(), &"+PONG\r\n".repeat(10));
    }
    assert_eq!(commands(1), 0);
    drop(clients.remove(1));
    let before = commands(3);
    for _ in 0..1_000 {
        commit(&mut clients[1]);
        if commands(3) > before + 30 {
            break;
        }
    }
    assert!(commands(3) > before + 30);
    exchange(&mut clients[1], b"GET k\r\n", "$1\r\nv\r\n");
    server.running.stop();
    assert_eq!(rest(&mut clients[0]), "");
}

/// One reactor does all until clients pipeline; then every connection goes on elsewhere or where it is, with all that it was:
/// name, database, protocol, transaction and the beginning of a command.
#[test]
fn connections_that_pipeline_are_spread_and_stay_what_they_were() {
    for durability in [Durability::Written, Durability::Synced] {
        let server = start(durability, |options| options.pipeline_reactors = 3);
        let commands =
            |reactor: usize| server.running.door.counters[reactor].commands.load(std::sync::atomic::Ordering::Relaxed);
        let mut clients: Vec<TcpStream> = (0..7).map(|_| server.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(b"HELLO 3\r\nECHO so\r\n").unwrap();
            let mut hello = Vec::new();
            while !hello.ends_with(b"\r\n$2\r\nso\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                hello.push(byte[0]);
            }
            exchange(client, format!("CLIENT SETNAME c{number}\r\n").as_bytes(), "+OK\r\n");
            exchange(client, format!("SELECT {number}\r\n").as_bytes(), "+OK\r\n");
            for _ in 0..20 {
                exchange(client, b"PING\r\n", "+PONG\r\n");
            }
        }
        assert_eq!((commands(1), commands(2)), (0, 0), "nobody pipelines yet");
        for round in 0..30 {
            for client in &mut clients {
                let expect: String = (1..=10).map(|n| format!(":{}\r\n", round * 10 + n)).collect();
                exchange(client, "INCR n\r\n".repeat(10).as_bytes(), &expect);
            }
        }
        assert!((0..3).all(|reactor| commands(reactor) > 200), "{:?}", (0..3).map(commands).collect::<Vec<_>>());
        for (number, client) in clients.iter_mut().enumerate() {
            // Null is as in RESP3.
            exchange(client, b"GET none\r\nCLIENT GETNAME\r\n", &format!("_\r\n$2\r\nc{number}\r\n"));
            exchange(client, b"GET n\r\n", "$3\r\n300\r\n");
        }
        let mut other = server.connect();
        let (burst, expect) = ("PING\r\n".repeat(10), "+PONG\r\n".repeat(10));
        exchange(&mut other, b"MULTI\r\nSET k v\r\n", "+OK\r\n+QUEUED\r\n");
        for _ in 0..10 {
            exchange(&mut other, burst.as_bytes(), &"+QUEUED\r\n".repeat(10));
        }
        exchange(&mut other, b"EXEC\r\n", &format!("*101\r\n+OK\r\n{}", "+PONG\r\n".repeat(100)));
        let mut halves = server.connect();
        for _ in 0..10 {
            // What it moves with is half a command.
            exchange(&mut halves, format!("{burst}*2\r\n$3\r\nGET\r\n$1").as_bytes(), &expect);
            exchange(&mut halves, b"\r\nk\r\n", "$1\r\nv\r\n");
        }
        exchange(&mut clients[3], b"CLIENT KILL TYPE normal SKIPME yes\r\n", ":8\r\n");
        assert_eq!(rest(&mut clients[2]), "");
        exchange(&mut clients[3], b"PING\r\n", "+PONG\r\n");
        server.running.stop();
        assert_eq!(rest(&mut clients[3]), "");
    }
}

/// Commands that come alone and take long keep an event loop as busy as many short ones: all were served by one, beside others that stood still.
#[test]
fn connections_whose_commands_take_long_are_spread_and_those_with_short_ones_are_not() {
    let server = start(Durability::Written, |options| options.pipeline_reactors = 2);
    let commands =
        |reactor: usize| server.running.door.counters[reactor].commands.load(std::sync::atomic::Ordering::Relaxed);
    let mut clients: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        for _ in 0..50 {
            exchange(client, b"GET k\r\n", "$-1\r\n");
        }
    }
    assert_eq!(commands(1), 0, "nobody keeps it busy yet");
    let (long, expect) = (format!("MGET{}\r\n", " k".repeat(3_000)), format!("*3000\r\n{}", "$-1\r\n".repeat(3_000)));
    // Some of these are sent in pieces, between which nothing is known.
    for round in 0..20 {
        for client in &mut clients {
            let (one, other) = long.split_at(if round % 3 == 0 { 3_000 } else { 0 });
            client.write_all(one.as_bytes()).unwrap();
            exchange(client, other.as_bytes(), &expect);
        }
    }
    assert!((0..2).all(|reactor| commands(reactor) > 20), "{:?}", (0..2).map(commands).collect::<Vec<_>>());
    for client in &mut clients {
        exchange(client, b"SET k v\r\nGET k\r\nDEL k\r\n", "+OK\r\n$1\r\nv\r\n:1\r\n");
    }
}
