//! Why a door could not be opened: the same for every door.
//!
//! May use: nothing. Must not know: protocols.

use std::io;
use std::net::SocketAddr;

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is taken, or may not be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A thread or its event loop could not be started.
    #[error("cannot start an event loop: {0}")]
    Start(#[source] io::Error),
    /// An option is outside its range.
    #[error("{0}")]
    Option(&'static str),
}
