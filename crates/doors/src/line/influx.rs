//! Influx' line: `<measurement>[,<tag>=<value>...] <field>=<value>[,<field>=<value>...] [<time>]`.
//!
//! A backslash takes their meaning from commas, blanks and `=` in names and tags; any other backslash is itself. Values are
//! doubles `1.5`, integers `7i`, unsigned integers `7u`, `t`, `true`, `f`, `false` in the usual cases, and texts in quotes,
//! in which `\"` and `\\` are escapes and line ends are allowed. NaN and infinities, which InfluxDB refuses, are taken.
//!
//! May use: `number`, `wire`, the facade's `Rows`. Must not know: sockets.

use std::ops::Range;

use holdfast::series::{Rows, SeriesError, Slot, ValueRef};
use memchr::{memchr, memchr2};

use super::number::{Number, advice, leading, number, time};
use super::wire::{After, Bad, Times, excerpt};

const MISSING_FIELDS: &str = "missing fields: write a measurement, a blank, and field=value";
/// Fields of one line at most, as of one series: a line with more of them names some twice, and each takes more memory than it has bytes.
const FIELDS_MAX: usize = 4096;
const FIELD_FORMAT: &str = "invalid field format: write field=value, parted by commas";

/// Reads lines, and keeps the memory that this takes.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    fields: Vec<Field>,
    slots: Vec<Slot>,
    text: Vec<u8>,
}

/// A field of the line that is being read.
#[derive(Debug)]
struct Field {
    name: Range<usize>,
    value: Scanned,
}

/// A value; a text lies in the line still.
#[derive(Debug)]
enum Scanned {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    Text(Range<usize>),
}

/// A line that was read.
#[derive(Debug)]
pub(crate) struct Done {
    /// With its end.
    pub(crate) bytes: usize,
    /// Line ends in its texts.
    pub(crate) breaks: usize,
    pub(crate) points: usize,
}

/// Where a line is being read.
struct Cursor<'t> {
    text: &'t [u8],
    /// Where the next byte is.
    at: usize,
    /// Where the line ends, without `\r`.
    end: usize,
    breaks: usize,
    after: After,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..self.end).unwrap_or_default()
    }

    fn part(&self, range: &Range<usize>) -> &'t [u8] {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Where the first of `wanted` is that has no backslash before it.
    fn find(&self, wanted: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let mut from = self.at;
        loop {
            let at = from + wanted(self.text.get(from..self.end)?)?;
            if at == self.at || self.text.get(at - 1) != Some(&b'\\') {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// The name of the row: up to the first blank.
    fn name(&mut self) -> Result<Range<usize>, Bad> {
        let end = self.find(|text| memchr(b' ', text)).ok_or(MISSING_FIELDS)?;
        let name = self.at..end;
        self.at = end;
        self.skip_blanks();
        Ok(name)
    }

    fn skip_blanks(&mut self) {
        while self.at < self.end && self.text.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    /// A field with its value; the cursor is then at a comma, a blank or the end.
    fn field(&mut self) -> Result<Field, Bad> {
        let is_end = |byte: &u8| matches!(byte, b'=' | b',' | b' ');
        let end = self.find(|text| text.iter().position(is_end)).ok_or(FIELD_FORMAT)?;
        let name = self.at..end;
        if self.text.get(end) != Some(&b'=') {
            return Err(FIELD_FORMAT.into());
        }
        if name.is_empty() {
            return Err("missing field key: a field is a name, = and a value".into());
        }
        self.at = end + 1;
        Ok(Field { name, value: self.value()? })
    }

    fn value(&mut self) -> Result<Scanned, Bad> {
        let rest = self.rest();
        if let [b'"', ..] = rest {
            return self.quoted();
        }
        if let Some((number, after)) = leading(rest) {
            let used = rest.len() - after.len();
            match (number, after) {
                (number, [] | [b',' | b' ', ..]) => {
                    self.at += used;
                    return Ok(Scanned::Float(float(rest, number)));
                }
                (Number::Integer(value), [b'i'] | [b'i', b',' | b' ', ..]) => {
                    self.at += used + 1;
                    return Ok(Scanned::Integer(value));
                }
                _ => {}
            }
        }
        let end = memchr2(b',', b' ', rest).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        self.at += word.len();
        rare(word)
    }

    /// A text in quotes, which may go over the end of the line.
    fn quoted(&mut self) -> Result<Scanned, Bad> {
        let start = self.at + 1;
        let mut from = start;
        let end = loop {
            let rest = self.text.get(from..).unwrap_or_default();
            let at = from + memchr2(b'"', b'\\', rest).ok_or(Bad::Open)?;
            if self.text.get(at) == Some(&b'"') {
                break at;
            }
            let is_escape = matches!(self.text.get(at + 1), Some(b'"' | b'\\'));
            from = at + if is_escape { 2 } else { 1 };
        };
        self.at = end + 1;
        if end >= self.end {
            let text = self.text.get(start..end).unwrap_or_default();
            self.breaks += text.iter().filter(|byte| **byte == b'\n').count();
            let rest = self.text.get(end..).unwrap_or_default();
            self.end = match (memchr(b'\n', rest), self.after) {
                (Some(length), _) => end + length,
                (None, After::Nothing) => end + rest.len(),
                (None, After::More) => return Err(Bad::Open),
            };
            if self.text.get(self.end - 1) == Some(&b'\r') {
                self.end -= 1;
            }
        }
        Ok(Scanned::Text(start..end))
    }
}

/// A number without a type is a double, and doubles have a zero below zero.
fn float(text: &[u8], number: Number) -> f64 {
    match number {
        Number::Integer(0) if text.first() == Some(&b'-') => -0.0,
        number => number.float(),
    }
}

/// Words that are no plain number.
fn rare(word: &[u8]) -> Result<Scanned, Bad> {
    let digits = |text: &[u8]| std::str::from_utf8(text).ok().map(str::to_owned);
    let scanned = match word {
        b"t" | b"T" | b"true" | b"True" | b"TRUE" => Some(Scanned::Boolean(true)),
        b"f" | b"F" | b"false" | b"False" | b"FALSE" => Some(Scanned::Boolean(false)),
        [] => return Err("missing field value: a field is a name, = and a value".into()),
        [text @ .., b'i'] => digits(text).and_then(|text| text.parse().ok()).map(Scanned::Integer),
        [text @ .., b'u'] => digits(text).and_then(|text| text.parse().ok()).map(Scanned::Unsigned),
        _ => number(word).map(|number| Scanned::Float(float(word, number))),
    };
    scanned.ok_or_else(|| {
        let usual = "write a number such as 1.5, an integer such as 7i or 7u, true, false, or a text in \" \"";
        let (advice, word) = (advice(word, usual), excerpt(word));
        format!("invalid value '{word}': {advice}").into()
    })
}

impl Reader {
    /// Adds the points of the line that a text begins with, and of which so many bytes are before its first end.
    ///
    /// # Errors
    /// [`Bad::Open`] when a text does not end in `text`, or what is wrong: nothing was added.
    pub(crate) fn read(
        &mut self,
        (text, length): (&[u8], usize),
        after: After,
        times: Times,
        rows: &mut Rows,
    ) -> Result<Done, Bad> {
        let mut cursor = Cursor { text, at: 0, end: length, breaks: 0, after };
        let name = cursor.name()?;
        if cursor.rest().is_empty() {
            return Err(MISSING_FIELDS.into());
        }
        self.fields.clear();
        loop {
            if self.fields.len() >= FIELDS_MAX {
                return Err(format!("a line has at most {FIELDS_MAX} fields: make what tells them apart a tag").into());
            }
            self.fields.push(cursor.field()?);
            match cursor.rest() {
                [b',', ..] => cursor.at += 1,
                [b' ', ..] | [] => break,
                _ => return Err(FIELD_FORMAT.into()),
            }
        }
        cursor.skip_blanks();
        let at = match cursor.rest().trim_ascii_end() {
            [] => times.now,
            text => time(text, times.unit).map_err(|wrong| format!("bad timestamp '{}': {wrong}", excerpt(text)))?,
        };
        self.add(&cursor, &name, at, rows)?;
        let end = text.get(cursor.end..).unwrap_or_default();
        let bytes = cursor.end + memchr(b'\n', end).map_or(end.len(), |at| at + 1);
        Ok(Done { bytes, breaks: cursor.breaks, points: self.fields.len() })
    }

    fn add(&mut self, cursor: &Cursor<'_>, name: &Range<usize>, at: i64, rows: &mut Rows) -> Result<(), Bad> {
        for field in &self.fields {
            if let Scanned::Text(range) = &field.value
                && std::str::from_utf8(cursor.part(range)).is_err()
            {
                return Err("a text is not UTF-8".into());
            }
        }
        let row = rows.row(cursor.part(name), names)?;
        self.slots.clear();
        for (nth, field) in self.fields.iter().enumerate() {
            self.slots.push(rows.field(row, nth, cursor.part(&field.name), |raw| unescaped(raw, b",= "))?);
        }
        for (field, slot) in self.fields.iter().zip(&self.slots) {
            match &field.value {
                Scanned::Float(value) => rows.push_float(*slot, at, *value),
                Scanned::Integer(value) => rows.push(*slot, at, ValueRef::Integer(*value)),
                Scanned::Unsigned(value) => rows.push(*slot, at, ValueRef::Unsigned(*value)),
                Scanned::Boolean(value) => rows.push(*slot, at, ValueRef::Boolean(*value)),
                Scanned::Text(range) => {
                    self.text.clear();
                    unescape(cursor.part(range), b"\"\\", &mut self.text);
                    let text = std::str::from_utf8(&self.text).map_err(|_| Bad::from("a text is not UTF-8"))?;
                    rows.push(*slot, at, ValueRef::Text(text));
                }
            }
        }
        Ok(())
    }
}

/// Leaves out the backslashes before bytes that are `special`.
fn unescape(raw: &[u8], special: &[u8], to: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [escaped, after @ ..]) if special.contains(escaped) => {
                to.push(*escaped);
                rest = after;
            }
            _ => to.push(*byte),
        }
    }
}

fn unescaped(raw: &[u8], special: &[u8]) -> Result<String, SeriesError> {
    let mut bytes = Vec::with_capacity(raw.len());
    unescape(raw, special, &mut bytes);
    String::from_utf8(bytes).map_err(|_| SeriesError::invalid(format!("'{}' is not UTF-8", excerpt(raw))))
}

/// The part up to the first `stop` without a backslash before it, and what comes behind that.
fn part(text: &[u8], stop: u8) -> (&[u8], Option<&[u8]>) {
    let is_stop = |at: &usize| text.get(*at) == Some(&stop) && (*at == 0 || text.get(at - 1) != Some(&b'\\'));
    match (0..text.len()).find(is_stop) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
        None => (text, None),
    }
}

/// Measurement and tags of a name.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn names(raw: &[u8]) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let (measurement, mut rest) = part(raw, b',');
    let mut tags = Vec::new();
    while let Some(text) = rest {
        let (tag, after) = part(text, b',');
        rest = after;
        let (name, value) = part(tag, b'=');
        let Some(value) = value else {
            let text = format!("invalid tag '{}': a tag is a name, = and a value", excerpt(tag));
            return Err(SeriesError::invalid(text));
        };
        tags.push((unescaped(name, b",= ")?, unescaped(value, b",= ")?));
    }
    Ok((unescaped(measurement, b", ")?, tags))
}
