//! Writing through: a transaction is committed once a table outside, which follows a type, has taken what it does to that type.
//!
//! Who keeps such a table says so of the type ([`Entries::follow_in`]), and commits what is given to it ([`WriteThrough`]). A transaction finds it by
//! the types that it changes, so whoever commits need not know where the table is: programs that embed the store, and clients of a server, ask alike.
//!
//! May use: transactions, types. Must not know: databases.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::Space;
use super::entries::Entries;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::Committed;
use crate::transaction::Transaction;

/// Why a transaction was not written through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotThrough {
    /// Nothing has changed, in the space nor in the table.
    #[error("nothing was changed: {0}")]
    Nothing(Error),
    /// The space has it, and the table has it not, or not surely. The mirror brings it there as soon as it can, once.
    #[error("the space has it, at {}, and the table gets it when it can: {reason}", committed.position)]
    TableBehind {
        /// What the space has.
        committed: Committed,
        /// Why the table is behind.
        reason: Error,
    },
    /// The store failed while it committed: whether the space has it is known after reopening, and the table then gets it if so.
    #[error("whether it happened is not known: {0}")]
    Unknown(Error),
}

impl NotThrough {
    /// What an error of [`Transaction::commit`] means for who wanted it written through.
    #[must_use]
    pub fn of_commit(error: Error) -> Self {
        use ErrorKind::{Aborted, Conflict, Invalid, Limit, Timeout};
        match error.kind() {
            Conflict | Invalid | Limit | Timeout | Aborted => Self::Nothing(error),
            _ => Self::Unknown(error),
        }
    }
}

/// Who keeps a table that follows a type, and commits transactions once the table has taken them.
pub trait WriteThrough: Send + Sync {
    /// By which people know it, in errors.
    fn name(&self) -> &str;

    /// Commits the transaction once the table has taken what it does to the type, waiting for the table up to `wait`. Blocks.
    ///
    /// # Errors
    /// See [`NotThrough`].
    fn commit(
        &self,
        transaction: Transaction,
        durability: Durability,
        wait: Duration,
    ) -> std::result::Result<Committed, NotThrough>;
}

/// Those that follow a type. They end by themselves, and what has ended is told from what never was.
#[derive(Default)]
pub(crate) struct Tables(Mutex<Vec<Weak<dyn WriteThrough>>>);

impl Tables {
    fn add(&self, table: Weak<dyn WriteThrough>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|table| table.strong_count() > 0);
        all.push(table);
    }

    /// Those that are there, and whether there was one ever.
    fn all(&self) -> (Vec<Arc<dyn WriteThrough>>, bool) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (all.iter().filter_map(Weak::upgrade).collect(), !all.is_empty())
    }
}

impl Entries {
    /// Says that a table outside follows the type, and that transactions may be committed through it by [`Transaction::commit_through`]. It is
    /// forgotten when it is dropped.
    pub fn follow_in(&self, table: Weak<dyn WriteThrough>) {
        self.kind.tables.add(table);
    }
}

impl Space {
    /// Says that a table outside is going to follow the type, whether that is declared yet or not: until it does, who commits through it is told to come
    /// back, and not that nobody follows.
    pub fn expect_table(&self, type_name: &str) {
        self.store.inner().spaces.expect_table(&self.name, type_name);
    }
}

impl Transaction {
    /// The name of the table that [`Transaction::commit_through`] would commit it through, if it needs one.
    ///
    /// # Errors
    /// As there.
    pub fn followed_by(&self) -> Result<Option<String>> {
        Ok(self.table()?.map(|table| table.name().to_owned()))
    }

    /// Commits as [`Transaction::commit`] does, but only once the table that follows what it changes has taken it: the mirror of a type in this program
    /// (`Mirror` of the crate `grid`). What it does elsewhere, to keys, points and types that nobody follows, is committed with it. One that
    /// changes no entries needs no table, and is committed.
    ///
    /// Blocks, up to `wait` for the table; the entries that it has locked stay locked meanwhile. Not to be called from within an asynchronous runtime.
    ///
    /// # Errors
    /// [`NotThrough`] says what has changed. `Nothing` of kind `Invalid` also when no table follows what is changed, or more than one does; of
    /// kind `Unavailable` when that has stopped, or has not begun yet.
    pub fn commit_through(self, durability: Durability, wait: Duration) -> std::result::Result<Committed, NotThrough> {
        match self.table().map_err(NotThrough::Nothing)? {
            Some(table) => table.commit(self, durability, wait),
            None => self.commit(durability).map_err(NotThrough::of_commit),
        }
    }

    /// The one table that follows what it changes; none where it changes no entries.
    fn table(&self) -> Result<Option<Arc<dyn WriteThrough>>> {
        let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
        let changed = self.space().changed_kinds();
        let Some(any) = changed.first() else { return Ok(None) };
        let (mut tables, mut has_stopped) = (Vec::new(), None);
        for kind in &changed {
            let (there, was_there) = kind.tables.all();
            if there.is_empty() && was_there {
                has_stopped = Some(Arc::clone(&kind.definition()));
            }
            tables.extend(there);
        }
        if let Some(definition) = has_stopped {
            let text = format!("the mirror of the type {} has stopped, and takes nothing now", definition.name);
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        match (tables.len(), tables.first()) {
            (1, Some(table)) => Ok(Some(Arc::clone(table))),
            (0, _) if changed.iter().any(|kind| self.store().inner().spaces.expects_table(&kind.definition())) => {
                let text = format!("the mirror of the type {} has not begun yet: try again", any.definition().name);
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            (0, _) => {
                let name = &any.definition().name;
                invalid(format!("no mirror follows the type {name}: commit it without writing through"))
            }
            _ => {
                let names = tables.iter().map(|table| table.name()).collect::<Vec<_>>().join(", ");
                invalid(format!("several mirrors follow what is changed ({names}): it is written through one only"))
            }
        }
    }
}
