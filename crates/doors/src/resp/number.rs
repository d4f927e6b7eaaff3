//! Numbers as Redis reads and writes them.
//!
//! May use: nothing. Must not know: anything else of the door.

/// Reads a decimal as Redis' `string2ll` does: no spaces, no plus, no leading zeros, no minus zero.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return if negative { None } else { Some(0) },
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut value: u64 = 0;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// Reads an unsigned decimal: positions and cursors use the whole range.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |value, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// A decimal on the stack.
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn of_i64(value: i64) -> Self {
        let mut decimal = Self::of_u64(value.unsigned_abs());
        if value < 0 {
            decimal.push_front(b'-');
        }
        decimal
    }

    pub(crate) fn of_u64(mut value: u64) -> Self {
        let mut decimal = Decimal { digits: [0; 20], start: 20 };
        loop {
            decimal.push_front(b'0' + (value % 10) as u8);
            value /= 10;
            if value == 0 {
                return decimal;
            }
        }
    }

    fn push_front(&mut self, byte: u8) {
        // 20 bytes hold every u64, and every i64 with its sign.
        self.start = self.start.saturating_sub(1);
        if let Some(slot) = self.digits.get_mut(self.start) {
            *slot = byte;
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_like_redis_reads_them() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", None),
            ("", None),
            ("-", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("01", None),
            ("-01", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("1a", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b""), None);
    }

    #[test]
    fn integers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 1, -1, 9, 10, 12345, i64::MAX, i64::MIN] {
            assert_eq!(Decimal::of_i64(value).as_bytes(), value.to_string().as_bytes());
        }
        assert_eq!(Decimal::of_u64(u64::MAX).as_bytes(), b"18446744073709551615");
    }
}
