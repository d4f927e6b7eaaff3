//! Names of transactions and of their branches. This comment is the format's specification.
//!
//! Format: docs/formats/xa.md
//!
//! A transaction's id, which is the *global transaction id* of XA (gtrid), is 36 or 44 bytes, integers big-endian:
//!   version 1 (1) | flags 1 | deadline 6 | coordinator 8 | owner 8 | sequence 8 | (last resource 8) | crc32c 4
//!
//! Flag 1 says that several programs take part, flag 2 that a last resource may decide, whose number follows then; never
//! both. The deadline is in milliseconds since 1970-01-01 UTC, 0 for none: whoever
//! meets the id in a resource manager's list can tell from it alone when nobody will commit it any more. The CRC32C is of
//! the bytes before it, so that an id which went through headers, logs and hands is known to be whole.
//!
//! The owner is the number of one run of one program, given out by the coordinator and never again; it counts its
//! transactions by itself, so that no message is needed to begin one.
//!
//! A *branch qualifier* (bqual) is the branch's name: 1 to 64 bytes of `a-z A-Z 0-9 _ - .`, chosen by the profile for each
//! resource manager. The format id of an XID is "HFXA" as a number.
//!
//! As text a transaction's id is `hfxa1.` and 48 or 59 characters of base64url (RFC 4648, without padding); a branch is that,
//! a dot and its name, at most 130 characters: short enough for PostgreSQL's 200.
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
const FLAG_LAST_RESOURCE: u8 = 2;
const ID_BYTES: usize = 36;
const ID_BYTES_MAX: usize = 44;
const SUM_BYTES: usize = 4;
const TEXT_START: &str = "hfxa1.";
/// Characters of an id of [`ID_BYTES`], and of one of [`ID_BYTES_MAX`].
const TEXT_BYTES: [usize; 2] = [48, 59];
const DEADLINE_MAX: u64 = (1 << 48) - 1;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Which coordinator decides: fixed for the life of a store, and different for every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorId(pub u64);

/// One run of one program that owns transactions. A coordinator gives each number out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u64);

/// A place where a resource manager keeps decisions of its own: fixed for the life of that place, and different for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastResourceId(pub u64);

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
    /// The resource manager that may decide in the place of the coordinator, by committing its own branch, in one phase, when
    /// all others are prepared. Not of a shared transaction.
    pub last_resource: Option<LastResourceId>,
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
    pub fn to_bytes(self) -> Vec<u8> {
        assert!(self.deadline_ms <= DEADLINE_MAX, "a deadline has 48 bits");
        assert!(!self.shared || self.last_resource.is_none(), "the coordinator decides about shared transactions");
        let mut to = Vec::with_capacity(ID_BYTES_MAX);
        let flags = if self.shared { FLAG_SHARED } else { 0 };
        to.extend([VERSION, flags | self.last_resource.map_or(0, |_| FLAG_LAST_RESOURCE)]);
        to.extend_from_slice(self.deadline_ms.to_be_bytes().split_at(2).1);
        let numbers = [self.coordinator.0, self.owner.0, self.sequence];
        for number in numbers.into_iter().chain(self.last_resource.map(|last| last.0)) {
            to.extend_from_slice(&number.to_be_bytes());
        }
        let sum = crc32c(&to);
        to.extend_from_slice(&sum.to_be_bytes());
        to
    }

    /// Reads a global transaction id.
    ///
    /// # Errors
    /// When a coordinator of Holdfast did not make it, or it was changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedId> {
        if bytes.len() != ID_BYTES && bytes.len() != ID_BYTES_MAX {
            return Err(MalformedId("a transaction's id has 36 or 44 bytes"));
        }
        let (body, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        if crc32c(body).to_be_bytes() != sum {
            return Err(MalformedId("the id's checksum is wrong: it was changed or cut on its way"));
        }
        let number = |at: usize| -> u64 {
            let field = body.get(at..at + 8).and_then(|field| field.try_into().ok());
            u64::from_be_bytes(field.expect("the body has 32 bytes, or 40 with a last resource"))
        };
        let head = number(0);
        let [version, flags, ..] = head.to_be_bytes();
        let has_last = bytes.len() == ID_BYTES_MAX;
        let is_known = if has_last { flags == FLAG_LAST_RESOURCE } else { flags & !FLAG_SHARED == 0 };
        if version != VERSION || !is_known {
            return Err(MalformedId("the id is of a version that this program does not know"));
        }
        Ok(Self {
            coordinator: CoordinatorId(number(8)),
            owner: OwnerId(number(16)),
            sequence: number(24),
            deadline_ms: head & DEADLINE_MAX,
            shared: flags == FLAG_SHARED,
            last_resource: has_last.then(|| LastResourceId(number(32))),
        })
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, longest] = TEXT_BYTES;
        let mut text = String::with_capacity(TEXT_START.len() + longest);
        text.push_str(TEXT_START);
        for group in self.to_bytes().chunks(3) {
            let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for shift in [18, 12, 6, 0].into_iter().take(group.len() + 1) {
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
        if !TEXT_BYTES.contains(&digits.len()) {
            return Err(MalformedId("a transaction's id has 48 or 59 characters behind `hfxa1.`"));
        }
        let mut bytes = Vec::with_capacity(ID_BYTES_MAX + 1);
        for group in digits.as_bytes().chunks(4) {
            let mut bits = 0_u32;
            for digit in group {
                bits = bits << 6 | value_of(*digit).ok_or(MalformedId("an id is made of base64url characters"))?;
            }
            let [_, all @ ..] = (bits << (6 * (4 - group.len()))).to_be_bytes();
            let (whole, rest) = all.split_at(group.len() - 1);
            if rest.iter().any(|byte| *byte != 0) {
                return Err(MalformedId("the id's last character was changed on its way"));
            }
            bytes.extend_from_slice(whole);
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
        let incomplete = MalformedId("a branch is a transaction's id, a dot and the branch's name");
        let digits = text.strip_prefix(TEXT_START).ok_or(incomplete)?;
        // No digit is a dot; a name may have some.
        let end = TEXT_START.len() + digits.find('.').ok_or(incomplete)?;
        let (transaction, branch) = text.split_at_checked(end).ok_or(incomplete)?;
        let branch = branch.strip_prefix('.').ok_or(incomplete)?;
        Ok(Self { transaction: transaction.parse()?, branch: BranchName::new(branch)? })
    }
}

#[cfg(test)]
mod tests {
    use super::{BranchName, CoordinatorId, FORMAT_ID, LastResourceId, OwnerId, TransactionId, Xid};
    use proptest::prelude::*;

    fn any_id() -> impl Strategy<Value = TransactionId> {
        let last = any::<Option<u64>>();
        (any::<u64>(), any::<u64>(), any::<u64>(), 0..1_u64 << 48, any::<bool>(), last).prop_map(
            |(coordinator, owner, sequence, deadline_ms, shared, last)| TransactionId {
                coordinator: CoordinatorId(coordinator),
                owner: OwnerId(owner),
                sequence,
                deadline_ms,
                shared: shared && last.is_none(),
                last_resource: last.map(LastResourceId),
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
            prop_assert!(branch.to_string().len() <= 130);
            prop_assert_eq!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), name.as_bytes()), Some(branch));
        }

        #[test]
        fn a_changed_character_is_refused(id in any_id(), at in 0..65_usize, to in "[a-zA-Z0-9_.-]") {
            let mut text = id.to_string();
            let at = at % text.len();
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
            last_resource: None,
        };
        assert!(Xid::of_parts(0, &id.to_bytes(), b"pg").is_none());
        assert!(Xid::of_parts(FORMAT_ID, b"something else", b"pg").is_none());
        assert!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), b"p g").is_none());
        assert!(Xid::of_parts(FORMAT_ID, &id.to_bytes(), b"").is_none());
    }
}
