//! Folds in the order of writing: the journal is read forwards, and each put is shown if the ledger says that it is what the
//! object is.
//!
//! To ask the ledger about each put is a search for each, far apart from that before: measured, several times what reading
//! its value costs. So a fold that goes on gets from the ledger, which is gone through in its own order, the addresses of what is
//! shown; of more than fit into memory the first, again and again. What is not among them was overwritten, and is passed over
//! without a look. Only about the first puts the ledger is asked: who wants a page must not pay for going through everything.
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
/// So many times the objects of a page are known of at once, each by 40 bytes.
const PAGES: usize = 10;

/// What is known of the puts in the journal.
enum Known<'a> {
    /// Nothing; the ledger may be asked about so many.
    Nothing(u64),
    /// Which are shown, by ascending address, and none but these.
    Shown(Peekable<slice::Iter<'a, Brief>>),
}

/// How going through the journal ended, and at which address.
enum Ended {
    /// At the end of what the snapshot shows.
    All,
    /// The fold was over, and there is more behind the address.
    Cut(Option<u64>),
    /// Nothing is known of what lies behind the address.
    Unknown(Option<u64>),
}

impl Known<'_> {
    /// Whether nothing is known of what comes.
    fn is_over(&mut self) -> bool {
        match self {
            Self::Nothing(left) => *left == 0,
            Self::Shown(shown) => shown.peek().is_none(),
        }
    }

    /// The object that a put made, if it may be shown. Asked by ascending address.
    fn object(&mut self, reader: &Reader, position: Position, said: &Said<'_>) -> Result<Option<Looked>> {
        let Command::Put(put) = &said.recorded.command else { return Ok(None) };
        match self {
            Self::Nothing(left) => *left = left.saturating_sub(1),
            Self::Shown(shown) => {
                // What is passed over here lies in damage.
                while shown.next_if(|brief| brief.at < said.at).is_some() {}
                let Some(brief) = shown.next_if(|brief| brief.at == said.at) else { return Ok(None) };
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

impl Snapshot {
    pub(super) fn fold_by_write(&self, going: &mut Going<'_, '_>) -> Result<Option<u64>> {
        let after = match going.fold.after {
            None => None,
            Some(FoldCursor(Place::Address(at))) => Some(*at),
            Some(_) => return Err(other_order()),
        };
        let inner = self.inner();
        let objects: u64 = inner.partitions.iter().map(|partition| partition.lock().objects()).sum();
        let max = inner.options.limits.page_entries_max.saturating_mul(PAGES).max(1);
        let mut ended = self.fold_puts(going, after, Known::Nothing(1 + objects / PASSED_FOR_A_LOOK))?;
        loop {
            let reached = match ended {
                Ended::All => return Ok(None),
                Ended::Cut(last) => return Ok(last),
                Ended::Unknown(reached) => reached,
            };
            let shown = self.shown_behind(going, reached, max)?;
            let Some(first) = shown.first() else { return Ok(None) };
            if going.is_over() {
                return Ok(reached);
            }
            ended = self.fold_puts(going, Some(first.at - 1), Known::Shown(shown.iter().peekable()))?;
        }
    }

    /// What is shown of what lies behind an address, by ascending address: the first so many at the most.
    fn shown_behind(&self, going: &Going<'_, '_>, after: Option<u64>, max: usize) -> Result<Vec<Brief>> {
        let bounds = going.range(None).bounds(Reading::Sweep);
        let mut shown: Vec<Brief> = Vec::new();
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
                if shown.len() >= max.saturating_add(max / 2) {
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
        let (mut last, mut reached, mut failed) = (after, after, None);
        let (mut is_cut, mut is_unknown) = (false, false);
        let journal = &self.inner().journal;
        // A batch's address is above its position, so the batch of the last address is read again.
        let from = journal.segment_base(after.unwrap_or(0));
        let read = journal.read_from(from, &mut |found| {
            let Visit::Record(record) = found else { return Ok(()) };
            if record.position > self.position() {
                return Err(journal::Error::Closed);
            }
            if known.is_over() {
                is_unknown = true;
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
                    reached = Some(said.at);
                    let Some(looked) = known.object(reader, record.position, &said)? else { return Ok(()) };
                    let item = looked.item()?;
                    if item.brief().at != said.at || item.is_expired(self.now_ms()) {
                        return Ok(());
                    }
                    if going.is_over() {
                        is_cut = true;
                        return Err(stop());
                    }
                    going.visit_within(item, reader, put)?;
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
        match (failed, read) {
            (Some(_), _) if is_cut => Ok(Ended::Cut(last)),
            (Some(error), _) => Err(error),
            (None, Err(journal::Error::Closed)) if is_unknown => Ok(Ended::Unknown(reached)),
            (None, Err(journal::Error::Closed) | Ok(())) => Ok(Ended::All),
            (None, Err(error)) => Err(error.into()),
        }
    }
}

/// Ends the reading of the journal from within.
fn stop() -> Error {
    Error::new(ErrorKind::Closed, "the fold is over")
}
