//! The socket server: one listener, a few threads, each with its own event loop, its share of the connections, and one batch.
//!
//! The first reactor accepts and hands sockets round; a connection stays with its thread. Stopping closes the listener,
//! writes what was gathered, lets every connection send what there is to be said, and ends the threads.
//!
//! May use: tokio, `connection`, `batch`, `door`. Must not know: lines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream, UdpSocket as StdSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast::{Durability, Store};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::batch::{Ask, Reactor, Source};
use super::connection::Connection;
use super::door::{Door, Options, Place};
use super::udp;
use crate::durable::Waits;
use crate::error::ServeError;
use crate::numbers::DoorNumbers;
use crate::points::Writes;

/// How long connections may take to send what there is to be said when the door closes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often idle and stalled connections are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing is accepted when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An open door. Dropping it closes it.
pub struct Running {
    door: Arc<Door>,
    address: SocketAddr,
    udp_address: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Where it listens; with the real port if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where datagrams come in, if anywhere.
    pub fn udp_addr(&self) -> Option<SocketAddr> {
        self.udp_address
    }

    /// How many connections are open, and what became of points.
    pub fn numbers(&self) -> DoorNumbers {
        self.door.numbers()
    }

    /// Closes the door: no new connections, points that were read are written, then everything ends. Blocks for at most a
    /// few seconds. Must not be called from one of the door's own threads.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the line door has panicked");
            }
        }
        self.door.syncer.stop();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the door: listens and serves in threads of its own until stopped.
///
/// # Errors
/// When an address cannot be used, or a thread cannot be started.
pub fn serve(store: Store, options: Options) -> Result<Running, ServeError> {
    let durability = store.durability();
    serve_on(store, durability, options)
}

/// As [`serve`], on whatever takes points.
pub(crate) fn serve_on(
    store: impl Writes + Waits + Clone,
    durability: Durability,
    options: Options,
) -> Result<Running, ServeError> {
    let address = options.listen;
    let listen = |source| ServeError::Listen { address, source };
    let listener = StdListener::bind(address).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let datagrams = options.udp_listen.map(bind_udp).transpose()?;
    let udp_address = datagrams.as_ref().and_then(|socket| socket.local_addr().ok());
    let reactors = options.reactors.max(1);
    let door = Arc::new(Door::new(store, durability, options));
    let stop = watch::Sender::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..reactors).map(|_| mpsc::unbounded_channel()).unzip();
    let mut running = Running { door, address, udp_address, stop, threads: Vec::new() };
    let mut listener = Some(Listening { listener, senders, datagrams });
    for (index, receiver) in receivers.into_iter().enumerate() {
        let start = Start {
            door: running.door.clone(),
            receiver,
            listener: listener.take(),
            stop: running.stop.subscribe(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?,
        };
        let thread = std::thread::Builder::new()
            .name(format!("line-{index}"))
            .spawn(move || start.run())
            .map_err(ServeError::Start)?;
        running.threads.push(thread);
    }
    Ok(running)
}

fn bind_udp(address: SocketAddr) -> Result<StdSocket, ServeError> {
    let listen = |source| ServeError::Listen { address, source };
    let socket = StdSocket::bind(address).map_err(listen)?;
    let bytes = udp::prepare(&socket).map_err(listen)?;
    tracing::debug!(bytes, "room for datagrams that were not received yet");
    Ok(socket)
}

/// What the first reactor listens on.
struct Listening {
    listener: StdListener,
    senders: Vec<Sender>,
    datagrams: Option<StdSocket>,
}

type Sender = mpsc::UnboundedSender<(StdStream, Place)>;
type Sources = RefCell<BTreeMap<u32, Rc<Source>>>;

/// What a reactor's thread begins with.
struct Start {
    door: Arc<Door>,
    receiver: mpsc::UnboundedReceiver<(StdStream, Place)>,
    listener: Option<Listening>,
    stop: watch::Receiver<bool>,
    runtime: tokio::runtime::Runtime,
}

impl Start {
    fn run(self) {
        let local = LocalSet::new();
        let Start { door, receiver, listener, stop, runtime } = self;
        let reactor = Rc::new(Reactor::new(door));
        runtime.block_on(local.run_until(serve_reactor(reactor, receiver, listener, stop)));
    }
}

async fn serve_reactor(
    reactor: Rc<Reactor>,
    mut receiver: mpsc::UnboundedReceiver<(StdStream, Place)>,
    listener: Option<Listening>,
    mut stop: watch::Receiver<bool>,
) {
    let sources = Rc::new(Sources::default());
    let mut helpers = vec![
        tokio::task::spawn_local(write_in_time(reactor.clone())),
        tokio::task::spawn_local(wake_after_syncs(reactor.clone())),
        tokio::task::spawn_local(sweep(reactor.clone(), sources.clone())),
    ];
    if let Some(Listening { listener, senders, datagrams }) = listener {
        helpers.extend(datagrams.map(|socket| tokio::task::spawn_local(udp::receive(reactor.clone(), socket))));
        helpers.push(tokio::task::spawn_local(accept(reactor.door.clone(), listener, senders)));
    }
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let mut next = 0u32;
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = receiver.recv() => match accepted {
                Some((stream, place)) => {
                    next = next.wrapping_add(1);
                    let serving = serve_client(reactor.clone(), stream, next, sources.clone());
                    let alive = alive.clone();
                    tokio::task::spawn_local(async move {
                        serving.await;
                        drop((place, alive));
                    });
                }
                None => break,
            },
        }
    }
    receiver.close();
    while receiver.try_recv().is_ok() {}
    for source in sources.borrow().values() {
        source.ask.set(Ask::Finish);
        source.wake();
    }
    reactor.write();
    drop(alive);
    // Everything is said, or the time is over: then the connections are dropped with the event loop.
    let _ = tokio::time::timeout(STOP_TIMEOUT, all_gone.recv()).await;
    reactor.write();
    helpers.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Takes a source off the list when its connection ends, however it ends.
struct Listed {
    sources: Rc<Sources>,
    number: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.sources.borrow_mut().remove(&self.number);
    }
}

async fn serve_client(reactor: Rc<Reactor>, stream: StdStream, number: u32, sources: Rc<Sources>) {
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "cannot use an accepted socket");
            return;
        }
    };
    let door = &reactor.door;
    let source = Rc::new(Source::new(number, door.options.limits.output_bytes_max, door.store.now_ms()));
    sources.borrow_mut().insert(number, source.clone());
    let _listed = Listed { sources, number };
    Connection::new(reactor, stream, source).run().await;
}

async fn accept(door: Arc<Door>, listener: StdListener, senders: Vec<Sender>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot listen");
            return;
        }
    };
    let mut next = 0usize;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: closing connections will help, trying again at once will not.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = Place::take(&door) else {
            // Best effort: the socket's buffer is empty and takes a line.
            let _ = stream.try_write(b"error: too many connections\n");
            continue;
        };
        // Answers are short and few: without it they wait for nothing.
        let stream = stream.set_nodelay(true).and_then(|()| stream.into_std());
        if let (Ok(stream), Some(sender)) = (stream, senders.get(next % senders.len().max(1))) {
            next = next.wrapping_add(1);
            // It fails when the door closes, and then the socket may close too.
            let _ = sender.send((stream, place));
        }
    }
}

/// Writes each batch when its time is over.
async fn write_in_time(reactor: Rc<Reactor>) {
    let delay = reactor.door.options.delay;
    loop {
        reactor.begun.notified().await;
        if delay.is_zero() {
            // After everybody who has something to read now.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
        reactor.write();
    }
}

async fn wake_after_syncs(reactor: Rc<Reactor>) {
    let mut changes = reactor.door.syncer.changes();
    while changes.changed().await.is_ok() {
        reactor.wake_waiting();
    }
}

/// Closes connections that send nothing, or take none of their answers, for too long, and ends texts that are open for too long.
async fn sweep(reactor: Rc<Reactor>, sources: Rc<Sources>) {
    let options = &reactor.door.options;
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let stall_ms = millis(options.limits.stall_timeout);
    let text_ms = millis(options.limits.text_timeout);
    let mut ticks =
        tokio::time::interval(SWEEP_INTERVAL.min(options.limits.stall_timeout).min(options.limits.text_timeout));
    loop {
        ticks.tick().await;
        let now_ms = reactor.door.store.now_ms();
        for source in sources.borrow().values() {
            let idle_ms = now_ms.saturating_sub(source.active_ms.get());
            let is_idle = options.idle_timeout.is_some_and(|timeout| idle_ms >= millis(timeout));
            let stalled_ms = source.stalled_ms.get();
            let is_stalled = stalled_ms > 0 && now_ms.saturating_sub(stalled_ms) >= stall_ms;
            let open_ms = source.open_ms.get();
            let is_open = open_ms > 0 && now_ms.saturating_sub(open_ms) >= text_ms;
            if is_idle || is_stalled {
                source.ask.set(Ask::Kill);
                source.wake();
            } else if is_open && source.ask.get() == Ask::Nothing {
                source.ask.set(Ask::EndText);
                source.wake();
            }
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
