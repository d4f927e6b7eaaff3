//! Tools of the end-to-end tests: the real `holdfast` program on a folder of its own, real clients, real faults.
//!
//! Everything here has an end: a server that does not start, answer or stop within its time fails the test, and dropping a
//! [`Server`] kills its process.
//!
//! May use: std, `rustix` for signals, `tempfile`. Must not know: the crates of the product; only its program and protocols.

mod disk;
mod folders;
mod http;
mod output;
mod programs;
mod random;
mod resp;
mod say;
mod server;
mod wait;

pub use disk::SmallDisk;
pub use folders::{Kept, Snapshot, files_of, flip, folder_in_memory, looks_of};
pub use http::http_get;
pub use output::Output;
pub use programs::{Finished, budget, example, holdfast, python, run};
pub use random::Random;
pub use resp::{Client, Value};
pub use say::say;
pub use server::{Launch, Refusal, Server};
pub use wait::until;
