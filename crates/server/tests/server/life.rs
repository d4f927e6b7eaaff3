//! Starting and stopping.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::program::{Ended, Server, connect, run};

fn folder() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("data").to_str().unwrap().to_owned();
    (folder, dir)
}

#[test]
fn it_says_where_it_is_serves_and_keeps_what_it_acknowledged() {
    let (_folder, dir) = folder();
    let server = Server::start(&["--dir", &dir]);
    assert_eq!(server.said.first().map(String::as_str), Some(concat!("holdfast ", env!("CARGO_PKG_VERSION"))));
    assert_eq!((server.value("data"), server.value("durability")), (dir.as_str(), "synced"));
    assert_eq!(server.value("try:"), format!("redis-cli -p {} SET greeting hello", server.resp().port()));
    assert_eq!(server.say("SET greeting hello\r\n"), "+OK\r\n");
    assert!(server.get("/ping", "").ends_with("\r\n\r\nOK\n"));
    assert!(server.get("/health", "").contains("\"ok\""));
    let held = connect(server.resp());
    (&held).write_all(b"PING\r\n").unwrap();
    (&held).read_exact(&mut [0; 7]).unwrap();
    let metrics = server.get("/metrics", "");
    assert!(metrics.contains("\nholdfast_batches_total 1\n"), "{metrics}");
    let connections = metrics.lines().find_map(|line| line.strip_prefix("holdfast_connections{door=\"resp\"} "));
    assert!(connections.unwrap().parse::<u64>().unwrap() >= 1, "{metrics}");
    let ended = server.stop();
    assert_eq!((ended.code, ended.complained.as_str()), (Some(0), ""));
    assert_eq!(ended.said, ["stopping (SIGTERM)", "stopped"]);
    let server = Server::start(&["--dir", &dir, "--durability", "window:1ms,20ms"]);
    assert_eq!(server.value("durability"), "window:1ms,20ms");
    assert_eq!(server.say("GET greeting\r\n"), "$5\r\nhello\r\n");
    server.kill();
    let server = Server::start(&["--dir", &dir, "--durability", "written"]);
    assert_eq!(server.say("GET greeting\r\n"), "$5\r\nhello\r\n");
}

#[test]
fn ctrl_c_and_shutdown_stop_it_like_sigterm_and_idle_clients_do_not_hold_it_up() {
    let (_folder, dir) = folder();
    let server = Server::start(&["--dir", &dir]);
    let idle = (connect(server.resp()), connect(server.http()));
    let begin = Instant::now();
    server.signal(Signal::INT);
    let Ended { code, said, .. } = server.wait();
    assert_eq!((code, said), (Some(0), vec!["stopping (SIGINT)".to_owned(), "stopped".to_owned()]));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(idle);
    let server = Server::start(&["--dir", &dir]);
    connect(server.resp()).write_all(b"SHUTDOWN\r\n").unwrap();
    let Ended { code, said, .. } = server.wait();
    assert_eq!((code, said), (Some(0), vec!["stopping (SHUTDOWN)".to_owned(), "stopped".to_owned()]));
}

#[test]
fn a_request_that_never_ends_holds_the_stop_up_for_seconds_and_a_second_signal_does_not_wait() {
    let (_folder, dir) = folder();
    for (second, code) in [(None, 0), (Some(Signal::INT), 130), (Some(Signal::TERM), 143)] {
        let server = Server::start(&["--dir", &dir]);
        let mut unfinished = connect(server.http());
        unfinished.write_all(b"GET /pi").unwrap();
        // Connections are accepted in their order.
        assert!(server.get("/ping", "").ends_with("OK\n"));
        let begin = Instant::now();
        server.signal(Signal::TERM);
        assert_eq!(server.next_line(), "stopping (SIGTERM)");
        if let Some(second) = second {
            server.signal(second);
        }
        assert_eq!(server.wait().code, Some(code));
        let elapsed = begin.elapsed();
        let wanted = if second.is_some() { 0..4 } else { 4..15 };
        assert!(wanted.contains(&elapsed.as_secs()), "{second:?}: {elapsed:?}");
        drop(unfinished);
    }
}

#[test]
fn a_second_start_in_the_directory_is_refused_and_the_first_goes_on() {
    let (_folder, dir) = folder();
    let server = Server::start(&["--dir", &dir]);
    let (code, _, complained) =
        run(&["--dir", &dir, "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]);
    let wanted =
        format!("holdfast: cannot open the store in {dir}: {dir} is in use by another process (pid {})\n", server.id());
    assert_eq!((code, complained), (Some(1), wanted));
    let (code, _, complained) = run(&["inspect", &dir, "--ledger"]);
    assert_eq!(code, Some(1));
    assert!(complained.contains("in use by another process"), "{complained}");
    let (code, said, complained) = run(&["inspect", &dir, "--verify"]);
    assert_eq!((code, complained.as_str()), (Some(0), ""), "{said}");
    assert_eq!(server.say("PING\r\n"), "+PONG\r\n");
}

#[test]
fn a_taken_port_is_named_with_its_door_and_the_store_is_closed() {
    let (_folder, dir) = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (door, words) in [
        ("resp", ["--resp", &address, "--http", "127.0.0.1:0", "--line", "127.0.0.1:0"]),
        ("http", ["--resp", "127.0.0.1:0", "--http", &address, "--line", "127.0.0.1:0"]),
        ("line", ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--line", &address]),
    ] {
        let (code, said, complained) = run(&[&["serve", "--dir", &dir], &words[..]].concat());
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert!(complained.starts_with(&format!("holdfast: {door}: cannot listen on {address}: ")), "{complained}");
    }
    Server::start(&["--dir", &dir]);
}

#[test]
fn nobody_has_to_read_what_it_says() {
    let (_folder, dir) = folder();
    let mut command = crate::program::holdfast([
        "--dir",
        &dir,
        "--resp",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--line",
        "127.0.0.1:0",
    ]);
    let mut child = command.spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let segment = std::path::Path::new(&dir).join("journal");
    let begin = Instant::now();
    while !segment.exists() {
        assert!(begin.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
