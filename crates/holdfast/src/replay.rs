//! Bringing the engines up to the journal's end when a store opens.
//!
//! May use: `journal`, `kv`, `hands`. Must not know: protocols.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use journal::{Journal, Log, PartitionId, Position, Record, RecordSection, StateMachine, Visit};
use kv::{Caches, Engine, Places};

use crate::error::{Error, ErrorKind, Result};
use crate::hands::{each, hands};
use crate::options::{Options, Progress, World};
use crate::series::{SERIES_PART, shelf};
use crate::space::SPACE_PART;
use crate::space::files::{self, Loaded};

/// How often progress is told, in bytes of journal.
const PROGRESS_BYTES: u64 = 4 << 20;
/// Snapshots that are read at the same time.
const SNAPSHOTS_AT_ONCE: usize = 2;
/// Bytes of journal that are not worth a second thread.
const ALONE_BYTES: u64 = 256 << 10;
/// How often one partition's ledger that cannot be used is discarded and replayed before the store gives up.
const ATTEMPTS_MAX: usize = 3;

/// Segments by address, for the engines' count of live bytes.
struct JournalPlaces(Arc<Journal>);

impl Places for JournalPlaces {
    fn segment_of(&self, at: u64) -> Position {
        self.0.segment_base(at)
    }
}

/// Each partition's space as its snapshot has it. `is_noted`: the store says of itself that its space was used.
pub(crate) fn spaces(
    world: &World,
    dir: &Path,
    (partitions, is_noted): (impl Iterator<Item = PartitionId>, bool),
) -> Result<Vec<Loaded>> {
    let files = &*world.files;
    if !is_noted && !files::is_used(files, dir) {
        return Ok(partitions.map(|_| Loaded::unused()).collect());
    }
    // Each has a whole file in memory beside what it makes of it.
    let hands = hands(world.threads).min(SNAPSHOTS_AT_ONCE);
    let loaded = each(partitions.collect(), hands, |partition| files::load(files, dir, partition));
    loaded.into_iter().collect()
}

/// Opens every partition's engine and replays what its ledger does not have, and what the space's snapshot does not have.
/// A ledger that turns out damaged is discarded and replayed whole.
pub(crate) fn engines(
    journal: &Arc<Journal>,
    world: &World,
    others: (&mut [Loaded], &mut [shelf::Loaded]),
    options: &Options,
) -> Result<Vec<Engine>> {
    let (spaces, series) = others;
    let mut discarded: BTreeMap<PartitionId, usize> = BTreeMap::new();
    loop {
        match attempt(journal, world, (spaces, series), options) {
            Ok(engines) => return refuse_ahead(journal, &engines).map(|()| engines),
            Err((partition, error @ kv::Error::Ledger { .. })) => {
                options.tell(&format!(
                    "the ledger of partition {} is damaged, and is made anew from the journal: {error}",
                    partition.index()
                ));
                world.ledgers.condemn(partition)?;
                let times = discarded.entry(partition).or_default();
                *times += 1;
                if *times >= ATTEMPTS_MAX {
                    let text = format!("the ledger of partition {} cannot be rebuilt: {error}", partition.index());
                    return Err(Error::new(ErrorKind::Corrupt, text));
                }
            }
            Err((_, error)) => return Err(error.into()),
        }
    }
}

/// Refuses ledgers that go beyond the journal: files of it are missing, and its positions would be given out a second time.
fn refuse_ahead(journal: &Journal, engines: &[Engine]) -> Result<()> {
    let next = journal.watermarks().appended;
    let Some(through) = engines.iter().map(Engine::applied).filter(|applied| *applied >= next).max() else {
        return Ok(());
    };
    let text = format!(
        "the journal ends before position {next}, but a ledger goes up to {through}: files of the journal are missing. Put them back, or \
         restore a backup into another folder"
    );
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// Refuses a ledger that ends before the journal begins to have everything: an old copy. What was let go of since cannot be replayed into it, but the
/// journal has all that a new one needs. Where segments are missing a ledger still knows what was in them, and is kept.
fn refuse_stale(journal: &Journal, engine: Engine) -> kv::Result<Engine> {
    let (through, floor) = (engine.applied(), journal.let_go_before());
    if through > Position::ZERO && through.get() + 1 < floor.get() {
        let reason = format!("it goes up to position {through}, and the journal begins at {floor}: it is an old copy");
        return Err(kv::Error::Ledger { path: "of a partition".to_owned(), reason });
    }
    Ok(engine)
}

type Attempt<T> = std::result::Result<T, (PartitionId, kv::Error)>;

fn attempt(
    journal: &Arc<Journal>,
    world: &World,
    others: (&mut [Loaded], &mut [shelf::Loaded]),
    options: &Options,
) -> Attempt<Vec<Engine>> {
    let places = Arc::new(JournalPlaces(Arc::clone(journal)));
    let caches = Arc::new(Caches::new(options.limits.entry_cache_bytes, options.limits.value_cache_bytes));
    world.ledgers.borrow_of(&caches);
    let mut engines = Vec::new();
    for id in (0..).map(PartitionId::new).take(others.0.len()) {
        let log: Arc<dyn Log> = Arc::clone(journal) as _;
        let owner = kv::Owner { store: journal.store(), partition: id };
        let (inline_bytes_max, tree) = (options.limits.inline_bytes_max, options.tree);
        let engine_options = kv::Options { owner, inline_bytes_max, tree };
        let engine = world
            .ledgers
            .open(id)
            .and_then(|ledger| Engine::open(ledger, Arc::clone(&caches), log, places.clone() as _, engine_options));
        let engine = engine.and_then(|engine| refuse_stale(journal, engine)).map_err(|error| (id, error))?;
        engines.push(engine);
    }
    // A crash may have come between letting go of a segment and writing out that it holds nothing any more. What is needed of one that is
    // missing stays known: when it is put back compaction must not take it for dead.
    engines.iter_mut().for_each(|engine| engine.forget_segments(|segment| !journal.has_let_go(segment)));
    let (spaces, series) = others;
    let applied = engines.iter().map(Engine::applied).chain(spaces.iter().map(|space| space.replayed));
    let applied = applied.chain(series.iter().map(|series| series.replayed));
    let from = applied.min().unwrap_or_default();
    let end = journal.watermarks().appended.get();
    let hands = if end.saturating_sub(from.get()) < ALONE_BYTES { 1 } else { hands(world.threads) };
    // Each thread reads all of the journal, for some of the partitions: reading it costs little beside what is done with it.
    let of_each = engines.len().div_ceil(hands).max(1);
    let parts = engines.chunks_mut(of_each).zip(spaces.chunks_mut(of_each)).zip(series.chunks_mut(of_each));
    let parts = parts.enumerate().map(|(number, ((engines, spaces), series))| Replay {
        first: number * of_each,
        engines,
        spaces,
        series,
        journal,
        options,
        start: from.get(),
        end,
        told: from.get(),
        batches: 0,
        failed: None,
    });
    each(parts.collect(), hands, Replay::run).into_iter().collect::<Attempt<()>>()?;
    Ok(engines)
}

/// Builds one partition's engine anew from the whole journal, in place. The caller holds its lock and keeps readers away.
pub(crate) fn rebuild(journal: &Journal, partition: PartitionId, engine: &mut Engine) -> Result<()> {
    engine.reset()?;
    let mut failed = None;
    let read = journal.read_from(Position::ZERO, &mut |visit| {
        let Visit::Record(record) = visit else { return Ok(()) };
        for section in record.sections.iter().filter(|section| section.partition == partition) {
            if let Err(error) = engine.apply(record.position, section.at, section.commands) {
                failed = Some(error);
                return Err(journal::Error::Closed);
            }
        }
        Ok(())
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(read?),
    }
}

/// Applies the journal to some of the partitions.
struct Replay<'a> {
    journal: &'a Journal,
    /// The first of them: who has the first of all tells progress.
    first: usize,
    engines: &'a mut [Engine],
    spaces: &'a mut [Loaded],
    series: &'a mut [shelf::Loaded],
    options: &'a Options,
    start: u64,
    end: u64,
    told: u64,
    batches: u64,
    failed: Option<(PartitionId, kv::Error)>,
}

impl Replay<'_> {
    fn run(mut self) -> Attempt<()> {
        let journal = self.journal;
        let read = journal.read_from(Position::new(self.start), &mut |visit| match visit {
            Visit::Record(record) => self.record(&record),
            // Reported by the journal; what was in it is lost, and all else goes on.
            Visit::Damaged(_) => Ok(()),
        });
        if self.told > self.start {
            self.tell(self.end);
        }
        match self.failed {
            Some(failed) => Err(failed),
            None => read.map_err(|error| (PartitionId::new(0), error.into())),
        }
    }

    /// Where a partition is in what this is for.
    fn place(&self, section: &RecordSection<'_>) -> Option<usize> {
        section.partition.index().checked_sub(self.first)
    }

    fn record(&mut self, record: &Record<'_>) -> journal::Result<()> {
        self.batches += 1;
        for section in &record.sections {
            self.space(record.position, section);
            self.series(record.position, section);
            let Some(engine) = self.place(section).and_then(|place| self.engines.get_mut(place)) else { continue };
            if record.position <= engine.applied() {
                continue;
            }
            let applied = engine
                .apply(record.position, section.at, section.commands)
                .and_then(|()| write_out_if_large(engine, record.position, (self.journal, self.options)));
            if let Err(error) = applied {
                self.failed = Some((section.partition, error));
                return Err(journal::Error::Closed);
            }
        }
        if record.position.get() >= self.told + PROGRESS_BYTES {
            self.tell(record.position.get());
        }
        Ok(())
    }

    /// Applies the space's part of a section. What does not decode was written by a newer program, and is passed over: the
    /// record's checksum was right.
    fn space(&mut self, position: Position, section: &RecordSection<'_>) {
        let Some(space) = self.place(section).and_then(|place| self.spaces.get_mut(place)) else { return };
        if position <= space.replayed {
            return;
        }
        for (_, part) in kv::other_parts(section.commands).filter(|(engine, _)| *engine == SPACE_PART) {
            let _ = space.engine.apply(position, part, &mut |_| ());
            space.replayed = position;
        }
    }

    /// Applies the series' part of a section, as [`Replay::space`] does.
    fn series(&mut self, position: Position, section: &RecordSection<'_>) {
        let Some(series) = self.place(section).and_then(|place| self.series.get_mut(place)) else { return };
        if position <= series.replayed {
            return;
        }
        for (_, part) in kv::other_parts(section.commands).filter(|(engine, _)| *engine == SERIES_PART) {
            let _ = series.engine.apply(position, part);
            series.replayed = position;
        }
    }

    fn tell(&mut self, at: u64) {
        self.told = at;
        if let Some(progress) = self.options.progress.as_ref().filter(|_| self.first == 0) {
            let (done_bytes, total_bytes) = (at - self.start, self.end.saturating_sub(self.start));
            progress(Progress { done_bytes, total_bytes, batches: self.batches });
        }
    }
}

/// Keeps memory bounded in a long replay. What is replayed is synced: recovery has sealed it. On a full disk it takes more memory first:
/// what little space is left is for others.
fn write_out_if_large(
    engine: &mut Engine,
    position: Position,
    (journal, options): (&Journal, &Options),
) -> kv::Result<()> {
    let limits = &options.limits;
    let memory = engine.ledger().memory_bytes();
    if memory < limits.ledger_memory_bytes || (memory < limits.ledger_memory_bytes_max && !journal.has_spare()) {
        return Ok(());
    }
    let next = Position::new(position.get() + 1);
    engine.rotate(next);
    engine.ledger().write_out()?;
    engine.ledger().merge()
}
