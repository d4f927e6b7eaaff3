//! Deleting points, dropping series and databases.
//!
//! May use: `write`, partitions. Must not know: protocols.

use ::series::influxql::ContinuousQuery;
use ::series::{Range, Select, SeriesId};
use journal::Position;

use super::shelf::Shelf;
use super::write::{Guard, Writing};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Inner;

/// What becomes of the series that are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Removal {
    Points(Range),
    Series,
}

impl Guard<'_> {
    /// Removes from those of the series that are still there, and have something to be removed. Up to where it has to be durable that
    /// there is nothing in the others.
    fn remove(&mut self, numbers: &[u32], removal: Removal, shelf: &Shelf) -> Position {
        // While the engine is locked, what is not there any more is sealed.
        let contents = shelf.contents();
        let mut rests_on = Position::ZERO;
        for number in numbers.iter().copied() {
            if self.engine.kind(number).is_none() {
                continue;
            }
            let series = SeriesId { partition: self.partition.id.get(), number };
            match removal {
                Removal::Series => self.stage.drop_series(number),
                Removal::Points(range) if self.engine.has_points(number, range) || contents.may_have(series, range) => {
                    self.stage.delete(number, range);
                }
                // It would be journaled, remembered and looked at for as long as there are files, for nothing.
                Removal::Points(_) => rests_on = self.engine.changed(),
            }
        }
        rests_on
    }
}

/// Series that one batch removes from at most: it is in memory whole, and other writers wait for it.
const BATCH_SERIES_MAX: usize = 10_000;

impl Inner {
    /// Removes from all series that are meant; how many they are. As one batch, if they are not very many; otherwise as several, of
    /// which a crash may leave the first.
    pub(super) fn remove_series(&self, select: &Select, removal: Removal) -> Result<(Position, u64)> {
        self.remove_and(select, (removal, BATCH_SERIES_MAX), |_| ())
    }

    fn remove_and(
        &self,
        select: &Select,
        (removal, batch_max): (Removal, usize),
        also: impl FnOnce(&mut Writing<'_>),
    ) -> Result<(Position, u64)> {
        self.check_open()?;
        self.make_room_for_series()?;
        let mut writing = self.everywhere()?;
        if let Removal::Points(_) = removal {
            self.check_erased(&writing)?;
        }
        let meant: Vec<Vec<u32>> = writing.guards.iter().map(|guard| guard.engine.select(select)).collect();
        let count: usize = meant.iter().map(Vec::len).sum();
        let mut position = Position::ZERO;
        if count > batch_max {
            // Nobody writes to any partition while all are locked: not for so long.
            drop(writing);
            for (partition, numbers) in self.partitions.iter().zip(&meant) {
                for some in numbers.chunks(batch_max) {
                    self.make_room_for_series()?;
                    let mut guard = Guard::lock(partition)?;
                    position = position.max(guard.remove(some, removal, &self.shelf));
                    position = position.max(self.commit_series(&mut Writing::of(vec![guard]))?);
                }
            }
            writing = self.everywhere()?;
        } else {
            for (guard, numbers) in writing.guards.iter_mut().zip(&meant) {
                position = position.max(guard.remove(numbers, removal, &self.shelf));
            }
        }
        also(&mut writing);
        position = position.max(self.commit_series(&mut writing)?);
        Ok((position, count as u64))
    }

    /// Refuses to delete when so much is remembered as deleted that it fills memory and manifest.
    fn check_erased(&self, writing: &Writing<'_>) -> Result<()> {
        let max = self.options.limits.series_erased_max;
        let count: usize = writing.guards.iter().map(|guard| guard.engine.erased_count()).sum();
        if count < max {
            return Ok(());
        }
        let text = format!(
            "{count} ranges of series were deleted and are still in files, of the {max} that are remembered (series_erased_max): they \
             are forgotten when files are merged or written again, which happens when half of one is deleted; dropping series needs none"
        );
        Err(Error::new(ErrorKind::Limit, text))
    }

    fn everywhere(&self) -> Result<Writing<'_>> {
        let guards = self.partitions.iter().map(Guard::lock).collect::<Result<_>>()?;
        Ok(Writing::of(guards))
    }

    pub(super) fn create_database(&self, name: &str) -> Result<Position> {
        self.check_open()?;
        if name.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the name of a database is not empty"));
        }
        ::series::check_name("database", name)?;
        self.make_room_for_series()?;
        let Some(first) = self.partitions.first() else { return Ok(Position::ZERO) };
        let mut guard = Guard::lock(first)?;
        if !guard.engine.created_databases().contains(name) {
            guard.stage.database(name);
        }
        let mut writing = Writing::of(vec![guard]);
        self.commit_series(&mut writing)
    }

    /// Removes a database, its series and its continuous queries: one batch, unless it has very many series.
    pub(super) fn drop_database(&self, name: &str) -> Result<(Position, u64)> {
        self.drop_database_by(name, BATCH_SERIES_MAX)
    }

    fn drop_database_by(&self, name: &str, batch_max: usize) -> Result<(Position, u64)> {
        let select = Select { database: name.to_owned(), ..Select::default() };
        let is_of = |query: &ContinuousQuery| query.database == name;
        self.check_open()?;
        self.make_room_for_series()?;
        let series = self.partitions.iter().map(|partition| partition.series().select(&select).len()).sum::<usize>();
        let (mut position, mut count) = (Position::ZERO, 0);
        if series > batch_max {
            // First the queries: what is left of a drop that was cut short must not write to the database again.
            let forgotten = self.drop_continuous_queries(is_of, |_| Ok(()))?;
            (position, count) = self.remove_and(&select, (Removal::Series, batch_max), |_| ())?;
            position = position.max(forgotten.unwrap_or_default());
        }
        let dropped = self.drop_continuous_queries(is_of, |exclusive| {
            let mut writing = self.everywhere()?;
            for guard in &mut writing.guards {
                let meant = guard.engine.select(&select);
                count += meant.len() as u64;
                guard.remove(&meant, Removal::Series, &self.shelf);
            }
            if let Some(first) = writing.guards.first_mut()
                && first.engine.created_databases().contains(name)
            {
                first.stage.forget(name);
            }
            exclusive.join_series(writing);
            Ok(())
        })?;
        Ok((position.max(dropped.unwrap_or_default()), count))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ::series::{Match, Rows, Source};
    use base::memory::Disk;

    use super::*;
    use crate::{MemoryLedgers, Options, Store, World};

    fn open() -> Store {
        let world = World {
            files: Arc::new(Disk::new(1)),
            clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
            ledgers: Arc::new(MemoryLedgers::default()),
            threads: false,
            entropy: 1,
        };
        let options = Options { partitions: 3, ..Options::default() };
        Store::open_in(&world, Path::new("/store"), options).unwrap()
    }

    /// Dropping was a batch for the queries and one for the series: a crash between the two left series that nobody had asked to keep.
    #[test]
    fn a_database_goes_with_its_queries_in_one_batch_unless_it_has_very_many_series() {
        for (batch_max, batches) in [(30, 1), (10, 5)] {
            let store = open();
            let mut rows = Rows::new("d");
            for host in 0..30 {
                let tags = vec![("host".to_owned(), host.to_string())];
                let row = rows.row(host.to_string().as_bytes(), |_| Ok(("m".to_owned(), tags))).unwrap();
                let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
                rows.push_float(slot, 7, 1.0);
            }
            let series = store.series();
            series.write(&mut rows).unwrap();
            if batches == 1 {
                series.create_database("d").unwrap();
            }
            for (database, name) in [("d", "a"), ("d", "b"), ("e", "c")] {
                let (database, name) = (database.to_owned(), name.to_owned());
                let query = ContinuousQuery { database, name, text: "CREATE".to_owned(), through: 0 };
                series.create_continuous_query(&query).unwrap();
            }
            let (before, end) = (store.stats().batches, store.inner().newest());
            let (position, count) = store.inner().drop_database_by("d", batch_max).unwrap();
            assert!(count == 30 && position >= end && position < store.inner().newest());
            // The queries, and each partition's series in tens at the most.
            let made = store.stats().batches - before;
            assert!(made == batches || batches > 1 && made >= 3, "{batch_max}: {made}");
            assert_eq!(series.reader().databases().unwrap(), [""; 0]);
            let left: Vec<String> = series.continuous_queries().unwrap().into_iter().map(|query| query.name).collect();
            assert_eq!(left, ["c"]);
            // There is nothing left to be dropped.
            assert_eq!(store.inner().drop_database_by("d", batch_max).unwrap(), (Position::ZERO, 0));
        }
    }

    /// A drop of very many series held all partitions, and all of it in one batch.
    #[test]
    fn many_series_are_removed_from_in_several_batches() {
        let store = open();
        let mut rows = Rows::new("d");
        for host in 0..100 {
            let tags = vec![("host".to_owned(), host.to_string())];
            let metric = if host < 70 { "m" } else { "n" };
            let row = rows.row(host.to_string().as_bytes(), |_| Ok((metric.to_owned(), tags))).unwrap();
            let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
            rows.push_float(slot, 7, 1.0);
        }
        store.series().write(&mut rows).unwrap();
        store.series().create_database("d").unwrap();
        let inner = store.inner();
        let select = Select::metric("d", "m");
        let range = Range { from: 0, to: 9 };
        let (position, count) = inner.remove_and(&select, (Removal::Points(range), 10), |_| ()).unwrap();
        assert!(count == 70 && position > Position::ZERO && position <= inner.newest());
        let reader = store.series().reader();
        let found = reader.series(&Select::metric("d", "m")).unwrap();
        assert!(found.len() == 70 && found.iter().all(|series| reader.last(series.id).unwrap().is_none()));
        let hosts = Select::metric("d", "m").and_tag("host", Match::In((0..60).map(|n| n.to_string()).collect()));
        let (_, count) = inner.remove_and(&hosts, (Removal::Series, 7), |_| ()).unwrap();
        assert_eq!((count, reader.series(&select).unwrap().len()), (60, 10));
        let all = Select { database: "d".into(), ..Select::default() };
        let forget = |writing: &mut Writing<'_>| writing.guards[0].stage.forget("d");
        let (_, count) = inner.remove_and(&all, (Removal::Series, 1), forget).unwrap();
        assert_eq!((count, inner.series_stats().series), (40, 0));
        assert!(store.series().reader().databases().unwrap().is_empty());
    }
}
