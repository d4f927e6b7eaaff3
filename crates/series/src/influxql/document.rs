//! Answers as InfluxDB 1.8 writes them: JSON, whole or in chunks, and CSV.
//!
//! JSON: `{"results":[{"statement_id":0,"series":[{"name":..,"tags":{..},"columns":[..],"values":[[..]]}]}]}`, members that are
//! empty left out. In chunks each series, and each `chunk_size` rows of one, is such a document on a line; `partial` says that more of
//! the series (within it) or of the statement (beside it) follows.
//! CSV: a line of names, then rows that begin with the series' name and tags; an empty line where columns change.
//!
//! May use: `jiff`, `json`, `parse`, `times`, `answer`. Must not know: HTTP.

use std::io::Write;

use jiff::tz::TimeZone;

use super::answer::{Cell, Sink};
use super::parse::Statement;
use super::{json, times};
use crate::error::{Error, Result};
use crate::held::Held;
use crate::source::Source;
use crate::value::ValueRef;

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epoch {
    /// As RFC 3339.
    Text,
    /// As a number of units of so many nanoseconds since 1970.
    Units(i64),
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// JSON without blanks.
    Plain,
    /// JSON with lines and blanks for people.
    Pretty,
    /// JSON documents with so many rows at the most, one on a line.
    Chunked(usize),
    /// CSV.
    Csv,
}

/// Takes what of a document is done.
pub type Outlet<'a> = dyn FnMut(Vec<u8>) -> Result<()> + 'a;

/// A document in chunks lets go of those that are done as soon as they are so many bytes together.
const PIECE_BYTES: usize = 256 << 10;
/// What a document grows by before that is held.
const PORTION_BYTES: u64 = 64 << 10;

/// The answers to the statements of one request.
pub struct Document<'a> {
    layout: Layout,
    /// What of memory it holds, if anybody counts.
    source: Option<&'a dyn Source>,
    held: Held,
    /// Where chunks go.
    outlet: Option<&'a mut Outlet<'a>>,
    epoch: Epoch,
    bytes_max: usize,
    out: Vec<u8>,
    /// Of times in the current statement's answer; `None` is UTC.
    zone: Option<TimeZone>,
    /// Where the answer to the current statement begins.
    start: usize,
    statement: usize,
    series: usize,
    /// What the current series begins with.
    head: Vec<u8>,
    rows: usize,
    columns: Vec<String>,
}

/// `{"error":".."}`, which is the answer to a request that has no results.
#[must_use]
pub fn error_document(text: &str) -> Vec<u8> {
    let mut out = b"{\"error\":".to_vec();
    json::text(&mut out, text);
    out.extend_from_slice(b"}\n");
    out
}

impl<'a> Document<'a> {
    /// Nothing yet; more than `bytes_max` bytes will be refused.
    #[must_use]
    pub fn new(layout: Layout, epoch: Epoch, bytes_max: usize) -> Self {
        let mut out = Vec::with_capacity(512);
        if matches!(layout, Layout::Plain | Layout::Pretty) {
            out.extend_from_slice(b"{\"results\":[");
        }
        Self {
            layout,
            source: None,
            held: Held::default(),
            outlet: None,
            epoch,
            bytes_max,
            out,
            zone: None,
            start: 0,
            statement: 0,
            series: 0,
            head: Vec::new(),
            rows: 0,
            columns: Vec::new(),
        }
    }

    /// The same, which says what of memory it holds.
    #[must_use]
    pub fn held_by(mut self, source: &'a dyn Source) -> Self {
        self.source = Some(source);
        self
    }

    /// The same, which in chunks leaves in pieces: [`Document::finish`] has the rest. What has left stays said when a statement
    /// fails.
    #[must_use]
    pub fn leaving_by(mut self, outlet: &'a mut Outlet<'a>) -> Self {
        self.outlet = Some(outlet);
        self
    }

    /// Lets go of chunks that are done, when there are enough of them.
    fn leave(&mut self) -> Result<()> {
        let Some(outlet) = self.outlet.as_mut().filter(|_| self.out.len() > PIECE_BYTES) else { return Ok(()) };
        self.start = 0;
        outlet(std::mem::take(&mut self.out))?;
        self.hold()
    }

    /// Says how much it holds.
    fn hold(&self) -> Result<()> {
        let Some(source) = self.source else { return Ok(()) };
        let (bytes, held) = (self.out.len() as u64, self.held.bytes());
        if bytes > held || bytes + 2 * PORTION_BYTES < held {
            self.held.set(source, bytes + PORTION_BYTES)?;
        }
        Ok(())
    }

    fn is_chunked(&self) -> bool {
        matches!(self.layout, Layout::Chunked(_))
    }

    fn is_csv(&self) -> bool {
        self.layout == Layout::Csv
    }

    /// The answer to the next statement begins.
    pub fn begin(&mut self, statement: &Statement) {
        self.zone = statement.zone().cloned();
        if self.statement > 0 && matches!(self.layout, Layout::Plain | Layout::Pretty) {
            self.out.push(b',');
        }
        self.start = self.out.len();
        self.open();
    }

    fn open(&mut self) {
        (self.series, self.rows) = (0, 0);
        self.head.clear();
        if self.is_csv() {
            return;
        }
        if self.is_chunked() {
            self.out.extend_from_slice(b"{\"results\":[");
        }
        write!(self.out, "{{\"statement_id\":{}", self.statement).expect("memory takes what is written");
    }

    /// Ends the current series.
    fn close_series(&mut self, partial: &str) {
        if self.series > 0 && !self.is_csv() {
            self.out.extend_from_slice(if self.rows > 0 { b"]" } else { b"" });
            self.out.extend_from_slice(partial.as_bytes());
            self.out.push(b'}');
        }
    }

    fn close(&mut self, rest: &[u8]) {
        if self.series > 0 && !self.is_csv() {
            self.out.push(b']');
        }
        if self.is_csv() {
            return;
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'}');
        if self.is_chunked() {
            self.out.extend_from_slice(b"]}\n");
        }
    }

    /// The answer to the statement ends; `warning` is said with it.
    pub fn end(&mut self, warning: Option<&str>) {
        self.close_series("");
        let mut rest = Vec::new();
        if let Some(warning) = warning {
            rest.extend_from_slice(b",\"messages\":[{\"level\":\"warning\",\"text\":");
            json::text(&mut rest, warning);
            rest.extend_from_slice(b"}]");
        }
        self.close(&rest);
        self.statement += 1;
    }

    /// The answer to the statement is an error, whatever it was before.
    pub fn fail(&mut self, text: &str) {
        self.out.truncate(self.start);
        self.open();
        if self.is_csv() {
            self.out.extend_from_slice(b"error\n");
            csv_text(&mut self.out, text);
            self.out.push(b'\n');
        } else {
            self.out.extend_from_slice(b",\"error\":");
            json::text(&mut self.out, text);
            self.close(b"");
        }
        self.statement += 1;
    }

    /// The whole answer.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        match self.layout {
            Layout::Plain | Layout::Pretty => self.out.extend_from_slice(b"]}\n"),
            Layout::Chunked(_) | Layout::Csv => {}
        }
        if self.layout == Layout::Pretty { indented(&self.out) } else { self.out }
    }

    fn time(&mut self, time: i64) {
        match self.epoch {
            Epoch::Units(unit) => {
                write!(self.out, "{}", time / unit.max(1)).expect("memory takes what is written");
            }
            Epoch::Text if self.is_csv() => write!(self.out, "{time}").expect("memory takes what is written"),
            Epoch::Text => {
                self.out.push(b'"');
                times::write(&mut self.out, time, self.zone.as_ref());
                self.out.push(b'"');
            }
        }
    }

    fn csv_row(&mut self, time: Option<i64>, cells: &[Cell<'_>]) {
        self.out.extend_from_slice(&self.head);
        if let Some(time) = time {
            self.out.push(b',');
            self.time(time);
        }
        for cell in cells {
            self.out.push(b',');
            match cell {
                None => {}
                Some(ValueRef::Text(text)) => csv_text(&mut self.out, text),
                Some(value) => json::value(&mut self.out, Some(*value)),
            }
        }
        self.out.push(b'\n');
    }
}

fn csv_text(out: &mut Vec<u8>, text: &str) {
    if text.contains(['"', ',', '\n', '\r']) || text.starts_with(' ') {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

impl Sink for Document<'_> {
    fn series(&mut self, name: &str, tags: &[(&str, &str)], columns: &[String]) -> Result<()> {
        if self.is_csv() {
            if self.columns != columns {
                self.out.extend_from_slice(if self.out.is_empty() { b"" } else { b"\n" });
                self.out.extend_from_slice(b"name,tags");
                for column in columns {
                    self.out.push(b',');
                    csv_text(&mut self.out, column);
                }
                self.out.push(b'\n');
                self.columns = columns.to_vec();
            }
            self.head.clear();
            csv_text(&mut self.head, name);
            self.head.push(b',');
            let tags: Vec<String> = tags.iter().map(|(tag, value)| format!("{tag}={value}")).collect();
            csv_text(&mut self.head, &tags.join(","));
            self.series += 1;
            return Ok(());
        }
        let is_first = self.series == 0;
        self.close_series("");
        if is_first {
            self.out.extend_from_slice(b",\"series\":[");
        } else if self.is_chunked() {
            self.close(b",\"partial\":true");
            self.leave()?;
            self.open();
            self.out.extend_from_slice(b",\"series\":[");
        } else {
            self.out.push(b',');
        }
        (self.series, self.rows) = (self.series + 1, 0);
        let head = &mut self.head;
        head.clear();
        head.push(b'{');
        if !name.is_empty() {
            head.extend_from_slice(b"\"name\":");
            json::text(head, name);
            head.push(b',');
        }
        for (at, (tag, value)) in tags.iter().enumerate() {
            head.extend_from_slice(if at == 0 { b"\"tags\":{" } else { b"," });
            json::text(head, tag);
            head.push(b':');
            json::text(head, value);
        }
        head.extend_from_slice(if tags.is_empty() { b"\"columns\":[" } else { b"},\"columns\":[" });
        for (at, column) in columns.iter().enumerate() {
            head.extend_from_slice(if at == 0 { b"" } else { b"," });
            json::text(head, column);
        }
        head.push(b']');
        self.out.extend_from_slice(&self.head);
        Ok(())
    }

    fn row(&mut self, time: Option<i64>, cells: &[Cell<'_>]) -> Result<()> {
        if self.out.len() > self.bytes_max {
            let (actual, limit) = (self.out.len() as u64, self.bytes_max as u64);
            return Err(Error::Limit { what: "the length of the answer", actual, limit });
        }
        self.hold()?;
        if self.is_csv() {
            self.csv_row(time, cells);
            return Ok(());
        }
        if matches!(self.layout, Layout::Chunked(most) if self.rows >= most.max(1)) {
            self.close_series(",\"partial\":true");
            self.close(b",\"partial\":true");
            self.leave()?;
            let head = std::mem::take(&mut self.head);
            self.open();
            self.out.extend_from_slice(b",\"series\":[");
            self.out.extend_from_slice(&head);
            (self.head, self.series) = (head, 1);
        }
        self.out.extend_from_slice(if self.rows == 0 { b",\"values\":[[" } else { b",[" });
        self.rows += 1;
        if let Some(time) = time {
            self.time(time);
        }
        for (at, cell) in cells.iter().enumerate() {
            if at > 0 || time.is_some() {
                self.out.push(b',');
            }
            json::value(&mut self.out, *cell);
        }
        self.out.push(b']');
        Ok(())
    }
}

/// JSON with a line for each member and four blanks for each level.
fn indented(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut level, mut is_text, mut is_escaped) = (0_usize, false, false);
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.resize(out.len() + 4 * level, b' ');
    };
    let mut bytes = compact.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if is_text {
            out.push(byte);
            is_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                level += 1;
                if !matches!(bytes.peek(), Some(b'}' | b']')) {
                    line(&mut out, level);
                }
            }
            b'}' | b']' => {
                level = level.saturating_sub(1);
                if !matches!(out.last(), Some(b'{' | b'[')) {
                    line(&mut out, level);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, level);
            }
            b':' => out.extend_from_slice(b": "),
            _ => {
                is_text = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}
