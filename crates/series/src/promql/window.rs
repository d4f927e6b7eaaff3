//! Windows that slide over the numbers of one series.
//!
//! A window reaches from its start, which is not a part of it, up to and including its end, as in Prometheus 3. Both ends only
//! move forward, so the numbers are passed once however many windows there are.
//!
//! May use: `points`, `steps`. Must not know: functions.

use crate::error::Result;
use crate::points::Points;
use crate::value::{Kind, ValueRef};

use super::steps::{Steps, is_there};

/// The numbers of one series by time. Booleans are 0 and 1; texts are not among them.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
    /// When staleness markers say that the series ended: they are not among the numbers.
    pub(crate) ends: Vec<i64>,
    /// Where a value is less than the one before it: a counter that began again. With the value before.
    drops: Vec<(usize, f64)>,
}

/// The numbers in one window.
pub(crate) struct Window<'a> {
    pub(crate) times: &'a [i64],
    pub(crate) values: &'a [f64],
    /// Those of `Samples::drops` between two of the numbers.
    pub(crate) drops: &'a [(usize, f64)],
    /// The moment before its first.
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Samples {
    /// Takes the numbers out of points.
    pub(crate) fn fill(&mut self, points: &Points) {
        self.clear();
        if points.kind() == Some(Kind::Float) {
            let values = points.bits().iter().map(|bits| f64::from_bits(*bits));
            if values.clone().all(is_there) {
                self.times.extend_from_slice(points.times());
                self.values.extend(values);
                return self.find_drops();
            }
        }
        for (time, value) in points.iter() {
            let value = match value {
                ValueRef::Boolean(value) => Some(f64::from(u8::from(value))),
                other => other.number(),
            };
            match value {
                Some(value) if is_there(value) => {
                    self.times.push(time);
                    self.values.push(value);
                }
                Some(_) => self.ends.push(time),
                None => {}
            }
        }
        self.find_drops();
    }

    /// Takes the values of a row at its steps.
    pub(crate) fn fill_row(&mut self, steps: &Steps, cells: &[f64]) {
        self.clear();
        for (time, value) in steps.iter().zip(cells).filter(|(_, value)| is_there(**value)) {
            self.times.push(time);
            self.values.push(*value);
        }
        self.find_drops();
    }

    fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.ends.clear();
    }

    fn find_drops(&mut self) {
        self.drops.clear();
        for (nth, pair) in (1..).zip(self.values.windows(2)) {
            if let [before, now] = pair
                && now < before
            {
                self.drops.push((nth, *before));
            }
        }
    }

    /// Shows the window of `range` nanoseconds that ends at each step.
    ///
    /// # Errors
    /// What `see` says.
    pub(crate) fn slide(
        &self,
        steps: &Steps,
        range: i64,
        mut see: impl FnMut(usize, &Window<'_>) -> Result<()>,
    ) -> Result<()> {
        let (mut low, mut high, mut drop_low, mut drop_high) = (0, 0, 0, 0);
        for (nth, to) in steps.iter().enumerate() {
            let from = to.saturating_sub(range);
            while self.times.get(high).is_some_and(|time| *time <= to) {
                high += 1;
            }
            while low < high && self.times.get(low).is_some_and(|time| *time <= from) {
                low += 1;
            }
            while self.drops.get(drop_high).is_some_and(|(at, _)| *at < high) {
                drop_high += 1;
            }
            while drop_low < drop_high && self.drops.get(drop_low).is_some_and(|(at, _)| *at <= low) {
                drop_low += 1;
            }
            let window = Window {
                times: self.times.get(low..high).unwrap_or_default(),
                values: self.values.get(low..high).unwrap_or_default(),
                drops: self.drops.get(drop_low..drop_high).unwrap_or_default(),
                from,
                to,
            };
            see(nth, &window)?;
        }
        Ok(())
    }
}
