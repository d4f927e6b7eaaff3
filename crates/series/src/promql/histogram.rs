//! Quantiles of histograms whose buckets are series: each with the label `le`, the largest value that it counts.
//!
//! May use: `steps`. Must not know: where the series come from.

use std::collections::BTreeMap;

use super::labels::{Labels, NAME};
use super::steps::{Table, is_there};

const LE: &str = "le";

/// A bucket at one step.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    upper: f64,
    count: f64,
}

/// The quantile of each histogram.
pub(crate) fn quantiles(qs: &[f64], table: &Table) -> Table {
    let mut histograms: BTreeMap<Labels, Vec<(f64, usize)>> = BTreeMap::new();
    for (row, labels) in table.labels.iter().enumerate() {
        let Ok(upper) = labels.get(LE).parse::<f64>() else { continue };
        let mut of = labels.clone();
        of.set(LE, "");
        of.set(NAME, "");
        histograms.entry(of).or_default().push((upper, row));
    }
    let mut out = Table::new(table.width);
    let mut buckets = Vec::new();
    for (labels, mut rows) in histograms {
        rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let made = out.row(labels);
        for (nth, (to, q)) in made.iter_mut().zip(qs).enumerate() {
            buckets.clear();
            for (upper, row) in &rows {
                match (table.cells(*row).get(nth).copied().filter(|cell| is_there(*cell)), buckets.last_mut()) {
                    (Some(count), Some(Bucket { upper: last, count: sum })) if last == upper => *sum += count,
                    (Some(count), _) => buckets.push(Bucket { upper: *upper, count }),
                    (None, _) => {}
                }
            }
            if !buckets.is_empty() {
                *to = quantile(*q, &mut buckets);
            }
        }
    }
    out
}

/// The quantile, as if values were spread evenly within each bucket.
fn quantile(q: f64, buckets: &mut [Bucket]) -> f64 {
    if q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // Buckets are read at different moments, so that a larger one may have counted less.
    let mut most = f64::NEG_INFINITY;
    for bucket in buckets.iter_mut() {
        most = most.max(bucket.count);
        bucket.count = most;
    }
    let [inner @ .., last] = &*buckets else { return f64::NAN };
    let Some(largest) = inner.last().filter(|_| last.upper == f64::INFINITY) else { return f64::NAN };
    if last.count == 0.0 {
        return f64::NAN;
    }
    let mut rank = q * last.count;
    let at = inner.partition_point(|bucket| bucket.count < rank);
    let Some(bucket) = inner.get(at) else { return largest.upper };
    if at == 0 && bucket.upper <= 0.0 {
        return bucket.upper;
    }
    let (mut lower, mut count) = (0.0, bucket.count);
    if let Some(before) = at.checked_sub(1).and_then(|before| inner.get(before)) {
        lower = before.upper;
        count -= before.count;
        rank -= before.count;
    }
    lower + (bucket.upper - lower) * (rank / count)
}
