//! Types of values where a field has several: which of them functions are computed of, and what casts make of them.
//!
//! InfluxDB gives a field of a measurement one type for each shard, and computes functions of the values whose type counts most.
//! Here a series has a type; what counts is the same: numbers before text before booleans, and numbers of any type go together.
//!
//! May use: `points`, `value`. Must not know: where points come from.

use crate::points::Points;
use crate::value::{Kind, Value, ValueRef};

/// A sort of values; the lesser counts when there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Number,
    Text,
    Boolean,
}

impl Class {
    pub(crate) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Float | Kind::Integer | Kind::Unsigned => Self::Number,
            Kind::Text => Self::Text,
            Kind::Boolean => Self::Boolean,
        }
    }
}

/// The sort that counts among points.
pub(crate) fn class_of(points: &Points) -> Option<Class> {
    match points.kind() {
        Some(kind) => Some(Class::of(kind)),
        None => (0..points.len()).filter_map(|at| points.kind_at(at)).map(Class::of).min(),
    }
}

/// The points of one sort.
pub(crate) fn of_class(points: Points, class: Class) -> Points {
    match points.kind() {
        Some(kind) if Class::of(kind) == class => points,
        None if (0..points.len()).all(|at| points.kind_at(at).map(Class::of) == Some(class)) => points,
        _ => {
            let mut kept = Points::new();
            for (time, value) in points.iter().filter(|(_, value)| Class::of(value.kind()) == class) {
                kept.push(time, value);
            }
            kept
        }
    }
}

/// The points as values of a type; those that cannot be are left out.
pub(crate) fn to_kind(points: Points, kind: Kind) -> Points {
    if points.kind() == Some(kind) {
        return points;
    }
    let mut cast = Points::new();
    for (time, of) in points.iter() {
        if let Some(made) = value(of, kind) {
            cast.push(time, made.as_ref());
        }
    }
    cast
}

/// A value as one of a type: of numbers fractions are cut off, and what is too great or too small becomes the greatest or the
/// least. `None` when it is of another sort.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "this is what a cast asks for")]
pub(crate) fn value(of: ValueRef<'_>, kind: Kind) -> Option<Value> {
    Some(match (kind, of) {
        (Kind::Float, of) => Value::Float(of.number()?),
        (Kind::Integer, ValueRef::Float(number)) => Value::Integer(number as i64),
        (Kind::Integer, ValueRef::Unsigned(number)) => Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)),
        (Kind::Unsigned, ValueRef::Float(number)) => Value::Unsigned(number as u64),
        (Kind::Unsigned, ValueRef::Integer(number)) => Value::Unsigned(u64::try_from(number).unwrap_or(0)),
        (kind, of) if of.kind() == kind => of.to_value(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cast_to_types_of_their_sort_only() {
        use ValueRef::{Boolean, Float, Integer, Text, Unsigned};
        for (of, kind, wanted) in [
            (Float(-2.9), Kind::Integer, Some(Value::Integer(-2))),
            (Float(1e30), Kind::Integer, Some(Value::Integer(i64::MAX))),
            (Float(f64::NAN), Kind::Integer, Some(Value::Integer(0))),
            (Float(-1.0), Kind::Unsigned, Some(Value::Unsigned(0))),
            (Integer(-7), Kind::Unsigned, Some(Value::Unsigned(0))),
            (Integer(7), Kind::Float, Some(Value::Float(7.0))),
            (Unsigned(u64::MAX), Kind::Integer, Some(Value::Integer(i64::MAX))),
            (Unsigned(3), Kind::Unsigned, Some(Value::Unsigned(3))),
            (Text("7"), Kind::Text, Some(Value::Text("7".into()))),
            (Text("7"), Kind::Integer, None),
            (Integer(7), Kind::Text, None),
            (Boolean(true), Kind::Integer, None),
            (Boolean(true), Kind::Float, None),
            (Float(1.0), Kind::Boolean, None),
            (Boolean(true), Kind::Boolean, Some(Value::Boolean(true))),
        ] {
            assert_eq!(value(of, kind), wanted, "{of:?} {kind:?}");
        }
    }

    #[test]
    fn points_of_the_sort_that_counts_are_kept() {
        let mut points = Points::new();
        points.push(1, ValueRef::Boolean(true));
        points.push(2, ValueRef::Text("a"));
        assert_eq!(class_of(&points), Some(Class::Text));
        points.push(3, ValueRef::Float(1.5));
        points.push(4, ValueRef::Integer(2));
        assert_eq!(class_of(&points), Some(Class::Number));
        assert_eq!(of_class(points.clone(), Class::Number).times(), [3, 4]);
        assert_eq!(of_class(points.clone(), Class::Boolean).times(), [1]);
        assert_eq!(to_kind(points, Kind::Integer).bits(), [1, 2]);
        assert_eq!(class_of(&Points::new()), None);
    }
}
