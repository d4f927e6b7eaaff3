//! Who listens to a type: events as they happen, in the order of the journal.
//!
//! Events of a type are told in the order of their positions, because who writes to a type that somebody listens to holds
//! the list of listeners from before the batch has its position until the event is in their buffers. Writers of a type that
//! nobody listens to pay one load.
//!
//! A listener that wants no more than how an entry is now has one event of each in its buffer: a newer one takes the place of the one
//! that waits, and stands for both (see [`Heard`]).
//!
//! A buffer has a limit. A listener that falls behind loses its buffer, not its events: it reads them from the journal, and
//! so harms nobody.
//!
//! May use: `space`. Must not know: how events are read back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ::space::{Definition, Document, Event, EventKind};
use base::Signal;
use journal::Position;

/// An event as a listener comes to it. It may stand for several of one entry, of which it is the newest.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    /// Its number within its batch.
    pub(crate) number: u32,
    pub(crate) event: Event,
    /// What was there before the oldest of them.
    pub(crate) before: Option<Document>,
    /// Whether the entry came with one of them, and is there since.
    pub(crate) came: bool,
}

impl Heard {
    pub(crate) fn new(number: u32, event: Event) -> Self {
        let (before, came) = (event.before.clone(), event.kind == EventKind::Written);
        Self { number, event, before, came }
    }

    /// Bytes of its documents.
    pub(crate) fn bytes(&self) -> usize {
        [&self.event.before, &self.event.after].into_iter().flatten().map(|document| document.as_bytes().len()).sum()
    }

    /// Has it stand for an older one of the same entry too.
    fn stand_for(&mut self, older: Self) {
        self.before = older.before;
        self.came |= older.came && self.event.kind == EventKind::Updated;
    }
}

/// Events in their order, of which those of one entry may be made one.
#[derive(Default)]
pub(crate) struct Queue {
    /// By a number that goes up.
    events: BTreeMap<u64, Heard>,
    pushed: u64,
    /// The number of the newest event of each entry, by the entry's key, if they are conflated.
    newest: BTreeMap<Vec<u8>, u64>,
}

impl Queue {
    /// Takes away what there is of the same entry: the new event, which has to be added, stands for it. Returns the bytes of what went.
    pub(crate) fn conflate(&mut self, new: &mut Heard, key: Vec<u8>) -> usize {
        match self.newest.insert(key, self.pushed).and_then(|number| self.events.remove(&number)) {
            Some(older) => {
                let bytes = older.bytes();
                new.stand_for(older);
                bytes
            }
            None => 0,
        }
    }

    pub(crate) fn add(&mut self, heard: Heard) {
        self.events.insert(self.pushed, heard);
        self.pushed += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<Heard> {
        let (_, heard) = self.events.pop_first()?;
        if self.events.is_empty() {
            self.newest.clear();
        }
        Some(heard)
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    fn clear(&mut self) {
        self.events.clear();
        self.newest.clear();
    }
}

/// What one listener has not read yet.
pub(crate) struct Buffer {
    state: Mutex<Buffered>,
    pub(crate) signal: Signal,
    events_max: usize,
    /// Of several events of one entry one is kept, which stands for all.
    conflates: bool,
}

pub(crate) struct Buffered {
    /// Events up to this position were lost from the buffer, or never in it: the journal has them.
    pub(crate) behind: Option<Position>,
    queue: Queue,
    waker: Option<std::task::Waker>,
}

impl Buffer {
    pub(crate) fn new(events_max: usize, conflates: bool) -> Arc<Self> {
        let state = Buffered { behind: None, queue: Queue::default(), waker: None };
        Arc::new(Self { state: Mutex::new(state), signal: Signal::new(), events_max, conflates })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Buffered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, number: u32, event: &Event, definition: &Definition) {
        let mut state = self.state();
        if state.behind.is_some() {
            state.behind = Some(event.position);
        } else {
            let mut heard = Heard::new(number, event.clone());
            if self.conflates {
                state.conflate(&mut heard, definition);
            }
            if state.queue.len() >= self.events_max {
                state.clear();
                state.behind = Some(event.position);
            } else {
                state.queue.add(heard);
            }
        }
    }

    /// Wakes whoever waits for an event.
    fn wake(&self) {
        let waker = self.state().waker.take();
        self.signal.raise();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Buffered {
    /// Takes away what waits of the same entry: the new event stands for it.
    fn conflate(&mut self, new: &mut Heard, definition: &Definition) {
        let document = new.event.after.as_ref().or(new.event.before.as_ref());
        let key = document.map(|document| definition.entry_key(document.fields())).unwrap_or_default();
        self.queue.conflate(new, key);
    }

    pub(crate) fn pop(&mut self) -> Option<Heard> {
        self.queue.pop()
    }

    /// Forgets all that waits.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.behind = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.events.is_empty()
    }

    pub(crate) fn wake_with(&mut self, waker: std::task::Waker) {
        self.waker = Some(waker);
    }
}

/// The listeners of one type.
#[derive(Default)]
pub(crate) struct Listeners {
    any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    buffers: BTreeMap<u64, Weak<Buffer>>,
    /// The newest batch that was told of, and how many of its events.
    newest: (Position, u32),
}

/// The right to tell listeners of a type; while it is held nobody else does. Those who were told are woken when it is given up: who
/// wakes up has to have it to look, and would sleep once more to wait for it.
pub(crate) struct Telling<'a> {
    /// There until it is given up.
    list: Option<MutexGuard<'a, List>>,
    told: BTreeMap<u64, Arc<Buffer>>,
}

impl Telling<'_> {
    pub(crate) fn tell(&mut self, event: &Event, definition: &Definition) {
        let Self { list: Some(list), told } = self else { return };
        let number = if list.newest.0 == event.position { list.newest.1 + 1 } else { 1 };
        list.newest = (event.position, number);
        list.buffers.retain(|name, buffer| match buffer.upgrade() {
            Some(buffer) => {
                buffer.push(number, event, definition);
                told.insert(*name, buffer);
                true
            }
            None => false,
        });
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        drop(self.list.take());
        self.told.values().for_each(|buffer| buffer.wake());
    }
}

impl Listeners {
    /// To be asked for before a batch has its position; `None` when nobody listens.
    pub(crate) fn telling(&self) -> Option<Telling<'_>> {
        self.any.load(Ordering::SeqCst).then(|| Telling { list: Some(self.lock()), told: BTreeMap::new() })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all listeners look again.
    pub(crate) fn wake_all(&self) {
        let buffers: Vec<_> = self.lock().buffers.values().filter_map(Weak::upgrade).collect();
        buffers.iter().for_each(|buffer| buffer.wake());
    }

    /// From now on `buffer` is told of everything; whatever is on its way must be waited for.
    pub(crate) fn add(&self, buffer: &Arc<Buffer>) {
        let mut list = self.lock();
        let number = list.buffers.last_key_value().map_or(0, |(last, _)| last + 1);
        list.buffers.insert(number, Arc::downgrade(buffer));
        self.any.store(true, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, buffer: &Arc<Buffer>) {
        let mut list = self.lock();
        list.buffers.retain(|_, other| !Weak::ptr_eq(other, &Arc::downgrade(buffer)));
        self.any.store(!list.buffers.is_empty(), Ordering::SeqCst);
    }
}
