//! Why a door could not be opened: the same for every door.
//!
//! May use: nothing. Must not know: protocols.

use std::io;
use std::net::SocketAddr;

/// What to do about it, where that is known.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a right that the server does not have",
        _ => "",
    }
}

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is taken, or may not be used.
    #[error("cannot listen on {address}: {source}{}", advice(source))]
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
