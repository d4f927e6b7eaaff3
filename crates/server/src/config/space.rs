//! The keys of spaces: how long one query may take, and what all of them may hold.
//!
//! May use: `reading`, `file`. Must not know: how entries are found.

use std::ops::RangeInclusive;
use std::time::Duration;

use holdfast::Limits;

use super::error::ConfigError;
use super::file::SpaceTable;
use super::reading::Reading;

pub(super) const QUERY_MEMORY_BYTES: RangeInclusive<i64> = 1 << 20..=1 << 40;
pub(super) const QUERY_SECONDS: RangeInclusive<i64> = 1..=86_400;

impl Reading<'_> {
    /// The store's limits, and those of both doors, with what the table says.
    pub(super) fn space(
        &self,
        table: &SpaceTable,
        limits: &mut Limits,
        (resp, http): (&mut doors::resp::Limits, &mut doors::http::Limits),
    ) -> Result<(), ConfigError> {
        let bytes = self.number("space.query_memory_bytes", table.query_memory_bytes, QUERY_MEMORY_BYTES)?;
        if let Some(bytes) = bytes {
            limits.space_query_memory_bytes = bytes;
        }
        let seconds: Option<u64> = self.number("space.query_seconds_max", table.query_seconds_max, QUERY_SECONDS)?;
        if let Some(time) = seconds.map(Duration::from_secs) {
            (resp.space_time_max, http.space_time_max) = (time, time);
        }
        Ok(())
    }
}
