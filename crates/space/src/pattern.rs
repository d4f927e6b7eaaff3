//! What LIKE and RLIKE look for in text.
//!
//! May use: `regex`. Must not know: paths, documents.

use regex::{Regex, RegexBuilder};

use crate::error::{Error, Result, invalid};

/// How long a pattern may be.
pub const PATTERN_BYTES_MAX: usize = 16 << 10;

/// How large a compiled expression may grow; `regex` itself answers in linear time.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// It does not tell how large one is, only that it is larger than it may be: so this is tried first. What is tried in vain costs no more
/// than its size, a third of the last at most.
const REGEX_BYTES: [usize; 4] = [8 << 10, 64 << 10, 256 << 10, REGEX_BYTES_MAX];

/// A pattern for the whole of a text: `%` stands for any text, `_` for one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Like {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    One,
    Many,
}

/// A regular expression, found anywhere in a text.
#[derive(Debug, Clone)]
pub struct RLike {
    regex: Regex,
    /// What it takes of memory at most, until it is matched.
    bytes: usize,
}

impl PartialEq for RLike {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
    }
}

impl Like {
    /// A pattern in which the character behind `escape` stands for itself. As in the standard there is no escape unless
    /// one is named.
    ///
    /// # Errors
    /// `Invalid` when the escape stands before what needs none, `Limit` when the pattern is too long.
    pub fn new(pattern: &str, escape: Option<char>) -> Result<Self> {
        check_length(pattern)?;
        let (mut pieces, mut text) = (Vec::new(), String::new());
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if Some(letter) == escape {
                match letters.next() {
                    Some(letter) if matches!(letter, '%' | '_') || Some(letter) == escape => text.push(letter),
                    _ => {
                        return invalid(format!(
                            "in LIKE '{pattern}' the escape {letter} must stand before %, _ or itself"
                        ));
                    }
                }
                continue;
            }
            let piece = match letter {
                '%' => Piece::Many,
                '_' => Piece::One,
                letter => {
                    text.push(letter);
                    continue;
                }
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text).into()));
            }
            if piece != Piece::Many || pieces.last() != Some(&Piece::Many) {
                pieces.push(piece);
            }
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        Ok(Self { pieces })
    }

    /// Whether it matches the whole of a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let (mut pieces, mut rest) = (self.pieces.as_slice(), text);
        // What is behind the last % and where it was tried last: only that needs to be tried again further on, because an
        // earlier % cannot do better with less text left.
        let mut again: Option<(&[Piece], &str)> = None;
        loop {
            let step = match pieces.split_first() {
                None => rest.is_empty().then_some(rest),
                Some((Piece::Many, [])) => return true,
                Some((Piece::Many, behind)) => {
                    pieces = behind;
                    again = Some((behind, rest));
                    match behind.first() {
                        Some(Piece::Text(wanted)) => match rest.find(&**wanted).and_then(|at| rest.get(at..)) {
                            None => return false,
                            Some(found) => {
                                again = Some((behind, found));
                                rest = found;
                                continue;
                            }
                        },
                        _ => continue,
                    }
                }
                Some((Piece::One, _)) => without_first(rest),
                Some((Piece::Text(wanted), _)) => rest.strip_prefix(&**wanted),
            };
            match (step, pieces.split_first()) {
                (Some(_), None) => return true,
                (Some(behind), Some((_, more))) => (pieces, rest) = (more, behind),
                (None, _) => {
                    let Some((behind, tried)) = again else { return false };
                    let Some(next) = without_first(tried) else { return false };
                    (pieces, rest, again) = (behind, next, Some((behind, next)));
                }
            }
        }
    }

    /// The text that all matches begin with.
    pub(crate) fn prefix(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// What it takes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let of = |piece: &Piece| if let Piece::Text(text) = piece { text.len() } else { 0 };
        self.pieces.iter().map(|piece| size_of::<Piece>() + of(piece)).sum()
    }

    /// Whether it matches its prefix alone.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.pieces.as_slice(), [] | [Piece::Text(_)])
    }
}

impl RLike {
    /// A compiled expression.
    ///
    /// # Errors
    /// `Invalid` when it is none, or grows too large; `Limit` when it is too long.
    pub fn new(pattern: &str) -> Result<Self> {
        check_length(pattern)?;
        let mut builder = RegexBuilder::new(pattern);
        let mut sizes = REGEX_BYTES.into_iter();
        let built = loop {
            let bytes = sizes.next().unwrap_or(REGEX_BYTES_MAX);
            match builder.size_limit(bytes).dfa_size_limit(REGEX_BYTES_MAX).build() {
                Err(regex::Error::CompiledTooBig(_)) if bytes < REGEX_BYTES_MAX => {}
                // There is one program for each direction.
                built => break built.map(|regex| Self { regex, bytes: 2 * bytes }),
            }
        };
        built.or_else(|error| invalid(format!("RLIKE '{pattern}': {error}")))
    }

    /// What it takes of memory at most, until it is matched.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is found anywhere in a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

fn without_first(text: &str) -> Option<&str> {
    let mut letters = text.chars();
    letters.next()?;
    Some(letters.as_str())
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.len() > PATTERN_BYTES_MAX {
        let (actual, limit) = (pattern.len() as u64, PATTERN_BYTES_MAX as u64);
        return Err(Error::Limit { what: "length of a pattern", actual, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn like_matches_the_whole_text() {
        let table = [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("%", "abc", true),
            ("a%", "abc", true),
            ("a%", "ba", false),
            ("%c", "abc", true),
            ("%c", "abcd", false),
            ("%b%", "abc", true),
            ("a_c", "abc", true),
            ("a_c", "aéc", true),
            ("a_c", "ac", false),
            ("_", "", false),
            ("__", "é", false),
            ("%_", "", false),
            ("%_", "é", true),
            ("%ab%ab", "abab", true),
            ("%ab%ab", "ab", false),
            ("%ab_d", "abcabcd", true),
            ("%aab", "aaaab", true),
            ("a!%c", "a%c", true),
            ("a!%c", "abc", false),
            ("a!!c", "a!c", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(Like::new(pattern, Some('!')).unwrap().matches(text), expected, "{pattern} {text}");
        }
        assert!(Like::new("a!b", Some('!')).is_err());
        assert!(Like::new("a!", Some('!')).is_err());
        assert!(Like::new("a!", None).unwrap().matches("a!"));
    }

    #[test]
    fn rlike_finds_anywhere_and_refuses_what_is_too_large() {
        let expression = RLike::new("b+c$").unwrap();
        assert!(expression.matches("abbc") && !expression.matches("abbcd"));
        for wrong in ["(", "a{1000}{1000}{1000}", &"a".repeat(PATTERN_BYTES_MAX + 1)] {
            assert!(RLike::new(wrong).is_err());
        }
        let bytes = |pattern: &str| RLike::new(pattern).unwrap().bytes();
        assert_eq!([bytes("abc"), bytes(r"\w{15}|a")], [16 << 10, 2 << 20]);
    }

    proptest! {
        #[test]
        fn like_is_the_expression_it_stands_for(pattern in "[ab%_é]{0,8}", text in "[abé]{0,8}") {
            let expression: String =
                pattern.chars().map(|letter| match letter { '%' => ".*".into(), '_' => ".".into(), other => other.to_string() }).collect();
            let expected = Regex::new(&format!("^(?s:{expression})$")).unwrap().is_match(&text);
            let like = Like::new(&pattern, None).unwrap();
            prop_assert_eq!(like.matches(&text), expected);
            prop_assert!(!expected || text.starts_with(like.prefix()));
        }
    }
}
