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

/// The same with its children, those that have ended among them.
pub(crate) fn cpu_of_family(process: u32) -> Result<Duration> {
    let mut ticks = 0;
    for folder in std::fs::read_dir("/proc")? {
        let path = folder?.path().join("stat");
        // What is no process, or has ended since, has no such file.
        let Ok(stat) = std::fs::read_to_string(&path) else { continue };
        let is_it = stat.split_whitespace().next() == Some(process.to_string().as_str());
        if is_it {
            ticks += ticks_of(&stat).unwrap_or(0) + ticks_of_ended(&stat).unwrap_or(0);
        } else if parent_of(&stat) == Some(process) {
            ticks += ticks_of(&stat).unwrap_or(0);
        }
    }
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn spent(path: &str) -> Result<Duration> {
    let text = std::fs::read_to_string(path)?;
    let ticks = ticks_of(&text).ok_or_else(|| Failure::from(format!("{path} does not say what was spent")))?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// User and kernel time, in ticks.
fn ticks_of(stat: &str) -> Option<u64> {
    sum_of_two(stat, 11)
}

/// The same of children that have ended and were waited for.
fn ticks_of_ended(stat: &str) -> Option<u64> {
    sum_of_two(stat, 13)
}

fn sum_of_two(stat: &str, from: usize) -> Option<u64> {
    let mut fields = behind_name(stat)?.skip(from);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn parent_of(stat: &str) -> Option<u32> {
    behind_name(stat)?.nth(1)?.parse().ok()
}

/// Fields behind the program's name, which may hold anything, in brackets.
fn behind_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_time_are_the_fourteenth_and_fifteenth_field() {
        let stat = "17 (a) b) S 1 17 17 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(42));
        assert_eq!((ticks_of_ended(stat), parent_of(stat)), (Some(0), Some(1)));
        assert_eq!((ticks_of("17 (a"), parent_of("17 (a")), (None, None));
        assert!(cpu_of_family(std::process::id()).unwrap() >= cpu_of(std::process::id()).unwrap() / 2);
        assert!(Cost::now(Some(std::process::id())).unwrap().cpu >= Duration::ZERO);
    }
}
