//! TLS for the driver of PostgreSQL, by rustls. Channel binding is not offered.
//!
//! May use: tokio-rustls, tokio-postgres. Must not know: branches.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

use crate::branch::BoxFuture;
use crate::tls::{DatabaseTls, explained};

/// What `tokio_postgres` takes to connect by TLS. With `sslmode=require` there is no connection without it; the server is
/// verified in any case.
#[derive(Clone)]
pub struct PostgresTls(TlsConnector);

impl PostgresTls {
    /// Reads certificates and key. Blocks.
    ///
    /// # Errors
    /// In plain words, when they cannot be used.
    pub fn new(tls: &DatabaseTls) -> Result<Self, String> {
        Ok(Self::of(tls.client_config()?))
    }

    /// With a configuration of the program's own.
    #[must_use]
    pub fn of(config: Arc<ClientConfig>) -> Self {
        Self(TlsConnector::from(config))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = PostgresTlsStream<S>;
    type TlsConnect = Connecting;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connecting, Self::Error> {
        Ok(Connecting { connector: self.0.clone(), name: ServerName::try_from(domain)?.to_owned() })
    }
}

/// A connection that is about to be made.
pub struct Connecting {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connecting {
    type Stream = PostgresTlsStream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<PostgresTlsStream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.name, stream).await;
            let plain = |error: io::Error| explained(&error).map_or(error, io::Error::other);
            connected.map(|stream| PostgresTlsStream(Box::new(stream))).map_err(plain)
        })
    }
}

/// The connection.
pub struct PostgresTlsStream<S>(Box<Encrypted<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for PostgresTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
