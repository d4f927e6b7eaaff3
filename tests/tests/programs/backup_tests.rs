//! Backups of a running server, restoring, looking at files beside it, and the scrubber.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use holdfast_tests::{Finished, Launch, Server, Value, files_of, flip, holdfast, http_get, looks_of, run, until};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

fn say(arguments: &[&str]) -> Finished {
    run(Command::new(holdfast()).args(arguments), b"", PATIENCE)
}

fn done(arguments: &[&str]) -> String {
    let finished = say(arguments);
    assert_eq!(finished.code, Some(0), "{arguments:?}:\n{}", finished.text);
    finished.text
}

/// A folder with the paths of data, backup and a restored store in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: TempDir::new().expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn launch(&self, name: &str) -> Launch {
        // Small segments, so that there are many.
        let config = self.folder.path().join("holdfast.toml");
        let text = "[scrub]\nbytes_per_second = 1073741824\n[limits]\nsegment_bytes = 1048576\n";
        fs::write(&config, text).expect("a file of a test can be written");
        Launch::new(&self.folder.path().join(name)).argument("--config").argument(&config.display().to_string())
    }

    fn backup(&self, server: &Server) -> String {
        let address = server.resp().to_string();
        done(&["backup", &self.path("backup"), "--dir", &self.path("data"), "--address", &address])
    }

    fn segments(&self, name: &str) -> Vec<PathBuf> {
        let files = files_of(&self.folder.path().join(name).join("journal"));
        files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "seg")).collect()
    }
}

/// The number behind a name in what was printed.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

fn value(number: u64) -> Vec<u8> {
    let mut value = format!("value {number} ").into_bytes();
    value.resize(2_000, b'x');
    value
}

fn fill(server: &Server, numbers: std::ops::Range<u64>) {
    let mut client = server.client();
    for number in numbers.clone() {
        client.add(&[b"SET", format!("k{number}").as_bytes(), &value(number)]);
    }
    client.flush().expect("the server takes commands");
    for number in numbers {
        assert_eq!(client.answer().expect("it answers"), Value::Simple("OK".into()), "k{number}");
    }
}

fn check(server: &Server, numbers: std::ops::Range<u64>) {
    let mut client = server.client();
    for number in numbers {
        assert!(client.say(&format!("GET k{number}")) == Value::Bytes(value(number)), "k{number} is not what it was");
    }
}

#[test]
fn a_backup_under_load_holds_all_that_was_acknowledged_before_it_and_survives_a_kill() {
    let place = Place::new();
    let server = place.launch("data").durability("written").start();
    fill(&server, 0..1_000);
    let acknowledged = Arc::new(AtomicU64::new(1_000));
    let (started, has_started) = mpsc::channel();
    let writer = {
        let mut client = server.client();
        let acknowledged = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            let mut number = acknowledged.load(Ordering::Acquire);
            while matches!(
                client.call(&[b"SET", format!("k{number}").as_bytes(), &value(number)]),
                Ok(Value::Simple(_))
            ) {
                number += 1;
                acknowledged.store(number, Ordering::Release);
                // Nobody listens after the first.
                let _ = started.send(());
            }
        })
    };
    has_started.recv_timeout(PATIENCE).expect("the writer writes");
    let before = acknowledged.load(Ordering::Acquire);
    let text = place.backup(&server);
    assert!(number(&text, "linked-segments") > 1 && number(&text, "copied-segments") == 0, "{text}");
    let going_on = until(PATIENCE, || (acknowledged.load(Ordering::Acquire) > before + 100).then_some(()));
    assert!(going_on.is_some(), "writing went on");
    server.kill();
    writer.join().expect("the writer ends with the server");
    let text = done(&["restore", &place.path("backup"), &place.path("restored")]);
    assert!(text.contains("verified ") && text.contains("restored "), "{text}");
    let restored = place.launch("restored").start();
    check(&restored, 0..before);
    fill(&restored, 1_000_000..1_000_010);
    // The store itself is none the worse.
    let server = place.launch("data").start();
    check(&server, 0..acknowledged.load(Ordering::Acquire));
}

#[test]
fn a_second_backup_links_only_what_is_new_and_takes_no_space() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..2_000);
    let first = place.backup(&server);
    let linked = number(&first, "linked-segments");
    assert!(linked >= 3 && number(&first, "kept-segments") == 0, "{first}");
    let again = place.backup(&server);
    assert_eq!((number(&again, "linked-segments"), number(&again, "kept-segments")), (0, linked), "{again}");
    fill(&server, 2_000..2_010);
    let third = place.backup(&server);
    assert_eq!((number(&third, "linked-segments"), number(&third, "kept-segments")), (1, linked), "{third}");
    for path in place.segments("backup") {
        assert_eq!(fs::metadata(&path).expect("it is there").nlink(), 2, "{} is a link", path.display());
    }
    let (status, text) = server.terminate();
    assert_eq!(status.code(), Some(0), "{text}");
    // Nobody serves it: the program opens the store itself.
    let offline = done(&["backup", &place.path("backup"), "--dir", &place.path("data"), "--address", "127.0.0.1:1"]);
    assert!(offline.contains(&format!("kept       {}", linked + 1)), "{offline}");
    done(&["restore", "--link", &place.path("backup"), &place.path("restored")]);
    check(&place.launch("restored").start(), 0..2_010);
}

#[test]
fn folders_that_hold_something_else_are_refused_and_stay_as_they_are() {
    let place = Place::new();
    let server = place.launch("data").start();
    let other = place.launch("other").start();
    fill(&server, 0..10);
    fill(&other, 0..10);
    place.backup(&server);
    let address = other.resp().to_string();
    let foreign = say(&["backup", &place.path("backup"), "--dir", &place.path("other"), "--address", &address]);
    assert!(foreign.code == Some(1) && foreign.text.contains("backup of another store"), "{}", foreign.text);
    let onto =
        say(&["backup", &place.path("data"), "--dir", &place.path("data"), "--address", &server.resp().to_string()]);
    assert!(onto.code == Some(1) && onto.text.contains("is the folder of a store"), "{}", onto.text);
    let address_of_it = server.resp().to_string();
    let within =
        say(&["backup", &place.path("data/backup"), "--dir", &place.path("data"), "--address", &address_of_it]);
    let is_told = within.text.contains("is within the folder of the store itself");
    assert!(within.code == Some(1) && is_told && !Path::new(&place.path("data/backup")).exists(), "{}", within.text);
    let wrong = say(&["backup", &place.path("new"), "--dir", &place.path("data"), "--address", &address]);
    assert!(wrong.code == Some(1) && wrong.text.contains("serves another store"), "{}", wrong.text);
    assert!(!Path::new(&place.path("new")).exists());
    let full = say(&["restore", &place.path("backup"), &place.path("other")]);
    assert!(full.code == Some(1) && full.text.contains("is not empty"), "{}", full.text);
    fs::remove_file(place.folder.path().join("backup/backup")).expect("the manifest is there");
    let half = say(&["restore", &place.path("backup"), &place.path("new")]);
    assert!(half.code == Some(1) && half.text.contains("holds no finished backup"), "{}", half.text);
    assert!(!Path::new(&place.path("new")).exists());
    place.backup(&server);
    done(&["restore", &place.path("backup"), &place.path("new")]);
}

/// The story: the server on the usual port was asked for a backup of a store that was restored from one of its backups, and made one of
/// its own store, as both have one identity; and a folder with backups of both was a mixture that lacked what only one had.
#[test]
fn a_restored_store_is_another_than_the_one_that_its_backup_was_made_of() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..20);
    place.backup(&server);
    done(&["restore", &place.path("backup"), &place.path("restored")]);
    let address = server.resp().to_string();
    let backup = |to: &str, address: &str| {
        say(&["backup", &place.path(to), "--dir", &place.path("restored"), "--address", address])
    };
    let mixed = backup("backup", &address);
    assert!(mixed.code == Some(1) && mixed.text.contains("from before this store was restored"), "{}", mixed.text);
    let restored = place.launch("restored").start();
    restored.client().say("SET only here");
    let asked = backup("own", &address);
    assert!(asked.code == Some(1) && asked.text.contains("serves another store"), "{}", asked.text);
    let process = restored.client().say("INFO server");
    let Value::Bytes(info) = process else { panic!("{process:?}") };
    let info = String::from_utf8_lossy(&info).into_owned();
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("INFO says it");
    assert!(asked.text.contains(&format!("process {process} has the store")), "{}", asked.text);
    let mine = restored.resp().to_string();
    assert!(backup("own", &mine).text.contains("made by the server"));
    restored.kill();
    assert!(!backup("own", &address).text.contains("made by the server"), "nobody has it open, whoever else serves");
    done(&["restore", &place.path("own"), &place.path("again")]);
    assert_eq!(place.launch("again").start().client().say("GET only"), Value::Bytes(b"here".to_vec()));
    // And the other way round.
    let back = say(&["backup", &place.path("own"), "--dir", &place.path("data"), "--address", &address]);
    assert!(back.code == Some(1) && back.text.contains("from before this store was restored"), "{}", back.text);
    place.backup(&server);
}

#[test]
fn what_a_store_has_lost_before_is_told_when_it_is_backed_up_and_restored() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..20);
    server.kill();
    let segment = place.segments("data").remove(0);
    let bytes = fs::read(&segment).expect("it can be read");
    flip(&segment, bytes.windows(6).position(|window| window == b"value ").expect("values lie in the journal"), 1);
    let server = place.launch("data").start();
    let told = place.backup(&server);
    assert_eq!(number(&told, "damaged-ranges"), 1, "{told}");
    assert!(told.contains("are missing in the backup too"), "{told}");
    drop(server);
    // It is what the store was, so nothing keeps it from being restored.
    let restored = done(&["restore", &place.path("backup"), &place.path("restored")]);
    let line = restored.lines().find(|line| line.starts_with("missing ")).expect("it is told");
    assert!(line.contains(".seg offset ") && line.contains("the store lacked it"), "{line}");
}

#[test]
fn a_backup_is_not_served() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..20);
    place.backup(&server);
    let Err(refused) = place.launch("backup").try_start() else { panic!("it was served") };
    assert!(refused.text.contains("holds a backup: restore it into another folder"), "{}", refused.text);
    fill(&server, 20..30);
    place.backup(&server);
    drop(server);
    fs::remove_file(place.folder.path().join("backup/backup")).expect("the manifest is there");
    check(&place.launch("backup").start(), 0..30);
}

#[test]
fn a_changed_byte_in_a_backup_is_refused_with_file_and_offset_unless_damage_is_accepted() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..1_500);
    place.backup(&server);
    server.kill();
    let segment = place.segments("backup").remove(1);
    let bytes = fs::read(&segment).expect("it can be read");
    let hit = bytes.windows(6).position(|window| window == b"value ").expect("values lie in the journal");
    flip(&segment, hit, 1);
    let refused = say(&["restore", &place.path("backup"), &place.path("restored")]);
    assert_eq!(refused.code, Some(1), "{}", refused.text);
    assert!(refused.text.contains(&segment.display().to_string()), "{}", refused.text);
    assert!(refused.text.contains("; --accept-damage restores all that is intact"), "{}", refused.text);
    let words: Vec<&str> = refused.text.split_whitespace().collect();
    let behind =
        |word: &str| words.iter().skip_while(|found| **found != word).nth(1).and_then(|text| text.parse().ok());
    let offset: usize = behind("offset").unwrap_or_else(|| panic!("no offset in {}", refused.text));
    assert!(offset <= hit && hit < offset + 2_500, "{offset} is not around {hit}");
    assert!(!Path::new(&place.path("restored")).exists(), "nothing was begun");
    let inspected = say(&["inspect", "--verify", &place.path("backup")]);
    assert!(inspected.code == Some(1) && inspected.text.contains("\ndamage "), "{}", inspected.text);
    done(&["restore", "--accept-damage", &place.path("backup"), &place.path("restored")]);
    let server = place.launch("restored").start();
    let mut client = server.client();
    let lost =
        (0..1_500).filter(|number| client.say(&format!("GET k{number}")) != Value::Bytes(value(*number))).count();
    assert_eq!(lost, 1, "one byte costs one value");
    drop(client);
    server.kill();
    let inspected = say(&["inspect", "--ledger", &place.path("restored")]);
    let said = &inspected.text;
    assert!(said.contains("ledger     cannot be checked, because records are damaged"), "{said}");
    assert!(inspected.code == Some(1) && !said.contains("damage     none"), "{said}");
}

#[test]
fn inspect_beside_a_running_server_finds_no_damage_and_changes_nothing() {
    let place = Place::new();
    let server = place.launch("data").durability("written").start();
    fill(&server, 0..1_500);
    let looks = || looks_of(&place.folder.path().join("data"));
    // The server itself still seals and prepares segments for a moment; what `inspect` wrote would show every time.
    let unchanged = until(PATIENCE, || {
        let before = looks();
        let text = done(&["inspect", "--verify", &place.path("data")]);
        assert!(text.contains("\ndamage     none") && text.contains("verified   1500 batches"), "{text}");
        let dumped = done(&["inspect", "--dump", "0..20000", &place.path("data")]);
        assert!(dumped.contains("put \"db0\" \"k0\" = \"value 0 xxx"), "{dumped}");
        assert!(dumped.contains("(2000 bytes, crc32c ") && dumped.lines().all(|line| line.len() < 300), "{dumped}");
        (looks() == before).then_some(())
    });
    assert!(unchanged.is_some(), "the folder changed whenever it was looked at");
    // And while everything moves.
    let mut client = server.client();
    let writer = std::thread::spawn(move || {
        let mut number = 0;
        while matches!(client.call(&[b"SET", format!("m{number}").as_bytes(), &value(number)]), Ok(Value::Simple(_))) {
            number += 1;
        }
        number
    });
    for _ in 0..10 {
        let text = done(&["inspect", "--verify", &place.path("data")]);
        assert!(text.contains("\ndamage     none"), "{text}");
    }
    server.kill();
    assert!(writer.join().expect("the writer ends with the server") > 0);
    let before = looks();
    let text = done(&["inspect", "--verify", &place.path("data")]);
    assert!(text.contains("\ndamage     none"), "{text}");
    assert_eq!(looks(), before, "a killed store is left as it is");
}

#[test]
fn the_scrubber_finds_a_changed_byte_of_a_sealed_segment_while_serving() {
    let place = Place::new();
    let server = place.launch("data").start();
    fill(&server, 0..1_500);
    place.backup(&server);
    let segment = place.segments("data").remove(1);
    let bytes = fs::read(&segment).expect("it can be read");
    let hit = bytes.windows(6).position(|window| window == b"value ").expect("values lie in the journal");
    flip(&segment, hit, 1);
    let name = segment.file_name().expect("a segment has a name").to_string_lossy().into_owned();
    let stats = || {
        let mut client = server.client();
        let answer = client.call(&["KV.STATS"]).expect("it answers");
        format!("{answer:?}")
    };
    let http: std::net::SocketAddr = server
        .output()
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("http ")?.trim().parse().ok())
        .expect("it says where it listens");
    let found = until(PATIENCE, || {
        let text = http_get(http, "/stats");
        (text.contains(&name) && text.contains("record checksum mismatch")).then_some(text)
    });
    let text = found.unwrap_or_else(|| panic!("nothing was found: {}", stats()));
    assert!(text.contains("\"scrub\""), "{text}");
    // It is found in the first piece that is read, and counted with what follows.
    let metrics = until(PATIENCE, || {
        let metrics = http_get(http, "/metrics");
        let scrubbed = metrics.lines().find_map(|line| line.strip_prefix("holdfast_scrubbed_bytes_total "));
        let scrubbed: u64 = scrubbed.and_then(|text| text.parse().ok()).expect("it is a number");
        (scrubbed > 1 << 20).then_some(metrics)
    });
    let metrics = metrics.unwrap_or_else(|| panic!("it stands still: {}", http_get(http, "/metrics")));
    assert!(metrics.contains("holdfast_damaged_ranges{kind=\"record\"} 1\n"), "{metrics}");
    fill(&server, 2_000..2_010);
}
