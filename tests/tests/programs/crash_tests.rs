//! SIGKILL at random moments, under load and during recovery: what was acknowledged is there, whatever the durability.
//!
//! A killed process loses nothing that the operating system was given, so all three durabilities promise the same here;
//! what a power cut takes is for the simulator. `HOLDFAST_CRASH_SECONDS` says how long, `HOLDFAST_SEED` begins where a
//! failed run began (the moments of death depend on the machine, so a seed makes a failure likely, not certain).

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Launch, Random, Server, budget};
use tempfile::TempDir;

use crate::load::{Load, shared};

const CLIENTS: usize = 4;
const LOAD_TIME_MAX_MILLIS: usize = 120;
const RECOVERY_TIME_MAX_MILLIS: usize = 30;
/// Rounds on one folder: enough for many segments of history, few enough that the disk does not fill.
const ROUNDS_PER_FOLDER: usize = 60;
const DURABILITIES: &[&str] = &["synced", "written", "window:1ms,20ms"];

#[test]
fn every_acknowledged_write_survives_sigkill_at_any_moment() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    let deadline = Instant::now() + budget("HOLDFAST_CRASH_SECONDS", 60);
    println!("crash: HOLDFAST_SEED={seed}");
    let mut story = Story::default();
    while Instant::now() < deadline {
        let folder = TempDir::new().expect("a temporary folder");
        let mut loads: Vec<Load> = (0..CLIENTS).map(|name| Load::new(name, Random::new(random.number()))).collect();
        let mut counter = 0;
        for _ in 0..ROUNDS_PER_FOLDER {
            if Instant::now() >= deadline {
                break;
            }
            let durability = DURABILITIES[random.below(DURABILITIES.len())];
            let launch = Launch::new(folder.path()).durability(durability);
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
    println!(
        "crash: {} rounds, {} deaths more while starting, {} writes acknowledged, {} keys verified",
        story.rounds, story.deaths_at_start, story.acknowledged, story.verified
    );
    assert!(story.rounds > 0 && story.verified > 0 && story.acknowledged > 0, "nothing was tried");
}

#[derive(Debug, Default)]
struct Story {
    rounds: u64,
    deaths_at_start: u64,
    acknowledged: u64,
    verified: usize,
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
        server.kill();
        let outcomes = workers.into_iter().map(|worker| worker.join().expect("a client does not panic"));
        let outcome: Result<(), String> = outcomes.collect();
        if early && outcome.is_ok() {
            return Err(format!("a connection ended before the kill; the server printed:\n{}", output.text()));
        }
        outcome
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

/// Recovery must survive its own death.
fn die_while_starting(launch: &Launch, random: &mut Random) {
    let (mut child, output) = launch.spawn();
    let moment = Duration::from_millis(random.below(RECOVERY_TIME_MAX_MILLIS) as u64);
    output.wait_for(moment, |line| (line.trim() == "ready").then_some(()));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}
