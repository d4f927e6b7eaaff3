//! Little-endian integers in and out of byte slices, without indexing: foreign bytes may end anywhere.
//!
//! May use: nothing. Must not know: what the integers mean.

/// Reads integers one after another; `None` at the first that is not whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// An unsigned LEB128 number of at most 64 bits.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let part = u64::from(byte & 0x7F);
            if part << shift >> shift != part {
                return None;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

pub(crate) fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(u8::try_from(value & 0x7F).expect("seven bits fit a byte") | 0x80);
        value >>= 7;
    }
    to.push(u8::try_from(value).expect("below 128"));
}

/// The length as the 32-bit number the formats hold; longer input was refused at the border.
pub(crate) fn len32(len: usize) -> u32 {
    u32::try_from(len).expect("lengths were limited to 32 bits when they came in")
}

/// A 64-bit length or offset as an index into memory.
pub(crate) fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("Holdfast runs on 64-bit machines")
}
