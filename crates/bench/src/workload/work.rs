//! What one caller does: chooses, makes, calls, checks, notes.
//!
//! Choosing a key, making a value and checking what was read are not part of an operation's latency.
//!
//! May use: this folder. Must not know: which store it is.

use std::time::Instant;

use super::clock::Clock;
use super::driver::{Fold, Session};
use super::gather::Reporter;
use super::keys::{Chooser, Scattered, Spread, absent, number_of, present};
use super::live::Live;
use super::made::{Maker, Stock};
use super::plan::{Plan, Workload};
use super::tally::{Done, Kind};
use super::terms::{TermRange, Terms};
use super::{Failure, Result};

/// Of so many values that are read one is compared byte by byte; of the others only the stamp.
const COMPARED_WHOLLY: u64 = 16;
/// Entries that `index-range` asks for.
const RANGE_ENTRIES: u64 = 1_000;

/// What all callers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stock: &'a Stock,
    pub(super) live: &'a Live,
}

/// One caller at work.
pub(super) struct Caller<'a> {
    shared: Shared<'a>,
    session: Box<dyn Session + Send + 'a>,
    clock: Clock<'a>,
    reporter: Reporter<'a>,
    chooser: Chooser,
    maker: Maker<'a>,
    terms: Terms,
    reads: u64,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Get(u64),
    GetAbsent(u64),
    Head(u64),
    Put(u64),
    PutIndexed(u64),
    Range(Kind, TermRange),
    Fold(Fold),
}

impl<'a> Caller<'a> {
    /// A caller of its own seed.
    pub(super) fn new(
        shared: Shared<'a>,
        workload: Workload,
        seed: u64,
        session: Box<dyn Session + Send + 'a>,
        clock: Clock<'a>,
        reporter: Reporter<'a>,
    ) -> Self {
        let plan = shared.plan;
        Self {
            shared,
            session,
            clock,
            reporter,
            chooser: Chooser::new(plan.spread(workload), plan.objects, seed),
            maker: Maker::new(shared.stock, !seed),
            terms: Terms::new(seed.rotate_left(32)),
            reads: 0,
        }
    }

    /// Puts the objects `from` to `to` of the order of loading.
    pub(super) fn load(&mut self, from: u64, to: u64) -> Result<()> {
        let plan = self.shared.plan;
        let order = (plan.keys != Some(Spread::Sequential)).then(|| Scattered::new(plan.objects));
        for index in from..to {
            let number = order.map_or(index, |order| order.at(index));
            let action = if plan.indexed_load() { Action::PutIndexed(number) } else { Action::Put(number) };
            if !self.act(&action)? {
                break;
            }
        }
        Ok(())
    }

    /// Does the workload until the clock says that it is over; returns the operations that could not begin in time.
    pub(super) fn repeat(&mut self, workload: Workload) -> Result<u64> {
        loop {
            let action = self.choose(workload);
            if !self.act(&action)? {
                return Ok(self.clock.not_begun());
            }
        }
    }

    fn choose(&mut self, workload: Workload) -> Action {
        let number = self.chooser.next();
        match workload {
            Workload::Get => Action::Get(number),
            Workload::GetAbsent => Action::GetAbsent(number),
            Workload::Head => Action::Head(number),
            Workload::Load | Workload::Update | Workload::Compact => Action::Put(number),
            Workload::Mix5 | Workload::Aae => match mix5(self.chooser.below(6)) {
                Kind::Put => Action::Put(number),
                _ => Action::Get(number),
            },
            Workload::Index => match index_mix(self.chooser.below(122)) {
                Kind::Put => Action::Put(number),
                Kind::PutIndexed => Action::PutIndexed(number),
                Kind::RangeBirths => Action::Range(Kind::RangeBirths, self.terms.births()),
                Kind::RangePostcodes => Action::Range(Kind::RangePostcodes, self.terms.postcodes()),
                _ => Action::Get(number),
            },
            Workload::FoldHeads => Action::Fold(Fold::Heads),
            Workload::FoldObjects => Action::Fold(Fold::Objects),
            Workload::IndexRange => {
                Action::Range(Kind::Range, self.terms.births_of(RANGE_ENTRIES, self.shared.plan.objects))
            }
        }
    }

    /// Does one operation; false when the clock says that no more may begin.
    fn act(&mut self, action: &Action) -> Result<bool> {
        match action {
            Action::Put(number) => self.put(*number, Kind::Put),
            Action::PutIndexed(number) => self.put(*number, Kind::PutIndexed),
            Action::Get(number) => self.get(*number, present(*number), true),
            Action::GetAbsent(number) => self.get(*number, absent(*number), false),
            Action::Head(number) => self.head(*number),
            Action::Range(kind, range) => self.range(*kind, range),
            Action::Fold(what) => self.fold(*what),
        }
    }

    fn note(&mut self, kind: Kind, begin: Instant, found: bool, items: u64) -> Result<()> {
        self.note_at(kind, begin, Instant::now(), found, items)
    }

    fn note_at(&mut self, kind: Kind, begin: Instant, end: Instant, found: bool, items: u64) -> Result<()> {
        let nanos = u64::try_from(end.saturating_duration_since(begin).as_nanos()).unwrap_or(u64::MAX);
        self.reporter.note(Done { kind, nanos, found, items }, end)
    }

    fn put(&mut self, number: u64, kind: Kind) -> Result<bool> {
        let entries = match kind {
            Kind::PutIndexed => self.terms.entries(usize::from(self.shared.plan.index_entries)),
            _ => Vec::new(),
        };
        let bytes = self.maker.next(number).len();
        let key = present(number);
        let Some(begin) = self.clock.begin() else { return Ok(false) };
        if kind == Kind::PutIndexed {
            self.session.put_indexed(&key, self.maker.value(), &entries)?;
        } else {
            self.session.put(&key, self.maker.value())?;
        }
        self.note(kind, begin, true, 0)?;
        self.shared.live.put(number, bytes);
        Ok(true)
    }

    fn get(&mut self, number: u64, key: [u8; 16], is_loaded: bool) -> Result<bool> {
        let Some(begin) = self.clock.begin() else { return Ok(false) };
        self.reads += 1;
        let wholly = self.reads.is_multiple_of(COMPARED_WHOLLY);
        let (mut right, mut end) = (true, None);
        let stock = self.shared.stock;
        let found = self.session.get(&key, &mut |value| {
            end = Some(Instant::now());
            right = stock.made(number, value, wholly);
        })?;
        self.note_at(Kind::Get, begin, end.unwrap_or_else(Instant::now), found, 0)?;
        if !right {
            return Err(format!("object {} has a value that was never put there", String::from_utf8_lossy(&key)).into());
        }
        self.check_found(number, &key, is_loaded, found)
    }

    fn head(&mut self, number: u64) -> Result<bool> {
        let key = present(number);
        let Some(begin) = self.clock.begin() else { return Ok(false) };
        let found = self.session.head(&key)?;
        self.note(Kind::Head, begin, found, 0)?;
        self.check_found(number, &key, true, found)
    }

    /// Something found that was never put, or not found although its put was acknowledged, ends the run.
    fn check_found(&mut self, number: u64, key: &[u8], is_loaded: bool, found: bool) -> Result<bool> {
        let wrong = |what: &str| Err(Failure::from(format!("object {} {what}", String::from_utf8_lossy(key))));
        if found && !is_loaded {
            return wrong("is there and was never put");
        }
        // The put may have been acknowledged since; looking again tells.
        if !found && is_loaded && self.shared.live.holds(number) && !self.session.head(key)? {
            return wrong("was acknowledged and is not there");
        }
        Ok(true)
    }

    fn range(&mut self, kind: Kind, range: &TermRange) -> Result<bool> {
        let Some(begin) = self.clock.begin() else { return Ok(false) };
        let (mut entries, mut right) = (0, true);
        let mut last = Vec::new();
        self.session.index_range(range, &mut |term, key| {
            entries += 1;
            right &= range.admits(term) && last.as_slice() <= term && number_of(key).is_some();
            last.clear();
            last.extend_from_slice(term);
        })?;
        self.note(kind, begin, entries > 0, entries)?;
        if !right {
            return Err("a range of an index has entries that do not belong there, or in no order".into());
        }
        Ok(true)
    }

    fn fold(&mut self, what: Fold) -> Result<bool> {
        let Some(begin) = self.clock.begin() else { return Ok(false) };
        let (mut objects, mut right) = (0_u64, true);
        let stock = self.shared.stock;
        self.session.fold(what, &mut |key, value| {
            objects += 1;
            let number = number_of(key);
            right &= number.is_some() && value.is_some() == (what == Fold::Objects);
            if let Some((number, value)) = number.zip(value) {
                right &= stock.made(number, value, objects.is_multiple_of(COMPARED_WHOLLY));
            }
        })?;
        self.note(Kind::Fold, begin, true, objects)?;
        let live = self.shared.live.sums().objects;
        if objects != live || !right {
            return Err(format!("a fold over {live} objects showed {objects}, or wrong ones").into());
        }
        Ok(true)
    }
}

/// Five gets for each put.
fn mix5(random: u64) -> Kind {
    if random == 0 { Kind::Put } else { Kind::Get }
}

/// 100 gets, 10 puts, 10 puts with index entries, one range of each kind.
fn index_mix(random: u64) -> Kind {
    match random {
        0..100 => Kind::Get,
        100..110 => Kind::Put,
        110..120 => Kind::PutIndexed,
        120 => Kind::RangeBirths,
        _ => Kind::RangePostcodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixes_are_those_of_the_volume_tests() {
        let count = |of: u64, mix: fn(u64) -> Kind, kind| (0..of).filter(|n| mix(*n) == kind).count();
        assert_eq!((count(6, mix5, Kind::Get), count(6, mix5, Kind::Put)), (5, 1));
        for (kind, share) in [
            (Kind::Get, 100),
            (Kind::Put, 10),
            (Kind::PutIndexed, 10),
            (Kind::RangeBirths, 1),
            (Kind::RangePostcodes, 1),
        ] {
            assert_eq!(count(122, index_mix, kind), share, "{kind:?}");
        }
    }
}
