//! Values of points.
//!
//! May use: nothing. Must not know: encodings.

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A double, kept bit by bit: NaN payloads and infinities included.
    Float = 0,
    /// A signed integer.
    Integer = 1,
    /// An unsigned integer.
    Unsigned = 2,
    /// True or false.
    Boolean = 3,
    /// Text.
    Text = 4,
}

impl Kind {
    /// Its name, as InfluxDB has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::Boolean => "boolean",
            Self::Text => "string",
        }
    }

    /// The kind with this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        [Self::Float, Self::Integer, Self::Unsigned, Self::Boolean, Self::Text].get(usize::from(number)).copied()
    }
}

/// A value. Equality is that of bits: a NaN equals itself, and 0.0 is not -0.0.
#[derive(Debug, Clone)]
pub enum Value {
    /// A double.
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// Text.
    Text(Box<str>),
}

/// A value that is looked at where it lies.
#[derive(Debug, Clone, Copy)]
pub enum ValueRef<'a> {
    /// A double.
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// Text.
    Text(&'a str),
}

impl Value {
    /// The value where it lies.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Float(value) => ValueRef::Float(*value),
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Unsigned(value) => ValueRef::Unsigned(*value),
            Self::Boolean(value) => ValueRef::Boolean(*value),
            Self::Text(value) => ValueRef::Text(value),
        }
    }
}

impl ValueRef<'_> {
    /// A copy of its own.
    #[must_use]
    pub fn to_value(self) -> Value {
        match self {
            Self::Float(value) => Value::Float(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Unsigned(value) => Value::Unsigned(value),
            Self::Boolean(value) => Value::Boolean(value),
            Self::Text(value) => Value::Text(value.into()),
        }
    }

    /// Its type.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Float(_) => Kind::Float,
            Self::Integer(_) => Kind::Integer,
            Self::Unsigned(_) => Kind::Unsigned,
            Self::Boolean(_) => Kind::Boolean,
            Self::Text(_) => Kind::Text,
        }
    }

    /// The number nearest to it; `None` of text and of true and false.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::Integer(value) => Some(value as f64),
            Self::Unsigned(value) => Some(value as f64),
            Self::Boolean(_) | Self::Text(_) => None,
        }
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Unsigned(a), Self::Unsigned(b)) => a == b,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for ValueRef<'_> {}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Value {}
