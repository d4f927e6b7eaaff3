//! How fast sealed files are merged.
//!
//! May use: `base`. Must not know: what is merged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Inner;

/// Rests are gathered until they are worth a change of threads.
const REST_MIN: Duration = Duration::from_millis(20);
/// Above so many files the rate is exceeded, by as much again for each so many more: each costs every query.
const FILES_PER_HASTE: usize = 24;

/// The rate of one piece of merging.
#[derive(Debug)]
pub(crate) enum Pace {
    /// That of the options; how long is to be rested yet.
    Limited(Duration),
    /// Somebody waits for it.
    Unlimited,
}

/// How long bytes take at a rate in a second, 0 for no limit, of which there are so many files.
fn rest(bytes: u64, bytes_per_second: u64, files: usize) -> Duration {
    let haste = (files / FILES_PER_HASTE).max(1) as u64;
    let nanos = (bytes * 1_000_000_000).checked_div(bytes_per_second.saturating_mul(haste));
    Duration::from_nanos(nanos.unwrap_or(0))
}

impl Pace {
    /// The pace of the background: without threads nobody rests.
    pub(crate) fn of(inner: &Inner) -> Self {
        if inner.threads { Self::Limited(Duration::ZERO) } else { Self::Unlimited }
    }

    /// Counts bytes that are read, and rests for them.
    ///
    /// # Errors
    /// `Closed` when the store is closing.
    pub(crate) fn keep(&mut self, inner: &Inner, bytes: u64) -> Result<()> {
        inner.shelf.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
        let Self::Limited(due) = self else { return Ok(()) };
        if inner.stopping.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the store is closing: files are merged another time"));
        }
        if inner.shelf.hurried.load(Ordering::Relaxed) > 0 {
            *due = Duration::ZERO;
            return Ok(());
        }
        let files = inner.shelf.contents().files.len();
        *due += rest(bytes, inner.options.series.merge_bytes_per_second, files);
        if *due >= REST_MIN {
            inner.merge_wake.wait(Some(std::mem::take(due)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ::series::{Points, Range, Rows, Select, Source};
    use base::memory::Disk;
    use base::{OsClock, Signal};

    use super::*;
    use crate::series::seal::When;
    use crate::{MemoryLedgers, Options, Store, World};

    /// At a byte a second, merging would take an hour.
    #[test]
    fn who_closes_does_not_wait_for_a_slow_merging_and_who_seals_makes_it_hurry() {
        for is_hurried in [false, true] {
            let disk = Disk::new(1);
            let world = World {
                files: Arc::new(disk.process()),
                clock: Arc::new(OsClock::new()),
                ledgers: Arc::new(MemoryLedgers::default()),
                threads: true,
                entropy: 1,
            };
            let mut options = Options { scrub_bytes_per_second: 0, ..Options::default() };
            options.series.merge_bytes_per_second = 1;
            let store = Store::open_in(&world, Path::new("/store"), options.clone()).unwrap();
            let mut rows = Rows::new("d");
            for nth in 0..4 {
                let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
                let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
                (0..9000).for_each(|time| rows.push_float(slot, nth * 9000 + time, (time % 1009) as f64 / 7.0));
                store.series().write(&mut rows).unwrap();
                store.inner().seal_series(When::Now).unwrap();
            }
            let stats = || store.stats().series;
            let begin = store.inner().clock.now();
            while stats().merged_bytes == 0 {
                assert!(store.inner().clock.now().since(begin) < Duration::from_secs(60), "nothing is merged");
                Signal::new().wait(Some(Duration::from_millis(1)));
            }
            if is_hurried {
                store.series().seal().unwrap();
                assert_eq!((stats().files, stats().merges), (1, 1));
            }
            assert_eq!(stats().points, 36_000);
            store.close().unwrap();
            assert_eq!(store.stats().series.merge_failures, 0, "to be interrupted is no failure");
            drop(store);
            let store = Store::open_in(&World { threads: false, ..world }, Path::new("/store"), options).unwrap();
            let (reader, mut points) = (store.series().reader(), Points::new());
            let found = reader.series(&Select::metric("d", "m")).unwrap();
            reader.points(found[0].id, Range::ALL, &mut points).unwrap();
            assert_eq!((points.len(), store.stats().damage.len()), (36_000, 0));
        }
    }

    #[test]
    fn the_rate_is_kept_and_exceeded_when_files_are_many() {
        assert_eq!(rest(1 << 19, 1 << 20, 3), Duration::from_millis(500));
        assert_eq!(rest(1 << 19, 1 << 20, 4 * FILES_PER_HASTE), Duration::from_millis(125));
        assert_eq!(rest(1 << 30, 0, 3), Duration::ZERO);
    }
}
