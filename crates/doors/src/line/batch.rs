//! The points of all connections of one thread, on their way into the store.
//!
//! A batch begins with its first point, and is written when it holds enough, when its time is over, or when a client asks how
//! far it is durable. Whoever had points in it learns where it went, or that it was lost; nothing is lost in silence.
//!
//! May use: `door`, `wire`, the facade's `Rows`. Must not know: sockets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use holdfast::series::{Owner, Refused, Rows};
use holdfast::{Durability, Position};
use tokio::sync::Notify;

use super::door::Door;
use super::number::Unit;
use super::wire::{After, Reader, Step, Times};
use crate::durable::State;
use crate::points::nanos;
use crate::setting;

/// Whose points they are, and what is to be told to them.
pub(crate) struct Source {
    pub(crate) owner: Owner,
    /// Answers that were not sent yet.
    pub(crate) output: RefCell<Vec<u8>>,
    /// What the client did wrong, until it is a good moment to tell it.
    complaints: RefCell<Vec<u8>>,
    /// Complaints that had no place among them.
    left_out: Cell<u64>,
    /// How much of both may wait.
    output_bytes_max: usize,
    /// The newest batch with points of this source.
    pub(crate) position: Cell<Position>,
    /// Points in the batch that is being gathered.
    gathered: Cell<usize>,
    /// What the store would not take, until a checkpoint has told it.
    pub(crate) failed: RefCell<Option<String>>,
    /// Lines that were not understood, and points that were not written.
    pub(crate) errors: Cell<u64>,
    pub(crate) waker: RefCell<Option<Waker>>,
    pub(crate) active_ms: Cell<u64>,
    /// Since when nothing more is read because answers are not taken; 0 is not so.
    pub(crate) stalled_ms: Cell<u64>,
    /// Since when a text that is not ended holds lines back; 0 is not so.
    pub(crate) open_ms: Cell<u64>,
    pub(crate) ask: Cell<Ask>,
}

/// What a connection is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    /// Take the lines that a text holds back which was opened and not ended.
    EndText,
    /// Send what there is, and end.
    Finish,
    /// End now.
    Kill,
}

impl Source {
    pub(crate) fn new(owner: u32, output_bytes_max: usize, now_ms: u64) -> Self {
        Source {
            owner: Owner(owner),
            output: RefCell::default(),
            complaints: RefCell::default(),
            left_out: Cell::new(0),
            output_bytes_max,
            position: Cell::new(Position::ZERO),
            gathered: Cell::new(0),
            failed: RefCell::new(None),
            errors: Cell::new(0),
            waker: RefCell::new(None),
            active_ms: Cell::new(now_ms),
            stalled_ms: Cell::new(0),
            open_ms: Cell::new(0),
            ask: Cell::new(Ask::Nothing),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Notes what the client did wrong; beyond a bound it is only counted.
    pub(crate) fn complain(&self, door: &Door, line: &str) {
        let mut complaints = self.complaints.borrow_mut();
        if self.output.borrow().len() + complaints.len() + line.len() >= self.output_bytes_max / 2 {
            door.unsaid.fetch_add(1, Relaxed);
            self.left_out.set(self.left_out.get() + 1);
            return;
        }
        complaints.extend_from_slice(line.as_bytes());
        complaints.push(b'\n');
    }

    /// Whether there is something that the client was not told.
    pub(crate) fn has_complaints(&self) -> bool {
        !self.complaints.borrow().is_empty() || self.left_out.get() > 0
    }

    /// Puts complaints among what is sent.
    pub(crate) fn tell_complaints(&self) {
        let mut output = self.output.borrow_mut();
        output.append(&mut self.complaints.borrow_mut());
        let left_out = self.left_out.take();
        if left_out > 0 {
            output.extend_from_slice(format!("error: {left_out} more error lines were left out\n").as_bytes());
        }
    }

    /// Says what was asked, and what is to be told before it: who asks is listening.
    pub(crate) fn answer(&self, text: &str) {
        self.tell_complaints();
        self.output.borrow_mut().extend_from_slice(text.as_bytes());
    }

    /// Notes that points of it were not written.
    fn lose(&self, door: &Door, points: u64, reason: &str) {
        self.errors.set(self.errors.get() + points);
        self.complain(door, &format!("error: {points} points were not written: {reason}"));
        self.failed.borrow_mut().get_or_insert_with(|| reason.to_owned());
        self.wake();
    }
}

/// What the connections of one thread share.
pub(crate) struct Reactor {
    pub(crate) door: Arc<Door>,
    batch: RefCell<Batch>,
    /// What all connections read into: the beginning of a line that came before, and what is new.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// A batch has begun.
    pub(crate) begun: Notify,
    waiting: RefCell<Vec<Waker>>,
    round: Cell<u64>,
}

#[derive(Default)]
struct Batch {
    rows: Rows,
    reader: Reader,
    /// Bytes of lines in it.
    bytes: usize,
    sources: Vec<Rc<Source>>,
}

impl Reactor {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        let limits = &door.options.limits;
        let rows = Rows::new(&door.options.database);
        Reactor {
            scratch: RefCell::new(vec![0; limits.turn_bytes + limits.line_bytes_max]),
            batch: RefCell::new(Batch { rows, ..Batch::default() }),
            begun: Notify::new(),
            waiting: RefCell::new(Vec::new()),
            round: Cell::new(1),
            door,
        }
    }

    /// Reads lines for `source` from the beginning of `text`, up to one that has no points.
    pub(crate) fn gather<'t>(&self, source: &Rc<Source>, text: &'t [u8], after: After) -> Gathered<'t> {
        let mut done = Gathered { bytes: 0, lines: 0, next: None };
        loop {
            let rest = text.get(done.bytes..).unwrap_or_default();
            let some = self.fill(source, rest, after);
            done.bytes += some.bytes;
            done.lines += some.lines;
            if some.next.is_some() || rest.len() == some.bytes {
                done.next = some.next;
                return done;
            }
            self.write();
        }
    }

    /// As [`Reactor::gather`], until the batch is full.
    fn fill<'t>(&self, source: &Rc<Source>, text: &'t [u8], after: After) -> Gathered<'t> {
        let mut batch = self.batch.borrow_mut();
        let Batch { rows, reader, bytes: gathered, sources } = &mut *batch;
        let limits = &self.door.options.limits;
        let times = Times { now: nanos(self.door.store.now_ms()), unit: Unit::Digits };
        let had = rows.len();
        rows.set_owner(Some(source.owner));
        let mut done = Gathered { bytes: 0, lines: 0, next: None };
        while rows.len() < limits.batch_points_max && *gathered < limits.batch_bytes_max && !rows.is_crowded() {
            let rest = text.get(done.bytes..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            match reader.step(rest, after, times, rows) {
                Step::Points { bytes, lines, .. } => {
                    *gathered += bytes;
                    done.bytes += bytes;
                    done.lines += lines;
                }
                next => {
                    done.next = Some(next);
                    break;
                }
            }
        }
        let added = rows.len() - had;
        if added > 0 {
            if had == 0 {
                self.begun.notify_one();
            }
            if source.gathered.get() == 0 {
                sources.push(Rc::clone(source));
            }
            source.gathered.set(source.gathered.get() + added);
        }
        done
    }

    /// Writes the batch, if there is one.
    pub(crate) fn write(&self) {
        let mut batch = self.batch.borrow_mut();
        let Batch { rows, bytes, sources, .. } = &mut *batch;
        *bytes = 0;
        if rows.is_empty() {
            // Bad lines may have left names.
            rows.clear();
            return;
        }
        let door = &self.door;
        let written = door.store.write(rows).and_then(|written| {
            let failure = self.settle(written.position);
            failure.map_or(Ok(written), Err)
        });
        match written {
            Ok(written) => {
                door.points.wrote(&written);
                let newer = |source: &Rc<Source>| source.position.get().max(written.position);
                sources.iter().for_each(|source| source.position.set(newer(source)));
                written.refused.iter().for_each(|refused| refuse(door, sources, refused));
            }
            Err(error) => {
                rows.clear();
                let reason = setting::told(&error);
                let lost: usize = sources.iter().map(|source| source.gathered.get()).sum();
                door.points.lost.fetch_add(lost as u64, Relaxed);
                tracing::warn!(points = lost, %error, "points were not written");
                sources.iter().for_each(|source| source.lose(door, source.gathered.get() as u64, &reason));
            }
        }
        for source in sources.drain(..) {
            source.gathered.set(0);
        }
    }

    /// Makes a batch as durable as it is to be without anybody waiting for it; what failed.
    fn settle(&self, position: Position) -> Option<holdfast::Error> {
        let door = &self.door;
        match door.durability {
            Durability::Synced => {
                let failure = door.store.wait(position, Durability::Written).err();
                door.syncer.want(position);
                failure
            }
            durability => door.store.wait(position, durability).err(),
        }
    }

    /// How durable what a source has sent is. Has the batch written if its points are in it.
    pub(crate) fn checkpoint(&self, source: &Source) -> Position {
        if source.gathered.get() > 0 {
            self.write();
        }
        let position = source.position.get();
        self.door.syncer.want(position);
        position
    }

    /// Whether a position is synced; if it is not yet, the waker is used when that may have changed. `round` is the caller's.
    pub(crate) fn synced(&self, position: Position, round: &mut u64, waker: &Waker) -> State {
        let state = self.door.syncer.synced(position);
        if state == State::Waiting && *round != self.round.get() {
            *round = self.round.get();
            self.waiting.borrow_mut().push(waker.clone());
        }
        state
    }

    /// Wakes everybody who waits for a sync: called when one has ended.
    pub(crate) fn wake_waiting(&self) {
        self.round.set(self.round.get() + 1);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What was read from a text.
pub(crate) struct Gathered<'t> {
    /// Bytes and lines that are done with.
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
    /// What comes next, and is not among them; `None` when nothing does.
    pub(crate) next: Option<Step<'t>>,
}

/// Tells whoever has written them of points that the store refused.
fn refuse(door: &Door, sources: &[Rc<Source>], refused: &Refused) {
    let Refused { metric, field, points, owner, reason } = refused;
    match owner.and_then(|owner| sources.iter().find(|source| source.owner == owner)) {
        Some(source) => {
            source.errors.set(source.errors.get() + points);
            source.complain(door, &format!("error: {points} points of {metric} {field} were refused: {reason}"));
            source.wake();
        }
        None => tracing::debug!(metric, field, points, reason, "points were refused"),
    }
}

#[cfg(test)]
mod tests {
    use holdfast::Store;

    use super::*;
    use crate::line::Options;

    /// A client sent bad lines without end, each with another name: names stayed in memory as long as there were no points.
    #[test]
    fn names_of_bad_lines_do_not_fill_memory() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Store::open(folder.path(), holdfast::Options::default()).unwrap();
        let options = Options::new("127.0.0.1:0".parse().unwrap());
        let door = Door::new(store, Durability::Synced, options);
        let reactor = Reactor::new(Arc::new(door));
        let source = Rc::new(Source::new(1, 0, 0));
        let mut bad = 0;
        for nth in 0..200_000 {
            let line = [format!("m,t={nth} ").as_bytes(), b"\xff=1\n"].concat();
            let gathered = reactor.gather(&source, &line, After::More);
            bad += usize::from(matches!(gathered.next, Some(Step::Bad { .. })));
            let name_bytes = reactor.batch.borrow().rows.name_bytes();
            assert!(name_bytes < 32 << 20, "{name_bytes} bytes of names after {nth} lines");
        }
        assert_eq!(bad, 200_000, "each was told");
    }
}
