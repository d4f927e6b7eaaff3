//! When a manager of objects recovers by itself.
//!
//! The connections are the program's, and may be used while it calls alone. So a round is made by calls that add a connection, at
//! that one, and by calls that begin a transaction: by the first on these connections, and then when one is due. One in 10 s, sooner where something was left in doubt; where
//! somebody could not be asked the pause doubles up to 30 s, half of it random, so that many programs do not ask at once.
//!
//! All managers of a profile whose connections have the same names have the rounds together, so that a program which makes one for
//! each transaction does not recover each time.
//!
//! May use: `tm`. Must not know: connections, what a round does.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tm::{BranchName, Pace};

use crate::manager::Recovered;

/// How long a round may go on that nobody asked for; what it has not come to by then is left to the next.
pub(crate) const ROUND_TIME_MAX: Duration = Duration::from_secs(1);
/// Sets of names that are remembered; a program that has more recovers more often.
const SETS_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Rounds(Mutex<BTreeMap<Vec<BranchName>, Round>>);

#[derive(Debug, Clone, Copy)]
struct Round {
    not_before: Instant,
    /// In a row, of those in which somebody could not be asked.
    failures: u32,
}

impl Rounds {
    /// Whether a round is due now. Whoever is told so makes it; others do not wait for it.
    pub(crate) fn take(&self, names: &[BranchName], now: Instant) -> bool {
        let mut rounds = self.lock();
        if rounds.len() >= SETS_MAX && !rounds.contains_key(names) {
            rounds.clear();
        }
        let round = rounds.entry(names.to_vec()).or_insert(Round { not_before: now, failures: 0 });
        let is_due = round.not_before <= now;
        if is_due {
            round.not_before = now + Pace::default().interval;
        }
        is_due
    }

    /// A round has ended so.
    pub(crate) fn ended(&self, names: &[BranchName], recovered: Recovered, now: Instant) {
        if let Some(round) = self.lock().get_mut(names) {
            let pace = Pace::default();
            let is_failure = recovered.unreachable > 0;
            round.failures = if is_failure { round.failures.saturating_add(1) } else { 0 };
            let pause = match (is_failure, recovered.left) {
                (true, _) => backed_off(pace, round.failures, jitter()),
                // It may be settled as soon as its owner's lease is over, and holds locks until then.
                (false, 1..) => pace.interval.min(pace.retry_min.saturating_mul(4)),
                (false, 0) => pace.interval,
            };
            round.not_before = now + pause;
        }
    }

    /// Something was left in doubt just now. Where somebody cannot be asked this changes nothing.
    pub(crate) fn hurry(&self, names: &[BranchName], now: Instant) {
        if let Some(round) = self.lock().get_mut(names).filter(|round| round.failures == 0) {
            round.not_before = now;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<BranchName>, Round>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pause behind so many failures, with any random number.
fn backed_off(pace: Pace, failures: u32, jitter: u32) -> Duration {
    let doublings = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let half = pace.retry_min.saturating_mul(doublings).min(pace.retry_max) / 2;
    half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
}

fn jitter() -> u32 {
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tm::{BranchName, Pace};

    use super::{Recovered, Rounds, backed_off};

    fn names(names: &[&str]) -> Vec<BranchName> {
        names.iter().map(|name| BranchName::new(name).unwrap()).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_round_is_due_at_first_and_then_once_in_ten_seconds_for_all_with_the_same_names() {
        let (rounds, start) = (Rounds::default(), Instant::now());
        let (one, both) = (names(&["pg"]), names(&["pg", "ma"]));
        assert!(rounds.take(&one, start));
        assert!(!rounds.take(&one, start), "somebody makes it");
        assert!(rounds.take(&both, start), "a connection was added");
        rounds.ended(&one, Recovered::default(), start);
        assert!(!rounds.take(&one, start + 9 * SECOND));
        assert!(rounds.take(&one, start + 10 * SECOND));
    }

    #[test]
    fn what_was_left_is_looked_at_soon() {
        let (rounds, start, names) = (Rounds::default(), Instant::now(), names(&["pg"]));
        assert!(rounds.take(&names, start));
        rounds.ended(&names, Recovered { left: 1, ..Recovered::default() }, start);
        assert!(!rounds.take(&names, start + SECOND / 2));
        assert!(rounds.take(&names, start + SECOND));
        rounds.ended(&names, Recovered::default(), start + SECOND);
        rounds.hurry(&names, start + 2 * SECOND);
        assert!(rounds.take(&names, start + 2 * SECOND));
    }

    #[test]
    fn who_cannot_be_asked_is_asked_less_and_less_often() {
        let (rounds, start, names) = (Rounds::default(), Instant::now(), names(&["pg"]));
        let down = Recovered { unreachable: 1, ..Recovered::default() };
        assert!(rounds.take(&names, start));
        for _ in 0..100 {
            rounds.ended(&names, down, start);
        }
        rounds.hurry(&names, start);
        assert!(!rounds.take(&names, start + 14 * SECOND));
        assert!(rounds.take(&names, start + 30 * SECOND));
        rounds.ended(&names, Recovered::default(), start);
        rounds.ended(&names, down, start);
        assert!(rounds.take(&names, start + SECOND / 4), "it was back meanwhile");
        let pauses = [1, 2, 3, 8, 1000].map(|failures| backed_off(Pace::default(), failures, u32::MAX).as_millis());
        assert_eq!(pauses, [250, 500, 1000, 30_000, 30_000]);
        assert_eq!(backed_off(Pace::default(), 1, 0).as_millis(), 125);
    }
}
