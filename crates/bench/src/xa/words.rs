//! Times and loss windows as the command line has them.
//!
//! May use: the facade. Must not know: what is done with them.

use std::time::Duration;

use holdfast::{Durability, Window};

const UNITS: [(&str, f64); 3] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// A time: a number with `us`, `ms` or `s` behind it, or of milliseconds without.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (digits, seconds) = unit.unwrap_or((text, 1e-3));
    let number: f64 = digits.parse().map_err(|_| format!("`{text}` is no time such as 500us, 2ms, 1s or 2"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| format!("`{text}`: {error}"))
}

/// What a commit waits for: see the command line.
pub(super) fn window(text: &str) -> Result<Durability, String> {
    match text {
        "written" => return Ok(Durability::Written),
        "synced" => return Ok(Durability::Synced),
        _ => {}
    }
    let (mut least, mut most) = (None, None);
    for (place, part) in text.split(',').enumerate() {
        let (which, part) = match part.split_once('=') {
            Some(("min", part)) => (&mut least, part),
            Some(("max", part)) => (&mut most, part),
            Some((other, _)) => return Err(format!("a window has `min` and `max`, and no `{other}`")),
            None if place == 0 && text.contains(',') => (&mut least, part),
            None => (&mut most, part),
        };
        if which.replace(time(part)?).is_some() {
            return Err(format!("`{text}` says one thing twice"));
        }
    }
    let min = least.unwrap_or_default();
    match most.ok_or_else(|| format!("`{text}` does not say the window's MAX"))? {
        Duration::ZERO if min.is_zero() => Ok(Durability::Synced),
        max if min <= max => Ok(Durability::Window(Window { min, max })),
        _ => Err("a window's MIN is at most its MAX".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_understood_or_refused() {
        let ms = Duration::from_millis;
        let between = |min, max| Ok(Durability::Window(Window { min, max }));
        for (text, wanted) in [
            ("0", Ok(Durability::Synced)),
            ("synced", Ok(Durability::Synced)),
            ("max=0", Ok(Durability::Synced)),
            ("written", Ok(Durability::Written)),
            ("5", between(Duration::ZERO, ms(5))),
            ("5ms", between(Duration::ZERO, ms(5))),
            ("max=5ms", between(Duration::ZERO, ms(5))),
            ("1,10", between(ms(1), ms(10))),
            ("500us,1s", between(Duration::from_micros(500), ms(1000))),
            ("min=1ms,max=10ms", between(ms(1), ms(10))),
            ("max=10,min=1", between(ms(1), ms(10))),
        ] {
            assert_eq!(window(text), wanted, "{text}");
        }
        for wrong in
            ["", "x", "10,1", "-1", "1,", "1,2,3", "5h", "min=5ms", "max=1,max=2", "most=5ms", "max=", "5 ms,x"]
        {
            assert!(window(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit_or_are_milliseconds() {
        for (text, micros) in [("2", 2000), ("2ms", 2000), ("0.5", 500), ("250us", 250), ("1s", 1_000_000), ("0", 0)] {
            assert_eq!(time(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for wrong in ["", "ms", "2m", "-2ms", "2 ms x", "inf"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
