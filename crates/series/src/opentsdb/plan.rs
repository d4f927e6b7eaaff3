//! Which series a query means, and which of them are put together.
//!
//! May use: `query`, `filter`, `print`. Must not know: points.

use std::collections::BTreeMap;

use super::aggregator::Aggregator;
use super::filter::{Filter, Grouping};
use super::print::{FIELD_TAG, tag, tags};
use super::query::{OtherTags, SubQuery, Target};
use crate::error::{Error, Result};
use crate::select::{Match, Select, TagMatch};
use crate::source::{Series, Source};

/// The series of a metric that filters let through.
pub(crate) fn of_metric(source: &dyn Source, database: &str, metric: &str, filters: &[Filter]) -> Result<Vec<Series>> {
    let mut select = Select::metric(database, metric);
    // The field is no tag of the series, so that is looked at afterwards.
    let (by_field, by_tag): (Vec<&Filter>, Vec<&Filter>) = filters.iter().partition(|filter| filter.tag == FIELD_TAG);
    select.tags.extend(by_tag.into_iter().flat_map(Filter::to_conditions));
    let mut series = source.series(&select)?;
    series.retain(|series| by_field.iter().all(|filter| filter.matches(tag(&series.key, FIELD_TAG))));
    if series.is_empty() && source.metrics(database)?.binary_search_by(|known| known.as_str().cmp(metric)).is_err() {
        return Err(Error::Missing { what: "metric", name: metric.to_owned() });
    }
    Ok(series)
}

impl SubQuery {
    /// The series that are meant.
    pub(crate) fn series(&self, source: &dyn Source, database: &str) -> Result<Vec<Series>> {
        let mut series = match &self.target {
            Target::Metric(metric) => of_metric(source, database, metric, &self.filters)?,
            Target::Ids(ids) => {
                let mut all = source.series(&Select { database: database.to_owned(), ..Select::default() })?;
                all.retain(|series| ids.contains(&series.id));
                all
            }
        };
        if self.other_tags == OtherTags::Refused {
            let is_named = |name: &str| self.filters.iter().any(|filter| filter.tag == name);
            series.retain(|series| {
                let has_all = self.filters.iter().all(|filter| !tag(&series.key, &filter.tag).is_empty());
                has_all && tags(&series.key).all(|(name, _)| is_named(name))
            });
        }
        Ok(series)
    }

    /// The series in groups, each of which is one series of the answer.
    pub(crate) fn groups(&self, series: Vec<Series>) -> Vec<Vec<Series>> {
        if self.aggregator == Aggregator::None {
            return series.into_iter().map(|series| vec![series]).collect();
        }
        let mut apart: Vec<&str> =
            self.filters.iter().filter(|it| it.grouping == Grouping::Apart).map(|it| it.tag.as_str()).collect();
        apart.sort_unstable();
        apart.dedup();
        if apart.is_empty() {
            return if series.is_empty() { Vec::new() } else { vec![series] };
        }
        let mut groups: BTreeMap<Vec<String>, Vec<Series>> = BTreeMap::new();
        for series in series {
            let values: Vec<String> = apart.iter().map(|name| tag(&series.key, name).to_owned()).collect();
            groups.entry(values).or_default().push(series);
        }
        // What has no such tag belongs to no group, as with OpenTSDB.
        groups
            .into_iter()
            .filter(|(values, _)| values.iter().all(|value| !value.is_empty()))
            .map(|(_, it)| it)
            .collect()
    }

    /// Selections of just these series, to delete their points.
    pub(crate) fn selections(&self, source: &dyn Source, database: &str, series: &[Series]) -> Result<Vec<Select>> {
        let is_plain = self.other_tags == OtherTags::Allowed && self.filters.iter().all(|it| it.tag != FIELD_TAG);
        if let (Target::Metric(metric), true) = (&self.target, is_plain) {
            let mut select = Select::metric(database, metric);
            select.tags.extend(self.filters.iter().flat_map(Filter::to_conditions));
            return Ok(vec![select]);
        }
        let names = source.tag_names(database)?;
        let exact = |series: &Series| {
            let mut select = Select::metric(database, &series.key.metric);
            select.field = Some(Match::is(&series.key.field));
            // The empty string where the series has no such tag.
            let all = names.iter().map(|name| TagMatch { tag: name.clone(), value: Match::is(series.key.tag(name)) });
            select.tags.extend(all);
            select
        };
        Ok(series.iter().map(exact).collect())
    }
}
