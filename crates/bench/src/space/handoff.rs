//! How long it takes until another thread has what was written: one that waits in a take, one that listens.
//!
//! May use: the space. Must not know: reports.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast::space::{Entries, Hears, Listen, ReadOptions, Wanted, WriteOptions};

use super::document;
use super::sheet::{Times, record, times};
use crate::workload::{Failure, Result};

const ROUNDS: u64 = 2_000;
const PAYLOAD: usize = 100;
/// Longer than any hand-off that is not lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between rounds, so that the other thread is asleep.
const PAUSE: Duration = Duration::from_micros(300);

/// From before the write to after the take.
pub(super) fn take(entries: &Entries) -> Result<Times> {
    thread::scope(|scope| {
        let (taken, came) = mpsc::channel();
        let taker = scope.spawn(move || -> Result<()> {
            for _ in 0..ROUNDS {
                let options = ReadOptions { wait: Some(PATIENCE), ..ReadOptions::default() };
                let entry = entries.take(&Wanted::all(), &options)?;
                let now = Instant::now();
                entry.ok_or_else(|| Failure::from("an entry did not come"))?;
                taken.send(now).map_err(|_| Failure::from("nobody measures any more"))?;
            }
            Ok(())
        });
        let mut times = times();
        for id in 0..ROUNDS {
            while entries.waiters() == 0 {
                thread::yield_now();
            }
            thread::sleep(PAUSE);
            let document = document(id, PAYLOAD);
            let began = Instant::now();
            entries.write(&document, &WriteOptions::default())?;
            let came = came.recv_timeout(PATIENCE).map_err(|_| Failure::from("an entry was not taken"))?;
            record(&mut times, came.saturating_duration_since(began));
        }
        taker.join().map_err(|_| Failure::from("the taker panicked"))??;
        Ok(times)
    })
}

/// From before the write to after the event.
pub(super) fn notify(entries: &Entries) -> Result<Times> {
    let hears = Hears { updated: false, taken: false, expired: false, ..Hears::ALL };
    let mut listener = entries.listen(&Wanted::all(), Listen { hears, ..Listen::default() })?;
    thread::scope(|scope| {
        let (heard, came) = mpsc::channel();
        let hearer = scope.spawn(move || -> Result<()> {
            for _ in 0..ROUNDS {
                let notice = listener.next(PATIENCE)?;
                let now = Instant::now();
                notice.ok_or_else(|| Failure::from("an event did not come"))?;
                heard.send(now).map_err(|_| Failure::from("nobody measures any more"))?;
            }
            Ok(())
        });
        let mut times = times();
        for id in 0..ROUNDS {
            thread::sleep(PAUSE);
            let document = document(ROUNDS + id, PAYLOAD);
            let began = Instant::now();
            entries.write(&document, &WriteOptions::default())?;
            let came = came.recv_timeout(PATIENCE).map_err(|_| Failure::from("an event was not heard"))?;
            record(&mut times, came.saturating_duration_since(began));
        }
        hearer.join().map_err(|_| Failure::from("the listener panicked"))??;
        Ok(times)
    })
}
