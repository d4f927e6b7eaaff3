//! Keys of the ledger. This comment is the format's specification.
//!
//! Format: docs/formats/kv.md
//!
//!   object    'o' | bucket, escaped | 00 00 | key
//!   expiry    'x' | expires 8, big-endian | bucket, escaped | 00 00 | key      (no value)
//!   summary   's'                                                              (see `engine.rs`)
//!
//! Escaped: each byte 00 of the bucket becomes 00 01. So ledger order is bucket order, then key order, and no bucket's
//! keys mix with another's.
//!
//! May use: nothing. Must not know: values.

pub(crate) const SUMMARY: &[u8] = b"s";
const OBJECT: u8 = b'o';
const EXPIRY: u8 = b'x';

fn push_bucket(to: &mut Vec<u8>, bucket: &[u8]) {
    for byte in bucket {
        to.push(*byte);
        if *byte == 0 {
            to.push(1);
        }
    }
    to.extend_from_slice(&[0, 0]);
}

/// The ledger key of an object.
pub(crate) fn object(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(bucket.len() + key.len() + 3);
    to.push(OBJECT);
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
    (vec![OBJECT], vec![OBJECT + 1])
}

/// The ledger key of an object's expiry.
pub(crate) fn expiry(expires_ms: u64, bucket: &[u8], key: &[u8]) -> Vec<u8> {
    let mut to = Vec::with_capacity(bucket.len() + key.len() + 11);
    to.push(EXPIRY);
    to.extend_from_slice(&expires_ms.to_be_bytes());
    push_bucket(&mut to, bucket);
    to.extend_from_slice(key);
    to
}

/// Start and end of the expiries at or before `now_ms`.
pub(crate) fn expired(now_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let mut end = vec![EXPIRY];
    end.extend_from_slice(&now_ms.saturating_add(1).to_be_bytes());
    (vec![EXPIRY], end)
}

/// Bucket and key of an object's ledger key.
pub(crate) fn split_object(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_bucket(ledger_key.strip_prefix(&[OBJECT])?)
}

/// Bucket and key of an expiry's ledger key.
pub(crate) fn split_expiry(ledger_key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    split_bucket(ledger_key.strip_prefix(&[EXPIRY])?.get(8..)?)
}

fn split_bucket(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut bucket = Vec::new();
    loop {
        let zero = rest.iter().position(|byte| *byte == 0)?;
        bucket.extend_from_slice(rest.get(..zero)?);
        let after = rest.get(zero + 2..)?;
        match rest.get(zero + 1)? {
            0 => return Some((bucket, after)),
            1 => bucket.push(0),
            _ => return None,
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn ledger_order_is_bucket_then_key_order(
            a in (proptest::collection::vec(0u8..3, 0..4), proptest::collection::vec(0u8..3, 0..4)),
            b in (proptest::collection::vec(0u8..3, 0..4), proptest::collection::vec(0u8..3, 0..4)),
        ) {
            let (left, right) = (object(&a.0, &a.1), object(&b.0, &b.1));
            assert_eq!(left.cmp(&right), a.cmp(&b));
            assert_eq!(split_object(&left), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(split_expiry(&expiry(7, &a.0, &a.1)), Some((a.0.clone(), a.1.as_slice())));
            assert_eq!(right < bucket_end(&a.0), b.0 <= a.0);
        }
    }
}
