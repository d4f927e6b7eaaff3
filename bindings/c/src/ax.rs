//! `ax_reg` and `ax_unreg`: a resource manager tells by itself when a thread begins to work in it.
//!
//! A program that does not touch a resource manager in a transaction so has no branch in it, and nothing to pay for it.
//!
//! May use: `abi`, `control`, `thread`. Must not know: what is done with the branch later.
#![allow(unsafe_code, reason = "these are C functions, called by vendors' libraries")]

use std::ffi::{c_int, c_long};

use crate::abi::{TM_OK, TM_RESUME, TMER_INVAL, TMER_PROTO, TMER_TMERR, TMNOFLAGS, XidData};
use crate::control::{Association, Thread, name};
use crate::thread::with_thread;

/// Begins work in a resource manager of a switch with `TMREGISTER`, and tells the branch.
///
/// Answers `TM_OK`, or `TM_RESUME` when the branch was suspended. Outside of a transaction the name is null, and `ax_unreg` has to say when the work is over. `TMER_INVAL` for a number that is no such
/// resource manager's, a null pointer, or flags; `TMER_PROTO` when nothing is open, or it is registered already.
///
/// # Safety
/// `xid` is null or points to a name that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ax_reg(rmid: c_int, xid: *mut XidData, flags: c_long) -> c_int {
    // SAFETY: the caller says that it is null or may be written during the call.
    let Some(xid) = (unsafe { xid.as_mut() }) else { return TMER_INVAL };
    with_thread(TMER_TMERR, TMER_PROTO, |thread| register(thread, rmid, xid, flags))
}

/// Ends work that was begun outside of a transaction. `TMER_PROTO` when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn ax_unreg(rmid: c_int, flags: c_long) -> c_int {
    with_thread(TMER_TMERR, TMER_PROTO, |thread| unregister(thread, rmid, flags))
}

fn register(thread: &mut Thread, rmid: c_int, xid: &mut XidData, flags: c_long) -> c_int {
    let Some(manager) = thread.manager.clone() else { return TMER_PROTO };
    let place = usize::try_from(rmid).unwrap_or(usize::MAX);
    let Some(resource) = manager.resources.get(place).filter(|resource| resource.is_dynamic()) else {
        return TMER_INVAL;
    };
    if flags != TMNOFLAGS {
        return TMER_INVAL;
    }
    let Some(transaction) = thread.transaction else {
        if thread.association(place) != Association::None {
            return TMER_PROTO;
        }
        thread.associate(place, Association::Outside);
        *xid = XidData::NULL;
        return TM_OK;
    };
    let answer = match thread.association(place) {
        Association::None => TM_OK,
        Association::Suspended => TM_RESUME,
        Association::Active | Association::Outside => return TMER_PROTO,
    };
    thread.associate(place, Association::Active);
    *xid = name(resource, transaction.id);
    answer
}

fn unregister(thread: &mut Thread, rmid: c_int, flags: c_long) -> c_int {
    let Some(manager) = thread.manager.clone() else { return TMER_PROTO };
    let place = usize::try_from(rmid).unwrap_or(usize::MAX);
    if flags != TMNOFLAGS || !manager.resources.get(place).is_some_and(|resource| resource.is_dynamic()) {
        return TMER_INVAL;
    }
    if thread.association(place) != Association::Outside {
        return TMER_PROTO;
    }
    thread.associate(place, Association::None);
    TM_OK
}
