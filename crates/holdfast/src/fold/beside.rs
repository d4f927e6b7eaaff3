//! Going through a part of the partitions with a second thread, beside the one that merges and shows.
//!
//! Most of what a fold over heads takes is stepping through ledgers. The second thread merges what its partitions hold into blocks;
//! for the first it is one source more. Objects come in the same order, from the same views, and to the same thread.
//!
//! May use: `kv`, merging. Must not know: what a fold looks for.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{Builder, Scope};

use kv::{Bounds, Item, Items, Reader};

use crate::hands::hands;
use crate::merge::{Merge, Source};

/// Bytes of a block, give or take an object: they pass from one processor's cache to the other's.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that are full and wait to be shown.
const BLOCKS_AHEAD: usize = 2;

/// Threads of this program that fold by key.
static FOLDING: AtomicUsize = AtomicUsize::new(0);

/// A thread that folds by key.
pub(super) struct Folding(());

impl Folding {
    /// This one.
    pub(super) fn this() -> Self {
        FOLDING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// One more, if all that fold then have a processor each: more would only take it from the others.
    pub(super) fn another(threads: bool) -> Option<Self> {
        let most = hands(threads);
        let add = |folding| (folding < most).then_some(folding + 1);
        FOLDING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| Self(()))
    }
}

impl Drop for Folding {
    fn drop(&mut self) {
        FOLDING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Objects of some of the partitions, in order.
pub(super) enum Objects {
    /// Of one partition, which this thread goes through.
    Here(usize, Items),
    /// Of those that another goes through.
    Beside(Box<Blocks>),
}

/// What the second thread has sent.
pub(super) struct Blocks {
    bounds: Bounds,
    full: Receiver<Sent>,
    empty: mpsc::Sender<Block>,
    block: Block,
    /// How many objects of the block were passed, the one it stands on among them.
    passed: usize,
}

enum Sent {
    Block(Block),
    /// There is no more.
    End,
    Failed(kv::Error),
}

/// Objects one behind the other.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    objects: Vec<Place>,
}

/// Where an object lies in its block.
#[derive(Clone)]
struct Place {
    partition: usize,
    key: Range<usize>,
    stored: Range<usize>,
}

/// One source for each of these partitions.
pub(super) fn here(
    readers: &[Reader],
    partitions: Range<usize>,
    bounds: &Bounds,
    now_ms: u64,
) -> impl Iterator<Item = Objects> {
    let numbered = partitions.clone().zip(readers.get(partitions).unwrap_or_default());
    numbered.map(move |(number, reader)| Objects::Here(number, reader.items(bounds, now_ms)))
}

/// One source for all of these partitions, which a thread of its own goes through until it is done or nobody takes what it sends. None
/// when there is no thread to be had.
pub(super) fn beside<'s>(
    scope: &'s Scope<'s, '_>,
    readers: &'s [Reader],
    partitions: Range<usize>,
    bounds: &'s Bounds,
    now_ms: u64,
) -> Option<Objects> {
    let (send, full) = mpsc::sync_channel(BLOCKS_AHEAD);
    let (empty, emptied) = mpsc::channel();
    let work = move || {
        let sent = go_through(here(readers, partitions, bounds, now_ms), &send, &emptied);
        // Whoever does not take it has stopped.
        let _ = send.send(sent.map_or_else(Sent::Failed, |()| Sent::End));
    };
    Builder::new().name("holdfast-fold".into()).spawn_scoped(scope, work).ok()?;
    let blocks = Blocks { bounds: bounds.clone(), full, empty, block: Block::default(), passed: 0 };
    Some(Objects::Beside(Box::new(blocks)))
}

fn go_through(
    sources: impl Iterator<Item = Objects>,
    full: &SyncSender<Sent>,
    empty: &Receiver<Block>,
) -> kv::Result<()> {
    let mut objects = Merge::new(sources)?;
    loop {
        let mut block = empty.try_recv().unwrap_or_default();
        block.clear();
        while block.bytes.len() < BLOCK_BYTES
            && let Some((_, on)) = objects.least()
        {
            block.push(on.partition(), &on.item()?);
            objects.pass()?;
        }
        if block.objects.is_empty() || full.send(Sent::Block(block)).is_err() {
            return Ok(());
        }
    }
}

impl Block {
    fn clear(&mut self) {
        self.bytes.clear();
        self.objects.clear();
    }

    fn push(&mut self, partition: usize, item: &Item<'_>) {
        let mut add = |bytes: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            start..self.bytes.len()
        };
        let (key, stored) = (add(item.place()), add(item.stored()));
        self.objects.push(Place { partition, key, stored });
    }
}

impl Blocks {
    fn advance(&mut self) -> kv::Result<bool> {
        self.passed += 1;
        while self.passed > self.block.objects.len() {
            let next = match self.full.recv() {
                Ok(Sent::Block(next)) => next,
                Ok(Sent::End) => return Ok(false),
                Ok(Sent::Failed(error)) => return Err(error),
                // It panicked, and so does the scope that it runs in.
                Err(_) => return Err(kv::Error::Ledger { path: String::new(), reason: "its thread has ended".into() }),
            };
            let _ = self.empty.send(std::mem::replace(&mut self.block, next));
            self.passed = 1;
        }
        Ok(true)
    }

    fn on(&self) -> (usize, &[u8], &[u8]) {
        let on = self.passed.checked_sub(1).and_then(|on| self.block.objects.get(on));
        let bytes = |range: &Range<usize>| self.block.bytes.get(range.clone()).unwrap_or_default();
        on.map_or((0, &[], &[]), |on| (on.partition, bytes(&on.key), bytes(&on.stored)))
    }
}

impl Objects {
    /// The number of the partition that has what it stands on.
    pub(super) fn partition(&self) -> usize {
        match self {
            Self::Here(number, _) => *number,
            Self::Beside(blocks) => blocks.on().0,
        }
    }

    /// The object it stands on.
    pub(super) fn item(&self) -> kv::Result<Item<'_>> {
        match self {
            Self::Here(_, items) => items.item(),
            Self::Beside(blocks) => {
                let (_, key, stored) = blocks.on();
                Item::of(key, stored)
            }
        }
    }
}

impl Source for Objects {
    fn advance(&mut self) -> kv::Result<bool> {
        match self {
            Self::Here(_, items) => items.advance(),
            Self::Beside(blocks) => blocks.advance(),
        }
    }

    fn place(&self) -> &[u8] {
        match self {
            Self::Here(_, items) => items.place(),
            Self::Beside(blocks) => blocks.on().1,
        }
    }

    fn tag(&self) -> u128 {
        match self {
            Self::Here(_, items) => items.tag(),
            Self::Beside(blocks) => blocks.bounds.tag(blocks.on().1),
        }
    }
}
