//! Entries beside what else of Redis keeps an object: fields of a hash, a sorted set's range, many keys at once.
//!
//! * `SPACE.CHANGE` of one field by `HSET`, of random entries, and its `INCR` by `HINCRBY`, of one that everybody increments;
//! * `SPACE.READ` by `HGETALL`: all of an object;
//! * `SPACE.MREAD` of a hundred entries by an ordered index, by `ZRANGEBYLEX`, whose members are the documents;
//! * `SPACE.MWRITE` of a hundred by `MSET`;
//! * `SPACE.TAKE` of what a template says, by a hash index that all entries are in, by `LPOP`.
//!
//! May use: `redis_benchmark.rs`, clients. Must not know: RESP.

use super::Pair;
use super::redis_benchmark::Run;
use super::space::{RANDOM, document, in_turn, pour};
use crate::client::Client;
use crate::report::Report;
use crate::workload::Result;

/// Entries that are written, or found, at once.
const MANY: u64 = 100;
/// Requests that take milliseconds together, whoever answers them.
const REQUESTS_MIN: u64 = 1_000;

/// Declares the types, and writes as many objects on both sides.
pub(crate) fn load(pair: &Pair, keys: u64, value_bytes: usize) -> Result<()> {
    let _awake = (pair.ours.awake()?, pair.theirs.awake()?);
    let value = "x".repeat(value_bytes);
    let name = |key: u64| format!("key:{key:012}");
    let mut ours = Client::connect(pair.ours.address)?;
    ours.call(&[b"SPACE.DECLARE", b"bench", b"object"])?;
    ours.call(&[b"SPACE.DECLARE", b"bench", b"many"])?;
    ours.call(&[b"SPACE.DECLARE", b"bench", b"ordered", b"INDEX", b"name", b"ORDERED", b"1", b"id"])?;
    pour(&mut ours, "object", keys, value_bytes)?;
    pour(&mut ours, "ordered", keys, value_bytes)?;
    ours.call(&[b"SPACE.WRITE", b"bench", b"object", br#"{"id":"hot","hits":0}"#])?;
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let hashes = (0..keys).map(|key| words(&["HSET", &format!("hash:{key:012}"), "id", &name(key), "value", &value]));
    let set = (0..keys).map(|key| words(&["ZADD", "ordered", "0", &format!("{}:{value}", name(key))]));
    Client::connect(pair.theirs.address)?.pour(hashes.chain(set))
}

/// What is taken, as many as there are requests.
fn fill(pair: &Pair, run: Run) -> Result<()> {
    let value = "x".repeat(run.value_bytes);
    let document = |key| format!("{{\"id\":{key},\"state\":\"new\",\"value\":\"{value}\"}}").into_bytes();
    let (mut ours, mut theirs) = (Client::connect(pair.ours.address)?, Client::connect(pair.theirs.address)?);
    ours.call(&[b"SPACE.DECLARE", b"bench", b"job", b"INDEX", b"state", b"HASH", b"1", b"state"])?;
    ours.call(&[b"SPACE.CLEAR", b"bench", b"job", b"ANY"])?;
    theirs.call(&[b"DEL", b"job"])?;
    let words = |words: [&str; 3], last| words.iter().map(|word| word.as_bytes().to_vec()).chain([last]).collect();
    ours.pour((0..run.requests).map(|key| words(["SPACE.WRITE", "bench", "job"], document(key))))?;
    theirs.pour((0..run.requests).map(|_| vec![b"RPUSH".to_vec(), b"job".to_vec(), value.clone().into_bytes()]))
}

/// Measures both sides in turn.
pub(crate) fn measure(pair: &Pair, run: Run, repetition: u32, report: &mut Report) -> Result<()> {
    let (id, hash) = (format!("\"key:{RANDOM}\""), format!("hash:{RANDOM}"));
    let change = ["SPACE.CHANGE", "bench", "object"];
    let one = [
        (
            "SPACE.CHANGE by HSET",
            [[&change[..], &[&id, "SET", "hits", "1"]].concat(), vec!["HSET", &hash, "hits", "1"]],
        ),
        (
            "SPACE.CHANGE of one entry by HINCRBY",
            [[&change[..], &["\"hot\"", "INCR", "hits", "1"]].concat(), vec!["HINCRBY", "hot", "hits", "1"]],
        ),
        ("SPACE.READ by HGETALL", [vec!["SPACE.READ", "bench", "object", "ID", &id], vec!["HGETALL", &hash]]),
    ];
    for (name, words) in one {
        in_turn(pair, (name, run), &words, repetition, report)?;
    }
    fill(pair, run)?;
    let take = vec!["SPACE.TAKE", "bench", "job", "TEMPLATE", "{\"state\":\"new\"}"];
    in_turn(pair, ("SPACE.TAKE by a template by LPOP", run), &[take, vec!["LPOP", "job"]], repetition, report)?;
    // A command that is of a hundred entries is asked for a hundredth as often, but not so seldom that redis-benchmark's clock sees nothing.
    let run = Run { requests: (run.requests / MANY).max(REQUESTS_MIN), ..run };
    let (many, from) = (MANY.to_string(), format!("[key:{RANDOM}"));
    let range = ["SPACE.MREAD", "bench", "ordered", "WHERE", "id >= ? ORDER BY id", "1", &id, "COUNT", &many];
    let theirs = ["ZRANGEBYLEX", "ordered", &from, "+", "LIMIT", "0", &many];
    let name = "SPACE.MREAD of 100 by ZRANGEBYLEX";
    in_turn(pair, (name, run), &[range.to_vec(), theirs.to_vec()], repetition, report)?;
    let (document, key) = (document(RANDOM, run.value_bytes), format!("many:{RANDOM}"));
    let value = "x".repeat(run.value_bytes);
    let mut ours = vec!["SPACE.MWRITE", "bench", "many", &many];
    let mut theirs = vec!["MSET"];
    for _ in 0..MANY {
        ours.push(&document);
        theirs.extend([&key[..], &value]);
    }
    in_turn(pair, ("SPACE.MWRITE of 100 by MSET", run), &[ours, theirs], repetition, report)
}
