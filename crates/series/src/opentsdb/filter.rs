//! Filters of tags: how they are written, and which series they let through.
//!
//! A filter is a type and a text: `host=literal_or(web01|web02)`, or in JSON `{"type":"literal_or","tagk":"host",
//! "filter":"web01|web02","groupBy":true}`. A bare text is `literal_or`, with a star in it `iwildcard`.
//!
//! May use: `select`. Must not know: how series are found.

use crate::error::{Error, Result};
use crate::regexes::Regexes;
use crate::select::{Match, TagMatch};

/// The type of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LiteralOr,
    ILiteralOr,
    NotLiteralOr,
    NotILiteralOr,
    Wildcard,
    IWildcard,
    Regexp,
    NotKey,
}

struct About {
    kind: Kind,
    name: &'static str,
    examples: &'static str,
    description: &'static str,
}

const KINDS: &[About] = &[
    About {
        kind: Kind::ILiteralOr,
        name: "iliteral_or",
        examples: "host=iliteral_or(web01), host=iliteral_or(web01|web02)",
        description: "Lets through series whose value is one of those between the bars, whatever the case of letters.",
    },
    About {
        kind: Kind::IWildcard,
        name: "iwildcard",
        examples: "host=iwildcard(web*), host=iwildcard(*.mail.*)",
        description: "Lets through series whose value fits the text, where * is any text, whatever the case of letters.",
    },
    About {
        kind: Kind::LiteralOr,
        name: "literal_or",
        examples: "host=literal_or(web01), host=literal_or(web01|web02)",
        description: "Lets through series whose value is one of those between the bars.",
    },
    About {
        kind: Kind::NotILiteralOr,
        name: "not_iliteral_or",
        examples: "host=not_iliteral_or(web01), host=not_iliteral_or(web01|web02)",
        description: "Lets through series whose value is none of those between the bars, whatever the case of letters.",
    },
    About {
        kind: Kind::NotKey,
        name: "not_key",
        examples: "host=not_key()",
        description: "Lets through series without the tag.",
    },
    About {
        kind: Kind::NotLiteralOr,
        name: "not_literal_or",
        examples: "host=not_literal_or(web01), host=not_literal_or(web01|web02)",
        description: "Lets through series whose value is none of those between the bars.",
    },
    About {
        kind: Kind::Regexp,
        name: "regexp",
        examples: "host=regexp(^web\\d+$)",
        description: "Lets through series in whose value the expression is found: that of Rust's crate regex.",
    },
    About {
        kind: Kind::Wildcard,
        name: "wildcard",
        examples: "host=wildcard(web*), host=wildcard(*.mail.*)",
        description: "Lets through series whose value fits the text, where * is any text.",
    },
];

/// Every type of filter: name, examples, description.
pub fn filters() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    KINDS.iter().map(|about| (about.name, about.examples, about.description))
}

/// Whether the series of a query are kept apart by the tag of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    Apart,
    Together,
}

/// A condition on one tag.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) tag: String,
    pub(crate) grouping: Grouping,
    /// All must hold.
    conditions: Vec<Match>,
}

impl Filter {
    /// A filter by the name of its type.
    pub(crate) fn new(kind: &str, tag: &str, text: &str, grouping: Grouping, regexes: &mut Regexes) -> Result<Self> {
        let known = KINDS.iter().find(|about| about.name.eq_ignore_ascii_case(kind));
        let kind = known.ok_or_else(|| {
            Error::invalid(format!("No such type of filter: {kind}: /api/config/filters lists those that there are"))
        })?;
        if tag.is_empty() {
            return Err(Error::invalid("A filter must have a tagk"));
        }
        Ok(Self { tag: tag.to_owned(), grouping, conditions: conditions(kind.kind, text, regexes)? })
    }

    /// A filter as it is written for a tag: `web01|web02`, `*`, `wildcard(web*)`.
    pub(crate) fn parse(tag: &str, text: &str, grouping: Grouping, regexes: &mut Regexes) -> Result<Self> {
        if let Some((kind, rest)) = text.split_once('(')
            && let Some(inner) = rest.strip_suffix(')')
            && KINDS.iter().any(|about| about.name.eq_ignore_ascii_case(kind.trim()))
        {
            return Self::new(kind.trim(), tag, inner, grouping, regexes);
        }
        Self::new(if text.contains('*') { "iwildcard" } else { "literal_or" }, tag, text, grouping, regexes)
    }

    /// Whether it lets through a value; the empty string is no such tag.
    pub(crate) fn matches(&self, value: &str) -> bool {
        self.conditions.iter().all(|condition| condition.matches(value))
    }

    /// The same as conditions of a selection.
    pub(crate) fn to_conditions(&self) -> impl Iterator<Item = TagMatch> {
        self.conditions.iter().map(|condition| TagMatch { tag: self.tag.clone(), value: condition.clone() })
    }
}

fn regex(text: &str, regexes: &mut Regexes) -> Result<regex::Regex> {
    regexes.builder(text)?.build().map_err(|error| {
        Error::invalid(format!("Invalid regular expression {text}: {}", error.to_string().replace('\n', " ")))
    })
}

fn conditions(kind: Kind, text: &str, regexes: &mut Regexes) -> Result<Vec<Match>> {
    if text.is_empty() != (kind == Kind::NotKey) {
        return Err(Error::invalid(match kind {
            Kind::NotKey => "The filter not_key() takes nothing between its brackets",
            _ => "A filter must not be empty; write * for any value",
        }));
    }
    let literals = || -> Result<Vec<String>> {
        let found: Vec<String> = text.split('|').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        if found.is_empty() { Err(Error::invalid(format!("The filter {text} names no value"))) } else { Ok(found) }
    };
    let any_case = |regexes: &mut Regexes| -> Result<regex::Regex> {
        let escaped: Vec<String> = literals()?.iter().map(|literal| regex::escape(literal)).collect();
        regex(&format!("(?i)^(?:{})$", escaped.join("|")), regexes)
    };
    let wildcard = |flags: &str, regexes: &mut Regexes| -> Result<Vec<Match>> {
        if text.bytes().all(|byte| byte == b'*') {
            return Ok(vec![Match::present()]);
        }
        let parts: Vec<String> = text.split('*').map(regex::escape).collect();
        Ok(vec![Match::present(), Match::Regex(regex(&format!("(?s{flags})^{}$", parts.join(".*")), regexes)?)])
    };
    Ok(match kind {
        Kind::LiteralOr => vec![Match::In(literals()?)],
        Kind::NotLiteralOr => vec![Match::NotIn(literals()?)],
        Kind::ILiteralOr => vec![Match::Regex(any_case(regexes)?)],
        Kind::NotILiteralOr => vec![Match::NotRegex(any_case(regexes)?)],
        Kind::Wildcard => wildcard("", regexes)?,
        Kind::IWildcard => wildcard("i", regexes)?,
        Kind::Regexp => vec![Match::present(), Match::Regex(regex(text, regexes)?)],
        Kind::NotKey => vec![Match::is("")],
    })
}
