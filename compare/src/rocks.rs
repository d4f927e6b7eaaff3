//! RocksDB behind the workloads.
//!
//! Its log is on, and synced for each put or never, as the plan says. Memory is what Holdfast has by default: 64 MiB of
//! memory tables and 32 MiB of block cache. All else is RocksDB's default.
//!
//! May use: `rocksdb`, `workload`. Must not know: Holdfast.

use rocksdb::{BlockBasedOptions, Cache, DB, Options, ReadOptions, WriteOptions};

use crate::Line;
use crate::workload::{Driver, Durability, Result, run_side};

const MEMTABLE_BYTES: usize = 64 << 20;
const CACHE_BYTES: usize = 32 << 20;

struct Rocks {
    db: DB,
    write: WriteOptions,
    read: ReadOptions,
}

impl Driver for Rocks {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.db.get_pinned_opt(key, &self.read)?.map(|value| value.len()))
    }

    fn head(&self, key: &[u8]) -> Result<bool> {
        // RocksDB has no answer about a key that is cheaper and certain.
        Ok(self.db.get_pinned_opt(key, &self.read)?.is_some())
    }
}

/// Does the plan to a database in the folder.
pub(crate) fn run(line: &Line) -> Result<()> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES)?);
    if line.bloom_bits > 0 {
        table.set_bloom_filter(f64::from(line.bloom_bits), false);
    }
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_block_based_table_factory(&table);
    let mut write = WriteOptions::default();
    write.set_sync(line.plan.durability == Durability::Synced);
    let rocks = Rocks { db: DB::open(&options, &line.dir)?, write, read: ReadOptions::default() };
    run_side(&rocks, &line.plan)
}
