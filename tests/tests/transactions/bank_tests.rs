//! Money that moves between two databases while the program, the coordinator and both databases are killed at random.
//!
//! The program is this test program itself, started again with a name of a test and a job in its environment.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast::PutOptions;
use holdfast_tests::{Launch, Random, budget, say, until};
use tm::{Coordinator, Report};

use crate::audit::{Told, audited, settled};
use crate::bank::{ACCOUNTS, Problem, Reach, open};
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

    /// Until it is killed.
    async fn work(self) {
        let coordinator = loop {
            match open(&self.coordinator).await {
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

/// With a server in `server_folder`, or else with the coordinator in the program.
fn bank_under_fire(server_folder: Option<&Path>) {
    let seed = Random::seed();
    let time = budget("HOLDFAST_BANK_SECONDS", 20);
    say!("bank: seed {seed}, {} s", time.as_secs());
    let mut random = Random::new(seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut postgres, mut mariadb) = (Postgres::start(50), MariaDb::start());
    let reach = Reach::new(&postgres.connection(), &mariadb.socket());
    runtime.block_on(reach.found());
    let own_folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start_server = || server_folder.map(|folder| Launch::new(folder).resp(&port.to_string()).start_again());
    let mut server = start_server();
    let place = match server_folder {
        Some(_) => port.to_string(),
        None => format!("dir:{}", own_folder.path().display()),
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let (port_of_postgres, socket) = (postgres.port(), mariadb.socket());
    let start_program = |start: usize| {
        let job = format!("{place} {port_of_postgres} {} {}", socket.display(), seed % 1_000_000 + start as u64);
        let told = Arc::clone(&told);
        Program::start("bank_tests::a_program_that_moves_money", &job, move |line| {
            // The test's own first words stand before one of them.
            if let Some((_, id)) = line.split_once("committed ") {
                told.lock().unwrap().push(id.to_owned());
            }
        })
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
    say!("bank: {} transfers told; killed program, PostgreSQL, MariaDB, server {kills:?} times", told.len());
    assert!(told.len() > 20, "hardly anything was done");
    let told = Told { committed: told, refused: Vec::new() };
    runtime.block_on(async {
        let local = settled(&reach, &place).await;
        let transfers = audited(&reach, &told, ACCOUNTS).await;
        if server_folder.is_none() {
            assert_eq!(local, transfers);
        }
        say!("bank: {} transfers in all three, nothing in doubt", transfers.len());
    });
    drop(server);
}
