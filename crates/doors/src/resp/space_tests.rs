//! SPACE.*: what they answer, inside and outside of MULTI, what replies wait for, and that whatever they are sent is answered.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use std::cell::RefCell;

use proptest::prelude::*;

use super::*;
use crate::resp::rows::COMMANDS;

impl Fixture {
    /// Runs words, which may have spaces.
    fn words(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.run_args(&words)
    }

    /// The answer with versions and times, which differ each time, as `:N`.
    fn shape(&mut self, line: &str) -> String {
        let reply = self.run(line);
        let is_large = |word: &str| word.strip_prefix(':').is_some_and(|digits| digits.len() > 3);
        reply.split(' ').map(|word| if is_large(word) { ":N" } else { word }).collect::<Vec<_>>().join(" ")
    }

    fn version(&mut self, line: &str) -> u64 {
        let reply = self.run(line);
        let version = reply.split(' ').find_map(|word| word.strip_prefix(':')?.parse().ok().filter(|it| *it > 999));
        version.unwrap_or_else(|| panic!("{line}: {reply}"))
    }
}

fn declared(options: &str) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.check(&[
        (format!("SPACE.DECLARE shop orders {options}").trim(), "+OK"),
        // So that positions have four digits.
        ("SET fill x", "+OK"),
    ]);
    while fixture.door.store.watermarks().appended.get() < 1_000 {
        fixture.run("SET fill x");
    }
    fixture
}

#[test]
fn types_are_declared_changed_shown_and_dropped() {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("SPACE.TYPES", "*0"),
        ("SPACE.INFO shop orders", "-ERR the space shop has no type orders: declare it first"),
        ("SPACE.DECLARE shop orders ID number LEASE 60000 INDEX city HASH 1 address.city", "+OK"),
        ("SPACE.DECLARE shop jobs FIFO VOLATILE MEMORY 1000000 EVICT HISTORY", "+OK"),
        ("SPACE.DECLARE other lines GROUPS account", "+OK"),
        ("SPACE.TYPES", "*3 *2 $5 other $5 lines *2 $4 shop $4 jobs *2 $4 shop $6 orders"),
        ("SPACE.TYPES other", "*1 *2 $5 other $5 lines"),
        ("SPACE.DECLARE shop orders ID number INDEX price ORDERED 2 price day INDEX city HASH 1 address.city", "+OK"),
        (
            "SPACE.DECLARE shop orders ID key",
            "-ERR id, routing, storage and order of a type, and whether its entries lie together, are fixed: drop the type first",
        ),
        ("SPACE.DECLARE shop orders FIFO GROUPS a", "-ERR syntax error"),
        ("SPACE.DECLARE shop orders INDEX a TREE 1 a", "-ERR an index is HASH or ORDERED"),
        ("SPACE.DECLARE shop orders INDEX a HASH 2 a", "-ERR fewer paths follow than are announced"),
        ("SPACE.DECLARE shop orders INDEX a HASH 18446744073709551615 a", "-ERR fewer paths follow than are announced"),
        ("SPACE.DECLARE shop orders ID", "-ERR syntax error"),
        ("SPACE.DECLARE shop orders FIFO TOGETHER", "-ERR entries in first-in first-out order lie together anyway: leave it out"),
        ("SPACE.DECLARE shop users TOGETHER INDEX email HASH UNIQUE 1 email", "+OK"),
        ("SPACE.DROP shop orders", ":1"),
        ("SPACE.DROP shop orders", ":0"),
        ("SPACE.WRITE shop orders {}", "-ERR the space shop has no type orders: declare it first"),
    ]);
    assert!(fixture.run(r#"SPACE.WRITE shop users {"id":1,"email":"a"}"#).starts_with("*2 :1 "));
    let second = fixture.run(r#"SPACE.WRITE shop users {"id":2,"email":"a"}"#);
    assert!(second.starts_with("-CONFLICT") && second.contains("email"), "{second}");
    assert!(fixture.run("SPACE.INFO shop users").contains("$8 together :1"));
    let info = fixture.run("SPACE.INFO shop jobs");
    for part in [
        "*36 $5 space $4 shop $4 type $4 jobs",
        "$8 volatile",
        "$5 order $4 fifo",
        "$5 evict",
        "$6 memory :1000000",
        "$8 together :0",
    ] {
        assert!(info.contains(part), "{part}: {info}");
    }
}

#[test]
fn entries_are_written_read_and_taken_as_json() {
    let mut fixture = declared("INDEX city HASH 1 address.city");
    let table = [
        (r#"SPACE.WRITE shop orders {"id":1,"address":{"city":"Ulm"},"price":10.5}"#, "*2 :1 :N"),
        (r#"SPACE.WRITE shop orders {"id":"a","price":2} INSERT LEASE 600000"#, "*2 $1 a :N"),
        (r#"SPACE.WRITE shop orders {"id":"7"} PREVIOUS"#, "*3 $3 \"7\" :N $-1"),
        (
            r#"SPACE.WRITE shop orders {"id":1,"price":11} PARTIAL PREVIOUS LEASE FOREVER"#,
            "*3 :1 :N *3 $46 {\"address\":{\"city\":\"Ulm\"},\"id\":1,\"price\":10.5} :N $-1",
        ),
        ("SPACE.READ shop orders ID 1", "*3 $44 {\"address\":{\"city\":\"Ulm\"},\"id\":1,\"price\":11} :N $-1"),
        ("SPACE.READ shop orders ID a", "*3 $20 {\"id\":\"a\",\"price\":2} :N :N"),
        ("SPACE.READ shop orders ID 7", "$-1"),
        ("SPACE.READ shop orders ID \"7\"", "*3 $10 {\"id\":\"7\"} :N $-1"),
        (
            r#"SPACE.READ shop orders TEMPLATE {"address":{"city":"Ulm"}} DURABILITY written"#,
            "*3 $44 {\"address\":{\"city\":\"Ulm\"},\"id\":1,\"price\":11} :N $-1",
        ),
        (
            "SPACE.READ shop orders WHERE price>? 1 10 ROUTING 1",
            "*3 $44 {\"address\":{\"city\":\"Ulm\"},\"id\":1,\"price\":11} :N $-1",
        ),
        ("SPACE.COUNT shop orders ANY", ":3"),
        ("SPACE.COUNT shop orders WHERE price>=2 0", ":2"),
        ("SPACE.MREAD shop orders WHERE price>0 0 COUNT 1", "*1 *3 $20 {\"id\":\"a\",\"price\":2} :N :N"),
        ("SPACE.TAKE shop orders ID a", "*3 $20 {\"id\":\"a\",\"price\":2} :N :N"),
        ("SPACE.TAKE shop orders ID a", "$-1"),
        ("SPACE.RENEW shop orders 1 LEASE 60000", ":1"),
        ("SPACE.RENEW shop orders 2 LEASE 60000", ":0"),
        ("SPACE.READ shop orders ID 1", "*3 $44 {\"address\":{\"city\":\"Ulm\"},\"id\":1,\"price\":11} :N :N"),
        ("SPACE.CLEAR shop orders ID 1", ":1"),
        ("SPACE.MTAKE shop orders ANY COUNT 5", "*1 *3 $10 {\"id\":\"7\"} :N $-1"),
        ("SPACE.MTAKE shop orders ANY", "*0"),
    ];
    for (line, expected) in table {
        let got = fixture.shape(line);
        // Which of several is found first is not said.
        if !line.starts_with("SPACE.MREAD") || !got.starts_with("*1 *3") {
            assert_eq!(got, expected, "{line}");
        }
    }
    let reply = fixture.run(r#"SPACE.WRITE shop orders {"x":1}"#);
    let id = reply.split(' ').nth(1).and_then(|word| word.strip_prefix(':')).expect("an id is made");
    assert!(fixture.run(&format!("SPACE.READ shop orders ID {id}")).starts_with("*3 "), "{reply}");
    let ordered = ["SPACE.MREAD", "shop", "orders", "WHERE", "x > ? ORDER BY x DESC LIMIT 2", "1", "0"];
    fixture.run(r#"SPACE.MWRITE shop orders 3 {"id":1,"x":3} {"id":2,"x":5} {"id":3,"x":4}"#);
    let reply = fixture.words(&ordered);
    assert!(reply.find("\"x\":5") < reply.find("\"x\":4") && reply.starts_with("*2"), "{reply}");
}

#[test]
fn changes_travel_instead_of_documents_and_queries_have_columns_and_figures() {
    let mut fixture = declared("");
    let version = fixture.version(r#"SPACE.WRITE shop orders {"id":1,"n":1,"city":"Ulm"}"#);
    fixture.run(r#"SPACE.WRITE shop orders {"id":2,"n":5,"city":"Ulm"}"#);
    let table = [
        (
            "SPACE.CHANGE shop orders 1 INCR n 2 SET a.b 7 APPEND tags new",
            "*3 $54 {\"a\":{\"b\":7},\"city\":\"Ulm\",\"id\":1,\"n\":3,\"tags\":[\"new\"]} :N $-1",
        ),
        (
            "SPACE.CHANGE shop orders 1 UNSET a ADD tags new REMOVE tags new PUTKEY m k 1 REMOVEKEY m k UNSET tags UNSET m PREVIOUS LEASE 60000",
            "*2 *3 $27 {\"city\":\"Ulm\",\"id\":1,\"n\":3} :N :N *3 $54 {\"a\":{\"b\":7},\"city\":\"Ulm\",\"id\":1,\"n\":3,\"tags\":[\"new\"]} :N $-1",
        ),
        ("SPACE.CHANGE shop orders 9 INCR n 2", "$-1"),
        (
            "SPACE.CHANGE shop orders 1 COLOUR n 2",
            "-ERR say what to change: SET, UNSET, INCR, APPEND, ADD, REMOVE, PUTKEY or REMOVEKEY",
        ),
        ("SPACE.CHANGE shop orders 1 SET n", "-ERR syntax error"),
        (
            "SPACE.CHANGE shop orders 1 SET id 5",
            "-ERR id and routing of an entry are fixed: take it, and write another",
        ),
        (
            &format!("SPACE.CHANGE shop orders 1 INCR n 1 VERSION {version}"),
            "-CONFLICT the entry has another version: read it again",
        ),
    ];
    for (line, expected) in table {
        assert_eq!(fixture.shape(line), expected, "{line}");
    }
    let sql = "SELECT city, SUM(n) AS n, COUNT(*) AS many FROM orders WHERE n > ? GROUP BY city";
    let rows = fixture.words(&["SPACE.SELECT", "shop", "orders", sql, "1", "0"]);
    assert_eq!(rows, "*1 $29 {\"city\":\"Ulm\",\"many\":2,\"n\":8}");
    let refused = fixture.words(&["SPACE.SELECT", "shop", "orders", "SELECT", "0"]);
    assert!(refused.starts_with("-ERR "), "{refused}");
}

#[test]
fn modes_versions_and_what_is_wrong_are_told() {
    let mut fixture = declared("");
    let version = fixture.version(r#"SPACE.WRITE shop orders {"id":1}"#);
    let stale = version - 1;
    fixture.check(&[
        (r#"SPACE.WRITE shop orders {"id":1} INSERT"#, "-CONFLICT an entry with this id is there already"),
        (r#"SPACE.WRITE shop orders {"id":2} UPDATE"#, "-CONFLICT no entry with this id is there"),
        (
            &format!(r#"SPACE.WRITE shop orders {{"id":1}} VERSION {stale}"#),
            "-CONFLICT the entry has another version: read it again",
        ),
        (
            &format!("SPACE.TAKE shop orders ID 1 VERSION {stale}"),
            "-CONFLICT the entry has another version: read it again",
        ),
        (r#"SPACE.WRITE shop orders {"id":1} INSERT UPDATE"#, "-ERR syntax error"),
        (r#"SPACE.WRITE shop orders {"id":1} LEASE 0"#, "-ERR a lease has 1 millisecond at least, or is FOREVER"),
        (r#"SPACE.WRITE shop orders {"id":1} LEASE"#, "-ERR syntax error"),
        (r#"SPACE.WRITE shop orders {"id":1} DURABILITY perhaps"#, "-ERR durability is one of synced, window, written"),
        ("SPACE.WRITE shop orders [1]", "-ERR JSON: invalid type: sequence, expected a map at line 1 column 0"),
        (
            r#"SPACE.WRITE shop orders {"id":1.5}"#,
            "-ERR id is a number: it decides where an entry lies, and has to be a string, an integer or bytes",
        ),
        ("SPACE.READ shop orders", "-ERR wrong number of arguments for 'space.read' command"),
        ("SPACE.READ shop orders 1", "-ERR syntax error"),
        ("SPACE.READ shop orders KEY 1", "-ERR say which entries: ID, TEMPLATE, WHERE or ANY"),
        ("SPACE.READ shop orders WHERE x=? 1", "-ERR fewer parameters follow than are announced"),
        ("SPACE.READ shop orders ANY VERSION 1", "-ERR VERSION is of one entry, by ID and without BLOCK"),
        ("SPACE.READ shop orders ANY COUNT 1", "-ERR syntax error"),
        ("SPACE.MWRITE shop orders 2 {}", "-ERR fewer documents follow than are announced"),
        ("SPACE.ITERATE shop orders ANY LEASE 0", "-ERR the LEASE of a cursor is from 1 to 3600000 milliseconds"),
        ("SPACE.ITERATE shop orders ANY LEASE 3600001", "-ERR the LEASE of a cursor is from 1 to 3600000 milliseconds"),
        ("SPACE.ITERATE shop orders ANY LEASE forever", "-ERR the LEASE of a cursor is from 1 to 3600000 milliseconds"),
        ("SPACE.ITERATE shop orders CURSOR 1 LEASE 0", "-ERR the LEASE of a cursor is from 1 to 3600000 milliseconds"),
        ("SPACE.ITERATE shop orders ANY LEASE 1 LEASE 1", "-ERR syntax error"),
        ("SPACE.MREAD shop orders ANY LEASE 1", "-ERR syntax error"),
    ]);
    let outcomes = fixture.shape(r#"SPACE.MWRITE shop orders 4 {"id":1} {"id":2} no {"id":3} INSERT"#);
    assert_eq!(
        outcomes,
        "*4 -CONFLICT an entry with this id is there already *2 :2 :N -ERR JSON: expected ident at line 1 column 2 *2 :3 :N"
    );
    assert!(fixture.run(&format!("SPACE.TAKE shop orders ID 1 VERSION {version}")).starts_with("*3"));
}

#[test]
fn a_reply_waits_for_what_it_shows_and_a_volatile_one_for_nothing() {
    let mut fixture = declared("");
    let needs = |fixture: &mut Fixture, line: &str| {
        fixture.session.need = Need::NOTHING;
        fixture.run(line);
        fixture.session.need
    };
    let version = Position::new(fixture.version(r#"SPACE.WRITE shop orders {"id":1} DURABILITY synced"#));
    assert_eq!(fixture.session.need.synced, version);
    assert_eq!(fixture.session.last_write, version);
    assert_eq!(needs(&mut fixture, "SPACE.READ shop orders ID 1 DURABILITY synced").synced, version);
    assert_eq!(needs(&mut fixture, "SPACE.COUNT shop orders ANY DURABILITY synced").synced, version);
    assert!(needs(&mut fixture, "SPACE.TAKE shop orders ANY BLOCK 1 DURABILITY synced").synced > version);
    fixture.run("SPACE.DECLARE shop hot VOLATILE");
    for line in [
        r#"SPACE.WRITE shop hot {"id":1}"#,
        "SPACE.READ shop hot ID 1 DURABILITY synced",
        "SPACE.TAKE shop hot ANY",
        "SPACE.CLEAR shop hot ANY",
    ] {
        assert_eq!(needs(&mut fixture, line), Need::NOTHING, "{line}");
    }
    // So it is in MULTI, unless something in it is in the journal.
    for of in ["hot", "orders"] {
        let last = format!(r#"SPACE.WRITE shop {of} {{"id":2}} DURABILITY synced"#);
        for line in ["MULTI", r#"SPACE.WRITE shop hot {"id":1}"#, "SPACE.TAKE shop hot ID 1", &last] {
            fixture.run(line);
        }
        let need = needs(&mut fixture, "EXEC");
        assert_eq!(need.synced != Position::ZERO, of == "orders", "{need:?}");
    }
}

#[test]
fn who_blocks_gets_what_comes_or_null_when_the_time_is_over() {
    let mut fixture = declared("FIFO");
    fixture.check(&[
        ("SPACE.TAKE shop orders ANY BLOCK 5", "$-1"),
        ("SPACE.READ shop orders ID 1 BLOCK 5 IFEXISTS", "$-1"),
        ("SPACE.MTAKE shop orders ANY BLOCK 5", "*0"),
    ]);
    let store = fixture.door.store.clone();
    let entries = store.space("shop").entries("orders").unwrap();
    let writer = std::thread::spawn(move || {
        while entries.waiters() == 0 {
            std::thread::yield_now();
        }
        let document = holdfast::space::Document::from_pairs([("id", 1)]);
        entries.write_shown(&document, &holdfast::space::WriteOptions::default()).unwrap();
    });
    assert_eq!(fixture.shape("SPACE.TAKE shop orders ANY BLOCK 0"), "*3 $8 {\"id\":1} :N $-1");
    writer.join().unwrap();
    fixture.check(&[("SPACE.COUNT shop orders ANY", ":0")]);
}

#[test]
fn a_renewal_waits_for_a_transaction_that_has_locked_the_entry() {
    use holdfast::space::{ReadLock, ReadOptions, Wanted};
    let mut fixture = declared("");
    fixture.run("SPACE.WRITE shop orders {\"id\":1} LEASE 60000");
    let store = fixture.door.store.clone();
    let orders = store.space("shop").entries("orders").unwrap();
    let mut transaction = store.begin().with_lease(std::time::Duration::from_millis(50));
    let locked = orders.within(&mut transaction).read(&Wanted::id(1), ReadLock::Exclusive, &ReadOptions::default());
    assert!(locked.unwrap().is_some());
    fixture.check(&[("SPACE.RENEW shop orders 1 LEASE FOREVER", ":1")]);
    assert!(transaction.commit(holdfast::Durability::Written).is_err(), "its lease has ended, and with it its lock");
    assert_eq!(fixture.shape("SPACE.READ shop orders ID 1"), "*3 $8 {\"id\":1} :N $-1");
}

#[test]
fn in_multi_entries_and_keys_change_together_or_not_at_all() {
    let mut fixture = declared("");
    fixture.run(r#"SPACE.WRITE shop orders {"id":1,"n":1}"#);
    let queue = |fixture: &mut Fixture, lines: &[&str]| {
        fixture.check(&[("MULTI", "+OK")]);
        lines.iter().for_each(|line| assert_eq!(fixture.run(line), "+QUEUED", "{line}"));
        fixture.shape("EXEC")
    };
    let batches = fixture.door.store.stats().batches;
    let lines = [
        "SPACE.TAKE shop orders ID 1",
        r#"SPACE.WRITE shop orders {"id":2}"#,
        "SPACE.READ shop orders ID 2",
        r#"SPACE.MWRITE shop orders 2 {"id":3} {"id":4}"#,
        "SET k v",
        "KV.PUT b k v",
        "SPACE.TAKE shop orders ID 9 BLOCK 0",
    ];
    let reply = queue(&mut fixture, &lines);
    assert_eq!(
        reply,
        "*7 *3 $14 {\"id\":1,\"n\":1} :N $-1 *2 :2 :N *3 $8 {\"id\":2} :0 $-1 *2 *2 :3 :N *2 :4 :N +OK *2 :N $7 written $-1"
    );
    assert_eq!(fixture.door.store.stats().batches, batches + 1, "one batch");
    fixture.check(&[("SPACE.COUNT shop orders ANY", ":3"), ("GET k", "$1 v")]);
    for wrong in [
        r#"SPACE.WRITE shop orders {"id":2} INSERT"#,
        "SPACE.WRITE shop orders no",
        "SPACE.WRITE shop nosuch {}",
        r#"SPACE.MWRITE shop orders 2 {"id":7} {"id":2} INSERT"#,
        "SPACE.TAKE shop orders ID 2 VERSION 1",
    ] {
        let reply = queue(&mut fixture, &["SET k w", r#"SPACE.WRITE shop orders {"id":8}"#, wrong]);
        assert!(reply.starts_with("-EXECABORT Transaction discarded: "), "{wrong}: {reply}");
    }
    fixture.check(&[
        ("SPACE.COUNT shop orders ANY", ":3"),
        ("GET k", "$1 v"),
        ("MULTI", "+OK"),
        ("SPACE.ITERATE shop orders ANY", "-ERR Command not allowed inside a transaction"),
        ("DISCARD", "+OK"),
    ]);
    // What is asked sees what was done before it in the batch.
    let reply = queue(
        &mut fixture,
        &[
            "SPACE.MCHANGE shop orders ANY SET n 7",
            "SPACE.RENEW shop orders 2 LEASE FOREVER",
            "SPACE.SELECT shop orders n=7 0",
        ],
    );
    assert!(reply.starts_with("*3 :3 :1 *3 $"), "{reply}");
    let reply = queue(&mut fixture, &["SET k w", "SPACE.MCHANGE shop orders ANY SET id 7"]);
    assert!(reply.starts_with("-EXECABORT Transaction discarded: "), "{reply}");
    fixture.check(&[("GET k", "$1 v")]);
    // Nothing stays locked, also not where EXEC takes everything.
    let reply = queue(&mut fixture, &["SPACE.MTAKE shop orders ANY", "DBSIZE", "SPACE.TAKE shop orders ANY"]);
    assert!(reply.starts_with("*3 *3 *3 ") && reply.ends_with(" $-1"), "{reply}");
    fixture.check(&[("SPACE.COUNT shop orders ANY", ":0")]);
}

#[test]
fn in_multi_entries_change_with_a_decision_or_neither_happens() {
    let mut fixture = declared("");
    let begin = |fixture: &mut Fixture, options: &str| {
        let reply = fixture.run(format!("XA.BEGIN {options}").trim());
        reply.strip_prefix("$54 ").expect("an id has 54 characters").to_owned()
    };
    for (options, id, expected, count) in [("", 1, "*2 *2 :1 :N +OK", ":1"), ("TIMEOUT 0", 2, "-ABORTED", ":1")] {
        let transaction = begin(&mut fixture, options);
        fixture.check(&[
            ("MULTI", "+OK"),
            (&format!(r#"SPACE.WRITE shop orders {{"id":{id}}}"#), "+QUEUED"),
            (&format!("XA.COMMIT {transaction} BRANCHES 1 pg"), "+QUEUED"),
        ]);
        let reply = fixture.shape("EXEC");
        assert!(reply.starts_with(expected), "{reply}");
        fixture.check(&[("SPACE.COUNT shop orders ANY", count)]);
    }
    // Nothing stays locked.
    assert_eq!(fixture.shape(r#"SPACE.WRITE shop orders {"id":2}"#), "*2 :2 :N");
}

#[test]
fn a_space_is_a_right_as_a_bucket_is() {
    let mut fixture = declared("");
    fixture.run("SPACE.DECLARE other things");
    let mut check = |pattern: &str, right, table: &[(&str, &str)]| {
        let rule = BucketRight { pattern: pattern.to_owned(), right };
        fixture.session.user = Some(Arc::new(User { buckets: vec![rule], ..User::admin("ada", "") }));
        for (line, start) in table {
            let reply = fixture.run(line);
            assert!(reply.starts_with(start), "{pattern} {line}: {reply}");
        }
        fixture.session.user = None;
    };
    let write = r#"SPACE.WRITE shop orders {"id":1}"#;
    check("db0", Right::Admin, &[(write, "-NOPERM"), ("SPACE.READ shop orders ANY", "-NOPERM"), ("SPACE.TYPES", "*0")]);
    check(
        "shop",
        Right::Read,
        &[(write, "-NOPERM"), ("SPACE.READ shop orders ANY", "$-1"), ("SPACE.TYPES", "*1 *2 $4 shop")],
    );
    check(
        "sh*",
        Right::Write,
        &[(write, "*2 :1"), ("SPACE.CLEAR shop orders ANY", ":1"), ("SPACE.DROP shop orders", "-NOPERM")],
    );
    check("shop", Right::Admin, &[("SPACE.DROP shop orders", ":1"), ("SPACE.DROP other things", "-NOPERM")]);
}

#[test]
fn plans_and_limits_are_shown() {
    let mut fixture = declared("INDEX city HASH 1 city");
    fixture.run(r#"SPACE.MWRITE shop orders 2 {"city":"Ulm"} {"city":"Bonn"}"#);
    fixture.check(&[
        ("SPACE.EXPLAIN shop orders ID 1", "*6 $10 partitions :1 $10 candidates :1 $2 by *1 *3 $2 id :1 :1"),
        ("SPACE.EXPLAIN shop orders ANY", "*6 $10 partitions :16 $10 candidates :2 $2 by *1 *3 $11 all entries :16 :2"),
    ]);
    let plan = fixture.words(&["SPACE.EXPLAIN", "shop", "orders", "WHERE", "city = ?", "1", "Ulm"]);
    assert!(plan.contains("candidates :1 ") && plan.contains("$10 index city"), "{plan}");
    let info = fixture.run("INFO spaces");
    assert!(
        info.contains("# Spaces shop/orders:entries=2,bytes=")
            && info.ends_with(",waiters=0,limit_bytes=0,space_limit_bytes=0"),
        "{info}"
    );
    let mut small = Fixture::with(|options| options.limits = Limits::tiny());
    small.run("SPACE.DECLARE s t FIFO");
    for id in 0..20 {
        small.run(&format!(r#"SPACE.WRITE s t {{"id":{id}}}"#));
    }
    assert!(small.run("SPACE.MREAD s t ANY COUNT 20").starts_with("*8 "));
    assert!(small.run("SPACE.MTAKE s t ANY COUNT 20").starts_with("*8 "));
    let large = format!(r#"SPACE.WRITE s t {{"id":0,"x":"{}"}}"#, "x".repeat(2_000));
    small.run(&large);
    small.run("SPACE.CLEAR s t WHERE id>0 0");
    small.run(r#"SPACE.WRITE s t {"id":1}"#);
    assert!(small.run("SPACE.MTAKE s t ANY").starts_with("*1 "), "its bytes are enough");
    small.check(&[("SPACE.COUNT s t ANY", ":1")]);
}

#[test]
fn whatever_these_commands_are_sent_gets_one_reply() {
    let mut fixture = declared("INDEX city HASH 1 city");
    let words: Vec<String> = "shop orders jobs ID TEMPLATE WHERE ANY ROUTING IFEXISTS VERSION COUNT DURABILITY written INSERT \
         UPDATE PARTIAL PREVIOUS LEASE FOREVER INDEX HASH ORDERED UNIQUE FIFO GROUPS MEMORY EVICT VOLATILE city=? id>0 0 1 2 3 \
         18446744073709551615 -1 {} {\"id\":1} {\"city\":\"Ulm\"} {\"id\":{}} [1] { \"x city"
        .split_whitespace()
        .map(str::to_owned)
        .chain(["SELECT".to_owned(), String::new()])
        .collect();
    fixture.session.replies = 0;
    let fixture = RefCell::new(fixture);
    let names: Vec<&str> = COMMANDS.iter().map(|row| row.name).filter(|name| name.starts_with("space.")).collect();
    let config = ProptestConfig { cases: 2_000, ..ProptestConfig::default() };
    let arguments = prop::collection::vec(prop::sample::select(words), 0..8);
    proptest!(config, |(name in prop::sample::select(names), known: bool, arguments in arguments)| {
        let mut words = vec![name];
        words.extend(if known { &["shop", "orders"][..] } else { &[] });
        words.extend(arguments.iter().map(String::as_str));
        let mut fixture = fixture.borrow_mut();
        let reply = fixture.words(&words);
        prop_assert!(reply.starts_with(['*', ':', '+', '-', '$']), "{reply}");
        prop_assert!(!reply.contains("internal error"), "{reply}");
        prop_assert_eq!(fixture.session.replies, 1);
        fixture.session.replies = 0;
    });
}

#[test]
fn a_listener_goes_on_from_its_bookmark() {
    let mut fixture = declared("HISTORY");
    let start = fixture.run("SPACE.LISTEN shop orders ANY");
    let bookmark = |reply: &str| reply.split(' ').nth(2).unwrap().to_owned();
    fixture.check(&[
        (
            r#"SPACE.LISTEN shop orders ANY HEARS nothing"#,
            "-ERR HEARS takes written, updated, taken, expired, entered and left, with commas between",
        ),
        (r#"SPACE.LISTEN shop orders ANY FROM soon"#, "-ERR a bookmark is two numbers with a point between: 4096.2"),
        (r#"SPACE.LISTEN shop orders ANY COUNT x"#, "-ERR value is not an integer or out of range"),
        (r#"SPACE.LISTEN shop orders ANY BLOCK"#, "-ERR syntax error"),
    ]);
    fixture.run(r#"SPACE.WRITE shop orders {"id":1,"price":1}"#);
    fixture.run(r#"SPACE.WRITE shop orders {"id":1,"price":20}"#);
    fixture.run("SPACE.TAKE shop orders ID 1");
    let from = bookmark(&start);
    let all = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {from}"));
    let words: Vec<&str> = all.split(' ').filter(|word| !word.starts_with(['$', '*'])).collect();
    let [newest, first, _, one, second, _, two, _, third, last, before] = words.as_slice() else { panic!("{all}") };
    assert_eq!((*first, *second, *third, newest), ("written", "updated", "taken", last), "{all}");
    assert_eq!(
        (*one, *two, *before),
        (r#"{"id":1,"price":1}"#, r#"{"id":1,"price":20}"#, r#"{"id":1,"price":20}"#),
        "{all}"
    );
    let first_only = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {from} COUNT 1"));
    let rest = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {}", bookmark(&first_only)));
    assert!(first_only.contains("written") && rest.contains("updated") && !rest.contains("written"), "{rest}");
    let where_ =
        ["SPACE.LISTEN", "shop", "orders", "WHERE", "price > ?", "1", "10", "FROM", &from, "HEARS", "entered,left"];
    let entered = fixture.words(&where_);
    assert!(entered.contains("entered") && entered.contains("left"), "{entered}");
    let nothing = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {newest} BLOCK 20"));
    assert!(nothing.ends_with("*0"), "{nothing}");
}

#[test]
fn a_listener_by_name_is_told_again_what_it_has_not_acknowledged() {
    let mut fixture = declared("HISTORY");
    let named = "SPACE.LISTEN shop orders ANY NAME mailer";
    let ids = |reply: &str| (1..=3).filter(|id| reply.contains(&format!("{{\"id\":{id}}}"))).collect::<Vec<_>>();
    fixture.run(r#"SPACE.WRITE shop orders {"id":1}"#);
    let start = fixture.run(named);
    assert!(start.ends_with("*0"), "a new one begins now: {start}");
    fixture.run(r#"SPACE.WRITE shop orders {"id":2}"#);
    let first = fixture.run(named);
    fixture.run(r#"SPACE.WRITE shop orders {"id":3}"#);
    assert_eq!((ids(&first), ids(&fixture.run(named))), (vec![2], vec![2, 3]));
    let bookmark = first.split(' ').nth(2).unwrap();
    assert_eq!(ids(&fixture.run(&format!("{named} ACK {bookmark}"))), [3]);
    assert_eq!(ids(&fixture.run(&format!("{named} RETAIN 5000"))), [3]);
    let known = fixture.run("SPACE.LISTENERS shop orders");
    for part in ["$6 mailer", bookmark, ":5000", "$4 held :1", "$7 damaged :0"] {
        assert!(known.contains(part), "{part}: {known}");
    }
    let much = fixture.run(&format!("{named} RETAIN {}", u64::MAX));
    assert!(much.starts_with("-LIMIT no listener may have") && much.contains("at most"), "{much}");
    assert_eq!(ids(&fixture.run(&format!("{named} FROM START"))), [1, 2, 3]);
    fixture.check(&[
        ("SPACE.LISTEN shop orders ANY ACK 1.0", "-ERR RETAIN and ACK are for a listener by NAME"),
        ("SPACE.LISTEN shop orders ANY NAME", "-ERR syntax error"),
        ("SPACE.LISTEN shop orders ANY NAME m RETAIN x", "-ERR value is not an integer or out of range"),
        (
            "SPACE.LISTEN shop orders ANY NAME nosuch ACK 1.0",
            "-ERR the type has no listener named nosuch: listen by that name first",
        ),
        ("SPACE.UNLISTEN shop orders mailer", ":1"),
        ("SPACE.UNLISTEN shop orders mailer", ":0"),
        ("SPACE.LISTENERS shop orders", "*0"),
    ]);
    // By itself, and in one batch with what was done about it, or not at all.
    let here = fixture.run(&format!("{named} FROM START"));
    let bookmarks: Vec<&str> = here.split("$7 written").skip(1).map(|event| event.split(' ').nth(2).unwrap()).collect();
    fixture.run(&format!("SPACE.ACK shop orders mailer {}", bookmarks[0]));
    assert_eq!(ids(&fixture.run(named)), [2, 3]);
    let acknowledges = bookmarks.iter().map(|bookmark| format!("SPACE.ACK shop orders mailer {bookmark}"));
    let acknowledges: Vec<String> = acknowledges.collect();
    fixture.check(&[
        ("MULTI", "+OK"),
        ("SET done 2", "+QUEUED"),
        (&acknowledges[1], "+QUEUED"),
        // Less than was acknowledged in the same batch changes nothing.
        (&acknowledges[0], "+QUEUED"),
        ("EXEC", "*3 +OK +OK +OK"),
    ]);
    assert_eq!(ids(&fixture.run(named)), [3]);
    fixture.check(&[("MULTI", "+OK"), ("SET done 3", "+QUEUED"), ("SPACE.ACK shop orders nosuch 1.0", "+QUEUED")]);
    let discarded = fixture.run("EXEC");
    assert!(discarded.starts_with("-EXECABORT") && discarded.contains("no listener named nosuch"), "{discarded}");
    fixture.check(&[
        ("GET done", "$1 2"),
        ("SPACE.ACK shop orders mailer x", "-ERR a bookmark is two numbers with a point between: 4096.2"),
        ("SPACE.UNLISTEN shop orders mailer", ":1"),
    ]);
    // What is kept for a name takes of the disk.
    let rule = BucketRight { pattern: "shop".to_owned(), right: Right::Read };
    fixture.session.user = Some(Arc::new(User { buckets: vec![rule], ..User::admin("ada", "") }));
    assert!(fixture.run("SPACE.LISTEN shop orders ANY").starts_with("*2"));
    for line in [named, "SPACE.UNLISTEN shop orders mailer"] {
        assert!(fixture.run(line).starts_with("-NOPERM"), "{line}");
    }
}

/// A document of three million items took a second of the event loop, and sixty large expressions half a one.
#[test]
fn what_takes_long_to_be_read_or_looked_for_is_begun_again_in_a_thread() {
    let mut fixture = declared("");
    let document = |bytes: usize| format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(bytes));
    let regexes = |number: usize| vec![r"text RLIKE 'a'"; number].join(" OR ");
    let (short, long) = (document(60 << 10), document(70 << 10));
    let (few, many) = (regexes(2), regexes(3));
    let template = document(80 << 10);
    let rows: [(&[&str], bool); 9] = [
        (&["SPACE.WRITE", "shop", "orders", &short], false),
        (&["SPACE.WRITE", "shop", "orders", &long], true),
        (&["SPACE.MWRITE", "shop", "orders", "2", &short, &short], true),
        (&["SPACE.CHANGE", "shop", "orders", "1", "SET", "text", &long], true),
        (&["SPACE.COUNT", "shop", "orders", "WHERE", &few, "0"], false),
        (&["SPACE.COUNT", "shop", "orders", "WHERE", &many, "0"], true),
        (&["SPACE.LISTEN", "shop", "orders", "WHERE", &many, "0"], true),
        (&["SPACE.TAKE", "shop", "orders", "TEMPLATE", &template], true),
        (&["SPACE.READ", "shop", "orders", "ID", "1"], false),
    ];
    for (words, expected) in rows {
        fixture.session.effort = crate::resp::effort::Effort::here(1 << 20);
        let reply = fixture.words(words);
        let is_heavy = matches!(fixture.session.pending.take(), Some(Pending::Heavy { .. }));
        assert_eq!(is_heavy, expected, "{} {reply}", words[0]);
        assert_eq!(reply.is_empty(), expected, "{} {reply}", words[0]);
        // In the thread it is done.
        fixture.session.effort = crate::resp::effort::Effort::ANY;
        let reply = fixture.words(words);
        assert!(!reply.is_empty() && !reply.starts_with('-'), "{} {reply}", words[0]);
        fixture.words(&["SPACE.WRITE", "shop", "orders", &short]);
    }
}

/// In MULTI it was gone through however many entries there were, where everybody waited.
#[test]
fn exec_that_goes_through_many_entries_is_begun_again_in_a_thread() {
    let mut fixture = declared("VOLATILE");
    for first in (0..5_000).step_by(200) {
        let documents: Vec<String> = (first..first + 200).map(|id| format!("{{\"id\":{id}}}")).collect();
        let mut words = vec!["SPACE.MWRITE", "shop", "orders", "200"];
        words.extend(documents.iter().map(String::as_str));
        fixture.words(&words);
    }
    fixture.check(&[("MULTI", "+OK"), ("SPACE.COUNT shop orders WHERE id<=3 0", "+QUEUED")]);
    fixture.session.effort = crate::resp::effort::Effort::here(1 << 20);
    fixture.check(&[("EXEC", "")]);
    assert!(matches!(fixture.session.pending.take(), Some(Pending::Heavy { .. })));
    fixture.session.effort = crate::resp::effort::Effort::ANY;
    fixture.check(&[("EXEC", "*1 :4")]);
}
