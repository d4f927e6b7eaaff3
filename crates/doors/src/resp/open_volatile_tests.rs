//! Entries of volatile types in transactions that stay open, in MULTI and in scripts: all or nothing with what is durable.
//!
//! May use: the clients of `open_tests.rs`. Must not know: the inside of the door.

use super::*;

/// A shop with a durable type, `jobs`, and a volatile one, `fast`.
fn with_fast(options: &str) -> Shop {
    let shop = shop(Order::Any);
    shop.client().check(&[(format!("SPACE.DECLARE shop fast VOLATILE {options}").trim(), "+OK")]);
    shop
}

fn appended(shop: &Shop) -> u64 {
    shop.store.watermarks().appended.get()
}

#[test]
fn an_open_transaction_over_both_kinds_of_types_happens_as_a_whole_or_not_at_all() {
    let shop = with_fast("");
    let (mut one, mut other) = (shop.client(), shop.client());
    other.ask("SPACE.WRITE shop fast {\"id\":1,\"n\":1}");
    other.ask("SPACE.WRITE shop fast {\"id\":2,\"n\":1}");
    for (end, answer, left) in [("TX.ABORT", "+OK", [":2", ":0"]), ("TX.COMMIT", ANY, [":3", ":2"])] {
        one.check(&[
            ("TX.BEGIN", ID),
            // A version of its own, which nobody knows before the commit.
            ("SPACE.WRITE shop fast {\"id\":3,\"n\":3}", ":3 :0"),
            ("SPACE.MWRITE shop jobs 2 {\"id\":1} {\"id\":2}", ":1 :0 :2 :0"),
            ("SPACE.CHANGE shop fast 1 INCR n 5", "{\"id\":1,\"n\":6} :0 nil"),
            ("SPACE.TAKE shop fast ID 2 STRICT", ANY),
            ("SPACE.WRITE shop fast {\"id\":4}", ":4 :0"),
            ("SPACE.RENEW shop fast 4 LEASE 60000", ":1"),
            ("SPACE.COUNT shop fast ANY", ":3"),
        ]);
        other.check(&[
            ("SPACE.COUNT shop fast ANY", ":2"),
            ("SPACE.COUNT shop jobs ANY", ":0"),
            ("SPACE.COUNT shop fast WHERE n=1 0", ":2"),
            ("SPACE.WRITE shop fast {\"id\":1} LOCKWAIT 0", &locked_by_one(&shop)),
        ]);
        one.check(&[(end, answer)]);
        other.check(&[("SPACE.COUNT shop fast ANY", left[0]), ("SPACE.COUNT shop jobs ANY", left[1])]);
    }
    other.check(&[("SPACE.COUNT shop fast WHERE n=6 0", ":1"), ("SPACE.COUNT shop fast ID 2", ":0")]);
    // A command that fails undoes the rest.
    one.check(&[
        ("TX.BEGIN", ID),
        ("SPACE.CLEAR shop fast ANY", ":3"),
        ("SPACE.WRITE shop jobs {\"id\":1} INSERT", "-CONFLICT an entry with this id is there already"),
    ]);
    assert!(one.ask("TX.COMMIT").starts_with("-EXECABORT"));
    other.check(&[("SPACE.COUNT shop fast ANY", ":3")]);
}

/// What is said of an entry that the one open transaction of this server has locked.
fn locked_by_one(shop: &Shop) -> String {
    let open = shop.store.open_transactions();
    let name = open.first().and_then(|open| open.name.clone()).unwrap_or_default();
    format!("-TIMEOUT a transaction has locked the entry: {name}")
}

#[test]
fn who_wants_what_an_open_transaction_has_of_a_volatile_type_waits_for_it() {
    let shop = with_fast("FIFO");
    let (mut one, mut other) = (shop.client(), shop.client());
    let fast = shop.store.space("shop").entries("fast").unwrap();
    for id in [2, 1] {
        other.ask(&format!("SPACE.WRITE shop fast {{\"id\":{id}}}"));
    }
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.TAKE shop fast ANY").starts_with("{\"id\":2}"));
    assert!(other.ask("SPACE.TAKE shop fast ANY").starts_with("{\"id\":1}"), "the next in line");
    other.send("SPACE.TAKE shop fast ANY BLOCK 0");
    until("it waits", || fast.waiters() == 1);
    one.check(&[("TX.ABORT", "+OK")]);
    assert!(other.reply().starts_with("{\"id\":2}"));
    // Within a transaction too.
    other.check(&[("TX.BEGIN", ID)]);
    other.send("SPACE.TAKE shop fast ANY BLOCK 0");
    until("it waits", || fast.waiters() == 1);
    one.check(&[("TX.BEGIN", ID), ("SPACE.WRITE shop fast {\"id\":7}", ":7 :0"), ("TX.COMMIT", ANY)]);
    assert!(other.reply().starts_with("{\"id\":7}"));
    other.check(&[("TX.COMMIT", ANY), ("SPACE.COUNT shop fast ANY", ":0")]);
}

#[test]
fn multi_and_scripts_have_volatile_entries_with_the_rest() {
    let shop = with_fast("");
    let mut one = shop.client();
    let before = appended(&shop);
    one.check(&[
        ("MULTI", "+OK"),
        ("SPACE.WRITE shop fast {\"id\":1,\"n\":1}", "+QUEUED"),
        ("SPACE.CHANGE shop fast 1 INCR n 1 PREVIOUS", "+QUEUED"),
        ("SPACE.WRITE shop fast {\"id\":2}", "+QUEUED"),
        ("SPACE.TAKE shop fast ID 2", "+QUEUED"),
        ("SPACE.COUNT shop fast ANY", "+QUEUED"),
        ("EXEC POSITION", ":0 :1 :0 {\"id\":1,\"n\":2} :0 nil {\"id\":1,\"n\":1} :0 nil :2 :0 {\"id\":2} :0 nil :1"),
    ]);
    assert_eq!(appended(&shop), before, "nothing of it is in the journal");
    let read = one.ask("SPACE.READ shop fast ID 1");
    let version = read.split(' ').nth(1).unwrap().trim_start_matches(':').to_owned();
    // All of it or nothing.
    one.check(&[
        ("MULTI", "+OK"),
        (&format!("SPACE.WRITE shop fast {{\"id\":1,\"n\":9}} VERSION {version}"), "+QUEUED"),
        ("SPACE.WRITE shop jobs {\"id\":1} UPDATE", "+QUEUED"),
    ]);
    assert!(one.ask("EXEC").starts_with('-'));
    one.check(&[
        ("SPACE.COUNT shop fast WHERE n=2 0", ":1"),
        ("MULTI", "+OK"),
        (&format!("SPACE.WRITE shop fast {{\"id\":1,\"n\":9}} VERSION {version}"), "+QUEUED"),
        ("SPACE.WRITE shop jobs {\"id\":1}", "+QUEUED"),
        ("EXEC", ANY),
        ("SPACE.COUNT shop fast WHERE n=9 0", ":1"),
        ("SPACE.COUNT shop jobs ANY", ":1"),
    ]);
    let script = "local taken = redis.call('SPACE.TAKE', 'shop', 'fast', 'ID', '1')
        redis.call('SPACE.WRITE', 'shop', 'jobs', '{\"id\":2}')
        if ARGV[1] == 'fails' then return redis.call('SPACE.WRITE', 'shop', 'fast', '{\"id\":2}', 'UPDATE') end
        return {taken[1], redis.call('SPACE.WRITE', 'shop', 'fast', '{\"id\":5}')}";
    one.send_words(&["EVAL", script, "0", "fails"]);
    assert!(one.reply().starts_with('-'));
    one.check(&[("SPACE.COUNT shop fast ANY", ":1"), ("SPACE.COUNT shop jobs ANY", ":1")]);
    one.send_words(&["EVAL", script, "0", "works"]);
    assert_eq!(one.reply(), "{\"id\":1,\"n\":9} :5 :0");
    one.check(&[("SPACE.COUNT shop fast ID 5", ":1"), ("SPACE.COUNT shop jobs ANY", ":2")]);
    // And within a transaction that stays open.
    one.check(&[("TX.BEGIN", ID)]);
    one.send_words(&["EVAL", "return redis.call('SPACE.CLEAR', 'shop', 'fast', 'ANY')", "0"]);
    assert_eq!(one.reply(), ":1");
    shop.client().check(&[("SPACE.COUNT shop fast ANY", ":1")]);
    one.check(&[("TX.COMMIT", ANY), ("SPACE.COUNT shop fast ANY", ":0")]);
}
