//! One TCP connection to a server, with TLS where it is asked for, that one thread reads at a time while others write.
//!
//! May use: std's sockets, rustix, rustls. Must not know: what is said on it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// A TLS record is at most 16 KiB and some bytes.
const SEALED_BYTES: usize = 20 << 10;

/// Room for what is read at once; replies take some tens of bytes.
const PLAIN_BYTES: usize = 4 << 10;

/// The connection. Reading and writing take a shared reference; one thread may do each.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    tls: Option<Mutex<ClientConnection>>,
}

impl Socket {
    /// Connects to `host:port`, and shakes hands. `patience` bounds each step of that and each later write.
    pub(crate) fn connect(address: &str, tls: Option<&Arc<ClientConfig>>, patience: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&candidate, patience) {
                Ok(tcp) => return Self::over(tcp, address, tls, patience),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(tcp: TcpStream, address: &str, tls: Option<&Arc<ClientConfig>>, patience: Duration) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(patience))?;
        let Some(config) = tls else { return Ok(Self { tcp, tls: None }) };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        tcp.set_read_timeout(Some(patience))?;
        session.complete_io(&mut &tcp)?;
        tcp.set_read_timeout(None)?;
        Ok(Self { tcp, tls: Some(Mutex::new(session)) })
    }

    /// How long a read may wait; `None` for ever.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(timeout)
    }

    /// Sends all of it.
    pub(crate) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return (&self.tcp).write_all(bytes) };
        let mut session = tls.lock().unwrap_or_else(PoisonError::into_inner);
        // The session's buffer is bounded, so it is emptied between pieces.
        for piece in bytes.chunks(SEALED_BYTES / 2) {
            session.writer().write_all(piece)?;
            flush(&mut session, &self.tcp)?;
        }
        Ok(())
    }

    /// Whether there is something to read, which may be the end.
    pub(crate) fn is_readable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.tcp, PollFlags::IN)];
        // An error that cannot be seen here is seen by reading.
        rustix::event::poll(&mut wanted, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Waits for bytes and appends them. False at the end of the connection.
    pub(crate) fn read_into(&self, to: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &self.tls else {
            to.reserve(PLAIN_BYTES);
            return Ok(rustix::io::read(&self.tcp, rustix::buffer::spare_capacity(to))? > 0);
        };
        let mut arrived = [0; SEALED_BYTES];
        let length = (&self.tcp).read(&mut arrived)?;
        let mut arrived = arrived.get(..length).unwrap_or_default();
        if arrived.is_empty() {
            return Ok(false);
        }
        let mut session = tls.lock().unwrap_or_else(PoisonError::into_inner);
        while !arrived.is_empty() {
            session.read_tls(&mut arrived)?;
            let state = session.process_new_packets().map_err(io::Error::other)?;
            let mut opened = vec![0; state.plaintext_bytes_to_read()];
            session.reader().read_exact(&mut opened)?;
            to.append(&mut opened);
            if state.peer_has_closed() {
                return Ok(false);
            }
        }
        flush(&mut session, &self.tcp)?;
        Ok(true)
    }

    /// Ends it: whoever reads or writes is told.
    pub(crate) fn close(&self) {
        // It may be closed already.
        let _ = self.tcp.shutdown(Shutdown::Both);
    }
}

fn flush(session: &mut ClientConnection, mut tcp: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut tcp)?;
    }
    Ok(())
}
