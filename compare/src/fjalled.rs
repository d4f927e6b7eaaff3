//! fjall, with its separation of keys and values.
//!
//! Its journal is with the operating system after each batch; it is synced for each, each 10 ms, or never. A cache as
//! large as Holdfast's together, 64 MiB of memory table, a Bloom filter of 10 bits (`--bloom-bits`), no compression or
//! LZ4. Values of 1 KiB and more, its default, are in blob files. All else is its default.
//!
//! May use: `fjall`. Must not know: workloads.

use std::thread;
use std::time::Duration;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use crate::emulated::{Change, Ordered, Walk};
use crate::workload::{Durability, Result, See};
use crate::{MEMTABLE_BYTES, Settings};

const PAUSE: Duration = Duration::from_millis(20);
/// It is idle when it was so often found idle.
const LOOKS: u32 = 5;

/// A database with one keyspace.
pub(crate) struct Fjall {
    db: Database,
    keyspace: Keyspace,
    synced: bool,
}

impl Fjall {
    pub(crate) fn open(settings: Settings<'_>) -> Result<Self> {
        let compression = if settings.lz4 { CompressionType::Lz4 } else { CompressionType::None };
        let db = Database::builder(settings.dir)
            .cache_size(settings.cache_bytes)
            .journal_compression(CompressionType::None)
            .open()?;
        let filter = match settings.bloom_bits {
            0 => FilterPolicyEntry::None,
            bits => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(f32::from(bits))),
        };
        let keyspace = db.keyspace("bench", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES as u64)
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .filter_policy(FilterPolicy::all(filter))
                .with_kv_separation(Some(KvSeparationOptions::default().compression(compression)))
        })?;
        Ok(Self { db, keyspace, synced: settings.durability == Durability::Synced })
    }
}

impl Ordered for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        if self.synced {
            self.sync()?;
        }
        Ok(())
    }

    fn change(&self, changes: &[Change<'_>]) -> Result<()> {
        let mode = if self.synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.db.batch().durability(Some(mode));
        for change in changes {
            match change {
                Change::Put(key, value) => batch.insert(&self.keyspace, key.as_slice(), *value),
                Change::Remove(key) => batch.remove(&self.keyspace, key.as_slice()),
            }
        }
        Ok(batch.commit()?)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.keyspace.get(key)?.map(|value| see(&value)).is_some())
    }

    fn holds(&self, key: &[u8]) -> Result<bool> {
        Ok(self.keyspace.contains_key(key)?)
    }

    fn walk(&self, from: &[u8], until: &[u8], what: Walk, see: See<'_>) -> Result<()> {
        for guard in self.keyspace.range(from..until) {
            if what == Walk::Values {
                let (key, value) = guard.into_inner()?;
                see(&key, Some(&value));
            } else {
                see(&guard.key()?, None);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait()?;
        let mut idle = 0;
        while idle < LOOKS {
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            idle = if busy { 0 } else { idle + 1 };
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.keyspace.major_compact()?;
        self.settle()
    }
}
