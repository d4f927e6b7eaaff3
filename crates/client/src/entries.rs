//! The entries of one type, in the process or on a server.
//!
//! Each operation is written here once for both: what it asks of a store, and what words it is on the wire.
//!
//! May use: `call`, `embedded`, `remote`, `words`, `read`. Must not know: sockets.

mod here;
mod many;
mod reduce;

use std::sync::Arc;
use std::time::Duration;

use holdfast::space::{
    self, Cancel, Change, Changed, Definition, Document, Entry, Lease, ReadOptions, Storage, Taking, Value, Wanted,
    WriteOptions, Written,
};
use holdfast::{Durability, Error, ErrorKind, Result, Shown};

use crate::call::Call;
use crate::embedded::Embedded;
use crate::read;
use crate::remote::{Again, Remote, Words};

pub use many::Iteration;
pub(crate) use many::iteration_lease_ms;

/// The entries of one type. See [`holdfast::space::Entries`], whose operations these are.
#[derive(Clone)]
pub struct Entries {
    pub(crate) at: At,
}

/// Where they are.
#[derive(Clone)]
pub(crate) enum At {
    Here(Embedded, space::Entries),
    There(Remote, Arc<Definition>),
}

/// What a write without a mode of its own does twice with the same outcome is still not done twice: somebody else may have
/// come between.
const WRITES: Again = Again::MustNot;

impl Entries {
    pub(crate) fn here(of: Embedded, entries: space::Entries) -> Self {
        Self { at: At::Here(of, entries) }
    }

    pub(crate) fn there(of: Remote, definition: Arc<Definition>) -> Self {
        Self { at: At::There(of, definition) }
    }

    /// What the type is; on a server, what it was when this was made.
    #[must_use]
    pub fn definition(&self) -> Arc<Definition> {
        match &self.at {
            At::Here(_, entries) => entries.definition(),
            At::There(_, definition) => Arc::clone(definition),
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.definition().storage == Storage::Durable
    }

    /// A command about this type.
    pub(crate) fn words(&self, command: &str) -> Words {
        let definition = self.definition();
        Words::new(command).and(&definition.space).and(&definition.name)
    }

    /// Writes an entry: [`holdfast::space::Entries::write`]. A server waits 5 s at the most for the transaction that has locked the entry,
    /// whatever `lock_timeout` says.
    ///
    /// # Errors
    /// As there; `Limit` also for a document that is longer than the client sends.
    pub fn write(&self, document: &Document, options: &WriteOptions) -> Call<Written> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, document, options) = (entries.clone(), document.clone(), options.clone());
                let durability = self.durable(options.durability);
                here.locking(durability, options.lock_timeout, move |lock_timeout| {
                    let options = WriteOptions { lock_timeout, ..options.clone() };
                    let written = entries.write_shown(&document, &options)?;
                    Ok(Shown { position: written.version, value: written })
                })
            }
            At::There(there, _) => match self.write_words(document, options) {
                Ok(words) => there.call(&words, WRITES, read::written),
                Err(error) => Call::done(Err(error)),
            },
        }
    }

    pub(crate) fn write_words(&self, document: &Document, options: &WriteOptions) -> Result<Words> {
        let packed = document.to_msgpack();
        if let At::There(there, _) = &self.at {
            there.check_bytes("document", packed.len())?;
        }
        Ok(self.words("SPACE.WRITE").and(packed).writing(options))
    }

    /// Reads one entry: [`holdfast::space::Entries::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, wanted: &Wanted, options: &ReadOptions) -> Call<Option<Entry>> {
        self.get(wanted, options, Taking::Read)
    }

    /// Reads one entry and removes it, atomically: [`holdfast::space::Entries::take`]. Who drops the call while it waits takes
    /// nothing, unless the answer of a server was on its way.
    ///
    /// # Errors
    /// As there.
    pub fn take(&self, wanted: &Wanted, options: &ReadOptions) -> Call<Option<Entry>> {
        self.get(wanted, options, Taking::Take)
    }

    fn get(&self, wanted: &Wanted, options: &ReadOptions, taking: Taking) -> Call<Option<Entry>> {
        let (there, words) = match &self.at {
            At::Here(here, entries) => return here.get(entries, wanted, options, taking, self.is_durable()),
            At::There(there, _) => (there, self.get_words(wanted, options, taking)),
        };
        let again = if taking == Taking::Read { Again::May } else { Again::MustNot };
        match words {
            Err(error) => Call::done(Err(error)),
            // What is found by an id is found at once; anything else may be looked for in a long list, or waited for.
            Ok(words) if wanted.by_id().is_some() && options.wait.is_none() => {
                there.call(&words, again, read::some_entry)
            }
            Ok(words) => there.call_alone(&words, again, Some(options.wait.unwrap_or_default()), read::some_entry),
        }
    }

    pub(crate) fn get_words(&self, wanted: &Wanted, options: &ReadOptions, taking: Taking) -> Result<Words> {
        check_cancel(options.cancel.as_ref())?;
        let command = if taking == Taking::Read { "SPACE.READ" } else { "SPACE.TAKE" };
        Ok(self.words(command).wanted(wanted)?.reading(options))
    }

    /// Changes the entry that is wanted by its id in place: [`holdfast::space::Entries::change`].
    ///
    /// # Errors
    /// As there.
    pub fn change(&self, wanted: &Wanted, changes: &[Change], options: &WriteOptions) -> Call<Option<Changed>> {
        if let Err(error) = check_changes(changes) {
            return Call::done(Err(error));
        }
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted, changes) = (entries.clone(), wanted.clone(), changes.to_vec());
                let options = options.clone();
                let durability = self.durable(options.durability);
                here.locking(durability, options.lock_timeout, move |lock_timeout| {
                    let options = WriteOptions { lock_timeout, ..options.clone() };
                    entries.change_shown(&wanted, &changes, &options)
                })
            }
            At::There(there, _) => match self.change_words(wanted, changes, options) {
                Ok(words) => there.call(&words, WRITES, read::changed),
                Err(error) => Call::done(Err(error)),
            },
        }
    }

    pub(crate) fn change_words(&self, wanted: &Wanted, changes: &[Change], options: &WriteOptions) -> Result<Words> {
        check_changes(changes)?;
        let words = self.words("SPACE.CHANGE").id(wanted, "an entry is changed")?;
        Ok(words.changes(changes).routing(wanted).changing(options))
    }

    /// Ends the entry's lease at another time. False if there is no such entry.
    ///
    /// # Errors
    /// As [`Entries::write`].
    pub fn renew(&self, wanted: &Wanted, lease: Lease, durability: Option<Durability>) -> Call<bool> {
        match &self.at {
            At::Here(here, entries) => {
                let (entries, wanted) = (entries.clone(), wanted.clone());
                here.locking(self.durable(durability), None, move |lock_timeout| {
                    entries.renew_shown(&wanted, &WriteOptions { lease, lock_timeout, ..WriteOptions::default() })
                })
            }
            At::There(there, _) => match self.renew_words(wanted, lease) {
                Ok(words) => there.call(&words.durability(durability), WRITES, |reply| Ok(reply.unsigned()? != 0)),
                Err(error) => Call::done(Err(error)),
            },
        }
    }

    pub(crate) fn renew_words(&self, wanted: &Wanted, lease: Lease) -> Result<Words> {
        // A server has no word for it: it is the lease that the type says.
        let lease = match (lease, self.definition().lease_ms) {
            (Lease::Default, Some(ms)) => Lease::For(Duration::from_millis(ms)),
            (Lease::Default, None) => {
                let text = "the type has no lease of its own: say for how long, or for ever";
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            (lease, _) => lease,
        };
        let words = self.words("SPACE.RENEW").id(wanted, "a lease is renewed")?;
        Ok(words.lease(lease).routing(wanted))
    }

    /// As durable as asked, or as the store does; `None` where there is nothing to wait for.
    pub(crate) fn durable(&self, asked: Option<Durability>) -> Option<Durability> {
        let At::Here(here, _) = &self.at else { return asked };
        self.is_durable().then(|| asked.unwrap_or(here.store().durability()))
    }

    /// The entries with these ids, in their order: all questions travel together.
    ///
    /// # Errors
    /// As [`Entries::read`].
    pub fn read_ids(&self, ids: &[Value]) -> Call<Vec<Option<Entry>>> {
        let options = ReadOptions::default();
        match &self.at {
            At::Here(here, entries) => {
                let (entries, ids) = (entries.clone(), ids.to_vec());
                here.shown(self.durable(None), move || {
                    let mut all = Shown { value: Vec::with_capacity(ids.len()), position: Default::default() };
                    for id in ids {
                        let shown = entries.read_shown(&Wanted::id(id), &options)?;
                        all.position = all.position.max(shown.position);
                        all.value.push(shown.value);
                    }
                    Ok(all)
                })
            }
            At::There(there, _) => {
                let words = ids.iter().map(|id| self.get_words(&Wanted::id(id.clone()), &options, Taking::Read));
                match words.collect::<Result<Vec<_>>>() {
                    Ok(words) if words.is_empty() => Call::done(Ok(Vec::new())),
                    Ok(words) => there.call_together(&words, Again::May, |replies| {
                        replies.into_iter().map(read::some_entry).collect()
                    }),
                    Err(error) => Call::done(Err(error)),
                }
            }
        }
    }
}

/// What an operation in the process can be told and a server cannot is refused, and not passed over.
fn check_cancel(cancel: Option<&Cancel>) -> Result<()> {
    if cancel.is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "what waits on a server is canceled by dropping the call: leave cancel out"))
}

pub(crate) fn check_changes(changes: &[Change]) -> Result<()> {
    if changes.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "say what to change: there are no changes"));
    }
    Ok(())
}
