//! How long to wait before something that failed is tried again.
//!
//! May use: std. Must not know: what failed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Waits that double from `first` to `max`. Each is shortened by a random part of up to a half, so that what failed together
/// is not tried again together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// After many.
    pub max: Duration,
}

impl Default for Backoff {
    /// From 10 ms, which outlasts a conflict, to 10 s, which a person who has repaired something does not mind.
    fn default() -> Self {
        Self { first: Duration::from_millis(10), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The wait after so many failures; the first is number 1.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        // The standard library's random keys are the randomness that needs no other crate.
        self.after_with(failures, RandomState::new().build_hasher().finish())
    }

    fn after_with(&self, failures: u32, random: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.max);
        let off = whole / 2 / 1024 * u32::try_from(random % 1025).unwrap_or(0);
        whole.saturating_sub(off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_never_shorter_than_half() {
        let backoff = Backoff { first: Duration::from_millis(8), max: Duration::from_millis(50) };
        for (failures, whole) in [(0, 8), (1, 8), (2, 16), (3, 32), (4, 50), (40, 50), (u32::MAX, 50)] {
            let whole = Duration::from_millis(whole);
            assert_eq!(backoff.after_with(failures, 0), whole);
            let least = backoff.after_with(failures, 1024);
            assert!(least >= whole / 2 && least <= whole / 2 + Duration::from_micros(50), "{least:?}");
            let some = backoff.after(failures);
            assert!(some >= whole / 2 && some <= whole);
        }
    }
}
