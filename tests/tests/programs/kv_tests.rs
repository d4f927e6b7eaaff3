//! `KV.*` against the real program: indexes, folds, snapshots, trees and compaction while others write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use holdfast_tests::{Client, Launch, Random, Server, Value, until};
use tempfile::TempDir;

/// Writers of the tests in which several write at a time, and the keys of each.
const WRITERS: usize = 3;
const KEYS: usize = 200;
const TERMS: usize = 10;
const TIME_MAX: Duration = Duration::from_secs(30);
const GONE: &str = "ERR no such snapshot: it is closed, its time is over, or another connection opened it";

fn start(folder: &TempDir) -> Server {
    Launch::new(folder.path()).durability("written").start()
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("an array, not {other:?}"),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("a string, not {value:?}"))).into_owned()
}

/// All pages of a command that answers [entries, cursor, durability].
fn pages(client: &mut Client, line: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = items(client.say(&format!("{line}{after}")));
        let [entries, next, _durability] = page.as_slice() else { panic!("three, not {page:?}") };
        all.extend(items(entries.clone()));
        if *next == Value::Nil {
            return all;
        }
        after = format!(" AFTER {}", text(next));
    }
}

fn snapshot(client: &mut Client, line: &str) -> i64 {
    match items(client.say(line)).first() {
        Some(Value::Integer(id)) => *id,
        other => panic!("an id, not {other:?}"),
    }
}

#[test]
fn an_index_is_exact_while_its_objects_change() {
    let folder = folder();
    let server = start(&folder);
    let is_over = AtomicBool::new(false);
    // Each object has just one term of the index all the time, so all terms together show each key just once.
    let terms = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || {
                    let (mut client, mut random) = (server.client(), Random::new(writer as u64));
                    let mut terms = BTreeMap::new();
                    let mut put = |client: &mut Client, number: usize, term: usize| {
                        let key = format!("{writer}:{number}");
                        let answer = client.say(&format!("KV.PUT b {key} v INDEXINT n {term}"));
                        assert!(answer.error().is_none(), "{answer:?}");
                        terms.insert(key, term);
                    };
                    (0..KEYS).for_each(|number| put(&mut client, number, 0));
                    while !is_over.load(Ordering::Relaxed) {
                        let number = random.below(KEYS);
                        put(&mut client, number, random.below(TERMS));
                    }
                    terms
                })
            })
            .collect();
        let mut client = server.client();
        let all = Value::Integer((WRITERS * KEYS) as i64);
        until(TIME_MAX, || {
            let stats = items(client.say("KV.STATS b"));
            (stats.last() == Some(&all)).then_some(())
        })
        .expect("the writers put their keys");
        for round in 0..30 {
            // One page is one instant; several are, if they are of one snapshot.
            let id = snapshot(&mut client, "KV.SNAPSHOT OPEN");
            let limit = if round % 2 == 0 { 10_000 } else { 37 };
            let found = pages(&mut client, &format!("KV.INDEX b n FROM 0 TO {TERMS} INT LIMIT {limit} SNAPSHOT {id}"));
            let keys: BTreeSet<String> = found.iter().map(text).collect();
            assert_eq!((found.len(), keys.len()), (WRITERS * KEYS, WRITERS * KEYS), "round {round}");
            assert_eq!(client.say(&format!("KV.SNAPSHOT CLOSE {id}")), Value::Integer(1));
            let at_once = pages(&mut client, &format!("KV.INDEX b n FROM 0 TO {TERMS} INT LIMIT 10000"));
            assert_eq!(at_once.len(), WRITERS * KEYS, "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
        let joined = writers.into_iter().flat_map(|writer| writer.join().expect("a writer that succeeds"));
        joined.collect::<BTreeMap<String, usize>>()
    });
    let look = |server: &Server| {
        let mut client = server.client();
        for term in 0..TERMS {
            let found: BTreeSet<String> =
                pages(&mut client, &format!("KV.INDEX b n EQ {term} INT LIMIT 7")).iter().map(text).collect();
            let wanted = terms.iter().filter(|(_, at)| **at == term).map(|(key, _)| key.clone());
            assert_eq!(found, wanted.collect::<BTreeSet<_>>(), "term {term}");
        }
    };
    look(&server);
    server.kill();
    look(&start(&folder));
}

#[test]
fn a_fold_shows_each_object_once_while_others_change_and_goes_on_after_a_restart() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    for number in 0..2_000 {
        client.add(&["KV.PUT", "b", &format!("k{number:04}"), &"v".repeat(number % 300)]);
    }
    client.flush().expect("the server reads");
    (0..2_000).for_each(|_| assert!(client.answer().expect("an answer").error().is_none()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            while !is_over.load(Ordering::Relaxed) {
                client.say("KV.PUT b passing v");
                client.say("KV.DEL b passing");
            }
        });
        for order in ["key", "write", "partition"] {
            for what in ["KEYS", "HEADS LIMIT 100", "OBJECTS"] {
                let found = pages(&mut client, &format!("KV.FOLD BUCKET b KEYREGEX ^k ORDER {order} {what}"));
                let keys: BTreeSet<String> = found.into_iter().map(|object| text(&items(object)[1])).collect();
                assert_eq!(keys.len(), 2_000, "{order} {what}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Replies keep their order though folds run elsewhere.
    client.add(&["KV.FOLD", "COUNT"]);
    client.add(&["PING"]);
    client.add(&["KV.FOLD", "BUCKET", "nosuch", "COUNT", "DURABILITY", "synced"]);
    client.flush().expect("the server reads");
    let count = |count: i64, durability: &str| Value::Array(vec![Value::Integer(count), Value::Nil, durability.into()]);
    assert_eq!(client.answer().expect("an answer"), count(2_000, "written"));
    assert_eq!(client.answer().expect("an answer"), Value::Simple("PONG".into()));
    assert_eq!(client.answer().expect("an answer"), count(0, "synced"));
    let page = items(client.say("KV.FOLD KEYS LIMIT 1500"));
    let next = text(&page[1]);
    drop(client);
    server.kill();
    let server = start(&folder);
    let rest = items(server.client().say(&format!("KV.FOLD KEYS AFTER {next}")));
    assert_eq!((items(page[0].clone()).len(), items(rest[0].clone()).len()), (1_500, 500));
    assert_eq!(rest[1], Value::Nil);
}

#[test]
fn a_snapshot_ends_with_its_time_or_its_connection() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    client.say("KV.PUT b k before");
    let (short, long) =
        (snapshot(&mut client, "KV.SNAPSHOT OPEN TTL 1"), snapshot(&mut client, "KV.SNAPSHOT OPEN TTL 60"));
    client.say("KV.PUT b k after");
    let before = |client: &mut Client, id: i64| {
        let answer = client.say(&format!("KV.GET b k SNAPSHOT {id}"));
        answer.error().is_none().then(|| text(&items(answer)[0]))
    };
    assert_eq!(before(&mut client, long).as_deref(), Some("before"));
    until(TIME_MAX, || before(&mut client, short).is_none().then_some(())).expect("a second passes");
    assert_eq!(client.say(&format!("KV.FOLD SNAPSHOT {short}")), Value::Error(GONE.into()));
    assert_eq!(before(&mut client, long).as_deref(), Some("before"));
    assert_eq!(server.client().say(&format!("KV.GET b k SNAPSHOT {long}")), Value::Error(GONE.into()));
    assert_eq!(items(client.say("KV.SNAPSHOT LIST")).len(), 1);
    // As many as there may be, and again when their connections are gone.
    client.say("RESET");
    for _ in 0..2 {
        let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
        for client in &mut clients {
            until(TIME_MAX, || {
                // Those before may not have been let go yet.
                let answers: Vec<Value> = (0..16).map(|_| client.say("KV.SNAPSHOT OPEN")).collect();
                answers.iter().all(|answer| answer.error().is_none()).then_some(()).or_else(|| {
                    client.say("RESET");
                    None
                })
            })
            .expect("room comes back");
            let refused = client.say("KV.SNAPSHOT OPEN");
            assert!(refused.error().is_some_and(|text| text.starts_with("ERR too many snapshots")), "{refused:?}");
        }
        assert!(client.say("KV.SNAPSHOT OPEN").error().is_some(), "the door has no more");
    }
}

#[test]
fn cursors_that_nobody_gave_out_are_refused_and_harm_nothing() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    for number in 0..50 {
        client.say(&format!("KV.PUT b k{number} v INDEXINT n {number}"));
    }
    for cursor in ["0", "x", "zz", "6", "6b6", "ff00", "-1", "7000"] {
        for line in ["KV.INDEX b n FROM 0 TO 100 INT", "KV.FOLD KEYS"] {
            let answer = client.say(&format!("{line} AFTER {cursor}"));
            assert!(
                answer.error().is_some_and(|text| text.starts_with("ERR the continuation")),
                "{cursor}: {answer:?}"
            );
        }
    }
    let mut random = Random::new(11);
    for _ in 0..500 {
        let length = random.below(12);
        let place: String = random.bytes(length).iter().map(|byte| format!("{byte:02x}")).collect();
        for line in [
            format!("KV.INDEX b n FROM 0 TO 100 INT AFTER 69{place}"),
            format!("KV.FOLD KEYS AFTER 6b{place}"),
            format!("KV.FOLD KEYS ORDER write AFTER 61{place}"),
            format!("KV.FOLD KEYS ORDER partition AFTER 70{place}"),
        ] {
            match client.say(&line) {
                Value::Array(page) => assert!(items(page[0].clone()).len() <= 50, "{line}"),
                answer => assert!(answer.error().is_some_and(|text| !text.contains("internal")), "{line}: {answer:?}"),
            }
        }
    }
    assert_eq!(pages(&mut client, "KV.FOLD KEYS").len(), 50);
}

#[test]
fn a_tree_shows_where_a_change_was() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    for number in 0..500 {
        client.say(&format!("KV.PUT b k{number} v"));
    }
    let tree = |client: &mut Client| {
        let root = items(client.say("KV.TREE ROOT 1024"));
        let branches: String = (0..32).map(|branch| format!(" {branch}")).collect();
        let leaves: Vec<Value> =
            items(client.say(&format!("KV.TREE BRANCHES 1024{branches}"))).into_iter().flat_map(items).collect();
        (root, leaves)
    };
    let (root, leaves) = tree(&mut client);
    assert_eq!((root.len(), leaves.len()), (32, 1024));
    assert_eq!(tree(&mut client), (root.clone(), leaves.clone()));
    client.say("KV.PUT b k7 changed");
    let (new_root, new_leaves) = tree(&mut client);
    let differing = |old: &[Value], new: &[Value]| (0..old.len()).filter(|at| old[*at] != new[*at]).collect::<Vec<_>>();
    let changed = differing(&leaves, &new_leaves);
    assert_eq!(changed.len(), 1);
    assert_eq!(differing(&root, &new_root), [changed[0] / 32]);
    let clocks = items(client.say(&format!("KV.TREE CLOCKS 1024 {}", changed[0])));
    let keys: Vec<String> = clocks.into_iter().map(|clock| text(&items(clock)[1])).collect();
    assert!(keys.contains(&"k7".to_owned()) && keys.len() < 20, "{keys:?}");
    assert_eq!(items(client.say("KV.TREE ROOT 1048576")).len(), 1024);
}

#[test]
fn a_compaction_that_a_client_asks_for_changes_nothing_that_is_seen() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    for number in 0..3_000 {
        client.say(&format!("KV.PUT b k{} {} INDEXINT n {}", number % 100, "v".repeat(1000), number % 7));
    }
    let look = |client: &mut Client| {
        [
            pages(client, "KV.FOLD OBJECTS"),
            pages(client, "KV.INDEX b n FROM 0 TO 7 INT TERMS"),
            items(client.say("KV.TREE ROOT 1024")),
        ]
    };
    let before = look(&mut client);
    let begun = client.say("KV.COMPACT");
    assert!(matches!(&begun, Value::Simple(text) if text == "started" || text == "running"), "{begun:?}");
    until(TIME_MAX, || {
        let status = items(client.say("KV.COMPACT STATUS"));
        (status[1] == Value::Integer(0)).then_some(())
    })
    .expect("the run ends");
    assert_eq!(look(&mut client), before);
}

/// Applies what FEED tells to a copy of the bucket; answers where to go on, or nothing if the server is gone.
fn follow(client: &mut Client, from: i64, block_ms: u64, copy: &mut BTreeMap<String, String>) -> Option<i64> {
    let answer =
        client.call(&["FEED", "FROM", &from.to_string(), "COUNT", "50", "BLOCK", &block_ms.to_string()]).ok()?;
    let page = items(answer);
    let [Value::Integer(next), told] = page.as_slice() else { panic!("two, not {page:?}") };
    let mut last = from - 1;
    for item in items(told.clone()) {
        let item = items(item);
        let [Value::Integer(position), changes] = item.as_slice() else { panic!("a batch, not {item:?}") };
        assert!(last < *position && position < next, "{last} {position} {next}");
        last = *position;
        for change in items(changes.clone()) {
            let change = items(change);
            match text(&change[0]).as_str() {
                "put" => copy.insert(text(&change[2]), text(&change[3])),
                "delete" => copy.remove(&text(&change[2])),
                other => panic!("nobody did {other}"),
            };
        }
    }
    Some(*next)
}

#[test]
fn who_follows_the_feed_has_what_the_server_has_also_across_a_kill() {
    let folder = folder();
    let (mut next, mut copy) = (0, BTreeMap::new());
    for round in 0..3 {
        let server = start(&folder);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let server = &server;
                    scope.spawn(move || {
                        let (mut client, mut random) =
                            (server.client(), Random::new((round * WRITERS + writer) as u64));
                        for number in 0..KEYS {
                            let key = format!("{writer}:{}", random.below(KEYS));
                            let answer = match number % 4 {
                                0 => client.say(&format!("KV.DEL b {key}")),
                                _ => client.say(&format!("KV.PUT b {key} {round}.{number}")),
                            };
                            assert!(answer.error().is_none(), "{answer:?}");
                        }
                    })
                })
                .collect();
            let mut client = server.client();
            while writers.iter().any(|writer| !writer.is_finished()) {
                next = follow(&mut client, next, 20, &mut copy).expect("the server answers");
            }
        });
        // What was acknowledged is there to be read; what was not yet read is there after the kill.
        if round % 2 == 0 {
            let mut client = server.client();
            loop {
                let before = next;
                next = follow(&mut client, before, 0, &mut copy).expect("the server answers");
                if before == next {
                    break;
                }
            }
            let held = pages(&mut client, "KV.FOLD BUCKET b OBJECTS LIMIT 10000").into_iter().map(|object| {
                let object = items(object);
                (text(&object[1]), text(&object[object.len() - 1]))
            });
            assert_eq!(copy, held.collect::<BTreeMap<_, _>>(), "round {round}");
        }
        // Nobody waits for long once the server is gone.
        thread::scope(|scope| {
            let mut client = server.client();
            let waiting = scope.spawn(move || follow(&mut client, next, 60_000, &mut BTreeMap::new()));
            server.kill();
            waiting.join().expect("an end");
        });
    }
}

#[test]
fn every_command_is_documented_by_the_server() {
    let folder = folder();
    let server = start(&folder);
    let mut client = server.client();
    let names: BTreeSet<String> = items(client.say("COMMAND LIST")).iter().map(text).collect();
    let docs = items(client.say("COMMAND DOCS"));
    let documented: BTreeSet<String> = docs.iter().step_by(2).map(text).collect();
    for name in ["kv.put", "kv.get", "kv.head", "kv.index", "kv.fold", "kv.tree", "kv.snapshot", "kv.compact", "feed"] {
        assert!(names.contains(name) && documented.contains(name), "{name}");
    }
    assert!(names.iter().all(|name| name.contains('|') || documented.contains(name)), "{names:?}");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/commands.md"));
    let page = page.expect("the reference page is there");
    for name in &documented {
        assert!(page.contains(&format!("`{}", name.to_uppercase())), "{name} is not on the reference page");
    }
}
