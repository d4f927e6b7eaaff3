//! Parameters: those of a form in the body come before those of the query.
//!
//! May use: the facade's `promql`, `uri`. Must not know: what they are for.

use holdfast::series::Range;
use holdfast::series::promql::{Selector, parse_duration, parse_moment};

use super::refusal::Refusal;
use crate::http::uri::decode;

/// Parameters that are read.
const PARAMS_MAX: usize = 1000;
/// Selectors of one request.
const SELECTORS_MAX: usize = 100;
const NANOS_PER_MS: i64 = 1_000_000;

/// The parameters of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn parse(form: &[u8], query: Option<&str>) -> Result<Self, Refusal> {
        let bad = || Refusal::bad("a parameter is not percent-encoded UTF-8");
        let form = std::str::from_utf8(form).map_err(|_| bad())?;
        let text = |text: &str| {
            let bytes = decode(text.replace('+', " ").as_bytes())?;
            String::from_utf8(bytes).ok()
        };
        let pairs = form.trim().split('&').chain(query.unwrap_or_default().split('&'));
        let mut params = Vec::new();
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            params.push((text(name).ok_or_else(bad)?, text(value).ok_or_else(bad)?));
            if params.len() > PARAMS_MAX {
                return Err(Refusal::bad(format!("there are more than {PARAMS_MAX} parameters")));
            }
        }
        Ok(Self(params))
    }

    /// A parameter that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// A moment in milliseconds since 1970.
    pub(super) fn moment(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let refused =
            |text| invalid(name, text, "is no time: write seconds since 1970, or as 2015-07-01T20:10:30.781Z");
        self.get(name).map(|text| parse_moment(text).ok_or_else(|| refused(text))).transpose()
    }

    /// A length of time in milliseconds.
    pub(super) fn duration(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let refused = |text| invalid(name, text, "is no length of time: write seconds, or as 1h30m");
        self.get(name).map(|text| parse_duration(text).ok_or_else(|| refused(text))).transpose()
    }

    /// The most that is answered with; nothing and zero are no limit.
    pub(super) fn limit(&self) -> Result<Option<usize>, Refusal> {
        let refused = |text| invalid("limit", text, "is no whole number");
        let limit = self.get("limit").map(|text| text.parse::<usize>().map_err(|_| refused(text))).transpose()?;
        Ok(limit.filter(|limit| *limit > 0))
    }

    /// What stands in `match[]`, each.
    pub(super) fn matches(&self) -> Result<Vec<String>, Refusal> {
        let all: Vec<String> = self.all("match[]").map(str::to_owned).collect();
        if all.len() > SELECTORS_MAX {
            return Err(Refusal::bad(format!("there are more than {SELECTORS_MAX} parameters match[]")));
        }
        Ok(all)
    }

    /// The range from `start` to `end`, if one of them is there.
    pub(super) fn range(&self) -> Result<Option<Range>, Refusal> {
        let (start, end) = (self.moment("start")?, self.moment("end")?);
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        let from = start.map_or(i64::MIN, |ms| ms.saturating_mul(NANOS_PER_MS));
        // All of the last millisecond.
        let to = end.map_or(i64::MAX, |ms| ms.saturating_mul(NANOS_PER_MS).saturating_add(NANOS_PER_MS - 1));
        if to < from {
            return Err(Refusal::bad("invalid parameter \"end\": end timestamp must not be before start time"));
        }
        Ok(Some(Range { from, to }))
    }
}

/// The selectors in these texts. Takes a while when there are regular expressions: never on an event loop.
pub(super) fn selectors(texts: &[String]) -> Result<Vec<Selector>, Refusal> {
    Selector::parse_all(texts).map_err(|error| Refusal::bad(format!("invalid parameter \"match[]\": {error}")))
}

pub(super) fn invalid(name: &str, text: &str, reason: &str) -> Refusal {
    Refusal::bad(format!("invalid parameter {name:?}: {text:?} {reason}"))
}
