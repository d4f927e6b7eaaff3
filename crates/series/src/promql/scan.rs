//! A look at the text of an expression before it is parsed.
//!
//! The parser makes a tree whose depth only the text bounds, and everything after it walks that tree: so nesting and operators
//! are counted here. Regular expressions, which the parser compiles to any size, are tried here within their limit. Durations are
//! checked here too, since the parser panics at those that no number holds. And two shapes that VictoriaMetrics' clients send
//! and Prometheus refuses are written out:
//!   `max_over_time(x)`  without a window: the window is one step
//!   `count(x[1m])`      an aggregation of a window: of the last value in it, `count(last_over_time(x[1m]))`
//!
//! May use: nothing. Must not know: what expressions mean.

use std::fmt::Display;
use std::ops::Range;

use promql_parser::util::unquote_string;

use crate::error::{Error, Result};
use crate::regexes::Regexes;

/// The longest text of an expression; VictoriaMetrics has the same.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 10;
/// How deep brackets and operators are within each other. Operators side by side count as deep, since the tree leans left. So
/// much fits on a stack of two megabytes without optimization.
pub(crate) const DEPTH_MAX: usize = 100;
/// Regular expressions on labels in one expression: each may take a while to compile.
const REGEXES_MAX: usize = 64;
/// Digits of one part of a duration: so that none overflows what the parser puts it in.
const DURATION_DIGITS_MAX: usize = 9;
/// Letters of the units of time.
const UNITS: &[u8] = b"smhdwy";

/// Functions of a window, with the place of the window among their arguments.
const OF_WINDOW: &[(&str, usize)] = &[
    ("avg_over_time", 0),
    ("changes", 0),
    ("count_over_time", 0),
    ("delta", 0),
    ("deriv", 0),
    ("first_over_time", 0),
    ("idelta", 0),
    ("increase", 0),
    ("irate", 0),
    ("last_over_time", 0),
    ("max_over_time", 0),
    ("min_over_time", 0),
    ("present_over_time", 0),
    ("quantile_over_time", 1),
    ("rate", 0),
    ("resets", 0),
    ("stddev_over_time", 0),
    ("stdvar_over_time", 0),
    ("sum_over_time", 0),
];

const AGGREGATIONS: &[&str] = &["avg", "count", "group", "max", "min", "stddev", "stdvar", "sum"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Number,
    Text,
    /// One character of punctuation.
    Sign(char),
}

#[derive(Debug)]
struct Token {
    kind: Kind,
    at: Range<usize>,
}

struct Scan<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

/// The text to be parsed, if it may be. `step_ms` is the window of functions that have none.
///
/// # Errors
/// `Invalid` when it is too long, too deep, or has a duration that cannot be; [`Error::Limit`] when regular expressions are too
/// many.
pub(crate) fn prepare(text: &str, step_ms: i64, regexes: &mut Regexes) -> Result<String> {
    if text.len() > TEXT_BYTES_MAX {
        let text = format!("the expression has {} bytes: at most {TEXT_BYTES_MAX} are read", text.len());
        return Err(Error::invalid(text));
    }
    let scan = Scan { text, tokens: tokens(text) };
    scan.check_depth()?;
    scan.check_regexes(regexes)?;
    scan.check_durations()?;
    Ok(scan.with_windows(step_ms))
}

/// The tokens as far as they matter here. What is no token of the language becomes a sign, and the parser's to refuse.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, first)) = chars.next() {
        let mut end = start + first.len_utf8();
        let mut take_while = |is_wanted: &dyn Fn(char) -> bool| {
            while let Some((at, next)) = chars.next_if(|(_, next)| is_wanted(*next)) {
                end = at + next.len_utf8();
            }
        };
        let kind = match first {
            _ if first.is_whitespace() => continue,
            '#' => {
                take_while(&|next| next != '\n');
                continue;
            }
            '"' | '\'' | '`' => {
                let mut is_escaped = false;
                for (at, next) in chars.by_ref() {
                    end = at + next.len_utf8();
                    match next {
                        _ if is_escaped => is_escaped = false,
                        '\\' if first != '`' => is_escaped = true,
                        _ if next == first => break,
                        _ => {}
                    }
                }
                Kind::Text
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                take_while(&|next| next.is_ascii_alphanumeric() || next == '_' || next == ':');
                Kind::Name
            }
            '0'..='9' | '.' => {
                take_while(&|next| next.is_ascii_alphanumeric() || next == '_' || next == '.');
                Kind::Number
            }
            _ => Kind::Sign(first),
        };
        tokens.push(Token { kind, at: start..end });
    }
    tokens
}

impl Scan<'_> {
    fn kind(&self, at: usize) -> Option<Kind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn is(&self, at: usize, sign: char) -> bool {
        self.kind(at) == Some(Kind::Sign(sign))
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).and_then(|token| self.text.get(token.at.clone())).unwrap_or("")
    }

    /// No tree is deeper than the operators of one bracket and all that is in its deepest one.
    fn check_depth(&self) -> Result<()> {
        let words = ["and", "or", "unless", "atan2"];
        // Of each open bracket: its operators, and the depth of the deepest bracket in it.
        let (mut open, mut last): (Vec<(usize, usize)>, (usize, usize)) = (Vec::new(), (0, 0));
        let mut is_in_braces = false;
        for at in 0..self.tokens.len() {
            match self.kind(at) {
                Some(Kind::Sign('{')) => is_in_braces = true,
                Some(Kind::Sign('}')) => is_in_braces = false,
                _ if is_in_braces => {}
                Some(Kind::Sign('(')) => open.push(std::mem::take(&mut last)),
                Some(Kind::Sign(')')) => {
                    let depth = 1 + last.0 + last.1;
                    last = open.pop().unwrap_or_default();
                    last.1 = last.1.max(depth);
                }
                // The second character of an operator counts no more: `==` and `>=` are one.
                Some(Kind::Sign('=')) if "=!<>".chars().any(|first| self.is(at.wrapping_sub(1), first)) => {}
                Some(Kind::Sign('[' | '+' | '-' | '*' | '/' | '%' | '^' | '=' | '!' | '<' | '>')) => last.0 += 1,
                Some(Kind::Name) if words.iter().any(|word| self.text(at).eq_ignore_ascii_case(word)) => last.0 += 1,
                _ => {}
            }
        }
        let depth = open.iter().fold(last.0 + last.1, |depth, (operators, inner)| 1 + operators + depth.max(*inner));
        if depth > DEPTH_MAX {
            return Err(Error::invalid(format!("the expression is {depth} deep: at most {DEPTH_MAX} is read")));
        }
        Ok(())
    }

    fn check_regexes(&self, regexes: &mut Regexes) -> Result<()> {
        let is_regex =
            |at: &usize| self.is(*at, '~') && (self.is(at.wrapping_sub(1), '=') || self.is(at.wrapping_sub(1), '!'));
        let found: Vec<usize> = (0..self.tokens.len()).filter(is_regex).collect();
        if found.len() > REGEXES_MAX {
            let count = found.len();
            let text = format!("the expression has {count} regular expressions: at most {REGEXES_MAX} are read");
            return Err(Error::invalid(text));
        }
        // What is no text is the parser's to refuse.
        let texts = found.into_iter().filter_map(|at| unquote_string(self.text(at + 1)).ok());
        texts.into_iter().try_for_each(|text| check_regex(&text, regexes))
    }

    /// What stands where a duration may, in brackets and after `offset`, is one that can be.
    fn check_durations(&self) -> Result<()> {
        let mut inside = false;
        let mut after_offset = false;
        for at in 0..self.tokens.len() {
            match self.kind(at) {
                Some(Kind::Sign('[')) => inside = true,
                Some(Kind::Sign(']')) => inside = false,
                Some(Kind::Sign('-' | '+' | '*' | '/' | '%' | '^' | '(')) if inside => {
                    return Err(Error::invalid("arithmetic in durations is not supported: write a window as [5m]"));
                }
                Some(Kind::Name) if inside => {
                    return Err(Error::invalid(
                        "expressions in place of durations are not supported: write a window as [5m]",
                    ));
                }
                // These are numbers to the parser, and no duration.
                Some(Kind::Name)
                    if after_offset && ["inf", "nan"].iter().any(|word| self.text(at).eq_ignore_ascii_case(word)) =>
                {
                    check_duration(self.text(at))?;
                }
                Some(Kind::Name) => {
                    after_offset = self.text(at).eq_ignore_ascii_case("offset");
                    continue;
                }
                Some(Kind::Sign('-' | '+')) if after_offset => continue,
                Some(Kind::Number) if inside || after_offset => check_duration(self.text(at))?,
                // A duration may stand for its seconds; parts that do not fit would be passed over.
                Some(Kind::Number) if has_unit(self.text(at)) => check_duration(self.text(at))?,
                _ => {}
            }
            after_offset = false;
        }
        Ok(())
    }

    /// The text with windows where VictoriaMetrics needs none.
    fn with_windows(&self, step_ms: i64) -> String {
        let mut insertions: Vec<(usize, String)> = Vec::new();
        let end_of = |at: usize| self.tokens.get(at).map_or(self.text.len(), |token| token.at.end);
        for at in 0..self.tokens.len() {
            if self.kind(at) != Some(Kind::Name) {
                continue;
            }
            let name = self.text(at);
            if let Some((_, nth)) = OF_WINDOW.iter().find(|(of_window, _)| *of_window == name) {
                let selector = self.argument(at + 1, *nth).and_then(|start| self.selector(start));
                if let Some(selector) = selector.filter(|selector| self.ends_argument(selector.end)) {
                    insertions.push((end_of(selector.end - 1), format!("[{step_ms}ms]")));
                }
            } else if AGGREGATIONS.contains(&name) {
                let Some(selector) =
                    self.argument(self.after_grouping(at + 1), 0).and_then(|start| self.selector(start))
                else {
                    continue;
                };
                let close = selector.end + 2;
                let is_window = self.is(selector.end, '[') && self.kind(close - 1) == Some(Kind::Number);
                if is_window && self.is(close, ']') {
                    let start = self.tokens.get(selector.start).map_or(0, |token| token.at.start);
                    insertions.push((start, "last_over_time(".to_owned()));
                    insertions.push((end_of(close), ")".to_owned()));
                }
            }
        }
        insertions.sort_by_key(|(at, _)| *at);
        let mut text = String::with_capacity(self.text.len() + 32 * insertions.len());
        let mut done = 0;
        for (at, inserted) in insertions {
            text.push_str(self.text.get(done..at).unwrap_or(""));
            text.push_str(&inserted);
            done = at;
        }
        text.push_str(self.text.get(done..).unwrap_or(""));
        text
    }

    /// Past `by (...)` or `without (...)`.
    fn after_grouping(&self, at: usize) -> usize {
        let is_grouping = ["by", "without"].iter().any(|word| self.text(at).eq_ignore_ascii_case(word));
        if !is_grouping || !self.is(at + 1, '(') {
            return at;
        }
        let close = (at + 1..self.tokens.len()).find(|at| self.is(*at, ')'));
        close.map_or(at, |close| close + 1)
    }

    /// Where the argument `nth` of a call begins whose bracket opens at `open`.
    fn argument(&self, open: usize, nth: usize) -> Option<usize> {
        if !self.is(open, '(') {
            return None;
        }
        let (mut depth, mut commas) = (0usize, 0);
        for at in open + 1..self.tokens.len() {
            if commas == nth {
                return Some(at);
            }
            match self.kind(at) {
                Some(Kind::Sign('(' | '[' | '{')) => depth += 1,
                Some(Kind::Sign(')' | ']' | '}')) => depth = depth.checked_sub(1)?,
                Some(Kind::Sign(',')) if depth == 0 => commas += 1,
                _ => {}
            }
        }
        None
    }

    /// The tokens of the selector that begins at `start`, without window, offset and time.
    fn selector(&self, start: usize) -> Option<Range<usize>> {
        let is_named = self.kind(start) == Some(Kind::Name) && !self.is(start + 1, '(');
        let mut end = start + usize::from(is_named);
        if self.is(end, '{') {
            end = (end..self.tokens.len()).find(|at| self.is(*at, '}'))? + 1;
        }
        (end > start).then_some(start..end)
    }

    /// Whether a selector ends there that has no window.
    fn ends_argument(&self, at: usize) -> bool {
        matches!(self.kind(at), Some(Kind::Sign(')' | ',' | '@'))) || self.text(at).eq_ignore_ascii_case("offset")
    }
}

/// An expression is not larger than it may be, in either way that the parser reads it: braces that repeat nothing, as in `a{b}`,
/// stand for themselves.
fn check_regex(text: &str, regexes: &mut Regexes) -> Result<()> {
    let builder = regexes.builder(&format!("^(?:{text})$"))?;
    let refused = |why: &dyn Display| Error::invalid(format!("bad regular expression {text:?}: {why}"));
    match builder.build() {
        Ok(_) => Ok(()),
        Err(error @ regex::Error::CompiledTooBig(_)) => Err(refused(&error)),
        Err(error) => {
            let escaped = with_literal_braces(text);
            let is_built = escaped != text && regexes.builder(&format!("^(?:{escaped})$"))?.build().is_ok();
            if is_built { Ok(()) } else { Err(refused(&error)) }
        }
    }
}

/// The expression with a backslash before each brace that no digit follows.
fn with_literal_braces(text: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(next) = chars.next() {
        let is_literal = next == '{' && !chars.peek().is_some_and(char::is_ascii_digit);
        out.extend(is_literal.then_some('\\'));
        out.push(next);
        if next == '\\' {
            out.extend(chars.next());
        }
    }
    out
}

/// Whether a number is a duration: digits and units.
fn has_unit(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || UNITS.contains(&byte);
    text.bytes().all(is_part) && text.bytes().any(|byte| UNITS.contains(&byte))
}

fn check_duration(text: &str) -> Result<()> {
    let refused = || Error::invalid(format!("{text} is no duration: write it as 90s, 5m, 1h30m, 7d, at most 100y"));
    let plain = text.parse::<f64>().ok();
    if plain.is_some_and(|seconds| (0.0..=1e9).contains(&seconds)) {
        return Ok(());
    }
    let mut digits = 0usize;
    for byte in text.bytes() {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        // A number with an exponent, a sign or a point is none of those that the parser reads unit by unit.
        if digits > DURATION_DIGITS_MAX || !(byte.is_ascii_digit() || UNITS.contains(&byte)) {
            return Err(refused());
        }
    }
    if plain.is_some() { Err(refused()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(text: &str) -> Result<String> {
        prepare(text, 1000, &mut Regexes::default())
    }

    #[test]
    fn windows_are_written_where_victoria_metrics_needs_none() {
        for (text, wanted) in [
            ("max_over_time({a=\"b)\"})", "max_over_time({a=\"b)\"}[300000ms])"),
            ("rate(x)", "rate(x[300000ms])"),
            ("rate(x{a='1'} offset 5m) + x", "rate(x{a='1'}[300000ms] offset 5m) + x"),
            ("quantile_over_time(scalar(y), x)", "quantile_over_time(scalar(y), x[300000ms])"),
            ("count(x[1ms])", "count(last_over_time(x[1ms]))"),
            ("sum by (a) (x{}[1m])", "sum by (a) (last_over_time(x{}[1m]))"),
            ("count({a=\"b\"}[10ms]) > 0", "count(last_over_time({a=\"b\"}[10ms])) > 0"),
        ] {
            assert_eq!(prepare(text, 300_000, &mut Regexes::default()).unwrap(), wanted);
        }
    }

    #[test]
    fn what_prometheus_takes_is_left_as_it_is() {
        for text in [
            "rate(x[5m])",
            "max_over_time(rate(x[5m])[1h:])",
            "sum(rate(x[5m]))",
            "sum(x)",
            "rate",
            "rate + x # rate(x)",
            "\"rate(x)\"",
            "sum(x[5m:1m])",
            "rate(",
            "rate(x",
            "count by (",
            "{",
            "",
        ] {
            assert_eq!(prepared(text).unwrap(), text);
        }
    }

    #[test]
    fn what_would_be_too_deep_or_too_long_is_refused() {
        for text in [
            "(".repeat(DEPTH_MAX + 1),
            "-".repeat(DEPTH_MAX + 1),
            "x or ".repeat(DEPTH_MAX + 1),
            format!("x{}", " ".repeat(TEXT_BYTES_MAX)),
            format!("x{{{}}}", "a=~\"b\",".repeat(REGEXES_MAX + 1)),
        ] {
            assert!(prepared(&text).is_err());
        }
        assert!(prepared(&format!("\"{}\"", "(".repeat(1000))).is_ok());
    }

    #[test]
    fn regular_expressions_that_would_be_too_large_are_refused_whatever_the_parser_makes_of_them() {
        for value in
            [r#""\\w{1000}{9}""#, r"'\\w{1000}{9}'", r"`\w{1000}{9}`", r#""{a}\\w{1000}{9}""#, r#""\x5cw{999}{9}""#]
        {
            let text = format!("x{{a=~{value}}}");
            let told = prepared(&text).unwrap_err().to_string();
            assert!(told.contains("regular expression"), "{told}");
            assert!(prepared(&text.replace("=~", "=")).is_ok(), "{text}");
        }
        for value in ["a{b}", "{a}{2}", "[a-z]+", "a|b", "{}", "\\\\{a"] {
            let text = format!("x{{a!~\"{value}\"}}");
            assert!(prepared(&text).is_ok() && promql_parser::parser::parse(&text).is_ok(), "{text}");
        }
        assert!(prepared("x{a=~\"(\"}").is_err());
    }

    #[test]
    fn durations_that_cannot_be_are_refused() {
        for text in [
            "x[1e300]",
            "x[-5m]",
            "x[99999999999y]",
            "x offset 1e99",
            "x[5m:1e300]",
            "x[5m+1]",
            "x[inf]",
            "x offset NaN",
            "x offset -inf",
            "4d99999999999ms",
        ] {
            assert!(prepared(text).is_err(), "{text}");
        }
        for text in
            ["x[5m]", "x[1h30m:15s]", "x offset -1d", "x[300]", "x offset 1.5", "x + 1e300", "x > 5m", "x + 0x1d"]
        {
            assert!(prepared(text).is_ok(), "{text}");
        }
    }
}
