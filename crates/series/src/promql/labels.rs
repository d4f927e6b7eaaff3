//! Labels: how Prometheus names a series.
//!
//! The metric is the label `__name__`: the series' metric when its field is `value`, else `<metric>_<field>`, since Prometheus
//! knows no fields.
//!
//! May use: `key`. Must not know: how series are found.

use std::fmt;

use crate::error::{Error, Result};
use crate::key::{FIELD_DEFAULT, Key};

/// The label that holds the name of the metric.
pub const NAME: &str = "__name__";

/// Labels sorted by name, each once, none empty: a label with no value is one that is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// The labels of a series.
    #[must_use]
    pub fn of(key: &Key) -> Self {
        let mut labels = Vec::with_capacity(key.tags.len() + 1);
        labels.extend(key.tags.iter().filter(|(name, _)| name != NAME).cloned());
        let mut labels = Self(labels);
        labels.set(NAME, &name_of(key));
        labels
    }

    #[cfg(test)]
    pub(crate) fn one(name: &str, value: &str) -> Self {
        let mut labels = Self::default();
        labels.set(name, value);
        labels
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A label's value; the empty string when it is not there.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// Puts a label in; an empty value takes it out.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let at = self.0.binary_search_by(|(found, _)| found.as_str().cmp(name));
        match (at, value.is_empty()) {
            (Ok(at), true) => drop(self.0.remove(at)),
            (Ok(at), false) => {
                if let Some((_, old)) = self.0.get_mut(at) {
                    value.clone_into(old);
                }
            }
            (Err(_), true) => {}
            (Err(at), false) => self.0.insert(at, (name.to_owned(), value.to_owned())),
        }
    }

    /// Takes the metric's name away.
    pub(crate) fn without_name(mut self) -> Self {
        self.0.retain(|(name, _)| name != NAME);
        self
    }

    /// Only these.
    pub(crate) fn only(&self, names: &[String]) -> Self {
        Self(self.0.iter().filter(|(name, _)| names.contains(name)).cloned().collect())
    }

    /// All but these and the metric's name.
    pub(crate) fn but(&self, names: &[String]) -> Self {
        Self(self.0.iter().filter(|(name, _)| name != NAME && !names.contains(name)).cloned().collect())
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.get(NAME))?;
        let mut between = "{";
        for (name, value) in self.iter().filter(|(name, _)| *name != NAME) {
            write!(out, "{between}{name}={value:?}")?;
            between = ", ";
        }
        match between {
            "{" if self.get(NAME).is_empty() => out.write_str("{}"),
            "{" => Ok(()),
            _ => out.write_str("}"),
        }
    }
}

/// The name of a series' metric as Prometheus sees it.
pub(crate) fn name_of(key: &Key) -> String {
    name_in(&key.metric, &key.field)
}

/// The name of a metric's field.
pub(crate) fn name_in(metric: &str, field: &str) -> String {
    if field == FIELD_DEFAULT { metric.to_owned() } else { format!("{metric}_{field}") }
}

/// Whether a text may be the name of a label.
pub(crate) fn check_label(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = name.bytes().all(is_plain) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if is_name { Ok(()) } else { Err(Error::invalid(format!("{name:?} is no name of a label"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key;

    #[test]
    fn a_field_is_a_part_of_the_name_unless_it_is_the_default() {
        assert_eq!(Labels::of(&key("d", "cpu", "host=a", "value")).to_string(), "cpu{host=\"a\"}");
        assert_eq!(Labels::of(&key("d", "cpu", "B=1,b=2", "user")).to_string(), "cpu_user{B=\"1\", b=\"2\"}");
        assert_eq!(Labels::of(&key("d", "cpu", "", "value")).to_string(), "cpu");
        assert_eq!(Labels::default().to_string(), "{}");
    }

    #[test]
    fn an_empty_label_is_none() {
        let mut labels = Labels::one("b", "1");
        labels.set("a", "2");
        labels.set("c", "");
        labels.set("b", "3");
        assert_eq!((labels.to_string().as_str(), labels.get("c")), ("{a=\"2\", b=\"3\"}", ""));
        labels.set("a", "");
        assert_eq!(labels, Labels::one("b", "3"));
    }
}
