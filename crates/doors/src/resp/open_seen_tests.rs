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
        let expected = [format!("open_transactions:{open}\r\n"), format!("\nexpired_transactions:{expired}\r\n")];
        until(&expected.join(" "), || {
            let told = shop.client().ask("INFO transactions");
            expected.iter().all(|expected| told.contains(expected))
        });
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
fn what_becomes_of_transactions_is_counted() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    for id in 1..=3 {
        one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":{id}}}"));
    }
    let shows = |lines: &[&str]| {
        until(&lines.join(" "), || {
            let told = format!("{}\r\n", shop.client().ask("INFO transactions"));
            lines.iter().all(|line| told.contains(&format!("\n{line}\r\n")))
        });
    };
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    one.ask("SET k 123456789");
    shows(&["open_transactions_locks:1", "committed_transactions:0", "rolled_back_transactions:0"]);
    let told = shop.client().ask("INFO transactions");
    let bytes = told.lines().find_map(|line| line.strip_prefix("open_transactions_bytes:")).unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 500, "{told}");
    one.commit("TX.COMMIT");
    shows(&["open_transactions_locks:0", "open_transactions_bytes:0", "committed_transactions:1"]);
    one.check(&[("TX.BEGIN", ID), ("TX.ABORT", "+OK")]);
    shows(&["rolled_back_transactions:1"]);
    // Somebody changes what it has read.
    one.check(&[("TX.BEGIN", ID), ("GET k", "123456789"), ("SET k 2", "+OK")]);
    other.check(&[("SET k 1", "+OK")]);
    assert!(one.ask("TX.COMMIT").starts_with("-CONFLICT"));
    shows(&["transaction_conflicts:1", "rolled_back_transactions:2", "committed_transactions:1"]);
    // Two wait for each other, and one is told.
    one.check(&[("TX.BEGIN", ID)]);
    other.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 2");
    other.ask("SPACE.TAKE shop jobs ID 3");
    thread::scope(|scope| {
        let waits = scope.spawn(|| one.ask("SPACE.WRITE shop jobs {\"id\":3}"));
        until("one waits", || shop.store.open_transactions().iter().any(|open| open.is_waiting));
        assert!(other.ask("SPACE.WRITE shop jobs {\"id\":2}").starts_with("-CONFLICT a deadlock"));
        assert!(!waits.join().unwrap().starts_with('-'));
    });
    shows(&["transaction_deadlocks:1", "transaction_lock_timeouts:0"]);
    let waits = holdfast::space::WriteOptions {
        lock_timeout: Some(std::time::Duration::from_millis(1)),
        ..holdfast::space::WriteOptions::default()
    };
    let jobs = shop.store.space("shop").entries("jobs").unwrap();
    assert!(jobs.write(&holdfast::space::Document::from_pairs([("id", 2)]), &waits).is_err());
    shows(&["transaction_lock_timeouts:1"]);
}

#[test]
fn open_transactions_are_listed_with_what_they_hold() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    assert_eq!(one.ask("TX.LIST"), "");
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    let client = one.ask("CLIENT ID");
    let id = one.begin("TX.BEGIN LEASE 60000");
    one.ask("SPACE.TAKE shop jobs ID 1");
    let _named = shop.store.begin().with_name("the importer").with_lease(PATIENCE);
    let listed = shop.client().ask("TX.LIST");
    for part in
        [&format!("id :{id} client {client} age-ms :"), " locks :1 bytes :", " waiting :0", "id the importer client "]
    {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    // It may be asked within one too, and ends nothing.
    assert!(one.ask("TX.LIST").contains(" locks :1 "));
    one.commit("TX.COMMIT");
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

/// Also in EXEC, where nothing waits either.
#[test]
fn a_transaction_reads_many_with_what_it_has_done_and_keeps_what_it_read() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    for id in 1..=4 {
        one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":{id}}}"));
    }
    let ids = |reply: &str| reply.matches("\"id\"").count();
    one.check(&[("TX.BEGIN ISOLATION EXCLUSIVE", ID)]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    one.ask("SPACE.WRITE shop jobs {\"id\":9}");
    assert_eq!(ids(&one.ask("SPACE.MREAD shop jobs ANY COUNT 3")), 3);
    other.check(&[("TX.BEGIN ISOLATION EXCLUSIVE", ID)]);
    assert_eq!(other.ask("SPACE.MREAD shop jobs ANY"), "", "the first has locked all of them");
    assert_eq!(ids(&one.ask("SPACE.MREAD shop jobs ANY")), 4);
    assert_eq!(ids(&shop.client().ask("SPACE.MREAD shop jobs ANY")), 4, "what is committed is shown outside");
    one.commit("TX.COMMIT");
    assert_eq!(ids(&other.ask("SPACE.MREAD shop jobs ANY")), 4);
    other.check(&[("TX.ABORT", "+OK"), ("MULTI", "+OK"), ("SPACE.TAKE shop jobs ID 9", "+QUEUED")]);
    other.check(&[("SPACE.MREAD shop jobs ANY COUNT 9", "+QUEUED")]);
    assert_eq!(ids(&other.ask("EXEC")), 1 + 3);
}

#[test]
fn a_transaction_asks_changes_and_renews_many_with_what_it_has_done() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.MWRITE shop jobs 3 {\"id\":1,\"n\":1} {\"id\":2,\"n\":2} {\"id\":3,\"n\":3} LEASE 100000");
    let sum = |client: &mut Client, expected: &str| {
        let select = "SELECT sum(n) AS sum FROM jobs";
        let words = format!(
            "*5\r\n$12\r\nSPACE.SELECT\r\n$4\r\nshop\r\n$4\r\njobs\r\n${}\r\n{select}\r\n$1\r\n0\r\n",
            select.len()
        );
        client.0.get_mut().write_all(words.as_bytes()).unwrap();
        assert_eq!(client.reply(), format!("{{\"sum\":{expected}}}"));
    };
    one.check(&[("TX.BEGIN", ID), ("SPACE.MCHANGE shop jobs WHERE n>1 0 INCR n 10", ":2")]);
    assert!(one.ask("SPACE.TAKE shop jobs ID 1").starts_with("{\"id\":1"));
    one.check(&[("SPACE.RENEW shop jobs 2 LEASE FOREVER", ":1"), ("SPACE.RENEW shop jobs 1 LEASE FOREVER", ":0")]);
    sum(&mut one, "25");
    sum(&mut other, "6");
    one.check(&[("SPACE.SELECT shop jobs n=12 0", "{\"id\":2,\"n\":12}")]);
    assert!(!other.ask("SPACE.READ shop jobs ID 2").ends_with(" nil"));
    one.commit("TX.COMMIT");
    sum(&mut other, "25");
    assert!(other.ask("SPACE.READ shop jobs ID 2").ends_with(" nil"), "it is renewed");
    // Who has one of them has it changed by nobody, and who waits for it changes all of them once.
    other.check(&[("TX.BEGIN", ID)]);
    other.ask("SPACE.CHANGE shop jobs 3 INCR n 100");
    one.check(&[("TX.BEGIN", ID)]);
    one.send("SPACE.MCHANGE shop jobs ANY INCR n 1000");
    let turns = shop.server.running.door.turns_for(crate::resp::open::For::Lock);
    let all = crate::resp::limits::Limits::default().transaction_waits_max;
    until("it waits", || turns.available_permits() < all);
    other.commit("TX.COMMIT");
    assert_eq!(one.reply(), ":2");
    one.commit("TX.COMMIT");
    sum(&mut other, "2125");
    let refused = one.ask("SPACE.SELECT shop jobs SELECT 0");
    one.check(&[("TX.BEGIN", ID), ("SPACE.SELECT shop jobs SELECT 0", &refused), ("TX.COMMIT", &over(&refused))]);
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

/// "Read; if there is none, create" goes wrong by a read that does not wait: the manual names this way instead.
#[test]
fn a_read_that_waits_tells_a_locked_entry_from_one_that_is_not_there() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    other.check(&[("TX.BEGIN", ID)]);
    assert!(other.ask("SPACE.TAKE shop jobs ID 1").starts_with('{'));
    one.check(&[
        ("TX.BEGIN", ID),
        ("SPACE.READ shop jobs ID 1", "nil"),
        ("SPACE.COUNT shop jobs ID 1", ":1"),
        ("SPACE.READ shop jobs ID 2 IFEXISTS BLOCK 60000", "nil"),
    ]);
    one.send("SPACE.READ shop jobs ID 1 IFEXISTS BLOCK 60000");
    until("it waits", || shop.store.open_transactions().iter().any(|open| open.is_waiting));
    other.check(&[("TX.ABORT", "+OK")]);
    assert!(one.reply().starts_with("{\"id\":1}"));
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
        "FLUSHALL",
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

#[test]
fn a_version_that_the_transaction_has_changed_does_not_hold_within_it() {
    use holdfast::space::{Document, ReadOptions, Wanted, WriteOptions};
    let shop = shop(Order::Any);
    let mut one = shop.client();
    let version = shop.entries.write(&Document::from_pairs([("id", 1)]), &WriteOptions::default()).unwrap().version;
    let again = format!("SPACE.WRITE shop jobs {{\"id\":1,\"n\":2}} VERSION {version}");
    let told = "-CONFLICT the entry has another version: this transaction has changed it";
    one.check(&[("TX.BEGIN", ID)]);
    one.check(&[(&format!("SPACE.CHANGE shop jobs 1 INCR n 1 VERSION {version}"), ANY), (&again, told)]);
    one.check(&[("TX.ABORT", "+OK")]);
    one.check(&[("MULTI", "+OK"), ("SPACE.WRITE shop jobs {\"id\":1,\"n\":1}", "+QUEUED"), (&again, "+QUEUED")]);
    let exec = one.ask("EXEC");
    assert!(exec.contains("another version"), "{exec}");
    assert_eq!(shop.entries.read(&Wanted::id(1), &ReadOptions::default()).unwrap().unwrap().version, version);
}
