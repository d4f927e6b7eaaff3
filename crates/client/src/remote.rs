//! A server, as a client has it: one connection that all calls share, and others for calls that block.
//!
//! A thread of the client's own drives the sockets. So calls can be awaited in any runtime, or waited for in none.
//!
//! May use: everything of this folder, tokio. Must not know: what is asked.

mod alone;
mod answer;
mod connection;
mod held;
mod link;
mod options;
mod pool;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};

use crate::call::{Call, How, Step};
use crate::runtime::Runtime;
use connection::{NoConnection, Target};
use link::{Link, Request};
use pool::Pool;

pub(crate) use alone::Alone;
pub(crate) use answer::strange;
pub(crate) use held::Held;
pub(crate) use link::Again;
pub use options::{ConnectOptions, Tls};
pub(crate) use wire::{Reply, Words};

/// The longest timeout: longer than any program runs, and instants can still be told.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// An argument of so many bytes is taken by each server, however short its values have to be.
const ARGUMENT_BYTES: usize = 64 << 10;

/// A server. Clones share its connections.
#[derive(Clone)]
pub(crate) struct Remote(Arc<Inner>);

struct Inner {
    link: Link,
    pool: Pool,
    runtime: Runtime,
    value_bytes_max: usize,
    timeout: Duration,
}

impl Remote {
    /// What drives its sockets.
    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        self.0.runtime.handle()
    }

    /// Does something that may block, in another thread when it is awaited.
    pub(crate) fn elsewhere<T: Send + 'static>(&self, run: impl FnOnce() -> Result<T> + Send + 'static) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| {
            if how == How::Wait {
                return Step::Done(run());
            }
            let done = this.0.runtime.off(run);
            Step::Running(Box::pin(async move {
                let done = done.await;
                drop(this);
                done
            }))
        })
    }

    /// A pause that any runtime may poll.
    pub(crate) fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        let _entered = self.0.runtime.handle().enter();
        tokio::time::sleep(time)
    }

    /// How long its calls wait.
    pub(crate) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    /// Connections for calls that have one alone.
    pub(crate) fn connections_max(&self) -> usize {
        self.0.pool.size_max()
    }

    /// Connects, to see whether the server is there and lets this client in.
    pub(crate) fn connect(options: ConnectOptions) -> Result<Call<Self>> {
        options.check()?;
        let options = ConnectOptions { timeout: options.timeout.min(FAR), ..options };
        let tls = options.tls.as_ref().map(super::remote::Tls::config).transpose()?;
        let (value_bytes_max, timeout) = (options.value_bytes_max, options.timeout);
        let target = Arc::new(Target { options, tls });
        let runtime = Runtime::start()?;
        Ok(Call::new(move |_| {
            let handle = runtime.handle().clone();
            let first = Arc::clone(&target);
            let connecting = handle.spawn(async move { first.connect().await });
            Step::Running(Box::pin(async move {
                let connected = connecting
                    .await
                    .unwrap_or_else(|_| Err(NoConnection::Unreachable("connecting was ended".to_owned())));
                connected.map_err(|error| match error {
                    NoConnection::Refused(text) => Error::new(ErrorKind::Invalid, text),
                    NoConnection::Unreachable(text) => Error::new(ErrorKind::Unavailable, text),
                })?;
                let link = {
                    let _entered = runtime.handle().enter();
                    Link::start(Arc::clone(&target))
                };
                Ok(Self(Arc::new(Inner { link, pool: Pool::new(target), runtime, value_bytes_max, timeout })))
            }))
        }))
    }

    /// Refuses what no server takes, before it breaks a connection that others share.
    pub(crate) fn check_bytes(&self, what: &str, bytes: usize) -> Result<()> {
        let max = self.0.value_bytes_max;
        if bytes <= max {
            return Ok(());
        }
        let text = format!("{what} of {bytes} bytes; the limit is {max}: see value_bytes_max");
        Err(Error::new(ErrorKind::Limit, text))
    }

    /// The same for what has no name of its own there: metadata, terms of indexes, values of changes and conditions.
    pub(crate) fn check_words(&self, words: &Words) -> Result<()> {
        if words.longest() <= ARGUMENT_BYTES {
            return Ok(());
        }
        self.check_bytes("an argument", words.longest())
    }

    /// Several requests, if servers take each of them.
    fn encode(&self, all: &[Words]) -> Result<Vec<u8>> {
        all.iter().try_for_each(|words| self.check_words(words))?;
        let mut bytes = Vec::new();
        all.iter().for_each(|words| words.write(&mut bytes));
        Ok(bytes)
    }

    /// Asks on the connection that all share.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        words: &Words,
        again: Again,
        read: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        self.call_outcome(words, again, move |reply| read(reply?))
    }

    /// As [`Remote::call`], for answers that are made also of an error.
    pub(crate) fn call_outcome<T: Send + 'static>(
        &self,
        words: &Words,
        again: Again,
        read: impl FnOnce(Result<Reply>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        if let Err(error) = self.check_words(words) {
            return Call::done(read(Err(error)));
        }
        let request = Request { bytes: words.to_bytes(), replies: 1, again };
        let first = |replies: Vec<Reply>| replies.into_iter().next().unwrap_or(Reply::Null);
        self.call_raw(request, move |replies| read(replies.map(first)))
    }

    /// Asks several things that belong together.
    pub(crate) fn call_together<T: Send + 'static>(
        &self,
        all: &[Words],
        again: Again,
        read: impl FnOnce(Vec<Reply>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let bytes = match self.encode(all) {
            Ok(bytes) => bytes,
            Err(error) => return Call::done(Err(error)),
        };
        self.call_raw(Request { bytes, replies: all.len(), again }, move |replies| read(replies?))
    }

    fn call_raw<T: Send + 'static>(
        &self,
        request: Request,
        read: impl FnOnce(Result<Vec<Reply>>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let this = self.clone();
        Call::new(move |how| {
            let lost = |_| Err(Error::new(ErrorKind::Closed, "the client was closed before the answer came"));
            if how == How::Await {
                // Now, and not when it is polled again: calls stay in the order in which they were begun.
                let sent = this.0.link.send(request);
                return Step::Running(Box::pin(async move {
                    let replies = match sent {
                        Ok(answer) => answer.await.unwrap_or_else(lost),
                        Err(error) => Err(error),
                    };
                    drop(this);
                    read(replies)
                }));
            }
            // Who blocks anyway waits for room here, so that it is in the queue when this returns.
            match crate::call::block_on(this.0.link.send_with_room(request)) {
                Err(error) => Step::Done(read(Err(error))),
                Ok(answer) => Step::Running(Box::pin(async move {
                    let replies = answer.await.unwrap_or_else(lost);
                    drop(this);
                    read(replies)
                })),
            }
        })
    }

    /// Asks on a connection of its own, because the answer may take long; `block` is how long the server is told to wait,
    /// `None` is without end. Who drops the call closes the connection.
    pub(crate) fn call_alone<T: Send + 'static>(
        &self,
        words: &Words,
        again: Again,
        block: Option<Duration>,
        read: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        if let Err(error) = self.check_words(words) {
            return Call::done(Err(error));
        }
        let (this, bytes) = (self.clone(), words.to_bytes());
        Call::new(move |_| {
            let handle = this.0.runtime.handle().clone();
            let task = handle.spawn(async move { this.0.pool.call(&bytes, again, block).await });
            Step::Running(Box::pin(async move {
                let mut task = Ends(task);
                read((&mut task.0).await.map_err(ended)??)
            }))
        })
    }

    /// Asks on a connection that is the caller's from then on; what is asked must be something that may be asked again.
    pub(crate) fn hold<T: Send + 'static>(
        &self,
        words: &Words,
        read: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Call<(Held, T)> {
        let (this, bytes) = (self.clone(), words.to_bytes());
        Call::new(move |_| {
            let handle = this.0.runtime.handle().clone();
            let task = handle.spawn(async move {
                let (connection, room, reply) = this.0.pool.take(&bytes).await?;
                Result::Ok((Held::new(connection, this.timeout(), room), reply))
            });
            Step::Running(Box::pin(async move {
                let mut task = Ends(task);
                let (held, reply) = (&mut task.0).await.map_err(ended)??;
                Ok((held, read(reply)?))
            }))
        })
    }

    /// Asks several things on a connection that is the caller's. One whose call is dropped goes on, so that the connection stays
    /// what it is.
    pub(crate) fn call_held<T: Send + 'static>(
        &self,
        held: &Arc<Held>,
        all: &[Words],
        again: Again,
        read: impl FnOnce(Vec<Reply>) -> Result<T> + Send + 'static,
    ) -> Call<T> {
        let bytes = match self.encode(all) {
            Ok(bytes) => bytes,
            Err(error) => return Call::done(Err(error)),
        };
        let (this, held, count) = (self.clone(), Arc::clone(held), all.len());
        Call::new(move |_| {
            let handle = this.0.runtime.handle().clone();
            let task = handle.spawn(async move { held.ask(&bytes, count, again).await });
            Step::Running(Box::pin(async move {
                let replies = task.await.map_err(ended)?;
                drop(this);
                read(replies?)
            }))
        })
    }
}

fn ended(_: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Closed, "the client was closed before the answer came")
}

/// A task that ends with whoever waits for it.
struct Ends<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Ends<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
