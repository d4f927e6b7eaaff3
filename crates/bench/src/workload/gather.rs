//! From callers to the report: what each measured in each interval goes to one thread, which puts it together.
//!
//! May use: `tally.rs`, `usage.rs`. Must not know: what is measured.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::Result;
use super::live::{Live, Sums};
use super::outcome::{Outcome, Said, Used};
use super::progress::Progress;
use super::tally::{Done, Tally};
use super::usage::{Usage, Watched};

/// How often the progress is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// What a thread measured until an interval began that was not the one before.
pub(super) struct Part {
    thread: usize,
    interval: u64,
    tally: Tally,
    /// All of the thread's intervals below this are complete.
    complete_below: u64,
}

/// How much one thread has done. Each has a line of the processor's cache of its own: with a line for eight of them every
/// operation of ours took it from the other processor, which is none of the store's cost.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Count(AtomicU64);

/// One thread's end.
pub(super) struct Reporter<'a> {
    pub(super) thread: usize,
    pub(super) start: Instant,
    pub(super) interval: Duration,
    pub(super) parts: Sender<Part>,
    /// Operations that this thread has done, for the progress.
    pub(super) done: &'a Count,
    pub(super) current: u64,
    /// When the interval ends; never, if that is too far away to say.
    pub(super) until: Option<Instant>,
    pub(super) tally: Tally,
    pub(super) operations: u64,
}

impl Reporter<'_> {
    /// Notes an operation that ended at `end`.
    pub(super) fn note(&mut self, done: Done, end: Instant) -> Result<()> {
        if self.until.is_some_and(|until| end >= until) {
            let elapsed = end.saturating_duration_since(self.start);
            let interval = elapsed.as_nanos() / self.interval.as_nanos().max(1);
            self.flush(u64::try_from(interval).unwrap_or(u64::MAX));
            let intervals = u32::try_from(self.current + 1).ok();
            let length = intervals.and_then(|intervals| self.interval.checked_mul(intervals));
            self.until = length.and_then(|length| self.start.checked_add(length));
        }
        self.operations += 1;
        self.done.0.store(self.operations, Relaxed);
        self.tally.add(done)
    }

    /// Sends what there is, without waiting for the end of the interval.
    pub(super) fn hand_over(&mut self) {
        self.flush(self.current);
    }

    fn flush(&mut self, next: u64) {
        let tally = std::mem::take(&mut self.tally);
        // The gatherer goes away only when the workload has failed.
        let part = Part { thread: self.thread, interval: self.current, tally, complete_below: next };
        let _ = self.parts.send(part);
        self.current = next;
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        self.flush(u64::MAX);
    }
}

/// The other end.
pub(super) struct Gatherer<'a> {
    pub(super) workload: String,
    pub(super) start: Instant,
    pub(super) interval: Duration,
    pub(super) watched: &'a Watched,
    pub(super) live: &'a Live,
    /// Operations of each caller. A thread beyond them is a helper: intervals do not wait for it, what it does belongs
    /// to the interval that is open.
    pub(super) done: &'a [Count],
    pub(super) progress: Progress,
    /// When callers stop, if nothing goes on after them: the interval that ends then takes in the stragglers.
    pub(super) end: Option<Duration>,
}

/// What there was at the end of an interval, and when that was.
type Look = (Duration, (Usage, Sums));

impl Gatherer<'_> {
    fn look(&self) -> Look {
        let seen = (self.watched.look(), self.live.sums());
        (self.start.elapsed(), seen)
    }

    /// Gathers until all threads have gone. Says each interval as soon as it is complete; returns the whole, which began
    /// when `before` was seen.
    pub(super) fn gather(
        mut self,
        before: (Usage, Sums),
        parts: &Receiver<Part>,
        say: &mut dyn FnMut(Said) -> Result<()>,
    ) -> Result<Outcome> {
        let mut all = Tally::default();
        let mut open: VecDeque<Tally> = VecDeque::new();
        let mut looks: VecDeque<Look> = VecDeque::new();
        let mut complete = vec![0; self.done.len()];
        let (mut first, mut looked) = (0_u64, 0_u64);
        let mut last: Look = (Duration::ZERO, before);
        let mut running = true;
        while running {
            let tick = self.interval.saturating_mul(u32::try_from(looked + 1).unwrap_or(u32::MAX));
            let ticks = self.end.is_none_or(|end| tick < end);
            let wait = if ticks { tick.saturating_sub(self.start.elapsed()).min(DRAWN_EVERY) } else { DRAWN_EVERY };
            match parts.recv_timeout(wait) {
                Ok(part) => {
                    all.merge(&part.tally)?;
                    let at = usize::try_from(part.interval.saturating_sub(first))?;
                    while open.len() <= at {
                        open.push_back(Tally::default());
                    }
                    open.get_mut(at).map_or(Ok(()), |tally| tally.merge(&part.tally))?;
                    if let Some(place) = complete.get_mut(part.thread) {
                        *place = part.complete_below;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => running = false,
            }
            if ticks && self.start.elapsed() >= tick {
                looks.push_back(self.look());
                looked += 1;
            }
            let below = complete.iter().copied().min().unwrap_or(u64::MAX);
            while first < below.min(looked) {
                let Some(look) = looks.pop_front() else { break };
                let tally = open.pop_front().unwrap_or_default();
                say(Said::Interval(self.outcome(&tally, last, look)))?;
                (last, first) = (look, first + 1);
            }
            self.progress.draw(self.start.elapsed(), self.done.iter().map(|done| done.0.load(Relaxed)).sum());
        }
        self.progress.clear();
        let end = self.look();
        let rest = open.iter().try_fold(Tally::default(), |mut rest, tally| rest.merge(tally).map(|()| rest))?;
        if first > 0 && !rest.is_empty() {
            say(Said::Interval(self.outcome(&rest, last, end)))?;
        }
        Ok(self.outcome(&all, (Duration::ZERO, before), end))
    }

    fn outcome(&self, tally: &Tally, from: Look, to: Look) -> Outcome {
        let seconds = to.0.saturating_sub(from.0).as_secs_f64();
        Outcome {
            workload: self.workload.clone(),
            from_seconds: from.0.as_secs_f64(),
            seconds,
            loaded_seconds: seconds,
            kinds: tally.outcomes(),
            not_begun: 0,
            used: Used::between(from.1, to.1),
        }
    }
}
