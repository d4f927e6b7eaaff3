//! Values that can be told from each other: cut from a common stock, with a stamp in front.
//!
//! Stamp, 24 bytes, integers little-endian: number of the key 8, where in the stock the rest was cut 8, length of the
//! value 4, check of the three 4. A value shorter than a stamp has none, and only its length says anything.
//!
//! May use: `base::Random`, `sizes.rs`. Must not know: stores.

use base::Random;

use super::sizes::Sizes;

const STAMP_BYTES: usize = 24;
/// Noise enough that two values of a block hardly overlap, and small enough for the processor's caches.
const STOCK_BYTES: usize = 1 << 20;
/// A stretch of noise or of text in the stock of the mix, as in basho_bench.
const STRETCH_BYTES: usize = 4096;
/// Text is made of this many phrases of this length.
const PHRASES: usize = 16;
const PHRASE_BYTES: usize = 128;

/// The bytes that all values are cut from: a function of sizes and seed.
#[derive(Debug)]
pub(crate) struct Stock {
    bytes: Vec<u8>,
    sizes: Sizes,
}

/// An endless sequence of values. Making one costs two random numbers and a copy.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    stock: &'a Stock,
    random: Random,
    value: Vec<u8>,
}

impl Stock {
    pub(crate) fn new(sizes: Sizes, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bytes = match sizes {
            Sizes::Bytes(bytes) => {
                let mut stock = vec![0; STOCK_BYTES.max(bytes.saturating_mul(2))];
                random.fill(&mut stock);
                stock
            }
            Sizes::Mix => half_text(&mut random),
        };
        Self { bytes, sizes }
    }

    /// Whether these bytes are a value that was made for the key of this number; `wholly` compares every byte.
    pub(crate) fn made(&self, number: u64, value: &[u8], wholly: bool) -> bool {
        if let Sizes::Bytes(bytes) = self.sizes
            && value.len() != bytes
        {
            return false;
        }
        let Some((stamp, rest)) = value.split_at_checked(STAMP_BYTES) else { return true };
        let from = stamp.get(8..16).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes);
        if stamp != stamp_of(number, from, value.len()).as_slice() {
            return false;
        }
        let cut = usize::try_from(from).ok().and_then(|from| self.bytes.get(from..)?.get(..rest.len()));
        !wholly || cut == Some(rest)
    }
}

impl<'a> Maker<'a> {
    /// The sequence of one thread: `seed` must differ from thread to thread.
    pub(crate) fn new(stock: &'a Stock, seed: u64) -> Self {
        Self { stock, random: Random::new(seed), value: Vec::new() }
    }

    /// Makes the next value, for the key of this number.
    pub(crate) fn next(&mut self, number: u64) -> &[u8] {
        let stock = &self.stock.bytes;
        // The tail of the mix ends at the stock's end; its longest value is far shorter.
        let bytes = self.stock.sizes.next(&mut self.random).min(stock.len());
        let rest = bytes.saturating_sub(STAMP_BYTES);
        let from = self.random.below((stock.len() - rest) as u64 + 1);
        let cut = usize::try_from(from).ok().and_then(|from| stock.get(from..)?.get(..rest)).unwrap_or_default();
        self.value.clear();
        self.value.extend_from_slice(stamp_of(number, from, bytes).get(..bytes.min(STAMP_BYTES)).unwrap_or_default());
        self.value.extend_from_slice(cut);
        &self.value
    }

    /// The value that was made last.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }
}

fn stamp_of(number: u64, from: u64, bytes: usize) -> [u8; STAMP_BYTES] {
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mixed = Random::new(number ^ from.rotate_left(32) ^ (u64::from(length) << 13)).next();
    let check = u32::try_from(mixed >> 32).unwrap_or(0);
    let mut stamp = [0; STAMP_BYTES];
    let fields = [number.to_le_bytes(), from.to_le_bytes(), (u64::from(length) | u64::from(check) << 32).to_le_bytes()];
    for (to, byte) in stamp.iter_mut().zip(fields.iter().flatten()) {
        *to = *byte;
    }
    stamp
}

/// Stretches of noise and of text in turn; the text repeats a few phrases of printable characters.
fn half_text(random: &mut Random) -> Vec<u8> {
    let phrases: Vec<Vec<u8>> = (0..PHRASES)
        .map(|_| (0..PHRASE_BYTES).map(|_| 32 + u8::try_from(random.below(95)).unwrap_or(0)).collect())
        .collect();
    let mut stock = Vec::with_capacity(STOCK_BYTES);
    while stock.len() < STOCK_BYTES {
        let noise = stock.len();
        stock.resize(noise + STRETCH_BYTES, 0);
        if let Some(stretch) = stock.get_mut(noise..) {
            random.fill(stretch);
        }
        for left in (1..=STRETCH_BYTES / PHRASE_BYTES).rev() {
            let phrase = usize::try_from(random.below(left.min(PHRASES) as u64)).unwrap_or(0);
            stock.extend_from_slice(phrases.get(phrase).map_or(&[], Vec::as_slice));
        }
    }
    stock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_known_by_its_key_and_every_changed_byte_is_noticed() {
        for sizes in [Sizes::Bytes(24), Sizes::Bytes(100), Sizes::Bytes(8192), Sizes::Bytes(3 << 20), Sizes::Mix] {
            let stock = Stock::new(sizes, 1);
            let mut maker = Maker::new(&stock, 2);
            let value = maker.next(7).to_vec();
            assert!(stock.made(7, &value, true) && !stock.made(8, &value, false), "{sizes:?}");
            for at in [0, 9, 17, 20, 23, value.len() / 2, value.len() - 1] {
                let mut changed = value.clone();
                changed[at] ^= 1;
                assert!(!stock.made(7, &changed, true), "{sizes:?} {at}");
            }
            assert!(!stock.made(7, &value[..value.len() - 1], false));
            assert!(value.len() < 100 || maker.next(7) != value, "values of one key differ");
        }
    }

    #[test]
    fn values_shorter_than_a_stamp_have_their_length() {
        for bytes in [0, 1, 23] {
            let stock = Stock::new(Sizes::Bytes(bytes), 1);
            let value = Maker::new(&stock, 1).next(u64::MAX).to_vec();
            assert_eq!(value.len(), bytes);
            assert!(stock.made(u64::MAX, &value, true) && !stock.made(1, &[1; 50], true));
        }
    }

    #[test]
    fn half_of_the_mix_is_text_that_repeats_itself_and_the_other_half_is_not() {
        let stock = Stock::new(Sizes::Mix, 1);
        let stretch = |at: usize| &stock.bytes[at * STRETCH_BYTES..][..STRETCH_BYTES];
        let phrases = |stretch: &[u8]| {
            let all: std::collections::BTreeSet<&[u8]> = stretch.chunks(PHRASE_BYTES).collect();
            all.len()
        };
        for pair in 0..10 {
            assert_eq!(phrases(stretch(2 * pair)), 32);
            assert!(phrases(stretch(2 * pair + 1)) <= PHRASES);
            assert!(stretch(2 * pair + 1).iter().all(|byte| (32..127).contains(byte)));
        }
    }
}
