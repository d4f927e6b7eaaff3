//! Small writes into the system's own pages of a file, without a system call for each.
//!
//! The pages of a shared mapping *are* the system's cache of the file: what is stored there survives the process as what
//! `pwrite` was given does, whoever reads the file sees it, and a sync of the file puts it on the disk. It costs a fraction of
//! the call (measured: 0.1 to 0.4 us for 1 KiB, where `pwrite` takes 1.2 to 2.2 us), and many writers queue behind that call.
//!
//! What differs is how a failure is told: not by an error, but by the signal SIGBUS at the store. The first mapping of a process
//! installs a handler for it. When the address is in one of these mappings it puts a page of plain memory there and takes a note,
//! the store goes on into that page, and the write returns an error, as a `pwrite` would have. Every other SIGBUS goes to whoever
//! handled it before. (journald does the same: systemd, `src/libsystemd/sd-journal`, "sigbus".)
//!
//! A process may be killed in the middle of a write. Then a beginning of it is there, as after an interrupted call.
//!
//! Only below what [`Mapped::reserved`] was told, because a store behind the end of a file is such a failure too, and only on file
//! systems where a page with reserved space never needs new space to be written: ext4 and its elders, and XFS. Elsewhere, and
//! when there is no mapping to have, nothing is written here, and the caller does it by a call.
//!
//! The first store into a page is a fault, which takes longer than the store. Whoever has time for it has pages made ready before
//! ([`Mapped::make_ready`]), in the window that is written or in the next one, beside whoever stores.
//!
//! May use: the operating system. Must not know: what is written.

#![allow(
    unsafe_code,
    reason = "a mapping is memory that only the system knows of, and a signal handler is a C function"
)]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::ahead::{LINE_BYTES, fetch_lines_ahead};
use crate::files::SMALL_WRITE_BYTES_MAX;

/// Bytes of a file that are mapped at a time. They count as the process' memory while they are. As many as the processor's large
/// pages have: then the system aligns a mapping so that a part of the file which it keeps in one piece is there after one fault.
const WINDOW_BYTES: u64 = 2 << 20;
/// Most windows of a process at a time; a store has one to four.
const SLOTS: usize = 128;
/// Lines behind what was written that are fetched ahead: as many as it had, and not more than these.
const NEXT_LINES_MAX: usize = 64;
/// What `statfs` says of ext2, ext3 and ext4, and of XFS.
const KNOWN: [i64; 2] = [0xEF53, 0x5846_5342];

/// What a file needs for it.
#[derive(Default)]
pub(crate) struct Mapped {
    /// Whether somebody asked for it, and it is possible.
    is_wanted: AtomicBool,
    /// The file is at least so long, and has space up to there.
    reserved: AtomicU64,
    windows: Mutex<Windows>,
}

/// The parts of a file that are in memory.
#[derive(Default)]
struct Windows {
    /// Where it is written.
    now: Option<Arc<Window>>,
    /// What was prepared behind that.
    next: Option<Arc<Window>>,
}

/// A part of a file in memory.
struct Window {
    start: *mut u8,
    /// Where it begins in the file.
    from: u64,
    slot: &'static Slot,
}

// SAFETY: the address is valid in all threads.
unsafe impl Send for Window {}
// SAFETY: whoever stores has the lock of the file's windows; who makes pages ready has not, and changes no byte of them.
unsafe impl Sync for Window {}

/// A window as the handler sees it.
struct Slot {
    is_taken: AtomicBool,
    /// Zero while there is no window.
    start: AtomicUsize,
    has_failed: AtomicBool,
}

static WINDOWS: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
static HANDLING: OnceLock<Handling> = OnceLock::new();

/// What the handler needs beside the windows.
struct Handling {
    page_bytes: usize,
    /// Who handled the signal before.
    before: libc::sigaction,
}

impl Mapped {
    /// Small writes to `file` go into its pages from now on, if that can be; says whether.
    pub(crate) fn want(&self, file: &fs::File) -> bool {
        let is_known = rustix::fs::fstatfs(file).is_ok_and(|system| KNOWN.contains(&system.f_type));
        let can = is_known && can_handle();
        self.is_wanted.store(can, Ordering::Release);
        can
    }

    /// The file is at least `len` long, and has space for that.
    pub(crate) fn reserved(&self, len: u64) {
        self.reserved.fetch_max(len, Ordering::AcqRel);
    }

    /// Ends it, and calls `work` while nobody writes here: for what makes the file shorter.
    pub(crate) fn end_for<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut windows = self.lock();
        self.is_wanted.store(false, Ordering::Release);
        self.reserved.store(0, Ordering::Release);
        *windows = Windows::default();
        work()
    }

    /// Writes all of `bytes` at `offset`, or `None` when that is to be done by a call.
    pub(crate) fn write(&self, file: &fs::File, bytes: &[u8], offset: u64) -> Option<io::Result<()>> {
        if !self.is_wanted.load(Ordering::Acquire) || bytes.len() > SMALL_WRITE_BYTES_MAX {
            return None;
        }
        let mut windows = self.lock();
        // Again: a file that becomes shorter is no longer written here.
        let reserved = self.reserved.load(Ordering::Acquire);
        if !self.is_wanted.load(Ordering::Acquire) || offset.checked_add(bytes.len() as u64)? > reserved {
            return None;
        }
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let Some(open) = windows.at(file, at) else {
                self.is_wanted.store(false, Ordering::Release);
                return None;
            };
            let count = open.store(rest, at);
            if open.slot.has_failed.load(Ordering::Acquire) {
                *windows = Windows::default();
                self.is_wanted.store(false, Ordering::Release);
                return Some(Err(io::Error::from_raw_os_error(libc::EIO)));
            }
            rest = rest.get(count..).unwrap_or_default();
            at += count as u64;
        }
        Some(Ok(()))
    }

    /// Takes the faults of the first stores between `from` and `to`, where zeros were written before. Nobody waits for that.
    pub(crate) fn make_ready(&self, file: &fs::File, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let mut windows = self.lock();
            if !self.is_wanted.load(Ordering::Acquire) || to > self.reserved.load(Ordering::Acquire) {
                return;
            }
            let Some(window) = windows.behind(file, at) else { return };
            drop(windows);
            at = window.populate(at, to);
        }
    }

    /// Takes the pages out of memory before a sync. What was stored there stays in the system's cache, and the next store is a fault, as it
    /// would be behind the sync: it has to notice what is stored later, and for that it takes the right to store away page by page, each
    /// time with an interrupt of all processors that run the process.
    pub(crate) fn let_go(&self) {
        if !self.is_wanted.load(Ordering::Acquire) {
            return;
        }
        let windows = self.lock();
        let windows = [windows.now.clone(), windows.next.clone()];
        windows.into_iter().flatten().for_each(|window| window.let_go());
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    /// The window that covers `at`, to be written.
    fn at(&mut self, file: &fs::File, at: u64) -> Option<&Window> {
        if !self.now.as_ref().is_some_and(|now| now.covers(at)) {
            let next = self.next.take().filter(|next| next.covers(at));
            // The old one first: a slot is free then.
            self.now = None;
            self.now = next.or_else(|| Window::open(file, at - at % WINDOW_BYTES));
        }
        self.now.as_deref()
    }

    /// The window that covers `at`, where it is written or behind that.
    fn behind(&mut self, file: &fs::File, at: u64) -> Option<Arc<Window>> {
        if self.now.as_ref().is_some_and(|now| now.covers(at)) {
            return self.now.clone();
        }
        if !self.next.as_ref().is_some_and(|next| next.covers(at)) {
            self.next = None;
            self.next = Window::open(file, at - at % WINDOW_BYTES);
        }
        self.next.clone()
    }
}

impl Window {
    fn open(file: &fs::File, from: u64) -> Option<Arc<Self>> {
        let slot = WINDOWS.iter().find(|slot| !slot.is_taken.swap(true, Ordering::AcqRel))?;
        let length = usize::try_from(WINDOW_BYTES).ok();
        let mapped = length.zip(libc::off_t::try_from(from).ok()).map(|(length, from)| {
            // SAFETY: the system chooses the address, so no memory of the process is touched; nothing but `store` and `populate` uses it.
            unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    from,
                )
            }
        });
        match mapped.filter(|mapped| *mapped != libc::MAP_FAILED) {
            Some(mapped) => {
                slot.has_failed.store(false, Ordering::Release);
                slot.start.store(mapped.addr(), Ordering::Release);
                Some(Arc::new(Self { start: mapped.cast(), from, slot }))
            }
            None => {
                slot.is_taken.store(false, Ordering::Release);
                None
            }
        }
    }

    fn covers(&self, at: u64) -> bool {
        at.checked_sub(self.from).is_some_and(|within| within < WINDOW_BYTES)
    }

    /// Stores the first of `bytes` at `at` of the file, which the window covers, as far as it goes; says how many. For one thread at
    /// a time.
    fn store(&self, bytes: &[u8], at: u64) -> usize {
        let within = at - self.from;
        let count = bytes.len().min(usize::try_from(WINDOW_BYTES - within).unwrap_or(0));
        let offset = usize::try_from(within).expect("it lies in the window");
        // SAFETY: `offset + count` is at most the window's length, and the window is mapped for as long as `self` is there. A page that the
        // system cannot give is replaced by the handler.
        unsafe { store_in_order(bytes.get(..count).unwrap_or_default(), self.start.add(offset)) };
        // What comes next goes behind it. The processor holds so few stores that one into memory that is not in its caches waits for each line of it.
        let lines = (count / LINE_BYTES + 2).min(NEXT_LINES_MAX);
        fetch_lines_ahead(self.start.addr() + offset + count, lines);
        count
    }

    /// Has the system make the pages between `at`, which the window covers, and `to` ready for stores. Where it does not know how, which is
    /// before Linux 5.14, or cannot, each store into a new page does that. Returns where it ended.
    fn populate(&self, at: u64, to: u64) -> u64 {
        let page = HANDLING.get().map_or(4096, |handling| handling.page_bytes as u64);
        let within = at - self.from;
        let from = within - within % page;
        let to = to.min(self.from + WINDOW_BYTES);
        let length = usize::try_from(to - self.from - from).expect("it lies in the window");
        let offset = usize::try_from(from).expect("it lies in the window");
        // SAFETY: the range lies in the window, which is mapped for as long as `self` is there; no byte of it is changed.
        unsafe { libc::madvise(self.start.add(offset).cast(), length, libc::MADV_POPULATE_WRITE) };
        to
    }

    /// Takes all pages out of the process, with one interrupt of the other processors. Where that is not to be had, as of locked memory, they
    /// stay.
    fn let_go(&self) {
        let length = usize::try_from(WINDOW_BYTES).unwrap_or(0);
        // SAFETY: the window is mapped for as long as `self` is there. The pages are the file's: what is stored in them is not lost, and
        // whoever stores there meanwhile finds them again.
        unsafe { libc::madvise(self.start.cast(), length, libc::MADV_DONTNEED) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
        // SAFETY: it was mapped by `open` with this length, and nobody has its address any more.
        unsafe { libc::munmap(self.start.cast(), usize::try_from(WINDOW_BYTES).unwrap_or(0)) };
        self.slot.is_taken.store(false, Ordering::Release);
    }
}

impl Slot {
    const fn new() -> Self {
        Self { is_taken: AtomicBool::new(false), start: AtomicUsize::new(0), has_failed: AtomicBool::new(false) }
    }

    fn covers(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && address.checked_sub(start).is_some_and(|within| (within as u64) < WINDOW_BYTES)
    }
}

/// Stores from the first byte to the last, some at a time, so that a process that is killed in between leaves a beginning of `bytes`, as an
/// interrupted call does. A usual copy leaves holes: it stores what is at the ends first, or last.
///
/// # Safety
/// `to` and the `bytes.len()` bytes behind it are mapped, to be written, and used by nobody else.
unsafe fn store_in_order(bytes: &[u8], to: *mut u8) {
    const WORD: usize = size_of::<u64>();
    let (head, rest) = bytes.split_at(to.align_offset(WORD).min(bytes.len()));
    let (words, tail) = rest.as_chunks::<WORD>();
    // SAFETY: all stores lie in `bytes.len()` bytes behind `to`, one behind the other, and those of words are aligned. Volatile ones are made
    // in the order in which they stand here.
    unsafe {
        let words_at = to.add(head.len()).cast::<u64>();
        let tail_at = words_at.add(words.len()).cast::<u8>();
        head.iter().enumerate().for_each(|(at, byte)| to.add(at).write_volatile(*byte));
        words.iter().enumerate().for_each(|(at, word)| words_at.add(at).write_volatile(u64::from_ne_bytes(*word)));
        tail.iter().enumerate().for_each(|(at, byte)| tail_at.add(at).write_volatile(*byte));
    }
}

/// Whether the handler is there; the first call installs it.
fn can_handle() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(install)
}

fn install() -> bool {
    // SAFETY: a `sigaction` of zeros is one, and is overwritten by the call, which only reads the state.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are what the call takes.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
        return false;
    }
    // Before the handler is there, which reads it.
    let _ = HANDLING.set(Handling { page_bytes: rustix::param::page_size(), before });
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `ours` has a handler of the kind that its flags say, and no signals masked.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) == 0 }
}

/// The handler. It does only what may be done in one: atomic loads and stores, and system calls.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(handling) = HANDLING.get() else { return };
    // SAFETY: the system passes what it says it does, as the flags ask for it. A signal that was sent has no address; then this reads
    // numbers of the sender, which lie in no window.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if code > 0
        && let Some(slot) = WINDOWS.iter().find(|slot| slot.covers(address))
    {
        slot.has_failed.store(true, Ordering::Release);
        if replace(address - address % handling.page_bytes, handling.page_bytes) {
            return;
        }
    }
    pass_on(&handling.before, (signal, code), info, context);
}

/// Puts a page of plain memory in the place of one of a window.
fn replace(page: usize, page_bytes: usize) -> bool {
    // SAFETY: the page lies in a window, in which nobody but the thread that is stopped here stores; who makes pages ready there at that
    // moment does so with the one page or the other, and changes no byte. The calls may be made in a handler.
    unsafe {
        let number = *libc::__errno_location();
        let at = ptr::with_exposed_provenance_mut::<libc::c_void>(page);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(at, page_bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        *libc::__errno_location() = number;
        mapped != libc::MAP_FAILED
    }
}

/// Has whoever handled the signal before do so.
fn pass_on(
    before: &libc::sigaction,
    (signal, code): (libc::c_int, libc::c_int),
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let handler = before.sa_sigaction;
    // SAFETY: what was a handler of this kind when ours was installed is one, and gets what ours got. Otherwise the signal is given back its
    // default, which ends the process: when the instruction is tried again, or by the signal that was sent.
    unsafe {
        if handler == libc::SIG_IGN && code <= 0 {
            // It was sent, and is ignored as before.
        } else if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            libc::signal(signal, libc::SIG_DFL);
            if code <= 0 {
                libc::raise(signal);
            }
        } else if before.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests;
