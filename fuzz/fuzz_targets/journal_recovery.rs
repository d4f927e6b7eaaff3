//! Opens and reads a journal whose segment holds foreign bytes: no bytes make it panic, and what it then appends is there.
//!
//! The first byte of the input chooses: the rest replaces the segment from its start, or is a list of changes (position,
//! byte) to a good segment, which gets behind the checksums more often. One change costs at most the batch that it hit. Or the file is
//! the note of where the journal begins, which costs no batch whatever is in it.
//!
//! Run: `cargo +nightly fuzz run journal_recovery`. May use: `base`, `journal`.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::memory::Disk;
use base::{Files, Limits, ManualClock};
use journal::{BEGIN_FILE, Batch, Journal, Level, Log, Options, PartitionId, Position, Visit};
use libfuzzer_sys::fuzz_target;

const STORE: u128 = 7;
const PARTITIONS: u16 = 2;
const DIR: &str = "journal";
const BATCHES: u8 = 4;

fn open(disk: &Disk) -> journal::Result<Journal> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    let options = Options::new(STORE, PARTITIONS, &Limits::tiny());
    Journal::open(files, Arc::new(ManualClock::at(1_000)), Path::new(DIR), options).map(|(journal, _)| journal)
}

fn append(journal: &Journal, byte: u8) -> Position {
    let mut batch = Batch::new();
    for partition in 0..PARTITIONS {
        batch.section(PartitionId::new(partition), |buffer| buffer.extend([byte; 40]));
    }
    let position = journal.append(&batch).expect("an empty disk has room").position;
    journal.wait(position, Level::Synced).expect("a good disk syncs");
    position
}

/// A disk with one journal of a few batches, and its longest segment.
fn good(sealed: bool) -> (Disk, PathBuf) {
    let disk = Disk::new(1);
    let journal = open(&disk).expect("an empty folder becomes a journal");
    for number in 1..=BATCHES {
        append(&journal, number);
    }
    if sealed {
        journal.close().expect("a good disk seals");
    }
    drop(journal);
    disk.kill_process();
    let segments = disk.inventory().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"));
    let longest = segments.max_by_key(|(_, length)| *length).expect("a journal has a segment");
    (disk, longest.0)
}

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let (disk, path) = good(how & 1 == 0);
    let is_note = how & 4 != 0;
    let path = if is_note { Path::new(DIR).join(BEGIN_FILE) } else { path };
    let file = disk.open(&path).expect("the file is there");
    if how & 2 == 0 {
        file.write_at(rest, 0).expect("a good disk writes");
    } else {
        let length = file.len().expect("a good disk knows lengths").max(1);
        for change in rest.chunks_exact(3) {
            if let [low, high, byte] = *change {
                let at = u64::from(u16::from_le_bytes([low, high])) % length;
                file.write_at(&[byte], at).expect("a good disk writes");
            }
        }
    }
    drop(file);
    // Refusing a foreign segment is an answer; panicking is not.
    let Ok(journal) = open(&disk) else { return };
    let written = append(&journal, 99);
    let mut found = Vec::new();
    journal
        .read_from(Position::new(0), &mut |visit| {
            if let Visit::Record(record) = visit {
                found.push(record.position);
            }
            Ok(())
        })
        .expect("damage is visited, not an error");
    assert_eq!(found.last(), Some(&written), "what was appended behind the damage is found, and nothing behind it");
    assert!(!is_note || found.len() == usize::from(BATCHES) + 1, "the note cost a batch");
    let is_one_change = how & 2 != 0 && rest.len() < 6;
    if is_one_change {
        let lost = usize::from(BATCHES) + 1 - found.len();
        assert!(lost <= 1, "one byte cost {lost} batches");
        assert!(lost == 0 || !journal.recovery().damage.is_empty(), "a batch is gone and nothing says so");
    }
});
