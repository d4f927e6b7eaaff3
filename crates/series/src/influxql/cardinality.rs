//! SHOW ... CARDINALITY: how much of something there is. Counted exactly, also where InfluxDB would estimate.
//!
//! May use: `show`, `answer`. Must not know: points.

use std::collections::{BTreeMap, BTreeSet};

use super::Env;
use super::answer::Sink;
use super::ast::{Counted, Page, Precision, Show, Wanted};
use super::show::series;
use crate::error::Result;
use crate::key::Key;
use crate::value::ValueRef;

/// What is counted of each measurement.
type Counts<'k> = BTreeMap<&'k str, BTreeSet<Vec<&'k str>>>;

fn name_series<'k>(key: &'k Key, to: &mut Counts<'k>) {
    let tags = key.tags.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    to.entry(&key.metric).or_default().insert(tags.collect());
}

/// Answers the statement.
pub(crate) fn cardinality(
    env: &Env<'_>,
    (of, precision): (Counted, Precision),
    show: &Show,
    keys: Option<&Wanted>,
    sink: &mut dyn Sink,
) -> Result<()> {
    let of_whole = show.from.is_empty() && show.condition.is_none() && precision == Precision::Estimated;
    let is_estimate = of_whole && matches!(of, Counted::Series | Counted::Measurements);
    // Of a database that is not there InfluxDB estimates that it is empty.
    let database = env.database(show.database.as_deref())?;
    let is_there = !is_estimate || env.check_database(database).is_ok();
    let found = if is_there { series(env, show)? } else { Vec::new() };
    let mut counts = Counts::new();
    for key in found.iter().map(|series| &series.key) {
        match of {
            Counted::Series | Counted::Measurements => name_series(key, &mut counts),
            Counted::FieldKeys => {
                counts.entry(&key.metric).or_default().insert(vec![&key.field]);
            }
            Counted::TagKeys | Counted::TagValues => {
                for (name, value) in key.tags.iter().filter(|(name, _)| keys.is_none_or(|keys| keys.matches(name))) {
                    let tag = if of == Counted::TagKeys { vec![name.as_str()] } else { vec![name.as_str(), value] };
                    counts.entry(&key.metric).or_default().insert(tag);
                }
            }
        }
    }
    let Page { offset, .. } = show.page;
    let mut send = |name: &str, column: &str, count: usize| {
        // LIMIT and OFFSET are of the rows of each measurement, which has one.
        if offset > 0 {
            return Ok(());
        }
        sink.series(name, &[], &[column.to_owned()])?;
        sink.row(None, &[Some(ValueRef::Integer((count as u64).cast_signed()))])
    };
    match of {
        Counted::Series if is_estimate => send("", "cardinality estimation", counts.values().map(BTreeSet::len).sum()),
        Counted::Measurements if is_estimate => send("", "cardinality estimation", counts.len()),
        Counted::Measurements if counts.is_empty() => Ok(()),
        Counted::Measurements => send("", "count", counts.len()),
        _ => counts.iter().try_for_each(|(name, counted)| send(name, "count", counted.len())),
    }
}
