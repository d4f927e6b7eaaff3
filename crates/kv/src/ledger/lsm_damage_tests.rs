//! Ledgers whose files are not what was written: damaged, cut, exchanged, or something else altogether.
//!
//! May use: what the other tests of ledgers use. Must not know: engines.

use super::*;

/// The story: a byte of the list of tables had the ledger show entries of before for those of now, without a word, and what compaction let go of
/// by them was lost for good.
#[test]
fn a_list_or_a_table_that_is_not_what_was_written_has_the_ledger_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = ledgers_in(dir.path(), 1 << 20);
    for round in 1..4 {
        written(&*ledgers.open(id).unwrap(), (0..10).map(long_key), &number(round), 10 * round);
    }
    let folder = ledgers.folder(id);
    let whole = |name: &str| read_whole(&OsFiles, &folder.join(name), LIST_BYTES_MAX).unwrap();
    let list = whole(LIST);
    for at in 0..list.len() {
        let mut flipped = list.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_eq!(List::decode(&flipped), None, "byte {at}");
    }
    let tables = tables_in(&folder);
    let first = whole(&tables[0]);
    let put = |name: &str, bytes: &[u8]| base::write_new_file(&OsFiles, &folder.join(name), bytes).unwrap();
    let damages: [&dyn Fn(); 5] = [
        &|| put(LIST, &list[..list.len() - 1]),
        &|| OsFiles.remove(&folder.join(LIST)).unwrap(),
        &|| OsFiles.remove(&folder.join(&tables[0])).unwrap(),
        &|| put(&tables[0], &first[..first.len() - 1]),
        &|| put(&tables[0], b""),
    ];
    for damage in damages {
        put(LIST, &list);
        tables.iter().for_each(|name| put(name, &first));
        damage();
        let anew = ledgers.open(id).unwrap();
        assert_eq!((anew.persisted(), value(&*anew, &long_key(1))), (None, None), "the journal has it all");
        assert_eq!(files_in(&folder).len(), 0);
        written(&*anew, (0..10).map(long_key), &number(7), 70);
        drop(anew);
        assert_eq!(value(&*ledgers.open(id).unwrap(), &long_key(1)), Some(number(7)));
        tables_in(&folder).iter().for_each(|name| OsFiles.remove(&folder.join(name)).unwrap());
    }
}

#[test]
fn a_changed_byte_of_a_table_is_an_error_or_changes_nothing_and_condemns_the_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = ledgers_in(dir.path(), 1 << 20);
    written(&*ledgers.open(id).unwrap(), (0..100).map(long_key), &number(1), 10);
    let folder = ledgers.folder(id);
    let [list, table] = [LIST, &tables_in(&folder)[0]].map(|name| (folder.join(name), name.to_owned()));
    let read = |path: &Path| read_whole(&OsFiles, path, LIST_BYTES_MAX).unwrap();
    let (whole_list, whole) = (read(&list.0), read(&table.0));
    let mut noticed = 0;
    let step = whole.len() / 300;
    for byte in (0..whole.len()).step_by(step) {
        let mut flipped = whole.clone();
        flipped[byte] ^= 1 << (byte % 8);
        base::write_new_file(&OsFiles, &table.0, &flipped).unwrap();
        base::write_new_file(&OsFiles, &list.0, &whole_list).unwrap();
        // Nothing is at hand.
        let ledgers = ledgers_in(dir.path(), 1 << 20);
        let ledger = ledgers.open(id).unwrap();
        let found: Vec<_> = (0..100).map(|key| ledger.get(&long_key(key))).collect();
        assert!(found.iter().flatten().flatten().all(|hit| hit.value == number(1)));
        let is_whole = found.iter().all(|found| matches!(found, Ok(Some(_))));
        assert!(is_whole || found.iter().any(Result::is_err), "byte {byte}");
        assert_eq!(ledger.is_damaged(), !is_whole, "byte {byte}");
        noticed += usize::from(!is_whole);
        if !is_whole {
            // It is emptied, and goes on.
            written(&*ledgers.open(id).unwrap(), (0..100).map(long_key), &number(1), 10);
            assert!(ledger.write_out().is_ok() && ledger.is_damaged());
        }
        tables_in(&folder).iter().for_each(|name| OsFiles.remove(&folder.join(name)).unwrap());
    }
    assert!(noticed > 250, "{noticed}");
}

#[test]
fn nothing_is_listed_any_more_by_a_ledger_that_was_found_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = ledgers_in(dir.path(), 0);
    let ledger = ledgers.open(id).unwrap();
    written(&*ledger, (0..1_000).map(long_key), &number(1), 10);
    let folder = ledgers.folder(id);
    let table = folder.join(&tables_in(&folder)[0]);
    let mut bytes = read_whole(&OsFiles, &table, LIST_BYTES_MAX).unwrap();
    bytes[100] ^= 1;
    OsFiles.open(&table).unwrap().write_at(&bytes, 0).unwrap();
    assert!((0..1_000).any(|key| ledger.get(&long_key(key)).is_err()) && ledger.is_damaged());
    ledger.insert(b"more", b"of it", at(20));
    ledger.rotate();
    let before = files_in(&folder);
    assert!(ledger.write_out().is_err());
    assert_eq!(files_in(&folder), before, "what it made is gone again");
    // Emptied on the spot it is as good as new, and so it is when it is opened again.
    ledger.reset().unwrap();
    written(&*ledger, (0..10).map(long_key), &number(2), 30);
    assert!(!ledger.is_damaged());
    drop(ledger);
    assert_eq!(value(&*ledgers.open(id).unwrap(), &long_key(1)), Some(number(2)));
}

/// The story: a folder in place of a file kept the store from opening, and a pipe had it wait for ever.
#[test]
fn whatever_lies_where_a_ledger_belongs_the_ledger_opens() {
    let dir = tempfile::tempdir().unwrap();
    let id = PartitionId::new(0);
    let ledgers = ledgers_in(dir.path(), 1 << 20);
    let folder = ledgers.folder(id);
    let within = |name: &str| {
        OsFiles.create_dir(&folder.join(name)).unwrap();
        OsFiles.create(&folder.join(name).join("something")).unwrap();
    };
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    let whole = |round| {
        let ledger = ledgers.open(id).unwrap();
        written(&*ledger, (0..10).map(long_key), &number(round), 10 * round);
        drop(ledger);
        assert_eq!(value(&*ledgers.open(id).unwrap(), &long_key(3)), Some(number(round)));
    };
    whole(1);
    let first = || folder.join(&tables_in(&folder)[0]);
    let odds: [&dyn Fn(); 8] = [
        &|| {
            OsFiles.remove(&folder.join(LIST)).unwrap();
            within(LIST);
        },
        &|| within(CONDEMNED),
        &|| within(LIST_BESIDE),
        &|| within(TABLES_BEFORE),
        &|| {
            OsFiles.remove(&folder.join(LIST)).unwrap();
            pipe(&folder.join(LIST));
        },
        &|| {
            let table = first();
            OsFiles.remove(&table).unwrap();
            pipe(&table);
        },
        &|| {
            let table = first();
            OsFiles.remove(&table).unwrap();
            OsFiles.create_dir(&table).unwrap();
        },
        &|| {
            OsFiles.discard(&folder).unwrap();
            OsFiles.create(&folder).unwrap();
        },
    ];
    for (round, odd) in (2..).zip(odds) {
        odd();
        whole(round);
        assert!(files_in(&folder).iter().all(|name| name == LIST || name.ends_with(".table")), "{round}");
    }
}

/// The story: a table of another partition, of the same number and length, was taken for the one that was there, and its keys were missing
/// without a word.
#[test]
fn an_intact_table_that_is_not_the_one_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = [0, 1].map(PartitionId::new);
    let ledgers = ledgers_in(dir.path(), 0);
    for (id, with) in [(one, 1), (other, 2)] {
        written(&*ledgers.open(id).unwrap(), (0..100).map(long_key), &number(with), 10);
    }
    let [mine, its] = [one, other].map(|id| ledgers.folder(id).join(&tables_in(&ledgers.folder(id))[0]));
    let read = |path: &Path| read_whole(&OsFiles, path, LIST_BYTES_MAX).unwrap();
    assert_eq!(read(&mine).len(), read(&its).len());
    base::write_new_file(&OsFiles, &mine, &read(&its)).unwrap();
    let ledger = ledgers.open(one).unwrap();
    assert!(matches!(ledger.get(&long_key(3)), Err(Error::Ledger { .. })) && ledger.is_damaged());
}
