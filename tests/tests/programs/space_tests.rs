//! Entries of spaces in the real program: SIGKILL at random moments leaves whole transactions, and what was acknowledged.
//!
//! The model: each transaction sets a key to n, takes the entry n - 1 and writes the entry n. So there is always one entry,
//! with the number that the key has, and that is not below the last one that was acknowledged.

use std::thread;
use std::time::Duration;

use holdfast_tests::{Client, Launch, Random, Server, Value, say};
use tempfile::TempDir;

const ROUNDS: usize = 12;
const LIFE_MAX_MILLIS: usize = 150;

/// What a client goes on with.
fn number_of(reply: &Value) -> String {
    match reply {
        Value::Array(parts) => number_of(&parts[0]),
        Value::Integer(number) => number.to_string(),
        other => String::from_utf8_lossy(other.bytes().unwrap_or_default()).into_owned(),
    }
}

/// Numbers began anew with each start: a client that went on with what it had before got what was somebody else's.
#[test]
fn cursors_and_transactions_of_before_a_restart_are_nobodys_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::new(folder.path()).durability("written");
    let mut server = launch.start();
    let mut client = server.client();
    assert_eq!(client.say("SPACE.DECLARE shop orders"), Value::Simple("OK".to_owned()));
    for number in 0..20 {
        client.say(&format!("SPACE.WRITE shop orders {{\"id\":{number}}}"));
        client.say(&format!("SET key:{number} x"));
    }
    let begin = |server: &Server| {
        let mut client = server.client();
        ["SPACE.ITERATE shop orders ANY COUNT 3", "SCAN 0 COUNT 3", "KV.SNAPSHOT OPEN", "TX.BEGIN STRICT"]
            .map(|line| number_of(&client.say(line)))
    };
    let before = begin(&server);
    server.kill();
    server = launch.start_again();
    let behind = begin(&server);
    for (old, new) in before.iter().zip(&behind) {
        assert_ne!(old, new);
    }
    let mut client = server.client();
    let gone = client.say(&format!("SPACE.ITERATE shop orders CURSOR {}", before[0]));
    assert!(gone.error().is_some_and(|text| text.contains("there is no such cursor")), "{gone:?}");
    let gone = client.say(&format!("SCAN {}", before[1]));
    assert!(gone.error().is_some_and(|text| text.contains("invalid cursor")), "{gone:?}");
    client.say("TX.BEGIN STRICT");
    let other = client.say(&format!("TX.RUN {} SET half 1", before[3]));
    assert!(other.error().is_some_and(|text| text.starts_with("NOTX")), "{other:?}");
}

#[test]
fn an_entry_and_a_key_change_together_also_when_the_program_is_killed() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    say!("space: HOLDFAST_SEED={seed}");
    let folder = TempDir::new().expect("a temporary folder");
    let mut newest = 0;
    for round in 0..ROUNDS {
        let durability = ["synced", "written", "window:1ms,20ms"][random.below(3)];
        let server = Launch::new(folder.path()).durability(durability).start();
        let mut client = server.client();
        if round == 0 {
            assert_eq!(client.say("SPACE.DECLARE bank notes"), Value::Simple("OK".to_owned()));
            assert_eq!(client.say("SET n 0"), Value::Simple("OK".to_owned()));
            assert!(matches!(client.say(r#"SPACE.WRITE bank notes {"id":0}"#), Value::Array(_)));
        }
        let begun = settled(&mut client);
        assert!(begun >= newest, "acknowledged {newest}, found {begun}, {durability}");
        let life = Duration::from_millis(random.below(LIFE_MAX_MILLIS) as u64);
        let worker = thread::spawn(move || {
            let mut acknowledged = begun;
            while step(&mut client, acknowledged + 1).is_ok() {
                acknowledged += 1;
            }
            acknowledged
        });
        thread::sleep(life);
        server.kill();
        newest = worker.join().expect("the worker ends when its connection does");
    }
    say!("space: {newest} transactions");
    assert!(newest > 0);
}

/// The number of the one entry that there is, which is that of the key.
fn settled(client: &mut Client) -> u64 {
    let key = client.call(&["GET", "n"]).expect("the server lives");
    let key = key.bytes().and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok()).expect("a number");
    let Value::Array(entries) = client.say("SPACE.MREAD bank notes ANY") else { panic!("no list of entries") };
    assert_eq!(entries.len(), 1, "{entries:?}");
    let Some(Value::Array(entry)) = entries.first() else { panic!("{entries:?}") };
    assert_eq!(entry.first().and_then(Value::bytes), Some(format!("{{\"id\":{key}}}").as_bytes()));
    key
}

/// One transaction. An error when the server is gone.
fn step(client: &mut Client, n: u64) -> std::io::Result<()> {
    let (number, before, document) = (n.to_string(), (n - 1).to_string(), format!("{{\"id\":{n}}}"));
    client.call(&["MULTI"])?;
    client.call(&["SET", "n", &number])?;
    client.call(&["SPACE.TAKE", "bank", "notes", "ID", &before])?;
    client.call(&["SPACE.WRITE", "bank", "notes", &document, "INSERT"])?;
    let done = client.call(&["EXEC"])?;
    assert!(matches!(&done, Value::Array(replies) if replies.len() == 3), "{done:?}");
    Ok(())
}
