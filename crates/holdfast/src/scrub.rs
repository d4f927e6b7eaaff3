//! The background scrubber: reads the sealed segments, the snapshots of spaces and the sealed files of time series round and round, at
//! a limited rate, and checks every byte.
//!
//! A token bucket fills with the rate, up to one second of it. One step takes one piece out, if that much is in. A round
//! that ends soon is not followed by the next at once: a small store would be read all the time.
//!
//! Damage that is new, whoever found it, is told to whom trouble is told: nobody looks at numbers all the time.
//!
//! May use: `journal`, `store`, `space`, the series' shelf. Must not know: protocols.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Time;
use journal::{Damage, Scrub, Scrubbed};

use crate::series::SealedScrub;
use crate::space::SnapshotScrub;
use crate::stats::ScrubStats;
use crate::store::{Inner, lock};

/// Most bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Rounds begin at least so far apart.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
/// Of more new damage than this at a time, the rest is only counted.
const TOLD_MAX: usize = 16;

/// Scrubs, if there is anything to do, until `inner.stopping` is set and the signal is raised.
pub(crate) fn run(inner: &Inner) {
    let Some(mut scrubber) = Scrubber::new(inner.options.scrub_bytes_per_second, inner.clock.now()) else { return };
    // What opening found is told by whoever opened.
    scrubber.told = inner.damage();
    while !inner.stopping.load(Ordering::Acquire) {
        let pause = scrubber.step(inner, inner.clock.now());
        inner.scrub_wake.wait(Some(pause));
    }
}

/// What the scrubber did since open.
#[derive(Debug, Default)]
pub(crate) struct ScrubCounters {
    bytes: AtomicU64,
    rounds: AtomicU64,
    last_round_nanos: AtomicU64,
    last_round_ms: AtomicU64,
}

impl ScrubCounters {
    pub(crate) fn stats(&self) -> ScrubStats {
        ScrubStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
            last_round: Duration::from_nanos(self.last_round_nanos.load(Ordering::Relaxed)),
            last_round_ms: self.last_round_ms.load(Ordering::Relaxed),
        }
    }
}

/// What of a round is being read, and how far that is.
enum Stage {
    Journal,
    Snapshots(SnapshotScrub),
    Sealed(SealedScrub),
}

pub(crate) struct Scrubber {
    scrub: Scrub,
    stage: Stage,
    /// The damage that needs no telling.
    told: Vec<Damage>,
    bytes_per_second: u64,
    credit_bytes: u64,
    last: Time,
    round_began: Time,
    /// Nothing is read before.
    rests_until: Time,
}

impl Scrubber {
    /// `None` when nothing is to be read.
    pub(crate) fn new(bytes_per_second: u64, now: Time) -> Option<Self> {
        let scrub = Scrub::default();
        (bytes_per_second > 0).then_some(Self {
            scrub,
            stage: Stage::Journal,
            told: Vec::new(),
            bytes_per_second,
            credit_bytes: 0,
            last: now,
            round_began: now,
            rests_until: now,
        })
    }

    /// Reads one piece if it is due; returns after which time to come back.
    pub(crate) fn step(&mut self, inner: &Inner, now: Time) -> Duration {
        if now < self.rests_until {
            self.last = now;
            return self.rests_until.since(now);
        }
        self.fill(now);
        let piece = PIECE_BYTES.min(self.bytes_per_second);
        if self.credit_bytes < piece {
            return self.time_for(piece - self.credit_bytes);
        }
        let bytes = usize::try_from(piece).expect("a piece fits memory");
        let scrubbed = loop {
            match &mut self.stage {
                Stage::Journal => match inner.journal.scrub(&mut self.scrub, bytes) {
                    Scrubbed::Round => self.stage = Stage::Snapshots(SnapshotScrub::default()),
                    Scrubbed::Bytes(read) => break Some(read),
                },
                Stage::Snapshots(at) => match inner.scrub_snapshots(at, piece) {
                    None => self.stage = Stage::Sealed(SealedScrub::default()),
                    read => break read,
                },
                Stage::Sealed(at) => break inner.shelf.scrub(at, piece),
            }
        };
        self.tell(inner);
        match scrubbed {
            Some(read) => {
                inner.scrubbed.bytes.fetch_add(read, Ordering::Relaxed);
                // What is read whole may be more than a piece: that is rested for.
                let more = read.saturating_sub(self.credit_bytes);
                self.credit_bytes -= read.min(self.credit_bytes);
                if more > 0 {
                    self.rests_until = now.after(self.time_for(more));
                }
                self.time_for(piece.saturating_sub(self.credit_bytes).max(more))
            }
            None => {
                self.stage = Stage::Journal;
                let took = now.since(self.round_began);
                let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                inner.scrubbed.last_round_nanos.store(nanos, Ordering::Relaxed);
                inner.scrubbed.last_round_ms.store(inner.clock.wall_ms(), Ordering::Relaxed);
                inner.scrubbed.rounds.fetch_add(1, Ordering::Relaxed);
                self.rests_until = self.round_began.after(ROUND_INTERVAL).max(now);
                self.round_began = self.rests_until;
                self.rests_until.since(now)
            }
        }
    }

    fn tell(&mut self, inner: &Inner) {
        let damage = inner.damage();
        if damage == self.told {
            return;
        }
        if let Some(tell) = &inner.options.trouble {
            let new: Vec<&Damage> = damage.iter().filter(|one| !self.told.contains(one)).collect();
            let advice = "see `holdfast inspect --verify`; a backup may still have the bytes";
            new.iter().take(TOLD_MAX).for_each(|one| tell(&format!("{one}; {advice}")));
            if let Some(more) = new.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
                tell(&format!("{more} more damaged ranges; {advice}"));
            }
        }
        self.told = damage;
    }

    fn fill(&mut self, now: Time) {
        let nanos = now.since(self.last).as_nanos();
        let more = u64::try_from(nanos * u128::from(self.bytes_per_second) / 1_000_000_000).unwrap_or(u64::MAX);
        // What is too little for a byte is not lost: it is counted from the same moment the next time.
        if more > 0 {
            self.credit_bytes = self.credit_bytes.saturating_add(more).min(self.bytes_per_second);
            self.last = now;
        }
    }

    fn time_for(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) + Duration::from_nanos(u64::from(bytes > 0))
    }
}

impl Inner {
    /// All damage that is known.
    pub(crate) fn damage(&self) -> Vec<Damage> {
        let mut all = [self.journal.recovery().damage, self.lost_snapshots.clone()].concat();
        let found = lock(&self.damaged_snapshots);
        all.extend(found.values().filter(|one| !self.lost_snapshots.contains(one)).cloned());
        all.extend(self.shelf.damage());
        all
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use base::Files;
    use base::memory::Disk;

    use super::*;
    use crate::series::Rows;
    use crate::space::{Definition, Document, Value, WriteOptions};
    use crate::{DamageKind, MemoryLedgers, Options, Store, World};

    fn open(disk: &Disk, options: Options) -> Store {
        let world = World {
            files: Arc::new(disk.process()),
            clock: Arc::new(base::ManualClock::at(1_700_000_000_000)),
            ledgers: Arc::new(MemoryLedgers::default()),
            threads: false,
            entropy: 1,
        };
        Store::open_in(&world, Path::new("/store"), options).unwrap()
    }

    /// Steps to the end of the round.
    fn finish_round(inner: &Inner, scrubber: &mut Scrubber, now: &mut Time) {
        let rounds = inner.scrubbed.rounds.load(Ordering::Relaxed);
        for _ in 0..10_000 {
            if inner.scrubbed.rounds.load(Ordering::Relaxed) > rounds {
                return;
            }
            *now = now.after(scrubber.step(inner, *now));
        }
        panic!("the round does not end");
    }

    /// They were read when a store was opened, and by `inspect --verify`: what rotted was known when it was needed.
    #[test]
    fn snapshots_of_spaces_are_scrubbed_too_told_of_and_well_again_when_they_are_written_anew() {
        let disk = Disk::new(1);
        let words = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = Arc::clone(&words);
        let told: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |word: &str| lock(&heard).push(word.to_owned()));
        let store = open(&disk, Options { partitions: 2, trouble: Some(told), ..Options::default() });
        let orders = store.space("shop").declare(Definition::new("shop", "order")).unwrap();
        let write = |number: i64| {
            let order = Document::from_pairs([("id", Value::from(number)), ("text", Value::from("x".repeat(1000)))]);
            orders.write(&order, &WriteOptions::default()).unwrap();
        };
        (0..300).for_each(write);
        let inner = store.inner();
        for partition in &inner.partitions {
            inner.write_snapshot(partition).unwrap();
            write(300);
            inner.write_snapshot(partition).unwrap();
        }
        let files = |end: &str| Path::new("/store/space").join(end);
        let bytes: u64 = ["0000.snap", "0000.old", "0001.snap", "0001.old"]
            .iter()
            .map(|end| disk.open_to_read(&files(end)).unwrap().len().unwrap())
            .sum();
        let rate = 64 << 10;
        let mut now = inner.clock.now();
        let mut scrubber = Scrubber::new(rate, now).unwrap();
        finish_round(inner, &mut scrubber, &mut now);
        assert_eq!(store.stats().damage, []);
        let scrubbed = store.stats().scrub.bytes;
        assert!(scrubbed >= bytes, "{scrubbed} of {bytes} bytes");

        for (end, at) in [("0000.snap", 70_000), ("0001.snap", 3), ("0001.old", 33)] {
            disk.flip(&files(end), at, 1);
        }
        let begin = now;
        finish_round(inner, &mut scrubber, &mut now);
        let found: Vec<_> = store.stats().damage.iter().map(|one| (one.kind, one.path.clone())).collect();
        assert_eq!(found, [(DamageKind::Copy, files("0000.snap")), (DamageKind::Record, files("0001.snap"))]);
        let took = now.since(begin).as_secs_f64();
        assert!(took >= (scrubbed / rate) as f64 - 2.0, "{scrubbed} bytes in {took} s");
        finish_round(inner, &mut scrubber, &mut now);
        let told = lock(&words).clone();
        assert!(told.len() == 2 && told[0].contains("/store/space/0000.snap") && told[1].contains("both"), "{told:?}");

        for _ in 0..2 {
            inner.partitions.iter().for_each(|partition| inner.write_snapshot(partition).unwrap());
        }
        finish_round(inner, &mut scrubber, &mut now);
        assert_eq!(store.stats().damage, []);
    }

    /// Only the journal was read; a sealed file with a changed byte was found by whoever asked for the points, or by nobody.
    #[test]
    fn sealed_files_of_series_are_scrubbed_too_and_at_the_same_rate() {
        let disk = Disk::new(1);
        let store = open(&disk, Options::default());
        let mut rows = Rows::new("d");
        let row = rows.row(b"m", |_| Ok(("m".to_owned(), Vec::new()))).unwrap();
        let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
        (0..100_000i64).for_each(|time| rows.push_float(slot, time * 1_000_000_000, (time % 1009) as f64 / 7.0));
        store.series().write(&mut rows).unwrap();
        store.series().seal().unwrap();
        let bytes = store.stats().series.file_bytes;
        let of = |end: &str| {
            disk.inventory()
                .into_iter()
                .map(|(path, _)| path)
                .find(|path| path.starts_with("/store/series") && path.to_string_lossy().ends_with(end))
        };
        let (points, copy) = (of(".points").unwrap(), of(".names.copy").unwrap());
        disk.flip(&points, bytes / 2, 1);
        disk.flip(&copy, 12, 1);
        assert!(store.stats().damage.is_empty());
        let inner = store.inner();
        let rate = 64 << 10;
        let mut now = inner.clock.now();
        let begin = now;
        let mut scrubber = Scrubber::new(rate, now).unwrap();
        finish_round(inner, &mut scrubber, &mut now);
        let damage = store.stats().damage;
        let mut paths: Vec<_> = damage.iter().map(|damage| damage.path.clone()).collect();
        paths.sort();
        assert_eq!(paths, [points, copy], "{damage:?}");
        let scrubbed = store.stats().scrub.bytes;
        assert!(scrubbed >= bytes * 9 / 10, "{scrubbed} of {bytes} bytes");
        let took = now.since(begin).as_secs_f64();
        assert!(took >= (scrubbed / rate) as f64 - 2.0, "{scrubbed} bytes in {took} s");
    }

    /// Nobody but the client knew of it until the scrubber came by.
    #[test]
    fn a_value_that_is_read_and_damaged_is_known_from_then_on_and_counts_once() {
        let disk = Disk::new(1);
        let words = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = Arc::clone(&words);
        let told: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(move |word: &str| lock(&heard).push(word.to_owned()));
        let limits = crate::Limits { segment_bytes: 1 << 20, ..crate::Limits::default() };
        let options = || Options { trouble: Some(Arc::clone(&told)), limits: limits.clone(), ..Options::default() };
        let store = open(&disk, options());
        for number in 0..60u32 {
            let mut value = vec![0; 50_000];
            base::Random::new(u64::from(number)).fill(&mut value);
            store.kv().put(b"b", &number.to_be_bytes(), &value, &crate::PutOptions::default()).unwrap();
        }
        disk.flip(Path::new("/store/journal/0000000000000000.seg"), 500_000, 1);
        let keys = || (0..60u32).filter(|number| store.kv().get(b"b", &number.to_be_bytes()).is_err()).count();
        assert_eq!((keys(), keys()), (1, 1));
        let damage = store.stats().damage;
        assert!(matches!(&damage[..], [one] if one.kind == DamageKind::Record && one.bytes < 60_000), "{damage:?}");
        let inner = store.inner();
        let mut now = inner.clock.now();
        let mut scrubber = Scrubber::new(1 << 30, now).unwrap();
        finish_round(inner, &mut scrubber, &mut now);
        assert_eq!(store.stats().damage.len(), 1, "{:?}", store.stats().damage);
        assert!(lock(&words).iter().any(|word| word.contains("Record damage")), "{:?}", lock(&words));
    }
}
