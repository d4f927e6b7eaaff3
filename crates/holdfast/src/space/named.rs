//! Listeners by name: the store keeps where they stand, and the journal behind it up to a bound.
//!
//! Each is an object of a bucket of the store's own, so it is durable, in backups, and moved by compaction without a line for it
//! anywhere else. Key: the type's number, 4 bytes, the greater first, and the name. Value, as text: version `1`, the bookmark,
//! the bound in bytes, with spaces between.
//!
//! Compaction keeps the journal from the bookmark that is farthest behind and within its bound; behind its bound a listener holds
//! nothing, and is told so when it comes.
//!
//! May use: `notify`, exclusive access, transactions. Must not know: protocols.

use std::time::Duration;

use ::space::{Storage, TypeId};
use base::Time;
use journal::{Log, Position};
use kv::{Compression, FoldRange, Indexes, Metadata, Reading, Stored};

use super::entries::Entries;
use super::notify::Bookmark;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::{Exclusive, Scope};
use crate::staged::Change;
use crate::store::{Inner, lock};
use crate::transaction::Transaction;

/// Hidden from users, as all whose names begin so.
const BUCKET: &[u8] = b"\0listener";
/// Longest name of a listener, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Listeners of one type that are known by name: all are looked at now and then.
const NAMES_MAX: usize = 1000;
/// How much journal a listener holds unless it says otherwise.
const RETAIN_BYTES: u64 = 1 << 30;
/// How old what compaction knows of listeners may be. What they acknowledge meanwhile only lets more go.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(1);

/// The name under which a listener stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenName {
    /// 1 to 256 bytes; of one type each is of one listener.
    pub name: String,
    /// How many bytes of journal may come to lie behind its bookmark before they are not held for it any more; `None` is as it was
    /// before, and of a new one 1 GiB.
    pub retain_bytes: Option<u64>,
}

/// A listener that the store knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownListener {
    /// Its name.
    pub name: String,
    /// What it has acknowledged.
    pub bookmark: Bookmark,
    /// How many bytes of journal it may hold.
    pub retain_bytes: u64,
    /// How many were written since its bookmark, those of everybody.
    pub behind_bytes: u64,
    /// Whether what it has not acknowledged is held for it. If not it may be gone.
    pub is_held: bool,
}

/// What compaction knows of all of them.
#[derive(Default)]
pub(crate) struct Known {
    read_at: Option<Time>,
    held: Vec<(Position, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    bookmark: Bookmark,
    retain_bytes: u64,
}

fn key_of(of: TypeId, name: &str) -> Vec<u8> {
    [&of.0.to_be_bytes(), name.as_bytes()].concat()
}

fn encode(kept: Kept) -> String {
    format!("1 {} {}", kept.bookmark, kept.retain_bytes)
}

fn decode(value: &[u8]) -> Option<Kept> {
    let mut words = std::str::from_utf8(value).ok()?.split(' ');
    let ("1", bookmark, retain) = (words.next()?, words.next()?, words.next()?) else { return None };
    let kept = Kept { bookmark: bookmark.parse().ok()?, retain_bytes: retain.parse().ok()? };
    words.next().is_none().then_some(kept)
}

fn is_held(kept: Kept, newest: Position) -> bool {
    newest.get().saturating_sub(kept.bookmark.position().get()) <= kept.retain_bytes
}

impl Inner {
    /// All that were ever named, with their types.
    fn named(&self) -> Result<Vec<(TypeId, String, Kept)>> {
        let mut list = Vec::new();
        let all = FoldRange::all(Some(BUCKET)).bounds(Reading::Sweep);
        for partition in &self.partitions {
            let mut items = partition.reader.items(&all, 0);
            while let Some(item) = items.step()? {
                let wrong = || Error::new(ErrorKind::Corrupt, "what the store keeps of a listener does not decode");
                let (of, name) = item.key_in(BUCKET).split_first_chunk::<4>().ok_or_else(wrong)?;
                let name = String::from_utf8(name.to_vec()).map_err(|_| wrong())?;
                let kept = decode(partition.reader.value_of(&item)?.as_ref()).ok_or_else(wrong)?;
                list.push((TypeId(u32::from_be_bytes(*of)), name, kept));
            }
        }
        list.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        Ok(list)
    }

    /// From where the journal is kept for listeners by name.
    pub(crate) fn listeners_keep(&self) -> Position {
        let mut known = lock(&self.listeners_known);
        let now = self.clock.now();
        if known.read_at.is_none_or(|at| now.since(at) >= KNOWN_TIME_MAX) {
            // Whatever cannot be read may be a bookmark at the beginning.
            let Ok(named) = self.named() else { return Position::ZERO };
            let is_there = |of: &TypeId| self.spaces.get(*of).is_some();
            known.held = named
                .iter()
                .filter(|(of, ..)| is_there(of))
                .map(|(.., kept)| (kept.bookmark.position(), kept.retain_bytes))
                .collect();
            known.read_at = Some(now);
        }
        let newest = self.newest().get();
        let held = known.held.iter().filter(|(position, retain)| newest.saturating_sub(position.get()) <= *retain);
        held.map(|(position, _)| *position).min().unwrap_or(Position::MAX)
    }

    /// Has compaction look anew.
    fn forget_known(&self) {
        lock(&self.listeners_known).read_at = None;
    }

    /// Removes what is kept of a type's listeners.
    pub(crate) fn drop_listeners(&self, of: TypeId) -> Result<()> {
        for (_, name, _) in self.named()?.into_iter().filter(|(it, ..)| *it == of) {
            self.change_listener(of, &name, Change::Delete)?;
        }
        Ok(())
    }

    fn change_listener(&self, of: TypeId, name: &str, change: Change) -> Result<Position> {
        let key = key_of(of, name);
        let mut exclusive = Exclusive::open(self, &Scope::Keys(&[(BUCKET, &key)]))?;
        exclusive.stage(BUCKET, &key, change)?;
        let position = exclusive.commit()?.position;
        self.forget_known();
        Ok(position)
    }
}

fn put(kept: Kept) -> Change {
    let stored = Stored::new(encode(kept).as_bytes(), Compression::None);
    Change::Put { stored, metadata: Metadata::default(), indexes: Indexes::default(), expires_ms: 0 }
}

impl Entries {
    fn kept(&self, name: &str) -> Result<Option<Kept>> {
        let found = self.inner().named()?.into_iter().find(|(of, it, _)| *of == self.kind.of && it == name);
        Ok(found.map(|(.., kept)| kept))
    }

    fn known(&self, name: &str) -> Result<Kept> {
        self.check()?;
        self.kept(name)?.ok_or_else(|| {
            let text = format!("the type has no listener named {name}: listen by that name first");
            Error::new(ErrorKind::Invalid, text)
        })
    }

    /// Where a listener of this name begins: where it stood, where it is told to, or, if it is new, now. The store knows it from then on.
    pub(super) fn begin_as(&self, as_name: &ListenName, from: Option<Bookmark>) -> Result<Bookmark> {
        let name = as_name.name.as_str();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let text = format!("the name of a listener has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if self.definition().storage == Storage::Volatile {
            let text = "entries of a volatile type are in no journal: listen without a name";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let inner = self.inner();
        let old = self.kept(name)?;
        let now = inner.journal.watermarks().appended;
        let floor = inner.feed_floor();
        let bookmark = match from.or(old.map(|old| old.bookmark)) {
            None => Bookmark::before(now),
            // A place, not a word: what goes from the journal before it was acknowledged is missed, and said so.
            Some(Bookmark::START) => Bookmark::before(floor),
            Some(bookmark) => bookmark,
        };
        let retain_bytes = as_name.retain_bytes.or(old.map(|old| old.retain_bytes)).unwrap_or(RETAIN_BYTES);
        let kept = Kept { bookmark, retain_bytes };
        if bookmark.position() < floor && from.is_some() {
            let text =
                format!("the journal reaches back to {floor}, not to {bookmark}: listen from START, or without FROM");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if bookmark.position() < floor {
            let text = format!(
                "the listener {name} stands at {bookmark} and the journal reaches back to {floor}: more than its {} bytes were \
                 written since. Forget it, read what is there, and listen anew",
                old.map_or(retain_bytes, |old| old.retain_bytes)
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if bookmark.position() > now {
            let text = format!("the journal has positions up to {now}, not {}", bookmark.position());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if old.is_none() && inner.named()?.iter().filter(|(of, ..)| *of == self.kind.of).count() >= NAMES_MAX {
            let text = format!("the type has {NAMES_MAX} listeners by name already: forget one first");
            return Err(Error::new(ErrorKind::Limit, text));
        }
        if old != Some(kept) {
            let position = inner.change_listener(self.kind.of, name, put(kept))?;
            self.store.wait(position, self.store.durability())?;
        }
        Ok(bookmark)
    }

    /// Notes durably that a listener has done with all up to a bookmark: it goes on behind it, whoever it is then, and the journal
    /// before it may go. A bookmark before what was acknowledged already changes nothing.
    ///
    /// # Errors
    /// `Invalid` when there is no listener of that name, or no such bookmark yet; as [`Exclusive::commit`].
    pub fn acknowledge(&self, name: &str, bookmark: Bookmark, durability: Option<Durability>) -> Result<()> {
        if self.acknowledged(name, bookmark)?.is_none() {
            return Ok(());
        }
        // Once more where nobody else can change it: another connection may have acknowledged more, or forgotten the name.
        let (inner, key) = (self.inner(), key_of(self.kind.of, name));
        let mut exclusive = Exclusive::open(inner, &Scope::Keys(&[(BUCKET, &key)]))?;
        let found = exclusive.holds(BUCKET, &key)?.reader.get(BUCKET, &key, 0)?.value;
        let kept = found.and_then(|object| decode(&object.value)).filter(|kept| bookmark > kept.bookmark);
        let Some(kept) = kept else { return Ok(()) };
        exclusive.stage(BUCKET, &key, put(Kept { bookmark, ..kept }))?;
        let position = exclusive.commit()?.position;
        inner.forget_known();
        self.settle_change(position, durability)
    }

    /// The same as part of a transaction: what was done about events and that they are done with is one batch, so that each is
    /// done with exactly once. Of two transactions that acknowledge for one listener at the same time the second to commit fails.
    ///
    /// # Errors
    /// As [`Entries::acknowledge`].
    pub fn acknowledge_within(&self, transaction: &mut Transaction, name: &str, bookmark: Bookmark) -> Result<()> {
        let key = key_of(self.kind.of, name);
        transaction.watch_own(BUCKET, &key)?;
        if let Some(kept) = self.acknowledged(name, bookmark)? {
            transaction.stage_own(BUCKET, &key, put(kept));
        }
        Ok(())
    }

    fn acknowledged(&self, name: &str, bookmark: Bookmark) -> Result<Option<Kept>> {
        let kept = self.known(name)?;
        let now = self.inner().journal.watermarks().appended;
        if bookmark.position() > now {
            let text = format!("the journal has positions up to {now}, not {}", bookmark.position());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok((bookmark > kept.bookmark).then_some(Kept { bookmark, ..kept }))
    }

    /// The listeners of the type that the store knows by name, in order.
    ///
    /// # Errors
    /// `Corrupt` when one is damaged, `Closed`.
    pub fn known_listeners(&self) -> Result<Vec<KnownListener>> {
        self.check()?;
        let newest = self.inner().newest();
        let of_type = self.inner().named()?.into_iter().filter(|(of, ..)| *of == self.kind.of);
        Ok(of_type
            .map(|(_, name, kept)| KnownListener {
                name,
                bookmark: kept.bookmark,
                retain_bytes: kept.retain_bytes,
                behind_bytes: newest.get().saturating_sub(kept.bookmark.position().get()),
                is_held: is_held(kept, newest),
            })
            .collect())
    }

    /// Forgets a listener by name, and lets go of what is held for it. False if there is none.
    ///
    /// # Errors
    /// As [`Exclusive::commit`].
    pub fn forget_listener(&self, name: &str) -> Result<bool> {
        self.check()?;
        if self.kept(name)?.is_none() {
            return Ok(false);
        }
        let position = self.inner().change_listener(self.kind.of, name, Change::Delete)?;
        self.settle_change(position, None)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back_and_nothing_else_does() {
        let kept = Kept { bookmark: "4096.2".parse().unwrap(), retain_bytes: 7 };
        assert_eq!(encode(kept), "1 4096.2 7");
        assert_eq!(decode(encode(kept).as_bytes()), Some(kept));
        for odd in ["", "1", "1 4096.2", "2 4096.2 7", "1 4096 7", "1 4096.2 x", "1 4096.2 7 8"] {
            assert_eq!(decode(odd.as_bytes()), None, "{odd}");
        }
    }
}
