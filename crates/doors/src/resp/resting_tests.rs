//! What is refused waits for what that rests on: of what others have written, and nobody has waited for, a crash may leave nothing.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use holdfast::space::{Document, ReadOptions, Wanted, WriteOptions};
use holdfast::{PutOptions, Scope};

use super::*;

/// What others have done an instant ago.
struct Done {
    entry: Position,
    entry_gone: Position,
    key: Position,
    key_gone: Position,
}

fn others(store: &Store, of: &str) -> Done {
    let orders = store.space("shop").entries(of).unwrap();
    let write = |id: i64| {
        let document = Document::from_pairs([("id", holdfast::space::Value::from(id)), ("name", "ada".into())]);
        orders.write_shown(&document, &WriteOptions::default()).unwrap().version
    };
    write(2);
    let entry_gone = orders.take_shown(&Wanted::id(2), &ReadOptions::default()).unwrap().position;
    let put = |key: &[u8]| store.kv().put_no_wait(b"db0", key, b"v", &PutOptions::default()).unwrap().position;
    put(b"gone");
    let mut exclusive = store.exclusive(&Scope::Keys(&[(b"db0", b"gone")])).unwrap();
    assert!(exclusive.delete(b"db0", b"gone").unwrap());
    let key_gone = exclusive.commit().unwrap().position;
    Done { entry: write(1), entry_gone, key: put(b"key"), key_gone }
}

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.check(&[
        ("SPACE.DECLARE shop orders TOGETHER INDEX name HASH UNIQUE 1 name", "+OK"),
        ("SPACE.DECLARE shop hot VOLATILE TOGETHER INDEX name HASH UNIQUE 1 name", "+OK"),
    ]);
    fixture
}

/// What the reply to the last of these lines needs, and the reply.
fn need(fixture: &mut Fixture, lines: &str) -> (Need, String) {
    let mut reply = String::new();
    for line in lines.split("; ") {
        fixture.session.need = Need::NOTHING;
        reply = fixture.run(line);
    }
    (fixture.session.need, reply)
}

#[test]
fn a_refusal_waits_for_what_it_rests_on() {
    type Which = fn(&Done) -> Position;
    let (entry, entry_gone): (Which, Which) = (|it| it.entry, |it| it.entry_gone);
    let (key, key_gone): (Which, Which) = (|it| it.key, |it| it.key_gone);
    for (lines, answers, rests_on) in [
        (r#"SPACE.WRITE shop orders {"id":1} INSERT"#, "-CONFLICT", entry),
        (r#"SPACE.WRITE shop orders {"id":1} VERSION 7"#, "-CONFLICT", entry),
        (r#"SPACE.WRITE shop orders {"id":2} UPDATE"#, "-CONFLICT", entry_gone),
        (r#"SPACE.WRITE shop orders {"id":3,"name":"ada"}"#, "-CONFLICT", entry),
        (r#"SPACE.MWRITE shop orders 2 {"id":1} {"id":1} INSERT"#, "*2 -CONFLICT", entry),
        ("SPACE.CHANGE shop orders 1 SET n 1 VERSION 7", "-CONFLICT", entry),
        ("SPACE.CHANGE shop orders 1 INCR name 1", "-ERR", entry),
        (r#"SPACE.MCHANGE shop orders ANY SET id 7"#, "-ERR", entry),
        ("SPACE.TAKE shop orders ID 1 VERSION 7", "-CONFLICT", entry),
        ("SPACE.TAKE shop orders ID 2 STRICT", "-CONFLICT", entry_gone),
        ("SPACE.READ shop orders ID 1 VERSION 7", "-CONFLICT", entry),
        // Within EXEC, scripts and open transactions.
        (r#"MULTI; SPACE.WRITE shop orders {"id":1} INSERT; EXEC"#, "-EXECABORT", entry),
        (r#"MULTI; SPACE.TAKE shop orders ID 1 VERSION 7; EXEC"#, "-EXECABORT", entry),
        (r#"TX.BEGIN; SPACE.WRITE shop orders {"id":1} INSERT"#, "-CONFLICT", entry),
        (r#"TX.BEGIN; SPACE.WRITE shop orders {"id":2} UPDATE"#, "-CONFLICT", entry_gone),
        ("TX.BEGIN; SPACE.CHANGE shop orders 1 INCR name 1", "-ERR", entry),
        ("TX.BEGIN; INCR key", "-ERR", key),
        // Keys.
        ("SET key x NX", "$-1", key),
        ("SET gone x XX", "$-1", key_gone),
        ("SETNX key x", ":0", key),
        ("MSETNX other x key x", ":0", key),
        ("KV.PUT db0 key x NX", "*-1", key),
        ("KV.PUT db0 key x IFVERSION 7", "*-1", key),
        ("KV.PUT db0 key x NX STRICT", "-CONFLICT", key),
        ("KV.PUT db0 gone x XX STRICT", "-CONFLICT", key_gone),
        ("INCR key", "-ERR", key),
        ("RENAME gone other", "-ERR", key_gone),
        ("RENAMENX key key2; RENAMENX key2 key2", ":0", key),
        ("MULTI; KV.PUT db0 key x NX STRICT; EXEC", "-EXECABORT", key),
    ] {
        let mut fixture = fixture();
        let done = others(&fixture.door.store, "orders");
        let (need, reply) = need(&mut fixture, lines);
        assert!(reply.starts_with(answers), "{lines}: {reply}");
        assert!(need.written >= rests_on(&done), "{lines}: {need:?}");
        assert_eq!(need.synced, Position::ZERO, "{lines}");
    }
}

#[test]
fn a_refusal_waits_as_long_as_its_command_asks_for() {
    for lines in [
        r#"SPACE.WRITE shop orders {"id":1} INSERT DURABILITY synced"#,
        r#"SPACE.MWRITE shop orders 1 {"id":1} INSERT DURABILITY synced"#,
        "SPACE.CHANGE shop orders 1 SET n 1 VERSION 7 DURABILITY synced",
        "SPACE.TAKE shop orders ID 1 VERSION 7 DURABILITY synced",
        "KV.PUT db0 key x NX DURABILITY synced",
        "KV.PUT db0 key x NX STRICT DURABILITY synced",
        r#"TX.BEGIN; SPACE.WRITE shop orders {"id":1} INSERT DURABILITY synced"#,
    ] {
        let mut fixture = fixture();
        let done = others(&fixture.door.store, "orders");
        let (need, reply) = need(&mut fixture, lines);
        assert!(need.synced >= done.entry, "{lines}: {reply} {need:?}");
    }
}

#[test]
fn the_commit_of_an_open_transaction_that_is_refused_waits_too() {
    for durability in ["", " DURABILITY synced"] {
        let mut fixture = fixture();
        fixture.run("TX.BEGIN");
        fixture.run(r#"SPACE.WRITE shop orders {"id":1}"#);
        fixture.run("GET key");
        let done = others(&fixture.door.store, "orders");
        let (need, reply) = need(&mut fixture, &format!("TX.COMMIT{durability}"));
        assert!(reply.starts_with("-CONFLICT"), "{reply}");
        let needed = if durability.is_empty() { need.written } else { need.synced };
        assert!(needed >= done.entry.min(done.key), "{need:?}");
    }
}

#[test]
fn watched_keys_that_have_changed_are_told_when_that_lasts() {
    let mut fixture = fixture();
    fixture.run("WATCH key");
    let done = others(&fixture.door.store, "orders");
    let (need, reply) = need(&mut fixture, "MULTI; SET other x; EXEC");
    assert_eq!((reply.as_str(), need.written), ("*-1", done.key));
}

#[test]
fn a_refusal_of_a_script_waits_too() {
    for text in [
        r#"return redis.call('space.write', 'shop', 'orders', '{"id":1}', 'INSERT')"#,
        r#"local it = redis.pcall('set', KEYS[1], 'x', 'NX') return it and 1 or 0"#,
        "return redis.call('incr', KEYS[1])",
    ] {
        let mut fixture = fixture();
        let done = others(&fixture.door.store, "orders");
        fixture.session.need = Need::NOTHING;
        let reply = fixture.run_args(&[b"EVAL", text.as_bytes(), b"1", b"key"]);
        assert!(fixture.session.need.written >= done.entry.min(done.key), "{text}: {reply}");
    }
}

#[test]
fn a_refusal_of_what_is_in_no_journal_waits_for_nothing() {
    let mut fixture = fixture();
    others(&fixture.door.store, "hot");
    for line in [
        r#"SPACE.WRITE shop hot {"id":1} INSERT"#,
        r#"SPACE.WRITE shop hot {"id":2} UPDATE"#,
        r#"SPACE.WRITE shop hot {"id":3,"name":"ada"}"#,
        r#"SPACE.MWRITE shop hot 1 {"id":1} INSERT"#,
        "SPACE.CHANGE shop hot 1 INCR name 1",
        "SPACE.TAKE shop hot ID 1 VERSION 7",
        "SPACE.TAKE shop hot ID 2 STRICT",
    ] {
        let (need, reply) = need(&mut fixture, line);
        assert!(reply.contains("-CONFLICT") || reply.contains("-ERR"), "{line}: {reply}");
        assert_eq!(need, Need::NOTHING, "{line}: {reply}");
    }
}
