//! What a type of entries is: declared at run time, changeable while serving. This comment is the format's specification.
//!
//! Format: docs/formats/space.md
//!
//! Layout, lengths and counts LEB128, strings behind their length:
//!   version 1 | space | name | id field | routing path | default lease in ms, 0 none |
//!   storage 1 (0 durable, 1 volatile) | order 1 (0 none, 1 first in first out, 2 in groups | path, 3 none, and together) |
//!   history 1 (0 or 1) | limit in bytes, 0 none |
//!   at the limit 1 (0 refuse, 1 evict, 2 evict by | path, the smallest first, 3 evict by | path, the largest first) |
//!   indexes: count | (name | kind 1 (0 hash, 1 ordered) | unique 1 | paths: count | path*)*
//!
//! May use: `bytes`, `path`, `key`, the directions of queries. Must not know: entries.

use std::collections::BTreeSet;

use crate::error::{Error, Result, invalid};
use crate::key::key_of;
use crate::path::Path;
use crate::select::Direction;
use crate::value::{MapRef, ValueRef};
use base::{Fields, put_string, put_varint};

const VERSION: u8 = 1;
/// Longest name of a space, a type, a field or an index, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Most indexes of one type.
pub(crate) const INDEXES_MAX: usize = 64;
/// Most paths of one index.
pub(crate) const INDEX_PATHS_MAX: usize = 8;

/// Whether entries of a type are in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// They are: they survive what the durability of their writing says.
    #[default]
    Durable,
    /// They are in memory only, and gone with the process. In a transaction they change with its other entries or not at all; after a crash
    /// the others are there, and they are not.
    Volatile,
}

/// In which order entries are read and taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Order {
    /// In any.
    #[default]
    Any,
    /// As they were first written. All entries of the type lie in one partition.
    Fifo,
    /// As they were first written among those with the same value at this path; while one of a group is held by a
    /// transaction, nobody else gets any of it. A group lies in one partition.
    Groups(Path),
}

/// Where entries of a type lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In partitions, each by its routing value or its id: several are written at the same time.
    #[default]
    Spread,
    /// Together in one partition, as those in first-in first-out order do anyway: unique indexes may be of anything then, and one is written at a time.
    Together,
}

/// What happens when a type's limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtLimit {
    /// The write is refused.
    #[default]
    Refuse,
    /// Entries go: as [`Definition::evict_by`] says, or else those that were not written, or read outside of transactions, for longest.
    Evict,
}

/// Which entries of a type that evicts go first: those with the smallest or the largest value at a path, of which the type has an ordered
/// index. Entries that lack the value never go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictBy {
    /// What decides.
    pub path: Path,
    /// Whether the smallest go first, or the largest.
    pub direction: Direction,
}

/// How an index finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Equal values.
    Hash,
    /// Equal values and ranges, in order.
    Ordered,
}

/// An index of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Its name within the type.
    pub name: String,
    /// How it finds.
    pub kind: IndexKind,
    /// Whether no two entries may have the same values. Entries without all of the values do not count.
    pub unique: bool,
    /// What it is of: several paths make a compound index. A path with `[*]` indexes each item.
    pub paths: Vec<Path>,
}

/// A type of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The space it is in.
    pub space: String,
    /// Its name within the space.
    pub name: String,
    /// The field that holds an entry's id: a string, an integer or bytes. An entry written without one is given an integer.
    pub id: String,
    /// What decides in which partition an entry lies; `None` is the id.
    pub routing: Option<Path>,
    /// Whether entries lie in partitions, or all together in one.
    pub placement: Placement,
    /// How long entries live that are written without a lease, in milliseconds; `None` is for ever.
    pub lease_ms: Option<u64>,
    /// Whether they are in the journal.
    pub storage: Storage,
    /// In which order they are read and taken.
    pub order: Order,
    /// Whether the journal also holds what an entry was before each change, which events of the past tell then.
    pub history: bool,
    /// Most memory that all entries of the type may take, in bytes; 0 is no limit.
    pub memory_bytes_max: u64,
    /// What happens there.
    pub at_limit: AtLimit,
    /// Where entries are evicted, by what: `None` is by their use.
    pub evict_by: Option<EvictBy>,
    /// The indexes.
    pub indexes: Vec<IndexDefinition>,
}

impl Definition {
    /// A type whose entries have their id in the field `id`, and no indexes.
    pub fn new(space: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            space: space.into(),
            name: name.into(),
            id: "id".to_owned(),
            routing: None,
            placement: Placement::Spread,
            lease_ms: None,
            storage: Storage::Durable,
            order: Order::Any,
            history: false,
            memory_bytes_max: 0,
            at_limit: AtLimit::Refuse,
            evict_by: None,
            indexes: Vec::new(),
        }
    }

    /// Adds an index of one path, named as the path is.
    ///
    /// # Errors
    /// `Invalid` when the path is none.
    pub fn index(mut self, path: &str, kind: IndexKind) -> Result<Self> {
        let paths = vec![Path::parse(path)?];
        self.indexes.push(IndexDefinition { name: path.to_owned(), kind, unique: false, paths });
        Ok(self)
    }

    /// Whether its entries are evicted by their use.
    pub(crate) fn evicts_by_use(&self) -> bool {
        self.at_limit == AtLimit::Evict && self.evict_by.is_none()
    }

    /// Whether an index has entries in the order of what they are evicted by.
    pub(crate) fn is_of_eviction(&self, index: &IndexDefinition) -> bool {
        let first = index.paths.first();
        index.kind == IndexKind::Ordered && self.evict_by.as_ref().is_some_and(|by| first == Some(&by.path))
    }

    fn check_eviction(&self) -> Result<()> {
        let Some(by) = &self.evict_by else { return Ok(()) };
        let path = &by.path;
        if self.at_limit != AtLimit::Evict {
            return invalid(format!("entries go by {path} only where they are evicted: say so, or leave it out"));
        }
        if path.has_items() {
            return invalid(format!("an entry goes by one value, and {path} may be several: leave out [*]"));
        }
        if !self.indexes.iter().any(|index| self.is_of_eviction(index)) {
            return invalid(format!(
                "to evict by {path} the type needs an ordered index of it, or one that begins with it"
            ));
        }
        Ok(())
    }

    /// Checks that it makes sense.
    ///
    /// # Errors
    /// `Invalid` says what to change.
    pub fn check(&self) -> Result<()> {
        for (what, name) in [("space", &self.space), ("type", &self.name), ("id field", &self.id)] {
            check_name(what, name)?;
        }
        if self.lease_ms == Some(0) {
            return invalid("a lease of 0 ms ends before anybody sees the entry: leave it out, or give it a time");
        }
        if self.indexes.len() > INDEXES_MAX {
            let (actual, limit) = (self.indexes.len() as u64, INDEXES_MAX as u64);
            return Err(Error::Limit { what: "number of indexes", actual, limit });
        }
        let mut names = BTreeSet::new();
        for index in &self.indexes {
            check_name("index", &index.name)?;
            if !names.insert(&index.name) {
                return invalid(format!("two indexes are named {}: give each a name of its own", index.name));
            }
            if index.paths.is_empty() || index.paths.len() > INDEX_PATHS_MAX {
                return invalid(format!("the index {} needs one to {INDEX_PATHS_MAX} paths", index.name));
            }
            if index.paths.len() > 1 && index.paths.iter().any(Path::has_items) {
                return invalid(format!(
                    "the compound index {} cannot be of items: [*] needs an index alone",
                    index.name
                ));
            }
            let is_by_routing = self.routing.as_ref().is_some_and(|path| index.paths == [path.clone()]);
            if index.unique && !is_by_routing && !self.is_together() {
                return invalid(format!(
                    "the unique index {} has to be of the routing path alone, because nobody looks into other partitions: make that the routing, or \
                     declare that the type's entries lie together (TOGETHER)",
                    index.name
                ));
            }
        }
        self.check_eviction()?;
        if self.routing.as_ref().is_some_and(Path::has_items) {
            return invalid("the routing has to be one value: leave out [*]");
        }
        if self.placement == Placement::Together {
            match (&self.order, &self.routing) {
                (Order::Fifo, _) => {
                    return invalid("entries in first-in first-out order lie together anyway: leave it out");
                }
                (Order::Groups(_), _) => {
                    return invalid("entries in groups lie by their group, and so not together");
                }
                (Order::Any, Some(_)) => return invalid("entries that lie together have no routing: leave it out"),
                (Order::Any, None) => {}
            }
        }
        match (&self.order, &self.routing) {
            (Order::Fifo, Some(_)) => {
                invalid("entries in first-in first-out order lie in one partition: leave out the routing")
            }
            (Order::Groups(group), Some(routing)) if group != routing => {
                invalid("a group lies in one partition: leave out the routing, or make it the group's path")
            }
            (Order::Groups(group), _) if group.has_items() => invalid("a group has to be one value: leave out [*]"),
            _ => Ok(()),
        }
    }

    /// What decides where an entry lies: `None` is the id.
    #[must_use]
    pub fn routed_by(&self) -> Option<&Path> {
        match &self.order {
            Order::Groups(path) => Some(path),
            _ => self.routing.as_ref(),
        }
    }

    /// Whether all entries lie in one partition.
    #[must_use]
    pub fn is_together(&self) -> bool {
        self.placement == Placement::Together || self.order == Order::Fifo
    }

    /// The key of the entry with these fields, and of no other of the type: that of its id, and behind it that of the value that
    /// decides where it lies, if that is another.
    #[must_use]
    pub fn entry_key(&self, fields: MapRef<'_>) -> Vec<u8> {
        let mut key = key_of(fields.get(&self.id).unwrap_or(ValueRef::Null));
        if let Some(path) = self.routed_by() {
            key.extend(key_of(path.first(fields)));
        }
        key
    }

    /// Whether `later` may take this one's place while there are entries.
    ///
    /// # Errors
    /// `Invalid` when entries would have to lie elsewhere.
    pub fn check_change(&self, later: &Self) -> Result<()> {
        let fixed =
            |this: &Self| (this.id.clone(), this.routing.clone(), this.placement, this.storage, this.order.clone());
        if fixed(self) != fixed(later) {
            return invalid(
                "id, routing, storage and order of a type, and whether its entries lie together, are fixed: drop the type first",
            );
        }
        Ok(())
    }

    /// Appends it as it is stored.
    pub fn encode(&self, to: &mut Vec<u8>) {
        to.push(VERSION);
        put_string(to, self.space.as_bytes());
        put_string(to, self.name.as_bytes());
        put_string(to, self.id.as_bytes());
        put_string(to, self.routing.as_ref().map(ToString::to_string).unwrap_or_default().as_bytes());
        put_varint(to, self.lease_ms.unwrap_or(0));
        to.push(u8::from(self.storage == Storage::Volatile));
        match &self.order {
            Order::Any if self.placement == Placement::Together => to.push(3),
            Order::Any => to.push(0),
            Order::Fifo => to.push(1),
            Order::Groups(path) => {
                to.push(2);
                put_string(to, path.to_string().as_bytes());
            }
        }
        to.push(u8::from(self.history));
        put_varint(to, self.memory_bytes_max);
        match &self.evict_by {
            Some(by) => {
                to.push(if by.direction == Direction::Ascending { 2 } else { 3 });
                put_string(to, by.path.to_string().as_bytes());
            }
            None => to.push(u8::from(self.at_limit == AtLimit::Evict)),
        }
        put_varint(to, self.indexes.len() as u64);
        for index in &self.indexes {
            put_string(to, index.name.as_bytes());
            to.push(u8::from(index.kind == IndexKind::Ordered));
            to.push(u8::from(index.unique));
            put_varint(to, index.paths.len() as u64);
            index.paths.iter().for_each(|path| put_string(to, path.to_string().as_bytes()));
        }
    }

    /// Reads one.
    pub(crate) fn read(from: &mut Fields<'_>) -> Option<Self> {
        if from.u8()? != VERSION {
            return None;
        }
        let flag = |byte: u8| match byte {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let mut this = Self::new(from.text()?, from.text()?);
        from.text()?.clone_into(&mut this.id);
        let routing = from.text()?;
        this.routing = if routing.is_empty() { None } else { Some(Path::parse(routing).ok()?) };
        this.lease_ms = Some(from.varint()?).filter(|ms| *ms > 0);
        this.storage = if flag(from.u8()?)? { Storage::Volatile } else { Storage::Durable };
        this.order = match from.u8()? {
            0 => Order::Any,
            1 => Order::Fifo,
            2 => Order::Groups(Path::parse(from.text()?).ok()?),
            3 => {
                this.placement = Placement::Together;
                Order::Any
            }
            _ => return None,
        };
        this.history = flag(from.u8()?)?;
        this.memory_bytes_max = from.varint()?;
        let at_limit = from.u8()?;
        this.at_limit = if at_limit == 0 { AtLimit::Refuse } else { AtLimit::Evict };
        let mut by = |direction| Some(EvictBy { path: Path::parse(from.text()?).ok()?, direction });
        this.evict_by = match at_limit {
            0 | 1 => None,
            2 => Some(by(Direction::Ascending)?),
            3 => Some(by(Direction::Descending)?),
            _ => return None,
        };
        for _ in 0..from.varint()? {
            let name = from.text()?.to_owned();
            let kind = if flag(from.u8()?)? { IndexKind::Ordered } else { IndexKind::Hash };
            let unique = flag(from.u8()?)?;
            let mut paths = Vec::new();
            for _ in 0..from.varint()? {
                paths.push(Path::parse(from.text()?).ok()?);
            }
            this.indexes.push(IndexDefinition { name, kind, unique, paths });
        }
        this.check().ok()?;
        Some(this)
    }

    /// Reads one that was stored.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Fields(bytes);
        let this = Self::read(&mut from).filter(|_| from.0.is_empty());
        this.ok_or(Error::Malformed { what: "type definition" })
    }
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return invalid(format!("the name of the {what} needs 1 to {NAME_BYTES_MAX} bytes, and has {}", name.len()));
    }
    if name.contains(|c: char| c.is_control()) {
        return invalid(format!("the name of the {what} has control characters"));
    }
    Ok(())
}
