//! A resource manager that keeps what it has prepared in a folder, and rolls back by itself what it is told to commit. It remembers that
//! until it is told to forget it.
//!
//! Files, by a branch's name: `NAME.prepared`, `NAME.heuristic`.
//!
//! May use: `tm`. Must not know: who dies when.

use std::fs;
use std::path::{Path, PathBuf};

use tm::{Answer, BoxFuture, Branch, BranchName, InDoubt, ResourceManager, XaCode, Xid};

use crate::bank::name;
use crate::steps::pass;

/// The resource manager, as recovery sees it.
#[derive(Clone)]
pub(crate) struct Stubborn {
    name: BranchName,
    folder: PathBuf,
}

/// One transaction's part.
pub(crate) struct StubbornBranch {
    manager: Stubborn,
    xid: Xid,
}

/// A branch that changes nothing, and leaves when it is asked to prepare.
pub(crate) struct Idle;

impl Stubborn {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { name: name("stubborn"), folder: folder.to_owned() }
    }

    pub(crate) fn start(&self, xid: Xid) -> StubbornBranch {
        StubbornBranch { manager: self.clone(), xid }
    }

    fn file(&self, xid: &Xid, state: &str) -> PathBuf {
        self.folder.join(format!("{xid}.{state}"))
    }

    fn end(&self, xid: &Xid, commits: bool) -> Answer {
        if self.file(xid, "heuristic").exists() {
            return XaCode::HeuristicRollback.into();
        }
        let prepared = self.file(xid, "prepared");
        let ended = if commits { fs::rename(prepared, self.file(xid, "heuristic")) } else { fs::remove_file(prepared) };
        match (ended, commits) {
            (Err(_), _) => XaCode::NotKnown.into(),
            (Ok(()), true) => XaCode::HeuristicRollback.into(),
            (Ok(()), false) => XaCode::Ok.into(),
        }
    }

    fn let_go(&self, xid: &Xid) -> Answer {
        pass("before forget");
        let gone = fs::remove_file(self.file(xid, "heuristic"));
        pass("after forget");
        gone.map_or(XaCode::NotKnown, |()| XaCode::Ok).into()
    }

    /// What it holds or remembers.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    }
}

fn at_once(answer: Answer) -> BoxFuture<'static, Answer> {
    Box::pin(std::future::ready(answer))
}

impl Branch for StubbornBranch {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        fs::write(self.manager.file(&self.xid, "prepared"), "").unwrap();
        at_once(XaCode::Ok.into())
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        at_once(XaCode::RolledBack.into())
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        at_once(self.manager.end(&self.xid, true))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        let _ = self.manager.end(&self.xid, false);
        at_once(XaCode::Ok.into())
    }

    fn forget(&mut self) -> BoxFuture<'_, Answer> {
        at_once(self.manager.let_go(&self.xid))
    }
}

impl Branch for Idle {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        pass("before unregister");
        pass("after unregister");
        at_once(XaCode::ReadOnly.into())
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        at_once(XaCode::Ok.into())
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        at_once(XaCode::Ok.into())
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        at_once(XaCode::Ok.into())
    }
}

impl ResourceManager for Stubborn {
    fn name(&self) -> &BranchName {
        &self.name
    }

    fn in_doubt(&self) -> BoxFuture<'_, Result<InDoubt, String>> {
        let xid = |name: &String| name.rsplit_once('.').unwrap().0.parse::<Xid>().unwrap();
        let all: Vec<Xid> = self.left().iter().map(xid).collect();
        Box::pin(std::future::ready(Ok(all.into())))
    }

    fn commit<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        at_once(self.end(xid, true))
    }

    fn rollback<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        at_once(self.end(xid, false))
    }

    fn forget<'a>(&'a self, xid: &'a Xid) -> BoxFuture<'a, Answer> {
        at_once(self.let_go(xid))
    }
}
