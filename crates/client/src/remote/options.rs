//! How a server is reached.
//!
//! May use: rustls. Must not know: what is said to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Where a server is, who asks, and how much a client keeps waiting for it.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `host:port` of its RESP door; several are tried in order, and must be the same store.
    pub servers: Vec<String>,
    /// TLS, unless the connection is plain.
    pub tls: Option<Tls>,
    /// User and password. Never shown by `Debug`.
    pub login: Option<(String, String)>,
    /// What the server's list of clients calls this program.
    pub name: Option<String>,
    /// How long the server may send nothing while an answer is due, beyond the time it was told to block, and how long a call waits
    /// for the server to be reached; from 10 ms.
    pub timeout: Duration,
    /// Bytes of requests that are sent and not answered, on the connection that all calls share, and as many that wait to be
    /// sent for callers who block; more wait for their turn. Calls that are awaited wait for theirs where they are. From 64 KiB.
    pub queue_bytes_max: usize,
    /// Connections besides it, for calls that block or take long, one for each at a time; more wait for their turn. From 1.
    pub connections_max: usize,
    /// The longest document or value that is sent, in bytes; 64 MiB is what servers take unless told otherwise.
    pub value_bytes_max: usize,
}

/// Whom to trust.
#[derive(Debug, Clone)]
pub struct Tls {
    /// A PEM file with the certificates of those who may have signed the server's.
    pub authorities: PathBuf,
}

impl ConnectOptions {
    /// With the defaults: 10 s, 64 MiB, 128 connections.
    #[must_use]
    pub fn new(server: &str) -> Self {
        Self {
            servers: vec![server.to_owned()],
            tls: None,
            login: None,
            name: None,
            timeout: Duration::from_secs(10),
            queue_bytes_max: 64 << 20,
            connections_max: 128,
            value_bytes_max: 64 << 20,
        }
    }

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
        if self.servers.is_empty() {
            return invalid("no server is named: say host:port of its RESP door");
        }
        if let Some(server) = self.servers.iter().find(|server| !server.contains(':')) {
            return invalid(&format!("`{server}` is no address: say host:port of the server's RESP door"));
        }
        if self.timeout < Duration::from_millis(10) {
            return invalid("the timeout is 10 ms at least");
        }
        if self.queue_bytes_max < 64 << 10 {
            return invalid("queue_bytes_max is 64 KiB at least");
        }
        if !(1..=10_000).contains(&self.connections_max) {
            return invalid("connections_max is from 1 to 10,000");
        }
        let is_word = |name: &String| !name.is_empty() && name.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        if self.name.as_ref().is_some_and(|name| !is_word(name)) {
            return invalid("the name of a client is printable ASCII without spaces");
        }
        Ok(())
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("servers", &self.servers)
            .field("tls", &self.tls)
            .field("user", &self.login.as_ref().map(|(user, _)| user))
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .field("queue_bytes_max", &self.queue_bytes_max)
            .field("connections_max", &self.connections_max)
            .field("value_bytes_max", &self.value_bytes_max)
            .finish()
    }
}

impl Tls {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>> {
        let cannot = |error: &dyn fmt::Display| {
            let text = format!("cannot use the certificates in {}: {error}", self.authorities.display());
            Error::new(ErrorKind::Invalid, text)
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.authorities).map_err(|error| cannot(&error))? {
            roots.add(certificate.map_err(|error| cannot(&error))?).map_err(|error| cannot(&error))?;
        }
        if roots.is_empty() {
            return Err(cannot(&"there are none"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| cannot(&error))?;
        Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
    }
}
