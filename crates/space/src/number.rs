//! Numbers of all kinds as one: what `compare` and `key` see of them, so that both mean the same.
//!
//! An f64 stands for the shortest decimal that reads back as it, as people write it: f64 0.1 equals decimal 0.1. The binary
//! value would be exact as well, but then no decimal that a person writes would ever equal an f64.
//!
//! May use: `value`. Must not know: the form of keys.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::value::{Decimal, ValueRef};

/// A number, kinds forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    /// Below all others, and equal to itself: an order needs a place for it.
    Nan,
    /// Below all finite ones.
    NegativeInfinity,
    /// A decimal number.
    Finite(Finite),
    /// Above all finite ones.
    Infinity,
}

/// `mantissa` * 10^`exponent`. One form for each number: no trailing zeros in the mantissa; zero is positive, exponent 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finite {
    pub(crate) negative: bool,
    pub(crate) mantissa: u128,
    pub(crate) exponent: i32,
}

/// Integers up to here are f64 exactly, and the shortest decimal of such an f64 is the integer itself.
pub(crate) const EXACT_MAX: u64 = (1 << 53) - 1;

impl Number {
    /// The number that a value is, if it is one.
    pub(crate) fn of(value: ValueRef<'_>) -> Option<Self> {
        Some(match value {
            ValueRef::I64(number) => Self::Finite(Finite::new(number < 0, u128::from(number.unsigned_abs()), 0)),
            ValueRef::U64(number) => Self::Finite(Finite::new(false, u128::from(number), 0)),
            ValueRef::F64(number) => Self::of_f64(number),
            ValueRef::Decimal(Decimal { mantissa, scale }) => {
                Self::Finite(Finite::new(mantissa < 0, mantissa.unsigned_abs(), -i32::from(scale)))
            }
            _ => return None,
        })
    }

    fn of_f64(number: f64) -> Self {
        if number.is_nan() {
            return Self::Nan;
        }
        if number.is_infinite() {
            return if number < 0.0 { Self::NegativeInfinity } else { Self::Infinity };
        }
        let size = number.abs();
        if size <= EXACT_MAX as f64 && size.fract() == 0.0 {
            return Self::Finite(Finite::new(number < 0.0, u128::from(size as u64), 0));
        }
        let (mantissa, exponent) = shortest(size);
        Self::Finite(Finite::new(number < 0.0, u128::from(mantissa), exponent))
    }

    fn rank(self) -> u8 {
        match self {
            Self::Nan => 0,
            Self::NegativeInfinity => 1,
            Self::Finite(_) => 2,
            Self::Infinity => 3,
        }
    }

    /// Which is less.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Finite(a), Self::Finite(b)) => a.compare(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl Finite {
    fn new(negative: bool, mantissa: u128, exponent: i32) -> Self {
        let (mut mantissa, mut exponent) = (mantissa, exponent);
        if mantissa == 0 {
            return Self { negative: false, mantissa, exponent: 0 };
        }
        // Dividing 128 bits is many times slower than 64, and almost all numbers fit.
        while mantissa > u128::from(u64::MAX) && mantissa.is_multiple_of(10) {
            mantissa /= 10;
            exponent += 1;
        }
        if let Ok(mut small) = u64::try_from(mantissa) {
            while small.is_multiple_of(10) {
                small /= 10;
                exponent += 1;
            }
            mantissa = u128::from(small);
        }
        Self { negative, mantissa, exponent }
    }

    /// How many digits the mantissa has.
    fn digits(self) -> i32 {
        self.mantissa.checked_ilog10().map_or(0, |log| log.cast_signed() + 1)
    }

    /// The `e` of 0.ddd * 10^e, where the first d is not 0.
    pub(crate) fn magnitude(self) -> i32 {
        self.digits() + self.exponent
    }

    fn compare(self, other: Self) -> Ordering {
        match (self.negative, other.negative) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
        }
    }

    fn compare_size(self, other: Self) -> Ordering {
        if self.mantissa == 0 || other.mantissa == 0 {
            return self.mantissa.cmp(&other.mantissa);
        }
        self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Both are 0.ddd * 10^e with the same e: with as many digits each, the mantissas decide. A mantissa that
            // grows out of 128 bits is above the other, which fits 39 digits of an i128.
            let (here, there) = (self.digits(), other.digits());
            if here <= there {
                scaled(self.mantissa, there - here).map_or(Ordering::Greater, |mantissa| mantissa.cmp(&other.mantissa))
            } else {
                scaled(other.mantissa, here - there).map_or(Ordering::Less, |mantissa| self.mantissa.cmp(&mantissa))
            }
        })
    }
}

fn scaled(mantissa: u128, zeros: i32) -> Option<u128> {
    mantissa.checked_mul(10u128.checked_pow(zeros.unsigned_abs())?)
}

/// The mantissa and exponent of the shortest decimal that reads back as this positive finite number.
fn shortest(number: f64) -> (u64, i32) {
    let mut text = Digits::default();
    // Writing into `Digits` cannot fail.
    let _ = write!(text, "{number:e}");
    let exponent = if text.exponent_negative { -text.exponent } else { text.exponent };
    (text.mantissa, exponent - text.behind_point)
}

/// Reads what `{:e}` writes (`1.25e-7`) as it is written, so that nothing is allocated.
#[derive(Default)]
struct Digits {
    mantissa: u64,
    behind_point: i32,
    exponent: i32,
    exponent_negative: bool,
    after_point: bool,
    after_e: bool,
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            match byte {
                b'.' => self.after_point = true,
                b'e' => self.after_e = true,
                b'-' => self.exponent_negative = true,
                _ if self.after_e => self.exponent = self.exponent * 10 + i32::from(byte.wrapping_sub(b'0')),
                _ => {
                    self.mantissa = self.mantissa * 10 + u64::from(byte.wrapping_sub(b'0'));
                    self.behind_point += i32::from(self.after_point);
                }
            }
        }
        Ok(())
    }
}
