//! Runs continuous queries: at the boundaries of their intervals, and for those that passed while the server was down.
//!
//! What to run when is the language's ([`Schedule`]); this carries it out, notes how far each query has come, and says in the log and
//! in numbers what went wrong. A run writes its rows first and is noted then, so that a kill between costs nothing but the same
//! run again. One that the store refuses is tried again at the query's next boundary; one that the query itself is to blame
//! for is not.
//!
//! May use: the facade, tracing, a thread. Must not know: doors, the language.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use doors::numbers::ContinuousNumbers;
use holdfast::Store;
use holdfast::series::influxql::{ContinuousQuery, Due, Env, Schedule, Statement};
use holdfast::series::{GoOn, SeriesError, Source};

use crate::failure::Failure;

/// However far away the next run is, the clock is looked at as often: it may be set.
const SLEEP_MAX: Duration = Duration::from_secs(60);
const NANOS_PER_MS: i64 = 1_000_000;

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    queries: AtomicU64,
    runs: AtomicU64,
    failed: AtomicU64,
    rows: AtomicU64,
    missed: AtomicU64,
    nanos: AtomicU64,
}

/// The thread that runs continuous queries. Dropping it ends it, after the run that is under way.
pub(crate) struct Runner {
    store: Store,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// One query on its way.
struct Known {
    text: String,
    /// `None` when its text cannot be read, which was said.
    schedule: Option<Schedule>,
    /// A run that failed is not tried again before then.
    not_before: i64,
    /// What was said of its last run, so that it is said once.
    complaint: Option<String>,
}

/// All queries on their way.
struct Queries {
    known: BTreeMap<(String, String), Known>,
    counts: Arc<Counts>,
}

impl Counts {
    pub(crate) fn numbers(&self) -> ContinuousNumbers {
        let read = |count: &AtomicU64| count.load(Relaxed);
        ContinuousNumbers {
            queries: read(&self.queries),
            runs: read(&self.runs),
            failed: read(&self.failed),
            rows: read(&self.rows),
            missed: read(&self.missed),
            nanos: read(&self.nanos),
        }
    }
}

impl Runner {
    pub(crate) fn start(store: &Store, counts: &Arc<Counts>) -> Result<Self, Failure> {
        let stopping = Arc::new(AtomicBool::new(false));
        let mut queries = Queries { known: BTreeMap::new(), counts: Arc::clone(counts) };
        let (own, stop) = (store.clone(), Arc::clone(&stopping));
        let work = move || {
            while !stop.load(Relaxed) {
                let next = queries.step(&own, now(&own), &|| stop.load(Relaxed));
                let wait = Duration::from_nanos(next.saturating_sub(now(&own)).max(0).unsigned_abs());
                if !wait.is_zero() {
                    own.series().wait_for_continuous_queries(wait.min(SLEEP_MAX));
                }
            }
        };
        let thread = thread::Builder::new().name("continuous".to_owned()).spawn(work);
        let thread = thread.map_err(|error: io::Error| Failure::Start(error))?;
        Ok(Self { store: store.clone(), stopping, thread: Some(thread) })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        self.store.series().wake_continuous_queries();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("continuous queries ended by a panic");
        }
    }
}

/// Nanoseconds since 1970, by the store's clock.
fn now(store: &Store) -> i64 {
    i64::try_from(store.now_ms()).unwrap_or(i64::MAX).saturating_mul(NANOS_PER_MS)
}

impl Known {
    fn of(query: &ContinuousQuery) -> Self {
        let schedule = Schedule::of(query);
        if let Err(error) = &schedule {
            tracing::error!("continuous query {} on {} cannot be read: {error}", query.name, query.database);
        }
        Self { text: query.text.clone(), schedule: schedule.ok(), not_before: i64::MIN, complaint: None }
    }

    /// Says of a run what was not said of the last.
    fn complain(&mut self, query: &ContinuousQuery, complaint: Option<String>) {
        if let Some(text) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            tracing::warn!("continuous query {} on {}: {text}", query.name, query.database);
        }
        self.complaint = complaint;
    }
}

impl Queries {
    /// Runs what is due at `now`; when to come back.
    fn step(&mut self, store: &Store, now: i64, is_stopping: &dyn Fn() -> bool) -> i64 {
        let queries = match store.series().continuous_queries() {
            Ok(queries) => queries,
            Err(error) => {
                tracing::error!("continuous queries cannot be read: {error}");
                return i64::MAX;
            }
        };
        self.counts.queries.store(queries.len() as u64, Relaxed);
        self.known.retain(|name, _| queries.iter().any(|query| (&query.database, &query.name) == (&name.0, &name.1)));
        let mut next = i64::MAX;
        for query in &queries {
            if is_stopping() {
                break;
            }
            let name = (query.database.clone(), query.name.clone());
            let known = self.known.entry(name).or_insert_with(|| Known::of(query));
            if known.text != query.text {
                *known = Known::of(query);
            }
            let Some(schedule) = &known.schedule else { continue };
            let query = &set_back(store, query, schedule, now);
            let mut through = query.through;
            if known.not_before <= now
                && let Some(due) = schedule.due(query.through, now)
                // Since the queries were listed, others have run.
                && store.series().keeps_continuous_query(query).unwrap_or(true)
            {
                let outcome = run(store, query, schedule, due, (now, is_stopping), &self.counts);
                match &outcome {
                    Outcome::Done | Outcome::Wrong(_) => through = due.through,
                    Outcome::Refused(_) => known.not_before = schedule.next(now),
                }
                known.complain(query, outcome.complaint());
            }
            let Some(schedule) = &known.schedule else { continue };
            next = next.min(schedule.next(through).max(known.not_before));
        }
        next
    }
}

/// What became of a run.
enum Outcome {
    Done,
    /// The query is to blame.
    Wrong(String),
    /// The store is to blame.
    Refused(String),
}

impl Outcome {
    fn complaint(self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::Wrong(text) | Self::Refused(text) => Some(text),
        }
    }
}

/// The query, noted to have run until now if a clock that was far ahead had it run for times that are to come.
fn set_back(store: &Store, query: &ContinuousQuery, schedule: &Schedule, now: i64) -> ContinuousQuery {
    let Some(through) = schedule.set_back(query.through, now) else { return query.clone() };
    let ContinuousQuery { database, name, .. } = query;
    let seconds = query.through.saturating_sub(now) / 1_000_000_000;
    tracing::warn!(
        "continuous query {name} on {database} ran {seconds} s ahead of the clock, which was set back: it goes on from now"
    );
    match store.series().note_continuous_query(query, through) {
        Ok(Some(_)) => ContinuousQuery { through, ..query.clone() },
        Ok(None) => query.clone(),
        Err(error) => {
            tracing::warn!("continuous query {name} on {database}: {error}");
            query.clone()
        }
    }
}

/// Carries a run out, and notes it.
fn run(
    store: &Store,
    query: &ContinuousQuery,
    schedule: &Schedule,
    due: Due,
    (now, is_stopping): (i64, &dyn Fn() -> bool),
    counts: &Counts,
) -> Outcome {
    if due.left_out > 0 {
        let seconds = due.left_out / 1_000_000_000;
        tracing::warn!(
            "continuous query {} on {}: {seconds} s are left out, which are too far back",
            query.name,
            query.database
        );
    }
    let began = Instant::now();
    let outcome =
        match due.range.map(|range| write(store, query, &schedule.statement(range), (now, is_stopping), counts)) {
            None => Outcome::Done,
            Some(outcome) => outcome,
        };
    counts.nanos.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
    counts.missed.fetch_add(due.missed, Relaxed);
    let outcome = match outcome {
        Outcome::Refused(text) => Outcome::Refused(text),
        done => match store.series().note_continuous_query(query, due.through) {
            Ok(_) => done,
            Err(error) => Outcome::Refused(error.to_string()),
        },
    };
    match &outcome {
        Outcome::Done => counts.runs.fetch_add(1, Relaxed),
        Outcome::Wrong(_) | Outcome::Refused(_) => counts.failed.fetch_add(1, Relaxed),
    };
    outcome
}

fn write(
    store: &Store,
    query: &ContinuousQuery,
    statement: &Statement,
    (now, is_stopping): (i64, &dyn Fn() -> bool),
    counts: &Counts,
) -> Outcome {
    let series = store.series();
    let reader = series.reader();
    let source: &dyn Source = &reader;
    let env = Env { source, database: "", now, may_see: &|_| true };
    match series.insert(&env, statement, &GoOn { query: Some(query), may: &|| !is_stopping() }) {
        Ok(Ok(inserted)) => {
            counts.rows.fetch_add(inserted.rows, Relaxed);
            Outcome::Done
        }
        // What could not be read is no fault of the query's.
        Ok(Err(error @ (SeriesError::Source { .. } | SeriesError::Memory { .. }))) => {
            Outcome::Refused(error.to_string())
        }
        Ok(Err(error)) => Outcome::Wrong(error.to_string()),
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use holdfast::Options;
    use holdfast::series::{Points, Range, Rows, Select, ValueRef};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn put(store: &Store, seconds: std::ops::Range<i64>) {
        let mut rows = Rows::new("db");
        for second in seconds {
            let name = |_: &[u8]| Ok(("m".to_owned(), vec![("h".to_owned(), "a".to_owned())]));
            let slot = rows.series(b"m", name).unwrap();
            rows.push(slot, second * SECOND, ValueRef::Integer(second));
        }
        store.series().write(&mut rows).unwrap();
    }

    fn query(text: &str, through: i64) -> ContinuousQuery {
        ContinuousQuery { database: "db".into(), name: "q".into(), text: text.into(), through: through * SECOND }
    }

    /// The points of `out`, in seconds.
    fn results(store: &Store) -> Vec<(i64, i64)> {
        let reader = store.series().reader();
        let mut points = Points::new();
        for series in reader.series(&Select::metric("db", "out")).unwrap() {
            assert_eq!(series.key.tag("h"), "a");
            reader.points(series.id, Range::ALL, &mut points).unwrap();
        }
        #[expect(clippy::cast_possible_truncation, reason = "small whole numbers")]
        points.numbers().map(|(time, number)| (time / SECOND, number as i64)).collect()
    }

    fn queries() -> Queries {
        Queries { known: BTreeMap::new(), counts: Arc::default() }
    }

    #[test]
    fn queries_run_at_their_boundaries_and_once_for_what_was_missed() {
        let dir = tempfile::tempdir().unwrap();
        let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(value) AS value INTO db..out FROM db..m GROUP BY time(10s), h END";
        {
            let store = Store::open(dir.path(), Options::default()).unwrap();
            put(&store, 0..100);
            store.series().create_continuous_query(&query(text, 5)).unwrap();
            let mut queries = queries();
            let mut at = |second: i64| queries.step(&store, second * SECOND, &|| false) / SECOND;
            assert_eq!(at(9), 10, "nothing is due");
            assert_eq!(results(&store), []);
            assert_eq!(at(10), 20);
            assert_eq!(results(&store), [(0, 45)]);
            assert_eq!(at(19), 20);
            assert_eq!(at(25), 30);
            assert_eq!(results(&store), [(0, 45), (10, 145)]);
            store.close().unwrap();
        }
        // What was missed while the store was closed is one run; how far it had come was kept.
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let mut queries = queries();
        assert_eq!(queries.step(&store, 61 * SECOND, &|| false) / SECOND, 70);
        assert_eq!(results(&store), [(0, 45), (10, 145), (20, 245), (30, 345), (40, 445), (50, 545)]);
        let numbers = queries.counts.numbers();
        assert_eq!((numbers.queries, numbers.runs, numbers.failed, numbers.rows, numbers.missed), (1, 1, 0, 4, 3));
        // One that was dropped runs no more.
        store.series().drop_continuous_query("db", "q").unwrap();
        assert_eq!(queries.step(&store, 100 * SECOND, &|| false), i64::MAX);
        assert_eq!((results(&store).len(), queries.counts.numbers().queries), (6, 0));
    }

    /// It was written to between the drop of the database and the end of a run, and was there again.
    #[test]
    fn a_database_that_is_dropped_while_a_query_of_it_runs_stays_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        put(&store, 0..100);
        let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(value) AS value INTO db..out FROM db..m GROUP BY time(10s), h END";
        store.series().create_continuous_query(&query(text, 0)).unwrap();
        let told = query(text, 0);
        let schedule = Schedule::of(&told).unwrap();
        let due = schedule.due(0, 50 * SECOND).unwrap();
        // Just before the rows are written.
        let drops = || store.series().drop_database("db").is_err();
        let outcome = run(&store, &told, &schedule, due, (50 * SECOND, &drops), &Counts::default());
        let complaint = outcome.complaint().unwrap();
        assert_eq!(complaint, "the continuous query was dropped while it ran");
        assert!(store.series().reader().databases().unwrap().is_empty());
        assert!(store.series().continuous_queries().unwrap().is_empty());
        // A query that writes elsewhere ends when that goes, and runs when it is there again.
        put(&store, 0..100);
        store.series().create_database("far").unwrap();
        let text = text.replace("INTO db..out", "INTO far..out");
        store.series().create_continuous_query(&query(&text, 0)).unwrap();
        let told = query(&text, 0);
        let schedule = Schedule::of(&told).unwrap();
        let drops = || store.series().drop_database("far").is_err();
        let outcome = run(&store, &told, &schedule, due, (50 * SECOND, &drops), &Counts::default());
        assert_eq!(outcome.complaint().unwrap(), "database not found: far");
        assert_eq!(store.series().reader().databases().unwrap(), ["db"]);
    }

    #[test]
    fn a_run_that_cannot_write_is_counted_and_the_next_is_tried() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        put(&store, 0..100);
        let mut rows = Rows::new("db");
        let slot = rows.series(b"out", |_| Ok(("out".to_owned(), vec![]))).unwrap();
        rows.push(slot, 0, ValueRef::Text("text"));
        store.series().write(&mut rows).unwrap();
        let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(value) AS value INTO db..out FROM db..m GROUP BY time(10s) END";
        store.series().create_continuous_query(&query(text, 0)).unwrap();
        let broken = ContinuousQuery { name: "broken".into(), ..query("CREATE CONTINUOUS", 0) };
        store.series().create_continuous_query(&broken).unwrap();
        let mut queries = queries();
        assert_eq!(queries.step(&store, 10 * SECOND, &|| false) / SECOND, 20);
        let complaint = |queries: &Queries| queries.known.get(&("db".into(), "q".into())).unwrap().complaint.clone();
        assert_eq!(
            complaint(&queries).unwrap(),
            "partial write: field type conflict: input field \"value\" on measurement \"out\" is type integer, already exists as type string dropped=1"
        );
        store.series().drop_series(&Select::metric("db", "out")).unwrap();
        assert_eq!(queries.step(&store, 20 * SECOND, &|| false) / SECOND, 30);
        assert_eq!(complaint(&queries), None);
        let numbers = queries.counts.numbers();
        assert_eq!((numbers.runs, numbers.failed, numbers.rows), (1, 1, 1));
    }

    #[test]
    fn what_one_series_refuses_is_no_reason_not_to_write_the_others_and_one_that_is_stopped_is_not_noted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let mut rows = Rows::new("db");
        for host in ["a", "b", "c"] {
            let name = |_: &[u8]| Ok(("m".to_owned(), vec![("h".to_owned(), host.to_owned())]));
            let slot = rows.series(host.as_bytes(), name).unwrap();
            rows.push(slot, 0, ValueRef::Integer(1));
            let name = |_: &[u8]| Ok(("out".to_owned(), vec![("h".to_owned(), host.to_owned())]));
            let slot = rows.series(format!("out{host}").as_bytes(), name).unwrap();
            let value = if host == "a" { ValueRef::Text("text") } else { ValueRef::Integer(0) };
            rows.push(slot, -SECOND, value);
        }
        store.series().write(&mut rows).unwrap();
        let text = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(value) AS value INTO db..out FROM db..m GROUP BY time(10s), h END";
        store.series().create_continuous_query(&query(text, 0)).unwrap();
        let mut queries = queries();
        queries.step(&store, 10 * SECOND, &|| false);
        let complaint = queries.known.values().next().unwrap().complaint.clone().unwrap();
        assert!(
            complaint.starts_with("partial write: field type conflict") && complaint.ends_with("dropped=1"),
            "{complaint}"
        );
        let reader = store.series().reader();
        let written = |host: &str| {
            let select = Select::metric("db", "out").and_tag("h", holdfast::series::Match::is(host));
            let series = reader.series(&select).unwrap();
            reader.last(series.first().unwrap().id).unwrap().unwrap().0
        };
        assert_eq!((written("a"), written("b"), written("c")), (-SECOND, 0, 0));
        // Who is told to stop writes nothing more, and is not noted.
        let mut rows = Rows::new("db");
        let slot = rows.series(b"b", |_| Ok(("m".to_owned(), vec![("h".to_owned(), "b".to_owned())]))).unwrap();
        rows.push(slot, 12 * SECOND, ValueRef::Integer(1));
        store.series().write(&mut rows).unwrap();
        let (before, stops) = (store.series().continuous_queries().unwrap(), std::cell::Cell::new(0));
        queries.step(&store, 20 * SECOND, &|| stops.replace(stops.get() + 1) > 0);
        assert_eq!(store.series().continuous_queries().unwrap(), before);
    }

    #[test]
    fn the_thread_runs_what_is_created_while_it_sleeps_and_ends_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        put(&store, 0..100);
        let counts = Arc::new(Counts::default());
        let runner = Runner::start(&store, &counts).unwrap();
        // Due since long ago.
        let text =
            "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT count(value) INTO db..out FROM db..m GROUP BY time(1d) END";
        store.series().create_continuous_query(&query(text, 0)).unwrap();
        let began = Instant::now();
        while counts.numbers().runs == 0 && began.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        drop(runner);
        assert!(counts.numbers().runs > 0);
        assert!(began.elapsed() < SLEEP_MAX);
    }
}
