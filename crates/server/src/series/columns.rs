//! What is exported in columns: which there are, and their rows in batches.
//!
//! Columns: `time`, `metric`, `field`, then the values, then one `tag:NAME` for each tag that one of the series has. Values are one
//! column, `value`, when all are of one type; else one for each type, `value_float` and so on, of which each row has one.
//!
//! Points are read twice: what types there are is known when all have been seen, and has to be said before the first row.
//!
//! May use: the facade's `series`. Must not know: formats.

use std::collections::BTreeSet;

use holdfast::series::{Found, Kind, Points, Range, SeriesError, Source, ValueRef};

/// Rows of a batch.
const BATCH_ROWS: usize = 1 << 17;
/// Bytes of texts of a batch, beyond which it ends early: formats count them with 31 bits.
const BATCH_TEXT_BYTES: usize = 64 << 20;

/// What is exported.
pub(crate) struct Exported<'e> {
    source: &'e dyn Source,
    found: &'e [Found],
    range: Range,
    /// Texts that say which series a row is of: `metric`, `field`, tags.
    pub(crate) names: Vec<Names<'e>>,
    /// The types of values there are.
    pub(crate) kinds: Vec<Kind>,
}

/// A column of texts of which there are few.
pub(crate) struct Names<'e> {
    pub(crate) column: String,
    /// Each once.
    pub(crate) texts: Vec<&'e str>,
    /// Of each series which text it has; `None` if none.
    of_series: Vec<Option<usize>>,
}

/// Some rows.
pub(crate) struct Batch {
    /// Times and values.
    pub(crate) points: Points,
    /// The series of each.
    of: Vec<usize>,
}

impl<'e> Names<'e> {
    fn new(column: String, found: &'e [Found], text: impl Fn(&'e Found) -> &'e str) -> Self {
        let texts: BTreeSet<&str> = found.iter().map(&text).filter(|text| !text.is_empty()).collect();
        let texts: Vec<&str> = texts.into_iter().collect();
        let of_series = found.iter().map(|series| texts.binary_search(&text(series)).ok()).collect();
        Self { column, texts, of_series }
    }

    /// Which text each row of a batch has.
    pub(crate) fn rows<'b>(&'b self, batch: &'b Batch) -> impl Iterator<Item = Option<usize>> + 'b {
        batch.of.iter().map(|series| self.of_series.get(*series).copied().flatten())
    }
}

impl<'e> Exported<'e> {
    /// Looks what there is to export.
    pub(crate) fn new(source: &'e dyn Source, found: &'e [Found], range: Range) -> Result<Self, SeriesError> {
        let tags: BTreeSet<&str> =
            found.iter().flat_map(|series| series.key.tags.iter().map(|(name, _)| name.as_str())).collect();
        let mut names = vec![
            Names::new("metric".to_owned(), found, |series| &series.key.metric),
            Names::new("field".to_owned(), found, |series| &series.key.field),
        ];
        names.extend(tags.into_iter().map(|tag| Names::new(format!("tag:{tag}"), found, |series| series.key.tag(tag))));
        let mut exported = Self { source, found, range, names, kinds: Vec::new() };
        let mut kinds = BTreeSet::new();
        exported.each(&mut |batch| {
            match batch.points.kind() {
                Some(kind) => drop(kinds.insert(kind)),
                None => kinds.extend((0..batch.points.len()).filter_map(|at| batch.points.kind_at(at))),
            }
            Ok::<_, SeriesError>(())
        })?;
        exported.kinds = kinds.into_iter().collect();
        if exported.kinds.is_empty() {
            exported.kinds.extend(found.iter().map(|series| series.kind).collect::<BTreeSet<_>>());
        }
        Ok(exported)
    }

    /// The name of the column with values of a type.
    pub(crate) fn column(&self, kind: Kind) -> String {
        if self.kinds.len() == 1 { "value".to_owned() } else { format!("value_{}", kind.name()) }
    }

    /// Hands out all rows in batches, none of them empty.
    pub(crate) fn each<E: From<SeriesError>>(&self, take: &mut dyn FnMut(&Batch) -> Result<(), E>) -> Result<(), E> {
        let mut batch = Batch { points: Points::new(), of: Vec::new() };
        let mut text_bytes = 0;
        let mut points = Points::new();
        for (at, series) in self.found.iter().enumerate() {
            points.clear();
            self.source.points(series.id, self.range, &mut points)?;
            let mut taken = 0;
            while taken < points.len() {
                let room = (BATCH_ROWS - batch.of.len()).min(points.len() - taken);
                let count = texts_within(&points, taken..taken + room, &mut text_bytes);
                batch.points.extend_from(&points, taken..taken + count);
                batch.of.resize(batch.of.len() + count, at);
                taken += count;
                if batch.of.len() == BATCH_ROWS || text_bytes >= BATCH_TEXT_BYTES {
                    take(&batch)?;
                    text_bytes = 0;
                    batch.points.clear();
                    batch.of.clear();
                }
            }
        }
        if batch.of.is_empty() { Ok(()) } else { take(&batch) }
    }
}

/// How many of these rows go into a batch that has texts of `bytes` already: all, or until there is enough text.
fn texts_within(points: &Points, rows: std::ops::Range<usize>, bytes: &mut usize) -> usize {
    let all = rows.len();
    if points.kind().is_some_and(|kind| kind != Kind::Text) {
        return all;
    }
    let text = |at: usize| match points.get(at) {
        Some((_, ValueRef::Text(text))) => text.len(),
        _ => 0,
    };
    let enough = rows.map(text).position(|text| {
        *bytes += text;
        *bytes >= BATCH_TEXT_BYTES
    });
    enough.map_or(all, |last| last + 1)
}

impl Batch {
    pub(crate) fn rows(&self) -> usize {
        self.of.len()
    }

    /// The values of a type, and `None` where a row has another.
    pub(crate) fn values(&self, kind: Kind) -> impl Iterator<Item = Option<ValueRef<'_>>> {
        self.points.iter().map(move |(_, value)| Some(value).filter(|value| value.kind() == kind))
    }
}
