//! The calls of `holdfast.h` for threads that use TX: errors in words, connections, recovery, suspending and resuming.
//!
//! May use: `control`, `native`, `suspend`, `thread`. Must not know: objects.
#![allow(unsafe_code, reason = "these are C functions, called by programs")]

use std::ffi::{CStr, c_char, c_int, c_void};

use tm::TransactionId;

use crate::abi::{TX_EINVAL, TX_FAIL, TX_OK, TX_PROTOCOL_ERROR};
use crate::control::Thread;
use crate::last_error;
use crate::manager::Recovered;
use crate::native::{MariaSession, PgSession, Switched, with_connection};
use crate::thread::{guard, with_thread};

/// Bytes of an id as text, with the zero at its end.
const ID_BYTES: usize = 80;

/// In the place of a resource manager's number: none of them, and whichever is first.
const NOT_OPEN: c_int = -1;
const ANY: c_int = -2;

/// `struct holdfast_recovered`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RecoveredCounts {
    committed: std::ffi::c_ulong,
    rolled_back: std::ffi::c_ulong,
    left: std::ffi::c_ulong,
    unreachable: std::ffi::c_ulong,
}

impl RecoveredCounts {
    pub(crate) fn of(found: Recovered) -> Self {
        let Recovered { committed, rolled_back, left, unreachable } = found;
        Self { committed, rolled_back, left, unreachable }
    }
}

/// Why the last call of this thread failed, in words.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_last_error() -> *const c_char {
    last_error::get()
}

/// The `PGconn*` of this thread's resource manager of that name; of the first for null. Null when there is none.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_postgres_connection(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller says that it is null or ends with a zero.
    unsafe { connection::<PgSession>(name) }
}

/// The `MYSQL*` of this thread's resource manager of that name; of the first for null. Null when there is none.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_mariadb_connection(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller says that it is null or ends with a zero.
    unsafe { connection::<MariaSession>(name) }
}

/// # Safety
/// `name` is null or ends with a zero.
unsafe fn connection<S: Switched>(name: *const c_char) -> *mut c_void {
    let noted = |found: *mut c_void| {
        if found.is_null() {
            last_error::set("no resource manager of this kind and name is open in this thread".to_owned());
        }
        found
    };
    let name = if name.is_null() {
        None
    } else {
        // SAFETY: it is not null, so the caller says that it ends with a zero.
        Some(unsafe { CStr::from_ptr(name) })
    };
    let place = |thread: &Thread, name: &CStr| {
        let manager = thread.manager.as_ref()?;
        let place = manager.resources.iter().position(|own| own.branch.as_str().as_bytes() == name.to_bytes());
        place.and_then(|place| c_int::try_from(place).ok())
    };
    let rmid = with_thread(NOT_OPEN, NOT_OPEN, |thread| {
        // What is still under way there would be taken for the answer to what the program asks.
        thread.finish();
        name.map_or(ANY, |name| place(thread, name).unwrap_or(NOT_OPEN))
    });
    noted(guard(std::ptr::null_mut(), || match rmid {
        NOT_OPEN => std::ptr::null_mut(),
        ANY => with_connection::<S>(None),
        rmid => with_connection::<S>(Some(rmid)),
    }))
}

/// Recovers in all resource managers of this thread.
///
/// # Safety
/// `recovered` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_recover(recovered: *mut RecoveredCounts) -> c_int {
    call("holdfast_recover", |thread| {
        if thread.transaction.is_some() {
            return thread.misplaced();
        }
        let Some(found) = thread.recover() else { return thread.misplaced() };
        if !recovered.is_null() {
            // SAFETY: it is not null, so the caller says that it may be written.
            unsafe { recovered.write(RecoveredCounts::of(found)) };
        }
        TX_OK
    })
}

/// Takes the transaction from this thread, and writes its id.
///
/// # Safety
/// `id` is null or may be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_suspend(id: *mut c_char, size: usize) -> c_int {
    call("holdfast_suspend", |thread| {
        if !has_room(id, size) {
            return TX_EINVAL;
        }
        match thread.suspend() {
            Err(code) => code,
            Ok(suspended) => {
                // SAFETY: the caller says that there is room for as many bytes, which was checked to be enough.
                unsafe { write_id(suspended, id) };
                TX_OK
            }
        }
    })
}

/// Writes the id of this thread's transaction.
///
/// # Safety
/// `id` is null or may be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_id(id: *mut c_char, size: usize) -> c_int {
    call("holdfast_id", |thread| {
        let Some(transaction) = thread.transaction else { return thread.misplaced() };
        if !has_room(id, size) {
            return TX_EINVAL;
        }
        // SAFETY: the caller says that there is room for as many bytes, which was checked to be enough.
        unsafe { write_id(transaction.id, id) };
        TX_OK
    })
}

/// Gives a suspended transaction to this thread.
///
/// # Safety
/// `id` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_resume(id: *const c_char) -> c_int {
    call("holdfast_resume", |thread| {
        if !thread.allows_resume() {
            return thread.misplaced();
        }
        // SAFETY: the caller says that it is null or ends with a zero.
        let Some(id) = (unsafe { read_id(id) }) else { return TX_EINVAL };
        thread.resume(id)
    })
}

fn call(name: &str, call: impl FnOnce(&mut Thread) -> c_int) -> c_int {
    last_error::of_call(name, || with_thread(TX_FAIL, TX_PROTOCOL_ERROR, call))
}

/// Writes an id and a zero.
///
/// # Safety
/// `to` may be written for [`ID_BYTES`].
pub(crate) unsafe fn write_id(id: TransactionId, to: *mut c_char) {
    let text = id.to_string();
    assert!(text.len() < ID_BYTES, "an id has 65 characters at most");
    // SAFETY: the text and its zero fit, which was checked just now.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
}

/// Reads an id; notes what is wrong with it.
///
/// # Safety
/// `id` is null or ends with a zero.
pub(crate) unsafe fn read_id(id: *const c_char) -> Option<TransactionId> {
    if id.is_null() {
        last_error::set("the id is NULL".to_owned());
        return None;
    }
    // SAFETY: it is not null, and the caller says that it ends with a zero.
    let text = unsafe { CStr::from_ptr(id) }.to_string_lossy();
    text.parse().map_err(|error| last_error::set(format!("that is no transaction's id: {error}"))).ok()
}

/// Whether an id fits into so many bytes behind a pointer; notes what is wrong with them.
pub(crate) fn has_room(id: *const c_char, size: usize) -> bool {
    let fits = !id.is_null() && size >= ID_BYTES;
    if !fits {
        let what = if id.is_null() { "is NULL".to_owned() } else { format!("has {size}") };
        last_error::set(format!("an id takes HOLDFAST_ID_SIZE bytes, {ID_BYTES}, and the place for it {what}"));
    }
    fits
}
