//! A vendor's resource manager behind its `xa_switch_t`, loaded from a shared object when the program runs.
//!
//! A loaded library stays until the process ends: vendors' libraries keep threads and thread-local state, and crash when
//! they are unloaded under them.
//!
//! May use: `abi`, `resource`, which switch is our own. Must not know: transactions, threads.
#![allow(unsafe_code, reason = "a switch is a table of C functions in a library that somebody else made")]

use std::ffi::{CString, c_int, c_long};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::Library;
use tm::{BranchName, LastResourceId, TransactionId, XaCode, Xid};

use crate::abi::{
    InfoCall, TMNOFLAGS, TMNOMIGRATE, TMREGISTER, TMUSEASYNC, XA_OK, XAER_PROTO, XaSwitch, XidCall, XidData,
};
use crate::native::{self, COLLECTED_LATE, holdfast_mariadb_switch, holdfast_postgres_switch};
use crate::resource::{Collected, Resource, Verb};

/// Most branches that are taken from one resource manager in one round; the next round finds the others.
const LIST_MAX: usize = 65_536;

/// Why a switch cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("cannot load the library `{library}`: {reason}")]
    Library { library: String, reason: String },
    #[error("the library `{library}` has no symbol `{symbol}`: {reason}")]
    Symbol { library: String, symbol: String, reason: String },
    #[error("the switch `{symbol}` has version {version}; the standard has 0")]
    Version { symbol: String, version: c_long },
    #[error("the switch `{symbol}` has no {entry}")]
    Entry { symbol: String, entry: &'static str },
}

/// A switch in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Switch {
    table: XaSwitch,
}

impl Switch {
    /// Loads it.
    pub(crate) fn load(library: &Path, symbol: &str) -> Result<Self, LoadError> {
        let shown = || library.display().to_string();
        // SAFETY: loading runs the library's initializers; whoever wrote the profile trusts the library with the process.
        let loaded = unsafe { Library::new(library) }
            .map_err(|error| LoadError::Library { library: shown(), reason: error.to_string() })?;
        // SAFETY: the profile says that the symbol is a switch; the standard gives a switch the form of `XaSwitch`.
        let found = unsafe { loaded.get::<*const XaSwitch>(symbol.as_bytes()) }.map_err(|error| LoadError::Symbol {
            library: shown(),
            symbol: symbol.to_owned(),
            reason: error.to_string(),
        })?;
        // SAFETY: a symbol that was found is not null, and lies in the library as long as that is loaded.
        let table = unsafe { **found };
        std::mem::forget(loaded);
        Self::of(table, symbol)
    }

    /// Takes a switch that is in the process already.
    pub(crate) fn of(table: XaSwitch, symbol: &str) -> Result<Self, LoadError> {
        if table.version != 0 {
            return Err(LoadError::Version { symbol: symbol.to_owned(), version: table.version });
        }
        match table.missing() {
            Some(entry) => Err(LoadError::Entry { symbol: symbol.to_owned(), entry }),
            None => Ok(Self { table }),
        }
    }
}

/// A resource manager of a profile. Its number is its place in the profile. There may be passwords in its strings.
pub(crate) struct SwitchedResource {
    pub(crate) branch: BranchName,
    pub(crate) order: u32,
    pub(crate) rmid: c_int,
    pub(crate) open_string: CString,
    pub(crate) close_string: CString,
    pub(crate) switch: Switch,
    /// Whether it decides about transactions.
    pub(crate) is_last: bool,
    /// Transactions that it decided about, and that all others know of.
    pub(crate) known: Mutex<Vec<TransactionId>>,
}

/// Decisions that are let go of together.
const LET_GO: usize = 64;

impl SwitchedResource {
    /// Whether it registers its branches by itself.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.switch.table.flags & TMREGISTER != 0
    }

    /// Whether a suspended branch can be resumed by the thread alone that suspended it.
    pub(crate) fn is_bound_to_threads(&self) -> bool {
        self.switch.table.flags & TMNOMIGRATE != 0
    }

    /// Opens it for this thread.
    pub(crate) fn open(&self) -> c_int {
        self.info(self.switch.table.open, &self.open_string)
    }

    /// Which last resource it is. One that was away before was left closed, and is opened: a transaction that begins without it
    /// would have it prepared.
    pub(crate) fn last_resource(&self) -> Option<LastResourceId> {
        if !self.is_last {
            return None;
        }
        native::last_resource(self.rmid).or_else(|| {
            self.open();
            native::last_resource(self.rmid)
        })
    }

    /// Closes it for this thread.
    pub(crate) fn close(&self) -> c_int {
        if self.is_last {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // What stays is left to a sweep.
            if !known.is_empty() && native::let_go(self.rmid, &known) {
                known.clear();
            }
        }
        self.info(self.switch.table.close, &self.close_string)
    }

    fn info(&self, entry: Option<InfoCall>, text: &CString) -> c_int {
        let Some(entry) = entry else { return XAER_PROTO };
        // SAFETY: the entry is a function of this form by the standard; it reads the string during the call and does not
        // change it, which the missing `const` only leaves open because the standard is older than the word.
        unsafe { entry(text.as_ptr().cast_mut(), self.rmid, TMNOFLAGS) }
    }
}

impl Resource for SwitchedResource {
    fn branch(&self) -> &BranchName {
        &self.branch
    }

    fn order(&self) -> u32 {
        self.order
    }

    fn is_asynchronous(&self) -> bool {
        self.switch.table.flags & TMUSEASYNC != 0
    }

    fn call(&self, verb: Verb, xid: &XidData, flags: c_long) -> c_int {
        let table = &self.switch.table;
        let entry: Option<XidCall> = match verb {
            Verb::Start => table.start,
            Verb::End => table.end,
            Verb::Prepare => table.prepare,
            Verb::Commit => table.commit,
            Verb::Rollback => table.rollback,
            Verb::Forget => table.forget,
        };
        let Some(entry) = entry else { return XAER_PROTO };
        let mut name = *xid;
        // SAFETY: the entry is a function of this form by the standard; the name is ours and outlives the call.
        unsafe { entry(&raw mut name, self.rmid, flags) }
    }

    fn complete(&self, handle: c_int, collected: Collected) -> c_int {
        let Some(entry) = self.switch.table.complete else { return XAER_PROTO };
        let (mut handle, mut answer) = (handle, XA_OK);
        let is_looked_at = collected == Collected::Late && self.switch.table.name == holdfast_mariadb_switch.name;
        let flags = if is_looked_at { COLLECTED_LATE } else { TMNOFLAGS };
        // SAFETY: the entry is a function of this form by the standard; both numbers are ours and outlive the call.
        let code = unsafe { entry(&raw mut handle, &raw mut answer, self.rmid, flags) };
        if code == XA_OK { answer } else { code }
    }

    fn is_last(&self) -> bool {
        self.is_last
    }

    fn commit_last(&self, xid: &XidData, others: &[BranchName]) -> c_int {
        native::commit_last(self.rmid, xid, others)
    }

    fn settle(&self, last: LastResourceId, ids: &[TransactionId]) -> Result<Option<Vec<bool>>, String> {
        if self.switch.table.name != holdfast_postgres_switch.name {
            return Ok(None);
        }
        native::settle(&self.open_string, last, ids).map_err(|failure| failure.to_string())
    }

    fn let_go(&self, id: TransactionId) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push(id);
        // By the connection of this thread, while nothing is under way there; else with the next.
        if known.len() >= LET_GO && native::let_go(self.rmid, &known) {
            known.clear();
        }
    }

    fn prepared(&self) -> Result<Vec<Xid>, XaCode> {
        match self.scan() {
            // Its server may have been restarted.
            Err(XaCode::ManagerDown) if self.close() == XA_OK && self.open() == XA_OK => self.scan(),
            // And may have been away when that was tried before, and it was left closed. Opening what is open does nothing.
            Err(XaCode::Protocol) if self.open() == XA_OK => self.scan(),
            answer => answer,
        }
    }
}

impl SwitchedResource {
    fn scan(&self) -> Result<Vec<Xid>, XaCode> {
        // SAFETY: the entry is a function of the standard's form; whoever wrote the profile trusts the library with that.
        unsafe { self.switch.table.prepared(self.rmid, LIST_MAX) }.map(|listed| listed.found)
    }
}

#[cfg(test)]
mod tests {
    use super::{LoadError, Path, Switch};

    #[test]
    fn what_is_missing_is_named() {
        let library = Switch::load(Path::new("libno-such-thing.so.7"), "switch").unwrap_err();
        assert!(library.to_string().starts_with("cannot load the library `libno-such-thing.so.7`: "), "{library}");
        let symbol = Switch::load(Path::new("libc.so.6"), "no_such_switch").unwrap_err();
        assert!(symbol.to_string().contains("has no symbol `no_such_switch`"), "{symbol}");
        assert!(matches!(symbol, LoadError::Symbol { .. }));
    }
}
