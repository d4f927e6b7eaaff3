//! Tests of entries of spaces that connections hear of.

use super::{PATIENCE, keys, start};

#[test]
fn an_entry_that_was_read_by_its_id_is_told_once_whatever_becomes_of_it() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.client());
    for of in ["jobs", "fast VOLATILE"] {
        assert_eq!(writer.say(&format!("SPACE.DECLARE shop {of}")), "+OK");
    }
    assert_eq!(reader.say("CLIENT TRACKING ON"), "+OK");
    let jobs = server.store.space("shop").entries("jobs").unwrap();
    let names = [r#"shop/jobs/7"#, r#"shop/jobs/"a""#, "shop/fast/7"];
    for (of, id, name) in [("jobs", "7", names[0]), ("jobs", "'\"a\"'", names[1]), ("fast", "7", names[2])] {
        let json_id = if id == "7" { "7" } else { "\"a\"" };
        let read = format!("SPACE.READ shop {of} ID {id}");
        let put = format!("SPACE.WRITE shop {of} '{{\"id\":{json_id}}}'");
        for change in [
            put.clone(),
            format!("SPACE.CHANGE shop {of} {id} SET n 1"),
            format!("SPACE.RENEW shop {of} {id} LEASE 1000000"),
            format!("SPACE.TAKE shop {of} ID {id}"),
            put.clone(),
            format!("SPACE.CLEAR shop {of} ANY"),
        ] {
            let _ = reader.say(&read);
            let done = writer.say(&change);
            assert!(!done.starts_with('-'), "{change}: {done}");
            assert_eq!(reader.told(), keys(name), "{change}");
            // Not read again since, it is not told again.
            writer.say(&put);
            assert_eq!(reader.told(), [""; 0], "{change}");
        }
    }
    // What programs with the store in their process do, what a batch does, and that the type goes.
    reader.say("SPACE.READ shop jobs ID 7");
    jobs.take(&holdfast::space::Wanted::id(7), &holdfast::space::ReadOptions::default()).unwrap();
    jobs.write(&holdfast::space::Document::from_pairs([("id", 7)]), &Default::default()).unwrap();
    assert_eq!(reader.told(), keys(names[0]));
    reader.say("SPACE.READ shop jobs ID 7");
    for line in ["MULTI", "SPACE.TAKE shop jobs ID 7", "EXEC"] {
        writer.say(line);
    }
    assert_eq!(reader.told(), keys(names[0]));
    reader.say("SPACE.READ shop jobs ID 7");
    assert_eq!(writer.say("SPACE.DROP shop jobs"), ":1");
    assert_eq!(reader.told(), [">[invalidate _]"]);
    // Keys of the same name are others, and what is found by a query is not followed.
    reader.say("GET shop/fast/8");
    reader.say("SPACE.READ shop fast ANY");
    writer.say("SPACE.WRITE shop fast '{\"id\":8}'");
    assert_eq!(reader.told(), [""; 0]);
    assert_eq!(writer.say("SET shop/fast/8 x"), "+OK");
    assert_eq!(reader.told(), keys("shop/fast/8"));
}

#[test]
fn entries_are_broadcast_to_who_names_a_prefix() {
    let server = start(|_| {});
    let (mut all, mut some, mut writer) = (server.client(), server.client(), server.plain());
    assert_eq!(writer.say("SPACE.DECLARE shop jobs"), "+OK");
    assert_eq!(all.say("CLIENT TRACKING ON BCAST"), "+OK");
    assert_eq!(some.say("CLIENT TRACKING ON BCAST PREFIX shop/jobs/"), "+OK");
    writer.say("SPACE.WRITE shop jobs '{\"id\":1}'");
    assert_eq!((all.told(), some.told()), (vec![], keys("shop/jobs/1")));
    assert_eq!(writer.say("SET k 1"), "+OK");
    assert_eq!((all.told(), some.told()), (keys("k"), vec![]));
}

/// What it had asked for, or hears of as one of all, was told while it waited, and then nobody was told of what it read at last.
#[test]
fn an_entry_that_was_waited_for_is_not_kept() {
    let server = start(|_| {});
    let mut writer = server.client();
    assert_eq!(writer.say("SPACE.DECLARE shop jobs ROUTING at"), "+OK");
    for (id, mode) in [(7, ""), (8, "BCAST PREFIX shop/jobs/")] {
        let mut reader = server.client();
        assert_eq!(reader.say(&format!("CLIENT TRACKING ON {mode}")), "+OK");
        reader.send(&format!("SPACE.READ shop jobs ID {id} ROUTING \"b\" BLOCK 0"));
        let jobs = server.store.space("shop").entries("jobs").unwrap();
        let end = std::time::Instant::now() + PATIENCE;
        while jobs.waiters() == 0 {
            assert!(std::time::Instant::now() < end, "it waits");
            std::thread::yield_now();
        }
        for at in ["a", "b"] {
            let written = writer.say(&format!("SPACE.WRITE shop jobs '{{\"id\":{id},\"at\":\"{at}\"}}'"));
            assert!(!written.starts_with('-'), "{written}");
        }
        let mut heard = Vec::new();
        while !heard.last().is_some_and(|message: &String| message.starts_with('*')) {
            heard.push(reader.next());
        }
        // Behind the reply it is told, whatever was told before.
        let told = reader.told();
        assert!(told.iter().any(|push| push.contains(&format!("shop/jobs/{id}"))), "{heard:?}, {told:?}");
    }
}

/// Locked by others it is as if it were not there, and when they let go of it unchanged nobody is told: such a null must not be kept.
#[test]
fn an_entry_that_others_hide_is_told_behind_the_null() {
    let server = start(|_| {});
    let (mut reader, mut holder) = (server.client(), server.client());
    for line in
        ["SPACE.DECLARE shop jobs", "SPACE.WRITE shop jobs '{\"id\":7}'", "TX.BEGIN", "SPACE.TAKE shop jobs ID 7"]
    {
        let said = holder.say(line);
        assert!(!said.starts_with('-'), "{line}: {said}");
    }
    assert_eq!(reader.say("CLIENT TRACKING ON NOLOOP"), "+OK");
    let read = "SPACE.READ shop jobs ID 7";
    let script = "EVAL \"return redis.call('SPACE.READ', 'shop', 'jobs', 'ID', '7') or 'none'\" 0";
    let is_told = keys("shop/jobs/7");
    for lines in [
        &["TX.BEGIN", read, "TX.ABORT"][..],
        &["TX.BEGIN", script, "TX.ABORT"],
        &["MULTI", read, "EXEC"],
        &["MULTI", script, "EXEC"],
        &[script],
    ] {
        let mut heard = Vec::new();
        for line in lines {
            let said = reader.say(line);
            assert!(!said.starts_with('-'), "{line}: {said}");
            if *line != "MULTI" && said != "+QUEUED" {
                heard.extend(reader.told());
            }
        }
        assert!(heard.starts_with(&is_told), "{lines:?}: {heard:?}");
    }
    let mut all = server.client();
    assert_eq!(all.say("CLIENT TRACKING ON BCAST PREFIX shop/jobs/"), "+OK");
    assert!(!all.say(script).starts_with('-'));
    assert_eq!(all.told(), is_told, "it is one of all that it hears of");
    // What is seen is kept.
    assert_eq!(holder.say("TX.ABORT"), "+OK");
    for id in ["7", "8"] {
        let read = format!("SPACE.READ shop jobs ID {id}");
        ["MULTI", &read, "EXEC"].iter().for_each(|line| drop(reader.say(line)));
    }
    assert_eq!(reader.told(), keys("shop/jobs/8"));
}

/// What was read in a transaction may be kept when it was committed, also where committing took a thread of its own.
#[test]
fn what_a_large_transaction_has_read_is_kept_when_it_is_committed() {
    let server = start(|_| {});
    let (mut reader, mut writer) = (server.client(), server.client());
    assert_eq!(writer.say("SPACE.DECLARE shop jobs"), "+OK");
    for id in 0..300 {
        let written = writer.say(&format!("SPACE.WRITE shop jobs '{{\"id\":{id}}}'"));
        assert!(!written.starts_with('-'), "{written}");
    }
    assert_eq!(reader.say("CLIENT TRACKING ON"), "+OK");
    for (end, told) in [("TX.COMMIT", vec![]), ("TX.ABORT", vec![">[invalidate _]".to_owned()])] {
        for line in ["TX.BEGIN", "SPACE.READ shop jobs ID 7", "SPACE.MREAD shop jobs ANY COUNT 300", end] {
            let said = reader.say(line);
            assert!(!said.starts_with('-'), "{line}: {said}");
        }
        assert_eq!(reader.told(), told, "{end}");
    }
}
