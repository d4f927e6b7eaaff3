//! The flow as tiers: a list of Redis brings messages to programs, which have their data in PostgreSQL and answer by another list.
//!
//! A program moves a message to a list of its own, so that it is not lost with the program, commits in the database, answers, and
//! removes it. An order's id is that of its message, so a message that comes again is seen by the database.
//!
//! May use: processes, clients of both. Must not know: clients' clocks.

use std::net::SocketAddr;
use std::process::Command;

use clap::Args;
use tokio_postgres::NoTls;

use super::{ACCOUNTS, Client, Flow, MONEY, Message, PATIENCE, PRODUCTS, price};
use crate::client::{Answer, Client as Redis};
use crate::databases::{Postgres, runtime};
use crate::process::{Fsync, Running, Server};
use crate::space::{Kept, Line};
use crate::workload::{Failure, Result};

/// One program between broker and database, started by the benchmark.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[arg(long)]
    redis: SocketAddr,
    #[arg(long)]
    postgres: String,
    #[arg(long)]
    number: u16,
}

/// Everything that was started. What is named first ends first.
pub(super) struct Tiers {
    _workers: Vec<Running>,
    redis: Server,
    postgres: Postgres,
}

impl Tiers {
    pub(super) fn start(line: &Line, kept: Kept) -> Result<Self> {
        let is_synced = kept == Kept::Synced;
        // What was answered may be lost with the machine and not with the process, as for the space at `written`.
        let commit: &[&str] = if is_synced { &[] } else { &["synchronous_commit=off"] };
        let postgres = Postgres::start(&line.common.fresh()?, commit)?;
        let fsync = if is_synced { Fsync::Always } else { Fsync::EverySecond };
        let redis = line.programs.start_redis(line.common.fresh()?, fsync)?;
        runtime()?.block_on(async {
            let (client, connection) = postgres.connection.parse::<tokio_postgres::Config>()?.connect(NoTls).await?;
            tokio::spawn(connection);
            let products: Vec<String> = (0..PRODUCTS).map(|id| format!("({id}, {})", price(id))).collect();
            let accounts: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {MONEY})")).collect();
            let sql = format!(
                "CREATE TABLE product (id BIGINT PRIMARY KEY, price BIGINT NOT NULL);
                 CREATE TABLE account (id BIGINT PRIMARY KEY, money BIGINT NOT NULL);
                 CREATE TABLE orders (id BIGINT PRIMARY KEY, account BIGINT NOT NULL, total BIGINT NOT NULL);
                 INSERT INTO product VALUES {};
                 INSERT INTO account VALUES {};
                 ANALYZE;",
                products.join(", "),
                accounts.join(", ")
            );
            client.batch_execute(&sql).await?;
            Result::Ok(())
        })?;
        let program = std::env::current_exe()?;
        let start = |number: u16| {
            let mut command = Command::new(&program);
            command.arg("space-flow-worker").arg(format!("--redis={}", redis.address));
            command.arg(format!("--postgres={}", postgres.connection)).arg(format!("--number={number}"));
            Running::start(&mut command, &program)
        };
        let workers = (0..line.workers).map(start).collect::<Result<Vec<_>>>()?;
        Ok(Self { _workers: workers, redis, postgres })
    }
}

impl Flow for Tiers {
    fn client<'a>(&'a self, number: u64) -> Result<Box<dyn Client + 'a>> {
        Ok(Box::new(Sender { redis: Redis::connect(self.redis.address)?, out: format!("out:{number}") }))
    }

    fn totals(&self) -> Result<(u64, i64)> {
        runtime()?.block_on(async {
            let config: tokio_postgres::Config = self.postgres.connection.parse()?;
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            let sql = "SELECT (SELECT COUNT(*) FROM orders), (SELECT SUM(money)::BIGINT FROM account)";
            let row = client.query_one(sql, &[]).await?;
            Ok((u64::try_from(row.try_get::<_, i64>(0)?)?, row.try_get(1)?))
        })
    }
}

/// A client.
struct Sender {
    redis: Redis,
    out: String,
}

impl Client for Sender {
    fn order(&mut self, message: &Message) -> Result<i64> {
        self.redis.ask(&[b"LPUSH", b"in", message.text().as_bytes()])?;
        let patience = PATIENCE.as_secs().to_string();
        let answer = self.redis.ask(&[b"BRPOP", self.out.as_bytes(), patience.as_bytes()])?;
        let odd = || Failure::from(format!("{answer:?} came out for {message:?}"));
        let (id, total) =
            answer.part(1).and_then(Answer::text).and_then(|text| text.split_once(' ')).ok_or_else(odd)?;
        if id.parse() != Ok(message.id) {
            return Err(odd());
        }
        total.parse().map_err(|_| odd())
    }
}

impl Message {
    fn text(&self) -> String {
        let Self { id, client, product, account, quantity } = self;
        format!("{id} {client} {product} {account} {quantity}")
    }

    fn of(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = || words.next()?.parse::<u64>().ok();
        let [id, client, product, account] = [next()?, next()?, next()?, next()?];
        Some(Self { id, client, product, account, quantity: next()?.try_into().ok()? })
    }
}

/// Handles messages until it is killed.
pub(crate) fn work(worker: &Worker) -> Result<()> {
    let mut redis = Redis::connect(worker.redis)?;
    let own = format!("worked:{}", worker.number);
    let runtime = runtime()?;
    let config: tokio_postgres::Config = worker.postgres.parse()?;
    let (mut client, connection) = runtime.block_on(config.connect(NoTls))?;
    runtime.spawn(connection);
    let (read, pay, order) = runtime.block_on(async {
        Result::Ok((
            client.prepare("SELECT price FROM product WHERE id = $1").await?,
            client.prepare("UPDATE account SET money = money - $2 WHERE id = $1").await?,
            client.prepare("INSERT INTO orders VALUES ($1, $2, $3) ON CONFLICT DO NOTHING").await?,
        ))
    })?;
    loop {
        let came = redis.ask(&[b"BLMOVE", b"in", own.as_bytes(), b"RIGHT", b"LEFT", b"5"])?;
        let Some(text) = came.text() else { continue };
        let message = Message::of(text).ok_or_else(|| Failure::from(format!("`{text}` is no message")))?;
        let [id, product, account] =
            [message.id, message.product, message.account].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let total = runtime.block_on(async {
            let price: i64 = client.query_one(&read, &[&product]).await?.try_get(0)?;
            let total = price * message.quantity;
            let transaction = client.transaction().await?;
            // The order says whether this message was handled before: then nothing is paid again.
            if transaction.execute(&order, &[&id, &account, &total]).await? == 1 {
                transaction.execute(&pay, &[&account, &total]).await?;
            }
            transaction.commit().await?;
            Result::Ok(total)
        })?;
        redis.ask(&[b"LPUSH", format!("out:{}", message.client).as_bytes(), format!("{id} {total}").as_bytes()])?;
        redis.ask(&[b"LREM", own.as_bytes(), b"1", text.as_bytes()])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = Message { id: 7 << 32, client: 7, product: 3, account: 9, quantity: 4 };
        assert_eq!(Message::of(&message.text()), Some(message));
        for odd in ["", "1 2 3 4", "1 2 3 4 x", "a b c d e"] {
            assert_eq!(Message::of(odd), None, "{odd}");
        }
    }
}
