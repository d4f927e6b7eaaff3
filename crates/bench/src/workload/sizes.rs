//! How long values are.
//!
//! `mix` are the sizes of Riak's volume tests: `{semi_compressible, 5000, 3000, 5, 0.2}` of basho_bench, that is at
//! least 5000 bytes and an exponentially spread rest with a mean of 3000; with a probability of 0.2 both are five times
//! as large. The mean is (0.8 + 0.2 * 5) * 8000 = 14400 bytes.
//!
//! May use: `base::Random`. Must not know: what the bytes are.

use std::fmt;
use std::str::FromStr;

use base::Random;

const MIX_MIN_BYTES: f64 = 5000.0;
const MIX_MEAN_BYTES: f64 = 3000.0;
const MIX_LARGE: f64 = 5.0;
/// Of ten values so many are large.
const MIX_LARGE_OF_TEN: u64 = 2;
/// Longest value of one size.
const BYTES_MAX: usize = 64 << 20;

/// Which lengths values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// All the same; the bytes are noise that no compression shrinks.
    Bytes(usize),
    /// The mix of the volume tests; half of the bytes is text that compresses to a third.
    Mix,
}

impl Sizes {
    /// The length of the next value.
    pub(crate) fn next(self, random: &mut Random) -> usize {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Mix => {
                let large = random.chance(MIX_LARGE_OF_TEN, 10);
                mix_bytes(random.next(), large)
            }
        }
    }

    /// About how long a value is on average.
    pub(crate) fn mean_bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes as u64,
            Self::Mix => 14_400,
        }
    }
}

fn mix_bytes(random: u64, large: bool) -> usize {
    // At least 2^-53, so the logarithm is finite: the longest value has 5 * (5000 + 36.7 * 3000) bytes.
    let unit = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let times = if large { MIX_LARGE } else { 1.0 };
    (MIX_MIN_BYTES * times + (-unit.ln() * MIX_MEAN_BYTES * times).trunc()) as usize
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(said: &str) -> Result<Self, String> {
        if said == "mix" {
            return Ok(Self::Mix);
        }
        let (digits, times) = said.strip_suffix('k').map_or((said, 1), |digits| (digits, 1024));
        let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(times));
        bytes.filter(|bytes| *bytes <= BYTES_MAX).map(Self::Bytes).ok_or_else(|| {
            format!("neither `mix` nor a number of bytes up to {BYTES_MAX}, nor one of KiB such as `8k`")
        })
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Mix => f.write_str("mix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (said, sizes) in [("4k", 4096), ("16k", 16384), ("100", 100), ("0", 0)] {
            let parsed: Sizes = said.parse().unwrap();
            assert_eq!((parsed, parsed.to_string().parse()), (Sizes::Bytes(sizes), Ok(Sizes::Bytes(sizes))));
        }
        assert_eq!("mix".parse(), Ok(Sizes::Mix));
        for wrong in ["", "k", "8m", "-1", "99999999999999999999k", "65537k"] {
            assert!(wrong.parse::<Sizes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_mix_has_its_least_length_its_mean_and_a_fifth_of_large_ones() {
        let mut random = Random::new(1);
        let mut lengths: Vec<usize> = (0..100_000).map(|_| Sizes::Mix.next(&mut random)).collect();
        lengths.sort_unstable();
        let mean = lengths.iter().sum::<usize>() as u64 / 100_000;
        assert!(mean.abs_diff(Sizes::Mix.mean_bytes()) < 150, "{mean}");
        assert!((5_000..5_010).contains(&lengths[0]), "{}", lengths[0]);
        // Small ones beyond 25000 are e^(-20000/3000) = 0.1 % of their kind: the rest there is large.
        let large = lengths.iter().filter(|length| **length >= 25_000).count();
        assert!((19_400..20_800).contains(&large), "{large}");
        // The median of the small ones, at 0.4 of all: 5000 + 3000 ln 2.
        assert!(lengths[40_000].abs_diff(7_079) < 80, "{}", lengths[40_000]);
        // The median of the large ones, at 0.9 of all: five times that.
        assert!(lengths[90_000].abs_diff(35_397) < 800, "{}", lengths[90_000]);
    }

    #[test]
    fn the_ends_of_the_mix_are_finite() {
        assert_eq!(mix_bytes(u64::MAX, false), 5_000);
        assert_eq!(mix_bytes(u64::MAX, true), 25_000);
        assert!((115_000..116_000).contains(&mix_bytes(0, false)), "{}", mix_bytes(0, false));
    }
}
