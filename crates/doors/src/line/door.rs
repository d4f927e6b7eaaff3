//! What all connections of one line door share, and how the door is configured.
//!
//! May use: the facade, `crate::durable`, `crate::points`, `crate::numbers`. Must not know: sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use holdfast::Durability;

use super::limits::Limits;
use crate::durable::{Syncer, Waits};
use crate::numbers::{DoorNumbers, PointCounts};
use crate::points::Writes;

/// How one line door is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen for connections. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where to listen for datagrams, if anywhere.
    pub udp_listen: Option<SocketAddr>,
    /// Threads that serve connections, at least 1.
    pub reactors: usize,
    /// Bounds on what clients may do.
    pub limits: Limits,
    /// The database that all lines write to.
    pub database: String,
    /// How long points may be gathered before they are written: what a kill of the process may take. Zero writes as soon as
    /// there is nothing more to be read.
    pub delay: Duration,
    /// How durable points are made that nobody asked about; `None` is the store's own default.
    pub durability: Option<Durability>,
    /// Connections that send nothing for so long are closed; `None` never.
    pub idle_timeout: Option<Duration>,
    /// The version of the program, for the command of that name.
    pub version: String,
}

impl Options {
    /// The defaults, listening at `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Options {
            listen,
            udp_listen: None,
            reactors: 1,
            limits: Limits::default(),
            database: "default".to_owned(),
            delay: Duration::from_millis(10),
            durability: None,
            idle_timeout: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What all connections of one door share.
pub(crate) struct Door {
    pub(crate) store: Box<dyn Writes>,
    pub(crate) durability: Durability,
    pub(crate) options: Options,
    pub(crate) syncer: Syncer,
    pub(crate) points: PointCounts,
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    /// Error lines that were left out because the client does not read its answers.
    pub(crate) unsaid: AtomicU64,
}

impl Door {
    /// `durability` is what the store does by default.
    pub(crate) fn new(store: impl Writes + Waits + Clone, durability: Durability, options: Options) -> Self {
        Door {
            syncer: Syncer::start(store.clone(), "line", ToString::to_string),
            store: Box::new(store),
            durability: options.durability.unwrap_or(durability),
            options,
            points: PointCounts::default(),
            connections: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
        }
    }

    /// What the door tells about itself.
    pub(crate) fn numbers(&self) -> DoorNumbers {
        let connections = self.connections.load(Relaxed) as u64;
        DoorNumbers { connections, totals: None, points: Some(self.points.totals()) }
    }
}

/// A place among the connections, given back when it is dropped.
pub(crate) struct Place(Arc<Door>);

impl Place {
    /// A place, if there is one.
    pub(crate) fn take(door: &Arc<Door>) -> Option<Self> {
        let place = Place(Arc::clone(door));
        if door.connections.fetch_add(1, Relaxed) < door.options.limits.connections_max {
            door.accepted.fetch_add(1, Relaxed);
            return Some(place);
        }
        door.rejected.fetch_add(1, Relaxed);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}
