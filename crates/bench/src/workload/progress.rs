//! A line that says how far a workload is, for a person at a terminal; nothing for anybody else.
//!
//! May use: standard error. Must not know: what is done.

use std::io::{IsTerminal, Write};
use std::time::Duration;

const BAR: usize = 30;

/// How far.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    time: Option<Duration>,
    operations: Option<u64>,
    shown: bool,
    drawn: bool,
}

impl Progress {
    /// Of a workload that ends after a time, or a number of operations.
    pub(crate) fn new(label: String, time: Option<Duration>, operations: Option<u64>) -> Self {
        Self { label, time, operations, shown: std::io::stderr().is_terminal(), drawn: false }
    }

    /// Draws it over what was drawn before.
    pub(crate) fn draw(&mut self, elapsed: Duration, done: u64) {
        if self.shown {
            self.write(&format!("\r\x1b[2K{}", self.text(elapsed, done)));
            self.drawn = true;
        }
    }

    /// Removes it.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            self.write("\r\x1b[2K");
            self.drawn = false;
        }
    }

    fn write(&self, text: &str) {
        let mut err = std::io::stderr().lock();
        // Nobody who cannot be told wants to know.
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }

    fn text(&self, elapsed: Duration, done: u64) -> String {
        let by_time = self.time.map(|time| elapsed.as_secs_f64() / time.as_secs_f64());
        let by_operations = self.operations.map(|operations| done as f64 / operations as f64);
        let share = by_operations.or(by_time).unwrap_or(0.0).clamp(0.0, 1.0);
        let full = (share * BAR as f64) as usize;
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        let seconds = elapsed.as_secs_f64();
        let left = if share > 0.01 { format!("{:.0} s left", seconds / share - seconds) } else { String::new() };
        format!("{} [{bar}] {:3.0} %  {done} operations in {seconds:.0} s  {left}", self.label, share * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_operations_if_they_are_known_or_else_of_time() {
        let by_operations = Progress::new("x".into(), Some(Duration::from_secs(4)), Some(200));
        let text = by_operations.text(Duration::from_secs(10), 50);
        assert!(text.starts_with("x [#######...") && text.contains(" 25 %") && text.ends_with("30 s left"), "{text}");
        let by_time = Progress::new("x".into(), Some(Duration::from_secs(4)), None);
        assert!(by_time.text(Duration::from_secs(8), 7).contains("100 %  7 operations"));
        assert!(by_time.text(Duration::ZERO, 0).contains("  0 %"));
    }
}
