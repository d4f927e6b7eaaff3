//! SHA-1, by which Redis names scripts. For names alone: it is no protection against anybody.
//!
//! The standard: FIPS 180-4, section 6.1.
//!
//! May use: nothing. Must not know: scripts.

/// The SHA-1 of some bytes as 40 hexadecimal digits.
#[must_use]
pub fn sha1hex(bytes: &[u8]) -> String {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| add(&mut state, block));
    // A bit that is one, zeros, and the length in bits at the end of a block.
    let mut tail = rest.to_vec();
    tail.push(0x80);
    while tail.len() % 64 != 56 {
        tail.push(0);
    }
    tail.extend_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    tail.as_chunks::<64>().0.iter().for_each(|block| add(&mut state, block));
    let digit = |word: u32, at: u32| char::from_digit(word >> (28 - 4 * at) & 15, 16).unwrap_or('0');
    state.iter().flat_map(|word| (0..8).map(move |at| digit(*word, at))).collect()
}

fn add(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for index in 16..80 {
        words[index] = (words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16]).rotate_left(1);
    }
    let mut five = *state;
    // Four loops without a choice in them, which the compiler unrolls.
    let (first, rest) = words.split_at(20);
    let (second, rest) = rest.split_at(20);
    let (third, fourth) = rest.split_at(20);
    mix(&mut five, first, 0x5a82_7999, |b, c, d| b & c | !b & d);
    mix(&mut five, second, 0x6ed9_eba1, |b, c, d| b ^ c ^ d);
    mix(&mut five, third, 0x8f1b_bcdc, |b, c, d| b & c | b & d | c & d);
    mix(&mut five, fourth, 0xca62_c1d6, |b, c, d| b ^ c ^ d);
    for (sum, part) in state.iter_mut().zip(five) {
        *sum = sum.wrapping_add(part);
    }
}

fn mix(five: &mut [u32; 5], words: &[u32], constant: u32, mixed: impl Fn(u32, u32, u32) -> u32) {
    let [mut a, mut b, mut c, mut d, mut e] = *five;
    for word in words {
        let next = a.rotate_left(5).wrapping_add(mixed(b, c, d)).wrapping_add(e).wrapping_add(constant);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next.wrapping_add(*word));
    }
    *five = [a, b, c, d, e];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_examples_have_their_sums() {
        assert_eq!(sha1hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(sha1hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(sha1hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(sha1hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
