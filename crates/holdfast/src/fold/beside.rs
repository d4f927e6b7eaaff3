//! Going through a part of the partitions with a second thread, beside the one that merges and shows.
//!
//! Most of what a fold over heads takes is stepping through ledgers. The second thread merges what its partitions hold into blocks;
//! for the first it is a second source. Objects come in the same order, from the same views, and to the same thread.
//!
//! May use: `kv`. Must not know: what a fold looks for.

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{Builder, Scope};

use kv::{Bounds, Item, Items, Reader};

/// Bytes of a block, give or take an object: they pass from one processor's cache to the other's.
const BLOCK_BYTES: usize = 64 << 10;

/// Blocks that are full and wait to be shown.
const BLOCKS_AHEAD: usize = 2;

/// Objects of all partitions, in order. It stands on one once [`Objects::advance`] said so.
pub(super) struct Objects {
    /// Of the first partitions, which this thread goes through.
    here: Items,
    /// Of the others, if another goes through them.
    beside: Option<Blocks>,
    stands: Stands,
}

/// Where the object is that it stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Nowhere yet.
    Nowhere,
    Here,
    Beside,
    /// Here, and beside there are no more.
    HereAlone,
    /// Beside, and here there are no more.
    BesideAlone,
    /// There are no more.
    Over,
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

fn go_through(mut items: Items, first: usize, full: &SyncSender<Sent>, empty: &Receiver<Block>) -> kv::Result<()> {
    let mut more = items.advance()?;
    while more {
        let mut block = empty.try_recv().unwrap_or_default();
        block.clear();
        while more && block.bytes.len() < BLOCK_BYTES {
            block.push(first + items.reader(), &items.item()?);
            more = items.advance()?;
        }
        if full.send(Sent::Block(block)).is_err() {
            break;
        }
    }
    Ok(())
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

    fn tag(&self) -> u128 {
        self.bounds.tag(self.on().1)
    }

    fn on(&self) -> (usize, &[u8], &[u8]) {
        let on = self.passed.checked_sub(1).and_then(|on| self.block.objects.get(on));
        let bytes = |range: &Range<usize>| self.block.bytes.get(range.clone()).unwrap_or_default();
        on.map_or((0, &[], &[]), |on| (on.partition, bytes(&on.key), bytes(&on.stored)))
    }
}

impl Objects {
    /// Goes through all partitions.
    pub(super) fn here(readers: &[Reader], bounds: &Bounds, now_ms: u64) -> Self {
        Self { here: Items::of(readers.iter(), bounds, now_ms), beside: None, stands: Stands::Nowhere }
    }

    /// Goes through half of the partitions, and has a thread of its own go through the others until it is done or nobody takes what it
    /// sends; through all when there is no thread to be had.
    pub(super) fn here_and_beside<'s>(
        scope: &'s Scope<'s, '_>,
        readers: &'s [Reader],
        bounds: &'s Bounds,
        now_ms: u64,
    ) -> Self {
        let (ours, others) = readers.split_at(readers.len() / 2);
        let (send, full) = mpsc::sync_channel(BLOCKS_AHEAD);
        let (empty, emptied) = mpsc::channel();
        let work = move || {
            let sent = go_through(Items::of(others.iter(), bounds, now_ms), ours.len(), &send, &emptied);
            // Whoever does not take it has stopped.
            let _ = send.send(sent.map_or_else(Sent::Failed, |()| Sent::End));
        };
        if Builder::new().name("holdfast-fold".into()).spawn_scoped(scope, work).is_err() {
            return Self::here(readers, bounds, now_ms);
        }
        let blocks = Blocks { bounds: bounds.clone(), full, empty, block: Block::default(), passed: 0 };
        Self { beside: Some(blocks), ..Self::here(ours, bounds, now_ms) }
    }

    /// Steps to the next object, the first one at first; false when there is none.
    pub(super) fn advance(&mut self) -> kv::Result<bool> {
        let Some(beside) = &mut self.beside else {
            self.stands = Stands::HereAlone;
            return self.here.advance();
        };
        let stood = self.stands;
        let is_here = match stood {
            Stands::Beside => true,
            Stands::BesideAlone | Stands::Over => false,
            _ => self.here.advance()?,
        };
        let is_beside = match stood {
            Stands::Here => true,
            Stands::HereAlone | Stands::Over => false,
            _ => beside.advance()?,
        };
        self.stands = match (is_here, is_beside) {
            (true, true) if self.here.tag() < beside.tag() => Stands::Here,
            (true, true) if self.here.tag() > beside.tag() || self.here.place() > beside.on().1 => Stands::Beside,
            (true, true) => Stands::Here,
            (true, false) => Stands::HereAlone,
            (false, true) => Stands::BesideAlone,
            (false, false) => Stands::Over,
        };
        Ok(is_here || is_beside)
    }

    /// The object it stands on, and the number of its partition.
    pub(super) fn on(&self) -> kv::Result<(Item<'_>, usize)> {
        match (&self.beside, self.stands) {
            (Some(blocks), Stands::Beside | Stands::BesideAlone) => {
                let (partition, key, stored) = blocks.on();
                Ok((Item::of(key, stored)?, partition))
            }
            _ => Ok((self.here.item()?, self.here.reader())),
        }
    }
}
