//! Counters of one reactor: written by its thread alone, read by INFO and `/metrics`.
//!
//! May use: nothing. Must not know: commands.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one reactor has counted. Every counter has one writer, so that adding needs no locked instruction.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commands: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
}

/// Adds without a locked instruction; right because there is one writer.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

impl Counters {
    pub(crate) fn looked_up(&self, hit: bool) {
        add(if hit { &self.hits } else { &self.misses }, 1);
    }

    pub(crate) fn reset(&self) {
        for counter in [
            &self.commands,
            &self.connections,
            &self.hits,
            &self.misses,
            &self.errors,
            &self.input_bytes,
            &self.output_bytes,
        ] {
            counter.store(0, Relaxed);
        }
    }
}
