//! What a database has how many series of: where to look when there are too many.
//!
//! May use: `labels`, `source`. Must not know: HTTP.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::select::Select;
use crate::source::Source;

use super::labels::Labels;

/// Names with how many there are of each, most first.
pub type Counts = Vec<(String, u64)>;

/// How many series there are of what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// All of the database.
    pub series: u64,
    /// Different pairs of label and value.
    pub pairs: u64,
    /// Series by the name of the metric.
    pub by_metric: Counts,
    /// Different values by label.
    pub values_by_label: Counts,
    /// Series by `label=value`.
    pub by_pair: Counts,
}

/// Counts the series of a database; each list has at most `top` entries. Looks at every series.
///
/// # Errors
/// [`crate::Error::Source`].
pub fn cardinality(source: &dyn Source, database: &str, top: usize) -> Result<Cardinality> {
    let all = source.series(&Select { database: database.to_owned(), ..Select::default() })?;
    let mut pairs: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut names: BTreeSet<Labels> = BTreeSet::new();
    for series in &all {
        names.insert(Labels::of(&series.key));
    }
    for (name, value) in names.iter().flat_map(Labels::iter) {
        *pairs.entry((name.to_owned(), value.to_owned())).or_default() += 1;
    }
    let mut values: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, _) in pairs.keys() {
        *values.entry(name).or_default() += 1;
    }
    let by_metric = pairs.iter().filter(|((name, _), _)| name == super::NAME);
    Ok(Cardinality {
        series: names.len() as u64,
        pairs: pairs.len() as u64,
        by_metric: most(by_metric.map(|((_, value), count)| (value.clone(), *count)), top),
        values_by_label: most(values.iter().map(|(name, count)| ((*name).to_owned(), *count)), top),
        by_pair: most(pairs.iter().map(|((name, value), count)| (format!("{name}={value}"), *count)), top),
    })
}

fn most(counts: impl Iterator<Item = (String, u64)>, top: usize) -> Counts {
    let mut counts: Counts = counts.collect();
    counts.sort_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
    counts.truncate(top);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn the_most_come_first() {
        let mut model = Model::default();
        for (metric, tags) in [("a", "x=1"), ("a", "x=2"), ("b", "x=1,y=1"), ("a", "x=3")] {
            model.put(metric, tags, &[(1, 1.0)]);
        }
        let found = cardinality(&model, "default", 2).unwrap();
        let counts =
            |of: &Counts| of.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
        assert_eq!((found.series, found.pairs), (4, 6));
        assert_eq!(counts(&found.by_metric), "a 3, b 1");
        assert_eq!(counts(&found.values_by_label), "x 3, __name__ 2");
        assert_eq!(counts(&found.by_pair), "__name__=a 3, x=1 2");
    }
}
