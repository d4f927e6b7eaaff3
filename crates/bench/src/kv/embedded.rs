//! Holdfast, embedded, behind the workloads.
//!
//! May use: `holdfast`, `workload`. Must not know: other stores.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use holdfast::{
    ErrorKind, FoldOrder, IndexQuery, Indexes, Options, PutOptions, Regex, Store, Term, TermRef, Tree, TreeSize,
    object_hash,
};

use crate::workload::{
    Compression, Driver, Durability, Entry, Failure, Filter, Fold, Plan, Result, See, Session, TermRange,
};

const BUCKET: &[u8] = b"bench";
/// Leaves of the tree that is built, the most there are.
const LEAVES: u32 = 1 << 20;

/// Background work that has not gone on for so long has come to its end.
const QUIET: Duration = Duration::from_secs(3);

/// A store in a folder.
pub(crate) struct Embedded {
    store: Store,
    dir: PathBuf,
}

struct Caller<'a> {
    store: &'a Store,
    options: PutOptions,
    regexes: BTreeMap<&'static str, Regex>,
}

impl Embedded {
    /// Opens a store with its defaults, but for durability and compression.
    pub(crate) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let durability = match plan.durability {
            Durability::Written => holdfast::Durability::Written,
            Durability::Window => holdfast::Durability::window(Duration::from_millis(1), Duration::from_millis(10)),
            Durability::Synced => holdfast::Durability::Synced,
        };
        let compression = match plan.compression() {
            Compression::None => holdfast::Compression::None,
            Compression::Lz4 => holdfast::Compression::Lz4,
        };
        let store = Store::open(dir, Options { durability, compression, ..Options::default() })?;
        Ok(Self { store, dir: dir.to_owned() })
    }

    /// Closes it.
    pub(crate) fn close(self) -> Result<()> {
        Ok(self.store.close()?)
    }
}

impl Driver for Embedded {
    fn session(&self) -> Result<Box<dyn Session + Send + '_>> {
        Ok(Box::new(Caller { store: &self.store, options: PutOptions::default(), regexes: BTreeMap::new() }))
    }

    fn dir(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn settle(&self) -> Result<()> {
        let mut before = self.store.stats().compaction;
        loop {
            thread::sleep(QUIET);
            let now = self.store.stats().compaction;
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    fn compact(&self) -> Result<()> {
        match self.store.compact() {
            Err(error) if error.kind() == ErrorKind::Conflict => self.settle(),
            outcome => Ok(outcome.map(|_| ())?),
        }
    }

    fn rebuild_tree(&self) -> Result<u64> {
        let size = TreeSize::with_leaves(LEAVES).ok_or("there is no tree of that size")?;
        let (mut tree, mut objects) = (Tree::new(size), 0);
        let fold = holdfast::Fold { order: FoldOrder::Partition, ..holdfast::Fold::default() };
        self.store.snapshot()?.fold(&fold, &mut |object| {
            tree.update(object_hash(object.bucket(), object.key()), None, Some(object.clock()?.hash()));
            objects += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        std::hint::black_box(&tree);
        Ok(objects)
    }
}

impl Caller<'_> {
    /// The expression of a filter, compiled once.
    fn regex(&mut self, filter: Filter) -> Result<&Regex> {
        let text = filter.regex();
        if !self.regexes.contains_key(text) {
            self.regexes.insert(text, holdfast::regex(text)?);
        }
        self.regexes.get(text).ok_or_else(|| Failure::from("it was just inserted"))
    }
}

impl Session for Caller<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.kv().put(BUCKET, key, value, &self.options)?;
        Ok(())
    }

    fn put_indexed(&mut self, key: &[u8], value: &[u8], entries: &[Entry]) -> Result<()> {
        let pair = |entry: &Entry| (entry.index, Term::Binary(entry.term.clone()));
        let indexes = Indexes::from_pairs(entries.iter().map(pair));
        self.store.kv().put(BUCKET, key, value, &PutOptions { indexes, ..PutOptions::default() })?;
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

    fn index_range(&mut self, range: &TermRange, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let store = self.store;
        let (from, to) = (Term::Binary(range.from.clone()), Term::Binary(range.to.clone()));
        let term_regex = range.filter.map(|filter| self.regex(filter)).transpose()?;
        let index = range.index.as_bytes();
        let all =
            IndexQuery { bucket: BUCKET, index, from: &from, to: &to, term_regex, limit: usize::MAX, after: None };
        let mut after = None;
        loop {
            let page = store.kv().index(&IndexQuery { after: after.as_ref(), ..all })?.value;
            for (term, key) in page.entries.iter() {
                match term {
                    TermRef::Binary(term) => see(term, key),
                    TermRef::Integer(_) => return Err("a number in an index of text".into()),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn fold(&mut self, what: Fold, see: See<'_>) -> Result<()> {
        // Heads in the order in which other stores have them; values where they lie, which is what one would choose.
        let order = if what == Fold::Heads { FoldOrder::Key } else { FoldOrder::Write };
        let fold = holdfast::Fold { bucket: Some(BUCKET), order, ..holdfast::Fold::default() };
        self.store.snapshot()?.fold(&fold, &mut |object| {
            if what == Fold::Heads {
                std::hint::black_box(object.head()?);
                see(object.key(), None);
            } else {
                see(object.key(), Some(&object.value()?));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }
}
