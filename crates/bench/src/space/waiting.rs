//! From before the write on one connection to the end of a take that waits on another: SPACE.TAKE with BLOCK by BLPOP.
//!
//! The writer knows that the other waits because it says so before, and is given a moment more than a message over loopback takes.
//!
//! May use: servers, clients. Must not know: how figures are shown.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::Line;
use super::sheet::{Sheet, Times, record, times};
use crate::client::{Answer, Client};
use crate::figures::Bar;
use crate::process::Server;
use crate::report::Report;
use crate::resp::{OURS, Pair, THEIRS};
use crate::workload::{Failure, Result};

/// From when the taker is about to send until the write: by then it waits.
const PAUSE: Duration = Duration::from_millis(1);
/// Longer than any hand-off that is not lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both sides, in turn.
pub(super) fn measure(line: &Line, pair: &Pair, repetition: u32, report: &mut Report) -> Result<()> {
    Client::connect(pair.ours.address)?.call(&[b"SPACE.DECLARE", b"bench", b"handed"])?;
    let work = format!("remote hand-off, {} B, {}", line.payload, pair.name);
    for (side, server) in pair.sides(repetition) {
        let latency = handed(line, server, side)?;
        let mut sheet = Sheet { report: &mut *report, work: &work, sides: &[OURS, THEIRS] };
        sheet.latency(side, "hand-off", &latency, Some(Bar::RatioBelow(1.0)));
    }
    Ok(())
}

fn handed(line: &Line, server: &Server, side: &str) -> Result<Times> {
    let (mut writer, mut taker) = (Client::connect(server.address)?, Client::connect(server.address)?);
    let rounds = (line.seconds * 800.0) as u64 + 1;
    let value = "x".repeat(line.payload);
    let (take, write): (&[&[u8]], &[&[u8]]) = if side == OURS {
        (&[b"SPACE.TAKE", b"bench", b"handed", b"ANY", b"BLOCK", b"10000"], &[b"SPACE.WRITE", b"bench", b"handed"])
    } else {
        (&[b"BLPOP", b"handed", b"10"], &[b"RPUSH", b"handed"])
    };
    thread::scope(|scope| {
        let (begins, waits) = mpsc::channel();
        let (taken, came) = mpsc::channel();
        let taker = scope.spawn(move || -> Result<()> {
            for _ in 0..rounds {
                begins.send(()).map_err(|_| Failure::from("nobody writes any more"))?;
                let answer = taker.ask(take)?;
                let now = Instant::now();
                if answer == Answer::Nil {
                    return Err(Failure::from("what was written did not come"));
                }
                taken.send(now).map_err(|_| Failure::from("nobody measures any more"))?;
            }
            Ok(())
        });
        let mut times = times();
        for number in 0..rounds {
            if waits.recv_timeout(PATIENCE).is_err() {
                break; // The taker failed, and says why below.
            }
            thread::sleep(PAUSE);
            let document = format!("{{\"id\":{number},\"value\":\"{value}\"}}");
            let began = Instant::now();
            writer.ask(&[write, &[document.as_bytes()]].concat())?;
            let Ok(came) = came.recv_timeout(PATIENCE) else { break };
            record(&mut times, came.saturating_duration_since(began));
        }
        taker.join().map_err(|_| Failure::from("the taker panicked"))??;
        Ok(times)
    })
}
