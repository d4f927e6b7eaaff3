//! What one client may have the server do while others wait: turns, and commands that are too much for an event loop.
//!
//! May use: the fixtures of `serve_tests.rs` and `open_tests.rs`. Must not know: the inside of a connection.

use std::io::{BufRead, BufReader};

use super::open_tests::{Client, ID, until};
use super::*;

/// One event loop, on which a command may touch 16 KiB.
pub(super) fn small_loop(durability: Durability, change: impl FnOnce(&mut Options)) -> Server {
    start(durability, |options| {
        (options.reactors, options.pipeline_reactors) = (1, 1);
        options.limits.loop_bytes_max = 16 << 10;
        change(options);
    })
}

pub(super) fn client(server: &Server) -> Client {
    Client(BufReader::new(server.connect()))
}

/// The story: a reactor worked through all that a read had brought, and through the next read, while everybody else waited.
#[test]
fn others_have_their_turn_in_the_middle_of_a_long_pipeline() {
    let server = start(Durability::Written, |options| {
        (options.reactors, options.pipeline_reactors) = (1, 1);
        options.limits.turn_max = Duration::ZERO;
    });
    let commands = || server.running.numbers().totals.unwrap().commands;
    let (mut long, mut other) = (client(&server), client(&server));
    other.check(&[("PING", "+PONG")]);
    // They come by one read, which is one turn when it is not ended.
    let (each, replies) = (8_000, "+PONG\r\n".repeat(8_000));
    let has_turn_within = (0..100).any(|_| {
        let before = commands();
        long.0.get_mut().write_all("PING\r\n".repeat(each).as_bytes()).unwrap();
        let (mut is_within, mut asked) = (false, 0);
        while commands() - asked < before + each as u64 {
            other.check(&[("PING", "+PONG")]);
            asked += 1;
            let done = commands() - asked - before;
            is_within |= done > 0 && done < each as u64;
        }
        let mut answer = vec![0; replies.len()];
        long.0.read_exact(&mut answer).unwrap();
        assert!(answer == replies.as_bytes());
        is_within
    });
    assert!(has_turn_within, "nobody else had a turn before the pipeline was done");
}

/// The story: 24 bytes cost a read of 60 MB on the event loop, as often as they came.
#[test]
fn a_command_that_touches_much_is_answered_off_the_event_loop() {
    let large = "v".repeat(40 << 10);
    let many: String = (0..100).map(|number| format!(" many{number}")).collect();
    let zeros = "\0".repeat(30_000);
    let pairs: String = (0..40).map(|number| format!(" pair{number} {}", "v".repeat(500))).collect();
    let script = "EVAL return(#redis.call('GET',KEYS[1])) 1 big";
    // A command, its reply, and what another one answers behind it.
    let table: Vec<(String, String, &str, String)> = vec![
        ("GET big".into(), large.clone(), "PING", "+PONG".into()),
        ("GETRANGE big 3 5".into(), "vvv".into(), "PING", "+PONG".into()),
        ("SUBSTR big 0 0".into(), "v".into(), "PING", "+PONG".into()),
        ("KV.GET db0 big".into(), format!("{large} :"), "PING", "+PONG".into()),
        ("APPEND big x".into(), ":40961".into(), "GETRANGE big 40959 -1", "vx".into()),
        ("SETRANGE big 1 y".into(), ":40961".into(), "GETRANGE big 0 2", "vyv".into()),
        ("SETRANGE new 30000 y".into(), ":30001".into(), "GET new", format!("{zeros}y")),
        ("COPY big other".into(), ":1".into(), "STRLEN other", ":40961".into()),
        ("RENAME other third".into(), "+OK".into(), "STRLEN third", ":40961".into()),
        ("GETEX third PERSIST".into(), "vyv".into(), "EXISTS third", ":1".into()),
        ("GETDEL third".into(), "vyv".into(), "EXISTS third", ":0".into()),
        (format!("SET third {large}"), "+OK".into(), "STRLEN third", ":40960".into()),
        (format!("SETEX third 1000 {large}"), "+OK".into(), "TTL third", ":1000".into()),
        ("GETSET third v".into(), large.clone(), "GET third", "v".into()),
        (format!("EXISTS{many}"), ":0".into(), "PING", "+PONG".into()),
        (format!("MSETNX{pairs}"), ":1".into(), "EXISTS pair0 pair39", ":2".into()),
        ("MGET third big".into(), "v vyv".into(), "PING", "+PONG".into()),
        ("SCAN 0 COUNT 1000".into(), "0 ".into(), "PING", "+PONG".into()),
        ("KV.RANGE db0 VALUES LIMIT 2".into(), "big :".into(), "PING", "+PONG".into()),
        (script.into(), ":40961".into(), "PING", "+PONG".into()),
        ("FLUSHDB".into(), "+OK".into(), "DBSIZE", ":0".into()),
    ];
    let server = small_loop(Durability::Written, |options| options.limits.heavy_commands_max = 1);
    let (mut one, mut other) = (client(&server), client(&server));
    one.check(&[(&format!("SET big {large}"), "+OK")]);
    // More than may be counted on the event loop when they are removed.
    (0..300).for_each(|number| one.check(&[(&format!("SET key{number} v"), "+OK")]));
    let turns = server.running.door.heavy_turns.clone();
    let long = server.running.door.scripts.turns();
    let all = long.available_permits();
    for (command, expected, then, after) in table {
        // Whoever would run it has to wait: the event loop does not.
        let held = (
            turns.clone().try_acquire_many_owned(1).unwrap(),
            long.clone().try_acquire_many_owned(all as u32).unwrap(),
        );
        one.send(&command);
        (0..5).for_each(|_| other.check(&[("PING", "+PONG")]));
        one.0.get_ref().set_nonblocking(true).unwrap();
        let early = one.0.get_mut().read(&mut [0]);
        assert!(early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{command:.40}");
        one.0.get_ref().set_nonblocking(false).unwrap();
        drop(held);
        let reply = one.reply();
        assert!(reply.starts_with(&expected), "{command:.40}: {reply:.80}");
        one.check(&[(then, &after)]);
        until("it gives its turn back", || turns.available_permits() == 1 && long.available_permits() == all);
    }
}

#[test]
fn what_is_begun_again_elsewhere_happens_once_and_in_its_order() {
    let large = "v".repeat(40 << 10);
    let window = Durability::window(Duration::from_millis(1), Duration::from_millis(5));
    for durability in [Durability::Written, Durability::Synced, window] {
        let server = small_loop(durability, |_| {});
        let mut one = client(&server);
        let mut check = |steps: &[(&str, &str)]| {
            steps.iter().for_each(|(line, _)| one.send(line));
            for (line, expected) in steps {
                let reply = one.reply();
                assert!(reply == *expected || *expected == ID && reply.starts_with(':'), "{line:.60}: {reply:.80}");
            }
        };
        let set = format!("SET big {large}");
        check(&[("SELECT 1", "+OK"), (&set, "+OK"), ("INCR n", ":1"), ("SELECT 0", "+OK"), (&set, "+OK")]);
        // What MULTI has selected on the way is not where it begins again.
        check(&[
            ("WATCH n", "+OK"),
            ("MULTI", "+OK"),
            ("INCR n", "+QUEUED"),
            ("SELECT 1", "+QUEUED"),
            ("INCR n", "+QUEUED"),
            ("APPEND big x", "+QUEUED"),
            ("CLIENT DURABILITY written", "+QUEUED"),
            ("EXEC", ":1 +OK :2 :40961 +OK"),
            ("INCR n", ":3"),
            ("SELECT 0", "+OK"),
            ("GET n", "1"),
        ]);
        check(&[
            ("TX.BEGIN", ID),
            ("INCR n", ":2"),
            ("APPEND big x", ":40961"),
            ("APPEND big y", ":40962"),
            ("GETRANGE big 40959 -1", "vxy"),
            ("TX.ABORT", "+OK"),
            ("GET n", "1"),
            ("STRLEN big", ":40960"),
            ("TX.BEGIN", ID),
            ("INCR n", ":2"),
            ("RENAME big small", "+OK"),
            ("TX.COMMIT", ID),
            ("EXISTS big small", ":1"),
            ("CLIENT REPLY ON", "+OK"),
        ]);
        // What is to be silent stays silent.
        one.send("CLIENT REPLY SKIP");
        one.send("GET small");
        assert_eq!(one.ask("GET n"), "2");
    }
}

/// The story: fifty clients that asked for a value of 60 MB and did not read took 2.8 GB. Each had its bound, and all had none.
#[test]
fn what_all_clients_are_owed_has_one_bound() {
    let server = start(Durability::Written, |options| {
        (options.reactors, options.pipeline_reactors) = (1, 1);
        options.limits.replies_bytes_max = 63 << 20;
    });
    let (mut slow, mut next, mut other) = (client(&server), client(&server), client(&server));
    // More than the system's buffers take, which may be 36 MiB.
    for (key, bytes) in [("large", 56 << 20), ("larger", 64 << 20), ("small", 1 << 10)] {
        let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len());
        let value = "v".repeat(bytes);
        other.0.get_mut().write_all(format!("{set}{value}\r\n").as_bytes()).unwrap();
        assert_eq!(other.reply(), "+OK");
    }
    slow.send("GET large");
    let mut begin = [0; 1];
    slow.0.get_mut().read_exact(&mut begin).unwrap();
    for wanted in ["large", "larger"] {
        next.send(&format!("GET {wanted}"));
        // What is small is answered, and what only looks at much.
        (0..5).for_each(|_| other.check(&[("STRLEN small", ":1024"), ("GETRANGE large 0 2", "vvv")]));
        assert_eq!(other.ask("GET small").len(), 1024);
        next.0.get_ref().set_nonblocking(true).unwrap();
        let early = next.0.get_mut().read(&mut [0]);
        assert!(early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{wanted}");
        next.0.get_ref().set_nonblocking(false).unwrap();
        let mut rest = vec![0; (56 << 20) + "$58720256\r\n\r\n".len() - 1];
        slow.0.get_mut().read_exact(&mut rest).unwrap();
        assert_eq!(next.reply().len(), if wanted == "large" { 56 << 20 } else { 64 << 20 });
        slow.send("GET large");
        slow.0.get_mut().read_exact(&mut begin).unwrap();
    }
    // Who asks for several is known to ask for much when the second value comes.
    drop(slow);
    next.send("MGET larger larger small");
    assert_eq!(next.reply().len(), (128 << 20) + 1024 + 2);
}

/// The story: a hundred clients that folded over objects of 64 MiB, or followed the feed, and did not read took 5.7 GB: how much it
/// becomes was known of no such reply before it was there, and then it had no room. And when those with large ones waited for room, those
/// with small ones waited behind them.
#[test]
fn what_is_made_off_the_event_loop_counts_among_what_clients_are_owed() {
    let (large, turns_all) = (56 << 20, 2);
    let server = start(Durability::Written, |options| {
        (options.reactors, options.pipeline_reactors) = (1, 1);
        options.limits.replies_bytes_max = 63 << 20;
        options.limits.long_commands_max = turns_all;
    });
    let (mut slow, mut other) = (client(&server), client(&server));
    let value = "v".repeat(large);
    let set = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n${large}\r\n{value}\r\n");
    other.0.get_mut().write_all(set.as_bytes()).unwrap();
    assert_eq!(other.reply(), "+OK");
    let turns = server.running.door.turns.clone();
    for asked in ["KV.FOLD OBJECTS", "FEED FROM 0"] {
        slow.send(asked);
        assert!(!slow.0.fill_buf().unwrap().is_empty());
        let mut next: Vec<_> = (0..4).map(|_| client(&server)).collect();
        next.iter_mut().for_each(|client| client.send(asked));
        // None of them has a turn for ever, nor a reply.
        (0..5).for_each(|_| {
            other.check(&[("STRLEN large", &format!(":{large}")), ("GETRANGE large 0 2", "vvv")]);
            assert!(other.ask("KV.FOLD BUCKET none COUNT").starts_with(":0"));
        });
        until("they wait without a turn", || turns.available_permits() == turns_all);
        for client in &mut next {
            client.0.get_ref().set_nonblocking(true).unwrap();
            let early = client.0.get_mut().read(&mut [0]);
            assert!(early.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{asked}");
            client.0.get_ref().set_nonblocking(false).unwrap();
        }
        assert!(slow.reply().len() > large);
        std::thread::scope(|scope| {
            let replies: Vec<_> = next.iter_mut().map(|client| scope.spawn(|| client.reply().len())).collect();
            assert!(replies.into_iter().all(|reply| reply.join().unwrap() > large));
        });
        until("all is given back", || turns.available_permits() == turns_all);
    }
}

/// The story: thirty clients that asked for 150 documents of 1 MiB each and did not read took 4.7 GB, made on the event loop.
#[test]
fn many_large_documents_are_shown_off_the_event_loop_with_room() {
    let server = small_loop(Durability::Written, |options| options.limits.heavy_commands_max = 1);
    let (mut one, mut other) = (client(&server), client(&server));
    one.check(&[("SPACE.DECLARE shop orders", "+OK")]);
    let text = "x".repeat(10_000);
    for id in 0..4 {
        one.ask(&format!("SPACE.WRITE shop orders {{\"id\":{id},\"text\":\"{text}\"}}"));
    }
    let turns = server.running.door.heavy_turns.clone();
    for (before, ask, after) in [
        (&[][..], "SPACE.MREAD shop orders ANY", None),
        (&["TX.BEGIN"], "SPACE.MREAD shop orders ANY", Some("TX.COMMIT")),
        (&["MULTI", "SPACE.MREAD shop orders ANY"], "EXEC", None),
    ] {
        before.iter().for_each(|line| drop(one.ask(line)));
        let held = turns.clone().try_acquire_owned().unwrap();
        let long = server.running.door.turns.clone();
        let held_too = long.try_acquire_many_owned(long_turns(&server)).unwrap();
        one.send(ask);
        (0..5).for_each(|_| other.check(&[("PING", "+PONG")]));
        one.0.get_ref().set_nonblocking(true).unwrap();
        assert!(one.0.get_mut().read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{ask}");
        one.0.get_ref().set_nonblocking(false).unwrap();
        drop((held, held_too));
        assert!(one.reply().len() > 40_000, "{ask}");
        after.iter().for_each(|line| drop(one.ask(line)));
    }
    // A few small ones are shown at once.
    one.check(&[("SPACE.CLEAR shop orders ANY", ":4")]);
    one.ask("SPACE.WRITE shop orders {\"id\":1}");
    let _held = turns.clone().try_acquire_owned().unwrap();
    assert!(one.ask("SPACE.MREAD shop orders ANY").starts_with("{\"id\":1}"));
}

fn long_turns(server: &Server) -> u32 {
    u32::try_from(server.running.door.options.limits.long_commands_max).unwrap()
}

/// The story: a client that was gone had 961 folds done one after the other, and who came then waited for all of them.
#[test]
fn what_only_reads_is_not_begun_for_clients_that_are_gone() {
    let server = start(Durability::Written, |options| options.limits.long_commands_max = 1);
    let mut one = client(&server);
    (0..100).for_each(|number| one.check(&[(&format!("SET key{number} v"), "+OK")]));
    let turns = server.running.door.turns.clone();
    let held = turns.clone().try_acquire_owned().unwrap();
    let errors = || server.running.numbers().totals.unwrap().errors;
    let before = errors();
    let leaving: Vec<_> = (0..20).map(|_| client(&server)).collect();
    let leaving: Vec<_> = leaving
        .into_iter()
        .map(|mut client| {
            client.send("KV.FOLD COUNT");
            client
        })
        .collect();
    until("they wait", || server.running.numbers().totals.unwrap().commands >= 120);
    drop(leaving);
    // As long as one that sends no more may wait for what it has asked.
    std::thread::sleep(Duration::from_secs(3));
    drop(held);
    until("they are passed over", || errors() - before == 20);
    assert!(one.ask("KV.FOLD COUNT").starts_with(":100"));
}
