//! Memory in pages of 2 MiB where all of it is in use anyway.
//!
//! Whatever is looked at once among hundreds of megabytes costs the processor a walk through its tables of pages first, and in a virtual
//! machine two, one within the other. With pages of 2 MiB there is hardly anything to walk through. (Measured: a twentieth of what
//! the server takes for a small SET of a hundred thousand objects.) A system that hands such pages out by itself does so at the first byte
//! of each, and a process whose memory comes and goes takes several times what it needs. So the small ones stay, and where all of 512
//! beside each other have come into use they are made one, which costs no memory: `MADV_COLLAPSE`, Linux 6.1. Where that cannot be had
//! nothing happens.
//!
//! May use: the operating system. Must not know: what is in the memory.

#![allow(unsafe_code, reason = "what a process says of its memory is a system call that takes addresses")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of a large page, and of a small one.
const LARGE_BYTES: usize = 2 << 20;
const SMALL_BYTES: usize = 4 << 10;
/// Small pages of a large one, each a number of eight bytes in `/proc/self/pagemap`.
const SMALL_PER_LARGE: usize = LARGE_BYTES / SMALL_BYTES;
const NUMBER_BYTES: usize = 8;
/// Of such a number: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// Between two pages that are made: whoever wants memory waits while one is.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// And so many times as long as making one took: 0.6 ms, or 5 ms where the machine is a virtual one that has to ask its host for the memory (measured).
const PAUSE_TIMES: u32 = 8;
/// For each 2 MiB that were looked at, before the next look: a hundredth of a processor's time goes there at most.
const REST_PER_BLOCK: Duration = Duration::from_micros(500);
/// After so many looks a page may have come apart again.
const LOOKS_KNOWN: u32 = 600;
/// The system says no that often, and never yes, before it is believed.
const REFUSALS_MAX: u32 = 1024;
/// So many are looked at before it is asked whether to go on.
const BLOCKS_AT_ONCE: u32 = 64;

/// Has the system hand out small pages alone, whatever it does for others. Says whether [`LargePages`] may make large ones of them.
#[must_use]
pub fn use_small_pages() -> bool {
    // `PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18.
    const EXCEPT_ADVISED: libc::c_ulong = 2;
    let disable = |flags: libc::c_ulong| {
        let (on, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
        // SAFETY: numbers alone.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, none, none) == 0 }
    };
    let policy = policy();
    let are_unwanted = policy.contains(UNWANTED);
    if disable(EXCEPT_ADVISED) || policy.contains("[madvise]") || are_unwanted {
        return !are_unwanted;
    }
    disable(0);
    false
}

/// Which programs get large pages, as whoever runs the machine has set it.
fn policy() -> String {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default()
}

/// What it says when there are to be none.
const UNWANTED: &str = "[never]";

/// The large pages of this process.
#[derive(Debug)]
pub struct LargePages {
    /// Where large pages were made, or cannot be.
    known: BTreeSet<usize>,
    looks: u32,
    /// The system has made one.
    works: bool,
    refusals: u32,
}

impl LargePages {
    /// How long to wait between two looks at little memory.
    pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

    /// None so far; `None` where there cannot be any, or whoever runs the machine wants none.
    #[must_use]
    pub fn new() -> Option<Self> {
        let is_usual = rustix::param::page_size() == SMALL_BYTES;
        (is_usual && !policy().contains(UNWANTED)).then(|| Self {
            known: BTreeSet::new(),
            looks: 0,
            works: false,
            refusals: 0,
        })
    }

    /// Looks at all memory and makes large pages where it is in use; returns when to look again, if ever. Takes some microseconds for each
    /// 2 MiB that it looks at, and some milliseconds for each that it makes one page, a ninth of the time at most. It pauses between two of
    /// those, and now and then for no time; the pause says whether to go on.
    ///
    /// # Errors
    /// When the system does not tell of the process' memory.
    pub fn step(&mut self, pause: impl Fn(Duration) -> bool) -> io::Result<Option<Duration>> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_KNOWN) {
            self.known.clear();
        }
        let pages = match File::open("/proc/self/pagemap") {
            // Nobody will be told later either.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => return Ok(None),
            pages => pages?,
        };
        // Names of files need not be UTF-8.
        let maps = fs::read("/proc/self/maps")?;
        let maps = String::from_utf8_lossy(&maps);
        let mut looked_at = 0;
        for block in maps.lines().filter_map(plain).flat_map(|(start, end)| blocks(start, end)) {
            if self.known.contains(&block) {
                continue;
            }
            looked_at += 1;
            if looked_at % BLOCKS_AT_ONCE == 0 && !pause(Duration::ZERO) {
                break;
            }
            if !is_full(&pages, block)? {
                continue;
            }
            self.known.insert(block);
            let began = Instant::now();
            match collapse(block) {
                Ok(()) => self.works = true,
                // Whoever has that memory wants none, or there are none at all.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.refusals += 1,
                // There is no such page to have just now.
                Err(_) => {}
            }
            if !self.works && self.refusals >= REFUSALS_MAX {
                return Ok(None);
            }
            if !pause(PAUSE_MIN.max(began.elapsed() * PAUSE_TIMES)) {
                break;
            }
        }
        Ok(Some(Self::LOOK_INTERVAL.max(REST_PER_BLOCK * looked_at)))
    }
}

/// Start and end of a stretch of `/proc/self/maps` that is memory of the process alone.
fn plain(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let (_offset, _device, file) = (fields.next()?, fields.next()?, fields.next()?);
    let is_plain = fields.next().is_none_or(|name| name.starts_with("[anon") || name == "[heap]");
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    (rights == "rw-p" && file == "0" && is_plain).then_some((address(start)?, address(end)?))
}

/// Where large pages may begin in a stretch.
fn blocks(start: usize, end: usize) -> impl Iterator<Item = usize> {
    let first = start.next_multiple_of(LARGE_BYTES);
    (first..end).step_by(LARGE_BYTES).filter(move |block| end - block >= LARGE_BYTES)
}

/// Whether all of the small pages there are in memory.
fn is_full(pages: &File, block: usize) -> io::Result<bool> {
    let mut numbers = [0; SMALL_PER_LARGE * NUMBER_BYTES];
    pages.read_exact_at(&mut numbers, (block / SMALL_BYTES * NUMBER_BYTES) as u64)?;
    let (numbers, _) = numbers.as_chunks::<NUMBER_BYTES>();
    Ok(numbers.iter().all(|number| u64::from_ne_bytes(*number) & PRESENT != 0))
}

/// Makes one page of those that are there.
fn collapse(block: usize) -> io::Result<()> {
    // What the C library's headers call it since 2022.
    const MADV_COLLAPSE: libc::c_int = 25;
    // SAFETY: what is in the memory stays as it is, and nothing happens where there is none any more.
    let outcome = unsafe { libc::madvise(block as *mut libc::c_void, LARGE_BYTES, MADV_COLLAPSE) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_are_the_process_own_are_told_from_files_and_stacks() {
        let of = |line: &str| plain(line);
        assert_eq!(of("3d43e000000-3d47e000000 rw-p 00000000 00:00 0 "), Some((0x3d4_3e00_0000, 0x3d4_7e00_0000)));
        assert_eq!(of("1000-2000 rw-p 00000000 00:00 0   [anon:mimalloc]"), Some((0x1000, 0x2000)));
        assert_eq!(of("1000-2000 rw-p 00000000 00:00 0   [heap]"), Some((0x1000, 0x2000)));
        for other in [
            "1000-2000 rw-p 00000000 00:00 0 [stack]",
            "1000-2000 r--p 00000000 00:00 0 ",
            "1000-2000 ---p 00000000 00:00 0 ",
            "1000-2000 rw-s 00000000 00:00 0 ",
            "1000-2000 rw-p 00000000 fe:00 5313181 /a/file",
            "nonsense",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn large_pages_begin_where_a_whole_one_fits() {
        let at = |start, end| blocks(start, end).collect::<Vec<_>>();
        assert_eq!(at(0, 2 * LARGE_BYTES), [0, LARGE_BYTES]);
        assert_eq!(at(1, 2 * LARGE_BYTES), [LARGE_BYTES]);
        assert_eq!(at(1, 2 * LARGE_BYTES - 1), []);
        assert_eq!(at(5, 6), []);
    }

    #[test]
    fn only_memory_that_is_in_use_is_made_large_and_what_is_in_it_stays() {
        let pages = File::open("/proc/self/pagemap").unwrap();
        let (used, unused) = (vec![7_u8; 5 * LARGE_BYTES], Vec::<u8>::with_capacity(5 * LARGE_BYTES));
        let full = |start: *const u8| {
            let start = start as usize;
            blocks(start, start + 5 * LARGE_BYTES).filter(|block| is_full(&pages, *block).unwrap()).count()
        };
        assert!(full(used.as_ptr()) >= 4);
        assert_eq!(full(unused.as_ptr()), 0);
        if let Some(mut large) = LargePages::new() {
            large.step(|_| true).unwrap();
            let known = |start: *const u8| {
                let start = start as usize;
                large.known.range(start..start + 5 * LARGE_BYTES).count()
            };
            assert!(known(used.as_ptr()) >= 4 || large.refusals >= REFUSALS_MAX);
            assert_eq!(known(unused.as_ptr()), 0);
        }
        assert!(used.iter().all(|byte| *byte == 7));
    }
}
