//! The scripts that a door remembers by the SHA-1 of their text, until it closes; and which run now.
//!
//! May use: the crate `script`, tokio's semaphore. Must not know: sessions, the store.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use script::{Limits, Script, ScriptError, sha1hex};
use tokio::sync::Semaphore;

use super::deadline::worked;

/// Scripts that run in threads at a time. They share locks, so more would only wait.
const THREADS: usize = 2;

/// A script that was compiled, and what was learned of it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) script: Script,
    /// It took longer than the event loop may wait: it goes to a thread at once.
    pub(crate) is_slow: AtomicBool,
    /// It used keys that it did not declare: it gets all locks at once.
    pub(crate) is_whole: AtomicBool,
}

impl Known {
    pub(crate) fn new(script: Script) -> Arc<Self> {
        Arc::new(Known { script, is_slow: AtomicBool::new(false), is_whole: AtomicBool::new(false) })
    }
}

struct Kept {
    known: Arc<Known>,
    used: u64,
}

#[derive(Default)]
struct Table {
    kept: HashMap<String, Kept>,
    bytes: usize,
    uses: u64,
}

/// Numbers of what doors remember at a time.
static EPOCHS: AtomicU64 = AtomicU64::new(0);

/// The script that a thread ran last by its text: who sends the same text again and again has it compared, which costs less than its SHA-1.
struct Last {
    epoch: u64,
    source: Vec<u8>,
    known: Arc<Known>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// All scripts of one door.
pub(crate) struct Scripts {
    table: Mutex<Table>,
    /// Another, of all in this process, since a script was forgotten.
    epoch: AtomicU64,
    count_max: usize,
    bytes_max: usize,
    running: AtomicU64,
    /// How often SCRIPT KILL was asked for.
    kills: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
}

impl Scripts {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Self {
        Scripts {
            table: Mutex::default(),
            epoch: AtomicU64::new(EPOCHS.fetch_add(1, Relaxed)),
            count_max: count_max.max(1),
            bytes_max,
            running: AtomicU64::new(0),
            kills: Arc::default(),
            turns: Arc::new(Semaphore::new(THREADS)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, sha: &[u8]) -> Option<Arc<Known>> {
        let sha = std::str::from_utf8(sha).ok()?.to_ascii_lowercase();
        let mut table = self.table();
        table.uses += 1;
        let used = table.uses;
        let kept = table.kept.get_mut(&sha)?;
        kept.used = used;
        Some(kept.known.clone())
    }

    /// The script with this text, as [`Scripts::add`] has it, and how long that was work.
    pub(crate) fn of_text(&self, source: &[u8], limits: &Limits) -> Result<(Arc<Known>, Duration), ScriptError> {
        let epoch = self.epoch.load(Relaxed);
        let is_last = |last: &&Last| last.epoch == epoch && last.source == source;
        if let Some(known) = LAST.with_borrow(|last| last.as_ref().filter(is_last).map(|last| last.known.clone())) {
            return Ok((known, Duration::ZERO));
        }
        let before = worked();
        let (_, known) = self.add(source, limits)?;
        LAST.set(Some(Last { epoch, source: source.to_vec(), known: known.clone() }));
        Ok((known, worked().saturating_sub(before)))
    }

    fn forget(&self) {
        self.epoch.store(EPOCHS.fetch_add(1, Relaxed), Relaxed);
    }

    /// The script with this text; compiles it if it is new.
    pub(crate) fn add(&self, source: &[u8], limits: &Limits) -> Result<(String, Arc<Known>), ScriptError> {
        let sha = sha1hex(source);
        if let Some(known) = self.get(sha.as_bytes()) {
            return Ok((sha, known));
        }
        let known = Known::new(Script::compile("script", source, limits)?);
        let bytes = known.script.bytes();
        let mut table = self.table();
        while table.kept.len() >= self.count_max || !table.kept.is_empty() && table.bytes + bytes > self.bytes_max {
            let oldest = table.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(sha, _)| sha.clone());
            let Some(gone) = oldest.and_then(|sha| table.kept.remove(&sha)) else { break };
            table.bytes -= gone.known.script.bytes();
            self.forget();
        }
        table.uses += 1;
        let kept = Kept { known: known.clone(), used: table.uses };
        match table.kept.insert(sha.clone(), kept) {
            // Another thread was faster; both are the same.
            Some(_) => {}
            None => table.bytes += bytes,
        }
        Ok((sha, known))
    }

    pub(crate) fn clear(&self) {
        *self.table() = Table::default();
        self.forget();
    }

    /// Ends the scripts that run; false if there are none.
    pub(crate) fn kill(&self) -> bool {
        self.kills.fetch_add(1, Relaxed);
        self.running.load(Relaxed) > 0
    }

    /// Counts a script as running while the answer lives.
    pub(crate) fn begin(&self) -> Running<'_> {
        self.running.fetch_add(1, Relaxed);
        Running { running: &self.running, kills: self.kills.clone(), before: self.kills.load(Relaxed) }
    }

    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        self.turns.clone()
    }
}

/// A script that runs.
pub(crate) struct Running<'a> {
    running: &'a AtomicU64,
    kills: Arc<AtomicU64>,
    before: u64,
}

impl Running<'_> {
    /// Says whether the script was to be ended since it began.
    pub(crate) fn is_killed(&self) -> impl Fn() -> bool + use<> {
        let (kills, before) = (self.kills.clone(), self.before);
        move || kills.load(Relaxed) != before
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_not_used_for_longest_is_forgotten_first() {
        let scripts = Scripts::new(2, 1 << 20);
        let limits = Limits::default();
        let (one, _) = scripts.add(b"return 1", &limits).unwrap();
        let (two, _) = scripts.add(b"return 2", &limits).unwrap();
        assert!(scripts.get(one.to_uppercase().as_bytes()).is_some());
        let (three, _) = scripts.add(b"return 3", &limits).unwrap();
        assert!(scripts.get(two.as_bytes()).is_none());
        assert!(scripts.get(one.as_bytes()).is_some() && scripts.get(three.as_bytes()).is_some());
        let (again, _) = scripts.of_text(b"return 1", &limits).unwrap();
        assert!(Arc::ptr_eq(&again, &scripts.get(one.as_bytes()).unwrap()));
        assert!(Arc::ptr_eq(&again, &scripts.of_text(b"return 1", &limits).unwrap().0));
        // Who runs the text that was run last has the door know it, also behind a flush.
        scripts.clear();
        assert!(scripts.get(one.as_bytes()).is_none());
        assert!(!Arc::ptr_eq(&again, &scripts.of_text(b"return 1", &limits).unwrap().0));
        assert!(scripts.get(one.as_bytes()).is_some());
        // Each door for itself.
        let other = Scripts::new(2, 1 << 20);
        other.of_text(b"return 1", &limits).unwrap();
        assert!(other.get(one.as_bytes()).is_some());
        assert!(scripts.add(b"return (", &limits).is_err());
    }

    #[test]
    fn bytes_are_bounded_too() {
        let scripts = Scripts::new(100, 1000);
        let limits = Limits::default();
        for number in 0..50 {
            scripts.add(format!("return 'a script of some length: {number}'").as_bytes(), &limits).unwrap();
        }
        let table = scripts.table();
        let bytes: usize = table.kept.values().map(|kept| kept.known.script.bytes()).sum();
        assert_eq!(table.bytes, bytes);
        assert!(bytes <= 1000 && table.kept.len() > 1);
    }
}
