//! A thread with monkeys and a coordinator in memory, and what the monkeys were asked.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast::Durability;
use tempfile::TempDir;
use tm::{
    Begin, BranchName, CoordinatorId, Decisions, Deed, Error, ErrorKind, Learned, OwnerId, Result, Sharing,
    TransactionId, Verdict, Vote,
};

use crate::control::Thread;
use crate::manager::Manager;
use crate::switch::{Switch, SwitchedResource};

pub(super) const COORDINATOR: CoordinatorId = CoordinatorId(7);
pub(super) const STATIC: &str = "holdfast_monkey_static";
pub(super) const DYNAMIC: &str = "holdfast_monkey_dynamic";
pub(super) const ASYNC: &str = "holdfast_monkey_async";

/// Decisions in memory: obviously right, and gone with the test.
#[derive(Default)]
pub(super) struct Memory {
    sequence: AtomicU64,
    /// What was decided, and the branches that do not know yet.
    pub(super) decided: Mutex<BTreeMap<TransactionId, Vec<BranchName>>>,
    pub(super) done: Mutex<Vec<(TransactionId, Learned)>>,
    /// What resource managers did by themselves with branches that were rolled back.
    pub(super) deeds: Mutex<Vec<(TransactionId, Deed)>>,
    /// What the next commit answers, when it is to fail.
    pub(super) refusal: Mutex<Option<ErrorKind>>,
    /// What it was told to roll back, whatever it answered.
    pub(super) aborted: Mutex<Vec<TransactionId>>,
    /// Whether aborts are refused although nothing is decided: to a user without rights, for example.
    pub(super) refuses_aborts: Mutex<bool>,
    /// What votes are answered, when they are to fail.
    pub(super) vote_refusal: Mutex<Option<ErrorKind>>,
    /// The votes that it was told.
    pub(super) votes: Mutex<Vec<(BranchName, Vote)>>,
    /// Whether what resource managers did by themselves cannot be recorded now.
    pub(super) refuses_records: Mutex<bool>,
}

impl Decisions for Memory {
    fn coordinator(&self) -> CoordinatorId {
        COORDINATOR
    }

    fn begin(&self, begin: Begin) -> Result<TransactionId> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        Ok(TransactionId {
            coordinator: COORDINATOR,
            owner: OwnerId(1),
            sequence,
            deadline_ms: begin.timeout.map_or(0, |timeout| timeout.as_secs()),
            shared: begin.sharing == Sharing::Shared,
            last_resource: None,
        })
    }

    fn commit(&self, id: TransactionId, branches: &[BranchName], _: Option<Durability>) -> Result<()> {
        if let Some(kind) = self.refusal.lock().unwrap().take() {
            return Err(Error { kind, text: "as the test wants it".to_owned() });
        }
        self.decided.lock().unwrap().insert(id, branches.to_vec());
        Ok(())
    }

    fn done(&self, id: TransactionId, done: &[Learned]) {
        self.done.lock().unwrap().extend(done.iter().map(|done| (id, done.clone())));
        let mut decided = self.decided.lock().unwrap();
        if let Some(branches) = decided.get_mut(&id) {
            branches.retain(|branch| done.iter().all(|done| done.branch != *branch));
            if branches.is_empty() {
                decided.remove(&id);
            }
        }
    }

    fn record(&self, id: TransactionId, done: &[Learned]) -> Result<()> {
        if *self.refuses_records.lock().unwrap() {
            return Err(Error { kind: ErrorKind::Unavailable, text: "as the test wants it".to_owned() });
        }
        self.done(id, done);
        Ok(())
    }

    fn abort(&self, id: TransactionId) -> Result<()> {
        self.aborted.lock().unwrap().push(id);
        let decided = self.decided.lock().unwrap().contains_key(&id);
        let refused = Error { kind: ErrorKind::Invalid, text: "it is committed".to_owned() };
        if decided || *self.refuses_aborts.lock().unwrap() { Err(refused) } else { Ok(()) }
    }

    fn record_deeds(&self, id: TransactionId, deeds: &[Deed]) -> Result<()> {
        if *self.refuses_records.lock().unwrap() {
            return Err(Error { kind: ErrorKind::Unavailable, text: "as the test wants it".to_owned() });
        }
        self.abort(id)?;
        self.deeds.lock().unwrap().extend(deeds.iter().map(|deed| (id, deed.clone())));
        Ok(())
    }

    fn verdicts(&self, ids: &[TransactionId]) -> Result<Vec<Verdict>> {
        let decided = self.decided.lock().unwrap();
        let verdict = |id: &TransactionId| match id.owner {
            _ if id.coordinator != COORDINATOR => Verdict::Foreign,
            _ if decided.contains_key(id) => Verdict::Commit,
            OwnerId(1) => Verdict::Leave,
            _ => Verdict::Rollback,
        };
        Ok(ids.iter().map(verdict).collect())
    }

    fn suspend(&self, _: TransactionId, _: &[BranchName]) -> Result<()> {
        Ok(())
    }

    fn resume(&self, _: TransactionId, _: u64) -> Result<()> {
        Ok(())
    }

    fn enlist(&self, _: TransactionId, _: &[BranchName]) -> Result<()> {
        Ok(())
    }

    fn prepared(&self, _: TransactionId, branch: &BranchName, part: Vote) -> Result<()> {
        self.votes.lock().unwrap().push((branch.clone(), part));
        match *self.vote_refusal.lock().unwrap() {
            Some(kind) => Err(Error { kind, text: "as the test wants it".to_owned() }),
            None => Ok(()),
        }
    }
}

pub(super) struct Scene {
    folder: TempDir,
    pub(super) memory: Arc<Memory>,
    pub(super) manager: Arc<Manager>,
    pub(super) thread: Thread,
}

impl Scene {
    /// Monkeys by their switches and scripts. Nothing is open yet.
    pub(super) fn new(monkeys: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let memory = Arc::new(Memory::default());
        let numbered = monkeys.iter().zip(0..);
        let resources = numbered.map(|((symbol, script), rmid)| {
            let path = folder.path().join(format!("script{rmid}"));
            fs::write(&path, script).unwrap();
            let base = folder.path().display();
            let open = format!("script={};log={base}/log;state={base}/state{rmid}", path.display());
            SwitchedResource {
                branch: BranchName::new(&format!("monkey{rmid}")).unwrap(),
                order: 0,
                rmid,
                open_string: CString::new(open).unwrap(),
                close_string: CString::default(),
                switch: Switch::load(&monkey(), symbol).unwrap(),
                is_last: false,
                known: Mutex::default(),
            }
        });
        let manager = Manager::new(memory.clone(), resources.collect(), None, None);
        Self { folder, memory, manager: Arc::new(manager), thread: Thread::default() }
    }

    pub(super) fn open(&mut self) -> i32 {
        let manager = self.manager.clone();
        self.thread.open(|| Ok(manager))
    }

    /// The verbs that all monkeys were asked, in order, each with its number and flags, as `verb rmid flags`.
    pub(super) fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            format!("{} {} {}", words[2], words[1], words[4])
        };
        log.lines().map(line).collect()
    }

    /// The verbs alone, without those of opening, listing and starting.
    pub(super) fn verbs(&self) -> String {
        let calls = self.calls();
        let verbs = calls.iter().map(|call| call.split(' ').next().unwrap());
        let quiet = ["open", "close", "recover", "start", "complete"];
        verbs.filter(|verb| !quiet.contains(verb)).collect::<Vec<_>>().join(" ")
    }

    /// Branches that a monkey holds prepared.
    pub(super) fn prepared(&self, rmid: usize) -> usize {
        fs::read_dir(self.folder.path().join(format!("state{rmid}"))).map_or(0, Iterator::count)
    }
}

/// The library, which cargo builds beside this test program.
pub(super) fn monkey() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libholdfast_xa_monkey.so")
}

/// How long a test waits for something that is bound to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
