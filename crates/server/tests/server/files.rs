//! What looks at files: `inspect`, `config --check`, `hash-password`.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Server, run, run_with_input};

/// A stopped store with a value that can be found in its journal.
fn store(folder: &TempDir) -> String {
    let dir = folder.path().to_str().unwrap().to_owned();
    let server = Server::start(&["--dir", &dir]);
    for key in 0..20 {
        let value = format!("{key:03}").repeat(100);
        assert_eq!(server.say(&format!("SET key:{key} {value}\r\n")), "+OK\r\n");
    }
    assert_eq!(server.stop().code, Some(0));
    dir
}

#[test]
fn inspect_finds_nothing_wrong_with_a_sound_store_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let dir = store(&folder);
    let before = state(folder.path());
    for arguments in [&["inspect", &dir][..], &["inspect", &dir, "--verify"]] {
        let (code, said, complained) = run(arguments);
        assert_eq!((code, complained.as_str()), (Some(0), ""), "{said}");
        for words in ["partitions 16\n", " segments\n", "\n0000000000000000.seg ", " sealed\n", "\ndamage     none"] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        let verified = "verified   20 batches, ";
        assert_eq!(said.contains(verified), arguments.len() == 3, "{said}");
        assert_eq!(said.contains("live       unknown without --verify\n"), arguments.len() == 2, "{said}");
        assert_eq!(state(folder.path()), before);
    }
    let (code, said, _) = run(&["inspect", &dir, "--dump", "..5000"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("batch 4096, 1 sections, "), "{said}");
    assert!(
        said.contains("    put \"db0\" \"key:0\" = \"000000") && said.contains("\"... (300 bytes, crc32c "),
        "{said}"
    );
    assert_eq!(said.matches("batch ").count(), 3, "{said}");
    assert_eq!(state(folder.path()), before);
}

/// Names, lengths, contents and times of everything in a folder.
fn state(folder: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            found.extend(state(&path));
            found.push((path, changed, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, changed, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn inspect_verify_names_file_and_offset_of_a_changed_byte() {
    let folder = TempDir::new().unwrap();
    let dir = store(&folder);
    let segment = Path::new(&dir).join("journal/0000000000000000.seg");
    let bytes = fs::read(&segment).unwrap();
    let value = "007".repeat(100);
    let at = bytes.windows(value.len()).position(|window| window == value.as_bytes()).unwrap();
    fs::OpenOptions::new().write(true).open(&segment).unwrap().write_all_at(b"X", at as u64).unwrap();
    let (code, said, _) = run(&["inspect", &dir, "--verify"]);
    assert_eq!(code, Some(1), "{said}");
    let line = said.lines().find(|line| line.starts_with("damage ")).unwrap();
    assert!(line.contains(segment.to_str().unwrap()) && line.contains("(record)"), "{line}");
    let number = |word: &str| -> usize {
        let mut words = line.split(' ').skip_while(|found| *found != word);
        words.nth(1).unwrap().parse().unwrap()
    };
    let range = number("offset")..number("offset") + number("bytes");
    assert!(range.contains(&at), "{at} is outside {range:?}");
}

#[test]
fn inspect_ledger_notices_a_ledger_that_is_not_what_the_journal_says() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let dir = store(&one);
    // The same store, the same positions, and another value under one key.
    copy(one.path(), other.path());
    for (dir, value) in [(one.path(), "this"), (other.path(), "that")] {
        let server = Server::start(&["--dir", dir.to_str().unwrap()]);
        assert_eq!(server.say(&format!("SET key:0 {}\r\n", value.repeat(75))), "+OK\r\n");
        assert_eq!(server.stop().code, Some(0));
    }
    fs::remove_dir_all(one.path().join("ledger")).unwrap();
    copy(&other.path().join("ledger"), &one.path().join("ledger"));
    let (code, said, _) = run(&["inspect", &dir, "--ledger"]);
    let wanted = "ledger     differs from the journal: remove the folder `ledger` to have it rebuilt\n";
    assert!(code == Some(1) && said.contains(wanted) && !said.contains("damage "), "{code:?} {said}");
    fs::remove_dir_all(one.path().join("ledger")).unwrap();
    let (code, said, _) = run(&["inspect", &dir, "--ledger"]);
    assert!(code == Some(0) && said.contains("ledger     agrees with the journal\n"), "{code:?} {said}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

#[test]
fn inspect_of_no_store_makes_none() {
    let folder = TempDir::new().unwrap();
    let (code, _, complained) = run(&["inspect", folder.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(complained.starts_with("holdfast: there is no store in "), "{complained}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn hash_password_hashes_what_is_piped_in_and_refuses_nothing_and_too_much() {
    let (code, said, complained) = run_with_input(&["hash-password"], b"secret\n");
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let user = doors::auth::User::admin("a", said.trim_end());
    let users = doors::auth::Users::new([user]).unwrap();
    assert!(users.verify(b"a", b"secret").is_some() && users.verify(b"a", b"secret\n").is_none());
    for (input, wanted) in [(&b"\n"[..], "the password is empty"), (&[b'x'; 1025], "longer than 1024 bytes")] {
        let (code, said, complained) = run_with_input(&["hash-password"], input);
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert!(complained.contains(wanted), "{complained}");
    }
}

#[test]
fn config_check_says_what_is_wrong_or_what_would_be_in_force() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("holdfast.toml");
    fs::write(&path, "[resp]\nlisten = \"127.0.0.1:9\"\n").unwrap();
    let (code, said, _) = run(&["config", "--check", path.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert!(said.contains("\nresp.listen = 127.0.0.1:9\n") && said.contains("\ndurability = synced\n"), "{said}");
    fs::write(&path, "[resp]\nlisten = \"0.0.0.0:9\"\n").unwrap();
    let (code, said, complained) = run(&["config", "--check", path.to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(complained.contains("holdfast.toml: resp.listen: 0.0.0.0:9 can be reached"), "{complained}");
}
