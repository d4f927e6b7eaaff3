//! Who writes what: devices, sensors, times and names, as iot-benchmark has them.
//!
//! Each client is one device, which has some sensors and sends some rows in each request; a row is one moment. To protocols without
//! fields a sensor is a metric with the tags `device` and `group`; in an Influx line the group is the measurement, the device
//! its tag, and the sensors are its fields.
//!
//! May use: `family.rs`. Must not know: protocols, clients.

use std::ops::Range;

use super::family::{Origin, Wave};

/// The group of all devices: one, so that every query language can ask for all devices at once.
pub(crate) const GROUP: &str = "g_0";
/// The first row, in milliseconds since 1970: a full hour in November 2023.
pub(crate) const FIRST_MILLIS: i64 = 1_699_999_200_000;

/// The whole of what a run writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) devices: u32,
    pub(crate) sensors: u32,
    /// Milliseconds from row to row.
    pub(crate) step_millis: u32,
}

/// A part of it: these rows of these devices, all sensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) devices: Range<u32>,
    pub(crate) rows: Range<u64>,
}

impl Scenario {
    /// The time of a row, in milliseconds since 1970.
    pub(crate) fn millis(&self, row: u64) -> i64 {
        FIRST_MILLIS.saturating_add_unsigned(row.saturating_mul(u64::from(self.step_millis)))
    }

    /// How many rows are in so many milliseconds.
    pub(crate) fn rows_in(&self, millis: u64) -> u64 {
        millis / u64::from(self.step_millis.max(1))
    }

    /// The values of one series.
    pub(crate) fn wave(&self, device: u32, sensor: u32) -> Wave {
        Wave::new(Origin { seed: self.seed, device, sensor })
    }

    /// Points in a part.
    pub(crate) fn points(&self, block: &Block) -> u64 {
        let devices = u64::from(block.devices.end.saturating_sub(block.devices.start));
        let rows = block.rows.end.saturating_sub(block.rows.start);
        devices * rows * u64::from(self.sensors)
    }
}

/// Name of a device.
pub(crate) fn device_name(device: u32) -> String {
    format!("d_{device}")
}

/// Name of a sensor.
pub(crate) fn sensor_name(sensor: u32) -> String {
    format!("s_{sensor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_rows_and_times_fit_together() {
        let scenario = Scenario { seed: 1, devices: 200, sensors: 10, step_millis: 5_000 };
        assert_eq!(scenario.points(&Block { devices: 7..8, rows: 20..40 }), 200);
        assert_eq!(scenario.points(&Block { devices: 0..20, rows: 0..1 }), 200);
        assert_eq!(scenario.millis(720) - scenario.millis(0), 3_600_000);
        assert_eq!((scenario.millis(0) % 3_600_000, scenario.rows_in(250_000)), (0, 50));
    }
}
