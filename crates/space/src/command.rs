//! What the space journals. This comment is the format's specification.
//!
//! Format: docs/formats/space.md
//!
//! A partition's part of a batch is a row of commands; numbers LEB128, strings behind their length:
//!   declare   1 | type | definition
//!   drop      2 | type
//!   write     3 | type | expires | document
//!   change    4 | type | expires | document | document before
//!   remove    5 | type | reason 1 | id
//!   taken     6 | type | reason 1 | document
//!   renew     7 | type | expires | id
//!
//! `type` is the number given when it was declared; expires is in milliseconds since 1970, 0 is never; an id is a stored
//! value. `change` and `taken` are what `write` and `remove` are for a type with history, so that who reads the journal
//! later learns what was there before. Commands are effects: they say what became, never how.
//!
//! May use: `bytes`, `value`, `definition`. Must not know: entries, indexes.

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::value::{MapRef, ValueRef};
use base::{Fields, put_string, put_varint};

const DECLARE: u8 = 1;
const DROP: u8 = 2;
const WRITE: u8 = 3;
const CHANGE: u8 = 4;
const REMOVE: u8 = 5;
const TAKEN: u8 = 6;
const RENEW: u8 = 7;

/// A type's number in the store, given when it is declared and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Why an entry is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Somebody took it.
    Taken,
    /// Its lease ended.
    Expired,
    /// It was removed with others.
    Cleared,
    /// The type's limit was reached.
    Evicted,
}

impl Reason {
    fn code(self) -> u8 {
        match self {
            Self::Taken => 0,
            Self::Expired => 1,
            Self::Cleared => 2,
            Self::Evicted => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Taken, Self::Expired, Self::Cleared, Self::Evicted].into_iter().find(|reason| reason.code() == code)
    }
}

/// One change of a partition's share of the space.
#[derive(Debug, Clone, PartialEq)]
pub enum Command<'a> {
    /// The type is this, with this number.
    Declare {
        /// Its number.
        of: TypeId,
        /// What it is.
        definition: Definition,
    },
    /// The type and all its entries are gone.
    Drop {
        /// Its number.
        of: TypeId,
    },
    /// The entry with the document's id is now this.
    Write {
        /// Its type.
        of: TypeId,
        /// When its lease ends, in milliseconds since 1970; 0 is never.
        expires_ms: u64,
        /// What it is.
        document: MapRef<'a>,
        /// What it was, if the type has history and it was there.
        before: Option<MapRef<'a>>,
    },
    /// The entry is gone.
    Remove {
        /// Its type.
        of: TypeId,
        /// Why.
        reason: Reason,
        /// Which.
        entry: Removed<'a>,
    },
    /// The entry's lease ends at another time.
    Renew {
        /// Its type.
        of: TypeId,
        /// When, in milliseconds since 1970; 0 is never.
        expires_ms: u64,
        /// Which.
        id: ValueRef<'a>,
    },
}

/// Which entry was removed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Removed<'a> {
    /// The one with this id.
    Id(ValueRef<'a>),
    /// This one: the type has history.
    Document(MapRef<'a>),
}

impl<'a> Command<'a> {
    /// Appends the command.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let head = |to: &mut Vec<u8>, tag: u8, of: &TypeId| {
            to.push(tag);
            put_varint(to, u64::from(of.0));
        };
        match self {
            Self::Declare { of, definition } => {
                head(to, DECLARE, of);
                definition.encode(to);
            }
            Self::Drop { of } => head(to, DROP, of),
            Self::Write { of, expires_ms, document, before } => {
                head(to, if before.is_some() { CHANGE } else { WRITE }, of);
                put_varint(to, *expires_ms);
                put_string(to, document.0);
                if let Some(before) = before {
                    put_string(to, before.0);
                }
            }
            Self::Remove { of, reason, entry } => {
                head(to, if matches!(entry, Removed::Document(_)) { TAKEN } else { REMOVE }, of);
                to.push(reason.code());
                match entry {
                    Removed::Id(id) => id.write(to),
                    Removed::Document(document) => put_string(to, document.0),
                }
            }
            Self::Renew { of, expires_ms, id } => {
                head(to, RENEW, of);
                put_varint(to, *expires_ms);
                id.write(to);
            }
        }
    }

    fn read(from: &mut Fields<'a>) -> Option<Self> {
        let tag = from.u8()?;
        let of = TypeId(u32::try_from(from.varint()?).ok()?);
        Some(match tag {
            DECLARE => Self::Declare { of, definition: Definition::read(from)? },
            DROP => Self::Drop { of },
            WRITE | CHANGE => {
                let (expires_ms, document) = (from.varint()?, MapRef(from.string()?));
                let before = if tag == CHANGE { Some(MapRef(from.string()?)) } else { None };
                Self::Write { of, expires_ms, document, before }
            }
            REMOVE => {
                let reason = Reason::from_code(from.u8()?)?;
                Self::Remove { of, reason, entry: Removed::Id(ValueRef::read(from)?) }
            }
            TAKEN => {
                let reason = Reason::from_code(from.u8()?)?;
                Self::Remove { of, reason, entry: Removed::Document(MapRef(from.string()?)) }
            }
            RENEW => Self::Renew { of, expires_ms: from.varint()?, id: ValueRef::read(from)? },
            _ => return None,
        })
    }
}

/// The commands of a partition's part of a batch, in order; at what does not decode an error, and then nothing more.
#[derive(Debug, Clone)]
pub struct Commands<'a>(Fields<'a>);

impl<'a> Commands<'a> {
    /// Of these bytes.
    #[must_use]
    pub fn new(part: &'a [u8]) -> Self {
        Self(Fields(part))
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let command = Command::read(&mut self.0).ok_or(Error::Malformed { what: "command of the space" });
        if command.is_err() {
            self.0 = Fields(&[]);
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{AtLimit, EvictBy, IndexDefinition, IndexKind, Order, Storage};
    use crate::document::Document;
    use crate::path::Path;
    use crate::select::Direction;

    #[test]
    fn commands_come_back_as_they_went_in_and_cut_ones_do_not() {
        let path = |text: &str| Path::parse(text).unwrap();
        let index = |name: &str, unique, paths: &[&str]| IndexDefinition {
            name: name.into(),
            kind: IndexKind::Ordered,
            unique,
            paths: paths.iter().map(|text| path(text)).collect(),
        };
        let definition = Definition {
            routing: Some(path("a.b")),
            lease_ms: Some(1000),
            storage: Storage::Volatile,
            order: Order::Groups(path("a.b")),
            history: true,
            memory_bytes_max: 1 << 40,
            at_limit: AtLimit::Evict,
            evict_by: Some(EvictBy { path: path("x"), direction: Direction::Descending }),
            indexes: vec![
                index("one", true, &["a.b"]),
                index("two", false, &["x", "y"]),
                index("many", false, &["t[*]"]),
            ],
            ..Definition::new("s", "t")
        };
        let document = Document::from_pairs([("id", 7)]);
        let (of, fields) = (TypeId(300), document.fields());
        let id = ValueRef::String("x");
        let commands = [
            Command::Declare { of, definition },
            Command::Drop { of },
            Command::Write { of, expires_ms: 0, document: fields, before: None },
            Command::Write { of, expires_ms: u64::MAX, document: fields, before: Some(fields) },
            Command::Remove { of, reason: Reason::Expired, entry: Removed::Id(id) },
            Command::Remove { of, reason: Reason::Evicted, entry: Removed::Document(fields) },
            Command::Renew { of, expires_ms: 5, id },
        ];
        let mut all = Vec::new();
        for command in &commands {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            for end in 1..bytes.len() {
                let cut: Vec<_> = Commands::new(&bytes[..end]).collect();
                assert_eq!(cut, [Err(Error::Malformed { what: "command of the space" })], "{command:?} cut at {end}");
            }
            all.extend_from_slice(&bytes);
        }
        let read: Result<Vec<Command<'_>>> = Commands::new(&all).collect();
        assert_eq!(read.unwrap(), commands);
    }

    proptest::proptest! {
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(
            mut bytes in proptest::collection::vec(0u8..=255, 0..120), tag in 0u8..9, small in 0u8..4
        ) {
            if let [first, second, ..] = bytes.as_mut_slice() {
                (*first, *second) = (tag, small);
            }
            // Numbers may be longer than they need be in what is read, and never in what is written.
            for command in Commands::new(&bytes).flatten() {
                let mut again = Vec::new();
                command.encode(&mut again);
                assert_eq!(Commands::new(&again).collect::<Result<Vec<_>>>().unwrap(), [command]);
            }
            let mut engine = crate::Engine::default();
            let _ = engine.apply(journal::Position::new(8), &bytes, &mut |_| ());
            let _ = engine.digest();
        }

        #[test]
        fn a_snapshot_of_garbage_is_refused(bytes in proptest::collection::vec(0u8..=255, 0..200)) {
            let mut snapshot = crate::Engine::default().snapshot(journal::Position::ZERO).encode(journal::PartitionId::new(0));
            assert!(crate::Engine::restore(&snapshot, journal::PartitionId::new(0)).is_ok());
            snapshot.truncate(32);
            snapshot.extend_from_slice(&base::hash64(&bytes).to_le_bytes());
            snapshot.extend_from_slice(&bytes);
            let _ = crate::Engine::restore(&snapshot, journal::PartitionId::new(0));
        }
    }
}
