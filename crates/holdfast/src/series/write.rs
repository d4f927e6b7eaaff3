//! Points become batches: by themselves, or with what else a batch changes.
//!
//! May use: the `series` engine, partitions, `journal`. Must not know: protocols.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::series::{Bounds, Engine, Kind, Pending, Place, Points, Rows, Slot, Stage, Staged, Typing};
use journal::{Batch, Log, PartitionId, Position};

use super::{Refused, Written};
use crate::error::{Error, ErrorKind, Result};
use crate::partition::Partition;
use crate::store::Inner;

/// What InfluxDB says of points that are older than their series keep them; its clients look for these words.
const TOO_OLD: &str = "points beyond retention policy";

/// The series' part of a section: see `kv::put_other_part`.
pub(crate) const SERIES_PART: u8 = 65;

/// One partition that is written to.
pub(crate) struct Guard<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) engine: MutexGuard<'a, Engine>,
    pub(crate) stage: Stage,
    slots: Vec<(Slot, u32)>,
}

/// Points, or what else is to become of series, that will be a part of one batch: their partitions are locked.
#[derive(Default)]
pub(crate) struct Writing<'a> {
    pub(crate) guards: Vec<Guard<'a>>,
    points: u64,
    refused: Vec<Refused>,
}

impl<'a> Guard<'a> {
    pub(crate) fn lock(partition: &'a Partition) -> Result<Self> {
        let engine = partition.series();
        partition.check()?;
        Ok(Self { partition, engine, stage: Stage::default(), slots: Vec::new() })
    }
}

/// What types the fields of measurements have, of those that new series are written to: with types taken strictly, a new series has
/// to have the type that others of its field have. Names that are known have their type already, so nothing is looked up for them.
///
/// Partitions are looked into before any is locked for the batch. Of two requests that write a field for the first time at once, each
/// may so be the first.
#[derive(Default)]
struct FieldKinds {
    /// By database, metric and field. None when types are not taken strictly.
    known: Option<BTreeMap<(String, String, String), Vec<Kind>>>,
}

impl FieldKinds {
    fn of(inner: &Inner, rows: &Rows) -> Self {
        if rows.typing() != Typing::Strict {
            return Self::default();
        }
        let mut known = BTreeMap::new();
        for (_, pending) in rows.pending().filter(|(_, pending)| pending.place.is_none()) {
            known.entry(Self::name(&pending)).or_insert_with(|| {
                let kinds = inner.partitions.iter().filter_map(|it| it.series().field_kind(pending.row, pending.field));
                let mut kinds: Vec<Kind> = kinds.collect();
                kinds.dedup();
                // Of a field that nobody has written yet, what came first says what it is.
                if kinds.is_empty() {
                    kinds.extend(pending.points.kind_at(0));
                }
                kinds
            });
        }
        Self { known: Some(known) }
    }

    fn name(pending: &Pending<'_>) -> (String, String, String) {
        (pending.row.database.clone(), pending.row.metric.clone(), pending.field.to_owned())
    }

    fn of_field(&self, pending: &Pending<'_>) -> &[Kind] {
        let known = self.known.as_ref().filter(|known| pending.place.is_none() && !known.is_empty());
        known.and_then(|known| known.get(&Self::name(pending))).map_or(&[], Vec::as_slice)
    }
}

/// The points from this time on; None when all are, so that nothing is copied.
fn young(points: &Points, kept_from: i64) -> Option<Points> {
    let is_young = |time: &i64| *time >= kept_from;
    if kept_from == i64::MIN || points.times().iter().all(is_young) {
        return None;
    }
    let mut young = Points::new();
    points.iter().filter(|(time, _)| is_young(time)).for_each(|(time, value)| young.push(time, value));
    Some(young)
}

impl<'a> Writing<'a> {
    /// What else is to become of series than points.
    pub(crate) fn of(guards: Vec<Guard<'a>>) -> Self {
        Self { guards, ..Self::default() }
    }

    /// Locks the partitions of the points, in ascending order, and makes their commands.
    pub(crate) fn open(inner: &'a Inner, rows: &Rows) -> Result<Self> {
        let mut writing = Self::default();
        let mut slots: Vec<(u16, Slot)> = rows
            .pending()
            .map(|(slot, pending)| {
                let place = pending.place.map(|place| place.partition);
                (place.unwrap_or_else(|| inner.series_partition(pending.row.row_hash())), slot)
            })
            .collect();
        // Stable: a series' points stay in the order in which they came.
        slots.sort_by_key(|(partition, _)| *partition);
        let kinds = FieldKinds::of(inner, rows);
        let limits = &inner.options.limits;
        let mut series_left = limits.series_max.saturating_sub(inner.shelf.series.load(Ordering::Relaxed) as usize);
        for of_one in slots.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((id, _)) = of_one.first() else { continue };
            let Some(partition) = inner.partitions.get(usize::from(*id)) else { continue };
            let mut guard = Guard::lock(partition)?;
            for (_, slot) in of_one {
                let Some(pending) = rows.pending_of(*slot) else { continue };
                let kept = young(pending.points, inner.kept_from(pending.row));
                let pending = match &kept {
                    None => pending,
                    Some(kept) => {
                        let too_old = pending.points.len() - kept.len();
                        writing.refuse(&pending, too_old, TOO_OLD.to_owned());
                        if kept.is_empty() {
                            continue;
                        }
                        Pending { points: kept, ..pending }
                    }
                };
                let bounds = Bounds {
                    series_left,
                    tags_max: limits.series_tags_max,
                    name_bytes_max: limits.series_name_bytes_max,
                    text_bytes_max: limits.series_text_bytes_max,
                };
                let of_field = kinds.of_field(&pending);
                match guard.stage.points(&guard.engine, &pending, rows.typing(), (&bounds, of_field)) {
                    Ok(Staged { number, misfits, reason }) => {
                        writing.points += (pending.points.len() - misfits) as u64;
                        guard.slots.push((*slot, number));
                        if misfits > 0 {
                            writing.refuse(&pending, misfits, reason);
                        }
                    }
                    Err(reason) => writing.refuse(&pending, pending.points.len(), reason),
                }
            }
            series_left -= guard.stage.declared().min(series_left);
            writing.guards.push(guard);
        }
        Ok(writing)
    }

    /// Notes that so many of these points are not written.
    fn refuse(&mut self, pending: &Pending<'_>, points: usize, reason: String) {
        let (metric, field) = (pending.row.metric.clone(), pending.field.to_owned());
        self.refused.push(Refused { metric, field, points: points as u64, owner: pending.owner, reason });
    }

    /// Refuses the whole if some points were.
    pub(crate) fn check_whole(&self) -> Result<()> {
        match self.refused.first() {
            None => Ok(()),
            Some(refused) => Err(Error::new(ErrorKind::Invalid, refused.reason.clone())),
        }
    }

    /// Whether nothing is to be journaled.
    pub(crate) fn is_empty(&self) -> bool {
        self.guards.iter().all(|guard| guard.stage.part().is_empty())
    }

    /// The partitions and their commands.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (PartitionId, &[u8])> {
        let parts = self.guards.iter().map(|guard| (guard.partition.id, guard.stage.part()));
        parts.filter(|(_, part)| !part.is_empty())
    }

    /// Makes a batch of nothing else.
    pub(crate) fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        for (id, part) in self.parts() {
            batch.section(id, |to| kv::put_other_part(to, SERIES_PART, part));
        }
        batch
    }

    /// Applies the commands, now that the batch has its position.
    pub(crate) fn apply(&mut self, inner: &Inner, position: Position) -> Result<()> {
        for Guard { partition, engine, stage, .. } in &mut self.guards {
            if stage.part().is_empty() {
                continue;
            }
            let (bytes, series) = (engine.head_bytes() as u64, engine.len() as u64);
            engine.apply(position, stage.part()).inspect_err(|_| partition.set_broken())?;
            // Deleting takes memory away: both counts wrap around, and are right in sum.
            inner.shelf.memory_bytes.fetch_add((engine.head_bytes() as u64).wrapping_sub(bytes), Ordering::Relaxed);
            inner.shelf.series.fetch_add((engine.len() as u64).wrapping_sub(series), Ordering::Relaxed);
        }
        if inner.holds_series_back() {
            inner.series_wake.raise();
        }
        Ok(())
    }

    /// What became of the points of a batch at `position`; notes in `rows` where their series lie, and forgets the points.
    pub(crate) fn end(self, inner: &Inner, position: Position, rows: &mut Rows) -> Written {
        for guard in &self.guards {
            let (partition, dropped) = (guard.partition.id.get(), guard.engine.dropped());
            for (slot, number) in &guard.slots {
                rows.note(*slot, Some(Place { partition, number: *number, dropped }));
            }
        }
        rows.clear();
        let refused = self.refused.iter().map(|refused| refused.points).sum();
        inner.shelf.written.fetch_add(self.points, Ordering::Relaxed);
        inner.shelf.refused.fetch_add(refused, Ordering::Relaxed);
        Written { position, points: self.points, refused: self.refused }
    }
}

impl Inner {
    /// The partition of a row: fixed for the life of the store.
    pub(crate) fn series_partition(&self, hash: u64) -> u16 {
        let spread = (u128::from(hash) * self.partitions.len() as u128) >> 64;
        u16::try_from(spread).expect("below the number of partitions")
    }

    pub(crate) fn write_series(&self, rows: &mut Rows) -> Result<Written> {
        self.check_open()?;
        if rows.is_empty() {
            return Ok(Written { position: Position::ZERO, points: 0, refused: Vec::new() });
        }
        self.check_room()?;
        self.await_room_for_series(rows.len())?;
        let mut writing = Writing::open(self, rows)?;
        let position = self.commit_series(&mut writing)?;
        Ok(writing.end(self, position, rows))
    }

    /// Journals and applies what is to become of series.
    pub(crate) fn commit_series(&self, writing: &mut Writing<'_>) -> Result<Position> {
        if writing.is_empty() {
            return Ok(Position::ZERO);
        }
        let position = self.journal.append(&writing.batch())?.position;
        writing.apply(self, position)?;
        Ok(position)
    }

    /// As [`Inner::make_room_for_series`], for whoever holds locks of partitions: it must not wait for room, and is refused when
    /// there is none.
    pub(crate) fn begin_series_in_batch(&self) -> Result<()> {
        self.check_room()?;
        if self.shelf.memory_bytes.load(Ordering::Relaxed) > self.series_bytes_max() {
            self.series_wake.raise();
            return Err(Error::new(
                ErrorKind::Unavailable,
                "points come faster than they are sealed: try again in a moment",
            ));
        }
        if self.shelf.is_used() { Ok(()) } else { self.begin_series() }
    }

    /// Holds back who is about to write so many points, and holds no lock, for as long as there is little room for them.
    pub(crate) fn await_room_for_series(&self, points: usize) -> Result<()> {
        self.make_room_for_series()?;
        self.pace_series(points);
        Ok(())
    }

    /// Whether who writes points is held back.
    pub(crate) fn holds_series_back(&self) -> bool {
        self.shelf.memory_bytes.load(Ordering::Relaxed) > self.options.limits.series_memory_bytes
    }

    /// With more bytes of points in memory nobody adds to them.
    fn series_bytes_max(&self) -> u64 {
        2 * self.options.limits.series_memory_bytes
    }

    /// How much the engines hold, when the store was opened.
    pub(crate) fn count_series(&self) {
        let engines = || self.partitions.iter().map(Partition::series);
        self.shelf.series.store(engines().map(|engine| engine.len() as u64).sum(), Ordering::Relaxed);
        self.shelf.memory_bytes.store(engines().map(|engine| engine.head_bytes() as u64).sum(), Ordering::Relaxed);
    }

    /// Delays who writes points while more are in memory than are sealed at a time, so that they come as slowly as they can be sealed
    /// before memory is full: then nobody waits for a whole sealing.
    fn pace_series(&self, points: usize) {
        let begin = self.options.limits.series_memory_bytes;
        let bytes = self.shelf.memory_bytes.load(Ordering::Relaxed);
        if self.threads && bytes > begin {
            self.shelf.room.delay(pause(points, bytes - begin, begin));
        }
    }

    /// Before anything is written: sees to it that opening will know that there are series, and holds back who writes faster than
    /// can be sealed.
    pub(crate) fn make_room_for_series(&self) -> Result<()> {
        if !self.shelf.is_used() {
            self.begin_series()?;
        }
        let max = self.series_bytes_max();
        if self.shelf.memory_bytes.load(Ordering::Relaxed) > max {
            // Waits for whoever is at it, and finds that there is room.
            self.seal_series(super::seal::When::Above(max))?;
        }
        Ok(())
    }
}

/// What a point is delayed by just below the maximum: several times what sealing one takes, so that even a busy processor seals in time,
/// and so that little more is in memory than is sealed at a time.
const POINT_DELAY_MAX: Duration = Duration::from_micros(2);

/// How long who writes so many points pauses when `above` bytes of `room` are taken. With its square, so that a short burst, for which
/// there is room, is hardly delayed.
fn pause(points: usize, above: u64, room: u64) -> Duration {
    let (above, room) = (u128::from(above.min(room)), u128::from(room.max(1)));
    let nanos = POINT_DELAY_MAX.as_nanos() * points as u128 * above / room * above / room;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_pause_by_points_and_by_the_square_of_what_is_taken() {
        let room = 24 << 20;
        assert_eq!(pause(200, 0, room), Duration::ZERO);
        assert_eq!(pause(200, room, room), POINT_DELAY_MAX * 200);
        assert_eq!(pause(200, room / 2, room), POINT_DELAY_MAX * 50);
        assert_eq!(pause(32 << 10, u64::MAX, room), pause(32 << 10, room, room), "and never more");
        assert_eq!(pause(usize::MAX, room, room), Duration::from_nanos(u64::MAX), "however many there are");
        assert_eq!(pause(200, 5, 0), Duration::ZERO, "whatever the limit is");
    }
}
