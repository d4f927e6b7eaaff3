//! Holdfast, embedded, behind the workloads.
//!
//! May use: `holdfast`, `workload`. Must not know: other stores.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::{Options, Page, PutOptions, Store};

use crate::workload::{Driver, Durability, Fold, Plan, Result, See, Session};

const BUCKET: &[u8] = b"bench";
/// Objects of one page of a fold.
const PAGE: usize = 1_000;

/// A store in a folder.
pub(crate) struct Embedded {
    store: Store,
    dir: PathBuf,
}

struct Caller<'a> {
    store: &'a Store,
    options: PutOptions,
}

impl Embedded {
    /// Opens a store with its defaults, but for the durability.
    pub(crate) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let durability = match plan.durability {
            Durability::Written => holdfast::Durability::Written,
            Durability::Window => holdfast::Durability::window(Duration::from_millis(1), Duration::from_millis(10)),
            Durability::Synced => holdfast::Durability::Synced,
        };
        let store = Store::open(dir, Options { durability, ..Options::default() })?;
        Ok(Self { store, dir: dir.to_owned() })
    }

    /// Closes it.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.store.close()?)
    }
}

impl Driver for Embedded {
    fn session(&self) -> Result<Box<dyn Session + Send + '_>> {
        Ok(Box::new(Caller { store: &self.store, options: PutOptions::default() }))
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }
}

impl Session for Caller<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.kv().put(BUCKET, key, value, &self.options)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let object = self.store.kv().get(BUCKET, key)?;
        if let Some(object) = &object {
            see(&object.value);
        }
        Ok(object.is_some())
    }

    fn head(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.store.kv().head(BUCKET, key)?.is_some())
    }

    fn fold(&mut self, what: Fold, see: See<'_>) -> Result<()> {
        let snapshot = self.store.snapshot()?;
        let mut last: Option<Vec<u8>> = None;
        loop {
            let start = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let values = what == Fold::Objects;
            let page = snapshot.page(&Page { bucket: BUCKET, start, end: Bound::Unbounded, limit: PAGE, values })?;
            for (key, _, value) in &page.entries {
                see(key, value.as_deref());
            }
            match page.entries.into_iter().last() {
                Some((key, ..)) if page.more => last = Some(key),
                _ => return Ok(()),
            }
        }
    }
}
