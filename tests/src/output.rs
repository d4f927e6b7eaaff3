//! What a running program has printed so far, on both of its streams.
//!
//! May use: std. Must not know: what the lines mean.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Lines beyond this are dropped: a program that prints without end must not fill the memory of the tests.
const LINES_MAX: usize = 20_000;

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    open_streams: u32,
}

/// The lines of a program; clones are the same lines.
#[derive(Debug, Clone, Default)]
pub struct Output {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Output {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stream to its end, in a thread of its own.
    pub fn follow(&self, stream: impl Read + Send + 'static) {
        self.state().open_streams += 1;
        let output = self.clone();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                output.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
            output.state().open_streams -= 1;
            output.shared.1.notify_all();
        });
    }

    fn push(&self, line: String) {
        let mut state = self.state();
        if state.lines.len() < LINES_MAX {
            state.lines.push(line);
        }
        self.shared.1.notify_all();
    }

    /// Waits for a line of which the function makes something; `None` when the time is over or the program has ended.
    pub fn wait_for<T>(&self, time_max: Duration, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + time_max;
        let mut state = self.state();
        loop {
            if let Some(found) = state.lines.iter().find_map(|line| pick(line)) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.open_streams == 0 {
                return None;
            }
            state = self.shared.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until both streams have ended, so that `text` is all there is.
    pub fn wait_for_end(&self, time_max: Duration) {
        self.wait_for(time_max, |_| None::<()>);
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.state().lines.join("\n")
    }
}
