//! Tests of small writes into a file's pages: on the file system that the tests run on, which need not be one of those that are
//! known; there everything is written by calls, and the same has to hold.

use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::files::{File, Files, read_whole};
use crate::os::OsFiles;

/// A file of its own for each test, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        // Beside the program, where builds are: folders for short-lived files may be of another kind.
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let path = folder.join(format!("mapped-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn create(&self, len: u64) -> Arc<dyn File> {
        let file = OsFiles.create(&self.0).unwrap();
        file.allocate(len).unwrap();
        file.expect_small_writes();
        file
    }

    fn content(&self) -> Vec<u8> {
        read_whole(&OsFiles, &self.0, u64::MAX).unwrap()
    }

    /// The same, without what stands behind `create`.
    fn raw(&self) -> fs::File {
        fs::OpenOptions::new().read(true).write(true).open(&self.0).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The windows are the process': who counts on one being free waits for those who take all.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_known(place: &Place) -> bool {
    Mapped::default().want(&place.raw())
}

#[test]
fn writes_of_all_sizes_and_places_are_seen_by_who_reads_the_file() {
    let place = Place::new("sizes");
    let len = 3 * WINDOW_BYTES + 5000;
    let file = place.create(len);
    let mut wanted = vec![0; usize::try_from(len).unwrap()];
    let mut state = 7_u64;
    for round in 0..2000_u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = match round % 20 {
            0 => SMALL_WRITE_BYTES_MAX + 1,
            1 => SMALL_WRITE_BYTES_MAX,
            _ => usize::try_from(state >> 52).unwrap() + 1,
        };
        let at = match round % 7 {
            // Across the border of two windows, and up to the end.
            0 => WINDOW_BYTES * 2 - size as u64 / 2,
            1 => len - size as u64,
            _ => (state >> 8) % (len - size as u64),
        };
        if round % 5 == 0 {
            file.make_ready(at, (at + (state >> 40)).min(len + 1));
        }
        // Takes the pages out of the process.
        if round % 50 == 0 {
            file.sync().unwrap();
        }
        let bytes = vec![u8::try_from(round % 251).unwrap() + 1; size];
        file.write_at(&bytes, at).unwrap();
        let from = usize::try_from(at).unwrap();
        wanted[from..from + size].copy_from_slice(&bytes);
        let mut read = vec![0; size];
        assert_eq!(place.raw().read_at(&mut read, at).unwrap(), size);
        assert!(read == bytes, "round {round}");
    }
    file.sync().unwrap();
    assert!(place.content() == wanted);
}

/// Faults of this thread that needed no disk.
fn faults() -> i64 {
    // SAFETY: a `rusage` of zeros is one, and is overwritten by the call.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is what the call takes.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_minflt
}

#[test]
fn what_is_made_ready_is_stored_without_faults() {
    const PAGE: u64 = 4096;
    const PAGES: u64 = 200;
    let place = Place::new("ready");
    let file = place.create(2 * WINDOW_BYTES);
    // Over the border of two windows, with zeros a page at a time: pages that come together may share a fault.
    let from = WINDOW_BYTES - PAGES / 2 * PAGE;
    (0..PAGES).for_each(|page| place.raw().write_all_at(&[0; PAGE as usize], from + page * PAGE).unwrap());
    let store_all = || {
        let before = faults();
        (0..PAGES).for_each(|page| file.write_at(&[1; 10], from + page * PAGE).unwrap());
        faults() - before
    };
    file.write_at(&[1; 10], 0).unwrap();
    file.make_ready(from, from + PAGES * PAGE);
    let with = store_all();
    assert!(with < 10, "{with} faults");
    assert_eq!(place.content()[usize::try_from(from).unwrap()..][..11], [[1; 10].as_slice(), &[0]].concat());
}

/// The system takes the right to store from each page on its way to the disk, with an interrupt each. So the pages are gone before, and
/// what was stored is on the disk all the same.
#[test]
fn a_sync_takes_the_pages_out_of_the_process_and_loses_nothing() {
    const PAGE: u64 = 4096;
    let place = Place::new("sync");
    let file = place.create(WINDOW_BYTES);
    let _alone = alone();
    for page in 0..8 {
        file.write_at(b"stored", page * PAGE).unwrap();
    }
    file.sync().unwrap();
    let before = faults();
    for page in 0..8 {
        file.write_at(b"again", page * PAGE + 10).unwrap();
    }
    if is_known(&place) {
        assert!(faults() > before, "the pages were there");
    }
    for page in 0..8 {
        let mut read = [0; 15];
        place.raw().read_exact_at(&mut read, page * PAGE).unwrap();
        assert_eq!(&read, b"stored\0\0\0\0again");
    }
}

#[test]
fn who_stores_does_not_mind_who_makes_ready_or_cuts_the_file() {
    let _alone = alone();
    for round in 0..20 {
        let place = Place::new("beside");
        let file = place.create(4 * WINDOW_BYTES);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..64).for_each(|at| file.make_ready(at << 16, (at + 3) << 16)));
            let len = 2 * WINDOW_BYTES + 999;
            (0..len / 1000).for_each(|at| file.write_at(&[7; 1000], at * 1000).unwrap());
            if round % 2 == 0 {
                file.set_len(len / 2).unwrap();
                file.make_ready(0, len);
            }
        });
        let content = place.content();
        let count =
            if round % 2 == 0 { content.len() } else { usize::try_from(2 * WINDOW_BYTES / 1000 * 1000).unwrap() };
        assert!(content[..count].iter().all(|byte| *byte == 7), "round {round}");
    }
}

#[test]
fn a_write_behind_what_is_reserved_makes_the_file_longer() {
    let place = Place::new("longer");
    let file = place.create(4096);
    file.write_at(&[1; 100], 4000).unwrap();
    assert_eq!(file.len().unwrap(), 4100);
    file.write_at(&[2; 10], 3 * WINDOW_BYTES).unwrap();
    assert_eq!(file.len().unwrap(), 3 * WINDOW_BYTES + 10);
    assert_eq!(place.content()[3999..4101], [&[0][..], &[1; 100], &[0]].concat());
}

#[test]
fn a_file_that_becomes_shorter_is_written_by_calls() {
    let place = Place::new("shorter");
    let file = place.create(WINDOW_BYTES);
    file.write_at(&[1; 10], 8192).unwrap();
    file.set_len(8195).unwrap();
    assert_eq!(file.len().unwrap(), 8195);
    file.write_at(&[2; 10], 20_000).unwrap();
    assert_eq!(place.content()[8190..], [&[0; 2][..], &[1; 3], &[0; 20_000 - 8195], &[2; 10]].concat());
}

/// The device is gone, or the file was cut by somebody else: both are told by the same signal.
#[test]
fn a_page_that_the_system_cannot_give_is_an_error_of_the_write_and_later_writes_are_made_by_calls() {
    let _alone = alone();
    let place = Place::new("gone");
    let file = place.create(WINDOW_BYTES);
    file.write_at(&[1; 10], 0).unwrap();
    place.raw().set_len(0).unwrap();
    let second = file.write_at(&[2; 8_000], 0);
    if is_known(&place) {
        assert_eq!(second.unwrap_err().raw_os_error(), Some(libc::EIO));
        file.write_at(&[2; 8_000], 0).unwrap();
    } else {
        second.unwrap();
    }
    assert!(place.content() == [2; 8_000]);
}

#[test]
fn as_many_files_as_one_likes_are_written_at_once() {
    let _alone = alone();
    let places: Vec<Place> = (0..SLOTS + 5).map(|number| Place::new(&format!("many{number}"))).collect();
    let files: Vec<_> = places.iter().map(|place| place.create(8192)).collect();
    let own = |number: usize| [u8::try_from(number).unwrap(); 3];
    files.iter().enumerate().for_each(|(number, file)| file.write_at(&own(number), 5000).unwrap());
    for (number, place) in places.iter().enumerate() {
        assert_eq!(place.content()[5000..5003], own(number));
    }
}

const CHILD: &str = "HOLDFAST_TEST_BUS";

/// A fault at an address that is none of ours ends the process as it would without the handler.
#[test]
fn other_bus_errors_are_for_whoever_handled_them_before() {
    if std::env::var_os(CHILD).is_none() {
        let name = "mapped::tests::other_bus_errors_are_for_whoever_handled_them_before";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args([name, "--exact"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGBUS));
        return;
    }
    assert!(can_handle());
    let place = Place::new("foreign");
    place.create(8192);
    let file = place.raw();
    let length = 8192;
    // SAFETY: a new mapping, which is used below alone.
    let mapped =
        unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    drop(place);
    // SAFETY: the address is mapped; that the store fails is what is tested.
    unsafe { ptr::write_volatile(mapped.cast::<u8>(), 1) };
}
