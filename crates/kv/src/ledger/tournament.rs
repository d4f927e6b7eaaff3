//! Who comes first of many that each go forward: a tournament tree of losers (Knuth, "Sorting and Searching", 5.4.1), in
//! which what follows the first is found by one game on each level.
//!
//! Games are won by the lower *tag* (`Bounds::tag`). Who wins cannot be foreseen, so winners are chosen without branches.
//!
//! May use: nothing. Must not know: what goes forward, and where.

use std::hint::select_unpredictable;

/// Where one of them stands: words, since those can be chosen without a branch, and without a detour through memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runner {
    tag_high: u64,
    tag_low: u64,
    number: u64,
}

/// Beside the number of one that has come to its end: it comes behind all others.
const OVER: u64 = 1 << 32;

impl Runner {
    /// Before everybody: whoever meets it waits there.
    const NOBODY: Self = Self { number: u64::MAX ^ OVER, tag_high: 0, tag_low: 0 };

    pub(super) fn on(number: u32, tag: u128) -> Self {
        Self { number: number.into(), tag_high: (tag >> 64) as u64, tag_low: tag as u64 }
    }

    pub(super) fn over(number: u32) -> Self {
        Self { number: OVER | u64::from(number), tag_high: u64::MAX, tag_low: u64::MAX }
    }

    fn is_nobody(self) -> bool {
        self.number == Self::NOBODY.number
    }

    fn is_over(self) -> bool {
        self.number & OVER != 0
    }

    pub(super) fn number(self) -> u32 {
        (self.number & u64::from(u32::MAX)) as u32
    }

    pub(super) fn tag(self) -> u128 {
        u128::from(self.tag_high) << 64 | u128::from(self.tag_low)
    }

    fn choose(first: bool, one: Self, other: Self) -> Self {
        Self {
            tag_high: select_unpredictable(first, one.tag_high, other.tag_high),
            tag_low: select_unpredictable(first, one.tag_low, other.tag_low),
            number: select_unpredictable(first, one.number, other.number),
        }
    }
}

/// The tree, once all have played: before that nobody comes first.
#[derive(Debug, Default)]
pub(super) struct Tournament {
    /// Who lost at each node, laid out as a heap; in front, where a heap has nothing, who lost never.
    losers: Vec<Runner>,
}

impl Tournament {
    /// One of so many.
    pub(super) fn of(runners: usize) -> Self {
        Self { losers: vec![Runner::NOBODY; runners] }
    }

    /// Who comes first; nobody when all are over.
    pub(super) fn first(&self) -> Option<Runner> {
        self.losers.first().copied().filter(|first| !first.is_over() && !first.is_nobody())
    }

    /// Has one that went forward play again. Of two of the same tag that are not over `precedes` says whether the first
    /// comes before the second.
    pub(super) fn play(&mut self, mut runner: Runner, precedes: impl Fn(Runner, Runner) -> bool) {
        let tie = |one: Runner, other: Runner| match (one.is_nobody(), other.is_nobody()) {
            (false, false) if !one.is_over() && !other.is_over() => precedes(one, other),
            (false, false) => other.is_over(),
            (is_nobody, _) => is_nobody,
        };
        let leaf = usize::try_from(runner.number()).unwrap_or(usize::MAX);
        let mut node = leaf.midpoint(self.losers.len());
        while node > 0 {
            let Some(loser) = self.losers.get_mut(node) else { return };
            let before = *loser;
            if before.tag() != runner.tag() {
                let wins = before.tag() < runner.tag();
                *loser = Runner::choose(wins, runner, before);
                runner = Runner::choose(wins, before, runner);
            } else if tie(before, runner) {
                std::mem::swap(loser, &mut runner);
            }
            node /= 2;
        }
        if let Some(first) = self.losers.first_mut() {
            *first = runner;
        }
    }

    /// Sends all home.
    pub(super) fn end(&mut self) {
        self.losers.clear();
    }
}

#[cfg(test)]
mod tests {
    use base::Random;

    use super::*;

    #[test]
    fn numbers_come_in_order_and_of_the_same_the_lower_first() {
        let mut random = Random::new(1);
        for runners in 0..20u32 {
            let mut ways: Vec<Vec<u128>> = (0..runners)
                .map(|_| {
                    let mut way: Vec<_> =
                        (0..random.below(30)).map(|_| [0, 1, 2, 7, u128::MAX][random.below(5) as usize]).collect();
                    way.sort_unstable();
                    way
                })
                .collect();
            let mut wanted: Vec<_> =
                (0u32..).zip(&ways).flat_map(|(number, way)| way.iter().map(move |tag| (*tag, number))).collect();
            wanted.sort_unstable();
            let mut tournament = Tournament::of(ways.len());
            let mut next = |number: u32| match &mut ways[number as usize] {
                way if way.is_empty() => Runner::over(number),
                way => Runner::on(number, way.remove(0)),
            };
            let lower = |one: Runner, other: Runner| one.number() < other.number();
            (0..runners).for_each(|number| tournament.play(next(number), lower));
            let mut seen = Vec::new();
            while let Some(first) = tournament.first() {
                seen.push((first.tag(), first.number()));
                tournament.play(next(first.number()), lower);
            }
            assert_eq!(seen, wanted, "{runners}");
        }
    }
}
