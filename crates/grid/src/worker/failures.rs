//! What is remembered of entries that failed.
//!
//! May use: std. Must not know: transactions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast::Position;

/// Most entries that are remembered. Of more, those that may be tried again first are forgotten: they lose nothing but their
/// count.
const FAILED_MAX: usize = 64 << 10;

/// How one entry failed.
#[derive(Debug, Clone)]
struct Failed {
    version: Position,
    /// Failures that count towards a dead letter.
    attempts: u32,
    /// All of them: what the wait grows by.
    tries: u32,
    not_before: Instant,
    error: String,
}

/// Entries that failed, by the keys of their ids.
#[derive(Default)]
pub(super) struct Failures(BTreeMap<Vec<u8>, Failed>);

/// What is to be done with an entry that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Handle,
    Wait(Instant),
    Bury { attempts: u32, error: String },
}

/// A failure of an entry.
pub(super) struct Event<'a> {
    pub(super) version: Position,
    pub(super) error: &'a str,
    /// Whether it counts towards a dead letter.
    pub(super) counts: bool,
}

impl Failures {
    /// Notes a failure; `wait` says how long to wait after so many.
    pub(super) fn note(&mut self, key: Vec<u8>, event: &Event<'_>, wait: impl FnOnce(u32) -> Duration) {
        let old = self.0.get(&key).filter(|failed| failed.version == event.version);
        let (attempts, tries) = old.map_or((0, 0), |failed| (failed.attempts, failed.tries));
        let (attempts, tries) = (attempts + u32::from(event.counts), tries.saturating_add(1));
        let not_before = Instant::now() + wait(tries);
        let error = event.error.to_owned();
        self.0.insert(key, Failed { version: event.version, attempts, tries, not_before, error });
        if self.0.len() > FAILED_MAX
            && let Some(first) = self.0.iter().min_by_key(|(_, failed)| failed.not_before).map(|(key, _)| key.clone())
        {
            self.0.remove(&first);
        }
    }

    /// What to do with an entry of this version; one that was written anew since has not failed yet.
    pub(super) fn next(&self, key: &[u8], version: Position, attempts_max: Option<u32>) -> Next {
        let Some(failed) = self.0.get(key).filter(|failed| failed.version == version) else { return Next::Handle };
        if attempts_max.is_some_and(|max| failed.attempts >= max) {
            return Next::Bury { attempts: failed.attempts, error: failed.error.clone() };
        }
        if failed.not_before > Instant::now() { Next::Wait(failed.not_before) } else { Next::Handle }
    }

    pub(super) fn forget(&mut self, key: &[u8]) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_id_and_version() {
        let mut failures = Failures::default();
        let (one, two) = (Position::new(1), Position::new(2));
        let event = |version, counts| Event { version, error: "no", counts };
        let later = |_| Duration::from_secs(600);
        failures.note(vec![1], &event(one, true), |_| Duration::ZERO);
        assert_eq!(failures.next(&[1], one, Some(2)), Next::Handle);
        failures.note(vec![1], &event(one, false), later);
        assert!(matches!(failures.next(&[1], one, Some(2)), Next::Wait(_)), "a conflict is no attempt");
        assert_eq!(failures.next(&[1], two, Some(1)), Next::Handle, "it was written anew");
        failures.note(vec![1], &event(one, true), later);
        let bury = Next::Bury { attempts: 2, error: "no".to_owned() };
        assert_eq!(failures.next(&[1], one, Some(2)), bury);
        assert!(matches!(failures.next(&[1], one, None), Next::Wait(_)));
        failures.forget(&[1]);
        assert_eq!(failures.next(&[1], one, Some(1)), Next::Handle);
    }
}
