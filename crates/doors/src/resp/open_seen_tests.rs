//! What others see of a transaction that stays open: that it is there, that it is in their way, and that it does not keep them
//! waiting when it ends.
//!
//! May use: the clients of `open_tests.rs`. Must not know: the inside of the door.

use super::*;

#[test]
fn open_transactions_are_counted_and_those_whose_lease_ended() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    let shows = |open: u64, expired: u64| {
        let expected = format!("# Transactions\r\nopen_transactions:{open}\r\nexpired_transactions:{expired}");
        until(&expected, || shop.client().ask("INFO transactions") == expected);
    };
    shows(0, 0);
    one.check(&[("TX.BEGIN", ID)]);
    other.check(&[("TX.BEGIN", ID)]);
    shows(2, 0);
    one.commit("TX.COMMIT");
    other.check(&[("NOSUCH", &one_of_none(&shop))]);
    shows(0, 0);
    other.check(&[("TX.ABORT", "+OK"), ("TX.BEGIN LEASE 20", ID)]);
    shows(0, 1);
    // The client does not know yet; a transaction of a program with the store inside counts like its own.
    let _open = shop.store.begin().with_lease(PATIENCE);
    shows(1, 1);
    assert!(other.ask("INFO").contains("open_transactions:1"));
}

#[test]
fn who_waits_in_vain_for_a_lock_is_told_who_has_it() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    let client = one.ask("CLIENT ID");
    let id = one.begin("TX.BEGIN");
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    let told = format!("-TIMEOUT a transaction has locked the entry: {id} of client {}", &client[1..]);
    thread::scope(|scope| {
        let outside = scope.spawn(|| shop.client().ask("SPACE.WRITE shop jobs {\"id\":1}"));
        let within = scope.spawn(|| {
            let mut client = shop.client();
            client.check(&[("TX.BEGIN", ID)]);
            client.ask("SPACE.CHANGE shop jobs 1 SET by me")
        });
        let writes = scope.spawn(|| {
            other.check(&[("TX.BEGIN", ID)]);
            other.ask("SPACE.WRITE shop jobs {\"id\":1}")
        });
        for waits in [outside, within, writes] {
            assert_eq!(waits.join().unwrap(), told);
        }
    });
}

#[test]
fn a_big_commit_keeps_no_other_client_waiting() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    let many = |of: usize| format!("SPACE.MWRITE shop jobs {of}{}", " {}".repeat(of));
    one.check(&[("TX.BEGIN", ID)]);
    one.ask(&many(257));
    // Nothing that takes long gets its turn.
    let door = &shop.server.running.door;
    let all = u32::try_from(door.options.limits.long_commands_max).unwrap();
    let turns = door.turns.clone().try_acquire_many_owned(all).unwrap();
    one.send("TX.COMMIT");
    let has_ended = || !shop.client().ask("CLIENT LIST").contains("multi=1 ");
    until("it has come to the commit", has_ended);
    other.check(&[("SPACE.COUNT shop jobs ANY", ":0"), ("TX.BEGIN", ID)]);
    other.ask(&many(256));
    other.commit("TX.COMMIT");
    other.check(&[("SPACE.COUNT shop jobs ANY", ":256")]);
    drop(turns);
    let position = one.reply();
    assert!(position.strip_prefix(':').is_some_and(|it| it.parse::<u64>().is_ok()), "{position}");
    one.check(&[("SPACE.COUNT shop jobs ANY", ":513"), ("TX.COMMIT", NONE_OPEN)]);
}

/// Its end lies behind what is not read while it waits: it was come to when the lease was over.
#[test]
fn a_client_that_vanishes_behind_much_that_it_has_sent_is_rolled_back() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    one.send("SPACE.TAKE shop jobs ID 2 BLOCK 0");
    until("it waits", || shop.entries.waiters() == 1);
    one.0.get_mut().write_all(&b"PING\r\n".repeat(20_000)).unwrap();
    drop(one);
    assert!(other.ask("SPACE.TAKE shop jobs ID 1 BLOCK 20000").starts_with("{\"id\":1}"));
    until("nobody waits", || shop.entries.waiters() == 0);
}

/// The story: a pipeline with one of these in its middle was committed without it.
#[test]
fn whatever_fails_on_its_connection_rolls_a_transaction_back() {
    let table = [
        "MULTI",
        "TX.BEGIN",
        "TX.BEGIN LEASE",
        "WATCH k",
        "EXEC",
        "EXEC NOW",
        "DISCARD",
        "TX.RUN 1 SET other v",
        "TX.RUN x SET other v",
        "TX.RUN",
        "TX.COMMIT DURABILITY foo",
        "TX.COMMIT DURABILITY",
        "TX.COMMIT ID 1",
        "TX.COMMIT NOW",
        "TX.ABORT ID 1",
        "TX.ABORT NOW",
        "AUTH wrong",
        "AUTH nobody wrong",
        "HELLO 3 AUTH default wrong",
        "HELLO 9",
        "SELECT 99",
        "CLIENT SETNAME \u{7}",
        "CLIENT NOSUCH",
        "TS.RANGE m",
        "BACKUP relative",
        "GET",
        "INCR text",
        "KEYS *",
        "EVAL x 0",
        "SPACE.WRITE shop jobs [",
        "WAITAOF 1 0",
    ];
    let admin = User::admin("default", &hash_password(b"secret").unwrap());
    let users = Arc::new(Users::new([admin]).unwrap());
    let shop = shop_with(Order::Any, |options| options.users = users);
    let mut one = shop.client();
    one.check(&[("AUTH secret", "+OK"), ("SET text v", "+OK")]);
    for begin in ["TX.BEGIN", "TX.BEGIN STRICT"] {
        for line in table {
            let id = one.begin(begin);
            let (set, commit) = (format!("TX.RUN {id} SET k v"), format!("TX.COMMIT ID {id}"));
            // As a pipeline: nobody looks at what fails before all is sent.
            [&set, line, &set, &commit, "EXISTS k"].iter().for_each(|line| one.send(line));
            assert_eq!(one.reply(), "+OK", "{line}");
            let why = one.reply();
            assert!(why.starts_with('-') && !why.starts_with("-EXECABORT the tr"), "{line}: {why}");
            assert_eq!([one.reply(), one.reply()], [over(&why), over(&why)], "{begin}, {line}");
            assert_eq!(one.reply(), ":0", "{begin}, {line}");
        }
        // And a command that may not be run in it, though it is where it belongs.
        let id = one.begin(begin);
        for refused in ["MULTI", "TX.COMMIT", "RESET", "INCR text"] {
            let why = one.ask(&format!("TX.RUN {id} {refused}"));
            assert!(why.starts_with('-'), "{refused}: {why}");
        }
        assert!(
            one.ask(&format!("TX.COMMIT ID {id}")).starts_with("-EXECABORT the transaction was rolled back: ERR MULTI")
        );
    }
}

#[test]
fn clients_that_wait_or_hold_memory_are_seen() {
    let shop = shop(Order::Any);
    let (mut one, mut other, mut seer) = (shop.client(), shop.client(), shop.client());
    // What CLIENT LIST says of a field, client by client.
    let mut list = |field: &str| -> Vec<String> {
        let list = seer.ask("CLIENT LIST");
        let of = |line: &str| line.split(' ').find_map(|word| word.strip_prefix(field).map(str::to_owned));
        list.lines().filter_map(of).collect()
    };
    one.check(&[("SET big v", "+OK"), ("TX.BEGIN", ID), (&format!("SET big {}", "v".repeat(100_000)), "+OK")]);
    let held = list("multi-mem=");
    assert!(held[0].parse::<usize>().is_ok_and(|bytes| bytes >= 100_000) && held[1..] == ["0", "0"], "{held:?}");
    assert!(list("tot-mem=")[0].parse::<usize>().is_ok_and(|bytes| bytes >= 100_000));
    other.check(&[("MULTI", "+OK"), ("SET a b", "+QUEUED")]);
    assert_ne!(list("multi-mem=")[1], "0");
    other.check(&[("DISCARD", "+OK")]);
    one.check(&[("TX.ABORT", "+OK"), ("PING", "+PONG")]);
    assert_eq!(list("multi-mem="), ["0", "0", "0"]);
    // One waits for a lock within a transaction, another without.
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    other.send("SPACE.WRITE shop jobs {\"id\":1}");
    let mut third = shop.client();
    third.check(&[("TX.BEGIN", ID)]);
    third.send("SPACE.TAKE shop jobs ID 2 BLOCK 60000");
    let mut fourth = shop.client();
    let mut info = || fourth.ask("INFO clients").contains("blocked_clients:2");
    let end = std::time::Instant::now() + PATIENCE;
    while !info() {
        assert!(std::time::Instant::now() < end, "two wait");
    }
    assert_eq!(list("flags=")[..4], ["x", "b", "N", "xb"].map(str::to_owned));
    one.commit("TX.COMMIT");
    assert!(other.reply().starts_with(":1"));
}
