//! Large blocks of memory straight from the system, and back to it when they are freed.
//!
//! An allocator for small blocks keeps what a thread has freed for what that thread asks for next, and hands back what another thread
//! frees only when the first one comes by again. A reply of 20 MB is made in one thread and freed in another: after some hundred of them
//! a server held a gigabyte that nobody used (measured: `GET` of 20 MB by one client, one behind the other, mimalloc 2). A large block costs
//! its pages anyway, beside which two system calls are little; growing moves the pages instead of copying what is in them.
//!
//! May use: the operating system. Must not know: what is in the memory.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its interface, and a mapping is memory that only the system knows of"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// Blocks from this size on come from the system. What comes and goes often is smaller: pieces that are read, written and sent.
const LARGE_BYTES: usize = 2 << 20;
/// The least page of any system that there is. A mapping begins at a page.
const PAGE_BYTES: usize = 4 << 10;

/// Small blocks from `A`, those of 2 MiB and more from the system.
#[derive(Debug, Default)]
pub struct LargeApart<A>(pub A);

/// By the size and alignment alone, which whoever frees the block says again.
const fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE_BYTES && layout.align() <= PAGE_BYTES
}

fn map(bytes: usize) -> *mut u8 {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the system chooses the address, so no memory of the process is touched.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { ptr::null_mut() } else { mapped.cast() }
}

// SAFETY: blocks are apart from each other, of the size and alignment asked for, and each goes back to where it came from, which its layout
// says. Nothing here panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for LargeApart<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            true => map(layout.size()),
            // SAFETY: the caller's promises are passed on.
            false => unsafe { self.0.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_large(layout) {
            // A new mapping is zeros.
            true => map(layout.size()),
            // SAFETY: the caller's promises are passed on.
            false => unsafe { self.0.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match is_large(layout) {
            // SAFETY: it was mapped with this size, and nobody uses it any more. That this fails leaves it mapped.
            true => unsafe {
                libc::munmap(block.cast(), layout.size());
            },
            // SAFETY: the caller's promises are passed on, and the block came from there.
            false => unsafe { self.0.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size with the alignment is one of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_bytes, layout.align()) };
        match (is_large(layout), is_large(new)) {
            // SAFETY: the caller's promises are passed on, and the block came from there.
            (false, false) => unsafe { self.0.realloc(block, layout, new_bytes) },
            (true, true) => {
                // SAFETY: it was mapped with this size, and whoever has its address gives it up for the new one.
                let moved = unsafe { libc::mremap(block.cast(), layout.size(), new_bytes, libc::MREMAP_MAYMOVE) };
                if moved == libc::MAP_FAILED { ptr::null_mut() } else { moved.cast() }
            }
            // SAFETY: both blocks hold the lesser of the sizes and are apart; the old one is freed when there is a new one.
            _ => unsafe {
                let to = self.alloc(new);
                if !to.is_null() {
                    ptr::copy_nonoverlapping(block, to, layout.size().min(new_bytes));
                    self.dealloc(block, layout);
                }
                to
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    const ALLOCATOR: LargeApart<System> = LargeApart(System);
    const PAGES_MAX: usize = if cfg!(miri) { 4 } else { 1_500 };

    /// A block with a pattern in it, at its beginning and its end.
    struct Block {
        at: *mut u8,
        layout: Layout,
        number: u8,
    }

    impl Block {
        fn new(bytes: usize, align: usize, number: u8) -> Self {
            let layout = Layout::from_size_align(bytes, align).unwrap();
            // SAFETY: no block is empty here.
            let at = unsafe { ALLOCATOR.alloc_zeroed(layout) };
            assert!(!at.is_null() && at.addr().is_multiple_of(align));
            let mut block = Block { at, layout, number };
            assert!(block.bytes().iter().all(|byte| *byte == 0));
            block.bytes().fill(number);
            block
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: it is so long, and nobody else has it.
            unsafe { std::slice::from_raw_parts_mut(self.at, self.layout.size()) }
        }

        fn resize(&mut self, bytes: usize) {
            let (number, before) = (self.number, self.layout.size());
            // SAFETY: it came from there with this layout.
            self.at = unsafe { ALLOCATOR.realloc(self.at, self.layout, bytes) };
            assert!(!self.at.is_null());
            self.layout = Layout::from_size_align(bytes, self.layout.align()).unwrap();
            let kept = before.min(bytes);
            assert!(self.bytes()[..kept].iter().all(|byte| *byte == number));
            self.bytes().fill(number);
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: it came from there with this layout.
            unsafe { ALLOCATOR.dealloc(self.at, self.layout) };
        }
    }

    #[test]
    fn blocks_keep_what_is_in_them_however_they_grow_and_shrink() {
        let mut random = 7u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        let mut blocks: Vec<Block> = Vec::new();
        for step in 0..400 {
            // Around the border most of the time.
            let bytes = match next(4) {
                0 => 1 + next(10_000),
                1 => LARGE_BYTES - 2 + next(4),
                2 => LARGE_BYTES + next(PAGES_MAX) * PAGE_BYTES,
                _ => LARGE_BYTES - 1 - next(PAGES_MAX / 4) * PAGE_BYTES,
            };
            match next(3) {
                0 if !blocks.is_empty() => drop(blocks.swap_remove(next(blocks.len()))),
                1 if !blocks.is_empty() => {
                    let at = next(blocks.len());
                    blocks[at].resize(bytes);
                }
                _ => blocks.push(Block::new(bytes, 1 << next(14), step as u8)),
            }
            let of = blocks.len().saturating_sub(8);
            blocks.drain(..of);
        }
    }

    #[test]
    fn what_is_freed_the_system_has_back_whichever_thread_frees_it() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        let before = resident();
        let (to, from) = std::sync::mpsc::sync_channel::<usize>(0);
        let bytes = 64 << 20;
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        let freer = std::thread::spawn(move || {
            for at in from {
                // SAFETY: the other thread has given it away.
                unsafe { ALLOCATOR.dealloc(ptr::with_exposed_provenance_mut(at), layout) };
            }
        });
        for number in 0..8 {
            let mut block = Block::new(bytes, 8, number);
            assert!(block.bytes()[bytes - 1] == number);
            to.send(block.at.expose_provenance()).unwrap();
            std::mem::forget(block);
        }
        drop(to);
        freer.join().unwrap();
        let now = resident();
        // Room for what other tests have meanwhile.
        assert!(now < before + 2 * bytes, "{now} bytes, and {before} before");
    }
}
