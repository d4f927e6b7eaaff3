//! What names a series: database, metric, tags, field.
//!
//! The Influx line `cpu,host=a user=1,system=2` writes to two series of the metric `cpu`, with the fields `user` and `system`. Where
//! a protocol has no fields, points are of the field `value`.
//!
//! May use: nothing. Must not know: protocols' escapes.

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
