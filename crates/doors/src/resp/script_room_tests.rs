//! What scripts return counts among what all clients are owed, wherever they run.
//!
//! May use: the fixtures of `serve_tests.rs`, `open_tests.rs` and `fair_tests.rs`. Must not know: the inside of a connection.

use std::io::BufRead;

use super::fair_tests::{client, small_loop};
use super::open_tests::{Client, until};
use super::*;
use crate::budget::Share;

const LARGE: usize = 40 << 20;

/// A server with room for one large reply and a half, and a client that was sent one and does not read it.
fn with_one_who_is_owed(script: &str) -> (Server, Client, Client) {
    let server = small_loop(Durability::Written, |options| {
        options.limits.replies_bytes_max = 63 << 20;
        options.script.memory_bytes_max = 256 << 20;
        options.script.time_max = Duration::from_secs(10);
    });
    let (mut slow, other) = (client(&server), client(&server));
    slow.send(script);
    assert!(slow.0.fill_buf().unwrap().starts_with(b"$41943040"));
    (server, slow, other)
}

fn eval() -> String {
    let source = format!("redis.call('INCR',KEYS[1])return(string.rep('x',{LARGE}))");
    format!("EVAL {source} 1 done")
}

fn has_reply(client: &mut Client) -> bool {
    client.0.get_ref().set_nonblocking(true).unwrap();
    let early = client.0.get_mut().read(&mut [0]);
    client.0.get_ref().set_nonblocking(false).unwrap();
    !early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// The story: 500 clients that had a script return 15 MB each and did not read took 7.4 GB, and somebody else's PING half a minute.
#[test]
fn scripts_wait_for_room_for_what_they_return_and_happen_once() {
    let (server, mut slow, mut other) = with_one_who_is_owed(&eval());
    other.check(&[("GET done", "1")]);
    let scripts = server.running.door.scripts.turns();
    let all = scripts.available_permits();
    let mut next: Vec<_> = (0..4).map(|_| client(&server)).collect();
    next.iter_mut().for_each(|client| client.send(&eval()));
    // They are begun, come to nothing, and keep nobody from a turn.
    (0..5).for_each(|_| {
        other.check(&[("PING", "+PONG"), ("EVAL return(#redis.call('GET',KEYS[1])) 1 done", ":1")]);
    });
    until("they wait without a turn", || scripts.available_permits() == all);
    other.check(&[("GET done", "1")]);
    assert!(next.iter_mut().all(|client| !has_reply(client)));
    assert_eq!(slow.reply().len(), LARGE);
    std::thread::scope(|scope| {
        let replies: Vec<_> = next.iter_mut().map(|client| scope.spawn(|| client.reply().len())).collect();
        assert!(replies.into_iter().all(|reply| reply.join().unwrap() == LARGE));
    });
    other.check(&[("GET done", "5")]);
}

#[test]
fn a_script_within_exec_waits_for_room_too() {
    let (server, mut slow, mut other) = with_one_who_is_owed(&eval());
    let heavy = server.running.door.heavy_turns.clone();
    let all = heavy.available_permits();
    let mut one = client(&server);
    one.check(&[("MULTI", "+OK"), (&eval(), "+QUEUED")]);
    one.send("EXEC");
    other.check(&[("PING", "+PONG"), ("GET done", "1")]);
    until("it waits without a turn", || heavy.available_permits() == all);
    other.check(&[("GET done", "1")]);
    assert!(!has_reply(&mut one));
    assert_eq!(slow.reply().len(), LARGE);
    assert_eq!(one.reply().len(), LARGE);
    other.check(&[("GET done", "2")]);
}

/// It cannot begin again there, and is not to be lost silently: it fails, and the transaction with it.
#[test]
fn a_script_within_an_open_transaction_fails_where_there_is_no_room() {
    let (server, mut slow, mut other) = with_one_who_is_owed(&eval());
    let mut one = client(&server);
    one.ask("TX.BEGIN");
    let refused = one.ask(&eval());
    assert!(refused.starts_with("-LIMIT") && refused.contains("resp.replies_bytes_max"), "{refused}");
    assert!(one.ask("TX.COMMIT").starts_with('-'));
    other.check(&[("GET done", "1")]);
    assert_eq!(slow.reply().len(), LARGE);
    let replies = server.running.door.replies.clone();
    until("all is given back", || replies.grow(&mut Share::default(), replies.bytes()).is_ok());
    one.ask("TX.BEGIN");
    assert_eq!(one.ask(&eval()).len(), LARGE);
    one.ask("TX.COMMIT");
    other.check(&[("GET done", "2")]);
}
