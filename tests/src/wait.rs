//! Waiting for another process, with an end.
//!
//! May use: std. Must not know: what is waited for.

use std::thread;
use std::time::{Duration, Instant};

/// Asks until there is an answer or the time is over. Another process tells nobody when it is done, so this looks again
/// every millisecond.
pub fn until<T>(time_max: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time_max;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
