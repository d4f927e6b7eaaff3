//! Runs one workload with all its callers, and beside them what the store does for itself.
//!
//! May use: this folder. Must not know: which store it is.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::clock::{Clock, Signals, wake_up_sharply};
use super::cold::forget;
use super::driver::Unsupported;
use super::gather::{Count, Gatherer, Part, Reporter};
use super::live::Live;
use super::made::Stock;
use super::outcome::{Outcome, Said};
use super::pace::Pace;
use super::plan::{Plan, Workload};
use super::progress::Progress;
use super::tally::{Done, Kind, Tally};
use super::usage::Watched;
use super::work::{Caller, Shared};
use super::{Driver, Failure, Result};

/// How often somebody who waits for callers looks.
const PAUSE: Duration = Duration::from_millis(5);

/// One store, and what is known of what it should hold.
pub(super) struct Side<'a> {
    driver: &'a dyn Driver,
    plan: &'a Plan,
    stock: Stock,
    live: Live,
    watched: Watched,
}

impl<'a> Side<'a> {
    /// A store that holds none of the benchmark's objects.
    pub(super) fn new(driver: &'a dyn Driver, plan: &'a Plan) -> Self {
        Self {
            driver,
            plan,
            stock: Stock::new(plan.value, plan.seed),
            live: Live::new(plan.objects),
            watched: Watched::new(driver.process(), driver.dir()),
        }
    }

    /// Runs a workload. `round` makes the keys of repeated workloads differ.
    pub(super) fn run(
        &self,
        workload: Workload,
        round: u64,
        say: &mut dyn FnMut(Said) -> Result<()>,
    ) -> Result<Outcome> {
        let plan = self.plan;
        let callers = u64::from(plan.callers());
        let signals = Signals::default();
        signals.callers.store(usize::from(plan.callers()), Relaxed);
        signals.hold.store(workload == Workload::Aae, Relaxed);
        let done: Vec<Count> = (0..callers).map(|_| Count::default()).collect();
        let helped = Count::default();
        let (send, parts) = mpsc::channel();
        let interval = Duration::from_secs_f64(plan.interval);
        let shared = Shared { plan, stock: &self.stock, live: &self.live };
        let loading = workload == Workload::Load;
        let helped_along = matches!(workload, Workload::Aae | Workload::Compact);
        let time = (plan.ops.is_none() && !loading).then(|| Duration::from_secs_f64(plan.seconds));
        if plan.cold && !loading {
            let dir = self.driver.dir().ok_or(Unsupported("--cold, as the store's folder is not known"))?;
            forget(dir)?;
        }
        let sessions: Vec<_> = (0..callers).map(|_| self.driver.session()).collect::<Result<_>>()?;
        let before = (self.watched.look(), self.live.sums());
        let start = Instant::now();
        let reporter = |thread: u64, done, parts: Sender<Part>| Reporter {
            thread: usize::try_from(thread).unwrap_or(usize::MAX),
            start,
            interval,
            parts,
            done,
            current: 0,
            until: start.checked_add(interval),
            tally: Tally::default(),
            operations: 0,
        };
        let share = |all: u64, caller: u64| (caller + 1) * all / callers - caller * all / callers;
        let progress = Progress::new(workload.name(), time, if loading { Some(plan.objects) } else { plan.ops });
        let gatherer = Gatherer {
            workload: workload.name(),
            start,
            interval,
            watched: &self.watched,
            live: &self.live,
            done: &done,
            progress,
            end: time.filter(|_| !helped_along),
        };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((caller, session), done) in (0_u64..).zip(sessions).zip(&done) {
                let clock = Clock {
                    signals: &signals,
                    start,
                    time,
                    operations: plan.ops.filter(|_| !loading).map(|ops| share(ops, caller)),
                    pace: plan.rate.filter(|_| !loading).map(|rate| Pace::new(rate, caller, callers)),
                    begun: 0,
                };
                let seed = plan.seed.wrapping_add(round << 32).wrapping_add(caller << 16);
                let reporter = reporter(caller, done, send.clone());
                let signals = &signals;
                threads.push(scope.spawn(move || {
                    wake_up_sharply();
                    let mut caller_at_work = Caller::new(shared, workload, seed, session, clock, reporter);
                    let from = caller * plan.objects / callers;
                    let result = if loading {
                        caller_at_work.load(from, (caller + 1) * plan.objects / callers).map(|()| 0)
                    } else {
                        caller_at_work.repeat(workload)
                    };
                    signals.callers.fetch_sub(1, Relaxed);
                    let ended = start.elapsed();
                    result.map(|not_begun| (not_begun, ended)).inspect_err(|_| signals.failed.store(true, Relaxed))
                }));
            }
            if helped_along {
                let reporter = reporter(callers, &helped, send.clone());
                let helper = Helper { side: self, signals: &signals, reporter };
                threads.push(scope.spawn(move || helper.help(workload).map(|()| (0, Duration::ZERO))));
            }
            drop(send);
            let gathered = gatherer.gather(before, &parts, say);
            if gathered.is_err() {
                signals.failed.store(true, Relaxed);
            }
            let (mut not_begun, mut loaded) = (0, Duration::ZERO);
            for thread in threads {
                let (late, ended) = thread.join().map_err(|_| Failure::from("a caller panicked"))??;
                not_begun += late;
                loaded = loaded.max(ended);
            }
            gathered.map(|outcome| Outcome { not_begun, loaded_seconds: loaded.as_secs_f64(), ..outcome })
        })
    }
}

/// What goes on beside the callers.
struct Helper<'a> {
    side: &'a Side<'a>,
    signals: &'a Signals,
    reporter: Reporter<'a>,
}

impl Helper<'_> {
    fn help(mut self, workload: Workload) -> Result<()> {
        let result = if workload == Workload::Aae { self.rebuild() } else { self.compact() };
        self.signals.hold.store(false, Relaxed);
        result.inspect_err(|_| self.signals.failed.store(true, Relaxed))
    }

    fn loaded(&self) -> bool {
        self.signals.callers.load(Relaxed) > 0 && !self.signals.failed.load(Relaxed)
    }

    fn note(&mut self, kind: Kind, begin: Instant, items: u64) -> Result<()> {
        let end = Instant::now();
        let nanos = u64::try_from(end.duration_since(begin).as_nanos()).unwrap_or(u64::MAX);
        self.reporter.note(Done { kind, nanos, found: items > 0, items }, end)?;
        self.reporter.hand_over();
        Ok(())
    }

    /// Builds the tree once in any case, and again as long as there is load.
    fn rebuild(&mut self) -> Result<()> {
        loop {
            let before = self.side.live.sums().objects;
            let begin = Instant::now();
            let objects = self.side.driver.rebuild_tree()?;
            self.note(Kind::Rebuild, begin, objects)?;
            if objects < before {
                return Err(format!("a tree over at least {before} objects was built from {objects}").into());
            }
            self.signals.hold.store(false, Relaxed);
            if !self.loaded() {
                return Ok(());
            }
        }
    }

    /// Has the store make room under load; then waits until it has nothing left to do, then has it compact the rest.
    fn compact(&mut self) -> Result<()> {
        let driver = self.side.driver;
        while self.loaded() {
            let begin = Instant::now();
            match driver.compact_loaded()? {
                Some(bytes) if bytes > 0 => self.note(Kind::Reclaim, begin, bytes)?,
                // By itself, or nothing yet.
                _ => thread::sleep(PAUSE),
            }
        }
        for kind in [Kind::Settle, Kind::Compact] {
            let disk = || self.side.watched.look().disk_bytes.unwrap_or(0);
            let (before, begin) = (disk(), Instant::now());
            if kind == Kind::Settle { driver.settle() } else { driver.compact() }?;
            self.note(kind, begin, before.saturating_sub(disk()))?;
        }
        Ok(())
    }
}
