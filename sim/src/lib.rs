//! The deterministic simulator: a real store in a simulated world that breaks whatever it may.
//!
//! One thread, one seed, no clock of its own. A run drives a store with random operations, kills it, cuts its power,
//! fills its disk and fails its syncs, and after each opening compares it with a small obvious model. The same seed
//! gives the same trace; [`prove`] runs each seed twice and compares.
//!
//! May use: everything but doors and programs. Must not know: protocols.

mod checks;
mod distributed;
mod model;
mod run;
mod series;
mod space;
mod step;
mod world;
mod xa;

pub use distributed::{
    Distributed, Moment, Point, Side, Step, all_points, fixed_seeds, missed, prove as prove_distributed,
};
pub use run::{Outcome, Setup, Violation, prove, run};

#[cfg(test)]
mod tests;
