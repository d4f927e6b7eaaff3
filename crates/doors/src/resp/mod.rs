//! The RESP door: RESP2 and RESP3, pipelining and inline commands, for every Redis client.
//!
//! `wire` parses, `table` and `rows` know the commands, `handle` runs them through the handlers in `commands`, `reply`
//! writes, `connection` drives one socket, `durable` holds replies back until they are as durable as asked, `serve` listens.
//!
//! May use: the facade, tokio, rustls. Must not know: the other doors, engines.

mod ahead;
mod call;
mod clients;
mod commands;
mod connection;
mod counters;
mod cursors;
mod door;
mod effort;
mod extended;
mod glob;
mod handle;
mod limits;
mod lingering;
mod moving;
mod number;
mod open;
mod permit;
mod reactor;
mod reply;
mod rows;
mod script;
mod serve;
mod session;
mod slowlog;
mod snapshots;
mod stream;
mod table;
mod tracking;
mod unsupported;
mod wire;
mod work;

pub use commands::command::reference_markdown;
pub use door::{Options, ShutdownHook};
pub use glob::matches as glob_matches;
pub use limits::Limits;
pub use script::ScriptOptions;
pub use serve::{Running, serve};
