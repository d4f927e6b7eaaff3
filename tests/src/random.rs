//! Random numbers that come again with the same seed (SplitMix64).
//!
//! May use: std. Must not know: what they are for.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator; clone it to get the same numbers twice.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The seed in `HOLDFAST_SEED`, or one that nobody had before; print it.
    pub fn seed() -> u64 {
        let given = std::env::var("HOLDFAST_SEED").ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.as_secs() ^ u64::from(now.subsec_nanos()).rotate_left(32)
        })
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        usize::try_from(self.number() % bound as u64).expect("a number below a usize is a usize")
    }

    /// Bytes of any value.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length.saturating_add(8));
        while bytes.len() < length {
            bytes.extend(self.number().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
