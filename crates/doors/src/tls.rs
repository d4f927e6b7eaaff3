//! TLS for all doors: a rustls server configuration from two PEM files.
//!
//! May use: rustls. Must not know: protocols, the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read or is not PEM.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Pem {
        /// "the certificate" or "the private key".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// The file holds no certificate.
    #[error("there is no certificate in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and the key do not make a server.
    #[error("the certificate and the key do not work: {0}")]
    Rustls(#[from] rustls::Error),
}

/// Reads a certificate chain and its private key and makes the configuration of a server, TLS 1.2 and 1.3, without client
/// certificates. `protocols` are the ALPN names, for example `http/1.1`; empty for RESP.
///
/// # Errors
/// When a file cannot be read, is not PEM, or the two do not fit.
pub fn server_config(certificate: &Path, key: &Path, protocols: &[&str]) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |what, path: &Path, source| TlsError::Pem { what, path: path.to_owned(), source };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| pem("the certificate", certificate, source))?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: certificate.to_owned() });
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| pem("the private key", key, source))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}
