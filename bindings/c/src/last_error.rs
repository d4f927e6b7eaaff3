//! Why the last call of this thread failed, in words: the codes of the standards say little.
//!
//! May use: std. Must not know: who fails.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Notes a reason, for `holdfast_last_error` and for the log.
pub(crate) fn set(reason: String) {
    tracing::warn!("{reason}");
    let mut bytes = reason.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = text);
}

/// Forgets, before a call whose reasons are wanted.
pub(crate) fn clear() {
    LAST.with_borrow_mut(|last| *last = CString::default());
}

/// Notes what failed, with the reason that was noted since [`clear`].
pub(crate) fn set_with_reason(what: &str) {
    let reason = LAST.with_borrow(|last| last.to_string_lossy().into_owned());
    set(if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") });
}

/// The last reason; good until the next failure in this thread.
pub(crate) fn get() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}
