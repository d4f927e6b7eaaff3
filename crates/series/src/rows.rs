//! Points on their way into a store, by series, and what is known of the names they were written under.
//!
//! Whoever reads a protocol keeps one of these: the bytes of a name as they were sent (`cpu,host=a`) are looked for in a table, and
//! only a name that is not there is parsed, checked and made one of ours. The table stays when the points are gone.
//!
//! Names that mean the same (`cpu,a=1,b=2` and `cpu,b=2,a=1`) lead to the same row, so that of two points with one time the one
//! that came later stays, however they were written.
//!
//! May use: `key`, `points`. Must not know: protocols, partitions' contents.

use hashbrown::HashTable;

use crate::error::{Error, Result};
use crate::key::{FIELD_DEFAULT, Key, check, check_name};
use crate::points::Points;
use crate::value::ValueRef;

/// What a series takes beside its names, with its row and their places in tables (measured: 550 bytes with a short name).
const SLOT_BYTES: usize = 512;
/// What a point takes, in a vector that may be twice as long.
const POINT_BYTES: usize = 32;

/// Names remembered at most; beyond it all are forgotten as soon as there are no points.
const NAMES_MAX: usize = 1 << 16;
/// Bytes of memory that names may take, with what belongs to them; beyond it they are forgotten, too. That is 1 KiB for each of
/// [`NAMES_MAX`].
const NAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of one name with its tags, as it was sent. Twice what a store's own limits allow, because what is sent may have escapes; these
/// tell more exactly what is too long, but only after the name was taken to pieces and remembered.
const NAME_SENT_BYTES_MAX: usize = 1 << 20;
/// Points of one series for which memory is kept between batches: with all names in use that is 64 MiB and never more.
const POINTS_KEPT: usize = 64;
/// Names of fields of one row at most: they are looked through one after the other.
const FIELDS_MAX: usize = 4096;

/// A metric with its tags, in one database, as [`Rows`] knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row(u32);

/// A series as [`Rows`] knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

/// Who has written points, for whoever must tell them what became of these; a number that the reader of the protocol gives out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(pub u32);

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
    /// Databases that were named, and which of them is meant now.
    databases: Vec<String>,
    database: u32,
    names: Vec<Name>,
    /// Names by their bytes.
    named: HashTable<u32>,
    /// The name that came last: lines about one thing often come together.
    last: u32,
    rows: Vec<RowState>,
    /// Rows by their keys.
    keyed: HashTable<u32>,
    slots: Vec<SlotState>,
    /// Slots that have points, in the order in which they came to have some.
    touched: Vec<u32>,
    points: usize,
    owner: Option<Owner>,
    /// Bytes of memory that names take, nearly.
    name_bytes: usize,
}

/// What a row was called.
#[derive(Debug)]
struct Name {
    hash: u64,
    raw: Box<[u8]>,
    database: u32,
    row: u32,
    /// The row's series of the default field, once it was asked for: who has no fields finds it without looking at the row.
    slot: Option<Slot>,
}

#[derive(Debug)]
struct RowState {
    hash: u64,
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
    /// Who has written the points, while it is one.
    owner: Option<Owner>,
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
    /// Who has written all of them, if it is one and was named.
    pub owner: Option<Owner>,
}

impl Rows {
    /// No points, of the database `database`.
    #[must_use]
    pub fn new(database: &str) -> Self {
        Self { databases: vec![database.to_owned()], ..Self::default() }
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
        let known = self.databases.iter().position(|known| known == database);
        let at = known.unwrap_or_else(|| {
            self.name_bytes += size_of::<String>() + database.len();
            self.databases.push(database.to_owned());
            self.databases.len() - 1
        });
        self.database = u32::try_from(at).expect("names are forgotten long before");
    }

    /// The database of what comes next.
    #[must_use]
    pub fn database(&self) -> &str {
        self.databases.get(self.database as usize).map_or("", String::as_str)
    }

    /// Names who writes what comes next.
    pub fn set_owner(&mut self, owner: Option<Owner>) {
        self.owner = owner;
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

    /// Bytes of memory that the names take which are remembered, nearly.
    #[must_use]
    pub fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Bytes of memory that everything takes, nearly: names, series, points. What texts among the values take is not counted.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.name_bytes + self.slots.len() * SLOT_BYTES + self.points * POINT_BYTES
    }

    /// Whether so many names are remembered that they are to be forgotten. Who adds to them has the points written, if there are any,
    /// and calls [`Rows::clear`]: names come without points too, of lines that are bad.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let names = self.slots.len().max(self.names.len()).max(self.databases.len());
        names > NAMES_MAX || self.name_bytes > NAME_BYTES_MAX
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
        let at = self.name(raw, parse)?;
        Ok(Row(self.names.get(at as usize).expect("just found").row))
    }

    /// The series that is called `raw` in a protocol without fields: [`Rows::row`] and its default field in one.
    ///
    /// # Errors
    /// As [`Rows::row`].
    pub fn series(
        &mut self,
        raw: &[u8],
        parse: impl FnOnce(&[u8]) -> Result<(String, Vec<(String, String)>)>,
    ) -> Result<Slot> {
        let at = self.name(raw, parse)? as usize;
        let name = self.names.get(at).expect("just found");
        if let Some(slot) = name.slot {
            return Ok(slot);
        }
        let row = Row(name.row);
        let slot = self.field(row, 0, FIELD_DEFAULT.as_bytes(), |_| Ok(FIELD_DEFAULT.to_owned()))?;
        self.names.get_mut(at).expect("just found").slot = Some(slot);
        Ok(slot)
    }

    /// The name `raw`: its number.
    fn name(
        &mut self,
        raw: &[u8],
        parse: impl FnOnce(&[u8]) -> Result<(String, Vec<(String, String)>)>,
    ) -> Result<u32> {
        let database = self.database;
        let is_it = |name: &Name| *name.raw == *raw && name.database == database;
        if let Some(name) = self.names.get(self.last as usize)
            && is_it(name)
        {
            return Ok(self.last);
        }
        let hash = base::hash64(raw).wrapping_add(u64::from(database).wrapping_mul(SPREAD));
        let names = &self.names;
        let found = self.named.find(hash, |at| names.get(*at as usize).is_some_and(is_it));
        if let Some(at) = found {
            self.last = *at;
            return Ok(*at);
        }
        if raw.len() > NAME_SENT_BYTES_MAX {
            let bytes = raw.len();
            let text =
                format!("the name of a series has at most {NAME_SENT_BYTES_MAX} bytes with its tags, not {bytes}");
            return Err(Error::invalid(text));
        }
        let (metric, mut tags) = parse(raw)?;
        tags.sort();
        check(&metric, &tags)?;
        check_name("database", self.databases.get(database as usize).map_or("", |name| name))?;
        let row = self.row_of(metric, tags)?;
        let at = number(self.names.len())?;
        self.name_bytes += size_of::<Name>() + raw.len();
        self.names.push(Name { hash, raw: raw.into(), database, row, slot: None });
        let names = &self.names;
        self.named.insert_unique(hash, at, |at| names.get(*at as usize).map_or(0, |name| name.hash));
        self.last = at;
        Ok(at)
    }

    /// The row of this metric and these tags.
    fn row_of(&mut self, metric: String, tags: Vec<(String, String)>) -> Result<u32> {
        let database = self.databases.get(self.database as usize).cloned().unwrap_or_default();
        let key = Key { database, metric, tags, field: String::new() };
        let hash = key.row_hash();
        let rows = &self.rows;
        if let Some(at) = self.keyed.find(hash, |at| rows.get(*at as usize).is_some_and(|row| row.key == key)) {
            return Ok(*at);
        }
        let at = number(self.rows.len())?;
        self.name_bytes += size_of::<RowState>() + text_bytes(&key);
        self.rows.push(RowState { hash, key, fields: Vec::new() });
        let rows = &self.rows;
        self.keyed.insert_unique(hash, at, |at| rows.get(*at as usize).map_or(0, |row| row.hash));
        Ok(at)
    }

    /// The series of a row's field that is called `raw`; `nth` says which of the row's fields it was when it came last, which is
    /// where it is looked for first. `decode` says what the name means when it was never seen.
    ///
    /// # Errors
    /// What `decode` says; [`Error::Invalid`] when the name is empty, or there are too many.
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
        if state.fields.len() >= FIELDS_MAX {
            let text = format!("one series has at most {FIELDS_MAX} fields: make what tells them apart a tag");
            return Err(Error::invalid(text));
        }
        let field = decode(raw)?;
        if field.is_empty() {
            return Err(Error::invalid("the name of a field is empty"));
        }
        check_name("field", &field)?;
        let slots = &self.slots;
        let is_it = |slot: &&Slot| slots.get(slot.0 as usize).is_some_and(|slot| *slot.field == *field);
        self.name_bytes += size_of::<(Box<[u8]>, Slot)>() + raw.len();
        if let Some(slot) = state.fields.iter().map(|(_, slot)| slot).find(is_it).copied() {
            state.fields.push((raw.into(), slot));
            return Ok(slot);
        }
        let slot = Slot(number(self.slots.len())?);
        self.name_bytes += size_of::<SlotState>() + field.len();
        state.fields.push((raw.into(), slot));
        let points = Points::new();
        self.slots.push(SlotState { row: row.0, field: field.into(), points, place: None, owner: None });
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
            state.owner = self.owner;
        } else if state.owner != self.owner {
            state.owner = None;
        }
        self.points += 1;
        &mut state.points
    }

    /// What is to be written, in the order in which the series came; the number of each for [`Rows::note`].
    pub fn pending(&self) -> impl Iterator<Item = (Slot, Pending<'_>)> {
        self.touched.iter().filter_map(|at| {
            let slot = self.slots.get(*at as usize)?;
            let row = self.rows.get(slot.row as usize)?;
            Some((Slot(*at), slot.pending(row)))
        })
    }

    /// What is to be written of one series.
    #[must_use]
    pub fn pending_of(&self, slot: Slot) -> Option<Pending<'_>> {
        let slot = self.slots.get(slot.0 as usize)?;
        let row = self.rows.get(slot.row as usize)?;
        Some(slot.pending(row))
    }

    /// Notes where a series lies.
    pub fn note(&mut self, slot: Slot, place: Option<Place>) {
        if let Some(slot) = self.slots.get_mut(slot.0 as usize) {
            slot.place = place;
        }
    }

    /// Forgets the points, and keeps the names unless there are too many.
    pub fn clear(&mut self) {
        if self.is_crowded() {
            let database = self.databases.get(self.database as usize).cloned().unwrap_or_default();
            *self = Self { owner: self.owner, typing: self.typing, ..Self::new(&database) };
            return;
        }
        for at in self.touched.drain(..) {
            match self.slots.get_mut(at as usize) {
                Some(slot) if slot.points.len() > POINTS_KEPT => slot.points = Points::new(),
                Some(slot) => slot.points.clear(),
                None => {}
            }
        }
        self.points = 0;
    }
}

impl SlotState {
    fn pending<'a>(&'a self, row: &'a RowState) -> Pending<'a> {
        let Self { field, place, points, owner, .. } = self;
        Pending { row: &row.key, field, place: *place, points, owner: *owner }
    }
}

/// Keeps names of different databases apart in the table.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn number(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::invalid("too many names in one request"))
}

/// Bytes that the parts of a name take behind the name itself.
fn text_bytes(key: &Key) -> usize {
    let tags = key.tags.iter().map(|tag| size_of_val(tag) + tag.0.len() + tag.1.len());
    key.database.len() + key.metric.len() + tags.sum::<usize>()
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
    fn names_that_mean_the_same_are_one_series_and_the_same_name_elsewhere_is_another() {
        let mut rows = Rows::new("default");
        let mut push = |database: &str, raw: &str, field: &str, time| {
            rows.set_database(database);
            let row = rows.row(raw.as_bytes(), parse).unwrap();
            let decode = |raw: &[u8]| Ok(String::from_utf8_lossy(raw).replace('\\', ""));
            let slot = rows.field(row, 0, field.as_bytes(), decode).unwrap();
            rows.push_float(slot, time, 1.0);
            slot
        };
        let first = push("a", "m,x=1,y=2", "f", 1);
        assert_eq!(push("a", "m,y=2,x=1", "\\f", 2), first);
        assert_eq!(push("a", "m,y=2,x=1", "\\f", 3), first);
        assert_ne!(push("b", "m,x=1,y=2", "f", 1), first);
        let series = |database: &str, raw: &str| {
            let mut rows = Rows::new(database);
            let slot = rows.series(raw.as_bytes(), parse).unwrap();
            assert_eq!(rows.series(raw.as_bytes(), |_| panic!("known")).unwrap(), slot);
            let row = rows.row(raw.as_bytes(), |_| panic!("known")).unwrap();
            assert_eq!(rows.field(row, 0, b"value", |_| panic!("known")).unwrap(), slot);
        };
        series("a", "m,x=1");
        assert_ne!(push("a", "m,x=1", "f", 1), first);
        let counts: Vec<_> = rows.pending().map(|(_, it)| (it.row.database.as_str(), it.points.len())).collect();
        assert_eq!(counts, [("a", 3), ("b", 1), ("a", 1)]);
    }

    #[test]
    fn who_has_written_all_points_of_a_series_is_known_and_nobody_when_it_was_several() {
        let mut rows = Rows::new("default");
        let mut push = |owner, raw: &str| {
            rows.set_owner(Some(Owner(owner)));
            let row = rows.row(raw.as_bytes(), parse).unwrap();
            let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
            rows.push_float(slot, 1, 1.0);
        };
        for (owner, raw) in [(1, "m,a=1"), (2, "m,a=2"), (1, "m,a=1"), (1, "m,a=3"), (2, "m,a=3")] {
            push(owner, raw);
        }
        let owners: Vec<_> = rows.pending().map(|(_, it)| it.owner.map(|owner| owner.0)).collect();
        assert_eq!(owners, [Some(1), Some(2), None]);
        rows.clear();
        let row = rows.row(b"m,a=3", parse).unwrap();
        let slot = rows.field(row, 0, b"f", |_| Ok("f".to_owned())).unwrap();
        rows.push_float(slot, 1, 1.0);
        assert_eq!(rows.pending_of(slot).and_then(|it| it.owner), Some(Owner(2)));
    }

    #[test]
    fn names_are_forgotten_when_they_take_much_memory_however_few_they_are() {
        const LONG: usize = 1000 << 10;
        let mut rows = Rows::new("default");
        let push = |rows: &mut Rows, raw: &[u8], field: &[u8]| {
            let row = rows.row(raw, parse).unwrap();
            let slot = rows.field(row, 0, field, |raw| Ok(String::from_utf8(raw.to_vec()).unwrap())).unwrap();
            rows.push_float(slot, 1, 1.0);
        };
        for nth in 0..200 {
            let long = format!("m,t={nth}{}", "a".repeat(LONG));
            match nth % 2 {
                0 => push(&mut rows, long.as_bytes(), b"f"),
                _ => push(&mut rows, b"m", long.as_bytes()),
            }
            assert!(rows.name_bytes() >= 2 * LONG, "they are counted");
            rows.clear();
            assert!(rows.name_bytes() <= NAME_BYTES_MAX && !rows.is_crowded());
        }
        push(&mut rows, b"m,t=1", b"f");
        let bytes = rows.name_bytes();
        push(&mut rows, b"m,t=1", b"f");
        assert_eq!(rows.name_bytes(), bytes, "a name that is known takes nothing");
    }

    #[test]
    fn names_without_points_make_it_crowded_and_are_forgotten() {
        let mut rows = Rows::new("default");
        for nth in 0..=NAMES_MAX {
            assert!(!rows.is_crowded());
            rows.row(format!("m,t={nth}").as_bytes(), parse).unwrap();
        }
        assert!(rows.is_crowded() && rows.is_empty());
        rows.clear();
        assert!(!rows.is_crowded() && rows.name_bytes() == 0);
    }

    #[test]
    fn a_name_that_no_store_takes_is_refused_before_it_is_taken_to_pieces() {
        let mut rows = Rows::new("default");
        let long = "a".repeat(NAME_SENT_BYTES_MAX + 1);
        let reason = "the name of a series has at most 1048576 bytes with its tags, not 1048577".to_owned();
        assert_eq!(rows.row(long.as_bytes(), |_| panic!("parsed")).map_err(|error| error.to_string()), Err(reason));
        assert_eq!(rows.name_bytes(), 0);
    }

    #[test]
    fn control_characters_are_in_no_name_but_may_be_in_what_a_tag_says() {
        for (database, raw, field, what) in [
            ("\0xa", "cpu", "value", "database"),
            ("db", "c\x1bpu", "value", "metric"),
            ("db", "cpu,ho\tst=a", "value", "tag"),
            ("db", "cpu", "val\nue", "field"),
        ] {
            let mut rows = Rows::new(database);
            let row = rows.row(raw.as_bytes(), parse);
            let named = row.and_then(|row| rows.field(row, 0, field.as_bytes(), |_| Ok(field.to_owned())));
            let text = named.unwrap_err().to_string();
            assert!(text.starts_with(&format!("the name of the {what} has control characters: ")), "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
        assert!(Rows::new("db").row(b"cpu,host=two\nlines", parse).is_ok());
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
