//! How a remote coordinator is reached.
//!
//! May use: `tls`. Must not know: what is said to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::pipe::Target;
use crate::decisions::{Error, ErrorKind, Result};
use crate::tls::client_config;

/// What a lease may be: a shorter one would end while a program is merely busy, a longer one is refused by servers.
pub(crate) const LEASE_MIN: Duration = Duration::from_secs(1);
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(600);

/// How long a commit waits for other programs, unless somebody says.
pub(crate) const SHARED_WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// What servers accept.
pub(crate) const SHARED_WAIT_MAX: Duration = Duration::from_secs(60);

/// Where a coordinator is, and how long to wait for it.
#[derive(Clone)]
pub struct RemoteOptions {
    /// `host:port` of its RESP door; several are tried in order, and must be the same coordinator.
    pub servers: Vec<String>,
    /// TLS, unless the connection is plain.
    pub tls: Option<Tls>,
    /// User and password. Never shown by `Debug`.
    pub login: Option<(String, String)>,
    /// What this program calls itself, for lists.
    pub name: Option<String>,
    /// How long each step of connecting and each reply may take. Default 10 s.
    pub patience: Duration,
    /// After how long without a sign of life of this program its undecided transactions may be rolled back by others.
    /// Default 10 s, 1 s at least.
    pub lease: Duration,
    /// How long a commit waits for the other programs of a shared transaction. Default 30 s, 60 s at most.
    pub shared_wait: Duration,
}

/// Whom to trust.
#[derive(Debug, Clone)]
pub struct Tls {
    /// A PEM file with the certificates of those who may have signed the server's.
    pub authorities: PathBuf,
}

impl RemoteOptions {
    /// With the defaults.
    #[must_use]
    pub fn new(server: &str) -> Self {
        Self {
            servers: vec![server.to_owned()],
            tls: None,
            login: None,
            name: None,
            patience: Duration::from_secs(10),
            lease: Duration::from_secs(10),
            shared_wait: SHARED_WAIT_DEFAULT,
        }
    }

    pub(super) fn target(&self) -> Result<Target> {
        let invalid = |text: String| Error { kind: ErrorKind::Invalid, text };
        if self.servers.is_empty() {
            return Err(invalid("no server of a coordinator is named".to_owned()));
        }
        self.servers.iter().try_for_each(|server| host_and_port(server)).map_err(invalid)?;
        if self.lease < LEASE_MIN {
            return Err(invalid("a lease lasts a second at least".to_owned()));
        }
        if self.patience.is_zero() {
            return Err(invalid("a patience of nothing at all reaches no coordinator".to_owned()));
        }
        if self.shared_wait > SHARED_WAIT_MAX {
            return Err(invalid(format!("a commit waits for other programs for {SHARED_WAIT_MAX:?} at the most")));
        }
        let tls = self.tls.as_ref().map(|tls| client_config(&tls.authorities, None)).transpose().map_err(invalid)?;
        Ok(Target { servers: self.servers.clone(), tls, login: self.login.clone(), patience: self.patience })
    }
}

/// Whether a server's place has the form that connecting needs; whether there is such a host is another question.
pub(crate) fn host_and_port(server: &str) -> std::result::Result<(), String> {
    let parts = server.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(port) if port > 0 => Ok(()),
        _ => Err(format!("{server:?} is not of the form HOST:PORT, such as 127.0.0.1:7411 or [::1]:7411")),
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("servers", &self.servers)
            .field("tls", &self.tls)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("name", &self.name)
            .field("patience", &self.patience)
            .field("lease", &self.lease)
            .field("shared_wait", &self.shared_wait)
            .finish()
    }
}
