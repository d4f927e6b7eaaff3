//! Points counted back: each series has to have as many as were written, and some are compared value by value.
//!
//! May use: `ask`, `http.rs`. Must not know: which server it is, how points came in.

use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use tokio::runtime::{Builder, Runtime};

use super::ask::{Ask, Found, Read, There};
use super::doors::Doors;
use super::http::Http;
use super::scenario::{Scenario, device_name};
use super::way::Shape;
use crate::workload::{Failure, Result};

/// Servers that show points late have this long without any new one.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);
/// How many ranges are compared value by value.
const SAMPLES: u32 = 30;

/// One caller that asks a server, one question after the other.
pub(crate) struct Asker<'a> {
    runtime: Runtime,
    http: Http,
    doors: &'a Doors,
}

/// What has to be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) scenario: Scenario,
    pub(crate) shape: Shape,
    /// Rows of each device.
    pub(crate) rows: u64,
}

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    /// Points of all series.
    pub(crate) found: u64,
    /// Points that series have too few, and too many.
    pub(crate) missing: u64,
    pub(crate) surplus: u64,
}

impl<'a> Asker<'a> {
    /// Connects.
    pub(crate) fn new(doors: &'a Doors) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let http = runtime.block_on(Http::connect(doors.query))?;
        Ok(Self { runtime, http, doors })
    }

    /// Asks, and understands the answer; how long it took until that was there, without understanding it.
    ///
    /// # Errors
    /// When the server has no words for it, or answers with an error.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<(Vec<Found>, Duration)> {
        let asked = self.doors.request(ask);
        let (language, request) =
            asked.ok_or_else(|| Failure::from(format!("{}: no language for that", ask.read.name())))?;
        let began = Instant::now();
        let body = self.runtime.block_on(self.http.ask(&request));
        let took = began.elapsed();
        let body = body.map_err(|failure| Failure::from(format!("{}: {failure}", ask.read.name())))?;
        Ok((language.found(ask.read, body)?, took))
    }
}

impl Written {
    /// Counts until everything is there, or nothing more comes.
    pub(crate) fn count(&self, doors: &Doors) -> Result<Counted> {
        let mut asker = Asker::new(doors)?;
        let (mut before, mut since) = (Counted::default(), Instant::now());
        loop {
            let counted = self.count_once(&mut asker)?;
            if counted.missing == 0 || (counted == before && since.elapsed() > PATIENCE) {
                return Ok(counted);
            }
            if counted != before {
                (before, since) = (counted, Instant::now());
            }
            thread::sleep(PAUSE);
        }
    }

    fn count_once(&self, asker: &mut Asker<'_>) -> Result<Counted> {
        let mut counted = Counted::default();
        for sensor in 0..self.scenario.sensors {
            let ask = Ask { sensor, ..Ask::all(Read::Count, self.shape, &self.scenario, self.rows) };
            let (found, _) = asker.ask(&ask)?;
            counted.add(&self.scenario, self.rows, &found);
        }
        Ok(counted)
    }

    /// Compares some ranges value by value: the first rows, the last ones, and some between.
    ///
    /// # Errors
    /// With what differs.
    pub(crate) fn sample(&self, doors: &Doors) -> Result<()> {
        let mut asker = Asker::new(doors)?;
        let mut random = Random::new(self.scenario.seed ^ self.rows);
        for number in 0..SAMPLES {
            let device = u32::try_from(random.below(u64::from(self.scenario.devices)))?;
            let there = There { scenario: &self.scenario, device, rows: self.rows };
            let some = Ask::any(Read::Range, self.shape, there, &mut random);
            let length = some.rows.end - some.rows.start;
            let rows = match number % 3 {
                0 => 0..length,
                1 => self.rows - length..self.rows,
                _ => some.rows.clone(),
            };
            let ask = some.over(&self.scenario, rows);
            ask.check(&self.scenario, &asker.ask(&ask)?.0)?;
        }
        Ok(())
    }
}

impl Counted {
    /// Adds what was found of one sensor of all devices.
    fn add(&mut self, scenario: &Scenario, rows: u64, found: &[Found]) {
        let mut by_device = std::collections::BTreeMap::new();
        for series in found {
            // A server may cut the range into parts.
            let points: f64 = series.points.iter().map(|(_, count)| count).sum();
            *by_device.entry(series.device.clone().unwrap_or_default()).or_insert(0) += points as u64;
        }
        for device in 0..scenario.devices {
            let there = by_device.remove(&device_name(device)).unwrap_or(0);
            self.found += there;
            self.missing += rows.saturating_sub(there);
            self.surplus += there.saturating_sub(rows);
        }
        // Of devices that never wrote.
        let strange: u64 = by_device.values().sum();
        self.found += strange;
        self.surplus += strange;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: Scenario = Scenario { seed: 1, devices: 3, sensors: 2, step_millis: 5_000 };

    fn found(device: &str, counts: &[f64]) -> Found {
        Found { device: Some(device.to_owned()), points: counts.iter().map(|count| (0, *count)).collect() }
    }

    #[test]
    fn points_that_one_series_has_too_few_are_not_made_up_for_by_another() {
        let mut counted = Counted::default();
        counted.add(&SCENARIO, 20, &[found("d_0", &[20.0]), found("d_1", &[19.0]), found("d_2", &[21.0])]);
        assert_eq!(counted, Counted { found: 60, missing: 1, surplus: 1 });
        counted.add(&SCENARIO, 20, &[found("d_0", &[12.0, 8.0]), found("d_2", &[20.0]), found("d_9", &[5.0])]);
        assert_eq!(counted, Counted { found: 105, missing: 21, surplus: 6 });
    }
}
