//! The beginning of everything: a store in the process, or a server.
//!
//! May use: everything of this folder. Must not know: sockets, journals.

use holdfast::{Durability, Error, ErrorKind, Position, Result, Shown, Store};

use crate::batch::Batch;
use crate::call::Call;
use crate::embedded::Embedded;
use crate::kv::Kv;
use crate::remote::{ConnectOptions, Remote};
use crate::scripts::Scripts;
use crate::series::Series;
use crate::space::{self, Space};
use crate::transaction::{Transaction, TransactionOptions};

/// Where a client's calls go.
#[derive(Clone)]
pub(crate) enum Place {
    Here(Embedded),
    There(Remote),
}

/// A store in this process, or one on a server. Cheap to clone; clones share connections and threads. Dropping the last one
/// ends them, and calls that were begun and not waited for may not happen.
#[derive(Clone)]
pub struct Client {
    pub(crate) place: Place,
}

impl Client {
    /// Over a store that this process has open.
    ///
    /// # Errors
    /// `Unavailable` when there are no threads.
    pub fn embedded(store: &Store) -> Result<Self> {
        Ok(Self { place: Place::Here(Embedded::new(store.clone())?) })
    }

    /// Over a server, to which it connects now, and again whenever the connection breaks.
    ///
    /// # Errors
    /// `Unavailable` when no server can be reached; `Invalid` for options that make no sense, certificates that are not
    /// trusted, and a server that does not let this user in.
    pub fn connect(options: ConnectOptions) -> Call<Self> {
        match Remote::connect(options) {
            Ok(call) => call.then(|remote| Ok(Self { place: Place::There(remote) })),
            Err(error) => Call::done(Err(error)),
        }
    }

    /// Whether it speaks to a server.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self.place, Place::There(_))
    }

    /// Most connections that it has for calls that have one alone, transactions among them: what
    /// [`ConnectOptions::connections_max`] says. `None` in the process, where they need none.
    #[must_use]
    pub fn connections_max(&self) -> Option<usize> {
        match &self.place {
            Place::Here(_) => None,
            Place::There(there) => Some(there.connections_max()),
        }
    }

    /// Until a position of a store in this process is as durable as asked. With it whatever the store does without waiting is awaited
    /// too: what it calls `_shown`, tasks, and transactions that are committed as `Written`, become a future without a thread each.
    ///
    /// # Errors
    /// `Unavailable` when the disk refuses; `Invalid` over a server, whose answers are as durable as they were asked to be.
    pub fn durable(&self, position: Position, durability: Durability) -> Call<()> {
        match &self.place {
            Place::Here(here) => here.shown(Some(durability), move || Ok(Shown { value: (), position })),
            Place::There(_) => {
                let text = "positions are waited for where the store is: ask each call for its durability";
                Call::done(Err(Error::new(ErrorKind::Invalid, text)))
            }
        }
    }

    /// Does something that blocks: what a program has of the store itself, of `holdfast-grid`, or of its own, and this library has no
    /// call for. Waited for it runs in the caller's thread; awaited or begun, in one of the threads that the client has for this (64 at
    /// least), or when one is free. A call that is dropped after that goes on to its end there.
    ///
    /// What it does must not wait for another call that needs such a thread: when all do that, none ends.
    ///
    /// # Errors
    /// Those of what it does; `Internal` when that panics while it is awaited.
    pub fn elsewhere<T: Send + 'static>(&self, run: impl FnOnce() -> Result<T> + Send + 'static) -> Call<T> {
        match &self.place {
            Place::Here(here) => here.elsewhere(run),
            Place::There(there) => there.elsewhere(run),
        }
    }

    /// The space of this name; it is there as soon as a type is declared in it.
    #[must_use]
    pub fn space(&self, name: &str) -> Space {
        Space::new(self.place.clone(), name)
    }

    /// The names of all spaces in which types are declared, in order; on a server of those that the user may read.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn spaces(&self) -> Call<Vec<String>> {
        space::names(&self.place)
    }

    /// Objects by bucket and key.
    #[must_use]
    pub fn kv(&self) -> Kv {
        Kv::new(self.place.clone())
    }

    /// The time series.
    #[must_use]
    pub fn series(&self) -> Series {
        Series::new(self.place.clone())
    }

    /// A transaction that holds what it reads and takes while the program thinks. Over a server it has a connection to itself.
    ///
    /// # Errors
    /// `Invalid` for a lease that is nothing, or longer than a server allows, an hour; `Unavailable` when no server can be reached.
    pub fn begin(&self, options: &TransactionOptions) -> Call<Transaction> {
        Transaction::begin(&self.place, options)
    }

    /// Scripts and libraries of functions, which only a server has.
    #[must_use]
    pub fn scripts(&self) -> Scripts {
        Scripts::new(self.place.clone())
    }

    /// Operations that are to happen together or not at all.
    pub fn batch(&self) -> Batch {
        Batch::new(self.place.clone())
    }
}
