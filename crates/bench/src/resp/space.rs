//! Entries of a space over RESP beside plain keys of Redis: SPACE.WRITE by SET, SPACE.READ by GET, SPACE.TAKE by id by GETDEL,
//! and of whatever comes by LPOP.
//!
//! Ids are chosen at random. There are as many entries to be taken by id as requests, so that six in ten find one.
//!
//! A document is parsed, indexed by its id and shown as JSON again, where Redis copies bytes: the comparison is of what the
//! two give to whoever keeps objects remotely.
//!
//! May use: `redis_benchmark.rs`, clients. Must not know: RESP.

use super::redis_benchmark::Run;
use super::{OURS, Pair, tell};
use crate::client::Client;
use crate::report::Report;
use crate::workload::Result;

/// What redis-benchmark replaces by a number below its `-r`.
pub(super) const RANDOM: &str = "__rand_int__";

pub(super) fn document(id: &str, value_bytes: usize) -> String {
    format!("{{\"id\":\"key:{id}\",\"value\":\"{}\"}}", "x".repeat(value_bytes))
}

/// Declares the types and writes every entry that is written over and read.
pub(crate) fn load(pair: &Pair, keys: u64, value_bytes: usize) -> Result<()> {
    let mut client = Client::connect(pair.ours.address)?;
    for name in ["entry", "once", "queue"] {
        client.call(&[b"SPACE.DECLARE", b"bench", name.as_bytes()])?;
    }
    pour(&mut client, "entry", keys, value_bytes)
}

pub(super) fn pour(client: &mut Client, name: &str, keys: u64, value_bytes: usize) -> Result<()> {
    client.pour((0..keys).map(|key| {
        let document = document(&format!("{key:012}"), value_bytes);
        ["SPACE.WRITE", "bench", name, &document, "DURABILITY", "written"].map(|word| word.as_bytes().to_vec()).to_vec()
    }))
}

/// What is taken: as many entries by id, and as many of a queue, on both sides.
fn fill(pair: &Pair, run: Run) -> Result<()> {
    let _awake = (pair.ours.awake()?, pair.theirs.awake()?);
    let mut ours = Client::connect(pair.ours.address)?;
    for name in ["once", "queue"] {
        ours.call(&[b"SPACE.CLEAR", b"bench", name.as_bytes(), b"ANY"])?;
    }
    pour(&mut ours, "once", run.requests, run.value_bytes)?;
    pour(&mut ours, "queue", run.requests, run.value_bytes)?;
    let mut theirs = Client::connect(pair.theirs.address)?;
    theirs.call(&[b"DEL", b"queue"])?;
    let value = "x".repeat(run.value_bytes);
    let once = (0..run.requests).map(|key| vec!["SET".to_owned(), format!("once:{key:012}"), value.clone()]);
    let queue = (0..run.requests).map(|_| vec!["RPUSH".to_owned(), "queue".to_owned(), value.clone()]);
    theirs.pour(once.chain(queue).map(|words| words.into_iter().map(String::into_bytes).collect()))
}

/// Measures both sides in turn.
pub(crate) fn measure(pair: &Pair, run: Run, repetition: u32, report: &mut Report) -> Result<()> {
    let id = format!("\"key:{RANDOM}\"");
    let write = document(RANDOM, run.value_bytes);
    let value = "x".repeat(run.value_bytes);
    let key = format!("key:{RANDOM}");
    let once = format!("once:{RANDOM}");
    let (kept, taken) = (run, Run { keys: run.requests, ..run });
    let rows = [
        ("SPACE.WRITE by SET", kept, [vec!["SPACE.WRITE", "bench", "entry", &write], vec!["SET", &key, &value]]),
        ("SPACE.READ by GET", kept, [vec!["SPACE.READ", "bench", "entry", "ID", &id], vec!["GET", &key]]),
        ("SPACE.TAKE by id by GETDEL", taken, [vec!["SPACE.TAKE", "bench", "once", "ID", &id], vec!["GETDEL", &once]]),
        ("SPACE.TAKE of any by LPOP", taken, [vec!["SPACE.TAKE", "bench", "queue", "ANY"], vec!["LPOP", "queue"]]),
    ];
    fill(pair, run)?;
    rows.into_iter().try_for_each(|(name, run, words)| in_turn(pair, (name, run), &words, repetition, report))
}

/// The same piece of work on both sides in turn, by redis-benchmark.
pub(super) fn in_turn(
    pair: &Pair,
    (name, run): (&str, Run),
    [our_words, their_words]: &[Vec<&str>; 2],
    repetition: u32,
    report: &mut Report,
) -> Result<()> {
    let work = format!("{name} P={}, {}", run.pipeline, pair.name);
    for (side, server) in pair.sides(repetition) {
        let words = if side == OURS { our_words } else { their_words };
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let _awake = server.awake()?;
        let measured = run.command(&words, server.address)?;
        tell(report, &work, side, measured);
    }
    Ok(())
}
