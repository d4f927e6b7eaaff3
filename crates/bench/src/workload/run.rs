//! Runs one phase with all its threads.
//!
//! One reading of the clock ends an operation and starts the next, so the cost of choosing a key and cutting a value is
//! part of the latency: some tens of nanoseconds, the same for every store.
//!
//! May use: this folder. Must not know: which store it is.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::keys::{Chooser, Scattered, absent, present};
use super::outcome::{KindOutcome, Outcome};
use super::plan::{Phase, Plan};
use super::recorder::Recorder;
use super::values::Values;
use super::{Driver, Failure, Result};

/// Of so many operations of the mixed phase one is a put; the rest are gets.
const MIX: u64 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
    Head,
}

/// What one thread, or after merging all of them, measured.
struct Measured {
    kinds: [(Kind, Recorder, u64); 3],
}

impl Measured {
    fn new() -> Result<Self> {
        let kind = |kind| Recorder::new().map(|recorder| (kind, recorder, 0));
        Ok(Self { kinds: [kind(Kind::Get)?, kind(Kind::Put)?, kind(Kind::Head)?] })
    }

    fn add(&mut self, kind: Kind, nanos: u64, found: bool) {
        if let Some((_, recorder, count)) = self.kinds.iter_mut().find(|(own, ..)| *own == kind) {
            recorder.add(nanos);
            *count += u64::from(found);
        }
    }

    fn merge(&mut self, other: &Self) -> Result<()> {
        for ((_, to, found), (_, from, more)) in self.kinds.iter_mut().zip(&other.kinds) {
            to.merge(from)?;
            *found += more;
        }
        Ok(())
    }

    fn outcomes(&self) -> Vec<KindOutcome> {
        let outcome = |(kind, recorder, found): &(Kind, Recorder, u64)| KindOutcome {
            kind: format!("{kind:?}").to_lowercase(),
            operations: recorder.count(),
            found: *found,
            latency: recorder.latency(),
        };
        self.kinds.iter().filter(|(_, recorder, _)| recorder.count() > 0).map(outcome).collect()
    }
}

/// Runs `phase` and measures it. `round` makes the keys of repeated phases differ.
pub(super) fn run_phase(driver: &dyn Driver, plan: &Plan, phase: Phase, round: u64) -> Result<Outcome> {
    let threads = u64::from(plan.threads);
    let start = Barrier::new(usize::from(plan.threads));
    // All that costs memory is made before the clock starts.
    let works: Vec<Work<'_>> =
        (0..threads).map(|thread| Work::new(driver, plan, round, thread)).collect::<Result<_>>()?;
    let worker = |thread: u64, mut work: Work<'_>| {
        start.wait();
        let began = Instant::now();
        match phase {
            Phase::Load => work.load(thread * plan.keys / threads, (thread + 1) * plan.keys / threads)?,
            _ => work.repeat(phase)?,
        }
        Ok::<_, Failure>((work.measured, began, Instant::now()))
    };
    let done: Vec<_> = thread::scope(|scope| {
        let spawn = |(thread, work)| scope.spawn(move || worker(thread, work));
        let workers: Vec<_> = (0..threads).zip(works).map(spawn).collect();
        let join =
            |worker: thread::ScopedJoinHandle<'_, _>| worker.join().map_err(|_| Failure::from("a worker panicked"))?;
        workers.into_iter().map(join).collect::<Result<_>>()
    })?;
    let mut all = Measured::new()?;
    done.iter().try_for_each(|(measured, ..)| all.merge(measured))?;
    let first = done.iter().map(|(_, began, _)| *began).min();
    let last = done.iter().map(|(.., ended)| *ended).max();
    let seconds = first.zip(last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
    Ok(Outcome { phase: phase.name(), seconds, kinds: all.outcomes() })
}

/// One thread at work.
struct Work<'a> {
    driver: &'a dyn Driver,
    plan: &'a Plan,
    chooser: Chooser,
    values: Values,
    measured: Measured,
}

impl<'a> Work<'a> {
    fn new(driver: &'a dyn Driver, plan: &'a Plan, round: u64, thread: u64) -> Result<Self> {
        let seed = plan.seed.wrapping_add(round << 32).wrapping_add(thread << 16);
        let chooser = Chooser::new(plan.spread, plan.keys, seed);
        Ok(Self { driver, plan, chooser, values: Values::new(plan.value_bytes, !seed), measured: Measured::new()? })
    }

    fn load(&mut self, from: u64, to: u64) -> Result<()> {
        let order = Scattered::new(self.plan.keys);
        let mut before = Instant::now();
        for index in from..to {
            self.driver.put(&present(order.at(index)), self.values.next())?;
            before = self.note(Kind::Put, before, true);
        }
        Ok(())
    }

    fn repeat(&mut self, phase: Phase) -> Result<()> {
        let mut before = Instant::now();
        let end = before + Duration::from_secs_f64(self.plan.seconds);
        while before < end {
            let number = self.chooser.next();
            let kind = match phase {
                Phase::Get | Phase::GetAbsent => Kind::Get,
                Phase::Head => Kind::Head,
                Phase::Mixed if !self.chooser.chance(1, MIX) => Kind::Get,
                Phase::Load | Phase::Put | Phase::Mixed => Kind::Put,
            };
            let key = if phase == Phase::GetAbsent { absent(number) } else { present(number) };
            let found = match kind {
                Kind::Get => self.driver.get(&key)?.is_some(),
                Kind::Head => self.driver.head(&key)?,
                Kind::Put => self.driver.put(&key, self.values.next()).map(|()| true)?,
            };
            before = self.note(kind, before, found);
        }
        Ok(())
    }

    /// Notes an operation that began at `before`; returns when it ended.
    fn note(&mut self, kind: Kind, before: Instant, found: bool) -> Instant {
        let now = Instant::now();
        let nanos = u64::try_from(now.duration_since(before).as_nanos()).unwrap_or(u64::MAX);
        self.measured.add(kind, nanos, found);
        now
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::super::keys::Spread;
    use super::super::plan::Durability;
    use super::*;

    #[derive(Default)]
    struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

    impl Driver for Map {
        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
            Ok(())
        }

        fn get(&self, key: &[u8]) -> Result<Option<usize>> {
            Ok(self.0.lock().unwrap().get(key).map(Vec::len))
        }

        fn head(&self, key: &[u8]) -> Result<bool> {
            Ok(self.0.lock().unwrap().contains_key(key))
        }
    }

    fn plan() -> Plan {
        Plan {
            keys: 997,
            value_bytes: 100,
            threads: 3,
            seconds: 0.02,
            durability: Durability::Written,
            spread: Spread::Uniform,
            phases: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn a_load_puts_every_key_once_and_the_other_phases_find_what_they_should() {
        let (map, plan) = (Map::default(), plan());
        let load = run_phase(&map, &plan, Phase::Load, 0).unwrap();
        assert_eq!((load.kinds[0].operations, map.0.lock().unwrap().len()), (997, 997));
        for (phase, found) in [(Phase::Get, true), (Phase::Head, true), (Phase::Put, true), (Phase::GetAbsent, false)] {
            let outcome = run_phase(&map, &plan, phase, 1).unwrap();
            let [kind] = outcome.kinds.as_slice() else { panic!("one kind") };
            assert!(kind.operations > 0 && outcome.seconds >= plan.seconds, "{outcome:?}");
            assert_eq!(kind.found, if found { kind.operations } else { 0 });
        }
        assert_eq!(map.0.lock().unwrap().len(), 997);
    }

    #[test]
    fn the_mixed_phase_gets_five_times_as_often_as_it_puts() {
        let (map, plan) = (Map::default(), plan());
        let outcome = run_phase(&map, &plan, Phase::Mixed, 0).unwrap();
        let of = |kind: &str| outcome.kinds.iter().find(|k| k.kind == kind).unwrap().operations;
        assert!((4..=6).contains(&(of("get") / of("put"))), "{outcome:?}");
    }
}
