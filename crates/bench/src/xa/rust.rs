//! The same cycles by the Rust interface, with the coordinator in the process or over loopback.
//!
//! May use: `tm`, tokio. Must not know: what is measured with it.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tm::{Answer, Begin, BoxFuture, Branch, BranchName, Coordinator, Embedded, Remote, RemoteOptions, XaCode};

use super::coordinator::{Served, Serving, open};
use super::timing::{Call, Timing};
use super::{Line, Measured, Place, Think};
use crate::cost::Cost;
use crate::workload::{Failure, Result};

/// A resource manager that answers at once.
struct Dummy;

impl Dummy {
    fn answer<'a>() -> BoxFuture<'a, Answer> {
        Box::pin(std::future::ready(XaCode::Ok.into()))
    }
}

impl Branch for Dummy {
    fn prepare(&mut self) -> BoxFuture<'_, Answer> {
        Self::answer()
    }

    fn commit_one_phase(&mut self) -> BoxFuture<'_, Answer> {
        Self::answer()
    }

    fn commit(&mut self) -> BoxFuture<'_, Answer> {
        Self::answer()
    }

    fn rollback(&mut self) -> BoxFuture<'_, Answer> {
        Self::answer()
    }
}

/// Runs cycles in so many threads, each with a runtime of its own.
pub(super) fn measure(dir: &Path, line: &Line, threads: u16) -> Result<Measured> {
    match line.coordinator {
        Place::Embedded => {
            let store = open(&dir.join("coordinator"), line.window, line.sync_delay)?;
            let coordinator = Coordinator::embedded(Embedded::over(store.clone()));
            let (served, paid) = (Served::of(&store), Cost::now(None)?);
            let (timing, seconds) = cycles(&coordinator, line, threads)?;
            let (cost, served) = (Cost::now(None)? - paid, Some(Served::of(&store) - served));
            drop(coordinator);
            store.close()?;
            Ok(Measured { timing, seconds, cost, thinking: None, served })
        }
        Place::Remote => {
            let serving = Serving::start(dir, line.window, line.sync_delay)?;
            let remote = Remote::open(RemoteOptions::new(&serving.address.to_string()));
            let remote = remote.map_err(|error| Failure::from(error.to_string()))?;
            let coordinator = Coordinator::over(Arc::new(remote));
            let (served, paid) = (serving.served()?, Cost::now(Some(serving.pid()))?);
            let (timing, seconds) = cycles(&coordinator, line, threads)?;
            let (cost, served) = (Cost::now(Some(serving.pid()))? - paid, Some(serving.served()? - served));
            drop(coordinator);
            serving.stop()?;
            Ok(Measured { timing, seconds, cost, thinking: None, served })
        }
    }
}

/// Cycles for as long as is said; and how long they took, in seconds.
fn cycles(coordinator: &Coordinator, line: &Line, threads: u16) -> Result<(Timing, f64)> {
    let (began, think) = (Instant::now(), line.think);
    let until = began + line.time();
    let running: Vec<_> = (0..u64::from(threads))
        .map(|seed| {
            let coordinator = coordinator.clone();
            thread::spawn(move || -> Result<Timing> {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let mut program = Program { coordinator, timing: Timing::new(seed + 1), think };
                runtime.block_on(program.run(until))?;
                Ok(program.timing)
            })
        })
        .collect();
    let mut timing = Timing::new(0);
    for thread in running {
        timing.add(&thread.join().map_err(|_| Failure::from("a thread of the benchmark panicked"))??);
    }
    Ok((timing, began.elapsed().as_secs_f64()))
}

struct Program {
    coordinator: Coordinator,
    timing: Timing,
    think: Think,
}

impl Program {
    async fn run(&mut self, until: Instant) -> Result<()> {
        let names = [BranchName::new("one"), BranchName::new("two")];
        let names = names.into_iter().collect::<std::result::Result<Vec<_>, _>>();
        let names = names.map_err(|error| Failure::from(error.to_string()))?;
        let (t1, t2) = self.think.least();
        while Instant::now() < until {
            self.cycle(&names, t1).await?;
            self.timing.think(t2);
        }
        Ok(())
    }

    async fn cycle(&mut self, names: &[BranchName], t1: Duration) -> Result<()> {
        let failed = |text: String| Failure::from(text);
        let mut transaction = self
            .timing
            .time(Call::Begin, || self.coordinator.begin(Begin::default()))
            .map_err(|error| failed(error.to_string()))?;
        for name in names {
            transaction.enlist(name, Dummy).await.map_err(|error| failed(error.to_string()))?;
        }
        self.timing.think(t1);
        self.timing.think(t1);
        let began = Instant::now();
        transaction.commit().await.map_err(|error| failed(format!("{error:?}")))?;
        self.timing.took(Call::Commit, began.elapsed());
        self.timing.end();
        Ok(())
    }
}
