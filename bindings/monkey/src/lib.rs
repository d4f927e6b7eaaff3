//! A resource manager that answers what a text file says, to test transaction managers with.
//!
//! It is a shared object with three XA switches: `holdfast_monkey_static`, `holdfast_monkey_dynamic`, which registers itself
//! when the program calls `holdfast_monkey_work`, and `holdfast_monkey_async`, which works on while the program does
//! other things. Its language is in `script.rs`, its open string in `instance.rs`.
//!
//! For a transaction manager in Rust it is an [`Instance`]: `holdfast-xa-monkey-rust` makes a resource manager of ours of that.
//!
//! May use: std, `libloading`. Must not know: any transaction manager.

mod abi;
mod instance;
mod script;
mod verbs;

pub use abi::{Switch, Xid};
pub use instance::Instance;
pub use verbs::{holdfast_monkey_async, holdfast_monkey_dynamic, holdfast_monkey_static};
pub use verbs::{holdfast_monkey_leave, holdfast_monkey_work};
