//! The keys of time series: memory, how long a question may take, how many series there may be, how long points are kept, and room on
//! the disk.
//!
//! May use: `reading`, `file`. Must not know: how points are stored.

use std::ops::RangeInclusive;
use std::time::Duration;

use holdfast::Limits;
use holdfast::series::{Retention, SeriesOptions};

use super::error::ConfigError;
use super::file::SeriesTable;
use super::reading::Reading;

pub(super) const MEMORY_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
pub(super) const QUERY_MEMORY_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
pub(super) const QUERY_SECONDS: RangeInclusive<i64> = 1..=86_400;
pub(super) const SERIES: RangeInclusive<i64> = 1..=1_000_000_000;
pub(super) const FREE_BYTES: RangeInclusive<i64> = 0..=1 << 50;
pub(super) const MERGE_BYTES_PER_SECOND: RangeInclusive<i64> = 0..=1 << 50;
const KEEP_HOURS: RangeInclusive<i64> = 1..=2_000_000;

/// What is in force.
pub(super) fn describe(options: &SeriesOptions, limits: &Limits) -> Vec<String> {
    let mut lines = vec![
        format!("series.memory_bytes = {}", limits.series_memory_bytes),
        format!("series.query_memory_bytes = {}", limits.series_query_memory_bytes),
        format!("series.series_max = {}", limits.series_max),
        format!("series.free_bytes_min = {}", options.free_bytes_min),
        format!("series.merge_bytes_per_second = {}", options.merge_bytes_per_second),
    ];
    lines.extend(options.retention.iter().map(|Retention { database, metric, keep }| {
        format!("points of {metric} in {database} are kept for {} h", keep.as_secs() / 3600)
    }));
    lines
}

impl Reading<'_> {
    /// How long both doors have a question work.
    pub(super) fn series_time(
        &self,
        seconds: Option<i64>,
        (resp, http): (&mut doors::resp::Limits, &mut doors::http::Limits),
    ) -> Result<(), ConfigError> {
        let seconds: Option<u64> = self.number("series.query_seconds_max", seconds, QUERY_SECONDS)?;
        if let Some(time) = seconds.map(Duration::from_secs) {
            (resp.series_time_max, http.series_time_max) = (time, time);
        }
        Ok(())
    }

    /// The options, and the limits with what the table says.
    pub(super) fn series(&self, table: SeriesTable, limits: &mut Limits) -> Result<SeriesOptions, ConfigError> {
        let SeriesTable {
            memory_bytes,
            query_memory_bytes,
            query_seconds_max: _,
            series_max,
            free_bytes_min,
            merge_bytes_per_second,
            retention,
        } = table;
        if let Some(bytes) = self.number("series.memory_bytes", memory_bytes, MEMORY_BYTES)? {
            limits.series_memory_bytes = bytes;
        }
        if let Some(bytes) = self.number("series.query_memory_bytes", query_memory_bytes, QUERY_MEMORY_BYTES)? {
            limits.series_query_memory_bytes = bytes;
        }
        if let Some(count) = self.number("series.series_max", series_max, SERIES)? {
            limits.series_max = count;
        }
        let defaults = SeriesOptions::default();
        let free_bytes_min = self.number("series.free_bytes_min", free_bytes_min, FREE_BYTES)?;
        let merge = self.number("series.merge_bytes_per_second", merge_bytes_per_second, MERGE_BYTES_PER_SECOND)?;
        let mut kept = Vec::new();
        for table in retention {
            let hours: Option<u64> = self.number("series.retention.keep_hours", table.keep_hours, KEEP_HOURS)?;
            let missing = || self.wrong("series.retention.keep_hours", "this is missing; say for how many hours");
            let keep = Duration::from_secs(hours.ok_or_else(missing)? * 3600);
            let any = |pattern: Option<String>| pattern.unwrap_or_else(|| "*".to_owned());
            kept.push(Retention { database: any(table.database), metric: any(table.metric), keep });
        }
        Ok(SeriesOptions {
            retention: kept,
            free_bytes_min: free_bytes_min.unwrap_or(defaults.free_bytes_min),
            merge_bytes_per_second: merge.unwrap_or(defaults.merge_bytes_per_second),
        })
    }
}
