//! What is done to a store and how it is measured, without knowing the store.
//!
//! The workloads are those of the volume tests of leveled and Riak (basho_bench): see `plan.rs` for what there is,
//! `keys.rs`, `sizes.rs` and `terms.rs` for the distributions.
//!
//! The `compare` crate compiles this same folder, so that all sides of a comparison do the same work with the same
//! keys, threads and clocks, and so that it needs nothing else of Holdfast. Therefore nothing here may need more than
//! both of them depend on.
//!
//! May use: `base::Random`, `clap`, `hdrhistogram`, `rustix`, `serde`. Must not know: any store, how numbers are shown.

mod clock;
mod cold;
mod driver;
mod gather;
mod keys;
mod live;
mod made;
mod outcome;
mod pace;
mod plan;
mod progress;
mod recorder;
mod run;
mod side;
mod sizes;
mod tally;
mod terms;
mod usage;
mod values;
mod work;

pub(crate) use driver::{Driver, Failure, Fold, Result, See, Session, Unsupported};
pub(crate) use outcome::{KindOutcome, Outcome, Said};
pub(crate) use plan::{Compression, Durability, Plan, Workload, rate, seconds};
pub(crate) use recorder::Recorder;
pub(crate) use side::run_side;
pub(crate) use terms::{Entry, Filter, TermRange};
pub(crate) use usage::taken_bytes;
pub(crate) use values::Values;
