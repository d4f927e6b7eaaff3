//! Who syncs and who waits for it: which syncs run, how far each reaches, and when one more begins beside them.
//!
//! A fast disk has one sync at a time: whoever comes meanwhile waits for its end and shares the next, which costs less than to
//! sync again at once. Where syncs take long that is up to twice their time. There the next begins at once, up to
//! [`LANES`] of them, as long as none that runs covers what is asked for. Disks behind a network carry them out side by side;
//! those that flush a cache of their own let later ones wait for the first and share a flush, as without this.
//!
//! Syncs end in the order in which they began, so what is synced stays a prefix of the log also where it spans files. Each has
//! a *lane* for itself, which is a handle of the file of its own: the system tells a failed write to each handle once, so of two
//! that share one only one would hear of it.
//!
//! Those who wait sleep, one at a time or a few. Of a crowd each would cost a sleep and a wake-up for every batch, which is several
//! times what the batch costs: as long as syncs are short and shared by many, their waiters stay awake and give way to each other
//! (measured, 64 writers on two processors: 1.6 times the batches, and a sixth less processor for each).
//!
//! May use: `base`, positions. Must not know: files, clocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::Gate;

use crate::position::Position;

/// Most syncs at the same time.
pub(crate) const LANES: usize = 4;
/// A sync that takes so long is worth another one beside it.
const SLOW: Duration = Duration::from_millis(1);
/// So many in a row: one that had to wait for a processor says nothing about the disk.
const SLOW_SYNCS: u32 = 8;

/// So many batches that shared the last sync are a crowd: with fewer, to stay awake costs processor time that sleepers leave.
const CROWD: u64 = 8;
/// Syncs that took longer are slept through.
const SHORT: Duration = Duration::from_micros(250);
/// How long one of a crowd waits before it sleeps all the same: some short syncs.
const AWAKE: Duration = Duration::from_micros(500);

/// The syncs that run, in the order of their beginning.
#[derive(Default)]
pub(crate) struct Syncing {
    running: VecDeque<Running>,
    begun: u64,
    /// Syncs in a row that took long.
    slow: u32,
    /// How long those who wait stay awake, by what the last sync was like.
    awake: Duration,
    /// Opened when the next sync ends: for all who wait, those whom it does not cover too. To wake these once more costs less than
    /// to wake each by itself, and the first of them leads the next sync.
    ended: Arc<Gate>,
}

struct Running {
    number: u64,
    lane: usize,
    /// Not known before everything that was appended is written.
    reaches: Option<Position>,
}

/// A sync that somebody leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    number: u64,
    /// Below [`LANES`], and of no other sync that runs.
    pub(crate) lane: usize,
}

/// What a sync was like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Synced {
    /// How long the disk took.
    pub(crate) took: Duration,
    /// How many batches shared it.
    pub(crate) batches: u64,
}

/// What whoever needs a sync does next.
pub(crate) enum Next {
    /// Leads one.
    Lead(Turn),
    /// Waits for the end of one, awake for at most so long, and looks again.
    Wait(Arc<Gate>, Duration),
}

impl Syncing {
    /// What whoever needs `position` synced does next. One who is to lead has begun.
    pub(crate) fn next(&mut self, position: Position) -> Next {
        let is_covered = self.running.iter().any(|running| running.reaches.is_none_or(|to| to > position));
        let has_room = self.running.is_empty() || (self.overlaps() && self.running.len() < LANES);
        let free = (0..LANES).find(|lane| self.running.iter().all(|running| running.lane != *lane));
        match free {
            Some(lane) if has_room && !is_covered => {
                self.begun += 1;
                self.running.push_back(Running { number: self.begun, lane, reaches: None });
                Next::Lead(Turn { number: self.begun, lane })
            }
            _ => Next::Wait(Arc::clone(&self.ended), self.awake),
        }
    }

    /// Whether syncs take so long that they may overlap.
    pub(crate) fn overlaps(&self) -> bool {
        self.slow >= SLOW_SYNCS
    }

    /// Everything below `to` is written, and so covered by this sync.
    pub(crate) fn reach(&mut self, turn: Turn, to: Position) {
        if let Some(own) = self.running.iter_mut().find(|running| running.number == turn.number) {
            own.reaches = Some(to);
        }
    }

    /// What to wait for while earlier syncs run; `None` when this is the first, and may end.
    pub(crate) fn ahead_of(&self, turn: Turn) -> Option<Arc<Gate>> {
        let is_first = self.running.front().is_some_and(|first| first.number == turn.number);
        (!is_first).then(|| Arc::clone(&self.ended))
    }

    /// The first sync has ended, with this result if the disk answered. Returns the gate to open for all who wait.
    pub(crate) fn end(&mut self, synced: Option<Synced>) -> Arc<Gate> {
        self.running.pop_front();
        if let Some(Synced { took, batches }) = synced {
            self.slow = if took >= SLOW { self.slow.saturating_add(1) } else { 0 };
            self.awake = if batches >= CROWD && took <= SHORT { AWAKE } else { Duration::ZERO };
        }
        self.take_gate()
    }

    /// The gate to open for all who wait now.
    pub(crate) fn take_gate(&mut self) -> Arc<Gate> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64) -> Position {
        Position::new(position)
    }

    fn lead(syncing: &mut Syncing, position: u64) -> Option<Turn> {
        match syncing.next(at(position)) {
            Next::Lead(turn) => Some(turn),
            Next::Wait(..) => None,
        }
    }

    fn took(took: Duration) -> Option<Synced> {
        Some(Synced { took, batches: 1 })
    }

    fn slow() -> Syncing {
        let mut syncing = Syncing::default();
        for _ in 0..SLOW_SYNCS {
            assert!(!syncing.overlaps());
            lead(&mut syncing, 1).unwrap();
            syncing.end(took(SLOW));
        }
        syncing
    }

    #[test]
    fn a_fast_disk_has_one_sync_at_a_time() {
        let mut syncing = slow();
        lead(&mut syncing, 1).unwrap();
        syncing.end(took(SLOW / 2));
        let first = lead(&mut syncing, 10).unwrap();
        syncing.reach(first, at(11));
        assert_eq!((lead(&mut syncing, 10), lead(&mut syncing, 12)), (None, None));
        syncing.end(None);
        assert!(lead(&mut syncing, 12).is_some());
    }

    #[test]
    fn those_who_wait_stay_awake_in_crowds_on_fast_disks_alone() {
        for (batches, took, awake) in
            [(CROWD, SHORT, AWAKE), (CROWD - 1, SHORT, Duration::ZERO), (1000, SHORT * 2, Duration::ZERO)]
        {
            let mut syncing = Syncing::default();
            lead(&mut syncing, 1).unwrap();
            syncing.end(Some(Synced { took, batches }));
            let turn = lead(&mut syncing, 2).unwrap();
            syncing.reach(turn, at(3));
            assert!(matches!(syncing.next(at(2)), Next::Wait(_, for_so_long) if for_so_long == awake));
            // A sync that failed says nothing about the next.
            syncing.end(None);
            lead(&mut syncing, 4).unwrap();
            assert!(matches!(syncing.next(at(4)), Next::Wait(_, for_so_long) if for_so_long == awake));
        }
    }

    #[test]
    fn a_slow_disk_has_several_of_which_none_does_what_another_does() {
        let mut syncing = slow();
        let first = lead(&mut syncing, 10).unwrap();
        assert_eq!(lead(&mut syncing, 20), None, "the first may cover it");
        syncing.reach(first, at(15));
        assert_eq!(lead(&mut syncing, 14), None);
        let mut turns = vec![first];
        for number in 1..LANES as u64 {
            let turn = lead(&mut syncing, 10 + 10 * number).unwrap();
            syncing.reach(turn, at(15 + 10 * number));
            turns.push(turn);
        }
        let mut lanes: Vec<usize> = turns.iter().map(|turn| turn.lane).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, (0..LANES).collect::<Vec<_>>());
        assert_eq!(lead(&mut syncing, 1000), None);
        // In order, and the lane of the one that ended is free.
        assert!(
            syncing.ahead_of(turns[0]).is_none() && turns[1..].iter().all(|turn| syncing.ahead_of(*turn).is_some())
        );
        syncing.end(took(SLOW));
        assert!(syncing.ahead_of(turns[1]).is_none());
        assert_eq!(lead(&mut syncing, 1000).unwrap().lane, turns[0].lane);
    }
}
