//! What may be journaled of time series: what became of them, never how. This is the specification of the series' part of a section.
//!
//! Lengths, counts and numbers of series are LEB128, other integers little-endian; a text is its length and its bytes.
//!
//!   part      command*
//!   declare   1 | number | kind 1 | key               a series that is new; its number is the next of the partition
//!   points    2 | number | kind 1 | count | times | values
//!   delete    3 | number | from 8 | to 8                points with times from `from` up to and including `to`
//!   drop      4 | number                                a series with all its points
//!   database  5 | name                                 a database that was created by name
//!   forget    6 | name                                 is no database any more, unless it has series
//!   key       database | metric | field | count | (name, value)*
//!   times     first 8 | (zigzag of how a step differs from the one before)*
//!   values    floats, integers, unsigned: 8 each; booleans: 1 each; texts: one after another
//!
//! Format: docs/formats/series.md.
//!
//! May use: `points`. Must not know: what follows from a command.

use base::{Fields, put_string, put_varint, unzigzag, zigzag};

use crate::error::{Error, Result};
use crate::key::Key;
use crate::points::Points;
use crate::source::Range;
use crate::value::{Kind, ValueRef};

const DECLARE: u8 = 1;
const POINTS: u8 = 2;
const DELETE: u8 = 3;
const DROP: u8 = 4;
const DATABASE: u8 = 5;
const FORGET: u8 = 6;

/// Points of one command at most: more are several commands.
pub(crate) const COMMAND_POINTS_MAX: usize = 1 << 20;

const MALFORMED: Error = Error::Malformed { what: "command of time series" };

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    Declare { number: u32, kind: Kind, key: Key },
    Points { number: u32, values: Column<'a> },
    Delete { number: u32, range: Range },
    Drop { number: u32 },
    Database { name: &'a str },
    Forget { name: &'a str },
}

/// Points as a command holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column<'a> {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    /// Times and values.
    bytes: &'a [u8],
}

pub(crate) fn put_declare(number: u32, kind: Kind, key: &Key, to: &mut Vec<u8>) {
    to.push(DECLARE);
    put_varint(to, number.into());
    to.push(kind as u8);
    put_key(key, to);
}

/// Appends a series' name.
pub(crate) fn put_key(key: &Key, to: &mut Vec<u8>) {
    for part in [&key.database, &key.metric, &key.field] {
        put_string(to, part.as_bytes());
    }
    put_varint(to, key.tags.len() as u64);
    for (name, value) in &key.tags {
        put_string(to, name.as_bytes());
        put_string(to, value.as_bytes());
    }
}

/// The series' name that comes next.
pub(crate) fn read_key(from: &mut Fields<'_>) -> Option<Key> {
    let [database, metric, field] = [from.text()?, from.text()?, from.text()?].map(str::to_owned);
    let count = from.varint()?;
    let tags = (0..count).map(|_| Some((from.text()?.to_owned(), from.text()?.to_owned()))).collect::<Option<_>>()?;
    Some(Key { database, metric, tags, field })
}

/// Appends commands with all points, in their order; integers of at most 53 bits as doubles when `widen`.
pub(crate) fn put_points(number: u32, points: &Points, widen: bool, to: &mut Vec<u8>) {
    let mut at = 0;
    while at < points.len() {
        let Some(kind) = points.kind_at(at) else { return };
        let limit = points.len().min(at + COMMAND_POINTS_MAX);
        let end = match points.kind() {
            Some(_) => limit,
            None => (at..limit).find(|next| points.kind_at(*next) != Some(kind)).unwrap_or(limit),
        };
        put_run(number, points, at..end, kind, widen, to);
        at = end;
    }
}

fn put_run(number: u32, points: &Points, run: std::ops::Range<usize>, kind: Kind, widen: bool, to: &mut Vec<u8>) {
    let bits = points.bits().get(run.clone()).unwrap_or_default();
    let widened = if widen { widened(kind, bits) } else { None };
    let (kind, bits) = widened.as_deref().map_or((kind, bits), |bits| (Kind::Float, bits));
    to.push(POINTS);
    put_varint(to, number.into());
    to.push(kind as u8);
    put_varint(to, bits.len() as u64);
    put_times(points.times().get(run.clone()).unwrap_or_default(), to);
    match kind {
        Kind::Float | Kind::Integer | Kind::Unsigned => {
            to.reserve(bits.len() * 8);
            bits.iter().for_each(|bits| to.extend_from_slice(&bits.to_le_bytes()));
        }
        Kind::Boolean => to.extend(bits.iter().map(|bits| u8::from(*bits != 0))),
        Kind::Text => {
            for (_, value) in run.filter_map(|at| points.get(at)) {
                if let ValueRef::Text(text) = value {
                    put_string(to, text.as_bytes());
                }
            }
        }
    }
}

/// Integers as doubles, when each is one exactly.
#[expect(clippy::cast_precision_loss, reason = "that nothing is lost is what is checked")]
fn widened(kind: Kind, bits: &[u64]) -> Option<Vec<u64>> {
    const EXACT: u64 = 1 << 53;
    let fits = |bits: u64| match kind {
        Kind::Integer => bits.cast_signed().unsigned_abs() <= EXACT,
        Kind::Unsigned => bits <= EXACT,
        _ => false,
    };
    bits.iter()
        .map(|bits| fits(*bits).then(|| if kind == Kind::Integer { bits.cast_signed() as f64 } else { *bits as f64 }))
        .map(|number| number.map(f64::to_bits))
        .collect()
}

fn put_times(times: &[i64], to: &mut Vec<u8>) {
    let Some((first, rest)) = times.split_first() else { return };
    to.extend_from_slice(&first.to_le_bytes());
    let (mut time, mut step) = (*first, 0i64);
    for next in rest {
        let now = next.wrapping_sub(time);
        put_varint(to, zigzag(now.wrapping_sub(step)));
        (time, step) = (*next, now);
    }
}

pub(crate) fn put_delete(number: u32, range: Range, to: &mut Vec<u8>) {
    to.push(DELETE);
    put_varint(to, number.into());
    to.extend_from_slice(&range.from.to_le_bytes());
    to.extend_from_slice(&range.to.to_le_bytes());
}

pub(crate) fn put_drop(number: u32, to: &mut Vec<u8>) {
    to.push(DROP);
    put_varint(to, number.into());
}

pub(crate) fn put_database(name: &str, to: &mut Vec<u8>) {
    to.push(DATABASE);
    put_string(to, name.as_bytes());
}

pub(crate) fn put_forget(name: &str, to: &mut Vec<u8>) {
    to.push(FORGET);
    put_string(to, name.as_bytes());
}

/// The commands of a part; an error where one does not decode, and nothing behind it.
pub(crate) fn commands(part: &[u8]) -> impl Iterator<Item = Result<Command<'_>>> {
    let mut rest = Fields(part);
    std::iter::from_fn(move || {
        if rest.0.is_empty() {
            return None;
        }
        let command = read(&mut rest);
        if command.is_none() {
            rest.0 = &[];
        }
        Some(command.ok_or(MALFORMED))
    })
}

fn read<'a>(from: &mut Fields<'a>) -> Option<Command<'a>> {
    let tag = from.u8()?;
    if tag == DATABASE || tag == FORGET {
        let name = from.text()?;
        return Some(if tag == DATABASE { Command::Database { name } } else { Command::Forget { name } });
    }
    let number = u32::try_from(from.varint()?).ok()?;
    Some(match tag {
        DECLARE => Command::Declare { number, kind: Kind::of(from.u8()?)?, key: read_key(from)? },
        POINTS => {
            let kind = Kind::of(from.u8()?)?;
            let count =
                usize::try_from(from.varint()?).ok().filter(|count| (1..=COMMAND_POINTS_MAX).contains(count))?;
            let start = from.0;
            pass_times(from, count)?;
            pass_values(from, kind, count)?;
            let bytes = start.get(..start.len() - from.0.len())?;
            Command::Points { number, values: Column { kind, count, bytes } }
        }
        DELETE => {
            Command::Delete { number, range: Range { from: from.u64()?.cast_signed(), to: from.u64()?.cast_signed() } }
        }
        DROP => Command::Drop { number },
        _ => return None,
    })
}

fn pass_times(from: &mut Fields<'_>, count: usize) -> Option<()> {
    from.u64()?;
    (1..count).try_for_each(|_| from.varint().map(|_| ()))
}

fn pass_values(from: &mut Fields<'_>, kind: Kind, count: usize) -> Option<()> {
    match kind {
        Kind::Float | Kind::Integer | Kind::Unsigned => from.take(count.checked_mul(8)?).map(|_| ()),
        Kind::Boolean => from.take(count).map(|_| ()),
        Kind::Text => (0..count).try_for_each(|_| from.text().map(|_| ())),
    }
}

impl Column<'_> {
    /// Appends the points. `None` when the bytes are not what reading the command found them to be.
    pub(crate) fn read(&self, points: &mut Points) -> Option<()> {
        let mut from = Fields(self.bytes);
        let mut times = Vec::with_capacity(self.count);
        let (mut time, mut step) = (from.u64()?.cast_signed(), 0i64);
        times.push(time);
        for _ in 1..self.count {
            step = step.wrapping_add(unzigzag(from.varint()?));
            time = time.wrapping_add(step);
            times.push(time);
        }
        match self.kind {
            Kind::Float | Kind::Integer | Kind::Unsigned => {
                let (bytes, _) = from.take(self.count.checked_mul(8)?)?.as_chunks::<8>();
                let bits: Vec<u64> = bytes.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                points.extend_bits(self.kind, &times, &bits);
            }
            Kind::Boolean => {
                let bits: Vec<u64> = from.take(self.count)?.iter().map(|byte| u64::from(*byte != 0)).collect();
                points.extend_bits(self.kind, &times, &bits);
            }
            Kind::Text => times.iter().try_for_each(|time| {
                points.push(*time, ValueRef::Text(from.text()?));
                Some(())
            })?,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        crate::model::key("db", "cpu", "host=a,core=1", "user")
    }

    #[test]
    fn commands_come_back_as_they_were() {
        let mut points = Points::new();
        for (time, value) in [
            (5, ValueRef::Float(1.5)),
            (3, ValueRef::Float(f64::NAN)),
            (i64::MAX, ValueRef::Integer(-1)),
            (i64::MIN, ValueRef::Text("a")),
            (0, ValueRef::Boolean(true)),
        ] {
            points.push(time, value);
        }
        let mut part = Vec::new();
        put_declare(7, Kind::Float, &key(), &mut part);
        put_points(7, &points, false, &mut part);
        put_delete(7, Range { from: -1, to: 9 }, &mut part);
        put_drop(7, &mut part);
        put_database("x", &mut part);
        put_forget("x", &mut part);
        let all: Vec<_> = commands(&part).map(Result::unwrap).collect();
        assert_eq!(all[0], Command::Declare { number: 7, kind: Kind::Float, key: key() });
        let mut back = Points::new();
        for command in &all {
            if let Command::Points { values, .. } = command {
                values.read(&mut back).unwrap();
            }
        }
        assert_eq!(back, points);
        let end = [
            Command::Delete { number: 7, range: Range { from: -1, to: 9 } },
            Command::Drop { number: 7 },
            Command::Database { name: "x" },
            Command::Forget { name: "x" },
        ];
        assert_eq!(all[all.len() - 4..], end);
        assert!(commands(&part[..part.len() - 1]).any(|command| command == Err(MALFORMED)));
    }

    #[test]
    fn integers_become_doubles_where_nothing_is_lost() {
        let mut points = Points::new();
        points.push(1, ValueRef::Integer(-3));
        points.push(2, ValueRef::Integer(i64::MAX));
        let kinds = |points: &Points| {
            let mut part = Vec::new();
            put_points(1, points, true, &mut part);
            let kind = |command: Result<Command<'_>>| match command {
                Ok(Command::Points { values, .. }) => values.kind,
                other => panic!("{other:?}"),
            };
            commands(&part).map(kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&points), [Kind::Integer]);
        let mut small = Points::new();
        small.extend_from(&points, 0..1);
        assert_eq!(kinds(&small), [Kind::Float]);
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_refused_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for command in commands(&bytes) {
                if let Ok(Command::Points { values, .. }) = command {
                    prop_assert!(values.read(&mut Points::new()).is_some());
                }
            }
        }
    }
}
