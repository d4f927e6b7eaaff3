//! Points on their way into a store, by series, and what is known of the names they were written under.
//!
//! Whoever reads a protocol keeps one of these: the bytes of a name as they were sent (`cpu,host=a`) are looked for in a table, and
//! only a name that is not there is parsed, checked and made one of ours. The table stays when the points are gone.
//!
//! May use: `key`, `points`. Must not know: protocols, partitions' contents.

use hashbrown::HashTable;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::points::Points;
use crate::value::ValueRef;

/// Names remembered at most; beyond it all are forgotten as soon as there are no points.
const NAMES_MAX: usize = 1 << 16;

/// A metric with its tags, in one database, as [`Rows`] knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row(u32);

/// A series as [`Rows`] knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

/// How types of values are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Typing {
    /// All numbers go together: an integer in a series of doubles becomes one if nothing is lost by that.
    #[default]
    Numbers,
    /// A series has the type of its first value, and others are refused, as InfluxDB does.
    Strict,
}

/// Points to be written, by series.
#[derive(Debug, Default)]
pub struct Rows {
    typing: Typing,
    database: String,
    /// Rows by what they were called.
    named: HashTable<u32>,
    rows: Vec<RowState>,
    slots: Vec<SlotState>,
    /// Slots that have points, in the order in which they came to have some.
    touched: Vec<u32>,
    points: usize,
    /// Two names were seen that may mean one series: tags in another order, another way of escaping.
    same_twice: bool,
    /// Hashes of what rows mean.
    meant: HashTable<u32>,
}

#[derive(Debug)]
struct RowState {
    hash: u64,
    raw: Box<[u8]>,
    key: Key,
    /// Names of fields as they were sent.
    fields: Vec<(Box<[u8]>, Slot)>,
}

#[derive(Debug)]
struct SlotState {
    row: u32,
    field: Box<str>,
    points: Points,
    place: Option<Place>,
}

/// Where a series lies, as a store found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The partition.
    pub partition: u16,
    /// The number there.
    pub number: u32,
    /// How many series had been dropped there by then: the number is good while that is so.
    pub dropped: u64,
}

/// Points of one series that are to be written.
#[derive(Debug)]
pub struct Pending<'a> {
    /// Metric, tags and database; its field is not that of the series.
    pub row: &'a Key,
    /// The field.
    pub field: &'a str,
    /// Where it lies, if that is known.
    pub place: Option<Place>,
    /// The points, in the order in which they came.
    pub points: &'a Points,
    /// Whether another name of the same series may be among what is to be written.
    pub may_be_twice: bool,
}

impl Rows {
    /// No points, of the database `database`.
    #[must_use]
    pub fn new(database: &str) -> Self {
        Self { database: database.to_owned(), ..Self::default() }
    }

    /// How types of values are taken.
    pub fn set_typing(&mut self, typing: Typing) {
        self.typing = typing;
    }

    /// How types of values are taken.
    #[must_use]
    pub fn typing(&self) -> Typing {
        self.typing
    }

    /// Names the database of what comes next.
    pub fn set_database(&mut self, database: &str) {
        if self.database != database {
            database.clone_into(&mut self.database);
        }
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// The row that is called `raw`, in a form that the protocol chooses; `parse` says what that means when it was never seen:
    /// the metric, and the tags in any order. Protocols that write names in different ways have to have different `raw`.
    ///
    /// # Errors
    /// What `parse` says; [`Error::Invalid`] when a name is empty or a tag comes twice.
    pub fn row(
        &mut self,
        raw: &[u8],
        parse: impl FnOnce(&[u8]) -> Result<(String, Vec<(String, String)>)>,
    ) -> Result<Row> {
        let hash = base::hash64(raw) ^ base::hash64(self.database.as_bytes()).rotate_left(1);
        let rows = &self.rows;
        let is_it =
            |at: &u32| rows.get(*at as usize).is_some_and(|row| *row.raw == *raw && row.key.database == self.database);
        if let Some(at) = self.named.find(hash, is_it) {
            return Ok(Row(*at));
        }
        let (metric, mut tags) = parse(raw)?;
        tags.sort();
        check(&metric, &tags)?;
        let key = Key { database: self.database.clone(), metric, tags, field: String::new() };
        self.same_twice |= self.is_known_otherwise(&key);
        let at = u32::try_from(self.rows.len()).map_err(|_| Error::invalid("too many names in one request"))?;
        self.rows.push(RowState { hash, raw: raw.into(), key, fields: Vec::new() });
        let rows = &self.rows;
        self.named.insert_unique(hash, at, |at| rows.get(*at as usize).map_or(0, |row| row.hash));
        self.meant.insert_unique(rows.last().map_or(0, |row| row.key.row_hash()), at, |at| {
            rows.get(*at as usize).map_or(0, |row| row.key.row_hash())
        });
        Ok(Row(at))
    }

    fn is_known_otherwise(&self, key: &Key) -> bool {
        let is_it = |at: &u32| self.rows.get(*at as usize).is_some_and(|row| row.key == *key);
        self.meant.find(key.row_hash(), is_it).is_some()
    }

    /// The series of a row's field that is called `raw`; `nth` says which of the row's fields it was when it came last, which is
    /// where it is looked for first. `decode` says what the name means when it was never seen.
    ///
    /// # Errors
    /// What `decode` says; [`Error::Invalid`] when the name is empty.
    pub fn field(
        &mut self,
        row: Row,
        nth: usize,
        raw: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<String>,
    ) -> Result<Slot> {
        let state = self.rows.get_mut(row.0 as usize).expect("rows are not forgotten while there are points");
        if let Some((name, slot)) = state.fields.get(nth)
            && **name == *raw
        {
            return Ok(*slot);
        }
        if let Some((_, slot)) = state.fields.iter().find(|(name, _)| **name == *raw) {
            return Ok(*slot);
        }
        let field = decode(raw)?;
        if field.is_empty() {
            return Err(Error::invalid("the name of a field is empty"));
        }
        let slots = &self.slots;
        let is_it = |slot: Slot| slots.get(slot.0 as usize).is_some_and(|slot| *slot.field == *field);
        if let Some((_, slot)) = state.fields.iter().find(|(_, slot)| is_it(*slot)) {
            // The same name, escaped in another way.
            let slot = *slot;
            state.fields.push((raw.into(), slot));
            return Ok(slot);
        }
        let slot = Slot(u32::try_from(self.slots.len()).map_err(|_| Error::invalid("too many names in one request"))?);
        state.fields.push((raw.into(), slot));
        self.slots.push(SlotState { row: row.0, field: field.into(), points: Points::new(), place: None });
        Ok(slot)
    }

    /// Adds a point.
    pub fn push(&mut self, slot: Slot, time: i64, value: ValueRef<'_>) {
        self.points_of(slot).push(time, value);
    }

    /// Adds a point that is a double.
    pub fn push_float(&mut self, slot: Slot, time: i64, value: f64) {
        self.points_of(slot).push_float(time, value);
    }

    fn points_of(&mut self, slot: Slot) -> &mut Points {
        let state = self.slots.get_mut(slot.0 as usize).expect("slots are not forgotten while there are points");
        if state.points.is_empty() {
            self.touched.push(slot.0);
        }
        self.points += 1;
        &mut state.points
    }

    /// What is to be written, in the order in which the series came; the number of each for [`Rows::note`].
    pub fn pending(&self) -> impl Iterator<Item = (Slot, Pending<'_>)> {
        self.touched.iter().filter_map(|at| Some((Slot(*at), self.pending_of(Slot(*at))?)))
    }

    /// What is to be written of one series.
    #[must_use]
    pub fn pending_of(&self, slot: Slot) -> Option<Pending<'_>> {
        let slot = self.slots.get(slot.0 as usize)?;
        let row = self.rows.get(slot.row as usize)?;
        Some(Pending {
            row: &row.key,
            field: &slot.field,
            place: slot.place,
            points: &slot.points,
            may_be_twice: self.same_twice,
        })
    }

    /// Notes where a series lies.
    pub fn note(&mut self, slot: Slot, place: Option<Place>) {
        if let Some(slot) = self.slots.get_mut(slot.0 as usize) {
            slot.place = place;
        }
    }

    /// Forgets the points, and keeps the names unless there are too many.
    pub fn clear(&mut self) {
        if self.slots.len() > NAMES_MAX || self.rows.len() > NAMES_MAX {
            let (database, typing) = (std::mem::take(&mut self.database), self.typing);
            *self = Self { database, typing, ..Self::default() };
            return;
        }
        for at in self.touched.drain(..) {
            if let Some(slot) = self.slots.get_mut(at as usize) {
                slot.points.clear();
            }
        }
        self.points = 0;
    }
}

fn check(metric: &str, tags: &[(String, String)]) -> Result<()> {
    if metric.is_empty() {
        return Err(Error::invalid("the name of the metric is empty"));
    }
    for (name, value) in tags {
        if name.is_empty() {
            return Err(Error::invalid("the name of a tag is empty"));
        }
        if value.is_empty() {
            return Err(Error::invalid(format!("the tag {name} has no value: leave it out")));
        }
    }
    let twice = tags.windows(2).find(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
    match twice {
        Some([(name, _), ..]) => Err(Error::invalid(format!("the tag {name} is there twice"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &[u8]) -> Result<(String, Vec<(String, String)>)> {
        let text = std::str::from_utf8(raw).map_err(|_| Error::Malformed { what: "name" })?;
        let mut parts = text.split(',');
        let metric = parts.next().unwrap_or_default().to_owned();
        let tags =
            parts.filter_map(|tag| tag.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect();
        Ok((metric, tags))
    }

    #[test]
    fn a_name_is_parsed_once_and_its_points_are_together() {
        let mut rows = Rows::new("default");
        for time in 0..3 {
            for host in ["m,b=2,a=1", "m,a=2"] {
                let row =
                    rows.row(host.as_bytes(), |raw| if time == 0 { parse(raw) } else { panic!("known") }).unwrap();
                for (nth, name) in ["x", "y"].into_iter().enumerate() {
                    let slot = rows.field(row, nth, name.as_bytes(), |_| Ok(name.to_owned())).unwrap();
                    rows.push(slot, time, ValueRef::Integer(7));
                }
            }
        }
        let seen: Vec<_> = rows.pending().map(|(_, it)| (it.row.tags.clone(), it.field, it.points.len())).collect();
        let ab = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
        assert_eq!(seen.len(), 4);
        assert_eq!((seen[1].clone(), rows.len()), ((ab, "y", 3), 12));
        rows.clear();
        assert!(rows.is_empty() && rows.pending().next().is_none());
        rows.set_database("other");
        let row = rows.row(b"m,a=2", parse).unwrap();
        let slot = rows.field(row, 0, b"x", |_| Ok("x".to_owned())).unwrap();
        rows.push_float(slot, 1, 1.0);
        assert_eq!(rows.pending().next().map(|(_, it)| it.row.database.clone()), Some("other".to_owned()));
    }

    #[test]
    fn names_that_cannot_be_are_refused_with_the_reason() {
        let mut rows = Rows::new("default");
        for (raw, reason) in [
            ("", "the name of the metric is empty"),
            ("m,a=1,a=2", "the tag a is there twice"),
            ("m,a=", "the tag a has no value: leave it out"),
            ("m,=1", "the name of a tag is empty"),
        ] {
            assert_eq!(rows.row(raw.as_bytes(), parse).map_err(|error| error.to_string()), Err(reason.to_owned()));
        }
    }
}
