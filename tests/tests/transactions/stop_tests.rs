//! Nobody dies, but somebody is stopped (SIGSTOP) at a step of a transaction and goes on later (SIGCONT): the server that is the
//! coordinator, PostgreSQL as a whole or only who accepts its connections or only who serves them, MariaDB, and the program
//! itself, for longer than its lease and its transaction's deadline. Whoever was stopped believes that no time has passed.
//!
//! `HOLDFAST_STOP_SECONDS` says how long the walk goes on, and `HOLDFAST_SEED` repeats its choices.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Launch, Random, Server, budget, say, until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::audit::{audited, settled, until_calm};
use crate::bank::Reach;
use crate::databases::{MariaDb, Postgres};
use crate::kill_tests::{ACCOUNTS, Job, PREPARED_MAX, Tally, lock, start};
use crate::programs::Program;
use crate::recovery_tests::number;
use crate::steps::STEPS;

/// Who is stopped at a step of a program.
const VICTIMS: [&str; 6] = ["server", "PostgreSQL", "postmaster", "backends", "MariaDB", "itself"];
const PROGRAMS: usize = 4;
/// How long somebody is stopped, in milliseconds: shorter than a lease (1 s), longer,
/// longer than a reply is waited for (5 s), and longer than all that a commit asks for.
const STOPS_MS: [u64; 7] = [200, 900, 1500, 2500, 4000, 7000, 17_000];
const LAST_STOP_MAX: Duration = Duration::from_secs(2);
const TIMEOUTS_MS: [u64; 4] = [0, 700, 1500, 3000];
/// Most often it is at one of these.
const CRUCIAL: [&str; 8] = [
    "after prepare mariadb",
    "after prepare postgres",
    "before last postgres",
    "after last postgres",
    "before decision",
    "after decision",
    "before commit postgres",
    "before commit mariadb",
];
const LIFE_TIME_MAX: Duration = Duration::from_secs(60);

/// How somebody is stopped.
struct Stop {
    /// How long after the step.
    delay: Duration,
    time: Duration,
    /// Whether the program is killed meanwhile.
    kills: bool,
}

struct Setting {
    postgres: Postgres,
    mariadb: MariaDb,
    server: Server,
    reach: Reach,
    job: Job,
    folder: TempDir,
    tally: Arc<Mutex<Tally>>,
    /// One stop of each at a time: who is stopped twice is not to go on after the first.
    stopping: [Mutex<()>; 3],
}

impl Setting {
    fn start() -> Self {
        let (postgres, mariadb) = (Postgres::start(PREPARED_MAX), MariaDb::start());
        let reach = Reach::new(&postgres.connection(), &mariadb.socket());
        let folder = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", &address)).unwrap();
        let config = folder.path().join("holdfast.toml");
        let text = "[xa]\nprofiles_file = \"profiles.toml\"\ninterval_seconds = 1\nsweep_seconds = 1\n";
        std::fs::write(&config, text).unwrap();
        let launch = Launch::new(&folder.path().join("data")).resp(&address);
        let server = launch.argument("--config").argument(&config.display().to_string()).start();
        let job = Job {
            coordinator: address,
            postgres_port: postgres.port(),
            socket: mariadb.socket().display().to_string(),
            seed: 0,
            victim: String::new(),
            dead: String::new(),
            step: 0,
            passages: 0,
            delay_us: 0,
            transfers_max: 0,
            timeout_ms: 0,
            recovers: false,
        };
        Self {
            postgres,
            mariadb,
            server,
            reach,
            job,
            folder,
            tally: Arc::default(),
            stopping: [(); 3].map(|()| Mutex::new(())),
        }
    }

    fn own_coordinator(&self) -> String {
        format!("dir:{}", self.folder.path().join("own").display())
    }

    /// A program's life, and whom it wants to be stopped.
    fn run(&self, job: &Job, stop: &Stop) {
        let mut program = start(job, &self.tally);
        let wanted = || lock(&self.tally).wanted.extract_if(.., |(_, dead)| *dead == job.dead).next();
        let wants = until(LIFE_TIME_MAX, || match wanted() {
            Some((what, _)) => Some(Some(what)),
            None => program.ends_within(Duration::ZERO).then_some(None),
        });
        if let Some(what) = wants.flatten() {
            program = match self.stop(&what, program, Path::new(&job.dead), stop) {
                Some(program) => program,
                None => return,
            };
        }
        if !program.ends_within(LIFE_TIME_MAX) {
            lock(&self.tally).count("did not come to its end");
        }
        program.kill();
    }

    /// Stops somebody for a time. Returns the program, unless that was killed meanwhile.
    fn stop(&self, what: &str, program: Program, stopped: &Path, stop: &Stop) -> Option<Program> {
        lock(&self.tally).count(what);
        let [of_server, of_postgres, of_mariadb] = &self.stopping;
        let is_one = || -> Vec<Pid> { self.postgres.processes() };
        let (lock, processes): (_, Vec<Pid>) = match what.split(' ').next().unwrap() {
            "server" => (Some(of_server), vec![self.server.id()]),
            "PostgreSQL" => (Some(of_postgres), is_one()),
            "postmaster" => (Some(of_postgres), is_one()[..1].to_vec()),
            "backends" => (Some(of_postgres), is_one()[1..].to_vec()),
            "MariaDB" => (Some(of_mariadb), vec![self.mariadb.id()]),
            _ => (None, vec![program.id()]),
        };
        let held = lock.map(|lock| lock.lock().unwrap());
        if !stop.delay.is_zero() {
            // In the middle of what comes next.
            std::fs::write(stopped, "").unwrap();
            thread::sleep(stop.delay);
        }
        // A backend may end meanwhile.
        processes.iter().for_each(|id| {
            let _ = kill_process(*id, Signal::STOP);
        });
        if stop.delay.is_zero() {
            std::fs::write(stopped, "").unwrap();
        }
        let mut program = Some(program);
        if stop.kills {
            // What it sent is still in the buffers of whoever is stopped.
            thread::sleep(Duration::from_millis(5));
            drop(program.take());
        }
        thread::sleep(stop.time);
        processes.iter().for_each(|id| {
            let _ = kill_process(*id, Signal::CONT);
        });
        drop(held);
        program
    }

    async fn audit(&self) {
        let local = settled(&self.reach, &self.own_coordinator()).await;
        until_calm(&self.reach).await;
        let remembered = || number(&self.server, "xa_outstanding");
        let is_forgotten = until(Duration::from_secs(60), || (remembered() == 0).then_some(())).is_some();
        assert!(is_forgotten, "{} are listed; the server says:\n{}", remembered(), self.server.output().text());
        let (told, torn) = {
            let tally = lock(&self.tally);
            (tally.told.clone(), tally.torn.clone())
        };
        let transfers = audited(&self.reach, &told, ACCOUNTS).await;
        assert!(torn.is_empty(), "told as torn: {torn:?}");
        assert!(local.iter().all(|id| transfers.contains(id)), "{local:?}");
        let tally = lock(&self.tally);
        // A program comes to its end by itself, too.
        let is_stop = |(what, _): &(&String, &usize)| !what.starts_with("program ") && !what.starts_with("did not");
        let stops: usize = tally.kills.iter().filter(is_stop).map(|(_, count)| count).sum();
        say!(
            "stops: {} so far; {} transfers in both, {} told as committed, {} as rolled back, {} as not known",
            stops,
            transfers.len(),
            told.committed.len(),
            told.refused.len(),
            tally.unknown,
        );
    }
}

fn chosen(random: &mut Random, job: &Job, dead: String) -> Job {
    let is_local = job.coordinator.starts_with("dir:");
    let victim = loop {
        let victim = VICTIMS[random.below(VICTIMS.len())];
        if !(is_local && victim == "server") {
            break victim.to_owned();
        }
    };
    Job {
        victim,
        dead,
        seed: random.number() % 1_000_000_000,
        step: match random.below(3) {
            0 => random.below(STEPS.len()),
            _ => {
                let step = CRUCIAL[random.below(CRUCIAL.len())];
                STEPS.iter().position(|name| *name == step).unwrap()
            }
        },
        passages: u32::try_from(random.below(3)).unwrap(),
        transfers_max: 5 + random.below(10) as u64,
        timeout_ms: TIMEOUTS_MS[random.below(TIMEOUTS_MS.len())],
        recovers: is_local || random.below(3) == 0,
        ..job.clone()
    }
}

#[test]
fn no_stop_at_any_step_tears_a_transaction() {
    let seed = Random::seed();
    let time = budget("HOLDFAST_STOP_SECONDS", 10);
    say!("stops: seed {seed}, {} s", time.as_secs());
    let setting = Setting::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(setting.reach.found_with(ACCOUNTS));
    let mut random = Random::new(seed);
    let ends = Instant::now() + time;
    thread::scope(|scope| {
        for slot in 0..PROGRAMS {
            let (mut random, setting) = (Random::new(random.number()), &setting);
            scope.spawn(move || {
                let is_own = slot + 1 == PROGRAMS;
                let coordinator = if is_own { setting.own_coordinator() } else { setting.job.coordinator.clone() };
                let job = Job { coordinator, ..setting.job.clone() };
                for number in 0.. {
                    let left = ends.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let dead = setting.folder.path().join(format!("stopped-{slot}-{number}")).display().to_string();
                    let delay_us = if random.below(2) == 0 { 0 } else { random.below(5000) as u64 };
                    let stop = Stop {
                        delay: Duration::from_micros(delay_us),
                        // At the end of the walk nobody waits for long.
                        time: Duration::from_millis(STOPS_MS[random.below(STOPS_MS.len())]).min(left + LAST_STOP_MAX),
                        kills: random.below(3) == 0,
                    };
                    setting.run(&chosen(&mut random, &job, dead), &stop);
                }
            });
        }
    });
    runtime.block_on(setting.audit());
    let tally = lock(&setting.tally);
    for (what, count) in &tally.kills {
        say!("stops: {count:>6} {what}");
    }
    assert!(tally.told.committed.len() > 5, "hardly anything was done");
}

/// Stops all threads of a process. The signal alone is a wish: a thread that runs may go on for a while.
fn stop_process(id: Pid) {
    kill_process(id, Signal::STOP).unwrap();
    let is_stopped = || {
        let mut threads = std::fs::read_dir(format!("/proc/{}/task", id.as_raw_nonzero())).unwrap();
        threads.all(|thread| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
            status.lines().any(|line| line.starts_with("State:\tT"))
        })
    };
    assert!(until(LIFE_TIME_MAX, || is_stopped().then_some(())).is_some(), "it is not stopped");
}

/// How many branches the server says to be left for that reason.
fn postponed(server: &Server) -> usize {
    server.output().text().matches("the connection that prepared it is still open").count()
}

/// The program is stopped for longer than its lease and its deadline while its branches are prepared: the server gives it up by
/// itself, and the commit that comes late is refused, whoever decides.
#[test]
fn who_was_given_up_while_it_was_stopped_hears_that_nothing_is_committed() {
    let setting = Setting::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(setting.reach.found_with(ACCOUNTS));
    let clients = runtime.block_on(setting.reach.connect()).unwrap();
    for (step, timeout_ms) in
        [("before decision", 0), ("before decision", 1500), ("before last postgres", 0), ("before last postgres", 1500)]
    {
        let dead = setting.folder.path().join(format!("{step}-{timeout_ms}").replace(' ', "-")).display().to_string();
        let step_number = STEPS.iter().position(|name| *name == step).unwrap();
        let job = Job {
            victim: "itself".to_owned(),
            dead,
            step: step_number,
            timeout_ms,
            transfers_max: 1000,
            seed: 5,
            ..setting.job.clone()
        };
        let program = start(&job, &setting.tally);
        let wanted = || lock(&setting.tally).wanted.extract_if(.., |(_, dead)| *dead == job.dead).next();
        assert!(until(LIFE_TIME_MAX, wanted).is_some(), "it does not come to the step");
        stop_process(program.id());
        std::fs::write(&job.dead, "").unwrap();
        let told = || {
            let tally = lock(&setting.tally);
            (tally.told.committed.len(), tally.told.refused.len(), tally.unknown)
        };
        let (before, left) = (told(), postponed(&setting.server));
        // MariaDB lets nobody end a branch while the connection that prepared it is open. So it is left, with a rollback decided; but where
        // there is a deadline MariaDB closes that connection, and it is rolled back.
        let is_given_up = || match timeout_ms {
            0 => postponed(&setting.server) > left,
            _ => runtime.block_on(clients.prepared()) == (0, 0),
        };
        assert!(until(LIFE_TIME_MAX, || is_given_up().then_some(())).is_some(), "{}", setting.server.output().text());
        kill_process(program.id(), Signal::CONT).unwrap();
        assert!(until(LIFE_TIME_MAX, || (told() != before).then_some(())).is_some(), "it says nothing any more");
        assert_eq!(told().1, before.1 + 1, "{step} {timeout_ms}: {:?} {before:?}", told());
        // It goes on, as a new owner.
        assert!(
            until(LIFE_TIME_MAX, || (told().0 > before.0 + 2).then_some(())).is_some(),
            "it commits nothing any more"
        );
        program.kill();
    }
    runtime.block_on(setting.audit());
}
