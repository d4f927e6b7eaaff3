//! Replies as values, and error replies as errors of the facade.
//!
//! May use: `wire`, the facade. Must not know: sockets, commands.

use std::borrow::Cow;

use holdfast::{Error, ErrorKind, Position, Result};

use super::wire::Reply;

/// What a reply of another shape is; what is in it may be a secret.
pub(crate) fn strange(reply: &Reply) -> Error {
    let shape = match reply {
        Reply::Null => "nothing".to_owned(),
        Reply::Bool(_) => "a boolean".to_owned(),
        Reply::Integer(_) => "an integer".to_owned(),
        Reply::Double(_) => "a number".to_owned(),
        Reply::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Reply::Error(_) => "an error".to_owned(),
        Reply::List(items) => format!("a list of {}", items.len()),
        Reply::Map(pairs) => format!("a map of {}", pairs.len()),
        Reply::Push => "news".to_owned(),
    };
    let text = format!("the server answered what this client does not understand, {shape}: are both of one version?");
    Error::new(ErrorKind::Invalid, text)
}

/// The error that an error reply says.
pub(crate) fn error(text: &str) -> Error {
    let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
    let kind = match code {
        "CONFLICT" => ErrorKind::Conflict,
        "LIMIT" | "OOM" => ErrorKind::Limit,
        "TIMEOUT" => ErrorKind::Timeout,
        "UNAVAILABLE" | "LOADING" | "BUSY" => ErrorKind::Unavailable,
        "UNKNOWN" => ErrorKind::Unknown,
        "ABORTED" => ErrorKind::Aborted,
        "CORRUPT" => ErrorKind::Corrupt,
        "ERR" => ErrorKind::Invalid,
        "EXECABORT" => {
            // The reason stands behind, with its own code.
            let reason = rest.strip_prefix("Transaction discarded: ");
            let reason = reason.or_else(|| rest.strip_prefix("Transaction rolled back: "));
            return reason.map_or_else(|| Error::new(ErrorKind::Invalid, rest), error);
        }
        // The user may not, or the server does not know the command: the code is a part of what is to be read.
        _ => return Error::new(ErrorKind::Invalid, text),
    };
    Error::new(kind, rest)
}

impl Reply {
    /// Itself, unless it is an error.
    pub(crate) fn good(self) -> Result<Self> {
        match self {
            Self::Error(text) => Err(error(&text)),
            reply => Ok(reply),
        }
    }

    pub(crate) fn list(self) -> Result<Vec<Self>> {
        match self.good()? {
            Self::List(items) => Ok(items),
            other => Err(strange(&other)),
        }
    }

    /// The list, of just so many.
    pub(crate) fn items<const N: usize>(self) -> Result<[Self; N]> {
        let items = self.list()?;
        items.try_into().map_err(|items| strange(&Self::List(items)))
    }

    pub(crate) fn bytes(self) -> Result<Vec<u8>> {
        match self.good()? {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(strange(&other)),
        }
    }

    pub(crate) fn text(&self) -> Result<Cow<'_, str>> {
        match self {
            Self::Bytes(bytes) => Ok(String::from_utf8_lossy(bytes)),
            Self::Integer(number) => Ok(number.to_string().into()),
            Self::Error(text) => Err(error(text)),
            other => Err(strange(other)),
        }
    }

    pub(crate) fn unsigned(&self) -> Result<u64> {
        let number = match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            Self::Bytes(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
            Self::Error(text) => return Err(error(text)),
            _ => None,
        };
        number.ok_or_else(|| strange(self))
    }

    pub(crate) fn position(&self) -> Result<Position> {
        self.unsigned().map(Position::new)
    }

    /// Nothing where it is null.
    pub(crate) fn some(self) -> Result<Option<Self>> {
        match self.good()? {
            Self::Null => Ok(None),
            reply => Ok(Some(reply)),
        }
    }

    pub(crate) fn ok(self) -> Result<()> {
        match self.good()? {
            Self::Bytes(word) if word == b"OK" => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// The value of a key of a map.
    pub(crate) fn field(&self, name: &str) -> Result<&Self> {
        let Self::Map(pairs) = self else { return Err(strange(self)) };
        let is_it = |key: &Self| matches!(key, Self::Bytes(key) if key == name.as_bytes());
        pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value).ok_or_else(|| strange(self))
    }
}

#[cfg(test)]
mod tests {
    use holdfast::ErrorKind;

    use super::{Reply, error};

    #[test]
    fn each_code_is_a_kind_and_the_text_stays() {
        for (text, kind, said) in [
            ("CONFLICT the entry is there", ErrorKind::Conflict, "the entry is there"),
            ("ERR no such type", ErrorKind::Invalid, "no such type"),
            ("LIMIT the type is full", ErrorKind::Limit, "the type is full"),
            ("NOPERM this user may not", ErrorKind::Invalid, "NOPERM this user may not"),
            ("EXECABORT Transaction discarded: CONFLICT it is locked", ErrorKind::Conflict, "it is locked"),
            (
                "EXECABORT Transaction discarded because of previous errors.",
                ErrorKind::Invalid,
                "Transaction discarded because of previous errors.",
            ),
            ("UNAVAILABLE the disk is full", ErrorKind::Unavailable, "the disk is full"),
        ] {
            let error = error(text);
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, said));
        }
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_that_says_which_and_not_what() {
        let refused = Reply::Bytes(b"secret".to_vec()).list().unwrap_err().to_string();
        assert!(refused.contains("does not understand, 6 bytes") && !refused.contains("secret"), "{refused}");
        assert!(Reply::List(vec![Reply::Null]).items::<2>().is_err());
        assert!(Reply::Integer(-1).unsigned().is_err());
    }
}
