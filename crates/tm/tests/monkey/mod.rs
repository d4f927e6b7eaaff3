//! A resource manager that answers what a test tells it, holds what is prepared, and writes down what it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use holdfast_tm::{Answer, BoxFuture, Branch, BranchName, InDoubt, ResourceManager, XaCode, Xid};
use tokio::sync::Notify;

/// Lines of several of them, in order.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
pub(crate) struct Monkey(Arc<Inner>);

struct Inner {
    name: BranchName,
    order: AtomicU32,
    /// It accepts a question and never answers.
    hangs: AtomicBool,
    /// What is prepared while it makes its list for the first time, too late to be in it.
    late: Mutex<Option<Xid>>,
    answers: Mutex<BTreeMap<&'static str, XaCode>>,
    calls: Mutex<Vec<&'static str>>,
    held: Mutex<BTreeSet<Xid>>,
    unreadable: Mutex<Vec<String>>,
    log: Log,
    called: Notify,
}

struct MonkeyBranch {
    monkey: Monkey,
    xid: Xid,
}

impl Monkey {
    pub(crate) fn new(name: &str) -> Self {
        Self::logging(name, &Self::log())
    }

    pub(crate) fn log() -> Log {
        Log::default()
    }

    pub(crate) fn logging(name: &str, log: &Log) -> Self {
        Self(Arc::new(Inner {
            name: BranchName::new(name).unwrap(),
            order: AtomicU32::new(0),
            hangs: AtomicBool::new(false),
            late: Mutex::default(),
            answers: Mutex::default(),
            calls: Mutex::default(),
            held: Mutex::default(),
            unreadable: Mutex::default(),
            log: Arc::clone(log),
            called: Notify::new(),
        }))
    }

    pub(crate) fn answering(self, call: &'static str, code: XaCode) -> Self {
        self.answer(call, code);
        self
    }

    pub(crate) fn answer(&self, call: &'static str, code: XaCode) {
        self.0.answers.lock().unwrap().insert(call, code);
    }

    pub(crate) fn in_order(self, order: u32) -> Self {
        self.0.order.store(order, Ordering::Relaxed);
        self
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.0.hangs.store(hangs, Ordering::Relaxed);
    }

    pub(crate) fn hold_late(&self, xid: &Xid) {
        *self.0.late.lock().unwrap() = Some(xid.clone());
    }

    pub(crate) fn branch(&self, xid: &Xid) -> impl Branch + use<> {
        MonkeyBranch { monkey: self.clone(), xid: xid.clone() }
    }

    pub(crate) fn calls(&self) -> Vec<&'static str> {
        self.0.calls.lock().unwrap().clone()
    }

    pub(crate) fn hold(&self, xid: &Xid) {
        self.0.held.lock().unwrap().insert(xid.clone());
    }

    pub(crate) fn held(&self) -> usize {
        self.0.held.lock().unwrap().len()
    }

    pub(crate) async fn until_called(&self, call: &str) {
        while !self.calls().contains(&call) {
            self.0.called.notified().await;
        }
    }

    pub(crate) fn hold_unreadable(&self, names: &[&str]) {
        *self.0.unreadable.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    fn list(&self) -> InDoubt {
        let branches = self.0.held.lock().unwrap().iter().cloned().collect();
        InDoubt { branches, unreadable: self.0.unreadable.lock().unwrap().clone() }
    }

    fn told(&self, call: &'static str) -> Answer {
        let code = self.0.answers.lock().unwrap().get(call).copied().unwrap_or(XaCode::Ok);
        if code == XaCode::Ok { code.into() } else { Answer::new(code, "as it was told") }
    }

    /// Something other than listing.
    fn ask(&self, call: &'static str, xid: &Xid) -> BoxFuture<'static, Answer> {
        let (monkey, xid) = (self.clone(), xid.clone());
        Box::pin(async move {
            // Others get a turn, as with a real one.
            tokio::task::yield_now().await;
            monkey.0.calls.lock().unwrap().push(call);
            monkey.0.log.lock().unwrap().push(format!("{} {call}", monkey.0.name));
            let mut answer = monkey.told(call);
            let is_gone = matches!(call, "commit" | "rollback") && !monkey.0.held.lock().unwrap().contains(&xid);
            let was_prepared = monkey.calls().contains(&"prepare");
            if is_gone && was_prepared && answer.code == XaCode::Ok {
                answer = XaCode::NotKnown.into();
            }
            match (call, answer.code) {
                // One whose answer is lost may well be prepared.
                ("prepare", XaCode::Ok | XaCode::ManagerDown) => monkey.hold(&xid),
                ("commit" | "rollback" | "forget", XaCode::Ok) => {
                    monkey.0.held.lock().unwrap().remove(&xid);
                }
                _ => {}
            }
            monkey.0.called.notify_one();
            answer
        })
    }
}

impl Branch for MonkeyBranch {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        self.monkey.ask("prepare", &self.xid)
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        self.monkey.ask("one phase", &self.xid)
    }

    fn commit_last<'a>(&'a mut self, _others: &'a [BranchName]) -> BoxFuture<'a, Answer> {
        self.monkey.ask("commit last", &self.xid)
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        self.monkey.ask("commit", &self.xid)
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        self.monkey.ask("rollback", &self.xid)
    }

    fn forget(&mut self) -> BoxFuture<'_, Answer> {
        self.monkey.ask("forget", &self.xid)
    }
}

impl ResourceManager for Monkey {
    fn name(&self) -> &BranchName {
        &self.0.name
    }

    fn order(&self) -> u32 {
        self.0.order.load(Ordering::Relaxed)
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        Box::pin(async {
            if self.0.hangs.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if let Some(xid) = self.0.late.lock().unwrap().take() {
                let list = self.list();
                self.hold(&xid);
                return Ok(list);
            }
            match self.told("in doubt") {
                Answer { code: XaCode::Ok, .. } => Ok(self.list()),
                Answer { reason, .. } => Err(reason),
            }
        })
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.ask("commit", xid)
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.ask("rollback", xid)
    }

    fn forget<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        self.ask("forget", xid)
    }
}
