//! Names of transactions and of their branches. This comment is the format's specification.
//!
//! Format: docs/formats/xa.md
//!
//! A transaction's id, which is the *global transaction id* of XA (gtrid), is 36 bytes, integers big-endian:
//!   version 1 (1) | flags 1 | deadline 6 | coordinator 8 | owner 8 | sequence 8 | crc32c 4
//!
//! Flag 1 says that several programs take part. The deadline is in milliseconds since 1970-01-01 UTC, 0 for none: whoever
//! meets the id in a resource manager's list can tell from it alone when nobody will commit it any more. The CRC32C is of
//! the 32 bytes before it, so that an id which went through headers, logs and hands is known to be whole.
//!
//! The owner is the number of one run of one program, given out by the coordinator and never again; it counts its
//! transactions by itself, so that no message is needed to begin one.
//!
//! A *branch qualifier* (bqual) is the branch's name: 1 to 64 bytes of `a-z A-Z 0-9 _ - .`, chosen by the profile for each
//! resource manager. The format id of an XID is "HFXA" as a number.
//!
//! As text a transaction's id is `hfxa1.` and 48 characters of base64url (RFC 4648, without padding); a branch is that, a
//! dot and its name, at most 119 characters: short enough for PostgreSQL's 200.
//!
//! May use: `base` for the checksum. Must not know: who makes ids.

use std::fmt;
use std::str::FromStr;

use base::crc32c;

/// Format id of every XID that Holdfast makes.
pub const FORMAT_ID: i32 = 0x4846_5841;
/// Most bytes of a branch's name.
pub const BRANCH_BYTES_MAX: usize = 64;

const VERSION: u8 = 1;
const FLAG_SHARED: u8 = 1;
const ID_BYTES: usize = 36;
const SUM_AT: usize = 32;
const TEXT_START: &str = "hfxa1.";
const TEXT_BYTES: usize = 48;
const DEADLINE_MAX: u64 = (1 << 48) - 1;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Which coordinator decides: fixed for the life of a store, and different for every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorId(pub u64);

/// One run of one program that owns transactions. A coordinator gives each number out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// The name of a transaction, the same at everybody who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// Who decides.
    pub coordinator: CoordinatorId,
    /// Whose transaction it is.
    pub owner: OwnerId,
    /// Counted by the owner.
    pub sequence: u64,
    /// When nobody may commit it any more, in milliseconds since 1970; 0 for never. Below 2^48.
    pub deadline_ms: u64,
    /// Whether several programs take part.
    pub shared: bool,
}

/// The name of a branch within its transaction: a resource manager's, from the profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName(String);

/// A transaction's branch, as resource managers know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    /// The transaction.
    pub transaction: TransactionId,
    /// The branch.
    pub branch: BranchName,
}

/// Bytes or text that no coordinator made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedId(&'static str);

impl TransactionId {
    /// The global transaction id.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ID_BYTES] {
        assert!(self.deadline_ms <= DEADLINE_MAX, "a deadline has 48 bits");
        let mut to = Vec::with_capacity(ID_BYTES);
        to.extend([VERSION, if self.shared { FLAG_SHARED } else { 0 }]);
        to.extend_from_slice(self.deadline_ms.to_be_bytes().split_at(2).1);
        for number in [self.coordinator.0, self.owner.0, self.sequence] {
            to.extend_from_slice(&number.to_be_bytes());
        }
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_be_bytes());
        to.try_into().expect("version, flags, deadline, three numbers and a checksum are 36 bytes")
    }

    /// Reads a global transaction id.
    ///
    /// # Errors
    /// When a coordinator of Holdfast did not make it, or it was changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedId> {
        let bytes: &[u8; ID_BYTES] = bytes.try_into().map_err(|_| MalformedId("a transaction's id has 36 bytes"))?;
        let (body, sum) = bytes.split_at(SUM_AT);
        if crc32c(body).to_be_bytes() != sum {
            return Err(MalformedId("the id's checksum is wrong: it was changed or cut on its way"));
        }
        let number = |at: usize| -> u64 {
            let field = body.get(at..at + 8).and_then(|field| field.try_into().ok());
            u64::from_be_bytes(field.expect("the body has 32 bytes"))
        };
        let head = number(0);
        let [version, flags, ..] = head.to_be_bytes();
        if version != VERSION || flags & !FLAG_SHARED != 0 {
            return Err(MalformedId("the id is of a version that this program does not know"));
        }
        Ok(Self {
            coordinator: CoordinatorId(number(8)),
            owner: OwnerId(number(16)),
            sequence: number(24),
            deadline_ms: head & DEADLINE_MAX,
            shared: flags == FLAG_SHARED,
        })
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(TEXT_START.len() + TEXT_BYTES);
        text.push_str(TEXT_START);
        // 36 bytes are 12 groups of 3, so there is never padding.
        for group in self.to_bytes().chunks_exact(3) {
            let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            for shift in [18, 12, 6, 0] {
                let digit = ALPHABET.get((bits >> shift & 63) as usize).expect("six bits index 64 characters");
                text.push(char::from(*digit));
            }
        }
        f.write_str(&text)
    }
}

impl FromStr for TransactionId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let digits = text.strip_prefix(TEXT_START).ok_or(MalformedId("a transaction's id begins with `hfxa1.`"))?;
        if digits.len() != TEXT_BYTES {
            return Err(MalformedId("a transaction's id has 48 characters behind `hfxa1.`"));
        }
        let mut bytes = Vec::with_capacity(ID_BYTES);
        for group in digits.as_bytes().chunks_exact(4) {
            let mut bits = 0_u32;
            for digit in group {
                bits = bits << 6 | value_of(*digit).ok_or(MalformedId("an id is made of base64url characters"))?;
            }
            bytes.extend_from_slice(bits.to_be_bytes().split_at(1).1);
        }
        Self::from_bytes(&bytes)
    }
}

/// The six bits of a character. Looking for it in the alphabet took half a microsecond for each id.
const fn value_of(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    } as u32)
}

impl BranchName {
    /// A name.
    ///
    /// # Errors
    /// When it is empty, longer than 64 bytes, or has a character that is not one of `a-z A-Z 0-9 _ - .`.
    pub fn new(name: &str) -> Result<Self, MalformedId> {
        if name.is_empty() || name.len() > BRANCH_BYTES_MAX {
            return Err(MalformedId("a branch's name has 1 to 64 bytes"));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
            return Err(MalformedId("a branch's name is made of a-z A-Z 0-9 _ - ."));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Xid {
    /// The branch of a format id, a global transaction id and a branch qualifier; `None` for a foreign one.
    #[must_use]
    pub fn of_parts(format: i32, gtrid: &[u8], bqual: &[u8]) -> Option<Self> {
        let branch = BranchName::new(std::str::from_utf8(bqual).ok()?).ok()?;
        let transaction = TransactionId::from_bytes(gtrid).ok()?;
        (format == FORMAT_ID).then_some(Self { transaction, branch })
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.transaction, self.branch)
    }
}

impl FromStr for Xid {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let (transaction, rest) = text
            .split_at_checked(TEXT_START.len() + TEXT_BYTES)
            .ok_or(MalformedId("a branch is a transaction's id, a dot and the branch's name"))?;
        let branch = rest.strip_prefix('.').ok_or(MalformedId("a dot stands between id and branch"))?;
        Ok(Self { transaction: transaction.parse()?, branch: BranchName::new(branch)? })
    }
}

#[cfg(test)]
mod tests {
    use super::{BranchName, CoordinatorId, FORMAT_ID, OwnerId, TransactionId, Xid};
    use proptest::prelude::*;

    fn any_id() -> impl Strategy<Value = TransactionId> {
        (any::<u64>(), any::<u64>(), any::<u64>(), 0..1_u64 << 48, any::<bool>()).prop_map(
            |(coordinator, owner, sequence, deadline_ms, shared)| TransactionId {
                coordinator: CoordinatorId(coordinator),
                owner: OwnerId(owner),
                sequence,
                deadline_ms,
                shared,
            },
        )
    }

    proptest! {
        #[test]
        fn ids_round_trip_as_bytes_and_as_text(id in any_id(), name in "[a-zA-Z0-9_.-]{1,64}") {
            prop_assert_eq!(TransactionId::from_bytes(&id.to_bytes()), Ok(id));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let branch = Xid { transaction: id, branch: BranchName::new(&name).unwrap() };
            prop_assert_eq!(branch.to_string().parse(), Ok(branch.clone()));
            prop_assert!(branch.to_string().len() <= 119);
            prop_assert_eq!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), name.as_bytes()), Some(branch));
        }

        #[test]
        fn a_changed_character_is_refused(id in any_id(), at in 0..54_usize, to in "[a-zA-Z0-9_.-]") {
            let mut text = id.to_string();
            prop_assume!(text.get(at..=at) != Some(&to));
            text.replace_range(at..=at, &to);
            prop_assert!(text.parse::<TransactionId>().is_err());
        }

        #[test]
        fn no_bytes_and_no_text_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in ".{0,80}") {
            let _ = TransactionId::from_bytes(&bytes);
            let _ = Xid::of_parts(FORMAT_ID, &bytes, text.as_bytes());
            let _ = text.parse::<Xid>();
            let _ = format!("hfxa1.{text}").parse::<Xid>();
        }
    }

    #[test]
    fn foreign_branches_are_none() {
        let id = TransactionId {
            coordinator: CoordinatorId(1),
            owner: OwnerId(2),
            sequence: 3,
            deadline_ms: 4,
            shared: false,
        };
        assert!(Xid::of_parts(0, &id.to_bytes(), b"pg").is_none());
        assert!(Xid::of_parts(FORMAT_ID, b"something else", b"pg").is_none());
        assert!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), b"p g").is_none());
        assert!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), b"").is_none());
    }
}
