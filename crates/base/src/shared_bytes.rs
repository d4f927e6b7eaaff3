//! Bytes that several have, behind one thin pointer.
//!
//! An `Arc<[u8]>` has its length in the pointer, and a second count beside the first: 32 bytes for who keeps one. Here count and length lie in 8
//! bytes before the bytes, and the pointer is 8 more: what a store in memory keeps by the million is 16 bytes each.
//!
//! In memory alone, a block is the count, the length and the bytes, and begins at a multiple of 4.
//!
//! May use: the allocator. Must not know: what the bytes are.

#![allow(
    unsafe_code,
    reason = "a block whose length is known when it is made alone, and which goes with the last who has it"
)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::process::abort;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// With more the count might go round: far more than threads that could have counted one each beyond it.
const COUNT_MAX: u32 = u32::MAX / 2;

#[repr(C)]
struct Head {
    count: AtomicU32,
    length: u32,
}

/// Bytes that nobody changes. Cheap to clone: clones are the same bytes, in all threads.
///
/// Equality is that of the bytes.
pub struct SharedBytes(NonNull<Head>);

// SAFETY: nobody changes the bytes, and the count is atomic.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// What a block takes beside its bytes, without the allocator's part.
    pub const HEAD_BYTES: usize = size_of::<Head>();

    /// A copy of these bytes.
    ///
    /// # Panics
    /// When there are more than `u32::MAX`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("who shares bytes has a limit below 4 GiB");
        let layout = layout(bytes.len());
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc(layout) };
        let Some(head) = NonNull::new(block.cast::<Head>()) else { handle_alloc_error(layout) };
        // SAFETY: the block is aligned for the head, as long as head and bytes together, and nobody else has it.
        unsafe {
            head.write(Head { count: AtomicU32::new(1), length });
            ptr::copy_nonoverlapping(bytes.as_ptr(), head.add(1).cast::<u8>().as_ptr(), bytes.len());
        }
        Self(head)
    }

    /// Has the processor fetch so many lines of memory from where they begin: see [`Line::fetch_ahead`](crate::Line::fetch_ahead). Does
    /// not look at their length, which lies there too.
    pub fn fetch_ahead(&self, lines: usize) {
        crate::ahead::fetch_lines_ahead(self.0.addr().get(), lines);
    }

    fn head(&self) -> &Head {
        // SAFETY: the block is there as long as somebody has it, and nothing but its count changes.
        unsafe { self.0.as_ref() }
    }
}

/// Of a block with so many bytes.
fn layout(length: usize) -> Layout {
    let bytes = Layout::array::<u8>(length).and_then(|bytes| Layout::new::<Head>().extend(bytes));
    bytes.expect("4 GiB are no whole address space").0
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes were written behind the head when the block was made.
        unsafe { slice::from_raw_parts(self.0.add(1).cast::<u8>().as_ptr(), self.head().length as usize) }
    }
}

impl Clone for SharedBytes {
    fn clone(&self) -> Self {
        // Who has one may hand out others without seeing what anybody else did.
        if self.head().count.fetch_add(1, Ordering::Relaxed) > COUNT_MAX {
            abort();
        }
        Self(self.0)
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // All that others did with the bytes comes before the last one gives them back.
        if self.head().count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let layout = layout(self.len());
        // SAFETY: it came from there with this layout, and nobody else has it.
        unsafe { dealloc(self.0.cast::<u8>().as_ptr(), layout) };
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn they_are_the_bytes_that_were_given_and_take_a_pointer() {
        assert_eq!(size_of::<Option<SharedBytes>>(), 8);
        assert_eq!(SharedBytes::HEAD_BYTES, 8);
        let lengths = if cfg!(miri) { 0..20 } else { 0..5_000 };
        let bytes: Vec<u8> = (0..lengths.end).map(|at: usize| at.to_le_bytes()[0]).collect();
        for length in lengths {
            let shared = SharedBytes::new(&bytes[..length]);
            assert_eq!(&*shared, &bytes[..length]);
            let other = SharedBytes::new(&bytes[..length]);
            assert_eq!(shared, other);
            assert_ne!(shared, SharedBytes::new(&bytes[..length + 1]));
            drop(shared.clone());
            assert_eq!(shared.clone(), other);
        }
    }

    /// By Miri and by sanitizers: the block goes once, and nobody reads it afterwards.
    #[test]
    fn the_last_of_several_threads_gives_them_back() {
        let rounds = if cfg!(miri) { 10 } else { 1_000 };
        for round in 0..rounds {
            let shared = SharedBytes::new(&[7; 100]);
            thread::scope(|scope| {
                for _ in 0..3 {
                    let mine = shared.clone();
                    scope.spawn(move || {
                        let another = mine.clone();
                        drop(mine);
                        assert_eq!(another[round % 100], 7);
                    });
                }
                drop(shared);
            });
        }
    }
}
