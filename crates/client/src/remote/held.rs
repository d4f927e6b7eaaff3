//! A connection that one caller keeps: what it asked for there lives as long as the connection does.
//!
//! It is never made anew, because what it kept would not be there: once it has broken, everything that is asked on it fails.
//!
//! May use: `connection`, `link` for its `Again`, tokio. Must not know: what is asked.

use std::io;
use std::time::Duration;

use holdfast::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::timeout;

use super::connection::Connection;
use super::link::Again;
use super::wire::Reply;

/// The connection. Dropping it closes it.
pub(crate) struct Held {
    /// Taken out while somebody asks, so that nobody gets the reply to what another has asked.
    connection: Mutex<Option<Connection>>,
    patience: Duration,
    _room: OwnedSemaphorePermit,
}

/// What is told of a connection that broke: `again` as for other requests.
pub(crate) fn broke(again: Again, error: &dyn std::fmt::Display) -> Error {
    match again {
        Again::May => Error::new(ErrorKind::Unavailable, format!("no answer: {error}")),
        Again::MustNot => {
            let text = "the connection broke before the answer came, and it may have happened";
            Error::new(ErrorKind::Unknown, format!("{text}: {error}"))
        }
    }
}

pub(crate) fn late(patience: Duration) -> Error {
    let text = format!("no answer within {patience:?}; whether it happened is known by reading");
    Error::new(ErrorKind::Timeout, text)
}

impl Held {
    pub(crate) fn new(connection: Connection, patience: Duration, room: OwnedSemaphorePermit) -> Self {
        Self { connection: Mutex::new(Some(connection)), patience, _room: room }
    }

    /// Asks, and waits for so many replies. To be run to its end: who stops polling loses the connection.
    pub(crate) async fn ask(&self, request: &[u8], replies: usize, again: Again) -> Result<Vec<Reply>> {
        let mut place = self.connection.lock().await;
        let gone = "the connection to the server broke, and what was kept there went with it";
        let mut connection = place.take().ok_or_else(|| Error::new(ErrorKind::Unavailable, gone))?;
        let asked = async {
            let mut all = vec![connection.call(request).await?];
            while all.len() < replies {
                all.push(connection.reply().await?);
            }
            io::Result::Ok(all)
        };
        let all = timeout(self.patience, asked).await.map_err(|_| late(self.patience))?;
        let all = all.map_err(|error| broke(again, &error))?;
        *place = Some(connection);
        Ok(all)
    }
}
