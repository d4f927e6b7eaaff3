//! Ledgers that were led over a gap: segments of the journal were missing when the store was opened, and a ledger had not heard of all that was
//! in them. When they are put back it would never hear of it, for it has gone on behind them. So the store notes such gaps, before it reads the
//! journal, and where one is no more all ledgers are made anew. A ledger that had gone beyond a gap before still knows what was there, and is kept.
//!
//! The file `store.gaps` is there as long as there are such gaps: a line for each, its first position and its bytes, in decimal digits.
//! What is no such line counts as a gap that is no more: then ledgers are made anew in vain.
//!
//! May use: `journal`, `kv`'s ledgers. Must not know: what is in either.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use base::{Files, read_whole, remove_if_there, write_new_file};
use journal::{DamageKind, Journal, PartitionId, Position};
use kv::Ledgers;

use crate::backup::unusable;
use crate::error::Result;
use crate::options::Options;

const FILE: &str = "store.gaps";
/// Some hundred thousand gaps; a file that is larger is damaged.
const BYTES_MAX: u64 = 4 << 20;

/// Where the journal lacks segments, and how much of it.
type Gap = (u64, u64);

/// Has ledgers be made anew that were led over a gap that is no more, and notes those that they will be led over now. Says whether there are such. To be
/// called before a ledger is opened.
pub(crate) fn settle(
    (files, dir): (&dyn Files, &Path),
    journal: &Journal,
    ledgers: &dyn Ledgers,
    options: &Options,
) -> Result<bool> {
    let path = dir.join(FILE);
    let noted = match read_whole(files, &path, BYTES_MAX) {
        Ok(bytes) => decode(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(BTreeSet::new()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        Err(error) => return Err(unusable(dir, &error)),
    };
    let damage = journal.recovery().damage;
    let missing = damage.iter().filter(|damage| damage.kind == DamageKind::Missing);
    let gaps: BTreeSet<Gap> = missing.map(|damage| (damage.position.get(), damage.bytes)).collect();
    if noted.as_ref().is_some_and(BTreeSet::is_empty) && gaps.is_empty() {
        return Ok(false);
    }
    let end = |(from, bytes): &Gap| Position::new(from.saturating_add(*bytes));
    // What lies before where the journal begins was let go of since: nobody needed it any more.
    let is_filled = |gap: &Gap| !gaps.contains(gap) && end(gap) > journal.begin();
    let mut known = Position::MAX;
    for partition in (0..options.partitions).map(PartitionId::new) {
        known = known.min(ledgers.persisted(partition)?.unwrap_or_default());
    }
    if noted.as_ref().is_none_or(|noted| noted.iter().any(is_filled)) {
        options.tell("segments of the journal are there that were missing before: all ledgers are made anew");
        for partition in (0..options.partitions).map(PartitionId::new) {
            if ledgers.persisted(partition)?.is_some() {
                ledgers.condemn(partition)?;
            }
        }
        known = Position::ZERO;
    }
    let was_noted = |gap: &Gap| noted.as_ref().is_some_and(|noted| noted.contains(gap));
    let led_over: BTreeSet<Gap> = gaps.into_iter().filter(|gap| was_noted(gap) || known < end(gap)).collect();
    let are_there = !led_over.is_empty();
    if noted.as_ref() == Some(&led_over) {
        return Ok(are_there);
    }
    let note = || match led_over.is_empty() {
        true => remove_if_there(files, &path).and_then(|()| files.sync_dir(dir)),
        false => write_new_file(files, &path, encode(&led_over).as_bytes()),
    };
    match note() {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => journal.with_spare(note),
        noted => noted,
    }
    .map_err(|error| unusable(dir, &error))?;
    Ok(are_there)
}

fn encode(gaps: &BTreeSet<Gap>) -> String {
    gaps.iter().map(|(from, bytes)| format!("{from} {bytes}\n")).collect()
}

/// `None` when something in it is no gap.
fn decode(bytes: &[u8]) -> Option<BTreeSet<Gap>> {
    let gap = |line: &str| {
        let (from, bytes) = line.split_once(' ')?;
        Some((from.parse().ok()?, bytes.parse().ok()?))
    };
    std::str::from_utf8(bytes).ok()?.lines().map(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_come_back_as_they_were_written_and_nothing_else_is_one() {
        for gaps in [BTreeSet::new(), BTreeSet::from([(0, 5), (u64::MAX, 1)])] {
            assert_eq!(decode(encode(&gaps).as_bytes()), Some(gaps));
        }
        for wrong in ["1", "1 2 3", "a 1", "1 -1", " 1 2", "\n"].map(str::as_bytes).into_iter().chain([&b"\xFF"[..]]) {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
