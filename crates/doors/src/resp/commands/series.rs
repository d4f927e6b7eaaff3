//! TS.ADD, TS.MADD, TS.RANGE, TS.LAST and TS.QUERY: points of time series.
//!
//! A series is named as in an Influx line, `metric,tag=value,...`; the option TAGS adds tags that need no escapes. What one
//! command writes is written whole or not at all; inside MULTI it joins the batch of the transaction. While points come faster than
//! they are packed into files, who writes them waits, off the event loop.
//!
//! May use: `call`, the facade's `series`, `crate::line` for names, numbers and times. Must not know: sockets, dispatch.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast::series::promql::{self, Answer as Found, Expression, STEP_MS, Span};
use holdfast::series::{
    FIELD_DEFAULT, Match, Points, Range, Reader, Rows, Select, SeriesError, Source, Stop, TagMatch, ValueRef,
};
use holdfast::{ErrorKind, Position, Scope, Store};

use super::own::durability;
use crate::auth::Right;
use crate::line::{Number, Unit, advice, excerpt, names, number, time};
use crate::numbers::PointCounts;
use crate::points::nanos;
use crate::resp::call::{Answer, Call, Fail, SYNTAX, View};
use crate::resp::number::parse_u64;
use crate::resp::reply::Reply;
use crate::resp::script::Deadline;
use crate::resp::session::Need;

/// The database of commands that name none.
const DATABASE: &str = "default";
/// How often who was held back tries to write before it is refused.
const TRIES_MAX: u32 = 8;

type Tags = Vec<(String, String)>;

/// What commands take behind their own arguments.
struct Options {
    database: String,
    field: String,
    tags: Tags,
    count: Option<usize>,
}

fn text(argument: &[u8]) -> Result<String, Fail> {
    let wrong = || Fail::from(format!("ERR '{}' is not UTF-8", excerpt(argument)));
    std::str::from_utf8(argument).map(str::to_owned).map_err(|_| wrong())
}

fn wrong(error: SeriesError) -> Fail {
    match error {
        SeriesError::Source { text } => format!("UNAVAILABLE {text}").into(),
        error @ (SeriesError::Memory { .. } | SeriesError::Late { .. }) => format!("LIMIT {error}").into(),
        error @ SeriesError::Canceled => holdfast::Error::from(error).into(),
        error => format!("ERR {error}").into(),
    }
}

impl Options {
    fn read(call: &mut Call<'_, '_>, mut index: usize) -> Result<Self, Fail> {
        let args = call.args();
        let mut options =
            Options { database: DATABASE.to_owned(), field: FIELD_DEFAULT.to_owned(), tags: Tags::new(), count: None };
        while let Some(option) = args.get(index) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("tags") || is("labels") {
                let rest: Vec<&[u8]> = args.from(index + 1).iter().collect();
                for pair in rest.chunks(2) {
                    let [name, value] = pair else {
                        return Err("ERR TAGS is followed by names, each with its value".into());
                    };
                    options.tags.push((text(name)?, text(value)?));
                }
                break;
            }
            let argument = args.get(index + 1).ok_or(SYNTAX)?;
            if is("db") {
                options.database = text(argument)?;
            } else if is("field") {
                options.field = text(argument)?;
            } else if is("count") && !call.command.has(crate::resp::table::flag::WRITE) {
                let count = parse_u64(argument).and_then(|count| usize::try_from(count).ok());
                options.count = Some(count.ok_or("ERR COUNT is a whole number")?);
            } else if !durability(call, option, index)? {
                return Err(SYNTAX.into());
            }
            index += 2;
        }
        if options.database.is_empty() || options.field.is_empty() {
            return Err("ERR a name is empty".into());
        }
        let right = if call.command.has(crate::resp::table::flag::WRITE) { Right::Write } else { Right::Read };
        let user = call.session.user.as_ref();
        if user.is_some_and(|user| !user.may(right, options.database.as_bytes())) {
            let text = format!("NOPERM this user has no permissions for the database {}", options.database);
            return Err(text.into());
        }
        Ok(options)
    }
}

/// A point as it was named.
struct Point<'c> {
    series: &'c [u8],
    time: i64,
    value: Number,
}

fn point<'c>(call: &Call<'c, '_>, index: usize) -> Result<Point<'c>, Fail> {
    let args = call.args();
    let (series, at, value) = (args.at(index), args.at(index + 1), args.at(index + 2));
    let value = number(value).ok_or_else(|| {
        let advice = advice(value, "write a number such as 7, 1.5 or NaN");
        format!("ERR invalid value '{}': {advice}", excerpt(value))
    })?;
    Ok(Point { series, time: moment(call, at)?, value })
}

/// A time whose digits say its unit; `*` is now.
fn moment(call: &Call<'_, '_>, argument: &[u8]) -> Result<i64, Fail> {
    if argument == b"*" {
        return Ok(nanos(call.now_ms));
    }
    time(argument, Unit::Digits).map_err(|wrong| {
        let text = "write * for now, seconds since 1970, or with 13, 16 or 19 digits ms, us or ns";
        format!("ERR invalid time '{}': {wrong}; {text}", excerpt(argument)).into()
    })
}

/// Writes points, or adds them to the transaction; then tells their times.
fn write(
    call: &mut Call<'_, '_>,
    points: &[Point<'_>],
    options: &Options,
    tell: impl FnOnce(&mut Reply) + Send + 'static,
) -> Answer {
    let mut rows = std::mem::take(&mut call.session.points);
    debug_assert!(call.in_exec || rows.is_empty(), "points are gathered only within a transaction");
    let added = add(&mut rows, points, options);
    if added.is_ok() && !call.in_exec && call.door.store.series().is_crowded() {
        hold_back(call, rows, tell);
        return Ok(());
    }
    let written = match (&added, call.in_exec) {
        (Ok(()), false) => write_now(call, &mut rows),
        _ => Ok(()),
    };
    // Of a failing command nothing is added, so what the transaction has stays.
    match call.in_exec {
        true => call.session.points = rows,
        false => call.session.keep_points(rows),
    }
    added.and(written)?;
    tell(call.reply);
    Ok(())
}

/// Has points written as soon as there is room for them.
fn hold_back(call: &mut Call<'_, '_>, mut rows: Rows, tell: impl FnOnce(&mut Reply) + Send + 'static) {
    let (store, counts, durability) = (call.door.store.clone(), Arc::clone(&call.door.points), call.durability);
    call.hold_back(move |reply| {
        let mut tries = 0;
        let position = loop {
            store.series().make_room(rows.len())?;
            tries += 1;
            match commit(&store, &counts, &mut rows) {
                // Others were quicker, and took the room that there was: nothing was written.
                Err(error) if error.kind() == ErrorKind::Unavailable && tries < TRIES_MAX => {}
                outcome => break outcome?,
            }
        };
        let mut need = Need { own: position, ..Need::NOTHING };
        need.add(durability, position);
        tell(reply);
        Ok(need)
    });
}

fn add(rows: &mut Rows, points: &[Point<'_>], options: &Options) -> Result<(), Fail> {
    rows.set_database(&options.database);
    let mut slots = Vec::with_capacity(points.len());
    let mut name = Vec::new();
    for point in points {
        name.clear();
        name.extend_from_slice(b"\nt");
        name.extend_from_slice(point.series);
        for (tag, value) in &options.tags {
            for text in [tag, value] {
                name.extend_from_slice(&text.len().to_le_bytes());
                name.extend_from_slice(text.as_bytes());
            }
        }
        let row = rows.row(&name, |_| named(point.series, options)).map_err(wrong)?;
        slots.push(rows.field(row, 0, options.field.as_bytes(), |_| Ok(options.field.clone())).map_err(wrong)?);
    }
    for (point, slot) in points.iter().zip(slots) {
        match point.value {
            Number::Float(value) => rows.push_float(slot, point.time, value),
            Number::Integer(value) => rows.push(slot, point.time, ValueRef::Integer(value)),
        }
    }
    Ok(())
}

/// Metric and tags.
fn named(series: &[u8], options: &Options) -> Result<(String, Tags), SeriesError> {
    let (metric, mut tags) = names(series)?;
    tags.extend(options.tags.iter().cloned());
    Ok((metric, tags))
}

fn commit(store: &Store, counts: &PointCounts, rows: &mut Rows) -> holdfast::Result<Position> {
    let points = rows.len() as u64;
    // All of them or none: the exclusive sees to that.
    let mut exclusive = store.exclusive(&Scope::Keys(&[]))?;
    exclusive.add_points(rows)?;
    let position = exclusive.commit()?.position;
    counts.written.fetch_add(points, Relaxed);
    counts.batches.fetch_add(1, Relaxed);
    Ok(position)
}

fn write_now(call: &mut Call<'_, '_>, rows: &mut Rows) -> Answer {
    let position = commit(&call.door.store, &call.door.points, rows)?;
    if let View::Direct { shown, .. } = &mut call.view {
        *shown = (*shown).max(position);
    }
    call.session.last_write = call.session.last_write.max(position);
    Ok(())
}

pub(crate) fn add_one(call: &mut Call<'_, '_>) -> Answer {
    let point = point(call, 1)?;
    let options = Options::read(call, 4)?;
    let at = point.time;
    write(call, &[point], &options, move |reply| reply.integer(at))
}

pub(crate) fn add_many(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let mut first = 1;
    let is_option =
        |word: &[u8]| ["db", "field", "durability"].iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    while args.get(first).is_some_and(is_option) {
        first += 2;
    }
    let count = args.len().saturating_sub(first);
    if count == 0 || count % 3 != 0 {
        return Err(call.wrong_arity());
    }
    let points: Vec<Point<'_>> =
        (first..args.len()).step_by(3).map(|index| point(call, index)).collect::<Result<_, _>>()?;
    // The options are those before the first series.
    let options = {
        let of_all = call.args;
        call.args = of_all.until(first);
        let options = Options::read(call, 1);
        call.args = of_all;
        options?
    };
    let times: Vec<i64> = points.iter().map(|point| point.time).collect();
    write(call, &points, &options, move |reply| {
        reply.array(times.len());
        times.into_iter().for_each(|at| reply.integer(at));
    })
}

/// The series that is meant: with these tags and no others.
fn find(reader: &Reader, series: &[u8], options: &Options) -> Result<Option<holdfast::series::SeriesId>, Fail> {
    let (metric, mut tags) = named(series, options).map_err(wrong)?;
    tags.sort();
    let select = Select {
        database: options.database.clone(),
        metric: Some(Match::is(metric)),
        field: Some(Match::is(options.field.clone())),
        tags: tags.iter().map(|(tag, value)| TagMatch { tag: tag.clone(), value: Match::is(value.clone()) }).collect(),
    };
    let found = reader.series(&select).map_err(wrong)?;
    Ok(found.into_iter().find(|series| series.key.tags == tags).map(|series| series.id))
}

fn write_value(reply: &mut Reply, value: ValueRef<'_>) {
    match value {
        ValueRef::Float(value) => reply.double(value),
        ValueRef::Integer(value) => reply.integer(value),
        ValueRef::Unsigned(value) => reply.unsigned(value),
        ValueRef::Boolean(value) => reply.boolean(value),
        ValueRef::Text(value) => reply.text(value),
    }
}

fn write_point(reply: &mut Reply, time: i64, value: ValueRef<'_>) {
    reply.array(2);
    reply.integer(time);
    write_value(reply, value);
}

/// A reply has no room for a warning: what is incomplete is refused, with the times around which there is more.
fn whole(reader: &Reader) -> Result<(), Fail> {
    reader.missing().map_or(Ok(()), |missing| Err(format!("CORRUPT {missing}; read around it").into()))
}

/// Reads points: in a thread of their own, for as long as the client waits and a question may take, or within a transaction at once, where nobody may wait for a disk; then the time is
/// that of its scripts.
fn reading(
    call: &mut Call<'_, '_>,
    read: impl FnOnce(&Reader, Option<Deadline>, &mut Reply) -> Result<(), Fail> + Send + 'static,
) -> Answer {
    let store = call.door.store.clone();
    if !call.in_exec {
        let time_max = Some(call.door.options.limits.series_time_max);
        let stop = Stop { time_max, cancel: Some(call.session.client.gone.clone()), ..Stop::default() };
        call.defer(move |reply| {
            let reader = store.series().reader().until(stop);
            // Written first, sent when what it shows is durable.
            read(&reader, None, reply)?;
            whole(&reader)?;
            reader.settle()?;
            Ok(Need::NOTHING)
        });
        return Ok(());
    }
    if !call.session.points.is_empty() {
        let name = call.command.name.to_uppercase();
        return Err(
            format!("ERR {name} does not see points of the same transaction: read before TS.ADD and TS.MADD").into()
        );
    }
    let time_max = call.door.options.script.time_max;
    let deadline = *call.session.deadline.get_or_insert_with(|| Deadline::at(time_max));
    if deadline.is_over() {
        let text = "LIMIT the time for reading points within MULTI is over (script.time_milliseconds_max): read less, or outside";
        return Err(text.into());
    }
    let reader = store.series().reader();
    read(&reader, Some(deadline), call.reply)?;
    whole(&reader)?;
    call.session.need.add(call.durability, reader.position());
    Ok(())
}

pub(crate) fn range(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let end = |argument: &[u8], open: &[u8], all: i64| match argument == open {
        true => Ok(all),
        false => moment(call, argument),
    };
    let range = Range { from: end(args.at(2), b"-", i64::MIN)?, to: end(args.at(3), b"+", i64::MAX)? };
    let options = Options::read(call, 4)?;
    let series = args.at(1).to_vec();
    reading(call, move |reader, _, reply| {
        let mut points = Points::new();
        if let Some(id) = find(reader, &series, &options)? {
            reader.points(id, range, &mut points).map_err(wrong)?;
            // And once more as the reply.
            reader.hold(2 * points.memory_bytes() as u64).map_err(wrong)?;
        }
        let count = options.count.unwrap_or(usize::MAX).min(points.len());
        reply.array(count);
        points.iter().take(count).for_each(|(time, value)| write_point(reply, time, value));
        Ok(())
    })
}

pub(crate) fn last(call: &mut Call<'_, '_>) -> Answer {
    let options = Options::read(call, 2)?;
    let series = call.args().at(1).to_vec();
    reading(call, move |reader, _, reply| {
        let id = find(reader, &series, &options)?;
        match id.map(|id| reader.last(id)).transpose().map_err(wrong)?.flatten() {
            Some((time, value)) => write_point(reply, time, value.as_ref()),
            None => reply.null(),
        }
        Ok(())
    })
}

/// When an expression is evaluated.
enum When {
    At(i64),
    Over(Span),
}

pub(crate) fn query(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let expression = text(args.at(1))?;
    let millis = |argument: &[u8]| Ok::<i64, Fail>(moment(call, argument)? / 1_000_000);
    let (when, step_ms, next) = match args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"at") => (When::At(millis(args.at(3))?), STEP_MS, 4),
        Some(b"from") if args.at(4).eq_ignore_ascii_case(b"to") && args.at(6).eq_ignore_ascii_case(b"step") => {
            let step = parse_u64(args.at(7)).and_then(|step| i64::try_from(step).ok()).filter(|step| *step > 0);
            let step_ms = step.ok_or("ERR STEP is in milliseconds, at least 1")?;
            let span = Span { start_ms: millis(args.at(3))?, end_ms: millis(args.at(5))?, step_ms };
            (When::Over(span), step_ms, 8)
        }
        _ => (When::At(i64::try_from(call.now_ms).unwrap_or(i64::MAX)), STEP_MS, 2),
    };
    let options = Options::read(call, next)?;
    let expression = Expression::parse(&expression, step_ms).map_err(wrong)?;
    reading(call, move |reader, deadline, reply| {
        let go_on = || deadline.is_none_or(|deadline| !deadline.is_over());
        let limits = promql::Limits::default();
        let scope = promql::Scope { source: reader, database: &options.database, limits, go_on: &go_on };
        let found = match when {
            When::At(time) => expression.instant(scope, time),
            When::Over(span) => expression.range(scope, span),
        };
        write_found(reply, found.map_err(wrong)?);
        Ok(())
    })
}

/// A list of `[labels, points]`, a point being `[milliseconds, value]`; of a scalar or a text the one point.
fn write_found(reply: &mut Reply, found: Found) {
    let of_time = |reply: &mut Reply, time: i64| {
        reply.array(2);
        reply.integer(time);
    };
    match found {
        Found::Scalar(time, value) => {
            of_time(reply, time);
            reply.double(value);
        }
        Found::Text(time, value) => {
            of_time(reply, time);
            reply.text(&value);
        }
        Found::Vector(lines) | Found::Matrix(lines) => {
            reply.array(lines.len());
            for line in lines {
                reply.array(2);
                reply.map(line.labels.iter().count());
                for (name, value) in line.labels.iter() {
                    reply.text(name);
                    reply.text(value);
                }
                reply.array(line.points.len());
                for (time, value) in line.points {
                    of_time(reply, time);
                    reply.double(value);
                }
            }
        }
    }
}
