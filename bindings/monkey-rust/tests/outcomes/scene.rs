//! Monkeys with their scripts, a coordinator in the process, and what the monkeys were asked.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast::{Durability, Options, Store};
use holdfast_xa_monkey_rust::{Monkey, Opening};
use tempfile::TempDir;
use tm::{Begin, BranchName, Coordinator, Embedded, Outcome, Pace, Recovery, Report, ResourceManager, Transaction};

/// A coordinator, for as many scenes as are wanted.
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) coordinator: Coordinator,
}

/// Monkeys that have just been opened.
pub(crate) struct Scene<'a> {
    stage: &'a Stage,
    folder: TempDir,
    pub(crate) monkeys: Vec<Monkey>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // No power is cut here.
        let options = Options { durability: Durability::Written, ..Options::default() };
        let store = Store::open(folder.path(), options).unwrap();
        Self { folder, coordinator: Coordinator::embedded(Embedded::over(store)) }
    }

    /// Opens monkeys with these scripts, each for itself.
    pub(crate) fn scene(&self, scripts: &[&str]) -> Scene<'_> {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let numbered = scripts.iter().zip(0..);
        let monkeys = numbered.map(|(script, number)| open(folder.path(), script, number)).collect();
        Scene { stage: self, folder, monkeys }
    }
}

fn open(folder: &Path, script: &str, number: i32) -> Monkey {
    let path = folder.join(format!("script{number}"));
    fs::write(&path, script).unwrap();
    let base = folder.display();
    let text = format!("script={};log={base}/log;state={base}/state{number}", path.display());
    let name = BranchName::new(&format!("monkey{number}")).unwrap();
    Monkey::open(name, &Opening { text: &text, number, thread: Some(1) }).unwrap()
}

impl Scene<'_> {
    /// A transaction with a branch of each.
    pub(crate) async fn begin(&self) -> Transaction {
        let mut transaction = self.stage.coordinator.begin(Begin::default()).unwrap();
        for monkey in &self.monkeys {
            let branch = monkey.start(&transaction.xid(monkey.name().as_str()).unwrap()).unwrap();
            transaction.enlist(monkey.name(), branch).await.unwrap();
        }
        transaction
    }

    pub(crate) async fn commit(&self) -> Outcome {
        self.begin().await.commit().await.map_or_else(|failed| failed.outcome, |_| Outcome::Committed)
    }

    pub(crate) async fn rollback(&self) -> Outcome {
        self.begin().await.rollback().await.map_or_else(|failed| failed.outcome, |()| Outcome::RolledBack)
    }

    pub(crate) fn recovery(&self) -> Recovery {
        let managers = self.monkeys.iter().map(|monkey| Arc::new(monkey.clone()) as Arc<dyn ResourceManager>);
        Recovery::new(&self.stage.coordinator, managers.collect(), Pace::default())
    }

    /// What a recovery finds that comes behind another one.
    pub(crate) async fn recover(&self) -> Report {
        let mut recovery = self.recovery();
        recovery.run().await;
        recovery.run().await
    }

    /// The lines of the log.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// The verbs that all were asked, in the order of the alphabet: who is asked side by side is in no other.
    pub(crate) fn verbs(&self) -> Vec<String> {
        let lines = self.log();
        let verbs = lines.iter().map(|line| line.split(' ').nth(2).unwrap().to_owned());
        let mut verbs: Vec<String> = verbs.filter(|verb| !["open", "start", "recover"].contains(&&**verb)).collect();
        verbs.sort();
        verbs
    }
}
