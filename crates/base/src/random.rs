//! Randomness: a small fast generator with a seed, and one seed from the operating system.
//!
//! The generator is `splitmix64` (Steele, Lea, Flood 2014): one addition and three mixes, every seed good. It is for
//! simulation, sampling and identities; never for secrets.
//!
//! May use: the operating system's entropy. Must not know: who asks.

/// A seeded generator: the same seed gives the same sequence.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, evenly spread up to a bias of bound/2^64; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("the product's high half fits")
    }

    /// True `times` out of `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
    }
}

/// 64 bits that differ from run to run, from the operating system.
#[must_use]
pub fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds each `RandomState` from the operating system.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
