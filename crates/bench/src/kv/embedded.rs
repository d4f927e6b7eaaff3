//! Holdfast, embedded, behind the workloads.
//!
//! May use: `holdfast`, `workload`. Must not know: other stores.

use std::path::PathBuf;

use clap::Args;
use holdfast::{Options, PutOptions, Store};

use crate::workload::{Driver, Durability, Plan, Result, run_side};

const BUCKET: &[u8] = b"bench";

/// The command line of one side.
#[derive(Debug, Args)]
pub(crate) struct Side {
    /// Folder of the store
    #[arg(long)]
    dir: PathBuf,
    #[command(flatten)]
    plan: Plan,
}

struct Embedded {
    store: Store,
    options: PutOptions,
}

impl Driver for Embedded {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.kv().put(BUCKET, key, value, &self.options)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.store.kv().get(BUCKET, key)?.map(|object| object.value.len()))
    }

    fn head(&self, key: &[u8]) -> Result<bool> {
        Ok(self.store.kv().head(BUCKET, key)?.is_some())
    }
}

/// Does the plan to a store in the folder.
pub(crate) fn run_embedded(side: &Side) -> Result<()> {
    let durability = match side.plan.durability {
        Durability::Written => holdfast::Durability::Written,
        Durability::Synced => holdfast::Durability::Synced,
    };
    let store = Store::open(&side.dir, Options { durability, ..Options::default() })?;
    let embedded = Embedded { store, options: PutOptions::default() };
    run_side(&embedded, &side.plan)?;
    embedded.store.close()?;
    Ok(())
}
