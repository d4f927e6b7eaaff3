//! Which series a query means.
//!
//! May use: `key`. Must not know: query languages, how series are found.

use regex::Regex;

use crate::key::Key;

/// A condition on a name. A tag that a series does not have is the empty string here: so `In([""])` asks for its absence, and
/// `NotIn([""])` for its presence.
#[derive(Debug, Clone)]
pub enum Match {
    /// One of these.
    In(Vec<String>),
    /// None of these.
    NotIn(Vec<String>),
    /// The expression is found in it: anchor it when all of it is meant.
    Regex(Regex),
    /// The expression is not found in it.
    NotRegex(Regex),
}

impl Match {
    /// Exactly this.
    pub fn is(name: impl Into<String>) -> Self {
        Self::In(vec![name.into()])
    }

    /// Anything but the empty string.
    #[must_use]
    pub fn present() -> Self {
        Self::NotIn(vec![String::new()])
    }

    /// Whether `name` is meant.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::In(names) => names.iter().any(|one| one == name),
            Self::NotIn(names) => names.iter().all(|one| one != name),
            Self::Regex(regex) => regex.is_match(name),
            Self::NotRegex(regex) => !regex.is_match(name),
        }
    }
}

/// A condition on one tag.
#[derive(Debug, Clone)]
pub struct TagMatch {
    /// The tag's name.
    pub tag: String,
    /// What its value must be.
    pub value: Match,
}

/// Conditions on series; all of them must hold.
#[derive(Debug, Clone, Default)]
pub struct Select {
    /// The database.
    pub database: String,
    /// The metric; `None` for every one.
    pub metric: Option<Match>,
    /// The field; `None` for every one.
    pub field: Option<Match>,
    /// The tags; one tag may have several conditions.
    pub tags: Vec<TagMatch>,
}

impl Select {
    /// Series of one metric.
    pub fn metric(database: impl Into<String>, metric: impl Into<String>) -> Self {
        Self { database: database.into(), metric: Some(Match::is(metric)), ..Self::default() }
    }

    /// Adds a condition on a tag.
    #[must_use]
    pub fn and_tag(mut self, tag: impl Into<String>, value: Match) -> Self {
        self.tags.push(TagMatch { tag: tag.into(), value });
        self
    }

    /// Whether a series is meant.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        key.database == self.database
            && self.metric.as_ref().is_none_or(|metric| metric.matches(&key.metric))
            && self.field.as_ref().is_none_or(|field| field.matches(&key.field))
            && self.tags.iter().all(|wanted| wanted.value.matches(key.tag(&wanted.tag)))
    }
}
