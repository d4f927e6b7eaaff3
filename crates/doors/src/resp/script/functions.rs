//! Functions of libraries: scripts that the store keeps by name, so that they are there after a restart.
//!
//! The texts lie in the store, see `Store::libraries`. Here they are compiled: when the door opens, and when one is loaded. Two
//! doors over one store would not hear of each other's changes; the program opens one.
//!
//! May use: the facade, the crate `script`, `crate::scripts`. Must not know: sockets, how scripts run.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast::{Position, Store};
use script::{Limits, Sandbox, Script, Stop};

use super::cache::Known;
use super::deadline::Deadline;
use super::run::failure;
use crate::resp::call::Fail;
use crate::scripts;

/// How long a library may take to say what its functions are.
const LOAD_TIME_MAX: Duration = Duration::from_millis(100);

/// How the error ends of what is there already, and of what there is too much of.
pub(super) const EXISTS: &str = "already exists";
pub(super) const FULL: &str = "and no more may be";

/// A text that was compiled.
pub(crate) struct Library {
    pub(crate) said: Arc<scripts::Library>,
    pub(crate) known: Arc<Known>,
}

impl Library {
    fn compile(source: &[u8], limits: &Limits) -> Result<Self, Fail> {
        let script = Script::compile("library", source, limits).map_err(|error| failure(&error))?;
        let name = script.header().and_then(|header| header.name.clone());
        let name = name.ok_or("ERR Missing library metadata: the first line is to be #!luau name=NAME")?;
        let deadline = Deadline::of_work(LOAD_TIME_MAX);
        let watch = Box::new(move || deadline.is_over().then_some(Stop::Time));
        let functions = Sandbox::new().and_then(|mut sandbox| sandbox.functions(&script, limits, watch));
        let functions = functions.map_err(|error| failure(&error))?;
        let said = scripts::Library { name, source: source.to_vec(), functions };
        Ok(Library { said: Arc::new(said), known: Known::new(script) })
    }
}

/// All libraries, as of one moment.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) libraries: BTreeMap<String, Arc<Library>>,
    functions: HashMap<String, (Arc<Library>, bool)>,
    /// What answers of functions rest on.
    pub(crate) position: Position,
}

impl Table {
    fn of(libraries: BTreeMap<String, Arc<Library>>, position: Position) -> Result<Self, Fail> {
        let mut functions = HashMap::new();
        for library in libraries.values() {
            for function in &library.said.functions {
                let entry = (library.clone(), function.is_reading);
                if functions.insert(function.name.clone(), entry).is_some() {
                    return Err(format!("ERR Function {} {EXISTS}", function.name).into());
                }
            }
        }
        Ok(Table { libraries, functions, position })
    }

    /// The library that has the function, and whether the function only reads.
    pub(crate) fn function(&self, name: &str) -> Option<(Arc<Library>, bool)> {
        self.functions.get(name).cloned()
    }
}

/// The libraries of one door.
pub(crate) struct Functions {
    table: Mutex<Arc<Table>>,
    /// Held while the store is changed: before the partitions' locks, which EXEC holds when it looks at the table.
    changing: Mutex<()>,
    count_max: usize,
    limits: Limits,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Functions {
    /// Compiles what the store has. A library that does not compile any more is left out, and said to the log.
    pub(crate) fn open(store: &Store, count_max: usize, limits: Limits) -> Self {
        let mut libraries = BTreeMap::new();
        let texts = store.libraries().list().unwrap_or_else(|error| {
            tracing::error!(%error, "the libraries of scripts cannot be read");
            Vec::new()
        });
        for (name, source) in texts {
            match Library::compile(&source, &limits) {
                Ok(library) => drop(libraries.insert(name, Arc::new(library))),
                Err(fail) => tracing::error!(library = name, why = %fail.text(), "a library of scripts is left out"),
            }
        }
        let position = Position::new(store.watermarks().appended.get().saturating_sub(1));
        let table = Table::of(libraries, position).unwrap_or_else(|fail| {
            tracing::error!(why = %fail.text(), "the libraries of scripts are left out");
            Table::default()
        });
        Functions { table: Mutex::new(Arc::new(table)), changing: Mutex::default(), count_max, limits }
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        lock(&self.table).clone()
    }

    /// Keeps a library, in the place of one of that name if that is asked for. Answers its name.
    pub(crate) fn load(&self, store: &Store, source: &[u8], replaces: bool) -> Result<(String, Position), Fail> {
        let library = Library::compile(source, &self.limits)?;
        let name = library.said.name.clone();
        let _changing = lock(&self.changing);
        let mut libraries = self.table().libraries.clone();
        if libraries.insert(name.clone(), Arc::new(library)).is_some() && !replaces {
            return Err(format!("ERR Library '{name}' {EXISTS}").into());
        }
        if libraries.len() > self.count_max {
            return Err(format!("ERR there are {} libraries, {FULL}", self.count_max).into());
        }
        let mut table = Table::of(libraries, Position::ZERO)?;
        table.position = store.libraries().put(&name, source)?.position;
        let position = table.position;
        *lock(&self.table) = Arc::new(table);
        Ok((name, position))
    }

    /// Forgets one library, or all. False if there is none of that name.
    pub(crate) fn remove(&self, store: &Store, name: Option<&str>) -> Result<Option<Position>, Fail> {
        let _changing = lock(&self.changing);
        let before = self.table();
        let mut libraries = before.libraries.clone();
        match name {
            Some(name) if libraries.remove(name).is_none() => return Ok(None),
            Some(_) => {}
            None => libraries.clear(),
        }
        let gone = before.libraries.keys().filter(|name| !libraries.contains_key(*name));
        let gone: Vec<&str> = gone.map(String::as_str).collect();
        let position = store.libraries().remove(&gone)?.position.max(before.position);
        *lock(&self.table) = Arc::new(Table::of(libraries, position)?);
        Ok(Some(position))
    }
}
