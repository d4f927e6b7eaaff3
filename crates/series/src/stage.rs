//! Points that are to be written to one partition, made into a part of a section.
//!
//! May use: `engine`, `command`, `rows`. Must not know: the journal.

use crate::command::{put_database, put_declare, put_delete, put_drop, put_forget, put_points};
use crate::engine::Engine;
use crate::key::Key;
use crate::points::Points;
use crate::rows::{Pending, Typing};
use crate::source::Range;
use crate::value::{Kind, ValueRef};

/// A part of a section that is being made, for the partition's engine as it is now: keep it locked until the part is applied.
#[derive(Debug, Default)]
pub struct Stage {
    part: Vec<u8>,
    declared: usize,
}

/// What bounds a partition's series.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Series that may be declared yet, of all partitions.
    pub series_left: usize,
    /// Tags of a series at most.
    pub tags_max: usize,
    /// Bytes of a name or a tag's value at most.
    pub name_bytes_max: usize,
    /// Bytes of a value that is text at most.
    pub text_bytes_max: usize,
}

/// Points that were added.
#[derive(Debug)]
pub struct Staged {
    /// Of their series.
    pub number: u32,
    /// How many were left out because of their type or length.
    pub misfits: usize,
    /// Why.
    pub reason: String,
}

impl Stage {
    /// Adds points, once for each series: [`crate::Rows`] has all of one series together. The series' number, or why they cannot be
    /// written. A series that is new gets the type of its first value, unless there are types `of_field` and that is none of them:
    /// then it gets the first of these.
    ///
    /// # Errors
    /// A sentence for whoever sent them.
    pub fn points(
        &mut self,
        engine: &Engine,
        pending: &Pending<'_>,
        typing: Typing,
        (bounds, of_field): (&Bounds, &[Kind]),
    ) -> Result<Staged, String> {
        let known = pending
            .place
            .filter(|place| place.dropped == engine.dropped())
            .map(|place| place.number)
            .or_else(|| engine.find(pending.row, pending.field))
            .and_then(|number| Some((number, engine.kind(number)?)));
        let kind = match known {
            Some((_, kind)) => kind,
            None => {
                check_name(pending, bounds)?;
                if self.declared >= bounds.series_left {
                    return Err(
                        "there are as many series as the limit series_max allows: drop some, or raise it".into()
                    );
                }
                let first = pending.points.kind_at(0).unwrap_or(Kind::Float);
                if of_field.contains(&first) { first } else { of_field.first().copied().unwrap_or(first) }
            }
        };
        let (longest, text_bytes_max) = (pending.points.longest_text(), bounds.text_bytes_max);
        let reason = match fits(pending.points, pending, typing, kind) {
            Err(reason) => reason,
            Ok(_) if longest > text_bytes_max => {
                let (field, metric) = (pending.field, &pending.row.metric);
                format!(
                    "a text has at most {text_bytes_max} bytes, not {longest}: field \"{field}\" on measurement \"{metric}\""
                )
            }
            Ok(widen) => {
                let number = self.number(engine, pending, known, kind);
                put_points(number, pending.points, widen, &mut self.part);
                return Ok(Staged { number, misfits: 0, reason: String::new() });
            }
        };
        // Rare: what fits is written, so that one bad point costs no others.
        let fitting = fitting(pending.points, typing, kind, text_bytes_max);
        if fitting.is_empty() {
            return Err(reason);
        }
        let widen = fits(&fitting, pending, typing, kind)?;
        let number = self.number(engine, pending, known, kind);
        put_points(number, &fitting, widen, &mut self.part);
        Ok(Staged { number, misfits: pending.points.len() - fitting.len(), reason })
    }

    /// The number of a series, which is declared if it is new.
    fn number(&mut self, engine: &Engine, pending: &Pending<'_>, known: Option<(u32, Kind)>, kind: Kind) -> u32 {
        known.map_or_else(|| self.declare(engine, pending, kind), |(number, _)| number)
    }

    fn declare(&mut self, engine: &Engine, pending: &Pending<'_>, kind: Kind) -> u32 {
        let declared = u32::try_from(self.declared).expect("a batch has fewer series than 32 bits count");
        let number = engine.next() + declared;
        let key = Key { field: pending.field.to_owned(), ..pending.row.clone() };
        put_declare(number, kind, &key, &mut self.part);
        self.declared += 1;
        number
    }

    /// How many series are new.
    #[must_use]
    pub fn declared(&self) -> usize {
        self.declared
    }

    /// Deletes points of a series.
    pub fn delete(&mut self, number: u32, range: Range) {
        put_delete(number, range, &mut self.part);
    }

    /// Drops a series.
    pub fn drop_series(&mut self, number: u32) {
        put_drop(number, &mut self.part);
    }

    /// Notes a database by name.
    pub fn database(&mut self, name: &str) {
        put_database(name, &mut self.part);
    }

    /// Forgets a database by name.
    pub fn forget(&mut self, name: &str) {
        put_forget(name, &mut self.part);
    }

    /// What was added so far.
    #[must_use]
    pub fn part(&self) -> &[u8] {
        &self.part
    }
}

fn check_name(pending: &Pending<'_>, bounds: &Bounds) -> Result<(), String> {
    let row = pending.row;
    if row.tags.len() > bounds.tags_max {
        return Err(format!("a series has at most {} tags, not {}", bounds.tags_max, row.tags.len()));
    }
    let tags = row.tags.iter().flat_map(|(name, value)| [name.as_str(), value]);
    let longest = tags.chain([row.database.as_str(), &row.metric, pending.field]).map(str::len).max().unwrap_or(0);
    if longest > bounds.name_bytes_max {
        return Err(format!("a name or a tag's value has at most {} bytes, not {longest}", bounds.name_bytes_max));
    }
    Ok(())
}

fn goes_with(other: Kind, typing: Typing, kind: Kind) -> bool {
    let is_number = |kind: Kind| matches!(kind, Kind::Float | Kind::Integer | Kind::Unsigned);
    other == kind || typing == Typing::Numbers && is_number(other) && is_number(kind)
}

/// The points whose types go with the series', and whose texts are not too long.
fn fitting(points: &Points, typing: Typing, kind: Kind, text_bytes_max: usize) -> Points {
    let mut fitting = Points::new();
    let is_short =
        |value: ValueRef<'_>| if let ValueRef::Text(text) = value { text.len() <= text_bytes_max } else { true };
    for (time, value) in points.iter().filter(|(_, value)| goes_with(value.kind(), typing, kind) && is_short(*value)) {
        fitting.push(time, value);
    }
    fitting
}

/// Whether the points' types go with the series'; and whether integers become doubles.
fn fits(points: &Points, pending: &Pending<'_>, typing: Typing, kind: Kind) -> Result<bool, String> {
    let one = points.kind();
    if one == Some(kind) {
        return Ok(false);
    }
    let all = (0..points.len()).filter_map(|at| points.kind_at(at));
    let other = all.into_iter().find(|other| !goes_with(*other, typing, kind));
    match other {
        None => Ok(kind == Kind::Float),
        Some(other) => Err(format!(
            "field type conflict: input field \"{}\" on measurement \"{}\" is type {}, already exists as type {}",
            pending.field,
            pending.row.metric,
            other.name(),
            kind.name()
        )),
    }
}
