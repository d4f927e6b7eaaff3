//! Integers and byte strings in and out of slices, without indexing: foreign bytes may end anywhere.
//!
//! May use: nothing. Must not know: what the fields mean.

/// Reads fields one after another; `None` at the first that is not whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A byte string behind its 32-bit length.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}

/// The length as the 32-bit number the formats hold; longer input was refused at the border.
pub(crate) fn len32(len: usize) -> u32 {
    u32::try_from(len).expect("lengths were limited to 32 bits when they came in")
}

pub(crate) fn put_string(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&len32(bytes.len()).to_le_bytes());
    to.extend_from_slice(bytes);
}
