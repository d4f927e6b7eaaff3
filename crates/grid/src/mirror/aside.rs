//! What is refused for what is in it, and is set aside so that the mirror goes on: a Holdfast batch as a whole, or an entry of the copy that a mirror begins with.
//!
//! Nothing is looked for before something is refused. Then the target's transaction is gone back from, and what it had is applied in halves, each in a savepoint and
//! with all constraints checked, and those that are refused in halves of theirs, until what is refused is one alone. Its rows are written into `holdfast_refused`, in the
//! transaction that moves the bookmark behind it.
//!
//! May use: `target`. Must not know: SQL beyond savepoints.

use std::ops::Range;
use std::{result, slice};

use holdfast::space::{AtLimit, Bookmark, Document, Entry, Notice, ValueRef};
use holdfast::{Error, ErrorKind, Position, Result};

use super::target::{Failure, RefusedRow, Step, Target};
use super::{Refused, Shared};

/// What an event did to an entry: the document before, and the one behind it.
pub(super) type Change<'a> = (Option<&'a Document>, Option<&'a Document>);

/// What is applied or set aside as a whole.
#[derive(Clone)]
struct Part<'a> {
    /// Where to go on behind it.
    bookmark: Bookmark,
    /// The number of its first row among those of the bookmark.
    first: usize,
    changes: Vec<Change<'a>>,
    /// Among the steps of all.
    steps: Range<usize>,
    /// Why the mapping has no rows for it: then it has no steps.
    refusal: Option<Error>,
}

/// Parts in their order, and what they do to the table.
pub(super) struct Parts<'a> {
    parts: Vec<Part<'a>>,
    steps: Vec<Step>,
}

impl<'a> Parts<'a> {
    fn new() -> Self {
        Self { parts: Vec::new(), steps: Vec::new() }
    }

    /// What they do to the table, but for those that the mapping refuses.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Those whose positions are wanted.
    pub(super) fn only(&self, is_wanted: impl Fn(Position) -> bool) -> Parts<'a> {
        let mut some = Parts::new();
        for part in self.parts.iter().filter(|part| is_wanted(part.bookmark.position())) {
            let begin = some.steps.len();
            some.steps.extend_from_slice(self.steps_of(slice::from_ref(part)));
            some.parts.push(Part { steps: begin..some.steps.len(), ..part.clone() });
        }
        some
    }

    /// What parts that follow one another do to the table.
    fn steps_of(&self, parts: &[Part<'_>]) -> &[Step] {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return &[] };
        self.steps.get(first.steps.start..last.steps.end).expect("parts have ranges of the steps beside them")
    }
}

/// When constraints are checked that the table defers.
#[derive(Clone, Copy)]
pub(super) enum Checks {
    /// Behind each part.
    Each,
    /// When the target's transaction ends.
    AtEnd,
}

/// What was set aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// Where each part stood.
    pub(super) positions: Vec<Position>,
    /// Why the last was.
    pub(super) reason: Option<String>,
}

impl Aside {
    pub(super) fn and(&mut self, other: Self) {
        self.positions.extend(other.positions);
        self.reason = other.reason.or(self.reason.take());
    }
}

/// What a mapping says of a row.
pub(super) fn of_mapping(error: Error) -> Failure {
    if error.kind() == ErrorKind::Invalid { Failure::Row(error) } else { Failure::Refused(error) }
}

/// PostgreSQL has no NUL in any text.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\\u0000")
}

impl Shared {
    /// Whether what is refused is set aside. Not of a type that evicts, whatever it did when the mirror was started.
    pub(super) fn sets_aside(&self) -> bool {
        self.options.refused == Refused::SetAside && self.entries.definition().at_limit != AtLimit::Evict
    }

    /// Whole Holdfast batches, and what they do to the table.
    pub(super) fn parts_of<'a>(&self, batches: impl IntoIterator<Item = &'a [Notice]>) -> Result<Parts<'a>> {
        let mut all = Parts::new();
        for batch in batches {
            let Some(last) = batch.last() else { continue };
            let changes = batch.iter().filter_map(|notice| self.change_of(notice)).collect();
            self.add(&mut all, Part::new(last.bookmark, 0, changes))?;
        }
        Ok(all)
    }

    /// Entries of the copy that the mirror begins with here, of which so many were told before.
    pub(super) fn parts_of_copy<'a>(&self, at: Bookmark, before: usize, entries: &'a [Entry]) -> Result<Parts<'a>> {
        let mut all = Parts::new();
        for (place, entry) in entries.iter().enumerate() {
            self.add(&mut all, Part::new(at, before + place, vec![(None, Some(&entry.document))]))?;
        }
        Ok(all)
    }

    fn add<'a>(&self, all: &mut Parts<'a>, mut part: Part<'a>) -> Result<()> {
        let begin = all.steps.len();
        for (before, after) in &part.changes {
            match self.step_to(*before, *after) {
                Ok(step) => all.steps.extend(step),
                // The table has no row of an id that it cannot have: what came before was set aside.
                Err(error) if error.kind() == ErrorKind::Invalid && after.is_none() && self.sets_aside() => {}
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    all.steps.truncate(begin);
                    part.refusal = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        part.steps = begin..all.steps.len();
        all.parts.push(part);
        Ok(())
    }

    /// Applies the parts within the target's transaction, those that are not refused, and sets aside the others if the mirror is to. It has to be committed.
    pub(super) async fn apply_parts(
        &self,
        target: &mut Target,
        all: &Parts<'_>,
        checks: Checks,
    ) -> result::Result<Aside, Failure> {
        let table = self.mapping.table();
        let mut aside = Aside::default();
        if !self.sets_aside() {
            if let Some(error) = all.parts.iter().find_map(|part| part.refusal.as_ref()) {
                return Err(Failure::Row(error.clone()));
            }
            target.apply(table, &all.steps).await?;
            return Ok(aside);
        }
        // The last of these is next, so that the order is kept.
        let mut groups = vec![all.parts.as_slice()];
        while let Some(group) = groups.pop() {
            let refusal = match apply_group(self, target, all, group, checks).await {
                Ok(()) => continue,
                Err(Failure::Row(error)) => error,
                Err(other) => return Err(other),
            };
            if let [part] = group {
                target.set_aside(&self.options.name, &self.rows_of(part, &refusal)).await?;
                aside.positions.push(part.bookmark.position());
                aside.reason = Some(refusal.to_string());
            } else {
                let (first, second) = group.split_at(group.len() / 2);
                groups.extend([second, first]);
            }
        }
        Ok(aside)
    }

    /// As `holdfast_refused` has it.
    fn rows_of(&self, part: &Part<'_>, refusal: &Error) -> Vec<RefusedRow> {
        let id = self.entries.definition().id.clone();
        let numbers = part.first + 1..;
        let rows = part.changes.iter().zip(numbers).filter_map(|((before, after), number)| {
            let id = (*after).or(*before)?.get(&id).unwrap_or(ValueRef::Null);
            // One that can be no key is told as JSON.
            let key = self.mapping.key(id).unwrap_or_else(|_| id.to_value().to_json());
            Some(RefusedRow {
                bookmark: part.bookmark.to_string(),
                number: i64::try_from(number).unwrap_or(i64::MAX),
                key: without_nul(&key),
                document: after.map(Document::to_json),
                reason: without_nul(&refusal.to_string()),
            })
        });
        rows.collect()
    }
}

/// Applies these within a savepoint, to which it has gone back if they are refused.
async fn apply_group(
    shared: &Shared,
    target: &mut Target,
    all: &Parts<'_>,
    group: &[Part<'_>],
    checks: Checks,
) -> result::Result<(), Failure> {
    if let Some(error) = group.iter().find_map(|part| part.refusal.as_ref()) {
        return Err(Failure::Row(error.clone()));
    }
    let steps = all.steps_of(group);
    if steps.is_empty() {
        return Ok(());
    }
    let table = shared.mapping.table();
    target.run("SAVEPOINT holdfast_part").await?;
    let applied = match checks {
        Checks::Each => target.apply_checked(table, steps).await,
        Checks::AtEnd => target.apply(table, steps).await,
    };
    match &applied {
        Ok(()) => {}
        Err(Failure::Row(_)) => target.run("ROLLBACK TO SAVEPOINT holdfast_part").await?,
        // It goes with the connection.
        Err(_) => return applied,
    }
    target.run("RELEASE SAVEPOINT holdfast_part").await?;
    applied
}

impl<'a> Part<'a> {
    fn new(bookmark: Bookmark, first: usize, changes: Vec<Change<'a>>) -> Self {
        Self { bookmark, first, changes, steps: 0..0, refusal: None }
    }
}
