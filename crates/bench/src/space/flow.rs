//! A small order flow: a message comes in, a product's price is read, an account pays, an order is written, a message goes out.
//!
//! Once as a space in one process, where a worker's transaction is all of it: the message taken, what it reads and writes, and
//! the message that goes out are one batch. Once as tiers in processes of their own: a list of Redis as broker, PostgreSQL for
//! data, programs between them. There the message and the data are two systems that are written one after the other, as
//! such programs do (the message is kept in a second list until the database has committed, and an order that was made already
//! is not made again): a crash may answer twice, which the space does not.
//!
//! Clients are threads of this program that send a message and wait for what comes out. How long that takes is what is
//! measured; all money that was paid is counted at the end. Once they send the next message when the last is answered: that shows how many
//! there can be, and how long each takes follows from that, since as many are on their way on both sides. And once so many a second as both
//! sides can carry: that shows how long an answer takes.
//!
//! May use: all of this folder. Must not know: how figures are shown.

mod space;
mod tiers;

use std::thread;
use std::time::{Duration, Instant};

use base::Random;

use super::sheet::{Sheet, Times, record, times};
use super::{Kept, Line};
use crate::figures::Bar;
use crate::report::Report;
use crate::workload::{Failure, Result};

pub(crate) use tiers::{Worker, work};

const PRODUCTS: u64 = 1_000;
const ACCOUNTS: u64 = 1_000;
/// What each account has before.
const MONEY: i64 = 1_000_000_000;
/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);
const SPACE: &str = "space";
const TIERS: &str = "tiers";

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    /// Which client, and which of its messages.
    id: u64,
    client: u64,
    product: u64,
    account: u64,
    quantity: i64,
}

/// The price of a product.
fn price(product: u64) -> i64 {
    5 + i64::try_from(product % 95).unwrap_or(0)
}

/// When clients send.
#[derive(Debug, Clone, Copy)]
enum Load {
    /// The next message when the last is answered.
    Full,
    /// So many messages a second, of all clients together.
    Rate(f64),
}

impl Load {
    /// Waits until a client's next message is to be sent. From when on its answer is late: one that is sent too late, because the one before
    /// was not answered, counts from when it should have been sent.
    fn wait(self, line: &Line, began: Instant, (client, sent): (u64, u64)) -> Instant {
        let Self::Rate(rate) = self else { return Instant::now() };
        let before = client + sent * u64::from(line.flow_clients);
        let due = began + Duration::from_secs_f64(before as f64 / rate);
        match due.checked_duration_since(Instant::now()) {
            Some(left) => {
                thread::sleep(left);
                Instant::now()
            }
            None => due,
        }
    }

    fn work(self, line: &Line, kept: Kept) -> String {
        let Line { flow_clients, workers, .. } = line;
        let load = if let Self::Rate(rate) = self { format!(", {rate}/s") } else { String::new() };
        format!("order flow, {flow_clients} clients, {workers} workers{load}, {}", kept.name())
    }
}

/// A client's way in and out.
trait Client {
    /// Sends a message and waits for what comes out: what was paid.
    fn order(&mut self, message: &Message) -> Result<i64>;
}

/// One way to build the flow.
trait Flow: Sync {
    fn client<'a>(&'a self, number: u64) -> Result<Box<dyn Client + 'a>>;

    /// How many orders there are, and how much all accounts have.
    fn totals(&self) -> Result<(u64, i64)>;
}

/// Both ways.
pub(super) fn measure(line: &Line, report: &mut Report, kept: Kept, repetition: u32) -> Result<()> {
    if kept == Kept::Volatile {
        return Ok(());
    }
    let mut ways = [SPACE, TIERS];
    if repetition % 2 == 1 {
        ways.reverse();
    }
    for way in ways {
        let loads = [Load::Full, Load::Rate(line.flow_rate)];
        let drive = |flow: &dyn Flow| loads.into_iter().map(|load| drive(flow, line, load)).collect::<Result<Vec<_>>>();
        let measured = if way == SPACE {
            let dir = line.common.fresh()?;
            let flow = space::Whole::start(dir.path(), kept, line.workers)?;
            let measured = drive(&flow)?;
            flow.stop()?;
            measured
        } else {
            drive(&tiers::Tiers::start(line, kept)?)?
        };
        for (load, (rate, latency)) in loads.into_iter().zip(measured) {
            let work = load.work(line, kept);
            let mut sheet = Sheet { report: &mut *report, work: &work, sides: &[SPACE, TIERS] };
            let bar = Some(Bar::RatioAtLeast(6.0)).filter(|_| matches!(load, Load::Full));
            sheet.rate(way, "transactions", rate, bar);
            sheet.latency(way, "end to end", &latency, Some(Bar::RatioBelow(0.1)));
        }
    }
    Ok(())
}

/// Drives it with clients that wait for their answers; transactions a second and the time of each.
fn drive(flow: &dyn Flow, line: &Line, load: Load) -> Result<(f64, Times)> {
    let time = line.time();
    let (orders, money) = flow.totals()?;
    let began = Instant::now();
    let clients = thread::scope(|scope| {
        let clients: Vec<_> = (0..u64::from(line.flow_clients))
            .map(|number| {
                scope.spawn(move || -> Result<(Times, u64, i64)> {
                    let (mut client, mut random) = (flow.client(number)?, Random::new(number + 1));
                    let (mut latency, mut sent, mut paid) = (times(), 0, 0);
                    while began.elapsed() < time {
                        let begin = load.wait(line, began, (number, sent));
                        let message = Message {
                            id: number << 32 | (orders + sent),
                            client: number,
                            product: random.below(PRODUCTS),
                            account: random.below(ACCOUNTS),
                            quantity: 1 + i64::try_from(random.below(9)).unwrap_or(0),
                        };
                        let answer = client.order(&message)?;
                        record(&mut latency, begin.elapsed());
                        let wanted = price(message.product) * message.quantity;
                        if answer != wanted {
                            return Err(Failure::from(format!("{message:?} paid {answer}, and not {wanted}")));
                        }
                        (sent, paid) = (sent + 1, paid + answer);
                    }
                    Ok((latency, sent, paid))
                })
            })
            .collect();
        let join = |client: thread::ScopedJoinHandle<'_, Result<_>>| {
            client.join().map_err(|_| Failure::from("a client panicked"))?
        };
        clients.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let mut all = (times(), 0, 0);
    for (latency, sent, paid) in clients {
        all.0.add(&latency).map_err(|error| Failure::from(error.to_string()))?;
        all = (all.0, all.1 + sent, all.2 + paid);
    }
    let (latency, sent, paid) = all;
    let after = flow.totals()?;
    if after != (orders + sent, money - paid) {
        let text = format!("{sent} orders of {paid} made {orders} orders and {money} into {} and {}", after.0, after.1);
        return Err(Failure::from(text));
    }
    Ok((sent as f64 / seconds, latency))
}
