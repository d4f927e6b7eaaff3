//! A program that has a part in a transaction of several: it does what lines on its standard input say, and answers each by a line.
//!
//!   begin MS       begins a shared transaction with this timeout             answer hfx...
//!   join ID        takes part in one                                         answer ok
//!   resume ID      goes on with one that another program suspended           answer ok
//!   work           changes its account in both databases, a branch in each   answer ok
//!   suspend        leaves deciding to another program                        answer suspended
//!   finish         waits for what that decides, and does it                  answer committed
//!   prepare        waits for what the program that began it decides          answer committed
//!   commit         decides                                                   answer committed
//!   rollback       decides the other way                                     answer refused
//!
//! Instead of `suspended` and `committed` it may say `refused`, `unknown` or `torn`, of anything `error` and why.
//!
//! May use: `tm`, the databases' clients. Must not know: which pattern it has a part in, who dies where.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use tm::{
    Begin, Committed, Coordinator, Failed, MysqlBranch, Outcome, PostgresBranch, Remote, RemoteOptions, Sharing,
    Suspended, Transaction,
};

use crate::bank::{Clients, Problem, Reach, name, remote};
use crate::steps::{SteppedBranch, SteppedDecisions, Victim, plan};

/// How long it waits for what others decide: for all that they may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// For what was decided before, or never will be.
const FINISH_PATIENCE: Duration = Duration::from_secs(2);

/// What it is told when it starts: words that hold no spaces.
pub(crate) struct Job {
    pub(crate) coordinator: String,
    pub(crate) postgres_port: u16,
    pub(crate) socket: String,
    /// Its account in both databases.
    pub(crate) account: i64,
    /// What its branches have behind their names, because no two programs' may be alike.
    pub(crate) suffix: String,
    /// How long its commit waits for others.
    pub(crate) shared_wait_ms: u64,
    /// Who dies: `nobody`, `itself`, or somebody else.
    pub(crate) victim: String,
    /// The file by which it learns that somebody else is dead.
    pub(crate) dead: String,
    pub(crate) passages: u32,
    /// Where; the last, because it has spaces.
    pub(crate) step: String,
}

/// What it has under way.
struct Part {
    job: Job,
    coordinator: Coordinator,
    clients: Clients,
    transaction: Option<Transaction>,
    suspended: Option<Suspended>,
}

impl Job {
    pub(crate) fn to_words(&self) -> String {
        let Self { coordinator, postgres_port, socket, account, suffix, shared_wait_ms, .. } = self;
        let Self { victim, dead, passages, step, .. } = self;
        format!(
            "{coordinator} {postgres_port} {socket} {account} {suffix} {shared_wait_ms} {victim} {dead} {passages} {step}"
        )
    }

    pub(crate) fn of_words(text: &str) -> Self {
        let mut words = text.splitn(10, ' ');
        let mut next = || words.next().unwrap().to_owned();
        Self {
            coordinator: next(),
            postgres_port: next().parse().unwrap(),
            socket: next(),
            account: next().parse().unwrap(),
            suffix: next(),
            shared_wait_ms: next().parse().unwrap(),
            victim: next(),
            dead: next(),
            passages: next().parse().unwrap(),
            step: next(),
        }
    }

    /// Until nobody says anything any more.
    pub(crate) async fn work(self) {
        let victim = match self.victim.as_str() {
            "nobody" => None,
            "itself" => Some(Victim::Itself(Duration::ZERO)),
            other => Some(Victim::Other { name: other.to_owned(), dead: self.dead.clone().into() }),
        };
        if let Some(victim) = victim {
            plan(&self.step, self.passages, victim);
        }
        let mut part = Part::new(self).await.unwrap();
        answer("ready");
        for line in std::io::stdin().lock().lines() {
            answer(&part.obey(&line.unwrap()).await.unwrap_or_else(|error| format!("error {error}")));
        }
    }
}

fn answer(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "answer {text}");
    let _ = out.flush();
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::RolledBack => "refused",
        Outcome::Unknown => "unknown",
        Outcome::Mixed | Outcome::Hazard => "torn",
    }
}

fn ended(ended: Result<Committed, Failed>) -> String {
    word(ended.map_or_else(|failed| failed.outcome, |_| Outcome::Committed)).to_owned()
}

impl Part {
    async fn new(job: Job) -> Result<Self, Problem> {
        let shared_wait = Duration::from_millis(job.shared_wait_ms);
        let options = RemoteOptions { shared_wait, ..remote(&job.coordinator) };
        let decisions = tokio::task::spawn_blocking(move || Remote::open(options)).await??;
        let coordinator = Coordinator::over(Arc::new(SteppedDecisions(decisions)));
        let postgres =
            format!("host=127.0.0.1 port={} user=postgres dbname=postgres connect_timeout=5", job.postgres_port);
        let clients = Reach::new(&postgres, Path::new(&job.socket)).connect().await?;
        Ok(Self { job, coordinator, clients, transaction: None, suspended: None })
    }

    async fn obey(&mut self, line: &str) -> Result<String, Problem> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut transaction = || self.transaction.take().ok_or("there is no transaction");
        Ok(match verb {
            "begin" => {
                let timeout = Some(Duration::from_millis(rest.parse()?));
                let begun = self.coordinator.begin(Begin { timeout, sharing: Sharing::Shared })?;
                self.transaction.insert(begun).id().to_string()
            }
            "join" => self.has(self.coordinator.join(rest)?),
            "resume" => self.has(self.coordinator.resume(rest).await?),
            "work" => self.change().await?,
            "suspend" => match transaction()?.suspend().await {
                Ok(suspended) => {
                    self.suspended = Some(suspended);
                    "suspended".to_owned()
                }
                Err(failed) => word(failed.outcome).to_owned(),
            },
            "finish" => match &mut self.suspended {
                Some(suspended) => match suspended.finish(FINISH_PATIENCE).await.transpose() {
                    Some(finished) => ended(finished),
                    None => "unknown".to_owned(),
                },
                None => return Err("nothing is suspended".into()),
            },
            "prepare" => ended(transaction()?.prepare(PATIENCE).await),
            "commit" => ended(transaction()?.commit().await),
            "rollback" => {
                word(transaction()?.rollback().await.map_or_else(|failed| failed.outcome, |()| Outcome::RolledBack))
                    .to_owned()
            }
            other => panic!("{other} is nothing that it can do"),
        })
    }

    fn has(&mut self, transaction: Transaction) -> String {
        self.transaction = Some(transaction);
        "ok".to_owned()
    }

    async fn change(&mut self) -> Result<String, Problem> {
        let transaction = self.transaction.as_mut().ok_or("there is no transaction")?;
        let statement = format!("UPDATE bank.accounts SET money = money + 1 WHERE id = {}", self.job.account);
        let branch_name = |manager: &str| format!("{manager}-{}", self.job.suffix);
        let postgres = branch_name("postgres");
        let branch = PostgresBranch::start(&self.clients.postgres, transaction.xid(&postgres)?).await?;
        transaction.enlist(&name(&postgres), SteppedBranch { name: "postgres", branch }).await?;
        self.clients.postgres.batch_execute(&statement).await?;
        let mariadb = branch_name("mariadb");
        let branch = MysqlBranch::start(&self.clients.mariadb, &transaction.xid(&mariadb)?).await?;
        transaction.enlist(&name(&mariadb), SteppedBranch { name: "mariadb", branch }).await?;
        self.clients.mariadb.lock().await.query_drop(statement).await?;
        Ok("ok".to_owned())
    }
}
