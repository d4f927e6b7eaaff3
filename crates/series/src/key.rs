//! What names a series: database, metric, tags, field.
//!
//! The Influx line `cpu,host=a user=1,system=2` writes to two series of the metric `cpu`, with the fields `user` and `system`. Where
//! a protocol has no fields, points are of the field `value`.
//!
//! May use: errors. Must not know: protocols' escapes.

use crate::error::{Error, Result};

/// The field of points that were written without one.
pub const FIELD_DEFAULT: &str = "value";

/// The name of a series. Equal names are one series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The database. Clients that name none write to `default`.
    pub database: String,
    /// The metric, which Influx calls measurement.
    pub metric: String,
    /// The tags, sorted by name, each name once, no value empty.
    pub tags: Vec<(String, String)>,
    /// The field: [`FIELD_DEFAULT`] unless one was named.
    pub field: String,
}

impl Key {
    /// The value of a tag; the empty string when there is no such tag.
    #[must_use]
    pub fn tag(&self, name: &str) -> &str {
        let at = self.tags.binary_search_by(|(tag, _)| tag.as_str().cmp(name));
        at.ok().and_then(|at| self.tags.get(at)).map_or("", |(_, value)| value.as_str())
    }

    /// A hash of database, metric and tags, which is the same for ever: it says which partition the series lies in. All fields of
    /// a row lie together.
    #[must_use]
    pub fn row_hash(&self) -> u64 {
        // Lengths keep `ab`, `c` and `a`, `bc` apart.
        let mut bytes = Vec::with_capacity(64);
        let tags = self.tags.iter().flat_map(|(name, value)| [name, value]);
        for text in [&self.database, &self.metric].into_iter().chain(tags) {
            base::put_string(&mut bytes, text.as_bytes());
        }
        base::hash64(&bytes)
    }

    /// Whether the field is the one of points that were written without any.
    #[must_use]
    pub fn has_default_field(&self) -> bool {
        self.field == FIELD_DEFAULT
    }
}

/// Whether something may be called so. What a tag says is no name, and may have several lines.
///
/// # Errors
/// [`Error::Invalid`] when there are control characters in it: they are not seen where names are shown.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the name of the {what} has control characters: {}",
            name.escape_default()
        )));
    }
    Ok(())
}

/// Whether a series may have this metric and these tags, which are sorted.
///
/// # Errors
/// [`Error::Invalid`] says why not.
pub(crate) fn check(metric: &str, tags: &[(String, String)]) -> Result<()> {
    if metric.is_empty() {
        return Err(Error::invalid("the name of the metric is empty"));
    }
    check_name("metric", metric)?;
    for (name, value) in tags {
        if name.is_empty() {
            return Err(Error::invalid("the name of a tag is empty"));
        }
        check_name("tag", name)?;
        if value.is_empty() {
            return Err(Error::invalid(format!("the tag {name} has no value: leave it out")));
        }
    }
    let twice = tags.windows(2).find(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
    match twice {
        Some([(name, _), ..]) => Err(Error::invalid(format!("the tag {name} is there twice"))),
        _ => Ok(()),
    }
}
