//! Statements of InfluxQL as they were said.
//!
//! May use: `regex`, `jiff`, `value`. Must not know: what there is in a database.

use jiff::tz::TimeZone;
use regex::Regex;

/// One statement.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Select(Box<Select>),
    ShowDatabases,
    ShowMeasurements { database: Option<String>, wanted: Option<Wanted>, condition: Option<Expr>, page: Page },
    ShowTagKeys(Show),
    ShowTagValues { show: Show, keys: Wanted },
    ShowFieldKeys(Show),
    ShowSeries(Show),
    ShowRetentionPolicies { database: Option<String> },
    ShowCardinality { of: Counted, precision: Precision, show: Show, keys: Option<Wanted> },
    ShowContinuousQueries,
    CreateDatabase { name: String },
    CreateContinuousQuery(Box<Continuous>),
    DropContinuousQuery { name: String, database: String },
    DropDatabase { name: String },
    DropMeasurement { name: String },
    DropSeries { from: Vec<Measurement>, condition: Option<Expr> },
    Delete { from: Vec<Measurement>, condition: Option<Expr> },
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Series,
    Measurements,
    TagKeys,
    TagValues,
    FieldKeys,
}

/// How it is counted. Here it is always exact; InfluxDB names the column of an estimate otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Estimated,
    Exact,
}

/// `CREATE CONTINUOUS QUERY name ON database [RESAMPLE [EVERY every] [FOR span]] BEGIN select END`
#[derive(Debug, Clone)]
pub(crate) struct Continuous {
    pub(crate) name: String,
    pub(crate) database: String,
    pub(crate) every: Option<i64>,
    pub(crate) span: Option<i64>,
    pub(crate) select: Select,
}

/// What the SHOW statements have in common.
#[derive(Debug, Clone, Default)]
pub(crate) struct Show {
    pub(crate) database: Option<String>,
    pub(crate) from: Vec<Measurement>,
    pub(crate) condition: Option<Expr>,
    pub(crate) page: Page,
}

/// A condition on names.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    In(Vec<String>),
    NotIn(Vec<String>),
    Regex(Regex),
    NotRegex(Regex),
}

/// Which part of an answer is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Page {
    /// Rows of each series; 0 is all.
    pub(crate) limit: usize,
    pub(crate) offset: usize,
    /// Series; 0 is all.
    pub(crate) series_limit: usize,
    pub(crate) series_offset: usize,
}

/// A name of a measurement, or many.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) database: Option<String>,
    pub(crate) name: Pattern,
}

#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Is(String),
    Regex(Regex),
}

/// What a SELECT reads from.
#[derive(Debug, Clone)]
pub(crate) enum From {
    Measurement(Measurement),
    Select(Box<Select>),
}

/// Where the rows of a selection are written to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) database: Option<String>,
    /// `None`: to the measurement that they come from.
    pub(crate) name: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub(crate) fields: Vec<Field>,
    pub(crate) into: Option<Target>,
    pub(crate) from: Vec<From>,
    pub(crate) condition: Option<Expr>,
    pub(crate) every: Option<Every>,
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) fill: Fill,
    pub(crate) order: Order,
    pub(crate) page: Page,
    /// `None` is UTC.
    pub(crate) zone: Option<TimeZone>,
    /// The times that are read whatever the condition says: a run of a continuous query has its own.
    pub(crate) within: Option<crate::source::Range>,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) expr: Expr,
    pub(crate) alias: Option<String>,
}

/// `time(length, offset)`; the offset is an expression of times.
#[derive(Debug, Clone)]
pub(crate) struct Every {
    pub(crate) length: i64,
    pub(crate) offset: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) enum Dimension {
    Tag(String),
    All,
    Regex(Regex),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    Null,
    None,
    Previous,
    Linear,
    Number(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// What a star or an expression in the place of a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Star {
    All,
    Fields,
    Tags,
}

#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Text(String),
    Boolean(bool),
    Duration(i64),
    Regex(Regex),
    Star(Star),
    Name(String),
    /// `name::type`.
    Cast(Operand),
    Call(Call),
    Binary(Box<Binary>),
    /// All of these hold.
    All(Vec<Expr>),
    /// One of these holds.
    Any(Vec<Expr>),
}

/// What a name is taken for where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cast {
    Field,
    Tag,
    /// Values of this type, and numbers as numbers of it.
    To(crate::value::Kind),
}

/// A field or a tag by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) name: String,
    pub(crate) cast: Option<Cast>,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) arguments: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: Expr,
    pub(crate) right: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Match,
    NotMatch,
}

impl Expr {
    /// Visits it and all that it is made of; `visit` says whether to go on inside.
    pub(crate) fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Expr) -> bool) {
        if !visit(self) {
            return;
        }
        match self {
            Self::Call(call) => call.arguments.iter().for_each(|argument| argument.walk(visit)),
            Self::Binary(binary) => {
                binary.left.walk(visit);
                binary.right.walk(visit);
            }
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.walk(visit)),
            _ => {}
        }
    }

    /// The field or tag that it is, if it is nothing else.
    pub(crate) fn operand(&self) -> Option<Operand> {
        match self {
            Self::Name(name) => Some(Operand { name: name.clone(), cast: None }),
            Self::Cast(operand) => Some(operand.clone()),
            _ => None,
        }
    }

    /// The names in it.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.walk(&mut |expr| {
            if let Self::Name(name) | Self::Cast(Operand { name, .. }) = expr {
                names.push(name.as_str());
            }
            true
        });
        names
    }
}

impl Operator {
    /// The operator that means the same with its sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            other => other,
        }
    }

    /// Whether it answers true or false.
    pub(crate) fn is_comparison(self) -> bool {
        !matches!(
            self,
            Self::Add
                | Self::Subtract
                | Self::Multiply
                | Self::Divide
                | Self::Modulo
                | Self::And
                | Self::Or
                | Self::Xor
        )
    }
}

impl Wanted {
    /// Whether a name is meant.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::In(names) => names.iter().any(|one| one == name),
            Self::NotIn(names) => names.iter().all(|one| one != name),
            Self::Regex(regex) => regex.is_match(name),
            Self::NotRegex(regex) => !regex.is_match(name),
        }
    }
}
