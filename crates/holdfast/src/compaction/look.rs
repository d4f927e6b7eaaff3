//! Which commands of a piece of journal seem to be needed.
//!
//! Each that lies where something is needed is looked up by its key, which is anywhere in memory. So a few are on their way at a time: while what one of them looks at is
//! fetched, others are asked about.
//!
//! May use: `kv`, partitions. Must not know: what becomes of those that are needed.

use std::collections::VecDeque;

use journal::{Position, RecordSection};
use kv::{Coming, Command, Commands, NeededParts, Older, Recorded, Step};

use crate::partition::Partition;

/// How many commands are on their way.
const AHEAD: usize = 8;
/// Larger ones are not copied before it is known that they are needed.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// A command that seems to be needed, copied out of the piece that was read.
pub(super) struct Candidate {
    pub(super) position: Position,
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

/// A command on its way.
struct Look<'s> {
    partition: &'s Partition,
    candidate: Candidate,
    coming: Option<Coming<'s>>,
}

/// What is needed of a piece.
pub(super) struct Looks<'s> {
    partitions: &'s [Partition],
    older: Older,
    needed: &'s NeededParts,
    queue: VecDeque<Look<'s>>,
    /// Of each partition, in the order of the piece.
    wanted: Vec<Vec<Candidate>>,
}

impl<'s> Looks<'s> {
    pub(super) fn new(partitions: &'s [Partition], older: Older, needed: &'s NeededParts) -> Self {
        let wanted = partitions.iter().map(|_| Vec::new()).collect();
        Looks { partitions, older, needed, queue: VecDeque::new(), wanted }
    }

    /// Looks at the commands of one partition in the batch at `position`.
    pub(super) fn add(&mut self, section: &RecordSection<'_>, position: Position) -> kv::Result<()> {
        let Some(partition) = self.partitions.get(section.partition.index()) else { return Ok(()) };
        for said in Commands::new(section.commands, section.at) {
            let said = said?;
            if !self.needed.may_begin(Position::new(said.at), Position::new(said.at)) {
                continue;
            }
            if said.bytes.len() > AHEAD_BYTES_MAX {
                while self.take_first()? {}
                if self.may_need(partition, &said.recorded, (position, said.at))? {
                    self.want(partition, Candidate { position, at: said.at, bytes: said.bytes.to_vec() });
                }
                continue;
            }
            let key = match &said.recorded.command {
                Command::Put(put) => Some((put.bucket, put.key)),
                Command::Delete { bucket, key } | Command::Expire { bucket, key, .. } => Some((*bucket, *key)),
                Command::Clear { .. } => None,
            };
            let mut coming = key.map(|(bucket, key)| partition.reader.coming(bucket, key));
            coming.iter_mut().for_each(|coming| coming.fetch_kept(Step::First));
            let candidate = Candidate { position, at: said.at, bytes: said.bytes.to_vec() };
            self.queue.push_back(Look { partition, candidate, coming });
            self.go_on()?;
        }
        Ok(())
    }

    /// Those that are needed, by partition.
    pub(super) fn end(mut self) -> kv::Result<Vec<Vec<Candidate>>> {
        while self.take_first()? {}
        Ok(self.wanted)
    }

    /// Brings those on their way one step further.
    fn go_on(&mut self) -> kv::Result<()> {
        let half = self.queue.len().checked_sub(AHEAD / 2).and_then(|at| self.queue.get_mut(at));
        if let Some(coming) = half.and_then(|look| look.coming.as_mut()) {
            coming.fetch_kept(Step::Second);
        }
        if self.queue.len() >= AHEAD {
            self.take_first()?;
        }
        Ok(())
    }

    /// Asks about the one that came first; false if there is none.
    fn take_first(&mut self) -> kv::Result<bool> {
        let Some(Look { partition, candidate, .. }) = self.queue.pop_front() else { return Ok(false) };
        let Some((recorded, _)) = Recorded::decode(&candidate.bytes) else { return Ok(true) };
        if self.may_need(partition, &recorded, (candidate.position, candidate.at))? {
            self.want(partition, candidate);
        }
        Ok(true)
    }

    fn may_need(
        &self,
        partition: &Partition,
        recorded: &Recorded<'_>,
        (position, at): (Position, u64),
    ) -> kv::Result<bool> {
        // A ledger that is being rebuilt does not know yet; under the lock it will.
        let needed = partition.undisturbed(|reader| reader.may_need(recorded, position, at, self.older))?;
        Ok(needed.unwrap_or(true))
    }

    fn want(&mut self, partition: &Partition, candidate: Candidate) {
        if let Some(wanted) = self.wanted.get_mut(partition.id.index()) {
            wanted.push(candidate);
        }
    }
}
