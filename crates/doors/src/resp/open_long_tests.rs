//! Scripts within a transaction that stays open, and going through entries there a batch at a time.
//!
//! May use: the clients of `open_tests.rs`. Must not know: the inside of the door.

use super::*;

impl Client {
    /// Runs a script without keys.
    fn eval(&mut self, script: &str, arguments: &[&str]) -> String {
        let mut words = vec!["EVAL", script, "0"];
        words.extend(arguments);
        self.send_words(&words);
        self.reply()
    }
}

#[test]
fn a_script_happens_within_the_transaction_and_sees_what_it_has_done() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.check(&[("SET stock 7", "+OK")]);
    one.ask("SPACE.WRITE shop jobs {\"id\":1,\"n\":5}");
    one.check(&[("TX.BEGIN", ID), ("DECR stock", ":6"), ("SPACE.WRITE shop jobs {\"id\":2,\"n\":6}", ":2 :0")]);
    let sells = "local left = redis.call('decr', 'stock') redis.call('set', 'sold', ARGV[1]) \
                 local job = redis.call('space.take', 'shop', 'jobs', 'id', '2') \
                 redis.call('space.write', 'shop', 'jobs', '{\"id\":3,\"n\":7}') \
                 redis.call('ts.add', 'sold', '1700000000', '1') \
                 return {left, job[1], redis.call('space.count', 'shop', 'jobs', 'any')}";
    assert_eq!(one.eval(sells, &["x"]), ":5 {\"id\":2,\"n\":6} :2");
    one.check(&[("GET stock", "5"), ("GET sold", "x"), ("SPACE.COUNT shop jobs ANY", ":2")]);
    // What the script has locked stays locked, and nobody else sees any of it.
    other.check(&[("GET stock", "7"), ("EXISTS sold", ":0"), ("SPACE.COUNT shop jobs ANY", ":1")]);
    one.check(&[("TS.ADD sold 1700000001 2", ":1700000001000000000")]);
    let position = one.commit("TX.COMMIT");
    other.check(&[("GET stock", "5"), ("GET sold", "x"), ("SPACE.COUNT shop jobs ANY", ":2")]);
    let shown = other.ask("SPACE.READ shop jobs ID 3");
    assert_eq!(shown, format!("{{\"id\":3,\"n\":7}} :{position} nil"), "one batch");
    assert!(other.ask("TS.RANGE sold - +").contains("1700000000000000000"), "the script's point");
    assert!(other.ask("TS.RANGE sold - +").contains("1700000001000000000"), "and the one behind it");
}

#[test]
fn a_script_that_fails_rolls_the_transaction_back() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("SET text text", "+OK")]);
    for (script, refused) in [
        ("redis.call('set', 'a', '1') error('no')", "no"),
        ("redis.call('set', 'a', '1') return redis.error_reply('MY no')", "MY no"),
        ("redis.call('incr', 'text')", "not an integer"),
        ("return redis.call('flushall')", "FLUSHALL is not possible within a transaction"),
        ("return redis.call('space.iterate', 'shop', 'jobs', 'any')", "not allowed in a script"),
        ("while true do end", "it took longer than it may (script.time_milliseconds_max)"),
        ("return )", "compiling"),
    ] {
        one.check(&[("TX.BEGIN", ID), ("SET b 1", "+OK")]);
        let reply = one.eval(script, &[]);
        assert!(reply.starts_with('-') && reply.contains(refused), "{script}: {reply}");
        let over = one.ask("TX.COMMIT");
        assert!(over.starts_with("-EXECABORT"), "{script}: {over}");
        other.check(&[("EXISTS a b", ":0")]);
    }
    // What it catches itself, and what had changed nothing, is no failure.
    one.check(&[("TX.BEGIN", ID)]);
    let catches = "redis.call('set', 'a', '1') return redis.pcall('incr', 'text').err ~= nil";
    assert_eq!(one.eval(catches, &[]), ":1");
    one.commit("TX.COMMIT");
    other.check(&[("GET a", "1")]);
}

#[test]
fn a_script_within_a_transaction_waits_for_nobody() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    one.ask("SPACE.WRITE shop jobs {\"id\":1}");
    one.check(&[("TX.BEGIN", ID)]);
    one.ask("SPACE.TAKE shop jobs ID 1");
    other.check(&[("TX.BEGIN", ID)]);
    // Reading and taking find what is free.
    assert_eq!(other.eval("return redis.call('space.take', 'shop', 'jobs', 'any')", &[]), "nil");
    let refused = other.eval("return redis.call('space.write', 'shop', 'jobs', '{\"id\":1}')", &[]);
    assert!(refused.starts_with("-TIMEOUT a transaction has locked the entry"), "{refused}");
    other.check(&[("TX.ABORT", "+OK")]);
    one.check(&[("TX.ABORT", "+OK")]);
}

#[test]
fn a_function_and_a_script_by_its_hash_happen_within_a_strict_transaction() {
    let shop = shop(Order::Any);
    let mut one = shop.client();
    let library = "#!lua name=lib\nredis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)";
    one.send_words(&["FUNCTION", "LOAD", library]);
    assert_eq!(one.reply(), "lib");
    one.send_words(&["SCRIPT", "LOAD", "return redis.call('get', KEYS[1])"]);
    let sha = one.reply();
    let id = one.begin("TX.BEGIN STRICT");
    one.check(&[
        (&format!("TX.RUN {id} FCALL put 1 k v"), "+OK"),
        (&format!("TX.RUN {id} EVALSHA {sha} 1 k"), "v"),
        (&format!("TX.RUN {id} EVALSHA_RO {sha} 1 k"), "v"),
    ]);
    one.commit(&format!("TX.COMMIT ID {id}"));
    one.check(&[("GET k", "v")]);
}

/// The commit is as durable as the most careful command, also of those in a script.
#[test]
fn what_a_script_asks_for_counts_for_the_commit() {
    let shop = shop_with(Order::Any, |options| options.durability = Some(holdfast::Durability::Written));
    let mut one = shop.client();
    one.check(&[("TX.BEGIN", ID)]);
    one.eval("redis.call('kv.put', 'b', 'k', 'v', 'durability', 'synced')", &[]);
    let position = one.commit("TX.COMMIT");
    assert!(shop.store.watermarks().synced.get() > position);
}

/// What it shows is as durable as it asked for, as without a script.
#[test]
fn what_a_script_shows_is_as_durable_as_it_asks() {
    let shop = shop_with(Order::Any, |options| options.durability = Some(holdfast::Durability::Written));
    let mut one = shop.client();
    let written = one.ask("SPACE.WRITE shop jobs {\"id\":1} DURABILITY written");
    let position: u64 = written.rsplit(':').next().unwrap().parse().unwrap();
    one.check(&[("TX.BEGIN", ID)]);
    let shown = one.eval("return redis.call('space.read', 'shop', 'jobs', 'id', '1', 'durability', 'synced')", &[]);
    assert!(shown.starts_with("{\"id\":1}"), "{shown}");
    assert!(shop.store.watermarks().synced.get() > position);
}

#[test]
fn what_scripts_keep_for_the_commit_is_bounded_for_all_of_them() {
    let shop = shop_with(Order::Any, |options| options.limits.queue_bytes_max = 5_000);
    let mut one = shop.client();
    let adds = "for i = 1, 30 do redis.call('ts.add', 'some.series', tostring(1700000000 + i), '1') end";
    one.check(&[("TX.BEGIN", ID)]);
    let refused = (0..9).map(|_| one.eval(adds, &[])).find(|reply| reply != "nil");
    // Points take more than the commands that they came in.
    assert_eq!(refused.as_deref(), Some("-LIMIT the transaction holds too many bytes"));
    assert!(one.ask("TX.COMMIT").starts_with("-EXECABORT"));
    // Entries are counted once.
    let writes = "for i = 1, 8 do redis.call('space.write', 'shop', 'jobs', '{\"id\":' .. i .. ',\"text\":\"' .. ('x'):rep(150) .. '\"}') end";
    one.check(&[("TX.BEGIN", ID)]);
    assert_eq!(one.eval(writes, &[]), "nil");
    one.commit("TX.COMMIT");
}

/// The ids of a batch, and its cursor.
fn batch(reply: &str) -> (String, Vec<u64>) {
    let mut words = reply.split(' ');
    let cursor = words.next().unwrap().to_owned();
    let ids = words.filter_map(|word| word.strip_prefix("{\"id\":")?.split([',', '}']).next()?.parse().ok());
    (cursor, ids.collect())
}

#[test]
fn a_transaction_goes_through_entries_as_it_has_them_a_batch_at_a_time() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    (1..=20).for_each(|id| drop(one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":{id},\"n\":1}}"))));
    one.check(&[("TX.BEGIN ISOLATION COMMITTED", ID), ("SPACE.WRITE shop jobs {\"id\":30,\"n\":1}", ":30 :0")]);
    one.ask("SPACE.TAKE shop jobs ID 3");
    one.ask("SPACE.CHANGE shop jobs 4 SET n 2");
    let begin = one.ask("SPACE.ITERATE shop jobs TEMPLATE {\"n\":1} COUNT 7");
    let (mut cursor, mut ids) = batch(&begin);
    assert!(ids.len() == 7 && ids.contains(&30), "{begin}");
    // A cursor is of its transaction.
    let refused = "-ERR there is no such cursor any more, or it was used: begin anew";
    other.check(&[(&format!("SPACE.ITERATE shop jobs CURSOR {cursor}"), refused)]);
    // What it changes now is shown as it is by then, or not.
    let later: Vec<u64> = (5..=20).filter(|id| !ids.contains(id)).collect();
    one.ask(&format!("SPACE.TAKE shop jobs ID {}", later[0]));
    one.ask(&format!("SPACE.CHANGE shop jobs {} SET m 8", later[1]));
    while cursor != "0" {
        let reply = one.ask(&format!("SPACE.ITERATE shop jobs CURSOR {cursor} COUNT 4"));
        assert!(reply.contains("\"m\":8") == batch(&reply).1.contains(&later[1]), "{reply}");
        let found;
        (cursor, found) = batch(&reply);
        ids.extend(found);
    }
    ids.sort_unstable();
    let expected: Vec<u64> = (1..=20).chain([30]).filter(|id| ![3, 4, later[0]].contains(id)).collect();
    assert_eq!(ids, expected, "each once");
    one.check(&[("TX.ABORT", "+OK")]);
    // One from outside is none within.
    let outside = batch(&one.ask("SPACE.ITERATE shop jobs ANY COUNT 1")).0;
    one.check(&[("TX.BEGIN", ID), (&format!("SPACE.ITERATE shop jobs CURSOR {outside}"), refused)]);
}

#[test]
fn what_an_iteration_shows_is_locked_as_the_isolation_says() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    (1..=4).for_each(|id| drop(one.ask(&format!("SPACE.WRITE shop jobs {{\"id\":{id}}}"))));
    one.check(&[("TX.BEGIN ISOLATION EXCLUSIVE", ID)]);
    let (cursor, mine) = batch(&one.ask("SPACE.ITERATE shop jobs ANY COUNT 2"));
    assert_eq!(mine.len(), 2);
    // Others share out the rest.
    other.check(&[("TX.BEGIN ISOLATION EXCLUSIVE", ID)]);
    let (end, theirs) = batch(&other.ask("SPACE.ITERATE shop jobs ANY"));
    assert!(end == "0" && theirs.len() == 2 && !theirs.iter().any(|id| mine.contains(id)), "{mine:?} {theirs:?}");
    assert_eq!(batch(&one.ask(&format!("SPACE.ITERATE shop jobs CURSOR {cursor}"))), ("0".to_owned(), vec![]));
    other.check(&[("TX.ABORT", "+OK")]);
    one.check(&[("TX.ABORT", "+OK")]);
}

#[test]
fn a_script_within_a_transaction_that_takes_long_is_in_the_slow_log() {
    let shop = shop(Order::Any);
    let (mut one, mut other) = (shop.client(), shop.client());
    other.check(&[("CONFIG SET slowlog-log-slower-than 0", "+OK"), ("SLOWLOG RESET", "+OK")]);
    one.check(&[("TX.BEGIN", ID)]);
    let stopped = one.eval("while true do end", &["told"]);
    assert!(stopped.contains("script.time_milliseconds_max"), "{stopped}");
    let log = other.ask("SLOWLOG GET");
    assert_eq!(log.matches("EVAL while true do end 0 told").count(), 1, "{log}");
}
