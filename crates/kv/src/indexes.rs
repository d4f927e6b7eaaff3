//! Secondary index entries of one object: a small ordered set of (index, term). This comment is the encoding's
//! specification.
//!
//! Format: docs/formats/kv.md
//!
//!   entry   index, behind its 32-bit length | term, behind its 32-bit length
//!   term    02 | integer 8, big-endian, sign bit flipped      an integer
//!           03 | bytes                                         a binary
//!
//! Entries are in ascending order of index, then term, each once. So encoded terms compare as terms do: integers first.
//!
//! May use: nothing. Must not know: limits (the facade checks them), ledger keys.

use std::collections::BTreeSet;

use crate::bytes::{Fields, put_string};

const INTEGER: u8 = 2;
const BINARY: u8 = 3;
const SIGN: u64 = 1 << 63;

/// What an object is found by in an index. Integers come before binaries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// A signed number, in numeric order.
    Integer(i64),
    /// Any bytes, in byte order.
    Binary(Vec<u8>),
}

impl Term {
    /// Bytes of the term.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty term is a term like any other")]
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(_) => 8,
            Self::Binary(bytes) => bytes.len(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.len() + 1);
        TermRef::from(self).encode_into(&mut to);
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        TermRef::decode(bytes).map(Self::from)
    }
}

/// A term that lies elsewhere. Compares as [`Term`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TermRef<'a> {
    /// A signed number.
    Integer(i64),
    /// Any bytes.
    Binary(&'a [u8]),
}

impl<'a> TermRef<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            INTEGER => Some(Self::Integer((u64::from_be_bytes(rest.try_into().ok()?) ^ SIGN).cast_signed())),
            BINARY => Some(Self::Binary(rest)),
            _ => None,
        }
    }

    pub(crate) fn encode_into(self, to: &mut Vec<u8>) {
        match self {
            Self::Integer(number) => {
                to.push(INTEGER);
                to.extend_from_slice(&(number.cast_unsigned() ^ SIGN).to_be_bytes());
            }
            Self::Binary(bytes) => {
                to.push(BINARY);
                to.extend_from_slice(bytes);
            }
        }
    }
}

impl<'a> From<&'a Term> for TermRef<'a> {
    fn from(term: &'a Term) -> Self {
        match term {
            Term::Integer(number) => Self::Integer(*number),
            Term::Binary(bytes) => Self::Binary(bytes),
        }
    }
}

impl From<TermRef<'_>> for Term {
    fn from(term: TermRef<'_>) -> Self {
        match term {
            TermRef::Integer(number) => Self::Integer(number),
            TermRef::Binary(bytes) => Self::Binary(bytes.to_vec()),
        }
    }
}

impl std::fmt::Display for TermRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Binary(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        TermRef::from(self).fmt(f)
    }
}

/// Index entries of an object, ordered by index, then term, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(Vec<u8>);

impl Indexes {
    /// Index entries of these pairs of index and term.
    pub fn from_pairs<N: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (N, Term)>) -> Self {
        let set: BTreeSet<_> = pairs.into_iter().map(|(name, term)| (name.as_ref().to_vec(), term.encode())).collect();
        let mut encoded = Vec::new();
        for (name, term) in set {
            put_string(&mut encoded, &name);
            put_string(&mut encoded, &term);
        }
        Self(encoded)
    }

    /// The pairs of index and term, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Term)> {
        pairs(&self.0).filter_map(|(name, term)| Some((name, Term::decode(term)?)))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the encoded entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The encoded entries, as commands carry them.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// Index entries from encoded ones.
    #[must_use]
    pub fn from_encoded(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Index and encoded term of each encoded entry.
pub(crate) fn pairs(encoded: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut fields = Fields(encoded);
    std::iter::from_fn(move || Some((fields.string()?, fields.string()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_back_in_order_and_once() {
        let pairs = [
            ("dob", Term::Integer(7)),
            ("dob", Term::Integer(-3)),
            ("city", Term::Binary(b"Ulm".to_vec())),
            ("dob", Term::Integer(7)),
        ];
        let indexes = Indexes::from_pairs(pairs);
        let found: Vec<_> = indexes.iter().collect();
        assert_eq!(
            found,
            [
                (b"city".as_slice(), Term::Binary(b"Ulm".to_vec())),
                (b"dob".as_slice(), Term::Integer(-3)),
                (b"dob".as_slice(), Term::Integer(7)),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn encoded_terms_compare_as_terms_do(a in term(), b in term()) {
            assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
            assert_eq!(Term::decode(&a.encode()), Some(a));
        }

        #[test]
        fn garbage_is_read_without_harm(bytes in proptest::collection::vec(0u8..=255, 0..80)) {
            let indexes = Indexes::from_encoded(&bytes);
            assert!(indexes.iter().map(|(name, _)| name.len()).sum::<usize>() <= bytes.len());
        }
    }

    fn term() -> impl proptest::strategy::Strategy<Value = Term> {
        use proptest::prelude::*;
        prop_oneof![
            any::<i64>().prop_map(Term::Integer),
            proptest::collection::vec(0u8..=255, 0..5).prop_map(Term::Binary)
        ]
    }
}
