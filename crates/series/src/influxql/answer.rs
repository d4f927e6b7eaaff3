//! Where answers go: series of rows, one after the other.
//!
//! May use: `value`. Must not know: how answers look on the wire.

use crate::error::Result;
use crate::points::Points;
use crate::source::Source;
use crate::value::{Value, ValueRef};

/// One cell of a row; `None` is null.
pub type Cell<'a> = Option<ValueRef<'a>>;

/// Takes an answer as it comes to be: [`Sink::series`], then its rows, then the next series.
pub trait Sink {
    /// A series begins.
    ///
    /// # Errors
    /// What the sink says, such as that the answer is too large.
    fn series(&mut self, name: &str, tags: &[(&str, &str)], columns: &[String]) -> Result<()>;

    /// A row of the series. Where a series has a column of times, which is its first, `time` is its cell there, and `cells` are
    /// the others.
    ///
    /// # Errors
    /// What the sink says.
    fn row(&mut self, time: Option<i64>, cells: &[Cell<'_>]) -> Result<()>;
}

/// A series of an answer, in columns, for selections from selections.
///
/// Of rows with one time, which come of several series, the first is in the first layer, the second in the second: within a layer
/// each time is there once.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) columns: Vec<String>,
    /// One of each column.
    pub(crate) layers: Vec<Vec<Points>>,
    /// The time of the last row, and its layer.
    last: Option<(i64, usize)>,
}

/// Keeps what an inner selection answers.
pub(crate) struct Tables<'a> {
    pub(crate) all: Vec<Table>,
    source: &'a dyn Source,
    /// Bytes that are not held yet: they are in larger portions.
    bytes: u64,
}

/// What a table grows by before that is held.
const PORTION_BYTES: u64 = 64 << 10;

impl<'a> Tables<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self { all: Vec::new(), source, bytes: 0 }
    }
}

impl Sink for Tables<'_> {
    fn series(&mut self, name: &str, tags: &[(&str, &str)], columns: &[String]) -> Result<()> {
        let tags = tags.iter().map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned())).collect();
        let columns = columns.iter().skip(1).cloned().collect();
        self.all.push(Table { name: name.to_owned(), tags, columns, ..Table::default() });
        Ok(())
    }

    fn row(&mut self, time: Option<i64>, cells: &[Cell<'_>]) -> Result<()> {
        let (Some(table), Some(time)) = (self.all.last_mut(), time) else { return Ok(()) };
        self.bytes += 16 * cells.len() as u64;
        if self.bytes > PORTION_BYTES {
            self.source.hold(std::mem::take(&mut self.bytes))?;
        }
        let layer = table.last.filter(|(last, _)| *last == time).map_or(0, |(_, layer)| layer + 1);
        table.last = Some((time, layer));
        if layer == table.layers.len() {
            table.layers.push(vec![Points::new(); table.columns.len()]);
        }
        for (points, cell) in table.layers.get_mut(layer).into_iter().flatten().zip(cells) {
            if let Some(value) = cell {
                points.push(time, *value);
            }
        }
        Ok(())
    }
}

/// A column of an answer on its way: times ascend or descend, and may repeat.
#[derive(Debug, Default, Clone)]
pub(crate) struct Track {
    pub(crate) times: Vec<i64>,
    pub(crate) cells: Vec<Option<Value>>,
    /// Which member's point it is and that point's time, where one point was chosen.
    pub(crate) origins: Vec<(usize, i64)>,
}

impl Track {
    /// A point with its origin, in bytes.
    pub(crate) const POINT_BYTES: u64 = 8 + size_of::<Option<Value>>() as u64 + size_of::<(usize, i64)>() as u64;

    pub(crate) fn push(&mut self, time: i64, cell: Option<Value>) {
        self.times.push(time);
        self.cells.push(cell);
    }

    pub(crate) fn push_from(&mut self, time: i64, value: Value, origin: (usize, i64)) {
        self.push(time, Some(value));
        self.origins.push(origin);
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Bytes of memory, nearly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.times.len() * (8 + size_of::<Option<Value>>()) + self.origins.len() * 16) as u64
    }

    /// The other way round.
    pub(crate) fn reverse(&mut self) {
        self.times.reverse();
        self.cells.reverse();
        self.origins.reverse();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, Option<&Value>)> {
        self.times.iter().copied().zip(self.cells.iter().map(Option::as_ref))
    }
}
