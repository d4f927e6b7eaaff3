//! Keys of the ledger. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//!   object    bucket, escaped | 00 | key
//!   expiry    FF 'x' | expires 8, big-endian | bucket, escaped | 00 | key      (no value)
//!   summary   FF 's'                                                           (see `summary.rs`)
//!
//! Escaped: of the bucket's bytes 00 becomes 01 01, 01 becomes 01 02, FE becomes FE FE and FF becomes FE FF. So ledger
//! order is bucket order, then key order, no bucket's keys mix with another's, and no object's key starts with FF.
//! Usual names cost one byte beside bucket and key: the ledger's memory holds keys up to 20 bytes without a pointer, and
//! following pointers is what a search there costs.
//!
//! May use: nothing. Must not know: values.

pub(crate) const SUMMARY: &[u8] = b"\xFFs";
const EXPIRY: &[u8] = b"\xFFx";

fn push_bucket(to: &mut Vec<u8>, bucket: &[u8]) {
    for byte in bucket {
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

/// The ledger key of an object.
pub(crate) fn object(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(bucket.len() + key.len() + 1);
    push_bucket(&mut to, bucket);
    to.extend_from_slice(key);
    to
}

/// The ledger key behind all objects of a bucket and before those of the next.
pub(crate) fn bucket_end(bucket: &[u8]) -> Vec<u8> {
    let mut to = object(bucket, &[]);
    if let Some(last) = to.last_mut() {
        *last = 1;
    }
    to
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
    push_bucket(&mut to, bucket);
    to.extend_from_slice(key);
    to
}

/// Start and end of the expiries at or before `now_ms`.
pub(crate) fn expired(now_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let mut end = EXPIRY.to_vec();
    end.extend_from_slice(&now_ms.saturating_add(1).to_be_bytes());
    (EXPIRY.to_vec(), end)
}

/// Bucket and key of an object's ledger key.
pub(crate) fn split_object(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if ledger_key.first() == Some(&0xFF) { None } else { split_bucket(ledger_key) }
}

/// Bucket and key of an expiry's ledger key.
pub(crate) fn split_expiry(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_bucket(ledger_key.strip_prefix(EXPIRY)?.get(8..)?)
}

fn split_bucket(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let end = ledger_key.iter().position(|byte| *byte == 0x00)?;
    let (escaped, rest) = ledger_key.split_at_checked(end)?;
    let mut bucket = Vec::with_capacity(end);
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        bucket.push(match byte {
            0x01 => bytes.next().filter(|low| matches!(low, 1 | 2))? - 1,
            0xFE => *bytes.next().filter(|high| matches!(high, 0xFE | 0xFF))?,
            0xFF => return None,
            byte => *byte,
        });
    }
    Some((bucket, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edge() -> impl Strategy<Value = u8> {
        prop_oneof![Just(0), Just(1), Just(2), Just(0x61), Just(0xFD), Just(0xFE), Just(0xFF)]
    }

    proptest::proptest! {
        #[test]
        fn ledger_order_is_bucket_then_key_order(
            a in (proptest::collection::vec(edge(), 0..4), proptest::collection::vec(edge(), 0..4)),
            b in (proptest::collection::vec(edge(), 0..4), proptest::collection::vec(edge(), 0..4)),
        ) {
            let (left, right) = (object(&a.0, &a.1), object(&b.0, &b.1));
            assert_eq!(left.cmp(&right), a.cmp(&b));
            assert_eq!(split_object(&left), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(split_expiry(&expiry(7, &a.0, &a.1)), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(right < bucket_end(&a.0), b.0 <= a.0);
            assert!(left < objects().1 && expiry(7, &a.0, &a.1) > objects().1);
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
