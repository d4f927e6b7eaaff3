//! The cycles of programs that use the C interface, one thread of control each.
//!
//! May use: `libholdfast`. Must not know: what is measured with it.
#![expect(unsafe_code, reason = "what is measured is the C interface, and its profile is named by the environment")]

use std::ffi::c_int;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_c::{tx_begin, tx_close, tx_commit, tx_open};

use super::timing::{Call, Timing};
use super::{Mode, Think};
use crate::workload::{Failure, Result};

const TX_OK: c_int = 0;

fn check(call: &str, code: c_int) -> Result<()> {
    if code == TX_OK { Ok(()) } else { Err(Failure::from(format!("{call} answered {code}"))) }
}

/// Names the profile to the library and runs one cycle, so that the connection is there before anything is timed. No other
/// thread may run.
pub(crate) fn warm_up(profile: &Path) -> Result<()> {
    // SAFETY: the threads of earlier measurements were joined, and those of the library do not read the environment.
    unsafe { std::env::set_var("HOLDFAST_XA_PROFILE", profile) };
    let mut program = Program { timing: Timing::new(0), think: Think::None, mode: Mode::Online };
    program.cycle()
}

/// Runs cycles in so many threads for so long.
pub(crate) fn run(threads: u16, think: Think, mode: Mode, time: Duration) -> Result<Timing> {
    in_threads(threads, think, mode, time, Program::run)
}

/// The same without a call: what the thinking costs by itself, since to sleep and to be woken takes processor time too.
pub(crate) fn think_alone(threads: u16, think: Think, mode: Mode, time: Duration) -> Result<Timing> {
    in_threads(threads, think, mode, time, Program::think)
}

fn in_threads(
    threads: u16,
    think: Think,
    mode: Mode,
    time: Duration,
    work: fn(&mut Program, Instant) -> Result<()>,
) -> Result<Timing> {
    let until = Instant::now() + time;
    let running: Vec<_> = (0..u64::from(threads))
        .map(|seed| {
            thread::spawn(move || -> Result<Timing> {
                let mut program = Program { timing: Timing::new(seed + 1), think, mode };
                work(&mut program, until)?;
                Ok(program.timing)
            })
        })
        .collect();
    let mut all = Timing::new(0);
    for thread in running {
        all.add(&thread.join().map_err(|_| Failure::from("a thread of the benchmark panicked"))??);
    }
    Ok(all)
}

struct Program {
    timing: Timing,
    think: Think,
    mode: Mode,
}

impl Program {
    fn run(&mut self, until: Instant) -> Result<()> {
        // Threads begin at different moments of their first cycle, as they will be ever after.
        self.timing.think(self.think.least().1);
        if self.mode == Mode::Batch {
            check("tx_open", tx_open())?;
        }
        while Instant::now() < until {
            self.cycle()?;
        }
        if self.mode == Mode::Batch {
            check("tx_close", tx_close())?;
        }
        Ok(())
    }

    fn think(&mut self, until: Instant) -> Result<()> {
        let (t1, t2) = self.think.least();
        let within = if self.mode == Mode::Online { 4 } else { 2 };
        while Instant::now() < until {
            (0..within).for_each(|_| self.timing.think(t1));
            self.timing.end();
            self.timing.think(t2);
        }
        Ok(())
    }

    /// Open, t1, begin, t1 with each of the two resource managers, commit, t1, close, t2.
    fn cycle(&mut self) -> Result<()> {
        let (t1, t2) = self.think.least();
        if self.mode == Mode::Online {
            check("tx_open", self.timing.time(Call::Open, || tx_open()))?;
            self.timing.think(t1);
        }
        check("tx_begin", self.timing.time(Call::Begin, || tx_begin()))?;
        self.timing.think(t1);
        self.timing.think(t1);
        check("tx_commit", self.timing.time(Call::Commit, || tx_commit()))?;
        if self.mode == Mode::Online {
            self.timing.think(t1);
            check("tx_close", self.timing.time(Call::Close, || tx_close()))?;
        }
        self.timing.end();
        self.timing.think(t2);
        Ok(())
    }
}
