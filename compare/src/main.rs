//! The other side of `holdfast-bench kv --compare`: RocksDB, doing the same workload.
//!
//! The workloads are the benchmark's own source, so that both sides have the same keys, values, threads and clocks,
//! and this program needs nothing else of Holdfast.
//!
//! May use: the folder `workload`, `rocksdb`. Must not know: Holdfast.

mod rocks;
#[allow(dead_code, unused_imports, reason = "the benchmark uses more of its workloads than one side does")]
#[path = "../../crates/bench/src/workload/mod.rs"]
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Does a plan to RocksDB and prints a line of JSON for each phase.
#[derive(Debug, Parser)]
#[command(name = "compare", version)]
pub(crate) struct Line {
    /// Folder of the database
    #[arg(long)]
    dir: PathBuf,
    /// Bits per key of the Bloom filter; 0 is none, RocksDB's default
    #[arg(long, default_value_t = 0)]
    bloom_bits: u8,
    #[command(flatten)]
    plan: workload::Plan,
}

fn main() -> ExitCode {
    match rocks::run(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            use std::io::Write;
            // Nobody who cannot be told wants to know.
            let _ = writeln!(std::io::stderr().lock(), "compare: {failure}");
            ExitCode::FAILURE
        }
    }
}
