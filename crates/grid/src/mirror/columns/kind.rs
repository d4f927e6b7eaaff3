//! What a column for a field has: its SQL type in each database, and values as text and back.
//!
//!   kind         values                       PostgreSQL          MariaDB
//!   integer      integers                     bigint              bigint
//!   double       floating-point, and integers double precision    double
//!                that are one
//!   decimal      decimals, and integers       numeric             decimal(65, 26)
//!   string       strings                      text                longtext
//!   boolean      true and false               boolean             boolean
//!   timestamp    to the microsecond           timestamptz         datetime(6), in UTC
//!   nanoseconds  timestamps, all of them      bigint              bigint
//!   bytes        bytes                        bytea               longblob
//!   json         everything, as space's JSON  jsonb               json
//!
//! Null is no value of any of them: it is NULL. What the database would round without a word is refused here.
//!
//! May use: `holdfast`, `hex`, `table` for the databases there are. Must not know: documents.

use std::fmt;

use holdfast::space::{Decimal, Value};

use crate::mirror::hex;
use crate::mirror::table::Dialect;

/// Digits behind the point that MariaDB can keep.
pub(super) const SCALE_MAX: u8 = 38;
/// As many as leave room for every mantissa before the point.
const MARIADB_SCALE: usize = 26;

/// What a column has, and so what its field may be. Null and a missing field are NULL in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Integers: `bigint`. Larger ones fit a column of another type, such as `numeric(20)` or `bigint unsigned`.
    Integer,
    /// Floating-point numbers: `double precision`, in MariaDB `double`, which has neither NaN nor infinities, and 0.0 for -0.0. Integers that a double has exactly
    /// are taken too, and come back as floating-point numbers.
    Double,
    /// Exact decimal numbers, and integers, which come back as decimals.
    Decimal {
        /// How many digits the column has behind the point, 0 to 38: `numeric(65, scale)`. A number with more is refused, since databases would round it, and one with less
        /// comes back with zeros. Without it PostgreSQL's `numeric` keeps each as it is, and MariaDB's `decimal(65, 26)` forgets zeros at the end.
        scale: Option<u8>,
    },
    /// Strings: `text`, in MariaDB `longtext`.
    String,
    /// True or false: `boolean`.
    Boolean,
    /// Timestamps to the microsecond, which is as fine as databases have them: `timestamptz`, in MariaDB `datetime(6)`, in UTC. A finer one is refused.
    Timestamp,
    /// Timestamps as nanoseconds since 1970-01-01 UTC, exactly: `bigint`.
    Nanoseconds,
    /// Bytes: `bytea`, in MariaDB `longblob`.
    Bytes,
    /// Any value, as the space's JSON tells it: `jsonb`, in MariaDB `json`. `jsonb` has no `-0.0`, and a floating-point number from 10^16 on without
    /// a fraction is an integer there; a column of the type `json` keeps what is written.
    Json,
}

/// Why a column cannot have a value, as it stands behind the name of the field.
pub(super) type Why = String;

impl ColumnKind {
    /// The type of a column that is made for it.
    pub(super) fn sql_type(self, dialect: Dialect) -> String {
        let (postgres, mariadb) = match self {
            Self::Integer | Self::Nanoseconds => ("bigint", "bigint"),
            Self::Double => ("double precision", "double"),
            Self::Decimal { scale: None } => ("numeric", "decimal(65, 26)"),
            Self::Decimal { scale: Some(scale) } => return format!("numeric(65, {scale})"),
            Self::String => ("text", "longtext CHARACTER SET utf8mb4"),
            Self::Boolean => ("boolean", "boolean"),
            Self::Timestamp => ("timestamptz", "datetime(6)"),
            Self::Bytes => ("bytea", "longblob"),
            Self::Json => ("jsonb", "json"),
        };
        if dialect == Dialect::Postgres { postgres } else { mariadb }.to_owned()
    }

    /// A value that is not null as text.
    pub(super) fn to_text(self, value: &Value, dialect: Dialect) -> Result<String, Why> {
        Ok(match (self, value) {
            (Self::Integer, Value::I64(number)) => number.to_string(),
            (Self::Integer, Value::U64(number)) => number.to_string(),
            (Self::Double, Value::F64(number)) => double(*number, dialect)?,
            (Self::Double, Value::I64(_) | Value::U64(_)) => {
                let integer = integer(value).filter(|integer| is_double(*integer));
                integer.ok_or("is an integer that no double is")?.to_string()
            }
            (Self::Decimal { scale }, Value::Decimal(number)) => decimal(*number, scale, dialect)?,
            (Self::Decimal { scale }, Value::I64(_) | Value::U64(_)) => {
                let mantissa = integer(value).unwrap_or_default();
                decimal(Decimal { mantissa, scale: 0 }, scale, dialect)?
            }
            (Self::String, Value::String(text)) => text.clone(),
            // PostgreSQL takes these for integers too, where a column is of those.
            (Self::Boolean, Value::Bool(value)) => if *value { "1" } else { "0" }.to_owned(),
            (Self::Timestamp, Value::Timestamp(at)) if at % 1000 != 0 => {
                return Err("is finer than a microsecond".to_owned());
            }
            (Self::Timestamp, Value::Timestamp(at)) => timestamp(*at, dialect),
            (Self::Nanoseconds, Value::Timestamp(at)) => at.to_string(),
            (Self::Bytes, Value::Bytes(bytes)) => match dialect {
                Dialect::Postgres => format!("\\x{}", hex::encode(bytes)),
                Dialect::MariaDb => hex::encode(bytes),
            },
            (Self::Json, value) => value.to_json(),
            (_, other) => return Err(format!("is {}", what(other))),
        })
    }

    /// The value that the database's text is of; `None` when it is none of this kind.
    pub(super) fn to_value(self, text: &str, dialect: Dialect) -> Option<Value> {
        match self {
            Self::Integer => text.parse().map(Value::I64).or_else(|_| text.parse().map(Value::U64)).ok(),
            Self::Double => text.parse().map(Value::F64).ok(),
            Self::Decimal { scale } => {
                let text = match (scale, dialect) {
                    (None, Dialect::Postgres) => text.to_owned(),
                    (None, Dialect::MariaDb) => without_zeros(text).to_owned(),
                    (Some(scale), _) => at_scale(text, scale)?,
                };
                Decimal::parse(&text).map(Value::Decimal)
            }
            Self::String => Some(text.into()),
            Self::Boolean => match text {
                "1" | "t" | "true" => Some(true.into()),
                "0" | "f" | "false" => Some(false.into()),
                _ => None,
            },
            Self::Timestamp => to_timestamp(text),
            Self::Nanoseconds => text.parse().map(Value::Timestamp).ok(),
            Self::Bytes => hex::decode(text.strip_prefix("\\x").unwrap_or(text)).map(Value::Bytes),
            Self::Json => Value::from_json(text.as_bytes()).ok(),
        }
    }
}

/// What such a column has, for messages.
impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer => "integers",
            Self::Double => "floating-point numbers",
            Self::Decimal { scale: Some(scale) } => {
                return write!(f, "decimals with up to {scale} digits behind the point and 38 in all");
            }
            Self::Decimal { scale: None } => "decimals",
            Self::String => "strings",
            Self::Boolean => "true and false",
            Self::Timestamp => "timestamps to the microsecond, those of the kind nanoseconds all",
            Self::Nanoseconds => "timestamps",
            Self::Bytes => "bytes",
            Self::Json => "JSON",
        })
    }
}

/// What a value is: numbers of different kinds are in different columns.
fn what(value: &Value) -> &'static str {
    match value {
        Value::I64(_) | Value::U64(_) => "an integer",
        Value::F64(_) => "a floating-point number",
        Value::Decimal(_) => "a decimal",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
        scalar => scalar.scalar().kind(),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::I64(number) => Some((*number).into()),
        Value::U64(number) => Some((*number).into()),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "whether it changes is what is asked")]
fn is_double(integer: i128) -> bool {
    (integer as f64) as i128 == integer
}

fn double(number: f64, dialect: Dialect) -> Result<String, Why> {
    if dialect == Dialect::MariaDb && !number.is_finite() {
        return Err("is not finite, as numbers are in MariaDB".to_owned());
    }
    // The shortest that reads back the same; `-0.0` keeps its sign.
    Ok(if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        format!("{number:?}")
    })
}

fn decimal(number: Decimal, scale: Option<u8>, dialect: Dialect) -> Result<String, Why> {
    let text = number.to_string();
    let fits = match (scale, dialect) {
        (None, Dialect::Postgres) => Some(text),
        (None, Dialect::MariaDb) => {
            let text = without_zeros(&text);
            (digits_behind(text) <= MARIADB_SCALE).then(|| text.to_owned())
        }
        // Else it could not come back.
        (Some(scale), _) => at_scale(&text, scale).filter(|text| Decimal::parse(text).is_some()),
    };
    fits.ok_or_else(|| "has too many digits".to_owned())
}

fn digits_behind(text: &str) -> usize {
    text.split_once('.').map_or(0, |(_, behind)| behind.len())
}

/// The same number with so many digits behind the point; `None` when it has more.
fn at_scale(text: &str, scale: u8) -> Option<String> {
    let mut text = without_zeros(text).to_owned();
    let zeros = usize::from(scale).checked_sub(digits_behind(&text))?;
    if zeros > 0 && !text.contains('.') {
        text.push('.');
    }
    text.extend(std::iter::repeat_n('0', zeros));
    Some(text)
}

/// Digits without zeros at their end behind the point, nor the point if there is nothing behind.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The space's JSON has the one text of timestamps.
fn timestamp(at: i64, dialect: Dialect) -> String {
    let json = Value::Timestamp(at).to_json();
    let text = json.split('"').nth(3).unwrap_or_default();
    match dialect {
        Dialect::Postgres => text.to_owned(),
        Dialect::MariaDb => text.trim_end_matches('Z').replace('T', " "),
    }
}

/// A time in UTC, in which sessions are: PostgreSQL says so by a zone without minutes.
fn to_timestamp(text: &str) -> Option<Value> {
    let text = Value::from(text.strip_suffix("+00").unwrap_or(text)).to_json();
    let value = Value::from_json(format!("{{\"$timestamp\":{text}}}").as_bytes()).ok()?;
    matches!(value, Value::Timestamp(_)).then_some(value)
}
