//! Money that moves between two databases while the program, the coordinator and both databases are killed at random.
//!
//! The program is this test program itself, started again with a name of a test and a job in its environment.

use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use holdfast::{Options, Page, PutOptions};
use holdfast_tests::{Launch, Random, Server, budget, until};
use tm::{Begin, Coordinator, RemoteOptions, Report};

use crate::bank::{ACCOUNTS, MONEY, Problem, Reach};
use crate::databases::{MariaDb, Postgres};

const JOB: &str = "HOLDFAST_TEST_BANK_JOB";
/// Transfers that a program has under way at the same time.
const TELLERS: u64 = 4;
/// How long recovery may take at the end: leases and back-off.
const CALM_TIME_MAX: Duration = Duration::from_secs(60);

/// What a program is told: words that hold no spaces.
struct Job {
    coordinator: String,
    postgres_port: String,
    socket: String,
    seed: u64,
}

#[test]
fn no_money_is_lost_when_everybody_is_killed_with_the_coordinator_in_the_program() {
    bank_under_fire(None);
}

#[test]
fn no_money_is_lost_when_everybody_is_killed_with_a_server_as_coordinator() {
    let folder = tempfile::tempdir().unwrap();
    bank_under_fire(Some(folder.path()));
}

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_that_moves_money() {
    let Ok(job) = std::env::var(JOB) else { return };
    let mut words = job.split(' ').map(str::to_owned);
    let mut next = || words.next().unwrap();
    let job = Job { coordinator: next(), postgres_port: next(), socket: next(), seed: next().parse().unwrap() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(job.work());
}

impl Job {
    fn reach(&self) -> Reach {
        Reach::new(&postgres_at(&self.postgres_port), Path::new(&self.socket))
    }

    async fn open(&self) -> Result<Coordinator, Problem> {
        Ok(match self.coordinator.strip_prefix("dir:") {
            Some(dir) => Coordinator::open(Path::new(dir), Options::default()).await?,
            None => {
                // Short, so that what a killed program left is cleared away soon.
                let lease = Duration::from_secs(1);
                let patience = Duration::from_secs(5);
                Coordinator::connect(RemoteOptions { lease, patience, ..RemoteOptions::new(&self.coordinator) }).await?
            }
        })
    }

    /// Until it is killed.
    async fn work(self) {
        let coordinator = loop {
            match self.open().await {
                Ok(coordinator) => break coordinator,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let recovery = self.reach().recovery(&coordinator);
        tokio::spawn(recovery.keep_running(|_: &Report| {}));
        let job = Arc::new(self);
        for teller in 0..TELLERS {
            let (job, coordinator) = (Arc::clone(&job), coordinator.clone());
            tokio::spawn(async move {
                let mut random = Random::new(job.seed * 1000 + teller);
                loop {
                    // Whatever went wrong: with new connections again.
                    let _ = job.serve(&coordinator, &mut random).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        std::future::pending::<()>().await;
    }

    async fn serve(&self, coordinator: &Coordinator, random: &mut Random) -> Result<(), Problem> {
        let clients = self.reach().connect().await?;
        loop {
            let mut transaction = clients.begin(coordinator).await?;
            let id = transaction.id().to_string();
            let mut account = || random.below(usize::try_from(ACCOUNTS).unwrap()) as i64;
            let (from, to, money) = (account(), account(), account() - ACCOUNTS / 2);
            clients.transfer(&id, from, to, money).await?;
            if self.coordinator.starts_with("dir:") {
                transaction.kv()?.put(b"transfers", id.as_bytes(), b"", &PutOptions::default())?;
            }
            transaction.commit().await?;
            // It is told before the next begins, so at most one of each teller is committed and not told.
            let mut out = std::io::stdout().lock();
            writeln!(out, "committed {id}")?;
            out.flush()?;
        }
    }
}

fn postgres_at(port: &str) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres connect_timeout=5")
}

/// A running program, and what it says it committed.
struct Program {
    child: Child,
    reader: Option<thread::JoinHandle<()>>,
}

impl Program {
    fn start(job: &str, told: &Arc<Mutex<Vec<String>>>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "bank_tests::a_program_that_moves_money", "--nocapture"]).env(JOB, job);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (lines, told) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(told));
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test's own first words stand before one of them.
                if let Some((_, id)) = line.split_once("committed ") {
                    told.lock().unwrap().push(id.to_owned());
                }
            }
        });
        Self { child, reader: Some(reader) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// With a server in `server_folder`, or else with the coordinator in the program.
fn bank_under_fire(server_folder: Option<&Path>) {
    let seed = Random::seed();
    let time = budget("HOLDFAST_BANK_SECONDS", 20);
    println!("bank: seed {seed}, {} s", time.as_secs());
    let mut random = Random::new(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut postgres, mut mariadb) = (Postgres::start(50), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    runtime.block_on(reach.found());
    let own_folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start_server = || server_folder.map(|folder| server_at(folder, &port.to_string()));
    let mut server = start_server();
    let place = match server_folder {
        Some(_) => port.to_string(),
        None => format!("dir:{}", own_folder.path().display()),
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let (port_of_postgres, socket) = (postgres.port(), mariadb.socket());
    let start_program = |start: usize| {
        let job = format!("{place} {port_of_postgres} {} {}", socket.display(), seed % 1_000_000 + start as u64);
        Program::start(&job, &told)
    };
    let mut program = Some(start_program(0));
    let mut kills = [0; 4];
    let start = Instant::now();
    while start.elapsed() < time {
        // Some transfers in between, or a while without any.
        let before = told.lock().unwrap().len();
        let some = random.below(40);
        until(Duration::from_secs(3), || (told.lock().unwrap().len() >= before + some).then_some(()));
        let victim = random.below(if server.is_some() { 4 } else { 3 });
        kills[victim] += 1;
        match victim {
            0 => {
                drop(program.take());
                program = Some(start_program(kills[0]));
            }
            1 => {
                postgres.kill();
                postgres.run(50);
            }
            2 => {
                mariadb.kill();
                mariadb.run();
            }
            _ => {
                if let Some(server) = server.take() {
                    server.kill();
                }
                server = start_server();
            }
        }
    }
    drop(program);
    let told = told.lock().unwrap().clone();
    println!("bank: {} transfers told; killed program, PostgreSQL, MariaDB, server {kills:?} times", told.len());
    assert!(told.len() > 20, "hardly anything was done");
    runtime.block_on(audit(&reach, &place, &told));
    drop(server);
}

fn server_at(folder: &Path, address: &str) -> Server {
    // The port of the one that was killed may take a moment to be free.
    let started = until(Duration::from_secs(30), || Launch::new(folder).resp(address).try_start().ok());
    started.expect("a server that starts")
}

/// After recovery: nothing is in doubt, no money is lost, both know the same transfers, and all that were told.
async fn audit(reach: &Reach, place: &str, told: &[String]) {
    let job = Job { coordinator: place.to_owned(), postgres_port: String::new(), socket: String::new(), seed: 0 };
    let coordinator = job.open().await.unwrap();
    // Becoming an owner ends earlier ones where the coordinator is in the program; a server waits for their leases.
    let mut transaction = coordinator.begin(Begin::default()).unwrap();
    let mut recovery = reach.recovery(&coordinator);
    let calm = async {
        loop {
            let report = recovery.run().await;
            if report.is_clean() && report.found.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    if tokio::time::timeout(CALM_TIME_MAX, calm).await.is_err() {
        panic!("still in doubt: {:?}", recovery.run().await);
    }
    let clients = reach.connect().await.unwrap();
    let (here, there) = clients.money().await;
    let (transfers_here, transfers_there) = clients.transfers().await;
    assert_eq!(clients.prepared().await, (0, 0));
    assert_eq!(transfers_here, transfers_there);
    assert_eq!(here + there, 2 * MONEY);
    let lost: Vec<_> = told.iter().filter(|id| transfers_here.binary_search(id).is_err()).collect();
    assert!(lost.is_empty(), "told as committed, and lost: {lost:?}");
    if place.starts_with("dir:") {
        let local = transaction.kv().unwrap();
        let mut transfers = Vec::<String>::new();
        loop {
            let start = transfers.last().map_or(Bound::Unbounded, |last| Bound::Excluded(last.as_bytes()));
            let page = Page { bucket: b"transfers", start, end: Bound::Unbounded, limit: 500, values: false };
            let page = local.page(&page).unwrap();
            transfers.extend(page.entries.into_iter().map(|(key, ..)| String::from_utf8(key).unwrap()));
            if !page.more {
                break;
            }
        }
        assert_eq!(transfers, transfers_here);
    }
    println!("bank: {} transfers in all three, nothing in doubt", transfers_here.len());
}
