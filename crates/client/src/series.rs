//! Points of time series, in the process or on a server.
//!
//! May use: `call`, `embedded`, `remote`, the facade. Must not know: sockets.

use std::time::Duration;

use holdfast::series::{
    FIELD_DEFAULT, Match, Points, Range, Reader, Rows, Select, SeriesId, Source, TagMatch, Value, ValueRef,
};
use holdfast::{Durability, Error, ErrorKind, Result, Shown};

use crate::call::Call;
use crate::client::Place;
use crate::remote::{Again, Reply, Words, strange};

const SECOND: i64 = 1_000_000_000;
const DATABASE_DEFAULT: &str = "default";
/// Points of one command.
const POINTS_MAX: usize = 10_000;

/// Points by series and time. See [`holdfast::series`].
#[derive(Clone)]
pub struct Series {
    place: Place,
}

/// The name of a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesName {
    /// The database; `default` unless told otherwise.
    pub database: String,
    /// The metric.
    pub metric: String,
    /// Tags and their values.
    pub tags: Vec<(String, String)>,
    /// The field; `value` unless told otherwise.
    pub field: String,
}

/// One point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Nanoseconds since 1970.
    pub time: i64,
    /// A server takes integers and floating-point numbers.
    pub value: Value,
}

impl SeriesName {
    /// A metric without tags.
    #[must_use]
    pub fn new(metric: &str) -> Self {
        let (database, field) = (DATABASE_DEFAULT.to_owned(), FIELD_DEFAULT.to_owned());
        Self { database, metric: metric.to_owned(), tags: Vec::new(), field }
    }

    /// With one more tag.
    #[must_use]
    pub fn tag(mut self, name: &str, value: &str) -> Self {
        self.tags.push((name.to_owned(), value.to_owned()));
        self
    }

    /// As a command has it.
    fn word(&self) -> Result<String> {
        let parts = self.tags.iter().flat_map(|(name, value)| [name, value]).chain([&self.metric, &self.field]);
        for part in parts.chain([&self.database]) {
            if part.is_empty() || part.contains(['\\', '\n', '\r']) {
                let text =
                    format!("`{part}` cannot be a name on a server: one is not empty, and has no \\ and no line break");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        }
        let mut word = escaped(&self.metric, &[',', ' ']);
        for (name, value) in &self.tags {
            word = format!("{word},{}={}", escaped(name, &[',', '=', ' ']), escaped(value, &[',', '=', ' ']));
        }
        Ok(word)
    }
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Seconds with nine digits behind the point: the digits of a whole number would say its unit.
fn time_word(time: i64) -> String {
    let (sign, time) = if time < 0 { ("-", time.unsigned_abs()) } else { ("", time.unsigned_abs()) };
    format!("{sign}{}.{:09}", time / SECOND.unsigned_abs(), time % SECOND.unsigned_abs())
}

fn value_word(value: &Value) -> Result<String> {
    match value {
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(format!("{number:?}")),
        other => {
            let text = format!("a server takes integers and floats by this way, not {other:?}");
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// TS.MADD of points of one database and one field.
pub(crate) fn add_words(points: &[(SeriesName, Point)], durability: Option<Durability>) -> Result<Words> {
    let Some((first, _)) = points.first() else {
        return Err(Error::new(ErrorKind::Invalid, "there are no points to write"));
    };
    if points.len() > POINTS_MAX {
        let text = format!("{} points at once; the limit is {POINTS_MAX}", points.len());
        return Err(Error::new(ErrorKind::Limit, text));
    }
    let mut words = Words::new("TS.MADD").and("DB").and(&first.database).and("FIELD").and(&first.field);
    words = words.durability(durability);
    for (name, point) in points {
        if (&name.database, &name.field) != (&first.database, &first.field) {
            let text = "points that are written together are of one database and one field; a batch may have several";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        words = words.and(name.word()?).and(time_word(point.time)).and(value_word(&point.value)?);
    }
    Ok(words)
}

/// The same as rows of the store.
pub(crate) fn add_rows(rows: &mut Rows, points: &[(SeriesName, Point)]) -> Result<()> {
    for (name, point) in points {
        // The same rules as on a server.
        let word = name.word()?;
        value_word(&point.value)?;
        rows.set_database(&name.database);
        let row = rows.row(word.as_bytes(), |_| Ok((name.metric.clone(), name.tags.clone())))?;
        let slot = rows.field(row, 0, name.field.as_bytes(), |_| Ok(name.field.clone()))?;
        match point.value {
            Value::Float(number) => rows.push_float(slot, point.time, number),
            ref value => rows.push(slot, point.time, value.as_ref()),
        }
    }
    Ok(())
}

pub(crate) fn read_added(reply: Reply) -> Result<()> {
    reply.list().map(|_| ())
}

fn read_point(reply: Reply) -> Result<Point> {
    let [time, value] = reply.items()?;
    let Reply::Integer(time) = time else { return Err(strange(&time)) };
    let value = match value {
        Reply::Integer(number) => Value::Integer(number),
        Reply::Double(number) => Value::Float(number),
        Reply::Bool(is) => Value::Boolean(is),
        Reply::Bytes(text) => Value::Text(String::from_utf8_lossy(&text).as_ref().into()),
        other => return Err(strange(&other)),
    };
    Ok(Point { time, value })
}

fn find(reader: &Reader, name: &SeriesName) -> Result<Option<SeriesId>> {
    let mut tags = name.tags.clone();
    tags.sort();
    let select = Select {
        database: name.database.clone(),
        metric: Some(Match::is(name.metric.clone())),
        field: Some(Match::is(name.field.clone())),
        tags: tags.iter().map(|(tag, value)| TagMatch { tag: tag.clone(), value: Match::is(value.clone()) }).collect(),
    };
    let found = reader.series(&select)?;
    Ok(found.into_iter().find(|series| series.key.tags == tags).map(|series| series.id))
}

fn point(time: i64, value: ValueRef<'_>) -> Point {
    Point { time, value: value.to_value() }
}

impl Series {
    pub(crate) fn new(place: Place) -> Self {
        Self { place }
    }

    /// Writes points of one database and one field, all or none, 10,000 at the most.
    ///
    /// # Errors
    /// `Invalid` for a name or a value that cannot be, or a series of another kind of value; `Unavailable` when the disk refuses.
    pub fn write(&self, points: &[(SeriesName, Point)], durability: Option<Durability>) -> Call<()> {
        let words = match add_words(points, durability) {
            Ok(words) => words,
            Err(error) => return Call::done(Err(error)),
        };
        match &self.place {
            Place::Here(here) => {
                let (store, points) = (here.store().clone(), points.to_vec());
                let durability = durability.unwrap_or(store.durability());
                here.shown_with_room(points.len(), durability, move || {
                    let mut rows = Rows::new(DATABASE_DEFAULT);
                    add_rows(&mut rows, &points)?;
                    let mut exclusive = store.exclusive(&holdfast::Scope::Keys(&[]))?;
                    exclusive.add_points(&mut rows)?;
                    Ok(Shown { value: (), position: exclusive.commit()?.position })
                })
            }
            Place::There(there) => there.call(&words, Again::MustNot, read_added),
        }
    }

    /// The points of a series from one time to another, both included; the first ones where there are more than `max`. None if
    /// there is no such series.
    ///
    /// # Errors
    /// `Corrupt` when something stored is damaged.
    pub fn range(&self, name: &SeriesName, range: Range, max: usize) -> Call<Vec<Point>> {
        match &self.place {
            Place::Here(here) => {
                let (store, name) = (here.store().clone(), name.clone());
                here.elsewhere(move || {
                    let reader = store.series().reader();
                    let mut points = Points::new();
                    if let Some(id) = find(&reader, &name)? {
                        reader.points(id, range, &mut points)?;
                    }
                    reader.settle()?;
                    Ok(points.iter().take(max).map(|(time, value)| point(time, value)).collect())
                })
            }
            Place::There(there) => {
                let end = |time: i64| if time == i64::MIN || time == i64::MAX { None } else { Some(time_word(time)) };
                let from = end(range.from).unwrap_or_else(|| "-".to_owned());
                let to = end(range.to).unwrap_or_else(|| "+".to_owned());
                let words = name.word().map(|word| {
                    let words = Words::new("TS.RANGE").and(word).and(from).and(to).and("DB").and(&name.database);
                    words.and("FIELD").and(&name.field).and("COUNT").and(max.min(i64::MAX as usize).to_string())
                });
                match words {
                    Ok(words) => there.call_alone(&words, Again::May, Some(Duration::ZERO), |reply| {
                        reply.list()?.into_iter().map(read_point).collect()
                    }),
                    Err(error) => Call::done(Err(error)),
                }
            }
        }
    }

    /// The newest point of a series.
    ///
    /// # Errors
    /// As [`Series::range`].
    pub fn last(&self, name: &SeriesName) -> Call<Option<Point>> {
        match &self.place {
            Place::Here(here) => {
                let (store, name) = (here.store().clone(), name.clone());
                here.elsewhere(move || {
                    let reader = store.series().reader();
                    let last = match find(&reader, &name)? {
                        Some(id) => reader.last(id)?,
                        None => None,
                    };
                    reader.settle()?;
                    Ok(last.map(|(time, value)| Point { time, value }))
                })
            }
            Place::There(there) => {
                let words = name.word().map(|word| {
                    Words::new("TS.LAST").and(word).and("DB").and(&name.database).and("FIELD").and(&name.field)
                });
                match words {
                    Ok(words) => there.call_alone(&words, Again::May, Some(Duration::ZERO), |reply| {
                        reply.some()?.map(read_point).transpose()
                    }),
                    Err(error) => Call::done(Err(error)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_what_cannot_be_is_refused() {
        let name = SeriesName::new("a b,c").tag("x=y", "1, 2");
        assert_eq!(name.word().unwrap(), r"a\ b\,c,x\=y=1\,\ 2");
        for bad in ["", "a\\", "a\nb"] {
            assert_eq!(SeriesName::new(bad).word().unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn times_are_exact_wherever_they_lie() {
        assert_eq!(time_word(1_700_000_000_123_456_789), "1700000000.123456789");
        assert_eq!(time_word(-1), "-0.000000001");
        assert_eq!(time_word(0), "0.000000000");
    }

    #[test]
    fn points_of_several_fields_are_not_one_command() {
        let point = Point { time: 1, value: Value::Integer(1) };
        let other = SeriesName { field: "other".to_owned(), ..SeriesName::new("a") };
        let refused = add_words(&[(SeriesName::new("a"), point.clone()), (other, point)], None).unwrap_err();
        assert!(refused.to_string().contains("one field"), "{refused}");
        assert!(add_words(&[], None).is_err());
    }

    /// Points of batches and of single calls were refused in the process when they came faster than they were packed into files.
    #[test]
    fn writers_of_points_wait_for_room_instead_of_being_refused() {
        let world = holdfast::World {
            files: std::sync::Arc::new(base::memory::Disk::new(1)),
            clock: std::sync::Arc::new(base::ManualClock::at(1_700_000_000_000)),
            ledgers: std::sync::Arc::new(holdfast::MemoryLedgers::default()),
            threads: false,
            entropy: 1,
        };
        let options = holdfast::Options {
            limits: holdfast::Limits::tiny(),
            durability: Durability::Written,
            ..holdfast::Options::default()
        };
        let store = holdfast::Store::open_in(&world, std::path::Path::new("/store"), options).unwrap();
        let client = crate::Client::embedded(&store).unwrap();
        let name = SeriesName::new("cpu");
        let (mut written, mut crowded) = (0, 0);
        for round in 0..2_000 {
            let points: Vec<_> =
                (0..10).map(|more| (name.clone(), Point { time: written + more, value: Value::Float(1.0) })).collect();
            crowded += u64::from(store.series().is_crowded());
            match round % 3 {
                0 => client.series().write(&points, None).wait().unwrap(),
                1 => crate::call::block_on(client.series().write(&points, None)).unwrap(),
                _ => {
                    let mut batch = client.batch();
                    let _ = batch.add_points(&points);
                    drop(batch.commit().wait().unwrap());
                }
            }
            written += 10;
        }
        assert!(crowded > 3, "there was no room {crowded} times");
        let all = client.series().range(&name, Range { from: 0, to: i64::MAX }, usize::MAX).wait().unwrap();
        assert_eq!(all.len() as i64, written);
    }
}
