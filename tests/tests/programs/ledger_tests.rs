//! The ledger is derived: a store that lost it, in whole or in part, has lost nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use holdfast_tests::{Launch, Random, Server, Snapshot, Value, files_of, flip, folder_in_memory, say, until};
use tempfile::TempDir;

const KEYS: usize = 3_000;
/// Damaged stores in each test.
const ROUNDS: usize = 15;
const REBUILD_TIME_MAX: Duration = Duration::from_secs(10);

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

/// Every key is what it must be. What the server is still rebuilding it may refuse for a while, but not for long.
fn look(server: &Server) {
    let mut client = server.client();
    let mut random = Random::new(7);
    for number in 0..KEYS {
        let wanted = value(&mut random, number).map_or(Value::Nil, Value::Bytes);
        let mut found = Value::Nil;
        until(REBUILD_TIME_MAX, || {
            found = client.say(&format!("GET k{number}"));
            found.error().is_none().then_some(())
        });
        assert_eq!(found, wanted, "k{number}; the server printed:\n{}", server.output().text());
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
    damage(|file, _| fs::remove_file(file).expect("it can be removed"));
}

#[test]
fn a_store_with_changed_bytes_in_its_ledger_has_all_its_keys() {
    damage(|file, random| {
        let length = fs::metadata(file).expect("it is there").len();
        let position = random.below(usize::try_from(length).expect("a small file").max(1));
        say!("ledger: byte {position}");
        flip(file, position, 1 << random.below(8));
    });
}

/// Damages one file after another and looks at every key each time; sometimes in a store that was whole, sometimes in one
/// that was damaged, repaired and killed before.
fn damage(how: fn(&Path, &mut Random)) {
    let work = folder_in_memory();
    let folder = work.path().join("data");
    let launch = Launch::new(&folder).durability("written");
    let server = launch.start();
    fill(&server);
    let (status, text) = server.terminate();
    assert_eq!(status.code(), Some(0), "{text}");
    let snapshot = Snapshot::of(&folder);
    let seed = Random::seed();
    say!("ledger: HOLDFAST_SEED={seed}");
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        if round % 4 == 0 {
            snapshot.restore(&folder);
        }
        let files = files_of(&folder).into_iter().filter(|file| file.to_string_lossy().contains("ledger"));
        // Most of the files are short; what they lead to is in the tables.
        let (tables, others): (Vec<_>, Vec<_>) =
            files.partition(|file| fs::metadata(file).is_ok_and(|file| file.len() > 4096));
        assert!(!others.is_empty(), "no ledger among {:?}", files_of(&folder));
        let files = if round % 3 == 0 || tables.is_empty() { &others } else { &tables };
        let path = &files[random.below(files.len())];
        say!("ledger: round {round}, damage to {}", path.strip_prefix(&folder).unwrap_or(path).display());
        how(path, &mut random);
        let server = launch.start();
        look(&server);
        server.kill();
    }
}
