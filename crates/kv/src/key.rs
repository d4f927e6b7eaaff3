//! Keys of the ledger. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//!   object    bucket, escaped | 00 | key                                            -> see `entry.rs`
//!   index     FF 'i' | bucket, escaped | 00 | index, escaped | 00 | term | key      -> expires 8, or nothing
//!   expiry    FF 'x' | expires 8, big-endian | bucket, escaped | 00 | key           -> nothing
//!   summary   FF 's'                                                                -> see `summary.rs`
//!
//!   term      02 | integer 8, big-endian, sign bit flipped
//!             03 | bytes, escaped | 00
//!
//! Escaped: of the bytes 00 becomes 01 01, 01 becomes 01 02, FE becomes FE FE and FF becomes FE FF. So ledger order is
//! bucket order, then key order, no bucket's keys mix with another's, and no object's key starts with FF; and an
//! index's entries are in order of terms, then keys.
//! Usual names cost one byte beside bucket and key: the ledger's memory holds keys up to 20 bytes without a pointer, and
//! following pointers is what a search there costs.
//!
//! May use: nothing. Must not know: values.

use crate::indexes::Term;

pub(crate) const SUMMARY: &[u8] = b"\xFFs";
const EXPIRY: &[u8] = b"\xFFx";
const INDEX: &[u8] = b"\xFFi";
const BINARY_TERM: u8 = 3;
const INTEGER_TERM: u8 = 2;
/// Bytes of the term of an integer.
const INTEGER_TERM_BYTES: usize = 9;
/// Longest ledger key that is made on the stack.
const SHORT_BYTES: usize = 128;
/// Longest key that a ledger takes: more than what is within the limits of keys, buckets and index entries can come to, all of it escaped.
pub const KEY_BYTES_MAX: usize = 1 << 20;

fn push_escaped(to: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            0x00 => to.extend_from_slice(&[0x01, 0x01]),
            0x01 => to.extend_from_slice(&[0x01, 0x02]),
            0xFE => to.extend_from_slice(&[0xFE, 0xFE]),
            0xFF => to.extend_from_slice(&[0xFE, 0xFF]),
            byte => to.push(*byte),
        }
    }
    to.push(0x00);
}

/// Whether a bucket is the store's own: its name begins with the byte 00. What is in it is journaled, kept and rebuilt as
/// everything is, but users do not see it, and stores are not compared by it.
#[must_use]
pub fn is_reserved(bucket: &[u8]) -> bool {
    bucket.first() == Some(&0)
}

/// Bytes of an object's ledger key before its key.
pub(crate) fn object_prefix_len(bucket: &[u8]) -> usize {
    bucket.len() + bucket.iter().filter(|byte| is_special(**byte)).count() + 1
}

/// The ledger key of an object.
pub(crate) fn object(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(bucket.len() + key.len() + 1);
    push_escaped(&mut to, bucket);
    to.extend_from_slice(key);
    to
}

/// What `ask` says of the ledger key of an object, which lies on the stack if it is as short and plain as usual: to allocate it
/// would be a tenth of what a look-up costs.
pub(crate) fn with_object<T>(bucket: &[u8], key: &[u8], ask: impl FnOnce(&[u8]) -> T) -> T {
    let mut short = [0; SHORT_BYTES];
    let bytes = bucket.len() + 1 + key.len();
    if let Some(short) = short.get_mut(..bytes).filter(|_| first_special(bucket).is_none()) {
        let (to, rest) = short.split_at_mut(bucket.len());
        to.copy_from_slice(bucket);
        if let Some((_, to)) = rest.split_first_mut() {
            to.copy_from_slice(key);
        }
        return ask(short);
    }
    ask(&object(bucket, key))
}

/// The ledger key behind all objects of a bucket and before those of the next.
pub(crate) fn bucket_end(bucket: &[u8]) -> Vec<u8> {
    behind(object(bucket, &[]))
}

/// Start and end of all objects.
pub(crate) fn objects() -> (Vec<u8>, Vec<u8>) {
    (Vec::new(), vec![0xFF])
}

/// The ledger key of an object's expiry.
pub(crate) fn expiry(expires_ms: u64, bucket: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(bucket.len() + key.len() + 11);
    to.extend_from_slice(EXPIRY);
    to.extend_from_slice(&expires_ms.to_be_bytes());
    push_escaped(&mut to, bucket);
    to.extend_from_slice(key);
    to
}

/// Start and end of the expiries at or before `now_ms`.
pub(crate) fn expired(now_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let mut end = EXPIRY.to_vec();
    end.extend_from_slice(&now_ms.saturating_add(1).to_be_bytes());
    (EXPIRY.to_vec(), end)
}

/// Start and end of all index entries.
pub(crate) fn all_indexes() -> (Vec<u8>, Vec<u8>) {
    (INDEX.to_vec(), behind(INDEX.to_vec()))
}

/// What the ledger keys of one index begin with.
pub(crate) fn index_prefix(bucket: &[u8], index: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(INDEX.len() + bucket.len() + index.len() + 2);
    to.extend_from_slice(INDEX);
    push_escaped(&mut to, bucket);
    push_escaped(&mut to, index);
    to
}

/// The ledger key of an index entry; `term` is encoded as `indexes.rs` says.
pub(crate) fn index(bucket: &[u8], index: &[u8], term: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = index_prefix(bucket, index);
    push_term(&mut to, term);
    to.extend_from_slice(key);
    to
}

fn push_term(to: &mut Vec<u8>, term: &[u8]) {
    match term.split_first() {
        Some((&BINARY_TERM, bytes)) => {
            to.push(BINARY_TERM);
            push_escaped(to, bytes);
        }
        _ => to.extend_from_slice(term),
    }
}

/// Start and end of the entries of an index from one term to another, both included.
pub(crate) fn index_range(bucket: &[u8], index: &[u8], from: &Term, to: &Term) -> (Vec<u8>, Vec<u8>) {
    let at = |term: &Term| {
        let mut place = index_prefix(bucket, index);
        push_term(&mut place, &term.encode());
        place
    };
    (at(from), behind(at(to)))
}

/// How many bytes two keys begin with alike.
pub(crate) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The least ledger key behind all that begin with `prefix`, whose bytes are not all FF.
fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            break;
        }
    }
    prefix
}

/// Where the first byte is that is not simply itself: an escaped one, or the end of what was escaped.
///
/// Eight at a time, because each entry of a range is looked through: 00, 01, FE and FF are next to each other when two is
/// added to each byte, and then nothing but the lowest two bits of such a byte is set.
fn first_special(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (number, chunk) in chunks.iter().enumerate() {
        let all = u64::from_le_bytes(*chunk);
        let raised = ((all & LOW) + 0x0202_0202_0202_0202) ^ (all & !LOW);
        let high = raised & 0xFCFC_FCFC_FCFC_FCFC;
        let special = !(((high & LOW) + LOW) | high | LOW);
        if special != 0 {
            return Some(number * 8 + special.trailing_zeros() as usize / 8);
        }
    }
    let begin = bytes.len() - rest.len();
    rest.iter().position(|byte| is_special(*byte)).map(|at| begin + at)
}

fn is_special(byte: u8) -> bool {
    matches!(byte, 0x00 | 0x01 | 0xFE | 0xFF)
}

/// How long the term of an index entry is, at the beginning of its place, if it is there as `indexes.rs` encodes it: if
/// nothing in it was escaped. Behind a binary term there is 00, then the key; behind an integer the key at once.
pub(crate) fn index_term_bytes(place: &[u8]) -> Option<usize> {
    match *place.first()? {
        BINARY_TERM => first_special(place).filter(|special| place.get(*special) == Some(&0x00)),
        INTEGER_TERM => Some(INTEGER_TERM_BYTES).filter(|bytes| *bytes <= place.len()),
        _ => None,
    }
}

/// The binary term of an index entry's place, in which something was escaped, and its key.
pub(crate) fn split_escaped_index(place: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_escaped(place.strip_prefix(&[BINARY_TERM])?)
}

/// Bucket and key of an object's ledger key.
pub(crate) fn split_object(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if ledger_key.first() == Some(&0xFF) { None } else { split_escaped(ledger_key) }
}

/// Bucket and key of an expiry's ledger key.
pub(crate) fn split_expiry(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_escaped(ledger_key.strip_prefix(EXPIRY)?.get(8..)?)
}

/// What was escaped at the start, and what follows it.
fn split_escaped(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0x00)?;
    let (escaped, rest) = bytes.split_at_checked(end)?;
    let mut plain = Vec::with_capacity(end);
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            0x01 => bytes.next().filter(|low| matches!(low, 1 | 2))? - 1,
            0xFE => *bytes.next().filter(|high| matches!(high, 0xFE | 0xFF))?,
            0xFF => return None,
            byte => *byte,
        });
    }
    Some((plain, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::index::IndexList;
    use crate::indexes::TermRef;

    fn edge() -> impl Strategy<Value = u8> {
        prop_oneof![Just(0), Just(1), Just(2), Just(0x61), Just(0xFD), Just(0xFE), Just(0xFF)]
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(edge(), 0..4)
    }

    fn term() -> impl Strategy<Value = Term> {
        let numbers = prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(255), Just(i64::MAX)];
        prop_oneof![numbers.prop_map(Term::Integer), word().prop_map(Term::Binary)]
    }

    proptest::proptest! {
        #[test]
        fn ledger_order_is_bucket_then_key_order(a in (word(), word()), b in (word(), word())) {
            let (left, right) = (object(&a.0, &a.1), object(&b.0, &b.1));
            assert_eq!(left.cmp(&right), a.cmp(&b));
            assert_eq!(&left[object_prefix_len(&a.0)..], a.1.as_slice());
            assert_eq!(split_object(&left), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(split_expiry(&expiry(7, &a.0, &a.1)), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(right < bucket_end(&a.0), b.0 <= a.0);
            assert!(left < objects().1 && expiry(7, &a.0, &a.1) > objects().1);
            assert_eq!(with_object(&a.0, &a.1, <[u8]>::to_vec), left);
            let long = a.1.repeat(60);
            assert_eq!(with_object(&a.0, &long, <[u8]>::to_vec), object(&a.0, &long));
        }

        #[test]
        fn index_entries_are_in_order_of_bucket_index_term_and_key(
            a in (word(), word(), term(), word()), b in (word(), word(), term(), word()),
        ) {
            let place = |(bucket, name, term, key): &(Vec<u8>, Vec<u8>, Term, Vec<u8>)| {
                index(bucket, name, &term.encode(), key)
            };
            assert_eq!(place(&a).cmp(&place(&b)), a.cmp(&b));
            let (mut taken, mut pushed) = (IndexList::default(), IndexList::default());
            for entry in [&b, &a] {
                taken.push_place(&place(entry)[index_prefix(&entry.0, &entry.1).len()..]).unwrap();
                pushed.push(TermRef::from(&entry.2), &entry.3);
            }
            assert_eq!(taken.last(), Some((TermRef::from(&a.2), a.3.as_slice())));
            assert_eq!(taken, pushed);
        }

        #[test]
        fn a_range_of_terms_holds_just_the_terms_in_it(a in term(), from in term(), to in term(), key in word()) {
            let (start, end) = index_range(b"b", b"i", &from, &to);
            let place = index(b"b", b"i", &a.encode(), &key);
            assert_eq!(place >= start && place < end, a >= from && a <= to);
        }

        #[test]
        fn the_first_special_byte_is_found(bytes in proptest::collection::vec(prop_oneof![1 => edge(), 8 => 2u8..=0xFD], 0..40)) {
            assert_eq!(first_special(&bytes), bytes.iter().position(|byte| is_special(*byte)), "{bytes:?}");
        }

        #[test]
        fn a_garbage_index_entry_splits_without_harm(bytes in proptest::collection::vec(edge(), 0..20)) {
            let mut list = IndexList::default();
            if list.push_place(&bytes).is_err() {
                assert_eq!(list, IndexList::default());
            }
        }

        /// The story: FF within a bucket decoded as if it had been escaped, so two keys stood for one object.
        #[test]
        fn garbage_decodes_to_nothing_or_to_itself(bytes in proptest::collection::vec(edge(), 0..8)) {
            if let Some((bucket, key)) = split_object(&bytes) {
                assert_eq!(object(&bucket, key), bytes);
            }
            let bytes = [EXPIRY, &7u64.to_be_bytes(), &bytes].concat();
            if let Some((bucket, key)) = split_expiry(&bytes) {
                assert_eq!(expiry(7, &bucket, key), bytes);
            }
        }
    }
}
