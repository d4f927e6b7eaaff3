//! What a load does: how many clients, which requests, in which order, at which pace.
//!
//! May use: `scenario.rs`, `way.rs`, `ask`. Must not know: sockets, servers.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use base::Random;

use super::ask::Read;
use super::scenario::{Block, Scenario};
use super::way::Way;

/// One load.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) way: Way,
    pub(crate) clients: u32,
    /// Requests of each client that count: writes, or questions when there are no writes.
    pub(crate) requests: u64,
    pub(crate) layout: Layout,
    pub(crate) mix: Mix,
    /// What questions are about, in turn.
    pub(crate) reads: Vec<Read>,
    /// Rows that each device has before.
    pub(crate) rows_before: u64,
    /// Least time from the beginning of a client's operation to that of its next.
    pub(crate) interval: Duration,
}

/// Which part of the scenario a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// So many rows of the client's one device.
    Rows(u64),
    /// The first row of so many devices, each of them once.
    Devices(u32),
}

/// Writes to questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) writes: u32,
    pub(crate) reads: u32,
}

/// One operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The bytes to send, and how many rows its device has then.
    Write(Range<usize>, u64),
    Read(Read),
}

/// What a client does next, made ahead so that making it is in nobody's way.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) steps: Vec<Step>,
    pub(crate) bytes: Vec<u8>,
}

/// Where a client is in its plan.
#[derive(Debug)]
pub(crate) struct Progress {
    client: u32,
    written: u64,
    asked: u64,
    random: Random,
}

impl Plan {
    /// Points that it writes.
    pub(crate) fn points(&self) -> u64 {
        let requests = if self.mix.writes == 0 { 0 } else { self.requests };
        let each = self.scenario.points(&self.block(0, 0));
        u64::from(self.clients) * requests * each
    }

    /// The part of the scenario that the request of this number of a client writes.
    fn block(&self, client: u32, number: u64) -> Block {
        match self.layout {
            Layout::Rows(rows) => {
                let first = self.rows_before + number * rows;
                Block { devices: client..client + 1, rows: first..first + rows }
            }
            Layout::Devices(devices) => {
                let before = u64::from(client) * self.requests + number;
                let first = u32::try_from(before * u64::from(devices)).unwrap_or(u32::MAX - devices);
                Block { devices: first..first + devices, rows: 0..1 }
            }
        }
    }
}

impl Progress {
    /// The beginning.
    pub(crate) fn new(plan: &Plan, client: u32) -> Self {
        let seed = plan.scenario.seed.wrapping_mul(1_000_003).wrapping_add(u64::from(client));
        Self { client, written: 0, asked: 0, random: Random::new(seed) }
    }

    /// The next steps, until they take so many bytes. Empty at the end.
    pub(crate) fn ahead(&mut self, plan: &Plan, bytes_max: usize) -> Ahead {
        let mut ahead = Ahead::default();
        let Mix { writes, reads } = plan.mix;
        let done = |of: &Self| if writes == 0 { of.asked } else { of.written } >= plan.requests;
        // A question takes room too, or a plan without writes had no bound.
        while !done(self) && ahead.bytes.len() + ahead.steps.len() * size_of::<Step>() < bytes_max {
            if self.random.chance(u64::from(writes), u64::from(writes) + u64::from(reads)) {
                let start = ahead.bytes.len();
                let block = plan.block(self.client, self.written);
                plan.way.request(&plan.scenario, &block, &mut ahead.bytes);
                ahead.steps.push(Step::Write(start..ahead.bytes.len(), block.rows.end));
                self.written += 1;
            } else {
                // Clients begin with different questions, so that each kind is asked all the time.
                let turn = usize::try_from(self.asked + u64::from(self.client)).unwrap_or_default();
                if let Some(read) = plan.reads.get(turn % plan.reads.len().max(1)) {
                    ahead.steps.push(Step::Read(*read));
                }
                self.asked += 1;
            }
        }
        ahead
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number <= 1_000_000);
        let parsed = text.split_once(':').and_then(|(w, r)| Some(Self { writes: number(w)?, reads: number(r)? }));
        parsed.filter(|mix| mix.writes + mix.reads > 0).ok_or_else(|| format!("`{text}` is not WRITES:READS, like 9:1"))
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.writes, self.reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(mix: &str, layout: Layout) -> Plan {
        Plan {
            scenario: Scenario { seed: 2, devices: 4, sensors: 10, step_millis: 5_000 },
            way: Way::Telnet,
            clients: 4,
            requests: 100,
            layout,
            mix: mix.parse().unwrap(),
            reads: vec![Read::Precise, Read::Sum],
            rows_before: 0,
            interval: Duration::ZERO,
        }
    }

    fn all(plan: &Plan, client: u32, bytes_max: usize) -> Vec<Ahead> {
        let mut progress = Progress::new(plan, client);
        std::iter::from_fn(|| Some(progress.ahead(plan, bytes_max)).filter(|ahead| !ahead.steps.is_empty())).collect()
    }

    #[test]
    fn what_is_made_ahead_is_bounded_and_the_same_however_it_is_cut() {
        let plan = plan("9:1", Layout::Rows(20));
        let whole = all(&plan, 1, usize::MAX);
        let parts = all(&plan, 1, 100_000);
        assert!(whole.len() == 1 && parts.len() > 5);
        assert!(parts.iter().all(|part| part.bytes.len() < 120_000));
        let bytes = |parts: &[Ahead]| parts.iter().flat_map(|part| part.bytes.clone()).collect::<Vec<u8>>();
        assert!(bytes(&whole) == bytes(&parts));
        let points = whole[0].bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        assert_eq!(4 * points, plan.points());
    }

    #[test]
    fn writes_and_questions_are_in_their_ratio_and_questions_take_turns() {
        let count = |mix: &str| {
            let steps = all(&plan(mix, Layout::Rows(20)), 0, usize::MAX).remove(0).steps;
            let reads = steps.iter().filter(|step| matches!(step, Step::Read(_))).count();
            (steps.len() - reads, reads, steps.iter().filter(|step| **step == Step::Read(Read::Sum)).count())
        };
        assert_eq!(count("1:0"), (100, 0, 0));
        assert_eq!(count("0:1"), (0, 100, 50));
        let (writes, reads, sums) = count("9:1");
        assert!(writes == 100 && (4..25).contains(&reads) && sums.abs_diff(reads - sums) <= 1, "{reads} {sums}");
        assert!("9".parse::<Mix>().is_err() && "0:0".parse::<Mix>().is_err() && "-1:2".parse::<Mix>().is_err());
    }

    #[test]
    fn new_series_are_each_written_once() {
        let plan = plan("1:0", Layout::Devices(20));
        let mut seen = std::collections::BTreeSet::new();
        for client in 0..4 {
            for ahead in all(&plan, client, usize::MAX) {
                for line in String::from_utf8(ahead.bytes).unwrap().lines() {
                    let words: Vec<&str> = line.split(' ').collect();
                    assert!(seen.insert((words[1].to_owned(), words[4].to_owned())), "{line}");
                }
            }
        }
        assert_eq!((seen.len() as u64, plan.points()), (80_000, 80_000));
    }
}
