//! RocksDB, plain or with BlobDB.
//!
//! Its log is on, and synced for each batch, each 10 ms, or never. 64 MiB of memory tables, a block cache as large as
//! Holdfast's caches together, a Bloom filter of 10 bits (`--bloom-bits`), no compression or LZ4. With BlobDB values of
//! 512 bytes and more are in blob files, which are collected. All else is RocksDB's default.
//!
//! May use: `rocksdb`. Must not know: workloads.

use std::thread;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use crate::emulated::{Change, Ordered, Walk};
use crate::workload::{Durability, Result, See};
use crate::{MEMTABLE_BYTES, Settings};

const BLOB_BYTES_MIN: u64 = 512;
/// What must be zero when nothing goes on in the background.
const BUSY: [&str; 5] = [
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
    "rocksdb.estimate-pending-compaction-bytes",
];
/// It is idle when it was so often found idle.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes that are estimated to be compacted may stay below what starts a compaction for ever.
const LOOKS_MAX: u32 = 30_000;

/// Where values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    InTables,
    InBlobs,
}

/// A database.
pub(crate) struct Rocks {
    db: DB,
    write: WriteOptions,
    read: ReadOptions,
}

impl Rocks {
    pub(crate) fn open(settings: Settings<'_>, values: Values) -> Result<Self> {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache_bytes)?)?);
        if settings.bloom_bits > 0 {
            table.set_bloom_filter(f64::from(settings.bloom_bits), false);
        }
        let compression = if settings.lz4 { DBCompressionType::Lz4 } else { DBCompressionType::None };
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_block_based_table_factory(&table);
        options.set_compression_type(compression);
        if values == Values::InBlobs {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(BLOB_BYTES_MIN);
            options.set_blob_compression_type(compression);
            options.set_enable_blob_gc(true);
        }
        let mut write = WriteOptions::default();
        write.set_sync(settings.durability == Durability::Synced);
        Ok(Self { db: DB::open(&options, settings.dir)?, write, read: ReadOptions::default() })
    }

    fn busy(&self) -> Result<bool> {
        for name in BUSY {
            if self.db.property_int_value(name)?.unwrap_or(0) > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Ordered for Rocks {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn change(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.put(key, value),
                Change::Remove(key) => batch.delete(key),
            }
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.db.get_pinned_opt(key, &self.read)?.map(|value| see(&value)).is_some())
    }

    fn holds(&self, key: &[u8]) -> Result<bool> {
        // RocksDB has no answer about a key that is cheaper and certain.
        Ok(self.db.get_pinned_opt(key, &self.read)?.is_some())
    }

    fn walk(&self, from: &[u8], until: &[u8], what: Walk, see: See<'_>) -> Result<()> {
        let mut read = ReadOptions::default();
        read.set_iterate_upper_bound(until);
        let mut iterator = self.db.raw_iterator_opt(read);
        iterator.seek(from);
        while let Some(key) = iterator.key() {
            see(key, if what == Walk::Values { iterator.value() } else { None });
            iterator.next();
        }
        Ok(iterator.status()?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        let mut idle = 0;
        for _ in 0..LOOKS_MAX {
            idle = if self.busy()? { 0 } else { idle + 1 };
            if idle >= LOOKS {
                break;
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        // Without force the lowest level, and so most blobs, would be left as they are.
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        self.settle()
    }
}
