//! Functions over many points: which there are, what they take, and how they may be combined.
//!
//! May use: `ast`. Must not know: how they are computed.

use super::ast::{Call, Expr, Operand};
use super::cast::Class;
use super::node::arguments;
use crate::error::{Error, Result};

const SECOND: i64 = 1_000_000_000;
/// Points that a function may keep for each of its results.
const KEPT_MAX: i64 = 1_000_000;

/// Makes one value, or some, of the points of a window.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Aggregate {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    First,
    Last,
    Spread,
    Median,
    Mode,
    Stddev,
    Percentile(f64),
    Distinct,
    CountDistinct,
    /// Area in units of that many nanoseconds.
    Integral(i64),
    Top(usize, Vec<String>),
    Bottom(usize, Vec<String>),
}

/// Makes a row of values of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Transform {
    /// Change for each that many nanoseconds; for each window when it is `None`.
    Derivative(Option<i64>, Sign),
    Difference(Sign),
    MovingAverage(usize),
    CumulativeSum,
    Elapsed(i64),
}

/// What becomes of negative results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Any,
    NonNegative,
}

/// A call with what it is applied to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Applied {
    Aggregate(Aggregate, Operand),
    OfField(Transform, Operand),
    OfCall(Transform, Box<Applied>),
}

/// Names of everything, to tell unknown functions from wrong use.
pub(crate) fn is_known(name: &str) -> bool {
    const NAMES: [&str; 23] = [
        "count",
        "sum",
        "mean",
        "min",
        "max",
        "first",
        "last",
        "spread",
        "median",
        "mode",
        "stddev",
        "percentile",
        "distinct",
        "integral",
        "top",
        "bottom",
        "derivative",
        "non_negative_derivative",
        "difference",
        "non_negative_difference",
        "moving_average",
        "cumulative_sum",
        "elapsed",
    ];
    NAMES.contains(&name)
}

/// Whether `name(*)` stands for fields with values of this sort too.
pub(crate) fn takes(name: &str, class: Class) -> bool {
    match class {
        Class::Number => true,
        Class::Boolean => matches!(name, "count" | "first" | "last" | "distinct" | "elapsed" | "mode" | "min" | "max"),
        Class::Text => matches!(name, "count" | "first" | "last" | "distinct" | "elapsed" | "mode"),
    }
}

fn field(call: &Call) -> Result<Operand> {
    let operand = call.arguments.first().and_then(Expr::operand);
    operand.ok_or_else(|| Error::invalid(format!("expected field argument in {}()", call.name)))
}

fn counted(call: &Call, least: usize, most: usize) -> Result<()> {
    let found = call.arguments.len();
    match found {
        _ if (least..=most).contains(&found) => Ok(()),
        _ if least == most => Err(arguments(&call.name, least, found)),
        _ => Err(Error::invalid(format!(
            "invalid number of arguments for {}, expected at least {least} but no more than {most}, got {found}",
            call.name
        ))),
    }
}

fn unit(call: &Call) -> Result<Option<i64>> {
    match call.arguments.get(1) {
        None => Ok(None),
        Some(Expr::Duration(unit)) if *unit > 0 => Ok(Some(*unit)),
        Some(Expr::Duration(_)) => {
            Err(Error::invalid(format!("duration argument must be positive, in {}()", call.name)))
        }
        Some(_) => Err(Error::invalid(format!("second argument to {} must be a duration", call.name))),
    }
}

/// Reads a call.
///
/// # Errors
/// [`Error::Invalid`] in InfluxDB's words when it is none or its arguments are wrong.
pub(crate) fn of(call: &Call) -> Result<Applied> {
    let name = call.name.as_str();
    if !is_known(name) {
        return Err(Error::invalid(format!("undefined function {name}()")));
    }
    if let Some(transform) = transform(call)? {
        return match call.arguments.first() {
            Some(Expr::Call(inner)) => {
                let inner = of(inner)?;
                if matches!(inner, Applied::Aggregate(Aggregate::Top(..) | Aggregate::Bottom(..), _)) {
                    return Err(Error::invalid(format!("expected aggregate function in {name}()")));
                }
                Ok(Applied::OfCall(transform, Box::new(inner)))
            }
            _ => field(call).map(|field| Applied::OfField(transform, field)),
        };
    }
    if name == "count"
        && let Some(Expr::Call(inner)) = call.arguments.first()
        && inner.name == "distinct"
    {
        counted(call, 1, 1)?;
        return distinct(inner).map(|field| Applied::Aggregate(Aggregate::CountDistinct, field));
    }
    let aggregate = match name {
        "percentile" => {
            counted(call, 2, 2)?;
            Aggregate::Percentile(percentile(call)?)
        }
        "integral" => {
            counted(call, 1, 2)?;
            Aggregate::Integral(unit(call)?.unwrap_or(SECOND))
        }
        "distinct" => return distinct(call).map(|field| Applied::Aggregate(Aggregate::Distinct, field)),
        "top" | "bottom" => top(call)?,
        _ => {
            counted(call, 1, 1)?;
            match name {
                "count" => Aggregate::Count,
                "sum" => Aggregate::Sum,
                "mean" => Aggregate::Mean,
                "min" => Aggregate::Min,
                "max" => Aggregate::Max,
                "first" => Aggregate::First,
                "last" => Aggregate::Last,
                "spread" => Aggregate::Spread,
                "median" => Aggregate::Median,
                "mode" => Aggregate::Mode,
                _ => Aggregate::Stddev,
            }
        }
    };
    Ok(Applied::Aggregate(aggregate, field(call)?))
}

fn transform(call: &Call) -> Result<Option<Transform>> {
    let sign = if call.name.starts_with("non_negative_") { Sign::NonNegative } else { Sign::Any };
    Ok(Some(match call.name.as_str() {
        "derivative" | "non_negative_derivative" => {
            counted(call, 1, 2)?;
            Transform::Derivative(unit(call)?, sign)
        }
        "difference" | "non_negative_difference" => {
            counted(call, 1, 1)?;
            Transform::Difference(sign)
        }
        "cumulative_sum" => {
            counted(call, 1, 1)?;
            Transform::CumulativeSum
        }
        "elapsed" => {
            counted(call, 1, 2)?;
            Transform::Elapsed(unit(call)?.unwrap_or(1))
        }
        "moving_average" => {
            counted(call, 2, 2)?;
            match call.arguments.get(1) {
                Some(Expr::Integer(points)) if (2..=KEPT_MAX).contains(points) => {
                    Transform::MovingAverage(usize::try_from(*points).unwrap_or(2))
                }
                Some(Expr::Integer(points)) => {
                    let text = format!("moving_average window must be greater than 1, got {points}");
                    return Err(Error::invalid(text));
                }
                _ => return Err(Error::invalid("second argument for moving_average must be an integer")),
            }
        }
        _ => return Ok(None),
    }))
}

fn distinct(call: &Call) -> Result<Operand> {
    match call.arguments.len() {
        0 => Err(Error::invalid("distinct function requires at least one argument")),
        1 => field(call),
        _ => Err(Error::invalid("distinct function can only have one argument")),
    }
}

fn percentile(call: &Call) -> Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "percentages are small")]
    match call.arguments.get(1) {
        Some(Expr::Integer(percent)) => Ok(*percent as f64),
        Some(Expr::Float(percent)) => Ok(*percent),
        _ => Err(Error::invalid("expected float argument in percentile()")),
    }
}

fn top(call: &Call) -> Result<Aggregate> {
    let name = &call.name;
    let found = call.arguments.len();
    let (Some(Expr::Integer(most)), true) = (call.arguments.last(), found >= 2) else {
        return Err(match found {
            0 | 1 => {
                Error::invalid(format!("invalid number of arguments for {name}, expected at least 2, got {found}"))
            }
            _ => Error::invalid(format!("expected integer as last argument in {name}()")),
        });
    };
    if !(1..=KEPT_MAX).contains(most) {
        return Err(Error::invalid(format!("limit ({most}) in {name} function must be at least 1")));
    }
    let most = usize::try_from(*most).unwrap_or(1);
    let tags = call.arguments.iter().skip(1).take(found - 2).map(|argument| match argument {
        Expr::Name(tag) | Expr::Cast(Operand { name: tag, .. }) => Ok(tag.clone()),
        _ => Err(Error::invalid(format!("only fields or tags are allowed in {name}()"))),
    });
    let tags = tags.collect::<Result<_>>()?;
    Ok(if name == "top" { Aggregate::Top(most, tags) } else { Aggregate::Bottom(most, tags) })
}

impl Aggregate {
    /// Whether it chooses a point, which has a time and other fields.
    pub(crate) fn is_selector(&self) -> bool {
        use Aggregate::{Bottom, First, Last, Max, Min, Percentile, Top};
        matches!(self, First | Last | Min | Max | Percentile(_) | Top(..) | Bottom(..))
    }

    /// Whether windows without points are filled.
    pub(crate) fn is_filled(&self) -> bool {
        use Aggregate::{Bottom, Distinct, Integral, Top};
        !matches!(self, Top(..) | Bottom(..) | Distinct | Integral(_))
    }

    /// Whether its results keep the times of points even in windows.
    pub(crate) fn keeps_times(&self) -> bool {
        matches!(self, Self::Top(..) | Self::Bottom(..))
    }
}

impl Transform {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Derivative(_, Sign::Any) => "derivative",
            Self::Derivative(_, Sign::NonNegative) => "non_negative_derivative",
            Self::Difference(Sign::Any) => "difference",
            Self::Difference(Sign::NonNegative) => "non_negative_difference",
            Self::MovingAverage(_) => "moving_average",
            Self::CumulativeSum => "cumulative_sum",
            Self::Elapsed(_) => "elapsed",
        }
    }
}

impl Applied {
    /// The aggregate it comes down to, if there is one.
    pub(crate) fn aggregate(&self) -> Option<&Aggregate> {
        match self {
            Self::Aggregate(aggregate, _) => Some(aggregate),
            Self::OfField(..) => None,
            Self::OfCall(_, inner) => inner.aggregate(),
        }
    }

    /// The field it is computed of.
    pub(crate) fn operand(&self) -> &Operand {
        match self {
            Self::Aggregate(_, operand) | Self::OfField(_, operand) => operand,
            Self::OfCall(_, inner) => inner.operand(),
        }
    }
}
