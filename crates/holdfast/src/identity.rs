//! Which store a directory is: the file `store`. This comment is the format's specification.
//!
//! Format: docs/formats/store.md
//!
//! Layout, sizes in bytes, integers little-endian:
//!   magic        8   "HOLDSTO\x01"; the last byte is the version
//!   store       16   identity, made once
//!   partitions   4   1 to 1024
//!   checksum     4   CRC32C of all the above
//!
//! Every segment's header repeats identity and partitions, so the file is rebuilt when it is missing or damaged.
//!
//! May use: `base`, `journal`. Must not know: engines.

use std::path::Path;

use base::{Files, Random, crc32c, read_whole, write_new_file};

use crate::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"HOLDSTO\x01";
const FILE: &str = "store";
const BYTES: usize = 32;
/// Most partitions a store may have.
pub(crate) const PARTITIONS_MAX: u16 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) store: u128,
    pub(crate) partitions: u16,
}

impl Identity {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        to.extend_from_slice(&self.store.to_le_bytes());
        to.extend_from_slice(&u32::from(self.partitions).to_le_bytes());
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_le_bytes());
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let (body, partitions) = body.split_last_chunk::<4>()?;
        let (magic, store) = body.split_last_chunk::<16>()?;
        let intact = magic == MAGIC && crc32c(bytes.get(..BYTES - 4)?) == u32::from_le_bytes(*sum);
        let partitions = u16::try_from(u32::from_le_bytes(*partitions)).ok()?;
        let intact = intact && (1..=PARTITIONS_MAX).contains(&partitions);
        intact.then_some(Self { store: u128::from_le_bytes(*store), partitions })
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
            Ok(found.map(|(store, partitions)| Identity { store, partitions }))
        }
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{} cannot be used: {error}", path.display()))
}

/// Reads the identity of the store in `dir`, or gives it one.
pub(crate) fn settle(files: &dyn Files, dir: &Path, partitions: u16, entropy: u64) -> Result<Identity> {
    let found = read(files, dir)?;
    if let Some(identity) = found {
        return Ok(identity);
    }
    let journal = dir.join("journal");
    files.create_dir(&journal).map_err(|error| failed(&journal, &error))?;
    let identity = match journal::identify(files, &journal)? {
        Some((store, partitions)) => Identity { store, partitions },
        None => {
            if !(1..=PARTITIONS_MAX).contains(&partitions) {
                let text = format!("{partitions} partitions; a store has 1 to {PARTITIONS_MAX}");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            let mut random = Random::new(entropy);
            let store = (u128::from(random.next()) << 64) | u128::from(random.next());
            Identity { store, partitions }
        }
    };
    write(files, dir, identity)?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intact_file_with_an_impossible_number_of_partitions_is_damage() {
        for (partitions, good) in [(0, false), (1, true), (PARTITIONS_MAX, true), (PARTITIONS_MAX + 1, false)] {
            let identity = Identity { store: 7, partitions };
            assert_eq!(Identity::decode(&identity.encode()), good.then_some(identity));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_changed_byte_is_noticed_and_garbage_is_no_identity(
            store in 0u128..=u128::MAX,
            partitions in 1u16..=PARTITIONS_MAX,
            at in 0usize..BYTES,
            flip in 1u8..=255,
            garbage in proptest::collection::vec(0u8..=255, 0..2 * BYTES),
        ) {
            let identity = Identity { store, partitions };
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
            partitions in proptest::prop_oneof![0u32..2000, 0u32..=u32::MAX],
        ) {
            let mut bytes = [&MAGIC[..], &store.to_le_bytes(), &partitions.to_le_bytes()].concat();
            bytes.extend(crc32c(&bytes).to_le_bytes());
            match Identity::decode(&bytes) {
                Some(identity) => assert_eq!(identity.encode(), bytes),
                None => assert!(!(1..=1024).contains(&partitions)),
            }
        }
    }
}
