//! One program: money moves from an account in PostgreSQL to one in MariaDB, again and again, one way or another.
//!
//! May use: `tm`, the databases' clients, tokio. Must not know: what is made of the times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Random;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tm::{Begin, BranchName, Coordinator, LastResource, MysqlBranch, PostgresBranch, Remote};
use tokio::sync::Mutex;
use tokio_postgres::Client;

use super::phases::{Phase, Phases};
use super::timed::{Shared, TimedBranch, TimedDecisions, lock};
use crate::databases::{ACCOUNTS, Databases};
use crate::workload::{Failure, Result};

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// All or nothing, as the coordinator decides.
    Atomic,
    /// All or nothing, as PostgreSQL decides: it is the last resource.
    AtomicLast,
    /// Two local ones, committed one after the other, as programs do.
    Local,
    /// Two local ones, committed at the same time.
    LocalAtOnce,
}

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::Atomic, Self::AtomicLast, Self::Local, Self::LocalAtOnce];

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::AtomicLast)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Atomic | Self::AtomicLast => "holdfast",
            Self::Local => "two local ones",
            Self::LocalAtOnce => "two local ones, commits at once",
        }
    }
}

/// One program.
pub(super) struct Worker {
    side: Side,
    databases: Databases,
    coordinator: Coordinator,
    phases: Shared,
    random: Random,
}

impl Worker {
    pub(super) fn new(number: u16, side: Side, databases: Databases, remote: Arc<Remote>) -> Self {
        let phases = Shared::default();
        let coordinator = Coordinator::over(Arc::new(TimedDecisions { remote, phases: Arc::clone(&phases) }));
        Self { side, databases, coordinator, phases, random: Random::new(u64::from(number) + 1) }
    }

    /// Works for so long. Blocks.
    pub(super) fn run(mut self, time: Duration) -> Result<Phases> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.work(time))?;
        let phases = std::mem::take(&mut *lock(&self.phases));
        Ok(phases)
    }

    async fn work(&mut self, time: Duration) -> Result<()> {
        let postgres = Arc::new(self.databases.postgres().await?);
        let mariadb = Arc::new(Mutex::new(self.databases.mariadb().await?));
        let last = match self.side {
            Side::AtomicLast => Some(self.databases.last_resource().await?),
            _ => None,
        };
        let until = Instant::now() + time;
        while Instant::now() < until {
            let began = Instant::now();
            match self.side {
                Side::Atomic | Side::AtomicLast => self.atomic(&postgres, &mariadb, last.as_ref()).await?,
                Side::Local | Side::LocalAtOnce => self.local(&postgres, &mut *mariadb.lock().await).await?,
            }
            lock(&self.phases).since(Phase::Transaction, began);
        }
        Ok(())
    }

    async fn atomic(
        &mut self,
        postgres: &Arc<Client>,
        mariadb: &Arc<Mutex<Conn>>,
        last: Option<&Arc<dyn LastResource>>,
    ) -> Result<()> {
        let began = Instant::now();
        let mut transaction = match last {
            Some(last) => self.coordinator.begin_with_last(Begin::default(), last)?,
            None => self.coordinator.begin(Begin::default())?,
        };
        let [here, there] = ["postgres", "mariadb"].map(BranchName::new);
        let (here, there) = (here?, there?);
        let branch = TimedBranch {
            branch: PostgresBranch::start(postgres, transaction.xid("postgres")?).await?,
            prepare: Phase::PreparePostgres,
            commit: Phase::CommitPostgres,
            phases: Arc::clone(&self.phases),
        };
        match last {
            Some(_) => transaction.enlist_last(&here, branch).await?,
            None => transaction.enlist(&here, branch).await?,
        }
        let branch = TimedBranch {
            branch: MysqlBranch::start(mariadb, &transaction.xid("mariadb")?).await?,
            prepare: Phase::PrepareMariaDb,
            commit: Phase::CommitMariaDb,
            phases: Arc::clone(&self.phases),
        };
        transaction.enlist(&there, branch).await?;
        self.statements(postgres, &mut *mariadb.lock().await).await?;
        lock(&self.phases).since(Phase::Statements, began);
        let committed = transaction.commit().await?;
        if committed.pending.is_empty() {
            Ok(())
        } else {
            Err(Failure::from(format!("left to recovery: {:?}", committed.pending)))
        }
    }

    async fn local(&mut self, postgres: &Client, mariadb: &mut Conn) -> Result<()> {
        let began = Instant::now();
        postgres.batch_execute("BEGIN").await?;
        mariadb.query_drop("START TRANSACTION").await?;
        self.statements(postgres, mariadb).await?;
        lock(&self.phases).since(Phase::Statements, began);
        let phases = &self.phases;
        let here = async {
            let began = Instant::now();
            let done = postgres.batch_execute("COMMIT").await;
            lock(phases).since(Phase::CommitPostgres, began);
            done
        };
        let there = async {
            let began = Instant::now();
            let done = mariadb.query_drop("COMMIT").await;
            lock(phases).since(Phase::CommitMariaDb, began);
            done
        };
        if self.side == Side::LocalAtOnce {
            let (here, there) = tokio::join!(here, there);
            here?;
            there?;
        } else {
            here.await?;
            there.await?;
        }
        Ok(())
    }

    /// An update and an insertion in each.
    async fn statements(&mut self, postgres: &Client, mariadb: &mut Conn) -> Result<()> {
        let (from, to) = (self.random.below(ACCOUNTS), self.random.below(ACCOUNTS));
        let money = self.random.below(100);
        postgres
            .batch_execute(&format!("UPDATE holdfast_bench.accounts SET money = money - {money} WHERE id = {from}"))
            .await?;
        let insert = format!("INSERT INTO holdfast_bench.transfers (account, money) VALUES ({from}, -{money})");
        postgres.batch_execute(&insert).await?;
        mariadb
            .query_drop(format!("UPDATE holdfast_bench.accounts SET money = money + {money} WHERE id = {to}"))
            .await?;
        let insert = format!("INSERT INTO holdfast_bench.transfers (account, money) VALUES ({to}, {money})");
        mariadb.query_drop(insert).await?;
        Ok(())
    }
}
