//! Lines that a test prints whether it passes or not: seeds, rounds, what could not run here.
//!
//! May use: std. Must not know: what the lines mean.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line, past the runner of the tests, which shows what `println!` prints of failed tests alone.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => { $crate::say(format_args!($($what)*)) };
}

/// What [`say!`] does.
pub fn say(what: Arguments<'_>) {
    // One write for the line and its end, so that no other thread's comes between. Nobody may read, which is no fault of the test.
    let _ = std::io::stdout().lock().write_all(format!("{what}\n").as_bytes());
}
