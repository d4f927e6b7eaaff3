//! Tests of a thread of control and of transactions as objects: monkeys as resource managers, a coordinator in memory.
//!
//! May use: everything of this crate. Must not know: profiles, C programs.

mod codes;
mod object;
mod pairs;
mod recovery;
mod scene;
mod thread;
mod together;
