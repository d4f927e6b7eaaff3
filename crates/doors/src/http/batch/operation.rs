//! What a batch may do.
//!
//! May use: the facade, `space`, `object`. Must not know: JSON, how it is done.

use holdfast::space::{Bookmark, Change, Document, Lease, Value, Wanted, WriteMode};
use holdfast::{Condition, Indexes, Metadata, Position, Store};

use crate::auth::Right;
use crate::http::failure::Failure;
use crate::http::object::{Expiry, Name};
use crate::http::space::Place;

/// Which entry, or entries, of a type.
#[derive(Debug, Clone)]
pub(super) struct Which {
    pub(super) place: Place,
    pub(super) wanted: Wanted,
    /// The version that it has to have.
    pub(super) version: Option<Position>,
    /// There has to be one.
    pub(super) is_needed: bool,
}

/// Whether an answer tells what was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Previous {
    Told,
    Left,
}

/// One operation of a batch.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Write {
        place: Place,
        document: Document,
        mode: WriteMode,
        version: Option<Position>,
        lease: Lease,
        previous: Previous,
    },
    Read(Which),
    Take {
        which: Which,
        limit: Option<usize>,
    },
    Change {
        which: Which,
        changes: Vec<Change>,
        lease: Lease,
        previous: Previous,
    },
    ChangeAll {
        which: Which,
        changes: Vec<Change>,
        lease: Lease,
    },
    Renew {
        which: Which,
        lease: Lease,
    },
    Remove(Which),
    Count(Which),
    Select {
        place: Place,
        sql: String,
        parameters: Vec<Value>,
    },
    Clear(Which),
    Put {
        name: Name,
        value: Vec<u8>,
        metadata: Metadata,
        indexes: Indexes,
        expiry: Expiry,
        condition: Condition,
    },
    Delete {
        name: Name,
        condition: Condition,
    },
    Get(Name),
    Points(Vec<Point>),
    Acknowledge {
        place: Place,
        name: String,
        bookmark: Bookmark,
    },
}

/// One point of a time series.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) database: String,
    pub(super) metric: String,
    pub(super) tags: Vec<(String, String)>,
    pub(super) field: String,
    /// Nanoseconds since 1970; `None` is now.
    pub(super) time: Option<i64>,
    pub(super) value: holdfast::series::Value,
}

impl Operation {
    /// What it does to the buckets, spaces and databases that it names.
    pub(super) fn needs(&self) -> impl Iterator<Item = (Right, &[u8])> {
        fn space(right: Right, which: &Which) -> (Right, &[u8]) {
            (right, which.place.space.as_bytes())
        }
        let one = match self {
            Operation::Write { place, .. } | Operation::Acknowledge { place, .. } => {
                Some((Right::Write, place.space.as_bytes()))
            }
            Operation::Select { place, .. } => Some((Right::Read, place.space.as_bytes())),
            Operation::Read(which) | Operation::Count(which) => Some(space(Right::Read, which)),
            Operation::Take { which, .. }
            | Operation::Change { which, .. }
            | Operation::ChangeAll { which, .. }
            | Operation::Renew { which, .. }
            | Operation::Remove(which)
            | Operation::Clear(which) => Some(space(Right::Write, which)),
            Operation::Put { name, .. } | Operation::Delete { name, .. } => Some((Right::Write, &name.bucket[..])),
            Operation::Get(name) => Some((Right::Read, &name.bucket[..])),
            Operation::Points(_) => None,
        };
        let points = if let Operation::Points(points) = self { points.as_slice() } else { &[] };
        one.into_iter().chain(points.iter().map(|point| (Right::Write, point.database.as_bytes())))
    }

    /// The same, with its query counted as one that is kept.
    pub(super) fn kept(mut self, store: &Store) -> Result<Self, Failure> {
        if let Operation::Read(which)
        | Operation::Take { which, .. }
        | Operation::Change { which, .. }
        | Operation::ChangeAll { which, .. }
        | Operation::Renew { which, .. }
        | Operation::Remove(which)
        | Operation::Count(which)
        | Operation::Clear(which) = &mut self
        {
            which.wanted = which.wanted.kept(store)?;
        }
        Ok(self)
    }

    /// The object that it is about.
    pub(super) fn object(&self) -> Option<&Name> {
        match self {
            Operation::Put { name, .. } | Operation::Delete { name, .. } | Operation::Get(name) => Some(name),
            _ => None,
        }
    }

    /// Whether it may have to wait for entries that others have locked.
    pub(super) fn may_wait(&self) -> bool {
        matches!(
            self,
            Operation::Write { .. }
                | Operation::Read(_)
                | Operation::Take { .. }
                | Operation::Change { .. }
                | Operation::ChangeAll { .. }
                | Operation::Renew { .. }
                | Operation::Remove(_)
        )
    }

    /// Whether it changes nothing.
    pub(super) fn only_reads(&self) -> bool {
        matches!(self, Operation::Read(_) | Operation::Count(_) | Operation::Select { .. } | Operation::Get(_))
    }
}
