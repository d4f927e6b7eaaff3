//! Connections for calls that block or take long: each has one alone, so that nobody waits behind it.
//!
//! Whoever stops waiting closes the connection, and so the server knows: an entry that would have been taken stays.
//!
//! May use: `connection`, tokio. Must not know: what is asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection::{Connection, NoConnection, Target};
use super::held::{broke, late};
use super::link::Again;
use super::wire::Reply;

/// Connections that are kept while nobody uses them.
const IDLE_MAX: usize = 16;
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

fn closed(_: tokio::sync::AcquireError) -> Error {
    Error::new(ErrorKind::Closed, "the client is closed")
}

/// The connections.
pub(crate) struct Pool {
    target: Arc<Target>,
    idle: Mutex<Vec<Connection>>,
    room: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        let room = Arc::new(Semaphore::new(target.options.connections_max));
        Self { target, idle: Mutex::default(), room }
    }

    /// Most connections that are in use at a time.
    pub(crate) fn size_max(&self) -> usize {
        self.target.options.connections_max
    }

    /// Waits for its turn to have a connection, without end for who blocks.
    async fn turn(&self, block: Option<Duration>) -> Result<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room).acquire_owned();
        match block {
            // Those who block hold connections for as long as they like: who does not is told.
            Some(Duration::ZERO) => timeout(self.target.options.timeout, room).await.map_err(|_| {
                let all = self.target.options.connections_max;
                let text = format!("it was not sent: all {all} connections are in use, see connections_max");
                Error::new(ErrorKind::Unavailable, text)
            })?,
            _ => room.await,
        }
        .map_err(closed)
    }

    /// Asks, and waits for the reply `block` longer than for others; `None` is without end.
    pub(crate) async fn call(&self, request: &[u8], again: Again, block: Option<Duration>) -> Result<Reply> {
        let patience = self.target.options.timeout;
        let _room = self.turn(block).await?;
        let begin = Instant::now();
        loop {
            let mut connection = self.connection(begin + patience).await?;
            let until = block.and_then(|block| Instant::now().checked_add(patience.saturating_add(block)));
            let call = connection.call(request);
            let reply = match until {
                Some(until) => timeout_at(until, call).await.map_err(|_| late(patience))?,
                None => call.await,
            };
            match reply {
                Ok(reply) => {
                    self.keep(connection);
                    return Ok(reply);
                }
                Err(_) if again == Again::May && begin.elapsed() < patience => sleep(PAUSE).await,
                Err(error) => return Err(broke(again, &error)),
            }
        }
    }

    /// A connection on which this was answered, and its place. Asked again on another one when one breaks: it is for what begins
    /// something that ends with its connection.
    pub(crate) async fn take(&self, first: &[u8]) -> Result<(Connection, OwnedSemaphorePermit, Reply)> {
        let patience = self.target.options.timeout;
        let room = self.turn(Some(Duration::ZERO)).await?;
        let until = Instant::now() + patience;
        loop {
            let mut connection = self.connection(until).await?;
            match timeout_at(until, connection.call(first)).await {
                Ok(Ok(reply)) => return Ok((connection, room, reply)),
                Ok(Err(error)) if Instant::now() >= until => return Err(broke(Again::May, &error)),
                Ok(Err(_)) => sleep(PAUSE).await,
                Err(_) => return Err(late(patience)),
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// One that is kept and still there, or a new one.
    async fn connection(&self, until: Instant) -> Result<Connection> {
        loop {
            let kept = self.idle().pop();
            let Some(mut kept) = kept else { break };
            if kept.is_quiet().await {
                return Ok(kept);
            }
        }
        loop {
            let error = match self.target.connect().await {
                Ok(connection) => return Ok(connection),
                Err(NoConnection::Refused(text)) => return Err(Error::new(ErrorKind::Invalid, text)),
                Err(NoConnection::Unreachable(text)) => text,
            };
            if Instant::now() >= until {
                return Err(Error::new(ErrorKind::Unavailable, format!("it was not sent: {error}")));
            }
            sleep(PAUSE).await;
        }
    }
}
