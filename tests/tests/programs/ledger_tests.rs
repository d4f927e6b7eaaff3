//! The ledger is derived: a store that lost it, in whole or in part, has lost nothing.

use std::fs;
use std::path::Path;

use holdfast_tests::{Launch, Random, Server, Value, files_of};
use tempfile::TempDir;

const KEYS: usize = 3_000;

/// What the keys hold: short values that are kept inline, longer ones that are not, rewritten and deleted ones.
fn value(random: &mut Random, number: usize) -> Option<Vec<u8>> {
    match number % 10 {
        0 => None,
        1 => Some(random.bytes(5_000)),
        _ => Some(random.bytes(20)),
    }
}

fn fill(server: &Server) {
    let mut client = server.client();
    let mut random = Random::new(7);
    for number in 0..KEYS {
        client.add(&["SET".as_bytes(), format!("k{number}").as_bytes(), b"overwritten"]);
    }
    client.add(&["SET", "lasting", "v", "EX", "100000"]);
    client.flush().expect("the server reads");
    for _ in 0..=KEYS {
        assert_eq!(client.answer().expect("an answer"), Value::Simple("OK".into()));
    }
    for number in 0..KEYS {
        let key = format!("k{number}");
        let done = match value(&mut random, number) {
            Some(value) => client.call(&[b"SET", key.as_bytes(), &value]),
            None => client.call(&["DEL", &key]),
        };
        assert!(done.expect("an answer").error().is_none());
    }
}

fn look(server: &Server) {
    let mut client = server.client();
    let mut random = Random::new(7);
    for number in 0..KEYS {
        let wanted = value(&mut random, number).map_or(Value::Nil, Value::Bytes);
        assert_eq!(client.say(&format!("GET k{number}")), wanted, "k{number}");
    }
    let left = client.say("TTL lasting");
    assert!(matches!(left, Value::Integer(seconds) if (99_000..=100_000).contains(&seconds)), "{left:?}");
    let count = KEYS - KEYS.div_ceil(10) + 1;
    assert_eq!(client.say("DBSIZE"), Value::Integer(i64::try_from(count).expect("a small number")));
}

/// Folders and files of the store that are not the journal and not the lock.
fn derived(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("the data folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    entries.filter(|path| name(path).contains("ledger")).collect()
}

#[test]
fn a_store_whose_ledger_was_deleted_has_all_its_keys() {
    let folder = TempDir::new().expect("a temporary folder");
    let launch = Launch::new(folder.path()).durability("written");
    for clean in [true, false, true] {
        let server = launch.start();
        fill(&server);
        look(&server);
        if clean {
            let (status, text) = server.terminate();
            assert_eq!(status.code(), Some(0), "{text}");
        } else {
            server.kill();
        }
        let derived = derived(folder.path());
        assert!(!derived.is_empty(), "no ledger among {:?}", files_of(folder.path()));
        for path in derived {
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it can be removed");
        }
        look(&launch.start());
    }
}

#[test]
fn a_store_that_lost_single_files_of_its_ledger_has_all_its_keys() {
    let folder = TempDir::new().expect("a temporary folder");
    let launch = Launch::new(folder.path()).durability("written");
    let server = launch.start();
    fill(&server);
    let (status, text) = server.terminate();
    assert_eq!(status.code(), Some(0), "{text}");
    let files: Vec<_> = derived(folder.path())
        .iter()
        .flat_map(|path| if path.is_dir() { files_of(path) } else { vec![path.clone()] })
        .collect();
    assert!(!files.is_empty(), "no ledger among {:?}", files_of(folder.path()));
    let mut random = Random::new(Random::seed());
    for _ in 0..files.len().min(12) {
        let Some(file) = files.get(random.below(files.len())).filter(|file| file.exists()) else { continue };
        println!("ledger: without {}", file.strip_prefix(folder.path()).unwrap_or(file).display());
        fs::remove_file(file).expect("it can be removed");
        let server = launch.start();
        look(&server);
        server.kill();
    }
}
