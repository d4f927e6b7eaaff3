//! Transactions that stay open, through real sockets: what they see, what others see, who waits for whom, and how they end.
//!
//! May use: the fixture of `serve_tests.rs`, the store. Must not know: the inside of the door.

use std::io::{BufRead, BufReader};
use std::thread;

use holdfast::space::{Definition, Entries, Order, Path};

use super::*;
use crate::resp::open::For;

/// A client that reads whole replies.
pub(super) struct Client(pub(super) BufReader<TcpStream>);

impl Client {
    /// Sends words, which have no blanks.
    pub(super) fn send(&mut self, line: &str) {
        self.send_words(&line.split(' ').collect::<Vec<_>>());
    }

    pub(super) fn send_words(&mut self, words: &[&str]) {
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// One reply, its parts with blanks between.
    pub(super) fn reply(&mut self) -> String {
        let line = self.line();
        let count = || line[1..].parse::<i64>().unwrap();
        match line.as_bytes().first() {
            Some(b'$') if count() >= 0 => {
                let mut text = vec![0; count() as usize + 2];
                self.0.read_exact(&mut text).unwrap();
                String::from_utf8(text).unwrap().trim_end().to_owned()
            }
            Some(b'$') => "nil".to_owned(),
            Some(b'*') => (0..count()).map(|_| self.reply()).collect::<Vec<_>>().join(" "),
            _ => line,
        }
    }

    pub(super) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    pub(super) fn check(&mut self, steps: &[(&str, &str)]) {
        for (line, expected) in steps {
            let reply = self.ask(line);
            if *expected == ANY {
                assert!(!reply.starts_with('-'), "{line}: {reply}");
            } else if *expected == ID {
                assert!(
                    reply.strip_prefix(':').is_some_and(|id| id.parse::<u64>().is_ok_and(|id| id > 0)),
                    "{line}: {reply}"
                );
            } else {
                assert_eq!(reply, *expected, "{line}");
            }
        }
    }

    /// Begins a transaction, whose id is returned.
    fn begin(&mut self, line: &str) -> u64 {
        self.commit(line)
    }

    /// The position that a commit answers.
    fn commit(&mut self, line: &str) -> u64 {
        let reply = self.ask(line);
        reply.strip_prefix(':').and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{reply}"))
    }
}

struct Shop {
    server: Server,
    entries: Entries,
    store: Store,
}

impl Shop {
    fn client(&self) -> Client {
        Client(BufReader::new(self.server.connect()))
    }
}

fn shop(order: Order) -> Shop {
    shop_with(order, |_| ())
}

fn shop_with(order: Order, set: impl FnOnce(&mut Options)) -> Shop {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), holdfast::Options::default()).unwrap();
    let entries = store.space("shop").declare(Definition { order, ..Definition::new("shop", "jobs") }).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    options.reactors = 2;
    set(&mut options);
    Shop { server: Server { running: serve(store.clone(), options).unwrap(), _dir: dir }, entries, store }
}

pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

const NONE_OPEN: &str = "-NOTX no transaction is open on this connection: TX.BEGIN begins one";
const EXCLUDE: &str = "-ERR a transaction of TX.BEGIN and one of MULTI exclude each other: EXEC or DISCARD before";
/// Any id.
pub(super) const ID: &str = "an id";
/// Of a step whose reply is no error.
const ANY: &str = "anything";
const DEADLOCK: &str =
    "-CONFLICT a deadlock: those who have the entry wait for this transaction; roll it back and begin again";
const LEASE_ENDED: &str = "-TIMEOUT the transaction's lease ended, and it was rolled back: begin again";

#[test]
fn a_commit_over_keys_entries_and_points_is_one_batch_that_nobody_sees_before() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.check(&[
        ("SET stock 7", "+OK"),
        ("TX.BEGIN", ID),
        ("DECR stock", ":6"),
        ("GET stock", "6"),
        ("KV.PUT log today sold", ":0 synced"),
        ("SPACE.WRITE shop jobs {\"id\":1,\"what\":\"pack\"}", ":1 :0"),
        ("SPACE.CHANGE shop jobs 1 SET what send", "{\"id\":1,\"what\":\"send\"} :0 nil"),
        ("SPACE.COUNT shop jobs ANY", ":1"),
        ("TS.ADD sold 1700000000 1", ":1700000000000000000"),
    ]);
    let shown = |client: &mut Client| {
        client.ask("CLIENT INFO").split(' ').find_map(|it| it.strip_prefix("multi=").map(str::to_owned))
    };
    assert_eq!((shown(&mut one).as_deref(), shown(&mut other).as_deref()), (Some("7"), Some("-1")));
    other.check(&[("GET stock", "7"), ("KV.GET log today", ""), ("SPACE.COUNT shop jobs ANY", ":0")]);
    assert_eq!(other.ask("TS.LAST sold"), "nil");
    let position = one.commit("TX.COMMIT DURABILITY synced");
    assert!(shop.store.watermarks().synced.get() > position);
    let version = format!(":{position}");
    assert_eq!(other.ask("KV.GET log today").split(' ').nth(1), Some(version.as_str()));
    assert_eq!(other.ask("SPACE.READ shop jobs ID 1"), format!("{{\"id\":1,\"what\":\"send\"}} {version} nil"));
    other.check(&[("GET stock", "6")]);
    assert!(other.ask("TS.LAST sold").contains("1700000000000000000"), "points");
    // What one client does in a transaction, and gives up, was never there.
    one.check(&[("TX.BEGIN", ID), ("SET stock 0", "+OK"), ("TS.ADD sold 1700000001 1", ":1700000001000000000")]);
    one.check(&[("DEL stock", ":1"), ("EXISTS stock", ":0"), ("TX.ABORT", "+OK"), ("GET stock", "6")]);
    assert!(!one.ask("TS.LAST sold").contains("1700000001"), "points of what was given up");
}

#[test]
fn what_is_taken_is_locked_until_the_end() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN LEASE 60000", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with("{\"id\":1}"));
    // Others see it until it is gone, and cannot have it.
    assert!(other.ask("SPACE.READ shop jobs ID 1").starts_with("{\"id\":1}"));
    other.check(&[("SPACE.TAKE shop jobs ID 1", "nil"), ("TX.BEGIN", ID), ("SPACE.TAKE shop jobs ANY", "nil")]);
    one.check(&[("SPACE.COUNT shop jobs ANY", ":0"), ("TX.ABORT", "+OK"), ("TX.ABORT", NONE_OPEN)]);
    one.check(&[("TX.COMMIT", NONE_OPEN)]);
    assert!(other.ask("SPACE.TAKE shop jobs ANY").starts_with("{\"id\":1}"));
    other.commit("TX.COMMIT");
    one.check(&[("SPACE.COUNT shop jobs ANY", ":0")]);
}

#[test]
fn a_key_that_was_read_and_changed_by_another_is_a_conflict_and_nothing_happens() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    let conflict = "-CONFLICT somebody else changed what this transaction read; begin again";
    one.check(&[("SET stock 7", "+OK"), ("TX.BEGIN", ID), ("GET stock", "7"), ("SET sold 1", "+OK")]);
    other.check(&[("SET stock 8", "+OK")]);
    one.check(&[("TX.COMMIT", conflict), ("EXISTS sold", ":0"), ("TX.COMMIT", NONE_OPEN)]);
    // It is told as early as somebody looks again.
    one.check(&[("TX.BEGIN", ID), ("GET stock", "8")]);
    other.check(&[("SET stock 9", "+OK")]);
    one.check(&[("GET stock", conflict), ("TX.COMMIT", &over(conflict))]);
}

#[test]
fn who_writes_what_another_has_locked_waits_until_that_ends() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1,\"n\":0}");
    for end in ["TX.COMMIT", "TX.ABORT"] {
        one.check(&[("TX.BEGIN", ID)]);
        assert!(one.ask("SPACE.CHANGE shop jobs 1 INCR n 1").starts_with('{'));
        other.check(&[("TX.BEGIN", ID)]);
        other.send("SPACE.CHANGE shop jobs 1 INCR n 1");
        let turns = shop.server.running.door.turns_for(For::Lock);
        until("it waits", || turns.available_permits() < Limits::default().transaction_waits_max);
        one.ask(end);
        assert!(other.reply().starts_with('{'));
        other.commit("TX.COMMIT");
    }
    assert!(one.ask("SPACE.READ shop jobs ID 1").contains("\"n\":3"));
}

#[test]
fn of_two_who_wait_for_each_other_one_is_told_at_once() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.MWRITE shop jobs 2 {\"id\":1} {\"id\":2}");
    one.check(&[("TX.BEGIN", ID)]);
    other.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.CHANGE shop jobs 1 SET by one");
    other.ask("SPACE.CHANGE shop jobs 2 SET by other");
    // Whoever comes second is told, and gives up; the other goes on then.
    let ask = |client: &mut Client, line: &str| {
        let told = client.ask(line);
        if told == DEADLOCK {
            client.check(&[("TX.ABORT", "+OK")]);
            return 0;
        }
        assert!(told.starts_with('{'), "{told}");
        client.commit("TX.COMMIT");
        1
    };
    let went_on: i32 = thread::scope(|scope| {
        let one = scope.spawn(|| ask(&mut one, "SPACE.CHANGE shop jobs 2 SET by one"));
        let other = scope.spawn(|| ask(&mut other, "SPACE.CHANGE shop jobs 1 SET by other"));
        one.join().unwrap() + other.join().unwrap()
    });
    assert_eq!(went_on, 1);
}

#[test]
fn a_client_that_vanishes_rolls_back_also_while_it_waits() {
    let shop = shop(Order::Any);
    let mut other = shop.client();
    other.ask("SPACE.MWRITE shop jobs 2 {\"id\":1} {\"id\":2}");
    let mut one = shop.client();
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    drop(one);
    assert!(other.ask("SPACE.TAKE shop jobs ID 1 BLOCK 0").starts_with("{\"id\":1}"));
    // It has the second, and waits for a third that never comes.
    let mut one = shop.client();
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 2");
    one.send("SPACE.TAKE shop jobs ID 3 BLOCK 0");
    until("it waits", || shop.entries.waiters() == 1);
    drop(one);
    assert!(other.ask("SPACE.TAKE shop jobs ID 2 BLOCK 0").starts_with("{\"id\":2}"));
    until("nobody waits", || shop.entries.waiters() == 0);
    // What comes then goes to nobody.
    other.ask("SPACE.WRITE shop jobs {\"id\":3}");
    other.check(&[("SPACE.COUNT shop jobs ANY", ":1")]);
}

#[test]
fn a_lease_that_ends_frees_what_was_locked() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN LEASE 30", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    assert!(other.ask("SPACE.TAKE shop jobs ID 1 BLOCK 0").starts_with("{\"id\":1}"));
    one.check(&[("SPACE.COUNT shop jobs ANY", LEASE_ENDED), ("SET a b", &over(LEASE_ENDED))]);
    one.check(&[("TX.COMMIT", &over(LEASE_ENDED)), ("EXISTS a", ":0")]);
    // It counts from the beginning, whatever is done, or nothing.
    for then in ["SET a b", "TS.ADD sold 1700000000 1", "TX.COMMIT"] {
        one.check(&[("TX.BEGIN LEASE 30", ID), ("SET a b", "+OK")]);
        let began = shop.store.now_ms();
        until("it ends", || shop.store.now_ms() > began + 60);
        one.check(&[(then, LEASE_ENDED), ("RESET", "+RESET"), ("EXISTS a", ":0")]);
    }
}

#[test]
fn a_take_that_waits_gets_what_comes_and_gives_it_back_with_the_transaction() {
    let shop = shop(Order::Fifo);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.check(&[("TX.BEGIN", ID), ("SPACE.TAKE shop jobs ANY BLOCK 5", "nil")]);
    one.send("SPACE.TAKE shop jobs ANY BLOCK 0");
    until("it waits", || shop.entries.waiters() == 1);
    other.ask("SPACE.MWRITE shop jobs 3 {\"id\":1} {\"id\":2} {\"id\":3}");
    assert!(one.reply().starts_with("{\"id\":1}"));
    assert!(one.ask("SPACE.MTAKE shop jobs ANY COUNT 1 BLOCK 0").starts_with("{\"id\":2}"));
    one.check(&[("TX.ABORT", "+OK")]);
    assert!(other.ask("SPACE.TAKE shop jobs ANY").starts_with("{\"id\":1}"), "in order again");
}

#[test]
fn a_group_has_one_holder_at_a_time() {
    let shop = shop(Order::Groups(Path::parse("account").unwrap()));
    let (mut one, mut other) = (shop.client(), shop.client());
    for (id, account) in [(1, "a"), (2, "a"), (3, "b")] {
        one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":{id},\"account\":\"{account}\"}}"));
    }
    one.check(&[("TX.BEGIN", ID)]);
    other.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ANY").contains("\"id\":1"));
    assert!(other.ask("SPACE.TAKE shop jobs ANY").contains("\"id\":3"), "not of the group that one has");
    other.check(&[("SPACE.TAKE shop jobs ANY", "nil")]);
    assert!(one.ask("SPACE.TAKE shop jobs ANY").contains("\"id\":2"));
    one.commit("TX.COMMIT");
}

#[test]
fn isolation_says_what_reading_locks() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1,\"n\":0}");
    // Read committed: another value the next time.
    one.check(&[("TX.BEGIN ISOLATION COMMITTED", ID)]);
    assert!(one.ask("SPACE.READ shop jobs ID 1").contains("\"n\":0"));
    other.ask("SPACE.CHANGE shop jobs 1 INCR n 1");
    assert!(one.ask("SPACE.READ shop jobs ID 1").contains("\"n\":1"));
    one.commit("TX.COMMIT");
    // Repeatable read: others read, and lock for reading, and do not change.
    one.check(&[("TX.BEGIN ISOLATION REPEATABLE", ID)]);
    assert!(one.ask("SPACE.READ shop jobs ID 1").contains("\"n\":1"));
    other.check(&[("TX.BEGIN", ID)]);
    assert!(other.ask("SPACE.READ shop jobs ID 1").contains("\"n\":1"));
    other.commit("TX.COMMIT");
    other.check(&[("SPACE.TAKE shop jobs ID 1", "nil")]);
    one.commit("TX.COMMIT");
    // Exclusive read: nobody else locks it.
    one.check(&[("TX.BEGIN ISOLATION exclusive", ID)]);
    assert!(one.ask("SPACE.READ shop jobs ID 1").contains("\"n\":1"));
    other.check(&[("TX.BEGIN", ID), ("SPACE.READ shop jobs ID 1", "nil")]);
    one.commit("TX.COMMIT");
    assert!(other.ask("SPACE.READ shop jobs ID 1").contains("\"n\":1"));
}

#[test]
fn a_command_that_fails_rolls_back_and_what_follows_happens_nowhere() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    one.ask("SPACE.WRITE shop jobs {\"id\":2}");
    let there = "-CONFLICT an entry with this id is there already";
    for (wrong, reply) in [
        ("SPACE.MWRITE shop jobs 2 {\"id\":3} {\"id\":2} INSERT", there),
        ("SPACE.WRITE shop jobs {\"id\":2} INSERT", there),
        ("MSET x 1 y", "-ERR wrong number of arguments for 'mset' command"),
        ("SET a b FOO", "-ERR syntax error"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("FLUSHALL", "-ERR FLUSHALL is not possible within a transaction: TX.COMMIT or TX.ABORT before"),
    ] {
        one.check(&[
            ("TX.BEGIN", ID),
            ("SET before 1", "+OK"),
            (wrong, reply),
            ("SET behind 1", &over(reply)),
            ("NOSUCH", &one_of_none(&shop)),
            ("PING", "+PONG"),
            ("TX.COMMIT", &over(reply)),
            ("TX.COMMIT", NONE_OPEN),
            ("EXISTS before behind", ":0"),
            ("SPACE.COUNT shop jobs ANY", ":1"),
        ]);
    }
    one.check(&[("TX.BEGIN", ID), ("GET", "-ERR wrong number of arguments for 'get' command"), ("TX.ABORT", "+OK")]);
    // Of several that are sent at once none behind the wrong one happens.
    for line in ["TX.BEGIN", "SET a 1", "MSET x 1 y", "SET b 2", "TX.COMMIT", "EXISTS a b"] {
        one.send(line);
    }
    let replies: Vec<String> = (0..6).map(|_| one.reply()).collect();
    assert!(replies[3].starts_with("-EXECABORT") && replies[4].starts_with("-EXECABORT"), "{replies:?}");
    assert_eq!(replies[5], ":0");
}

#[test]
fn listings_show_what_the_transaction_has_done_and_what_is_committed_meanwhile() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.check(&[("MSET a 1 b 2 c 3", "+OK"), ("TX.BEGIN", ID)]);
    one.check(&[("DEL b", ":1"), ("SET d 4", "+OK"), ("SET a 5", "+OK"), ("KEYS *", "a c d"), ("DBSIZE", ":3")]);
    one.check(&[
        ("KV.KEYS db0 LIMIT 2", "a c c\0 synced"),
        ("KV.KEYS db0 START d", "d nil synced"),
        ("KV.BUCKETS", "db0"),
    ]);
    assert!(one.ask("KV.RANGE db0 VALUES").contains(" 5"));
    assert!(["a", "c", "d"].contains(&&*one.ask("RANDOMKEY")));
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let reply = one.ask(&format!("SCAN {cursor} COUNT 1"));
        let mut words = reply.split(' ').map(str::to_owned);
        cursor = words.next().unwrap();
        found.extend(words.filter(|word| !word.is_empty()));
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    assert_eq!(found, ["a", "c", "d"]);
    // They are not watched: another may change what they have shown.
    other.check(&[("KEYS *", "a b c"), ("MSET c 6 e 7", "+OK")]);
    one.check(&[("KEYS *", "a c d e"), ("DBSIZE", ":4")]);
    one.commit("TX.COMMIT");
    other.check(&[("KEYS *", "a c d e"), ("DBSIZE", ":4"), ("EXISTS b", ":0")]);
    // Nor do they lock out what is refused.
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("FLUSHDB").contains("not possible within a transaction"));
}

/// What a command is told of a transaction that was rolled back for this.
fn over(why: &str) -> String {
    let why = why.trim_start_matches('-');
    format!("-EXECABORT the transaction was rolled back: {why}; TX.ABORT, and begin again")
}

/// What an unknown command is told anywhere.
fn one_of_none(shop: &Shop) -> String {
    shop.client().ask("NOSUCH")
}

#[test]
fn a_strict_transaction_lets_nothing_in_that_does_not_name_it() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    let id = one.begin("TX.BEGIN STRICT");
    let stray = "-ERR a strict transaction is open on this connection: TX.RUN names it, TX.COMMIT and TX.ABORT end it";
    let unnamed = "-ERR a strict transaction is named: ID, and what TX.BEGIN answered";
    let none = "-NOTX this connection has no such transaction: it has ended, or its connection has; whether it was committed is known by reading";
    let run = |command: &str| format!("TX.RUN {id} {command}");
    one.check(&[(&run("SET a 1"), "+OK"), ("PING", "+PONG"), (&run("GET a"), "1")]);
    // On another connection it is nothing, as after one that was made anew.
    other.check(&[
        (&run("SET a 4"), none),
        (&format!("TX.COMMIT ID {id}"), none),
        (&format!("TX.ABORT ID {id}"), none),
    ]);
    one.commit(&format!("TX.COMMIT ID {id}"));
    one.check(&[("GET a", "1"), (&run("SET a 5"), none), (&format!("TX.COMMIT ID {id}"), none), ("GET a", "1")]);
    // What is sent without its name is refused, and rolls it back.
    for (line, refused) in [
        ("SET a 2", stray),
        ("SPACE.COUNT shop jobs ANY", stray),
        ("TX.COMMIT", unnamed),
        ("TX.ABORT", unnamed),
        ("TX.RUN x SET a 3", none),
    ] {
        let id = one.begin("TX.BEGIN STRICT");
        one.check(&[(&format!("TX.RUN {id} SET a 6"), "+OK"), (line, refused)]);
        one.check(&[(&format!("TX.COMMIT ID {id}"), &over(refused)), ("GET a", "1")]);
    }
    // One that is not strict may be named too; what fails in it rolls it back, also what is no command.
    let id = one.begin("TX.BEGIN");
    one.check(&[(&format!("TX.RUN {id} SET a 6"), "+OK"), ("SET b 6", "+OK")]);
    assert!(one.ask(&format!("TX.RUN {id} NOSUCH")).starts_with("-ERR unknown command"));
    assert!(one.ask(&format!("TX.COMMIT ID {id}")).starts_with("-EXECABORT"));
    one.check(&[("GET a", "1"), ("EXISTS b", ":0")]);
}

#[test]
fn what_does_not_belong_there_is_refused() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    one.check(&[
        ("TX.COMMIT", NONE_OPEN),
        ("TX.BEGIN LEASE 0", "-ERR a lease has 1 to 3600000 milliseconds"),
        ("TX.BEGIN LEASE 9999999999", "-ERR a lease has 1 to 3600000 milliseconds"),
        ("TX.BEGIN ISOLATION dirty", "-ERR ISOLATION is one of COMMITTED, REPEATABLE, EXCLUSIVE"),
        ("MULTI", "+OK"),
        ("TX.BEGIN", EXCLUDE),
        ("SET within x", "+QUEUED"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("EXISTS within", ":0"),
    ]);
    for line in ["TX.RUN 1 SET within x", "TX.COMMIT", "TX.ABORT ID 1"] {
        one.check(&[("MULTI", "+OK"), ("SET within x", "+QUEUED"), (line, EXCLUDE)]);
        one.check(&[("EXEC", "-EXECABORT Transaction discarded because of previous errors."), ("EXISTS within", ":0")]);
    }
    one.check(&[
        ("WATCH a", "+OK"),
        ("TX.BEGIN", "-ERR WATCH is for MULTI: a transaction watches all keys that it reads"),
        ("UNWATCH", "+OK"),
        ("TX.BEGIN", ID),
        ("SELECT 3", "+OK"),
        ("SET here 3", "+OK"),
        ("SELECT 0", "+OK"),
        ("EXISTS here", ":0"),
    ]);
    one.commit("TX.COMMIT");
    one.check(&[("SELECT 3", "+OK"), ("GET here", "3"), ("TX.BEGIN", ID), ("SET here 4", "+OK"), ("RESET", "+RESET")]);
    one.check(&[("SELECT 3", "+OK"), ("GET here", "3"), ("TX.COMMIT", NONE_OPEN)]);
}

#[test]
fn a_transaction_is_bounded() {
    let shop = shop_with(Order::Any, |options| options.limits = Limits::tiny());
    let mut one = shop.client();
    one.check(&[("TX.BEGIN", ID)]);
    (0..8).for_each(|number| one.check(&[(&format!("SET k{number} v"), "+OK")]));
    let much = "-LIMIT the transaction has too many commands or bytes: 8 commands and 4096 bytes are the most, so do it in parts";
    one.check(&[("SET k9 v", much), ("TX.COMMIT", &over(much)), ("EXISTS k0", ":0"), ("TX.BEGIN", ID)]);
    let long = format!("SET long {}", "x".repeat(5_000));
    one.check(&[(&long, much), ("TX.ABORT", "+OK")]);
}

#[test]
fn a_transaction_holds_so_many_entries_and_no_more() {
    let shop = shop_with(Order::Any, |options| {
        options.limits =
            Limits { queue_bytes_max: 1 << 20, args_max: 1 << 10, space_entries_max: 100, ..Limits::tiny() };
    });
    let mut one = shop.client();
    let many = format!("SPACE.MWRITE shop jobs 33{}", " {}".repeat(33));
    let much = "-LIMIT a transaction reads keys, changes and locks 32 keys and entries at the most";
    one.check(&[("TX.BEGIN", ID), (&many, much), ("TX.COMMIT", &over(much)), ("SPACE.COUNT shop jobs ANY", ":0")]);
    // Too much before something is found locked: it does not wait, and is answered once.
    let mut other = shop.client();
    one.ask("SPACE.WRITE shop jobs {\"id\":\"x\"}");
    other.check(&[("TX.BEGIN", ID)]);
    other.ask("SPACE.TAKE shop jobs ID \"x\"");
    let many = format!("SPACE.MWRITE shop jobs 34{} {{\"id\":\"x\"}}", " {}".repeat(33));
    one.check(&[("TX.BEGIN", ID), (&many, much), ("PING", "+PONG"), ("TX.ABORT", "+OK")]);
    other.check(&[("TX.ABORT", "+OK")]);
    // What is only read is locked, and counted; unless it is not locked. What is read twice, and then changed, is one.
    one.check(&[(&format!("SPACE.MWRITE shop jobs 20{}", " {}".repeat(20)), ANY)]);
    one.check(&[("TX.BEGIN", ID), ("SPACE.MREAD shop jobs ANY", ANY), ("SPACE.MREAD shop jobs ANY", ANY)]);
    one.check(&[("SPACE.WRITE shop jobs {\"id\":\"x\"}", ANY)]);
    one.check(&[(&format!("SPACE.MWRITE shop jobs 11{}", " {}".repeat(11)), ANY), ("SPACE.WRITE shop jobs {}", much)]);
    one.check(&[("TX.ABORT", "+OK"), (&format!("SPACE.MWRITE shop jobs 20{}", " {}".repeat(20)), ANY)]);
    for (isolation, said) in [("COMMITTED", ANY), ("REPEATABLE", much), ("EXCLUSIVE", much)] {
        let begin = format!("TX.BEGIN ISOLATION {isolation}");
        one.check(&[(&begin, ID), ("SPACE.MREAD shop jobs ANY", said), ("TX.ABORT", "+OK")]);
    }
}

#[test]
fn nothing_of_a_transaction_is_left_on_a_connection_that_is_reset() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    one.check(&[
        ("TX.BEGIN", ID),
        ("TS.ADD sold 1700000000 7", ":1700000000000000000"),
        ("RESET", "+RESET"),
        ("TS.ADD other 1700000000 1", ":1700000000000000000"),
        ("TS.LAST sold", "nil"),
    ]);
}

#[test]
fn several_that_are_written_wait_for_a_lock_in_their_middle() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":2}");
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 2").starts_with("{\"id\":2}"));
    other.check(&[("TX.BEGIN", ID)]);
    other.send("SPACE.MWRITE shop jobs 3 {\"id\":1} {\"id\":2} {\"id\":3} INSERT");
    let turns = shop.server.running.door.turns_for(For::Lock);
    until("it waits", || turns.available_permits() < Limits::default().transaction_waits_max);
    one.commit("TX.COMMIT");
    assert_eq!(other.reply(), ":1 :0 :2 :0 :3 :0");
    other.commit("TX.COMMIT");
    one.check(&[("SPACE.COUNT shop jobs ANY", ":3")]);
}

/// Only within a transaction it waited; outside it told that the entry was locked, whatever the others did.
#[test]
fn several_that_are_written_outside_of_transactions_wait_for_a_lock_in_their_middle_too() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":2}");
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.CHANGE shop jobs 2 SET n 1").starts_with("{\"id\":2"));
    other.send("SPACE.MWRITE shop jobs 4 {\"id\":1} {\"id\":2,\"n\":2} no {\"id\":3} PREVIOUS");
    let turns = shop.server.running.door.turns_for(For::Lock);
    until("it waits", || turns.available_permits() < Limits::default().transaction_waits_max);
    let mut third = shop.client();
    third.check(&[("SPACE.COUNT shop jobs ID 1", ":1"), ("SPACE.COUNT shop jobs ID 3", ":0")]);
    one.commit("TX.COMMIT");
    let reply = other.reply();
    assert!(reply.contains("\"n\":1"), "it replaces what the transaction has committed: {reply}");
    assert!(reply.contains("-ERR JSON"), "what is no document is told in its place: {reply}");
    one.check(&[("SPACE.COUNT shop jobs WHERE n=2 0", ":1"), ("SPACE.COUNT shop jobs ANY", ":3")]);
}

#[test]
fn who_waits_while_something_is_there_gets_whatever_is_let_go_of() {
    let shop = shop(Order::Any);
    let (mut one, mut two, mut three) = (shop.client(), shop.client(), shop.client());
    one.ask("SPACE.MWRITE shop jobs 2 {\"id\":1} {\"id\":2}");
    for (client, id) in [(&mut one, 1), (&mut two, 2)] {
        client.check(&[("TX.BEGIN", ID)]);
        assert!(client.ask(&format!("SPACE.TAKE shop jobs ID {id}")).starts_with('{'));
    }
    for (client, id) in [(&mut one, 1), (&mut two, 2)] {
        three.send("SPACE.TAKE shop jobs ANY IFEXISTS BLOCK 60000");
        client.check(&[("TX.ABORT", "+OK")]);
        assert!(three.reply().starts_with(&format!("{{\"id\":{id}}}")));
    }
}

#[test]
fn versions_and_groups_hold_within_a_transaction() {
    let shop = shop(Order::Groups(Path::parse("account").unwrap()));
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.MWRITE shop jobs 2 {\"id\":1,\"account\":\"a\"} {\"id\":2,\"account\":\"a\"}");
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.WRITE shop jobs {\"id\":9,\"account\":\"b\"}").starts_with(":9"));
    let changed = "-CONFLICT the entry has another version: this transaction has changed it";
    one.check(&[("SPACE.TAKE shop jobs ID 9 VERSION 123", changed), ("TX.ABORT", "+OK"), ("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    // Another entry of the group that one has.
    let held = "-TIMEOUT another transaction has an entry of the same group, and so all of them";
    other.check(&[("TX.BEGIN", ID), ("SPACE.WRITE shop jobs {\"id\":2,\"account\":\"a\"}", held), ("TX.ABORT", "+OK")]);
    one.commit("TX.COMMIT");
    assert!(other.ask("SPACE.TAKE shop jobs ANY").starts_with("{\"account\":\"a\",\"id\":2}"));
}

#[test]
fn closing_the_door_rolls_back_and_waits_for_nobody() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    other.check(&[("TX.BEGIN", ID)]);
    other.send("SPACE.TAKE shop jobs ID 2 BLOCK 0");
    until("it waits", || shop.entries.waiters() == 1);
    shop.server.running.stop();
    assert_eq!(shop.entries.usage().entries, 1);
}

#[path = "open_long_tests.rs"]
mod long;
#[path = "open_volatile_tests.rs"]
mod open_volatile_tests;
#[path = "open_seen_tests.rs"]
mod seen;
#[path = "open_through_tests.rs"]
mod through;

#[test]
fn a_write_waits_for_a_lock_as_long_as_it_says() {
    let shop = shop(Order::Any);
    let (mut holder, mut one, mut other) = (shop.client(), shop.client(), shop.client());
    one.check(&[("SPACE.WRITE shop jobs {\"id\":1,\"n\":1}", ANY)]);
    holder.check(&[("TX.BEGIN", ID), ("SPACE.CHANGE shop jobs 1 INCR n 1", ANY)]);
    let locked = |reply: &str, line: &str| assert!(reply.starts_with("-TIMEOUT"), "{line}: {reply}");
    for line in [
        "SPACE.WRITE shop jobs {\"id\":1} LOCKWAIT",
        "SPACE.CHANGE shop jobs 1 INCR n 1 LOCKWAIT",
        "SPACE.MCHANGE shop jobs ANY INCR n 1 LOCKWAIT",
    ] {
        for (wait, least) in [(0, 0), (300, 300)] {
            let (line, begun) = (format!("{line} {wait}"), std::time::Instant::now());
            locked(&one.ask(&line), &line);
            let took = begun.elapsed().as_millis();
            // Far from the five seconds that it is by itself.
            assert!(took >= least && took < 4_000, "{line}: {took} ms");
        }
    }
    // In a transaction as well, which a command that waited in vain has ended.
    for (wait, least) in [(0, 0), (300, 300)] {
        one.check(&[("TX.BEGIN", ID)]);
        let begun = std::time::Instant::now();
        locked(&one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":1}} LOCKWAIT {wait}")), "within");
        let took = begun.elapsed().as_millis();
        assert!(took >= least && took < 4_000, "{wait}: {took} ms");
        one.check(&[("TX.ABORT", "+OK")]);
    }
    // Of several all together, and each is told by itself; the third only shows that the wait is not for each.
    one.check(&[("SPACE.WRITE shop jobs {\"id\":9}", ANY)]);
    let many = format!("{}{{\"id\":1}} {{\"id\":2}} {{\"id\":1}}", "{\"id\":9} ".repeat(300));
    for (of, documents) in [(3, "{\"id\":1} {\"id\":2} {\"id\":1}"), (303, many.as_str())] {
        for (wait, least) in [(0, 0), (300, 300)] {
            let begun = std::time::Instant::now();
            let each = one.ask(&format!("SPACE.MWRITE shop jobs {of} {documents} LOCKWAIT {wait}"));
            let took = begun.elapsed().as_millis();
            assert_eq!((each.matches("-TIMEOUT").count(), each.matches(":2 ").count()), (2, 1), "{each}");
            assert!(took >= least && took < 4_000, "{of} {wait}: {took} ms");
            one.check(&[("SPACE.COUNT shop jobs ID 2", ":1")]);
        }
    }
    one.check(&[("SPACE.WRITE shop jobs {} LOCKWAIT x", "-ERR value is not an integer or out of range")]);
    assert!(one.ask("SPACE.WRITE shop jobs {} LOCKWAIT 1 LOCKWAIT 1").starts_with("-ERR syntax error"));
    // It holds up nobody, and is told when the lock goes.
    other.send("SPACE.CHANGE shop jobs 1 INCR n 10 LOCKWAIT 60000");
    (0..50).for_each(|_| one.check(&[("PING", "+PONG")]));
    holder.commit("TX.COMMIT");
    let changed = other.reply();
    assert!(changed.contains("\"n\":12"), "{changed}");
}
