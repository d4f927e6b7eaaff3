//! Scripts that behave and scripts that do not.
//!
//! May use: everything. Must not know: nothing.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// Answers a command with its own arguments, or with what its name says.
#[derive(Default)]
struct Echo {
    calls: Vec<Vec<Vec<u8>>>,
    lines: Vec<(u8, String)>,
    protocol: u8,
    answer: Option<Value>,
}

impl Host for Echo {
    fn call(&mut self, arguments: &[Vec<u8>]) -> Value {
        self.calls.push(arguments.to_vec());
        if let Some(answer) = &self.answer {
            return answer.clone();
        }
        match arguments[0].as_slice() {
            b"fail" => Value::Error(b"WRONG it failed".to_vec()),
            b"nothing" => Value::Nil,
            b"position" => Value::CommitPosition,
            _ => Value::Array(arguments.iter().cloned().map(Value::Text).collect()),
        }
    }

    fn set_protocol(&mut self, version: u8) {
        self.protocol = version;
    }

    fn log(&mut self, level: u8, text: &str) {
        self.lines.push((level, text.to_owned()));
    }
}

fn soon() -> Watch {
    let end = Instant::now() + Duration::from_millis(100);
    Box::new(move || (Instant::now() > end).then_some(Stop::Time))
}

fn run_in(sandbox: &mut Sandbox, host: &mut Echo, source: &str) -> Result<Value, ScriptError> {
    let limits = Limits { memory_bytes_max: 4 << 20, ..Limits::default() };
    let script = Script::compile("script", source.as_bytes(), &limits)?;
    let run = Run {
        script: &script,
        entry: Entry::Text,
        keys: &[b"k1", b"k\0\xff2"],
        arguments: &[b"a1"],
        seed: 1,
        limits: &limits,
    };
    sandbox.run(&run, soon(), host)
}

fn run(source: &str) -> Result<Value, ScriptError> {
    run_in(&mut Sandbox::new().unwrap(), &mut Echo::default(), source)
}

fn text(text: &str) -> Value {
    Value::Text(text.as_bytes().to_vec())
}

/// Both were nil, and what scripts for Redis did with them failed without a word of them.
#[test]
fn what_scripts_of_redis_have_besides_is_there_or_named() {
    let source =
        "redis.set_repl(redis.REPL_ALL) redis.debug('x') return redis.replicate_commands() and not redis.breakpoint()";
    assert_eq!(run(source), Ok(Value::Integer(1)));
    for name in ["cmsgpack", "struct", "bit"] {
        let failed = run(&format!("local n = 1\nreturn {name}.pack(n)")).unwrap_err().to_string();
        let wanted = format!("script:2: {name} of Redis' scripts is not here: docs/concepts/scripts.md says what is");
        assert_eq!(failed, wanted);
    }
    assert!(run("redis.set_repl(4)").unwrap_err().to_string().contains("set_repl takes"));
}

#[test]
fn values_are_converted_as_redis_does() {
    let array = |values: &[i64]| Value::Array(values.iter().map(|value| Value::Integer(*value)).collect());
    for (source, expected) in [
        ("return 1", Value::Integer(1)),
        ("return 3.99", Value::Integer(3)),
        ("return -3.99", Value::Integer(-3)),
        ("return 0/0", Value::Integer(0)),
        ("return 1/0", Value::Integer(i64::MAX)),
        ("return 'x\\0y'", Value::Text(b"x\0y".to_vec())),
        ("return true", Value::Integer(1)),
        ("return false", Value::Nil),
        ("return nil", Value::Nil),
        ("return", Value::Nil),
        ("", Value::Nil),
        ("return {1, 2, nil, 4}", array(&[1, 2])),
        ("return {}", array(&[])),
        ("return {ok = 'FINE'}", Value::Status(b"FINE".to_vec())),
        ("return redis.status_reply('FINE')", Value::Status(b"FINE".to_vec())),
        ("return {err = 'MY error'}", Value::Error(b"MY error".to_vec())),
        ("return redis.error_reply('MY error')", Value::Error(b"MY error".to_vec())),
        ("return {double = 1.5}", Value::Double(1.5)),
        ("return {map = {a = 1}}", Value::Map(vec![(text("a"), Value::Integer(1))])),
        ("return {set = {a = true}}", Value::Set(vec![text("a")])),
        ("return rawget(_G, 'print') == nil and function() end", Value::Nil),
        ("return KEYS[2]", Value::Text(b"k\0\xff2".to_vec())),
        ("return ARGV[1] .. #KEYS .. #ARGV", text("a121")),
        ("return redis.sha1hex('')", text("da39a3ee5e6b4b0d3255bfef95601890afd80709")),
        ("return holdfast.call('position')", Value::CommitPosition),
        ("return {redis.COMMIT_POSITION}", Value::Array(vec![Value::CommitPosition])),
        ("return 1, 2, 3", Value::Integer(1)),
    ] {
        assert_eq!(run(source), Ok(expected), "{source}");
    }
}

#[test]
fn commands_are_called_and_their_errors_are_raised_or_returned() {
    let mut sandbox = Sandbox::new().unwrap();
    let mut host = Echo::default();
    let mut go = |source: &str| run_in(&mut sandbox, &mut host, source);
    assert_eq!(go("return redis.call('get', 'x', 1, 1.5, 1e300)[5]"), Ok(text("1e300")));
    assert_eq!(go("return redis.call('nothing') == false"), Ok(Value::Integer(1)));
    assert_eq!(go("redis.call('fail'); return 1"), Err(ScriptError::Raised { text: "WRONG it failed".to_owned() }));
    assert_eq!(go("return redis.pcall('fail').err"), Ok(text("WRONG it failed")));
    assert_eq!(go("return redis.pcall('fail')"), Ok(Value::Error(b"WRONG it failed".to_vec())));
    assert_eq!(go("local ok, e = pcall(redis.call, 'fail'); return e.err"), Ok(text("WRONG it failed")));
    assert!(matches!(go("return redis.call()"), Err(ScriptError::Raised { text }) if text.contains("at least")));
    assert!(
        matches!(go("return redis.call('get', {})"), Err(ScriptError::Raised { text }) if text.contains("numbers"))
    );
    assert_eq!(go("redis.log(redis.LOG_WARNING, 'a', 1, nil) redis.setresp(3)"), Ok(Value::Nil));
    assert!(go("redis.setresp(4)").is_err());
    assert!(go("redis.log('x')").is_err());
    assert_eq!(host.lines, [(3, "a 1 nil".to_owned())]);
    assert_eq!(host.protocol, 3);
    assert_eq!(host.calls[0], [b"get".as_slice(), b"x", b"1", b"1.5", b"1e300"]);
}

#[test]
fn errors_name_their_line_and_are_short() {
    let failed = |source: &str| run(source).unwrap_err().to_string();
    assert_eq!(failed("\n\nerror('gone')"), "script:3: gone");
    assert!(failed("return nil + 1").starts_with("script:1: attempt to perform arithmetic"));
    assert!(failed("return (").contains(":1:"));
    assert_eq!(failed("error({err = 'MY text'})"), "MY text");
    assert!(failed("error({})").contains("a table without the text"));
    assert!(failed("error(setmetatable({}, {__tostring = function() while true do end end}))").contains("a table"));
    assert!(failed("error(nil)").contains("raised a nil"));
    assert!(failed("error(7)").contains('7'));
    assert!(failed("error(('x'):rep(1e6))").len() < 1100);
    assert!(!failed("error('a\\r\\nb')").contains('\n'));
}

#[test]
fn what_leads_out_is_not_there() {
    for name in [
        "io",
        "os",
        "debug",
        "package",
        "require",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "getfenv",
        "setfenv",
        "collectgarbage",
        "gcinfo",
        "newproxy",
        "print",
        "module",
        "rawlen2",
        "shared",
        "vector",
    ] {
        let wanted = format!("script:2: Script attempted to access nonexistent global variable '{name}'");
        assert_eq!(run(&format!("local n = 1\nreturn {name}")).unwrap_err().to_string(), wanted);
    }
    for source in [
        "string.rep = nil",
        "table.insert = tostring",
        "math.pi = 3",
        "redis.call = nil",
        "holdfast.x = 1",
        "rawset(string, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "getmetatable('').__index = nil",
        "getmetatable('').x = 1",
        "setmetatable(string, {})",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index.x = 1",
        "rawset(getmetatable('').__index, 'x', 1)",
        "redis.COMMIT_POSITION.x = 1",
        "require('fs')",
        "string.dump(function() end)",
        "coroutine.close(coroutine.running())",
    ] {
        assert!(run(source).is_err(), "{source}");
    }
}

#[test]
fn nothing_leaks_from_one_run_to_the_next() {
    let mut sandbox = Sandbox::new().unwrap();
    let mut host = Echo::default();
    let mut go = |source: &str| run_in(&mut sandbox, &mut host, source);
    go("x = 1; _G.y = 2; KEYS[1] = 'z'; rawset(_G, 'tostring', nil); string2 = string; ok = 1").unwrap();
    let clean = "for _, name in {'x', 'y', 'string2'} do assert(rawget(_G, name) == nil) end
        return KEYS[1] == 'k1' and tostring ~= nil";
    assert_eq!(go(clean), Ok(Value::Integer(1)));
    let random = "return tostring(math.random()) .. tostring(math.random(1000))";
    let first = go(random).unwrap();
    go("math.randomseed(99)").unwrap();
    assert_eq!(go(random).unwrap(), first);
    // A coroutine that was left hanging is not there either, and its host has ended.
    go("hang = coroutine.create(function() coroutine.yield() redis.call('late') end) coroutine.resume(hang)").unwrap();
    assert_eq!(go("return rawget(_G, 'hang')"), Ok(Value::Nil));
    assert!(!sandbox.is_spent());
}

#[test]
fn nothing_leaks_from_one_run_of_a_text_to_its_next() {
    let source = "
        seen = (rawget(_G, 'seen') or 0) + 1
        local last = rawget(_G, 'kept')
        kept = function() return KEYS[1] .. seen end
        local function inner() return (function() return kept() .. #ARGV .. tostring(_G.kept == kept) end)() end
        redis.sha1hex = nil
        return inner() .. tostring(last)";
    let limits = Limits::default();
    // It fails at a table that is frozen, each time.
    let failing = Script::compile("script", source.as_bytes(), &limits).unwrap();
    let script = Script::compile("script", source.replace("redis.sha1hex = nil", "").as_bytes(), &limits).unwrap();
    let padding = format!("return '{}'", "x".repeat(40 << 10));
    let others: Vec<Script> = (0..4).map(|_| Script::compile("script", padding.as_bytes(), &limits).unwrap()).collect();
    let mut sandbox = Sandbox::new().unwrap();
    let mut host = Echo::default();
    let mut go = |script: &Script, key: &[u8], arguments: &[&[u8]]| {
        let keys = &[key];
        let run = Run { script, entry: Entry::Text, keys, arguments, seed: 1, limits: &limits };
        sandbox.run(&run, soon(), &mut host)
    };
    for round in 0..3 {
        assert_eq!(go(&script, b"a", &[]), Ok(text("a10truenil")), "{round}");
        assert!(matches!(go(&failing, b"f", &[]), Err(ScriptError::Failed { .. })), "{round}");
        assert_eq!(go(&script, b"b", &[b"1", b"2"]), Ok(text("b12truenil")), "{round}");
        // More than is kept loaded.
        for other in &others {
            assert!(matches!(go(other, b"k", &[]), Ok(Value::Text(text)) if text.len() == 40 << 10));
        }
    }
    assert!(!sandbox.is_spent());
}

/// A run that has to end by the watch, and soon.
fn stopped(source: &str) {
    let mut sandbox = Sandbox::new().unwrap();
    let before = Instant::now();
    let ran = run_in(&mut sandbox, &mut Echo::default(), source);
    assert_eq!(ran, Err(ScriptError::Stopped(Stop::Time)), "{source}");
    assert!(before.elapsed() < Duration::from_secs(10), "{source} took {:?}", before.elapsed());
    assert!(sandbox.is_spent());
}

#[test]
fn what_never_ends_is_ended() {
    for source in [
        "while true do end",
        "repeat until false",
        "for i = 1, math.huge do end",
        "while true do pcall(error) end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) f() end pcall(f) while true do end",
        "while true do xpcall(error, function() while true do end end) end",
        "pcall(function() while true do end end) return 1",
        "while true do redis.pcall('x') end",
        "while true do local co = coroutine.wrap(function() while true do coroutine.yield() end end) co() co() end",
        "local co = coroutine.create(function() while true do end end) coroutine.resume(co) return 1",
        "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
        "local s = ('a'):rep(30) return s:find(('a*'):rep(30) .. 'b')",
        "local s = ('a'):rep(200) return s:match('(.-)(.-)(.-)(.-)(.-)(.-)b')",
        "return (('a'):rep(1000)):gsub(('a?'):rep(25) .. 'b', '')",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t, function(a, b) return a < b end) end",
        "local a, b = ('x'):rep(2e5) .. '1', ('x'):rep(2e5) .. '2' local t = {} \
         for i = 1, 1e5 do t[i] = i % 2 == 0 and a or b end table.sort(t) return 1",
        "local t = table.create(1000, 'x') while true do table.concat(t) end",
        "for i in function() return 1 end do end",
        "local s, p = ('a'):rep(20000), ('a'):rep(10000) .. 'b' while true do s:find(p, 1, true) end",
    ] {
        stopped(source);
    }
}

#[test]
fn one_call_into_c_does_not_take_long() {
    for source in [
        "table.move({}, 1, 2^31 - 2, 1)",
        "table.move({}, -2^30, 2^30, 1)",
        "table.move({}, 0/0, 0/0, 1)",
        "local s = ('a'):rep(1e6) return s:find(('a'):rep(5e5) .. 'b', 1, true)",
        "local s = ('a'):rep(1e6) return s:find('[' .. ('b'):rep(5e5) .. ']*a')",
        "return #string.split(('a'):rep(1e6), ('a'):rep(5e5) .. 'b')",
        "return string.rep('', 2^31 - 1) .. string.rep('x', 2^31 - 1)",
        "return table.unpack({}, 1, 1e8)",
        "return table.concat({}, 'x', 1, 2^31 - 1)",
        "return string.format('%99999999d', 1)",
        "return table.create(2^30)",
        "return buffer.create(2^30)",
        "return select(-2^31, 1)",
    ] {
        let before = Instant::now();
        let ran = run(source);
        assert!(before.elapsed() < Duration::from_secs(5), "{source} took {:?}", before.elapsed());
        assert!(ran.is_err(), "{source}: {ran:?}");
    }
}

#[test]
fn what_takes_all_memory_is_refused() {
    for source in [
        "return string.rep('x', 2^30)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        "local t = {} while true do t[#t + 1] = buffer.create(1000) end",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "local s = ('x'):rep(1e6) local t = table.create(100, s) return table.concat(t)",
        "return (('x'):rep(1e5):gsub('x', ('y'):rep(1e5)))",
    ] {
        let mut sandbox = Sandbox::new().unwrap();
        let ran = run_in(&mut sandbox, &mut Echo::default(), source);
        let (memory, time) = (ScriptError::Memory { bytes_max: 4 << 20 }, ScriptError::Stopped(Stop::Time));
        assert!(ran == Err(memory) || ran == Err(time), "{source}: {ran:?}");
        assert!(sandbox.is_spent());
    }
    // Who catches it may go on, with what there is.
    assert_eq!(run("pcall(string.rep, 'x', 2^30) return 1"), Ok(Value::Integer(1)));
}

#[test]
fn what_goes_too_deep_is_refused() {
    for source in [
        "local function f() return 1 + f() end return f()",
        "local function f() return pcall(f) and f() end local ok = f() error('out')",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "local f = function() end for i = 1, 1e5 do local g = f f = function() return 1 + (g() or 0) end end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "return ('x'):gsub('x', function() return (('x'):gsub('x', error)) end)",
        "return (('('):rep(1000) .. ('a'):rep(1000)):match(('('):rep(1000))",
    ] {
        assert!(run(source).is_err(), "{source}");
    }
}

#[test]
fn replies_are_bounded() {
    let limits = Limits { memory_bytes_max: 4 << 20, ..Limits::tiny() };
    for (source, part) in [
        ("local t = {} t[1] = t return t", "nested too deeply"),
        ("local t = {} for i = 1, 9 do t = {t} end return t", "nested too deeply"),
        ("local t = {} for i = 1, 200 do t[i] = i end return t", "too many elements"),
        ("local t = {1} for i = 1, 6 do t = {t, t, t, t, t, t, t, t} end return t", "too many elements"),
        ("local s = ('x'):rep(100) return table.create(90, s)", "too big"),
        ("local m = {} m.map = m return m", "nested too deeply"),
        ("local m = {} for i = 1, 200 do m[i] = true end return {set = m}", "too many elements"),
    ] {
        let script = Script::compile("s", source.as_bytes(), &limits).unwrap();
        let run = Run { script: &script, entry: Entry::Text, keys: &[], arguments: &[], seed: 0, limits: &limits };
        let error = Sandbox::new().unwrap().run(&run, soon(), &mut Echo::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{source}: {error}");
    }
    // No code of the script runs while its reply is read.
    let lazy = "return setmetatable({}, {__index = function() while true do end end, __len = error, __iter = error})";
    assert_eq!(run(lazy), Ok(Value::Array(Vec::new())));
}

#[test]
fn a_watch_that_kills_is_told_apart() {
    let limits = Limits::default();
    let script = Script::compile("s", b"while true do end", &limits).unwrap();
    let run = Run { script: &script, entry: Entry::Text, keys: &[], arguments: &[], seed: 0, limits: &limits };
    let ran = Sandbox::new().unwrap().run(&run, Box::new(|| Some(Stop::Killed)), &mut Echo::default());
    assert_eq!(ran, Err(ScriptError::Stopped(Stop::Killed)));
}

const LIBRARY: &str = "#!luau name=lib
local count = 0
local function add(keys, args)
    count += 1
    return {count, keys[1], args[1], redis.call('get', keys[1])}
end
redis.register_function('add', add)
redis.register_function{function_name = 'look', callback = add, flags = {'no-writes'}, description = 'looks'}
";

#[test]
fn libraries_register_functions_that_are_called_by_name() {
    let limits = Limits::default();
    let script = Script::compile("lib", LIBRARY.as_bytes(), &limits).unwrap();
    assert_eq!(script.header().unwrap().name.as_deref(), Some("lib"));
    let mut sandbox = Sandbox::new().unwrap();
    let functions = sandbox.functions(&script, &limits, soon()).unwrap();
    let of = |name: &str, is_reading, description: Option<&str>| Registered {
        name: name.to_owned(),
        is_reading,
        description: description.map(str::to_owned),
    };
    assert_eq!(functions, [of("add", false, None), of("look", true, Some("looks"))]);
    let mut host = Echo::default();
    // Each call loads the library anew: what a function leaves in its variables is gone.
    for _ in 0..3 {
        let run = Run {
            script: &script,
            entry: Entry::Function("look"),
            keys: &[b"k"],
            arguments: &[b"v"],
            seed: 0,
            limits: &limits,
        };
        let value = sandbox.run(&run, soon(), &mut host).unwrap();
        let got = Value::Array(vec![text("get"), text("k")]);
        assert_eq!(value, Value::Array(vec![Value::Integer(1), text("k"), text("v"), got]));
        let missing = Run { entry: Entry::Function("nosuch"), ..run };
        assert_eq!(sandbox.run(&missing, soon(), &mut host), Err(ScriptError::NoFunction));
    }
}

#[test]
fn a_library_that_is_wrong_says_why() {
    let limits = Limits::default();
    for (source, part) in [
        ("", "registers no function"),
        ("redis.call('get', 'x')", "can only register functions"),
        ("redis.register_function('a b', tostring)", "letters, digits"),
        ("redis.register_function('a')", "no callback"),
        ("redis.register_function('a', tostring) redis.register_function('a', tostring)", "registered twice"),
        ("redis.register_function{function_name = 'a', callback = tostring, flags = {'x'}}", "does not exist: x"),
        ("redis.register_function{function_name = 'a', callback = tostring, flags = 1}", "no list"),
        ("redis.register_function{function_name = 'a', callback = tostring, description = 1}", "no text"),
        ("error('broken')", "lib:1: broken"),
        ("KEYS[1] = 1", "nonexistent global variable 'KEYS'"),
    ] {
        let script = Script::compile("lib", source.as_bytes(), &limits).unwrap();
        let error = Sandbox::new().unwrap().functions(&script, &limits, soon()).unwrap_err().to_string();
        assert!(error.contains(part), "{source}: {error}");
    }
    let script = Script::compile("lib", b"while true do end", &limits).unwrap();
    let ran = Sandbox::new().unwrap().functions(&script, &limits, soon());
    assert_eq!(ran, Err(ScriptError::Stopped(Stop::Time)));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Boolean),
        (-(1i64 << 53)..1 << 53).prop_map(Value::Integer),
        proptest::num::f64::NORMAL.prop_map(Value::Double),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Status),
        Just(Value::CommitPosition),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((any::<u8>().prop_map(|byte| Value::Text(vec![byte])), inner), 0..6)
                .prop_map(Value::Map),
            proptest::collection::btree_set(any::<u8>(), 0..6)
                .prop_map(|set| Value::Set(set.into_iter().map(|byte| Value::Text(vec![byte])).collect())),
        ]
    })
}

/// What comes back of a value that went through a script: what RESP has and Luau has not is lost as in Redis.
fn expected(value: &Value) -> Value {
    match value {
        Value::Boolean(true) => Value::Integer(1),
        Value::Boolean(false) => Value::Nil,
        // A `false` in a list is no end of it.
        Value::Array(values) => Value::Array(values.iter().map(expected).collect()),
        Value::Map(pairs) => {
            let mut map: Vec<(Value, Value)> = Vec::new();
            for (key, value) in pairs {
                map.retain(|(other, _)| other != key);
                map.push((key.clone(), expected(value)));
            }
            Value::Map(map)
        }
        value => value.clone(),
    }
}

/// Maps and sets have no order in Luau.
fn sorted(value: Value) -> Value {
    let key = |value: &Value| format!("{value:?}");
    match value {
        Value::Array(values) => Value::Array(values.into_iter().map(sorted).collect()),
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            pairs.sort_by_key(|(name, _)| key(name));
            Value::Map(pairs)
        }
        Value::Set(mut values) => {
            values.sort_by_key(key);
            Value::Set(values)
        }
        value => value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_reply_that_is_returned_is_the_same(value in values()) {
        let mut host = Echo { answer: Some(value.clone()), ..Echo::default() };
        let returned = run_in(&mut Sandbox::new().unwrap(), &mut host, "return redis.call('x')").unwrap();
        prop_assert_eq!(sorted(returned), sorted(expected(&value)));
    }

    #[test]
    fn no_text_does_harm(source in "[a-z(){}\\[\\]=+.,:;'\"0-9 \n%#~<>-]{0,80}") {
        let _ = run(&source);
    }
}

#[path = "json_tests.rs"]
mod json_tests;

/// Runs with so many steps, and a watch that never ends anything.
fn run_with(steps_max: u64, source: &str) -> Result<Value, ScriptError> {
    let limits = Limits { steps_max, memory_bytes_max: 4 << 20, ..Limits::default() };
    let script = Script::compile("script", source.as_bytes(), &limits)?;
    let (entry, keys, arguments) = (Entry::Text, [].as_slice(), [].as_slice());
    let run = Run { script: &script, entry, keys, arguments, seed: 1, limits: &limits };
    Sandbox::new().unwrap().run(&run, Box::new(|| None), &mut Echo::default())
}

#[test]
fn what_has_no_end_ends_by_its_steps_where_no_clock_ends_it() {
    for source in [
        "while true do end",
        "repeat until false",
        "for i = 1, math.huge do end",
        "for _ in function() return 1 end do end",
        "while true do pcall(error) end",
        "while true do pcall(function() while true do end end) end",
        "local f f = function() pcall(f) f() end f()",
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
        "while true do string.rep('x', 10) end",
        "while true do redis.pcall('x') end",
        "while true do redis.log(1, 'x') end",
        "while true do cjson.decode('[1]') end",
        "while true do table.sort({3, 1, 2}) end",
        "table.sort({1, 2, 3}, function() while true do end end)",
        "string.gsub(('x'):rep(100), '.', function() while true do end end)",
        // Patterns that go back and forth, over texts of which no step allocates.
        "string.find(('a'):rep(10000), ('a*'):rep(30) .. 'b')",
        "while true do string.find(('a'):rep(200), '.-b') end",
        "setmetatable({}, {__index = function() while true do end end}).x()",
        "local t = setmetatable({}, {__len = function() while true do end end}) return #t",
        "local t = setmetatable({}, {__tostring = function() while true do end end}) return tostring(t)",
    ] {
        assert_eq!(run_with(100_000, source), Err(ScriptError::Stopped(Stop::Steps)), "{source}");
    }
}

#[test]
fn what_takes_memory_or_depth_first_ends_by_that() {
    // What is called last takes a place on the stack as well.
    for source in [
        "local function f() return 1 + f() end f()",
        "local function f() return f() end f()",
        "local a, b a = function() return b() end b = function() return a() end a()",
        "return string.rep('x', 1e8)",
    ] {
        let ended = run_with(10_000_000, source);
        assert!(matches!(ended, Err(ScriptError::Memory { .. } | ScriptError::Failed { .. })), "{source}: {ended:?}");
    }
    // Texts of which each is twice as long as the one before.
    let doubling = "local s = 'x' while true do s = s .. s end";
    assert!(matches!(run_with(10_000_000, doubling), Err(ScriptError::Memory { .. })));
}

/// The same number on each machine, so that what ends one day does not run into the limit the other.
#[test]
fn steps_are_counted_one_by_one() {
    let least = |source: &str| {
        let (mut fails, mut does) = (0, 20_000);
        while does - fails > 1 {
            let steps = (fails + does) / 2;
            if run_with(steps, source).is_ok() { does = steps } else { fails = steps }
        }
        does
    };
    let nothing = least("return 1");
    assert!(nothing < 100, "{nothing}");
    assert_eq!(least("for i = 1, 1000 do end return 1"), nothing + 1000);
    assert_eq!(least("local i = 0 while i < 1000 do i += 1 end return 1"), nothing + 1000);
    assert_eq!(least("local function f() end for i = 1, 100 do f() end return 1"), nothing + 300);
}

/// The story: the number was cut to 32 bits, so that `2^40` times a text was no text at all.
#[test]
fn a_text_that_would_be_too_long_is_an_error() {
    let mut sandbox = Sandbox::new().unwrap();
    for times in ["2^40", "2^31", "2^32 + 5", "1e300", "math.huge", "'1099511627776'", "0/0 + 1"] {
        let is_nan = times.starts_with('0');
        let ran = run_in(&mut sandbox, &mut Echo::default(), &format!("return #string.rep('x', {times})"));
        match ran {
            Err(ScriptError::Failed { text }) => assert!(text.contains("too long") && !is_nan, "{times}: {text}"),
            ran => assert!(is_nan && ran == Ok(Value::Integer(0)), "{times}: {ran:?}"),
        }
    }
    for (script, length) in [
        ("('ab'):rep(3)", 6),
        ("string.rep('ab', '3')", 6),
        ("string.rep(12, 3)", 6),
        ("string.rep('x', -2^40)", 0),
        ("string.rep('x', -2^32 + 7)", 0),
        ("string.rep('', 2^40)", 0),
        ("string.rep('x', 2.9)", 2),
    ] {
        let ran = run_in(&mut sandbox, &mut Echo::default(), &format!("return #{script}"));
        assert_eq!(ran, Ok(Value::Integer(length)), "{script}");
    }
    for script in ["string.rep(12, 2^40)", "string.rep()", "string.rep('x', {})"] {
        let ran = run_in(&mut sandbox, &mut Echo::default(), &format!("return {script}"));
        assert!(matches!(ran, Err(ScriptError::Failed { .. })), "{script}: {ran:?}");
    }
}

/// How large a result would have been is known though nothing of it was copied.
#[test]
fn a_result_that_is_too_large_says_how_large() {
    let limits = Limits { memory_bytes_max: 4 << 20, result_bytes_max: 100, elements_max: 50, ..Limits::tiny() };
    let mut sandbox = Sandbox::new().unwrap();
    for (source, size) in [
        ("return ('x'):rep(100)", None),
        ("return ('x'):rep(101)", Some(101)),
        ("return {('x'):rep(90), 'y', {ok = ('z'):rep(500)}}", Some(591)),
        ("return table.create(20, 'abcdefghij')", Some(200)),
    ] {
        let script = Script::compile("s", source.as_bytes(), &limits).unwrap();
        let run = Run { script: &script, entry: Entry::Text, keys: &[], arguments: &[], seed: 1, limits: &limits };
        match (sandbox.run(&run, soon(), &mut Echo::default()), size) {
            (Ok(_), None) => {}
            (Err(ScriptError::TooLarge { bytes, .. }), Some(size)) => assert_eq!(bytes, size, "{source}"),
            (ran, _) => panic!("{source}: {ran:?}"),
        }
    }
}

/// The story: Luau takes a NUL byte for the end of a text, and `return 1\0 2` answered 1.
#[test]
fn a_text_with_a_nul_byte_is_refused() {
    for source in [&b"return 1\0 2"[..], b"#!luau\n\nreturn 1\0", b"-- \0\nreturn 1", b"return '\0'", b"\0"] {
        let error = Script::compile("s", source, &Limits::default()).unwrap_err();
        assert!(matches!(error, ScriptError::Compile { .. }), "{error}");
        assert!(error.to_string().contains("NUL byte"), "{error}");
    }
    let error = Script::compile("s", b"#!luau\n\nreturn 1\0", &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("s:3:"), "{error}");
    let mut sandbox = Sandbox::new().unwrap();
    let ran = run_in(&mut sandbox, &mut Echo::default(), "return 'a\\0b'");
    assert_eq!(ran, Ok(Value::Text(b"a\0b".to_vec())));
}
