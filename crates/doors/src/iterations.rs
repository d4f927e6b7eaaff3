//! Iterations through entries that clients of a door have begun: SPACE.ITERATE, and `/iterate` over HTTP.
//!
//! A cursor serves once: with each batch there is a new one, so that a client that asks twice is told and does not miss entries.
//! Their number, their life and the entries that they hold together are bounded: each holds those of a partition that it has come to.
//!
//! Times are handed in.
//!
//! May use: the facade's `Iteration`. Must not know: commands, connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use holdfast::space::{Entry, Iteration, ReadLock, Stop, Within, WithinIteration};

use crate::ids::Ids;

/// How long an iteration is remembered after each batch unless it is told, and the longest that it may be told.
const LIFE: Duration = Duration::from_secs(60);
pub(crate) const LIFE_MAX: Duration = Duration::from_secs(3_600);

/// So long, of who says it in milliseconds; `None` is no time that may be.
pub(crate) fn life(ms: u64) -> Option<Duration> {
    (1..=LIFE_MAX.as_millis()).contains(&u128::from(ms)).then(|| Duration::from_millis(ms))
}

/// One that was begun.
pub(crate) struct Going {
    /// Space and type.
    name: (Vec<u8>, Vec<u8>),
    through: Through,
    life: Duration,
    until: Option<Instant>,
}

enum Through {
    Committed(Box<Iteration>),
    /// What a transaction sees, the one with this number while it is open.
    Within(Weak<u64>, Box<WithinIteration>),
}

impl Going {
    pub(crate) fn new(name: (Vec<u8>, Vec<u8>), iteration: Iteration) -> Self {
        Going { name, through: Through::Committed(Box::new(iteration)), life: LIFE, until: None }
    }

    /// One within an open transaction.
    pub(crate) fn within(name: (Vec<u8>, Vec<u8>), transaction: &Arc<u64>, iteration: WithinIteration) -> Self {
        let transaction = Arc::downgrade(transaction);
        Going { name, through: Through::Within(transaction, Box::new(iteration)), life: LIFE, until: None }
    }

    /// It is remembered so long after each batch from now on, or as long as before.
    pub(crate) fn living(self, life: Option<Duration>) -> Self {
        Going { life: life.unwrap_or(self.life), ..self }
    }

    /// The transaction that it is of.
    fn transaction(&self) -> Option<u64> {
        match &self.through {
            Through::Committed(_) => None,
            Through::Within(transaction, _) => transaction.upgrade().map(|number| *number),
        }
    }

    /// Whether nobody can go on with it: it is known no longer, or its transaction has ended.
    fn is_over(&self, now: Instant) -> bool {
        let has_ended = matches!(&self.through, Through::Within(transaction, _) if transaction.strong_count() == 0);
        has_ended || self.until.is_some_and(|until| now >= until)
    }

    /// It goes on for somebody who may wait so long for a batch.
    pub(crate) fn until(mut self, stop: Stop) -> Self {
        match &mut self.through {
            Through::Committed(iteration) => iteration.set_stop(stop),
            Through::Within(_, iteration) => iteration.set_stop(stop),
        }
        self
    }

    /// The next entry; none within a transaction.
    pub(crate) fn next(&mut self) -> holdfast::Result<Option<Entry>> {
        match &mut self.through {
            Through::Committed(iteration) => Ok(iteration.next(1)?.pop()),
            Through::Within(..) => Ok(None),
        }
    }

    /// The next entry within the transaction that it is of.
    pub(crate) fn next_within(&mut self, within: &mut Within<'_>, lock: ReadLock) -> holdfast::Result<Option<Entry>> {
        match &mut self.through {
            Through::Committed(_) => Ok(None),
            Through::Within(_, iteration) => Ok(within.next_of(iteration, lock, 1)?.pop()),
        }
    }

    /// How many entries it holds.
    fn entries(&self) -> usize {
        match &self.through {
            Through::Committed(iteration) => iteration.kept(),
            Through::Within(_, iteration) => iteration.kept(),
        }
    }
}

/// The next entries, until there are so many, or they come to so many bytes; and whether there may be more.
pub(crate) fn batch(
    count: usize,
    bytes_max: usize,
    mut next: impl FnMut() -> holdfast::Result<Option<Entry>>,
) -> holdfast::Result<(Vec<Entry>, bool)> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() < count && bytes < bytes_max {
        let Some(entry) = next()? else { return Ok((found, false)) };
        bytes += entry.document.as_bytes().len();
        found.push(entry);
    }
    Ok((found, true))
}

/// The iterations of one door.
pub(crate) struct Iterations {
    by_id: BTreeMap<u64, Going>,
    ids: Ids,
    max: usize,
    entries_max: usize,
}

/// Whoever panicked while it had them left them whole.
pub(crate) fn locked(iterations: &Mutex<Iterations>) -> MutexGuard<'_, Iterations> {
    iterations.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Iterations {
    pub(crate) fn new(max: usize, entries_max: usize) -> Self {
        Iterations { by_id: BTreeMap::new(), ids: Ids::new(), max: max.max(1), entries_max }
    }

    /// Remembers where one stands: its number, which is never 0 and never used again, nor by another run of the program. The oldest make room, whether there are too
    /// many or they hold too many entries; this one stays, because it could not go on anywhere else.
    pub(crate) fn add(&mut self, mut going: Going, now: Instant) -> u64 {
        self.close_expired(now);
        let mut entries = going.entries() + self.by_id.values().map(Going::entries).sum::<usize>();
        while self.by_id.len() >= self.max || entries > self.entries_max {
            let Some((_, oldest)) = self.by_id.pop_first() else { break };
            entries -= oldest.entries();
        }
        going.until = Some(now + going.life);
        let id = self.ids.next();
        self.by_id.insert(id, going);
        id
    }

    /// The one with this number, if it is of this space and type, and of this transaction or of none; it has another number afterwards.
    pub(crate) fn take(
        &mut self,
        id: u64,
        (space, of): (&[u8], &[u8]),
        transaction: Option<u64>,
        now: Instant,
    ) -> Option<Going> {
        self.close_expired(now);
        let is_it = |going: &Going| going.name.0 == space && going.name.1 == of && going.transaction() == transaction;
        if !self.by_id.get(&id).is_some_and(is_it) {
            return None;
        }
        self.by_id.remove(&id)
    }

    /// Lets go of those whose time is over.
    pub(crate) fn close_expired(&mut self, now: Instant) {
        self.by_id.retain(|_, going| !going.is_over(now));
    }
}

#[cfg(test)]
mod tests {
    use holdfast::space::{Definition, Document, Value, Wanted, WriteOptions};
    use holdfast::{Options, Store};

    use super::*;

    #[test]
    fn a_cursor_serves_once_and_for_a_minute_and_is_of_its_type() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let entries = store.space("s").declare(Definition::new("s", "t")).unwrap();
        let name = (b"s".to_vec(), b"t".to_vec());
        let new = || Going::new(name.clone(), entries.iterate(&Wanted::all()).unwrap());
        let (mut iterations, begin) = (Iterations::new(2, 100), Instant::now());
        let first = iterations.add(new(), begin);
        assert!(iterations.take(first, (b"s", b"other"), None, begin).is_none(), "it is of another type");
        assert!(iterations.take(first, (b"s", b"t"), None, begin).is_some());
        assert!(iterations.take(first, (b"s", b"t"), None, begin).is_none(), "it was used");
        let late = iterations.add(new(), begin);
        assert!(iterations.take(late, (b"s", b"t"), None, begin + LIFE).is_none(), "its time is over");
        let hour = iterations.add(new().living(life(3_600_000)), begin);
        let going = iterations.take(hour, (b"s", b"t"), None, begin + LIFE_MAX - Duration::from_millis(1)).unwrap();
        let again = iterations.add(going.living(None), begin);
        assert!(iterations.take(again, (b"s", b"t"), None, begin + LIFE).is_some(), "it is told once");
        let short = iterations.add(new().living(life(1)), begin);
        assert!(iterations.take(short, (b"s", b"t"), None, begin + Duration::from_millis(1)).is_none());
        assert_eq!((life(0), life(3_600_001)), (None, None));
        let three = [(); 3].map(|()| iterations.add(new(), begin));
        let left = three.map(|id| iterations.take(id, (b"s", b"t"), None, begin).is_some());
        assert_eq!(left, [false, true, true], "the oldest made room");
    }

    /// Only their number was bounded: 256 of them could each hold all entries of a partition.
    #[test]
    fn iterations_that_hold_too_many_entries_together_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { partitions: 1, ..Options::default() };
        let store = Store::open(dir.path(), options).unwrap();
        let entries = store.space("s").declare(Definition::new("s", "t")).unwrap();
        for id in 0..5u64 {
            entries.write(&Document::from_pairs([("id", Value::from(id))]), &WriteOptions::default()).unwrap();
        }
        // Each is asked for one entry, and holds four.
        let begun = || {
            let mut going = Going::new((b"s".to_vec(), b"t".to_vec()), entries.iterate(&Wanted::all()).unwrap());
            assert!(going.next().unwrap().is_some() && going.entries() == 4);
            going
        };
        let now = Instant::now();
        let left = |entries_max: usize| {
            let mut iterations = Iterations::new(100, entries_max);
            let ids = [(); 3].map(|()| iterations.add(begun(), now));
            ids.map(|id| iterations.take(id, (b"s", b"t"), None, now).is_some())
        };
        assert_eq!(left(12), [true; 3]);
        assert_eq!(left(11), [false, true, true], "the oldest made room");
        assert_eq!(left(4), [false, false, true]);
        assert_eq!(left(3), [false, false, true], "one may always go on");
    }
}
