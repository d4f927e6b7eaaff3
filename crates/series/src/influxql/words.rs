//! Reading statements word by word: what is next, and what is said when it is something else.
//!
//! May use: `lexer`. Must not know: which statements there are.

use std::collections::BTreeMap;

use regex::Regex;

use super::lexer::{Lexer, Token};
use crate::error::{Error, Result};
use crate::regexes::Regexes;
use crate::value::Value;

/// The longest text of statements.
const QUERY_BYTES_MAX: usize = 1 << 20;
/// Words that begin a clause: no names unless they are quoted.
const RESERVED: [&str; 26] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "LIMIT", "OFFSET", "SLIMIT", "SOFFSET", "AND", "OR", "AS", "IN",
    "INTO", "WITH", "ON", "SHOW", "CREATE", "DROP", "DELETE", "ASC", "DESC", "INSERT", "SET", "TO",
];

/// What `$name` stands for, by names.
pub type Parameters = BTreeMap<String, Parameter>;

/// What one `$name` stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// A number, a text, or a boolean.
    Value(Value),
    /// A name: of a measurement, a field, a tag.
    Name(String),
    /// A regular expression, without slashes.
    Regex(String),
    /// A length of time, in nanoseconds.
    Duration(i64),
}

impl Parameter {
    /// A length of time as InfluxQL writes it, such as `1h30m`; `None` when it is none.
    #[must_use]
    pub fn duration(text: &str) -> Option<Self> {
        let mut lexer = Lexer::new(text);
        match (lexer.next(), lexer.next()) {
            (Ok(Token::Duration(nanos)), Ok(Token::End)) => Some(Self::Duration(nanos)),
            _ => None,
        }
    }

    /// The word that stands for it, if one word does.
    fn token(&self) -> Option<Token> {
        Some(match self {
            Self::Name(name) => Token::Quoted(name.clone()),
            Self::Duration(nanos) if *nanos >= 0 => Token::Duration(*nanos),
            Self::Value(Value::Text(text)) => Token::Text(text.to_string()),
            Self::Value(Value::Boolean(is_so)) => Token::Word(is_so.to_string()),
            Self::Value(Value::Integer(number)) => Token::Integer(u64::try_from(*number).ok()?),
            Self::Value(Value::Unsigned(number)) => Token::Integer(*number),
            Self::Value(Value::Float(number)) if *number >= 0.0 => Token::Float(*number),
            Self::Value(Value::Float(_)) | Self::Duration(_) | Self::Regex(_) => return None,
        })
    }
}

pub(crate) struct Words<'a> {
    lexer: Lexer<'a>,
    ahead: Option<(Token, usize)>,
    /// What was taken last.
    taken: Option<(Token, usize)>,
    pub(crate) parameters: &'a Parameters,
    /// They are all there before the first statement runs.
    regexes: Regexes,
}

fn show(token: &Token) -> String {
    match token {
        Token::Word(text) | Token::Quoted(text) | Token::Text(text) => text.clone(),
        Token::Float(number) => number.to_string(),
        Token::Integer(number) => number.to_string(),
        Token::Duration(nanos) => format!("{nanos}ns"),
        Token::Sign(sign) => (*sign).to_owned(),
        Token::End => "EOF".to_owned(),
    }
}

impl<'a> Words<'a> {
    /// # Errors
    /// [`Error::Limit`] when the text is too long.
    pub(crate) fn new(text: &'a str, parameters: &'a Parameters) -> Result<Self> {
        if text.len() > QUERY_BYTES_MAX {
            let (actual, limit) = (text.len() as u64, QUERY_BYTES_MAX as u64);
            return Err(Error::Limit { what: "the length of a query", actual, limit });
        }
        Ok(Self { lexer: Lexer::new(text), ahead: None, taken: None, parameters, regexes: Regexes::default() })
    }

    /// The byte where the next word begins.
    pub(crate) fn position(&mut self) -> usize {
        self.ahead.as_ref().map_or_else(|| self.lexer.position(), |(_, at)| *at)
    }

    pub(crate) fn peek(&mut self) -> Result<&Token> {
        if self.ahead.is_none() {
            let at = self.lexer.position();
            let token = match self.lexer.next()? {
                Token::Sign("$") => self.bound(at)?,
                token => token,
            };
            self.ahead = Some((token, at));
        }
        Ok(self.ahead.as_ref().map_or(&Token::End, |(token, _)| token))
    }

    pub(crate) fn next(&mut self) -> Result<Token> {
        self.peek()?;
        self.taken = self.ahead.take();
        Ok(self.taken.as_ref().map_or(Token::End, |(token, _)| token.clone()))
    }

    /// The word that a parameter is, whose name comes next; the sign before it where that is none: a negative number, an expression.
    fn bound(&mut self, at: usize) -> Result<Token> {
        let mut lexer = self.lexer.clone();
        let parameter = self.parameter(&mut lexer, at)?;
        let Some(token) = parameter.token() else { return Ok(Token::Sign("$")) };
        self.lexer = lexer;
        Ok(token)
    }

    /// The parameter whose name comes next.
    fn parameter(&self, lexer: &mut Lexer<'a>, at: usize) -> Result<&'a Parameter> {
        let (Token::Word(name) | Token::Quoted(name)) = lexer.next()? else {
            return Err(lexer.error(at, "found $ without the name of a parameter"));
        };
        self.parameters.get(&name).ok_or_else(|| lexer.error(at, &format!("missing parameter: {name}")))
    }

    /// What was taken last is not what should be.
    pub(crate) fn expected_instead(&mut self, what: &str) -> Error {
        match self.taken.take() {
            Some((token, at)) => self.lexer.error(at, &format!("found {}, expected {what}", show(&token))),
            None => self.expected(what),
        }
    }

    /// What is there is not what should be.
    pub(crate) fn expected(&mut self, what: &str) -> Error {
        let at = self.position();
        match self.peek() {
            Ok(token) => {
                let text = format!("found {}, expected {what}", show(token));
                // InfluxDB counts the end as one more character.
                let at = at + usize::from(*token == Token::End);
                self.lexer.error(at, &text)
            }
            Err(error) => error,
        }
    }

    /// An error at the next word.
    pub(crate) fn error(&mut self, text: &str) -> Error {
        let at = self.position();
        self.lexer.error(at, text)
    }

    /// Takes a word of the language if it is next.
    pub(crate) fn takes(&mut self, word: &str) -> Result<bool> {
        let is_it = matches!(self.peek()?, Token::Word(found) if found.eq_ignore_ascii_case(word));
        if is_it {
            self.taken = self.ahead.take();
        }
        Ok(is_it)
    }

    pub(crate) fn take(&mut self, word: &str) -> Result<()> {
        if self.takes(word)? { Ok(()) } else { Err(self.expected(word)) }
    }

    /// Takes one of these words.
    pub(crate) fn take_one(&mut self, words: &[&'static str]) -> Result<&'static str> {
        for word in words {
            if self.takes(word)? {
                return Ok(word);
            }
        }
        Err(self.expected(&words.join(", ")))
    }

    pub(crate) fn takes_sign(&mut self, sign: &str) -> Result<bool> {
        let is_it = matches!(self.peek()?, Token::Sign(found) if *found == sign);
        if is_it {
            self.taken = self.ahead.take();
        }
        Ok(is_it)
    }

    pub(crate) fn take_sign(&mut self, sign: &str) -> Result<()> {
        if self.takes_sign(sign)? { Ok(()) } else { Err(self.expected(sign)) }
    }

    /// Whether the next word may be a name.
    pub(crate) fn is_name(&mut self) -> Result<bool> {
        Ok(match self.peek()? {
            Token::Quoted(_) => true,
            Token::Word(word) => !RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word)),
            _ => false,
        })
    }

    pub(crate) fn name(&mut self) -> Result<String> {
        if !self.is_name()? {
            return Err(self.expected("identifier"));
        }
        match self.next()? {
            Token::Quoted(name) | Token::Word(name) => Ok(name),
            _ => Err(self.expected("identifier")),
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn count(&mut self) -> Result<usize> {
        match self.peek()? {
            Token::Integer(number) => {
                let number = usize::try_from(*number).unwrap_or(usize::MAX);
                self.ahead = None;
                Ok(number)
            }
            _ => Err(self.expected("integer")),
        }
    }

    /// The expression between slashes, or that a parameter is, if one is next.
    pub(crate) fn regex(&mut self) -> Result<Option<Regex>> {
        let at = self.position();
        if self.ahead.is_some() && !matches!(self.peek()?, Token::Sign("/" | "$")) {
            return Ok(None);
        }
        let mut lexer = self.lexer.clone();
        lexer.seek(at);
        let text = match lexer.regex()? {
            Some(text) => text,
            None if matches!(lexer.next(), Ok(Token::Sign("$"))) => match self.parameter(&mut lexer, at)? {
                Parameter::Regex(text) => text.clone(),
                _ => return Ok(None),
            },
            None => return Ok(None),
        };
        (self.lexer, self.ahead) = (lexer, None);
        let built = self.regexes.builder(&text)?.build();
        built.map(Some).map_err(|error| self.lexer.error(at, &format!("bad regular expression: {error}")))
    }
}
