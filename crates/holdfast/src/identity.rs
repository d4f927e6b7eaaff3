//! Which store a directory is: the file `store`. This comment is the format's specification.
//!
//! Format: docs/formats/store.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   magic        8   "HOLDSTO\x02"; the last byte is the version
//!   store       16   identity, made once
//!   partitions   2   1 to 1024
//!   used         1   what there must be beside the journal: bit 0 the folder `space`, bit 1 the folder `series`
//!   zero         1
//!   checksum     4   CRC32C of all the above
//!
//! Where nothing is used it is of version 1, which is the same.
//!
//! Every segment's header repeats identity and partitions, so the file is rebuilt when it is missing or damaged. It is written after the
//! first segment: a store that has the file and no segment lost its journal. What is used is noted
//! after the folder is there, durably: a folder that is noted and not there was removed.
//!
//! May use: `base`, `journal`. Must not know: engines.

use std::path::Path;

use base::{Files, Random, crc32c, read_whole, write_new_file};

use crate::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"HOLDSTO\x02";
const MAGIC_1: [u8; 8] = *b"HOLDSTO\x01";
const SPACE: u8 = 1;
const SERIES: u8 = 2;
const FILE: &str = "store";
const BYTES: usize = 32;
/// Most partitions a store may have.
pub(crate) const PARTITIONS_MAX: u16 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) store: u128,
    pub(crate) partitions: u16,
    pub(crate) used: Used,
}

/// What a store has beside its journal, whose folders must not be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Used {
    pub(crate) space: bool,
    pub(crate) series: bool,
}

impl Used {
    fn bits(self) -> u8 {
        (u8::from(self.space) * SPACE) | (u8::from(self.series) * SERIES)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { space: self.space || other.space, series: self.series || other.series }
    }
}

impl Identity {
    /// Whether both are of one store, whatever is used of it.
    pub(crate) fn is_same_store(&self, other: &Self) -> bool {
        (self.store, self.partitions) == (other.store, other.partitions)
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut to = if self.used == Used::default() { MAGIC_1 } else { MAGIC }.to_vec();
        to.extend_from_slice(&self.store.to_le_bytes());
        to.extend_from_slice(&self.partitions.to_le_bytes());
        to.extend_from_slice(&[self.used.bits(), 0]);
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let (body, [low, high, bits, zero]) = body.split_last_chunk::<4>()?;
        let (magic, store) = body.split_last_chunk::<16>()?;
        let partitions = u16::from_le_bytes([*low, *high]);
        let used = Used { space: bits & SPACE != 0, series: bits & SERIES != 0 };
        let expected = if used == Used::default() { MAGIC_1 } else { MAGIC };
        let intact = magic == expected && (used.bits(), 0) == (*bits, *zero);
        let intact = intact && crc32c(bytes.get(..BYTES - 4)?) == u32::from_le_bytes(*sum);
        let intact = intact && (1..=PARTITIONS_MAX).contains(&partitions);
        intact.then_some(Self { store: u128::from_le_bytes(*store), partitions, used })
    }
}

/// Reads the file `store` in `dir`; `None` when it is missing or damaged.
pub(crate) fn read(files: &dyn Files, dir: &Path) -> Result<Option<Identity>> {
    let path = dir.join(FILE);
    match read_whole(files, &path, BYTES as u64) {
        Ok(bytes) => Ok(Identity::decode(&bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(failed(&path, &error)),
    }
}

/// Writes the file `store` in `dir`, durably.
pub(crate) fn write(files: &dyn Files, dir: &Path, identity: Identity) -> Result<()> {
    let path = dir.join(FILE);
    write_new_file(files, &path, &identity.encode()).map_err(|error| failed(&path, &error))
}

/// Reads the identity of the store in `dir`, from its file or its journal, and changes nothing.
pub(crate) fn find(files: &dyn Files, dir: &Path) -> Result<Option<Identity>> {
    match read(files, dir)? {
        Some(identity) => Ok(Some(identity)),
        None => {
            let found = journal::identify(files, &dir.join("journal"))?;
            Ok(found.map(|(store, partitions)| Identity { store, partitions, used: Used::default() }))
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

/// The identity of a store that is being opened.
pub(crate) struct Settled {
    pub(crate) identity: Identity,
    is_written: bool,
}

impl Settled {
    /// Writes the file `store` where there is no intact one. To be called when there is a segment: where there is the file, there
    /// are segments, or they were removed.
    pub(crate) fn write(&self, files: &dyn Files, dir: &Path) -> Result<()> {
        if self.is_written { Ok(()) } else { write(files, dir, self.identity) }
    }
}

/// Reads the identity of the store in `dir`, or gives it one, which is to be written when the journal is open.
pub(crate) fn settle(files: &dyn Files, dir: &Path, partitions: u16, entropy: u64) -> Result<Settled> {
    if let Some(identity) = read(files, dir)? {
        return Ok(Settled { identity, is_written: true });
    }
    let journal = dir.join("journal");
    files.create_dir(&journal).map_err(|error| failed(&journal, &error))?;
    let identity = match journal::identify(files, &journal)? {
        Some((store, partitions)) => Identity { store, partitions, used: Used::default() },
        None => {
            if !(1..=PARTITIONS_MAX).contains(&partitions) {
                let text = format!("{partitions} partitions; a store has 1 to {PARTITIONS_MAX}");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            let mut random = Random::new(entropy);
            let store = (u128::from(random.next()) << 64) | u128::from(random.next());
            Identity { store, partitions, used: Used::default() }
        }
    };
    Ok(Settled { identity, is_written: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intact_file_with_an_impossible_number_of_partitions_is_damage() {
        for (partitions, good) in [(0, false), (1, true), (PARTITIONS_MAX, true), (PARTITIONS_MAX + 1, false)] {
            let identity = Identity { store: 7, partitions, used: Used::default() };
            assert_eq!(Identity::decode(&identity.encode()), good.then_some(identity));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_changed_byte_is_noticed_and_garbage_is_no_identity(
            store in 0u128..=u128::MAX,
            partitions in 1u16..=PARTITIONS_MAX,
            used in (proptest::bool::ANY, proptest::bool::ANY),
            at in 0usize..BYTES,
            flip in 1u8..=255,
            garbage in proptest::collection::vec(0u8..=255, 0..2 * BYTES),
        ) {
            let identity = Identity { store, partitions, used: Used { space: used.0, series: used.1 } };
            let mut bytes = identity.encode();
            assert_eq!(Identity::decode(&bytes), Some(identity));
            assert_eq!(Identity::decode(&bytes[..at]), None);
            assert_eq!(Identity::decode(&[&bytes[..], &[0]].concat()), None);
            bytes[at] ^= flip;
            assert_eq!(Identity::decode(&bytes), None);
            assert_eq!(Identity::decode(&garbage), None);
        }

        #[test]
        fn what_has_a_right_checksum_decodes_to_nothing_or_to_itself(
            store in 0u128..=u128::MAX,
            partitions in proptest::prop_oneof![0u32..2000, 0u32..=u32::MAX, 0x1_0000u32..0x4_0000],
            magic in proptest::sample::select(vec![MAGIC, MAGIC_1]),
        ) {
            let mut bytes = [&magic[..], &store.to_le_bytes(), &partitions.to_le_bytes()].concat();
            bytes.extend(crc32c(&bytes).to_le_bytes());
            match Identity::decode(&bytes) {
                Some(identity) => assert_eq!(identity.encode(), bytes),
                None => {
                    let (used, is_old) = (partitions >> 16, magic == MAGIC_1);
                    let is_known = if is_old { used == 0 } else { (1..=3).contains(&used) };
                    assert!(!is_known || !(1..=1024).contains(&(partitions & 0xffff)));
                }
            }
        }
    }
}
