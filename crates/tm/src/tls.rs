//! TLS to servers and databases: whom to trust, who this program is, and what is wrong in plain words.
//!
//! A server is always verified: its certificate is signed by one of the authorities, valid now, and for the name or address
//! that was connected to. There is no way to leave that out.
//!
//! May use: rustls. Must not know: what is said over it.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

/// How a database is reached by TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseTls {
    /// A PEM file with the certificates of those who may have signed the server's.
    pub authorities: PathBuf,
    /// Who this program is, for servers that ask.
    pub identity: Option<Identity>,
}

/// Who a program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// A PEM file with its certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// A PEM file with its private key, which is not encrypted.
    pub key: PathBuf,
}

impl DatabaseTls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// In plain words, when one cannot be used.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, String> {
        client_config(&self.authorities, self.identity.as_ref())
    }
}

pub(crate) fn client_config(authorities: &Path, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?;
    let config = config.with_root_certificates(roots(authorities)?);
    let Some(Identity { certificate, key }) = identity else { return Ok(Arc::new(config.with_no_client_auth())) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("cannot use the private key in {}: {error}", key.display()))?;
    let config = config.with_client_auth_cert(chain, secret).map_err(|error| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("cannot use the certificate in {certificate} with the key in {key}: {error}")
    })?;
    Ok(Arc::new(config))
}

fn cannot(file: &Path, error: &dyn fmt::Display) -> String {
    format!("cannot use the certificates in {}: {error}", file.display())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| cannot(file, &error))?;
    if read.is_empty() { Err(cannot(file, &"there are none")) } else { Ok(read) }
}

fn roots(authorities: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(|error| cannot(authorities, &error))?;
    }
    Ok(roots)
}

/// An error of TLS in plain words, with what to do; `None` when no TLS is in it.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(words_of(error));
        }
        // An error of input and output does not count what is within it among its sources.
        let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match within {
            Some(within) => Some(within as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

fn words_of(error: &rustls::Error) -> String {
    let what = match error {
        rustls::Error::InvalidCertificate(invalid) => match invalid {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired: give the server a new one, or set the clocks right"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet: set the clocks right"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another name than the one that was connected to: connect to a name that it \
                 has, or give the server one with this name"
            }
            // A bad signature is what an authority of the same name with another key comes to.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "the server's certificate is signed by nobody who is trusted: `authorities` has to hold the certificate of \
                 who signed it"
            }
            CertificateError::Revoked => "the server's certificate was revoked",
            _ => "the server's certificate cannot be used",
        },
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "the server refuses the certificate of this program: it has expired, or the clocks differ"
        }
        rustls::Error::AlertReceived(_) => {
            "the server ended the connection: it may want a `certificate` of this program with its `certificate_key`, or \
             does not trust the one it got"
        }
        rustls::Error::InvalidMessage(_) => "what the server answered is no TLS: it may have none at this port",
        _ => "TLS failed",
    };
    format!("{what} ({error})")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Identity, client_config, explained};

    #[test]
    fn files_that_cannot_be_used_are_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (authorities, key) = (file("ca.pem", &own.cert.pem()), file("key.pem", &own.signing_key.serialize_pem()));
        let (empty, strange) = (file("empty.pem", ""), file("strange.key", &other.signing_key.serialize_pem()));
        let wrong = |authorities: &Path, identity: Option<Identity>| {
            client_config(authorities, identity.as_ref()).err().unwrap_or_else(|| "works".to_owned())
        };
        let identity = |key: &Path| Some(Identity { certificate: authorities.clone(), key: key.to_owned() });
        assert_eq!(wrong(&authorities, identity(&key)), "works");
        assert!(wrong(&empty, None).ends_with("empty.pem: there are none"));
        assert!(
            wrong(Path::new("/nowhere/ca.pem"), None).starts_with("cannot use the certificates in /nowhere/ca.pem: ")
        );
        assert!(wrong(&authorities, identity(&empty)).contains("cannot use the private key in"));
        assert!(wrong(&authorities, identity(&strange)).contains("with the key in"));
    }

    #[test]
    fn an_error_of_tls_is_found_within_others() {
        let within = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let error = std::io::Error::new(std::io::ErrorKind::InvalidData, within);
        assert!(explained(&error).unwrap().starts_with("the server's certificate has expired"));
        let error = std::io::Error::other(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(explained(&error).unwrap().starts_with("what the server answered is no TLS"));
        assert_eq!(explained(&std::io::Error::other("something else")), None);
    }
}
