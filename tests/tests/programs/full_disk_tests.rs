//! A full disk refuses writes in clear words, serves reads, and costs nothing that was acknowledged.

use std::fs;

use holdfast_tests::{Client, Launch, SmallDisk, Value, say};

const MIB: usize = 1 << 20;

/// Enough for a few segments, and full within seconds.
const DISK: usize = 384 * MIB;
const BALLAST: usize = 192 * MIB;
const VALUE: usize = 256 * 1024;

fn value(number: usize) -> Vec<u8> {
    let mut value = format!("value {number} ").into_bytes();
    value.resize(VALUE, u8::try_from(number % 251).expect("below 251"));
    value
}

/// Writes until an error; how many writes were acknowledged, and the error.
fn fill(client: &mut Client, from: usize) -> (usize, String) {
    for number in from..from + 2 * DISK / VALUE {
        let answer = client.set(&format!("k{number}"), &value(number));
        match answer {
            Value::Simple(_) => {}
            Value::Error(text) => return (number, text),
            other => panic!("SET answers {other:?}"),
        }
    }
    panic!("twice the size of the disk was acknowledged");
}

fn look(client: &mut Client, count: usize) {
    for number in 0..count {
        let answer = client.say(&format!("GET k{number}"));
        assert!(answer == Value::Bytes(value(number)), "k{number} of {count} is not what was acknowledged");
    }
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_keeps_what_was_acknowledged() {
    for durability in ["synced", "written"] {
        let disk = match SmallDisk::mount(DISK as u64) {
            Ok(disk) => disk,
            Err(reason) => {
                say!("SKIPPED a full disk: cannot mount a small one: {reason}");
                return;
            }
        };
        let ballast = disk.ballast(BALLAST);
        let data = disk.path().join("data");
        let launch = Launch::new(&data).durability(durability);
        let server = launch.start();
        let mut client = server.client();
        let (count, error) = fill(&mut client, 0);
        say!("full disk, {durability}: {count} values of 256 KiB, then: {error}");
        let lower = error.to_lowercase();
        let clear = ["no space", "disk", "full", "misconf", "unavailable"].iter().any(|words| lower.contains(words));
        assert!(clear, "not a clear error: {error}");
        assert!(count > 0, "nothing fitted");
        look(&mut client, count);
        let mut other = server.client();
        assert_eq!(other.say("PING"), Value::Simple("PONG".into()));
        let again = other.set("more", &value(1));
        assert!(again.error().is_some(), "a write after the disk was full: {again:?}");
        server.kill();

        // Still full: it starts and serves, or says why not; it must not make things worse.
        match launch.try_start() {
            Ok(server) => look(&mut server.client(), count),
            Err(refusal) => {
                say!("full disk, {durability}: a start on the full disk is refused: {}", refusal.text.trim());
                assert!(!refusal.text.contains("panicked"), "{}", refusal.text);
            }
        }

        fs::remove_file(ballast).expect("the ballast is there");
        let server = launch.start();
        let mut client = server.client();
        look(&mut client, count);
        // The refused write may have reached the disk in whole, and then it is there in whole.
        let refused = client.say(&format!("GET k{count}"));
        assert!(refused == Value::Nil || refused == Value::Bytes(value(count)), "a refused write is there in part");
        for number in count..count + 10 {
            let done = client.set(&format!("k{number}"), &value(number));
            assert_eq!(done, Value::Simple("OK".into()), "after space was freed");
        }
        server.kill();
        let server = launch.start();
        look(&mut server.client(), count + 10);
        let (status, text) = server.terminate();
        assert_eq!(status.code(), Some(0), "{text}");
    }
}
