//! The monkey as transactions and recovery see it: one that is open, by its name.
//!
//! May use: `branch`, `holdfast-xa-monkey`, `tm`. Must not know: coordinators.

use std::ffi::c_long;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monkey::Instance;
use tm::xa_h::{TMNOFLAGS, TMSTARTRSCAN, XidData};
use tm::{Answer, BoxFuture, BranchName, InDoubt, ResourceManager, XaCode, Xid};

use crate::branch::MonkeyBranch;

/// A resource manager that answers each verb as a text file says. Cheap to clone; clones come forward in the same script. The last
/// one closes it.
///
/// Calls block for as long as writing a line to a file takes. A script that says to die ends the process.
#[derive(Clone)]
pub struct Monkey(Arc<Open>);

/// How a monkey is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening<'a> {
    /// What `xa_open` of the switches takes: `script=FILE;log=FILE;state=FOLDER`, of which each part may be missing.
    pub text: &'a str,
    /// Its number in the log.
    pub number: i32,
    /// For which thread's lines (`VERB@N`) it stands. Without one it is the thread that opens it: the Nth that opened a monkey in
    /// this process, counted from 1. It stays so wherever a runtime has the calls made.
    pub thread: Option<usize>,
}

struct Open {
    name: BranchName,
    order: u32,
    instance: Mutex<Instance>,
}

impl Monkey {
    /// Opens a monkey of that name. Reads the script, and blocks for that.
    ///
    /// # Errors
    /// In plain words: when the text makes no sense, a file cannot be used, or the script does not answer `open` with `XA_OK`.
    pub fn open(name: BranchName, opening: &Opening<'_>) -> Result<Self, String> {
        let mut instance = Instance::open(opening.text, opening.number, opening.thread)?;
        match code(instance.answer("open", None, TMNOFLAGS)) {
            XaCode::Ok => Ok(Self(Arc::new(Open { name, order: 0, instance: Mutex::new(instance) }))),
            refused => Err(format!("xa_open answered {refused}")),
        }
    }

    /// With this place in the order of commits, as recovery has it.
    ///
    /// # Panics
    /// When it has been cloned already: clones have one order.
    #[must_use]
    pub fn in_order(mut self, order: u32) -> Self {
        Arc::get_mut(&mut self.0).expect("the order is stated before it is cloned").order = order;
        self
    }

    /// Begins work on a branch, as `xa_start` does.
    ///
    /// # Errors
    /// What the script answers instead of `XA_OK`: then there is no branch.
    pub fn start(&self, xid: &Xid) -> Result<MonkeyBranch, Answer> {
        let answer = self.answer("start", xid, TMNOFLAGS);
        if answer.code == XaCode::Ok { Ok(MonkeyBranch::started(self.clone(), xid.clone())) } else { Err(answer) }
    }

    pub(crate) fn answer(&self, verb: &str, xid: &Xid, flags: c_long) -> Answer {
        match code(self.0.lock().answer(verb, Some(&named(xid)), flags)) {
            XaCode::Ok => XaCode::Ok.into(),
            code => Answer::new(code, "as its script says"),
        }
    }
}

impl ResourceManager for Monkey {
    fn name(&self) -> &BranchName {
        &self.0.name
    }

    fn order(&self) -> u32 {
        self.0.order
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async {
            let mut instance = self.0.lock();
            // As the switches do it: what is no error is a number of branches there.
            let answer = instance.answer("recover", None, TMSTARTRSCAN);
            if answer < XaCode::Ok.number() {
                return Err(format!("xa_recover answered {}", code(answer)));
            }
            let listed: Vec<XidData> = instance.prepared().into_iter().map(data_of).collect();
            let branches = listed.iter().filter_map(|name| name.to_xid()).collect();
            Ok(InDoubt { branches, unreadable: listed.iter().filter_map(|name| name.unreadable()).collect() })
        })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.answer("commit", xid, TMNOFLAGS) })
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.answer("rollback", xid, TMNOFLAGS) })
    }

    fn forget<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        Box::pin(async { self.answer("forget", xid, TMNOFLAGS) })
    }
}

impl fmt::Debug for Monkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monkey").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Open {
    /// A call that panicked has come forward in the script, and that is all there is to it.
    fn lock(&self) -> MutexGuard<'_, Instance> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What it answers changes nothing.
        self.lock().answer("close", None, TMNOFLAGS);
    }
}

fn code(number: i32) -> XaCode {
    XaCode::of_number(number).expect("a script answers by the names of the standard")
}

fn named(xid: &Xid) -> monkey::Xid {
    let XidData { format, gtrid_length, bqual_length, data } = XidData::of(xid);
    monkey::Xid { format, gtrid_length, bqual_length, data }
}

fn data_of(xid: monkey::Xid) -> XidData {
    let monkey::Xid { format, gtrid_length, bqual_length, data } = xid;
    XidData { format, gtrid_length, bqual_length, data }
}
