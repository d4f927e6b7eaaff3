//! Starting, stopping, and one process for one folder.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use holdfast_tests::{Launch, Server, Value, holdfast, run, say};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

#[test]
fn a_first_start_without_arguments_says_where_it_listens_and_what_to_try() {
    let ports = ["127.0.0.1:7411", "127.0.0.1:7412", "127.0.0.1:7413"];
    if let Some(taken) = ports.iter().find(|port| TcpListener::bind(port).is_err()) {
        say!("SKIPPED a first start without arguments: somebody else listens on {taken}");
        return;
    }
    let folder = folder();
    let server = Server::bare(&[], folder.path());
    let text = server.output().text();
    assert_eq!(server.resp().to_string(), ports[0], "{text}");
    for words in ["127.0.0.1:7412", "127.0.0.1:7413", "synced", "holdfast-data", "redis-cli"] {
        assert!(text.contains(words), "nothing about {words} in:\n{text}");
    }
    assert!(folder.path().join("holdfast-data").is_dir(), "{text}");
    assert_eq!(server.client().say("SET a 1"), ok());
    let (status, text) = server.terminate();
    assert_eq!(status.code(), Some(0), "{text}");
}

#[test]
fn sigterm_stops_cleanly_and_keeps_everything() {
    stop_and_look(Server::terminate);
}

#[test]
fn ctrl_c_stops_cleanly_and_keeps_everything() {
    stop_and_look(Server::interrupt);
}

fn stop_and_look(stop: fn(Server) -> (std::process::ExitStatus, String)) {
    let folder = folder();
    for durability in ["synced", "written", "window:1ms,20ms"] {
        let launch = Launch::new(folder.path()).durability(durability);
        let server = launch.start();
        let mut client = server.client();
        let idle = server.client();
        for number in 0..100 {
            assert_eq!(client.say(&format!("SET {durability}:{number} {number}")), ok());
        }
        let begin = Instant::now();
        let (status, text) = stop(server);
        assert_eq!(status.code(), Some(0), "{durability}:\n{text}");
        assert!(begin.elapsed() < Duration::from_secs(10), "an idle connection held the server up:\n{text}");
        drop(idle);
        let server = launch.start();
        let mut client = server.client();
        for number in 0..100 {
            let answer = client.say(&format!("GET {durability}:{number}"));
            assert_eq!(answer, Value::from(number.to_string().as_str()), "{durability}:{number}");
        }
    }
}

/// Found by this program: with `synced`, the first write behind the first segment was never answered, because sealing took a
/// lock that it held already.
#[test]
fn writing_goes_on_from_segment_to_segment() {
    const VALUE: usize = 128 * 1024;
    // Two segments of the default size and some of the third.
    const COUNT: usize = 1_200;
    for durability in ["synced", "written", "window:1ms,20ms"] {
        let folder = folder();
        let launch = Launch::new(folder.path()).durability(durability);
        let server = launch.start();
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let mut client = server.client();
                std::thread::spawn(move || {
                    for number in (writer..COUNT).step_by(3) {
                        assert_eq!(client.set(&format!("k{number}"), &large(number, VALUE)), ok(), "k{number}");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap_or_else(|_| panic!("{durability}: a writer failed; see above"));
        }
        server.kill();
        let server = launch.start();
        let mut client = server.client();
        for number in 0..COUNT {
            let answer = client.say(&format!("GET k{number}"));
            assert!(
                answer == Value::Bytes(large(number, VALUE)),
                "{durability}: k{number} is not what was acknowledged"
            );
        }
    }
}

fn large(number: usize, length: usize) -> Vec<u8> {
    let mut value = format!("value {number} ").into_bytes();
    value.resize(length, b'x');
    value
}

#[test]
fn stopping_under_load_loses_nothing_that_was_acknowledged() {
    let folder = folder();
    let launch = Launch::new(folder.path()).durability("written");
    let server = launch.start();
    let mut client = server.client();
    let writer = std::thread::spawn(move || {
        let mut acknowledged = 0_u64;
        while matches!(client.call(&["SET", &format!("k{acknowledged}"), "v"]), Ok(Value::Simple(_))) {
            acknowledged += 1;
        }
        acknowledged
    });
    let mut reader = server.client();
    let some = holdfast_tests::until(Duration::from_secs(20), || (reader.say("GET k500") != Value::Nil).then_some(()));
    assert!(some.is_some(), "500 writes took longer than 20 s");
    let (status, text) = server.terminate();
    assert_eq!(status.code(), Some(0), "{text}");
    let acknowledged = writer.join().expect("the writer does not panic");
    let server = launch.start();
    let mut client = server.client();
    for number in 0..acknowledged {
        assert_eq!(client.say(&format!("GET k{number}")), Value::from("v"), "k{number} of {acknowledged}");
    }
}

#[test]
fn a_second_process_on_the_folder_is_refused_and_the_first_works_on() {
    let folder = folder();
    let launch = Launch::new(folder.path());
    let mut first = launch.start();
    let mut client = first.client();
    assert_eq!(client.say("SET a 1"), ok());
    for _ in 0..3 {
        let refusal = launch.try_start().map(|_| ()).expect_err("one process may open a folder at a time");
        assert!(refusal.code.is_some_and(|code| code != 0), "exit {:?}:\n{}", refusal.code, refusal.text);
        let text = refusal.text.to_lowercase();
        let clear = ["in use", "locked", "already", "another process", "another holdfast"]
            .iter()
            .any(|words| text.contains(words));
        assert!(clear && !text.contains("panicked"), "not a clear message:\n{}", refusal.text);
        assert!(matches!(client.say("INCR a"), Value::Integer(_)));
    }
    assert!(first.is_running());
    first.kill();
    let again = launch.start();
    assert_eq!(again.client().say("GET a"), Value::from("4"), "the lock of a killed process is no lock");
}

#[test]
fn a_port_that_is_taken_and_an_unknown_argument_are_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound port").to_string();
    let folder = folder();
    let data = folder.path().join("data").display().to_string();
    for arguments in [
        vec!["serve", "--dir", &data, "--resp", &address, "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"],
        vec!["serve", "--no-such-option"],
        vec!["serve", "--durability", "perhaps"],
    ] {
        let done = run(std::process::Command::new(holdfast()).args(&arguments), b"", Duration::from_secs(30));
        assert!(done.code.is_some_and(|code| code != 0), "{arguments:?} exits {:?}:\n{}", done.code, done.text);
        assert!(!folder.path().join("data").exists(), "{arguments:?} leaves a store that nobody serves");
        assert!(!done.text.trim().is_empty() && !done.text.contains("panicked"), "{arguments:?} says:\n{}", done.text);
    }
}
