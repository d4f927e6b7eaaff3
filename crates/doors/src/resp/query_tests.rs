//! KV.INDEX, KV.FOLD, KV.TREE and KV.SNAPSHOT: what they answer, and that whatever they are sent is answered.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast::{Clock, TreeSize, object_hash};
use proptest::prelude::*;

use super::*;
use crate::resp::rows::COMMANDS;
use crate::resp::table::flag;

/// Three people with terms, and something else.
fn people() -> Fixture {
    // Also that no command made up at random waits for long.
    let mut fixture = Fixture::with(|options| options.limits.feed_block_max = Duration::from_millis(2));
    for line in [
        "KV.PUT people ada countess INDEX city London INDEXINT born 1815",
        "KV.PUT people alan enigma INDEX city London INDEX city Manchester INDEXINT born 1912",
        "KV.PUT people grace cobol INDEX city NewYork INDEXINT born 1906",
        "KV.PUT things k v",
    ] {
        let put = fixture.run(line);
        assert!(put.starts_with("*2 :"), "{put}");
    }
    fixture
}

/// The word behind the first so many.
fn word(reply: &str, number: usize) -> String {
    reply.split(' ').nth(number).unwrap_or_default().to_owned()
}

/// The cursor of a reply [.., cursor, durability].
fn cursor(reply: &str) -> Option<String> {
    let words: Vec<&str> = reply.split(' ').collect();
    let at = words.len().checked_sub(3)?;
    (words[at] != "$-1").then(|| words[at].to_owned())
}

#[test]
fn an_index_answers_terms_in_a_range_or_equal_to_one() {
    let mut fixture = people();
    fixture.check(&[
        ("KV.INDEX people city EQ London", "*3 *2 $3 ada $4 alan $-1 $7 written"),
        (
            "KV.INDEX people city FROM M TO Z TERMS",
            "*3 *2 *2 $4 alan $10 Manchester *2 $5 grace $7 NewYork $-1 $7 written",
        ),
        ("KV.INDEX people born FROM 1900 TO 2000 INT TERMS", "*3 *2 *2 $5 grace :1906 *2 $4 alan :1912 $-1 $7 written"),
        ("kv.index people born int eq 1815", "*3 *1 $3 ada $-1 $7 written"),
        ("KV.INDEX people born EQ 1815", "*3 *0 $-1 $7 written"),
        ("KV.INDEX people born FROM 2000 TO 1900 INT", "*3 *0 $-1 $7 written"),
        ("KV.INDEX people city FROM A TO Z REGEX ^New", "*3 *1 $5 grace $-1 $7 written"),
        ("KV.INDEX people born FROM 0 TO 3000 INT REGEX 6$", "*3 *1 $5 grace $-1 $7 written"),
        ("KV.INDEX nosuch city EQ London DURABILITY synced", "*3 *0 $-1 $6 synced"),
        ("KV.INDEX people born EQ many INT", "-ERR value is not an integer or out of range"),
        (
            "KV.INDEX people born FROM 1 LIMIT 2",
            "-ERR an index is asked FROM a term TO a term, or for those that are EQ to one",
        ),
        ("KV.INDEX people born EQ 1 FROM 2 TO 3", "-ERR syntax error"),
        ("KV.INDEX people born EQ 1 LIMIT", "-ERR syntax error"),
        ("KV.INDEX people born EQ 1 LIMIT -1", "-ERR value is not an integer or out of range"),
        ("KV.INDEX people born EQ 1 AFTER 6", "-ERR the continuation is not one that this store has given out"),
        (
            "KV.INDEX people born EQ 1 SNAPSHOT 1",
            "-ERR no such snapshot: it is closed, its time is over, or another connection opened it",
        ),
        ("MULTI", "+OK"),
        ("KV.INDEX people city EQ London", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
    ]);
    assert!(fixture.run("KV.INDEX people city EQ x REGEX (").starts_with("-ERR regular expression: "));
    fixture.session.need = Need::NOTHING;
    fixture.run("KV.INDEX people city EQ London DURABILITY synced");
    assert!(fixture.session.need.synced > Position::ZERO, "what it shows has to be synced first");
    fixture.run("KV.PUT people ada countess");
    fixture.check(&[("KV.INDEX people city EQ London", "*3 *1 $4 alan $-1 $7 written")]);
}

#[test]
fn pages_of_an_index_hold_everything_once_whatever_their_limits() {
    let mut fixture = Fixture::with(|options| options.limits = Limits::tiny());
    let mut expected = BTreeSet::new();
    for number in 0..100 {
        fixture.run(&format!("KV.PUT b k{number:02} v INDEXINT n {} INDEX t x{}", number % 7, number % 10));
        expected.insert(format!("k{number:02}"));
    }
    for query in
        ["n FROM 0 TO 6 INT LIMIT 3", "n FROM 0 TO 6 INT LIMIT 100", "t FROM x TO y", "t FROM x TO y REGEX x[0-9]"]
    {
        let (mut seen, mut after, mut pages) = (BTreeSet::new(), String::new(), 0);
        loop {
            let reply = fixture.run(&format!("KV.INDEX b {query}{after}"));
            let keys: Vec<&str> = reply.split(' ').filter(|word| word.starts_with('k')).collect();
            assert!(keys.len() <= 8, "no page is larger than the door allows: {reply}");
            assert!(keys.iter().all(|key| seen.insert((*key).to_owned())), "{query}: twice in {reply}");
            pages += 1;
            match cursor(&reply) {
                Some(next) => after = format!(" AFTER {next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{query}");
        assert!(pages >= 100 / 8, "{query}");
    }
    let rare = fixture.run("KV.INDEX b t FROM x TO y REGEX x9");
    assert!(rare.starts_with("*3 *0 ") && cursor(&rare).is_some(), "it gives up after what the door allows: {rare}");
}

#[test]
fn put_and_head_carry_indexes_and_compression() {
    let mut fixture = people();
    let head = fixture.run("KV.HEAD people alan");
    let indexes =
        "$7 indexes *3 *2 $4 born :1912 *2 $4 city $6 London *2 $4 city $10 Manchester $11 compression $4 none";
    assert!(head.starts_with("*18 $7 version :") && head.contains(indexes), "{head}");
    for codec in ["none", "lz4", "ZSTD"] {
        let value = "compress me well ".repeat(100);
        let put = fixture.run_args(&[b"KV.PUT", b"c", b"k", value.as_bytes(), b"COMPRESSION", codec.as_bytes()]);
        assert!(put.starts_with("*2 :"), "{put}");
        let head = fixture.run("KV.HEAD c k");
        let name = codec.to_lowercase();
        assert!(head.contains(&format!("$11 compression ${} {name}", name.len())), "{head}");
        assert!(head.contains("$5 bytes :1700 "), "the length is the value's: {head}");
        assert!(fixture.run("KV.GET c k").starts_with(&format!("*3 $1700 {}", value.trim_end())));
    }
    fixture.check(&[
        ("KV.PUT c k v COMPRESSION gzip", "-ERR compression is one of none, lz4, zstd"),
        ("KV.PUT c k v COMPRESSION lz4 COMPRESSION lz4", "-ERR syntax error"),
        ("KV.PUT c k v INDEX name", "-ERR syntax error"),
        ("KV.PUT c k v INDEXINT name 1x", "-ERR value is not an integer or out of range"),
    ]);
    let long = vec![b'x'; fixture.door.store.limits().indexes_bytes_max];
    let refused = fixture.run_args(&[b"KV.PUT", b"c", b"k", b"v", b"INDEX", b"name", &long]);
    assert_eq!(refused, "-ERR the index entries are too big");
    fixture.run("MULTI");
    fixture.run("KV.PUT t k v INDEX i t");
    fixture.run("KV.HEAD t k");
    let both = fixture.run("EXEC");
    let version = word(&both, 2);
    assert!(both.contains(&format!("*18 $7 version {version} $5 bytes :1 ")), "{both}");
}

#[test]
fn a_fold_shows_heads_objects_keys_or_how_many() {
    let mut fixture = people();
    fixture.check(&[
        ("KV.FOLD COUNT", "*3 :4 $-1 $7 written"),
        (
            "KV.FOLD KEYS",
            "*3 *4 *2 $6 people $3 ada *2 $6 people $4 alan *2 $6 people $5 grace *2 $6 things $1 k $-1 $7 written",
        ),
        ("KV.FOLD BUCKET people START alan END grace KEYS", "*3 *1 *2 $6 people $4 alan $-1 $7 written"),
        ("KV.FOLD BUCKET people START z END a KEYS", "*3 *0 $-1 $7 written"),
        ("KV.FOLD KEYREGEX ^al COUNT DURABILITY synced", "*3 :1 $-1 $6 synced"),
        ("KV.FOLD MODIFIED 0 1 COUNT", "*3 :0 $-1 $7 written"),
        ("KV.FOLD MODIFIED 1 9999999999999 COUNT", "*3 :4 $-1 $7 written"),
        ("KV.FOLD LEAVES 1024 COUNT", "*3 :0 $-1 $7 written"),
        ("KV.FOLD BUCKET nosuch", "*3 *0 $-1 $7 written"),
        ("KV.FOLD START a", "-ERR START and END are keys of a BUCKET"),
        ("KV.FOLD ORDER size", "-ERR the order is one of key, write, partition"),
        ("KV.FOLD LEAVES 1000 1", "-ERR a tree has 1024, 4096, 16384, 65536, 262144 or 1048576 leaves"),
        ("KV.FOLD LEAVES 1024 1024", "-ERR the tree has no such leaf"),
        ("KV.FOLD MODIFIED 1", "-ERR syntax error"),
        ("KV.FOLD MODIFIED 1 x", "-ERR value is not an integer or out of range"),
        ("KV.FOLD NOSUCH 1", "-ERR syntax error"),
        ("KV.FOLD AFTER zz", "-ERR the continuation is not one that this store has given out"),
        ("CLIENT REPLY SKIP", ""),
        ("KV.FOLD COUNT", ""),
    ]);
    assert!(fixture.run("KV.FOLD KEYREGEX [").starts_with("-ERR regular expression: "));
    let objects = fixture.run("KV.FOLD BUCKET things OBJECTS");
    assert!(
        objects.starts_with("*3 *1 *4 $6 things $1 k *16 $7 version :")
            && objects.ends_with("$4 none $1 v $-1 $7 written"),
        "{objects}"
    );
    let size = TreeSize::with_leaves(1024).unwrap();
    let leaf = size.leaf(object_hash(b"people", b"ada"));
    assert!(fixture.run(&format!("KV.FOLD LEAVES 1024 {leaf} KEYS")).contains("$6 people $3 ada"));
    let page = fixture.run("KV.FOLD LIMIT 1");
    let after = cursor(&page).unwrap();
    let refused = fixture.run(&format!("KV.FOLD AFTER {after} ORDER write"));
    assert_eq!(refused, "-ERR the continuation is of a fold in another order");
    fixture.session.need = Need::NOTHING;
    fixture.run("KV.FOLD COUNT DURABILITY synced");
    assert!(fixture.session.need.synced > Position::ZERO, "what it shows has to be synced first");
    fixture.run("HELLO 3");
    assert!(fixture.run("KV.FOLD BUCKET things").starts_with("*3 *1 *3 $6 things $1 k %8 $7 version"));
}

#[test]
fn pages_of_a_fold_hold_everything_once_in_every_order() {
    let mut fixture = Fixture::with(|options| options.limits = Limits::tiny());
    let mut expected = BTreeSet::new();
    for number in 0..60 {
        fixture.run(&format!("KV.PUT b{} k{number:02} {}", number % 3, "v".repeat(number * 7)));
        fixture.run(&format!("KV.PUT b{} k{number:02} {}", number % 3, "w".repeat(number * 7)));
        expected.insert(format!("k{number:02}"));
    }
    for options in [
        "KEYS",
        "ORDER write KEYS",
        "ORDER partition OBJECTS",
        "LIMIT 1 KEYS",
        "HEADS",
        "KEYS KEYREGEX [0-9]$",
        "ORDER write LIMIT 1 KEYS",
        "ORDER write LIMIT 7 HEADS",
        "ORDER write LIMIT 3 KEYS KEYREGEX [0-9]$",
    ] {
        let (mut seen, mut after) = (BTreeSet::new(), String::new());
        loop {
            let reply = fixture.run(&format!("KV.FOLD {options}{after}"));
            let keys: Vec<&str> = reply.split(' ').filter(|word| word.starts_with('k')).collect();
            assert!(keys.len() <= 8 && reply.len() < 3 << 10, "no page is larger than the door allows: {reply}");
            assert!(keys.iter().all(|key| seen.insert((*key).to_owned())), "{options}: twice in {reply}");
            match cursor(&reply) {
                Some(next) => after = format!(" AFTER {next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{options}");
    }
    let (mut count, mut after) = (0, String::new());
    loop {
        let reply = fixture.run(&format!("KV.FOLD COUNT BUCKET b1{after}"));
        count += word(&reply, 1)[1..].parse::<u64>().unwrap();
        match cursor(&reply) {
            Some(next) => after = format!(" AFTER {next}"),
            None => break,
        }
    }
    assert_eq!(count, 20);
    let rare = fixture.run("KV.FOLD KEYREGEX k59 KEYS");
    assert!(rare.starts_with("*3 *0 ") && cursor(&rare).is_some(), "it gives up after what the door allows: {rare}");
}

#[test]
fn a_snapshot_shows_what_was_to_every_command_that_reads() {
    let mut fixture = people();
    let opened = fixture.run("KV.SNAPSHOT OPEN TTL 60");
    let (id, position) = (word(&opened, 1), word(&opened, 2));
    assert!(opened.starts_with("*2 :") && position.len() > 1, "{opened}");
    let id = &id[1..];
    let lines = [
        format!("KV.GET people ada SNAPSHOT {id}"),
        format!("KV.HEAD people ada SNAPSHOT {id} DURABILITY written"),
        format!("KV.KEYS people SNAPSHOT {id}"),
        format!("KV.RANGE people VALUES SNAPSHOT {id}"),
        format!("KV.INDEX people city FROM A TO Z TERMS SNAPSHOT {id}"),
        format!("KV.FOLD OBJECTS SNAPSHOT {id}"),
        format!("KV.FOLD OBJECTS ORDER write SNAPSHOT {id}"),
    ];
    let before: Vec<String> = lines.iter().map(|line| fixture.run(line)).collect();
    assert!(before.iter().all(|reply| !reply.starts_with('-')), "{before:?}");
    for line in ["KV.PUT people ada other INDEX city Bath", "KV.DEL people grace", "KV.PUT people new v", "FLUSHALL"] {
        fixture.run(line);
    }
    let after: Vec<String> = lines.iter().map(|line| fixture.run(line)).collect();
    assert_eq!(before, after);
    assert!(fixture.run("KV.GET people ada").starts_with("*3 $5 other"));
    fixture.check(&[("MULTI", "+OK"), ("KV.DEL people ada", "+QUEUED")]);
    fixture.run(&lines[0]);
    let both = fixture.run("EXEC");
    assert!(both.ends_with(&before[0]), "a snapshot does not see the transaction: {both}");
    fixture.session.need = Need::NOTHING;
    fixture.run(&format!("KV.GET people ada SNAPSHOT {id} DURABILITY synced"));
    assert_eq!(format!(":{}", fixture.session.need.synced), position, "it rests on the snapshot's position");
    let list = fixture.run("KV.SNAPSHOT LIST");
    assert!(list.starts_with(&format!("*1 *3 :{id} {position} :")), "{list}");
    let gone = "-ERR no such snapshot: it is closed, its time is over, or another connection opened it";
    fixture.check(&[(&format!("KV.SNAPSHOT CLOSE {id}"), ":1"), (&format!("KV.SNAPSHOT CLOSE {id}"), ":0")]);
    lines.iter().for_each(|line| assert_eq!(fixture.run(line), gone, "{line}"));
}

#[test]
fn snapshots_are_bounded_and_belong_to_one_connection() {
    let mut fixture = Fixture::with(|options| options.limits = Limits::tiny());
    let many = "-ERR too many snapshots are open: close one, or wait until the time of one is over";
    let first = word(&fixture.run("KV.SNAPSHOT OPEN"), 1);
    fixture.run("KV.SNAPSHOT OPEN TTL 5");
    fixture.check(&[
        ("KV.SNAPSHOT OPEN", many),
        ("KV.SNAPSHOT OPEN TTL 6", "-ERR a snapshot is kept for 1 to 5 seconds"),
        ("KV.SNAPSHOT OPEN TTL 0", "-ERR a snapshot is kept for 1 to 5 seconds"),
        ("KV.SNAPSHOT OPEN TTL x", "-ERR value is not an integer or out of range"),
        ("KV.SNAPSHOT OPEN FOR 1", "-ERR syntax error"),
        ("KV.SNAPSHOT CLOSE x", "-ERR value is not an integer or out of range"),
        ("KV.SNAPSHOT", "-ERR wrong number of arguments for 'kv.snapshot' command"),
    ]);
    let other = Fixture::session(&fixture.door);
    let own = std::mem::replace(&mut fixture.session, other);
    fixture.check(&[("KV.SNAPSHOT LIST", "*0"), (&format!("KV.SNAPSHOT CLOSE {}", &first[1..]), ":0")]);
    assert!(fixture.run("KV.SNAPSHOT OPEN").starts_with("*2 :"));
    fixture.check(&[("KV.SNAPSHOT OPEN", many)]);
    fixture.session = own;
    fixture.check(&[("RESET", "+RESET"), ("KV.SNAPSHOT LIST", "*0")]);
    assert!(fixture.run("KV.SNAPSHOT OPEN").starts_with("*2 :"), "RESET has closed both");
}

#[test]
fn a_tree_answers_what_an_exchange_asks() {
    let mut fixture = people();
    let size = TreeSize::with_leaves(1024).unwrap();
    let hash = object_hash(b"people", b"ada");
    let (leaf, width) = (size.leaf(hash), size.width());
    let root = fixture.run("KV.TREE ROOT 1024");
    let hashes: Vec<&str> = root.split(' ').collect();
    assert_eq!(hashes[0], "*32");
    assert_ne!(hashes[1 + (leaf / width) as usize], ":0");
    let branch = fixture.run(&format!("KV.TREE BRANCHES 1024 {} 0", leaf / width));
    let hashes: Vec<&str> = branch.split(' ').collect();
    assert_eq!((hashes[0], hashes[1], hashes.len()), ("*2", "*32", 1 + 2 * 33));
    assert_ne!(hashes[2 + (leaf % width) as usize], ":0");
    let clocks = fixture.run(&format!("KV.TREE CLOCKS 1024 {leaf}"));
    assert!(clocks.starts_with("*1 *3 $6 people $3 ada $44 "), "{clocks}");
    let head = fixture.door.store.kv().head(b"people", b"ada").unwrap().unwrap();
    let clock = Clock::from(&head).encode();
    assert!(clocks.ends_with(String::from_utf8_lossy(&clock).replace("\r\n", " ").trim_end()), "{clocks:?}");
    fixture.check(&[
        ("KV.TREE ROOT 1000", "-ERR a tree has 1024, 4096, 16384, 65536, 262144 or 1048576 leaves"),
        ("KV.TREE BRANCHES 1024 32", "-ERR a tree has branches 0 to 31"),
        ("KV.TREE BRANCHES 1024 x", "-ERR value is not an integer or out of range"),
        ("KV.TREE CLOCKS 1024 1024", "-ERR the tree has no such leaf"),
        ("KV.TREE CLOCKS 1024 -1", "-ERR value is not an integer or out of range"),
    ]);
    let many = format!("KV.TREE BRANCHES 1024{}", " 0".repeat(33));
    fixture.check(&[(&many, "-ERR the tree has fewer branches than are asked for")]);
    fixture.session.need = Need::NOTHING;
    fixture.run("CLIENT DURABILITY synced");
    fixture.run("KV.TREE ROOT 4096");
    assert!(fixture.session.need.synced > Position::ZERO, "what it shows has to be synced first");
}

#[test]
fn a_compaction_begins_by_hand_and_tells_how_it_is() {
    let mut fixture = people();
    // Whether it has ended in between is up to the background.
    for _ in 0..3 {
        assert!(["+started", "+running"].contains(&fixture.run("KV.COMPACT").as_str()));
    }
    let status = fixture.run("KV.COMPACT STATUS");
    assert!(status.starts_with("*12 $7 running :") && status.contains("$15 reclaimed_bytes :"), "{status}");
    fixture.check(&[
        ("KV.COMPACT NOW", "-ERR syntax error"),
        ("MULTI", "+OK"),
        ("KV.COMPACT STATUS", "-ERR Command not allowed inside a transaction"),
    ]);
}

/// The story: the store's numbers are looked at under the locks that EXEC holds, so this never ended.
#[test]
fn numbers_are_told_inside_a_transaction_too() {
    let mut fixture = people();
    fixture.check(&[
        ("MULTI", "+OK"),
        ("KV.STATS", "+QUEUED"),
        ("INFO", "+QUEUED"),
        ("KV.STATS people", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
    ]);
    assert!(fixture.run("EXEC").starts_with("*4 *"));
}

#[test]
fn queries_follow_the_rights_on_buckets() {
    let mut user = User::admin("ada", &crate::auth::hash_password(b"pw").unwrap());
    user.buckets = vec![BucketRight { pattern: "logs-*".to_owned(), right: Right::Read }];
    let mut reader = User::admin("bob", &crate::auth::hash_password(b"pw").unwrap());
    reader.buckets = vec![BucketRight { pattern: "*".to_owned(), right: Right::Read }];
    let users = Arc::new(Users::new([user, reader]).unwrap());
    let mut fixture = Fixture::with(|options| options.users = users.clone());
    let all = "-NOPERM this user may not read all buckets, which this command does";
    fixture.check(&[
        ("KV.FOLD", "-NOAUTH Authentication required."),
        ("KV.SNAPSHOT OPEN", "-NOAUTH Authentication required."),
    ]);
    fixture.session.user = users.get("ada").cloned();
    fixture.check(&[
        ("KV.FOLD COUNT", all),
        ("KV.TREE ROOT 1024", all),
        ("KV.TREE BRANCHES 1024 1", all),
        ("KV.TREE CLOCKS 1024 1", all),
        ("KV.COMPACT", "-NOPERM this user has no permissions to run the 'kv.compact' command: it needs the right 'admin' on '*'"),
        (
            "KV.FOLD BUCKET db0 COUNT",
            "-NOPERM this user has no permissions to access one of the keys used as arguments: it needs the right 'read' on bucket 'db0'",
        ),
        (
            "KV.INDEX db0 i EQ t",
            "-NOPERM this user has no permissions to run the 'kv.index' command: it needs the right 'read' on bucket 'db0'",
        ),
        ("KV.FOLD BUCKET logs-1 COUNT", "*3 :0 $-1 $7 written"),
        ("KV.INDEX logs-1 i EQ t", "*3 *0 $-1 $7 written"),
    ]);
    let id = word(&fixture.run("KV.SNAPSHOT OPEN"), 1);
    let refused = fixture.run(&format!("KV.GET db0 k SNAPSHOT {}", &id[1..]));
    assert!(refused.starts_with("-NOPERM"), "{refused}");
    fixture.session.user = users.get("bob").cloned();
    fixture.check(&[("KV.FOLD COUNT", "*3 :0 $-1 $7 written")]);
    assert!(fixture.run("KV.TREE ROOT 1024").starts_with("*32"));
}

#[test]
fn every_command_is_in_command_docs() {
    let mut fixture = Fixture::new();
    let docs = fixture.run("COMMAND DOCS");
    for row in COMMANDS {
        assert!(docs.contains(&format!(" {} ", row.name)), "{} is not in COMMAND DOCS", row.name);
    }
}

/// Words of the commands here, numbers at their edges, cursors of every kind, and bytes.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "people",
        "things",
        "city",
        "born",
        "ada",
        "NX",
        "INDEX",
        "INDEXINT",
        "COMPRESSION",
        "lz4",
        "FROM",
        "TO",
        "EQ",
        "INT",
        "TERMS",
        "REGEX",
        "LIMIT",
        "AFTER",
        "SNAPSHOT",
        "BUCKET",
        "START",
        "END",
        "KEYREGEX",
        "MODIFIED",
        "LEAVES",
        "ORDER",
        "key",
        "write",
        "partition",
        "HEADS",
        "OBJECTS",
        "KEYS",
        "COUNT",
        "OPEN",
        "CLOSE",
        "LIST",
        "TTL",
        "ROOT",
        "BRANCHES",
        "CLOCKS",
        "1024",
        "BLOCK",
        "DURABILITY",
        "synced",
        "PREFIX",
        "VALUES",
        "MATCH",
        "0",
        "1",
        "-1",
        "18446744073709551615",
        "9223372036854775807",
        ".*",
        "[",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (prop::sample::select(vec!["69", "6b", "61", "70"]), prop::collection::vec(any::<u8>(), 0..12)).prop_map(
            |(kind, place)| place.iter().fold(kind.to_owned(), |text, byte| text + &format!("{byte:02x}")).into_bytes()
        ),
    ]
}

#[test]
fn whatever_a_command_of_ours_is_sent_gets_one_reply() {
    let fixture = std::cell::RefCell::new(people());
    let names: Vec<&str> = COMMANDS
        .iter()
        .filter(|row| (row.name == "feed" || row.name.starts_with("kv.")) && !row.has(flag::CONTAINER))
        .map(|row| row.name)
        .collect();
    let arguments = prop::collection::vec(argument(), 0..9);
    let config = ProptestConfig { cases: 2_000, ..ProptestConfig::default() };
    proptest!(config, |(name in prop::sample::select(names), arguments in arguments)| {
        let words = name.split('|').map(|word| word.as_bytes().to_vec()).chain(arguments);
        let words: Vec<Vec<u8>> = words.collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut fixture = fixture.borrow_mut();
        let reply = fixture.run_args(&words);
        prop_assert!(reply.starts_with(['*', ':', '+', '-', '$']), "{reply}");
        prop_assert!(!reply.contains("internal error"), "{reply}");
        prop_assert!(fixture.session.replies > 0);
        fixture.session.replies = 0;
    });
}
