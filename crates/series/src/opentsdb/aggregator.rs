//! OpenTSDB's aggregators: their names, and what they take for a series that has no point at a moment.
//!
//! May use: nothing. Must not know: how they are computed.

use crate::error::{Error, Result};

/// A function from many numbers to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aggregator {
    /// None: every series for itself.
    None,
    /// The sum.
    Sum,
    /// The mean; of whole numbers without its fraction.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// How many there are.
    Count,
    /// The standard deviation of all of them, not of a sample.
    Dev,
    /// The product.
    Mult,
    /// The first.
    First,
    /// The last.
    Last,
    /// The last less the first.
    Diff,
    /// The upper one of the two in the middle.
    Median,
    /// The sum of the squares.
    SquareSum,
    /// Sum where nothing counts as zero.
    ZimSum,
    /// Minimum where nothing counts as the greatest number.
    MimMin,
    /// Maximum where nothing counts as the least number.
    MimMax,
    /// A percentile.
    Percentile(Percentile),
}

/// A percentile and how it is estimated between two numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentile {
    /// Above 0, up to 1.
    pub(crate) share: f64,
    pub(crate) estimate: Estimate,
}

/// How the place of a percentile is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// `p * (n + 1)`.
    Legacy,
    /// The nearest, as SAS does (R's type 3).
    R3,
    /// `1 + p * (n - 1)` (R's type 7).
    R7,
}

/// What a series counts as between two of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// On the line between them.
    Line,
    /// As zero.
    Zero,
    /// As the greatest number.
    Greatest,
    /// As the least number.
    Least,
    /// As the one before: rates.
    Before,
}

const SIMPLE: [(&str, Aggregator); 16] = [
    ("avg", Aggregator::Avg),
    ("count", Aggregator::Count),
    ("dev", Aggregator::Dev),
    ("diff", Aggregator::Diff),
    ("first", Aggregator::First),
    ("last", Aggregator::Last),
    ("max", Aggregator::Max),
    ("median", Aggregator::Median),
    ("mimmax", Aggregator::MimMax),
    ("mimmin", Aggregator::MimMin),
    ("min", Aggregator::Min),
    ("mult", Aggregator::Mult),
    ("none", Aggregator::None),
    ("squareSum", Aggregator::SquareSum),
    ("sum", Aggregator::Sum),
    ("zimsum", Aggregator::ZimSum),
];
const SHARES: [(&str, f64); 6] = [
    ("50", 50.0 / 100.0),
    ("75", 75.0 / 100.0),
    ("90", 90.0 / 100.0),
    ("95", 95.0 / 100.0),
    ("99", 99.0 / 100.0),
    ("999", 99.9 / 100.0),
];
const ESTIMATES: [(&str, &str, Estimate); 3] =
    [("ep", "r3", Estimate::R3), ("ep", "r7", Estimate::R7), ("p", "", Estimate::Legacy)];

/// Every aggregator by its name.
pub(crate) fn all() -> impl Iterator<Item = (String, Aggregator)> {
    let percentiles = ESTIMATES.into_iter().flat_map(|(before, after, estimate)| {
        SHARES.into_iter().map(move |(digits, share)| {
            (format!("{before}{digits}{after}"), Aggregator::Percentile(Percentile { share, estimate }))
        })
    });
    SIMPLE.into_iter().map(|(name, aggregator)| (name.to_owned(), aggregator)).chain(percentiles)
}

/// The names of all aggregators.
#[must_use]
pub fn aggregators() -> Vec<String> {
    all().map(|(name, _)| name).collect()
}

impl Aggregator {
    /// The aggregator with this name, in any case of letters.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        let found = all().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, aggregator)| aggregator).ok_or_else(|| {
            Error::invalid(format!("No such aggregator: {name}: /api/aggregators lists those that there are"))
        })
    }

    /// What a series counts as between two of its points.
    pub(crate) fn between(self) -> Between {
        match self {
            Self::ZimSum | Self::SquareSum | Self::Count | Self::First | Self::Last | Self::None => Between::Zero,
            Self::MimMin => Between::Greatest,
            Self::MimMax => Between::Least,
            _ => Between::Line,
        }
    }
}
