//! The list of a ledger's tables: the one file that says which of those in its folder count, and up to which position they have everything.
//!
//! This is the specification; sizes in bytes, integers little-endian, a string is its length 4 and its bytes:
//!
//!   list     magic 8, "HFTABLES" | version 1 | persisted 8, 0 if nothing ever was | next number 8 | runs 4 | run* | sum 8
//!   run      level 1 | tables 4 | table*
//!   table    number 8 | bytes 8 | entries 8 | removals 8 | codec 1 | index 1 (0 of blocks, 1 of parts) | filter 1 (0 of parts, 1 of the whole)
//!            | place of the top 20 | place of the filter 20, zeros if there is none | least key | greatest key
//!
//! Runs stand in order, younger first; the tables of a run follow each other and do not overlap. Of level 0 there are as many runs as were written
//! out and not merged into level 1 yet, of each other level one at the most. The sum is xxh3, 64 bits, of all before it.
//!
//! It is replaced as a whole (written beside, synced, renamed), after the tables that it names are synced. Files that it does not name are
//! nobody's.
//!
//! May use: nothing. Must not know: what is in tables.

use base::hash64;
use journal::Position;

use super::stored::Place;
use super::table::{IndexKind, TableInfo};
use crate::bytes::{Fields, len32, put_string};
use crate::compression::Compression;

/// Name of the file.
pub(super) const LIST: &str = "list";
/// Bytes of the file at the most: some thousand tables with the longest keys there may be, millions with usual ones.
pub(super) const LIST_BYTES_MAX: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"HFTABLES";
const VERSION: u8 = 1;
const SUM_BYTES: usize = 8;

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    pub(super) persisted: Option<Position>,
    /// The number of the next table.
    pub(super) next: u64,
    pub(super) runs: Vec<Run>,
}

/// Tables that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) level: u8,
    pub(super) tables: Vec<TableInfo>,
}

impl List {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        to.push(VERSION);
        to.extend_from_slice(&self.persisted.map_or(0, Position::get).to_le_bytes());
        to.extend_from_slice(&self.next.to_le_bytes());
        to.extend_from_slice(&len32(self.runs.len()).to_le_bytes());
        for run in &self.runs {
            to.push(run.level);
            to.extend_from_slice(&len32(run.tables.len()).to_le_bytes());
            run.tables.iter().for_each(|table| put_table(&mut to, table));
        }
        let sum = hash64(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    /// `None` when it is not a list as it was written.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
        let mut from = Fields(body);
        let is_whole = hash64(body) == u64::from_le_bytes(*sum) && from.array()? == MAGIC && from.u8()? == VERSION;
        if !is_whole {
            return None;
        }
        let persisted = Some(from.u64()?).filter(|position| *position > 0).map(Position::new);
        let next = from.u64()?;
        let runs = (0..from.u32()?).map(|_| take_run(&mut from)).collect::<Option<_>>()?;
        from.0.is_empty().then_some(Self { persisted, next, runs })
    }
}

fn put_table(to: &mut Vec<u8>, table: &TableInfo) {
    for number in [table.number, table.bytes, table.entries, table.removals] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(&[
        table.codec.code(),
        u8::from(table.index == IndexKind::Parts),
        u8::from(table.filter.is_some()),
    ]);
    to.extend_from_slice(&table.top.encode());
    to.extend_from_slice(&table.filter.unwrap_or_default().encode());
    put_string(to, &table.least);
    put_string(to, &table.greatest);
}

fn take_run(from: &mut Fields<'_>) -> Option<Run> {
    let level = from.u8()?;
    let tables = (0..from.u32()?).map(|_| take_table(from)).collect::<Option<_>>()?;
    Some(Run { level, tables })
}

fn take_place(from: &mut Fields<'_>) -> Option<Place> {
    let (place, rest) = Place::decode(from.0)?;
    from.0 = rest;
    Some(place)
}

fn take_table(from: &mut Fields<'_>) -> Option<TableInfo> {
    let [number, bytes, entries, removals] = [from.u64()?, from.u64()?, from.u64()?, from.u64()?];
    let codec = Compression::from_code(from.u8()?)?;
    let index = match from.u8()? {
        0 => IndexKind::Blocks,
        1 => IndexKind::Parts,
        _ => return None,
    };
    let has_filter = match from.u8()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let [top, filter] = [take_place(from)?, take_place(from)?];
    let is_there = if has_filter { filter.bytes > 0 } else { filter == Place::default() };
    if !is_there {
        return None;
    }
    let filter = has_filter.then_some(filter);
    let [least, greatest] = [from.string()?.to_vec(), from.string()?.to_vec()];
    Some(TableInfo { number, bytes, entries, removals, codec, top, index, filter, least, greatest })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> impl Strategy<Value = TableInfo> {
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), 0u8..3, any::<bool>(), any::<bool>());
        let places = ((any::<u64>(), any::<u32>(), any::<u64>()), (any::<u64>(), 1u32.., any::<u64>()));
        (numbers, places, any::<Vec<u8>>(), any::<Vec<u8>>()).prop_map(|(numbers, (top, filter), least, greatest)| {
            let (number, bytes, entries, codec, is_in_parts, has_filter) = numbers;
            let place = |(offset, bytes, sum)| Place { offset, bytes, sum };
            TableInfo {
                number,
                bytes,
                entries,
                removals: entries / 2,
                codec: Compression::from_code(codec).unwrap(),
                top: place(top),
                index: if is_in_parts { IndexKind::Parts } else { IndexKind::Blocks },
                filter: has_filter.then(|| place(filter)),
                least,
                greatest,
            }
        })
    }

    fn list() -> impl Strategy<Value = List> {
        let run = (any::<u8>(), proptest::collection::vec(table(), 0..4));
        let runs = proptest::collection::vec(run.prop_map(|(level, tables)| Run { level, tables }), 0..4);
        (any::<u64>(), any::<u64>(), runs).prop_map(|(persisted, next, runs)| List {
            persisted: Some(persisted).filter(|position| *position > 0).map(Position::new),
            next,
            runs,
        })
    }

    proptest! {
        #[test]
        fn a_list_comes_back_and_a_changed_or_cut_one_does_not(list in list(), at in any::<usize>(), bit in 0u8..8) {
            let mut bytes = list.encode();
            prop_assert_eq!(List::decode(&bytes), Some(list));
            let at = at % bytes.len();
            prop_assert_eq!(List::decode(&bytes[..at]), None);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(List::decode(&bytes), None);
        }

        #[test]
        fn garbage_with_a_sum_decodes_to_what_encodes_to_it_or_not_at_all(
            list in list(), at in any::<usize>(), byte in any::<u8>(), more in any::<Vec<u8>>()
        ) {
            let mut bytes = list.encode();
            bytes.truncate(bytes.len() - SUM_BYTES);
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.extend(more);
            bytes.extend(hash64(&bytes).to_le_bytes());
            if let Some(list) = List::decode(&bytes) {
                prop_assert_eq!(list.encode(), bytes);
            }
        }
    }
}
