//! User metadata: a small ordered map that travels with an object and is read without its value.
//!
//! Encoded as pairs of strings, each behind its 32-bit little-endian length, in ascending order of names.
//!
//! May use: nothing. Must not know: limits (the facade checks them).

use crate::bytes::{Fields, put_string};

/// Names and values set by the user, ordered by name, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(Vec<u8>);

impl Metadata {
    /// Metadata of these pairs. Of pairs with the same name the last counts.
    pub fn from_pairs<N: AsRef<[u8]>, V: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut map = std::collections::BTreeMap::new();
        for (name, value) in pairs {
            map.insert(name.as_ref().to_vec(), value.as_ref().to_vec());
        }
        let mut encoded = Vec::new();
        for (name, value) in map {
            put_string(&mut encoded, &name);
            put_string(&mut encoded, &value);
        }
        Self(encoded)
    }

    /// The pairs in order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut fields = Fields(&self.0);
        std::iter::from_fn(move || Some((fields.string()?, fields.string()?)))
    }

    /// Whether there are no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the encoded pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The encoded pairs, as commands carry them.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Metadata from encoded pairs.
    #[must_use]
    pub fn from_encoded(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}
