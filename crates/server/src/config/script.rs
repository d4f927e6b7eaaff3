//! The keys of scripts: what one run may take.
//!
//! May use: `reading`, `file`. Must not know: how scripts run.

use std::ops::RangeInclusive;
use std::time::Duration;

use doors::resp::ScriptOptions;

use super::error::ConfigError;
use super::file::ScriptTable;
use super::reading::Reading;

pub(super) const MEMORY_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 32;
pub(super) const STEPS: RangeInclusive<i64> = 10_000..=1_000_000_000_000;
pub(super) const TIME_MILLISECONDS: RangeInclusive<i64> = 1..=60_000;

/// What is in force.
pub(super) fn describe(options: &ScriptOptions) -> [String; 3] {
    [
        format!("script.memory_bytes_max = {}", options.memory_bytes_max),
        format!("script.steps_max = {}", options.steps_max),
        format!("script.time_milliseconds_max = {}", options.time_max.as_millis()),
    ]
}

impl Reading<'_> {
    pub(super) fn script(&self, table: &ScriptTable) -> Result<ScriptOptions, ConfigError> {
        let defaults = ScriptOptions::default();
        let memory_bytes_max = self.number("script.memory_bytes_max", table.memory_bytes_max, MEMORY_BYTES)?;
        let steps_max = self.number("script.steps_max", table.steps_max, STEPS)?;
        let time_max: Option<u64> =
            self.number("script.time_milliseconds_max", table.time_milliseconds_max, TIME_MILLISECONDS)?;
        Ok(ScriptOptions {
            memory_bytes_max: memory_bytes_max.unwrap_or(defaults.memory_bytes_max),
            steps_max: steps_max.unwrap_or(defaults.steps_max),
            time_max: time_max.map_or(defaults.time_max, Duration::from_millis),
        })
    }
}
