//! What is done to a store and how it is measured, without knowing the store.
//!
//! The `compare` crate compiles this same folder, so that both sides of a comparison do the same work with the same
//! keys, threads and clocks, and so that it needs nothing else of Holdfast. Therefore nothing here may need more than
//! both of them depend on.
//!
//! May use: `base::Random`, `clap`, `hdrhistogram`, `serde`. Must not know: any store, how numbers are shown.

mod driver;
mod keys;
mod outcome;
mod plan;
mod recorder;
mod run;
mod side;
mod values;

pub(crate) use driver::{Driver, Failure, Result};
pub(crate) use outcome::Outcome;
pub(crate) use plan::{Durability, Phase, Plan, seconds};
pub(crate) use recorder::Recorder;
pub(crate) use side::run_side;
pub(crate) use values::Values;
