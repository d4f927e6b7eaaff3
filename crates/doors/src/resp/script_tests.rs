//! Scripts against a real store: what they change, what they may not, and that they are all or nothing.
//!
//! May use: the fixture of `handle_tests.rs`. Must not know: sockets.

use std::sync::Arc;
use std::time::Duration;

use holdfast::Position;

use super::Fixture;
use crate::auth::{BucketRight, Right, User, Users};
use crate::resp::session::Need;

/// On a machine that has much else to do scripts that behave take long too.
fn patient() -> Fixture {
    Fixture::with(|options| options.script.time_max = Duration::from_secs(10))
}

impl Fixture {
    /// EVAL with a script in one piece, and keys and arguments behind it.
    fn eval(&mut self, script: &str, keys: &[&str], arguments: &[&str]) -> String {
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().chain(arguments).map(|word| word.as_bytes()));
        self.run_args(&words)
    }
}

#[test]
fn replies_are_those_of_redis() {
    let mut fixture = patient();
    for (script, expected) in [
        ("return 1", ":1"),
        ("return 'a'", "$1 a"),
        ("return {1, 2, {3, 'x'}}", "*3 :1 :2 *2 :3 $1 x"),
        ("return nil", "$-1"),
        ("return true", ":1"),
        ("return 3.7", ":3"),
        ("return {ok = 'YES'}", "+YES"),
        ("return {err = 'MY fault'}", "-MY fault"),
        ("return {double = 2.5}", "$3 2.5"),
        ("return {KEYS[1], KEYS[2], ARGV[1]}", "*3 $1 a $1 b $1 c"),
        ("return redis.call('set', KEYS[1], ARGV[1])", "+OK"),
        ("return redis.call('get', KEYS[1])", "$1 c"),
        ("return redis.call('get', 'nosuch')", "$-1"),
        ("return type(redis.call('get', 'nosuch'))", "$7 boolean"),
        ("return redis.call('nosuch')", "-ERR unknown command 'nosuch', with args beginning with: "),
        ("return redis.call('get')", "-ERR wrong number of arguments for 'get' command"),
        ("return redis.pcall('get').err", "$47 ERR wrong number of arguments for 'get' command"),
        ("error('x')", "-ERR script:1: x"),
        ("error({err = 'MY x'})", "-MY x"),
        (
            "return 1\0 2",
            "-ERR Error compiling script: script:1: a script has no NUL byte: in a text it is written \\0",
        ),
        ("return string.rep('x', 2^40)", "-ERR script:1: string.rep: the text would be too long"),
        ("return (", "-ERR Error compiling script: script:1: Expected identifier when parsing expression, got <eof>"),
    ] {
        assert_eq!(fixture.eval(script, &["a", "b"], &["c"]).trim_end(), expected.trim_end(), "{script}");
    }
    fixture.check(&[
        ("EVAL x y", "-ERR value is not an integer or out of range"),
        ("EVAL x", "-ERR wrong number of arguments for 'eval' command"),
        ("EVAL x y z", "-ERR value is not an integer or out of range"),
        ("EVAL x -1", "-ERR Number of keys can't be negative"),
        ("EVAL x 1", "-ERR Number of keys can't be greater than number of args"),
    ]);
    fixture.run("HELLO 3");
    assert_eq!(fixture.eval("return {map = {a = {double = 1.5}}}", &[], &[]), "%1 $1 a ,1.5");
    let resp3 = "redis.setresp(3) return redis.call('get', 'nosuch') == false";
    assert_eq!(fixture.eval(resp3, &[], &[]), ":1");
}

#[test]
fn scripts_are_remembered_by_their_hash() {
    let mut fixture = patient();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    assert_eq!(fixture.run(&format!("EVALSHA {sha} 0")), "-NOSCRIPT No matching script. Please use EVAL.");
    assert_eq!(fixture.run_args(&[b"SCRIPT", b"LOAD", b"return 1"]), format!("$40 {sha}"));
    assert_eq!(fixture.run(&format!("EVALSHA {} 0", sha.to_uppercase())), ":1");
    assert_eq!(fixture.run(&format!("EVALSHA_RO {sha} 0")), ":1");
    assert_eq!(fixture.run(&format!("SCRIPT EXISTS {sha} nosuch")), "*2 :1 :0");
    assert_eq!(fixture.run("SCRIPT FLUSH"), "+OK");
    assert_eq!(fixture.run("SCRIPT FLUSH SLOWLY"), "-ERR syntax error");
    assert_eq!(fixture.run(&format!("SCRIPT EXISTS {sha}")), "*1 :0");
    assert_eq!(fixture.eval("return 1", &[], &[]), ":1");
    assert_eq!(fixture.run(&format!("SCRIPT EXISTS {sha}")), "*1 :1");
    assert_eq!(fixture.run("SCRIPT KILL"), "-NOTBUSY No scripts in execution right now.");
    assert!(fixture.run_args(&[b"SCRIPT", b"LOAD", b"return ("]).starts_with("-ERR Error compiling script"));
}

#[test]
fn a_script_sees_what_it_wrote_and_is_one_batch() {
    let mut fixture = patient();
    let script = "redis.call('set', 'a', 1) redis.call('incrby', 'a', 41) redis.call('mset', 'b', 2, 'c', 3) \
                  redis.call('del', 'c') return {redis.call('get', 'a'), redis.call('exists', 'a', 'b', 'c')}";
    assert_eq!(fixture.eval(script, &[], &[]), "*2 $2 42 :2");
    let version = |fixture: &mut Fixture, key: &str| fixture.run(&format!("KV.HEAD db0 {key}"));
    let a = version(&mut fixture, "a");
    assert_eq!(a.split(' ').nth(2), version(&mut fixture, "b").split(' ').nth(2), "one position: {a}");
    // What it is told of its own commit is filled in when that is known.
    let reply = fixture.eval("return redis.call('kv.put', 'bucket', 'k', 'v')", &[], &[]);
    let head = fixture.run("KV.HEAD bucket k");
    let version = reply.split(' ').nth(1).unwrap();
    assert!(version.len() > 3 && head.contains(&format!("version {version}")), "{reply} {head}");
}

#[test]
fn a_script_that_fails_leaves_nothing() {
    let mut fixture = Fixture::with(|options| options.script.time_max = Duration::from_millis(500));
    let writes = "redis.call('set', KEYS[1], 'x') redis.call('kv.put', 'b', 'k', 'v') \
                  redis.call('ts.add', 'cpu', 1700000000, 1) redis.call('select', 3) redis.call('set', 'k', 'x') ";
    fixture.run("SPACE.DECLARE shop order");
    for end in [
        "error('late')",
        "redis.call('incr', KEYS[1])",
        "return redis.pcall('incr', KEYS[1])",
        "return redis.error_reply('OUT of stock')",
        "return redis.call('multi')",
        "while true do end",
        "return string.rep('x', 2^30)",
        "local t = {} t[1] = t return t",
        "redis.call('space.write', 'shop', 'nosuch', '{}')",
        "pcall(redis.call, 'space.write', 'shop', 'nosuch', '{}') return 1",
        "redis.call('space.write', 'shop', 'nosuch', 'no json') return 1",
    ] {
        let reply = fixture.eval(&format!("{writes} {end}"), &["k"], &[]);
        assert!(reply.starts_with('-'), "{end}: {reply}");
        fixture.check(&[
            ("EXISTS k", ":0"),
            ("KV.HEAD b k", "*-1"),
            ("TS.LAST cpu", "$-1"),
            ("DBSIZE", ":0"),
            ("SET own 1", "+OK"),
            ("DEL own", ":1"),
        ]);
    }
    // Afterwards all is as ever, in the same state of Luau and on the same connection.
    assert_eq!(fixture.eval(&format!("{writes} return 1"), &["k"], &[]), ":1");
    fixture.check(&[("GET k", "$1 x"), ("EXISTS k", ":1"), ("SELECT 3", "+OK"), ("GET k", "$1 x")]);
}

#[test]
fn an_error_that_may_show_what_was_read_waits_as_a_reply_does() {
    let mut fixture = patient();
    fixture.run("SET k secret");
    fixture.session.need = Need::NOTHING;
    assert_eq!(fixture.eval("error(redis.call('get', 'k'), 0)", &["k"], &[]), "-ERR secret");
    assert!(fixture.session.need.written > Position::ZERO);
    fixture.session.need = Need::NOTHING;
    assert_eq!(fixture.eval("for i = 1, 2e5 do end error(redis.call('get', 'k'), 0)", &["k"], &[]), "-ERR secret");
    assert!(fixture.session.need.written > Position::ZERO);
    fixture.session.need = Need::NOTHING;
    assert_eq!(fixture.eval("error('mine', 0)", &["k"], &[]), "-ERR mine");
    assert_eq!(fixture.session.need, Need::NOTHING);
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let mut fixture = patient();
    for command in [
        "multi",
        "exec",
        "discard",
        "watch",
        "eval",
        "evalsha",
        "script load x",
        "hello 3",
        "auth x",
        "quit",
        "reset",
        "client id",
        "config get x",
        "shutdown",
        "info",
        "kv.stats",
        "feed",
        "kv.fold",
        "kv.index b i x y",
        "backup",
        "space.listen s t any",
        "xa.begin",
        "xa.commit x branches 0",
        "waitaof 1 0 0",
        "space.iterate s t any",
        "fcall f 0",
        "function list",
    ] {
        let words: Vec<String> = command.split(' ').map(|word| format!("'{}'", word.trim_matches('\''))).collect();
        let reply = fixture.eval(&format!("return redis.call({})", words.join(",")), &[], &[]);
        assert!(reply.starts_with('-'), "{command}: {reply}");
        assert!(reply.contains("is not allowed in a script") || reply.contains("arguments"), "{command}: {reply}");
    }
    assert_eq!(fixture.eval("return redis.call('ping')", &[], &[]), "+PONG");
}

#[test]
fn who_may_only_read_does_so() {
    let mut fixture = patient();
    let refused = "-ERR Write commands are not allowed from read-only scripts.";
    fixture.run("SET k v");
    assert_eq!(fixture.run_args(&[b"EVAL_RO", b"return redis.call('get', 'k')", b"0"]), "$1 v");
    assert_eq!(fixture.run_args(&[b"EVAL_RO", b"return redis.call('set', 'k', 'w')", b"0"]), refused);
    let flagged = "#!lua flags=no-writes\nreturn redis.call('del', 'k')";
    assert_eq!(fixture.eval(flagged, &[], &[]), refused);
    assert_eq!(fixture.eval("#!lua\nreturn redis.call('del', 'k')", &[], &[]), ":1");
}

#[test]
fn every_call_is_checked_as_the_users() {
    let mut user = User::admin("ada", &crate::auth::hash_password(b"pw").unwrap());
    user.buckets = [("db0", Right::Write), ("seen", Right::Read)]
        .map(|(pattern, right)| BucketRight { pattern: pattern.to_owned(), right })
        .into();
    let users = Arc::new(Users::new([user]).unwrap());
    let mut fixture = Fixture::with(|options| options.users = users.clone());
    fixture.session.user = users.get("ada").cloned();
    assert_eq!(fixture.eval("return redis.call('set', 'k', 'v')", &["k"], &[]), "+OK");
    for script in [
        "return redis.call('kv.put', 'seen', 'k', 'v')",
        "redis.call('select', 1) return redis.call('get', 'k')",
        "return redis.call('flushall')",
        "return redis.call('space.write', 'shop', 'order', '{}')",
        "return redis.call('ts.add', 'cpu', '*', 1)",
    ] {
        let reply = fixture.eval(script, &[], &[]);
        assert!(reply.starts_with("-NOPERM"), "{script}: {reply}");
    }
    assert_eq!(fixture.eval("return redis.call('kv.get', 'seen', 'k')", &[], &[]), "$-1");
}

#[test]
fn keys_that_were_not_declared_are_locked_all_the_same() {
    let mut fixture = patient();
    let script = "redis.call('incr', KEYS[1]) for i = 1, 20 do redis.call('incr', 'other' .. i) end \
                  return #redis.call('keys', '*')";
    assert_eq!(fixture.eval(script, &["k"], &[]), ":21");
    fixture.check(&[("GET k", "$1 1"), ("GET other20", "$1 1")]);
    assert_eq!(fixture.eval(script, &["k"], &[]), ":21");
    fixture.check(&[("GET k", "$1 2"), ("GET other1", "$1 2")]);
}

#[test]
fn a_script_that_takes_longer_goes_to_a_thread_and_runs_once() {
    let mut fixture = Fixture::with(|options| options.script.time_max = Duration::from_secs(20));
    let script = "redis.call('incr', 'n') for i = 1, 2e5 do end redis.call('append', 'log', ARGV[1]) \
                  return redis.call('get', 'n')";
    for round in 1..=3 {
        assert_eq!(fixture.eval(script, &[], &["x"]), format!("$1 {round}"));
    }
    fixture.check(&[("GET n", "$1 3"), ("GET log", "$3 xxx")]);
    assert_eq!(fixture.session.last_write, fixture.door.store.watermarks().appended.min(fixture.session.last_write));
}

#[test]
fn limits_are_those_of_the_configuration() {
    let limited = |time_max: Duration| {
        Fixture::with(move |options| {
            options.script.time_max = time_max;
            options.script.memory_bytes_max = 1 << 20;
            options.script.steps_max = 100_000;
            options.limits.queue_bytes_max = 10_000;
        })
    };
    let check = |fixture: &mut Fixture, script: &str, part: &str| {
        let reply = fixture.eval(script, &[], &[]);
        let code = if part.starts_with("more than") { "-LIMIT " } else { "-ERR " };
        assert!(reply.starts_with(code) && reply.contains(part), "{script}: {reply}");
        assert_eq!(fixture.run("DBSIZE"), ":0");
    };
    let mut hurried = limited(Duration::from_micros(200));
    let too_long = "it took longer than it may (script.time_milliseconds_max)";
    check(&mut hurried, "while true do end", too_long);
    check(&mut hurried, "while true do redis.pcall('incr', 'n') end", too_long);
    let mut fixture = limited(Duration::from_secs(10));
    for (script, part) in [
        ("return ('x'):rep(2e6)", "more memory than the 1048576 bytes it may take (script.memory_bytes_max)"),
        ("redis.call('set', 'k', ('x'):rep(6000)) redis.call('set', 'l', ('x'):rep(6000))", "more than 10000 bytes"),
        ("redis.call('set', 'k', ('x'):rep(6000)) redis.call('copy', 'k', 'l')", "more than 10000 bytes"),
        ("redis.call('setrange', 'k', 500000, 'x')", "more than 10000 bytes"),
        ("redis.call('set', 'k', 1) while true do end", "it made more steps than it may (script.steps_max)"),
        ("while true do redis.pcall('incr', 'n') end", "it made more steps than it may (script.steps_max)"),
    ] {
        check(&mut fixture, script, part);
    }
    // Written over and over it is one value.
    assert_eq!(fixture.eval("for i = 1, 9 do redis.call('set', 'k', ('x'):rep(6000)) end", &[], &[]), "$-1");
    let long = format!("return '{}'", "x".repeat(300 << 10));
    assert!(fixture.eval(&long, &[], &[]).contains("the script has"), "a long text");
}

#[test]
fn inside_multi_a_script_joins_the_batch() {
    let mut fixture = patient();
    fixture.check(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED")]);
    fixture.eval("redis.call('incr', 'k') return redis.call('incr', 'l')", &[], &[]);
    fixture.check(&[("INCR k", "+QUEUED"), ("EXEC", "*3 +OK :1 :3")]);
    // One that only failed does not stop the others; one that had written does.
    fixture.check(&[("MULTI", "+OK"), ("SET k 10", "+QUEUED")]);
    fixture.eval("error('x')", &[], &[]);
    fixture.check(&[("EXEC", "*2 +OK -ERR script:1: x"), ("MULTI", "+OK"), ("SET k 20", "+QUEUED")]);
    fixture.eval("redis.call('set', 'l', 5) error('x')", &[], &[]);
    let reply = fixture.run("EXEC");
    assert!(reply.starts_with("-EXECABORT") && reply.contains("after it had written"), "{reply}");
    fixture.check(&[("GET k", "$2 10"), ("GET l", "$1 1")]);
    // A database that the script selected is no longer selected behind it.
    fixture.check(&[("MULTI", "+OK")]);
    fixture.eval("redis.call('select', 5) redis.call('set', 'k', 'five')", &[], &[]);
    fixture.check(&[("GET k", "+QUEUED"), ("EXEC", "*2 $-1 $2 10"), ("SELECT 5", "+OK"), ("GET k", "$4 five")]);
}

#[test]
fn all_scripts_of_one_exec_have_the_time_of_one() {
    let mut fixture = Fixture::with(|options| options.script.time_max = Duration::from_millis(50));
    fixture.run("MULTI");
    for _ in 0..100 {
        fixture.eval("while true do end", &[], &[]);
    }
    let before = std::time::Instant::now();
    let reply = fixture.run("EXEC");
    assert_eq!(reply.matches("it took longer").count(), 100, "{reply}");
    assert!(before.elapsed() < Duration::from_secs(3));
}

#[test]
fn an_entry_is_taken_and_another_written_in_one_script() {
    let mut fixture = patient();
    fixture.run_args(&[b"SPACE.DECLARE", b"shop", b"order"]);
    fixture.run_args(&[b"SPACE.WRITE", b"shop", b"order", br#"{"id":"1","state":"new","n":7}"#]);
    let script = r#"local order = redis.call('space.take', 'shop', 'order', 'template', '{"state":"new"}')
        if not order then return redis.error_reply('NONE left') end
        redis.call('space.write', 'shop', 'order', (order[1]:gsub('"new"', '"done"')))
        redis.call('incr', 'done')
        redis.call('ts.add', 'done,shop=a', 1700000000, 1)
        return redis.call('space.read', 'shop', 'order', 'id', '"1"')[1]"#;
    let reply = fixture.eval(script, &["done"], &[]);
    assert!(reply.contains(r#""state":"done""#) && reply.contains(r#""n":7"#), "{reply}");
    assert_eq!(fixture.eval(script, &["done"], &[]), "-NONE left");
    fixture.check(&[("GET done", "$1 1"), ("TS.LAST done,shop=a", "*2 :1700000000000000000 :1")]);
    assert!(fixture.run("SPACE.COUNT shop order ANY").starts_with(":1"));
}

const LIBRARY: &str = "#!luau name=stock
local function take(keys, args)
    if tonumber(redis.call('get', keys[1]) or 0) < tonumber(args[1]) then
        return redis.error_reply('OUT of stock')
    end
    return redis.call('decrby', keys[1], args[1])
end
redis.register_function('take', take)
redis.register_function{function_name = 'left', callback = function(keys) return redis.call('get', keys[1]) end, flags = {'no-writes'}}
redis.register_function{function_name = 'sneaky', callback = take, flags = {'no-writes'}}
";

#[test]
fn functions_are_kept_by_name() {
    let mut fixture = patient();
    let load = |fixture: &mut Fixture, text: &str| fixture.run_args(&[b"FUNCTION", b"LOAD", text.as_bytes()]);
    assert_eq!(load(&mut fixture, LIBRARY), "$5 stock");
    assert_eq!(load(&mut fixture, LIBRARY), "-ERR Library 'stock' already exists");
    let other = LIBRARY.replace("stock\n", "other\n");
    assert_eq!(load(&mut fixture, &other), "-ERR Function left already exists");
    assert_eq!(fixture.run_args(&[b"FUNCTION", b"LOAD", b"REPLACE", LIBRARY.as_bytes()]), "$5 stock");
    fixture.check(&[
        ("SET apples 5", "+OK"),
        ("FCALL take 1 apples 3", ":2"),
        ("FCALL take 1 apples 3", "-OUT of stock"),
        ("FCALL left 1 apples", "$1 2"),
        ("FCALL_RO left 1 apples", "$1 2"),
        ("FCALL_RO take 1 apples 1", "-ERR Write commands are not allowed from read-only scripts."),
        ("FCALL sneaky 1 apples 1", "-ERR Write commands are not allowed from read-only scripts."),
        ("FCALL nosuch 0", "-ERR Function not found"),
        ("FCALL take 1", "-ERR Number of keys can't be greater than number of args"),
        ("MULTI", "+OK"),
        ("FCALL take 1 apples 1", "+QUEUED"),
        ("GET apples", "+QUEUED"),
        ("EXEC", "*2 :1 $1 1"),
        ("FUNCTION LIST LIBRARYNAME x*", "*0"),
        ("FUNCTION DELETE nosuch", "-ERR Library not found"),
        ("FUNCTION STATS", "-ERR unknown subcommand 'STATS'. Try FUNCTION HELP."),
    ]);
    let list = fixture.run("FUNCTION LIST WITHCODE LIBRARYNAME st*");
    for part in
        ["$12 library_name $5 stock", "$4 name $4 left", "*1 $9 no-writes", "$12 library_code", "#!luau name=stock"]
    {
        assert!(list.contains(part), "{part}: {list}");
    }
    // Another door over the same store finds them, as one does after a restart.
    let again =
        crate::resp::door::Door::new(fixture.door.store.clone(), fixture.door.options.clone(), fixture.door.address);
    assert!(again.functions.table().function("take").is_some());
    fixture.check(&[("FUNCTION DELETE stock", "+OK"), ("FCALL take 1 apples 1", "-ERR Function not found")]);
    assert_eq!(load(&mut fixture, LIBRARY), "$5 stock");
    fixture.check(&[("FUNCTION FLUSH", "+OK"), ("FUNCTION LIST", "*0"), ("KEYS *", "*1 $6 apples")]);
    assert!(fixture.door.store.libraries().list().unwrap().is_empty());
}

#[test]
fn a_library_that_is_wrong_is_refused_with_the_reason() {
    let mut fixture = Fixture::with(|options| options.limits.libraries_max = 1);
    for (text, part) in [
        ("return 1", "Missing library metadata"),
        ("#!luau\nreturn 1", "Missing library metadata"),
        ("#!python name=x\n", "there is no engine 'python'"),
        ("#!lua name=x\nreturn (", "Error compiling script: library:2:"),
        ("#!lua name=x\nreturn 1", "registers no function"),
        ("#!lua name=x\nwhile true do end", "it took longer than it may"),
        ("#!lua name=x\nredis.call('set', 'k', 1)", "can only register functions"),
    ] {
        let reply = fixture.run_args(&[b"FUNCTION", b"LOAD", text.as_bytes()]);
        assert!(reply.starts_with("-ERR") && reply.contains(part), "{text}: {reply}");
    }
    let of = |name: &str| format!("#!lua name={name}\nredis.register_function('{name}', function() end)");
    assert_eq!(fixture.run_args(&[b"FUNCTION", b"LOAD", of("a").as_bytes()]), "$1 a");
    assert!(fixture.run_args(&[b"FUNCTION", b"LOAD", of("b").as_bytes()]).contains("no more may be"));
    assert_eq!(fixture.run("FUNCTION LOAD a b c"), "-ERR syntax error");
}

#[test]
fn entries_are_counted_changed_and_cleared_in_the_batch_of_a_script() {
    let mut fixture = patient();
    fixture.run("SPACE.DECLARE shop order");
    for id in 1..=5 {
        let document = format!("{{\"id\":{id},\"n\":{id},\"state\":\"new\"}}");
        fixture.run_args(&[b"SPACE.WRITE", b"shop", b"order", document.as_bytes()]);
    }
    let script = "
        local all = redis.call('SPACE.COUNT', 'shop', 'order', 'ANY')
        redis.call('SPACE.CHANGE', 'shop', 'order', '1', 'INCR', 'n', '10')
        redis.call('SPACE.WRITE', 'shop', 'order', '{\"id\":6,\"n\":0}')
        local small = redis.call('SPACE.CLEAR', 'shop', 'order', 'WHERE', 'n < ?', '1', '4')
        return {all, small, redis.call('SPACE.COUNT', 'shop', 'order', 'ANY')}";
    // Cleared: 2, 3 and the one that the script has written; 1 has grown by then.
    assert_eq!(fixture.eval(script, &[], &[]), "*3 :5 :3 :3");
    for (id, found) in [(1, "*3"), (2, "*-1"), (3, "*-1"), (4, "*3"), (5, "*3"), (6, "*-1")] {
        let reply = fixture.run(&format!("SPACE.READ shop order ID {id}"));
        assert!(reply.starts_with(found) || reply.starts_with('$') == (found == "*-1"), "{id}: {reply}");
    }
    assert!(fixture.run("SPACE.READ shop order ID 1").contains("\"n\":11"));
    // By its id, what is there and was written too counts once, and what was taken not at all.
    let by_id = "
        redis.call('SPACE.WRITE', 'shop', 'order', '{\"id\":1,\"n\":11}')
        redis.call('SPACE.TAKE', 'shop', 'order', 'ID', '4')
        local once = redis.call('SPACE.CLEAR', 'shop', 'order', 'ID', '1')
        local gone = redis.call('SPACE.CLEAR', 'shop', 'order', 'ID', '4')
        return redis.error_reply('CLEARED ' .. once .. ' ' .. gone)";
    assert_eq!(fixture.eval(by_id, &[], &[]), "-CLEARED 1 0");
    // What fails afterwards takes it all back.
    let failing = "redis.call('SPACE.CLEAR', 'shop', 'order', 'ANY') return redis.error_reply('MY no')";
    assert_eq!(fixture.eval(failing, &[], &[]), "-MY no");
    assert!(fixture.run("SPACE.COUNT shop order ANY").starts_with(":3"));
    assert_eq!(
        fixture.eval("return redis.call('SPACE.CLEAR', 'shop', 'order', 'WHERE', 'n > 0 LIMIT 2', '0')", &[], &[]),
        ":2"
    );
}

#[test]
fn a_script_asks_changes_and_renews_many_and_reads_documents() {
    let mut fixture = patient();
    fixture.run("SPACE.DECLARE shop order LEASE 100000");
    for id in 1..=4 {
        let document = format!("{{\"id\":{id},\"n\":{id},\"tags\":[]}}");
        fixture.run_args(&[b"SPACE.WRITE", b"shop", b"order", document.as_bytes()]);
    }
    let script = "
        local changed = redis.call('SPACE.MCHANGE', 'shop', 'order', 'WHERE', 'n > ?', '1', '2', 'INCR', 'n', '10')
        local sql = 'SELECT count(*) AS many, sum(n) AS sum FROM order'
        local figures = cjson.decode(redis.call('SPACE.SELECT', 'shop', 'order', sql, '0')[1])
        local renewed = redis.call('SPACE.RENEW', 'shop', 'order', '1', 'LEASE', 'FOREVER')
        for _, entry in redis.call('SPACE.MREAD', 'shop', 'order', 'WHERE', 'n > 10 ORDER BY id', '0') do
            local document = cjson.decode(entry[1])
            document.tags[1] = 'large'
            redis.call('SPACE.WRITE', 'shop', 'order', cjson.encode(document))
        end
        return {changed, figures.many, figures.sum, renewed}";
    assert_eq!(fixture.eval(script, &[], &[]), "*4 :2 :4 :30 :1");
    assert!(fixture.run("SPACE.READ shop order ID 4").contains(r#"{"id":4,"n":14,"tags":["large"]}"#));
    assert!(fixture.run("SPACE.READ shop order ID 2").contains(r#"{"id":2,"n":2,"tags":[]}"#));
    assert!(fixture.run("SPACE.READ shop order ID 1").ends_with(" $-1"), "it is renewed");
    // An id that the store has made is no double.
    fixture.run(r#"SPACE.WRITE shop order {"n":100}"#);
    let again = "
        local entry = redis.call('SPACE.READ', 'shop', 'order', 'WHERE', 'n = 100', '0')
        local document = cjson.decode(entry[1])
        document.seen = true
        redis.call('SPACE.WRITE', 'shop', 'order', cjson.encode(document), 'UPDATE')
        return redis.call('SPACE.READ', 'shop', 'order', 'ID', document.id)[1]";
    assert!(fixture.eval(again, &[], &[]).contains(r#""n":100,"seen":true"#));
    assert_eq!(fixture.run("SPACE.COUNT shop order ANY"), ":5");
    // What fails afterwards takes it all back.
    let failing =
        "redis.call('SPACE.MCHANGE', 'shop', 'order', 'ANY', 'SET', 'n', '0') return redis.error_reply('MY no')";
    assert_eq!(fixture.eval(failing, &[], &[]), "-MY no");
    assert!(fixture.run("SPACE.READ shop order ID 4").contains("\"n\":14"));
    let refused = fixture.eval("return redis.call('SPACE.ITERATE', 'shop', 'order', 'ANY')", &[], &[]);
    assert!(refused.contains("SPACE.ITERATE is not allowed in a script"), "{refused}");
}

/// A query had its own minute while it kept what the script had locked.
#[test]
fn a_query_has_no_more_time_than_its_script() {
    let mut fixture = Fixture::with(|options| options.script.time_max = Duration::from_millis(30));
    fixture.run("SPACE.DECLARE shop order");
    let text = "a".repeat(2_000);
    for id in 0..500 {
        let document = format!("{{\"id\":{id},\"text\":\"{text}\"}}");
        fixture.run_args(&[b"SPACE.WRITE", b"shop", b"order", document.as_bytes()]);
    }
    let script = "return redis.call('SPACE.SELECT', 'shop', 'order', ARGV[1], '0')";
    let slow = format!("SELECT count(*) AS n FROM order WHERE {}", vec!["text LIKE '%a%a%a%a%b%'"; 200].join(" OR "));
    let began = std::time::Instant::now();
    let ended = fixture.eval(script, &[], &[&slow]);
    assert!(ended.starts_with('-') && began.elapsed() < Duration::from_secs(5), "{ended} {:?}", began.elapsed());
    assert!(fixture.eval(script, &[], &["id = 7"]).contains("\"id\":7"));
}

#[test]
fn a_transaction_clears_no_more_than_it_may_hold() {
    let mut fixture = Fixture::with(|options| {
        options.script.time_max = Duration::from_secs(10);
        options.limits.space_entries_max = 3;
    });
    fixture.run("SPACE.DECLARE shop order");
    for id in 0..4 {
        let document = format!("{{\"id\":{id}}}");
        fixture.run_args(&[b"SPACE.WRITE", b"shop", b"order", document.as_bytes()]);
    }
    let clear = "return redis.call('SPACE.CLEAR', 'shop', 'order', 'ANY')";
    let refused = fixture.eval(clear, &[], &[]);
    assert!(refused.starts_with("-LIMIT more than 3 entries match"), "{refused}");
    assert!(fixture.run("SPACE.COUNT shop order ANY").starts_with(":4"));
    fixture.run("SPACE.TAKE shop order ID 0");
    assert_eq!(fixture.eval(clear, &[], &[]), ":3");
}

#[test]
fn time_series_are_read_by_scripts() {
    let mut fixture = patient();
    fixture.run("TS.MADD cpu,host=a 1700000000 1.5 cpu,host=a 1700000010 2.5");
    for (script, expected) in [
        ("return redis.call('TS.LAST', 'cpu,host=a')[1]", ":1700000010000000000"),
        ("return redis.call('TS.LAST', 'cpu,host=b')", "$-1"),
        ("return #redis.call('TS.RANGE', 'cpu,host=a', '-', '+')", ":2"),
        ("return redis.call('TS.QUERY', 'sum(cpu)', 'AT', '1700000015')[1][2][1][2]", "$3 2.5"),
        ("return redis.pcall('TS.QUERY', 'sum(').err and 1", ":1"),
    ] {
        assert_eq!(fixture.eval(script, &[], &[]), expected, "{script}");
    }
    // What a script reads decides what it writes, in one batch.
    let copy = "local last = redis.call('TS.LAST', 'cpu,host=a')
        redis.call('SET', 'newest', last[2])
        redis.call('TS.ADD', 'copy', '1700000020', last[2])
        return redis.pcall('TS.LAST', 'copy').err";
    let said = fixture.eval(copy, &["newest"], &[]);
    assert!(said.contains("TS.LAST does not see points of the same transaction"), "{said}");
    fixture.check(&[("GET newest", "$3 2.5"), ("TS.LAST copy", "*2 :1700000020000000000 $3 2.5")]);
    // Inside MULTI too.
    fixture.run("MULTI");
    fixture.run("TS.RANGE cpu,host=a 1700000005 +");
    assert_eq!(fixture.run("EXEC"), "*1 *1 *2 :1700000010000000000 $3 2.5");
}

#[test]
fn distributed_transactions_are_refused_with_a_reason() {
    let mut fixture = patient();
    for call in ["'xa.begin'", "'xa.commit', 'x', 'branches', '0'", "'xa.status', 'x'"] {
        let refused = fixture.eval(&format!("return redis.call({call})"), &[], &[]);
        assert!(refused.contains("is not allowed in a script: a script is one batch of this store"), "{refused}");
    }
}

#[test]
fn compiling_takes_of_a_scripts_time() {
    let mut fixture = Fixture::with(|options| options.script.time_max = Duration::from_nanos(1));
    let refused = fixture.eval("return 1", &[], &[]);
    assert!(refused.contains("it took longer than it may (script.time_milliseconds_max)"), "{refused}");
    assert_eq!(fixture.run_args(&[b"SCRIPT", b"EXISTS", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"]), "*1 :1");
}

/// Whatever took longer than a moment went on in a thread, of which the slow log was not told.
#[test]
fn a_script_that_takes_long_is_in_the_slow_log_once() {
    let mut fixture = patient();
    fixture.check(&[("CONFIG SET slowlog-log-slower-than 1000", "+OK"), ("SLOWLOG RESET", "+OK")]);
    let busy = "for i = 1, 3e6 do end return ARGV[1]";
    assert_eq!(fixture.eval(busy, &[], &["a"]), "$1 a");
    let log = fixture.run("SLOWLOG GET");
    assert!(log.starts_with("*1 ") && log.contains(&format!("${} {busy} $1 0 $1 a", busy.len())), "{log}");
}
