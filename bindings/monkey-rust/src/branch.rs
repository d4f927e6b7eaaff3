//! A branch of the monkey, which asks the script what a transaction manager of XA would: `end` before anything else.
//!
//! ```text
//!  active ─ prepare, commit in one phase, rollback: `end` ─▶ ended
//!    ╰─ dropped: `end`, `rollback`
//! ```
//!
//! May use: `manager`, `tm`. Must not know: scripts, files.

use std::ffi::c_long;

use tm::xa_h::TMNOFLAGS;
use tm::{Answer, BoxFuture, Branch, XaCode, Xid};

use crate::manager::Monkey;

/// Numbers of the standard's `xa.h`.
const TMONEPHASE: c_long = 0x4000_0000;
const TMSUCCESS: c_long = 0x0400_0000;
const TMFAIL: c_long = 0x2000_0000;

/// A monkey's part of a transaction. One that is dropped before its end is rolled back, unless it was asked to prepare.
#[derive(Debug)]
pub struct MonkeyBranch {
    monkey: Monkey,
    xid: Xid,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Ended,
}

impl MonkeyBranch {
    pub(crate) fn started(monkey: Monkey, xid: Xid) -> Self {
        Self { monkey, xid, state: State::Active }
    }

    /// Ends the work, if that was not done before.
    fn end(&mut self, flags: c_long) -> Answer {
        if std::mem::replace(&mut self.state, State::Ended) == State::Ended {
            return XaCode::Ok.into();
        }
        self.monkey.answer("end", &self.xid, flags)
    }

    /// Ends the work and asks for more. Whatever it answers to ending, a branch that did not end is still there, and is rolled back.
    fn end_and(&mut self, verb: &str, flags: c_long) -> Answer {
        let ended = self.end(TMSUCCESS);
        if ended.code == XaCode::Ok {
            return self.monkey.answer(verb, &self.xid, flags);
        }
        Answer::new(XaCode::Protocol, format!("xa_end answered {}", ended.code))
    }
}

impl Branch for MonkeyBranch {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { self.end_and("prepare", TMNOFLAGS) })
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { self.end_and("commit", TMONEPHASE) })
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { self.monkey.answer("commit", &self.xid, TMNOFLAGS) })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            // Whatever that answers, it is rolled back.
            self.end(TMFAIL);
            self.monkey.answer("rollback", &self.xid, TMNOFLAGS)
        })
    }

    fn forget(&mut self) -> BoxFuture<'_, Answer> {
        Box::pin(async { self.monkey.answer("forget", &self.xid, TMNOFLAGS) })
    }
}

impl Drop for MonkeyBranch {
    fn drop(&mut self) {
        if self.state == State::Active {
            self.end(TMFAIL);
            self.monkey.answer("rollback", &self.xid, TMNOFLAGS);
        }
    }
}
