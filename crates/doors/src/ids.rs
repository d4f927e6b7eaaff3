//! Numbers by which clients know what a door keeps for them: cursors and snapshots; and a run of the server.
//!
//! They ascend, and no other run of the program is likely to give one of them: a client that goes on after a restart with what it had
//! before is told that it is gone, and does not go on with what is somebody else's.
//!
//! May use: std. Must not know: what is numbered.

use std::hash::{BuildHasher, RandomState};

/// They begin below this power of two: with what is added, all stay exact where numbers are doubles.
const BEGIN_BITS: u32 = 52;
/// As much as two that follow each other may differ.
const STEP_MAX: u64 = 1 << 8;

/// A number that differs from run to run, and from call to call; no secret.
pub(crate) fn fresh() -> u64 {
    // The standard library's random keys are the randomness that needs no other crate.
    RandomState::new().hash_one(0)
}

/// Tells one run of a server from all others: 40 hexadecimal digits, as Redis has them.
pub(crate) fn run() -> String {
    let digits = format!("{:016x}{:016x}{:016x}", fresh(), fresh(), fresh());
    digits.get(..40).unwrap_or(&digits).to_owned()
}

/// What clients are told who heard, or read, in another run.
pub(crate) const NEW_RUN: &str = "the server was started anew since that run: what it had shown last may have been lost with it; read what is there, and listen anew";

/// Gives numbers.
pub(crate) struct Ids {
    last: u64,
    steps: RandomState,
}

impl Ids {
    pub(crate) fn new() -> Self {
        Ids { last: fresh() >> (u64::BITS - BEGIN_BITS), steps: RandomState::new() }
    }

    /// The next one: never 0, greater than those before.
    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1 + self.steps.hash_one(self.last) % STEP_MAX;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_are_exact_as_doubles_and_differ_from_run_to_run() {
        let mut ids = Ids::new();
        let numbers: Vec<u64> = (0..1000).map(|_| ids.next()).collect();
        assert!(numbers.is_sorted_by(|one, next| one < next) && numbers[0] > 0);
        assert!(numbers.iter().all(|number| *number < 1 << 53));
        let firsts: std::collections::BTreeSet<u64> = (0..100).map(|_| Ids::new().next()).collect();
        assert_eq!(firsts.len(), 100);
    }
}
