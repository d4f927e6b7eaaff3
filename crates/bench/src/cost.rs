//! Processor time of this process and of another.
//!
//! May use: `rustix`, `/proc`. Must not know: what it was spent on.

use std::ops::Sub;
use std::time::Duration;

use crate::workload::{Failure, Result};

/// Processor time spent so far, in user and kernel mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Of both processes.
    pub(crate) cpu: Duration,
    /// Of this one.
    pub(crate) own: Duration,
}

impl Cost {
    /// Until now.
    pub(crate) fn now(other: Option<u32>) -> Result<Self> {
        let own = spent("/proc/self/stat")?;
        let theirs = other.map(cpu_of).transpose()?.unwrap_or_default();
        Ok(Self { cpu: own + theirs, own })
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { cpu: self.cpu - earlier.cpu, own: self.own - earlier.own }
    }
}

/// Processor time that another process spent until now, in user and kernel mode.
pub(crate) fn cpu_of(process: u32) -> Result<Duration> {
    spent(&format!("/proc/{process}/stat"))
}

fn spent(path: &str) -> Result<Duration> {
    let text = std::fs::read_to_string(path)?;
    let ticks = ticks_of(&text).ok_or_else(|| Failure::from(format!("{path} does not say what was spent")))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// User and kernel time, in ticks.
fn ticks_of(stat: &str) -> Option<u64> {
    // The program's name may hold anything, in brackets.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_time_are_the_fourteenth_and_fifteenth_field() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(42));
        assert_eq!(ticks_of("17 (a"), None);
        assert!(Cost::now(Some(std::process::id())).unwrap().cpu >= Duration::ZERO);
    }
}
