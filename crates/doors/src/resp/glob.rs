//! Patterns of KEYS, SCAN MATCH and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]` and `\` as Redis' `stringmatchlen` reads them.
//!
//! Redis recurses at every star and takes exponential time on `*a*a*a*b`; this one goes back to the last star only, which
//! is enough because a later star can always take over what an earlier one matched. Time is pattern times text at worst.
//!
//! May use: nothing. Must not know: anything else of the door.

/// Whether `text` matches `pattern` as a whole.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut pattern_rest = pattern;
    let mut text_rest = text;
    // Behind the last star: what to match again, and against which text.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', tail @ ..] = pattern_rest {
            pattern_rest = tail;
            if tail.is_empty() {
                return true;
            }
            retry = Some((tail, text_rest));
            continue;
        }
        let next = match (pattern_rest, text_rest) {
            ([], []) => return true,
            ([], _) | (_, []) => None,
            (_, [byte, text_tail @ ..]) => one(pattern_rest, *byte).map(|pattern_tail| (pattern_tail, text_tail)),
        };
        match (next, retry) {
            (Some((pattern_tail, text_tail)), _) => {
                pattern_rest = pattern_tail;
                text_rest = text_tail;
            }
            (None, Some((after_star, [_, text_tail @ ..]))) => {
                retry = Some((after_star, text_tail));
                pattern_rest = after_star;
                text_rest = text_tail;
            }
            (None, _) => return false,
        }
    }
}

/// The literal that every match begins with: it bounds a range of sorted keys.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\')).unwrap_or(pattern.len());
    pattern.get(..end).unwrap_or_default()
}

/// Matches one byte against the first element of a pattern that is no star; the rest of the pattern if it fits.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', tail @ ..] => Some(tail),
        [b'[', tail @ ..] => class(tail, byte),
        [b'\\', literal, tail @ ..] => (*literal == byte).then_some(tail),
        [literal, tail @ ..] => (*literal == byte).then_some(tail),
    }
}

fn class(mut rest: &[u8], byte: u8) -> Option<&[u8]> {
    let mut negated = false;
    if let [b'^', tail @ ..] = rest {
        negated = true;
        rest = tail;
    }
    let mut found = false;
    loop {
        match rest {
            // As in Redis, a class that is not closed ends with the pattern.
            [] => break,
            [b'\\', literal, tail @ ..] => {
                found |= *literal == byte;
                rest = tail;
            }
            [b']', tail @ ..] => {
                rest = tail;
                break;
            }
            [first, b'-', last, tail @ ..] => {
                let (low, high) = if first <= last { (first, last) } else { (last, first) };
                found |= (*low..=*high).contains(&byte);
                rest = tail;
            }
            [literal, tail @ ..] => {
                found |= *literal == byte;
                rest = tail;
            }
        }
    }
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("**", "", true),
            ("a*", "", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("h[a-b]llo", "hcllo", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("[\\]]", "]", true),
            ("[abc", "b", true),
            ("[abc", "d", false),
            ("a\\", "a\\", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("key:[0-9]*", "key:7x", true),
            ("[]", "a", false),
            ("[^]", "a", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "*a".repeat(2_000) + "b";
        let text = "a".repeat(20_000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn the_literal_prefix_ends_at_the_first_special_byte() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"user"), b"user");
        assert_eq!(literal_prefix(b"us\\er"), b"us");
        assert_eq!(literal_prefix(b"[u]"), b"");
    }
}
