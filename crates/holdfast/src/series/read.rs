//! What queries read: sealed blocks, frozen heads and heads of a series as one.
//!
//! May use: the shelf, partitions. Must not know: query languages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::series::influxql::ContinuousQuery;
use ::series::{
    BlockAt, Cardinality, Engine, Erased, Kind, LastPoint, Piece, Points, Policy, Range, Select, Series, SeriesId,
    Source, Value, View, Windows, without_erased,
};
use journal::Position;

use super::folder::Shelved;
use super::missing::Missing;
use super::shelf::{Contents, Shelf, touches};
use super::worked::Worked;
use crate::error::{Error, Result};
use crate::kv::Shown;
use crate::partition::Partition;
use crate::space::Stop;
use crate::store::{Inner, Store, lock};

/// What queries read. It remembers the newest change that it showed, and gives back what was held through it ([`Source::hold`])
/// when it is dropped: keep it until the answer is sent.
pub struct Reader {
    store: Store,
    seen: AtomicU64,
    held: AtomicU64,
    missing: Mutex<Missing>,
    worked: Worked,
}

/// What a series that was found counts as in memory, with its name.
const SERIES_BYTES: u64 = 256;
/// What a value of a tag that was found counts as.
const VALUE_BYTES: u64 = 64;
/// Names that are gone through before it is asked whether to go on: some ten microseconds.
const STRETCH_NAMES: usize = 256;

impl Drop for Reader {
    fn drop(&mut self) {
        self.let_go(self.held.load(Ordering::Relaxed));
    }
}

impl Reader {
    pub(super) fn new(store: Store) -> Self {
        let worked = Worked::new(Stop::default(), &*store.inner().clock);
        Self { store, seen: AtomicU64::new(0), held: AtomicU64::new(0), missing: Mutex::default(), worked }
    }

    /// The same, for a question that is to end though it is not done: whatever is asked of it from now on fails with
    /// [`Late`](::series::Error::Late) when the question has worked longer than [`Stop::time_max`], and with
    /// [`Canceled`](::series::Error::Canceled) when it was canceled.
    #[must_use]
    pub fn until(mut self, stop: Stop) -> Self {
        self.worked = Worked::new(stop, &*self.inner().clock);
        self
    }

    /// Its time does not go on until [`Reader::resume`]: for who waits until somebody has taken a part of the answer.
    pub fn pause(&self) {
        self.worked.pause(&*self.inner().clock);
    }

    /// The other side of [`Reader::pause`]; does nothing without it.
    pub fn resume(&self) {
        self.worked.resume(&*self.inner().clock);
    }

    /// Blocks until everything that was read is as durable as the store's reads have to be.
    ///
    /// # Errors
    /// `Unavailable` when a write or sync failed.
    pub fn settle(&self) -> Result<()> {
        self.store.settle(Shown { value: (), position: self.position() })
    }

    /// The newest change that was read.
    #[must_use]
    pub fn position(&self) -> Position {
        Position::new(self.seen.load(Ordering::Relaxed))
    }

    /// What was asked for and could not be read, because where it is sealed is damaged; `None` when nothing is missing. The rest was
    /// answered: whoever shows it says this with it.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        Some(lock(&self.missing).clone()).filter(Missing::is_some)
    }

    /// How many series of a database have what.
    ///
    /// # Errors
    /// `Closed`; `Limit` and `Timeout`: see [`Reader::until`].
    pub fn cardinality(&self, database: &str) -> Result<Cardinality> {
        self.inner().check_open()?;
        let mut all = Cardinality::default();
        self.each(|engine| match engine.count_into(database, &mut all, &|| self.may_go_on()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => self.go_on(),
        })?;
        Ok(all)
    }

    /// As [`Source::go_on`], for a search, which is asked the same again behind it.
    fn may_go_on(&self) -> ControlFlow<()> {
        if self.go_on().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// These names, as long as the question goes on: who looks at them asks that again behind them.
    fn while_going<T>(&self, names: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let goes = |nth: usize| !nth.is_multiple_of(STRETCH_NAMES) || self.go_on().is_ok();
        names.enumerate().take_while(move |(nth, _)| goes(*nth)).map(|(_, name)| name)
    }

    fn inner(&self) -> &Inner {
        self.store.inner()
    }

    fn let_go(&self, bytes: u64) {
        let bytes = bytes.min(self.held.load(Ordering::Relaxed));
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.inner().shelf.query_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn saw(&self, position: Position) {
        self.seen.fetch_max(position.get(), Ordering::Relaxed);
    }

    fn partition(&self, series: SeriesId) -> Result<Option<&Partition>> {
        self.inner().check_open()?;
        Ok(self.inner().partitions.get(usize::from(series.partition)))
    }

    fn each(&self, mut look: impl FnMut(&Engine) -> ::series::Result<()>) -> ::series::Result<()> {
        self.inner().check_open().map_err(source)?;
        self.go_on()?;
        for partition in &self.inner().partitions {
            let engine = partition.series();
            self.saw(engine.changed());
            look(&engine)?;
            drop(engine);
            self.go_on()?;
        }
        Ok(())
    }

    fn names(&self, mut add: impl FnMut(&Engine, &mut BTreeSet<String>)) -> ::series::Result<Vec<String>> {
        let mut all = BTreeSet::new();
        self.each(|engine| {
            add(engine, &mut all);
            Ok(())
        })?;
        Ok(all.into_iter().collect())
    }

    /// Pairs of names, sorted, each once.
    fn pairs(&self, each: impl Fn(&Engine, &mut dyn FnMut((&str, &str)))) -> ::series::Result<Vec<(String, String)>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        self.each(|engine| {
            each(engine, &mut |(first, second)| {
                if !all.get(first).is_some_and(|known| known.contains(second)) {
                    all.entry(first.to_owned()).or_default().insert(second.to_owned());
                }
            });
            Ok(())
        })?;
        let of =
            |(first, known): (String, BTreeSet<String>)| known.into_iter().map(move |second| (first.clone(), second));
        Ok(all.into_iter().flat_map(of).collect())
    }

    /// What there is of a series in a range; `None` when there is no such series.
    pub(super) fn look(&self, series: SeriesId, range: Range) -> Result<Option<Looked>> {
        let Some(partition) = self.partition(series)? else { return Ok(None) };
        let range = Range { from: range.from.max(self.inner().series_kept_from(series)), ..range };
        if range.from > range.to {
            return Ok(None);
        }
        // The engine first: what is sealed between the two looks is seen twice, which changes nothing, and not missed.
        let Some(view) = partition.series().view(series.number, range) else { return Ok(None) };
        self.saw(view.newest);
        let contents = self.inner().shelf.contents();
        contents.unopened(range).for_each(|of| lock(&self.missing).note_file(of));
        Ok(Some(Looked { series, range, view, contents }))
    }

    fn read(&self, series: SeriesId, range: Range, to: &mut Points) -> ::series::Result<()> {
        self.go_on()?;
        match self.look(series, range).map_err(source)? {
            Some(looked) => self.read_of(&looked, looked.range, to),
            None => Ok(()),
        }
    }

    /// Appends the points in a part of what was looked at. What it takes on the way is held until they are there.
    fn read_of(&self, looked: &Looked, range: Range, to: &mut Points) -> ::series::Result<()> {
        let before = self.held.load(Ordering::Relaxed);
        let read = looked.read(&self.inner().shelf, range, to, &mut |met| match met {
            Met::Points { bytes } => self.hold(bytes),
            Met::Damaged(file, at) => {
                lock(&self.missing).note_block(&file.of, at);
                self.go_on()
            }
        });
        self.let_go(self.held.load(Ordering::Relaxed).saturating_sub(before));
        read
    }

    fn find_last(&self, series: SeriesId) -> ::series::Result<Option<(i64, Value)>> {
        self.go_on()?;
        let Some(partition) = self.partition(series).map_err(source)? else { return Ok(None) };
        let seen = {
            let engine = partition.series();
            match engine.last(series.number) {
                None => return Ok(None),
                Some(LastPoint::Is(last, position)) => {
                    drop(engine);
                    self.saw(position);
                    let kept_from = self.inner().series_kept_from(series);
                    return Ok(last.filter(|(time, _)| *time >= kept_from));
                }
                Some(LastPoint::Unknown) => engine.applied(),
            }
        };
        // In its last block, unless what is there was deleted.
        let contents = self.inner().shelf.contents();
        let blocks = contents.files.iter().flat_map(|file| file.blocks(series, Range::ALL));
        let from = blocks.max_by_key(|at| at.range.to).map_or(i64::MIN, |at| at.range.from);
        let mut points = Points::new();
        for from in [from, i64::MIN] {
            points.clear();
            self.read(series, Range { from, to: i64::MAX }, &mut points)?;
            if !points.is_empty() {
                break;
            }
        }
        let last = points.last();
        if last.is_some() || self.inner().options.series.retention.is_empty() {
            partition.series().note_last(series.number, seen, last.clone());
        }
        Ok(last)
    }
}

/// What there is of a series in a range, at one moment.
pub(super) struct Looked {
    pub(super) series: SeriesId,
    pub(super) range: Range,
    pub(super) view: View,
    pub(super) contents: Arc<Contents>,
}

/// What is met where points are read.
enum Met<'a> {
    /// Points that are about to be in memory.
    Points { bytes: u64 },
    /// A block that cannot be read: its points are passed over.
    Damaged(&'a Shelved, &'a BlockAt),
}

impl Looked {
    /// Appends the points in a part of the range, and tells what it meets on the way.
    fn read(
        &self,
        shelf: &Shelf,
        range: Range,
        to: &mut Points,
        tell: &mut dyn FnMut(Met<'_>) -> ::series::Result<()>,
    ) -> ::series::Result<()> {
        let mut pieces = Pieces::default();
        let View { frozen, head, erased, .. } = &self.view;
        for file in self.files(range) {
            let through = file.through(self.series.partition);
            for at in file.blocks(self.series, range) {
                let Some(block) = shelf.block(file, at).map_err(source)? else {
                    tell(Met::Damaged(file, at))?;
                    continue;
                };
                for page in 0..block.pages() {
                    let of_page = block.page_range(page);
                    if of_page.from > range.to || of_page.to < range.from {
                        continue;
                    }
                    let Some(points) = shelf.page(file, at, (&block, page)) else {
                        tell(Met::Damaged(file, at))?;
                        continue;
                    };
                    tell(Met::Points { bytes: 2 * points.memory_bytes() as u64 })?;
                    pieces.add(&points, range, erased, through);
                }
            }
        }
        for frozen in frozen {
            if let Some(points) = frozen.points(self.series.number) {
                pieces.add(points, range, erased, frozen.through);
            }
        }
        // Nothing was deleted from it since it was written.
        pieces.add(head, range, &[], Position::ZERO);
        pieces.join(to);
        Ok(())
    }

    /// The files that may have points in a part of the range.
    pub(super) fn files(&self, range: Range) -> impl Iterator<Item = &Arc<Shelved>> {
        self.contents.files.iter().filter(move |file| touches(&file.of, range))
    }
}

/// Points of one series from several places, of which the later count.
#[derive(Default)]
struct Pieces(Vec<Points>);

impl Pieces {
    fn add(&mut self, points: &Points, range: Range, erased: &[Erased], through: Position) {
        let meant = points.between(range.from, range.to);
        if meant.is_empty() {
            return;
        }
        let mut piece = Points::new();
        piece.extend_from(points, meant);
        without_erased(&mut piece, erased, through);
        if !piece.is_empty() {
            self.0.push(piece);
        }
    }

    fn join(mut self, to: &mut Points) {
        let ends = |points: &Points| (points.times().first().copied(), points.times().last().copied());
        let follow = |pair: &[Points]| matches!(pair, [a, b] if ends(a).1 < ends(b).0);
        if !self.0.windows(2).all(follow) {
            let by_time = {
                let mut order: Vec<usize> = (0..self.0.len()).collect();
                order.sort_by_key(|at| self.0.get(*at).map(ends));
                order
            };
            let apart = by_time.windows(2).all(|pair| match pair {
                [a, b] => self.0.get(*a).map(|a| ends(a).1) < self.0.get(*b).map(|b| ends(b).0),
                _ => true,
            });
            if !apart {
                let mut all = Points::new();
                self.0.iter().for_each(|piece| all.extend_from(piece, 0..piece.len()));
                all.sort();
                self.0 = vec![all];
            } else {
                self.0.sort_by_key(ends);
            }
        }
        for piece in &self.0 {
            to.extend_from(piece, 0..piece.len());
        }
    }
}

fn source(error: Error) -> ::series::Error {
    ::series::Error::Source { text: error.to_string() }
}

impl Source for Reader {
    fn go_on(&self) -> ::series::Result<()> {
        self.worked.check(&*self.inner().clock)
    }

    fn hold(&self, bytes: u64) -> ::series::Result<()> {
        self.go_on()?;
        let limit = self.inner().options.limits.series_query_memory_bytes;
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= limit);
        let taken = self.inner().shelf.query_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map_err(|held| ::series::Error::Memory { wanted: bytes, held, limit })?;
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.let_go(bytes);
    }

    fn series(&self, select: &Select) -> ::series::Result<Vec<Series>> {
        let mut found = Vec::new();
        let mut partition = 0u16..;
        self.each(|engine| {
            let partition = partition.next().expect("there are fewer partitions than 16 bits count");
            let Some(numbers) = engine.select_while(select, &|| self.may_go_on()) else { return self.go_on() };
            self.hold(numbers.len() as u64 * SERIES_BYTES)?;
            for number in self.while_going(numbers.into_iter()) {
                if let (Some(key), Some(kind)) = (engine.key(number), engine.kind(number)) {
                    found.push(Series { id: SeriesId { partition, number }, key: Arc::new(key), kind });
                }
            }
            Ok(())
        })?;
        found.sort_by(|a: &Series, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn points(&self, series: SeriesId, range: Range, to: &mut Points) -> ::series::Result<()> {
        self.read(series, range, to)
    }

    fn pieces(
        &self,
        series: SeriesId,
        range: Range,
        windows: Windows,
        tell: &mut dyn FnMut(Piece<'_>) -> ::series::Result<()>,
    ) -> ::series::Result<()> {
        self.go_on()?;
        let Some(looked) = self.look(series, range).map_err(source)? else { return Ok(()) };
        let shelf = &self.inner().shelf;
        let known =
            windows.unit().map_or_else(|| Ok(Vec::new()), |unit| looked.summaries(shelf, unit)).map_err(source)?;
        let mut points = Points::new();
        let mut from = Some(looked.range.from);
        let ends = known.iter().map(|summary| summary.range.from.checked_sub(1)).chain([Some(looked.range.to)]);
        for (nth, end) in ends.enumerate() {
            if let (Some(from), Some(to)) = (from, end)
                && from <= to
            {
                points.clear();
                self.read_of(&looked, Range { from, to }, &mut points)?;
                if !points.is_empty() {
                    let bytes = points.memory_bytes() as u64;
                    self.hold(bytes)?;
                    let told = tell(Piece::Points(&points));
                    self.let_go(bytes);
                    told?;
                }
            }
            if let Some(summary) = known.get(nth) {
                if nth.is_multiple_of(STRETCH_NAMES) {
                    self.go_on()?;
                }
                tell(Piece::Summary(summary))?;
                from = summary.range.to.checked_add(1);
            }
        }
        shelf.summarized.fetch_add(known.iter().map(|summary| summary.count).sum(), Ordering::Relaxed);
        Ok(())
    }

    fn last(&self, series: SeriesId) -> ::series::Result<Option<(i64, Value)>> {
        self.find_last(series)
    }

    fn databases(&self) -> ::series::Result<Vec<String>> {
        self.names(|engine, all| all.extend(self.while_going(engine.databases()).map(str::to_owned)))
    }

    fn metrics(&self, database: &str) -> ::series::Result<Vec<String>> {
        self.names(|engine, all| all.extend(self.while_going(engine.metrics(database)).map(str::to_owned)))
    }

    fn tag_names(&self, database: &str) -> ::series::Result<Vec<String>> {
        self.names(|engine, all| all.extend(self.while_going(engine.tag_names(database)).map(str::to_owned)))
    }

    fn tag_values(&self, database: &str) -> ::series::Result<Vec<String>> {
        self.names(|engine, all| all.extend(self.while_going(engine.tag_values(database)).map(str::to_owned)))
    }

    fn fields(&self, database: &str) -> ::series::Result<Vec<(String, String)>> {
        self.pairs(|engine, add| self.while_going(engine.fields(database)).for_each(add))
    }

    fn kinds(&self, database: &str, metric: &str, field: &str) -> ::series::Result<Vec<Kind>> {
        let mut all = BTreeSet::new();
        self.each(|engine| {
            all.append(&mut engine.kinds(database, metric, field));
            Ok(())
        })?;
        Ok(all.into_iter().collect())
    }

    fn tags(&self, database: &str) -> ::series::Result<Vec<(String, String)>> {
        self.pairs(|engine, add| self.while_going(engine.tags(database)).for_each(add))
    }

    fn values(&self, database: &str, metric: Option<&str>, tag: &str) -> ::series::Result<Vec<String>> {
        let mut all = BTreeSet::new();
        self.each(|engine| {
            let before = all.len();
            for value in self.while_going(engine.values(database, metric, tag)) {
                if !all.contains(value) {
                    all.insert(value.to_owned());
                }
            }
            self.hold((all.len() - before) as u64 * VALUE_BYTES)
        })?;
        Ok(all.into_iter().collect())
    }

    fn continuous_queries(&self) -> ::series::Result<Vec<ContinuousQuery>> {
        let (queries, position) = self.inner().continuous_queries().map_err(source)?;
        self.saw(position);
        Ok(queries)
    }

    fn retention(&self, database: &str) -> ::series::Result<Vec<Policy>> {
        Ok(self.inner().retention_of(database))
    }
}
