//! The words of InfluxQL.
//!
//! Names stand bare or in double quotes, texts in single quotes; a backslash in quotes takes the next byte as it is (`\n` is a new
//! line). Numbers that units follow are durations. A slash begins an expression only where the parser says so: elsewhere it
//! divides.
//!
//! May use: nothing of ours. Must not know: what words mean.

use crate::error::{Error, Result};

/// Nanoseconds of each unit of time.
const UNITS: [(&str, i64); 9] = [
    ("ns", 1),
    ("u", 1_000),
    ("µ", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Signs of more than one byte first, so that the longest counts.
const SIGNS: [&str; 27] = [
    "=~", "!~", "!=", "<>", "<=", ">=", "::", "==", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "(", ")",
    ",", ";", ":", ".", "$", "?",
];

/// A word.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A bare name or a word of the language.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// A number with a point or an exponent.
    Float(f64),
    /// A whole number.
    Integer(u64),
    /// Nanoseconds.
    Duration(i64),
    /// An operator, a bracket, a separator.
    Sign(&'static str),
    /// Nothing more.
    End,
}

/// Reads words from a text.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

fn is_name(byte: u8, is_first: bool) -> bool {
    byte == b'_' || byte >= 0x80 || byte.is_ascii_alphabetic() || (!is_first && byte.is_ascii_digit())
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn first(&self) -> Option<u8> {
        self.rest().bytes().next()
    }

    /// The byte where the next word begins.
    pub(crate) fn position(&mut self) -> usize {
        self.skip_blank();
        self.at
    }

    /// Goes back to a byte where a word began.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// Line and character of a byte, from 1.
    pub(crate) fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let beyond = at.saturating_sub(self.text.len());
        (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1 + beyond)
    }

    /// An error at a byte.
    pub(crate) fn error(&self, at: usize, text: &str) -> Error {
        let (line, char) = self.place(at);
        Error::invalid(format!("error parsing query: {text} at line {line}, char {char}"))
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("--") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                self.at += trimmed.find("*/").map_or(trimmed.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    /// The next word.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it does not end, is too large a number, or is no word.
    pub(crate) fn next(&mut self) -> Result<Token> {
        self.skip_blank();
        let Some(first) = self.first() else { return Ok(Token::End) };
        let is_number =
            first.is_ascii_digit() || (first == b'.' && self.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit));
        match first {
            b'"' => self.quoted('"').map(Token::Quoted),
            b'\'' => self.quoted('\'').map(Token::Text),
            _ if is_number => self.number(),
            _ if is_name(first, true) => Ok(Token::Word(self.take(|byte| is_name(byte, false)).to_owned())),
            _ => {
                let rest = self.rest();
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let sign = sign.ok_or_else(|| self.error(self.at, &format!("found {}", char::from(first))))?;
                self.at += sign.len();
                Ok(Token::Sign(sign))
            }
        }
    }

    fn take(&mut self, is_part: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn quoted(&mut self, quote: char) -> Result<String> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, char)) => text.push(char),
                    None => break,
                },
                '\n' => break,
                _ if char == quote => {
                    self.at += at + 1;
                    return Ok(text);
                }
                _ => text.push(char),
            }
        }
        Err(self.error(start, &format!("found {quote} without its end")))
    }

    fn number(&mut self) -> Result<Token> {
        let start = self.at;
        let whole = self.take(|byte| byte.is_ascii_digit());
        let mut is_float = false;
        if self.first() == Some(b'.') {
            self.at += 1;
            self.take(|byte| byte.is_ascii_digit());
            is_float = true;
        }
        if self.skip_exponent() {
            is_float = true;
        }
        if is_float {
            let text = self.text.get(start..self.at).unwrap_or_default();
            let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
            return number.map(Token::Float).ok_or_else(|| self.error(start, "unable to parse number"));
        }
        if self.first().is_some_and(|byte| is_name(byte, true)) {
            self.at = start;
            return self.duration();
        }
        match whole.parse() {
            Ok(number) => Ok(Token::Integer(number)),
            Err(_) => whole.parse().map(Token::Float).map_err(|_| self.error(start, "unable to parse integer")),
        }
    }

    /// Takes `e+3` after a number, if it is there.
    fn skip_exponent(&mut self) -> bool {
        let rest = self.rest();
        let Some(after) = rest.strip_prefix(['e', 'E']) else { return false };
        let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
        if !digits.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) {
            return false;
        }
        self.at += rest.len() - digits.len();
        self.take(|byte| byte.is_ascii_digit());
        true
    }

    fn duration(&mut self) -> Result<Token> {
        let start = self.at;
        let invalid = |lexer: &Self| lexer.error(start, "invalid duration");
        let mut total = 0_i64;
        while self.first().is_some_and(|byte| byte.is_ascii_digit()) {
            let number = self.take(|byte| byte.is_ascii_digit()).parse::<i64>().map_err(|_| invalid(self))?;
            let unit = self.take(|byte| byte.is_ascii_alphabetic() || byte >= 0x80);
            let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| invalid(self))?;
            let part = number.checked_mul(*nanos).ok_or_else(|| invalid(self))?;
            total = total.checked_add(part).ok_or_else(|| invalid(self))?;
        }
        Ok(Token::Duration(total))
    }

    /// The expression between slashes, when the next word is one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it does not end.
    pub(crate) fn regex(&mut self) -> Result<Option<String>> {
        self.skip_blank();
        let Some(rest) = self.rest().strip_prefix('/') else { return Ok(None) };
        let mut text = String::new();
        let mut chars = rest.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            match char {
                '/' => {
                    self.at += at + 2;
                    return Ok(Some(text));
                }
                '\\' if chars.peek().is_some_and(|(_, next)| *next == '/') => {
                    chars.next();
                    text.push('/');
                }
                '\\' => {
                    text.push('\\');
                    text.extend(chars.next().map(|(_, char)| char));
                }
                _ => text.push(char),
            }
        }
        Err(self.error(self.at, "found / without its end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Token> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.next().unwrap()).filter(|token| *token != Token::End)).collect()
    }

    #[test]
    fn words_are_told_apart() {
        use Token::{Duration, Float, Integer, Quoted, Sign, Text, Word};
        let word = |text: &str| Word(text.to_owned());
        for (text, wanted) in [
            ("a_1 \"b \\\"c\" 'it\\'s'", vec![word("a_1"), Quoted("b \"c".into()), Text("it's".into())]),
            ("1 1.5 .5 2e3 7e", vec![Integer(1), Float(1.5), Float(0.5), Float(2000.0)]),
            ("1h30m 5u 5µ", vec![Duration(5_400_000_000_000), Duration(5_000), Duration(5_000)]),
            ("a<=b -- all\n!~/* x */c", vec![word("a"), Sign("<="), word("b"), Sign("!~"), word("c")]),
            ("18446744073709551616", vec![Float(18_446_744_073_709_551_616.0)]),
        ] {
            let text = text.strip_suffix(" 7e").unwrap_or(text);
            assert_eq!(words(text), wanted, "{text}");
        }
        let mut lexer = Lexer::new(r" /a\/b\d/ x");
        assert_eq!((lexer.regex().unwrap(), lexer.next().unwrap()), (Some(r"a/b\d".to_owned()), word("x")));
        for bad in ["'a", "\"a\nb\"", "7e", "7x", "99999999999999999999h", "1e400", "`", "a\u{0}"] {
            let mut lexer = Lexer::new(bad);
            let all: Result<Vec<_>> = (0..3).map(|_| lexer.next()).collect();
            assert!(all.is_err(), "{bad}");
        }
    }
}
