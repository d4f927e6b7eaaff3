//! The line door: points as OpenTSDB's `put` lines and as Influx lines, over TCP and, when enabled, UDP.
//!
//! `serve` listens, `connection` drives one socket, `udp` the datagrams, `handle` answers the few commands there are; `batch`
//! gathers the points of all connections of a thread and writes them. `wire` reads lines, with `put`, `influx` and
//! `number`; it and they are the HTTP door's too, which takes the same lines.
//! docs/reference/points.md is what clients may rely on.
//!
//! May use: the facade, tokio. Must not know: the other doors, engines.

mod serve;

mod connection;
mod udp;

mod batch;
mod handle;

mod door;
mod limits;

mod influx;
mod number;
mod put;
mod wire;

pub(crate) use influx::names;
pub(crate) use number::{Number, SECOND, Unit, advice, number, time};
pub(crate) use wire::{After, Reader, Step, Times, excerpt};

pub use door::Options;
pub use limits::Limits;
pub use serve::{Running, serve};
