//! Sums, means, variances and quantiles, by the algorithms that Prometheus chose: compensated, so that the order of the
//! numbers hardly matters.
//!
//! May use: nothing. Must not know: where the numbers come from.

/// A sum after Kahan and Neumaier.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_infinite() {
            self.lost = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.lost += (self.sum - sum) + value;
        } else {
            self.lost += (value - sum) + self.sum;
        }
        self.sum = sum;
    }

    pub(crate) fn value(&self) -> f64 {
        self.sum + self.lost
    }
}

/// A mean. While the sum is finite it is the sum divided; once it is not, numbers are divided before they are added.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    sum: Sum,
    /// Moves in its place once the sum has overflown.
    moving: Option<f64>,
    count: f64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if let Some(mean) = &mut self.moving {
            // Infinities that agree stay, and do not become the NaN that their difference is.
            if !(mean.is_infinite() && (value.is_finite() || *mean == value)) {
                *mean += value / self.count - *mean / self.count;
            }
            return;
        }
        let before = self.sum;
        self.sum.add(value);
        if self.sum.value().is_infinite() && value.is_finite() && before.value().is_finite() {
            let mean = before.value() / (self.count - 1.0);
            self.moving = Some(mean + (value / self.count - mean / self.count));
        }
    }

    pub(crate) fn value(&self) -> f64 {
        self.moving.unwrap_or_else(|| self.sum.value() / self.count)
    }
}

/// A variance after Welford: of all numbers, not of a sample of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    pub(crate) fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

impl FromIterator<f64> for Sum {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut sum = Self::default();
        values.into_iter().for_each(|value| sum.add(value));
        sum
    }
}

impl FromIterator<f64> for Mean {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut mean = Self::default();
        values.into_iter().for_each(|value| mean.add(value));
        mean
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut spread = Self::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }
}

/// The quantile, between two numbers in proportion. Sorts them, NaN before all others.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the length"
)]
pub(crate) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    values.sort_unstable_by(|a, b| b.is_nan().cmp(&a.is_nan()).then(a.total_cmp(b)));
    let rank = q * (values.len() - 1) as f64;
    let weight = rank - rank.floor();
    let low = (rank.floor() as usize).min(values.len() - 1);
    let high = (low + 1).min(values.len() - 1);
    let [low, high] = [low, high].map(|at| values.get(at).copied().unwrap_or(f64::NAN));
    low * (1.0 - weight) + high * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_not_lost_beside_large_ones() {
        assert_eq!([1.0, 1e100, 1.0, -1e100].into_iter().collect::<Sum>().value(), 2.0);
        assert_eq!([f64::INFINITY, 1.0].into_iter().collect::<Sum>().value(), f64::INFINITY);
        assert!([f64::INFINITY, f64::NEG_INFINITY].into_iter().collect::<Sum>().value().is_nan());
    }

    #[test]
    fn a_mean_does_not_overflow_with_its_sum() {
        let mean = [1.7e308, 1.6e308, 1.5e308].into_iter().collect::<Mean>().value();
        assert!((mean / 1.6e308 - 1.0).abs() < 1e-15, "{mean}");
        assert_eq!([f64::INFINITY, 1.0].into_iter().collect::<Mean>().value(), f64::INFINITY);
        assert!([f64::NAN, 1.0].into_iter().collect::<Mean>().value().is_nan());
    }

    #[test]
    fn quantiles_lie_between_numbers() {
        assert_eq!(quantile(0.5, &mut [3.0, 1.0, 2.0, 10.0]), 2.5);
        assert_eq!((quantile(0.0, &mut [3.0, 1.0]), quantile(1.0, &mut [3.0, 1.0])), (1.0, 3.0));
        assert_eq!(quantile(-0.1, &mut [1.0]), f64::NEG_INFINITY);
        assert_eq!(quantile(1.1, &mut [1.0]), f64::INFINITY);
        assert!(quantile(f64::NAN, &mut [1.0]).is_nan() && quantile(0.5, &mut []).is_nan());
    }
}
