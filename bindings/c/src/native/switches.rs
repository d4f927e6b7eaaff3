//! XA switches for PostgreSQL and MariaDB, over connections that they hand to the program.
//!
//! A connection belongs to the thread that opened the resource manager. Branches do not migrate between threads, because
//! neither database lets a transaction leave its session before it is prepared.
//!
//! May use: `branch`, the two sessions. Must not know: transactions.
#![allow(unsafe_code, reason = "an XA switch is made of C functions")]
#![allow(non_upper_case_globals, reason = "symbols of a switch are in lower case by custom")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use tm::{BranchName, LastResourceId, PostgresDecisions, TransactionId, Xid};

use super::branch::BranchConnection;
use super::dialect::Dialect;
use super::last;
use super::libmariadb::MariaSession;
use super::libpq::PgSession;
use super::{Failure, Session};
use crate::abi::{
    TMENDRSCAN, TMNOMIGRATE, TMSTARTRSCAN, TMUSEASYNC, XA_OK, XAER_INVAL, XAER_PROTO, XAER_RMERR, XaSwitch, XidData,
    switch_name,
};
use crate::last_error;
use crate::resource::Verb;
use crate::thread::guard;

/// What an open string begins with whose branches may be asked whether they changed anything.
pub(crate) const ASKING: &str = "asks_read_only=1 ";

/// What an open string begins with whose database is the last resource.
pub(crate) const LAST_RESOURCE: &str = "last_resource=1 ";

/// A flag of `xa_complete` for our own switches: the program may have worked with the connection since the call was made.
pub(crate) const COLLECTED_LATE: c_long = 0x100;

/// One resource manager as a thread opened it.
pub(crate) struct Opened<S> {
    branch: BranchConnection<S>,
    /// A listing of prepared branches, and how many of it were given out.
    list: (Vec<Xid>, usize),
}

pub(crate) type Registry<S> = RefCell<BTreeMap<c_int, Opened<S>>>;

/// A kind of session that has a switch.
pub(crate) trait Switched: Session + Sized + 'static {
    fn open(info: &CStr) -> Result<Self, Failure>;
    /// The same where nothing is ever prepared.
    fn open_without_prepare(info: &CStr) -> Result<Self, Failure> {
        Self::open(info)
    }
    fn pointer(&self) -> *mut c_void;
    fn with<T>(call: impl FnOnce(&Registry<Self>) -> T) -> Option<T>;
}

thread_local! {
    static POSTGRES: Registry<PgSession> = RefCell::default();
    static MARIADB: Registry<MariaSession> = RefCell::default();
}

impl Switched for PgSession {
    fn open(info: &CStr) -> Result<Self, Failure> {
        let mut session = Self::connect(info)?;
        session.check_settings()?;
        Ok(session)
    }

    fn open_without_prepare(info: &CStr) -> Result<Self, Failure> {
        Self::connect(info)
    }

    fn pointer(&self) -> *mut c_void {
        self.connection()
    }

    fn with<T>(call: impl FnOnce(&Registry<Self>) -> T) -> Option<T> {
        POSTGRES.try_with(call).ok()
    }
}

impl Switched for MariaSession {
    fn open(info: &CStr) -> Result<Self, Failure> {
        Self::connect(&info.to_string_lossy())
    }

    fn pointer(&self) -> *mut c_void {
        self.connection()
    }

    fn with<T>(call: impl FnOnce(&Registry<Self>) -> T) -> Option<T> {
        MARIADB.try_with(call).ok()
    }
}

/// The switch for PostgreSQL. Its open string is libpq's connection string, behind `asks_read_only=1 ` or not.
#[unsafe(no_mangle)]
pub static holdfast_postgres_switch: XaSwitch = switch::<PgSession>(b"Holdfast PostgreSQL");
/// The switch for MariaDB and MySQL. Its open string is described in `libmariadb.rs`.
#[unsafe(no_mangle)]
pub static holdfast_mariadb_switch: XaSwitch = switch::<MariaSession>(b"Holdfast MariaDB");

/// The client's connection of this thread's resource manager; of its only or first one when there is no number.
pub(crate) fn with_connection<S: Switched>(rmid: Option<c_int>) -> *mut c_void {
    S::with(|registry| {
        let registry = registry.borrow();
        let found = rmid.map_or_else(|| registry.values().next(), |rmid| registry.get(&rmid));
        found.map_or(std::ptr::null_mut(), |opened| opened.branch.session().pointer())
    })
    .unwrap_or(std::ptr::null_mut())
}

/// The rest of an open string that begins so.
fn without<'a>(info: &'a CStr, start: &str) -> Option<&'a CStr> {
    let rest = info.to_bytes_with_nul().strip_prefix(start.as_bytes())?;
    CStr::from_bytes_with_nul(rest).ok()
}

/// Which last resource this thread's PostgreSQL of this number is, if it was opened as one.
pub(crate) fn last_resource(rmid: c_int) -> Option<LastResourceId> {
    PgSession::with(|registry| registry.borrow().get(&rmid)?.branch.last()).flatten()
}

/// Commits a branch of it, and with it the decision, of which `others` are to hear.
pub(crate) fn commit_last(rmid: c_int, xid: &XidData, others: &[BranchName]) -> c_int {
    with_opened::<PgSession>(rmid, |opened| match opened.branch.last() {
        Some(last) => opened.branch.commit_last(xid, |xid| PostgresDecisions(last).commit(xid, others)),
        None => XAER_PROTO,
    })
}

/// Asks a PostgreSQL, by a connection of its own, whether these are committed; see `last.rs`.
pub(crate) fn settle(info: &CStr, last: LastResourceId, ids: &[TransactionId]) -> Result<Option<Vec<bool>>, Failure> {
    let rest = without(info, LAST_RESOURCE).or_else(|| without(info, ASKING)).unwrap_or(info);
    last::settle(&mut PgSession::connect(rest)?, last, ids)
}

/// Lets go of decisions that nobody needs; whether that could be done now.
pub(crate) fn let_go(rmid: c_int, ids: &[TransactionId]) -> bool {
    let done = PgSession::with(|registry| {
        let mut registry = registry.borrow_mut();
        let branch = &mut registry.get_mut(&rmid)?.branch;
        let last = branch.last()?;
        last::let_go(branch.idle_session()?, last, ids).ok()
    });
    done.flatten().is_some()
}

const fn switch<S: Switched>(name: &[u8]) -> XaSwitch {
    XaSwitch {
        name: switch_name(name),
        flags: TMNOMIGRATE | TMUSEASYNC,
        version: 0,
        open: Some(open::<S>),
        close: Some(close::<S>),
        start: Some(start::<S>),
        end: Some(end::<S>),
        rollback: Some(rollback::<S>),
        prepare: Some(prepare::<S>),
        commit: Some(commit::<S>),
        recover: Some(recover::<S>),
        forget: Some(forget::<S>),
        complete: Some(complete::<S>),
    }
}

/// Calls with what this thread opened under a number; `XAER_PROTO` when that is nothing.
fn with_opened<S: Switched>(rmid: c_int, call: impl FnOnce(&mut Opened<S>) -> c_int) -> c_int {
    guard(XAER_RMERR, || {
        let answer = S::with(|registry| registry.borrow_mut().get_mut(&rmid).map(call));
        answer.flatten().unwrap_or(XAER_PROTO)
    })
}

unsafe extern "C" fn open<S: Switched>(info: *mut c_char, rmid: c_int, _flags: c_long) -> c_int {
    if info.is_null() {
        return XAER_INVAL;
    }
    // SAFETY: it is not null, and the transaction manager hands in a string that ends with a zero.
    let info = unsafe { CStr::from_ptr(info) };
    guard(XAER_RMERR, || {
        let opened = S::with(|registry| {
            if registry.borrow().contains_key(&rmid) {
                return Ok(());
            }
            let is_of_postgres = S::Dialect::ASK.is_some();
            let branch = match (without(info, ASKING), without(info, LAST_RESOURCE)) {
                (Some(rest), _) if is_of_postgres => BranchConnection::new(S::open(rest)?).asking(),
                (_, Some(rest)) if is_of_postgres => {
                    let mut session = S::open_without_prepare(rest)?;
                    let last = last::open(&mut session)?;
                    BranchConnection::new(session).deciding(last)
                }
                _ => BranchConnection::new(S::open(info)?),
            };
            let opened = Opened { branch, list: (Vec::new(), 0) };
            registry.borrow_mut().insert(rmid, opened);
            Ok::<(), Failure>(())
        });
        match opened {
            Some(Ok(())) => XA_OK,
            Some(Err(failure)) => {
                last_error::set(failure.to_string());
                XAER_RMERR
            }
            None => XAER_PROTO,
        }
    })
}

unsafe extern "C" fn close<S: Switched>(_info: *mut c_char, rmid: c_int, _flags: c_long) -> c_int {
    guard(XAER_RMERR, || {
        S::with(|registry| drop(registry.borrow_mut().remove(&rmid)));
        XA_OK
    })
}

fn call<S: Switched>(verb: Verb, xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    // SAFETY: the transaction manager hands in a branch's name, and keeps it during the call; or null, which is none.
    let Some(xid) = (unsafe { xid.as_ref() }) else { return XAER_INVAL };
    with_opened::<S>(rmid, |opened| opened.branch.call(verb, xid, flags))
}

unsafe extern "C" fn start<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::Start, xid, rmid, flags)
}

unsafe extern "C" fn end<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::End, xid, rmid, flags)
}

unsafe extern "C" fn rollback<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::Rollback, xid, rmid, flags)
}

unsafe extern "C" fn prepare<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::Prepare, xid, rmid, flags)
}

unsafe extern "C" fn commit<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::Commit, xid, rmid, flags)
}

unsafe extern "C" fn forget<S: Switched>(xid: *mut XidData, rmid: c_int, flags: c_long) -> c_int {
    call::<S>(Verb::Forget, xid, rmid, flags)
}

unsafe extern "C" fn recover<S: Switched>(xids: *mut XidData, count: c_long, rmid: c_int, flags: c_long) -> c_int {
    let Ok(count_max) = usize::try_from(count) else { return XAER_INVAL };
    if xids.is_null() && count_max > 0 {
        return XAER_INVAL;
    }
    with_opened::<S>(rmid, |opened| {
        if flags & TMSTARTRSCAN != 0 {
            match opened.branch.prepared() {
                Ok(found) => opened.list = (found, 0),
                Err(code) => return code.number(),
            }
        }
        let (found, given_before) = &mut opened.list;
        let mut given = 0;
        for xid in found.iter().skip(*given_before).take(count_max) {
            // SAFETY: the caller has room for `count` names behind `xids`, and `given` stays below it.
            unsafe { xids.add(given).write(XidData::of(xid)) };
            given += 1;
        }
        *given_before += given;
        if flags & TMENDRSCAN != 0 {
            opened.list = (Vec::new(), 0);
        }
        c_int::try_from(given).unwrap_or(c_int::MAX)
    })
}

unsafe extern "C" fn complete<S: Switched>(
    handle: *mut c_int,
    retval: *mut c_int,
    rmid: c_int,
    flags: c_long,
) -> c_int {
    // SAFETY: the transaction manager hands in two numbers of its own, and keeps them during the call; or null.
    let (Some(handle), Some(retval)) = (unsafe { handle.as_ref() }, unsafe { retval.as_mut() }) else {
        return XAER_INVAL;
    };
    with_opened::<S>(rmid, |opened| {
        *retval = match flags & COLLECTED_LATE {
            0 => opened.branch.complete(*handle),
            _ => opened.branch.complete_late(*handle),
        };
        XA_OK
    })
}
