//! Values: slices of noise, which no compression shrinks.
//!
//! May use: `base::Random`. Must not know: stores.

use base::Random;

/// Bytes of noise to cut small values from: so few that the noise of ten threads stays in the processor's caches, and
/// reading it costs no store anything.
const NOISE_BYTES: usize = 64 << 10;

/// An endless sequence of values of one length. Making one costs a random number.
#[derive(Debug)]
pub(crate) struct Values {
    noise: Vec<u8>,
    bytes: usize,
    random: Random,
}

impl Values {
    /// Values of `bytes` each.
    pub(crate) fn new(bytes: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut noise = vec![0; NOISE_BYTES.max(bytes.saturating_mul(2))];
        random.fill(&mut noise);
        Self { noise, bytes, random }
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> &[u8] {
        let room = self.noise.len() - self.bytes;
        let from = usize::try_from(self.random.below(room as u64 + 1)).unwrap_or(0);
        self.noise.get(from..from + self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_differ() {
        for bytes in [0, 1, 100, 8 << 10, 3 << 20] {
            let mut values = Values::new(bytes, 3);
            let first = values.next().to_vec();
            assert_eq!(first.len(), bytes);
            assert!(bytes < 100 || values.next() != first);
        }
    }
}
