//! Why the last call of this thread failed, in words: the codes of the standards say little.
//!
//! A text that a program was given stays where it is whatever else the library does meanwhile, until the program asks again
//! after another failure.
//!
//! May use: std. Must not know: who fails.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<Reasons> = RefCell::default();
}

#[derive(Default)]
struct Reasons {
    /// Of the last failure.
    last: CString,
    /// Whether it was noted since [`clear`].
    is_new: bool,
    /// What the program was given.
    shown: CString,
}

/// Notes a reason, for `holdfast_last_error` and for the log.
pub(crate) fn set(reason: String) {
    tracing::warn!("{reason}");
    let mut bytes = reason.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).unwrap_or_default();
    LAST.with_borrow_mut(|reasons| (reasons.last, reasons.is_new) = (text, true));
}

/// Before a call whose reasons are wanted: those from before are not its.
pub(crate) fn clear() {
    LAST.with_borrow_mut(|reasons| reasons.is_new = false);
}

/// Notes what failed, with the reason that was noted since [`clear`].
pub(crate) fn set_with_reason(what: &str) {
    let reason = LAST.with_borrow(|reasons| reasons.is_new.then(|| reasons.last.to_string_lossy().into_owned()));
    set(reason.map_or_else(|| what.to_owned(), |reason| format!("{what}: {reason}")));
}

/// The last reason, for tests.
#[cfg(test)]
pub(crate) fn text() -> String {
    LAST.with_borrow(|reasons| reasons.last.to_string_lossy().into_owned())
}

/// The last reason; good until this is called again after another failure in this thread.
pub(crate) fn get() -> *const c_char {
    LAST.with_borrow_mut(|reasons| {
        if reasons.shown != reasons.last {
            reasons.shown.clone_from(&reasons.last);
        }
        reasons.shown.as_ptr()
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};

    use super::{clear, get, set, set_with_reason};

    #[expect(unsafe_code, reason = "a text is read as a C program reads it")]
    fn read(text: *const c_char) -> String {
        // SAFETY: the test says that it is good still; it ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    /// `why = holdfast_last_error(); tx_rollback(); puts(why);` read memory that the rollback had freed.
    #[test]
    fn a_reason_that_was_given_out_stays_where_it_is_while_other_calls_are_made() {
        assert_eq!(read(get()), "");
        set("the first".to_owned());
        let first = get();
        clear();
        assert_eq!((read(first).as_str(), get()), ("the first", first), "no other call failed");
        set("of a call within one that goes well".to_owned());
        assert_eq!(read(first), "the first");
        assert_eq!(read(get()), "of a call within one that goes well");
    }

    #[test]
    fn only_what_was_noted_since_is_the_reason_of_a_failure() {
        set("something else".to_owned());
        clear();
        set_with_reason("xa_start failed");
        assert_eq!(read(get()), "xa_start failed");
        clear();
        set("no room".to_owned());
        set_with_reason("xa_end failed");
        assert_eq!(read(get()), "xa_end failed: no room");
    }
}
