//! Entries with leases under clients that do everything to them at once, while the server is killed at random moments: what was acknowledged
//! is there until its lease ends or somebody has it, nobody has what another has, and listeners are told all of it once.
//!
//! `HOLDFAST_LEASE_SECONDS` says how long, `HOLDFAST_SEED` begins where a failed run began (the moments of death depend on the machine, so a
//! seed makes a failure likely, not certain).

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_tests::{Client, Launch, Random, Server, Value, budget, say, until};
use tempfile::TempDir;

use crate::crash_tests::die_while_starting;
use crate::lease_clients::{Done, Shared, Stop, Worker, all, lock, take_on};
use crate::lease_listener::Listener;
use crate::lease_oracle::{Check, Figures, now_ms};

const WORKERS: u64 = 6;
const TAKERS: usize = 4;
const LIFE_MAX_MILLIS: usize = 300;
/// Rounds on one folder: enough for several segments, few enough that listeners find all of the journal.
const ROUNDS_PER_FOLDER: usize = 40;
/// Entries whose lease has ended are gone from memory, and told of, soon after.
const REMOVED_WITHIN: Duration = Duration::from_secs(10);
const CONFIGURATION: &str = "[limits]\nsegment_bytes = 1048576\n";
const DURABILITIES: &[&str] = &["synced", "written", "window:1ms,20ms"];

#[test]
fn entries_live_as_long_as_their_leases_and_are_taken_once_while_the_server_is_killed() {
    let seed = Random::seed();
    let mut random = Random::new(seed);
    let deadline = Instant::now() + budget("HOLDFAST_LEASE_SECONDS", 8);
    say!("leases: HOLDFAST_SEED={seed}");
    let settings = TempDir::new().expect("a temporary folder");
    let configuration = settings.path().join("holdfast.toml");
    fs::write(&configuration, CONFIGURATION).expect("a file of a test can be written");
    let configuration = configuration.to_str().expect("a temporary folder has a plain name");
    let mut figures = Vec::new();
    let mut rounds = 0;
    while Instant::now() < deadline {
        let folder = TempDir::new().expect("a temporary folder");
        let mut scene = Scene::new(&mut random);
        for _ in 0..ROUNDS_PER_FOLDER {
            let durability = DURABILITIES[random.below(DURABILITIES.len())];
            let launch = Launch::new(folder.path()).durability(durability).argument("--config").argument(configuration);
            let is_last = Instant::now() >= deadline;
            let outcome = if is_last { scene.finish(&launch.start()) } else { scene.round(&launch, &mut random) };
            if let Err(what) = outcome {
                let kept = folder.keep();
                panic!("seed {seed}, round {rounds}, {durability}, data in {}: {what}", kept.display());
            }
            rounds += 1;
            if is_last {
                break;
            }
        }
        figures.push(lock(&scene.oracle).figures);
    }
    let sum = |of: fn(&Figures) -> u64| figures.iter().map(of).sum::<u64>();
    let (written, taken, expired) = (sum(|it| it.written), sum(|it| it.taken), sum(|it| it.expired));
    let (updated, renewed, shown) = (sum(|it| it.updated), sum(|it| it.renewed), sum(|it| it.shown));
    let (events, kept) = (sum(|it| it.events), sum(|it| it.kept));
    say!(
        "leases: {rounds} rounds; {written} written, {updated} updated, {renewed} renewed, {taken} taken, {expired} expired, {shown} shown, {kept} found again, \
         {events} events; without an answer {} taken of {} takes, {} writes not done",
        sum(|it| it.taken_unanswered),
        sum(|it| it.lost_takes),
        sum(|it| it.not_written),
    );
    assert!(
        [written, updated, renewed, taken, expired, shown, kept, events].iter().all(|it| *it > 0),
        "something was not tried"
    );
}

/// What one client does.
type Work<'w> = Box<dyn FnOnce(&mut Client) -> Done + Send + 'w>;

/// One folder with all who work on it.
struct Scene {
    oracle: Shared,
    workers: Vec<Worker>,
    takers: Vec<Random>,
    listeners: Option<[Listener; 2]>,
}

/// What ended by itself, and should not have.
fn text(stop: Stop) -> String {
    match stop {
        Stop::Lost => "a connection ended before the kill".to_owned(),
        Stop::Wrong(what) => what,
    }
}

impl Scene {
    fn new(random: &mut Random) -> Self {
        let mut next = || Random::new(random.number());
        Self {
            oracle: Shared::default(),
            workers: (1..=WORKERS).map(|name| Worker::new(name, next())).collect(),
            takers: (0..TAKERS).map(|_| next()).collect(),
            listeners: None,
        }
    }

    /// Starts, looks at what the round before left, works, kills.
    fn round(&mut self, launch: &Launch, random: &mut Random) -> Check {
        match random.below(6) {
            // A clean end leaves snapshots, from which the next one begins.
            0 => drop(launch.start().terminate()),
            1 => die_while_starting(launch, random),
            _ => {}
        }
        let server = launch.start();
        self.settle(&server).map_err(text)?;
        let moment = Duration::from_micros((random.below(LIFE_MAX_MILLIS) * 1000 + random.below(1000)) as u64);
        let oracle = &self.oracle;
        let listeners = self.listeners.as_mut().expect("they listen since the first settlement");
        let mut works: Vec<Work<'_>> = Vec::new();
        for listener in listeners {
            works.push(Box::new(move |client| listener.listen_on(client, oracle)));
        }
        for random in &mut self.takers {
            works.push(Box::new(move |client| take_on(client, oracle, random)));
        }
        for worker in &mut self.workers {
            works.push(Box::new(move |client| worker.work_on(client, oracle)));
        }
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel();
            let clients: Vec<_> = works
                .into_iter()
                .map(|work| {
                    let (mut client, done) = (server.client(), done.clone());
                    scope.spawn(move || {
                        let outcome = work(&mut client);
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
            for client in clients {
                match client.join().expect("a client does not panic") {
                    Err(Stop::Wrong(what)) => return Err(what),
                    Ok(()) | Err(Stop::Lost) => {}
                }
            }
            if early {
                Err(format!("a connection ended before the kill; it printed:\n{}", output.text()))
            } else {
                Ok(())
            }
        })
    }

    /// Nobody is at work: all that there is, and all that was told, is as it has to be.
    fn settle(&mut self, server: &Server) -> Done {
        let mut client = server.client();
        if self.listeners.is_none() {
            let declared = client.say("SPACE.DECLARE shop jobs HISTORY INDEX who HASH 1 who");
            assert_eq!(declared, Value::Simple("OK".to_owned()));
            self.listeners = Some(Listener::both(&mut client)?);
        }
        let listeners = self.listeners.as_mut().expect("they are there");
        let asked_ms = now_ms();
        let shown = all(&mut client)?;
        let answered_ms = now_ms();
        for listener in listeners.iter_mut() {
            listener.catch_up(&mut client, &self.oracle)?;
        }
        Listener::compare(listeners)?;
        Ok(lock(&self.oracle).settle(shown, asked_ms, answered_ms)?)
    }

    /// In the end whatever has a lease goes when that is over, and is told of once.
    fn finish(&mut self, server: &Server) -> Check {
        self.settle(server).map_err(text)?;
        let mut client = server.client();
        let numbers = lock(&self.oracle).numbers();
        for number in numbers {
            let mut oracle = lock(&self.oracle);
            let (known, sent_ms) = (oracle.ask(number)?, oracle.send_lease(number, Some(1)));
            match client.say(&format!("SPACE.RENEW shop jobs {number} LEASE 1")) {
                Value::Integer(1) => oracle.acknowledge_lease(number, Some(1), sent_ms)?,
                _ => oracle.refuse_lease(known)?,
            }
        }
        let mut outcome = Ok(());
        let is_empty = until(REMOVED_WITHIN, || {
            outcome = self.settle(server).map_err(text);
            (outcome.is_err() || lock(&self.oracle).len() == 0).then_some(())
        });
        outcome?;
        is_empty.ok_or_else(|| format!("{} entries are left though their leases are over", lock(&self.oracle).len()))
    }
}
