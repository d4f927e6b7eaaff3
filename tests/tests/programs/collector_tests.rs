//! Collectors as Debian has them, unchanged, against the real program: collectd with its plugin `write_tsdb` over TCP, and Prometheus,
//! which scrapes the program itself, writes what it finds back into it, and reads what others wrote. What they sent is read back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use holdfast_tests::{Launch, Server, run};
use tempfile::TempDir;

use crate::beside::{Program, TIME_MAX};

/// The body of a GET that is answered with 200.
fn get(server: &Server, path: &str, parameters: &[&str]) -> String {
    get_from(server.http(), path, parameters)
}

fn get_from(address: SocketAddr, path: &str, parameters: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "60", "--get"]);
    for parameter in parameters {
        command.args(["--data-urlencode", parameter]);
    }
    command.arg(format!("http://{address}{path}"));
    let done = run(&mut command, b"", TIME_MAX + TIME_MAX);
    assert_eq!(done.code, Some(0), "{path} {parameters:?}: {}", done.text);
    done.text
}

/// The points of the one series of a metric, by time in seconds, and what was answered. Nothing when there is no such metric yet.
fn points(server: &Server, metric: &str) -> (BTreeMap<u64, f64>, String) {
    if !get(server, "/api/suggest", &["type=metrics", &format!("q={metric}")]).contains(&format!("\"{metric}\"")) {
        return Default::default();
    }
    let answer = get(server, "/api/query", &["start=1h-ago", "arrays", &format!("m=none:{metric}")]);
    let (_, dps) = answer.split_once("\"dps\":[[").unwrap_or_else(|| panic!("{answer}"));
    let (dps, rest) = dps.split_once("]]").unwrap_or_else(|| panic!("{answer}"));
    assert!(!rest.contains("dps"), "one series: {answer}");
    let pair = |pair: &str| {
        let (time, value) = pair.split_once(',').unwrap_or_else(|| panic!("{pair}"));
        (time.trim().parse().expect("a time"), value.trim().parse().expect("a value"))
    };
    (dps.split("],[").map(pair).collect(), answer)
}

/// What the line door has counted under this name.
fn counted(server: &Server, name: &str) -> u64 {
    let mut stream = TcpStream::connect(server.line()).expect("the line door is open");
    stream.set_read_timeout(Some(TIME_MAX)).expect("a socket has a timeout");
    stream.write_all(b"stats\nexit\n").expect("it is read");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers, and closes");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("holdfast.line.{name} ")));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn collectd_writes_through_its_plugin_for_opentsdb() {
    const MEMORY: [&str; 6] = ["used", "free", "buffered", "cached", "slab_recl", "slab_unrecl"];
    let (data, own) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let server = Launch::new(data.path()).start();
    let (folder, port) = (own.path().display(), server.line().port());
    let configuration = format!(
        "Hostname \"probe\"\nFQDNLookup false\nInterval 1\nBaseDir \"{folder}\"\nPIDFile \"{folder}/pid\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\n\
         LoadPlugin df\nLoadPlugin load\nLoadPlugin memory\nLoadPlugin write_tsdb\n\
         <Plugin df>\nMountPoint \"/\"\nValuesPercentage true\n</Plugin>\n\
         <Plugin write_tsdb>\n<Node>\nHost \"127.0.0.1\"\nPort \"{port}\"\nHostTags \"site=lab\"\nStoreRates false\n\
         AlwaysAppendDS false\n</Node>\n</Plugin>\n"
    );
    let file = own.path().join("collectd.conf");
    fs::write(&file, configuration).expect("a file of a test can be written");
    let collectd = Program::start(Command::new("/usr/sbin/collectd").arg("-f").arg("-C").arg(&file));
    collectd.until("three points of the load", || {
        let (load, _) = points(&server, "load.load.shortterm");
        (load.len() >= 3).then_some(())
    });
    collectd.end();
    collected(&server, &MEMORY);
    assert_eq!((counted(&server, "lines.malformed"), counted(&server, "points.refused")), (0, 0));
    assert!(counted(&server, "points.written") >= 3 * (3 + MEMORY.len() as u64));
}

/// What collectd sent is what the system says: the parts of the memory make the whole, at every moment.
fn collected(server: &Server, parts: &[&str]) {
    let meminfo = fs::read_to_string("/proc/meminfo").expect("Linux says what memory there is");
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let total = 1024.0 * kib.and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_else(|| panic!("{meminfo}"));
    let mut sums: BTreeMap<u64, (usize, f64)> = BTreeMap::new();
    for part in parts {
        let (points, answer) = points(server, &format!("memory.{part}.memory"));
        assert!(answer.contains(r#""tags":{"fqdn":"probe","site":"lab"}"#), "{answer}");
        for (time, value) in points {
            let sum = sums.entry(time).or_default();
            *sum = (sum.0 + 1, sum.1 + value);
        }
    }
    let whole: Vec<f64> = sums.values().filter(|(count, _)| *count == parts.len()).map(|(_, sum)| *sum).collect();
    assert!(whole.len() >= 2 && whole.iter().all(|sum| (sum - total).abs() < 1024.0), "{sums:?} of {total}");
    let (free, _) = points(server, "df.root.percent_bytes.free");
    assert!(!free.is_empty() && free.values().all(|free| (0.0..=100.0).contains(free)), "{free:?}");
}

#[test]
fn prometheus_scrapes_the_program_and_writes_what_it_finds_back() {
    let (data, own) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let server = Launch::new(data.path()).start();
    let http = server.http();
    let configuration = format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs:\n  - job_name: holdfast\n    static_configs: [{{targets: [\"{http}\"]}}]\n\
         remote_write:\n  - url: http://{http}/api/v1/write?db=prom\n    queue_config: {{batch_send_deadline: 1s}}\n"
    );
    let file = own.path().join("prometheus.yml");
    fs::write(&file, configuration).expect("a file of a test can be written");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", own.path().join("data").display()));
    let prometheus = Program::start(command.arg("--web.listen-address=127.0.0.1:0"));
    let ask = |query: &str| get(&server, "/api/v1/query", &["db=prom", &format!("query={query}")]);
    let value = |answer: &str| {
        let (_, rest) = answer.split_once("\"value\":[")?;
        rest.split('"').nth(1)?.parse::<f64>().ok()
    };
    prometheus.until("three samples", || value(&ask("count_over_time(up[1h])")).filter(|count| *count >= 3.0));
    let up = ask("up");
    let labels = format!(r#""metric":{{"__name__":"up","instance":"{http}","job":"holdfast"}}"#);
    assert!(up.contains(&labels) && value(&up) == Some(1.0), "{up}");
    // Every name that the program publishes was scraped, written and found again, and what it counted is what was written into it.
    let metrics = get(&server, "/metrics", &[]);
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let names: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let known = get(&server, "/api/v1/label/__name__/values", &["db=prom"]);
    let missing: Vec<&&str> = names.iter().filter(|name| !known.contains(&format!("\"{name}\""))).collect();
    assert!(names.len() > 50 && missing.is_empty(), "{missing:?} of {}", names.len());
    let written = || value(&ask(r#"holdfast_points_written_total{door="http"}"#)).filter(|written| *written > 0.0);
    let before = prometheus.until("points written", written);
    prometheus.until("more points written", || written().filter(|after| *after > before));
    let said = prometheus.end();
    assert!(!said.contains("non-recoverable error") && !said.contains("Failed to send batch"), "{said}");
}

#[test]
fn prometheus_shows_by_remote_read_what_others_wrote() {
    let (data, own) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let server = Launch::new(data.path()).start();
    let http = server.http();
    let lines: String = (0..60)
        .flat_map(|nth| [("a", nth * 3), ("b", nth * 7)].map(|(host, value)| (host, value, 1_700_000_000 + nth * 15)))
        .map(|(host, value, seconds)| format!("jobs,host={host},dc=x\\ y done={value}i {seconds}\n"))
        .collect();
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail-with-body", "--data-binary", "@-"]);
    command.arg(format!("http://{http}/write?db=far&precision=s"));
    let written = run(&mut command, lines.as_bytes(), TIME_MAX);
    assert_eq!((written.code, written.text.as_str()), (Some(0), ""));

    let configuration = format!("remote_read:\n  - url: http://{http}/api/v1/read?db=far\n    read_recent: true\n");
    let file = own.path().join("prometheus.yml");
    fs::write(&file, configuration).expect("a file of a test can be written");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", own.path().join("data").display()));
    let prometheus = Program::start(command.arg("--web.listen-address=127.0.0.1:0"));
    let listening = |line: &str| {
        let (_, rest) = line.split_once("msg=\"Listening on\" address=")?;
        rest.split_whitespace().next()?.parse::<SocketAddr>().ok()
    };
    let address = prometheus.output().wait_for(TIME_MAX, listening);
    let address = address.unwrap_or_else(|| panic!("it does not listen:\n{}", prometheus.output().text()));
    // It listens before it has begun.
    prometheus.until("readiness", || {
        let ready = format!("http://{address}/-/ready");
        let asked = run(Command::new("curl").args(["--silent", "--fail", &ready]), b"", TIME_MAX);
        (asked.code == Some(0)).then_some(())
    });
    for (query, wanted) in [
        ("jobs_done", 2),
        ("jobs_done{host=~\"a|c\",dc!=\"z\"}", 1),
        ("sum by (dc) (max_over_time(jobs_done[5m]))", 1),
        ("count_over_time(jobs_done[1h])", 2),
        ("{host=\"b\"}", 1),
        ("jobs_done{host=\"none\"}", 0),
    ] {
        let ask = |address| {
            let query = format!("query={query}");
            get_from(address, "/api/v1/query", &["db=far", "time=1700000900", &query])
        };
        let (theirs, ours) = (ask(address), ask(http));
        assert_eq!(theirs.trim(), ours.trim(), "{query}");
        assert_eq!(theirs.matches("\"metric\"").count(), wanted, "{query}: {theirs}");
    }
    let said = prometheus.end();
    assert!(!said.contains("level=error") && !said.contains("remote read"), "{said}");
}
