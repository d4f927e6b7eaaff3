//! Figures over groups of all entries that match, by two threads where that is worth it.
//!
//! Each half of the partitions adds up its own, in the order of the partitions, and then the second is added to the first. It is so
//! whether a thread of its own does the second half or not: sums are exact, but where they leave what an f64 or 38 digits hold on the way it
//! shows what was added first, and an answer is not to hang on which processors were free.
//!
//! May use: everything of this folder, `crate::hands`. Must not know: protocols.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::space::{Definition, GroupLimits, Groups, Query};
use journal::Position;

use super::entries::Entries;
use super::memory::Held;
use super::route;
use super::select::add;
use super::stop::Watch;
use super::wanted::Wanted;
use crate::error::Result;
use crate::hands::{Working, each};
use crate::kv::Shown;
use crate::partition::Partition;

/// What the second half has to take, as far as the first has shown, for a thread of its own: many times what it takes to begin one.
const WORTH: Duration = Duration::from_millis(1);

/// What one half has added up.
struct Half {
    groups: Groups,
    /// What that rests on.
    position: Position,
    /// The memory of groups, and of what is on its way to them.
    held: [Held; 2],
}

#[derive(Clone, Copy)]
struct Asked<'a> {
    wanted: &'a Wanted,
    definition: &'a Definition,
    query: &'a Query,
    /// Whether the other half has failed, and with it all.
    is_over: &'a AtomicBool,
}

impl Entries {
    /// The groups of all that is wanted, once what they rest on is durable.
    ///
    /// # Errors
    /// As [`Entries::read`]; as [`Groups::add`].
    pub(super) fn grouped(&self, wanted: &Wanted, query: &Query) -> Result<Groups> {
        self.grouped_if(WORTH, wanted, query)
    }

    /// The same, with a second thread if the second half takes so long.
    fn grouped_if(&self, worth: Duration, wanted: &Wanted, query: &Query) -> Result<Groups> {
        self.check()?;
        let (definition, is_over) = (self.kind.definition(), AtomicBool::new(false));
        let partitions = route::of_wanted(self.inner(), &definition, wanted)?;
        let (ours, others) = partitions.split_at(partitions.len().div_ceil(2));
        let (asked, watch) = (Asked { wanted, definition: &definition, query, is_over: &is_over }, self.watch());
        let (mut first, mut left) = (self.half(), ours);
        let (this, mut another, began) = (Working::this(), None, self.inner().clock.now());
        while let (None, Some((partition, behind))) = (&another, left.split_first()) {
            self.add_up(&mut first, std::slice::from_ref(partition), asked, &watch)?;
            left = behind;
            // All partitions have about as much.
            let (took, done) = (self.inner().clock.now().since(began), ours.len() - left.len());
            if !left.is_empty() && took.as_nanos() * others.len() as u128 >= worth.as_nanos() * done as u128 {
                another = Working::another(self.inner().threads);
            }
        }
        let mut second = self.half();
        let halves = vec![(&mut first, left, watch.beside()), (&mut second, others, watch.beside())];
        let add_up =
            |(half, partitions, watch): (&mut Half, _, Watch<'_>)| self.add_up(half, partitions, asked, &watch);
        each(halves, if another.is_some() { 2 } else { 1 }, add_up).into_iter().collect::<Result<()>>()?;
        drop((this, another));
        watch.check()?;
        first.groups.merge(second.groups)?;
        let [groups, _] = &mut first.held;
        groups.reach(first.groups.bytes() as u64)?;
        self.settle(Shown { value: first.groups, position: first.position.max(second.position) })
    }

    fn half(&self) -> Half {
        let memory = &self.inner().query_memory;
        Half {
            groups: Groups::new(GroupLimits::default()),
            position: Position::ZERO,
            held: [memory.run(), memory.run()],
        }
    }

    /// Adds what is wanted of these partitions.
    fn add_up(&self, half: &mut Half, partitions: &[Partition], asked: Asked<'_>, watch: &Watch<'_>) -> Result<()> {
        let Asked { wanted, definition, query, is_over } = asked;
        let [of_groups, of_documents] = &mut half.held;
        for partition in partitions {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let groups = &mut half.groups;
            let mut visit = |document: &_| add(groups, query, document, of_groups);
            let came = self.each_in(partition, (wanted, definition), watch, of_documents, &mut visit);
            let newest = came.inspect_err(|_| is_over.store(true, Ordering::Relaxed))?;
            half.position = half.position.max(newest);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "grouped_tests.rs"]
mod tests;
