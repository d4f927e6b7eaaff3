//! Which series a selector means.
//!
//! The name of a metric in PromQL is made of the metric and the field, so one name may be several pairs of both: `a_b_c` is
//! the metric `a_b_c`, the field `c` of `a_b`, or the field `b_c` of `a`. A selector with a name asks for each of these; one
//! with an expression on the name asks for the metrics that can begin such a name, and looks at the names of what comes.
//!
//! May use: `labels`, `select`, `source`. Must not know: functions, points.

use std::collections::BTreeSet;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::VectorSelector;

use crate::error::{Error, Result};
use crate::key::FIELD_DEFAULT;
use crate::regexes::Regexes;
use crate::select::{Match, Select, TagMatch};
use crate::source::{Series, SeriesId, Source};

use super::labels::{Labels, NAME, name_in, name_of};

/// Alternatives of an expression that are looked up one by one.
const ALTERNATIVES_MAX: usize = 64;

/// Conditions on labels: `up{job="x"}`.
#[derive(Debug, Clone)]
pub struct Selector {
    /// One of these holds; all of its matchers do.
    alternatives: Vec<Vec<Matcher>>,
}

/// What is one series for Prometheus: almost always one of ours. Several, when metrics and fields have names that make the
/// same one; then their points count as those of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub labels: Labels,
    /// What to ask for its points by.
    pub ids: Vec<SeriesId>,
}

impl Selector {
    /// Parses what stands in `match[]`.
    ///
    /// # Errors
    /// `Invalid` when it is something else.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_one(text, &mut Regexes::default())
    }

    /// Parses all of one request: what they may take together is bounded.
    ///
    /// # Errors
    /// `Invalid` when one is something else.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>> {
        let mut regexes = Regexes::default();
        texts.iter().map(|text| Self::parse_one(text, &mut regexes)).collect()
    }

    fn parse_one(text: &str, regexes: &mut Regexes) -> Result<Self> {
        match super::parse::parse(text, 1, regexes)? {
            promql_parser::parser::Expr::VectorSelector(selector)
                if selector.offset.is_none() && selector.at.is_none() =>
            {
                Ok(Self::of(&selector))
            }
            _ => Err(Error::invalid(format!("{text} is no selector: write it as metric{{label=\"value\"}}"))),
        }
    }

    /// Every series of a database that has a label.
    #[must_use]
    pub fn having(label: &str) -> Self {
        Self { alternatives: vec![vec![Matcher::new(MatchOp::NotEqual, label, "")]] }
    }

    pub(crate) fn of(selector: &VectorSelector) -> Self {
        let mut alternatives = selector.matchers.or_matchers.clone();
        if alternatives.is_empty() {
            alternatives.push(selector.matchers.matchers.clone());
        }
        if let Some(name) = &selector.name {
            let named = Matcher::new(MatchOp::Equal, NAME, name);
            alternatives.iter_mut().for_each(|matchers| matchers.push(named.clone()));
        }
        Self { alternatives }
    }

    /// The labels that it asks to be equal to something, without the name: what `absent` answers with.
    pub(crate) fn equal_labels(&self) -> Labels {
        let mut labels = Labels::default();
        let [matchers] = self.alternatives.as_slice() else { return labels };
        for matcher in matchers.iter().filter(|matcher| matcher.name != NAME) {
            let is_only = matchers.iter().filter(|other| other.name == matcher.name).count() == 1;
            if matches!(matcher.op, MatchOp::Equal) && is_only {
                labels.set(&matcher.name, &matcher.value);
            }
        }
        labels
    }

    fn found(&self, source: &dyn Source, database: &str) -> Result<Vec<Series>> {
        let mut found = Vec::new();
        for matchers in &self.alternatives {
            let (names, tags): (Vec<_>, Vec<_>) = matchers.iter().partition(|matcher| matcher.name == NAME);
            let tags: Vec<TagMatch> = tags.into_iter().map(tag_match).collect();
            for (metric, field) in places(&names, source, database)? {
                let select = Select { database: database.to_owned(), metric, field, tags: tags.clone() };
                let meant = source.series(&select)?.into_iter();
                found.extend(meant.filter(|series| is_named(&names, &name_of(&series.key))));
            }
        }
        found.sort_by_key(|series| series.id);
        found.dedup_by_key(|series| series.id);
        Ok(found)
    }

    /// The names of all metrics of a database, sorted: from the index, without looking at series.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn names(source: &dyn Source, database: &str) -> Result<BTreeSet<String>> {
        let fields = source.fields(database)?;
        Ok(fields.iter().map(|(metric, field)| name_in(metric, field)).collect())
    }

    /// The series that are meant, sorted by their labels.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn find(&self, source: &dyn Source, database: &str) -> Result<Vec<Named>> {
        let found = self.found(source, database)?;
        let mut named: Vec<Named> =
            found.iter().map(|series| Named { labels: Labels::of(&series.key), ids: vec![series.id] }).collect();
        named.sort_by(|a, b| a.labels.cmp(&b.labels));
        named.dedup_by(|next, kept| {
            let is_same = next.labels == kept.labels;
            if is_same {
                kept.ids.append(&mut next.ids);
            }
            is_same
        });
        Ok(named)
    }

    /// The labels of the series that are meant and whose last point is not before a moment, sorted.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn labels(&self, source: &dyn Source, database: &str, since: i64) -> Result<Vec<Labels>> {
        let mut labels = Vec::new();
        for Named { labels: found, ids } in self.find(source, database)? {
            let mut is_recent = since == i64::MIN;
            for id in &ids {
                is_recent = is_recent || source.last(*id)?.is_some_and(|(time, _)| time >= since);
            }
            if is_recent {
                labels.push(found);
            }
        }
        Ok(labels)
    }

    /// Selections that mean the same series as they are now, for what knows no names of Prometheus.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn selects(&self, source: &dyn Source, database: &str) -> Result<Vec<Select>> {
        let mut selects = Vec::new();
        for matchers in &self.alternatives {
            let tags = matchers.iter().filter(|matcher| matcher.name != NAME).map(tag_match);
            let tags: Vec<TagMatch> = tags.collect();
            let alone = Self { alternatives: vec![matchers.clone()] };
            let found = alone.found(source, database)?;
            let mut pairs: Vec<(&str, &str)> =
                found.iter().map(|series| (series.key.metric.as_str(), series.key.field.as_str())).collect();
            pairs.sort_unstable();
            pairs.dedup();
            selects.extend(pairs.into_iter().map(|(metric, field)| Select {
                database: database.to_owned(),
                metric: Some(Match::is(metric)),
                field: Some(Match::is(field)),
                tags: tags.clone(),
            }));
        }
        Ok(selects)
    }
}

fn is_named(names: &[&Matcher], name: &str) -> bool {
    names.iter().all(|matcher| matcher.is_match(name))
}

fn tag_match(matcher: &Matcher) -> TagMatch {
    let value = match &matcher.op {
        MatchOp::Equal => Match::is(matcher.value.as_str()),
        MatchOp::NotEqual => Match::NotIn(vec![matcher.value.clone()]),
        MatchOp::Re(regex) => literals(&matcher.value).map_or_else(|| Match::Regex(regex.clone()), Match::In),
        MatchOp::NotRe(regex) => literals(&matcher.value).map_or_else(|| Match::NotRegex(regex.clone()), Match::NotIn),
    };
    TagMatch { tag: matcher.name.clone(), value }
}

type Place = (Option<Match>, Option<Match>);

/// Conditions on metric and field under which everything is that can have such a name; other things may be there too.
fn places(names: &[&Matcher], source: &dyn Source, database: &str) -> Result<Vec<Place>> {
    let exact = names.iter().find_map(|matcher| match matcher.op {
        MatchOp::Equal => Some(vec![matcher.value.clone()]),
        MatchOp::Re(_) => literals(&matcher.value),
        _ => None,
    });
    if let Some(names) = exact {
        return Ok(names.iter().flat_map(|name| splits(name)).collect());
    }
    let prefix = names.iter().find_map(|matcher| match matcher.op {
        MatchOp::Re(_) => Some(literal_prefix(&matcher.value)).filter(|prefix| !prefix.is_empty()),
        _ => None,
    });
    let Some(prefix) = prefix else { return Ok(vec![(None, None)]) };
    let can_begin = |metric: &String| metric.starts_with(prefix) || prefix.starts_with(metric.as_str());
    let metrics: Vec<String> = source.metrics(database)?.into_iter().filter(can_begin).collect();
    Ok(vec![(Some(Match::In(metrics)), None)])
}

/// The pairs of metric and field that have this name.
fn splits(name: &str) -> impl Iterator<Item = Place> {
    let fields = name.match_indices('_').filter_map(|(at, _)| {
        let (metric, field) = (name.get(..at)?, name.get(at + 1..)?);
        let is_possible = !metric.is_empty() && !field.is_empty() && field != FIELD_DEFAULT;
        is_possible.then(|| (Some(Match::is(metric)), Some(Match::is(field))))
    });
    std::iter::once((Some(Match::is(name)), Some(Match::is(FIELD_DEFAULT)))).chain(fields)
}

fn is_literal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_:-/ ".contains(&byte)
}

/// What an expression means that is nothing but alternatives: `a|b`.
fn literals(regex: &str) -> Option<Vec<String>> {
    let alternatives: Vec<String> = regex.split('|').map(str::to_owned).collect();
    let is_plain = alternatives.len() <= ALTERNATIVES_MAX && regex.bytes().all(|byte| byte == b'|' || is_literal(byte));
    is_plain.then_some(alternatives)
}

/// What everything begins with that an expression matches, as far as that is plain to see.
fn literal_prefix(regex: &str) -> &str {
    if regex.contains('|') {
        return "";
    }
    let end = regex.bytes().position(|byte| !is_literal(byte)).unwrap_or(regex.len());
    // The character before may be one that need not be there at all.
    let is_optional = regex.as_bytes().get(end).is_some_and(|byte| b"*?{".contains(byte));
    regex.get(..end.saturating_sub(usize::from(is_optional))).unwrap_or("")
}
