//! One partition's share of the time series: which series there are, the points that are not in sealed files yet, what was
//! deleted.
//!
//! A series' points are in its *head* while they come in; *rotating* freezes all heads, so that they can be sealed while new ones
//! fill; what is sealed is forgotten here.
//!
//! May use: `catalog`, `command`, `points`, `slots`, `watch`. Must not know: files, other partitions, clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use journal::Position;

use crate::catalog::{Cardinality, Catalog};
use crate::command::{Command, commands};
use crate::error::Result;
use crate::key::Key;
use crate::points::Points;
use crate::select::Select;
use crate::slots::Slots;
use crate::source::Range;
use crate::value::{Kind, Value};
use crate::watch::{GoOn, Watch};

/// One partition's share.
#[derive(Debug, Default)]
pub struct Engine {
    catalog: Catalog,
    /// By number, as in the catalog.
    states: Slots<State>,
    /// Series whose head has points, or had some before they were deleted; one may be there twice.
    active: Vec<u32>,
    /// Heads that are being sealed, oldest first.
    frozen: Vec<Arc<Frozen>>,
    /// What was deleted, by series, and how many ranges that is.
    erased: BTreeMap<u32, Vec<Erased>>,
    erased_count: usize,
    databases: BTreeSet<String>,
    applied: Position,
    /// When the catalog changed last, or something was deleted.
    changed: Position,
    digest: u64,
    dropped: u64,
    head_bytes: usize,
    /// Series whose type changed since this was last asked.
    retyped: BTreeSet<u32>,
    /// No heads that are frozen, and no file, were made of what came behind this.
    settled: Position,
    /// Series that were dropped since this was last asked.
    gone: BTreeSet<u32>,
}

#[derive(Debug)]
struct State {
    kind: Kind,
    head: Option<Box<Head>>,
    last: Last,
}

#[derive(Debug, Default)]
struct Head {
    points: Points,
    is_unsorted: bool,
    newest: Position,
}

/// The point with the greatest time.
#[derive(Debug, Default, Clone)]
enum Last {
    /// It may lie in a sealed file.
    #[default]
    Unknown,
    None,
    Known(i64, Value, Position),
}

/// Heads that do not change any more.
#[derive(Debug)]
pub struct Frozen {
    /// Everything of the partition up to this position is here or sealed.
    pub through: Position,
    /// Each series' points, sorted by time, each time once; by number.
    pub series: Vec<(u32, Points)>,
    /// Bytes of memory that the heads took.
    pub bytes: usize,
    newest: Position,
}

/// Points that were deleted from what was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// The series.
    pub number: u32,
    /// From when to when.
    pub range: Range,
    /// When they were: what was written up to here is meant.
    pub at: Position,
}

/// What a series has outside of sealed files, and what of those does not count.
#[derive(Debug, Default)]
pub struct View {
    /// Frozen heads, oldest first: look for the series in [`Frozen::points`].
    pub frozen: Vec<Arc<Frozen>>,
    /// The head's points in the range, sorted.
    pub head: Points,
    /// The newest change that is shown.
    pub newest: Position,
    /// What was deleted.
    pub erased: Vec<Erased>,
}

/// The last point, as far as the engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastPoint {
    /// This is it, and when it was written.
    Is(Option<(i64, Value)>, Position),
    /// Sealed files have to be looked at.
    Unknown,
}

impl Erased {
    /// Takes another range in if the two touch; whether they did. Both must be of the same points.
    fn join(&mut self, other: &Self) -> bool {
        let Range { from, to } = self.range;
        let touches = other.range.from <= to.saturating_add(1) && other.range.to.saturating_add(1) >= from;
        if touches {
            self.range = Range { from: from.min(other.range.from), to: to.max(other.range.to) };
            self.at = self.at.max(other.at);
        }
        touches
    }
}

impl Frozen {
    /// The points of a series.
    #[must_use]
    pub fn points(&self, number: u32) -> Option<&Points> {
        let at = self.series.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.series.get(at).map(|(_, points)| points)
    }
}

impl Engine {
    /// The newest position that was applied, or that sealed files have.
    #[must_use]
    pub fn applied(&self) -> Position {
        self.applied
    }

    /// A hash over everything that was ever applied.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Takes over what sealed files have, when a store is opened.
    pub fn restore(&mut self, applied: Position, digest: u64, erased: Vec<Erased>, databases: BTreeSet<String>) {
        (self.applied, self.digest, self.databases) = (applied, digest, databases);
        self.settled = applied;
        self.erased_count = erased.len();
        for erased in erased {
            self.erased.entry(erased.number).or_default().push(erased);
        }
    }

    /// Takes over a series that sealed files have.
    pub fn restore_series(&mut self, number: u32, kind: Kind, key: &Key) {
        self.catalog.add(number, key);
        if self.catalog.has(number) && self.states.get(number).is_none() {
            self.states.put(number, State { kind, head: None, last: Last::Unknown });
        }
        self.set_kind(number, kind);
    }

    /// Takes over that a series was dropped.
    pub fn restore_gone(&mut self, number: u32) {
        self.catalog.remove(number);
        self.states.take(number);
    }

    /// Takes over that a series' type is another.
    pub fn restore_kind(&mut self, number: u32, kind: Kind) {
        self.set_kind(number, kind);
    }

    /// Sees to it that numbers up to this one are not given again.
    pub fn restore_next(&mut self, next: u32) {
        self.catalog.skip_to(next);
    }

    fn set_kind(&mut self, number: u32, kind: Kind) {
        if let Some(state) = self.states.get_mut(number) {
            state.kind = kind;
        }
    }

    /// Applies a part of a section.
    ///
    /// # Errors
    /// [`crate::Error::Malformed`]: what stands before it has been applied.
    pub fn apply(&mut self, position: Position, part: &[u8]) -> Result<()> {
        self.applied = position;
        self.digest = base::hash64(part) ^ self.digest.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for command in commands(part) {
            self.apply_one(position, command?);
        }
        Ok(())
    }

    fn apply_one(&mut self, position: Position, command: Command<'_>) {
        match command {
            Command::Declare { number, kind, key } => {
                self.catalog.add(number, &key);
                if self.catalog.has(number) && self.states.get(number).is_none() {
                    self.states.put(number, State { kind, head: None, last: Last::None });
                }
                self.changed = position;
            }
            Command::Points { number, values } => self.add_points(position, number, &values),
            Command::Delete { number, range } => self.erase(position, number, range),
            Command::Drop { number } => self.drop_series(position, number),
            Command::Database { name } => {
                self.databases.insert(name.to_owned());
                self.changed = position;
            }
            Command::Forget { name } => {
                self.databases.remove(name);
                self.changed = position;
            }
        }
    }

    fn add_points(&mut self, position: Position, number: u32, values: &crate::command::Column<'_>) {
        let Some(state) = self.states.get_mut(number).filter(|_| self.catalog.has(number)) else { return };
        // A type that became narrower would refuse what it took before: doubles widen integers, and nothing else changes a type.
        if values.kind == Kind::Float && matches!(state.kind, Kind::Integer | Kind::Unsigned) {
            state.kind = Kind::Float;
            self.retyped.insert(number);
        }
        let head = state.head.get_or_insert_default();
        let (before, from) = (head.points.memory_bytes(), head.points.len());
        if from == 0 {
            self.active.push(number);
        }
        // Reading the command has seen that they are there.
        let _ = values.read(&mut head.points);
        head.newest = position;
        let added = head.points.times().get(from.saturating_sub(1)..).unwrap_or_default();
        head.is_unsorted |= !added.is_sorted_by(|a, b| a < b);
        self.head_bytes += head.points.memory_bytes() - before;
        match &state.last {
            Last::Unknown => {}
            Last::None | Last::Known(..) => {
                let known = if let Last::Known(time, ..) = &state.last { Some(*time) } else { None };
                let newest = (from..head.points.len()).max_by_key(|at| head.points.times().get(*at).copied());
                if let Some((time, value)) = newest.and_then(|at| head.points.get(at))
                    && known.is_none_or(|known| known <= time)
                {
                    state.last = Last::Known(time, value.to_value(), position);
                }
            }
        }
    }

    fn erase(&mut self, position: Position, number: u32, range: Range) {
        let Some(state) = self.states.get_mut(number).filter(|_| self.catalog.has(number)) else { return };
        if let Some(head) = &mut state.head {
            head.sort();
            let gone = head.points.between(range.from, range.to);
            let mut left = Points::new();
            left.extend_from(&head.points, 0..gone.start);
            left.extend_from(&head.points, gone.end..head.points.len());
            self.head_bytes = self.head_bytes.saturating_sub(head.points.memory_bytes()) + left.memory_bytes();
            head.points = left;
            head.newest = position;
            if head.points.is_empty() {
                state.head = None;
            }
        }
        state.last = Last::Unknown;
        // What was deleted since heads were frozen, or files merged, last is the same whenever it was: it is all that is frozen or
        // sealed of it. What was deleted before must not be taken for newer: points that came after it may be in a file.
        let mut erased = Erased { number, range, at: position };
        let all = self.erased.entry(number).or_default();
        self.erased_count -= all.len();
        all.retain(|before| before.at <= self.settled || !erased.join(before));
        all.push(erased);
        self.erased_count += all.len();
        self.changed = position;
    }

    fn drop_series(&mut self, position: Position, number: u32) {
        if !self.catalog.remove(number) {
            return;
        }
        if let Some(head) = self.states.take(number).and_then(|state| state.head) {
            self.head_bytes = self.head_bytes.saturating_sub(head.points.memory_bytes());
        }
        self.erased_count -= self.erased.remove(&number).map_or(0, |all| all.len());
        self.retyped.remove(&number);
        self.gone.insert(number);
        self.dropped += 1;
        self.changed = position;
    }

    /// How many series were dropped while the store was open: a number found before is good while this is the same.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// When the catalog changed last, or something was deleted.
    #[must_use]
    pub fn changed(&self) -> Position {
        self.changed
    }

    /// How many series there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.catalog.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.catalog.len() == 0
    }

    /// Bytes of points in memory: heads, and frozen ones until they are sealed.
    #[must_use]
    pub fn point_bytes(&self) -> usize {
        let frozen =
            |frozen: &Arc<Frozen>| frozen.series.iter().map(|(_, points)| points.memory_bytes()).sum::<usize>();
        self.head_bytes + self.frozen.iter().map(frozen).sum::<usize>()
    }

    /// Bytes of points in heads.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Bytes of memory for names and their index, nearly.
    #[must_use]
    pub fn catalog_bytes(&self) -> usize {
        self.catalog.bytes() + self.states.bytes()
    }

    /// The number of a series; `row` is its name but for the field.
    #[must_use]
    pub fn find(&self, row: &Key, field: &str) -> Option<u32> {
        self.catalog.find(row, field)
    }

    /// The type of a series: that of its first value, or double since one came to integers. Integers that no double is may be among doubles.
    #[must_use]
    pub fn kind(&self, number: u32) -> Option<Kind> {
        self.states.get(number).filter(|_| self.catalog.has(number)).map(|state| state.kind)
    }

    /// The type of the values of one of the series of a metric's field, whatever their tags are.
    #[must_use]
    pub fn field_kind(&self, row: &Key, field: &str) -> Option<Kind> {
        self.kind(self.catalog.one_of(row, field)?)
    }

    /// The name of a series.
    #[must_use]
    pub fn key(&self, number: u32) -> Option<Key> {
        self.catalog.key(number)
    }

    /// The number that the next new series gets.
    #[must_use]
    pub fn next(&self) -> u32 {
        self.catalog.next()
    }

    /// The numbers of all series.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.catalog.numbers()
    }

    /// The numbers of the series that are meant.
    #[must_use]
    pub fn select(&self, select: &Select) -> Vec<u32> {
        self.select_while(select, &|| ControlFlow::Continue(())).unwrap_or_default()
    }

    /// The same, unless `go_on` breaks, which is asked each time that some hundred names were looked at.
    #[must_use]
    pub fn select_while(&self, select: &Select, go_on: GoOn<'_>) -> Option<Vec<u32>> {
        self.catalog.select(select, &Watch::new(go_on)).continue_value().map(|found| found.iter().collect())
    }

    /// The databases: those that have series, and those that were created.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.catalog.databases().chain(self.databases.iter().map(String::as_str))
    }

    /// The databases that were created by name.
    #[must_use]
    pub fn created_databases(&self) -> &BTreeSet<String> {
        &self.databases
    }

    /// The metrics of a database.
    pub fn metrics(&self, database: &str) -> impl Iterator<Item = &str> {
        self.catalog.metrics(database)
    }

    /// The names of tags in a database; some come more than once.
    pub fn tag_names(&self, database: &str) -> impl Iterator<Item = &str> {
        self.catalog.tag_names(database)
    }

    /// The values of tags in a database; some come more than once.
    pub fn tag_values(&self, database: &str) -> impl Iterator<Item = &str> {
        self.catalog.tag_values(database)
    }

    /// The metrics of a database, each with each of its fields.
    pub fn fields(&self, database: &str) -> impl Iterator<Item = (&str, &str)> {
        self.catalog.fields(database)
    }

    /// The types that series of a metric's field have.
    #[must_use]
    pub fn kinds(&self, database: &str, metric: &str, field: &str) -> BTreeSet<Kind> {
        let series = self.catalog.of_field(database, metric, field);
        series.iter().filter_map(|number| self.kind(number)).collect()
    }

    /// The metrics of a database, each with the name of each tag of it.
    pub fn tags(&self, database: &str) -> impl Iterator<Item = (&str, &str)> {
        self.catalog.tags(database)
    }

    /// The values of a tag in a metric, or in all of a database; each once.
    pub fn values(&self, database: &str, metric: Option<&str>, tag: &str) -> impl Iterator<Item = &str> {
        self.catalog.values(database, metric, tag)
    }

    /// Adds how many series have what in a database, unless `go_on` breaks: see [`Engine::select_while`].
    pub fn count_into(&self, database: &str, to: &mut Cardinality, go_on: GoOn<'_>) -> ControlFlow<()> {
        self.catalog.count_into(database, to, &Watch::new(go_on))
    }

    /// What a series has here in a range; `None` when there is no such series.
    pub fn view(&mut self, number: u32, range: Range) -> Option<View> {
        if !self.catalog.has(number) {
            return None;
        }
        let state = self.states.get_mut(number)?;
        let mut view = View::default();
        if let Some(head) = &mut state.head {
            head.sort();
            view.head.extend_from(&head.points, head.points.between(range.from, range.to));
            view.newest = head.newest;
        }
        for frozen in self.frozen.iter().filter(|frozen| frozen.points(number).is_some()) {
            view.newest = view.newest.max(frozen.newest);
            view.frozen.push(Arc::clone(frozen));
        }
        let erased = self.erased.get(&number).into_iter().flatten();
        view.erased.extend(erased.filter(|erased| erased.range.from <= range.to && erased.range.to >= range.from));
        view.newest = view.erased.iter().fold(view.newest, |newest, erased| newest.max(erased.at));
        Some(view)
    }

    /// Whether a series has points here in a range.
    pub fn has_points(&mut self, number: u32, range: Range) -> bool {
        let is_in = |points: &Points| !points.between(range.from, range.to).is_empty();
        let head = self.states.get_mut(number).and_then(|state| state.head.as_mut());
        let is_in_head = head.is_some_and(|head| {
            head.sort();
            is_in(&head.points)
        });
        is_in_head || self.frozen.iter().any(|frozen| frozen.points(number).is_some_and(is_in))
    }

    /// The point with the greatest time; `None` when there is no such series.
    #[must_use]
    pub fn last(&self, number: u32) -> Option<LastPoint> {
        let state = self.states.get(number).filter(|_| self.catalog.has(number))?;
        Some(match &state.last {
            Last::Unknown => LastPoint::Unknown,
            Last::None => LastPoint::Is(None, Position::ZERO),
            Last::Known(time, value, position) => LastPoint::Is(Some((*time, value.clone())), *position),
        })
    }

    /// Notes what the last point is, found when everything up to `seen` had been applied: nothing is noted if more has been.
    pub fn note_last(&mut self, number: u32, seen: Position, last: Option<(i64, Value)>) {
        let unchanged = self.applied == seen;
        if let Some(state) = self.states.get_mut(number).filter(|_| unchanged) {
            state.last = last.map_or(Last::None, |(time, value)| Last::Known(time, value, seen));
        }
    }

    /// Freezes all heads, so that everything up to `through` is frozen or sealed.
    pub fn rotate(&mut self, through: Position) -> Arc<Frozen> {
        self.settled = self.settled.max(through);
        self.active.sort_unstable();
        self.active.dedup();
        let mut series = Vec::with_capacity(self.active.len());
        let mut newest = Position::ZERO;
        for number in self.active.drain(..) {
            let head = self.states.get_mut(number).and_then(|state| state.head.take());
            if let Some(mut head) = head {
                head.sort();
                newest = newest.max(head.newest);
                series.push((number, head.points));
            }
        }
        let bytes = std::mem::take(&mut self.head_bytes);
        let frozen = Arc::new(Frozen { through, series, bytes, newest });
        if !frozen.series.is_empty() {
            self.frozen.push(Arc::clone(&frozen));
        }
        frozen
    }

    /// The frozen heads that are not sealed, oldest first.
    #[must_use]
    pub fn frozen(&self) -> &[Arc<Frozen>] {
        &self.frozen
    }

    /// Forgets frozen heads up to a position, because they are sealed.
    pub fn sealed(&mut self, through: Position) {
        self.frozen.retain(|frozen| frozen.through > through);
    }

    /// What was deleted, and may still be in sealed files; by series.
    #[must_use]
    pub fn erased(&self) -> &BTreeMap<u32, Vec<Erased>> {
        &self.erased
    }

    /// How many ranges that is.
    #[must_use]
    pub fn erased_count(&self) -> usize {
        self.erased_count
    }

    /// Forgets what was deleted and is in nothing that is frozen or sealed, and joins ranges that touch and are of the same. `sealed` are
    /// the positions of all files up to which they have what was written, without what was deleted.
    pub fn tidy_erased(&mut self, sealed: impl Iterator<Item = Position>) {
        let mut throughs: Vec<Position> = sealed.chain(self.frozen.iter().map(|frozen| frozen.through)).collect();
        throughs.sort_unstable();
        throughs.dedup();
        self.settled = throughs.last().map_or(self.settled, |newest| self.settled.max(*newest));
        // Of how many it is.
        let older = |erased: &Erased| throughs.partition_point(|through| *through < erased.at);
        self.erased.retain(|_, all| {
            all.retain(|erased| older(erased) > 0);
            all.sort_unstable_by_key(|erased| (older(erased), erased.range.from));
            all.dedup_by(|next, before| older(next) == older(before) && before.join(next));
            !all.is_empty()
        });
        self.erased_count = self.erased.values().map(Vec::len).sum();
    }

    /// The series whose type changed, and those that were dropped, since this was last asked.
    pub fn take_changes(&mut self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        (std::mem::take(&mut self.retyped), std::mem::take(&mut self.gone))
    }

    /// Gives changes back that could not be noted.
    pub fn give_back_changes(&mut self, (retyped, gone): (BTreeSet<u32>, BTreeSet<u32>)) {
        self.retyped.extend(retyped);
        self.gone.extend(gone);
    }
}

impl Head {
    fn sort(&mut self) {
        if self.is_unsorted {
            self.points.sort();
            self.is_unsorted = false;
        }
    }
}

/// Takes what was deleted out of points that were written up to `through`.
pub fn without_erased(points: &mut Points, erased: &[Erased], through: Position) {
    for erased in erased.iter().filter(|erased| erased.at > through) {
        let gone = points.between(erased.range.from, erased.range.to);
        if !gone.is_empty() {
            let mut left = Points::new();
            left.extend_from(points, 0..gone.start);
            left.extend_from(points, gone.end..points.len());
            *points = left;
        }
    }
}
