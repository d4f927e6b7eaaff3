//! Points of time series in a run: written out of order and anew, alone and with keys, deleted, dropped, sealed and merged; now and
//! then so many of an hour that files have a rollup of them, which must say what the points say.
//!
//! In the model a point is an object of a bucket that no user can have, named by its series and time, so that one prefix of batches
//! explains points, entries and keys, and a batch that touches several is there whole or not at all.
//!
//! May use: the run. Must not know: what breaks when.

use holdfast::series::{
    Match, Piece, Points, Range, Reader, Rows, Select, SeriesError, SeriesId, Share, Source, Value, Windows,
};
use holdfast::{Indexes, Position, PutOptions, Scope, Store};

use crate::model::{Batch, Contents, Effect, Model, Name, Thing};
use crate::run::{Check, Run, refused, violation};
use crate::step::{acknowledge, durability, explained, name};

/// Where the model keeps points.
pub(crate) const BUCKET: &[u8] = b"\0points";
const DATABASE: &str = "sim";
const METRICS: [&str; 3] = ["a", "b", "c"];
const HOSTS: [&str; 3] = ["x", "y", "z"];
const TIMES: u64 = 40;
/// Points of a series of which an hour has a rollup.
const MANY: i64 = 300;

/// A series of the run: its metric and its one tag.
type Of = (&'static str, &'static str);

fn point_name((metric, host): (&str, &str), time: i64) -> Name {
    let mut key = format!("{metric} {host} ").into_bytes();
    key.extend_from_slice(&time.to_be_bytes());
    (BUCKET.to_vec(), key)
}

fn stored(value: &Value) -> Vec<u8> {
    match value {
        Value::Float(value) => value.to_bits().to_be_bytes().to_vec(),
        other => format!("{other:?}").into_bytes(),
    }
}

fn put(value: &Value) -> Effect {
    Effect::Put { value: stored(value), expires_ms: None, metadata: Vec::new(), indexes: Indexes::default() }
}

/// All points, as the model has them: they have no version of their own.
pub(crate) fn read_all(store: &Store, to: &mut Contents) -> Check<()> {
    let failed = |error: holdfast::series::SeriesError| refused("series", &holdfast::Error::from(error));
    let reader = store.series().reader();
    let all = reader.series(&Select { database: DATABASE.into(), ..Select::default() }).map_err(failed)?;
    for series in all {
        let mut points = Points::new();
        reader.points(series.id, Range::ALL, &mut points).map_err(failed)?;
        let last = reader.last(series.id).map_err(failed)?;
        if last != points.last() {
            return Err(violation("series", format!("{:?} ends with {:?}, not {last:?}", series.key, points.last())));
        }
        let (with, without) = (rolled_up(&reader, series.id).map_err(failed)?, counted(&points));
        if with != without {
            return Err(violation("series", format!("{:?} has {without:?}, and rollups say {with:?}", series.key)));
        }
        for (time, value) in points.iter() {
            let value = stored(&value.to_value());
            let (version, metadata, indexes) = (Position::ZERO, Vec::new(), Indexes::default());
            let thing = Thing { version, value, expires_ms: None, modified_ms: 0, metadata, indexes };
            if to.insert(point_name((&series.key.metric, series.key.tag("host")), time), thing).is_some() {
                return Err(violation("series", format!("{:?} has two points at {time}", series.key)));
            }
        }
    }
    Ok(())
}

/// How many points, and the bits of the least and of the greatest.
type Counted = (u64, Option<u64>, Option<u64>);

fn add(to: &mut Counted, count: u64, least: f64, greatest: f64) {
    to.0 += count;
    to.1 = Some(to.1.map_or(least, |kept| f64::from_bits(kept).min(least)).to_bits());
    to.2 = Some(to.2.map_or(greatest, |kept| f64::from_bits(kept).max(greatest)).to_bits());
}

fn counted(points: &Points) -> Counted {
    let mut counted = Counted::default();
    points.numbers().for_each(|(_, number)| add(&mut counted, 1, number, number));
    counted
}

fn rolled_up(reader: &Reader, series: SeriesId) -> Result<Counted, SeriesError> {
    let mut counted = Counted::default();
    let hours = Windows { length: 3_600_000_000_000, offset: 0, share: Share::Part };
    reader.pieces(series, Range::ALL, hours, &mut |piece| {
        match piece {
            Piece::Points(points) => points.numbers().for_each(|(_, number)| add(&mut counted, 1, number, number)),
            Piece::Summary(summary) => {
                let number = |value: Value| value.as_ref().number().unwrap_or(f64::NAN);
                add(&mut counted, summary.count, number(summary.least()), number(summary.greatest()));
            }
        }
        Ok(())
    })?;
    Ok(counted)
}

/// One operation.
pub(crate) fn step(run: &mut Run) -> Check<()> {
    match run.sim.random.below(24) {
        0 | 1 => delete(run),
        2 | 3 => drop_series(run),
        4 | 5 => seal(run),
        6..10 => with_key(run),
        10 => write_many(run),
        _ => write(run),
    }
}

fn of(run: &mut Run) -> Of {
    let pick = |from: [&'static str; 3], at: u64| from.into_iter().cycle().nth(usize::try_from(at).unwrap_or(0));
    let metric = pick(METRICS, run.sim.random.below(3)).unwrap_or("a");
    (metric, pick(HOSTS, run.sim.random.below(3)).unwrap_or("x"))
}

fn time(run: &mut Run) -> i64 {
    i64::try_from(run.sim.random.below(TIMES)).unwrap_or(0) * 1_000_000_000
}

/// Some points, and what the model makes of them.
fn points(run: &mut Run) -> (Rows, Vec<(Name, Effect)>) {
    let (mut rows, mut effects) = (Rows::new(DATABASE), Vec::new());
    for _ in 0..=run.sim.random.below(6) {
        let (metric, host) = of(run);
        let raw = format!("{metric} {host}");
        let key = |_: &[u8]| Ok((metric.to_owned(), vec![("host".to_owned(), host.to_owned())]));
        let Ok(row) = rows.row(raw.as_bytes(), key) else { continue };
        let Ok(slot) = rows.field(row, 0, b"value", |_| Ok("value".to_owned())) else { continue };
        for _ in 0..=run.sim.random.below(5) {
            let time = time(run);
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let value = Value::Float(run.sim.random.below(10_000) as f64 / 100.0);
            rows.push(slot, time, value.as_ref());
            effects.push((point_name((metric, host), time), put(&value)));
        }
    }
    (rows, effects)
}

fn commit(run: &mut Run, position: Position, effects: Vec<(Name, Effect)>, now_ms: u64) -> Check<()> {
    run.outcome.commits += 1;
    run.model.commit(Batch { position, now_ms, effects });
    run.trace("series: commit", position.get());
    let durability = durability(run);
    acknowledge(run, position, durability)
}

/// Most of an hour of one series, at regular times between which others write.
fn write_many(run: &mut Run) -> Check<()> {
    let (metric, host) = of(run);
    let (mut rows, mut effects) = (Rows::new(DATABASE), Vec::new());
    let key = |_: &[u8]| Ok((metric.to_owned(), vec![("host".to_owned(), host.to_owned())]));
    let Ok(row) = rows.row(b"many", key) else { return Ok(()) };
    let Ok(slot) = rows.field(row, 0, b"value", |_| Ok("value".to_owned())) else { return Ok(()) };
    for n in 0..MANY {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let value = Value::Float(run.sim.random.below(10_000) as f64 / 100.0);
        let time = n * 10_000_000_000;
        rows.push(slot, time, value.as_ref());
        effects.push((point_name((metric, host), time), put(&value)));
    }
    write_all(run, rows, effects)
}

fn write(run: &mut Run) -> Check<()> {
    let (rows, effects) = points(run);
    write_all(run, rows, effects)
}

fn write_all(run: &mut Run, mut rows: Rows, effects: Vec<(Name, Effect)>) -> Check<()> {
    let now_ms = run.store.now_ms();
    match run.store.series().write(&mut rows) {
        Ok(written) if written.refused.is_empty() => commit(run, written.position, effects, now_ms),
        Ok(written) => Err(violation("series", format!("points were refused: {:?}", written.refused))),
        Err(error) => explained(&error),
    }
}

/// Points and a key: together or not at all.
fn with_key(run: &mut Run) -> Check<()> {
    let (mut rows, mut effects) = points(run);
    let object = name(run);
    let now_ms = run.store.now_ms();
    let store = run.store.clone();
    let committed = (|| {
        let keys = [(object.0.as_slice(), object.1.as_slice())];
        store.series().make_room(rows.len())?;
        let mut exclusive = store.exclusive(&Scope::Keys(&keys))?;
        exclusive.put(&object.0, &object.1, b"with points", &PutOptions::default())?;
        exclusive.add_points(&mut rows)?;
        exclusive.commit()
    })();
    let value = b"with points".to_vec();
    effects.push((object, Effect::Put { value, expires_ms: None, metadata: Vec::new(), indexes: Indexes::default() }));
    match committed {
        Ok(committed) => commit(run, committed.position, effects, now_ms),
        Err(error) => explained(&error),
    }
}

/// The names of points that the model has now and that are meant.
fn there(model: &Model, mut is_meant: impl FnMut(&[u8]) -> bool) -> Vec<(Name, Effect)> {
    let names = model.contents.keys().filter(|(bucket, key)| bucket == BUCKET && is_meant(key));
    names.map(|name| (name.clone(), Effect::Delete)).collect()
}

fn delete(run: &mut Run) -> Check<()> {
    let (metric, host) = of(run);
    let (from, to) = (time(run), time(run));
    let now_ms = run.store.now_ms();
    let select = Select::metric(DATABASE, metric).and_tag("host", Match::is(host));
    let names = (from..=to).step_by(1_000_000_000).map(|time| point_name((metric, host), time).1);
    let names: std::collections::BTreeSet<Vec<u8>> = names.collect();
    let effects = there(&run.model, |key| names.contains(key));
    match run.store.series().delete(&select, Range { from, to }) {
        Ok((position, _)) if run.model.batches.last().is_none_or(|last| position > last.position) => {
            commit(run, position, effects, now_ms)
        }
        // Nothing was there, and that is as old as this.
        Ok((position, _)) if effects.is_empty() => {
            let durability = durability(run);
            acknowledge(run, position, durability)
        }
        Ok(_) => Err(violation("series", format!("points of {metric} were not found to be deleted"))),
        Err(error) => explained(&error),
    }
}

fn drop_series(run: &mut Run) -> Check<()> {
    let (metric, _) = of(run);
    let now_ms = run.store.now_ms();
    let start = format!("{metric} ").into_bytes();
    let effects = there(&run.model, |key| key.starts_with(&start));
    match run.store.series().drop_series(&Select::metric(DATABASE, metric)) {
        Ok((Position::ZERO, _)) if effects.is_empty() => Ok(()),
        Ok((Position::ZERO, _)) => Err(violation("series", format!("{metric} was not found to be dropped"))),
        Ok((position, _)) => commit(run, position, effects, now_ms),
        Err(error) => explained(&error),
    }
}

fn seal(run: &mut Run) -> Check<()> {
    run.trace("series: seal", 0);
    match run.store.series().seal() {
        Ok(()) => Ok(()),
        Err(error) => explained(&error),
    }
}
