//! SIGKILL at random moments, under load and during recovery: what was acknowledged is there, whatever the durability.
//!
//! A killed process loses nothing that the operating system was given, so all three durabilities promise the same here;
//! what a power cut takes is for the simulator. Segments are small and nothing of the journal is kept for feeds, so each
//! server compacts what the ones before it left, and dies while it does; now and then the ledger is lost too, and is made
//! again from what compaction left of the journal. `HOLDFAST_CRASH_SECONDS` says how long, `HOLDFAST_SEED` begins where a
//! failed run began (the moments of death depend on the machine, so a seed makes a failure likely, not certain).

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Server, Value, budget, say};
use tempfile::TempDir;

use crate::load::{Load, shared};

const CLIENTS: usize = 4;
const LOAD_TIME_MAX_MILLIS: usize = 120;
const RECOVERY_TIME_MAX_MILLIS: usize = 30;
/// Rounds on one folder: enough for many segments of history, few enough that the disk does not fill.
const ROUNDS_PER_FOLDER: usize = 60;
/// A server that compacts as much and as soon as one can be told to, and writes its ledger out in small pieces.
const CONFIGURATION: &str = "\
[compaction]
bytes_per_second = 0
dead_percent = 1
keep_bytes = 0
[limits]
segment_bytes = 1048576
ledger_memory_bytes = 65536
";
const DURABILITIES: &[&str] = &["synced", "written", "window:1ms,20ms"];

#[test]
fn every_acknowledged_write_survives_sigkill_at_any_moment() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    let time = budget("HOLDFAST_CRASH_SECONDS", 60);
    let deadline = Instant::now() + time;
    // A machine that others keep busy may need longer until a server has compacted something and was asked.
    let patience = deadline + 4 * time;
    say!("crash: HOLDFAST_SEED={seed}");
    let mut story = Story::default();
    let settings = TempDir::new().expect("a temporary folder");
    let configuration = settings.path().join("holdfast.toml");
    fs::write(&configuration, CONFIGURATION).expect("a file of a test can be written");
    let configuration = configuration.to_str().expect("a temporary folder has a plain name");
    while story.goes_on(deadline, patience) {
        let folder = TempDir::new().expect("a temporary folder");
        let mut loads: Vec<Load> = (0..CLIENTS).map(|name| Load::new(name, Random::new(random.number()))).collect();
        let mut counter = 0;
        for _ in 0..ROUNDS_PER_FOLDER {
            if !story.goes_on(deadline, patience) {
                break;
            }
            let durability = DURABILITIES[random.below(DURABILITIES.len())];
            let launch = Launch::new(folder.path()).durability(durability).argument("--config").argument(configuration);
            if random.below(8) == 0 {
                story.lost_ledgers += u64::from(lose_ledger(folder.path()));
            }
            if random.below(4) == 0 {
                die_while_starting(&launch, &mut random);
                story.deaths_at_start += 1;
            }
            let outcome = round(&launch, &mut random, &mut loads, &mut counter, &mut story);
            if let Err(what) = outcome {
                let kept = folder.keep();
                panic!("seed {seed}, round {}, {durability}, data in {}: {what}", story.rounds, kept.display());
            }
        }
        story.acknowledged += loads.iter().map(|load| load.acknowledged).sum::<u64>();
    }
    say!(
        "crash: {} rounds, {} deaths more while starting, {} ledgers lost, {} writes acknowledged, {} keys verified, \
         at least {} segments compacted and {} bytes moved",
        story.rounds,
        story.deaths_at_start,
        story.lost_ledgers,
        story.acknowledged,
        story.verified,
        story.compacted_segments,
        story.moved_bytes
    );
    assert!(story.rounds > 0 && story.verified > 0 && story.acknowledged > 0, "nothing was tried");
    assert!(story.has_compacted(), "nothing was compacted");
}

#[derive(Debug, Default)]
struct Story {
    rounds: u64,
    deaths_at_start: u64,
    lost_ledgers: u64,
    /// What the servers said that they compacted, when they were asked just before they were killed.
    compacted_segments: i64,
    moved_bytes: i64,
    acknowledged: u64,
    verified: usize,
}

impl Story {
    fn has_compacted(&self) -> bool {
        self.compacted_segments > 0 && self.moved_bytes > 0
    }

    fn goes_on(&self, deadline: Instant, patience: Instant) -> bool {
        Instant::now() < if self.has_compacted() { deadline } else { patience }
    }

    /// Adds what a server says of its compaction.
    fn ask(&mut self, client: &mut Client) -> Result<(), String> {
        let answer = client.call(&["KV.COMPACT", "STATUS"]).map_err(|error| format!("the status: {error}"))?;
        let Value::Array(items) = &answer else { return Err(format!("the status of compaction is {answer:?}")) };
        for pair in items.chunks(2) {
            match pair {
                [name, Value::Integer(number)] if name.bytes() == Some(b"segments") => {
                    self.compacted_segments += number
                }
                [name, Value::Integer(number)] if name.bytes() == Some(b"moved_bytes") => self.moved_bytes += number,
                [_, Value::Integer(_)] => {}
                other => return Err(format!("the status of compaction says {other:?}")),
            }
        }
        Ok(())
    }
}

/// Starts, verifies what the round before left, loads, kills.
fn round(
    launch: &Launch,
    random: &mut Random,
    loads: &mut [Load],
    counter: &mut i64,
    story: &mut Story,
) -> Result<(), String> {
    let server = launch.try_start().map_err(|refusal| format!("exit {:?}: {}", refusal.code, refusal.text))?;
    verify(&server, loads, counter, story)?;
    // Not before every kill: what comes before the death must not always be the same.
    let mut asking = (random.below(2) == 0).then(|| server.client());
    let moment = Duration::from_micros((random.below(LOAD_TIME_MAX_MILLIS) * 1000 + random.below(1000)) as u64);
    let outcome = thread::scope(|scope| {
        let (done, ended) = mpsc::channel();
        let workers: Vec<_> = loads
            .iter_mut()
            .map(|load| {
                let mut client = server.client();
                let done = done.clone();
                scope.spawn(move || {
                    let outcome = load.run(&mut client);
                    // The receiver is gone once the server was killed; nobody waits for this any more.
                    let _ = done.send(());
                    outcome
                })
            })
            .collect();
        // A client that ends before the kill has found something, and there is no reason to wait.
        let early = ended.recv_timeout(moment).is_ok();
        let output = server.output().clone();
        let told = asking.as_mut().filter(|_| !early).map(|client| story.ask(client)).transpose();
        server.kill();
        let outcomes = workers.into_iter().map(|worker| worker.join().expect("a client does not panic"));
        let outcome: Result<(), String> = outcomes.collect();
        if early && outcome.is_ok() {
            return Err(format!("a connection ended before the kill; the server printed:\n{}", output.text()));
        }
        outcome.and(told.map(drop).map_err(|what| format!("{what}; the server printed:\n{}", output.text())))
    });
    story.rounds += 1;
    outcome
}

fn verify(server: &Server, loads: &mut [Load], counter: &mut i64, story: &mut Story) -> Result<(), String> {
    let mut client = server.client();
    for load in loads.iter_mut() {
        story.verified += load.verify(&mut client)?;
    }
    let found = shared(&mut client)?;
    let seen = loads.iter().map(Load::counter_seen).max().unwrap_or(0).max(*counter);
    let sent: i64 = loads.iter().map(|load| load.counter_sent).sum();
    if found < seen || found > sent {
        return Err(format!("the counter is {found}; it was seen at {seen}, and {sent} increments were ever sent"));
    }
    *counter = found;
    Ok(())
}

/// Removes what can be made again from the journal; false when there is none yet.
fn lose_ledger(folder: &Path) -> bool {
    let ledger = folder.join("ledger");
    ledger.exists() && fs::remove_dir_all(ledger).map(|()| true).expect("a folder of a test can be removed")
}

/// Recovery must survive its own death.
pub(crate) fn die_while_starting(launch: &Launch, random: &mut Random) {
    let (mut child, output) = launch.spawn();
    let moment = Duration::from_millis(random.below(RECOVERY_TIME_MAX_MILLIS) as u64);
    output.wait_for(moment, |line| (line.trim() == "ready").then_some(()));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}
