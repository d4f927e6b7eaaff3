//! Entries of a space over RESP beside plain keys of Redis: SPACE.WRITE by SET, SPACE.READ by GET.
//!
//! A document is parsed, indexed by its id and shown as JSON again, where Redis copies bytes: the comparison is of what the
//! two give to whoever keeps objects remotely.
//!
//! May use: `redis_benchmark.rs`, clients. Must not know: RESP.

use super::redis_benchmark::{Run, Test};
use super::{OURS, Pair, THEIRS, tell};
use crate::client::Client;
use crate::report::Report;
use crate::workload::Result;

/// What redis-benchmark replaces by a number below its `-r`.
const RANDOM: &str = "__rand_int__";

fn document(id: &str, value_bytes: usize) -> String {
    format!("{{\"id\":\"key:{id}\",\"value\":\"{}\"}}", "x".repeat(value_bytes))
}

/// Declares the type and writes every entry.
pub(super) fn load(pair: &Pair, keys: u64, value_bytes: usize) -> Result<()> {
    let mut client = Client::connect(pair.ours.address)?;
    client.call(&[b"SPACE.DECLARE", b"bench", b"entry"])?;
    for key in 0..keys {
        let document = document(&format!("{key:012}"), value_bytes);
        client.call(&[b"SPACE.WRITE", b"bench", b"entry", document.as_bytes(), b"DURABILITY", b"written"])?;
    }
    Ok(())
}

/// Measures both sides in turn.
pub(super) fn measure(pair: &Pair, run: Run, repetition: u32, report: &mut Report) -> Result<()> {
    let id = format!("\"key:{RANDOM}\"");
    let write = ["SPACE.WRITE", "bench", "entry", &document(RANDOM, run.value_bytes)].map(str::to_owned);
    let read = ["SPACE.READ", "bench", "entry", "ID", &id].map(str::to_owned);
    for (test, command) in [(Test::Set, write.to_vec()), (Test::Get, read.to_vec())] {
        let name = command.first().cloned().unwrap_or_default();
        let work = format!("{name} by {} P={}, {}", test.name(), run.pipeline, pair.name);
        let mut sides = [(OURS, Some(&command)), (THEIRS, None)];
        if repetition % 2 == 1 {
            sides.reverse();
        }
        for (side, command) in sides {
            let measured = match command {
                Some(command) => run.command(command, pair.ours.address)?,
                None => Run { test, ..run }.against(pair.theirs.address)?,
            };
            tell(report, &work, side, measured);
        }
    }
    Ok(())
}
