//! Whether a library has the switch that a profile names. It is loaded and looked at as programs in C do, and not opened.
//!
//! A loaded library stays until the process ends: vendors' libraries keep threads, and crash when they are unloaded under them.
//!
//! The form of a switch, by the standard, in machine words:
//!   name 32 bytes | flags | version, 0 | xa_open .. xa_forget, nine functions | xa_complete
//!
//! May use: libloading. Must not know: profiles.
#![allow(unsafe_code, reason = "a switch is in a library that somebody else made")]

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};

/// What programs in C are linked with. Libraries of switches that register by themselves find `ax_reg` in it.
const OWN_LIBRARY: &str = "libholdfast.so.0";

const WORD: usize = size_of::<usize>();
const FLAGS_AT: usize = 32;
const VERSION_AT: usize = FLAGS_AT + WORD;
const ENTRIES_AT: usize = VERSION_AT + WORD;
/// In the order in which they stand in a switch.
const ENTRIES: [&str; 10] = [
    "xa_open_entry",
    "xa_close_entry",
    "xa_start_entry",
    "xa_end_entry",
    "xa_rollback_entry",
    "xa_prepare_entry",
    "xa_commit_entry",
    "xa_recover_entry",
    "xa_forget_entry",
    "xa_complete_entry",
];
const SWITCH_BYTES: usize = ENTRIES_AT + ENTRIES.len() * WORD;
/// The flag of a switch that works by itself: it alone needs `xa_complete`.
const USES_ASYNC: usize = 0x4;

/// What was seen to be good, or what is wrong.
pub(super) fn check(library: &Path, symbol: &str) -> Result<String, String> {
    let address = find(library, symbol)?;
    let switch = read(address).map_err(|error| format!("the symbol `{symbol}` is no switch of XA: {error}"))?;
    judge(&switch, symbol)?;
    Ok("its library has the switch, with all functions; it was not opened, which programs in C do".to_owned())
}

/// Where the symbol is in memory.
fn find(library: &Path, symbol: &str) -> Result<usize, String> {
    let shown = library.display();
    let loaded = load(library).or_else(|reason| {
        let wants_ours = ["ax_reg", "ax_unreg"].iter().any(|name| reason.contains(name));
        if !wants_ours {
            return Err(format!("cannot load the library `{shown}`: {reason}"));
        }
        lend().and_then(|()| load(library)).map_err(|without| {
            format!("cannot load the library `{shown}`: {reason}. Programs in C bring that along with {OWN_LIBRARY}: {without}")
        })
    })?;
    // SAFETY: only the symbol's address is taken. What is there is not assumed to be anything.
    let found = unsafe { loaded.get::<*const c_void>(symbol.as_bytes()) }.map(|found| found.addr());
    std::mem::forget(loaded);
    found.map_err(|error| format!("the library `{shown}` has no symbol `{symbol}`: {error}"))
}

fn load(library: &Path) -> Result<Library, String> {
    // SAFETY: loading runs the library's initializers; whoever wrote the profile trusts the library with the process.
    unsafe { Library::open(Some(library), RTLD_LAZY | RTLD_LOCAL) }.map_err(|error| error.to_string())
}

/// Has the libraries that are loaded from now on find what our library for C offers.
fn lend() -> Result<(), String> {
    // SAFETY: it is ours, and its initializers do nothing that this process could notice.
    let own = unsafe { Library::open(Some(OWN_LIBRARY), RTLD_LAZY | RTLD_GLOBAL) };
    own.map(std::mem::forget).map_err(|error| error.to_string())
}

/// The bytes at an address, as the system reads them: what is no switch may end where no memory is, and reading beyond would
/// kill the process.
fn read(address: usize) -> std::io::Result<[u8; SWITCH_BYTES]> {
    let mut bytes = [0; SWITCH_BYTES];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, address as u64)?;
    Ok(bytes)
}

/// What programs in C refuse is wrong here too.
fn judge(switch: &[u8; SWITCH_BYTES], symbol: &str) -> Result<(), String> {
    let word = |at: usize| {
        let bytes = switch.get(at..).and_then(|rest| rest.first_chunk::<WORD>());
        usize::from_ne_bytes(*bytes.expect("all words of a switch lie in it"))
    };
    let version = word(VERSION_AT).cast_signed();
    if version != 0 {
        return Err(format!(
            "the symbol `{symbol}` is no switch of XA: its version is {version}, and the standard has 0"
        ));
    }
    let is_async = word(FLAGS_AT) & USES_ASYNC != 0;
    for (number, entry) in ENTRIES.iter().enumerate() {
        let is_needed = number + 1 < ENTRIES.len() || is_async;
        if is_needed && word(ENTRIES_AT + number * WORD) == 0 {
            return Err(format!("the switch `{symbol}` has no {entry}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{ENTRIES_AT, FLAGS_AT, SWITCH_BYTES, VERSION_AT, WORD, check, judge};

    fn monkey() -> PathBuf {
        let path = std::env::current_exe().unwrap().with_file_name("libholdfast_xa_monkey.so");
        assert!(path.exists(), "cargo did not build {}", path.display());
        path
    }

    /// `symbol = "nope"` and `library = "/etc/passwd"` were called good.
    #[test]
    fn a_library_is_loaded_and_its_switch_looked_at() {
        let monkey = monkey();
        for symbol in ["holdfast_monkey_static", "holdfast_monkey_dynamic", "holdfast_monkey_async"] {
            let good = check(&monkey, symbol).unwrap();
            assert!(good.contains("it was not opened"), "{good}");
        }
        for (library, symbol, wanted) in [
            (monkey.as_path(), "nope", "has no symbol `nope`"),
            (Path::new("/etc/passwd"), "nope", "cannot load the library `/etc/passwd`: "),
            (Path::new("libno-such-thing.so.7"), "nope", "cannot load the library `libno-such-thing.so.7`: "),
            // Functions, not switches.
            (&monkey, "holdfast_monkey_work", "is no switch of XA: its version is"),
            (Path::new("libc.so.6"), "printf", "is no switch of XA: its version is"),
        ] {
            let wrong = check(library, symbol).unwrap_err();
            assert!(wrong.contains(wanted), "{wrong}");
        }
    }

    #[test]
    fn a_switch_has_the_version_and_the_functions_of_the_standard() {
        let mut whole = [0; SWITCH_BYTES];
        whole[ENTRIES_AT..SWITCH_BYTES - WORD].fill(1);
        assert_eq!(judge(&whole, "s"), Ok(()));
        let with = |at: usize, value: usize| {
            let mut switch = whole;
            switch[at..at + WORD].copy_from_slice(&value.to_ne_bytes());
            judge(&switch, "s").unwrap_err()
        };
        assert!(with(VERSION_AT, 1).contains("its version is 1,"));
        assert_eq!(with(ENTRIES_AT + 8 * WORD, 0), "the switch `s` has no xa_forget_entry");
        assert_eq!(with(FLAGS_AT, 4), "the switch `s` has no xa_complete_entry");
    }
}
