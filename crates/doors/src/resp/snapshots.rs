//! The snapshots that connections have opened: KV.SNAPSHOT.
//!
//! A snapshot keeps old versions on disk, so each belongs to one connection, ends with it, and ends by itself after a
//! time that its opener has chosen; a forgotten one costs disk for that long and no longer. Their number is bounded.
//!
//! Times are from a clock that only goes forward, and handed in: whoever calls knows what time it is.
//!
//! May use: the facade's `Snapshot`. Must not know: commands, connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast::{Position, Snapshot};

use crate::ids::Ids;

struct Open {
    snapshot: Arc<Snapshot>,
    client: u64,
    until: Instant,
}

/// What a connection may know of one of its snapshots.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: u64,
    pub(crate) position: Position,
    /// How long it is kept yet.
    pub(crate) left: Duration,
}

/// The open snapshots of one door.
pub(crate) struct Snapshots {
    by_id: BTreeMap<u64, Open>,
    ids: Ids,
    all_max: usize,
    client_max: usize,
}

impl Snapshots {
    pub(crate) fn new(all_max: usize, client_max: usize) -> Self {
        Snapshots { by_id: BTreeMap::new(), ids: Ids::new(), all_max, client_max }
    }

    /// Whether this client may open another one.
    pub(crate) fn has_room(&self, client: u64) -> bool {
        self.by_id.len() < self.all_max && self.of(client).count() < self.client_max
    }

    /// Keeps a snapshot of a client until then. Answers its number, which is never used again, nor by another run of the program.
    pub(crate) fn add(&mut self, client: u64, snapshot: Snapshot, until: Instant) -> u64 {
        let id = self.ids.next();
        self.by_id.insert(id, Open { snapshot: Arc::new(snapshot), client, until });
        id
    }

    /// The snapshot of this client with this number, unless its time is over.
    pub(crate) fn get(&self, client: u64, id: u64, now: Instant) -> Option<Arc<Snapshot>> {
        let open = self.by_id.get(&id).filter(|open| open.client == client && now < open.until)?;
        Some(open.snapshot.clone())
    }

    /// Lets go of one. False when this client has none with this number.
    pub(crate) fn close(&mut self, client: u64, id: u64) -> bool {
        let is_there = self.by_id.get(&id).is_some_and(|open| open.client == client);
        if is_there {
            self.by_id.remove(&id);
        }
        is_there
    }

    /// Lets go of all of a client.
    pub(crate) fn close_all(&mut self, client: u64) {
        self.by_id.retain(|_, open| open.client != client);
    }

    /// Lets go of those whose time is over.
    pub(crate) fn close_expired(&mut self, now: Instant) {
        self.by_id.retain(|_, open| now < open.until);
    }

    /// Those of a client, ascending by number.
    pub(crate) fn list(&self, client: u64, now: Instant) -> Vec<Listed> {
        let listed = |(id, open): (&u64, &Open)| Listed {
            id: *id,
            position: open.snapshot.position(),
            left: open.until.saturating_duration_since(now),
        };
        self.of(client).filter(|(_, open)| now < open.until).map(listed).collect()
    }

    fn of(&self, client: u64) -> impl Iterator<Item = (&u64, &Open)> {
        self.by_id.iter().filter(move |(_, open)| open.client == client)
    }
}

#[cfg(test)]
mod tests {
    use holdfast::{Options, PutOptions, Store};

    use super::*;

    #[test]
    fn a_snapshot_ends_with_its_client_or_with_its_time_and_belongs_to_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        store.kv().put(b"b", b"k", b"v", &PutOptions::default()).unwrap();
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut snapshots = Snapshots::new(3, 2);
        let first = snapshots.add(7, store.snapshot().unwrap(), begin + second);
        let later = snapshots.add(7, store.snapshot().unwrap(), begin + second * 9);
        assert!(first != later && !snapshots.has_room(7) && snapshots.has_room(8));
        assert!(snapshots.get(7, first, begin).is_some() && snapshots.get(8, first, begin).is_none());
        assert!(snapshots.get(7, first, begin + second).is_none(), "its time is over");
        let list = snapshots.list(7, begin + second);
        assert_eq!(list.iter().map(|listed| (listed.id, listed.left)).collect::<Vec<_>>(), [(later, second * 8)]);
        assert!(snapshots.list(8, begin).is_empty() && !snapshots.close(8, later));
        snapshots.close_expired(begin + second);
        assert!(snapshots.has_room(7) && !snapshots.close(7, first));
        assert!(snapshots.close(7, later) && !snapshots.close(7, later));
        let other = snapshots.add(8, store.snapshot().unwrap(), begin + second);
        snapshots.add(7, store.snapshot().unwrap(), begin + second);
        snapshots.close_all(7);
        assert!(snapshots.list(7, begin).is_empty() && snapshots.get(8, other, begin).is_some());
    }
}
