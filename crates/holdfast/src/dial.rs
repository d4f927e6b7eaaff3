//! The durability dial in words: `synced`, `written`, `window:MIN,MAX`, as configuration files and command lines have it.
//!
//! May use: `durability`. Must not know: where the words stand.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::durability::Durability;
use crate::error::{Error, ErrorKind};

/// The longest window: beyond it the operating system has written everything out by itself.
const WINDOW_MAX: Duration = Duration::from_secs(60);
const WORDS: &str = "use synced, written or window:MIN,MAX, for example window:1ms,10ms";
const UNITS: [(&str, u64); 3] = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];

/// A durability that is read from and shown as words: `synced`, `written`, or `window:MIN,MAX` with times such as `500us`,
/// `10ms` or `1s`, MAX 60 s at most.
///
/// # Errors
/// Parsing fails with `Invalid` and a text that says what would be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dial(pub Durability);

impl FromStr for Dial {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|problem| Error::new(ErrorKind::Invalid, problem))
    }
}

fn parse(text: &str) -> Result<Dial, String> {
    match text {
        "synced" => return Ok(Dial(Durability::Synced)),
        "written" => return Ok(Dial(Durability::Written)),
        _ => {}
    }
    let window = text.strip_prefix("window:").and_then(|rest| rest.split_once(','));
    let (min, max) = window.ok_or_else(|| format!("`{text}` is no durability; {WORDS}"))?;
    let time = |part: &str| duration(part).ok_or_else(|| format!("`{part}` is no time such as 500us, 10ms or 1s"));
    let (min_time, max_time) = (time(min)?, time(max)?);
    if min_time > max_time {
        return Err(format!("MIN {min} is above MAX {max}; {WORDS}"));
    }
    if max_time > WINDOW_MAX {
        return Err(format!("MAX {max} is above {}", Time(WINDOW_MAX)));
    }
    Ok(Dial(Durability::window(min_time, max_time)))
}

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Durability::Window(window) => write!(f, "window:{},{}", Time(window.min), Time(window.max)),
            other => other.fmt(f),
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, micros) = UNITS.iter().find(|(unit, _)| text.strip_prefix(digits) == Some(unit))?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(*micros).map(Duration::from_micros)
}

/// A time in the largest unit in which it is a whole number.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX);
        let fits = UNITS.iter().rev().find(|(_, unit)| micros.is_multiple_of(*unit));
        let (name, unit) = fits.copied().unwrap_or(("us", 1));
        write!(f, "{}{name}", micros / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown_alike() {
        for text in ["synced", "written", "window:1ms,10ms", "window:500us,2s", "window:0s,1500us", "window:60s,60s"] {
            assert_eq!(text.parse::<Dial>().unwrap().to_string(), text);
        }
        let window = Durability::window(Duration::from_millis(1), Duration::from_millis(20));
        assert_eq!("window:1000us,20ms".parse::<Dial>().unwrap(), Dial(window));
    }

    #[test]
    fn each_mistake_is_named() {
        for (text, wanted) in [
            ("", "`` is no durability; use synced, written or window:MIN,MAX, for example window:1ms,10ms"),
            ("Synced", "`Synced` is no durability; use synced, written or window:MIN,MAX, for example window:1ms,10ms"),
            ("window", "`window` is no durability; use synced, written or window:MIN,MAX, for example window:1ms,10ms"),
            (
                "window:5ms",
                "`window:5ms` is no durability; use synced, written or window:MIN,MAX, for example window:1ms,10ms",
            ),
            ("window:5,10ms", "`5` is no time such as 500us, 10ms or 1s"),
            ("window:1ms,+2ms", "`+2ms` is no time such as 500us, 10ms or 1s"),
            ("window:1ms,99999999999999999999s", "`99999999999999999999s` is no time such as 500us, 10ms or 1s"),
            (
                "window:10ms,1ms",
                "MIN 10ms is above MAX 1ms; use synced, written or window:MIN,MAX, for example window:1ms,10ms",
            ),
            ("window:1ms,61s", "MAX 61s is above 60s"),
        ] {
            assert_eq!(text.parse::<Dial>().unwrap_err().to_string(), wanted);
        }
    }
}
