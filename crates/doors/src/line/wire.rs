//! Lines of points, bytes in, points out: one line after the other, each parsed whole before any of its points is kept.
//!
//! ```text
//! line      = blank | "#" ... | put | influx | import | word
//! put       = "put" metric time value { name "=" value }             see `put.rs`
//! influx    = metric { "," name "=" value } field { "," field } [ time ]   see `influx.rs`
//! import    = metric time value name "=" value { name "=" value }    a put line of a file, where digits say the unit of times
//! word      = anything without "=": a command, which is not for this file to know
//! ```
//! A line ends with `\n` or `\r\n`; only a text of Influx goes over it. `put` with a `=` in its first word is Influx's.
//!
//! May use: `put`, `influx`, `number`, the facade's `Rows`. Must not know: sockets, who asks.

use std::borrow::Cow;

use holdfast::series::{Rows, SeriesError};
use memchr::memchr;

use super::number::Unit;
use super::{influx, put};

/// What times are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The time of points that have none, in nanoseconds since 1970.
    pub(crate) now: i64,
    /// What times of Influx lines are in; those of put lines say it by their digits.
    pub(crate) unit: Unit,
}

/// What comes after the bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Perhaps more, which may belong to the last line.
    More,
    /// Nothing: the last line needs no line end.
    Nothing,
}

/// In which of the two ways a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Put,
    Influx,
}

/// What the first line was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step<'t> {
    /// It is not all there.
    Incomplete,
    /// It had so many points, which are kept. The bytes and lines it took.
    Points { bytes: usize, lines: usize, points: usize },
    /// No points: a word and its arguments.
    Word { bytes: usize, line: &'t [u8] },
    /// Nothing of it was kept.
    Bad { bytes: usize, line: &'t [u8], shape: Shape, reason: Cow<'static, str> },
}

/// Why a line is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A text does not end in the bytes that are there.
    Open,
    /// What is wrong, and what would be right.
    Wrong(Cow<'static, str>),
}

impl From<&'static str> for Bad {
    fn from(text: &'static str) -> Self {
        Bad::Wrong(text.into())
    }
}

impl From<String> for Bad {
    fn from(text: String) -> Self {
        Bad::Wrong(text.into())
    }
}

impl From<SeriesError> for Bad {
    fn from(error: SeriesError) -> Self {
        Bad::Wrong(error.to_string().into())
    }
}

/// Reads lines, and keeps the memory that this takes from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    put: put::Reader,
    influx: influx::Reader,
}

impl Reader {
    /// Reads the first line of `text`, and adds its points.
    pub(crate) fn step<'t>(&mut self, text: &'t [u8], after: After, times: Times, rows: &mut Rows) -> Step<'t> {
        let end = match (memchr(b'\n', text), after) {
            (Some(end), _) => end,
            (None, After::More) => return Step::Incomplete,
            (None, After::Nothing) => text.len(),
        };
        let bytes = (end + 1).min(text.len());
        let line = trimmed(text.get(..end).unwrap_or_default());
        if matches!(line, [] | [b'#', ..]) {
            return Step::Points { bytes, lines: 1, points: 0 };
        }
        if put::is_put(line) {
            return self.put(bytes, line, rows);
        }
        // A text may go on behind the end of the line, so that all of it is given.
        let start = end - text.get(..end).unwrap_or_default().trim_ascii_start().len();
        let whole = (text.get(start..).unwrap_or_default(), line.len());
        match self.influx.read(whole, after, times, rows) {
            Ok(done) => {
                let bytes = (start + done.bytes).min(text.len());
                Step::Points { bytes, lines: 1 + done.breaks, points: done.points }
            }
            Err(Bad::Open) if after == After::More => Step::Incomplete,
            Err(_) if memchr(b'=', line).is_none() => Step::Word { bytes, line },
            Err(Bad::Open) => {
                let reason = "unbalanced quotes: a text begins and ends with \"".into();
                Step::Bad { bytes, line, shape: Shape::Influx, reason }
            }
            // Looked at last, so that Influx lines pay nothing for it. Where clients say the unit of times, all lines are Influx's.
            Err(Bad::Wrong(_)) if times.unit == Unit::Digits && put::is_import(line) => self.put(bytes, line, rows),
            Err(Bad::Wrong(reason)) => Step::Bad { bytes, line, shape: Shape::Influx, reason },
        }
    }

    fn put<'t>(&mut self, bytes: usize, line: &'t [u8], rows: &mut Rows) -> Step<'t> {
        match self.put.read(line, rows) {
            Ok(()) => Step::Points { bytes, lines: 1, points: 1 },
            Err(reason) => Step::Bad { bytes, line, shape: Shape::Put, reason },
        }
    }
}

/// A line without its end and the blanks before it.
fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start()
}

/// The beginning of a line for an error message, in one piece and readable.
pub(crate) fn excerpt(line: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 200;
    let bytes = line.get(..4 * CHARACTERS_MAX).unwrap_or(line);
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String =
        text.chars().take(CHARACTERS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(CHARACTERS_MAX).is_some() || bytes.len() < line.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
