//! Why the last call of this thread failed, in words: the codes of the standards say little.
//!
//! Every call that fails has a reason of its own: where nobody noted one, its code in words. A call that goes well clears
//! nothing, and may note what it met on its way.
//!
//! A text that a program was given stays where it is whatever else the library does meanwhile, until the program asks again
//! after another failure.
//!
//! May use: `abi` for codes. Must not know: who fails.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use crate::abi::{
    TX_COMMITTED, TX_EINVAL, TX_ERROR, TX_HAZARD, TX_MIXED, TX_NO_BEGIN, TX_OUTSIDE, TX_PROTOCOL_ERROR, TX_ROLLBACK,
};

thread_local! {
    static LAST: RefCell<Reasons> = RefCell::default();
}

#[derive(Default)]
struct Reasons {
    /// Of the last failure.
    last: CString,
    /// Whether it was noted since [`clear`].
    is_new: bool,
    /// Whether it was noted since the program's call began.
    is_of_call: bool,
    /// What the program was given.
    shown: CString,
}

/// Makes a call of the program's; when it fails and no reason was noted meanwhile, that is its code in words.
pub(crate) fn of_call(name: &str, call: impl FnOnce() -> c_int) -> c_int {
    with(|reasons| reasons.is_of_call = false);
    let code = call();
    if code < 0 && !with(|reasons| reasons.is_of_call) {
        set(format!("{name}: {}", words_of(code)));
    }
    code
}

/// Notes why a call is refused, and answers with the code.
pub(crate) fn refuse(code: c_int, why: impl Into<String>) -> c_int {
    set(why.into());
    code
}

/// What a code says.
fn words_of(code: c_int) -> &'static str {
    match if code < TX_NO_BEGIN { code - TX_NO_BEGIN } else { code } {
        TX_OUTSIDE => "a resource manager works outside of transactions",
        TX_ROLLBACK => "the transaction is rolled back",
        TX_COMMITTED => "the transaction is committed, by a resource manager's own decision",
        TX_MIXED => "the transaction is committed in part and rolled back in part",
        TX_HAZARD => "the transaction may be committed in part and rolled back in part",
        TX_PROTOCOL_ERROR => "the call is not allowed now",
        TX_EINVAL => "an argument is wrong",
        TX_ERROR => "there is a fault that may pass",
        _ => "a resource manager or the library cannot go on",
    }
}

/// Uses what is noted; a thread that is about to end has nothing noted any more.
fn with<T: Default>(call: impl FnOnce(&mut Reasons) -> T) -> T {
    LAST.try_with(|reasons| call(&mut reasons.borrow_mut())).unwrap_or_default()
}

/// Notes a reason, for `holdfast_last_error` and for the log.
pub(crate) fn set(reason: String) {
    tracing::warn!("{reason}");
    // Databases say some things in several lines; programs write theirs into logs.
    let mut bytes = reason.replace('\n', " ").into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).unwrap_or_default();
    with(|reasons| (reasons.last, reasons.is_new, reasons.is_of_call) = (text, true, true));
}

/// Before a call whose reasons are wanted: those from before are not its.
pub(crate) fn clear() {
    with(|reasons| reasons.is_new = false);
}

/// Notes what failed, with the reason that was noted since [`clear`].
pub(crate) fn set_with_reason(what: &str) {
    let reason = with(|reasons| reasons.is_new.then(|| reasons.last.to_string_lossy().into_owned()));
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

    use super::{clear, get, of_call, set, set_with_reason, text};
    use crate::abi::{TX_EINVAL, TX_MIXED, TX_NO_BEGIN, TX_OK};

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

    /// The reason of another call was told, of long before.
    #[test]
    fn a_call_that_fails_has_a_reason_of_its_own_and_one_that_goes_well_clears_nothing() {
        set("of long before".to_owned());
        assert_eq!(of_call("tx_x", || TX_OK), TX_OK);
        assert_eq!(text(), "of long before");
        assert_eq!(of_call("tx_x", || TX_EINVAL), TX_EINVAL);
        assert_eq!(text(), "tx_x: an argument is wrong");
        of_call("tx_x", || TX_NO_BEGIN + TX_MIXED);
        assert_eq!(text(), "tx_x: the transaction is committed in part and rolled back in part");
        let noted = || {
            set("the seconds are less than 0".to_owned());
            clear();
            TX_EINVAL
        };
        of_call("tx_x", noted);
        assert_eq!(text(), "the seconds are less than 0");
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
