//! The other sides of `holdfast-bench kv --drivers ..`: RocksDB, RocksDB with BlobDB, and fjall, doing the same
//! workloads.
//!
//! The workloads are the benchmark's own source, so that all sides have the same keys, values, threads and clocks,
//! and this program needs nothing else of Holdfast but the sizes of its caches.
//!
//! May use: the folder `workload`, `base::Limits`, the stores. Must not know: Holdfast.

mod emulated;
mod fjalled;
mod rocks;
#[allow(dead_code, unused_imports, reason = "the benchmark uses more of its workloads than one side does")]
#[path = "../../crates/bench/src/workload/mod.rs"]
mod workload;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::emulated::{Emulated, Ordered};

/// Memory of a store's tables before they are written out: what all three have by default.
const MEMTABLE_BYTES: usize = 64 << 20;

/// Does a plan to a store and prints a line of JSON for each part.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
struct Line {
    /// Which store
    #[arg(long, value_enum)]
    store: Store,
    /// Folder of the store
    #[arg(long)]
    store_dir: PathBuf,
    /// Bits per key of the Bloom filter; 0 is none
    #[arg(long, default_value_t = 10)]
    bloom_bits: u8,
    #[command(flatten)]
    plan: workload::Plan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    Rocksdb,
    Blobdb,
    Fjall,
}

/// What all stores are told.
#[derive(Debug, Clone, Copy)]
struct Settings<'a> {
    dir: &'a Path,
    durability: workload::Durability,
    lz4: bool,
    bloom_bits: u8,
    cache_bytes: u64,
}

fn main() -> ExitCode {
    match run(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            use std::io::Write;
            // Nobody who cannot be told wants to know.
            let _ = writeln!(std::io::stderr().lock(), "compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(line: &Line) -> workload::Result<()> {
    let limits = base::Limits::default();
    let settings = Settings {
        dir: &line.store_dir,
        durability: line.plan.durability,
        lz4: line.plan.compression() == workload::Compression::Lz4,
        bloom_bits: line.bloom_bits,
        cache_bytes: limits.ledger_cache_bytes + limits.entry_cache_bytes + limits.value_cache_bytes,
    };
    match line.store {
        Store::Rocksdb => with(rocks::Rocks::open(settings, rocks::Values::InTables)?, line),
        Store::Blobdb => with(rocks::Rocks::open(settings, rocks::Values::InBlobs)?, line),
        Store::Fjall => with(fjalled::Fjall::open(settings)?, line),
    }
}

fn with<S: Ordered>(store: S, line: &Line) -> workload::Result<()> {
    let emulated = Emulated::new(store, &line.store_dir, &line.plan);
    emulated.synced_now_and_then(|| workload::run_side(&emulated, &line.plan))
}
