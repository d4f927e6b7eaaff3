//! Values as they are stored: as they are, or compressed, each with the codec it was stored with. So are blocks of the ledger's tables.
//!
//! A codec is chosen when a value is put and recorded with it, so it may be switched at any time; what is stored stays
//! readable. The checksum is that of the value as the user knows it: it proves the codec's work as well.
//!
//! May use: `lz4_flex`, `zstd`. Must not know: where values lie.

use std::cell::RefCell;
use std::io;

use base::crc32c;
use zstd::bulk::{Compressor, Decompressor};

/// How a value, or a block, is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4, block format: fast, for values that are read often.
    Lz4,
    /// Zstandard, level 1: smaller, for values that are written once.
    Zstd,
}

/// zstd's level: beyond the first, text gets a few percent smaller for several times the work.
const ZSTD_LEVEL: i32 = 1;
/// A value is stored compressed only if that saves at least one byte in so many.
const SAVES_ONE_IN: usize = 16;

thread_local! {
    // What zstd works with is hundreds of kilobytes that it sets up anew: for a block of 4 KiB many times what the work itself costs.
    static ZSTD_IN: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_OUT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Does something with what this thread has for it, which is made when it is first needed.
fn with<T, R>(
    own: &RefCell<Option<T>>,
    make: impl FnOnce() -> io::Result<T>,
    act: impl FnOnce(&mut T) -> io::Result<R>,
) -> io::Result<R> {
    let mut own = own.borrow_mut();
    match &mut *own {
        Some(there) => act(there),
        none => act(none.insert(make()?)),
    }
}

impl Compression {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Compressed; `None` if that is not wanted, or saves too little.
    pub(crate) fn compress(self, value: &[u8]) -> Option<Vec<u8>> {
        let packed = match self {
            Self::None => return None,
            Self::Lz4 => lz4_flex::block::compress(value),
            Self::Zstd => {
                ZSTD_IN.with(|own| with(own, || Compressor::new(ZSTD_LEVEL), |zstd| zstd.compress(value))).ok()?
            }
        };
        (packed.len() + value.len() / SAVES_ONE_IN < value.len()).then_some(packed)
    }

    /// The value that `stored` is; `None` when it is not of `value_bytes` or does not decode.
    pub(crate) fn expand(self, stored: &[u8], value_bytes: usize) -> Option<Vec<u8>> {
        let value = match self {
            Self::None => stored.to_vec(),
            Self::Lz4 => lz4_flex::block::decompress(stored, value_bytes).ok()?,
            Self::Zstd => {
                ZSTD_OUT.with(|own| with(own, Decompressor::new, |zstd| zstd.decompress(stored, value_bytes))).ok()?
            }
        };
        (value.len() == value_bytes).then_some(value)
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

impl std::str::FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Self, UnknownCompression> {
        match name.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err(UnknownCompression),
        }
    }
}

/// A compression that does not exist was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("compression is none, lz4 or zstd")]
pub struct UnknownCompression;

/// A value ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What is stored.
    pub bytes: Vec<u8>,
    /// How it was compressed; `None` too when compressing would not have saved anything.
    pub compression: Compression,
    /// Length of the value.
    pub value_bytes: usize,
    /// CRC32C of the value.
    pub checksum: u32,
}

impl Stored {
    /// `value`, compressed if that is wanted and saves something.
    #[must_use]
    pub fn new(value: &[u8], wanted: Compression) -> Self {
        let (value_bytes, checksum) = (value.len(), crc32c(value));
        match wanted.compress(value) {
            Some(bytes) => Self { bytes, compression: wanted, value_bytes, checksum },
            None => Self { bytes: value.to_vec(), compression: Compression::None, value_bytes, checksum },
        }
    }

    /// The value.
    ///
    /// # Panics
    /// Never for what [`Stored::new`] made.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.compression.expand(&self.bytes, self.value_bytes).expect("it was compressed here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_whatever_the_codec_and_incompressible_ones_are_stored_as_they_are() {
        let text = b"holdfast holds what it acknowledges. ".repeat(40);
        let mut noise = vec![0; 2_000];
        base::Random::new(5).fill(&mut noise);
        for wanted in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let stored = Stored::new(&text, wanted);
            assert_eq!((stored.value(), stored.compression), (text.clone(), wanted));
            assert_eq!(stored.bytes.len() < text.len() / 4, wanted != Compression::None);
            let stored = Stored::new(&noise, wanted);
            assert_eq!((stored.value(), stored.compression), (noise.clone(), Compression::None));
            assert_eq!(Stored::new(b"", wanted).value(), b"");
            assert_eq!(wanted.to_string().parse(), Ok(wanted));
        }
        assert_eq!("gzip".parse::<Compression>(), Err(UnknownCompression));
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_expands_to_a_value_of_another_length(
            bytes in proptest::collection::vec(0u8..=255, 0..200), len in 0usize..300, code in 0u8..3
        ) {
            let codec = Compression::from_code(code).unwrap();
            assert!(codec.expand(&bytes, len).is_none_or(|value| value.len() == len));
        }
    }
}
