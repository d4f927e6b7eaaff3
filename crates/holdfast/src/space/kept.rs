//! What the store keeps of a listener by name: an object's key and value.
//!
//! Key: the type's number, 4 bytes, the greater first, and the name in UTF-8. Value, as text with one space between: the version `1`, the
//! bookmark, and the bytes of journal that may lie behind it, such as `1 4096.2 1073741824`.
//!
//! May use: bookmarks. Must not know: where it is kept.

use ::space::TypeId;

use super::notify::Bookmark;

/// Where a listener stands, and what it may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kept {
    pub(crate) bookmark: Bookmark,
    pub(crate) retain_bytes: u64,
}

impl Kept {
    pub(crate) fn encode(self) -> String {
        format!("1 {} {}", self.bookmark, self.retain_bytes)
    }

    /// `None` when it is damaged.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let ("1", bookmark, retain) = (words.next()?, words.next()?, words.next()?) else { return None };
        let kept = Self { bookmark: bookmark.parse().ok()?, retain_bytes: retain.parse().ok()? };
        words.next().is_none().then_some(kept)
    }
}

pub(crate) fn key_of(of: TypeId, name: &str) -> Vec<u8> {
    [&of.0.to_be_bytes(), name.as_bytes()].concat()
}

/// The type and the name of a key; `None` when it is no such key.
pub(crate) fn split_key(key: &[u8]) -> Option<(TypeId, &str)> {
    let (of, name) = key.split_first_chunk::<4>()?;
    Some((TypeId(u32::from_be_bytes(*of)), std::str::from_utf8(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stores of earlier versions have on their disks.
    #[test]
    fn what_is_kept_has_these_bytes_and_reads_back() {
        let kept = Kept { bookmark: "4096.2".parse().unwrap(), retain_bytes: 1 << 30 };
        assert_eq!(kept.encode(), "1 4096.2 1073741824");
        assert_eq!(Kept::decode(b"1 4096.2 1073741824"), Some(kept));
        assert_eq!(key_of(TypeId(258), "mailer"), *b"\0\0\x01\x02mailer");
        assert_eq!(split_key(b"\0\0\x01\x02mailer"), Some((TypeId(258), "mailer")));
    }

    #[test]
    fn nothing_else_does() {
        for odd in ["", "1", "1 4096.2", "2 4096.2 7", "1 4096 7", "1 4096.2 x", "1 4096.2 7 8", "1 4096.2  7"] {
            assert_eq!(Kept::decode(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(Kept::decode(b"1 4096.2 \xff"), None);
        assert_eq!((split_key(b"\0\0\0"), split_key(b"\0\0\0\x01\xff")), (None, None));
    }
}
