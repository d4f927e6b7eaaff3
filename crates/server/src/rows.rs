//! Entries that clients read by their id and the space has not: loaded from the table that their type's mirror follows in.
//!
//! Whoever asks waits in a future. A thread for each type takes all that have asked by then, and reads their rows at once; one
//! that waits for its database holds up only those of its type.
//!
//! May use: `doors` for what it answers, the facade, threads. Must not know: protocols, how rows are read.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use doors::{Loading, ReadThrough};
use holdfast::space::Value;
use holdfast::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// How long who reads an entry that is not there waits for its row.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// So many wait of one type; others are told to come back.
const ASKS_MAX: usize = 10_000;
/// Rows that are read at once.
const BATCH_MAX: usize = 500;

/// What clients of one type have asked for.
#[derive(Default)]
pub(crate) struct Asks {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    asks: Vec<Ask>,
    stops: bool,
}

struct Ask {
    id: Value,
    answer: oneshot::Sender<Result<bool>>,
}

impl Asks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, id: &Value) -> Loading {
        let (answer, told) = oneshot::channel();
        let mut state = self.state();
        if state.asks.len() >= ASKS_MAX {
            let text = "too many entries of this type wait to be read from their table: try again later";
            return Box::pin(async move { Err(unavailable(text)) });
        }
        if !state.stops {
            state.asks.push(Ask { id: id.clone(), answer });
        }
        drop(state);
        self.came.notify_one();
        Box::pin(async move {
            match tokio::time::timeout(WAIT_MAX, told).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) => Err(unavailable("the server stops")),
                Err(_) => Err(unavailable("its table was not read in time: the database is slow")),
            }
        })
    }

    /// Those who have asked by now; waits until somebody has. `None` when it stops.
    fn next(&self) -> Option<Vec<Ask>> {
        let mut state = self.state();
        while state.asks.is_empty() && !state.stops {
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stops {
            return None;
        }
        let rest = state.asks.len().min(BATCH_MAX);
        let rest = state.asks.split_off(rest);
        Some(std::mem::replace(&mut state.asks, rest))
    }

    /// Lets go of everybody who waits.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.stops = true;
        state.asks.clear();
        drop(state);
        self.came.notify_all();
    }

    /// Has `load` load what is asked for until it stops: it says which ids have an entry then.
    pub(crate) fn serve(&self, load: impl Fn(&[Value]) -> Result<Vec<Value>>) {
        let load = |asks: &[Ask]| {
            let there = load(&asks.iter().map(|ask| ask.id.clone()).collect::<Vec<_>>())?;
            Ok::<HashSet<String>, Error>(there.iter().map(Value::to_json).collect())
        };
        while let Some(mut asks) = self.next() {
            // Whose client is gone has no need of it.
            asks.retain(|ask| !ask.answer.is_closed());
            let done = load(&asks);
            // One row that is no document, or an id that the database refuses to look for, must not keep others from theirs, and some may
            // have room where all have not. With a database that is away that is over at once, or when nobody waits any more.
            let until = Instant::now() + WAIT_MAX;
            let is_each = done.is_err() && asks.len() > 1;
            for ask in asks {
                if is_each && Instant::now() < until && !ask.answer.is_closed() {
                    let done = load(std::slice::from_ref(&ask));
                    tell(ask, &done);
                } else {
                    tell(ask, &done);
                }
            }
        }
    }
}

fn unavailable(text: &str) -> Error {
    Error::new(ErrorKind::Unavailable, text)
}

/// Tells who asked whether the entry is there, by the ids of those that are.
fn tell(ask: Ask, done: &Result<HashSet<String>>) {
    let is_there = match done {
        Ok(there) => Ok(there.contains(&ask.id.to_json())),
        Err(error) => Err(Error::new(error.kind(), error.to_string())),
    };
    // Who does not wait any more needs no answer.
    let _ = ask.answer.send(is_there);
}

/// The types that are read through, by their space and name.
#[derive(Default)]
pub(crate) struct Types(pub(crate) HashMap<(String, String), Arc<Asks>>);

impl Types {
    fn asks(&self, space: &str, type_name: &str) -> Option<&Asks> {
        self.0.get(&(space.to_owned(), type_name.to_owned())).map(|asks| &**asks)
    }
}

impl ReadThrough for Types {
    fn is_for(&self, space: &str, type_name: &str) -> bool {
        self.asks(space, type_name).is_some()
    }

    fn load(&self, space: &str, type_name: &str, id: &Value) -> Loading {
        match self.asks(space, type_name) {
            Some(asks) => asks.ask(id),
            None => Box::pin(async { Ok(false) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What one load said stood for the rest: ids that nobody had looked for were answered with nothing.
    #[test]
    fn each_is_told_of_its_own_id_also_when_all_together_fail() {
        let asks = Arc::<Asks>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let waiting: Vec<Loading> = {
            let _entered = runtime.enter();
            (0..6).map(|id| asks.ask(&Value::I64(id))).collect()
        };
        let loads = AtomicUsize::new(0);
        let told = std::thread::scope(|scope| {
            let serving = Arc::clone(&asks);
            let loads = &loads;
            scope.spawn(move || {
                serving.serve(|ids| {
                    loads.fetch_add(1, Ordering::Relaxed);
                    let is_bad = |id: &Value| *id == Value::I64(3);
                    match ids.iter().any(is_bad) {
                        true => Err(Error::new(ErrorKind::Invalid, "no document")),
                        false => Ok(ids.iter().filter(|id| **id != Value::I64(4)).cloned().collect()),
                    }
                });
            });
            let told: Vec<Result<bool>> = waiting.into_iter().map(|it| runtime.block_on(it)).collect();
            asks.stop();
            told
        });
        let told: Vec<Option<bool>> = told.into_iter().map(Result::ok).collect();
        assert_eq!(told, [Some(true), Some(true), Some(true), None, Some(false), Some(true)]);
        assert_eq!(loads.into_inner(), 7, "all at once, and each by itself");
        let late = runtime.block_on(asks.ask(&Value::I64(1)));
        assert!(late.unwrap_err().to_string().contains("the server stops"));
    }
}
