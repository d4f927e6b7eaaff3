//! Whole queries: columns, and figures over groups.
//!
//! May use: everything of this folder. Must not know: protocols.

use ::space::{Document, GroupLimits, Groups, Plan, Query, Value};

use super::entries::Entries;
use super::wanted::Wanted;
use crate::error::{Error, ErrorKind, Result};

/// What a row takes beside its bytes.
const ROW_BYTES: u64 = 64;
/// How much more than its bytes a row takes at most while it is made.
const MAKING: u64 = 16;

impl Entries {
    /// Answers a whole query: columns, aggregates, GROUP BY, HAVING, ORDER BY, LIMIT. Partitions are read one after another:
    /// each as of one instant.
    ///
    /// # Errors
    /// `Invalid` names what is not understood, and what would be; `Limit` when there are too many groups, or it takes too much memory.
    pub fn select(&self, sql: &str, parameters: &[Value]) -> Result<Vec<Document>> {
        self.select_up_to(sql, parameters, usize::MAX)
    }

    /// As [`Entries::select`], and no more than `max` rows: then the others are not gathered.
    ///
    /// # Errors
    /// As [`Entries::select`].
    pub fn select_up_to(&self, sql: &str, parameters: &[Value], max: usize) -> Result<Vec<Document>> {
        self.check()?;
        let query = Query::parse(sql)?.bind(parameters)?;
        if let Some(name) = query.type_name.as_ref().filter(|name| **name != self.definition().name) {
            let text = format!("the query is of the type {name}, not of {}", self.definition().name);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let wanted = Wanted::of_query(query.clone());
        if query.explain {
            return Ok(self
                .explain(&wanted)?
                .iter()
                .zip(0u64..)
                .map(|(plan, number)| explained(plan, number))
                .collect());
        }
        let memory = &self.inner().query_memory;
        let mut held = memory.run();
        if query.is_grouped() {
            let mut groups = Groups::new(GroupLimits::default());
            self.each(&wanted, &mut |document| {
                groups.add(&query, document.fields())?;
                held.reach(groups.bytes() as u64)
            })?;
            let mut rows = groups.finish(&query)?;
            rows.truncate(max);
            return Ok(rows);
        }
        let shown = self.gather(&wanted, max, &mut held)?;
        let entries = self.settle(shown)?;
        let watch = self.watch();
        let (mut of_rows, mut bytes, mut rows) = (memory.run(), 0, Vec::with_capacity(entries.len()));
        for entry in &entries {
            watch.pass(entry.document.as_bytes().len())?;
            let more = query.projected_bytes(&entry.document) as u64;
            // Before it is made: it may be many times as large as the document.
            of_rows.reach(bytes + more.saturating_mul(MAKING))?;
            rows.push(query.project(&entry.document));
            bytes += more + ROW_BYTES;
        }
        Ok(rows)
    }
}

fn explained(plan: &Plan, partition: u64) -> Document {
    let index = plan.index.clone().map_or(Value::Null, Value::from);
    Document::from_pairs([
        ("partition", Value::from(partition)),
        ("index", index),
        ("candidates", Value::from(plan.candidates)),
    ])
}
