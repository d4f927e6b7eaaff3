//! A commit that is written through: answered once the table has taken it that follows what it changes.
//!
//! May use: `slot`, `remote`, the facade. Must not know: sockets, databases.

use std::time::Duration;

use holdfast::space::NotThrough;
use holdfast::{Committed, Durability, Error, ErrorKind, Position, Result};

use super::slot::State;
use super::{Transaction, commit_there, elsewhere};
use crate::call::{Call, How, Step};
use crate::client::Place;
use crate::remote::{Reply, Words};

/// What says, before a position, that the table is behind.
const BEHIND: &str = "BEHIND ";

/// A transaction that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the table may be behind"]
pub struct Through {
    /// The version of everything durable that it changed.
    pub position: Position,
    /// Why its table does not have it, or not surely: it gets it, once, when it can. `None` when it has it.
    pub behind: Option<String>,
}

impl Transaction {
    /// Commits it once the table has taken it that follows what it changes: a mirror of the server's or, in the process, of this program's
    /// (*write-through*). What it does elsewhere is committed with it, and what changes no entries needs no table. Waits for the table up to `wait`,
    /// a minute at the most.
    ///
    /// # Errors
    /// `Invalid` also when the table refuses it, in its database's words, when no table follows what it changes, or several do;
    /// `Unavailable` and `Timeout` also when the table could not take it: nothing has changed then, in neither. `Unknown` when the connection
    /// broke before the answer, or the store failed while it committed. Otherwise as [`Transaction::commit`].
    pub fn commit_through(self, durability: Option<Durability>, wait: Duration) -> Call<Through> {
        let Self { place, slot, .. } = self;
        Call::new(move |how| match (slot.take(), place) {
            (Err(error), _) => Step::Done(Err(error)),
            (Ok((State::Here(transaction), _away)), Place::Here(here)) => {
                let durability = durability.unwrap_or(here.store().durability());
                let commit = move || told(transaction.commit_through(durability, wait));
                match how {
                    How::Wait => Step::Done(commit()),
                    How::Await | How::Begin => Step::Running(Box::pin(here.off(commit))),
                }
            }
            (Ok((State::There(alone), _away)), _) => Step::Running(Box::pin(async move {
                let ms = wait.as_millis().max(1).to_string();
                let words = Words::new("TX.COMMIT").durability(durability).and("THROUGH").and(ms);
                read(commit_there(alone, &words, wait).await?)
            })),
            (Ok(_), _) => Step::Done(Err(elsewhere())),
        })
    }
}

/// What a store in the process answered.
fn told(committed: std::result::Result<Committed, NotThrough>) -> Result<Through> {
    match committed {
        Ok(Committed { position }) => Ok(Through { position, behind: None }),
        Err(NotThrough::TableBehind { committed, reason }) => {
            Ok(Through { position: committed.position, behind: Some(reason.to_string()) })
        }
        Err(NotThrough::Nothing(error)) => Err(Error::new(error.kind(), format!("nothing was changed: {error}"))),
        Err(unknown) => Err(Error::new(ErrorKind::Unknown, unknown.to_string())),
    }
}

/// What a server answered.
fn read(reply: Reply) -> Result<Through> {
    let behind = match &reply {
        Reply::Error(text) => text.strip_prefix(BEHIND).and_then(|rest| rest.split_once(' ')),
        _ => None,
    };
    let Some((position, why)) = behind.and_then(|(digits, why)| Some((digits.parse().ok()?, why))) else {
        return Ok(Through { position: reply.position()?, behind: None });
    };
    Ok(Through { position: Position::new(position), behind: Some(why.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_of_the_table_is_told() {
        let through = |position, behind: Option<&str>| Through {
            position: Position::new(position),
            behind: behind.map(str::to_owned),
        };
        assert_eq!(read(Reply::Integer(7)).unwrap(), through(7, None));
        let behind = read(Reply::Error("BEHIND 9 it happened, and more".to_owned())).unwrap();
        assert_eq!(behind, through(9, Some("it happened, and more")));
        for (text, kind) in [
            ("ERR nothing was changed: PostgreSQL: no", ErrorKind::Invalid),
            ("TIMEOUT nothing was changed: late", ErrorKind::Timeout),
            ("UNAVAILABLE nothing was changed: away", ErrorKind::Unavailable),
            ("BEHIND soon", ErrorKind::Invalid),
        ] {
            assert_eq!(read(Reply::Error(text.to_owned())).unwrap_err().kind(), kind, "{text}");
        }
    }

    #[test]
    fn what_a_store_in_the_process_says_of_the_table_is_told() {
        let error = |kind| Error::new(kind, "it is so");
        let committed = Committed { position: Position::new(3) };
        let there = Through { position: Position::new(3), behind: None };
        assert_eq!(told(Ok(committed)).unwrap(), there);
        let reason = error(ErrorKind::Timeout);
        let behind = told(Err(NotThrough::TableBehind { committed, reason })).unwrap();
        assert_eq!(behind, Through { behind: Some("it is so".to_owned()), ..there });
        let nothing = told(Err(NotThrough::Nothing(error(ErrorKind::Conflict)))).unwrap_err();
        assert_eq!(
            (nothing.kind(), nothing.to_string().as_str()),
            (ErrorKind::Conflict, "nothing was changed: it is so")
        );
        assert_eq!(
            told(Err(NotThrough::Unknown(error(ErrorKind::Unavailable)))).unwrap_err().kind(),
            ErrorKind::Unknown
        );
    }
}
