//! The keys of spaces: how long one query may take.
//!
//! May use: `reading`, `file`. Must not know: how entries are found.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::ConfigError;
use super::file::SpaceTable;
use super::reading::Reading;

pub(super) const QUERY_SECONDS: RangeInclusive<i64> = 1..=86_400;

impl Reading<'_> {
    /// The limits of both doors with what the table says.
    pub(super) fn space(
        &self,
        table: &SpaceTable,
        (resp, http): (&mut doors::resp::Limits, &mut doors::http::Limits),
    ) -> Result<(), ConfigError> {
        let seconds: Option<u64> = self.number("space.query_seconds_max", table.query_seconds_max, QUERY_SECONDS)?;
        if let Some(time) = seconds.map(Duration::from_secs) {
            (resp.space_time_max, http.space_time_max) = (time, time);
        }
        Ok(())
    }
}
