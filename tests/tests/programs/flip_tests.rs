//! One changed byte, anywhere in any file of a store: it costs at most the batch it hit, and what it costs is reported.
//!
//! Every position of a tiny file, a sample of every other: `HOLDFAST_FLIP_SECONDS` says how long, `HOLDFAST_SEED` which.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_tests::{
    Kept, Launch, Random, Server, Snapshot, Value, budget, flip, folder_in_memory, holdfast, run, say,
};

/// Files up to this size are tried at every position.
const TINY: usize = 256;
/// Positions of a larger file, at most; fewer when the time is over.
const SAMPLE: usize = 150;
/// Files of one kind that are tried.
const FILES_OF_KIND: usize = 3;
/// What a key held, oldest first; the last is what it must hold.
type History = Vec<Option<Vec<u8>>>;

/// Fills a store with values that are kept inline and beside, some overwritten, some deleted, two in one transaction.
fn fill(server: &Server) -> BTreeMap<String, History> {
    let mut client = server.client();
    let mut random = Random::new(11);
    let mut keys: BTreeMap<String, History> = BTreeMap::new();
    for number in 0..40 {
        let key = format!("key-{number:02}");
        let lengths: &[usize] = match number % 5 {
            0 => &[10],
            1 => &[300],
            2 => &[5_000],
            3 => &[12, 40_000],
            _ => &[800, 0],
        };
        let history = keys.entry(key.clone()).or_insert_with(|| vec![None]);
        for length in lengths {
            if *length == 0 {
                assert_eq!(client.say(&format!("DEL {key}")), Value::Integer(1));
                history.push(None);
            } else {
                let value = random.bytes(*length);
                assert_eq!(client.set(&key, &value), Value::Simple("OK".into()));
                history.push(Some(value));
            }
        }
    }
    for words in ["MULTI", "SET pair-a both", "SET pair-b both", "EXEC"] {
        client.say(words);
    }
    for key in ["pair-a", "pair-b"] {
        keys.insert(key.to_owned(), vec![None, Some(b"both".to_vec())]);
    }
    keys
}

struct Trial<'a> {
    keys: &'a BTreeMap<String, History>,
    launch: Launch,
    folder: &'a std::path::Path,
}

impl Trial<'_> {
    /// Starts on the damaged store, looks at every key, and asks `holdfast inspect` what is damaged.
    fn check(&self, must_report: bool) -> Result<(), String> {
        let server = self
            .launch
            .try_start()
            .map_err(|refusal| format!("no start, exit {:?}: {}", refusal.code, refusal.text))?;
        let mut client = server.client();
        let mut lost = Vec::new();
        for (key, history) in self.keys {
            let answer = client
                .call(&["GET", key])
                .map_err(|error| format!("GET {key}: {error}; {}", server.output().text()))?;
            let wanted = history.last().cloned().flatten().map_or(Value::Nil, Value::Bytes);
            if answer == wanted {
                continue;
            }
            match answer {
                Value::Error(_) | Value::Nil => {}
                Value::Bytes(value) if history.contains(&Some(value.clone())) => {}
                other => return Err(format!("GET {key} answers what was never written: {other:?}")),
            }
            lost.push(key.as_str());
        }
        let works = client.call(&["SET", "after", "1"]).map_err(|error| error.to_string())?;
        if works != Value::Simple("OK".into()) {
            return Err(format!("no writes any more: {works:?}"));
        }
        let one_batch = lost.len() <= 1 || lost == ["pair-a", "pair-b"];
        if !one_batch {
            return Err(format!("one byte cost {lost:?}"));
        }
        let printed = server.output().text();
        server.kill();
        let inspected =
            run(Command::new(holdfast()).args(["inspect", "--verify"]).arg(self.folder), b"", Duration::from_secs(60));
        // The server says it where it starts; `inspect` says it afterwards, of what is not settled yet.
        let is_reported = inspected.code == Some(1) || printed.lines().any(|line| line.starts_with("damage"));
        if (must_report || !lost.is_empty()) && !is_reported {
            return Err(format!(
                "{lost:?} lost, and not reported; the server printed:\n{printed}\ninspect, exit {:?}:\n{}",
                inspected.code, inspected.text
            ));
        }
        Ok(())
    }
}

#[test]
fn one_changed_byte_costs_at_most_the_batch_it_hit_and_is_reported() {
    let seed = Random::seed();
    say!("flip: HOLDFAST_SEED={seed}");
    let mut random = Random::new(seed);
    let budget = budget("HOLDFAST_FLIP_SECONDS", 60);
    for (how, clean) in [("stopped", true), ("killed", false)] {
        let work = folder_in_memory();
        let folder = work.path().join("data");
        let launch = Launch::new(&folder);
        let server = launch.start();
        let keys = fill(&server);
        if clean {
            let (status, text) = server.terminate();
            assert_eq!(status.code(), Some(0), "{text}");
        } else {
            server.kill();
        }
        let snapshot = Snapshot::of(&folder);
        let trial = Trial { keys: &keys, launch, folder: &folder };
        trial.check(false).unwrap_or_else(|what| panic!("{how}, without any damage: {what}"));
        let targets = targets(&snapshot, &mut random);
        let deadline = Instant::now() + budget / 2;
        let mut tried: BTreeMap<&std::path::Path, usize> = BTreeMap::new();
        for (file, position) in &targets {
            if Instant::now() >= deadline {
                break;
            }
            let path = snapshot.files()[*file].path.as_path();
            snapshot.restore(&folder);
            let bits = 1 << random.below(8);
            let was = flip(&folder.join(path), *position, bits);
            // What was written to the journal was written once: a change shows, even if it cost nothing that is live.
            let must_report = was != 0 && path.extension().is_some_and(|end| end == "seg");
            if let Err(what) = trial.check(must_report) {
                panic!("seed {seed}, {how}, {} at {position}, bits {bits:#04x}: {what}", path.display());
            }
            *tried.entry(path).or_default() += 1;
        }
        for (path, count) in &tried {
            say!("flip, {how}: {} at {count} positions", path.display());
        }
        let count: usize = tried.values().sum();
        say!("flip, {how}: {count} of {} chosen positions", targets.len());
        assert!(count > 0, "nothing was tried");
    }
}

/// (file, position), in an order that reaches every kind of file early.
///
/// Files whose paths differ in digits only are of one kind; of each kind those are taken that hold most.
fn targets(snapshot: &Snapshot, random: &mut Random) -> Vec<(usize, usize)> {
    let mut kinds: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (index, file) in snapshot.files().iter().enumerate() {
        let kind: String = file.path.to_string_lossy().chars().filter(|letter| !letter.is_ascii_digit()).collect();
        kinds.entry(kind).or_default().push((file.written().len(), index));
    }
    let mut chosen = Vec::new();
    for files in kinds.values_mut() {
        files.sort();
        let mut positions = Vec::new();
        for (_, index) in files.iter().rev().take(FILES_OF_KIND) {
            let of_file = positions_of(&snapshot.files()[*index], random);
            positions.extend(of_file.into_iter().map(|position| (*index, position)));
        }
        for turn in 0..positions.len() {
            let other = turn + random.below(positions.len() - turn);
            positions.swap(turn, other);
        }
        chosen.extend(positions.into_iter().enumerate());
    }
    chosen.sort_by_key(|(turn, _)| *turn);
    chosen.into_iter().map(|(_, target)| target).collect()
}

fn positions_of(file: &Kept, random: &mut Random) -> Vec<usize> {
    if file.length <= TINY {
        return (0..file.length).collect();
    }
    let written = file.written();
    let last = written.last().copied().unwrap_or(0);
    let mut positions: Vec<usize> =
        (0..SAMPLE.min(written.len())).map(|_| written[random.below(written.len())]).collect();
    // The header, the end of what was written, the zeros behind it, and the end of the file.
    positions.extend(0..16);
    positions.extend((last..file.length).take(8));
    positions.extend(file.length - 8..file.length);
    positions.push(random.below(file.length));
    positions
}
