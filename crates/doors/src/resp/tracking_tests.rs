//! Clients that keep what they read, over real sockets: what they are told, when, and that what they keep is never older than that.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Durability, KeyWatcher, PutOptions, Store};

use super::{Mode, Tracking, Wish, lock};
use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::resp::{Limits, Options, Running, serve};

const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    running: Running,
    store: Store,
    _dir: tempfile::TempDir,
}

fn start(change: impl FnOnce(&mut Options)) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let options = holdfast::Options { durability: Durability::Written, ..holdfast::Options::default() };
    let store = Store::open(dir.path(), options).unwrap();
    let mut options = Options::new("127.0.0.1:0".parse().unwrap());
    change(&mut options);
    Server { running: serve(store.clone(), options).unwrap(), store, _dir: dir }
}

struct Client(BufReader<TcpStream>);

impl Server {
    fn plain(&self) -> Client {
        let stream = TcpStream::connect(self.running.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    fn client(&self) -> Client {
        let mut client = self.plain();
        assert!(client.say("HELLO 3").starts_with('%'));
        client
    }
}

impl Client {
    fn send(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// The next message, a reply or a push, written on one line.
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        let (kind, rest) = line.split_at(1);
        let many = |times: usize| rest.parse::<usize>().unwrap() * times;
        match kind {
            "$" | "=" => {
                let mut bytes = vec![0; many(1) + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            "*" | "~" | ">" | "%" => {
                let times = if kind == "%" { 2 } else { 1 };
                let parts: Vec<String> = (0..many(times)).map(|_| self.next()).collect();
                format!("{kind}[{}]", parts.join(" "))
            }
            _ => line,
        }
    }

    fn say(&mut self, line: &str) -> String {
        self.send(line);
        self.next()
    }

    /// All pushes until the reply to a PING, which they come before.
    fn told(&mut self) -> Vec<String> {
        self.send("PING");
        let mut told = Vec::new();
        loop {
            match self.next() {
                pong if pong == "+PONG" => return told,
                push => told.push(push),
            }
        }
    }
}

fn keys(keys: &str) -> Vec<String> {
    vec![format!(">[invalidate *[{keys}]]")]
}

#[test]
fn who_wishes_otherwise_keeps_what_it_has_asked_for() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.plain());
    for (before, behind) in [("", " NOLOOP"), (" NOLOOP", "")] {
        assert_eq!(reader.say(&format!("CLIENT TRACKING ON{before}")), "+OK");
        assert_eq!(reader.say("GET k"), "_");
        assert_eq!(reader.say(&format!("CLIENT TRACKING ON{behind}")), "+OK");
        assert_eq!(writer.say("SET k 1"), "+OK");
        assert_eq!(reader.told(), keys("k"));
        assert_eq!((writer.say("DEL k"), reader.say("CLIENT TRACKING OFF")), (":1".to_owned(), "+OK".to_owned()));
    }
    // What it has not been told yet, too; the prefixes come to those that there are.
    assert_eq!(reader.say("CLIENT TRACKING ON BCAST PREFIX u:"), "+OK");
    reader.send("SET u:1 9\r\nCLIENT TRACKING ON BCAST PREFIX x:");
    let mut heard: Vec<String> = (0..3).map(|_| reader.next()).collect();
    heard.sort();
    assert_eq!(heard, ["+OK", "+OK", ">[invalidate *[u:1]]"]);
    assert_eq!((writer.say("SET x:1 1"), writer.say("SET u:2 1")), ("+OK".to_owned(), "+OK".to_owned()));
    let told = reader.told();
    assert!(told == [keys("x:1"), keys("u:2")].concat() || told == keys("x:1 u:2"), "{told:?}");
}

/// Everybody's keys were let go of, and only who may read the database was told.
#[test]
fn a_database_that_is_emptied_takes_nothing_from_who_reads_another() {
    let one = User {
        buckets: vec![BucketRight { pattern: "db1".to_owned(), right: Right::Write }],
        ..User::admin("one", &hash_password(b"pw").unwrap())
    };
    let root = User::admin("root", &hash_password(b"pw").unwrap());
    let server = start(|options| options.users = Users::new(vec![one, root]).unwrap().into());
    let mut reader = server.plain();
    assert!(reader.say("HELLO 3 AUTH one pw").starts_with('%'));
    let mut writer = server.plain();
    assert_eq!(writer.say("AUTH root pw"), "+OK");
    for line in ["SELECT 1", "CLIENT TRACKING ON"] {
        assert_eq!(reader.say(line), "+OK");
    }
    assert_eq!(reader.say("GET k"), "_");
    for line in ["FLUSHDB", "SELECT 1", "SET k new"] {
        assert_eq!(writer.say(line), "+OK");
    }
    assert_eq!(reader.told(), keys("k"));
}

/// What a transaction has changed is read within it, and is nowhere when it is rolled back.
#[test]
fn what_was_read_in_a_transaction_that_is_rolled_back_is_forgotten() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.plain());
    let all = [">[invalidate _]".to_owned()];
    for mode in ["", " BCAST", " NOLOOP"] {
        assert_eq!(writer.say("SET k old"), "+OK");
        assert_eq!(reader.say(&format!("CLIENT TRACKING ON{mode}")), "+OK");
        let begin = |reader: &mut Client| {
            assert!(reader.say("TX.BEGIN").starts_with(':'));
            assert_eq!((reader.say("SET k mine"), reader.say("GET k")), ("+OK".to_owned(), "mine".to_owned()));
        };
        begin(&mut reader);
        assert_eq!(reader.told(), [""; 0], "it is open");
        assert_eq!(reader.say("TX.ABORT"), "+OK");
        assert_eq!(reader.told(), all);
        begin(&mut reader);
        assert_eq!(writer.say("SET k other"), "+OK");
        let _ = reader.told();
        assert!(reader.say("TX.COMMIT").starts_with("-CONFLICT"));
        assert_eq!(reader.told(), all);
        begin(&mut reader);
        assert!(reader.say("TX.COMMIT").starts_with(':'));
        // Its own change, which it is told of as of any other; with NOLOOP it has read what is there.
        let told = reader.told();
        assert!(if mode == " NOLOOP" { told.is_empty() } else { told == keys("k") }, "{mode}: {told:?}");
        assert_eq!(reader.say("CLIENT TRACKING OFF"), "+OK");
    }
}

fn nobody(id: u64) -> Arc<super::Client> {
    let address = "127.0.0.1:1".parse().unwrap();
    Arc::new(super::Client::new(id, address, address, 0))
}

fn reads() -> Wish {
    Wish { mode: Mode::Read, prefixes: Vec::new(), no_loop: false }
}

/// What others ask for while the last of those who were there leaves.
#[test]
fn who_leaves_takes_nothing_of_who_comes() {
    let tracking = Tracking::new(1 << 20);
    let client = nobody(1);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            for _ in 0..20_000 {
                tracking.end(&tracking.begin(&nobody(2), None, reads()));
            }
        });
        while !leaving.is_finished() {
            let listener = tracking.begin(&client, None, reads());
            tracking.ask(&listener, b"db0", b"k");
            tracking.changed(b"db0", b"k");
            assert_eq!(listener.take_news().map(|news| news.keys), Some(vec![b"k".to_vec()]));
            tracking.end(&listener);
        }
    });
}

#[test]
fn who_is_gone_holds_nothing_though_keys_that_it_asked_for_stay() {
    let tracking = Tracking::new(1 << 20);
    let (stays, gone) = (tracking.begin(&nobody(1), None, reads()), tracking.begin(&nobody(2), None, reads()));
    for key in [&b"a"[..], b"never"] {
        tracking.ask(&gone, b"db0", key);
    }
    tracking.changed(b"db0", b"a");
    tracking.end(&gone);
    gone.tell(Some(b"late"));
    let inbox = lock(&gone.inbox);
    assert!(inbox.client.is_none() && inbox.news.keys.is_empty());
    assert_eq!(tracking.counts(), (1, 1), "it goes when it changes, or the last one does");
    tracking.end(&stays);
    assert_eq!(tracking.counts(), (0, 0));
}

#[test]
fn what_was_read_is_told_once_when_it_changes_whoever_changes_it() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.plain());
    assert_eq!(writer.say("MSET a 1 b 2 c 3"), "+OK");
    assert_eq!(reader.say("CLIENT TRACKING ON"), "+OK");
    assert_eq!(reader.say("MGET a b nobody"), "*[1 2 _]");
    assert_eq!(writer.say("SET a 4"), "+OK");
    assert_eq!(reader.told(), keys("a"));
    assert_eq!(writer.say("SET a 5"), "+OK");
    assert_eq!(reader.told(), [""; 0], "it was not read again");
    assert_eq!(writer.say("SET c 5"), "+OK");
    assert_eq!(reader.told(), [""; 0], "nor ever");
    // Whoever it is, and whatever it does.
    let changes: [(&str, &str, &str); 9] = [
        ("EXISTS nobody", "SETNX nobody 1", "nobody"),
        ("GET a", "INCR a", "a"),
        ("STRLEN a", "APPEND a x", "a"),
        ("TTL b", "EXPIRE b 100", "b"),
        ("GET b", "PERSIST b", "b"),
        ("GET b", "GETDEL b", "b"),
        ("GET b", "COPY a b", "b"),
        ("GET b", "RENAME b d", "b"),
        ("KV.GET db0 a", "KV.PUT db0 a y", "a"),
    ];
    for (read, change, key) in changes {
        reader.say(read);
        let answer = writer.say(change);
        assert!(!answer.starts_with('-'), "{change}: {answer}");
        assert_eq!(reader.told(), keys(key), "{read}; {change}");
    }
    reader.say("MGET a c d");
    server.store.kv().put(b"db0", b"c", b"from here", &PutOptions::default()).unwrap();
    server.store.kv().delete(b"db0", b"d", holdfast::Condition::None).unwrap();
    server.store.kv().put(b"other", b"a", b"", &PutOptions::default()).unwrap();
    server.store.kv().put(b"db1", b"a", b"", &PutOptions::default()).unwrap();
    let told = reader.told().concat();
    assert!(told == keys("c d")[0] || told == [keys("c"), keys("d")].concat().concat(), "{told}");
    reader.say("GET a");
    assert_eq!(writer.say("EVAL \"return redis.call('SET', KEYS[1], 's')\" 1 a"), "+OK");
    assert_eq!(reader.told(), keys("a"));
    // What a script, or a transaction, reads was read.
    assert_eq!(reader.say("EVAL \"return redis.call('GET', KEYS[1])\" 1 a"), "s");
    for line in ["MULTI", "GET c", "EXEC"] {
        reader.say(line);
    }
    for line in ["MULTI", "SET a 1", "SET c 1", "EXEC"] {
        writer.say(line);
    }
    let told = reader.told().concat();
    assert!(told == keys("a c")[0] || told == keys("c a")[0] || told.matches("invalidate").count() == 2, "{told}");
    reader.say("GET a");
    assert_eq!(writer.say("FLUSHDB"), "+OK");
    let told = reader.told().concat();
    assert!(told.starts_with(">[invalidate _]"), "{told}");
    // What expires is told when it is removed.
    writer.say("SET e 1 PX 1");
    reader.say("GET e");
    while reader.told().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(reader.say("CLIENT TRACKING OFF"), "+OK");
    reader.say("GET a");
    writer.say("SET a 9");
    assert_eq!(reader.told(), [""; 0]);
}

#[test]
fn modes_choose_what_is_told() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.plain());
    let mut change = |reader: &mut Client| {
        writer.say("MSET a 1 b 1 user:1 1 order:1 1");
        reader.told().concat()
    };
    assert_eq!(reader.say("CLIENT TRACKING ON OPTIN"), "+OK");
    reader.say("GET a");
    assert_eq!(change(&mut reader), "");
    assert_eq!(reader.say("CLIENT CACHING YES"), "+OK");
    assert_eq!(reader.say("CLIENT TRACKINGINFO"), "%[flags ~[on optin caching-yes] redirect :0 prefixes ~[]]");
    assert_eq!(reader.say("GET a"), "1");
    reader.say("GET b");
    assert_eq!(change(&mut reader), keys("a")[0]);
    reader.say("CLIENT CACHING YES");
    for line in ["MULTI", "GET a", "GET b", "EXEC", "GET user:1"] {
        reader.say(line);
    }
    let told = change(&mut reader);
    assert!(told == keys("a b")[0] || told == keys("b a")[0], "{told}");
    assert_eq!(reader.say("CLIENT TRACKING OFF"), "+OK");
    assert_eq!(reader.say("CLIENT TRACKING ON OPTOUT"), "+OK");
    reader.say("CLIENT CACHING NO");
    reader.say("GET a");
    reader.say("GET b");
    assert_eq!(change(&mut reader), keys("b")[0]);
    reader.say("CLIENT TRACKING OFF");
    assert_eq!(reader.say("CLIENT TRACKING ON BCAST PREFIX user: PREFIX order:"), "+OK");
    let told = change(&mut reader);
    assert!(told.contains("user:1") && told.contains("order:1") && !told.contains("a "), "{told}");
    assert_eq!(reader.say("CLIENT TRACKINGINFO"), "%[flags ~[on bcast] redirect :0 prefixes ~[user: order:]]");
    assert!(reader.say("INFO clients").contains("tracking_clients:1\r\n"));
    assert_eq!(reader.say("CLIENT GETREDIR"), ":0");
    reader.say("CLIENT TRACKING OFF");
    assert_eq!(reader.say("CLIENT TRACKING ON BCAST"), "+OK");
    let told = change(&mut reader);
    assert!(["a", "b", "user:1", "order:1"].iter().all(|key| told.contains(key)), "{told}");
    reader.say("CLIENT TRACKING OFF");
    assert_eq!(reader.say("CLIENT TRACKING ON NOLOOP"), "+OK");
    reader.say("MGET a b");
    reader.say("SET a mine");
    assert_eq!(reader.told(), [""; 0]);
    assert_eq!(change(&mut reader), keys("b")[0], "who changed it knows, and asks again if it wants to");
    assert_eq!(reader.say("RESET"), "+RESET");
    assert_eq!(reader.say("CLIENT GETREDIR"), ":-1");
    assert_eq!(reader.say("CLIENT TRACKINGINFO"), "*[flags *[off] redirect :-1 prefixes *[]]");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let server = start(|_| {});
    let mut old = server.plain();
    assert!(old.say("CLIENT TRACKING ON").starts_with("-ERR tracking needs"));
    let mut client = server.client();
    for (line, wanted) in [
        ("CLIENT TRACKING", "-ERR wrong number"),
        ("CLIENT TRACKING maybe", "-ERR syntax"),
        ("CLIENT TRACKING ON FASTER", "-ERR syntax"),
        ("CLIENT TRACKING ON PREFIX", "-ERR syntax"),
        ("CLIENT TRACKING ON PREFIX a", "-ERR PREFIX goes with BCAST"),
        ("CLIENT TRACKING ON REDIRECT 5", "-ERR REDIRECT needs pub/sub"),
        ("CLIENT TRACKING ON OPTIN OPTOUT", "-ERR OPTIN and OPTOUT exclude"),
        ("CLIENT TRACKING ON BCAST OPTIN", "-ERR OPTIN and OPTOUT do not go"),
        ("CLIENT TRACKING ON BCAST PREFIX user PREFIX user:1", "-ERR the prefixes 'user:1' and 'user' overlap"),
        ("CLIENT CACHING YES", "-ERR CLIENT CACHING is for"),
        ("CLIENT CACHING perhaps", "-ERR syntax"),
    ] {
        let answer = client.say(line);
        assert!(answer.starts_with(wanted), "{line}: {answer}");
        assert_eq!(client.say("CLIENT GETREDIR"), ":-1");
    }
    assert_eq!(client.say("CLIENT TRACKING ON OPTIN"), "+OK");
    assert!(client.say("CLIENT CACHING NO").starts_with("-ERR CLIENT CACHING YES goes with OPTIN"));
    assert!(client.say("CLIENT TRACKING ON").starts_with("-ERR the mode cannot be changed"));
    assert_eq!(client.say("CLIENT TRACKING ON OPTIN NOLOOP"), "+OK");
    assert_eq!(client.say("CLIENT TRACKINGINFO"), "%[flags ~[on optin noloop] redirect :0 prefixes ~[]]");
    assert!(client.say("CLIENT LIST").contains(" flags=t "));
    for number in 0..129 {
        let answer = client.say(&format!("CLIENT TRACKING {}", if number == 0 { "OFF" } else { "ON BCAST PREFIX p" }));
        assert_eq!(answer, "+OK", "the same again");
    }
    let many: String = (0..129).map(|number| format!(" PREFIX {number:03}")).collect();
    assert!(client.say(&format!("CLIENT TRACKING ON BCAST{many}")).starts_with("-LIMIT"));
    assert!(client.say("CLIENT TRACKINGINFO").contains("prefixes ~[p]"));
    // Commands go on, and so does tracking.
    server.plain().say("SET p1 x");
    assert_eq!(client.told(), keys("p1"));
}

#[test]
fn who_takes_too_much_is_told_of_keys_that_did_not_change_or_to_forget_everything() {
    // Room for some four keys in each of the parts.
    let server = start(|options| options.limits = Limits { tracked_bytes_max: 64 * 600, ..Limits::default() });
    let (mut reader, mut writer) = (server.client(), server.plain());
    reader.say("CLIENT TRACKING ON");
    for number in 0..2_000 {
        reader.send(&format!("GET k{number}"));
    }
    let (mut nulls, mut told) = (0, 0);
    while nulls < 2_000 {
        match reader.next().as_str() {
            "_" => nulls += 1,
            push => told += push.matches('k').count(),
        }
    }
    told += reader.told().concat().matches('k').count();
    assert!((1_700..2_000).contains(&told), "{told}");
    // The news of one that does not read are bounded, not lost.
    let mut all = server.client();
    all.say("CLIENT TRACKING ON BCAST");
    let pairs: String = (0..1_000).map(|number| format!("$1000\r\n{number:0>1000}\r\n$1\r\nv\r\n")).collect();
    for _ in 0..20 {
        writer.send(format!("*2001\r\n$4\r\nMSET\r\n{pairs}").trim_end());
        assert_eq!(writer.next(), "+OK");
    }
    let told = all.told();
    let forgets = told.iter().any(|push| push == ">[invalidate _]");
    assert!(forgets || told.concat().matches("00 ").count() > 10_000, "{} messages", told.len());
}

#[test]
fn nobody_hears_of_buckets_that_they_may_not_read() {
    let user = |name: &str, pattern: &str| User {
        name: name.to_owned(),
        password_hash: hash_password(b"secret").unwrap(),
        buckets: vec![BucketRight { pattern: pattern.to_owned(), right: Right::Write }],
        doors: Vec::new(),
    };
    let users = Users::new(vec![user("zero", "db0"), user("both", "db?")]).unwrap();
    let server = start(|options| options.users = std::sync::Arc::new(users));
    let login = |name: &str| {
        let mut client = server.plain();
        assert!(client.say(&format!("HELLO 3 AUTH {name} secret")).starts_with('%'));
        assert_eq!(client.say("CLIENT TRACKING ON BCAST"), "+OK");
        client
    };
    let (mut zero, mut both) = (login("zero"), login("both"));
    let mut writer = server.plain();
    writer.say("HELLO 3 AUTH both secret");
    for line in ["SET in0 x", "SELECT 1", "SET in1 x"] {
        assert_eq!(writer.say(line), "+OK");
    }
    assert_eq!((zero.told().concat(), both.told().concat().contains("in1")), (keys("in0").concat(), true));
    // Another user hears nothing that the one before asked for.
    assert_eq!(both.say("AUTH zero secret"), "+OK");
    assert_eq!(both.say("CLIENT GETREDIR"), ":-1");
}

/// What a client keeps by these rules is what is there, once it has read all that it was sent.
#[test]
fn a_cache_that_follows_the_pushes_never_keeps_what_was_replaced() {
    const KEYS: u64 = 8;
    let server = start(|options| options.reactors = 2);
    let mut reader = server.client();
    reader.say("CLIENT TRACKING ON");
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    let (mut hits, mut reads) = (0, 0);
    let forget = |kept: &mut BTreeMap<String, String>, push: &str| {
        let list = push.strip_prefix(">[invalidate *[").and_then(|rest| rest.strip_suffix("]]")).unwrap();
        list.split(' ').for_each(|key| drop(kept.remove(key)));
    };
    std::thread::scope(|threads| {
        for writer in 0..2u64 {
            let (server, done) = (&server, &done);
            threads.spawn(move || {
                let mut client = server.plain();
                for round in 0..3_000u64 {
                    let key = format!("k{}", (round * 7 + writer) % KEYS);
                    match round % 3 {
                        0 => drop(client.say(&format!("INCR {key}"))),
                        1 => drop(client.say(&format!("SET {key} {round}"))),
                        _ => drop(server.store.kv().put(b"db0", key.as_bytes(), b"5", &PutOptions::default()).unwrap()),
                    }
                }
                done.store(true, std::sync::atomic::Ordering::Release);
            });
        }
        let mut number = 0u64;
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            number += 1;
            let key = format!("k{}", number * number % KEYS);
            if kept.contains_key(&key) {
                hits += 1;
                reader.told().iter().for_each(|push| forget(&mut kept, push));
                continue;
            }
            reads += 1;
            reader.send(&format!("GET {key}"));
            let value = loop {
                match reader.next() {
                    push if push.starts_with(">[") => forget(&mut kept, &push),
                    value => break value,
                }
            };
            kept.insert(key, value);
        }
    });
    reader.told().iter().for_each(|push| forget(&mut kept, push));
    let mut other = server.plain();
    for (key, value) in &kept {
        assert_eq!(other.say(&format!("GET {key}")), *value, "{key}");
    }
    assert!(hits > 0 && reads > 10, "{hits} {reads}");
}

#[path = "tracking_entries_tests.rs"]
mod entries;
