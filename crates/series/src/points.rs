//! Points of one series, in columns.
//!
//! May use: `value`. Must not know: where they are stored.

use std::ops::Range;

use crate::value::{Kind, Value, ValueRef};

/// Points of one series: times, and values of one type or, rarely, of several.
///
/// Pushing keeps the order in which it is done; what queries get from a [`crate::Source`] is sorted by time, each time once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Points {
    times: Vec<i64>,
    /// Bits of a double or an integer, 0 or 1, or the number of a text.
    bits: Vec<u64>,
    /// The type of all values while they have one.
    kind: Option<Kind>,
    /// The type of each, from the first on that differs; empty before.
    kinds: Vec<Kind>,
    texts: Vec<Box<str>>,
    text_bytes: usize,
}

impl Points {
    /// No points.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Their times, in nanoseconds since 1970.
    #[must_use]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Their values as bits: of doubles, of integers, 0 and 1 for booleans; of texts their numbers.
    #[must_use]
    pub fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// The type of all values, if they have only one; `None` also when there are no points.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        if self.kinds.is_empty() { self.kind } else { None }
    }

    /// The type of the value at `at`.
    #[must_use]
    pub fn kind_at(&self, at: usize) -> Option<Kind> {
        if at >= self.len() {
            return None;
        }
        self.kinds.get(at).copied().or(self.kind)
    }

    /// Forgets all points, and keeps the memory for the next.
    pub fn clear(&mut self) {
        self.times.clear();
        self.bits.clear();
        self.kinds.clear();
        self.texts.clear();
        self.text_bytes = 0;
        self.kind = None;
    }

    /// Makes room for that many more.
    pub fn reserve(&mut self, more: usize) {
        self.times.reserve(more);
        self.bits.reserve(more);
    }

    /// Appends a point.
    pub fn push(&mut self, time: i64, value: ValueRef<'_>) {
        let bits = match value {
            ValueRef::Float(value) => value.to_bits(),
            ValueRef::Integer(value) => value.cast_unsigned(),
            ValueRef::Unsigned(value) => value,
            ValueRef::Boolean(value) => u64::from(value),
            ValueRef::Text(value) => {
                self.texts.push(value.into());
                self.text_bytes += value.len() + 16;
                self.texts.len() as u64 - 1
            }
        };
        self.push_bits(time, value.kind(), bits);
    }

    /// Appends a point that is a double.
    pub fn push_float(&mut self, time: i64, value: f64) {
        self.push_bits(time, Kind::Float, value.to_bits());
    }

    /// Appends a point whose value is no text, by its bits.
    ///
    /// # Panics
    /// When it is a text that is not there: their numbers come from [`Points::push`].
    pub(crate) fn push_bits(&mut self, time: i64, kind: Kind, bits: u64) {
        debug_assert!(kind != Kind::Text || bits < self.texts.len() as u64, "the text is there");
        self.note_kind(kind, 1);
        self.times.push(time);
        self.bits.push(bits);
    }

    /// Notes that `count` values of a type come next.
    fn note_kind(&mut self, kind: Kind, count: usize) {
        if self.kinds.is_empty() {
            match self.kind {
                Some(before) if before != kind => {
                    self.kinds.resize(self.times.len(), before);
                }
                _ => {
                    self.kind = Some(kind);
                    return;
                }
            }
        }
        self.kinds.resize(self.times.len() + count, kind);
    }

    /// Appends points of one type that is not text.
    pub(crate) fn extend_bits(&mut self, kind: Kind, times: &[i64], bits: &[u64]) {
        debug_assert!(kind != Kind::Text && times.len() == bits.len(), "columns are of one length");
        if times.is_empty() {
            return;
        }
        self.note_kind(kind, times.len());
        self.times.extend_from_slice(times);
        self.bits.extend_from_slice(bits);
    }

    /// The point at `at`.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(i64, ValueRef<'_>)> {
        let (time, bits) = (*self.times.get(at)?, *self.bits.get(at)?);
        let value = match self.kind_at(at)? {
            Kind::Float => ValueRef::Float(f64::from_bits(bits)),
            Kind::Integer => ValueRef::Integer(bits.cast_signed()),
            Kind::Unsigned => ValueRef::Unsigned(bits),
            Kind::Boolean => ValueRef::Boolean(bits != 0),
            Kind::Text => ValueRef::Text(self.texts.get(usize::try_from(bits).ok()?)?),
        };
        Some((time, value))
    }

    /// All points in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, ValueRef<'_>)> + ExactSizeIterator {
        (0..self.len()).map(|at| self.get(at).expect("below the length"))
    }

    /// The numbers among them, with their times: text and booleans are passed over.
    pub fn numbers(&self) -> impl Iterator<Item = (i64, f64)> {
        self.iter().filter_map(|(time, value)| value.number().map(|number| (time, number)))
    }

    /// The last point.
    #[must_use]
    pub fn last(&self) -> Option<(i64, Value)> {
        self.get(self.len().checked_sub(1)?).map(|(time, value)| (time, value.to_value()))
    }

    /// Where the points with times from `from` up to and including `to` are. They must be sorted by time.
    #[must_use]
    pub fn between(&self, from: i64, to: i64) -> Range<usize> {
        let start = self.times.partition_point(|time| *time < from);
        let end = self.times.partition_point(|time| *time <= to);
        start..end.max(start)
    }

    /// Appends some points of another.
    pub fn extend_from(&mut self, other: &Self, range: Range<usize>) {
        if let (Some(kind), Some(times), Some(bits)) = (
            other.kind().filter(|kind| *kind != Kind::Text),
            other.times.get(range.clone()),
            other.bits.get(range.clone()),
        ) {
            return self.extend_bits(kind, times, bits);
        }
        for at in range {
            if let Some((time, value)) = other.get(at) {
                self.push(time, value);
            }
        }
    }

    /// Whether the times ascend, each once.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        self.times.is_sorted_by(|a, b| a < b)
    }

    /// Sorts by time; of points with one time the one that was pushed last stays.
    pub fn sort(&mut self) {
        if self.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|at| self.times.get(*at).copied());
        let mut sorted = Self::new();
        sorted.reserve(self.len());
        for (nth, at) in order.iter().enumerate() {
            let (Some((time, value)), next) = (self.get(*at), order.get(nth + 1).and_then(|at| self.times.get(*at)))
            else {
                continue;
            };
            if next != Some(&time) {
                sorted.push(time, value);
            }
        }
        *self = sorted;
    }

    /// Whether there are texts.
    pub(crate) fn has_text(&self) -> bool {
        !self.texts.is_empty()
    }

    /// Bytes of the longest text; 0 when there is none.
    pub(crate) fn longest_text(&self) -> usize {
        self.texts.iter().map(|text| text.len()).max().unwrap_or(0)
    }

    /// Bytes of memory, nearly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.times.capacity() + self.bits.capacity()) * 8 + self.kinds.capacity() + self.text_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_types_come_back_in_order() {
        let values = [
            Value::Float(1.5),
            Value::Float(f64::NAN),
            Value::Integer(-7),
            Value::Text("a".into()),
            Value::Boolean(true),
            Value::Unsigned(u64::MAX),
            Value::Text("".into()),
        ];
        let mut points = Points::new();
        for (at, value) in (0..).zip(&values) {
            points.push(at, value.as_ref());
        }
        assert!(points.iter().map(|(_, value)| value.to_value()).eq(values));
        let mut copy = Points::new();
        copy.extend_from(&points, 0..2);
        assert_eq!(copy.kind(), Some(Kind::Float));
        copy.extend_from(&points, 2..7);
        assert_eq!((copy.len(), copy.kind(), copy.get(3)), (7, None, points.get(3)));
    }

    #[test]
    fn of_points_with_one_time_the_last_that_came_stays() {
        let mut points = Points::new();
        for (time, value) in [(3, 1.0), (1, 2.0), (3, 3.0), (2, 4.0), (1, 5.0)] {
            points.push_float(time, value);
        }
        points.sort();
        let numbers: Vec<_> = points.numbers().collect();
        assert_eq!(numbers, [(1, 5.0), (2, 4.0), (3, 3.0)]);
        assert_eq!((points.between(2, 3), points.between(4, 9), points.between(0, 0)), (1..3, 3..3, 0..0));
    }
}
