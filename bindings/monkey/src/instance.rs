//! One resource manager as one thread opened it: its script, the file it writes its calls to, and its prepared branches.
//!
//! The open string is `script=FILE;log=FILE;state=FOLDER`; each part may be missing. The log gets a line for each call:
//! the thread's number, the resource manager's number, the verb, the branch, the flags in hexadecimal, the answer. In the
//! folder lies one empty file for each prepared branch, named after it, so that they survive the process. What has such a
//! folder and is said to be done to a branch is done there: the switches and the monkey in Rust share it.
//!
//! May use: `abi`, `script`. Must not know: who calls.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{XA_OK, XAER_RMERR, XID_DATA_BYTES, Xid};
use crate::script::{Act, Script};

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(0) };
}

/// A resource manager that is open: what is behind the switches, and behind the monkey in Rust.
#[derive(Debug)]
pub struct Instance {
    script: Script,
    log: Option<File>,
    state: Option<PathBuf>,
    rmid: c_int,
    thread: usize,
}

impl Instance {
    /// Reads the open string. The lines of the script that are for `thread` are its own; without one they are those for the
    /// thread that calls. `rmid` is the number it has in the log.
    ///
    /// # Errors
    /// In plain words: an unknown part of the string, or a file that cannot be read.
    pub fn open(info: &str, rmid: c_int, thread: Option<usize>) -> Result<Self, String> {
        let thread = thread.unwrap_or_else(own_thread);
        let mut instance = Self { script: Script::default(), log: None, state: None, rmid, thread };
        for part in info.split(';').filter(|part| !part.is_empty()) {
            let failed = |error: std::io::Error| format!("`{part}`: {error}");
            match part.split_once('=') {
                Some(("script", path)) => {
                    let text = fs::read_to_string(path).map_err(failed)?;
                    instance.script = Script::parse(&text, thread).map_err(|why| format!("`{part}`: {why}"))?;
                }
                Some(("log", path)) => {
                    let file = OpenOptions::new().create(true).append(true).open(path);
                    instance.log = Some(file.map_err(failed)?);
                }
                Some(("state", path)) => {
                    fs::create_dir_all(path).map_err(failed)?;
                    instance.state = Some(path.into());
                }
                _ => return Err(format!("`{part}` is neither script=FILE, log=FILE nor state=FOLDER")),
            }
        }
        Ok(instance)
    }

    /// What the script says to a call, after writing it down. When it says to die, this does not return.
    pub fn answer(&mut self, verb: &str, xid: Option<&Xid>, flags: c_long) -> c_int {
        let act = self.script.next(verb);
        if let (Act::Answer(code), None, None) = (act, &self.log, &self.state) {
            return code;
        }
        let branch = xid.and_then(name).unwrap_or_else(|| "-".to_owned());
        match act {
            Act::KillBefore => {
                self.note(verb, &branch, flags, "dies before");
                std::process::abort()
            }
            Act::KillAfter => {
                self.keep(verb, &branch, XA_OK);
                self.note(verb, &branch, flags, "dies after");
                std::process::abort()
            }
            Act::Answer(code) => {
                let kept = self.keep(verb, &branch, code);
                let code = if kept { code } else { XAER_RMERR };
                self.note(verb, &branch, flags, &code.to_string());
                code
            }
        }
    }

    /// The prepared branches.
    #[must_use]
    pub fn prepared(&self) -> Vec<Xid> {
        let Some(folder) = &self.state else { return Vec::new() };
        let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
        let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.iter().filter_map(|name| xid(name)).collect()
    }

    /// Keeps the folder: a branch is there from a good prepare until it is committed, rolled back or forgotten.
    fn keep(&self, verb: &str, branch: &str, code: c_int) -> bool {
        let Some(file) = self.state.as_ref().map(|folder| folder.join(branch)) else { return true };
        match (verb, code) {
            ("prepare", XA_OK) => File::create(file).is_ok(),
            ("commit" | "rollback" | "forget", XA_OK) => {
                // A branch that was never prepared has no file, and its end is good all the same.
                drop(fs::remove_file(file));
                true
            }
            _ => true,
        }
    }

    fn note(&mut self, verb: &str, branch: &str, flags: c_long, answer: &str) {
        if let Some(log) = &mut self.log {
            let line = format!("{} {} {verb} {branch} {flags:x} {answer}\n", self.thread, self.rmid);
            // One write to a file opened for appending: lines of several threads and processes do not mix.
            drop(log.write_all(line.as_bytes()));
        }
    }
}

/// The number of this thread: the first that opened a monkey in this process is 1.
fn own_thread() -> usize {
    THREAD.with(|own| {
        if own.get() == 0 {
            own.set(THREADS.fetch_add(1, Ordering::Relaxed).saturating_add(1));
        }
        own.get()
    })
}

/// A branch's name as `format-gtrid-bqual`, the numbers and bytes in hexadecimal.
fn name(xid: &Xid) -> Option<String> {
    let (first, second) = (usize::try_from(xid.gtrid_length).ok()?, usize::try_from(xid.bqual_length).ok()?);
    let gtrid = xid.data.get(..first)?;
    let bqual = xid.data.get(first..first.checked_add(second)?)?;
    let mut text = format!("{:x}", xid.format);
    for bytes in [gtrid, bqual] {
        text.push('-');
        for byte in bytes {
            write!(text, "{:02x}", byte.cast_unsigned()).ok()?;
        }
    }
    Some(text)
}

fn xid(name: &str) -> Option<Xid> {
    let mut parts = name.split('-');
    let format = c_long::from_str_radix(parts.next()?, 16).ok()?;
    let (gtrid, bqual) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
    let mut data = [0; XID_DATA_BYTES];
    for (to, byte) in data.iter_mut().zip(gtrid.iter().chain(&bqual)) {
        *to = *byte;
    }
    let length = |bytes: &[c_char]| c_long::try_from(bytes.len()).ok();
    Some(Xid { format, gtrid_length: length(&gtrid)?, bqual_length: length(&bqual)?, data })
}

fn bytes(text: &str) -> Option<Vec<c_char>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?.cast_signed())).collect()
}

#[cfg(test)]
mod tests {
    use super::{Instance, name, xid};

    #[test]
    fn what_an_open_string_has_that_is_not_known_is_told() {
        for (text, what) in [("scripts=a", "neither"), ("script=/nowhere/at all", "script="), ("x", "neither")] {
            let refused = Instance::open(text, 1, Some(1)).unwrap_err();
            assert!(refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn names_of_branches_round_trip() {
        let text = "48465841-01ff20-7067";
        assert_eq!(name(&xid(text).unwrap()).unwrap(), text);
        assert!(xid("48465841-zz-00").is_none());
    }
}
