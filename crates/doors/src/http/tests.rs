//! The HTTP door from outside, by a client that is nothing but a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use super::tests_client::{Door, connect, open, read_all};
use super::*;
use crate::auth::{BucketRight, Right, User, Users, hash_password};
use crate::numbers::{DoorTotals, MirrorNumbers, RecoveryNumbers};

/// A door as in the server: with a RESP door beside it, whose numbers are all different.
fn beside_resp(options: &mut Options) {
    let totals = DoorTotals {
        connections_accepted: 11,
        connections_rejected: 12,
        commands: 13,
        errors: 14,
        hits: 15,
        misses: 16,
        received_bytes: 17,
        sent_bytes: 18,
    };
    let numbers: NumbersSource = Arc::new(move || DoorNumbers { connections: 7, totals: Some(totals), points: None });
    options.doors.push(("resp".to_owned(), numbers));
    let numbers = RecoveryNumbers {
        managers: 21,
        managers_down: 22,
        in_doubt: 23,
        rounds: 24,
        committed: 25,
        rolled_back: 26,
        heuristic: 27,
    };
    options.recovery = Some(Arc::new(move || numbers));
    let mirror = MirrorNumbers {
        name: "a\"b".to_owned(),
        is_up: true,
        position: u64::MAX,
        transactions: 31,
        events: 32,
        failures: 33,
        loaded: 34,
        set_aside: 35,
    };
    options.mirrors = Some(Arc::new(move || vec![mirror.clone()]));
}

fn status(answer: &str) -> u16 {
    answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .unwrap_or_else(|| panic!("{answer:?}"))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap()
}

#[test]
fn ping_and_health_say_that_all_is_well() {
    let door = open(|_| {});
    let answer = door.ask("GET /ping", "");
    assert_eq!((status(&answer), body(&answer)), (200, "OK\n"));
    let answer = door.ask("GET /health", "");
    assert_eq!(status(&answer), 200);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(body(&answer)).unwrap(),
        serde_json::json!({ "status": "ok" })
    );
    assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
}

#[test]
fn metrics_are_well_formed_and_tell_what_happened() {
    let door = open(beside_resp);
    for key in [b"a", b"b", b"c"] {
        door.store.kv().put(b"bucket", key, b"value", &holdfast::PutOptions::default()).unwrap();
    }
    door.store.space("a\"b").declare(holdfast::space::Definition::new("a\"b", "c")).unwrap();
    let _open = door.store.begin().with_lease(Duration::from_secs(60));
    let answer = door.ask("GET /metrics", "");
    assert_eq!(status(&answer), 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let text = body(&answer);
    let mut families = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            families.push(rest.split(' ').next().unwrap());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(families.last(), Some(&name), "HELP stands before TYPE");
            assert!(["gauge", "counter", "summary", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let family = families.last().unwrap();
            assert!(series.starts_with(family) && family.starts_with("holdfast_"), "{line} is outside its family");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    let mut unique = families.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), families.len(), "a family is there twice: {families:?}");
    for line in [
        "holdfast_batches_total 4",
        "holdfast_open_transactions 1",
        "holdfast_expired_transactions_total 0",
        "holdfast_space_entries{space=\"a\\\"b\",type=\"c\"} 0",
        "holdfast_unsynced_batches 0",
        "holdfast_refuses_writes 0",
        "holdfast_connections{door=\"resp\"} 7",
        "holdfast_connections{door=\"http\"} 1",
        "holdfast_resp_connections_accepted_total 11",
        "holdfast_resp_connections_rejected_total 12",
        "holdfast_resp_commands_total 13",
        "holdfast_resp_errors_total 14",
        "holdfast_resp_keyspace_hits_total 15",
        "holdfast_resp_keyspace_misses_total 16",
        "holdfast_resp_received_bytes_total 17",
        "holdfast_resp_sent_bytes_total 18",
        "holdfast_xa_recovery_managers 21",
        "holdfast_xa_recovery_managers_down 22",
        "holdfast_xa_recovery_in_doubt 23",
        "holdfast_xa_recovery_rounds_total 24",
        "holdfast_xa_recovery_branches_total{fate=\"committed\"} 25",
        "holdfast_xa_recovery_branches_total{fate=\"rolled_back\"} 26",
        "holdfast_xa_recovery_branches_total{fate=\"heuristic\"} 27",
        "holdfast_mirror_up{mirror=\"a\\\"b\"} 1",
        "holdfast_mirror_behind_bytes{mirror=\"a\\\"b\"} 0",
        "holdfast_mirror_transactions_total{mirror=\"a\\\"b\"} 31",
        "holdfast_mirror_events_total{mirror=\"a\\\"b\"} 32",
        "holdfast_mirror_failures_total{mirror=\"a\\\"b\"} 33",
        "holdfast_mirror_loaded_total{mirror=\"a\\\"b\"} 34",
        "holdfast_damaged_ranges{kind=\"record\"} 0",
        "holdfast_sync_batches_sum 4",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[test]
fn every_metric_is_in_the_manual_and_the_manual_names_no_other() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/monitoring.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let named = |line: &str| {
        let is_row =
            ["gauge", "counter", "summary", "histogram"].iter().any(|kind| line.contains(&format!("| {kind} |")));
        let name = line.strip_prefix("| `holdfast_").filter(|_| is_row)?;
        Some(name.split_once(['`', '{'])?.0.to_owned())
    };
    let mut documented: Vec<String> = manual.lines().filter_map(named).collect();
    let answer = open(beside_resp).ask("GET /metrics", "");
    let mut there: Vec<String> = body(&answer)
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE holdfast_")?.split(' ').next().map(str::to_owned))
        .collect();
    documented.sort();
    there.sort();
    assert_eq!(documented, there);
}

#[test]
fn stats_tell_of_each_door_what_it_counts() {
    let answer = open(beside_resp).ask("GET /stats", "");
    let stats: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    let resp = serde_json::json!({
        "connections": 7,
        "connections_accepted": 11,
        "connections_rejected": 12,
        "commands": 13,
        "errors": 14,
        "keyspace_hits": 15,
        "keyspace_misses": 16,
        "received_bytes": 17,
        "sent_bytes": 18,
    });
    assert_eq!(stats["doors"]["resp"], resp);
    assert_eq!(stats["doors"]["http"]["connections"], 1);
    assert_eq!(stats["doors"].as_object().unwrap().len(), 2);
}

#[test]
fn stats_are_json_with_each_segment() {
    let door = open(|_| {});
    door.store.kv().put(b"bucket", b"key", &[7; 1000], &holdfast::PutOptions::default()).unwrap();
    let answer = door.ask("GET /stats", "");
    let stats: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(stats["batches"], 1);
    assert_eq!(stats["durability"]["name"], "synced");
    assert_eq!(stats["positions"]["synced"], stats["positions"]["appended"]);
    let segments = stats["journal"]["segments"].as_array().unwrap();
    assert!(segments.iter().any(|segment| segment["live_bytes"].as_u64().unwrap() >= 1000), "{stats:#}");
    assert_eq!(stats["damage"], serde_json::json!([]));
}

#[test]
fn stats_tell_what_is_dead_and_what_compaction_won() {
    let door = open(|_| {});
    let put = |value: &[u8]| door.store.kv().put(b"b", b"k", value, &holdfast::PutOptions::default()).unwrap();
    let stats = || -> serde_json::Value { serde_json::from_str(body(&door.ask("GET /stats", ""))).unwrap() };
    put(&[7; 1000]);
    assert_eq!(stats()["journal"]["dead_bytes"], 0);
    put(&[8; 1000]);
    assert!(stats()["journal"]["dead_bytes"].as_u64().unwrap() >= 1000);
    let segments = stats()["journal"]["segments"].clone();
    assert!(segments.as_array().unwrap().iter().any(|segment| segment["dead_bytes"].as_u64() >= Some(1000)));
    assert!(segments.as_array().unwrap().iter().all(|segment| segment["stub"] == false));
    let none = serde_json::json!({
        "running": false, "segments": 0, "reclaimed_bytes": 0, "read_bytes": 0, "moved_bytes": 0, "waiting_segments": 0,
    });
    assert_eq!(stats()["compaction"], none);
    assert_eq!((&stats()["delayed_writes"], &stats()["write_delay_seconds"]), (&0.into(), &0.0.into()));
}

#[test]
fn a_poisoned_store_is_unhealthy() {
    use holdfast::World;
    let limits = holdfast::Limits::tiny();
    let disk = base::memory::Disk::new(1);
    let ledgers = Arc::new(holdfast::MemoryLedgers::new());
    let world = World { files: Arc::new(disk.clone()), ledgers, ..World::real(Path::new("/nowhere"), &limits) };
    let options = holdfast::Options { limits, partitions: 1, ..holdfast::Options::default() };
    let store = holdfast::Store::open_in(&world, Path::new("/data"), options).unwrap();
    (0..8).for_each(|operation| disk.plan(operation, base::memory::Fault::Error));
    store.kv().put(b"b", b"k", b"v", &holdfast::PutOptions::default()).unwrap_err();
    let running = serve(store.clone(), Options::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let door = Door::of(running, store);
    let answer = door.ask("GET /health", "");
    assert_eq!(status(&answer), 503);
    assert!(body(&answer).contains("\"refuses_writes\""), "{answer}");
    assert!(door.ask("GET /metrics", "").contains("\nholdfast_refuses_writes 1\n"));
}

#[test]
fn unknown_paths_other_methods_and_large_bodies_are_refused_by_name() {
    let door = open(|_| {});
    assert_eq!(status(&door.ask("GET /nothing", "")), 404);
    assert_eq!(status(&door.ask("GET /../etc/passwd", "")), 404);
    let answer = door.ask("DELETE /metrics", "");
    assert_eq!(status(&answer), 405);
    assert!(answer.contains("allow: GET,HEAD\r\n"), "{answer}");
    let answer = door.ask("HEAD /health", "");
    assert_eq!((status(&answer), body(&answer)), (200, ""));
    let answer = door.ask("POST /ping", "Content-Length: 17\r\n");
    assert_eq!(status(&answer), 413);
    assert!(answer.contains("at most 16 bytes (http.body_bytes_max, limits.value_bytes_max)"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    assert_eq!(status(&door.ask("POST /ping", "Content-Length: 99999999999999999999999\r\n")), 400);
}

#[test]
fn garbage_and_oversized_headers_end_in_an_error_and_the_door_stays_open() {
    let door = open(|_| {});
    for garbage in [
        &b"\x00\xff\xfe garbage \r\n\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET /ping\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\r\n",
    ] {
        let answer = door.say(garbage);
        assert!(answer.is_empty() || status(&answer) == 400, "{garbage:?} was answered with {answer:?}");
    }
    let long = format!("X-Long: {}\r\n", "x".repeat(64 << 10));
    assert_eq!(status(&door.ask("GET /ping", &long)), 431);
    assert_eq!(status(&door.ask("GET /ping", &"X-Many: x\r\n".repeat(20))), 431);
    let path = format!("GET /{}", "x".repeat(64 << 10));
    let answer = door.ask(&path, "");
    assert!([414, 431].contains(&status(&answer)), "{answer}");
    assert_eq!(status(&door.ask("GET /ping", "")), 200);
}

#[test]
fn a_client_that_sends_its_headers_too_slowly_is_disconnected() {
    let door = open(|options| options.limits.header_timeout = Duration::from_millis(200));
    let begin = Instant::now();
    for start in ["GET /ping HTTP/1.1\r\nHos", ""] {
        let mut stream = connect(door.running.local_addr());
        stream.write_all(start.as_bytes()).unwrap();
        read_all(&mut stream);
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn one_connection_more_than_allowed_is_closed_and_there_is_room_again_later() {
    let door = open(|_| {});
    let mut held: Vec<TcpStream> = (0..3).map(|_| connect(door.running.local_addr())).collect();
    for stream in &mut held {
        stream.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    assert_eq!(door.ask("GET /ping", ""), "");
    drop(held);
    let begin = Instant::now();
    while door.ask("GET /ping", "").is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "places of closed connections are free again");
    }
}

#[test]
fn several_requests_share_a_connection() {
    let door = open(|_| {});
    let two = "GET /ping HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = door.say(two.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
}

#[test]
fn with_users_numbers_need_a_password_and_probes_do_not() {
    let buckets = vec![BucketRight { pattern: "*".to_owned(), right: Right::Read }];
    let user = |name: &str, password: &[u8], doors: &[&str]| User {
        name: name.to_owned(),
        password_hash: hash_password(password).unwrap(),
        doors: doors.iter().map(|door| (*door).to_owned()).collect(),
        buckets: buckets.clone(),
    };
    let users = Users::new([
        user("ada", b"pass:word", &["http"]),
        user("default", b"token", &[]),
        user("redis", b"r", &["resp"]),
    ]);
    let door = open(|options| options.users = Arc::new(users.unwrap()));
    let with = |path: &str, authorization: &str| {
        status(&door.ask(&format!("GET {path}"), &format!("Authorization: {authorization}\r\n")))
    };
    assert_eq!(status(&door.ask("GET /ping", "")), 200);
    assert_eq!(status(&door.ask("GET /health", "")), 200);
    for path in ["/metrics", "/stats"] {
        let answer = door.ask(&format!("GET {path}"), "");
        assert_eq!(status(&answer), 401);
        assert!(answer.contains("www-authenticate: Basic realm=\"holdfast\""), "{answer}");
    }
    // "ada:pass:word", "ada:wrong", "redis:r", as Basic has them.
    for _ in 0..2 {
        assert_eq!(with("/metrics", "Basic YWRhOnBhc3M6d29yZA=="), 200);
    }
    assert_eq!(with("/stats", "Basic YWRhOndyb25n"), 401);
    assert_eq!(with("/stats", "Basic cmVkaXM6cg=="), 403);
    assert_eq!(with("/stats", "Basic !!!!"), 401);
    assert_eq!(with("/stats", "Bearer token"), 200);
    assert_eq!(with("/stats", "Bearer ada:pass:word"), 200);
    assert_eq!(with("/stats", "Bearer wrong"), 401);
}

#[test]
fn tls_answers_who_trusts_the_certificate_and_nobody_in_the_clear() {
    let folder = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let config = crate::tls::server_config(&certificate, &key, &["http/1.1"]).unwrap();
    let door = open(|options| options.tls = Some(config));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = |roots| {
        let config =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(door.running.local_addr()))
    };
    let mut trusting = client(roots);
    trusting.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let answer = read_all(&mut trusting);
    assert_eq!((status(&answer), body(&answer)), (200, "OK\n"));
    client(RootCertStore::empty()).write_all(b"GET /ping HTTP/1.1\r\n\r\n").unwrap_err();
    let answer = door.ask("GET /ping", "");
    assert!(!answer.contains("200"), "{answer}");
    // Somebody who never introduces himself is sent away.
    read_all(&mut connect(door.running.local_addr()));
}

#[test]
fn stopping_ends_idle_connections_at_once_and_frees_the_address() {
    let door = open(|_| {});
    let address = door.running.local_addr();
    let mut idle = connect(address);
    idle.write_all(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    let begin = Instant::now();
    door.running.stop();
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    read_all(&mut idle);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_taken_address_is_said_by_name() {
    let door = open(|_| {});
    let error = serve(door.store.clone(), Options::new(door.running.local_addr())).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {}: ", door.running.local_addr())), "{error}");
}
