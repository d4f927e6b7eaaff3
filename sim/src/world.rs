//! The simulated world of one run: a disk, a clock, and ledgers: on that disk, or in memory, where they lose what was not written out.
//!
//! May use: `base`, `kv`. Must not know: what is checked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Files;
use base::memory::Disk;
use base::{Limits, ManualClock, Random};
use holdfast::{
    CompactionOptions, Compression, Durability, Ledgers, LsmLedgers, MemoryLedgers, Options, Schedule, Store, TreeSize,
    World,
};

pub(crate) const DIR: &str = "/store";
/// Where ledgers lie on the disk.
const LEDGERS: &str = "/store/ledger";
/// More than a run ever reads: what is let go of depends on more than the seed.
const LEDGER_CACHE_BYTES: u64 = 64 << 20;

pub(crate) struct Sim {
    pub(crate) disk: Disk,
    pub(crate) clock: Arc<ManualClock>,
    /// Those in memory, if they are not on the disk.
    ledgers: Option<MemoryLedgers>,
    pub(crate) random: Random,
    pub(crate) options: Options,
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let window = Durability::window(Duration::from_millis(1), Duration::from_millis(5));
        let durability = [Durability::Synced, Durability::Written, window];
        let durability = durability[usize::try_from(random.below(3)).unwrap_or(0)];
        let partitions = 1 + u16::try_from(random.below(4)).unwrap_or(0);
        let mut limits = Limits::tiny();
        limits.xa_transactions_max = 40;
        limits.inline_bytes_max = usize::try_from(random.below(200)).unwrap_or(0);
        limits.ledger_memory_bytes = 512 << random.below(4);
        limits.segment_bytes = 4096 << random.below(3);
        let disk = Disk::new(random.next());
        disk.set_short_reads(random.chance(1, 2));
        let ledgers = random.chance(1, 3).then(MemoryLedgers::new);
        Self {
            disk,
            clock: Arc::new(ManualClock::at(1_700_000_000_000)),
            ledgers,
            options: Options { durability, partitions, limits, ..Options::default() },
            random,
        }
    }

    /// Chooses anew what may be another at each opening.
    fn choose(&mut self) {
        let random = &mut self.random;
        let compression = [Compression::None, Compression::Lz4, Compression::Zstd];
        let mut codec = || compression[usize::try_from(random.below(3)).unwrap_or(0)];
        (self.options.compression, self.options.ledger_compression) = (codec(), codec());
        self.options.tree = TreeSize::ALL.into_iter().take(2).nth(usize::try_from(random.below(3)).unwrap_or(0));
        self.options.compaction = CompactionOptions {
            schedule: if random.chance(1, 5) { Schedule::OnDemand } else { Schedule::Continuous },
            dead_percent: 1 + random.below(30),
            bytes_per_second: 0,
            keep_bytes: 0,
        };
    }

    fn ledgers(&mut self) -> Arc<dyn Ledgers> {
        if let Some(ledgers) = &self.ledgers {
            return Arc::new(ledgers.clone());
        }
        let on_disk = LsmLedgers::new(Arc::new(self.disk.process()), Path::new(LEDGERS), LEDGER_CACHE_BYTES);
        let codec = self.options.ledger_compression;
        Arc::new(on_disk.compressed(codec).with_table_bytes(512 << self.random.below(6)))
    }

    /// The process that had ledgers open is gone; that of the disk is another matter.
    pub(crate) fn end_ledgers(&self) {
        self.ledgers.iter().for_each(MemoryLedgers::kill_process);
    }

    /// The ledgers' folder is lost.
    pub(crate) fn lose_ledgers(&self) {
        self.ledgers.iter().for_each(MemoryLedgers::delete_all);
        for (path, _) in self.disk.inventory().into_iter().filter(|(path, _)| path.starts_with(LEDGERS)) {
            self.disk.remove(&path).expect("a file of a disk that is on can be removed");
        }
    }

    pub(crate) fn open(&mut self) -> holdfast::Result<Store> {
        self.choose();
        let world = World {
            files: Arc::new(self.disk.process()),
            clock: Arc::clone(&self.clock) as _,
            ledgers: self.ledgers(),
            threads: false,
            entropy: self.random.next(),
        };
        Store::open_in(&world, Path::new(DIR), self.options.clone())
    }

    pub(crate) fn window() -> Durability {
        Durability::window(Duration::from_millis(1), Duration::from_millis(5))
    }
}
