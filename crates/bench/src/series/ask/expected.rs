//! What an answer has to be, made anew from the seed.
//!
//! Points themselves have to come back as they were written, with their time. Sums and averages may be rounded in another order, and
//! languages disagree on the time that a bucket bears, so of those only the values count.
//!
//! May use: `scenario.rs`, `family.rs`. Must not know: languages.

use std::ops::Range;

use super::super::family::as_read;
use super::super::scenario::{Scenario, device_name};
use super::{Ask, Found, HOUR_MILLIS, MINUTE_MILLIS, Read};

/// How far a sum in another order may be off, by its size.
const ROUNDING: f64 = 1e-11;

/// Compares; what differs.
pub(super) fn check(ask: &Ask, scenario: &Scenario, found: &[Found]) -> Result<(), String> {
    let raw = matches!(ask.read, Read::Precise | Read::Range | Read::Filter | Read::Descending);
    let devices = if matches!(ask.read, Read::Devices | Read::Count) { 0..scenario.devices } else { one(ask.device) };
    let count = devices.end - devices.start;
    let wanted_series = if points(ask, scenario, ask.device).is_empty() { 0 } else { count };
    if found.len() != usize::try_from(wanted_series).unwrap_or(usize::MAX) {
        return Err(format!("{wanted_series} series were wanted, {} found", found.len()));
    }
    if wanted_series == 0 {
        return Ok(());
    }
    for device in devices {
        let name = device_name(device);
        let series = found.iter().find(|found| count == 1 || found.device.as_ref() == Some(&name));
        let series = series.ok_or_else(|| format!("nothing was found of {name}"))?;
        let wanted = points(ask, scenario, device);
        if series.points.len() != wanted.len() {
            return Err(format!("{name}: {} points were wanted, {} found", wanted.len(), series.points.len()));
        }
        for (found, wanted) in series.points.iter().zip(&wanted) {
            let same = if raw { found == wanted } else { near(found.1, wanted.1) };
            if !same {
                return Err(format!("{name}: {wanted:?} was wanted, {found:?} found"));
            }
        }
    }
    Ok(())
}

fn one(device: u32) -> Range<u32> {
    device..device + 1
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= ROUNDING * wanted.abs().max(1.0)
}

/// What one device has to show.
fn points(ask: &Ask, scenario: &Scenario, device: u32) -> Vec<(i64, f64)> {
    let wave = scenario.wave(device, ask.sensor);
    let value = |row: u64| (scenario.millis(row), as_read(wave.hundredths(row)));
    let all = ask.rows.clone().map(value);
    match ask.read {
        Read::Precise | Read::Range => all.collect(),
        Read::Descending => all.rev().collect(),
        Read::Filter => all.filter(|(_, value)| *value > f64::from(ask.above)).collect(),
        Read::Latest => ask.rows.end.checked_sub(1).map(value).into_iter().collect(),
        Read::Sum => vec![(ask.from, all.map(|(_, value)| value).sum())],
        Read::Count => vec![(ask.from, all.count() as f64)],
        Read::Hourly => averages(all, HOUR_MILLIS),
        Read::Devices => averages(all, MINUTE_MILLIS),
    }
}

/// Averages of what is within the same multiple of so many milliseconds.
fn averages(points: impl Iterator<Item = (i64, f64)>, millis: u64) -> Vec<(i64, f64)> {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    let mut buckets: Vec<(i64, f64, f64)> = Vec::new();
    for (time, value) in points {
        let start = time - time % millis;
        match buckets.last_mut() {
            Some(bucket) if bucket.0 == start => (bucket.1, bucket.2) = (bucket.1 + value, bucket.2 + 1.0),
            _ => buckets.push((start, value, 1.0)),
        }
    }
    buckets.into_iter().map(|(start, sum, count)| (start, sum / count)).collect()
}

#[cfg(test)]
mod tests {
    use base::Random;

    use super::super::super::way::Shape;
    use super::super::There;
    use super::*;

    const SCENARIO: Scenario = Scenario { seed: 1, devices: 3, sensors: 10, step_millis: 5_000 };

    fn right(ask: &Ask) -> Vec<Found> {
        let of = |device| Found { device: Some(device_name(device)), points: points(ask, &SCENARIO, device) };
        let all = matches!(ask.read, Read::Devices | Read::Count);
        let found: Vec<Found> = if all { (0..3).map(of).collect() } else { vec![of(ask.device)] };
        found.into_iter().filter(|found| !found.points.is_empty()).collect()
    }

    #[test]
    fn a_right_answer_is_right_and_a_point_that_is_lost_or_changed_is_found_out() {
        let mut random = Random::new(9);
        for read in Read::MIX.into_iter().chain([Read::Devices, Read::Count]) {
            for _ in 0..20 {
                let ask =
                    Ask::any(read, Shape::Metrics, There { scenario: &SCENARIO, device: 1, rows: 15_000 }, &mut random);
                let found = right(&ask);
                check(&ask, &SCENARIO, &found).unwrap();
                if found.is_empty() {
                    continue;
                }
                let mut lost = found.clone();
                lost.last_mut().unwrap().points.pop();
                assert!(check(&ask, &SCENARIO, &lost).is_err(), "{ask:?} without a point");
                let mut changed = found.clone();
                changed[0].points[0].1 += 0.01;
                assert!(check(&ask, &SCENARIO, &changed).is_err(), "{ask:?} with another value");
                assert!(check(&ask, &SCENARIO, &[]).is_err(), "{ask:?} with nothing");
            }
        }
    }

    #[test]
    fn averages_are_of_hours_and_the_last_may_be_part_of_one() {
        let points = [(0, 1.0), (3_599_999, 3.0), (3_600_000, 9.0)];
        assert_eq!(averages(points.into_iter(), HOUR_MILLIS), [(0, 2.0), (3_600_000, 9.0)]);
    }
}
