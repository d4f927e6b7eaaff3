//! The server's mirrors: each type that the configuration names follows into its table, once it is declared.
//!
//! waiting -> following -> ended, and again. A type that is not declared yet, or cannot be mirrored as it is, is looked at each
//! second; a mirror that ended is begun again after a while, as somebody may have done what its last words said. The first look is before
//! the doors open, so that the journal is held for what the target has not before anybody can write.
//!
//! May use: `grid`, `config`, `rows`, the facade, threads. Must not know: doors, how a mirror follows.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use doors::ReadThrough;
use doors::numbers::MirrorNumbers;
use grid::{Backoff, ColumnTable, DocumentTable, Loader, Mapping, Mirror, MirrorOptions, MirrorStats};
use holdfast::space::Definition;
use holdfast::{Error, ErrorKind, Result, Store};

use crate::config;
use crate::failure::Failure;
use crate::rows::{self, Asks};

/// How often a mirror is looked at, and a type that cannot be mirrored yet.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After so long without an answer, and without a transaction that went through, a database is said to be silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// So many different complaints are said once each.
const SAID_MAX: usize = 8;
/// Between the end of a mirror and its next beginning, and between two words of what it sets aside: longer each time.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };

/// All mirrors of the server. Dropping it stops them.
pub(crate) struct Mirrors {
    all: Vec<Arc<Watched>>,
    threads: Vec<JoinHandle<()>>,
    read_through: Arc<rows::Types>,
}

/// One mirror of the configuration.
struct Watched {
    plan: config::Mirror,
    store: Store,
    state: Mutex<State>,
    changed: Condvar,
    /// Who waits for rows, if the type is read through.
    asks: Option<Arc<Asks>>,
}

#[derive(Default)]
struct State {
    stops: bool,
    /// What follows now.
    mirror: Option<Arc<Mirror>>,
    /// What reads rows beside it, if the type is read through.
    loader: Option<Arc<Loader>>,
    /// What those before it did.
    before: Totals,
    loaded: u64,
    /// Once in a run of the server: rows of what was taken since would come back.
    has_loaded: bool,
    /// The target had everything when it was asked last.
    is_up: bool,
    /// What was said that is wrong since then, so that it is said once.
    said: Vec<String>,
    aside: Told,
}

/// What was said of what is set aside: not each, as there may be many.
#[derive(Default)]
struct Told {
    /// Transactions.
    count: u64,
    times: u32,
    /// When next, if there are more.
    next: Option<Instant>,
}

impl Told {
    /// How many are to be told of now.
    fn due(&mut self, count: u64, now: Instant) -> Option<u64> {
        if count <= self.count || self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.times = self.times.saturating_add(1);
        self.next = Some(now + AGAIN.after(self.times));
        let more = count - self.count;
        self.count = count;
        Some(more)
    }
}

#[derive(Clone, Copy, Default)]
struct Totals {
    transactions: u64,
    events: u64,
    set_aside: u64,
    failures: u64,
}

impl Totals {
    fn and(self, stats: &MirrorStats) -> Self {
        Self {
            transactions: self.transactions + stats.transactions,
            events: self.events + stats.events,
            set_aside: self.set_aside + stats.set_aside,
            failures: self.failures + stats.failures,
        }
    }
}

impl Mirrors {
    /// Begins to follow what is declared, and to wait for what is not.
    pub(crate) fn start(store: &Store, plans: &[config::Mirror]) -> std::result::Result<Self, Failure> {
        let mut types = rows::Types::default();
        let mut this = Self { all: Vec::new(), threads: Vec::new(), read_through: Arc::default() };
        for plan in plans {
            store.space(&plan.space).expect_table(&plan.type_name);
            let (plan, store) = (plan.clone(), store.clone());
            let asks = plan.read_through.then(Arc::<Asks>::default);
            if let Some(asks) = &asks {
                types.0.insert((plan.space.clone(), plan.type_name.clone()), Arc::clone(asks));
            }
            let watched = Arc::new(Watched { plan, store, state: Mutex::default(), changed: Condvar::new(), asks });
            this.all.push(Arc::clone(&watched));
            let first = watched.begin();
            if watched.asks.is_some() {
                let of_rows = Arc::clone(&watched);
                this.spawn("mirror-rows", move || of_rows.serve_rows())?;
            }
            this.spawn("mirror-watch", move || watched.run(first))?;
        }
        this.read_through = Arc::new(types);
        Ok(this)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> std::result::Result<(), Failure> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error: io::Error| Failure::Start(error))?);
        Ok(())
    }

    /// Loads what clients read by id and the space has not, of the types that are read through.
    pub(crate) fn read_through(&self) -> Option<Arc<dyn ReadThrough>> {
        (!self.read_through.0.is_empty()).then(|| Arc::clone(&self.read_through) as _)
    }

    /// Tells them to stop, and lets go of all who wait for rows and of commits that wait for tables, so that doors need not wait for a database when
    /// they close.
    pub(crate) fn request_stop(&self) {
        for watched in &self.all {
            let mut state = watched.state();
            state.stops = true;
            if let Some(mirror) = &state.mirror {
                mirror.request_stop();
            }
            drop(state);
            watched.changed.notify_all();
            watched.asks.iter().for_each(|asks| asks.stop());
        }
    }

    /// Asks for what they do.
    pub(crate) fn numbers(&self) -> impl Fn() -> Vec<MirrorNumbers> + Send + Sync + 'static {
        let all = self.all.clone();
        move || all.iter().map(|watched| watched.numbers()).collect()
    }
}

impl Drop for Mirrors {
    fn drop(&mut self) {
        self.request_stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a mirror ended by a panic");
            }
        }
    }
}

/// How documents of the type are rows, as the configuration says.
fn mapping(plan: &config::Mirror, definition: &Definition) -> Result<Arc<dyn Mapping>> {
    let table = plan.table.as_ref().unwrap_or(&definition.name);
    Ok(match &plan.columns {
        Some(columns) => {
            let mut mapping = ColumnTable::of(definition, plan.id, columns.clone())?.in_table(table);
            if plan.is_in_mariadb() {
                mapping = mapping.in_mariadb();
            }
            if plan.unique_ids {
                mapping = mapping.with_unique_ids();
            }
            Arc::new(mapping)
        }
        None => {
            let mut mapping = DocumentTable::of(definition, plan.id).in_table(table);
            if plan.is_in_mariadb() {
                mapping = mapping.in_mariadb();
            }
            if plan.unique_ids {
                mapping = mapping.with_unique_ids();
            }
            Arc::new(mapping)
        }
    })
}

impl Watched {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> MirrorNumbers {
        let state = self.state();
        let stats = state.mirror.as_ref().map(|mirror| mirror.stats()).unwrap_or_default();
        let totals = state.before.and(&stats);
        MirrorNumbers {
            name: self.plan.name.clone(),
            is_up: state.is_up && stats.trouble.is_none() && stats.ended.is_none(),
            position: stats.position.get(),
            transactions: totals.transactions,
            events: totals.events,
            set_aside: totals.set_aside,
            failures: totals.failures,
            loaded: state.loaded,
        }
    }

    /// Until the server stops.
    fn run(&self, first: Result<Arc<Mirror>>) {
        let (mut begun, mut ends) = (first, 0);
        loop {
            let pause = match begun {
                Ok(mirror) => {
                    let why = self.watch(&mirror);
                    self.over(&mirror);
                    let Some(why) = why else { return };
                    self.complain(&why);
                    ends = if mirror.stats().transactions > 0 { 1 } else { ends + 1 };
                    AGAIN.after(ends)
                }
                Err(error) => {
                    self.complain(&error.to_string());
                    LOOK_INTERVAL
                }
            };
            if self.pause(pause) {
                return;
            }
            begun = self.begin();
        }
    }

    /// Follows the type, if it is declared and can be followed.
    fn begin(&self) -> Result<Arc<Mirror>> {
        let plan = &self.plan;
        let entries = self.store.space(&plan.space).entries(&plan.type_name)?;
        let mapping = mapping(plan, &entries.definition())?;
        let (target, refused) = (plan.database.clone(), plan.refused);
        let options = MirrorOptions { target, refused, ..MirrorOptions::new(&plan.name, "") };
        let mirror = Arc::new(Mirror::start(&entries, mapping, options)?);
        let loader = self.asks.is_some().then(|| Loader::beside(&self.store, &mirror)).transpose()?;
        let mut state = self.state();
        state.loader = loader.map(Arc::new);
        if state.stops {
            mirror.request_stop();
        }
        state.mirror = Some(Arc::clone(&mirror));
        drop(state);
        Ok(mirror)
    }

    /// Looks after a mirror until it ends, and why; `None` when the server stops.
    fn watch(&self, mirror: &Mirror) -> Option<String> {
        let (mut load_failures, mut heard, mut transactions) = (0, Instant::now(), 0);
        loop {
            let mut pause = LOOK_INTERVAL;
            let stats = mirror.stats();
            self.tell_of_aside(&stats);
            if let Some(why) = stats.ended {
                return Some(why);
            }
            if stats.transactions > transactions {
                (heard, transactions) = (Instant::now(), stats.transactions);
            }
            match &stats.trouble {
                Some(trouble) => self.complain(&format!("{trouble}; tried again until it goes")),
                None if !mirror.flush(LOOK_INTERVAL) => {
                    if heard.elapsed() >= SILENCE_MAX {
                        self.complain("its database does not answer, or something there has locked its table");
                    }
                }
                None if !self.load(mirror) => {
                    load_failures += 1;
                    pause = AGAIN.after(load_failures);
                }
                None => {
                    heard = Instant::now();
                    self.up();
                }
            }
            if self.pause(pause) {
                return None;
            }
        }
    }

    /// What is in the table and not in the space becomes entries; false when that has to be tried again.
    fn load(&self, mirror: &Mirror) -> bool {
        if !self.plan.load || self.state().has_loaded {
            return true;
        }
        match Loader::beside(&self.store, mirror).and_then(|loader| loader.load()) {
            Ok(loaded) => {
                let mut state = self.state();
                state.loaded += loaded.written;
                state.has_loaded = true;
                drop(state);
                let (name, rows, written) = (&self.plan.name, loaded.rows, loaded.written);
                tracing::info!(
                    "mirror {name}: its table has {rows} rows, of which {written} were no entries and are now"
                );
                true
            }
            Err(error) if error.kind() == ErrorKind::Closed => true,
            Err(error) => {
                self.complain(&format!("its table cannot be loaded: {error}; tried again"));
                false
            }
        }
    }

    /// What it did is kept. It is stopped when the caller drops it.
    fn over(&self, mirror: &Mirror) {
        let stats = mirror.stats();
        let mut state = self.state();
        let mut totals = state.before.and(&stats);
        totals.failures += u64::from(stats.ended.is_some());
        (state.before, state.mirror, state.loader, state.is_up) = (totals, None, None, false);
    }

    /// Reads rows for who asks, until the server stops.
    fn serve_rows(&self) {
        let Some(asks) = &self.asks else { return };
        // What the database says is for the log.
        let unknown = || {
            let name = &self.plan.name;
            let text = format!(
                "the entry is not in the space, and its table cannot be asked now: the log says why (mirror {name})"
            );
            Error::new(ErrorKind::Unavailable, text)
        };
        // Said once, until it goes: each reader meets it.
        let has_failed = Cell::new(false);
        asks.serve(|ids| {
            let (loader, mirror) = {
                let state = self.state();
                (state.loader.clone(), state.mirror.clone())
            };
            let has_trouble = mirror.is_none_or(|mirror| mirror.stats().trouble.is_some());
            // Nobody waits for what is known to be out of reach.
            let Some(loader) = loader.filter(|_| !has_trouble) else { return Err(unknown()) };
            match loader.load_ids(ids, rows::WAIT_MAX) {
                Ok(loaded) => {
                    has_failed.set(false);
                    self.state().loaded += loaded.written;
                    Ok(loaded.entries)
                }
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout) => {
                    if !has_failed.replace(true) {
                        let name = &self.plan.name;
                        tracing::warn!(
                            "mirror {name}: entries that are asked for cannot be read from its table: {error}"
                        );
                    }
                    Err(unknown())
                }
                Err(error) => Err(error),
            }
        });
    }

    /// What it sets aside is no trouble of the mirror's, but somebody has to look at it.
    fn tell_of_aside(&self, stats: &MirrorStats) {
        let mut state = self.state();
        let count = state.before.and(stats).set_aside;
        let Some(more) = state.aside.due(count, Instant::now()) else { return };
        drop(state);
        let (name, why) = (&self.plan.name, stats.refusal.as_deref().unwrap_or_default());
        tracing::warn!(
            "mirror {name}: set aside into holdfast_refused, as its table refuses them: {more}; the last one: {why}"
        );
    }

    fn complain(&self, text: &str) {
        let mut state = self.state();
        state.is_up = false;
        if !state.stops && !state.said.iter().any(|said| said == text) {
            tracing::warn!("mirror {}: {text}", self.plan.name);
            state.said.push(text.to_owned());
            let over = state.said.len().saturating_sub(SAID_MAX);
            state.said.drain(..over);
        }
    }

    /// The target has everything: said when it had not.
    fn up(&self) {
        let mut state = self.state();
        state.said.clear();
        let was_up = std::mem::replace(&mut state.is_up, true);
        drop(state);
        if !was_up {
            let config::Mirror { name, space, type_name, .. } = &self.plan;
            tracing::info!("mirror {name}: its table has everything of {type_name} in space {space}, and follows");
        }
    }

    /// True when the server stops.
    fn pause(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, time, |state| !state.stops);
        waited.unwrap_or_else(PoisonError::into_inner).0.stops
    }
}

#[cfg(test)]
mod tests {
    use grid::{ColumnKind, Columns, Database, FieldColumn, IdKind, Refused, Rest};

    use super::*;

    #[test]
    fn a_mapping_is_what_the_configuration_says() {
        let total = FieldColumn::new("total", ColumnKind::Json);
        let columns = Columns { key: "number".to_owned(), fields: vec![total], rest: Rest::Refused };
        let plan = |columns: Option<Columns>| config::Mirror {
            name: "orders".to_owned(),
            space: "shop".to_owned(),
            type_name: "order".to_owned(),
            database: Database::new("host=db"),
            table: Some("archive.orders".to_owned()),
            id: IdKind::String,
            columns,
            unique_ids: true,
            load: false,
            read_through: false,
            refused: Refused::Stop,
        };
        for (columns, names) in [(None, ["id", "document"]), (Some(columns), ["number", "total"])] {
            for (address, json) in [("host=db", "jsonb"), ("mysql://db/shop", "json")] {
                let plan = config::Mirror { database: Database::new(address), ..plan(columns.clone()) };
                let mapping = mapping(&plan, &Definition::new("shop", "order")).unwrap();
                let table = mapping.table();
                let found = [table.key.name.as_str(), table.columns[0].name.as_str()];
                assert_eq!((table.name.as_str(), found), ("archive.orders", names));
                assert_eq!(table.columns[0].sql_type, json);
                assert_eq!(table.key.sql_type == "text", json == "jsonb");
                assert!(mapping.has_unique_ids());
                let plain = config::Mirror { table: None, unique_ids: false, ..plan };
                let mapping = super::mapping(&plain, &Definition::new("shop", "order")).unwrap();
                assert_eq!((mapping.table().name.as_str(), mapping.has_unique_ids()), ("order", false));
            }
        }
    }

    /// A stream of entries that are refused was a line of the log for each.
    #[test]
    fn what_is_set_aside_is_told_at_once_and_then_less_and_less_often() {
        let (mut told, begin) = (Told::default(), Instant::now());
        assert_eq!(told.due(0, begin), None);
        assert_eq!(told.due(1, begin), Some(1));
        assert_eq!(told.due(1, begin), None);
        let lines: Vec<u64> =
            (1..=3600).filter_map(|second| told.due(second, begin + Duration::from_secs(second))).collect();
        assert!(lines.len() < 140 && lines.iter().sum::<u64>() > 3500, "{lines:?}");
    }
}
