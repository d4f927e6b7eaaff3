//! The socket server: one listener and one thread with its own event loop.
//!
//! Stopping closes the listener, lets requests that are under way be answered, and ends the thread.
//!
//! May use: tokio, `connection`, `places`. Must not know: what is answered.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast::Store;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::connection;
use super::options::Options;
use super::places::Places;
use super::shared::Shared;
use crate::error::ServeError;
use crate::iterations::locked;

/// How long requests that are under way may take when the door closes.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a thread that asks the store waits for more to do before it ends.
const BLOCKING_THREADS_IDLE: Duration = Duration::from_secs(1);
/// How often it looks which iterations are over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The least size of headers that `hyper` can be told.
const HEADER_BYTES_MIN: usize = 8 << 10;

/// An open door. Dropping it closes it.
pub struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Where it listens; with the real port if port 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Closes the door: no new connections, requests under way are answered, then everything ends. Blocks for at most a
    /// few seconds. Must not be called from the door's own thread.
    pub fn stop(mut self) {
        self.close();
    }

    fn close(&mut self) {
        self.stop.send_replace(true);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the HTTP door has panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the door: listens and serves in a thread of its own until stopped.
///
/// # Errors
/// When the address cannot be used, the thread cannot be started, or an option is out of range.
pub fn serve(store: Store, options: Options) -> Result<Running, ServeError> {
    if options.limits.header_bytes_max < HEADER_BYTES_MIN {
        return Err(ServeError::Option("header_bytes_max must be at least 8 KiB"));
    }
    let address = options.listen;
    let listen = |source| ServeError::Listen { address, source };
    let listener = StdListener::bind(address).map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(options.limits.threads_max.max(1))
        .thread_keep_alive(BLOCKING_THREADS_IDLE)
        .build()
        .map_err(ServeError::Start)?;
    let stop = watch::Sender::new(false);
    let stopped = stop.subscribe();
    let shared = Arc::new(Shared::new(store, options, stop.subscribe()).map_err(ServeError::Start)?);
    let thread = std::thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || run(runtime, shared, listener, stopped))
        .map_err(ServeError::Start)?;
    Ok(Running { address, stop, thread: Some(thread) })
}

fn run(runtime: Runtime, shared: Arc<Shared>, listener: StdListener, stop: watch::Receiver<bool>) {
    let serving = Arc::clone(&shared);
    runtime.block_on(async move {
        // It ends with the event loop.
        tokio::spawn(sweep(Arc::clone(&serving)));
        match TcpListener::from_std(listener) {
            Ok(listener) => accept(serving, listener, stop).await,
            Err(error) => tracing::error!(%error, "cannot listen"),
        }
    });
    // What still asks the store has nobody to answer to any more.
    runtime.shutdown_background();
    shared.stop();
}

/// Lets go of iterations whose time is over: they hold documents.
async fn sweep(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        locked(&shared.iterations).close_expired(Instant::now());
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let places = Places::new(shared.options.limits.connections_max, shared.options.limits.give_way_after);
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let connection_stop = stop.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: closing connections will help, trying again at once will not.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = places.take().await else { continue };
        // Without it small answers wait for nothing; that it fails means that the peer is gone, which reading finds.
        let _ = stream.set_nodelay(true);
        let serving = connection::serve(Arc::clone(&shared), stream, place, connection_stop.clone());
        let alive = alive.clone();
        tokio::spawn(async move {
            serving.await;
            drop(alive);
        });
    }
    drop((listener, alive));
    // Everything under way is answered, or the time is over: then the connections are dropped with the event loop.
    let _ = tokio::time::timeout(STOP_TIMEOUT, all_gone.recv()).await;
}
