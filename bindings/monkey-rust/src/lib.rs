//! The resource manager that answers what a text file says, for programs in Rust: to test what they do with answers that no
//! database gives on demand.
//!
//! The language of the file, the log and the folder of prepared branches are those of the switches in `holdfast-xa-monkey`, so
//! one script does for both, and each finds what the other has prepared. For users it is in `docs/reference/monkey.md`.
//!
//! May use: `holdfast-xa-monkey`, `tm`. Must not know: coordinators, what scripts say.

mod branch;
mod manager;

pub use branch::MonkeyBranch;
pub use manager::{Monkey, Opening};
