//! When the journal is compacted, in words: `continuous`, `hours 1-5`, `4 per day`, `on demand`.
//!
//! May use: the facade. Must not know: where the words stand.

use std::fmt;
use std::str::FromStr;

use holdfast::Schedule;

const WORDS: &str = "use \"continuous\", \"hours 1-5\", \"4 per day\" or \"on demand\"";
/// Hours of the day begin with 0.
const HOUR_MAX: u8 = 23;
/// One each minute.
const RUNS_MAX: u16 = 1440;

/// A schedule that is read from and shown as words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct When(pub(crate) Schedule);

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["continuous"] => Ok(Self(Schedule::Continuous)),
            ["on", "demand"] => Ok(Self(Schedule::OnDemand)),
            ["hours", hours] => hours_of_day(hours),
            [runs, "per", "day"] => {
                let runs = number(runs).filter(|runs| (1..=RUNS_MAX).contains(runs));
                let runs = runs.ok_or_else(|| format!("`{text}`: choose from 1 to {RUNS_MAX} runs per day"))?;
                Ok(Self(Schedule::PerDay(runs)))
            }
            _ => Err(format!("`{text}` is no schedule; {WORDS}")),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Schedule::Continuous => f.write_str("continuous"),
            Schedule::Hours { from, to } => write!(f, "hours {from}-{to}"),
            Schedule::PerDay(runs) => write!(f, "{runs} per day"),
            Schedule::OnDemand => f.write_str("on demand"),
        }
    }
}

fn hours_of_day(text: &str) -> Result<When, String> {
    let hour = |text: &str| number(text).and_then(|hour| u8::try_from(hour).ok()).filter(|hour| *hour <= HOUR_MAX);
    let hours = text.split_once('-').and_then(|(from, to)| Some((hour(from)?, hour(to)?)));
    let example = "for example \"hours 22-5\", which is from 22:00 until before 05:00 UTC";
    match hours {
        None => Err(format!("`{text}` are no two hours from 0 to {HOUR_MAX}; write {example}")),
        // The whole day or none of it: nobody can tell which was meant.
        Some((from, to)) if from == to => {
            Err(format!("`{text}` begins and ends at one hour; write \"continuous\" for all day, or {example}"))
        }
        Some((from, to)) => Ok(When(Schedule::Hours { from, to })),
    }
}

/// Digits only: no sign, no blanks.
fn number(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown_alike() {
        for text in ["continuous", "on demand", "hours 1-5", "hours 22-0", "1 per day", "1440 per day"] {
            assert_eq!(text.parse::<When>().unwrap().to_string(), text);
        }
        assert_eq!("hours 22-5".parse(), Ok(When(Schedule::Hours { from: 22, to: 5 })));
        assert_eq!(When::default().to_string(), "continuous");
    }

    #[test]
    fn each_mistake_is_named_and_says_what_would_be_right() {
        let example = "for example \"hours 22-5\", which is from 22:00 until before 05:00 UTC";
        for text in ["", "Continuous", "on  demand", "hours 1 - 5", "hours", "per day", "4 per week"] {
            assert_eq!(text.parse::<When>(), Err(format!("`{text}` is no schedule; {WORDS}")));
        }
        for text in ["1", "1-24", "24-1", "-", "+1-5", "1-5-6", "256-1"] {
            let wanted = format!("`{text}` are no two hours from 0 to 23; write {example}");
            assert_eq!(format!("hours {text}").parse::<When>(), Err(wanted));
        }
        let wanted = format!("`5-5` begins and ends at one hour; write \"continuous\" for all day, or {example}");
        assert_eq!("hours 5-5".parse::<When>(), Err(wanted));
        for text in ["0 per day", "1441 per day", "-1 per day", "many per day", "99999 per day"] {
            assert_eq!(text.parse::<When>(), Err(format!("`{text}`: choose from 1 to 1440 runs per day")));
        }
    }
}
