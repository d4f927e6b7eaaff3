//! A bounded table of small pieces of memory that were used lately, found by their marks.
//!
//! A piece is looked for in the four slots of one set, which lie side by side, and is itself one stretch of memory with all
//! that is to be compared: of random reads over more than the processor's caches hold, each place that has to be looked at
//! costs as much as a hundred instructions, and this looks at two. Room is made by the clock algorithm (Corbato, "A paging
//! experiment with the Multics system", 1968). There are more sets when there are more pieces: how many fit depends on how large
//! they are.
//!
//! A piece has a head, and may have a tail. Tails have a share of the room that they cannot leave, heads may have all of it, and what
//! has to go leaves its tail first. What is written and never asked for gets no more than what tails cannot take: to load
//! much costs no more memory than that.
//!
//! May use: `piece.rs`. Must not know: what the pieces mean.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use base::fetch_ahead;

use crate::piece::{LENGTH_BYTES, Piece, length_of};

/// Bytes that a piece costs beside its own, without the slots.
const OVERHEAD_BYTES: usize = 32;
/// Bytes of a slot, and of what is known to have been asked about.
const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<u32>();
const SHARDS: usize = 64;
const WAYS: usize = 4;
/// The part of the room by which what is taken may be another than what is known of it.
const NOTED_PARTS: usize = 64;
/// The part of the room that slots may take however few of them are used.
const LITTLE: usize = 16;
/// Slots that are looked at for something that nobody asked for when something new is written: of those of a table that has just grown
/// an eighth or more has something.
const LOOKED_AT: usize = 32;
/// What goes then at the most.
const GONE_MAX: usize = 2;
/// Slots that there usually are for each piece.
const SLOTS_USUAL: usize = 2;

/// By what a piece is found. Pieces of the same mark are told apart by what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// Gives its place in the table; need not be spread evenly.
    pub(crate) number: u64,
    /// Whatever else has to be the same.
    pub(crate) tag: u32,
}

/// Why something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Because {
    /// Somebody asked for it.
    Asked,
    Written,
}

/// The table. Shared by threads.
pub(crate) struct Kept {
    shards: Box<[Shard]>,
    room: Room,
    /// Bytes of the whole room that are taken, about.
    taken: AtomicI64,
    borrower: OnceLock<Borrower>,
}

/// Is told how many bytes are free.
type Borrower = Box<dyn Fn(u64) + Send + Sync>;

/// Bytes of one shard.
#[derive(Debug, Clone, Copy)]
struct Room {
    all: usize,
    tails: usize,
}

/// A line of the processor's cache of its own, so that threads in different shards do not disturb each other.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Empty until the first piece comes; then of a power of two of sets.
    slots: Vec<Slot>,
    /// What was asked about once: a part of its mark, in a place that the mark gives. As many as slots.
    seen: Vec<u32>,
    pieces: usize,
    /// Of all pieces, and of their tails.
    bytes: usize,
    tail_bytes: usize,
    /// Where making room goes on.
    hand: usize,
    /// What is known of what it holds.
    noted: usize,
}

/// Half a line of the processor's cache: the mark's two numbers lie beside each other without a gap.
#[derive(Clone, Default)]
struct Slot {
    number: u64,
    tag: u32,
    is_used: bool,
    has_tail: bool,
    piece: Option<Piece>,
}

#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    /// Its low bits give the set.
    set: usize,
    /// Never zero, which is nothing's.
    trace: u32,
}

impl Kept {
    /// A table of about `bytes`, and as many more as `tail_bytes`, which is what tails may have.
    pub(crate) fn new(bytes: u64, tail_bytes: u64) -> Self {
        let share = |total: u64| usize::try_from(total / SHARDS as u64).unwrap_or(usize::MAX);
        let room = Room { all: share(bytes.saturating_add(tail_bytes)), tails: share(tail_bytes) };
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, room, taken: AtomicI64::new(0), borrower: OnceLock::new() }
    }

    /// Tells `borrower` how many bytes are free, now and whenever that has changed by some. There can be one.
    pub(crate) fn lend(&self, borrower: Borrower) {
        let _ = self.borrower.set(borrower);
        self.tell();
    }

    fn tell(&self) {
        if let Some(borrower) = self.borrower.get() {
            let all = self.room.all.saturating_mul(SHARDS) as u64;
            borrower(all.saturating_sub_signed(self.taken.load(Ordering::Relaxed)));
        }
    }

    /// Takes note of how much more is held than was known. Without a shard's lock, so that others may be a moment ahead or behind.
    fn note(&self, more: i64) {
        self.taken.fetch_add(more, Ordering::Relaxed);
        self.tell();
    }

    fn place(mark: Mark) -> Place {
        // Numbers may be multiples of eight: multiplied, the high bits depend on all.
        let mixed = mark.number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let [shard, a, b, c, d, x, y, z] = mixed.to_be_bytes();
        let set = usize::try_from(u32::from_be_bytes([d, c, b, a])).unwrap_or_default();
        Place { shard: usize::from(shard) % SHARDS, set, trace: u32::from_be_bytes([c | 1, x, y, z]) }
    }

    fn table(&self, place: Place) -> Option<MutexGuard<'_, Table>> {
        // Whoever panicked while holding it left every slot whole.
        self.shards.get(place.shard).map(|shard| shard.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The piece with this mark whose head `is_it`, which was used with that.
    pub(crate) fn get(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> Option<Piece> {
        self.slot(mark, is_it, |slot| {
            slot.is_used = true;
            slot.piece.clone()
        })
    }

    /// As [`Kept::get`], for those whose interest is no sign that it is in use.
    pub(crate) fn peek(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> Option<Piece> {
        self.slot(mark, is_it, |slot| slot.piece.clone())
    }

    fn slot<T>(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool, with: impl Fn(&mut Slot) -> Option<T>) -> Option<T> {
        let place = Self::place(mark);
        let mut table = self.table(place)?;
        table.slots_of(place).iter_mut().find(|slot| slot.holds(mark, &is_it)).and_then(with)
    }

    /// Fetches the slots that a mark may be in.
    pub(crate) fn fetch_slots(&self, mark: Mark) {
        self.slots_now(mark, |slots| slots.iter().step_by(WAYS / 2).for_each(fetch_ahead));
    }

    /// Fetches the start of a mark's piece.
    pub(crate) fn fetch_piece(&self, mark: Mark) {
        self.slots_now(mark, |slots| {
            let same = slots.iter().find(|slot| slot.mark() == mark);
            let piece = same.and_then(|slot| slot.piece.as_ref());
            piece.into_iter().for_each(Piece::fetch_start);
        });
    }

    /// Asks the slots that a mark may be in, unless somebody else is at them.
    fn slots_now(&self, mark: Mark, ask: impl FnOnce(&[Slot])) {
        let place = Self::place(mark);
        let shard = self.shards.get(place.shard);
        if let Some(mut table) = shard.and_then(|shard| shard.0.try_lock().ok()) {
            ask(table.slots_of(place));
        }
    }

    fn may_keep(&self, bytes: usize) -> bool {
        LENGTH_BYTES + bytes + OVERHEAD_BYTES + WAYS * SLOT_BYTES <= self.room.all
    }

    /// Whether a tail of so many bytes may be kept.
    pub(crate) fn may_keep_tail(&self, bytes: usize) -> bool {
        bytes <= self.room.tails && self.may_keep(bytes)
    }

    /// Whether the mark was asked about before, as far as is known; from now on it was.
    pub(crate) fn was_seen(&self, mark: Mark) -> bool {
        let place = Self::place(mark);
        let Some(mut table) = self.table(place) else { return false };
        let table = &mut *table;
        table.seen.resize(table.slots.len(), 0);
        let way = usize::try_from(place.trace).unwrap_or_default() % WAYS;
        let first = table.set(place) * WAYS;
        let trace = table.seen.get_mut(first + way);
        trace.is_some_and(|trace| std::mem::replace(trace, place.trace) == place.trace)
    }

    /// Keeps a piece of the two parts of a head and a tail, which may be empty, instead of the one with this mark whose head `is_it`. A tail that is too large is left out;
    /// when even the head is, nothing of this mark is there afterwards.
    pub(crate) fn keep(
        &self,
        mark: Mark,
        is_it: impl Fn(&[u8]) -> bool,
        (head, tail): ([&[u8]; 2], &[u8]),
        because: Because,
    ) {
        let bytes = length_of(&head);
        let Some(length) = u32::try_from(bytes).ok().filter(|_| self.may_keep(bytes)) else {
            return self.remove(mark, is_it);
        };
        let length = length.to_le_bytes();
        let has_tail = !tail.is_empty() && self.may_keep_tail(bytes + tail.len());
        let [first, second] = head;
        let parts = [&length[..], first, second, if has_tail { tail } else { &[] }];
        let place = Self::place(mark);
        let Some(mut table) = self.table(place) else { return };
        let is_new = table.keep(place, mark, is_it, (&parts, has_tail), self.room);
        if is_new && because == Because::Written {
            table.let_unasked_go(place, self.room);
        }
        table.make_room(self.room);
        let changed = table.newly_held(self.room);
        drop(table);
        changed.into_iter().for_each(|more| self.note(more));
    }

    /// Lets go of the piece with this mark whose head `is_it`.
    pub(crate) fn remove(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) {
        let place = Self::place(mark);
        let Some(mut table) = self.table(place) else { return };
        let slots = table.slots_of(place);
        if let Some(way) = slots.iter().position(|slot| slot.holds(mark, &is_it)) {
            let number = table.set(place) * WAYS + way;
            table.replace(number, Slot::default());
        }
        let changed = table.newly_held(self.room);
        drop(table);
        changed.into_iter().for_each(|more| self.note(more));
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.0.lock().unwrap_or_else(PoisonError::into_inner));
            self.note(-(gone.noted as i64));
        }
    }
}

impl Table {
    fn set(&self, place: Place) -> usize {
        place.set & (self.slots.len() / WAYS).saturating_sub(1)
    }

    fn slots_of(&mut self, place: Place) -> &mut [Slot] {
        let first = self.set(place) * WAYS;
        self.slots.get_mut(first..first + WAYS).unwrap_or_default()
    }

    /// All that is held, with what it is held in.
    fn held(&self) -> usize {
        self.bytes + self.slots.len() * SLOT_BYTES
    }

    /// How much more it holds than is known of it, when that is no longer about the same; from now on it is known.
    fn newly_held(&mut self, room: Room) -> Option<i64> {
        let held = self.held();
        let is_news = held.abs_diff(self.noted) > room.all / NOTED_PARTS;
        is_news.then(|| held as i64 - std::mem::replace(&mut self.noted, held) as i64)
    }

    /// Changes what is in a slot, and counts it.
    fn with_slot(&mut self, number: usize, change: impl FnOnce(&mut Slot)) {
        let Some(slot) = self.slots.get_mut(number) else { return };
        let before = (usize::from(slot.piece.is_some()), slot.bytes(), slot.tail_bytes());
        change(slot);
        self.pieces = self.pieces + usize::from(slot.piece.is_some()) - before.0;
        self.bytes = self.bytes + slot.bytes() - before.1;
        self.tail_bytes = self.tail_bytes + slot.tail_bytes() - before.2;
    }

    fn replace(&mut self, number: usize, with: Slot) {
        self.with_slot(number, |slot| *slot = with);
    }

    /// Puts a piece into its set: where the same is, into a slot that is free, or into one that was not used lately. Says whether
    /// nothing was the same.
    fn keep(
        &mut self,
        place: Place,
        mark: Mark,
        is_it: impl Fn(&[u8]) -> bool,
        (parts, has_tail): (&[&[u8]], bool),
        room: Room,
    ) -> bool {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); WAYS];
        }
        let same = self.slots_of(place).iter().position(|slot| slot.holds(mark, &is_it));
        let free = |table: &mut Self| table.slots_of(place).iter().position(|slot| slot.piece.is_none());
        let mut chosen = same.or_else(|| free(self));
        while chosen.is_none() && self.may_grow(room) {
            self.grow();
            chosen = free(self);
        }
        let slots = self.slots_of(place);
        let unused = || slots.iter().position(|slot| !slot.is_used);
        let chosen = chosen.or_else(unused).unwrap_or_else(|| {
            slots.iter_mut().for_each(|slot| slot.is_used = false);
            0
        });
        let number = self.set(place) * WAYS + chosen;
        self.with_slot(number, |slot| {
            if same.is_none() || !slot.rewrite(parts, has_tail) {
                *slot = Slot::new(mark, Piece::new(parts), has_tail);
            }
        });
        same.is_none()
    }

    /// More sets are worth their room when most slots are taken, as long as there is enough of it, or when they take little of it.
    fn may_grow(&self, room: Room) -> bool {
        let more = self.slots.len() * SLOT_BYTES;
        let (is_little, is_room) = (more * 2 <= room.all / LITTLE, self.held() + more <= room.all / 4 * 3);
        let (has_some, is_half_full) = (self.pieces * 4 > self.slots.len(), self.pieces * 2 > self.slots.len());
        has_some && (is_little || (is_half_full && is_room))
    }

    /// Twice as many sets: what was in a set is in it still, or in the one that comes as far behind it as there were sets.
    fn grow(&mut self) {
        let before = std::mem::take(&mut self.slots);
        let sets = before.len() / WAYS;
        self.slots = vec![Slot::default(); before.len() * 2];
        for (number, slot) in before.into_iter().enumerate().filter(|(_, slot)| slot.piece.is_some()) {
            let is_behind = Kept::place(slot.mark()).set & sets > 0;
            let number = number + if is_behind { sets * WAYS } else { 0 };
            if let Some(to) = self.slots.get_mut(number) {
                *to = slot;
            }
        }
        self.seen.extend_from_within(..);
    }

    fn next(&mut self) -> usize {
        self.hand = (self.hand + 1) % self.slots.len().max(1);
        self.hand
    }

    fn make_room(&mut self, room: Room) {
        // Each slot is passed at most three times: to forget that it was used, to lose its tail, and to be emptied.
        for _ in 0..self.slots.len() * 3 {
            let is_full = self.held() > room.all;
            if !is_full && self.tail_bytes <= room.tails {
                break;
            }
            let number = self.next();
            let Some(slot) = self.slots.get_mut(number) else { break };
            if !(is_full || slot.has_tail) || std::mem::take(&mut slot.is_used) {
                continue;
            }
            if slot.has_tail {
                self.with_slot(number, Slot::leave_tail);
            } else {
                self.replace(number, Slot::default());
            }
        }
    }

    /// Something new was written: what was before, and nobody asked for, makes room for it, if there is much.
    fn let_unasked_go(&mut self, place: Place, room: Room) {
        let newest = self.set(place);
        let mut gone = 0;
        for _ in 0..LOOKED_AT {
            let heads = self.bytes - self.tail_bytes + self.pieces * SLOTS_USUAL * SLOT_BYTES;
            if gone == GONE_MAX || heads <= room.all - room.tails {
                break;
            }
            let number = self.next();
            let is_other = number / WAYS != newest;
            let slot = self.slots.get(number).filter(|slot| is_other && slot.piece.is_some());
            if slot.is_some_and(|slot| !slot.is_used && !slot.has_tail) {
                self.replace(number, Slot::default());
                gone += 1;
            }
        }
    }
}

impl Slot {
    fn new(Mark { number, tag }: Mark, piece: Piece, has_tail: bool) -> Self {
        Self { number, tag, is_used: false, has_tail, piece: Some(piece) }
    }

    /// Writes over the piece, if it is as long as `parts` and nobody else holds it: its memory was just looked at, where another's
    /// costs a wait for each line of it, and two calls of the allocator.
    fn rewrite(&mut self, parts: &[&[u8]], has_tail: bool) -> bool {
        if !self.piece.as_mut().is_some_and(|piece| piece.rewrite(parts)) {
            return false;
        }
        (self.is_used, self.has_tail) = (false, has_tail);
        true
    }

    fn leave_tail(&mut self) {
        self.piece = self.piece.as_ref().map(Piece::without_tail);
        self.has_tail = false;
    }

    fn mark(&self) -> Mark {
        Mark { number: self.number, tag: self.tag }
    }

    fn holds(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> bool {
        self.mark() == mark && self.piece.as_ref().is_some_and(|piece| is_it(piece.head()))
    }

    fn bytes(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.bytes() + OVERHEAD_BYTES)
    }

    fn tail_bytes(&self) -> usize {
        self.piece.as_ref().filter(|_| self.has_tail).map_or(0, Piece::tail_bytes)
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
