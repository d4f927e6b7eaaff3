//! What callers measured, by kind of operation.
//!
//! May use: `recorder.rs`, `outcome.rs`. Must not know: stores, who measured.

use super::Result;
use super::outcome::KindOutcome;
use super::recorder::Recorder;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Get,
    Head,
    Put,
    PutIndexed,
    RangeBirths,
    RangePostcodes,
    Range,
    Fold,
    Rebuild,
    Reclaim,
    Settle,
    Compact,
}

/// One operation, done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) kind: Kind,
    /// From when it began, or should have begun.
    pub(crate) nanos: u64,
    pub(crate) found: bool,
    pub(crate) items: u64,
}

/// Sums and latencies of each kind that occurred.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<Counted>);

#[derive(Debug)]
struct Counted {
    kind: Kind,
    found: u64,
    items: u64,
    recorder: Recorder,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::PutIndexed => "put-indexed",
            Self::RangeBirths => "range-births",
            Self::RangePostcodes => "range-postcodes",
            Self::Range => "range",
            Self::Fold => "fold",
            Self::Rebuild => "rebuild",
            Self::Reclaim => "reclaim",
            Self::Settle => "settle",
            Self::Compact => "compact",
        }
    }
}

impl Tally {
    fn of(&mut self, kind: Kind) -> Result<&mut Counted> {
        let at = match self.0.iter().position(|counted| counted.kind == kind) {
            Some(at) => at,
            None => {
                self.0.push(Counted { kind, found: 0, items: 0, recorder: Recorder::new()? });
                self.0.len() - 1
            }
        };
        Ok(self.0.get_mut(at).expect("it was just found or pushed"))
    }

    /// Adds one operation.
    pub(crate) fn add(&mut self, done: Done) -> Result<()> {
        let counted = self.of(done.kind)?;
        counted.recorder.add(done.nanos);
        counted.found += u64::from(done.found);
        counted.items += done.items;
        Ok(())
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        for from in &other.0 {
            let to = self.of(from.kind)?;
            to.recorder.merge(&from.recorder)?;
            to.found += from.found;
            to.items += from.items;
        }
        Ok(())
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it says, in the order of kinds.
    pub(crate) fn outcomes(&self) -> Vec<KindOutcome> {
        let mut counted: Vec<&Counted> = self.0.iter().collect();
        counted.sort_by_key(|counted| counted.kind);
        let outcome = |counted: &Counted| KindOutcome {
            kind: counted.kind.name().to_owned(),
            operations: counted.recorder.count(),
            found: counted.found,
            items: counted.items,
            latency: counted.recorder.latency(),
        };
        counted.into_iter().map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_two_callers_are_those_of_one() {
        let (mut both, mut one) = (Tally::default(), Tally::default());
        let done = |kind, nanos, found| Done { kind, nanos, found, items: nanos };
        assert!(one.is_empty());
        for (kind, nanos, found) in [(Kind::Put, 9, true), (Kind::Get, 5, false), (Kind::Get, 7, true)] {
            one.add(done(kind, nanos, found)).unwrap();
            let mut other = Tally::default();
            other.add(done(kind, nanos, found)).unwrap();
            both.merge(&other).unwrap();
        }
        assert_eq!(both.outcomes(), one.outcomes());
        let [get, put] = one.outcomes().try_into().unwrap();
        assert_eq!((get.kind.as_str(), get.operations, get.found, get.items, get.latency.max_ns), ("get", 2, 1, 12, 7));
        assert_eq!((put.kind.as_str(), put.operations, put.found), ("put", 1, 1));
    }
}
