//! A connection that one transaction has to itself until it ends.
//!
//! May use: `pool`, `connection`, tokio. Must not know: what is asked.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::connection::Connection;
use super::wire::{Reply, Words};
use super::{Ends, Remote, ended};
use crate::call::{Call, Step};

/// A connection to a server. Dropping it closes it.
pub(crate) struct Alone {
    remote: Remote,
    connection: Connection,
    /// Its place among all that a client may have.
    _room: OwnedSemaphorePermit,
}

impl Remote {
    /// A connection on which this was answered.
    pub(crate) fn alone(&self, words: &Words) -> Call<(Alone, Reply)> {
        let (this, bytes) = (self.clone(), words.to_bytes());
        Call::new(move |_| {
            let handle = this.0.runtime.handle().clone();
            let task = handle.spawn(async move {
                let (connection, room, reply) = this.0.pool.take(&bytes).await?;
                Ok((Alone { remote: this, connection, _room: room }, reply))
            });
            Step::Running(Box::pin(async move {
                let mut task = Ends(task);
                (&mut task.0).await.map_err(ended)?
            }))
        })
    }
}

impl Alone {
    /// Asks, and waits for the reply so much longer than for others. Without a reply the connection is gone, and why is told.
    pub(crate) fn ask(
        mut self,
        words: &Words,
        block: Duration,
    ) -> impl Future<Output = std::result::Result<(Self, Reply), String>> + Send + use<> {
        let bytes = words.to_bytes();
        let patience = self.remote.timeout();
        let task = self.remote.handle().clone().spawn(async move {
            match timeout(patience.saturating_add(block), self.connection.call(&bytes)).await {
                Ok(Ok(reply)) => Ok((self, reply)),
                Ok(Err(error)) => Err(format!("the connection broke: {error}")),
                Err(_) => Err(format!("no answer within {patience:?}")),
            }
        });
        let mut task = Ends(task);
        async move { (&mut task.0).await.unwrap_or_else(|_| Err("the client was closed".to_owned())) }
    }

    /// Others may use it.
    pub(crate) fn give_back(self) {
        self.remote.0.pool.keep(self.connection);
    }

    /// Which client's it is.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }
}
