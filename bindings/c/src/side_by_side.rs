//! The same call at several resource managers at once: those that can work by themselves are begun, the others are asked one after the
//! other, then what was begun is collected.
//!
//! What takes one call at a time and the driver's turns is in `drive.rs`; this is for parts that another program decides about.
//!
//! May use: `resource`. Must not know: transactions, what answers mean.

use std::ffi::c_int;

use crate::abi::{TMASYNC, TMNOFLAGS, XA_RETRY, XAER_ASYNC, XidData};
use crate::last_error;
use crate::resource::{Collected, Resource, Verb};

/// A branch, and whose it is.
pub(crate) type Named<'a> = (&'a dyn Resource, XidData);

/// Calls all of these. `hear` is told each answer by the branch's place, behind the reason that the resource manager noted for it.
pub(crate) fn call_all(verb: Verb, branches: &[Named<'_>], mut hear: impl FnMut(usize, c_int)) {
    let (mut own, mut under_way) = (Vec::new(), Vec::new());
    for (place, branch) in branches.iter().enumerate() {
        // One call alone gains nothing by not waiting.
        if branches.len() == 1 || !branch.0.is_asynchronous() {
            own.push((place, branch));
            continue;
        }
        last_error::clear();
        match branch.0.call(verb, &branch.1, TMASYNC) {
            XAER_ASYNC => own.push((place, branch)),
            handle if handle > 0 => under_way.push((place, branch, handle)),
            answer => hear(place, answer),
        }
    }
    for (place, branch) in own {
        last_error::clear();
        hear(place, branch.0.call(verb, &branch.1, TMNOFLAGS));
    }
    for (place, branch, handle) in under_way {
        last_error::clear();
        let answer = match branch.0.complete(handle, Collected::AtOnce) {
            XA_RETRY => branch.0.call(verb, &branch.1, TMNOFLAGS),
            answer => answer,
        };
        hear(place, answer);
    }
}
