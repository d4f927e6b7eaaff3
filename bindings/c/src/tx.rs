//! The nine calls of X/Open TX as C functions. What they mean is in `control.rs`, and in `tx.h`.
//!
//! May use: `abi`, `control`, `opening`, `thread`. Must not know: how transactions end.
#![allow(unsafe_code, reason = "these are C functions, called by programs")]

use std::ffi::{c_int, c_long};

use crate::abi::{TX_FAIL, TX_PROTOCOL_ERROR, TxInfo};
use crate::control::{End, Thread};
use crate::last_error;
use crate::opening;
use crate::thread::with_thread;

fn call(name: &str, call: impl FnOnce(&mut Thread) -> c_int) -> c_int {
    last_error::of_call(name, || with_thread(TX_FAIL, TX_PROTOCOL_ERROR, call))
}

/// Opens the resource managers of the profile for this thread. Does nothing when they are open.
#[unsafe(no_mangle)]
pub extern "C" fn tx_open() -> c_int {
    call("tx_open", |thread| thread.open(opening::manager_of_environment))
}

/// Closes the resource managers for this thread. Does nothing when they are closed.
#[unsafe(no_mangle)]
pub extern "C" fn tx_close() -> c_int {
    call("tx_close", Thread::close)
}

/// Begins a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn tx_begin() -> c_int {
    call("tx_begin", Thread::begin)
}

/// Commits the transaction.
#[unsafe(no_mangle)]
pub extern "C" fn tx_commit() -> c_int {
    call("tx_commit", |thread| thread.end(End::Commit))
}

/// Rolls the transaction back.
#[unsafe(no_mangle)]
pub extern "C" fn tx_rollback() -> c_int {
    call("tx_rollback", |thread| thread.end(End::Rollback))
}

/// Tells about the transaction: 1 when there is one, 0 when not. `info` may be null.
///
/// # Safety
/// `info` is null or points to a `TXINFO` that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tx_info(info: *mut TxInfo) -> c_int {
    call("tx_info", |thread| {
        let Some((found, active)) = thread.info() else { return thread.misplaced() };
        if !info.is_null() {
            // SAFETY: it is not null, so the caller says that it may be written.
            unsafe { info.write(found) };
        }
        c_int::from(active)
    })
}

/// Says when `tx_commit` returns.
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_commit_return(when_return: c_long) -> c_int {
    call("tx_set_commit_return", |thread| thread.set_commit_return(when_return))
}

/// Says whether transactions are chained.
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_transaction_control(control: c_long) -> c_int {
    call("tx_set_transaction_control", |thread| thread.set_control(control))
}

/// Says how many seconds the next transaction may take; 0 for as long as it likes.
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_transaction_timeout(seconds: c_long) -> c_int {
    call("tx_set_transaction_timeout", |thread| thread.set_timeout(seconds))
}
