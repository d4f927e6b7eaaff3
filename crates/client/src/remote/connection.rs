//! One connection to a server: connected, greeted and let in.
//!
//! May use: `wire`, `options`, tokio's sockets, rustls. Must not know: what is asked.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::options::ConnectOptions;
use super::wire::{Reply, Scan, Words, decode};

/// Bytes that are read at once, at least.
const READ_BYTES: usize = 64 << 10;

/// After how long without a byte the system asks whether the server's machine is still there, how long after that again, and how
/// often: one that is gone is found out after half a minute.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(20), Duration::from_secs(5), 3);

/// A socket, with TLS or without.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where to connect.
pub(crate) struct Target {
    pub(crate) options: ConnectOptions,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoConnection {
    /// Nobody answers; later somebody may.
    Unreachable(String),
    /// The server is there and does not let this client in: it would not the next time either.
    Refused(String),
}

impl NoConnection {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Unreachable(text) | Self::Refused(text) => text,
        }
    }
}

/// A connection that one task uses.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) input: Input,
}

impl Target {
    /// Connects to the first server that answers.
    pub(crate) async fn connect(&self) -> Result<Connection, NoConnection> {
        let mut last = NoConnection::Unreachable("no server is named".to_owned());
        for server in &self.options.servers {
            let patience = self.options.timeout;
            match timeout(patience, self.connect_to(server)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => last = error,
                Err(_) => last = NoConnection::Unreachable(format!("{server} does not answer within {patience:?}")),
            }
        }
        Err(last)
    }

    async fn connect_to(&self, server: &str) -> Result<Connection, NoConnection> {
        let stream = self.open(server).await.map_err(|error| {
            let text = format!("cannot reach {server}: {error}");
            // A certificate that is not trusted today is not trusted a moment later.
            if error.kind() == io::ErrorKind::InvalidData {
                return NoConnection::Refused(text);
            }
            NoConnection::Unreachable(text)
        })?;
        let mut connection = Connection { stream, input: Input::default() };
        let mut hello = Words::new("HELLO").and("3");
        if let Some((user, password)) = &self.options.login {
            hello = hello.and("AUTH").and(user).and(password);
        }
        if let Some(name) = &self.options.name {
            hello = hello.and("SETNAME").and(name);
        }
        let reply = connection.call(&hello.to_bytes()).await;
        match reply.map_err(|error| NoConnection::Unreachable(format!("{server}: {error}")))? {
            Reply::Map(_) => {
                let documents = Words::new("CLIENT").and("DOCUMENTS").and("msgpack").to_bytes();
                match connection.call(&documents).await {
                    Ok(Reply::Bytes(_)) => Ok(connection),
                    Ok(Reply::Error(text)) => {
                        let text = format!("{server} is too old for this client, or no Holdfast: {text}");
                        Err(NoConnection::Refused(text))
                    }
                    Ok(_) => Err(NoConnection::Refused(format!("{server} does not answer as Holdfast does"))),
                    Err(error) => Err(NoConnection::Unreachable(format!("{server}: {error}"))),
                }
            }
            Reply::Error(text) if is_passing(&text) => Err(NoConnection::Unreachable(format!("{server}: {text}"))),
            Reply::Error(text) => Err(NoConnection::Refused(format!("{server} does not let this client in: {text}"))),
            _ => Err(NoConnection::Refused(format!("{server} does not greet as a Holdfast server does"))),
        }
    }

    async fn open(&self, server: &str) -> io::Result<Box<dyn Stream>> {
        let tcp = tcp(server).await?;
        let Some(config) = &self.tls else { return Ok(Box::new(tcp)) };
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, tcp).await?))
    }
}

pub(crate) async fn tcp(server: &str) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(server).await?;
    tcp.set_nodelay(true)?;
    // A call that blocks waits for as long as it was told to: that the machine has gone is found out by asking it.
    let (idle, interval, retries) = KEEPALIVE;
    let asks = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries);
    SockRef::from(&tcp).set_tcp_keepalive(&asks)?;
    Ok(tcp)
}

/// Whether a server that says so may let the client in a moment later.
fn is_passing(text: &str) -> bool {
    text.starts_with("LOADING") || text.starts_with("UNAVAILABLE") || text.contains("max number of clients")
}

impl Connection {
    /// Sends a request and waits for its reply. Whoever stops waiting drops the connection.
    pub(crate) async fn call(&mut self, request: &[u8]) -> io::Result<Reply> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.reply().await
    }

    /// Waits for a reply to what was sent before.
    pub(crate) async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.input.next()? {
                return Ok(reply);
            }
            self.input.read(&mut self.stream).await?;
        }
    }

    /// Whether nothing has come, not even the end, while nobody asked.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        timeout(Duration::ZERO, self.input.read(&mut self.stream)).await.is_err()
    }
}

/// What came and was not decoded yet.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// How many of them belong to replies that were given out.
    used: usize,
    scan: Scan,
}

impl Input {
    /// Waits for more bytes.
    pub(crate) async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        if self.used > 0 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        self.bytes.reserve(READ_BYTES);
        if stream.read_buf(&mut self.bytes).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        Ok(())
    }

    /// The next reply, if it is whole.
    pub(crate) fn next(&mut self) -> io::Result<Option<Reply>> {
        loop {
            let rest = self.bytes.get(self.used..).unwrap_or_default();
            let Some(end) = self.scan.end(rest).map_err(io::Error::other)? else { return Ok(None) };
            let reply = decode(rest.get(..end).unwrap_or_default()).map_err(io::Error::other)?;
            self.used += end;
            self.scan = Scan::default();
            if reply != Reply::Push {
                return Ok(Some(reply));
            }
        }
    }
}
