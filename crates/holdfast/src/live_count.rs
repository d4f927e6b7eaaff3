//! Counts the live bytes of each segment from the journal alone, in bounded memory.
//!
//! For each object the place of its newest command is kept, by a hash of bucket and key: some fifty bytes whatever
//! their lengths. When there are too many, every second one is forgotten, by one more bit of the hash, and what is left counts
//! double: the count is then an estimate over a sample that hashing drew fairly. Half a million objects sampled put the
//! ratio of a segment within a percent or so.
//!
//! May use: `kv`'s commands, `base`. Must not know: files.

use std::collections::BTreeMap;

use base::{hash64, hash128};
use journal::{PartitionId, Position, RecordSection};
use kv::{Command, Commands};

/// Most objects kept: about 300 MiB.
const OBJECTS_MAX: usize = 4 << 20;

/// Live bytes as far as the journal was read.
pub(crate) struct LiveCount {
    objects: BTreeMap<u128, Place>,
    objects_max: usize,
    /// Objects are kept whose hash has zeros in these low bits.
    mask: u128,
}

#[derive(Clone, Copy)]
struct Place {
    bucket: u64,
    partition: PartitionId,
    version: Position,
    segment: Position,
    bytes: u32,
}

impl Default for LiveCount {
    fn default() -> Self {
        Self::new(OBJECTS_MAX)
    }
}

impl LiveCount {
    fn new(objects_max: usize) -> Self {
        Self { objects: BTreeMap::new(), objects_max, mask: 0 }
    }

    /// Applies the commands of one section of the batch at `position`, which lies in `segment`. What does not decode is left
    /// out.
    pub(crate) fn apply(&mut self, section: &RecordSection<'_>, position: Position, segment: Position) {
        for said in Commands::new(section.commands, section.at).map_while(Result::ok) {
            let bytes = u32::try_from(said.command_bytes()).unwrap_or(u32::MAX);
            let version = said.recorded.version.unwrap_or(position);
            let place = Place { bucket: 0, partition: section.partition, version, segment, bytes };
            self.command(&said.recorded.command, place);
        }
    }

    fn command(&mut self, command: &Command<'_>, place: Place) {
        match command {
            Command::Put(put) => self.put(put.bucket, put.key, Place { bucket: hash64(put.bucket), ..place }),
            Command::Delete { bucket, key } => {
                let hash = hash(bucket, key);
                if self.objects.get(&hash).is_some_and(|old| old.version < place.version) {
                    self.objects.remove(&hash);
                }
            }
            Command::Clear { bucket } => {
                let bucket = hash64(bucket);
                let goes = |old: &Place| (old.bucket, old.partition) == (bucket, place.partition);
                // What has the version of the clear was put by the same batch, after it.
                self.objects.retain(|_, old| !goes(old) || old.version >= place.version);
            }
            // The value stays where it is.
            Command::Expire { bucket, key, .. } => {
                if let Some(old) = self.objects.get_mut(&hash(bucket, key)) {
                    old.version = place.version;
                }
            }
        }
    }

    fn put(&mut self, bucket: &[u8], key: &[u8], place: Place) {
        let hash = hash(bucket, key);
        // What compaction says again may have changed since.
        let is_stale = self.objects.get(&hash).is_some_and(|old| old.version > place.version);
        if hash & self.mask != 0 || is_stale {
            return;
        }
        self.objects.insert(hash, place);
        while self.objects.len() > self.objects_max {
            self.mask = (self.mask << 1) | 1;
            let mask = self.mask;
            self.objects.retain(|hash, _| hash & mask == 0);
        }
    }

    /// Whether every object was counted.
    pub(crate) fn is_exact(&self) -> bool {
        self.mask == 0
    }

    /// Live bytes by the base of each segment.
    pub(crate) fn by_segment(&self) -> BTreeMap<Position, u64> {
        let weight = u64::try_from(self.mask + 1).unwrap_or(u64::MAX);
        let mut live = BTreeMap::new();
        for place in self.objects.values() {
            *live.entry(place.segment).or_default() += u64::from(place.bytes) * weight;
        }
        live
    }
}

fn hash(bucket: &[u8], key: &[u8]) -> u128 {
    let mut input = Vec::with_capacity(8 + bucket.len() + key.len());
    input.extend_from_slice(&(bucket.len() as u64).to_le_bytes());
    input.extend_from_slice(bucket);
    input.extend_from_slice(key);
    hash128(&input)
}

#[cfg(test)]
mod tests {
    use kv::Put;

    use super::*;

    fn put(count: &mut LiveCount, number: u64, segment: u64) {
        let (key, value) = (number.to_le_bytes(), [0; 100]);
        let bucket: &[u8] = if number.is_multiple_of(2) { b"even" } else { b"odd" };
        let mut commands = Vec::new();
        Command::Put(Put::new(bucket, &key, &value)).encode(&mut commands);
        apply(count, &commands, segment);
    }

    fn apply(count: &mut LiveCount, commands: &[u8], segment: u64) {
        let state = journal::PartitionState { epoch: 1, index: 1, chain: 0 };
        let section = RecordSection { partition: PartitionId::new(0), state, commands, at: 0 };
        count.apply(&section, Position::new(segment), Position::new(segment));
    }

    #[test]
    fn replaced_deleted_and_cleared_objects_are_not_live() {
        let mut count = LiveCount::default();
        (0..10).for_each(|number| put(&mut count, number, 1));
        let whole = count.by_segment()[&Position::new(1)];
        put(&mut count, 0, 2);
        let mut commands = Vec::new();
        Command::Delete { bucket: b"odd", key: &1u64.to_le_bytes() }.encode(&mut commands);
        apply(&mut count, &commands, 2);
        let odd = whole / 10;
        assert_eq!(
            count.by_segment(),
            BTreeMap::from([(Position::new(1), whole - 2 * odd - 1), (Position::new(2), odd + 1)])
        );
        let mut commands = Vec::new();
        Command::Clear { bucket: b"even" }.encode(&mut commands);
        apply(&mut count, &commands, 3);
        assert_eq!(count.by_segment(), BTreeMap::from([(Position::new(1), odd * 4)]));
        assert!(count.is_exact());
    }

    #[test]
    fn what_compaction_kept_counts_where_it_is_now_unless_it_changed_since() {
        let mut count = LiveCount::default();
        put(&mut count, 0, 1);
        put(&mut count, 2, 1);
        put(&mut count, 2, 3);
        let one = count.by_segment()[&Position::new(1)];
        let mut commands = Vec::new();
        for number in [0u64, 2] {
            let (key, value) = (number.to_le_bytes(), [0; 100]);
            Command::Put(Put::new(b"even", &key, &value)).encode_kept(Position::new(1), &mut commands);
        }
        apply(&mut count, &commands, 5);
        assert_eq!(count.by_segment(), BTreeMap::from([(Position::new(3), one), (Position::new(5), one)]));
    }

    #[test]
    fn too_many_objects_are_sampled_and_the_estimate_is_near() {
        let mut count = LiveCount::new(1000);
        (0..20_000).for_each(|number| put(&mut count, number, number / 10_000));
        assert!(!count.is_exact() && count.objects.len() <= 1000);
        let mut exact = LiveCount::default();
        (0..20_000).for_each(|number| put(&mut exact, number, number / 10_000));
        for (segment, bytes) in exact.by_segment() {
            let ratio = count.by_segment()[&segment] as f64 / bytes as f64;
            assert!((0.85..1.15).contains(&ratio), "{ratio}");
        }
    }
}
