//! The end of the process: coordinators are closed, so that what they were to be told lazily is told.
//!
//! Without it the decisions of the last moments would be remembered for ever, because nobody said that they are known.
//! A process that is killed leaves such; a process that ends does not.
//!
//! May use: `opening`. Must not know: what closing does.
#![allow(unsafe_code, reason = "only the C library knows when a process ends")]

use std::ffi::c_int;
use std::process;
use std::sync::OnceLock;

use crate::opening;
use crate::thread::guard;

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> c_int;
}

/// The process that opened something. A child that was forked has none of its threads, and closes nothing.
static OPENED_BY: OnceLock<u32> = OnceLock::new();

/// Has everything closed when the process ends.
pub(crate) fn close_at_exit() {
    OPENED_BY.get_or_init(|| {
        // SAFETY: the function may be called at any time, does not unwind, and stays as long as this library.
        if unsafe { atexit(close) } != 0 {
            tracing::warn!("the C library takes no more calls for the end of the process");
        }
        process::id()
    });
}

extern "C" fn close() {
    if OPENED_BY.get() == Some(&process::id()) {
        guard((), opening::close_all);
    }
}
