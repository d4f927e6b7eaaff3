//! Whether the other side of a connection is still there, asked of the system: what a runtime knows may be older.
//!
//! May use: std. Must not know: protocols, runtimes.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

/// The other side of a connection. Keeps the socket open.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<TcpStream>);

impl Peer {
    /// The other side of a socket that does not block; `None` when the process is out of descriptors.
    pub(crate) fn of(socket: &impl AsFd) -> Option<Self> {
        let same = socket.as_fd().try_clone_to_owned().ok()?;
        Some(Peer(Arc::new(TcpStream::from(same))))
    }

    /// Where it is; `None` when it is gone.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.peer_addr().ok()
    }

    /// Whether it has closed, or said that it sends no more. While bytes of it were not read this is not known.
    pub(crate) fn is_gone(&self) -> bool {
        match self.0.peek(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener};

    use super::*;

    #[test]
    fn who_has_closed_is_gone_once_all_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let peer = Peer::of(&server).unwrap();
        assert!(!peer.is_gone());
        client.write_all(b"x").unwrap();
        assert!(!peer.is_gone());
        client.shutdown(Shutdown::Write).unwrap();
        assert!(!peer.is_gone(), "there is a byte to be read yet");
        server.set_nonblocking(false).unwrap();
        std::io::Read::read_exact(&mut &server, &mut [0]).unwrap();
        server.set_nonblocking(true).unwrap();
        assert!(peer.is_gone());
    }
}
