//! A resource manager behind its switch of XA, as recovery and checks see it. Its library is loaded, and it is opened and closed for
//! each call, as programs in C do: it comes to the same databases that way.
//!
//! A loaded library stays until the process ends: vendors' libraries keep threads, and crash when they are unloaded under them. Each call
//! has a thread of its own, because what was opened belongs to a thread by the standard, and because nobody can stop one that waits
//! for a database.
//!
//! May use: `xa_h`, `branch`, libloading. Must not know: profiles, coordinators.
#![allow(unsafe_code, reason = "a switch is a table of C functions in a library that somebody else made")]

use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL};
use tokio::sync::oneshot;
use xa::{BranchName, XaCode, Xid};

use crate::branch::{Answer, BoxFuture, InDoubt, ResourceManager};
use crate::xa_h::{InfoCall, TMNOFLAGS, XaSwitch, XidCall, XidData, code};

/// What programs in C are linked with. Libraries of switches that register by themselves find `ax_reg` in it.
const OWN_LIBRARY: &str = "libholdfast.so.0";
/// So long a call may take before it is said that nobody answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// More prepared branches are not taken from one resource manager: all are needed, as whoever sees none of a transaction forgets it.
const LIST_MAX: usize = 1_000_000;

/// A resource manager behind a switch. Cheap to clone.
#[derive(Clone)]
pub struct SwitchManager(Arc<Named>);

struct Named {
    name: BranchName,
    order: u32,
    library: PathBuf,
    symbol: String,
    strings: Strings,
    /// One call after the other.
    turn: tokio::sync::Mutex<()>,
    /// What was loaded. Held for as long as a call takes, also one that nobody waits for any more.
    loaded: Mutex<Option<XaSwitch>>,
}

/// How it is opened. There may be passwords in it.
struct Strings {
    rmid: c_int,
    open: CString,
    close: CString,
}

/// Where a switch is, and how it is opened.
pub struct SwitchPlace<'a> {
    /// The shared library.
    pub library: &'a Path,
    /// The switch in it.
    pub symbol: &'a str,
    /// What `xa_open` takes.
    pub open: &'a str,
    /// What `xa_close` takes.
    pub close: &'a str,
    /// The number that its functions are called with: its place in the profile.
    pub number: i32,
}

impl SwitchManager {
    /// The switch at that place. Nothing is loaded before it is asked for something.
    ///
    /// # Errors
    /// In plain words: when a string has a zero byte.
    pub fn new(name: BranchName, order: u32, place: &SwitchPlace<'_>) -> Result<Self, String> {
        let string = |what: &str, text: &str| {
            CString::new(text).map_err(|_| format!("`{what}` has a zero byte, where strings of C end"))
        };
        let strings =
            Strings { rmid: place.number, open: string("open", place.open)?, close: string("close", place.close)? };
        let (library, symbol) = (place.library.to_owned(), place.symbol.to_owned());
        Ok(Self(Arc::new(Named {
            name,
            order,
            library,
            symbol,
            strings,
            turn: tokio::sync::Mutex::default(),
            loaded: Mutex::default(),
        })))
    }

    /// Opens it in a thread, does `work` there, and closes it.
    fn open_for<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Opened<'_>) -> T + Send + 'static,
    ) -> BoxFuture<'static, Result<T, String>> {
        let named = Arc::clone(&self.0);
        Box::pin(async move {
            let _turn = named.turn.lock().await;
            let (tell, told) = oneshot::channel();
            let own = Arc::clone(&named);
            let body = move || {
                // Who does not wait any more does not mind.
                let _ = tell.send(own.open_for(work));
            };
            thread::Builder::new()
                .name("holdfast-switch".to_owned())
                .spawn(body)
                .map_err(|error| format!("no thread to be had: {error}"))?;
            match tokio::time::timeout(PATIENCE, told).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err("the call ended without an answer".to_owned()),
                Err(_) => Err(format!("its library has not answered for {} s", PATIENCE.as_secs())),
            }
        })
    }

    /// Ends a branch by the entry that `entry` finds in the switch.
    fn end<'a>(
        &'a self,
        entry: fn(&XaSwitch) -> Option<XidCall>,
        verb: &'static str,
        xid: &'a Xid,
    ) -> BoxFuture<'a, Answer> {
        let name = XidData::of(xid);
        let answer = self.open_for(move |opened| opened.about(entry(opened.switch), name));
        Box::pin(async move {
            match answer.await {
                Ok(XaCode::Ok) => XaCode::Ok.into(),
                Ok(code) => Answer::new(code, format!("xa_{verb} answered {code}")),
                Err(reason) => Answer::new(XaCode::ManagerDown, reason),
            }
        })
    }
}

impl ResourceManager for SwitchManager {
    fn name(&self) -> &BranchName {
        &self.0.name
    }

    fn order(&self) -> u32 {
        self.0.order
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        let listed = self.open_for(|opened| opened.list());
        Box::pin(async move { listed.await? })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.end(|switch| switch.commit, "commit", xid)
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.end(|switch| switch.rollback, "rollback", xid)
    }

    fn forget<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.end(|switch| switch.forget, "forget", xid)
    }
}

impl fmt::Debug for SwitchManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchManager").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Named {
    fn open_for<T>(&self, work: impl FnOnce(&Opened<'_>) -> T) -> Result<T, String> {
        let mut loaded = match self.loaded.try_lock() {
            Ok(loaded) => loaded,
            // It is loaded whole, or not.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err("its library has not come back from a call before".to_owned());
            }
        };
        let switch = match &*loaded {
            Some(switch) => *switch,
            None => *loaded.insert(load_switch(&self.library, &self.symbol)?),
        };
        let opened = Opened { switch: &switch, strings: &self.strings };
        let code = opened.info(switch.open, &self.strings.open);
        if code != XaCode::Ok {
            return Err(format!("xa_open answered {code}: look at `open`, and whether its server is there"));
        }
        let done = work(&opened);
        // What it answers changes nothing.
        let _ = opened.info(switch.close, &self.strings.close);
        Ok(done)
    }
}

/// A switch that is open for this thread.
struct Opened<'a> {
    switch: &'a XaSwitch,
    strings: &'a Strings,
}

impl Opened<'_> {
    fn info(&self, entry: Option<InfoCall>, text: &CString) -> XaCode {
        let Some(entry) = entry else { return XaCode::Protocol };
        // SAFETY: the entry is a function of this form by the standard; it reads the string during the call and does not change it,
        // which the missing `const` only leaves open because the standard is older than the word.
        code(unsafe { entry(text.as_ptr().cast_mut(), self.strings.rmid, TMNOFLAGS) })
    }

    fn about(&self, entry: Option<XidCall>, mut name: XidData) -> XaCode {
        let Some(entry) = entry else { return XaCode::Protocol };
        // SAFETY: the entry is a function of this form by the standard; the name is ours and outlives the call.
        code(unsafe { entry(&raw mut name, self.strings.rmid, TMNOFLAGS) })
    }

    /// The branches that are prepared, of any coordinator of ours.
    fn list(&self) -> Result<InDoubt, String> {
        // SAFETY: the switch was judged, and its functions are what the standard says; so is what the profile's owner trusts it to be.
        match unsafe { self.switch.prepared(self.strings.rmid, LIST_MAX) } {
            Ok(listed) if listed.is_all => Ok(InDoubt { branches: listed.found, unreadable: listed.unreadable }),
            Ok(_) => Err(format!("it lists more than {LIST_MAX} prepared branches")),
            Err(code) => Err(format!("cannot list what is in doubt: xa_recover answered {code}")),
        }
    }
}

/// The switch, if it is one.
fn load_switch(library: &Path, symbol: &str) -> Result<XaSwitch, String> {
    let address = find(library, symbol)?;
    let switch = read(address).map_err(|error| format!("the symbol `{symbol}` is no switch of XA: {error}"))?;
    judge(&switch, symbol)?;
    Ok(switch)
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

/// What is at an address, as the system reads it: what is no switch may end where no memory is, and reading beyond would kill the
/// process.
fn read(address: usize) -> std::io::Result<XaSwitch> {
    let mut bytes = [0; size_of::<XaSwitch>()];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, address as u64)?;
    // SAFETY: there are as many bytes as a switch has, and whatever they are they make one: numbers, and pointers that may be null.
    // Nothing is called before `judge` has seen it.
    Ok(unsafe { bytes.as_ptr().cast::<XaSwitch>().read_unaligned() })
}

/// What programs in C refuse is wrong here too.
fn judge(switch: &XaSwitch, symbol: &str) -> Result<(), String> {
    if switch.version != 0 {
        let version = switch.version;
        return Err(format!(
            "the symbol `{symbol}` is no switch of XA: its version is {version}, and the standard has 0"
        ));
    }
    match switch.missing() {
        Some(entry) => Err(format!("the switch `{symbol}` has no {entry}")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
