//! Apache Arrow's streaming format: a schema, the texts of names as dictionaries, batches of rows, an end.
//!
//! A message is FF FF FF FF, the length of its metadata (4), the metadata (a FlatBuffer), and a body of buffers, each filled up to
//! eight bytes. Times are timestamps of nanoseconds in UTC; names are dictionaries of texts with 32-bit indices. Written by hand: the
//! crates that do it take longer to compile than all of this program's other formats together.
//!
//! Described at <https://arrow.apache.org/docs/format/Columnar.html>
//!
//! May use: `columns`, `flat`. Must not know: where it is written to.

use std::io::{self, Write};

use holdfast::series::{Kind, ValueRef};

use super::columns::{Batch, Exported, Names};
use super::flat::{Field, Object, buffer};
use crate::failure::Failure;

/// The format's version 5, by its number.
const VERSION: i16 = 4;
const SCHEMA: u8 = 1;
const DICTIONARY: u8 = 2;
const RECORDS: u8 = 3;
/// Types of columns, by their numbers.
const INT: u8 = 2;
const FLOATING: u8 = 3;
const UTF8: u8 = 5;
const BOOL: u8 = 6;
const TIMESTAMP: u8 = 10;
const DOUBLE: i16 = 2;
const NANOSECOND: i16 = 3;

/// The buffers of some columns.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    /// Offset and length of each.
    buffers: Vec<(i64, i64)>,
    /// Rows and nulls of each column.
    nodes: Vec<(i64, i64)>,
}

fn long(number: usize) -> i64 {
    i64::try_from(number).expect("memory has fewer bytes")
}

impl Body {
    fn buffer(&mut self, bytes: &[u8]) {
        self.buffers.push((long(self.bytes.len()), long(bytes.len())));
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// Begins a column: what says which of its rows have a value, if some have none.
    fn column(&mut self, is_there: impl ExactSizeIterator<Item = bool> + Clone) {
        let nulls = is_there.clone().filter(|is_there| !is_there).count();
        self.nodes.push((long(is_there.len()), long(nulls)));
        let bits = if nulls == 0 { Vec::new() } else { bits(is_there) };
        self.buffer(&bits);
    }

    fn texts<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> io::Result<()> {
        let (mut offsets, mut bytes) = (0_i32.to_le_bytes().to_vec(), Vec::new());
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            let end = i32::try_from(bytes.len()).map_err(|_| io::Error::other("the texts of a batch exceed 2 GiB"))?;
            offsets.extend_from_slice(&end.to_le_bytes());
        }
        self.buffer(&offsets);
        self.buffer(&bytes);
        Ok(())
    }

    fn records(&self, rows: usize) -> Object {
        Object::Table(vec![
            (0, Field::Long(long(rows))),
            (1, Field::Is(Object::Pairs(self.nodes.clone()))),
            (2, Field::Is(Object::Pairs(self.buffers.clone()))),
        ])
    }
}

/// One bit for each, the first in the lowest place.
fn bits(all: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, is_set) in all.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        if let Some(last) = bytes.last_mut() {
            *last |= u8::from(is_set) << (at % 8);
        }
    }
    bytes
}

fn message(kind: u8, header: Object, body: &[u8], to: &mut impl Write) -> io::Result<()> {
    let message = Object::Table(vec![
        (0, Field::Short(VERSION)),
        (1, Field::Byte(kind)),
        (2, Field::Is(header)),
        (3, Field::Long(long(body.len()))),
    ]);
    let metadata = buffer(&message);
    let length = i32::try_from(metadata.len()).map_err(|_| io::Error::other("there are too many columns"))?;
    to.write_all(&[0xff; 4])?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&metadata)?;
    to.write_all(body)
}

fn int(bits: i32, is_signed: bool) -> Object {
    Object::Table(vec![(0, Field::Int(bits)), (1, Field::Byte(u8::from(is_signed)))])
}

/// A column of the schema.
fn column(name: &str, is_nullable: bool, (number, kind): (u8, Object), dictionary: Option<usize>) -> Object {
    let mut fields = vec![
        (0, Field::Is(Object::Text(name.to_owned()))),
        (1, Field::Byte(u8::from(is_nullable))),
        (2, Field::Byte(number)),
        (3, Field::Is(kind)),
        (5, Field::Is(Object::List(Vec::new()))),
    ];
    if let Some(id) = dictionary {
        let dictionary = vec![(0, Field::Long(long(id))), (1, Field::Is(int(32, true)))];
        fields.push((4, Field::Is(Object::Table(dictionary))));
    }
    Object::Table(fields)
}

fn kind_of(kind: Kind) -> (u8, Object) {
    match kind {
        Kind::Float => (FLOATING, Object::Table(vec![(0, Field::Short(DOUBLE))])),
        Kind::Integer => (INT, int(64, true)),
        Kind::Unsigned => (INT, int(64, false)),
        Kind::Boolean => (BOOL, Object::Table(Vec::new())),
        Kind::Text => (UTF8, Object::Table(Vec::new())),
    }
}

/// Writes everything.
pub(crate) fn write(exported: &Exported<'_>, to: &mut impl Write) -> Result<(), Failure> {
    schema(exported, to).map_err(Failure::Export)?;
    exported.each(&mut |batch| records(exported, batch, to).map_err(Failure::Export))?;
    to.write_all(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).map_err(Failure::Export)
}

fn names<'x, 'e>(exported: &'x Exported<'e>) -> (&'x [Names<'e>], &'x [Names<'e>]) {
    // The names of tags stand behind the values.
    exported.names.split_at(exported.names.len().min(2))
}

fn schema(exported: &Exported<'_>, to: &mut impl Write) -> io::Result<()> {
    let time = vec![(0, Field::Short(NANOSECOND)), (1, Field::Is(Object::Text("UTC".to_owned())))];
    let mut columns = vec![column("time", false, (TIMESTAMP, Object::Table(time)), None)];
    let (fixed, tags) = names(exported);
    let text = || (UTF8, Object::Table(Vec::new()));
    columns.extend(fixed.iter().enumerate().map(|(id, names)| column(&names.column, false, text(), Some(id))));
    let is_nullable = exported.kinds.len() > 1;
    columns
        .extend(exported.kinds.iter().map(|kind| column(&exported.column(*kind), is_nullable, kind_of(*kind), None)));
    let tagged = tags.iter().enumerate();
    columns.extend(tagged.map(|(id, names)| column(&names.column, true, text(), Some(fixed.len() + id))));
    let schema = Object::Table(vec![(0, Field::Short(0)), (1, Field::Is(Object::List(columns)))]);
    message(SCHEMA, schema, &[], to)?;
    for (id, names) in exported.names.iter().enumerate() {
        let mut body = Body::default();
        body.column(names.texts.iter().map(|_| true));
        body.texts(names.texts.iter().copied())?;
        let header = vec![(0, Field::Long(long(id))), (1, Field::Is(body.records(names.texts.len())))];
        message(DICTIONARY, Object::Table(header), &body.bytes, to)?;
    }
    Ok(())
}

fn records(exported: &Exported<'_>, batch: &Batch, to: &mut impl Write) -> io::Result<()> {
    let mut body = Body::default();
    let times = batch.points.times();
    body.column(times.iter().map(|_| true));
    body.buffer(&times.iter().flat_map(|time| time.to_le_bytes()).collect::<Vec<u8>>());
    let (fixed, tags) = names(exported);
    let name = |names: &Names<'_>, body: &mut Body| {
        let rows: Vec<Option<usize>> = names.rows(batch).collect();
        body.column(rows.iter().map(Option::is_some));
        let codes = rows.iter().map(|code| i32::try_from(code.unwrap_or(0)).unwrap_or(i32::MAX));
        body.buffer(&codes.flat_map(i32::to_le_bytes).collect::<Vec<u8>>());
    };
    fixed.iter().for_each(|names| name(names, &mut body));
    for kind in &exported.kinds {
        let values: Vec<Option<ValueRef<'_>>> = batch.values(*kind).collect();
        body.column(values.iter().map(Option::is_some));
        match kind {
            Kind::Text => body.texts(values.iter().map(|value| match value {
                Some(ValueRef::Text(text)) => *text,
                _ => "",
            }))?,
            Kind::Boolean => body.buffer(&bits(values.iter().map(|value| *value == Some(ValueRef::Boolean(true))))),
            Kind::Float | Kind::Integer | Kind::Unsigned => {
                // Doubles keep every bit, of a NaN too.
                let bits = values.iter().zip(batch.points.bits()).map(|(value, bits)| value.map_or(0, |_| *bits));
                body.buffer(&bits.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            }
        }
    }
    tags.iter().for_each(|names| name(names, &mut body));
    message(RECORDS, body.records(batch.rows()), &body.bytes, to)
}
