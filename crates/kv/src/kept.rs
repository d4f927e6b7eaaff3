//! A bounded table of small pieces of memory that were used lately, found by their marks.
//!
//! A piece is looked for in the four slots of one set, which lie side by side, and is itself one stretch of memory with all
//! that is to be compared: of random reads over more than the processor's caches hold, each place that has to be looked at
//! costs as much as a hundred instructions, and this looks at two. Room is made by the clock algorithm (Corbato, "A paging
//! experiment with the Multics system", 1968).
//!
//! May use: nothing. Must not know: what the pieces mean.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::fetch_ahead;

use crate::coming::fetch_start;
use crate::ledger::Slice;

/// Bytes that a piece costs beside its own.
const OVERHEAD_BYTES: usize = 64;
const SHARDS: usize = 64;
const WAYS: usize = 4;

/// Bytes, whoever holds them. Dereferences to them; clones share them but for those of its own.
#[derive(Clone)]
pub(crate) struct Bytes {
    holder: Holder,
    from: usize,
    end: usize,
}

#[derive(Clone)]
enum Holder {
    Ledger(Slice),
    Own(Vec<u8>),
    Kept(Arc<[u8]>),
}

/// By what a piece is found. Pieces of the same mark are told apart by what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// Gives its place in the table; need not be spread evenly.
    pub(crate) number: u64,
    /// Whatever else has to be the same.
    pub(crate) tag: u32,
}

/// The table. Shared by threads.
pub(crate) struct Kept {
    shards: Box<[Shard]>,
    /// Sets of one shard.
    sets: usize,
    /// Bytes of one shard.
    bytes_max: usize,
}

/// A line of the processor's cache of its own, so that threads in different shards do not disturb each other.
#[repr(align(64))]
#[derive(Default)]
struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Empty until the first piece comes.
    slots: Vec<Slot>,
    /// What was asked about once: a part of its mark, in a place that the mark gives.
    seen: Vec<u32>,
    bytes: usize,
    /// Where making room goes on.
    hand: usize,
}

/// Half a line of the processor's cache: the mark's two numbers lie beside each other without a gap.
#[derive(Clone, Default)]
struct Slot {
    number: u64,
    tag: u32,
    is_used: bool,
    piece: Option<Arc<[u8]>>,
}

struct Place {
    shard: usize,
    set: usize,
    /// Never zero, which is nothing's.
    trace: u32,
}

impl Bytes {
    fn all(holder: Holder) -> Self {
        let end = holder.bytes().len();
        Self { holder, from: 0, end }
    }

    /// Those from `from` to before `end`.
    pub(crate) fn cut(mut self, from: usize, end: usize) -> Self {
        self.end = self.end.min(self.from + end);
        self.skip(from)
    }

    /// The same without the first `count`.
    pub(crate) fn skip(mut self, count: usize) -> Self {
        self.from += count;
        self
    }

    /// The last `count` of them.
    pub(crate) fn last(self, count: usize) -> Self {
        let skipped = self.len().saturating_sub(count);
        self.skip(skipped)
    }
}

impl Holder {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ledger(slice) => slice,
            Self::Own(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.holder.bytes().get(self.from..self.end).unwrap_or_default()
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl From<Slice> for Bytes {
    fn from(slice: Slice) -> Self {
        Self::all(Holder::Ledger(slice))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::all(Holder::Own(bytes))
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(piece: Arc<[u8]>) -> Self {
        Self::all(Holder::Kept(piece))
    }
}

fn copy(parts: &[&[u8]], mut to: &mut [u8]) {
    for part in parts {
        let Some((here, rest)) = to.split_at_mut_checked(part.len()) else { return };
        here.copy_from_slice(part);
        to = rest;
    }
}

fn joined(parts: &[&[u8]]) -> Arc<[u8]> {
    // Made where it stays: a buffer that is copied when it is whole costs as much again.
    let mut piece: Arc<[u8]> = std::iter::repeat_n(0, parts.iter().map(|part| part.len()).sum()).collect();
    if let Some(to) = Arc::get_mut(&mut piece) {
        copy(parts, to);
    }
    piece
}

impl Kept {
    /// A table of at most about `bytes`, nothing when that is 0, with a slot for each `slot_bytes` of them.
    pub(crate) fn new(bytes: u64, slot_bytes: u64) -> Self {
        let share = |total: u64| usize::try_from(total / SHARDS as u64).unwrap_or(usize::MAX);
        let sets = (share(bytes / slot_bytes) / WAYS).max(1);
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), sets, bytes_max: share(bytes) }
    }

    fn place(&self, mark: Mark) -> Place {
        // Numbers may be multiples of eight: multiplied, the high bits depend on all.
        let mixed = mark.number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let [shard, a, b, c, d, x, y, z] = mixed.to_be_bytes();
        let set = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or_default() % self.sets;
        Place { shard: usize::from(shard) % SHARDS, set, trace: u32::from_be_bytes([c | 1, x, y, z]) }
    }

    fn table(&self, place: &Place) -> Option<MutexGuard<'_, Table>> {
        // Whoever panicked while holding it left every slot whole.
        self.shards.get(place.shard).map(|shard| shard.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The piece with this mark that `is_it`, which was used with that.
    pub(crate) fn get(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> Option<Arc<[u8]>> {
        self.slot(mark, is_it, |slot| {
            slot.is_used = true;
            slot.piece.clone()
        })
    }

    /// As [`Kept::get`], for those whose interest is no sign that it is in use.
    pub(crate) fn peek(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> Option<Arc<[u8]>> {
        self.slot(mark, is_it, |slot| slot.piece.clone())
    }

    fn slot<T>(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool, with: impl Fn(&mut Slot) -> Option<T>) -> Option<T> {
        let place = self.place(mark);
        let mut table = self.table(&place)?;
        table.slots_of(place.set).iter_mut().find(|slot| slot.holds(mark, &is_it)).and_then(with)
    }

    /// Fetches the slots that a mark may be in; false if there are none at all.
    pub(crate) fn fetch_slots(&self, mark: Mark) -> bool {
        self.slots_now(mark, |slots| {
            slots.iter().step_by(WAYS / 2).for_each(fetch_ahead);
            !slots.is_empty()
        })
    }

    /// Fetches the start of a mark's piece; false if there is none.
    pub(crate) fn fetch_piece(&self, mark: Mark) -> bool {
        self.slots_now(mark, |slots| {
            let same = slots.iter().find(|slot| slot.number == mark.number && slot.tag == mark.tag);
            let piece = same.and_then(|slot| slot.piece.as_deref());
            piece.map(fetch_start).is_some()
        })
    }

    /// Asks the slots that a mark may be in, unless somebody else is at them; then it is false.
    fn slots_now(&self, mark: Mark, ask: impl FnOnce(&[Slot]) -> bool) -> bool {
        let place = self.place(mark);
        let shard = self.shards.get(place.shard);
        let Some(mut table) = shard.and_then(|shard| shard.0.try_lock().ok()) else { return false };
        ask(table.slots_of(place.set))
    }

    /// Whether a piece of so many bytes may be kept at all.
    pub(crate) fn may_keep(&self, bytes: usize) -> bool {
        bytes + OVERHEAD_BYTES <= self.bytes_max
    }

    /// Whether the mark was asked about before, as far as is known; from now on it was.
    pub(crate) fn was_seen(&self, mark: Mark) -> bool {
        let place = self.place(mark);
        let Some(mut table) = self.table(&place) else { return false };
        if table.seen.is_empty() {
            table.seen = vec![0; self.sets * WAYS];
        }
        let way = usize::try_from(place.trace).unwrap_or_default() % WAYS;
        let trace = table.seen.get_mut(place.set * WAYS + way);
        trace.is_some_and(|trace| std::mem::replace(trace, place.trace) == place.trace)
    }

    /// Keeps a piece made of `parts`, instead of the one with this mark that `is_it`; says whether there was one. `let_go` gets those
    /// that have to go for it, before anybody can find them gone; it must not come back here.
    pub(crate) fn keep(
        &self,
        mark: Mark,
        is_it: impl Fn(&[u8]) -> bool,
        parts: &[&[u8]],
        let_go: &mut dyn FnMut(Mark, &[u8]),
    ) -> bool {
        if !self.may_keep(parts.iter().map(|part| part.len()).sum()) {
            return self.remove(mark, is_it);
        }
        let place = self.place(mark);
        let Some(mut table) = self.table(&place) else { return false };
        if table.slots.is_empty() {
            table.slots = vec![Slot::default(); self.sets * WAYS];
        }
        let was_there = table.keep((mark, place.set), is_it, parts, let_go);
        table.make_room(self.bytes_max, let_go);
        was_there
    }

    /// Lets go of the piece with this mark that `is_it`; says whether there was one.
    pub(crate) fn remove(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> bool {
        let place = self.place(mark);
        let Some(mut table) = self.table(&place) else { return false };
        let slot = table.slots_of(place.set).iter_mut().find(|slot| slot.holds(mark, &is_it));
        let bytes = slot.map_or(0, |slot| std::mem::take(slot).bytes());
        table.bytes -= bytes;
        bytes > 0
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *shard.0.lock().unwrap_or_else(PoisonError::into_inner) = Table::default();
        }
    }
}

impl Table {
    fn slots_of(&mut self, set: usize) -> &mut [Slot] {
        self.slots.get_mut(set * WAYS..(set + 1) * WAYS).unwrap_or_default()
    }

    /// Puts a piece into its set: where the same is, into a slot that is free, or into one that was not used lately.
    fn keep(
        &mut self,
        (mark, set): (Mark, usize),
        is_it: impl Fn(&[u8]) -> bool,
        parts: &[&[u8]],
        let_go: &mut dyn FnMut(Mark, &[u8]),
    ) -> bool {
        let slots = self.slots_of(set);
        let same = slots.iter().position(|slot| slot.holds(mark, &is_it));
        let free = || slots.iter().position(|slot| slot.piece.is_none());
        let unused = || slots.iter().position(|slot| !slot.is_used);
        let chosen = same.or_else(free).or_else(unused).unwrap_or_else(|| {
            slots.iter_mut().for_each(|slot| slot.is_used = false);
            0
        });
        let Some(slot) = slots.get_mut(chosen) else { return false };
        if same.is_some() && slot.rewrite(parts) {
            return true;
        }
        let kept = Slot::new(mark, joined(parts));
        let more = kept.bytes();
        let gone = std::mem::replace(slot, kept);
        if same.is_none() {
            gone.let_go(let_go);
        }
        self.bytes = self.bytes + more - gone.bytes();
        same.is_some()
    }

    fn make_room(&mut self, bytes_max: usize, let_go: &mut dyn FnMut(Mark, &[u8])) {
        // Each slot is passed at most twice: once to forget that it was used, once to be emptied.
        for _ in 0..self.slots.len() * 2 {
            if self.bytes <= bytes_max {
                break;
            }
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = self.slots.get_mut(self.hand) else { break };
            if !std::mem::take(&mut slot.is_used) {
                let gone = std::mem::take(slot);
                gone.let_go(let_go);
                self.bytes -= gone.bytes();
            }
        }
    }
}

impl Slot {
    fn new(Mark { number, tag }: Mark, piece: Arc<[u8]>) -> Self {
        Self { number, tag, is_used: false, piece: Some(piece) }
    }

    /// Writes over the piece, if it is as long as `parts` and nobody else holds it: its memory was just looked at, where another's
    /// costs a wait for each line of it, and two calls of the allocator.
    fn rewrite(&mut self, parts: &[&[u8]]) -> bool {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let Some(piece) = self.piece.as_mut().and_then(Arc::get_mut).filter(|piece| piece.len() == length) else {
            return false;
        };
        copy(parts, piece);
        self.is_used = false;
        true
    }

    fn mark(&self) -> Mark {
        Mark { number: self.number, tag: self.tag }
    }

    fn holds(&self, mark: Mark, is_it: impl Fn(&[u8]) -> bool) -> bool {
        self.mark() == mark && self.piece.as_deref().is_some_and(is_it)
    }

    fn let_go(&self, let_go: &mut dyn FnMut(Mark, &[u8])) {
        self.piece.iter().for_each(|piece| let_go(self.mark(), piece));
    }

    fn bytes(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.len() + OVERHEAD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Random;

    use super::*;

    /// Half of the marks are two pieces' each, told apart by their first byte.
    fn mark(number: u64) -> Mark {
        Mark { number: if number.is_multiple_of(2) { number * 8 } else { (number / 4) * 8 + 4 }, tag: 7 }
    }

    fn numbered(number: u64) -> Mark {
        Mark { number, tag: 7 }
    }

    fn piece(number: u64, version: u8) -> Arc<[u8]> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(9 + usize::try_from(number % 400).unwrap(), version);
        bytes.into()
    }

    fn is(number: u64) -> impl Fn(&[u8]) -> bool {
        move |piece| piece.starts_with(&number.to_le_bytes())
    }

    fn bytes(kept: &Kept) -> usize {
        kept.shards.iter().map(|shard| shard.0.lock().unwrap().bytes).sum()
    }

    fn counted(kept: &Kept) -> usize {
        let one = |shard: &Shard| shard.0.lock().unwrap().slots.iter().map(Slot::bytes).sum::<usize>();
        kept.shards.iter().map(one).sum()
    }

    #[test]
    fn it_shows_the_newest_piece_or_nothing_in_bounded_memory() {
        for bytes_max in [0, 1 << 10, 256 << 10, 4 << 20] {
            let kept = Kept::new(bytes_max, 128);
            let mut model = BTreeMap::new();
            let mut random = Random::new(bytes_max);
            let (mut asked, mut found) = (0, 0);
            for n in 0..200_000 {
                let number = random.below(3_000);
                match random.below(10) {
                    0 => {
                        kept.remove(mark(number), is(number));
                        model.remove(&number);
                    }
                    1..4 => {
                        let piece = piece(number, u8::try_from(n % 251).unwrap());
                        kept.keep(mark(number), is(number), &[&piece], &mut |_, _| ());
                        model.insert(number, piece);
                    }
                    _ => {
                        let got = kept.get(mark(number), is(number));
                        assert!(got.is_none() || got.as_ref() == model.get(&number), "{number}");
                        asked += usize::from(model.contains_key(&number));
                        found += usize::from(got.is_some());
                    }
                }
            }
            assert_eq!(bytes(&kept), counted(&kept));
            assert!(bytes(&kept) as u64 <= bytes_max, "{} of {bytes_max}", bytes(&kept));
            // All of it takes less than a megabyte.
            assert!((found > 0) == (bytes_max >= 256 << 10), "{found}");
            assert!(bytes_max < 4 << 20 || found * 100 > asked * 98, "{found} of {asked}");
            kept.clear();
            assert!((0..3_000).all(|number| kept.get(mark(number), is(number)).is_none()) && bytes(&kept) == 0);
        }
    }

    #[test]
    fn who_holds_a_piece_has_it_as_it_was() {
        let kept = Kept::new(1 << 20, 128);
        let get = || kept.get(mark(4), is(4)).unwrap();
        assert!(!kept.keep(mark(4), is(4), &[&piece(4, 1)], &mut |_, _| ()));
        let held = get();
        for version in 2..5 {
            // In the same place from the second time on, and the third time with one who holds what is there.
            let _held = (version == 4).then(get);
            assert!(kept.keep(mark(4), is(4), &[&piece(4, version)], &mut |_, _| ()));
            assert_eq!((&held, get()), (&piece(4, 1), piece(4, version)));
        }
        assert!(kept.keep(mark(4), is(4), &[&4u64.to_le_bytes(), b"a longer one, for once"], &mut |_, _| ()));
        assert_eq!((get().len(), bytes(&kept)), (30, counted(&kept)));
    }

    #[test]
    fn what_is_used_stays_when_much_else_comes() {
        let kept = Kept::new(1 << 20, 512);
        let used = |kept: &Kept| (1..200).filter(|n| kept.get(numbered(n * 4096), |_| true).is_some()).count();
        for n in 1..200 {
            kept.keep(numbered(n * 4096), |_| true, &[&[0; 1000]], &mut |_, _| ());
        }
        let before = used(&kept);
        for n in 0..20_000 {
            kept.keep(numbered((1 << 30) + n * 1024), |_| true, &[&[0; 1000]], &mut |_, _| ());
            if n % 100 == 0 {
                used(&kept);
            }
        }
        assert!(before > 190 && used(&kept) > 150, "{before}, then {}", used(&kept));
    }

    #[test]
    fn what_has_to_go_is_told_and_nothing_else() {
        let (kept, mut there, mut gone) = (Kept::new(1 << 16, 128), BTreeMap::new(), 0);
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let number = random.below(2_000);
            let mut told = Vec::new();
            kept.keep(mark(number), is(number), &[&piece(number, 1)], &mut |mark, piece| {
                told.push((mark, piece.to_vec()))
            });
            there.insert(number, ());
            for (of, bytes) in told {
                let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                assert!(of == mark(number) && there.remove(&number).is_some(), "{number} was there");
                assert!(kept.get(of, is(number)).is_none());
                gone += 1;
            }
        }
        assert!(gone > 10_000 && there.keys().all(|number| kept.get(mark(*number), is(*number)).is_some()));
    }

    #[test]
    fn what_was_asked_about_once_is_known_for_a_while() {
        let kept = Kept::new(1 << 20, 512);
        let marks = || (1..200_u64).map(|n| numbered(n * 4096));
        assert!(marks().filter(|mark| kept.was_seen(*mark)).count() < 5);
        assert!(marks().filter(|mark| kept.was_seen(*mark)).count() > 180);
    }

    #[test]
    fn threads_share_it() {
        let kept = Kept::new(1 << 18, 128);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let kept = &kept;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..20_000 {
                        let number = random.below(2_000);
                        match kept.get(mark(number), is(number)) {
                            Some(got) => assert_eq!(got, piece(number, 1)),
                            None => drop(kept.keep(mark(number), is(number), &[&piece(number, 1)], &mut |_, _| ())),
                        }
                    }
                });
            }
        });
        assert_eq!(bytes(&kept), counted(&kept));
    }
}
