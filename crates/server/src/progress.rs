//! How far something long is, on standard error: a bar for a terminal, a line every few seconds for a log.
//!
//! May use: the facade's `Progress`. Must not know: what is done.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast::Progress;

use crate::output::Bytes;

const BAR_INTERVAL: Duration = Duration::from_millis(100);
const LINE_INTERVAL: Duration = Duration::from_secs(3);
const BAR_WIDTH: u64 = 30;

/// Shows how far one job is.
pub(crate) struct Shown {
    job: &'static str,
    is_terminal: bool,
    begin: Instant,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    at: Option<Instant>,
    has_bar: bool,
}

/// Shows the progress of a job: to be given to the library.
pub(crate) fn show(job: &'static str) -> Arc<dyn Fn(Progress) + Send + Sync> {
    let is_terminal = io::stderr().is_terminal();
    let shown = Shown { job, is_terminal, begin: Instant::now(), told: Mutex::default() };
    Arc::new(move |progress| shown.tell(progress))
}

impl Shown {
    fn tell(&self, progress: Progress) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_done = progress.done_bytes >= progress.total_bytes;
        let interval = if self.is_terminal { BAR_INTERVAL } else { LINE_INTERVAL };
        // A job that is over within one interval is not worth a word; a bar that was begun has to end.
        let is_due = now.duration_since(told.at.unwrap_or(self.begin)) >= interval;
        let is_end_of_bar = is_done && told.has_bar;
        if !is_due && !is_end_of_bar {
            return;
        }
        told.at = Some(now);
        let text = line(self.job, progress, now.duration_since(self.begin));
        let mut err = io::stderr().lock();
        let _ = if self.is_terminal {
            told.has_bar = !is_done;
            let end = if is_done { "\n" } else { "" };
            write!(err, "\r\x1b[K{} {text}{end}", bar(progress)).and_then(|()| err.flush())
        } else {
            writeln!(err, "{text}")
        };
    }
}

fn bar(progress: Progress) -> String {
    let full = progress.done_bytes.min(progress.total_bytes) * BAR_WIDTH / progress.total_bytes.max(1);
    (0..BAR_WIDTH).map(|at| if at < full { '#' } else { '.' }).collect()
}

fn line(job: &str, progress: Progress, elapsed: Duration) -> String {
    let Progress { done_bytes, total_bytes, batches } = progress;
    let done = done_bytes.min(total_bytes);
    let percent = done * 100 / total_bytes.max(1);
    let left = elapsed.as_secs_f64() * (total_bytes - done) as f64 / done.max(1) as f64;
    format!("{job}: {percent} %, {} of {}, {batches} batches, {left:.0} s left", Bytes(done), Bytes(total_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_and_line_say_how_far_it_is() {
        let progress = Progress { done_bytes: 1 << 30, total_bytes: 4 << 30, batches: 7 };
        let wanted = "replaying: 25 %, 1.0 GiB of 4.0 GiB, 7 batches, 6 s left";
        assert_eq!(line("replaying", progress, Duration::from_secs(2)), wanted);
        assert_eq!(bar(progress), "#######.......................");
    }

    #[test]
    fn nothing_to_do_and_too_much_done_are_no_trouble() {
        for (done_bytes, total_bytes) in [(0, 0), (5, 0), (5, 4)] {
            let progress = Progress { done_bytes, total_bytes, batches: 0 };
            assert_eq!(bar(progress).len(), 30);
            assert!(line("x", progress, Duration::ZERO).ends_with(" 0 s left"));
        }
    }
}
