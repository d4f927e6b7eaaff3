//! Conditions on documents, with the three-valued logic of SQL.
//!
//! * What is missing is null. A comparison with null is unknown, NOT unknown is unknown, and only true matches.
//! * Values of different classes (see `compare.rs`) are not equal, and which of them is less is unknown: `price > 5` does
//!   not match a price of 'high', nor does `NOT price > 5`. Numbers of all kinds are one class.
//! * A comparison over a path with `[*]` is the OR of it over the items: true when it is true of any, false of an empty list.
//!
//! May use: `compare`, `path`, `pattern`, `template`, `value`. Must not know: SQL's text, indexes.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::compare::{Class, compare};
use crate::error::{Error, Result, invalid, limit};
use crate::path::Path;
use crate::pattern::{Like, RLike};
use crate::template::Template;
use crate::value::{DEPTH_MAX, MapRef, StoredValue, Value, ValueRef};

/// How deep conditions may lie within each other.
pub const PREDICATE_DEPTH_MAX: usize = 64;

/// How many conditions, items of IN lists among them, a predicate may have.
pub const PREDICATE_PARTS_MAX: usize = 64 << 10;

/// How many regular expressions a predicate may have: each may take a megabyte once it is compiled.
pub const RLIKES_MAX: usize = 64;

/// A condition on a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    /// Always true.
    True,
    /// Always false.
    False,
    /// All are true.
    And(Vec<Predicate>),
    /// At least one is true.
    Or(Vec<Predicate>),
    /// It is false.
    Not(Box<Predicate>),
    /// A value compared with another.
    Compare {
        /// Where the value lies.
        path: Path,
        /// How it is compared.
        operator: Operator,
        /// With what.
        operand: Operand,
    },
    /// A value is one of several.
    In {
        /// Where the value lies.
        path: Path,
        /// What it may be.
        choices: Choices,
    },
    /// A value lies between two others, or is one of them.
    Between {
        /// Where the value lies.
        path: Path,
        /// The least that it may be.
        low: Operand,
        /// The most that it may be.
        high: Operand,
    },
    /// A text looks like a pattern.
    Matches {
        /// Where the text lies.
        path: Path,
        /// What it looks like.
        pattern: Pattern,
    },
    /// A value is null or missing.
    IsNull(Path),
    /// The document matches an example.
    Template(Template),
}

/// What a path takes, roughly.
pub(crate) const PATH_BYTES: usize = 64;

/// Plain conditions that take as long as a regular expression may: that takes up to microseconds for each byte of a text.
const RLIKE_EFFORT: usize = 256;

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What a value is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// This value.
    Literal(StoredValue),
    /// The parameter of this number, from 0; unknown until bound.
    Parameter(usize),
}

/// The right side of IN.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choices {
    /// By [`compare`], each once, without null.
    literals: Vec<StoredValue>,
    null: bool,
    parameters: Vec<usize>,
}

/// What a text should look like.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// LIKE.
    Like(Like),
    /// RLIKE.
    RLike(RLike),
    /// LIKE a parameter of this number; unknown until bound.
    LikeParameter {
        /// The parameter.
        number: usize,
        /// What follows ESCAPE.
        escape: Option<char>,
    },
    /// RLIKE a parameter of this number; unknown until bound.
    RLikeParameter(usize),
}

/// The least is what AND gives, the greatest what OR gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Truth {
    False,
    Unknown,
    True,
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl Predicate {
    /// Whether a document of these fields matches. Parameters that are not bound match nothing. Allocates nothing.
    #[must_use]
    pub fn matches(&self, fields: MapRef<'_>) -> bool {
        self.truth(fields) == Truth::True
    }

    /// The predicate with values for its parameters.
    ///
    /// # Errors
    /// `Invalid` when a parameter is missing or is no pattern where one is needed; `Limit` when the predicate or a parameter is
    /// too large.
    pub fn bind(&self, parameters: &[Value]) -> Result<Self> {
        self.check()?;
        // Foreign values are bounded where they are read; the depth is for those that a program makes. Each once: a parameter may be asked for in thousands of places.
        let stored = |value: &Value| value.check_depth(DEPTH_MAX).map(|()| value.stored());
        let parameters = parameters.iter().map(stored).collect::<Result<Vec<_>>>()?;
        self.bound(&parameters)
    }

    /// How many parameters it needs.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let of = |operand: &Operand| if let Operand::Parameter(number) = operand { number + 1 } else { 0 };
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::parameters).max().unwrap_or(0),
            Self::Not(part) => part.parameters(),
            Self::Compare { operand, .. } => of(operand),
            Self::Between { low, high, .. } => of(low).max(of(high)),
            Self::In { choices, .. } => choices.parameters.iter().map(|number| number + 1).max().unwrap_or(0),
            Self::Matches {
                pattern: Pattern::LikeParameter { number, .. } | Pattern::RLikeParameter(number), ..
            } => number + 1,
            Self::Matches { .. } | Self::True | Self::False | Self::IsNull(_) | Self::Template(_) => 0,
        }
    }

    /// Refuses what is too deep or too large. [`Predicate::bind`] does so as well.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check(&self) -> Result<()> {
        let mut parts = Parts::default();
        self.count(PREDICATE_DEPTH_MAX, &mut parts)?;
        limit("number of conditions", parts.all, PREDICATE_PARTS_MAX)?;
        limit("number of regular expressions in a condition", parts.rlikes, RLIKES_MAX)
    }

    /// How much work it is at most to look whether a document matches, in plain conditions.
    pub(crate) fn effort(&self) -> usize {
        let mut parts = Parts::default();
        // What is too deep is refused when it is bound.
        let _ = self.count(PREDICATE_DEPTH_MAX, &mut parts);
        parts.all + parts.rlikes * RLIKE_EFFORT
    }

    /// What it takes of memory, roughly: regular expressions as large as they may be.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of = |operand: &Operand| match operand {
            Operand::Literal(literal) => literal.as_bytes().len(),
            Operand::Parameter(_) => 0,
        };
        let more = match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().map(Self::memory_bytes).sum(),
            Self::Not(part) => part.memory_bytes(),
            Self::Compare { operand, .. } => PATH_BYTES + of(operand),
            Self::Between { low, high, .. } => PATH_BYTES + of(low) + of(high),
            Self::In { choices, .. } => {
                let literals = choices.literals.iter();
                PATH_BYTES + literals.map(|it| size_of::<StoredValue>() + it.as_bytes().len()).sum::<usize>()
            }
            Self::Matches { pattern: Pattern::Like(like), .. } => PATH_BYTES + like.bytes(),
            Self::Matches { pattern: Pattern::RLike(rlike), .. } => PATH_BYTES + rlike.bytes(),
            Self::Matches { .. } | Self::IsNull(_) => PATH_BYTES,
            // Once as it came, and once by field.
            Self::Template(template) => 4 * template.document().as_bytes().len(),
            Self::True | Self::False => 0,
        };
        size_of::<Self>() + more
    }

    fn count(&self, depth: usize, parts: &mut Parts) -> Result<()> {
        parts.all += 1;
        let Some(below) = depth.checked_sub(1) else {
            let limit = PREDICATE_DEPTH_MAX as u64;
            return Err(Error::Limit { what: "depth of conditions", actual: limit + 1, limit });
        };
        match self {
            Self::And(inner) | Self::Or(inner) => inner.iter().try_for_each(|part| part.count(below, parts)),
            Self::Not(part) => part.count(below, parts),
            Self::In { choices, .. } => {
                parts.all += choices.literals.len() + choices.parameters.len();
                Ok(())
            }
            Self::Matches { pattern: Pattern::RLike(_) | Pattern::RLikeParameter(_), .. } => {
                parts.rlikes += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn truth(&self, fields: MapRef<'_>) -> Truth {
        match self {
            Self::True => Truth::True,
            Self::False => Truth::False,
            Self::And(parts) => {
                let mut least = Truth::True;
                for part in parts {
                    least = least.min(part.truth(fields));
                    if least == Truth::False {
                        break;
                    }
                }
                least
            }
            Self::Or(parts) => {
                let mut greatest = Truth::False;
                for part in parts {
                    greatest = greatest.max(part.truth(fields));
                    if greatest == Truth::True {
                        break;
                    }
                }
                greatest
            }
            Self::Not(part) => match part.truth(fields) {
                Truth::True => Truth::False,
                Truth::Unknown => Truth::Unknown,
                Truth::False => Truth::True,
            },
            Self::Compare { path, operator, operand: Operand::Literal(literal) } => {
                let literal = literal.get();
                any(path, fields, |value| operator.truth(value, literal))
            }
            Self::Between { path, low: Operand::Literal(low), high: Operand::Literal(high) } => {
                let (low, high) = (low.get(), high.get());
                any(path, fields, |value| {
                    let above = Operator::GreaterOrEqual.truth(value, low);
                    above.min(Operator::LessOrEqual.truth(value, high))
                })
            }
            Self::Compare { .. } | Self::Between { .. } => Truth::Unknown,
            Self::In { path, choices } => any(path, fields, |value| choices.truth(value)),
            Self::Matches { path, pattern } => any(path, fields, |value| pattern.truth(value)),
            Self::IsNull(path) => any(path, fields, |value| (value == ValueRef::Null).into()),
            Self::Template(template) => template.matches(fields).into(),
        }
    }

    fn bound(&self, parameters: &[StoredValue]) -> Result<Self> {
        let all = |parts: &[Self]| parts.iter().map(|part| part.bound(parameters)).collect::<Result<Vec<_>>>();
        Ok(match self {
            Self::And(parts) => Self::And(all(parts)?),
            Self::Or(parts) => Self::Or(all(parts)?),
            Self::Not(part) => Self::Not(Box::new(part.bound(parameters)?)),
            Self::Compare { path, operator, operand } => {
                Self::Compare { path: path.clone(), operator: *operator, operand: operand.bound(parameters)? }
            }
            Self::Between { path, low, high } => {
                Self::Between { path: path.clone(), low: low.bound(parameters)?, high: high.bound(parameters)? }
            }
            Self::In { path, choices } => Self::In { path: path.clone(), choices: choices.bound(parameters)? },
            Self::Matches { path, pattern } => {
                let text = |number: usize| match parameter(parameters, number)?.get() {
                    ValueRef::Null => Ok(None),
                    ValueRef::String(text) => Ok(Some(text)),
                    _ => invalid(format!("parameter {} must be a string, as it is a pattern", number + 1)),
                };
                let pattern = match pattern {
                    Pattern::Like(_) | Pattern::RLike(_) => Some(pattern.clone()),
                    Pattern::LikeParameter { number, escape } => {
                        text(*number)?.map(|text| Like::new(text, *escape).map(Pattern::Like)).transpose()?
                    }
                    Pattern::RLikeParameter(number) => {
                        text(*number)?.map(|text| RLike::new(text).map(Pattern::RLike)).transpose()?
                    }
                };
                let path = path.clone();
                match pattern {
                    Some(pattern) => Self::Matches { path, pattern },
                    // LIKE NULL is unknown, as a comparison with null is.
                    None => Self::Compare { path, operator: Operator::Equal, operand: Operand::from(&Value::Null) },
                }
            }
            Self::True | Self::False | Self::IsNull(_) | Self::Template(_) => self.clone(),
        })
    }
}

/// How many parts a predicate has.
#[derive(Default)]
struct Parts {
    all: usize,
    rlikes: usize,
}

fn any(path: &Path, fields: MapRef<'_>, mut test: impl FnMut(ValueRef<'_>) -> Truth) -> Truth {
    let mut greatest = Truth::False;
    let _ = path.values(fields, |value| {
        greatest = greatest.max(test(value));
        if greatest == Truth::True { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    greatest
}

fn parameter(parameters: &[StoredValue], number: usize) -> Result<&StoredValue> {
    match parameters.get(number) {
        Some(value) => Ok(value),
        None => invalid(format!("parameter {} is missing: {} were given", number + 1, parameters.len())),
    }
}

impl Operator {
    fn truth(self, value: ValueRef<'_>, other: ValueRef<'_>) -> Truth {
        if value == ValueRef::Null || other == ValueRef::Null {
            return Truth::Unknown;
        }
        let order = match (self, Class::of(value) == Class::of(other)) {
            (Self::Equal, false) => return Truth::False,
            (Self::NotEqual, false) => return Truth::True,
            (_, false) => return Truth::Unknown,
            (_, true) => compare(value, other),
        };
        self.holds(order).into()
    }

    /// Whether it holds of two values that lie so to each other.
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

impl Operand {
    fn bound(&self, parameters: &[StoredValue]) -> Result<Self> {
        match self {
            Self::Literal(_) => Ok(self.clone()),
            Self::Parameter(number) => Ok(Self::Literal(parameter(parameters, *number)?.clone())),
        }
    }
}

impl From<&Value> for Operand {
    fn from(value: &Value) -> Self {
        Self::Literal(value.stored())
    }
}

impl Choices {
    /// A choice of these.
    #[must_use]
    pub fn new(operands: impl IntoIterator<Item = Operand>) -> Self {
        let mut choices = Self::default();
        for operand in operands {
            match operand {
                Operand::Literal(literal) if literal.get() == ValueRef::Null => choices.null = true,
                Operand::Literal(literal) => choices.literals.push(literal),
                Operand::Parameter(number) => choices.parameters.push(number),
            }
        }
        choices.literals.sort_by(|a, b| compare(a.get(), b.get()));
        choices.literals.dedup_by(|a, b| compare(a.get(), b.get()).is_eq());
        choices
    }

    /// The values without null, in order; `None` before all parameters are bound.
    pub(crate) fn literals(&self) -> Option<&[StoredValue]> {
        self.parameters.is_empty().then_some(&self.literals)
    }

    fn truth(&self, value: ValueRef<'_>) -> Truth {
        if value == ValueRef::Null {
            Truth::Unknown
        } else if self.literals.binary_search_by(|literal| compare(literal.get(), value)).is_ok() {
            Truth::True
        } else if self.null || !self.parameters.is_empty() {
            Truth::Unknown
        } else {
            Truth::False
        }
    }

    fn bound(&self, parameters: &[StoredValue]) -> Result<Self> {
        if self.parameters.is_empty() {
            return Ok(self.clone());
        }
        let mut operands: Vec<_> = self.literals.iter().cloned().map(Operand::Literal).collect();
        for number in &self.parameters {
            operands.push(Operand::Literal(parameter(parameters, *number)?.clone()));
        }
        let mut bound = Self::new(operands);
        bound.null |= self.null;
        Ok(bound)
    }
}

impl Pattern {
    fn truth(&self, value: ValueRef<'_>) -> Truth {
        match (self, value) {
            (_, ValueRef::Null) | (Self::LikeParameter { .. } | Self::RLikeParameter(_), _) => Truth::Unknown,
            (Self::Like(like), ValueRef::String(text)) => like.matches(text).into(),
            (Self::RLike(rlike), ValueRef::String(text)) => rlike.matches(text).into(),
            _ => Truth::False,
        }
    }
}

#[cfg(test)]
#[path = "predicate_tests.rs"]
mod tests;
