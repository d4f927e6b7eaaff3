//! What a predicate demands of single paths, in the form that an index can answer.
//!
//! Each constraint is *implied* by the predicate: a document that matches satisfies it, so whoever looks up only what
//! satisfies it misses nothing, and tests the predicate on what it finds. Null and missing satisfy none, so an index need
//! not hold them.
//!
//! May use: `compare`, `key`, `predicate`. Must not know: which indexes there are.

use std::ops::Bound;

use crate::compare::Class;
use crate::key::{class_byte, key_of, string_prefix_key};
use crate::path::Path;
use crate::predicate::{Operand, Operator, Pattern, Predicate};
use crate::value::ValueRef;

/// What at least one of the values that a path comes to must be.
///
/// Through `[*]` different items may satisfy different constraints: look up with one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// Where the value lies.
    pub path: Path,
    /// What its key must be.
    pub allowed: Allowed,
}

/// Keys, as [`crate::encode_key`] writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// One of these, in order; none at all when nothing can match.
    Equal(Vec<Vec<u8>>),
    /// Between these.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Constraint {
    /// What it takes of memory, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        let end = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        let keys = match &self.allowed {
            Allowed::Equal(keys) => keys.iter().map(|key| size_of::<Vec<u8>>() + key.len()).sum(),
            Allowed::Range(low, high) => end(low) + end(high),
        };
        size_of::<Self>() + keys
    }

    /// Whether a key satisfies it.
    #[must_use]
    pub fn allows(&self, key: &[u8]) -> bool {
        match &self.allowed {
            Allowed::Equal(keys) => keys.binary_search_by(|one| one.as_slice().cmp(key)).is_ok(),
            Allowed::Range(low, high) => is_within(key, low, high),
        }
    }
}

impl Predicate {
    /// What it demands of single paths. Of parameters that are not bound it says nothing.
    #[must_use]
    pub fn constraints(&self) -> Vec<Constraint> {
        let mut found = Vec::new();
        self.collect(&mut found);
        merged(found)
    }

    fn collect(&self, to: &mut Vec<Constraint>) {
        match self {
            Self::And(parts) => parts.iter().for_each(|part| part.collect(to)),
            Self::Or(parts) => to.extend(common(parts)),
            Self::Compare { path, operator, operand: Operand::Literal(literal) } => {
                to.extend(allowed(*operator, literal.get()).map(|allowed| Constraint { path: path.clone(), allowed }));
            }
            Self::Between { path, low: Operand::Literal(low), high: Operand::Literal(high) } => {
                // One item lies between both, so this holds through `[*]` as well.
                let both = [(Operator::GreaterOrEqual, low), (Operator::LessOrEqual, high)];
                let allowed =
                    both.into_iter().filter_map(|(operator, bound)| allowed(operator, bound.get())).reduce(intersected);
                to.extend(allowed.map(|allowed| Constraint { path: path.clone(), allowed }));
            }
            Self::In { path, choices } => {
                if let Some(literals) = choices.literals() {
                    let keys = literals.iter().map(|literal| key_of(literal.get())).collect();
                    to.push(Constraint { path: path.clone(), allowed: Allowed::Equal(keys) });
                }
            }
            Self::Matches { path, pattern: Pattern::Like(like) } => {
                let allowed = if like.is_exact() {
                    Allowed::Equal(vec![key_of(ValueRef::String(like.prefix()))])
                } else {
                    let low = string_prefix_key(like.prefix());
                    let high = successor(&low);
                    Allowed::Range(Bound::Included(low), high)
                };
                to.push(Constraint { path: path.clone(), allowed });
            }
            Self::Template(template) => template.equalities(|path, value| {
                to.push(Constraint { path, allowed: Allowed::Equal(vec![key_of(value)]) });
            }),
            Self::True | Self::False | Self::Not(_) | Self::IsNull(_) => {}
            Self::Compare { .. } | Self::Between { .. } | Self::Matches { .. } => {}
        }
    }
}

/// What a comparison with this literal allows; `None` when it is of no use.
fn allowed(operator: Operator, literal: ValueRef<'_>) -> Option<Allowed> {
    if literal == ValueRef::Null {
        return Some(Allowed::Equal(Vec::new()));
    }
    let key = key_of(literal);
    // Only values of one class are less or greater, so a range ends where the class does.
    let class = class_byte(Class::of(literal));
    let (first, behind) = (Bound::Included(vec![class]), Bound::Excluded(vec![class + 0x10]));
    Some(match operator {
        Operator::Equal => Allowed::Equal(vec![key]),
        Operator::NotEqual => return None,
        Operator::Less => Allowed::Range(first, Bound::Excluded(key)),
        Operator::LessOrEqual => Allowed::Range(first, Bound::Included(key)),
        Operator::Greater => Allowed::Range(Bound::Excluded(key), behind),
        Operator::GreaterOrEqual => Allowed::Range(Bound::Included(key), behind),
    })
}

/// Above all keys that begin with these bytes.
fn successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut bytes = prefix.to_vec();
    while let Some(last) = bytes.pop() {
        if let Some(next) = last.checked_add(1) {
            bytes.push(next);
            return Bound::Excluded(bytes);
        }
    }
    Bound::Unbounded
}

/// What all of these demand: `a = 1 OR a = 2` demands one of both of `a`.
fn common(parts: &[Predicate]) -> Vec<Constraint> {
    let Some((first, rest)) = parts.split_first() else { return Vec::new() };
    let mut common = first.constraints();
    common.retain(|constraint| matches!(constraint.allowed, Allowed::Equal(_)));
    for part in rest {
        if common.is_empty() {
            break;
        }
        let others = part.constraints();
        common.retain_mut(|constraint| {
            let other = others.iter().find_map(|other| match &other.allowed {
                Allowed::Equal(keys) if other.path == constraint.path => Some(keys),
                _ => None,
            });
            match (&mut constraint.allowed, other) {
                (Allowed::Equal(keys), Some(others)) => {
                    keys.extend(others.iter().cloned());
                    keys.sort_unstable();
                    keys.dedup();
                    true
                }
                _ => false,
            }
        });
    }
    common
}

/// One constraint for each path that comes to one value only, which must satisfy them all.
fn merged(all: Vec<Constraint>) -> Vec<Constraint> {
    let mut merged: Vec<Constraint> = Vec::new();
    for constraint in all {
        match merged.iter_mut().find(|other| other.path == constraint.path && !other.path.has_items()) {
            None => merged.push(constraint),
            Some(other) => {
                let before = std::mem::replace(&mut other.allowed, Allowed::Equal(Vec::new()));
                other.allowed = intersected(before, constraint.allowed);
            }
        }
    }
    merged
}

fn intersected(a: Allowed, b: Allowed) -> Allowed {
    match (a, b) {
        (Allowed::Equal(mut keys), Allowed::Equal(others)) => {
            keys.retain(|key| others.binary_search(key).is_ok());
            Allowed::Equal(keys)
        }
        (Allowed::Equal(mut keys), Allowed::Range(low, high))
        | (Allowed::Range(low, high), Allowed::Equal(mut keys)) => {
            keys.retain(|key| is_within(key, &low, &high));
            Allowed::Equal(keys)
        }
        (Allowed::Range(low, high), Allowed::Range(other_low, other_high)) => {
            let (low, high) = (tighter(low, other_low, Side::Low), tighter(high, other_high, Side::High));
            // `BTreeMap::range` panics when its bounds cross, so what holds nothing is no range.
            let crosses = match (&low, &high) {
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                (Bound::Included(low), Bound::Included(high)) => low > high,
                (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                    low >= high
                }
            };
            if crosses { Allowed::Equal(Vec::new()) } else { Allowed::Range(low, high) }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Low,
    High,
}

fn tighter(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>, side: Side) -> Bound<Vec<u8>> {
    let (Bound::Included(a_key) | Bound::Excluded(a_key)) = &a else { return b };
    let (Bound::Included(b_key) | Bound::Excluded(b_key)) = &b else { return a };
    let a_is_tighter = match a_key.cmp(b_key) {
        std::cmp::Ordering::Equal => matches!(a, Bound::Excluded(_)),
        order => order.is_gt() == (side == Side::Low),
    };
    if a_is_tighter { a } else { b }
}

fn is_within(key: &[u8], low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
    let above = match low {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= low.as_slice(),
        Bound::Excluded(low) => key > low.as_slice(),
    };
    above
        && match high {
            Bound::Unbounded => true,
            Bound::Included(high) => key <= high.as_slice(),
            Bound::Excluded(high) => key < high.as_slice(),
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{documents, predicates};
    use crate::predicate::Choices;
    use crate::value::Value;

    fn compare(path: &str, operator: Operator, value: impl Into<Value>) -> Predicate {
        Predicate::Compare { path: Path::parse(path).unwrap(), operator, operand: Operand::from(&value.into()) }
    }

    fn key(value: impl Into<Value>) -> Vec<u8> {
        key_of(value.into().stored().get())
    }

    #[test]
    fn a_predicate_says_what_an_index_may_look_up() {
        use Operator::{Equal, Greater, Less, LessOrEqual, NotEqual};
        let equal = |values: &[i64]| Allowed::Equal(values.iter().map(|&value| key(value)).collect());
        let between = |low: i64, high: i64| Allowed::Range(Bound::Excluded(key(low)), Bound::Excluded(key(high)));
        let in_list = |values: &[i64]| {
            let choices = Choices::new(values.iter().map(|&value| Operand::from(&Value::I64(value))));
            Predicate::In { path: Path::field("a"), choices }
        };
        let both = |a: Predicate, b: Predicate| Predicate::And(vec![a, b]);
        let either = |a: Predicate, b: Predicate| Predicate::Or(vec![a, b]);
        let table: Vec<(Predicate, Vec<(&str, Allowed)>)> = vec![
            (compare("a", Equal, 1), vec![("a", equal(&[1]))]),
            (compare("a", NotEqual, 1), vec![]),
            (compare("a", Equal, Value::Null), vec![("a", equal(&[]))]),
            (Predicate::Not(Box::new(compare("a", Equal, 1))), vec![]),
            (Predicate::IsNull(Path::field("a")), vec![]),
            (both(compare("a", Greater, 1), compare("a", Less, 5)), vec![("a", between(1, 5))]),
            (both(compare("a", Greater, 5), compare("a", Less, 5)), vec![("a", equal(&[]))]),
            (both(compare("a", Greater, 5), compare("a", Less, "x")), vec![("a", equal(&[]))]),
            (both(compare("a", LessOrEqual, 2), in_list(&[3, 2, 1])), vec![("a", equal(&[1, 2]))]),
            (both(compare("a", Equal, 1), compare("b", Equal, 2)), vec![("a", equal(&[1])), ("b", equal(&[2]))]),
            (either(compare("a", Equal, 1), compare("a", Equal, 2)), vec![("a", equal(&[1, 2]))]),
            (either(compare("a", Equal, 1), compare("b", Equal, 2)), vec![]),
            (
                both(compare("a[*]", Equal, 1), compare("a[*]", Equal, 2)),
                vec![("a[*]", equal(&[1])), ("a[*]", equal(&[2]))],
            ),
        ];
        for (predicate, expected) in table {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(path, allowed)| Constraint { path: Path::parse(path).unwrap(), allowed })
                .collect();
            assert_eq!(predicate.constraints(), expected, "{predicate:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn what_matches_satisfies_every_constraint(predicate in predicates(), document in documents()) {
            if predicate.matches(document.fields()) {
                for constraint in predicate.constraints() {
                    let mut satisfied = false;
                    let _ = constraint.path.values(document.fields(), |value| {
                        satisfied |= value != ValueRef::Null && constraint.allows(&key_of(value));
                        std::ops::ControlFlow::Continue(())
                    });
                    prop_assert!(satisfied, "{constraint:?}");
                }
            }
        }
    }
}
