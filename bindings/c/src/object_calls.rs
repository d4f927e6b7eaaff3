//! The calls of `holdfast.h` about objects. What they mean is in `object.rs`.
//!
//! A pointer that a program gets is a box; `..._free` takes it back.
//!
//! May use: `connection`, `object`, `opening`. Must not know: how transactions end.
#![allow(unsafe_code, reason = "these are C functions, called by programs")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::rc::Rc;
use std::time::Duration;

use tm::{BranchName, Sharing};

use crate::abi::{TX_EINVAL, TX_FAIL, TX_OK};
use crate::connection::Connection;
use crate::holdfast_calls::{RecoveredCounts, has_room, read_id, write_id};
use crate::last_error;
use crate::manager::Manager;
use crate::native::{Failure, MariaSession, PgSession, Session};
use crate::object::{Role, TmObject, TxObject};
use crate::opening;
use crate::own::OwnWork;
use crate::thread::guard;

/// `HOLDFAST_SHARED`.
const SHARED: c_long = 1;
/// `HOLDFAST_UNDECIDED`.
const UNDECIDED: c_int = 2;

/// `holdfast_tm`, and the connections that were added to it.
pub struct Tm(Rc<TmObject>, RefCell<Vec<*mut c_void>>);

/// `holdfast_tx`.
pub struct Tx(TxObject);

impl Tm {
    /// The profile in use.
    pub(crate) fn manager(&self) -> &Manager {
        self.0.manager()
    }
}

impl Tx {
    /// Works in the coordinator's own store as part of the transaction.
    pub(crate) fn work<T>(&mut self, work: impl FnOnce(&mut OwnWork) -> holdfast::Result<T>) -> Result<T, c_int> {
        self.0.work(work)
    }
}

/// Makes a manager that decides as a profile says; as the one that the environment names for null.
///
/// # Safety
/// `profile` is null or ends with a zero; `tm` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_new(profile: *const c_char, tm: *mut *mut Tm) -> c_int {
    last_error::of_call("holdfast_tm_new", || {
        if tm.is_null() {
            return null("tm");
        }
        // SAFETY: the caller says that it is null or ends with a zero.
        let profile = unsafe { text(profile) };
        let made = guard(Err(TX_FAIL), || {
            opening::manager(profile.as_deref()).map_err(|error| {
                last_error::set(error.to_string());
                error.tx_code()
            })
        });
        match made {
            Err(code) => code,
            Ok(manager) => {
                let made = Box::new(Tm(Rc::new(TmObject::new(manager)), RefCell::default()));
                // SAFETY: it is not null, so the caller says that it may be written.
                unsafe { tm.write(Box::into_raw(made)) };
                TX_OK
            }
        }
    })
}

/// Lets go of a manager. Transactions of it that are there still keep what they need.
///
/// # Safety
/// `tm` is null, or came from `holdfast_tm_new` and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_free(tm: *mut Tm) {
    if !tm.is_null() {
        // SAFETY: the caller says that it came from a box, and is given back once.
        let tm = unsafe { Box::from_raw(tm) };
        guard((), || drop(tm));
    }
}

/// Adds a `PGconn*` of the program's.
///
/// # Safety
/// `tm` is null or came from `holdfast_tm_new`; `name` is null or ends with a zero; `connection` is null or open, and
/// outlives the manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_add_postgres(tm: *mut Tm, name: *const c_char, connection: *mut c_void) -> c_int {
    // SAFETY: the caller says so; a null connection is never borrowed.
    unsafe { add(tm, name, connection, |open| PgSession::borrow(open), |own| own) }
}

/// Adds a `PGconn*` of the program's whose branches may be asked whether they changed anything.
///
/// # Safety
/// As for [`holdfast_tm_add_postgres`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_add_postgres_asking(
    tm: *mut Tm,
    name: *const c_char,
    connection: *mut c_void,
) -> c_int {
    // SAFETY: the caller says so; a null connection is never borrowed.
    unsafe { add(tm, name, connection, |open| PgSession::borrow(open), Connection::asking) }
}

/// Adds a `MYSQL*` of the program's.
///
/// # Safety
/// As for [`holdfast_tm_add_postgres`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_add_mariadb(tm: *mut Tm, name: *const c_char, connection: *mut c_void) -> c_int {
    // SAFETY: the caller says so; a null connection is never borrowed.
    unsafe { add(tm, name, connection, |open| MariaSession::borrow(open), |own| own) }
}

/// # Safety
/// As for [`holdfast_tm_add_postgres`].
unsafe fn add<S: Session + 'static>(
    tm: *mut Tm,
    name: *const c_char,
    connection: *mut c_void,
    borrow: impl FnOnce(*mut c_void) -> Result<S, Failure>,
    set: impl FnOnce(Connection<S>) -> Connection<S>,
) -> c_int {
    guarded("adding a connection", || {
        // SAFETY: the caller says that it is null or good.
        let Some(tm) = (unsafe { tm.as_ref() }) else { return null("tm") };
        // SAFETY: the caller says that it is null or good.
        let Some(name) = (unsafe { text(name) }) else { return null("the name") };
        if connection.is_null() {
            return null("the connection");
        }
        let name = match BranchName::new(&name) {
            Ok(name) => name,
            Err(error) => {
                last_error::set(error.to_string());
                return TX_EINVAL;
            }
        };
        if tm.1.borrow().contains(&connection) {
            let why = format!("the connection of `{name}` was added before: it is in one branch at a time");
            return last_error::refuse(TX_EINVAL, why);
        }
        match borrow(connection) {
            Ok(session) => match tm.0.add(Rc::new(set(Connection::new(name, session)))) {
                TX_OK => {
                    tm.1.borrow_mut().push(connection);
                    TX_OK
                }
                refused => refused,
            },
            Err(failure) => {
                last_error::set(failure.to_string());
                TX_FAIL
            }
        }
    })
}

/// Gives a connection its place in the order of commits.
///
/// # Safety
/// `tm` is null or came from `holdfast_tm_new`; `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_set_order(tm: *mut Tm, name: *const c_char, order: c_uint) -> c_int {
    guarded("holdfast_tm_set_order", || {
        // SAFETY: the caller says that it is null or good.
        let Some(tm) = (unsafe { tm.as_ref() }) else { return null("tm") };
        // SAFETY: the caller says that it is null or good.
        let Some(name) = (unsafe { text(name) }) else { return null("the name") };
        match BranchName::new(&name) {
            Ok(name) => tm.0.set_order(&name, order),
            Err(error) => last_error::refuse(TX_EINVAL, error.to_string()),
        }
    })
}

/// Recovers at the connections of a manager.
///
/// # Safety
/// `tm` is null or came from `holdfast_tm_new`; `recovered` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tm_recover(tm: *mut Tm, recovered: *mut RecoveredCounts) -> c_int {
    guarded("holdfast_tm_recover", || {
        // SAFETY: the caller says that it is null or good.
        let Some(tm) = (unsafe { tm.as_ref() }) else { return null("tm") };
        let found = match tm.0.recover() {
            Ok(found) => found,
            Err(code) => return code,
        };
        if !recovered.is_null() {
            // SAFETY: it is not null, so the caller says that it may be written.
            unsafe { recovered.write(RecoveredCounts::of(found)) };
        }
        TX_OK
    })
}

/// Begins a transaction on all connections of a manager.
///
/// # Safety
/// `tm` is null or came from `holdfast_tm_new`; `tx` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_begin(tm: *mut Tm, seconds: c_long, flags: c_long, tx: *mut *mut Tx) -> c_int {
    guarded("holdfast_tx_begin", || {
        let Ok(seconds) = u64::try_from(seconds) else {
            return last_error::refuse(TX_EINVAL, format!("a timeout is 0 seconds or more, not {seconds}"));
        };
        if flags & !SHARED != 0 {
            return last_error::refuse(TX_EINVAL, format!("the flags are 0 or HOLDFAST_SHARED, not {flags}"));
        }
        let timeout = (seconds > 0).then(|| Duration::from_secs(seconds));
        let sharing = if flags & SHARED == 0 { Sharing::Alone } else { Sharing::Shared };
        // SAFETY: the caller says that both are null or good.
        unsafe { make(tm, tx, |tm| tm.begin(timeout, sharing)) }
    })
}

/// Takes part in another program's transaction, and votes.
///
/// # Safety
/// As for [`holdfast_tx_begin`]; `id` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_join(tm: *mut Tm, id: *const c_char, tx: *mut *mut Tx) -> c_int {
    // SAFETY: the caller says that all three are null or good.
    guarded("holdfast_tx_join", || unsafe {
        let Some(id) = read_id(id) else { return TX_EINVAL };
        make(tm, tx, |tm| tm.take_part(id, Role::Votes))
    })
}

/// Goes on with a transaction that another program suspended, as the only one, and decides. A round trip.
///
/// # Safety
/// As for [`holdfast_tx_join`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_resume(tm: *mut Tm, id: *const c_char, tx: *mut *mut Tx) -> c_int {
    // SAFETY: the caller says that all three are null or good.
    guarded("holdfast_tx_resume", || unsafe {
        let Some(id) = read_id(id) else { return TX_EINVAL };
        make(tm, tx, |tm| tm.take_part(id, Role::Decides))
    })
}

/// # Safety
/// As for [`holdfast_tx_begin`].
unsafe fn make(tm: *mut Tm, tx: *mut *mut Tx, begin: impl FnOnce(&Rc<TmObject>) -> Result<TxObject, c_int>) -> c_int {
    // SAFETY: the caller says that it is null or good.
    let Some(tm) = (unsafe { tm.as_ref() }) else { return null("tm") };
    if tx.is_null() {
        return null("the place for the transaction");
    }
    match guard(Err(TX_FAIL), || begin(&tm.0)) {
        Err(code) => code,
        Ok(made) => {
            // SAFETY: it is not null, so the caller says that it may be written.
            unsafe { tx.write(Box::into_raw(Box::new(Tx(made)))) };
            TX_OK
        }
    }
}

/// Prepares what was done here, and leaves the rest to whoever resumes it.
///
/// # Safety
/// `tx` is null or came from one of the calls that make one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_suspend(tx: *mut Tx) -> c_int {
    // SAFETY: the caller says that it is null or good.
    unsafe { call("holdfast_tx_suspend", tx, TxObject::suspend) }
}

/// Commits, or votes.
///
/// # Safety
/// As for [`holdfast_tx_suspend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_commit(tx: *mut Tx) -> c_int {
    // SAFETY: the caller says that it is null or good.
    unsafe { call("holdfast_tx_commit", tx, TxObject::commit) }
}

/// Rolls back.
///
/// # Safety
/// As for [`holdfast_tx_suspend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_rollback(tx: *mut Tx) -> c_int {
    // SAFETY: the caller says that it is null or good.
    unsafe { call("holdfast_tx_rollback", tx, TxObject::rollback) }
}

/// After a vote: waits for the decision, and carries it out here.
///
/// # Safety
/// As for [`holdfast_tx_suspend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_finish(tx: *mut Tx, milliseconds: c_long) -> c_int {
    let finish = |tx: &mut TxObject| {
        let Ok(patience) = u64::try_from(milliseconds) else {
            return last_error::refuse(TX_EINVAL, format!("it waits for 0 milliseconds or more, not {milliseconds}"));
        };
        tx.finish(Duration::from_millis(patience)).unwrap_or(UNDECIDED)
    };
    // SAFETY: the caller says that it is null or good.
    unsafe { call("holdfast_tx_finish", tx, finish) }
}

/// # Safety
/// As for [`holdfast_tx_suspend`].
unsafe fn call(name: &str, tx: *mut Tx, call: impl FnOnce(&mut TxObject) -> c_int) -> c_int {
    guarded(name, || {
        // SAFETY: the caller says that it is null or good, and uses it in one thread at a time.
        let Some(tx) = (unsafe { tx.as_mut() }) else { return null("the transaction") };
        call(&mut tx.0)
    })
}

/// A call of the program's, which has a reason when it fails.
fn guarded(name: &str, call: impl FnOnce() -> c_int) -> c_int {
    last_error::of_call(name, || guard(TX_FAIL, call))
}

fn null(what: &str) -> c_int {
    last_error::refuse(TX_EINVAL, format!("{what} is NULL"))
}

/// Writes a transaction's id.
///
/// # Safety
/// `tx` as for [`holdfast_tx_suspend`]; `id` is null or may be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_id(tx: *const Tx, id: *mut c_char, size: usize) -> c_int {
    guarded("holdfast_tx_id", || {
        // SAFETY: the caller says that it is null or good.
        let Some(tx) = (unsafe { tx.as_ref() }) else { return null("the transaction") };
        if !has_room(id, size) {
            return TX_EINVAL;
        }
        // SAFETY: there is room, which was checked just now.
        unsafe { write_id(tx.0.id(), id) };
        TX_OK
    })
}

/// Lets go of a transaction. One that is active is rolled back.
///
/// # Safety
/// `tx` is null, or came from one of the calls that make one and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_tx_free(tx: *mut Tx) {
    if !tx.is_null() {
        // SAFETY: the caller says that it came from a box, and is given back once.
        let tx = unsafe { Box::from_raw(tx) };
        guard((), || drop(tx));
    }
}

/// # Safety
/// `string` is null or ends with a zero.
unsafe fn text(string: *const c_char) -> Option<String> {
    // SAFETY: it is not null, and the caller says that it ends with a zero.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
}
