//! Which rollups say the same as points.
//!
//! A window counts when all of its points are those of one file as they were when its rollup was made: nothing of the series in the
//! window lies in another file or in memory, and nothing of it was deleted since. It does not matter which files count more then.
//!
//! May use: `read`, the shelf. Must not know: query languages.

use ::series::{Range, Summary, Unit};

use super::read::Looked;
use super::shelf::Shelf;
use crate::error::Result;

fn overlap(a: Range, b: Range) -> bool {
    a.from <= b.to && a.to >= b.from
}

/// Whether one of these, which are sorted and apart, has times of a range.
fn any_overlaps(sorted: &[Range], range: Range) -> bool {
    let at = sorted.partition_point(|one| one.to < range.from);
    sorted.get(at).is_some_and(|one| one.from <= range.to)
}

impl Looked {
    /// What is known of windows that lie whole in the range; by time.
    pub(super) fn summaries(&self, shelf: &Shelf, unit: Unit) -> Result<Vec<Summary>> {
        let in_files: Vec<_> = self
            .files(self.range)
            .map(|file| (file, file.blocks(self.series, self.range).map(|at| at.range).collect::<Vec<_>>()))
            .filter(|(_, blocks)| !blocks.is_empty())
            .collect();
        let frozen = self.view.frozen.iter().filter_map(|frozen| frozen.points(self.series.number));
        let in_memory: Vec<_> = frozen.chain([&self.view.head]).collect();
        let mut found = Vec::new();
        for (nth, (file, _)) in in_files.iter().enumerate() {
            let through = file.through(self.series.partition);
            let erased = || self.view.erased.iter().filter(|erased| erased.at > through);
            let counts = |window: Range| {
                let elsewhere = in_files.iter().enumerate().filter(|(at, _)| *at != nth);
                window.from >= self.range.from
                    && window.to <= self.range.to
                    && !erased().any(|erased| overlap(erased.range, window))
                    && in_memory.iter().all(|points| points.between(window.from, window.to).is_empty())
                    && !elsewhere.into_iter().any(|(_, (_, blocks))| any_overlaps(blocks, window))
            };
            for rollup in file.rollups(self.series, unit, self.range) {
                let windows = shelf.rollup(file, rollup)?;
                let from = windows.partition_point(|of| of.range.from < self.range.from);
                let meant = windows.iter().skip(from).take_while(|of| of.range.to <= self.range.to);
                found.extend(meant.filter(|of| counts(of.range)).copied());
            }
        }
        found.sort_unstable_by_key(|of| of.range.from);
        Ok(found)
    }
}
