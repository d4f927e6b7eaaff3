//! A connection whose store cannot make anything durable: nothing may be acknowledged.
//!
//! May use: the inside of the door, one real socket. Must not know: what commands do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream as StdStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast::{Durability, Error, ErrorKind, Store};

use tokio::net::TcpStream;

use super::*;
use crate::durable::{Syncer, Waits};
use crate::resp::call::store_error_text;
use crate::resp::door::{Door, Options};

/// Waits like the store does, until it breaks.
struct Breaking {
    store: Store,
    is_broken: Arc<AtomicBool>,
}

impl Waits for Breaking {
    fn wait(&self, position: Position, durability: Durability) -> holdfast::Result<()> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "a sync has failed")),
            false => self.store.wait(position, durability),
        }
    }

    fn written_and_synced(&self) -> (Position, Position) {
        let marks = self.store.watermarks();
        // Once broken, nothing more is known to be durable, whatever the real store goes on to do.
        if self.is_broken.load(Ordering::SeqCst) {
            (Position::ZERO, Position::ZERO)
        } else {
            (marks.written, marks.synced)
        }
    }
}

/// Serves one connection whose waits can be broken, and hands its client side to `talk`.
fn with_breaking(durability: Durability, talk: impl FnOnce(StdStream, Arc<AtomicBool>)) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), holdfast::Options { durability, ..holdfast::Options::default() }).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let mut door = Door::new(store.clone(), Options::new(address), address);
    door.syncer = Syncer::start(Breaking { store, is_broken: is_broken.clone() }, "resp", store_error_text);
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (stream, peer) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = Stream::Plain(TcpStream::from_std(stream).unwrap());
            let reactor = Rc::new(Reactor::new(Arc::new(door), 0));
            let waking = reactor.clone();
            tokio::task::spawn_local(async move {
                loop {
                    waking.listener.told().await;
                    waking.wake_waiting();
                }
            });
            let client = Arc::new(Client::new(1, peer, address, 0));
            Connection::new(reactor, stream, client).run().await;
        });
    });
    let stream = StdStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    talk(stream, is_broken);
    serving.join().unwrap();
}

fn exchange(stream: &mut StdStream, send: &str, expect: &str) {
    stream.write_all(send.as_bytes()).unwrap();
    let mut answer = vec![0; expect.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expect);
}

#[test]
fn nothing_is_acknowledged_after_waiting_failed() {
    let window = Durability::window(Duration::from_millis(1), Duration::from_millis(5));
    for durability in [Durability::Synced, Durability::Written, window] {
        with_breaking(durability, |mut stream, is_broken| {
            exchange(&mut stream, "SET k v\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n");
            is_broken.store(true, Ordering::SeqCst);
            // One error for each command of the chunk, also for the read that would show the lost write.
            let error = "-UNAVAILABLE a sync has failed\r\n";
            exchange(&mut stream, "SET k w\r\nGET k\r\n", &error.repeat(2));
            exchange(&mut stream, "INCR n\r\n", error);
            exchange(&mut stream, "MULTI\r\n", "+OK\r\n");
            exchange(&mut stream, "SET k x\r\n", "+QUEUED\r\n");
            exchange(&mut stream, "EXEC\r\n", error);
            // What needs no durability is still answered, and the connection is in step.
            exchange(&mut stream, "PING\r\n", "+PONG\r\n");
            exchange(&mut stream, "QUIT\r\n", "+OK\r\n");
        });
    }
}
