//! What programs need of the commands that people do not: positions, strict conditions, cursors, details.

use super::*;

fn declared() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.check(&[("SPACE.DECLARE shop orders HISTORY", "+OK")]);
    fixture
}

fn queue(fixture: &mut Fixture, lines: &[&str], exec: &str) -> String {
    fixture.check(&[("MULTI", "+OK")]);
    lines.iter().for_each(|line| assert_eq!(fixture.run(line), "+QUEUED", "{line}"));
    fixture.run(exec)
}

/// Those that Redis lets fail alone were left out, and everything else was committed under the position of all.
#[test]
fn after_exec_position_any_command_that_fails_discards_all_of_them() {
    let mut fixture = Fixture::new();
    let big = "x".repeat(fixture.door.store.limits().metadata_bytes_max + 1);
    for (line, why) in [
        (format!("KV.PUT b bad v META m {big}"), "ERR the metadata is too big"),
        ("KV.PUT b bad v PX 0".to_owned(), "ERR invalid expire time in 'kv.put' command"),
        ("TS.MADD a 1 1 b x 1".to_owned(), "ERR invalid time 'x'"),
        ("SET k v EX 0".to_owned(), "ERR invalid expire time in 'set' command"),
    ] {
        let reply = queue(&mut fixture, &["KV.PUT b good v", &line, "TS.ADD cpu 1 1"], "EXEC POSITION");
        assert!(reply.starts_with(&format!("-EXECABORT Transaction discarded: {why}")), "{line}: {reply}");
        fixture.check(&[("KV.GET b good", "*-1"), ("TS.LAST cpu", "$-1")]);
    }
    let reply = queue(&mut fixture, &["KV.PUT b good v", "SET k v EX 0"], "EXEC");
    assert!(reply.starts_with("*2 *2 :") && reply.contains("-ERR invalid expire time"), "as in Redis: {reply}");
}

#[test]
fn exec_tells_the_position_of_its_batch_where_it_is_asked() {
    let mut fixture = declared();
    let reply = queue(&mut fixture, &["KV.PUT b k v"], "EXEC POSITION");
    let words: Vec<&str> = reply.split(' ').collect();
    let [_, position, _, _, version, ..] = words.as_slice() else { panic!("{reply}") };
    assert_eq!((words[0], words[2], position), ("*2", "*1", version), "{reply}");
    let wrong = queue(&mut fixture, &["SET k v"], "EXEC NOW");
    assert_eq!(wrong, "-EXECABORT Transaction discarded: ERR EXEC takes nothing, or POSITION");
    fixture.check(&[("GET k", "$-1"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn a_strict_condition_discards_everything() {
    let mut fixture = declared();
    fixture.run("KV.PUT b k v");
    fixture.run(r#"SPACE.WRITE shop orders {"id":1}"#);
    let unfit = "CONFLICT the object is not as the condition wants it: read it again";
    for (line, why) in [
        ("KV.PUT b k w NX STRICT", unfit),
        ("KV.PUT b other w XX STRICT", unfit),
        ("KV.DEL b k IFVERSION 1 STRICT", unfit),
        ("KV.DEL b other XX STRICT", unfit),
        (
            "SPACE.TAKE shop orders ID 2 STRICT",
            "CONFLICT there is no such entry that is free: it is gone, or a transaction has it; read again",
        ),
    ] {
        assert_eq!(fixture.run(line), format!("-{why}"), "{line}");
        let reply = queue(&mut fixture, &["SET x 1", line], "EXEC");
        assert_eq!(reply, format!("-EXECABORT Transaction discarded: {why}"), "{line}");
    }
    fixture.check(&[
        ("GET x", "$-1"),
        ("KV.PUT b k w NX", "*-1"),
        ("KV.DEL b k NX", "*-1"),
        ("SPACE.TAKE shop orders ID 1 STRICT BLOCK 5", "-ERR STRICT is without BLOCK"),
        ("SPACE.COUNT shop orders ANY", ":1"),
    ]);
    assert!(fixture.run("KV.PUT b k w XX STRICT").starts_with("*2 :"));
    assert!(fixture.run("SPACE.TAKE shop orders ID 1 STRICT").starts_with("*3 "));
}

#[test]
fn in_multi_entries_are_changed_and_counted_with_what_was_before() {
    let mut fixture = declared();
    fixture.run(r#"SPACE.WRITE shop orders {"id":1,"n":1}"#);
    let lines = [
        "SPACE.CHANGE shop orders 1 INCR n 1",
        r#"SPACE.WRITE shop orders {"id":2,"n":7}"#,
        "SPACE.CHANGE shop orders 2 INCR n 1 PREVIOUS",
        "SPACE.COUNT shop orders ANY",
        "SPACE.TAKE shop orders ID 1",
        "SPACE.COUNT shop orders ANY",
        "SPACE.CHANGE shop orders 1 INCR n 1",
    ];
    let reply = queue(&mut fixture, &lines, "EXEC");
    let of_position: Vec<&str> = reply.split(' ').filter(|word| word.len() > 6 && word.starts_with(':')).collect();
    assert!(of_position.windows(2).all(|pair| pair[0] == pair[1]), "{reply}");
    let documents: Vec<&str> = reply.split(' ').filter(|word| word.starts_with('{')).collect();
    let expected = [r#"{"id":1,"n":2}"#, r#"{"id":2,"n":8}"#, r#"{"id":2,"n":7}"#, r#"{"id":1,"n":2}"#];
    assert_eq!(documents, expected, "{reply}");
    assert!(reply.contains(" :2 *3 ") && reply.ends_with(" :1 $-1"), "{reply}");
    fixture.check(&[("SPACE.COUNT shop orders WHERE n=8 0", ":1"), ("SPACE.COUNT shop orders ANY", ":1")]);
    let reply = queue(&mut fixture, &["SET x 1", "SPACE.CHANGE shop orders 2 INCR id 1"], "EXEC");
    assert!(reply.starts_with("-EXECABORT Transaction discarded: ERR "), "{reply}");
    fixture.check(&[("GET x", "$-1")]);
}

#[test]
fn an_iteration_comes_to_each_entry_once_and_ends_with_zero() {
    let mut fixture = declared();
    for number in 0..50 {
        fixture.run(&format!(r#"SPACE.WRITE shop orders {{"id":{number},"even":{}}}"#, number % 2 == 0));
    }
    let mut line = "SPACE.ITERATE shop orders WHERE even=true 0 COUNT 7".to_owned();
    let mut seen = Vec::new();
    let mut batches = 0;
    loop {
        let reply = fixture.run(&line);
        let words: Vec<&str> = reply.split(' ').collect();
        assert_eq!(words[0], "*2", "{reply}");
        let cursor = words[2];
        seen.extend(words.iter().filter(|word| word.starts_with('{')).map(|word| (*word).to_owned()));
        batches += 1;
        if cursor == "0" {
            break;
        }
        let spent = line.contains("CURSOR").then(|| line.clone());
        line = format!("SPACE.ITERATE shop orders CURSOR {cursor} COUNT 7");
        if let Some(spent) = spent {
            assert!(fixture.run(&spent).starts_with("-ERR there is no such cursor any more"), "{spent}");
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), batches), (25, 4));
    fixture.check(&[
        ("SPACE.ITERATE shop orders ANY COUNT 0", "-ERR COUNT is at least 1"),
        ("SPACE.ITERATE shop orders CURSOR x", "-ERR value is not an integer or out of range"),
        ("SPACE.ITERATE shop orders CURSOR", "-ERR syntax error"),
        ("SPACE.ITERATE shop orders CURSOR 1 WHAT 1", "-ERR syntax error"),
    ]);
}

#[test]
fn all_that_match_are_changed_and_no_others() {
    let mut fixture = declared();
    for number in 0..9 {
        fixture.run(&format!(r#"SPACE.WRITE shop orders {{"id":{number},"n":{number}}}"#));
    }
    fixture.check(&[
        ("SPACE.MCHANGE shop orders WHERE n<? 1 4 INCR n 100 SET seen true", ":4"),
        ("SPACE.COUNT shop orders WHERE n>=100 0", ":4"),
        ("SPACE.COUNT shop orders WHERE seen=true 0", ":4"),
        ("SPACE.MCHANGE shop orders ANY ROUTING 8 UNSET n LEASE FOREVER DURABILITY written", ":1"),
        ("SPACE.MCHANGE shop orders ANY SET n", "-ERR syntax error"),
        ("SPACE.MCHANGE shop orders ANY SET n 1 VERSION 4", "-ERR syntax error"),
    ]);
    let nothing = fixture.run("SPACE.MCHANGE shop orders ANY LEASE FOREVER");
    assert!(nothing.starts_with("-ERR say what to change: "), "{nothing}");
}

#[test]
fn a_listener_is_told_why_an_entry_went_and_whether_there_is_more() {
    let mut fixture = declared();
    let begin = fixture.run("SPACE.LISTEN shop orders ANY");
    let bookmark = begin.split(' ').nth(2).unwrap().to_owned();
    fixture.run(r#"SPACE.WRITE shop orders {"id":1}"#);
    fixture.run("SPACE.TAKE shop orders ID 1");
    fixture.run(r#"SPACE.WRITE shop orders {"id":2}"#);
    fixture.run("SPACE.CLEAR shop orders ANY");
    let all = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {bookmark} DETAILS"));
    assert!(all.starts_with("*3 ") && all.ends_with(" $7 cleared :0"), "{all}");
    assert_eq!((all.matches("*5 ").count(), all.matches(" $5 taken $").count()), (4, 2), "{all}");
    let some = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {bookmark} COUNT 2 DETAILS"));
    assert!(some.ends_with(" $5 taken :1"), "{some}");
    let plain = fixture.run(&format!("SPACE.LISTEN shop orders ANY FROM {bookmark}"));
    assert!(plain.starts_with("*2 ") && !plain.contains("*5 "), "{plain}");
}

#[test]
fn documents_travel_as_messagepack_where_that_is_asked() {
    let mut fixture = declared();
    // {"id":1,"n":[true,1.5]}
    let packed = b"\x82\xa2id\x01\xa1n\x92\xc3\xcb\x3f\xf8\0\0\0\0\0\0";
    fixture.run_args(&[b"SPACE.WRITE", b"shop", b"orders", packed]);
    assert!(fixture.run("SPACE.READ shop orders ID 1").contains(r#"{"id":1,"n":[true,1.5]}"#));
    let found = fixture.run_args(&[b"SPACE.COUNT", b"shop", b"orders", b"TEMPLATE", b"\x81\xa2id\x01"]);
    assert_eq!(found, ":1");
    fixture.check(&[
        ("CLIENT DOCUMENTS", "$4 json"),
        ("CLIENT DOCUMENTS xml", "-ERR documents are json or msgpack"),
        ("CLIENT DOCUMENTS msgpack", "+OK"),
        ("CLIENT DOCUMENTS", "$7 msgpack"),
    ]);
    fixture.run(r#"SPACE.WRITE shop orders {"id":2}"#);
    for line in [
        "SPACE.READ shop orders ID 2",
        "SPACE.SELECT shop orders id=2 0",
        "SPACE.MREAD shop orders ID 2",
        "SPACE.TAKE shop orders ID 2 BLOCK 1000",
    ] {
        let reply = fixture.run(line);
        assert!(reply.contains("$5 \u{fffd}\u{fffd}id\u{2}"), "{line}: {reply}");
    }
    let cut = fixture.run_args(&[b"SPACE.WRITE", b"shop", b"orders", &packed[..9]]);
    assert!(cut.starts_with("-ERR "), "{cut}");
    fixture.run("RESET");
    fixture.check(&[("CLIENT DOCUMENTS", "$4 json")]);
}
