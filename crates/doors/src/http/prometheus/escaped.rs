//! Names of labels as Prometheus 3 escapes those that are not letters, digits and `_`: `U__k_20_ey` is `k ey`.
//!
//! Behind `U__` two underscores are one, and hexadecimal digits between two underscores are the character with this number.
//!
//! May use: std. Must not know: labels.

/// Digits of a character's number: one more ends what Prometheus takes for one.
const DIGITS_MAX: usize = 5;

/// The name that was escaped; one that is not, or not rightly, is itself.
pub(super) fn unescaped(name: &str) -> String {
    name.strip_prefix("U__").and_then(decode).unwrap_or_else(|| name.to_owned())
}

fn decode(escaped: &str) -> Option<String> {
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((plain, behind)) = rest.split_once('_') {
        name.push_str(plain);
        let (digits, behind) = behind.split_once('_')?;
        let is_number = digits.len() <= DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.push(match digits {
            "" => '_',
            _ if is_number => char::from_u32(u32::from_str_radix(digits, 16).ok()?)?,
            _ => return None,
        });
        rest = behind;
    }
    name.push_str(rest);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn names_are_what_prometheus_makes_of_them() {
        for (escaped, name) in [
            ("plain", "plain"),
            ("U__", ""),
            ("U__k_20_ey_2c_x", "k ey,x"),
            ("U__a__b", "a_b"),
            ("U___d83d_", "U___d83d_"),
            ("U___1F600_x", "\u{1f600}x"),
            ("U___100000_", "U___100000_"),
            ("U__a_zz_", "U__a_zz_"),
            ("U__a_20", "U__a_20"),
            ("U__a_", "U__a_"),
            ("V__a_20_", "V__a_20_"),
        ] {
            assert_eq!(unescaped(escaped), name, "{escaped}");
        }
    }
}
