//! Keys: which number comes next, and how a number is spelt.
//!
//! A key is 16 hexadecimal digits. Number `n` that a load wrote is spelt as `2n`, a number that nobody wrote as
//! `2n + 1`: an absent key lies between present ones, so that no store finds it out by looking at its ends.
//!
//! May use: `base::Random`. Must not know: stores.

use base::Random;
use clap::ValueEnum;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// Each as often as any other.
    Uniform,
    /// One after another, from the first again after the last.
    Sequential,
    /// 80 % of the operations go to the first 20 % of the keys, the rest to all others.
    #[value(name = "8020")]
    EightyTwenty,
    /// Few very often, with a long tail that goes beyond what was loaded: `trunc(0.1 N ((1 - u)^(-2/3) - 1))`, as in
    /// the volume tests of leveled.
    Pareto,
}

/// An endless sequence of key numbers.
#[derive(Debug)]
pub(crate) struct Chooser {
    spread: Spread,
    keys: u64,
    random: Random,
    next: u64,
}

impl Chooser {
    /// The sequence of one thread: `seed` must differ from thread to thread.
    pub(crate) fn new(spread: Spread, keys: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let next = random.below(keys);
        Self { spread, keys, random, next }
    }

    /// The next number; at or above the number of keys it means one that was not loaded.
    pub(crate) fn next(&mut self) -> u64 {
        match self.spread {
            Spread::Uniform => self.random.below(self.keys),
            Spread::Sequential => {
                let now = self.next;
                self.next = if now + 1 < self.keys { now + 1 } else { 0 };
                now
            }
            Spread::EightyTwenty => {
                let hot = (self.keys / 5).max(1);
                if self.random.chance(4, 5) || hot == self.keys {
                    self.random.below(hot)
                } else {
                    hot + self.random.below(self.keys - hot)
                }
            }
            Spread::Pareto => pareto(self.keys, self.random.next()),
        }
    }

    /// A number below `bound`: for mixes of operations.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}

/// A float beyond `u64` saturates, and is absent like any other large number.
fn pareto(keys: u64, random: u64) -> u64 {
    let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
    (0.1 * keys as f64 * ((1.0 - unit).powf(-2.0 / 3.0) - 1.0)).trunc() as u64
}

/// Spells the number of a loaded key.
pub(crate) fn present(number: u64) -> [u8; KEY_BYTES] {
    spell(number.wrapping_mul(2))
}

/// Spells the number of a key that nobody loads.
pub(crate) fn absent(number: u64) -> [u8; KEY_BYTES] {
    spell(number.wrapping_mul(2).wrapping_add(1))
}

/// The number that a key spells; `None` for what neither [`present`] nor [`absent`] spells.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    // Asked of each entry of each range: without a branch, or it would be a tenth of what ranges are measured to cost.
    let digits: &[u8; KEY_BYTES] = key.try_into().ok()?;
    let (mut spelt, mut odd) = (0, 0);
    for digit in digits {
        let value = VALUES.get(usize::from(*digit)).copied().unwrap_or(NO_DIGIT);
        odd |= value;
        spelt = spelt << 4 | u64::from(value & 15);
    }
    (odd < NO_DIGIT).then_some(spelt / 2)
}

/// What is not a digit.
const NO_DIGIT: u8 = 0x80;
/// The value of each digit.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};
const DIGITS: [u8; 16] = *b"0123456789abcdef";

fn spell(number: u64) -> [u8; KEY_BYTES] {
    let mut to = [0; KEY_BYTES];
    for (place, digit) in to.iter_mut().rev().enumerate() {
        let nibble = usize::try_from(number >> (4 * place) & 15).unwrap_or(0);
        *digit = DIGITS.get(nibble).copied().unwrap_or(b'0');
    }
    to
}

/// Numbers from 0 to `keys`, each once, in an order without order: a load that is not sorted, and needs no list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scattered {
    keys: u64,
    step: u64,
}

impl Scattered {
    pub(crate) fn new(keys: u64) -> Self {
        let keys = keys.max(1);
        // Multiplication by a number without a common factor visits every remainder once.
        let mut step = (0x9E37_79B9_7F4A_7C15 % keys).max(1);
        while gcd(step, keys) != 1 {
            step += 1;
        }
        Self { keys, step }
    }

    /// The number at `index`.
    pub(crate) fn at(self, index: u64) -> u64 {
        let product = u128::from(index) * u128::from(self.step) % u128::from(self.keys);
        u64::try_from(product).unwrap_or(0)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_load_writes_every_key_once_and_not_in_order() {
        for keys in [1, 2, 7, 100, 1_000, 4_096, 99_991] {
            let scattered = Scattered::new(keys);
            let mut seen: Vec<u64> = (0..keys).map(|index| scattered.at(index)).collect();
            assert!(keys < 7 || !seen.is_sorted(), "{keys}");
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..keys), "{keys}");
        }
    }

    #[test]
    fn keys_sort_as_their_numbers_and_absent_ones_lie_between() {
        assert_eq!(&present(8), b"0000000000000010");
        assert_eq!((number_of(&present(8)), number_of(&absent(77)), number_of(b"8")), (Some(8), Some(77), None));
        for wrong in ["000000000000001G", "00000000000000-1", "000000000000000", "00000000000000000", ""] {
            assert_eq!(number_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(number_of(b"fedcba9876543210"), Some(0xfedc_ba98_7654_3210 / 2));
        assert!(present(7) < absent(7) && absent(7) < present(8));
        assert!((0..1_000).all(|n| present(n) < present(n + 1)));
    }

    #[test]
    fn uniform_and_sequential_keys_reach_all_and_nothing_beyond() {
        for spread in [Spread::Uniform, Spread::Sequential, Spread::EightyTwenty] {
            let mut chooser = Chooser::new(spread, 50, 7);
            let mut seen = [0u32; 50];
            (0..5_000).for_each(|_| seen[usize::try_from(chooser.next()).unwrap()] += 1);
            assert!(seen.iter().all(|n| *n > 0), "{spread:?} {seen:?}");
        }
    }

    #[test]
    fn four_fifths_of_the_operations_go_to_the_first_fifth_of_the_keys() {
        let mut chooser = Chooser::new(Spread::EightyTwenty, 1_000, 1);
        let hot = (0..10_000).filter(|_| chooser.next() < 200).count();
        assert!((7_850..8_150).contains(&hot), "{hot}");
    }

    #[test]
    fn pareto_has_the_quantiles_of_its_formula() {
        let mut chooser = Chooser::new(Spread::Pareto, 1_000, 1);
        let mut numbers: Vec<u64> = (0..10_001).map(|_| chooser.next()).collect();
        numbers.sort_unstable();
        // (1 - 1/2)^(-2/3) - 1 = 0.587; (1 - 0.99)^(-2/3) - 1 = 20.5
        assert!((55..62).contains(&numbers[5_000]), "{}", numbers[5_000]);
        assert!((1_800..2_350).contains(&numbers[9_900]), "{}", numbers[9_900]);
        assert_eq!(pareto(1_000, 0), 0);
        // A fifth of the keys gets 1 - (1 + 0.2 / 0.1)^(-3/2) = 80.8 % of the operations: 80/20.
        let few = numbers.iter().filter(|n| **n < 200).count();
        assert!((7_900..8_250).contains(&few), "{few}");
        // (1 + 1 / 0.1)^(-3/2) = 2.7 % go beyond the keys.
        let beyond = numbers.iter().filter(|n| **n >= 1_000).count();
        assert!((220..330).contains(&beyond), "{beyond}");
        // The largest random number there is stays finite: 0.1 N 2^(53 * 2/3).
        assert!(pareto(1_000, u64::MAX) < 1 << 43);
    }
}
