//! One client: a device that sends its rows and asks about them, over connections of its own.
//!
//! Over TCP nobody answers, so a write takes until the system has accepted all its bytes. What the server makes of them is known at
//! the end: it is asked for a checkpoint if it has such, then this side is closed, and the server closes the other when it
//! has read everything. A few clients of a server with checkpoints ask for one after each write: that is how long it takes until a
//! write over TCP is durable.
//!
//! May use: tokio, `http.rs`, `plan.rs`. Must not know: which server it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ask::{Ask, Read, There};
use super::doors::{Checkpoint, Doors};
use super::http::{Http, connect};
use super::plan::{Ahead, Plan, Progress, Step};
use super::times::{Operation, Times};
use crate::workload::{Failure, Result};

/// Of so many clients one asks for checkpoints.
const PROBES_OF: u32 = 50;
/// No server takes longer for what it was sent last.
const END_TIME_MAX: Duration = Duration::from_secs(120);
/// Longer than this no line of a server is.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What all clients of a load share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) doors: Doors,
}

/// A client between its operations.
pub(crate) struct Client {
    shared: Arc<Shared>,
    number: u32,
    progress: Progress,
    ahead: Ahead,
    writing: Option<Writing>,
    asking: Option<Http>,
    rows: u64,
    random: Random,
    times: Times,
}

enum Writing {
    Tcp(TcpStream),
    Http(Http),
}

impl Client {
    /// A client that is not connected yet.
    pub(crate) fn new(shared: Arc<Shared>, number: u32) -> Self {
        let progress = Progress::new(&shared.plan, number);
        let rows = shared.plan.rows_before;
        let random = Random::new(shared.plan.scenario.seed ^ (u64::from(number) << 20));
        let (ahead, times) = (Ahead::default(), Times::default());
        Self { shared, number, progress, ahead, writing: None, asking: None, rows, random, times }
    }

    /// Connects.
    pub(crate) async fn open(&mut self) -> Result<()> {
        let Shared { plan, doors } = &*self.shared;
        if plan.mix.writes > 0 {
            let address = doors.way(plan.way).ok_or_else(|| Failure::from("a way that the server does not have"))?;
            self.writing = Some(if plan.way.is_answered() {
                Writing::Http(Http::connect(address).await?)
            } else {
                Writing::Tcp(connect(address).await?)
            });
        }
        if plan.mix.reads > 0 {
            self.asking = Some(Http::connect(doors.query).await?);
        }
        Ok(())
    }

    /// Makes the next operations; false when there are none.
    pub(crate) fn prepare(&mut self, bytes_max: usize) -> bool {
        self.ahead = self.progress.ahead(&self.shared.plan, bytes_max);
        !self.ahead.steps.is_empty()
    }

    /// Does what was prepared.
    pub(crate) async fn run(&mut self) -> Result<()> {
        let ahead = std::mem::take(&mut self.ahead);
        let mut due = Instant::now();
        for step in ahead.steps {
            let interval = self.shared.plan.interval;
            if !interval.is_zero() {
                tokio::time::sleep_until(due.into()).await;
                due = Instant::now() + interval;
            }
            match step {
                Step::Write(part, rows) => {
                    self.write(ahead.bytes.get(part).unwrap_or_default()).await?;
                    self.rows = rows;
                }
                // There is nothing to ask about before the first write.
                Step::Read(read) if self.rows > 0 => self.read(read).await?,
                Step::Read(_) => {}
            }
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let probes = self.number.is_multiple_of(PROBES_OF) && self.shared.doors.checkpoint == Checkpoint::Answered;
        let began = Instant::now();
        match self.writing.as_mut().ok_or("a client that is not connected")? {
            Writing::Http(http) => drop(http.ask(bytes).await?),
            Writing::Tcp(stream) => {
                if let Err(error) = stream.write_all(bytes).await {
                    return Err(told(stream, error).await);
                }
                if probes {
                    self.times.add(Operation::Write, began.elapsed())?;
                    checkpoint(stream).await?;
                    return self.times.add(Operation::Durable, began.elapsed());
                }
            }
        }
        self.times.add(Operation::Write, began.elapsed())
    }

    async fn read(&mut self, read: Read) -> Result<()> {
        let Shared { plan, doors } = &*self.shared;
        let there = There { scenario: &plan.scenario, device: self.number, rows: self.rows };
        let ask = Ask::any(read, plan.way.shape(), there, &mut self.random);
        let (_, request) = doors.request(&ask).ok_or("a question that the server does not understand")?;
        let asking = self.asking.as_mut().ok_or("a client that is not connected")?;
        let began = Instant::now();
        if plan.way.is_answered() {
            asking.ask(&request).await?;
        } else {
            // What was sent and not answered may not be there yet, and some servers refuse to be asked about what they do not know.
            let status = asking.exchange(&request).await?;
            if status >= 500 {
                return Err(format!("a question was answered with {status}").into());
            }
        }
        self.times.add(Operation::Read(read), began.elapsed())
    }

    /// Waits until the server has taken everything.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        let Some(Writing::Tcp(stream)) = &mut self.writing else { return Ok(()) };
        if self.shared.doors.checkpoint == Checkpoint::Answered {
            checkpoint(stream).await?;
        }
        stream.shutdown().await?;
        let said = timeout(END_TIME_MAX, rest(stream)).await.map_err(|_| Failure::from("the server does not close"))?;
        if said.is_empty() { Ok(()) } else { Err(format!("the server said: {}", said.trim_end()).into()) }
    }

    /// What it measured.
    pub(crate) fn into_times(self) -> Times {
        self.times
    }
}

/// Asks for a checkpoint, and waits for it.
async fn checkpoint(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"checkpoint\n").await?;
    let line = timeout(END_TIME_MAX, line(stream)).await.map_err(|_| Failure::from("no answer to `checkpoint`"))??;
    if line.starts_with("checkpoint") || line.starts_with("ok") {
        Ok(())
    } else {
        Err(format!("the server said: {line}").into())
    }
}

async fn line(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n") {
        if bytes.len() > LINE_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the server says until it closes; the beginning of it.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut more = Vec::new();
    // A server may close without having read its last byte, and what counts is counted back anyway.
    while let Ok(1..) = stream.read_buf(&mut more).await {
        if bytes.len() < LINE_BYTES_MAX {
            bytes.append(&mut more);
        }
        more.clear();
    }
    String::from_utf8_lossy(&bytes).chars().take(300).collect()
}

/// Why the server closed: it may have said so.
async fn told(stream: &mut TcpStream, error: std::io::Error) -> Failure {
    let said = timeout(Duration::from_secs(1), rest(stream)).await.unwrap_or_default();
    Failure::from(format!("writing failed: {error}; the server said: {}", said.trim_end()))
}
