//! Rows of fields and tags as they were written: the fields of one series by time, and series with each other by time.
//!
//! May use: `aggregate`'s job, `filter`. Must not know: functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::aggregate::{Emit, Job};
use super::answer::Cell;
use super::ast::{Cast, Operand, Order};
use super::cast;
use super::filter::Kept;
use super::input::Column;
use super::plan::Slot;
use crate::error::Result;
use crate::points::Points;
use crate::source::Range;
use crate::value::ValueRef;

/// Rows that are told before it is asked whether to go on.
const STRETCH_ROWS: usize = 256;
/// How much time is looked at first where only some rows are wanted: a minute. Then how many times more, each time.
const PROBE: i64 = 60_000_000_000;
const PROBE_GROWTH: i64 = 16;

/// What a member has for a slot.
enum Place<'a> {
    Field(usize),
    Tag(&'a str),
    Nothing,
}

/// The rows of one member.
struct Stream<'a> {
    places: Vec<Place<'a>>,
    points: Vec<Points>,
}

/// How far each of a member's fields has been taken.
type Cursors = Vec<usize>;

impl Stream<'_> {
    fn time(&self, field: usize, taken: usize, order: Order) -> Option<i64> {
        let times = self.points.get(field)?.times();
        match order {
            Order::Ascending => times.get(taken).copied(),
            Order::Descending => times.get(times.len().checked_sub(taken + 1)?).copied(),
        }
    }

    /// The time of the next row.
    fn next(&self, cursors: &Cursors, order: Order) -> Option<i64> {
        let heads = cursors.iter().enumerate().filter_map(|(field, taken)| self.time(field, *taken, order));
        if order == Order::Ascending { heads.min() } else { heads.max() }
    }

    /// Takes the row of a time.
    fn take<'s>(&'s self, cursors: &mut Cursors, time: i64, order: Order, slots: &mut [Cell<'s>]) {
        for (slot, place) in slots.iter_mut().zip(&self.places) {
            *slot = match place {
                Place::Nothing => None,
                Place::Tag(value) => Some(ValueRef::Text(value)),
                Place::Field(field) => {
                    let taken = cursors.get(*field).copied().unwrap_or(usize::MAX);
                    match self.time(*field, taken, order) {
                        Some(found) if found == time => self.points.get(*field).and_then(|points| {
                            let at = if order == Order::Ascending { taken } else { points.len() - taken - 1 };
                            points.get(at).map(|(_, value)| value)
                        }),
                        _ => None,
                    }
                }
            };
        }
        for (field, taken) in cursors.iter_mut().enumerate() {
            if self.time(field, *taken, order) == Some(time) {
                *taken += 1;
            }
        }
    }
}

impl Job<'_> {
    /// The rows of one series of the answer.
    pub(crate) fn raw(&self, members: &[usize], emit: &mut Emit<'_>) -> Result<()> {
        let streams = self.enough(members)?;
        let mut cursors: Vec<Cursors> = streams.iter().map(|stream| vec![0; stream.points.len()]).collect();
        let mut slots: Vec<Cell<'_>> = vec![None; self.plan.slots.len()];
        let mut cells: Vec<Cell<'_>> = Vec::with_capacity(self.plan.nodes.len());
        // Times as a heap has them: the greatest comes first.
        let key = |time: i64, nth: usize| match self.order {
            Order::Ascending => (Reverse(i128::from(time)), Reverse(nth)),
            Order::Descending => (Reverse(-i128::from(time)), Reverse(usize::MAX - nth)),
        };
        let mut heap: BinaryHeap<_> = BinaryHeap::with_capacity(streams.len());
        for (nth, (stream, cursors)) in streams.iter().zip(&cursors).enumerate() {
            heap.extend(stream.next(cursors, self.order).map(|time| (key(time, nth), time, nth)));
        }
        let mut rows = 0usize;
        while let Some((_, mut time, nth)) = heap.pop() {
            let (Some(stream), Some(cursors)) = (streams.get(nth), cursors.get_mut(nth)) else { continue };
            loop {
                if rows.is_multiple_of(STRETCH_ROWS) {
                    self.input.source.go_on()?;
                }
                rows += 1;
                stream.take(cursors, time, self.order, &mut slots);
                cells.clear();
                cells.extend(self.plan.nodes.iter().map(|node| node.value(&slots)));
                if emit(time, &cells)?.is_break() {
                    return Ok(());
                }
                let Some(next) = stream.next(cursors, self.order) else { break };
                // As long as it is the first anyway, a member needs not go through the heap.
                if heap.peek().is_some_and(|(first, ..)| *first > key(next, nth)) {
                    heap.push((key(next, nth), next, nth));
                    break;
                }
                time = next;
            }
        }
        Ok(())
    }

    fn columns(&self, at: usize) -> Vec<Column> {
        let member = self.input.members.get(at);
        let names = self.plan.slots.iter().filter_map(|slot| match slot {
            Slot::Name(name) => Some(name),
            Slot::Call(_) => None,
        });
        names.filter_map(|operand| member?.field_of(operand)).collect()
    }

    fn streams(&self, members: &[usize], range: Range) -> Result<Vec<Stream<'_>>> {
        let mut streams = Vec::with_capacity(members.len());
        for at in members {
            streams.extend(self.stream(*at, range)?);
        }
        Ok(streams)
    }

    /// All rows of the range, or when only some are wanted at least so many of those that come first: read from the end where
    /// they are, further and further.
    fn enough(&self, members: &[usize]) -> Result<Vec<Stream<'_>>> {
        let Range { from, to } = self.range;
        let (start, mut width) = match self.order {
            _ if self.rows_max == 0 => return self.streams(members, self.range),
            Order::Ascending if from == i64::MIN => return self.streams(members, self.range),
            Order::Ascending => (from, PROBE),
            // The newest row alone is most often the last of all, which is known.
            Order::Descending => (self.newest(members)?.min(to), if self.rows_max == 1 { 0 } else { PROBE }),
        };
        loop {
            let range = match self.order {
                // As wide as numbers go is not as wide as times go.
                _ if width == i64::MAX => self.range,
                Order::Ascending => Range { from, to: to.min(start.saturating_add(width)) },
                Order::Descending => Range { from: from.max(start.saturating_sub(width)), to },
            };
            let held = self.input.held.bytes();
            let streams = self.streams(members, range)?;
            let rows = |stream: &Stream<'_>| stream.points.iter().map(Points::len).max().unwrap_or(0);
            if range == self.range || streams.iter().map(rows).sum::<usize>() >= self.rows_max {
                return Ok(streams);
            }
            self.input.let_go(held);
            width = width.saturating_mul(PROBE_GROWTH).max(PROBE);
        }
    }

    /// The time of the last point of all.
    fn newest(&self, members: &[usize]) -> Result<i64> {
        let mut newest = i64::MIN;
        for column in members.iter().flat_map(|at| self.columns(*at)) {
            newest = newest.max(self.input.last(column)?.map_or(i64::MIN, |(time, _)| time));
        }
        Ok(newest)
    }

    fn stream(&self, at: usize, range: Range) -> Result<Option<Stream<'_>>> {
        let Some(member) = self.input.members.get(at) else { return Ok(None) };
        let mut kept = self.filter.of(self.input, member, range)?;
        if matches!(kept, Kept::Nothing) {
            return Ok(None);
        }
        let mut stream = Stream { places: Vec::with_capacity(self.plan.slots.len()), points: Vec::new() };
        for slot in &self.plan.slots {
            let Slot::Name(operand) = slot else { continue };
            let Operand { name, cast } = operand;
            stream.places.push(match member.field_of(operand) {
                Some(column) => {
                    let mut points = Points::new();
                    self.input.read(column, range, &mut points)?;
                    if let Some(Cast::To(kind)) = cast {
                        points = cast::to_kind(points, *kind);
                    }
                    if let Kept::Some(sieve) = &mut kept {
                        sieve.restart();
                        points = sieve.sift(self.input.source, &points)?;
                    }
                    stream.points.push(points);
                    Place::Field(stream.points.len() - 1)
                }
                None if !matches!(cast, None | Some(Cast::Tag)) => Place::Nothing,
                None => match member.key.tag(name) {
                    "" => Place::Nothing,
                    tag => Place::Tag(tag),
                },
            });
        }
        Ok(Some(stream))
    }
}
