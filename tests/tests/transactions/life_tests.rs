//! A program that is killed before and after it opens and closes its coordinator, takes branches in and lets them leave, and tells a
//! resource manager to forget what that did by itself: at the first and at the second time that it comes there.
//!
//! PostgreSQL does as it is told, another resource manager rolls back by itself what it is to commit. Whatever dies when, PostgreSQL has
//! committed or not, the other one remembers nothing in the end, and what it did against a commit stands with the coordinator.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_tests::{Launch, Server, Value, say};
use tm::{Begin, Coordinator, Pace, PostgresBranch, PostgresManager, Recovery, Remote, ResourceManager, Transaction};
use tokio_postgres::{Client, NoTls};

use crate::bank::{Problem, name, remote};
use crate::databases::Postgres;
use crate::programs::{Program, job};
use crate::steps::{LIFE_STEPS, SteppedBranch, SteppedDecisions, Victim, pass, plan};
use crate::stubborn::{Idle, Stubborn};

const ROUNDS: u32 = 2;
const LIFE_TIME_MAX: Duration = Duration::from_secs(60);
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);

/// The program that is killed. As a test of its own it has no job, and there is nothing to do.
#[test]
fn a_program_that_opens_and_closes() {
    let Some(job) = job() else { return };
    let words: Vec<&str> = job.splitn(5, ' ').collect();
    let [address, postgres, folder, passages, step] = words[..] else { panic!("{job}") };
    plan(step, passages.parse().unwrap(), Victim::Itself(Duration::ZERO));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for _ in 0..ROUNDS {
        runtime.block_on(work(address, postgres, Path::new(folder))).unwrap();
    }
}

async fn connect(postgres: &str) -> Result<Arc<Client>, Problem> {
    let config = format!("host=127.0.0.1 port={postgres} user=postgres dbname=postgres connect_timeout=5");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
    tokio::spawn(connection);
    Ok(Arc::new(client))
}

/// From opening the coordinator to closing it.
async fn work(address: &str, postgres: &str, folder: &Path) -> Result<(), Problem> {
    pass("before open");
    let options = remote(address);
    let decisions = tokio::task::spawn_blocking(move || Remote::open(options)).await??;
    let coordinator = Coordinator::over(Arc::new(SteppedDecisions(decisions)));
    pass("after open");
    let client = connect(postgres).await?;
    let mut transaction = coordinator.begin(Begin::default())?;
    writeln!(std::io::stdout().lock(), "begun {}", transaction.id())?;
    std::io::stdout().flush()?;
    register(&mut transaction, &client, &Stubborn::new(folder)).await?;
    client.batch_execute(&format!("INSERT INTO rows VALUES ('{}')", transaction.id())).await?;
    // It is told what the one resource manager did by itself.
    assert!(transaction.commit().await.is_err());
    pass("before close");
    drop(coordinator);
    pass("after close");
    Ok(())
}

async fn register(transaction: &mut Transaction, client: &Arc<Client>, stubborn: &Stubborn) -> Result<(), Problem> {
    pass("before register");
    let branch = PostgresBranch::start(client, transaction.xid("postgres")?).await?;
    transaction.enlist(&name("postgres"), SteppedBranch { name: "postgres", branch }).await?;
    let branch = stubborn.start(transaction.xid("stubborn")?);
    transaction.enlist(&name("stubborn"), branch).await?;
    transaction.enlist(&name("idle"), Idle).await?;
    pass("after register");
    Ok(())
}

/// Where programs die.
struct Place {
    server: Server,
    postgres: Postgres,
    folder: PathBuf,
    begun: Arc<Mutex<Vec<String>>>,
}

impl Place {
    /// A program that dies at this step.
    fn kill_at(&self, step: &str, passages: u32) {
        let (begun, died) = (Arc::clone(&self.begun), Arc::new(Mutex::new(false)));
        let (address, folder) = (self.server.resp(), self.folder.display());
        let job = format!("{address} {} {folder} {passages} {step}", self.postgres.port());
        let death = Arc::clone(&died);
        let mut program = Program::start("life_tests::a_program_that_opens_and_closes", &job, move |line| {
            // The test's own first words may stand before one of ours.
            if let Some((_, id)) = line.split_once("begun ") {
                begun.lock().unwrap().push(id.to_owned());
            } else if line.contains("dies ") {
                *death.lock().unwrap() = true;
            }
        });
        assert!(program.ends_within(LIFE_TIME_MAX), "still at {step}");
        program.kill();
        assert!(*died.lock().unwrap(), "it never came to {step}, passage {}", passages + 1);
    }

    /// Recovers until nothing is found any more.
    async fn settle(&self, stubborn: &Stubborn) {
        let coordinator = Coordinator::connect(remote(&self.server.resp().to_string())).await.unwrap();
        let postgres = PostgresManager::new(name("postgres"), self.postgres.connection().parse().unwrap());
        let managers: Vec<Arc<dyn ResourceManager>> = vec![Arc::new(postgres), Arc::new(stubborn.clone())];
        let mut recovery = Recovery::new(&coordinator, managers, Pace::default());
        let settling = async {
            loop {
                let report = recovery.run().await;
                if report.is_clean() && report.found.is_empty() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_settled = tokio::time::timeout(SETTLE_TIME_MAX, settling).await.is_ok();
        assert!(is_settled, "still in doubt: {:?}", stubborn.left());
    }
}

fn says(value: &Value, text: &[u8]) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| says(item, text)),
        other => other.bytes() == Some(text),
    }
}

#[test]
fn a_program_that_dies_while_it_opens_registers_forgets_or_closes_leaves_nothing_in_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let server = Launch::new(&folder.path().join("data")).start();
    let place = Place { server, postgres: Postgres::start(20), folder: kept.clone(), begun: Arc::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let client = runtime.block_on(connect(&place.postgres.port().to_string())).unwrap();
    runtime.block_on(client.batch_execute("CREATE TABLE rows (id TEXT PRIMARY KEY)")).unwrap();
    for step in LIFE_STEPS {
        (0..ROUNDS).for_each(|passages| place.kill_at(step, passages));
    }
    let stubborn = Stubborn::new(&kept);
    runtime.block_on(place.settle(&stubborn));
    let rows = runtime.block_on(client.query("SELECT id FROM rows", &[])).unwrap();
    let committed: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let begun = place.begun.lock().unwrap().clone();
    for id in &begun {
        let status = place.server.client().say(&format!("XA.STATUS {id}"));
        let (is_committed, is_told) = (committed.contains(id), says(&status, b"heuristic-rollback"));
        assert_eq!(is_committed, is_told, "{id} committed, and what was done against it is known: {status:?}");
    }
    say!("lives: {} transactions begun, {} committed", begun.len(), committed.len());
    assert!(committed.len() > 10 && begun.len() > committed.len());
}
