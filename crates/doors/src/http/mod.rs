//! The HTTP door: whether the server is well, and its numbers, for probes, Prometheus and people.
//!
//! `serve` listens, `connection` drives one socket, `guard` decides who may ask and what is too much, `handle` answers;
//! `metrics` and `numbers` are the two forms in which the store's statistics go out. HTTP itself is `hyper`'s.
//!
//! May use: the facade, tokio, axum, rustls. Must not know: the other doors, engines.

mod connection;
mod credentials;
mod guard;
mod handle;
mod limits;
mod metrics;
mod numbers;
mod options;
mod serve;
mod shared;
mod stalling;
#[cfg(test)]
mod tests;

pub use limits::Limits;
pub use options::{NumbersSource, Options};
pub use serve::{Running, serve};

pub use crate::numbers::DoorNumbers;
