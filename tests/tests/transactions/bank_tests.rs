//! Money that moves between rows of PostgreSQL, rows of MariaDB, balances under keys and balances in entries of a space, while the
//! program, the coordinator and both databases are killed at random: the sum over all four stays, and nothing stays in doubt.
//!
//! Keys and entries change in the batch of the decision. `HOLDFAST_BANK_SECONDS` says how long each test goes on.
//!
//! The program is this test program itself, started again with a name of a test and a job in its environment.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::Client;
use holdfast::{Options, Store};
use holdfast_tests::{Launch, Random, budget, say, until};
use tm::{Coordinator, Embedded, Outcome, Report};

use crate::audit::{Told, audited_with, settled};
use crate::bank::{ACCOUNTS, Problem, Reach, open};
use crate::books::{Books, reached};
use crate::databases::{MariaDb, Postgres};
use crate::programs::{Program, job};

/// Transfers that a program has under way at the same time.
const TELLERS: u64 = 4;

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
    let Some(job) = job() else { return };
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

    /// The coordinator, and what it keeps beside its decisions.
    async fn open(&self) -> Result<(Coordinator, Books), Problem> {
        match self.coordinator.strip_prefix("dir:") {
            Some(dir) => {
                let store = Store::open(Path::new(dir), Options::default())?;
                let books = Books::open(Client::embedded(&store)?).await?;
                Ok((Coordinator::embedded(Embedded::over(store)), books))
            }
            None => Ok((open(&self.coordinator).await?, Books::open(reached(&self.coordinator).await?).await?)),
        }
    }

    /// Until it is killed.
    async fn work(self) {
        let (coordinator, books) = loop {
            match self.open().await {
                Ok(opened) => break opened,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let recovery = self.reach().recovery(&coordinator);
        tokio::spawn(recovery.keep_running(|_: &Report| {}));
        let (job, books) = (Arc::new(self), Arc::new(books));
        for teller in 0..TELLERS {
            let (job, coordinator, books) = (Arc::clone(&job), coordinator.clone(), Arc::clone(&books));
            tokio::spawn(async move {
                let mut random = Random::new(job.seed * 1000 + teller);
                loop {
                    // Whatever went wrong: with new connections again.
                    let _ = job.serve(&coordinator, &books, &mut random).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        std::future::pending::<()>().await;
    }

    async fn serve(&self, coordinator: &Coordinator, books: &Books, random: &mut Random) -> Result<(), Problem> {
        let clients = self.reach().connect().await?;
        loop {
            let transaction = clients.begin(coordinator).await?;
            let id = transaction.id().to_string();
            let mut below = |bound: i64| random.below(usize::try_from(bound).unwrap()) as i64;
            let accounts = [below(ACCOUNTS), below(ACCOUNTS)];
            let by = [below(11) - 5, below(11) - 5, below(11) - 5];
            clients.change(&id, accounts, [by[0], by[1]]).await?;
            let rest = -by.iter().sum::<i64>();
            let mut data = books.transfer(&id, below(ACCOUNTS), [by[2], rest]).await?;
            let ended = transaction.commit_with(async move |id, prepared: Vec<tm::BranchName>| {
                data.decide(id, &prepared).await?;
                data.commit(None).await.map(drop)
            });
            // It is told before the next begins, so at most one of each teller is over and not told.
            match ended.await.map_or_else(|failed| failed.outcome, |_| Outcome::Committed) {
                Outcome::Committed => tell("committed", &id)?,
                Outcome::RolledBack => tell("refused", &id)?,
                Outcome::Unknown => tell("unknown", &id)?,
                _ => tell("torn", &id)?,
            }
        }
    }
}

fn tell(word: &str, id: &str) -> Result<(), Problem> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {id}")?;
    Ok(out.flush()?)
}

fn postgres_at(port: &str) -> String {
    format!("host=127.0.0.1 port={port} user=postgres dbname=postgres connect_timeout=5")
}

/// What programs said of their transfers.
#[derive(Default)]
struct Heard {
    told: Told,
    unknown: usize,
    torn: Vec<String>,
}

impl Heard {
    fn hear(&mut self, line: &str) {
        // The test's own first words may stand before one of ours.
        let after = |word: &str| line.split_once(word).map(|(_, id)| format!("hfx{id}"));
        if let Some(id) = after("committed hfx") {
            self.told.committed.push(id);
        } else if let Some(id) = after("refused hfx") {
            self.told.refused.push(id);
        } else if let Some(id) = after("torn hfx") {
            self.torn.push(id);
        } else if after("unknown hfx").is_some() {
            self.unknown += 1;
        }
    }
}

/// With a server in `server_folder`, or else with the coordinator in the program.
fn bank_under_fire(server_folder: Option<&Path>) {
    let seed = Random::seed();
    let time = budget("HOLDFAST_BANK_SECONDS", 20);
    say!("bank: seed {seed}, {} s", time.as_secs());
    let mut random = Random::new(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut postgres, mut mariadb) = (Postgres::start(50), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    let own_folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start_server = || server_folder.map(|folder| Launch::new(folder).resp(&port.to_string()).start_again());
    let mut server = start_server();
    let place = match server_folder {
        Some(_) => port.to_string(),
        None => format!("dir:{}", own_folder.path().display()),
    };
    let books = || async { Books::open(reached(&place).await.unwrap()).await.unwrap() };
    runtime.block_on(async {
        reach.found().await;
        books().await.found(ACCOUNTS).await;
    });
    let heard = Arc::new(Mutex::new(Heard::default()));
    let (port_of_postgres, socket) = (postgres.port(), mariadb.socket());
    let start_program = |start: usize| {
        let job = format!("{place} {port_of_postgres} {} {}", socket.display(), seed % 1_000_000 + start as u64);
        let heard = Arc::clone(&heard);
        Program::start("bank_tests::a_program_that_moves_money", &job, move |line| heard.lock().unwrap().hear(line))
    };
    let committed = || heard.lock().unwrap().told.committed.len();
    let mut program = Some(start_program(0));
    let mut kills = [0; 4];
    let start = Instant::now();
    while start.elapsed() < time {
        // Some transfers in between, or a while without any.
        let (before, some) = (committed(), random.below(40));
        until(Duration::from_secs(3), || (committed() >= before + some).then_some(()));
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
    let Heard { told, unknown, torn } = std::mem::take(&mut *heard.lock().unwrap());
    let (committed, refused) = (told.committed.len(), told.refused.len());
    say!("bank: {committed} transfers told, {refused} refused, {unknown} not known");
    say!("bank: killed program, PostgreSQL, MariaDB, server {kills:?} times");
    assert!(committed > 20, "hardly anything was done");
    assert!(torn.is_empty(), "told as torn: {torn:?}");
    runtime.block_on(async {
        settled(&reach, &place).await;
        let transfers = audited_with(&books().await, &reach, &told, ACCOUNTS).await;
        say!("bank: {} transfers in all four, nothing in doubt", transfers.len());
    });
    drop(server);
}
