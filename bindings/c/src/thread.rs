//! Where each thread of the operating system keeps its thread of control, and the border no panic crosses.
//!
//! May use: `control`. Must not know: what calls do.

use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::control::Thread;
use crate::last_error;

thread_local! {
    static OWN: RefCell<Thread> = RefCell::default();
}

/// Runs a call with the thread's own state. `failed` is the answer when there is a fault in this library, `busy` when a
/// resource manager calls while it is being called.
pub(crate) fn with_thread(failed: c_int, busy: c_int, call: impl FnOnce(&mut Thread) -> c_int) -> c_int {
    guard(failed, || {
        // A thread that is about to end has no state any more.
        OWN.try_with(|own| own.try_borrow_mut().map_or(busy, |mut thread| call(&mut thread))).unwrap_or(busy)
    })
}

/// Runs a call; when it panics, the answer is `failed`.
pub(crate) fn guard<T>(failed: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        last_error::set("there is a fault in libholdfast; what was printed before says where".to_owned());
        failed
    })
}
