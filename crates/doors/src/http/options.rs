//! How one HTTP door is served.
//!
//! May use: the facade, `auth`, `crate::numbers`. Must not know: sockets, handlers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast::Window;

use super::limits::Limits;
use crate::auth::Users;
use crate::ids;
use crate::numbers::{ContinuousSource, DoorNumbers, MirrorsSource, RecoverySource};
use crate::scripts::Scripts;
use crate::through::ReadThrough;

/// Asks another door for its numbers. Must not block.
pub type NumbersSource = Arc<dyn Fn() -> DoorNumbers + Send + Sync>;

/// How one HTTP door is served.
#[derive(Clone)]
pub struct Options {
    /// Where to listen. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Bounds on what clients may do.
    pub limits: Limits,
    /// TLS, if connections are to be encrypted.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may come in. Without users everybody may.
    pub users: Arc<Users>,
    /// What `durability=window` means when the store's default is not a window itself.
    pub window: Window,
    /// The version of the program, as `/metrics` and `/stats` say it.
    pub version: String,
    /// The other doors by name, for example `resp`. A name is of lower-case letters: it becomes part of metrics' names.
    pub doors: Vec<(String, NumbersSource)>,
    /// The program's own recovery of distributed transactions, if it does any.
    pub recovery: Option<RecoverySource>,
    /// The program's runs of continuous queries, if it runs any.
    pub continuous: Option<ContinuousSource>,
    /// The program's mirrors, if it runs any.
    pub mirrors: Option<MirrorsSource>,
    /// Who loads entries that are read by their id and not there, if anybody does.
    pub read_through: Option<Arc<dyn ReadThrough>>,
    /// What tells this run of the server from all others, if another door says it too.
    pub run: String,
    /// The scripts of another door, if clients may run them.
    pub scripts: Option<Scripts>,
}

impl Options {
    /// The defaults, listening at `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Options {
            listen,
            limits: Limits::default(),
            tls: None,
            users: Arc::new(Users::open()),
            window: Window { min: Duration::from_millis(1), max: Duration::from_millis(10) },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            doors: Vec::new(),
            recovery: None,
            continuous: None,
            mirrors: None,
            read_through: None,
            run: ids::run(),
            scripts: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("limits", &self.limits)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}
