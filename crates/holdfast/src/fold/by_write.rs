//! Folds in the order of writing: the journal is read forwards, and each put is shown if the ledger says that it is what the
//! object is.
//!
//! To ask the ledger about each put is a search for each, far apart from that before: measured, several times what reading
//! its value costs. So a fold that goes on gets from the ledger, which is gone through in its own order, the addresses of what is
//! shown; of more than fit into memory the first, again and again. What is not among them was overwritten, and is passed over
//! without a look. Only about the first puts the ledger is asked: who wants a page must not pay for going through everything. And
//! about all of them when the ledger would be gone through so often that this costs more.
//!
//! May use: snapshots, `kv`, the journal. Must not know: protocols.

use std::iter::Peekable;
use std::slice;

use journal::{Log, Position, Visit};
use kv::{Brief, Command, Commands, Looked, Reader, Reading, Said};

use super::{FoldCursor, Going, Place, other_order};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;

/// To look a put up costs as much as going through so many objects, or more.
const PASSED_FOR_A_LOOK: u64 = 32;
/// So many times the objects of a page are known of at once at the most, each by 40 bytes.
const PAGES: usize = 10;

/// What is known of the puts in the journal.
enum Known<'a> {
    /// Nothing; the ledger may be asked about so many.
    Nothing(u64),
    /// Which are shown.
    Shown(Shown<'a>),
}

/// What is shown, by ascending address, and none but these up to the last of them.
struct Shown<'a> {
    briefs: Peekable<slice::Iter<'a, Brief>>,
    /// Behind the last of them too there is nothing that is shown.
    are_all: bool,
}

/// How going through the journal ended, and at which address.
#[derive(Debug)]
enum Ended {
    /// At the end of what the snapshot shows.
    All,
    /// The fold was over, and there is more behind the address.
    Cut(Option<u64>),
    /// Nothing is known of what lies behind the address.
    Unknown(u64),
}

impl Known<'_> {
    /// How going through the journal ends just before `at` for want of knowledge, or of objects. Asked by ascending address.
    fn end(&mut self, at: u64) -> Option<Ended> {
        match self {
            Self::Nothing(left) => (*left == 0).then_some(Ended::Unknown(at - 1)),
            Self::Shown(shown) => {
                // What is passed over here lies in damage.
                while shown.briefs.next_if(|brief| brief.at < at).is_some() {}
                let end = if shown.are_all { Ended::All } else { Ended::Unknown(at - 1) };
                shown.briefs.peek().is_none().then_some(end)
            }
        }
    }

    /// The object that a put made, if it may be shown. Asked by ascending address, each time behind [`Known::end`].
    fn object(&mut self, reader: &Reader, position: Position, said: &Said<'_>) -> Result<Option<Looked>> {
        let Command::Put(put) = &said.recorded.command else { return Ok(None) };
        match self {
            Self::Nothing(left) => *left = left.saturating_sub(1),
            Self::Shown(Shown { briefs, .. }) => {
                let Some(brief) = briefs.next_if(|brief| brief.at == said.at) else { return Ok(None) };
                let version = said.recorded.version.unwrap_or(position);
                // Else its expiry was changed since, and only the ledger says how.
                if (version, put.modified_ms, put.expires_ms) == (brief.version, brief.modified_ms, brief.expires_ms) {
                    return Ok(Some(Looked::of_put(put, version, said.at, said.command_bytes())));
                }
            }
        }
        Ok(reader.look_up(put.bucket, put.key)?)
    }
}

/// How many puts are looked up before the ledger is gone through, and of how many objects is known then, for a fold that comes
/// to `most` of so many objects.
fn looks_and_known(objects: u64, most: usize, page: usize) -> (u64, usize) {
    let page = page.max(1);
    // One more than it comes to says whether there is more.
    let max = most.saturating_add(1).clamp(page, page.saturating_mul(PAGES));
    let times = objects.min(most as u64).div_ceil(max as u64);
    // To go through the ledger once more costs as much as looking these up.
    let looks = objects / PASSED_FOR_A_LOOK + 1;
    (if times > PASSED_FOR_A_LOOK { u64::MAX } else { looks }, max)
}

impl Snapshot {
    pub(super) fn fold_by_write(&self, going: &mut Going<'_, '_>) -> Result<Option<u64>> {
        let after = match going.fold.after {
            None => None,
            Some(FoldCursor(Place::Address(at))) => Some(*at),
            Some(_) => return Err(other_order()),
        };
        let inner = self.inner();
        let objects: u64 = inner.partitions.iter().map(|partition| partition.lock().objects()).sum();
        let (looks, max) = looks_and_known(objects, going.most(), inner.options.limits.page_entries_max);
        let mut ended = self.fold_puts(going, after, Known::Nothing(looks))?;
        loop {
            let reached = match ended {
                Ended::All => return Ok(None),
                Ended::Cut(last) => return Ok(last),
                Ended::Unknown(reached) => Some(reached),
            };
            let shown = self.shown_behind(going, reached, (max, objects))?;
            let Some(first) = shown.first() else { return Ok(None) };
            if going.is_over() {
                return Ok(reached);
            }
            let from = Some(first.at - 1);
            let known = Shown { briefs: shown.iter().peekable(), are_all: shown.len() < max };
            ended = self.fold_puts(going, from, Known::Shown(known))?;
        }
    }

    /// What is shown of what lies behind an address, by ascending address: the first so many at the most, of about so many that
    /// there are.
    fn shown_behind(
        &self,
        going: &Going<'_, '_>,
        after: Option<u64>,
        (max, objects): (usize, u64),
    ) -> Result<Vec<Brief>> {
        let bounds = going.range(None).bounds(Reading::Sweep);
        let most = max.saturating_add(max / 2);
        let usual = usize::try_from(objects).unwrap_or(most).min(most);
        // A list that grows is there twice while it does, and what it leaves behind is not given back.
        let mut shown: Vec<Brief> = Vec::with_capacity(if going.fold.bucket.is_some() { 0 } else { usual });
        let keep_first = |shown: &mut Vec<Brief>| {
            if shown.len() > max {
                shown.select_nth_unstable_by_key(max, |brief| brief.at);
                shown.truncate(max);
            }
        };
        for reader in &self.readers {
            let mut items = reader.items(&bounds, self.now_ms());
            while let Some(item) = items.step()? {
                let brief = item.brief();
                if after.is_none_or(|after| brief.at > after) {
                    shown.push(brief);
                }
                if shown.len() >= most {
                    keep_first(&mut shown);
                }
            }
        }
        keep_first(&mut shown);
        shown.sort_unstable_by_key(|brief| brief.at);
        Ok(shown)
    }

    /// Visits what was put behind an address and is shown, as far as it is `known`.
    fn fold_puts(&self, going: &mut Going<'_, '_>, after: Option<u64>, mut known: Known<'_>) -> Result<Ended> {
        let (mut last, mut ended, mut failed) = (after, None, None);
        let journal = &self.inner().journal;
        // A batch's address is above its position, so the batch of the last address is read again.
        let from = journal.segment_base(after.unwrap_or(0));
        let read = journal.read_from(from, &mut |found| {
            let Visit::Record(record) = found else { return Ok(()) };
            if record.position > self.position() {
                return Err(journal::Error::Closed);
            }
            ended = known.end(record.position.get());
            if ended.is_some() {
                return Err(journal::Error::Closed);
            }
            for section in &record.sections {
                let Some(reader) = self.readers.get(section.partition.index()) else { continue };
                let outcome = Commands::new(section.commands, section.at).try_for_each(|said| -> Result<()> {
                    let said = said?;
                    let Command::Put(put) = &said.recorded.command else { return Ok(()) };
                    if after.is_some_and(|after| said.at <= after) {
                        return Ok(());
                    }
                    // The last that is known of may lie in the middle of a batch.
                    ended = known.end(said.at);
                    if ended.is_some() {
                        return Err(stop());
                    }
                    if !going.is_within(put) {
                        return Ok(());
                    }
                    let Some(looked) = known.object(reader, record.position, &said)? else { return Ok(()) };
                    let item = looked.item()?;
                    if item.brief().at != said.at || item.is_expired(self.now_ms()) {
                        return Ok(());
                    }
                    if going.is_over() {
                        ended = Some(Ended::Cut(last));
                        return Err(stop());
                    }
                    going.visit(&item, reader, Some(put))?;
                    last = Some(said.at);
                    Ok(())
                });
                if let Err(error) = outcome {
                    failed = Some(error);
                    return Err(journal::Error::Closed);
                }
            }
            Ok(())
        });
        match (ended, failed, read) {
            (Some(ended), ..) => Ok(ended),
            (None, Some(error), _) => Err(error),
            (None, None, Err(journal::Error::Closed) | Ok(())) => Ok(Ended::All),
            (None, None, Err(error)) => Err(error.into()),
        }
    }
}

/// Ends the reading of the journal from within.
fn stop() -> Error {
    Error::new(ErrorKind::Closed, "the fold is over")
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Condition, Durability, Fold, FoldOrder, Limits, Options, PutOptions, Store};

    #[test]
    fn the_ledger_is_gone_through_as_long_as_that_costs_less_than_looking_up() {
        const PAGE: usize = 100_000;
        const KNOWN: usize = PAGE * PAGES;
        for (objects, most, looks, known) in [
            (0, usize::MAX, 1, KNOWN),
            (1_000_000, usize::MAX, 31_251, KNOWN),
            (32_000_000, usize::MAX, 1_000_001, KNOWN),
            (32_000_001, usize::MAX, u64::MAX, KNOWN),
            (10_000_000_000, usize::MAX, u64::MAX, KNOWN),
            // Pages: once is enough, and few are held.
            (10_000_000_000, 1_000, 312_500_001, PAGE),
            (10_000_000_000, 500_000, 312_500_001, 500_001),
            (10_000_000_000, 32_000_000, 312_500_001, KNOWN),
            (10_000_000_000, 32_000_001, u64::MAX, KNOWN),
        ] {
            assert_eq!(looks_and_known(objects, most, PAGE), (looks, known), "{most} of {objects}");
        }
        assert_eq!(looks_and_known(33, usize::MAX, 0), (2, 10), "however small a page is");
    }

    #[test]
    fn who_knows_of_all_that_is_shown_looks_for_nothing_behind_the_last() {
        const OBJECTS: usize = 300;
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Written, limits: Limits::tiny(), ..Options::default() };
        let store = Store::open(dir.path(), options).unwrap();
        for number in 0..OBJECTS + 50 {
            store.kv().put(b"bucket", &number.to_be_bytes(), b"value", &PutOptions::default()).unwrap();
        }
        // Behind the last that is shown there are puts of others.
        for number in OBJECTS..OBJECTS + 50 {
            store.kv().delete(b"bucket", &number.to_be_bytes(), Condition::None).unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        for (max, are_all) in [(OBJECTS + 1, true), (OBJECTS, false), (100, false)] {
            let (mut visited, mut last) = (0, 0);
            let mut visit = |folded: &crate::Folded<'_>| {
                (visited, last) = (visited + 1, folded.item.brief().at);
                Ok(ControlFlow::Continue(()))
            };
            let fold = Fold { order: FoldOrder::Write, ..Fold::default() };
            let mut going = Going::new(&fold, &mut visit);
            let shown = snapshot.shown_behind(&going, None, (max, 0)).unwrap();
            assert_eq!(shown.len(), max.min(OBJECTS));
            let known = Shown { briefs: shown.iter().peekable(), are_all: shown.len() < max };
            let ended = snapshot.fold_puts(&mut going, None, Known::Shown(known)).unwrap();
            let rest = |reached| snapshot.shown_behind(&going, Some(reached), (OBJECTS, OBJECTS as u64)).unwrap().len();
            let (found, is_behind_last) = match ended {
                Ended::All => (max.min(OBJECTS), are_all),
                Ended::Unknown(reached) => (OBJECTS - rest(reached), !are_all),
                Ended::Cut(_) => panic!("nothing ended it"),
            };
            assert!(is_behind_last, "{max}");
            assert_eq!((visited, found), (max.min(OBJECTS), max.min(OBJECTS)));
        }
    }
}
