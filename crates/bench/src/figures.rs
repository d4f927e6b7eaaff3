//! Numbers that were measured several times, and what may be said of them.
//!
//! A shared machine changes its speed from one second to the next. So each figure is measured in several repetitions,
//! both sides in turn within each, and the ratio is taken within a repetition before anything is summed up: what slows
//! down both sides alike drops out. The median is what to believe, the range is how much.
//!
//! May use: nothing. Must not know: what is measured, how it is shown.

/// Middle and ends of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// What a figure's numbers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Nanos,
    Seconds,
    Bytes,
    /// A bare number.
    Count,
}

/// What a figure must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bar {
    /// The first side, at least.
    AtLeast(f64),
    /// The first side, less than.
    Below(f64),
    /// First side by second side, at least.
    RatioAtLeast(f64),
    /// First side by second side, less than.
    RatioBelow(f64),
}

/// One figure of one piece of work: samples of each side, one for each repetition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) work: String,
    pub(crate) figure: String,
    pub(crate) unit: Unit,
    /// The first side is ours; a ratio is first by another.
    pub(crate) sides: Vec<(String, Vec<f64>)>,
    pub(crate) bar: Option<Bar>,
}

impl Range {
    /// `None` without samples.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let lower = if sorted.len().is_multiple_of(2) { *sorted.get(middle - 1)? } else { upper };
        Some(Self { median: f64::midpoint(lower, upper), min, max })
    }
}

impl Row {
    /// First side by another, the second being 1, for each repetition that has both.
    pub(crate) fn ratios(&self, to: usize) -> Vec<f64> {
        let (Some((_, ours)), Some((_, theirs))) = (self.sides.first(), self.sides.get(to)) else { return Vec::new() };
        ours.iter().zip(theirs).filter(|(_, theirs)| **theirs != 0.0).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// Whether the median reaches the bar; `None` without a bar or without samples.
    pub(crate) fn reached(&self) -> Option<bool> {
        let ours = || self.sides.first().and_then(|(_, samples)| Range::of(samples));
        let (range, bar) = match self.bar? {
            bar @ (Bar::AtLeast(_) | Bar::Below(_)) => (ours()?, bar),
            bar @ (Bar::RatioAtLeast(_) | Bar::RatioBelow(_)) => (Range::of(&self.ratios(1))?, bar),
        };
        Some(match bar {
            Bar::AtLeast(least) | Bar::RatioAtLeast(least) => range.median >= least,
            Bar::Below(most) | Bar::RatioBelow(most) => range.median < most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: &[f64], theirs: &[f64], bar: Bar) -> Row {
        let sides = vec![("ours".to_owned(), ours.to_vec()), ("theirs".to_owned(), theirs.to_vec())];
        Row { work: "w".into(), figure: "f".into(), unit: Unit::Count, sides, bar: Some(bar) }
    }

    #[test]
    fn the_median_of_odd_and_even_numbers_of_samples() {
        let range = |samples: &[f64]| Range::of(samples).map(|r| (r.median, r.min, r.max));
        assert_eq!(range(&[]), None);
        assert_eq!(range(&[5.0]), Some((5.0, 5.0, 5.0)));
        assert_eq!(range(&[9.0, 1.0, 2.0]), Some((2.0, 1.0, 9.0)));
        assert_eq!(range(&[4.0, 1.0, 2.0, 9.0]), Some((3.0, 1.0, 9.0)));
    }

    #[test]
    fn ratios_are_taken_within_each_repetition() {
        // The machine was ten times slower in the second repetition, and the ratio does not show it.
        let row = row(&[200.0, 20.0, 210.0], &[100.0, 10.0, 105.0], Bar::RatioAtLeast(2.0));
        assert_eq!(row.ratios(1), [2.0, 2.0, 2.0]);
        assert_eq!(row.reached(), Some(true));
    }

    #[test]
    fn bars_look_at_the_median_of_what_they_name() {
        let of = |bar| row(&[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0], bar).reached();
        assert_eq!((of(Bar::AtLeast(2.0)), of(Bar::AtLeast(2.1))), (Some(true), Some(false)));
        assert_eq!((of(Bar::Below(2.1)), of(Bar::Below(2.0))), (Some(true), Some(false)));
        assert_eq!((of(Bar::RatioAtLeast(1.0)), of(Bar::RatioBelow(1.0))), (Some(true), Some(false)));
        assert_eq!(row(&[], &[], Bar::RatioAtLeast(1.0)).reached(), None);
    }

    #[test]
    fn a_missing_or_zero_other_side_has_no_ratio() {
        assert!(row(&[1.0, 2.0], &[0.0], Bar::AtLeast(1.0)).ratios(1).is_empty());
    }
}
