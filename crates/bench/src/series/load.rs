//! All clients of a load, on a few threads, and how long they took together.
//!
//! Requests are made before they are sent, up to a bound of memory; then the clock runs until they are done, and stops while more
//! are made. So making them takes nothing from the server. It may put its house in order meanwhile, as every side may.
//!
//! May use: tokio's runtimes, `client.rs`. Must not know: which server it is.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{Client, Shared};
use super::doors::Doors;
use super::plan::Plan;
use super::times::Times;
use crate::workload::{Failure, Result};

/// No load takes longer between two stops: a server that hangs ends the run.
const PART_TIME_MAX: Duration = Duration::from_secs(900);

/// How the client side works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means {
    pub(crate) threads: u32,
    /// Memory for requests that were made and not sent.
    pub(crate) ahead_bytes: usize,
}

/// A load, done.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// How long clients were at work, and how much of that was the end, when everything was sent and the server still read.
    pub(crate) seconds: f64,
    pub(crate) end_seconds: f64,
    pub(crate) points: u64,
    pub(crate) times: Times,
}

/// Some clients and the runtime that they share.
struct Worker {
    runtime: Runtime,
    clients: Vec<Client>,
}

/// Does what the plan says.
pub(crate) fn run(plan: Plan, doors: &Doors, means: Means) -> Result<Loaded> {
    let shared = Arc::new(Shared { plan, doors: doors.clone() });
    let threads = means.threads.clamp(1, shared.plan.clients.max(1));
    let mut workers = (0..threads).map(|at| Worker::new(&shared, at, threads)).collect::<Result<Vec<_>>>()?;
    let each = means.ahead_bytes / usize::try_from(shared.plan.clients.max(1))?;
    together(&mut workers, &|worker| worker.all(Act::Open))?;
    let mut busy = Duration::ZERO;
    loop {
        let prepared = together(&mut workers, &|worker| {
            Ok(worker.clients.iter_mut().filter_map(|client| client.prepare(each).then_some(())).count())
        })?;
        if prepared.iter().sum::<usize>() == 0 {
            break;
        }
        let began = Instant::now();
        together(&mut workers, &|worker| worker.all(Act::Run))?;
        busy += began.elapsed();
    }
    let ending = Instant::now();
    together(&mut workers, &|worker| worker.all(Act::Finish))?;
    let end = ending.elapsed();
    let mut times = Times::default();
    for client in workers.into_iter().flat_map(|worker| worker.clients) {
        times.merge(&client.into_times())?;
    }
    let (seconds, end_seconds) = ((busy + end).as_secs_f64(), end.as_secs_f64());
    Ok(Loaded { seconds, end_seconds, points: shared.plan.points(), times })
}

/// What all clients do at the same time.
#[derive(Debug, Clone, Copy)]
enum Act {
    Open,
    Run,
    Finish,
}

impl Worker {
    fn new(shared: &Arc<Shared>, at: u32, of: u32) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let numbers = (at..shared.plan.clients).step_by(usize::try_from(of)?);
        Ok(Self { runtime, clients: numbers.map(|number| Client::new(Arc::clone(shared), number)).collect() })
    }

    fn all(&mut self, act: Act) -> Result<()> {
        let clients = std::mem::take(&mut self.clients);
        self.clients = self.runtime.block_on(async move {
            let mut running = JoinSet::new();
            for mut client in clients {
                running.spawn(async move {
                    match act {
                        Act::Open => client.open().await?,
                        Act::Run => client.run().await?,
                        Act::Finish => client.finish().await?,
                    }
                    Ok::<Client, Failure>(client)
                });
            }
            let mut clients = Vec::new();
            let ended = timeout(PART_TIME_MAX, async {
                while let Some(ended) = running.join_next().await {
                    clients.push(ended.map_err(|error| Failure::from(error.to_string()))??);
                }
                Ok::<(), Failure>(())
            });
            ended.await.map_err(|_| Failure::from("the server takes no more"))??;
            Ok::<Vec<Client>, Failure>(clients)
        })?;
        Ok(())
    }
}

/// Does something with all workers at the same time.
fn together<T: Send>(workers: &mut [Worker], act: &(dyn Fn(&mut Worker) -> Result<T> + Sync)) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(move || act(worker))).collect();
        let ended = running.into_iter().map(|thread| thread.join().map_err(|_| Failure::from("a client panicked"))?);
        ended.collect()
    })
}
