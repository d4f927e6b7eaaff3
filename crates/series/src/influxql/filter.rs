//! Conditions that have to be looked at point by point, and those that a row's tags decide once and for all.
//!
//! May use: `node`, `input`. Must not know: what is computed of the points that stay.

use super::answer::Cell;
use super::ast::{Cast, Expr, Operand};
use super::cast;
use super::input::{Input, Member};
use super::node::Node;
use crate::error::{Error, Result};
use crate::points::Points;
use crate::source::{Range, Source};
use crate::value::ValueRef;

/// Work on rows between two looks whether to go on, in bytes of texts where one regular expression looks at them.
const STRETCH_BYTES: usize = 256 << 10;
/// What a row counts at least, and each byte of a text: there may be dozens of expressions.
const ROW_BYTES: usize = 1 << 10;
const TEXT_EFFORT: usize = 64;

/// A condition on rows, ready for any member.
pub(crate) struct Filter {
    node: Option<Node>,
    /// Names in it, and whether anything has a field of that name.
    names: Vec<(Operand, bool)>,
}

/// The condition for one member's rows.
pub(crate) enum Kept<'f> {
    All,
    Nothing,
    Some(Box<Sieve<'f>>),
}

/// Looks at one time after the other.
pub(crate) struct Sieve<'f> {
    node: &'f Node,
    places: Vec<Place<'f>>,
    points: Vec<Points>,
    cursors: Vec<usize>,
    /// Work since it was asked last whether to go on.
    worked: usize,
}

enum Place<'f> {
    Time,
    Tag(&'f str),
    Field(usize),
    Nothing,
}

impl Filter {
    pub(crate) fn new(expr: Option<&Expr>, input: &Input<'_>) -> Result<Self> {
        let mut names: Vec<(Operand, bool)> = Vec::new();
        let slot = &mut |expr: &Expr| match expr {
            Expr::Call(call) => Err(Error::invalid(format!("invalid function call in condition: {}()", call.name))),
            other => {
                let operand = other.operand().ok_or_else(|| Error::invalid("invalid condition"))?;
                Ok(names.iter().position(|(known, _)| *known == operand).unwrap_or_else(|| {
                    let is_field = input.has_field(&operand.name);
                    names.push((operand, is_field));
                    names.len() - 1
                }))
            }
        };
        let node = expr.map(|expr| Node::of(expr, slot)).transpose()?;
        Ok(Self { node, names })
    }

    /// What it comes to for a member, in a range of times.
    pub(crate) fn of<'f>(&'f self, input: &Input<'_>, member: &'f Member, range: Range) -> Result<Kept<'f>> {
        let Some(node) = &self.node else { return Ok(Kept::All) };
        let (mut places, mut points) = (Vec::with_capacity(self.names.len()), Vec::new());
        for (Operand { name, cast }, is_field) in &self.names {
            let field = if *cast == Some(Cast::Tag) { None } else { member.field(name) };
            places.push(match (name.as_str(), field) {
                ("time", _) => Place::Time,
                (name, None) if *cast == Some(Cast::Tag) => Place::Tag(member.key.tag(name)),
                (_, None) if cast.is_some() => Place::Nothing,
                (_, Some(column)) => {
                    let mut read = Points::new();
                    input.read(column, range, &mut read)?;
                    if let Some(Cast::To(kind)) = cast {
                        read = cast::to_kind(read, *kind);
                    }
                    points.push(read);
                    Place::Field(points.len() - 1)
                }
                (name, None) if *is_field && member.key.tag(name).is_empty() => Place::Nothing,
                (name, None) => Place::Tag(member.key.tag(name)),
            });
        }
        let cursors = vec![0; points.len()];
        let is_decided = places.iter().all(|place| matches!(place, Place::Tag(_) | Place::Nothing));
        let mut sieve = Sieve { node, places, points, cursors, worked: 0 };
        Ok(match is_decided {
            true if sieve.keeps(0) => Kept::All,
            true => Kept::Nothing,
            false => Kept::Some(Box::new(sieve)),
        })
    }
}

impl Sieve<'_> {
    /// Begins again with the first time.
    pub(crate) fn restart(&mut self) {
        self.cursors.fill(0);
    }

    /// Whether the row of a time stays; times must not go back.
    pub(crate) fn keeps(&mut self, time: i64) -> bool {
        for (cursor, points) in self.cursors.iter_mut().zip(&self.points) {
            while points.times().get(*cursor).is_some_and(|at| *at < time) {
                *cursor += 1;
            }
        }
        let mut few: [Cell<'_>; 8] = [None; 8];
        let mut many;
        let slots = match few.get_mut(..self.places.len()) {
            Some(slots) => slots,
            None => {
                many = vec![None; self.places.len()];
                &mut many[..]
            }
        };
        for (slot, place) in slots.iter_mut().zip(&self.places) {
            *slot = match place {
                Place::Time => Some(ValueRef::Integer(time)),
                Place::Tag(value) => Some(ValueRef::Text(value)),
                Place::Nothing => None,
                Place::Field(at) => {
                    let cursor = self.cursors.get(*at).copied().unwrap_or(usize::MAX);
                    let point = self.points.get(*at).and_then(|points| points.get(cursor));
                    point.filter(|(at, _)| *at == time).map(|(_, value)| value)
                }
            };
        }
        let text_bytes = |slot: &Cell<'_>| if let Some(ValueRef::Text(text)) = slot { text.len() } else { 0 };
        let bytes: usize = slots.iter().map(text_bytes).sum();
        self.worked = self.worked.saturating_add(ROW_BYTES + bytes.saturating_mul(TEXT_EFFORT));
        self.node.holds(slots)
    }

    /// The points of a column that stay. The question may end meanwhile: a regular expression over long texts takes its time.
    pub(crate) fn sift(&mut self, source: &dyn Source, points: &Points) -> Result<Points> {
        let mut kept = Points::new();
        let mut start = 0;
        for (at, time) in points.times().iter().enumerate() {
            if self.worked > STRETCH_BYTES {
                source.go_on()?;
                self.worked = 0;
            }
            if !self.keeps(*time) {
                kept.extend_from(points, start..at);
                start = at + 1;
            }
        }
        kept.extend_from(points, start..points.len());
        Ok(kept)
    }
}
