//! Whole queries: columns, and figures over groups.
//!
//! May use: everything of this folder. Must not know: protocols.

use ::space::{Document, Groups, Plan, Query, Value};

use super::entries::{Entries, Entry};
use super::memory::Held;
use super::prepared::ToQuery;
use super::wanted::{Wanted, check_type};
use crate::error::Result;

/// What a row takes beside its bytes.
const ROW_BYTES: u64 = 64;
/// How much more than its bytes a row takes at most while it is made.
const MAKING: u64 = 16;

impl Entries {
    /// Answers a whole query: columns, aggregates, GROUP BY, HAVING, ORDER BY, LIMIT. Partitions are read one after another,
    /// for aggregates over many entries by two threads: each as of one instant. The query is a text, or a [`PreparedQuery`](super::PreparedQuery) that need not be parsed.
    ///
    /// # Errors
    /// `Invalid` names what is not understood, and what would be; `Limit` when there are too many groups, or it takes too much memory.
    pub fn select(&self, query: &(impl ToQuery + ?Sized), parameters: &[Value]) -> Result<Vec<Document>> {
        self.select_up_to(query, parameters, usize::MAX)
    }

    /// As [`Entries::select`], and no more than `max` rows: then the others are not gathered.
    ///
    /// # Errors
    /// As [`Entries::select`].
    pub fn select_up_to(
        &self,
        query: &(impl ToQuery + ?Sized),
        parameters: &[Value],
        max: usize,
    ) -> Result<Vec<Document>> {
        self.check()?;
        let query = self.asked(query, parameters)?;
        let wanted = Wanted::of_query(query.clone());
        if query.explain {
            return self.explained(&wanted);
        }
        if query.is_grouped() {
            return first_of(self.grouped(&wanted, &query)?, &query, max);
        }
        let mut held = self.inner().query_memory.run();
        let shown = self.gather(&wanted, max, &mut held)?;
        let entries = self.settle(shown)?;
        self.rows(&query, &entries)
    }

    /// The query that is meant.
    pub(super) fn asked(&self, query: &(impl ToQuery + ?Sized), parameters: &[Value]) -> Result<Query> {
        let query = query.prepared()?.bind(parameters)?;
        check_type(&query, &self.kind.definition())?;
        Ok(query)
    }

    /// How it would be answered, a row for each partition.
    pub(super) fn explained(&self, wanted: &Wanted) -> Result<Vec<Document>> {
        Ok(self.explain(wanted)?.iter().zip(0u64..).map(|(plan, number)| explained(plan, number)).collect())
    }

    /// What the query gives of these entries.
    pub(super) fn rows(&self, query: &Query, entries: &[Entry]) -> Result<Vec<Document>> {
        let watch = self.watch();
        let (mut held, mut bytes, mut rows) = (self.inner().query_memory.run(), 0, Vec::with_capacity(entries.len()));
        for entry in entries {
            watch.pass(entry.document.as_bytes().len())?;
            let more = query.projected_bytes(&entry.document) as u64;
            // Before it is made: it may be many times as large as the document.
            held.reach(bytes + more.saturating_mul(MAKING))?;
            rows.push(query.project(&entry.document));
            bytes += more + ROW_BYTES;
        }
        Ok(rows)
    }
}

/// Counts a document in its group.
pub(super) fn add(groups: &mut Groups, query: &Query, document: &Document, held: &mut Held) -> Result<()> {
    groups.add(query, document.fields())?;
    held.reach(groups.bytes() as u64)
}

/// The first rows of the groups.
pub(super) fn first_of(groups: Groups, query: &Query, max: usize) -> Result<Vec<Document>> {
    let mut rows = groups.finish(query)?;
    rows.truncate(max);
    Ok(rows)
}

fn explained(plan: &Plan, partition: u64) -> Document {
    let index = plan.index.clone().map_or(Value::Null, Value::from);
    Document::from_pairs([
        ("partition", Value::from(partition)),
        ("index", index),
        ("candidates", Value::from(plan.candidates)),
    ])
}
