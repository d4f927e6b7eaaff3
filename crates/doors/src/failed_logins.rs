//! Logins that failed, in the log: who tried, from where and through which door, never with what.
//!
//! Some are told in each second, and of the rest how many they were, when the second is over or the doors close: who guesses
//! passwords must not be able to fill the disk with the log. All are counted.
//!
//! May use: `tracing`, tokio. Must not know: passwords, protocols.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
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

/// What was told lately, and how many there were.
#[derive(Default)]
pub(crate) struct FailedLogins {
    lately: Arc<Mutex<Lately>>,
    count: AtomicU64,
}

#[derive(Default)]
struct Lately {
    began: Option<Instant>,
    told: u32,
    untold: u64,
}

/// What is to be told of at the end of an interval: told when it is dropped, which the end of the doors does too.
struct Rest(Arc<Mutex<Lately>>);

impl Drop for Rest {
    fn drop(&mut self) {
        tell_untold(std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).untold));
    }
}

fn tell_untold(count: u64) {
    if count > 0 {
        tracing::warn!(count, "more logins failed, which are not told one by one");
    }
}

/// What becomes of one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It is told, after so many that were not.
    Told(u64),
    /// It is not, and the first that is not.
    First,
    Untold,
}

impl FailedLogins {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// In a thread of a runtime with timers, or one that it lets wait.
    pub(crate) fn tell(&self, failed: FailedLogin<'_>) {
        self.count.fetch_add(1, Relaxed);
        match self.next(Instant::now()) {
            Next::Told(untold) => tell_untold(untold),
            Next::Untold => return,
            Next::First => {
                let rest = Rest(Arc::clone(&self.lately));
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        tokio::time::sleep(INTERVAL).await;
                        drop(rest);
                    });
                }
                return;
            }
        }
        let FailedLogin { door, name, address } = failed;
        let name = name.get(..SHOWN_BYTES).unwrap_or(name).escape_ascii();
        let address = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        tracing::warn!(door, user = %name, %address, "a login failed");
    }

    fn next(&self, now: Instant) -> Next {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        if lately.began.is_none_or(|began| now.saturating_duration_since(began) >= INTERVAL) {
            (lately.began, lately.told) = (Some(now), 0);
        }
        if lately.told >= TOLD_MAX {
            lately.untold += 1;
            return if lately.untold == 1 { Next::First } else { Next::Untold };
        }
        lately.told += 1;
        Next::Told(std::mem::take(&mut lately.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what is logged into a text.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_is_some_lines_a_second_and_a_count() {
        let (logins, begin) = (FailedLogins::default(), Instant::now());
        let next = |at: Duration| (0..100).map(|_| logins.next(begin + at)).collect::<Vec<Next>>();
        let told = |all: &[Next]| all.iter().filter(|next| matches!(next, Next::Told(_))).count();
        let first = next(Duration::ZERO);
        assert_eq!((&first[..6], told(&first)), (&[&[Next::Told(0); 5][..], &[Next::First]].concat()[..], 5));
        assert_eq!(told(&next(INTERVAL / 2)), 0);
        let second = next(INTERVAL);
        assert_eq!((second[0], second[1], told(&second)), (Next::Told(195), Next::Told(0), 5));
        assert_eq!(logins.next(begin + 10 * INTERVAL), Next::Told(95));
    }

    #[test]
    fn those_that_are_not_told_are_counted_when_the_second_is_over_and_when_the_doors_close() {
        for is_closed in [false, true] {
            let log = Log::default();
            let to = log.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).with_ansi(false).finish();
            tracing::subscriber::with_default(subscriber, || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let logins = FailedLogins::default();
                runtime.block_on(async {
                    (0..100).for_each(|_| logins.tell(FailedLogin { door: "http", name: b"ada", address: None }));
                    let end = Instant::now() + 20 * INTERVAL;
                    while !is_closed && !log.text().contains("count") && Instant::now() < end {
                        tokio::task::yield_now().await;
                    }
                });
                drop(runtime);
                assert_eq!(logins.count(), 100);
            });
            let text = log.text();
            assert_eq!((text.matches("a login failed").count(), text.matches("count=95").count()), (5, 1), "{text}");
        }
    }
}
