//! A way to a server that can be cut: connections through it break, or are held such that nothing comes through any more.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// What arrives is swallowed.
    swallows: AtomicBool,
    /// New connections are closed at once.
    refuses: AtomicBool,
    is_over: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Way {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if accepting.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                accepting.carry(&client, &server);
                accepting.carry(&server, &client);
            }
        });
        Self { address, shared }
    }

    /// Ends all connections; new ones are let through.
    pub(crate) fn cut(&self) {
        for socket in self.shared.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether what is sent comes through. Nobody is told that it does not.
    pub(crate) fn swallow(&self, swallows: bool) {
        self.shared.swallows.store(swallows, Ordering::SeqCst);
    }

    /// Whether new connections are refused.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.cut();
        // So that whoever accepts sees it.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, from: &TcpStream, to: &TcpStream) {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        self.sockets.lock().unwrap().extend([from.try_clone().unwrap(), to.try_clone().unwrap()]);
        let this = Arc::clone(self);
        thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(length) = from.read(&mut bytes) {
                if length == 0 || (!this.swallows.load(Ordering::SeqCst) && to.write_all(&bytes[..length]).is_err()) {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}
