//! Rows of fields and tags as they were written: the fields of one series by time, and series with each other by time.
//!
//! May use: `aggregate`'s job, `filter`. Must not know: functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::aggregate::{Emit, Job};
use super::answer::Cell;
use super::ast::Order;
use super::filter::Kept;
use super::input::Column;
use super::plan::Slot;
use crate::error::Result;
use crate::points::Points;
use crate::source::Range;
use crate::value::ValueRef;

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
        let range = self.narrowed(members)?;
        let mut streams = Vec::with_capacity(members.len());
        for at in members {
            streams.extend(self.stream(*at, range)?);
        }
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
        while let Some((_, mut time, nth)) = heap.pop() {
            let (Some(stream), Some(cursors)) = (streams.get(nth), cursors.get_mut(nth)) else { continue };
            loop {
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
        names.filter_map(|name| member?.field(name)).collect()
    }

    /// The range; when only the newest row is wanted and nothing is filtered, the one moment when that is.
    fn narrowed(&self, members: &[usize]) -> Result<Range> {
        if self.rows_max != 1 || self.order == Order::Ascending {
            return Ok(self.range);
        }
        let mut newest = None;
        for at in members {
            let Some(member) = self.input.members.get(*at) else { continue };
            if !matches!(self.filter.of(self.input, member, self.range)?, Kept::All) {
                return Ok(self.range);
            }
            for column in self.columns(*at) {
                let last = self.input.last(column)?.map(|(time, _)| time);
                if last.is_some_and(|time| time > self.range.to) {
                    return Ok(self.range);
                }
                newest = newest.max(last);
            }
        }
        Ok(newest.map_or(self.range, |newest| Range { from: self.range.from.max(newest), to: self.range.to }))
    }

    fn stream(&self, at: usize, range: Range) -> Result<Option<Stream<'_>>> {
        let Some(member) = self.input.members.get(at) else { return Ok(None) };
        let mut kept = self.filter.of(self.input, member, range)?;
        if matches!(kept, Kept::Nothing) {
            return Ok(None);
        }
        let mut stream = Stream { places: Vec::with_capacity(self.plan.slots.len()), points: Vec::new() };
        for slot in &self.plan.slots {
            let Slot::Name(name) = slot else { continue };
            stream.places.push(match member.field(name) {
                Some(column) => {
                    let mut points = Points::new();
                    self.input.read(column, range, &mut points)?;
                    if let Kept::Some(sieve) = &mut kept {
                        sieve.restart();
                        points = sieve.sift(&points);
                    }
                    stream.points.push(points);
                    Place::Field(stream.points.len() - 1)
                }
                None => match member.key.tag(name) {
                    "" => Place::Nothing,
                    tag => Place::Tag(tag),
                },
            });
        }
        Ok(Some(stream))
    }
}
