//! What the connections of one thread share: who needs what to be durable, and who waits for it.
//!
//! May use: `door`, `counters`, `crate::durable`. Must not know: sockets, commands.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use holdfast::Position;

use super::counters::Counters;
use super::door::Door;
use super::lingering::Lingering;
use crate::durable::Listener;

/// Bytes of the buffer that all connections of a reactor read into; what is incomplete is copied out of it.
const SCRATCH_BYTES: usize = 64 << 10;

/// What the connections of one thread share.
pub(crate) struct Reactor {
    pub(crate) door: Arc<Door>,
    /// Its number among those of the door.
    pub(crate) index: usize,
    pub(crate) counters: Arc<Counters>,
    pub(super) scratch: RefCell<Vec<u8>>,
    /// The newest position that any connection here needs written, or synced.
    pub(super) written: Cell<Position>,
    pub(super) synced: Cell<Position>,
    /// Connections that wait for a sync; `round` counts how often they were woken.
    pub(super) waiting: RefCell<Vec<Waker>>,
    pub(super) round: Cell<u64>,
    /// Told of syncs while one of them waits.
    pub(crate) listener: Arc<Listener>,
    pub(crate) lingering: Rc<Lingering>,
    /// Whether it serves one connection only, and so may wait for the disk itself.
    pub(super) serves_one: bool,
}

impl Reactor {
    pub(crate) fn new(door: Arc<Door>, index: usize) -> Self {
        Reactor {
            listener: door.syncer.listener(),
            // There is one for each.
            counters: door.counters.get(index).cloned().unwrap_or_default(),
            serves_one: index >= door.options.pipeline_reactors,
            door,
            index,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES]),
            written: Cell::new(Position::ZERO),
            synced: Cell::new(Position::ZERO),
            waiting: RefCell::new(Vec::new()),
            round: Cell::new(1),
            lingering: Rc::default(),
        }
    }

    /// Wakes everybody who waits for a sync: called when one has ended.
    pub(crate) fn wake_waiting(&self) {
        self.round.set(self.round.get() + 1);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}
