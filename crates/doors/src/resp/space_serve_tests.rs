//! Waiting for entries through real sockets: in the order of coming, and without loss when a client vanishes.
//!
//! May use: the fixture of `serve_tests.rs`, the store. Must not know: the inside of the door.

use std::thread;

use holdfast::space::{Definition, Document, Entries, Order, WriteOptions};

use super::*;

/// A door to a store with a type, the same for programs that embed the store.
fn queue(durability: Durability, order: Order) -> (Server, Entries) {
    let dir = tempfile::tempdir().unwrap();
    let store = holdfast::Options { durability, ..holdfast::Options::default() };
    let store = Store::open(dir.path(), store).unwrap();
    let entries = store.space("shop").declare(Definition { order, ..Definition::new("shop", "jobs") }).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.reactors = 2;
    (Server { running: serve(store, options).unwrap(), _dir: dir }, entries)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

fn write(entries: &Entries, id: i64) {
    entries.write_shown(&Document::from_pairs([("id", id)]), &WriteOptions::default()).unwrap();
}

/// The line of a reply that is the document.
fn document(stream: &mut TcpStream) -> String {
    let mut lines = Vec::new();
    while lines.len() < 5 {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
        if lines[0] == "$-1" {
            return lines.remove(0);
        }
    }
    assert_eq!((lines[0].as_str(), lines[4].as_str()), ("*3", "$-1"), "{lines:?}");
    lines.remove(2)
}

const TAKE: &[u8] = b"SPACE.TAKE shop jobs ANY BLOCK 0\r\n";

#[test]
fn sixteen_who_wait_are_served_in_the_order_in_which_they_came() {
    for order in [Order::Any, Order::Fifo] {
        let (server, entries) = queue(Durability::Synced, order);
        let mut takers: Vec<TcpStream> = Vec::new();
        for number in 0..16 {
            let mut taker = server.connect();
            taker.write_all(TAKE).unwrap();
            takers.push(taker);
            until("it waits", || entries.waiters() == number + 1);
        }
        exchange(&mut server.connect(), b"PING\r\nSPACE.COUNT shop jobs ANY\r\n", "+PONG\r\n:0\r\n");
        (0..16).for_each(|id| write(&entries, id));
        for (id, taker) in takers.iter_mut().enumerate() {
            assert_eq!(document(taker), format!("{{\"id\":{id}}}"));
        }
        assert_eq!((entries.waiters(), entries.usage().entries), (0, 0));
    }
}

fn by_id(command: &str, id: &str) -> String {
    let words = [command, "shop", "jobs", "ID", id].map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*5\r\n{}", words.concat())
}

/// What commands behind will look at is fetched ahead, whatever the commands between do to it.
#[test]
fn many_reads_and_takes_by_id_in_one_pipe_are_answered_as_if_each_came_alone() {
    let (server, entries) = queue(Durability::Written, Order::Any);
    (10..40).for_each(|id| write(&entries, id));
    let mut stream = server.connect();
    let commands = (10..50).map(|id| by_id("SPACE.READ", &id.to_string()));
    // Each is taken once, also where it was asked for twice; none has a word for its id.
    let takes = (10..30).flat_map(|id| [id, id]).map(|id| by_id("SPACE.TAKE", &id.to_string()));
    let words = ["\"10\"", "{}", "\"1"].map(|id| by_id("SPACE.READ", id));
    stream.write_all(commands.chain(takes).collect::<String>().as_bytes()).unwrap();
    for id in 10..50 {
        let wanted = if id < 40 { format!("{{\"id\":{id}}}") } else { "$-1".to_owned() };
        assert_eq!(document(&mut stream), wanted);
    }
    for id in 10..30 {
        assert_eq!([document(&mut stream), document(&mut stream)], [format!("{{\"id\":{id}}}"), "$-1".to_owned()]);
    }
    let change = |id: i64| {
        let (id, words) = (id.to_string(), ["SPACE.CHANGE", "shop", "jobs"]);
        let words: Vec<&str> = words.into_iter().chain([id.as_str(), "SET", "n", "1"]).collect();
        format!("*7\r\n{}", words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<String>())
    };
    // What was there and what was taken.
    stream.write_all((20..40).map(change).collect::<String>().as_bytes()).unwrap();
    for id in 20..40 {
        let wanted = if id < 30 { "$-1".to_owned() } else { format!("{{\"id\":{id},\"n\":1}}") };
        assert_eq!(document(&mut stream), wanted);
    }
    let error = "-ERR JSON: EOF while parsing a string at line 1 column 2\r\n";
    exchange(&mut stream, words[0].repeat(3).as_bytes(), &"$-1\r\n".repeat(3));
    exchange(&mut stream, words[2].repeat(2).as_bytes(), &error.repeat(2));
    // The type goes while reads of it stand behind.
    let again = [&by_id("SPACE.READ", "30"), "SPACE.DROP shop jobs\r\n", &by_id("SPACE.READ", "31").repeat(2)].concat();
    stream.write_all(again.as_bytes()).unwrap();
    assert_eq!(document(&mut stream), "{\"id\":30,\"n\":1}");
    exchange(&mut stream, b"PING\r\n", ":1\r\n-ERR the s");
}

#[test]
fn commands_behind_one_that_waits_wait_too() {
    let (server, entries) = queue(Durability::Written, Order::Fifo);
    let mut taker = server.connect();
    taker.write_all(&[b"PING\r\n", TAKE, b"SPACE.COUNT shop jobs ANY\r\n"].concat()).unwrap();
    until("it waits", || entries.waiters() == 1);
    taker.write_all(b"SPACE.TAKE shop jobs ANY BLOCK 1\r\nECHO end\r\n").unwrap();
    write(&entries, 7);
    let mut pong = [0; 7];
    taker.read_exact(&mut pong).unwrap();
    assert_eq!(document(&mut taker), "{\"id\":7}");
    exchange(&mut taker, b"", ":0\r\n$-1\r\n$3\r\nend\r\n");
}

#[test]
fn who_vanishes_while_waiting_gets_nothing_and_takes_nothing() {
    let (server, entries) = queue(Durability::Synced, Order::Fifo);
    let (mut first, mut second, mut third) = (server.connect(), server.connect(), server.connect());
    for (number, taker) in [&mut first, &mut second, &mut third].into_iter().enumerate() {
        taker.write_all(TAKE).unwrap();
        until("it waits", || entries.waiters() == number + 1);
    }
    drop(first);
    until("the door notices", || entries.waiters() == 2);
    let mut other = server.connect();
    other.write_all(b"CLIENT KILL TYPE normal SKIPME yes\r\n").unwrap();
    until("all are gone", || entries.waiters() == 0);
    write(&entries, 1);
    assert_eq!((rest(&mut second), rest(&mut third)), (String::new(), String::new()));
    assert_eq!(entries.usage().entries, 1);
}

#[test]
fn who_vanishes_when_an_entry_is_granted_gives_it_back() {
    let (server, entries) = queue(Durability::Synced, Order::Any);
    for id in 0..200 {
        let mut taker = server.connect();
        let durability = if id % 2 == 0 { "synced" } else { "written" };
        taker
            .write_all(format!("SPACE.TAKE shop jobs ID {id} BLOCK 0 DURABILITY {durability}\r\n").as_bytes())
            .unwrap();
        until("it waits", || entries.waiters() == 1);
        // Mostly it is granted before the door has noticed.
        drop(taker);
        write(&entries, id);
        until("nobody waits", || entries.waiters() == 0);
    }
    until("all come back", || entries.usage().entries == 200);
}

#[test]
fn who_waits_is_not_idle() {
    let (server, entries) = queue(Durability::Written, Order::Any);
    let (mut taker, mut idle, mut other) = (server.connect(), server.connect(), server.connect());
    exchange(&mut other, b"CONFIG SET timeout 1\r\n", "+OK\r\n");
    taker.write_all(TAKE).unwrap();
    until("it waits", || entries.waiters() == 1);
    assert_eq!(rest(&mut idle), "", "closed, as the setting wants");
    write(&entries, 1);
    assert_eq!(document(&mut taker), "{\"id\":1}");
}

#[test]
fn stopping_answers_those_who_wait() {
    let (server, entries) = queue(Durability::Written, Order::Any);
    let mut taker = server.connect();
    taker.write_all(TAKE).unwrap();
    until("it waits", || entries.waiters() == 1);
    server.running.stop();
    assert_eq!(rest(&mut taker), "$-1\r\n");
    assert_eq!(entries.waiters(), 0);
}

#[test]
fn who_listens_is_told_when_it_happens_and_blocks_nobody() {
    let (server, entries) = queue(Durability::Synced, Order::Any);
    let is_told = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut listener = server.connect();
    listener.write_all(b"SPACE.LISTEN shop jobs ANY BLOCK 60000\r\n").unwrap();
    let teller = thread::spawn({
        let (entries, is_told) = (entries.clone(), std::sync::Arc::clone(&is_told));
        move || {
            // It cannot be seen from here whether somebody listens already: what is written before is not told.
            for id in 0.. {
                write(&entries, id);
                thread::sleep(std::time::Duration::from_millis(5));
                if entries.usage().entries > 4_000 || is_told.load(std::sync::atomic::Ordering::Acquire) {
                    return;
                }
            }
        }
    });
    let mut line = Vec::new();
    while !line.ends_with(b"written\r\n") {
        let mut byte = [0];
        listener.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    is_told.store(true, std::sync::atomic::Ordering::Release);
    teller.join().unwrap();
    exchange(&mut server.connect(), b"PING\r\n", "+PONG\r\n");
}

/// Conditions that take milliseconds for each of these entries.
fn slow(word: &str) -> Vec<u8> {
    let sql = vec!["text RLIKE '[ab]*a[ab]{14}c'"; 60].join(" OR ");
    let line = format!("${}\r\n{sql}\r\n", sql.len());
    let head = format!("*6\r\n${}\r\n{word}\r\n$4\r\nshop\r\n$4\r\njobs\r\n$5\r\nWHERE\r\n", word.len());
    [head.as_bytes(), line.as_bytes(), b"$1\r\n0\r\n"].concat()
}

/// Entries enough for a query to take a minute.
fn many(entries: &Entries) {
    let mut random = 1u64;
    for id in 0..5_000i64 {
        let letter = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 63 == 0 { 'a' } else { 'b' }
        };
        let text: String = (0..4_000).map(letter).collect();
        let document = Document::from_pairs([("id", id.into()), ("text", holdfast::space::Value::from(text.as_str()))]);
        entries.write_shown(&document, &WriteOptions::default()).unwrap();
    }
}

/// Two queries that took minutes, and whose clients had long gone, held up those of all others.
#[test]
fn a_query_whose_client_is_gone_lets_others_have_its_turn() {
    let (server, entries) = queue(Durability::Written, Order::Any);
    many(&entries);
    let mut gone: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    gone.iter_mut().for_each(|client| client.write_all(&slow("SPACE.COUNT")).unwrap());
    // They have their turns, as far as can be seen from here.
    thread::sleep(std::time::Duration::from_millis(500));
    drop(gone);
    let began = std::time::Instant::now();
    let select = b"*5\r\n$12\r\nSPACE.SELECT\r\n$4\r\nshop\r\n$4\r\njobs\r\n$30\r\nSELECT count(*) AS n FROM jobs\r\n$1\r\n0\r\n";
    exchange(&mut server.connect(), select, "*1\r\n$10\r\n{\"n\":5000}\r\n");
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_query_that_takes_too_long_is_told_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), holdfast::Options::default()).unwrap();
    let entries = store.space("shop").declare(Definition::new("shop", "jobs")).unwrap();
    many(&entries);
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.limits.space_time_max = std::time::Duration::from_millis(1);
    let server = Server { running: serve(store, options).unwrap(), _dir: dir };
    let expected = "-LIMIT the query was ended after 0.001 s: ask for less by an index, a routing value or LIMIT, or raise \
                    space.query_seconds_max\r\n";
    for word in ["SPACE.COUNT", "SPACE.CLEAR", "SPACE.MREAD", "SPACE.TAKE", "SPACE.MTAKE", "SPACE.ITERATE"] {
        exchange(&mut server.connect(), &slow(word), expected);
    }
}
