//! Memory that is fetched before it is looked at.
//!
//! May use: nothing. Must not know: what is there.

#![allow(unsafe_code, reason = "the processor's hint is an intrinsic that takes an address")]

/// Has the processor fetch the line of memory in which `place` begins, while the program goes on. A look-up that goes from one
/// place to the next waits for each, some hundred nanoseconds where the processor's caches do not hold it. Nothing happens where
/// there is no such hint.
#[inline]
pub fn fetch_ahead<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint reads nothing, whatever it is given.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
