//! Sums that do not depend on the order of what is added.
//!
//! A query must answer the same whichever index it went through and however many partitions added up their parts. Integers
//! and decimals are exact anyway; f64 are summed exactly too, by keeping what each addition rounds off (Shewchuk 1997,
//! "Adaptive Precision Floating-Point Arithmetic", as in Python's `fsum`), and are rounded once at the end.
//!
//! May use: `value`. Must not know: groups, queries.

use crate::value::{Decimal, Value, ValueRef};

/// A sum of numbers of all kinds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Sum {
    count: u64,
    integers: i128,
    decimals: Option<Decimal>,
    floats: Option<Floats>,
}

/// Parts that do not overlap, by size; together they are the sum.
#[derive(Debug, Clone, PartialEq, Default)]
struct Floats {
    parts: Vec<f64>,
    /// The sum of infinities and NaN, which have no parts.
    not_finite: Option<f64>,
}

impl Sum {
    /// Adds a number; `None` when it is none, or when an exact sum does not fit any more.
    pub(crate) fn add(&mut self, value: ValueRef<'_>) -> Option<()> {
        match value {
            ValueRef::I64(number) => self.integers = self.integers.checked_add(i128::from(number))?,
            ValueRef::U64(number) => self.integers = self.integers.checked_add(i128::from(number))?,
            ValueRef::Decimal(number) => {
                self.decimals = Some(self.decimals.map_or(Some(number), |sum| sum.checked_add(number))?);
            }
            ValueRef::F64(number) => self.floats.get_or_insert_default().add(number),
            _ => return None,
        }
        self.count += 1;
        Some(())
    }

    /// Adds another sum; `None` when it does not fit any more.
    pub(crate) fn merge(&mut self, other: Self) -> Option<()> {
        self.count += other.count;
        self.integers = self.integers.checked_add(other.integers)?;
        self.decimals = match (self.decimals, other.decimals) {
            (Some(a), Some(b)) => Some(a.checked_add(b)?),
            (a, b) => a.or(b),
        };
        if let Some(floats) = other.floats {
            let here = self.floats.get_or_insert_default();
            floats.parts.into_iter().chain(floats.not_finite).for_each(|part| here.add(part));
        }
        Some(())
    }

    /// The sum; null of nothing. `None` when integers and decimals together do not fit.
    pub(crate) fn total(&self) -> Option<Value> {
        Some(if self.count == 0 {
            Value::Null
        } else if self.floats.is_some() {
            Value::F64(self.to_f64()?)
        } else if self.decimals.is_some() {
            Value::Decimal(self.exact()?)
        } else if let Ok(sum) = i64::try_from(self.integers) {
            Value::I64(sum)
        } else if let Ok(sum) = u64::try_from(self.integers) {
            Value::U64(sum)
        } else {
            Value::Decimal(self.integers.into())
        })
    }

    /// The mean, which is the sum divided once; null of nothing. `None` as for the sum.
    pub(crate) fn mean(&self) -> Option<Value> {
        Some(match (self.count, &self.floats) {
            (0, _) => Value::Null,
            // Rounded once: the sum of decimals, made a float, would be rounded before it is divided.
            (count, None) => Value::F64(self.exact()?.divided_by(count)),
            (count, Some(_)) => Value::F64(self.to_f64()? / count as f64),
        })
    }

    fn exact(&self) -> Option<Decimal> {
        let integers = Decimal::from(self.integers);
        self.decimals.map_or(Some(integers), |decimals| decimals.checked_add(integers))
    }

    fn to_f64(&self) -> Option<f64> {
        let exact = self.exact()?;
        Some(match &self.floats {
            None => exact.to_f64(),
            Some(floats) => {
                let mut floats = floats.clone();
                floats.add(exact.to_f64());
                floats.total()
            }
        })
    }
}

impl Floats {
    fn add(&mut self, number: f64) {
        if !number.is_finite() {
            self.not_finite = Some(self.not_finite.map_or(number, |sum| sum + number));
            return;
        }
        let mut carried = number;
        self.parts.retain_mut(|part| {
            let (large, small) = if carried.abs() < part.abs() { (*part, carried) } else { (carried, *part) };
            carried = large + small;
            *part = small - (carried - large);
            *part != 0.0
        });
        if carried.is_finite() {
            self.parts.push(carried);
        } else {
            self.parts.clear();
            self.not_finite = Some(self.not_finite.map_or(carried, |sum| sum + carried));
        }
    }

    /// The f64 next to the sum.
    fn total(&self) -> f64 {
        if let Some(sum) = self.not_finite {
            return sum;
        }
        let mut smaller = self.parts.iter().rev().copied();
        let Some(mut total) = smaller.next() else { return 0.0 };
        while let Some(part) = smaller.next() {
            let before = total;
            total = before + part;
            let lost = part - (total - before);
            if lost != 0.0 {
                // Just half of the last place was lost: what lies below decides which way to round.
                let next = smaller.next().unwrap_or(0.0);
                if (lost < 0.0 && next < 0.0) || (lost > 0.0 && next > 0.0) {
                    let twice = lost * 2.0;
                    let moved = total + twice;
                    if moved - total == twice {
                        total = moved;
                    }
                }
                break;
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::numbers;

    fn sum(values: &[Value]) -> Sum {
        let mut sum = Sum::default();
        values.iter().for_each(|value| sum.add(value.stored().get()).unwrap());
        sum
    }

    #[test]
    fn the_kind_of_a_sum_is_that_of_its_numbers() {
        let decimal = |text: &str| Value::Decimal(Decimal::parse(text).unwrap());
        let table: Vec<(Vec<Value>, Value, Value)> = vec![
            (vec![], Value::Null, Value::Null),
            (vec![1.into(), 2.into()], 3.into(), 1.5.into()),
            (vec![i64::MAX.into(), 1.into()], (1u64 << 63).into(), (2f64.powi(62)).into()),
            (vec![u64::MAX.into(), 1.into()], decimal("18446744073709551616"), 2f64.powi(63).into()),
            (vec![1.into(), decimal("0.10"), decimal("0.2")], decimal("1.30"), (1.3 / 3.0).into()),
            (vec![1.into(), decimal("0.5"), 0.25.into()], 1.75.into(), (1.75 / 3.0).into()),
            (vec![0.1; 10].into_iter().map(Value::from).collect(), 1.0.into(), 0.1.into()),
            (vec![1e300.into(), 1.0.into(), (-1e300).into()], 1.0.into(), (1.0 / 3.0).into()),
            (
                vec![1e16.into(), 1.0.into(), 1e-16.into()],
                10_000_000_000_000_002.0.into(),
                (10_000_000_000_000_002.0 / 3.0).into(),
            ),
            (vec![f64::INFINITY.into(), 1.into()], f64::INFINITY.into(), f64::INFINITY.into()),
        ];
        for (values, total, mean) in table {
            assert_eq!(sum(&values).total(), Some(total), "{values:?}");
            assert_eq!(sum(&values).mean(), Some(mean), "{values:?}");
        }
        assert_eq!(Sum::default().add(ValueRef::String("1")), None);
        let greatest = Value::Decimal(Decimal { mantissa: i128::MAX, scale: 0 }).stored();
        assert_eq!(sum(&[greatest.get().to_value()]).add(greatest.get()), None);
    }

    proptest! {
        #[test]
        fn no_order_and_no_cut_changes_a_sum(values in proptest::collection::vec(
            prop_oneof![(-1e6..1e6).prop_map(Value::F64), (-1e300..1e300).prop_map(Value::F64), (0..99i64).prop_map(Value::I64)], 0..20),
            cut in 0usize..20, other_way: bool) {
            let whole = sum(&values).total();
            let (a, b) = values.split_at(cut.min(values.len()));
            let (mut first, mut second) = (sum(a), sum(b));
            if other_way {
                std::mem::swap(&mut first, &mut second);
            }
            first.merge(second).unwrap();
            prop_assert_eq!(&first.total(), &whole);
            let backwards: Vec<_> = values.iter().rev().cloned().collect();
            prop_assert_eq!(sum(&backwards).total(), whole);
        }

        #[test]
        fn any_numbers_are_safe(values in proptest::collection::vec(numbers(), 0..8)) {
            let mut sum = Sum::default();
            for value in &values {
                let _ = sum.add(value.stored().get());
            }
            let _ = (sum.total(), sum.mean());
        }
    }
}
