//! Who listens to a type: events as they happen, in the order of the journal.
//!
//! Events of a type are told in the order of their positions, because who writes to a type that somebody listens to holds
//! the list of listeners from before the batch has its position until the event is in their buffers. Writers of a type that
//! nobody listens to pay one load.
//!
//! A buffer has a limit. A listener that falls behind loses its buffer, not its events: it reads them from the journal, and
//! so harms nobody.
//!
//! May use: `space`. Must not know: how events are read back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ::space::{Document, Event};
use base::Signal;
use journal::Position;

/// What one listener has not read yet.
pub(crate) struct Buffer {
    state: Mutex<Buffered>,
    pub(crate) signal: Signal,
    events_max: usize,
    /// Of several events of one entry only the newest is kept.
    conflates: bool,
}

pub(crate) struct Buffered {
    /// Events up to this position were lost from the buffer, or never in it: the journal has them.
    pub(crate) behind: Option<Position>,
    /// With the number of each within its batch.
    events: VecDeque<(u32, Event)>,
    waker: Option<std::task::Waker>,
}

impl Buffer {
    pub(crate) fn new(events_max: usize, conflates: bool) -> Arc<Self> {
        let state = Mutex::new(Buffered { behind: None, events: VecDeque::new(), waker: None });
        Arc::new(Self { state, signal: Signal::new(), events_max, conflates })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Buffered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, number: u32, event: &Event, id_field: &str) {
        let mut state = self.state();
        if state.behind.is_some() {
            state.behind = Some(event.position);
        } else {
            if self.conflates {
                state.conflate(event, id_field);
            }
            if state.events.len() >= self.events_max {
                state.events.clear();
                state.behind = Some(event.position);
            } else {
                state.events.push_back((number, event.clone()));
            }
        }
        let waker = state.waker.take();
        drop(state);
        self.signal.raise();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn id<'e>(event: &'e Event, field: &str) -> Option<::space::ValueRef<'e>> {
    event.after.as_ref().or(event.before.as_ref()).and_then(|document: &Document| document.get(field))
}

impl Buffered {
    /// Removes what a newer event of the same entry makes old.
    fn conflate(&mut self, event: &Event, field: &str) {
        let new = id(event, field);
        self.events.retain(|(_, old)| id(old, field) != new);
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, Event)> {
        self.events.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
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

/// The right to tell listeners of a type; while it is held nobody else does.
pub(crate) struct Telling<'a>(MutexGuard<'a, List>);

impl Telling<'_> {
    pub(crate) fn tell(&mut self, event: &Event, id_field: &str) {
        let number = if self.0.newest.0 == event.position { self.0.newest.1 + 1 } else { 1 };
        self.0.newest = (event.position, number);
        self.0.buffers.retain(|_, buffer| match buffer.upgrade() {
            Some(buffer) => {
                buffer.push(number, event, id_field);
                true
            }
            None => false,
        });
    }
}

impl Listeners {
    /// To be asked for before a batch has its position; `None` when nobody listens.
    pub(crate) fn telling(&self) -> Option<Telling<'_>> {
        self.any.load(Ordering::SeqCst).then(|| Telling(self.lock()))
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has all listeners look again.
    pub(crate) fn wake_all(&self) {
        let buffers: Vec<_> = self.lock().buffers.values().filter_map(Weak::upgrade).collect();
        for buffer in buffers {
            let waker = buffer.state().waker.take();
            buffer.signal.raise();
            waker.into_iter().for_each(std::task::Waker::wake);
        }
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
