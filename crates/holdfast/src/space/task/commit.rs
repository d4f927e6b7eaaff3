//! How what tasks have come to becomes one batch: that of one task, or of those that ran in several partitions.
//!
//! May use: what `task` may. Must not know: closures, who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::space::{Document, Reason, TypeId, ValueRef, key_of};
use journal::{Batch, Log, Position};

use super::super::commit::{Over, Parts, SPACE_PART, What};
use super::super::kind::Kind;
use super::super::limit::{self, Growing, Held};
use super::super::listen::Telling;
use super::{Staged, Task};
use crate::error::Result;
use crate::store::Inner;

/// What a task does.
type Made = Vec<(Arc<Kind>, What)>;

type Kinds = BTreeMap<TypeId, Arc<Kind>>;

/// Makes one batch of everything, if there is anything. The tasks hold partitions of their own, in ascending order.
pub(super) fn commit(inner: &Inner, mut tasks: Vec<Task<'_>>) -> Result<Position> {
    tasks.iter().try_for_each(Task::check_unique)?;
    // Last, since what was evicted stays so.
    make_room(inner, &mut tasks)?;
    let mut kinds = Kinds::new();
    let mut batch = Batch::new();
    let all: Vec<Made> = tasks.iter().map(|task| task.make(&mut kinds)).collect();
    let mut parts = Vec::with_capacity(tasks.len());
    for (task, made) in tasks.iter().zip(&all) {
        let mut part = Parts::default();
        for (kind, what) in made {
            let definition = kind.definition();
            part.of(definition.storage).add(kind, definition.history, &task.engine, what);
        }
        if !part.durable.commands().is_empty() {
            batch.section(task.partition.id, |to| kv::put_other_part(to, SPACE_PART, part.durable.commands()));
        }
        parts.push(part);
    }
    if kinds.is_empty() {
        return Ok(Position::ZERO);
    }
    inner.check_in_memory(parts.iter())?;
    let mut telling: BTreeMap<TypeId, Telling<'_>> = BTreeMap::new();
    for (of, kind) in &kinds {
        telling.extend(kind.listeners.telling().map(|telling| (*of, telling)));
    }
    // What is in memory only waits for nothing, and happens if the rest does.
    let is_in_memory = batch.sections().next().is_none();
    let position = if is_in_memory { Position::ZERO } else { inner.journal.append(&batch)?.position };
    let version = inner.version_of(parts.iter());
    let mut applied = Ok(());
    for (task, part) in tasks.iter_mut().zip(&parts) {
        let tell = &mut |event: ::space::Event| {
            if let (Some(telling), Some(kind)) = (telling.get_mut(&event.of), kinds.get(&event.of)) {
                telling.tell(&event, &kind.definition());
            }
        };
        let here = part.apply(&mut task.engine, (position, version), tell);
        // What does not apply here leaves none of the others behind.
        applied = applied.and(here.inspect_err(|_| task.partition.set_broken()));
    }
    drop(telling);
    // Also of what could not be applied: it is there when the store is opened again.
    all.iter().flatten().for_each(|(kind, what)| what.tell(inner, &kind.definition()));
    applied?;
    tasks.iter_mut().for_each(|task| task.offer(inner));
    Ok(position)
}

/// Sees to it that types and spaces stay within their limits, all tasks together.
fn make_room(inner: &Inner, tasks: &mut [Task<'_>]) -> Result<()> {
    let growing: Vec<Growing> = tasks.iter().flat_map(Task::growing).collect();
    let (mut engines, mut staged) = (Vec::with_capacity(tasks.len()), BTreeMap::new());
    for task in tasks {
        engines.push((task.partition.id, &mut *task.engine));
        staged.insert(task.partition.id, &task.staged);
    }
    let keeps = |of, partition, id: ValueRef<'_>| {
        staged.get(&partition).is_some_and(|staged| staged.contains_key(&(of, key_of(id))))
    };
    limit::make_room(inner, &mut Held::Each(engines), &growing, &keeps)
}

impl Task<'_> {
    fn make(&self, kinds: &mut Kinds) -> Made {
        let mut made = Made::new();
        for staged in self.in_order() {
            let definition = staged.kind.definition();
            let what = match (&staged.will, &staged.was) {
                (Some((document, expires_ms)), was) => {
                    // Nobody else came since: what is there now and was not then had ended.
                    let over = if was.is_some() { Over::Any } else { Over::Ended };
                    What::Write { document: document.clone(), expires_ms: *expires_ms, over }
                }
                (None, Some(was)) => {
                    let id = was.document.get(&definition.id).map(ValueRef::to_value).unwrap_or_default();
                    What::Remove { id, reason: Reason::Taken }
                }
                (None, None) => continue,
            };
            kinds.insert(staged.kind.of, Arc::clone(&staged.kind));
            made.push((Arc::clone(&staged.kind), what));
        }
        made
    }

    /// Offers what was written to those who wait for it.
    fn offer(&mut self, inner: &Inner) {
        let written = |staged: &Staged| -> Option<(Arc<Kind>, Document, u64)> {
            let (document, expires_ms) = staged.will.as_ref()?;
            Some((Arc::clone(&staged.kind), document.clone(), *expires_ms))
        };
        let all: Vec<_> = self.in_order().into_iter().filter_map(written).collect();
        for (kind, document, expires_ms) in all {
            inner.note_lease(expires_ms);
            let id = document.get(&kind.definition().id);
            if let Some(place) = id.and_then(|id| self.engine.find_id(kind.of, id)) {
                inner.offer(&kind, self.partition, &mut self.engine, place);
            }
        }
    }
}
