//! The words of a query, made ready for the parser: bounded, parameters numbered, `[*]` in a form that it knows.
//!
//! May use: `sqlparser`. Must not know: what queries mean.

use sqlparser::dialect::Dialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use crate::error::{Result, invalid, limit};

/// How long a query's text may be.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;

/// How many words and signs a query may have, without values and commas: the parser's tree grows as deep as a chain of
/// operators is long, and is taken down recursively.
pub(super) const SIGNS_MAX: usize = 4_000;

/// The quote of the name that stands for `[*]`. No text has it: only the two below begin a quoted name.
pub(super) const ITEMS_QUOTE: char = '[';

/// SQL as the standard has it; names are letters, digits and `_`, or stand in double quotes or backticks.
#[derive(Debug)]
pub(super) struct SpaceDialect;

impl Dialect for SpaceDialect {
    fn is_identifier_start(&self, letter: char) -> bool {
        letter.is_alphabetic() || letter == '_'
    }

    fn is_identifier_part(&self, letter: char) -> bool {
        letter.is_alphanumeric() || letter == '_'
    }

    fn supports_dollar_placeholder(&self) -> bool {
        true
    }
}

/// A query's words, as a whole SELECT.
pub(super) struct Tokens {
    pub(super) tokens: Vec<Token>,
    pub(super) explain: bool,
    /// Whether SELECT and FROM were added.
    pub(super) condition_only: bool,
    pub(super) parameters: usize,
}

pub(super) fn tokens(text: &str) -> Result<Tokens> {
    limit("length of a query", text.len(), TEXT_BYTES_MAX)?;
    let read = match Tokenizer::new(&SpaceDialect, text).tokenize() {
        Ok(tokens) => tokens,
        Err(error) => return invalid(format!("{error}")),
    };
    let mut tokens: Vec<Token> = Vec::with_capacity(read.len() + 6);
    let mut numbering = Numbering::default();
    let mut signs = 0;
    let mut read = read.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).peekable();
    let explain = read.next_if(|token| is_keyword(token, &[Keyword::EXPLAIN])).is_some();
    if read.peek().is_none() {
        // Nobody takes or clears everything by a text that turned out empty.
        return invalid("a query without a word would mean every entry: to mean them, say no condition at all");
    }
    let condition_only = !read.peek().is_some_and(|token| is_keyword(token, &[Keyword::SELECT]));
    if condition_only {
        tokens.extend([word(Keyword::SELECT, "SELECT"), Token::Mul, word(Keyword::FROM, "FROM"), name("t", '"')]);
        let clauses =
            [Keyword::WHERE, Keyword::ORDER, Keyword::LIMIT, Keyword::OFFSET, Keyword::GROUP, Keyword::HAVING];
        if read.peek().is_some_and(|token| *token != Token::SemiColon && !is_keyword(token, &clauses)) {
            tokens.push(word(Keyword::WHERE, "WHERE"));
        }
    }
    let mut selects = 0;
    while let Some(token) = read.next() {
        match token {
            Token::SemiColon if read.peek().is_none() => {}
            Token::Placeholder(text) => tokens.push(Token::Placeholder(format!("${}", numbering.number(&text)?))),
            Token::LBracket => {
                if read.next_if_eq(&Token::Mul).is_none() || read.next_if_eq(&Token::RBracket).is_none() {
                    return invalid("behind [ comes *]: tags[*] is every item of tags");
                }
                tokens.extend([Token::Period, name("*", ITEMS_QUOTE)]);
            }
            Token::Word(word) => {
                let in_path = tokens.last() == Some(&Token::Period) || read.peek() == Some(&Token::Period);
                let word = plain(word, in_path);
                if REFUSED.contains(&word.keyword) {
                    return invalid(format!("{} is not supported: a query asks for one type", word.value));
                }
                selects += usize::from(word.keyword == Keyword::SELECT);
                if selects > 1 || (selects > 0 && condition_only) {
                    return invalid(
                        "a subquery is not supported: a query asks for one type, and conditions are on its fields",
                    );
                }
                let is_call = word.keyword == Keyword::NoKeyword && read.peek() == Some(&Token::LParen);
                if is_call && !AGGREGATES.iter().any(|aggregate| word.value.eq_ignore_ascii_case(aggregate)) {
                    let known = AGGREGATES.join(", ");
                    return invalid(format!("the function {} is not supported: there are {known}", word.value));
                }
                tokens.push(Token::Word(word));
            }
            value @ (Token::Number(..) | Token::SingleQuotedString(_) | Token::HexStringLiteral(_) | Token::Comma) => {
                tokens.push(value);
                continue;
            }
            sign @ (Token::Eq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq) => tokens.push(sign),
            sign @ (Token::LParen | Token::RParen | Token::Period) => tokens.push(sign),
            sign @ (Token::Plus | Token::Minus | Token::Mul) => tokens.push(sign),
            other => return invalid(format!("`{other}` was not expected: it is no part of a query")),
        }
        signs += 1;
    }
    limit("number of words and signs of a query", signs, SIGNS_MAX)?;
    Ok(Tokens { tokens, explain, condition_only, parameters: numbering.parameters })
}

/// The words of SQL that mean something here. All others are names to the parser, so that fields may be called `date` and
/// `interval`, and so that it does not come near its exotic parts: some of those try each level of a nesting twice.
const KEYWORDS: [Keyword; 30] = [
    Keyword::SELECT,
    Keyword::DISTINCT,
    Keyword::FROM,
    Keyword::WHERE,
    Keyword::GROUP,
    Keyword::BY,
    Keyword::HAVING,
    Keyword::ORDER,
    Keyword::ASC,
    Keyword::DESC,
    Keyword::NULLS,
    Keyword::FIRST,
    Keyword::LAST,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::AS,
    Keyword::AND,
    Keyword::OR,
    Keyword::NOT,
    Keyword::IN,
    Keyword::BETWEEN,
    Keyword::LIKE,
    Keyword::RLIKE,
    Keyword::REGEXP,
    Keyword::ESCAPE,
    Keyword::IS,
    Keyword::NULL,
    Keyword::TRUE,
    Keyword::FALSE,
    Keyword::TIMESTAMP,
];

/// Words that would only be an unexpected name otherwise.
const REFUSED: [Keyword; 4] = [Keyword::JOIN, Keyword::UNION, Keyword::INTERSECT, Keyword::EXCEPT];

const AGGREGATES: [&str; 5] = ["count", "sum", "avg", "min", "max"];

/// The word without a meaning that it does not have here; within a path no word has one.
fn plain(mut word: Word, in_path: bool) -> Word {
    if in_path || !(KEYWORDS.contains(&word.keyword) || REFUSED.contains(&word.keyword)) {
        word.keyword = Keyword::NoKeyword;
    }
    word
}

/// What the parser says, without what is ours to say.
pub(super) fn message(error: &ParserError) -> String {
    match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text.clone(),
        ParserError::RecursionLimitExceeded => "the query has too many parentheses or NOT within each other".to_owned(),
    }
}

/// Numbers `?` in order, or takes the numbers of `$n`.
#[derive(Default)]
struct Numbering {
    parameters: usize,
    named: bool,
}

impl Numbering {
    fn number(&mut self, text: &str) -> Result<usize> {
        let named = text != "?";
        if self.parameters > 0 && named != self.named {
            return invalid("parameters are all ? or all $1, $2, ..");
        }
        self.named = named;
        let number =
            if named { text.get(1..).and_then(|digits| digits.parse().ok()) } else { Some(self.parameters + 1) };
        match number {
            Some(number) if (1..=SIGNS_MAX).contains(&number) => {
                self.parameters = self.parameters.max(number);
                Ok(number)
            }
            _ => invalid(format!("`{text}` is no parameter: write ?, or $1 to ${SIGNS_MAX}")),
        }
    }
}

fn is_keyword(token: &Token, of: &[Keyword]) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && of.contains(&word.keyword))
}

fn word(keyword: Keyword, text: &str) -> Token {
    Token::Word(Word { value: text.to_owned(), quote_style: None, keyword })
}

fn name(text: &str, quote: char) -> Token {
    Token::Word(Word { value: text.to_owned(), quote_style: Some(quote), keyword: Keyword::NoKeyword })
}
