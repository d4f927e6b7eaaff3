//! The protocols through which clients come in, one folder each: RESP, HTTP, and lines of points.
//!
//! A door is a pure parser (`wire.rs`: bytes in, commands out), a socket server (`serve.rs`) and glue (`handle.rs`).
//! Doors keep nothing that must survive a restart.

mod argument;
pub mod auth;
mod budget;
mod durable;
mod error;
mod explained;
mod failed_logins;
mod handed;
pub mod http;
mod ids;
mod iterations;
pub mod line;
pub mod numbers;
mod peer;
mod points;
pub mod resp;
mod scripts;
mod setting;
mod through;
pub mod tls;

pub use error::ServeError;
pub use scripts::Scripts;
pub use through::{Loading, ReadThrough};
