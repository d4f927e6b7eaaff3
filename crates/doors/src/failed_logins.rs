//! Logins that failed, in the log: who tried, from where and through which door, never with what.
//!
//! Some are told in each second, and of the rest how many they were, when the next one is told: who guesses passwords must not be
//! able to fill the disk with the log.
//!
//! May use: `tracing`. Must not know: passwords, protocols.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
/// Most that are told in an interval.
const TOLD_MAX: u32 = 5;
/// Bytes of a name that are shown: a client may send any.
const SHOWN_BYTES: usize = 64;

/// A login that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedLogin<'a> {
    pub(crate) door: &'static str,
    pub(crate) name: &'a [u8],
    /// `None` when the system does not say any more.
    pub(crate) address: Option<SocketAddr>,
}

/// What was told lately.
#[derive(Default)]
pub(crate) struct FailedLogins(Mutex<Lately>);

#[derive(Default)]
struct Lately {
    began: Option<Instant>,
    told: u32,
    untold: u64,
}

impl FailedLogins {
    pub(crate) fn tell(&self, failed: FailedLogin<'_>) {
        let Some(untold) = self.next(Instant::now()) else { return };
        if untold > 0 {
            tracing::warn!(count = untold, "more logins failed, which are not told one by one");
        }
        let FailedLogin { door, name, address } = failed;
        let name = name.get(..SHOWN_BYTES).unwrap_or(name).escape_ascii();
        let address = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        tracing::warn!(door, user = %name, %address, "a login failed");
    }

    /// How many were not told before this one, or `None` when this one is not told either.
    fn next(&self, now: Instant) -> Option<u64> {
        let mut lately = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lately.began.is_none_or(|began| now.saturating_duration_since(began) >= INTERVAL) {
            (lately.began, lately.told) = (Some(now), 0);
        }
        if lately.told >= TOLD_MAX {
            lately.untold += 1;
            return None;
        }
        lately.told += 1;
        Some(std::mem::take(&mut lately.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_some_lines_a_second_and_a_count() {
        let (logins, begin) = (FailedLogins::default(), Instant::now());
        let told = |at: Duration| (0..100).filter_map(|_| logins.next(begin + at)).collect::<Vec<u64>>();
        assert_eq!(told(Duration::ZERO), [0; 5]);
        assert!(told(INTERVAL / 2).is_empty());
        assert_eq!(told(INTERVAL), [195, 0, 0, 0, 0]);
        assert_eq!(logins.next(begin + 10 * INTERVAL), Some(95));
    }
}
