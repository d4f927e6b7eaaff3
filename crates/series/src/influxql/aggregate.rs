//! Rows of functions: a column for each call, put together by time.
//!
//! May use: `call`, `reduce`, `gather`, `transform`, `fill`, `plan`. Must not know: how rows are sent.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::answer::{Cell, Track};
use super::ast::{Cast, Fill, Operand, Order};
use super::call::{Aggregate, Applied, Transform};
use super::cast::{self, Class};
use super::filter::{Filter, Kept};
use super::gather::{self, Gathered};
use super::input::{Column, Input};
use super::plan::{Plan, Slot};
use super::reduce::{self, Part, Parts};
use super::window::Window;
use super::{fill, transform};
use crate::error::Result;
use crate::held::Held;
use crate::points::Points;
use crate::rollup::Windows;
use crate::source::{Piece, Range};
use crate::value::Value;

/// Takes rows; says when it has enough.
pub(crate) type Emit<'e> = dyn FnMut(i64, &[Cell<'_>]) -> Result<ControlFlow<()>> + 'e;

/// What is the same for all series of a selection.
pub(crate) struct Job<'a> {
    pub(crate) input: &'a Input<'a>,
    pub(crate) filter: &'a Filter,
    pub(crate) plan: &'a Plan,
    pub(crate) range: Range,
    pub(crate) window: Option<Window>,
    pub(crate) fill: Fill,
    pub(crate) order: Order,
    /// Rows that will be looked at; 0 is all.
    pub(crate) rows_max: usize,
    /// The sort of values that functions of a field are computed of: see [`Input::classes`].
    pub(crate) classes: BTreeMap<&'a str, Class>,
}

/// What becomes of points that were visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Points,
    Nothing,
}

impl Job<'_> {
    /// The rows of one series of the answer, made of the points of `members`.
    pub(crate) fn functions(&self, members: &[usize], emit: &mut Emit<'_>) -> Result<()> {
        let mut tracks: Vec<Track> = Vec::with_capacity(self.plan.slots.len());
        for slot in &self.plan.slots {
            let held = self.input.held.bytes();
            let track = match slot {
                Slot::Call(applied) => self.track(applied, members, self.range)?,
                Slot::Name(_) => Track::default(),
            };
            // The points are gone, and the column stays.
            self.input.let_go(held);
            self.input.held.add(self.input.source, track.memory_bytes())?;
            tracks.push(track);
        }
        let is_name = |slot: &Slot| matches!(slot, Slot::Name(_));
        if self.plan.slots.iter().any(is_name) {
            let chosen = self.plan.slots.iter().position(|slot| !is_name(slot));
            let chosen = chosen.and_then(|at| tracks.get(at)).cloned().unwrap_or_default();
            for (slot, track) in self.plan.slots.iter().zip(&mut tracks) {
                if let Slot::Name(operand) = slot {
                    *track = self.beside(&chosen, operand)?;
                }
            }
        }
        self.rows(&tracks, emit)
    }

    /// Puts columns together: one row for each time, and of times that repeat one for each.
    fn rows(&self, tracks: &[Track], emit: &mut Emit<'_>) -> Result<()> {
        let absent: Vec<Option<Value>> =
            self.plan.slots.iter().zip(tracks).map(|(slot, track)| self.absent(slot, track)).collect();
        let mut cursors = vec![0_usize; tracks.len()];
        let mut slots: Vec<Cell<'_>> = vec![None; tracks.len()];
        let mut cells: Vec<Cell<'_>> = Vec::with_capacity(self.plan.nodes.len());
        loop {
            let heads = tracks.iter().zip(&cursors).filter_map(|(track, cursor)| track.times.get(*cursor).copied());
            let next = if self.order == Order::Ascending { heads.min() } else { heads.max() };
            let Some(time) = next else { return Ok(()) };
            for (at, ((slot, track), cursor)) in slots.iter_mut().zip(tracks).zip(&mut cursors).enumerate() {
                if track.times.get(*cursor) == Some(&time) {
                    *slot = track.cells.get(*cursor).and_then(Option::as_ref).map(Value::as_ref);
                    *cursor += 1;
                } else {
                    *slot = absent.get(at).and_then(Option::as_ref).map(Value::as_ref);
                }
            }
            cells.clear();
            cells.extend(self.plan.nodes.iter().map(|node| node.value(&slots)));
            if emit(time, &cells)?.is_break() {
                return Ok(());
            }
        }
    }

    /// What a column says where others have a row and it has none.
    fn absent(&self, slot: &Slot, track: &Track) -> Option<Value> {
        match (slot, self.fill) {
            (Slot::Call(_), Fill::Number(number)) => Some(fill::constant(number, track.cells.iter().flatten().next())),
            _ => None,
        }
    }

    /// Another field or a tag of the points that were chosen.
    fn beside(&self, chosen: &Track, operand: &Operand) -> Result<Track> {
        let mut track = Track::default();
        let mut points = Points::new();
        for (at, time) in chosen.times.iter().enumerate() {
            let origin = chosen.origins.get(at).copied().unwrap_or(fill::NO_ORIGIN);
            let member = self.input.members.get(origin.0);
            let cell = match member.map(|member| (member, member.field_of(operand))) {
                None => None,
                Some((_, Some(column))) => {
                    points.clear();
                    let held = self.input.held.bytes();
                    self.input.read(column, Range { from: origin.1, to: origin.1 }, &mut points)?;
                    self.input.let_go(held);
                    let value = points.last().map(|(_, value)| value);
                    match operand.cast {
                        Some(Cast::To(kind)) => value.and_then(|value| cast::value(value.as_ref(), kind)),
                        _ => value,
                    }
                }
                Some(_) if !matches!(operand.cast, None | Some(Cast::Tag)) => None,
                Some((member, None)) => {
                    Some(member.key.tag(&operand.name)).filter(|tag| !tag.is_empty()).map(|tag| Value::Text(tag.into()))
                }
            };
            track.push(*time, cell);
        }
        Ok(track)
    }

    fn track(&self, applied: &Applied, members: &[usize], range: Range) -> Result<Track> {
        let every = self.window.as_ref().map(|window| window.length);
        match applied {
            Applied::Aggregate(aggregate, field) => self.aggregated(aggregate, field, members, range),
            Applied::OfField(transform, field) => {
                let gathered = self.gathered(field, members, range)?;
                // All of them as they are, and what the function makes of them.
                self.input.hold(gathered.points.len(), 2 * Track::POINT_BYTES)?;
                let mut track = gather::raw(gathered);
                self.turn(&mut track);
                transform::apply(*transform, &track, every, self.order)
            }
            Applied::OfCall(transform, inner) => {
                let track = self.track(inner, members, self.wider(range, *transform))?;
                transform::apply(*transform, &track, every, self.order)
            }
        }
    }

    fn turn(&self, track: &mut Track) {
        if self.order == Order::Descending {
            track.reverse();
        }
    }

    /// The range with the windows that a function looks back at.
    fn wider(&self, range: Range, transform: Transform) -> Range {
        let windows = transform::windows_before(transform);
        let Some(window) = &self.window else { return range };
        match self.order {
            Order::Ascending if range.from != i64::MIN => Range { from: window.moved(range.from, -windows), ..range },
            Order::Descending if range.to != i64::MAX => Range { to: window.moved(range.to, windows), ..range },
            _ => range,
        }
    }

    /// Visits the points of a field in a range, member by member. `shortcut` may take a member without its points being read.
    fn visit(
        &self,
        operand: &Operand,
        members: &[usize],
        (range, keeps): (Range, Keeps),
        mut shortcut: impl FnMut(usize, Column) -> Result<bool>,
        mut visit: impl FnMut(usize, Points) -> Result<Points>,
    ) -> Result<()> {
        let mut points = Points::new();
        let class = self.class(operand);
        let held = self.input.held.bytes();
        for at in members {
            if keeps == Keeps::Nothing {
                self.input.let_go(held);
            }
            let Some(member) = self.input.members.get(*at) else { continue };
            let Some(column) = member.field_of(operand) else { continue };
            if class.is_none_or(|class| self.input.is_without(column, class)) {
                continue;
            }
            let mut kept = self.filter.of(self.input, member, range)?;
            match kept {
                Kept::Nothing => continue,
                Kept::All if shortcut(*at, column)? => continue,
                _ => {}
            }
            points.clear();
            self.input.read(column, range, &mut points)?;
            points = self.fitting(operand, class, points);
            if let Kept::Some(sieve) = &mut kept {
                points = sieve.sift(self.input.source, &points)?;
            }
            points = visit(*at, points)?;
        }
        Ok(())
    }

    /// The sort of values that a function is computed of.
    fn class(&self, operand: &Operand) -> Option<Class> {
        match operand.cast {
            Some(Cast::To(kind)) => Some(Class::of(kind)),
            _ => self.classes.get(operand.name.as_str()).copied(),
        }
    }

    /// The points that a function is computed of: others are passed over, as InfluxDB does where types differ.
    fn fitting(&self, operand: &Operand, class: Option<Class>, points: Points) -> Points {
        match (operand.cast, class) {
            (Some(Cast::To(kind)), _) => cast::to_kind(points, kind),
            (_, Some(class)) => cast::of_class(points, class),
            _ => points,
        }
    }

    fn gathered(&self, field: &Operand, members: &[usize], range: Range) -> Result<Gathered> {
        let mut parts = Vec::new();
        self.visit(
            field,
            members,
            (range, Keeps::Points),
            |_, _| Ok(false),
            |at, points| {
                parts.push((at, points));
                Ok(Points::new())
            },
        )?;
        let held = self.input.held.bytes();
        if parts.len() > 1 {
            self.input.hold(parts.iter().map(|(_, points)| points.len()).sum(), gather::JOINED_BYTES)?;
        }
        let gathered = Gathered::of(parts);
        self.input.let_go(held);
        Ok(gathered)
    }

    fn aggregated(&self, aggregate: &Aggregate, field: &Operand, members: &[usize], range: Range) -> Result<Track> {
        let is_selector = self.plan.selector().is_some();
        let mut track = if reduce::is_for(aggregate) {
            self.reduced(aggregate, field, members, range)?
        } else {
            let gathered = self.gathered(field, members, range)?;
            let tag = |member: usize, name: &str| {
                self.input.members.get(member).map(|member| member.key.tag(name).to_owned()).unwrap_or_default()
            };
            let (sorted, results) = gathered.counts(aggregate, self.window.as_ref());
            self.input.hold(sorted, gather::SORTED_BYTES)?;
            self.input.hold(results, Track::POINT_BYTES)?;
            gather::reduce(&gathered, aggregate, self.window.as_ref(), &tag)?
        };
        if !aggregate.keeps_times() {
            self.date(aggregate, is_selector, range, &mut track);
        }
        self.turn(&mut track);
        match (&self.window, self.fill) {
            (None, _) | (_, Fill::None) => Ok(track),
            _ if !aggregate.is_filled() => Ok(track),
            (Some(window), Fill::Null) if matches!(aggregate, Aggregate::Count | Aggregate::CountDistinct) => {
                fill::fill(track, window, range, Fill::Number(0.0), self.order)
            }
            (Some(window), how) => fill::fill(track, window, range, how, self.order),
        }
    }

    /// Gives results their times: the starts of windows, or of the range, or the chosen point's.
    fn date(&self, aggregate: &Aggregate, is_selector: bool, range: Range, track: &mut Track) {
        let plain = |time: i64| if time == i64::MIN { 0 } else { time };
        for at in 0..track.len() {
            let origin = track.origins.get(at).map(|(_, time)| *time);
            let Some(time) = track.times.get_mut(at) else { continue };
            *time = match (&self.window, origin) {
                (Some(_), _) => plain(*time),
                (None, Some(chosen)) if is_selector => chosen,
                (None, _) if matches!(aggregate, Aggregate::Integral(_)) => 0,
                (None, _) => plain(range.from),
            };
        }
    }

    fn reduced(&self, aggregate: &Aggregate, field: &Operand, members: &[usize], range: Range) -> Result<Track> {
        let is_asked = self.plan.slots.iter().any(|slot| matches!(slot, Slot::Name(_)));
        // Summaries are of numbers as they are.
        let is_plain = field.cast.is_none() && matches!(self.class(field), None | Some(Class::Number));
        let windows = reduce::summarized(aggregate, self.window.as_ref()).filter(|_| is_plain && !is_asked);
        let known = self.parts((aggregate, field), members, range, windows)?;
        let known = match known {
            Some(known) => known,
            None => self.parts((aggregate, field), members, range, None)?.unwrap_or_default(),
        };
        let mut track = Track::default();
        for (window, part) in known {
            let (value, origin) = reduce::result(aggregate, part);
            track.push(window, Some(value));
            track.origins.extend(origin.map(|(time, member)| (member, time)));
        }
        Ok(track)
    }

    /// What is known of each window, with summaries of these windows where there are; `None` when these do not say enough.
    fn parts(
        &self,
        (aggregate, field): (&Aggregate, &Operand),
        members: &[usize],
        range: Range,
        windows: Option<Windows>,
    ) -> Result<Option<BTreeMap<i64, Part>>> {
        // Points that were visited are let go of meanwhile, and these are not.
        let held = Held::default();
        let hold = |bytes| held.add(self.input.source, bytes);
        let parts = RefCell::new(Parts::new(aggregate, self.window.as_ref(), &hold));
        let is_last = *aggregate == Aggregate::Last && self.window.is_none() && field.cast.is_none();
        let class = self.class(field);
        let shortcut = |member: usize, column: Column| {
            if let Some(windows) = windows {
                return self.input.pieces(column, range, windows, &mut |piece| match piece {
                    Piece::Points(points) if class.is_none_or(|class| points.kind().map(Class::of) == Some(class)) => {
                        parts.borrow_mut().add(points, member)
                    }
                    Piece::Points(points) => {
                        parts.borrow_mut().add(&self.fitting(field, class, points.clone()), member)
                    }
                    Piece::Summary(summary) => parts.borrow_mut().add_summary(summary, member),
                });
            }
            if !is_last {
                return Ok(false);
            }
            // The last point is at hand, unless the range ends before it.
            match self.input.last(column)? {
                Some((time, _)) if time > range.to => Ok(false),
                Some((time, value)) => {
                    if time >= range.from {
                        parts.borrow_mut().merge(0, Part::Pick(time, value, member))?;
                    }
                    Ok(true)
                }
                None => Ok(true),
            }
        };
        self.visit(field, members, (range, Keeps::Nothing), shortcut, |member, points| {
            parts.borrow_mut().add(&points, member)?;
            Ok(points)
        })?;
        let Parts { all, is_doubtful, .. } = parts.into_inner();
        let bytes = held.bytes();
        held.back_to(self.input.source, 0);
        if is_doubtful {
            return Ok(None);
        }
        self.input.held.add(self.input.source, bytes)?;
        Ok(Some(all))
    }
}
