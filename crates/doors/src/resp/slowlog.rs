//! Commands that took long: SLOWLOG, and the samples of LATENCY.
//!
//! Both are bounded and touched only by commands over a threshold. Arguments of commands marked SECRET are never kept.
//!
//! May use: `wire`, `table`. Must not know: the store, sockets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::commands::settings;
use super::table::{Command, Found, find, flag};
use super::wire::Args;

/// Arguments and bytes of an argument that are kept, as in Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) unix_s: u64,
    pub(crate) micros: u64,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) client: String,
    pub(crate) client_name: String,
}

#[derive(Default)]
struct Entries {
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// The slow log of one door.
#[derive(Default)]
pub(crate) struct Slowlog {
    inner: Mutex<Entries>,
}

impl Slowlog {
    /// Adds an entry and drops the oldest above `entries_max`.
    pub(crate) fn add(&self, mut entry: Entry, entries_max: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        entry.id = inner.next_id;
        inner.next_id += 1;
        inner.entries.push_front(entry);
        inner.entries.truncate(entries_max);
    }

    /// The newest `count` entries, newest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<Entry> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    pub(crate) fn reset(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).entries.clear();
    }

    pub(crate) fn truncate(&self, entries_max: usize) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).entries.truncate(entries_max);
    }
}

/// The arguments as they may be shown: shortened, and without secrets.
pub(crate) fn shown_args(command: &Command, args: Args<'_>) -> Vec<Vec<u8>> {
    let mut shown = Vec::with_capacity(args.len().min(ARGS_MAX));
    for (index, arg) in args.iter().enumerate() {
        if index == ARGS_MAX - 1 && args.len() > ARGS_MAX {
            shown.push(format!("... ({} more arguments)", args.len() - ARGS_MAX + 1).into_bytes());
            break;
        }
        if is_secret(command, args, index) {
            shown.push(b"(redacted)".to_vec());
        } else if arg.len() > ARG_BYTES_MAX {
            let mut short = arg.get(..ARG_BYTES_MAX).unwrap_or_default().to_vec();
            short.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
            shown.push(short);
        } else {
            shown.push(arg.to_vec());
        }
    }
    shown
}

/// Whether an argument may be somebody's password.
fn is_secret(command: &Command, args: Args<'_>, index: usize) -> bool {
    match command.name {
        // What it is to run has its own secrets.
        "tx.run" if index > 2 => match find(args.from(2)) {
            Found::Row { row, .. } => is_secret(row, args.from(2), index - 2),
            _ => false,
        },
        // Of parameters that there are here none is one; of Redis' own, some are.
        "config|set" => index > 2 && index % 2 == 1 && !settings::is_variable(args.at(index - 1)),
        _ => index > 0 && command.has(flag::SECRET),
    }
}

/// The samples of one kind of latency event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Unix seconds and milliseconds taken, oldest first; within one second only the longest is kept.
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) longest_ms: u64,
}

/// The latency monitor of one door.
pub(crate) struct Latency {
    events: Mutex<BTreeMap<&'static str, Samples>>,
    samples_max: usize,
}

impl Latency {
    pub(crate) fn new(samples_max: usize) -> Self {
        Latency { events: Mutex::new(BTreeMap::new()), samples_max }
    }

    pub(crate) fn add(&self, event: &'static str, unix_s: u64, millis: u64) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.entry(event).or_default();
        event.longest_ms = event.longest_ms.max(millis);
        match event.samples.back_mut() {
            Some((second, longest)) if *second == unix_s => *longest = (*longest).max(millis),
            _ => {
                event.samples.push_back((unix_s, millis));
                if event.samples.len() > self.samples_max {
                    event.samples.pop_front();
                }
            }
        }
    }

    pub(crate) fn events(&self) -> BTreeMap<&'static str, Samples> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets one event, or all; answers how many were forgotten.
    pub(crate) fn reset(&self, event: Option<&[u8]>) -> usize {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let before = events.len();
        events.retain(|name, _| event.is_some_and(|event| event != name.as_bytes()));
        before - events.len()
    }
}
