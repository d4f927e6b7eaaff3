//! A random walk of kills: of programs at every step of their transactions and between them, of the server that is their
//! coordinator, of PostgreSQL and of MariaDB, thousands of them, with an audit of both databases now and then.
//!
//! Three programs at a time have the server as coordinator, which also recovers what they leave; one has a coordinator of its
//! own in a folder, whose store takes part. They are started again as soon as they are dead.
//!
//! `HOLDFAST_KILLS` says how many kills, or `HOLDFAST_KILL_SECONDS` how long; `HOLDFAST_SEED` repeats the choices of a walk,
//! though not what happens between processes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::PutOptions;
use holdfast_tests::{Launch, Random, Server, budget, say, until};
use tempfile::TempDir;
use tm::{
    Begin, Coordinator, LastResource, MysqlBranch, Outcome, Pace, PostgresBranch, PostgresLastResource, Recovery,
    Remote, ResourceManager, Transaction, TransactionId,
};

use crate::audit::{Told, audited, settled, until_calm};
use crate::bank::{Clients, Problem, Reach, name, open, remote};
use crate::databases::{MariaDb, Postgres};
use crate::programs::{Program, job};
use crate::recovery_tests::number;
use crate::steps::{STEPS, SteppedBranch, SteppedDecisions, SteppedLast, SteppedManager, Victim, die, pass, plan};

/// Enough that what is in doubt, and holds its locks, is seldom in the way.
pub(crate) const ACCOUNTS: i64 = 2000;
pub(crate) const PREPARED_MAX: u32 = 200;
const ITSELF: &str = "program";
/// Who else is killed, at a step of a program or at any time.
const OTHERS: [&str; 3] = ["server", "PostgreSQL", "MariaDB"];
/// Programs at a time; the last has a coordinator of its own.
const PROGRAMS: usize = 4;
/// A program that does not come to its end by then is killed from outside: a database was down for long.
const LIFE_TIME_MAX: Duration = Duration::from_secs(20);
/// Kills between two audits.
const AUDIT_KILLS: usize = 400;

/// What a program is told: words that hold no spaces.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) coordinator: String,
    pub(crate) postgres_port: u16,
    pub(crate) socket: String,
    pub(crate) seed: u64,
    /// Who dies: `program` for itself, or one of [`OTHERS`].
    pub(crate) victim: String,
    /// The file by which it learns that somebody else is dead.
    pub(crate) dead: String,
    /// Number of the step at which that happens.
    pub(crate) step: usize,
    /// How often it gets there before.
    pub(crate) passages: u32,
    pub(crate) delay_us: u64,
    /// It dies after so many transfers if it did not come there.
    pub(crate) transfers_max: u64,
    /// Of its transactions; 0 for none.
    pub(crate) timeout_ms: u64,
    /// Whether it recovers too.
    pub(crate) recovers: bool,
}

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_that_dies_at_a_step() {
    let Some(job) = job() else { return };
    let job = Job::of_words(&job);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(job.work());
}

impl Job {
    fn to_words(&self) -> String {
        let Self { coordinator, postgres_port, socket, seed, victim, dead, .. } = self;
        let Self { step, passages, delay_us, transfers_max, timeout_ms, recovers, .. } = self;
        format!(
            "{coordinator} {postgres_port} {socket} {seed} {victim} {dead} {step} {passages} {delay_us} {transfers_max} \
             {timeout_ms} {recovers}"
        )
    }

    fn of_words(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut next = || words.next().unwrap().to_owned();
        Self {
            coordinator: next(),
            postgres_port: next().parse().unwrap(),
            socket: next(),
            seed: next().parse().unwrap(),
            victim: next(),
            dead: next(),
            step: next().parse().unwrap(),
            passages: next().parse().unwrap(),
            delay_us: next().parse().unwrap(),
            transfers_max: next().parse().unwrap(),
            timeout_ms: next().parse().unwrap(),
            recovers: next().parse().unwrap(),
        }
    }

    fn is_local(&self) -> bool {
        self.coordinator.starts_with("dir:")
    }

    fn reach(&self) -> Reach {
        let postgres =
            format!("host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=5", self.postgres_port);
        Reach::new(&postgres, Path::new(&self.socket))
    }

    async fn open(&self) -> Result<Coordinator, Problem> {
        if self.is_local() {
            return open(&self.coordinator).await;
        }
        let options = remote(&self.coordinator);
        let decisions = tokio::task::spawn_blocking(move || Remote::open(options)).await??;
        Ok(Coordinator::over(Arc::new(SteppedDecisions(decisions))))
    }

    /// Until it dies.
    async fn work(self) {
        let victim = match self.victim.as_str() {
            ITSELF => Victim::Itself(Duration::from_micros(self.delay_us)),
            name => Victim::Other { name: name.to_owned(), dead: self.dead.clone().into() },
        };
        plan(STEPS[self.step], self.passages, victim);
        let coordinator = loop {
            match self.open().await {
                Ok(coordinator) => break coordinator,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        if self.recovers {
            let stepped = |manager| -> Arc<dyn ResourceManager> { Arc::new(SteppedManager(manager)) };
            let managers = self.reach().managers().into_iter().map(stepped).collect();
            tokio::spawn(Recovery::new(&coordinator, managers, Pace::default()).keep_running(|_| {}));
        }
        let mut random = Random::new(self.seed);
        let mut transfers = 0;
        loop {
            // Whatever went wrong: with new connections again.
            let _ = self.serve(&coordinator, &mut random, &mut transfers).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn serve(&self, coordinator: &Coordinator, random: &mut Random, transfers: &mut u64) -> Result<(), Problem> {
        let clients = self.reach().connect().await?;
        let last = PostgresLastResource::open(&self.reach().postgres_manager()).await?;
        let last: Arc<dyn LastResource> = Arc::new(SteppedLast(last));
        loop {
            // Where the store takes part its coordinator decides all the same.
            let deciding = (random.below(2) == 0).then_some(&last);
            let mut transaction = begin(&clients, coordinator, deciding, self.timeout_ms).await?;
            let id = transaction.id();
            let mut account = || random.below(usize::try_from(ACCOUNTS).unwrap()) as i64;
            let (from, to, money) = (account(), account(), account() - ACCOUNTS / 2);
            clients.transfer(&id.to_string(), from, to, money).await?;
            if self.is_local() {
                transaction.kv()?.put(b"transfers", id.to_string().as_bytes(), b"", &PutOptions::default())?;
            }
            let end = random.below(6);
            if end == 0 {
                // A statement that fails and is not noticed: this branch will not prepare.
                let _ = clients.postgres.batch_execute("SELECT 1/0").await;
            }
            pass("after work");
            let outcome = if end == 1 {
                transaction.rollback().await.map(|()| Outcome::RolledBack).unwrap_or_else(|failed| failed.outcome)
            } else {
                transaction.commit().await.map(|_| Outcome::Committed).unwrap_or_else(|failed| failed.outcome)
            };
            tell(outcome, id);
            pass("after all");
            *transfers += 1;
            if *transfers >= self.transfers_max {
                die("after all");
            }
        }
    }
}

/// A transaction with a branch in each, every call of which is a step.
async fn begin(
    clients: &Clients,
    coordinator: &Coordinator,
    last: Option<&Arc<dyn LastResource>>,
    timeout_ms: u64,
) -> Result<Transaction, Problem> {
    let timeout = (timeout_ms != 0).then_some(Duration::from_millis(timeout_ms));
    let terms = Begin { timeout, ..Begin::default() };
    let mut transaction = match last {
        Some(last) => coordinator.begin_with_last(terms, last)?,
        None => coordinator.begin(terms)?,
    };
    pass("after begin");
    let branch = PostgresBranch::start(&clients.postgres, transaction.xid("postgres")?).await?;
    let branch = SteppedBranch { name: "postgres", branch };
    match last {
        Some(_) => transaction.enlist_last(&name("postgres"), branch).await?,
        None => transaction.enlist(&name("postgres"), branch).await?,
    }
    pass("after start postgres");
    let branch = MysqlBranch::start(&clients.mariadb, &transaction.xid("mariadb")?).await?;
    transaction.enlist(&name("mariadb"), SteppedBranch { name: "mariadb", branch }).await?;
    pass("after start mariadb");
    Ok(transaction)
}

/// Says what became of a transaction, before the next begins.
fn tell(outcome: Outcome, id: TransactionId) {
    let word = match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "refused",
        Outcome::Unknown => "unknown",
        Outcome::Mixed | Outcome::Hazard => "torn",
    };
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{word} {id}");
    let _ = out.flush();
}

/// What was killed so far, and what programs were told.
#[derive(Default)]
pub(crate) struct Tally {
    /// By the step at which programs died, or who else.
    pub(crate) kills: BTreeMap<String, usize>,
    pub(crate) told: Told,
    pub(crate) torn: Vec<String>,
    pub(crate) unknown: usize,
    /// Whom programs that wait at a step want to be killed: name and step, and the file that tells them.
    pub(crate) wanted: Vec<(String, String)>,
}

impl Tally {
    fn total(&self) -> usize {
        self.kills.values().sum()
    }

    pub(crate) fn count(&mut self, what: &str) {
        *self.kills.entry(what.to_owned()).or_default() += 1;
    }

    /// What a program prints, with the file that it waits for.
    fn hear(&mut self, line: &str, dead: &str) {
        // The test's own first words may stand before one of ours.
        let after = |word: &str| line.split_once(word).map(|(_, rest)| rest.to_owned());
        if let Some(id) = after("committed hfx") {
            self.told.committed.push(format!("hfx{id}"));
        } else if let Some(id) = after("refused hfx") {
            self.told.refused.push(format!("hfx{id}"));
        } else if let Some(id) = after("torn hfx") {
            self.torn.push(format!("hfx{id}"));
        } else if after("unknown hfx").is_some() {
            self.unknown += 1;
        } else if let Some(step) = after("dies ") {
            self.count(&format!("program {step}"));
        } else if let Some(what) = after("wants ") {
            self.wanted.push((what, dead.to_owned()));
        }
    }
}

/// Everybody who is killed.
struct Walk {
    seed: u64,
    kills_max: usize,
    ends: Instant,
    postgres: Postgres,
    mariadb: MariaDb,
    server: Option<Server>,
    launch: Launch,
    reach: Reach,
    job: Job,
    folder: TempDir,
    tally: Arc<Mutex<Tally>>,
}

impl Walk {
    fn new() -> Self {
        let seed = Random::seed();
        let kills_max = std::env::var("HOLDFAST_KILLS").ok().map(|text| text.parse().unwrap());
        let usual = if kills_max.is_some() { u64::from(u32::MAX) } else { 25 };
        let time = budget("HOLDFAST_KILL_SECONDS", usual);
        say!("kills: seed {seed}, {} or {} s", kills_max.unwrap_or(usize::MAX), time.as_secs());
        let (postgres, mariadb) = (Postgres::start(PREPARED_MAX), MariaDb::start());
        let reach = Reach::new(&postgres.connection(), &mariadb.socket());
        let folder = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::fs::write(folder.path().join("profiles.toml"), reach.profile("bank", &address)).unwrap();
        let config = folder.path().join("holdfast.toml");
        std::fs::write(&config, "[xa]\nprofiles_file = \"profiles.toml\"\ninterval_seconds = 1\nsweep_seconds = 1\n")
            .unwrap();
        let launch = Launch::new(&folder.path().join("data")).resp(&address);
        let launch = launch.argument("--config").argument(&config.display().to_string());
        let job = Job {
            coordinator: address,
            postgres_port: postgres.port(),
            socket: mariadb.socket().display().to_string(),
            seed: 0,
            victim: ITSELF.to_owned(),
            dead: String::new(),
            step: 0,
            passages: 0,
            delay_us: 0,
            transfers_max: 0,
            timeout_ms: 0,
            recovers: false,
        };
        Self {
            seed,
            kills_max: kills_max.unwrap_or(usize::MAX),
            ends: Instant::now() + time,
            postgres,
            mariadb,
            server: Some(launch.start()),
            launch,
            reach,
            job,
            folder,
            tally: Arc::default(),
        }
    }

    fn own_coordinator(&self) -> String {
        format!("dir:{}", self.folder.path().join("own").display())
    }

    /// Kills until so many are dead, or it is time.
    fn go_on(&mut self, random: &mut Random, kills_max: usize) {
        let (ends, tally) = (self.ends, Arc::clone(&self.tally));
        let is_over = move || Instant::now() >= ends || lock(&tally).total() >= kills_max;
        let slots: Vec<_> = (0..PROGRAMS)
            .map(|slot| {
                let is_own = slot + 1 == PROGRAMS;
                let coordinator = if is_own { self.own_coordinator() } else { self.job.coordinator.clone() };
                let dead = format!("{}/dead-{kills_max}-{slot}", self.folder.path().display());
                let job = Job { coordinator, dead, ..self.job.clone() };
                let (tally, is_over, mut random) =
                    (Arc::clone(&self.tally), is_over.clone(), Random::new(random.number()));
                thread::spawn(move || {
                    for number in 0.. {
                        if is_over() {
                            break;
                        }
                        let dead = format!("{}-{number}", job.dead);
                        let mut program = start(&random_job(&mut random, &Job { dead, ..job.clone() }), &tally);
                        if !program.ends_within(LIFE_TIME_MAX) {
                            lock(&tally).count("program from outside");
                        }
                        program.kill();
                    }
                })
            })
            .collect();
        // Somebody may wait for a death when enough are dead.
        while !slots.iter().all(thread::JoinHandle::is_finished) {
            let before = lock(&self.tally).total();
            // After a restart of the server nobody's lease ends for a while, so what is in doubt gathers when it is killed
            // again and again.
            let some = if random.below(3) == 0 { random.below(10) } else { 20 + random.below(120) };
            let wanted = until(LIFE_TIME_MAX, || {
                let mut tally = lock(&self.tally);
                let is_time = tally.total() >= before + some;
                match tally.wanted.pop() {
                    Some(wanted) => Some(Some(wanted)),
                    None => (is_time || slots.iter().all(thread::JoinHandle::is_finished)).then_some(None),
                }
            });
            match wanted.flatten() {
                Some((what, dead)) => self.kill(&what, Some(Path::new(&dead))),
                None if is_over() => {}
                None => {
                    let victim = OTHERS[if random.below(3) == 0 { 1 + random.below(2) } else { 0 }];
                    self.kill(victim, None);
                }
            }
        }
        slots.into_iter().for_each(|slot| slot.join().unwrap());
    }

    /// Kills a server, at a step when its name stands there too, and starts it again. The file is made in between.
    fn kill(&mut self, what: &str, dead: Option<&Path>) {
        lock(&self.tally).count(what);
        let tell = || dead.map(|dead| std::fs::write(dead, "").unwrap());
        match what.split(' ').next() {
            Some("server") => {
                self.server.take().unwrap().kill();
                tell();
                self.server = Some(self.launch.start_again());
            }
            Some("PostgreSQL") => {
                self.postgres.kill();
                tell();
                self.postgres.run(PREPARED_MAX);
            }
            Some("MariaDB") => {
                self.mariadb.kill();
                tell();
                self.mariadb.run();
            }
            _ => panic!("nobody is called {what}"),
        }
    }

    /// Counts the decisions of which the last resource thinks that somebody may ask.
    async fn decisions(&self) -> String {
        let last = PostgresLastResource::open(&self.reach.postgres_manager()).await.unwrap();
        format!("SELECT count(*) FROM holdfast.decisions_{:016x} WHERE committed", last.id().0)
    }

    /// Nothing that was promised is broken.
    async fn audit(&self) {
        let local = settled(&self.reach, &self.own_coordinator()).await;
        // The rest is the server's, and it remembers nothing that nobody needs.
        until_calm(&self.reach).await;
        let server = self.server.as_ref().unwrap();
        let remembered = || number(server, "xa_outstanding");
        let forgotten = until(Duration::from_secs(60), || (remembered() == 0).then_some(()));
        assert!(
            forgotten.is_some(),
            "{} decisions are listed; the server says:\n{}",
            remembered(),
            server.output().text()
        );
        let (clients, query) = (self.reach.connect().await.unwrap(), self.decisions().await);
        let mut kept = i64::MAX;
        for _ in 0..600 {
            kept = clients.postgres.query_one(&query, &[]).await.unwrap().get(0);
            if kept == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(kept, 0, "decisions that PostgreSQL keeps; the server says:\n{}", server.output().text());
        let (told, torn) = {
            let tally = lock(&self.tally);
            (tally.told.clone(), tally.torn.clone())
        };
        let transfers = audited(&self.reach, &told, ACCOUNTS).await;
        assert!(torn.is_empty(), "told as torn: {torn:?}");
        let own = open(&self.own_coordinator()).await.unwrap().id();
        let is_own = |id: &&String| id.parse::<TransactionId>().unwrap().coordinator == own;
        let of_own: Vec<String> = transfers.iter().filter(is_own).cloned().collect();
        assert_eq!(local, of_own);
        say!(
            "kills: {} so far; {} transfers in both databases, {} told as committed, {} as rolled back; 0 violations",
            lock(&self.tally).total(),
            transfers.len(),
            told.committed.len(),
            told.refused.len()
        );
    }
}

/// One of so many processes may have panicked, which is another's failure.
pub(crate) fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn start(job: &Job, tally: &Arc<Mutex<Tally>>) -> Program {
    let (tally, dead) = (Arc::clone(tally), job.dead.clone());
    let test = "kill_tests::a_program_that_dies_at_a_step";
    Program::start(test, &job.to_words(), move |line| lock(&tally).hear(line, &dead))
}

fn random_job(random: &mut Random, job: &Job) -> Job {
    // At the step, or a moment later, which may be anywhere in the steps that follow.
    let delay_us = if random.below(2) == 0 { 0 } else { 1 + random.below(20_000) as u64 };
    // Of the programs of a server one of three recovers; nobody else would do it for the others.
    let recovers = job.is_local() || random.below(3) == 0;
    let step = loop {
        let step = random.below(STEPS.len());
        let comes = match STEPS[step] {
            // Where the store takes part it decides, and nobody is asked.
            "before decision" | "after decision" | "before done" | "after done" => !job.is_local(),
            "before last postgres" | "after last postgres" | "before let go" | "after let go" => !job.is_local(),
            name => recovers || !name.contains("recover"),
        };
        if comes {
            break step;
        }
    };
    let victim = match random.below(100) {
        0..2 => OTHERS[0],
        2 => OTHERS[1 + random.below(2)],
        _ => ITSELF,
    };
    Job {
        victim: victim.to_owned(),
        seed: random.number() % 1_000_000_000,
        step,
        passages: u32::try_from(random.below(3)).unwrap(),
        delay_us,
        transfers_max: 2 + random.below(12) as u64,
        recovers,
        ..job.clone()
    }
}

#[test]
fn no_kill_at_any_step_tears_a_transaction() {
    let mut walk = Walk::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(walk.reach.found_with(ACCOUNTS));
    let mut random = Random::new(walk.seed);
    let mut done = 0;
    while done < walk.kills_max && Instant::now() < walk.ends {
        let next = walk.kills_max.min(done + AUDIT_KILLS);
        walk.go_on(&mut random, next);
        runtime.block_on(walk.audit());
        done = lock(&walk.tally).total();
    }
    let tally = lock(&walk.tally);
    for (what, count) in &tally.kills {
        say!("kills: {count:>6} {what}");
    }
    assert!(done > 30 && tally.told.committed.len() > 30, "hardly anything was done: {done} kills");
}
