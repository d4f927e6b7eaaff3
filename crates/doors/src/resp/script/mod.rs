//! Scripts: EVAL and what belongs to it.
//!
//! `cache` remembers compiled scripts, `deadline` is how long one may go on, `functions` those that the store keeps by name, `run` locks, runs and commits, `later` does so in a thread with room for the reply, `lent` runs and `kept` keeps them for another door, `guest` is what a script reaches of the door: the
//! commands, as they are inside EXEC; `value` turns replies into values and back.
//!
//! A script runs in one exclusive, sees its own changes, and is one batch of the journal: effects, not code. If it fails or
//! is stopped nothing has happened, so it may be begun again: first for a moment on the event loop with the locks of its keys;
//! with all locks, if it goes beyond them; in a thread, if it takes longer. It never runs twice to the end.
//!
//! May use: `handle`, `session`, the crate `script`. Must not know: sockets.

mod cache;
mod deadline;
mod functions;
mod guest;
mod kept;
mod later;
mod lent;
mod run;
mod value;

use std::time::Duration;

pub(crate) use cache::{Known, Scripts};
pub(crate) use deadline::Deadline;
pub(crate) use functions::Functions;
pub(crate) use later::Later;
pub(crate) use lent::lent;
pub(crate) use run::{Here, Task, failure, limits, run};

/// What scripts of one door may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOptions {
    /// Bytes that the values of one script may take.
    pub memory_bytes_max: usize,
    /// Steps of one script: calls, returns, turns of loops, steps of patterns.
    pub steps_max: u64,
    /// How long one script may work: it holds locks, and who writes waits for it. All scripts of one EXEC together, too.
    pub time_max: Duration,
}

impl Default for ScriptOptions {
    fn default() -> Self {
        ScriptOptions { memory_bytes_max: 16 << 20, steps_max: 100_000_000, time_max: Duration::from_millis(100) }
    }
}
