//! The socket server: one listener, a few threads, each with its own event loop and its share of the connections.
//!
//! The first reactor accepts and hands sockets round; a connection stays with its thread, but for moving once when it pipelines
//! (`moving.rs`). Stopping closes the listener, lets every connection send what is ready, and ends the threads.
//!
//! May use: tokio, `connection`, `door`. Must not know: commands.

use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use super::clients::{Ask, Client};
use super::connection::Connection;
use super::counters::add;
use super::door::{Door, Options};
use super::lingering::linger;
use super::moving::Carried;
use super::reactor::Reactor;
use super::script::lent;
use super::stream::Stream;
use crate::error::ServeError;
use crate::numbers::DoorNumbers;
use crate::scripts::Scripts;

/// How long a TLS client may take to introduce itself.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connections may take to send what is ready when the door closes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often idle and stalled connections are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Threads of one reactor that verify passwords: argon2 takes 19 MiB each.
const BLOCKING_THREADS_MAX: usize = 2;

/// An open door. Dropping it closes it.
pub struct Running {
    door: Arc<Door>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Where it listens; with the real port if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.door.address
    }

    /// How many connections are open.
    pub fn clients(&self) -> usize {
        self.door.clients.len()
    }

    /// How many connections are open, and what all reactors together have counted. Does not wait for any of them; the
    /// numbers are of nearly, not exactly, the same moment. CONFIG RESETSTAT sets all totals but the rejected
    /// connections back to 0.
    pub fn numbers(&self) -> DoorNumbers {
        self.door.numbers()
    }

    /// What tells this run of the server from all others, as `INFO server` says it.
    pub fn run_id(&self) -> &str {
        &self.door.run
    }

    /// This door's scripts, for another door to run. They do not keep this one open: when it is closed none runs.
    pub fn scripts(&self) -> Scripts {
        lent(&self.door)
    }

    /// Closes the door: no new connections, replies that are ready are sent, then everything ends. Blocks for at most a few
    /// seconds. Must not be called from one of the door's own threads.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the RESP door has panicked");
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
/// When the address cannot be used, a thread cannot be started, or an option is out of range.
pub fn serve(store: Store, options: Options) -> Result<Running, ServeError> {
    if options.databases == 0 {
        return Err(ServeError::Option("there must be at least one database"));
    }
    let address = options.listen;
    let listen = |source| ServeError::Listen { address, source };
    let listener = StdListener::bind(address).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let door = Arc::new(Door::new(store, options, address));
    let stop = watch::Sender::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = door.counters.iter().map(|_| mpsc::unbounded_channel()).unzip();
    let mut running = Running { door, stop, threads: Vec::new() };
    let limits = &running.door.options.limits;
    let commands_max = limits.long_commands_max
        + limits.heavy_commands_max
        + limits.held_writes_max
        + 2 * limits.transaction_waits_max;
    let mut listener = Some(listener);
    for (index, receiver) in receivers.into_iter().enumerate() {
        let start = Start {
            door: running.door.clone(),
            index,
            receiver,
            listener: listener.take(),
            senders: senders.clone(),
            stop: running.stop.subscribe(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS_MAX + commands_max)
                .build()
                .map_err(ServeError::Start)?,
        };
        let thread = std::thread::Builder::new()
            .name(format!("resp-{index}"))
            .spawn(move || start.run())
            .map_err(ServeError::Start)?;
        running.threads.push(thread);
    }
    Ok(running)
}

type Sender = mpsc::UnboundedSender<Arrival>;

/// A connection that a reactor is to serve. Dropped, it is closed.
struct Arrival {
    stream: StdStream,
    listed: Listed,
    /// What another reactor has left of it.
    carried: Option<Box<Carried>>,
}

/// What a reactor's thread begins with.
struct Start {
    door: Arc<Door>,
    index: usize,
    receiver: mpsc::UnboundedReceiver<Arrival>,
    listener: Option<StdListener>,
    /// To all reactors.
    senders: Vec<Sender>,
    stop: watch::Receiver<bool>,
    runtime: tokio::runtime::Runtime,
}

impl Start {
    fn run(self) {
        let local = LocalSet::new();
        let Start { door, index, receiver, listener, senders, stop, runtime } = self;
        let reactor = Rc::new(Reactor::new(door, index));
        runtime.block_on(local.run_until(serve_reactor(reactor, receiver, listener, senders.into(), stop)));
        drop(local);
        // A password that is being verified has nobody to answer to any more.
        runtime.shutdown_background();
    }
}

async fn serve_reactor(
    reactor: Rc<Reactor>,
    mut receiver: mpsc::UnboundedReceiver<Arrival>,
    listener: Option<StdListener>,
    senders: Rc<[Sender]>,
    mut stop: watch::Receiver<bool>,
) {
    let is_first = listener.is_some();
    let accepting =
        listener.map(|listener| tokio::task::spawn_local(accept(reactor.door.clone(), listener, senders.clone())));
    let waking = tokio::task::spawn_local(wake_after_syncs(reactor.clone()));
    let lingering = tokio::task::spawn_local(linger(reactor.lingering.clone()));
    let sweeping = is_first.then(|| tokio::task::spawn_local(sweep(reactor.door.clone())));
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = receiver.recv() => match accepted {
                Some(arrival) => {
                    add(&reactor.counters.connections, u64::from(arrival.carried.is_none()));
                    tokio::task::spawn_local(serve_client(reactor.clone(), arrival, senders.clone(), alive.clone()));
                }
                None => break,
            },
        }
    }
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    sweeping.iter().for_each(tokio::task::JoinHandle::abort);
    receiver.close();
    while receiver.try_recv().is_ok() {}
    reactor.door.clients.all().iter().for_each(|client| client.ask(Ask::Finish));
    drop(alive);
    // Everything ready is sent, or the time is over: then the connections are dropped with the event loop.
    let _ = tokio::time::timeout(STOP_TIMEOUT, all_gone.recv()).await;
    waking.abort();
    lingering.abort();
}

/// Takes a connection off the list when it ends, however it ends.
struct Listed {
    door: Arc<Door>,
    client: Arc<Client>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.client.gone.cancel();
        self.door.clients.remove(self.client.id);
        self.door.snapshots().close_all(self.client.id);
    }
}

async fn serve_client(reactor: Rc<Reactor>, arrival: Arrival, senders: Rc<[Sender]>, _alive: mpsc::Sender<()>) {
    let Arrival { stream, listed, carried } = arrival;
    let (door, client) = (reactor.door.clone(), listed.client.clone());
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(client = %client.address, %error, "cannot use an accepted socket");
            return;
        }
    };
    let connection = match (carried, &door.options.tls) {
        (Some(carried), _) => Connection::going_on(reactor, Stream::Plain(stream), *carried),
        (None, None) => Connection::new(reactor, Stream::Plain(stream), client),
        (None, Some(config)) => {
            let accept = TlsAcceptor::from(config.clone()).accept(stream);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, accept).await {
                Ok(Ok(stream)) => Connection::new(reactor, Stream::Tls(Box::new(stream)), client),
                Ok(Err(error)) => {
                    tracing::debug!(client = %client.address, %error, "TLS handshake failed");
                    return;
                }
                Err(_) => return,
            }
        }
    };
    if let Some(moving) = connection.run().await
        && let Some(sender) = senders.get(moving.to)
    {
        // It fails when the door closes, and then the connection may close too: nothing of it is under way.
        let _ = sender.send(Arrival { stream: moving.stream, listed, carried: Some(Box::new(moving.carried)) });
    }
}

async fn accept(door: Arc<Door>, listener: StdListener, senders: Rc<[Sender]>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "cannot listen");
            return;
        }
    };
    let mut next = 0usize;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: closing connections will help, trying again at once will not.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let local_address = stream.local_addr().unwrap_or(door.address);
        let client = Arc::new(Client::new(door.clients.next_id(), address, local_address, door.store.now_ms()));
        let clients_max = door.settings.clients_max.load(Relaxed) as usize;
        if !door.clients.add(&client, clients_max) {
            door.rejected.fetch_add(1, Relaxed);
            if door.options.tls.is_none() {
                // Best effort, as in Redis: the socket's buffer is empty and takes a line.
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            }
            continue;
        }
        door.peak_clients.fetch_max(door.clients.len() as u64, Relaxed);
        let listed = Listed { door: door.clone(), client };
        let stream = stream.set_nodelay(true).and_then(|()| stream.into_std());
        if let (Ok(stream), Some(sender)) = (stream, senders.get(next % door.options.reactors)) {
            next = next.wrapping_add(1);
            // It fails when the door closes, and then the socket may close too.
            let _ = sender.send(Arrival { stream, listed, carried: None });
        }
    }
}

async fn wake_after_syncs(reactor: Rc<Reactor>) {
    loop {
        reactor.listener.told().await;
        reactor.wake_waiting();
    }
}

/// Closes connections that send nothing, or take nothing, for too long, and snapshots whose time is over; has those look that
/// cannot be told that their client is gone.
async fn sweep(door: Arc<Door>) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        door.snapshots().close_expired(Instant::now());
        door.iterations().close_expired(Instant::now());
        let now_ms = door.store.now_ms();
        let idle_ms = door.settings.idle_timeout_s.load(Relaxed) * 1000;
        let stall_ms = door.options.stall_timeout.map_or(0, |timeout| timeout.as_millis() as u64);
        for client in door.clients.all() {
            let is_idle = idle_ms > 0 && client.idle_ms(now_ms) >= idle_ms;
            let is_stalled = stall_ms > 0 && client.stalled_for_ms(now_ms) >= stall_ms;
            if is_idle || is_stalled {
                client.ask(Ask::Kill);
            }
            client.look_again();
        }
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
