//! The switches and what they call. A thread's instances are its own, as the XA standard has it.
//!
//! May use: `abi`, `instance`. Must not know: what scripts say.
#![allow(unsafe_code, reason = "an XA switch is made of C functions")]
#![allow(non_upper_case_globals, reason = "symbols of a switch are in lower case by custom")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_long};

use libloading::os::unix::Library;

use crate::abi::{
    Switch, TMASYNC, TMER_TMERR, TMNOMIGRATE, TMREGISTER, TMSTARTRSCAN, TMUSEASYNC, XA_OK, XAER_INVAL, XAER_PROTO, Xid,
    name,
};
use crate::instance::Instance;

#[derive(Default)]
struct Thread {
    instances: BTreeMap<c_int, Instance>,
    /// What the calls that are under way will answer, by their handles.
    under_way: BTreeMap<c_int, c_int>,
    last_handle: c_int,
    /// Where each listing of prepared branches has come to.
    listed: BTreeMap<c_int, usize>,
}

thread_local! {
    static OWN: RefCell<Thread> = RefCell::default();
}

/// A switch of a resource manager that takes part in every transaction.
#[unsafe(no_mangle)]
pub static holdfast_monkey_static: Switch = switch(b"monkey static", 0);
/// A switch of a resource manager that registers itself.
#[unsafe(no_mangle)]
pub static holdfast_monkey_dynamic: Switch = switch(b"monkey dynamic", TMREGISTER | TMNOMIGRATE);
/// A switch of a resource manager that works while the caller does other things.
#[unsafe(no_mangle)]
pub static holdfast_monkey_async: Switch = switch(b"monkey async", TMUSEASYNC);

const fn switch(text: &[u8], flags: c_long) -> Switch {
    Switch {
        name: name(text),
        flags,
        version: 0,
        open,
        close,
        start,
        end,
        rollback,
        prepare,
        commit,
        recover,
        forget,
        complete,
    }
}

unsafe extern "C" fn open(info: *mut c_char, rmid: c_int, flags: c_long) -> c_int {
    // SAFETY: the transaction manager hands in a string that ends with a zero, and keeps it during the call.
    let info = unsafe { CStr::from_ptr(info) };
    let Ok(info) = info.to_str() else { return XAER_INVAL };
    match Instance::open(info, rmid, None) {
        Err(_) => XAER_INVAL,
        Ok(mut instance) => {
            let code = instance.answer("open", None, flags);
            if code == XA_OK {
                OWN.with_borrow_mut(|own| own.instances.insert(rmid, instance));
            }
            code
        }
    }
}

unsafe extern "C" fn close(_info: *mut c_char, rmid: c_int, flags: c_long) -> c_int {
    OWN.with_borrow_mut(|own| {
        // The standard lets a resource manager be closed that is not open.
        let Some(instance) = own.instances.get_mut(&rmid) else { return XA_OK };
        let code = instance.answer("close", None, flags);
        own.instances.remove(&rmid);
        code
    })
}

fn answer(verb: &str, xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    // SAFETY: the transaction manager hands in a branch's name, and keeps it during the call; or null, which is none.
    let Some(xid) = (unsafe { xid.as_ref() }) else { return XAER_INVAL };
    OWN.with_borrow_mut(|own| {
        let Some(instance) = own.instances.get_mut(&rmid) else { return XAER_PROTO };
        let code = instance.answer(verb, Some(xid), flags);
        if flags & TMASYNC == 0 {
            return code;
        }
        own.last_handle = own.last_handle.saturating_add(1);
        own.under_way.insert(own.last_handle, code);
        own.last_handle
    })
}

unsafe extern "C" fn start(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("start", xid, rmid, flags)
}

unsafe extern "C" fn end(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("end", xid, rmid, flags)
}

unsafe extern "C" fn rollback(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("rollback", xid, rmid, flags)
}

unsafe extern "C" fn prepare(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("prepare", xid, rmid, flags)
}

unsafe extern "C" fn commit(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("commit", xid, rmid, flags)
}

unsafe extern "C" fn forget(xid: *mut Xid, rmid: c_int, flags: c_long) -> c_int {
    answer("forget", xid, rmid, flags)
}

unsafe extern "C" fn recover(xids: *mut Xid, count: c_long, rmid: c_int, flags: c_long) -> c_int {
    let Ok(count_max) = usize::try_from(count) else { return XAER_INVAL };
    if xids.is_null() && count_max > 0 {
        return XAER_INVAL;
    }
    OWN.with_borrow_mut(|own| {
        let Some(instance) = own.instances.get_mut(&rmid) else { return XAER_PROTO };
        let code = instance.answer("recover", None, flags);
        if code < XA_OK {
            return code;
        }
        let at = if flags & TMSTARTRSCAN != 0 { 0 } else { own.listed.get(&rmid).copied().unwrap_or_default() };
        let mut given = 0;
        for xid in instance.prepared().into_iter().skip(at).take(count_max) {
            // SAFETY: the caller has room for `count` names behind `xids`, and `given` stays below it.
            unsafe { xids.add(given).write(xid) };
            given = given.saturating_add(1);
        }
        own.listed.insert(rmid, at.saturating_add(given));
        c_int::try_from(given).unwrap_or(c_int::MAX)
    })
}

unsafe extern "C" fn complete(handle: *mut c_int, retval: *mut c_int, rmid: c_int, flags: c_long) -> c_int {
    // SAFETY: the transaction manager hands in two numbers of its own, and keeps them during the call; or null.
    let (Some(handle), Some(retval)) = (unsafe { handle.as_ref() }, unsafe { retval.as_mut() }) else {
        return XAER_INVAL;
    };
    OWN.with_borrow_mut(|own| {
        let Some(instance) = own.instances.get_mut(&rmid) else { return XAER_PROTO };
        let code = instance.answer("complete", None, flags);
        let Some(answer) = own.under_way.remove(handle) else { return XAER_INVAL };
        *retval = answer;
        code
    })
}

type Register = unsafe extern "C" fn(c_int, *mut Xid, c_long) -> c_int;
type Unregister = unsafe extern "C" fn(c_int, c_long) -> c_int;

/// Does some work in the resource manager of this number: the dynamic monkey registers. Returns what `ax_reg` said.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_monkey_work(rmid: c_int) -> c_int {
    let mut xid = Xid { format: -1, gtrid_length: 0, bqual_length: 0, data: [0; 128] };
    // SAFETY: `ax_reg` of the program's transaction manager has this form by the standard, and `xid` outlives the call.
    unsafe {
        Library::this().get::<Register>(b"ax_reg\0").map_or(TMER_TMERR, |register| register(rmid, &raw mut xid, 0))
    }
}

/// Ends work that was done outside of a transaction. Returns what `ax_unreg` said.
#[unsafe(no_mangle)]
pub extern "C" fn holdfast_monkey_leave(rmid: c_int) -> c_int {
    // SAFETY: `ax_unreg` of the program's transaction manager has this form by the standard.
    unsafe { Library::this().get::<Unregister>(b"ax_unreg\0").map_or(TMER_TMERR, |unregister| unregister(rmid, 0)) }
}
