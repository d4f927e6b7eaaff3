//! When operations begin in an open loop: at times fixed beforehand, however long those before take.
//!
//! A caller that waits for its answers begins fewer operations while the store is slow, and so measures the slowness
//! once where many users would have felt it ("coordinated omission"). Here each operation has its time; one that begins
//! late because the caller was still waiting counts from the time it should have begun.
//!
//! May use: nothing. Must not know: clocks, what is done.

use std::time::Duration;

/// The schedule of one caller among several.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    rate: f64,
    caller: u64,
    callers: u64,
}

impl Pace {
    /// `rate` operations a second of all callers together, one after the other in turn.
    pub(crate) fn new(rate: f64, caller: u64, callers: u64) -> Self {
        Self { rate, caller, callers: callers.max(1) }
    }

    /// When the caller's operation of this number should begin, from the start.
    pub(crate) fn begin(self, number: u64) -> Duration {
        let place = number.saturating_mul(self.callers).saturating_add(self.caller);
        Duration::try_from_secs_f64(place as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// How many operations of the caller should have begun before `time`.
    pub(crate) fn due(self, time: Duration) -> u64 {
        let all = (time.as_secs_f64() * self.rate).ceil() as u64;
        all.saturating_sub(self.caller).div_ceil(self.callers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_take_turns_and_together_have_the_rate() {
        let paces: Vec<_> = (0..4).map(|caller| Pace::new(1_000.0, caller, 4)).collect();
        let mut begins: Vec<_> = paces.iter().flat_map(|pace| (0..250).map(|number| pace.begin(number))).collect();
        begins.sort_unstable();
        for (place, begin) in begins.iter().enumerate() {
            assert_eq!(begin.as_micros(), 1_000 * place as u128);
        }
        assert_eq!(Pace::new(0.5, 1, 2).begin(1), Duration::from_secs(6));
    }

    #[test]
    fn as_many_are_due_as_begin_before() {
        for (rate, callers) in [(1_000.0, 4), (7.0, 3), (0.3, 1), (99.0, 10)] {
            for caller in 0..callers {
                let pace = Pace::new(rate, caller, callers);
                for millis in [0, 1, 500, 1_001, 9_999] {
                    let time = Duration::from_millis(millis);
                    let begun = (0..).take_while(|number| pace.begin(*number) < time).count() as u64;
                    assert_eq!(pace.due(time), begun, "{rate} {caller} of {callers} at {millis}");
                }
            }
        }
    }
}
