//! What of a journal segment is still needed, said again so that the segment may go.
//!
//! A put is needed while the ledger points at it; an expiry while it is the newest change of its object, which then is
//! said again whole; a delete or clear while some older segment may hold what it removed, because a ledger that is rebuilt
//! from the journal would find it there. (Bitcask's merge and leveled's compaction have the same three cases.)
//!
//! May use: the engine's ledger, commands. Must not know: segments, when and how much is compacted.

use journal::Position;

use crate::command::{Command, Put, Recorded};
use crate::engine::Engine;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::key;
use crate::query::{Reader, decode};

/// Where the journal's oldest records begin, those aside that are about to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Older(pub Option<Position>);

impl Older {
    /// Whether the journal has anything older than `version`.
    fn than(self, version: Position) -> bool {
        self.0.is_some_and(|oldest| oldest < version)
    }
}

impl Reader {
    /// Whether the command at address `at`, of the batch at `position`, may still be needed: without a lock, so it is to be
    /// asked again by [`Engine::keep`].
    ///
    /// # Errors
    /// What the ledger says.
    pub fn may_need(&self, recorded: &Recorded<'_>, position: Position, at: u64, older: Older) -> Result<bool> {
        let version = recorded.version.unwrap_or(position);
        let stored = |bucket: &[u8], key: &[u8]| self.entries.peek(&key::object(bucket, key));
        Ok(match &recorded.command {
            Command::Put(put) => match stored(put.bucket, put.key)? {
                Some(stored) => decode(&stored.entry)?.at == at,
                None => false,
            },
            Command::Expire { bucket, key, .. } => match stored(bucket, key)? {
                Some(stored) => is_expiry_of(&decode(&stored.entry)?, position),
                None => false,
            },
            Command::Delete { bucket, key } => older.than(version) && stored(bucket, key)?.is_none(),
            Command::Clear { .. } => older.than(version),
        })
    }
}

/// Whether the batch at `position` was the last to change the object, after it was put.
fn is_expiry_of(entry: &Entry<'_>, position: Position) -> bool {
    entry.version == position && entry.at < position.get()
}

impl Engine {
    /// Appends to `to` what has to be said again of the command at address `at`, of the batch at `position`: nothing when
    /// it is not needed. Whoever calls it holds the partition's lock until what was appended is applied.
    ///
    /// # Errors
    /// `Ledger`; `Value` when an object that has to be said again cannot be read.
    pub fn keep(
        &self,
        recorded: &Recorded<'_>,
        position: Position,
        at: u64,
        older: Older,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let version = recorded.version.unwrap_or(position);
        match &recorded.command {
            Command::Put(put) => {
                if let Some(stored) = self.peek(put.bucket, put.key)? {
                    let entry = decode(&stored.entry)?;
                    if entry.at == at {
                        say_again(put, &entry, to);
                    }
                }
            }
            Command::Expire { bucket, key, .. } => {
                if let Some(stored) = self.peek(bucket, key)? {
                    let entry = decode(&stored.entry)?;
                    if is_expiry_of(&entry, position) {
                        self.say_object_again(bucket, key, &entry, to)?;
                    }
                }
            }
            Command::Delete { bucket, key } => {
                if older.than(version) && self.peek(bucket, key)?.is_none() {
                    recorded.command.encode_kept(version, to);
                }
            }
            Command::Clear { .. } if older.than(version) => recorded.command.encode_kept(version, to),
            Command::Clear { .. } => {}
        }
        Ok(())
    }

    /// Says an object again whose put lies elsewhere.
    fn say_object_again(&self, bucket: &[u8], key: &[u8], entry: &Entry<'_>, to: &mut Vec<u8>) -> Result<()> {
        let damaged = |reason| Error::Value { at: entry.at, reason };
        let mut bytes = vec![0; usize::try_from(entry.command_bytes).map_err(|_| damaged("impossible length"))?];
        self.log().read_at(entry.at, &mut bytes)?;
        match Recorded::decode(&bytes) {
            Some((Recorded { version: None, command: Command::Put(put) }, _))
                if put.bucket == bucket && put.key == key =>
            {
                say_again(&put, entry, to);
                Ok(())
            }
            _ => Err(damaged("no put of this object there")),
        }
    }
}

/// Says a put again, with what was changed of the object since.
fn say_again(put: &Put<'_>, entry: &Entry<'_>, to: &mut Vec<u8>) {
    let now = Put { modified_ms: entry.modified_ms, expires_ms: entry.expires_ms, ..*put };
    Command::Put(now).encode_kept(entry.version, to);
}
