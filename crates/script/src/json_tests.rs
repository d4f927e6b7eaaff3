//! `cjson` in scripts, through the sandbox.
//!
//! May use: the fixtures of `sandbox_tests.rs`. Must not know: how JSON is read.

use super::*;

fn failure_of(source: &str) -> String {
    match run(source) {
        Err(ScriptError::Failed { text }) => text,
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn values_become_json() {
    for (value, expected) in [
        ("nil", "null"),
        ("cjson.null", "null"),
        ("true", "true"),
        ("12", "12"),
        ("-0.5", "-0.5"),
        ("9007199254740992", "9007199254740992"),
        ("1e300", "1e300"),
        ("'a\"\\\\/\\n\\1é'", r#""a\"\\/\n\u0001é""#),
        ("{}", "{}"),
        ("setmetatable({}, cjson.empty_array_mt)", "[]"),
        ("setmetatable({1}, cjson.empty_array_mt)", "[1]"),
        ("{1, 'two', {3}}", r#"[1,"two",[3]]"#),
        ("{1, nil, 3}", "[1,null,3]"),
        ("{[3] = 3}", "[null,null,3]"),
        ("{a = {b = {cjson.null}}}", r#"{"a":{"b":[null]}}"#),
        ("{a = 1, [1.5] = 2}", r#"{"a":1,"1.5":2}"#),
        ("{[0] = 'x'}", r#"{"0":"x"}"#),
        ("{[-1] = 'x'}", r#"{"-1":"x"}"#),
        ("setmetatable({}, {__index = {1}, __len = function() return 9 end})", "{}"),
    ] {
        let encoded = run(&format!("return cjson.encode({value})")).unwrap();
        let other = expected
            .strip_prefix(r#"{"a":1,"#)
            .map(|rest| text(&format!("{{{},\"a\":1}}", rest.trim_end_matches('}'))));
        assert!(encoded == text(expected) || Some(&encoded) == other.as_ref(), "{value}: {encoded:?}");
    }
}

#[test]
fn json_becomes_values() {
    for (json, check) in [
        ("null", "v == cjson.null and type(v) == 'userdata'"),
        ("true", "v == true"),
        (" -1.5e2 ", "v == -150"),
        ("9007199254740992", "v == 9007199254740992"),
        ("-9007199254740993", "tostring(v) == '-9007199254740993' and cjson.encode({v}) == '[-9007199254740993]'"),
        (
            "[1849405808640000001,1849405808640000001,1849405808640000002]",
            "v[1] == v[2] and v[1] ~= v[3] and v[1] ~= {} and type(v[1]) == 'table'",
        ),
        ("18446744073709551615", "cjson.encode(v) == '18446744073709551615' and not pcall(function() v[1] = '1' end)"),
        ("1849405808640000001", "redis.call('get', v)[2] == '1849405808640000001' and not getmetatable(v)"),
        ("18446744073709551616", "v == 2^64"),
        (r#""a\u00e9\ud83d\ude00\n""#, "v == 'a\u{e9}\u{1f600}\\n'"),
        ("[]", "#v == 0 and cjson.encode(v) == '[]'"),
        ("{}", "next(v) == nil and cjson.encode(v) == '{}'"),
        ("[1,[2,{}],null]", "#v == 3 and v[2][1] == 2 and v[3] == cjson.null"),
        (r#"{"a":{"b":[1]},"a b":"c","1":2}"#, "v.a.b[1] == 1 and v['a b'] == 'c' and v['1'] == 2 and v[1] == nil"),
        (r#"{"a":1,"a":2}"#, "v.a == 2"),
    ] {
        let source = format!("local v = cjson.decode([==[{json}]==]) return {check}");
        assert_eq!(run(&source).unwrap(), Value::Integer(1), "{json}");
    }
    // What was read and changed is written as it was otherwise.
    let document = r#"{"id":7220000000000123,"tags":[],"none":null,"deep":[[],{}],"half":0.1}"#;
    let source = format!(
        "local v = cjson.decode('{document}') v.tags[1] = 'new' local w = cjson.decode(cjson.encode(v)) \
         return {{cjson.encode(w.id), cjson.encode(w.tags), cjson.encode(w.none), cjson.encode(w.deep), cjson.encode(w.half)}}"
    );
    let expected = ["7220000000000123", r#"["new"]"#, "null", "[[],{}]", "0.1"].map(text);
    assert_eq!(run(&source).unwrap(), Value::Array(expected.to_vec()));
    assert_eq!(run("return cjson.decode('1849405808640000001')").unwrap(), Value::Integer(1_849_405_808_640_000_001));
    assert_eq!(run("return cjson.decode('18446744073709551615')").unwrap(), text("18446744073709551615"));
}

#[test]
fn what_is_no_json_and_what_has_none_is_said() {
    for (json, expected) in [
        ("", "cjson.decode: EOF while parsing a value at line 1 column 0"),
        ("{\"a\":}", "cjson.decode: expected value at line 1 column 6"),
        ("[1,]", "cjson.decode: trailing comma at line 1 column 4"),
        ("1 2", "cjson.decode: trailing characters at line 1 column 3"),
        ("\\255", "cjson.decode: expected value at line 1 column 1"),
        ("\"\\255\"", "cjson.decode: invalid unicode code point at line 1 column 2"),
        ("1e999", "cjson.decode: number out of range at line 1 column 5"),
    ] {
        let said = failure_of(&format!("return cjson.decode('{json}')"));
        assert!(said.contains(expected), "{json}: {said}");
    }
    let deep = "[".repeat(200);
    assert!(failure_of(&format!("return cjson.decode('{deep}')")).contains("recursion limit"));
    for (value, expected) in [
        ("function() end", "a function has no JSON"),
        ("0/0", "a number that is infinite, or none, has no JSON"),
        ("1/0", "a number that is infinite, or none, has no JSON"),
        ("'\\255'", "a text that is not UTF-8 has no JSON"),
        ("{[true] = 1}", "a key is a text or a number, not a boolean"),
        ("{[100] = 1}", "a list misses more than half of its elements"),
        ("redis.COMMIT_POSITION", "COMMIT_POSITION is not known before the script has ended"),
        ("{redis.COMMIT_POSITION}", "COMMIT_POSITION is not known before the script has ended"),
    ] {
        let said = failure_of(&format!("return cjson.encode({value})"));
        assert!(said.contains(expected), "{value}: {said}");
    }
    assert!(failure_of("local t = {} t[1] = t return cjson.encode(t)").contains("in themselves"));
    assert!(failure_of("return cjson.decode({})").contains("string"));
    // It is caught as any error, and nobody changes what others have.
    assert_eq!(run("return pcall(cjson.decode, '{') and 1 or 2").unwrap(), Value::Integer(2));
    assert!(failure_of("cjson.decode = 1").contains("readonly"));
    assert!(failure_of("cjson.empty_array_mt.__index = 1").contains("readonly"));
}

#[test]
fn json_is_bounded_in_memory_and_time() {
    // One text in many places.
    let wide = "local t, s = {}, string.rep('x', 100000) for i = 1, 1000 do t[i] = s end return cjson.encode(t)";
    assert!(failure_of(wide).contains("the text is too long"));
    let nested = "local t = {1} for i = 1, 60 do t = {t, t} end return cjson.encode(t)";
    match run(nested) {
        Err(ScriptError::Stopped(Stop::Time)) => {}
        Err(ScriptError::Failed { text }) => assert!(text.contains("the text is too long"), "{text}"),
        other => panic!("{other:?}"),
    }
    let many = "return #cjson.decode('[' .. string.rep('[],', 1000000) .. '1]')";
    assert!(matches!(run(many), Err(ScriptError::Memory { .. } | ScriptError::Stopped(_))));
    // Who catches that the time is over has not made it longer.
    let again = "local text = '[' .. string.rep('1,', 10000) .. '1]' while true do pcall(cjson.decode, text) end";
    assert!(matches!(run(again), Err(ScriptError::Stopped(Stop::Time))));
    let mut sandbox = Sandbox::new().unwrap();
    let mut host = Echo::default();
    assert!(run_in(&mut sandbox, &mut host, "return cjson.encode(string.rep('x', 500000) .. '1')").is_ok());
    assert_eq!(run_in(&mut sandbox, &mut host, "return cjson.encode({1})").unwrap(), text("[1]"));
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read_and_nothing_else(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let literal: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
        let read = run(&format!("local ok, v = pcall(cjson.decode, '{literal}') if ok then cjson.encode(v) end return 1"));
        prop_assert_eq!(read.unwrap(), Value::Integer(1));
    }
}
