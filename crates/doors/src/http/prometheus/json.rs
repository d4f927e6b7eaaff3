//! Answers as Prometheus writes them: values are text, since JSON has no NaN; times are seconds with milliseconds.
//!
//! May use: the facade's `promql`. Must not know: HTTP.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdfast::series::Cardinality;
use holdfast::series::promql::{Answer, Labels, Line, NAME, write_float};
use serde_json::json;

/// The version whose behaviour this is: clients look what they may ask for by it.
const LIKE_PROMETHEUS: &str = "3.0.0";

pub(super) fn success(data: &str) -> String {
    format!("{{\"status\":\"success\",\"data\":{data}}}")
}

pub(super) fn error(kind: &str, text: &str) -> String {
    json!({ "status": "error", "errorType": kind, "error": text }).to_string()
}

pub(super) fn build_info(version: &str) -> String {
    json!({
        "version": LIKE_PROMETHEUS,
        "revision": format!("holdfast-{version}"),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    })
    .to_string()
}

/// A text in quotes.
pub(super) fn text(text: &str, to: &mut String) {
    let is_plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if is_plain {
        to.push('"');
        to.push_str(text);
        to.push('"');
    } else {
        to.push_str(&serde_json::Value::from(text).to_string());
    }
}

/// Texts, with a warning when some are left out.
pub(super) fn texts(texts: &[String], limit: Option<usize>) -> String {
    list(texts, limit, |one, to| text(one, to))
}

pub(super) fn all_labels(all: &[Labels], limit: Option<usize>) -> String {
    list(all, limit, labels)
}

fn list<T>(all: &[T], limit: Option<usize>, write: impl Fn(&T, &mut String)) -> String {
    let mut data = String::from("[");
    for (nth, one) in all.iter().take(limit.unwrap_or(usize::MAX)).enumerate() {
        if nth > 0 {
            data.push(',');
        }
        write(one, &mut data);
    }
    data.push(']');
    let mut answer = success(&data);
    if limit.is_some_and(|limit| all.len() > limit) {
        answer.pop();
        let _ = write!(answer, ",\"warnings\":[\"{TRUNCATED}\"]}}");
    }
    answer
}

pub(super) fn labels(labels: &Labels, to: &mut String) {
    to.push('{');
    for (nth, (name, value)) in labels.iter().enumerate() {
        if nth > 0 {
            to.push(',');
        }
        text(name, to);
        to.push(':');
        text(value, to);
    }
    to.push('}');
}

fn time(ms: i64, to: &mut String) {
    let (sign, ms) = if ms < 0 { ("-", ms.unsigned_abs()) } else { ("", ms.unsigned_abs()) };
    let written = match ms % 1000 {
        0 => write!(to, "{sign}{}", ms / 1000),
        fraction => write!(to, "{sign}{}.{fraction:03}", ms / 1000),
    };
    written.expect("a string takes all");
}

fn point((ms, value): (i64, f64), to: &mut String) {
    to.push('[');
    time(ms, to);
    to.push_str(",\"");
    write_float(value, to);
    to.push_str("\"]");
}

/// An answer up to its series, which follow one by one and then [`end`].
pub(super) fn head(answer: &Answer, to: &mut String) {
    let kind = match answer {
        Answer::Scalar(..) => "scalar",
        Answer::Text(..) => "string",
        Answer::Vector(_) => "vector",
        Answer::Matrix(_) => "matrix",
    };
    let _ = write!(to, "{{\"status\":\"success\",\"data\":{{\"resultType\":\"{kind}\",\"result\":");
    match answer {
        Answer::Scalar(ms, value) => point((*ms, *value), to),
        Answer::Text(ms, text_of) => {
            to.push('[');
            time(*ms, to);
            to.push(',');
            text(text_of, to);
            to.push(']');
        }
        Answer::Vector(_) | Answer::Matrix(_) => to.push('['),
    }
}

/// What an answer warns of from which series were left out.
pub(super) const TRUNCATED: &str = "results truncated due to limit";

/// How an answer ends, with what whoever reads it has to know.
pub(super) fn end(warnings: &[String]) -> String {
    let mut end = String::from("}");
    for (nth, warning) in warnings.iter().enumerate() {
        end.push_str(if nth == 0 { ",\"warnings\":[" } else { "," });
        text(warning, &mut end);
    }
    end.push_str(if warnings.is_empty() { "}" } else { "]}" });
    end
}

/// A series of a vector.
pub(super) fn vector_line(line: &Line, to: &mut String) {
    to.push_str("{\"metric\":");
    labels(&line.labels, to);
    to.push_str(",\"value\":");
    line.points.iter().take(1).for_each(|at| point(*at, to));
    to.push('}');
}

/// A series of a matrix.
pub(super) fn matrix_line(line: &Line, to: &mut String) {
    to.push_str("{\"metric\":");
    labels(&line.labels, to);
    to.push_str(",\"values\":[");
    for (nth, at) in line.points.iter().enumerate() {
        if nth > 0 {
            to.push(',');
        }
        point(*at, to);
    }
    to.push_str("]}");
}

/// What there are most of, at most `top` of each. A metric counts with all its fields.
/// What there is most of.
fn most_of<K>(counts: &BTreeMap<K, u64>, top: usize) -> Vec<(&K, u64)> {
    let mut counts: Vec<_> = counts.iter().map(|(of, count)| (of, *count)).collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts.truncate(top);
    counts
}

pub(super) fn cardinality(found: &Cardinality, top: usize) -> String {
    let shown = |name: &str, value: u64| json!({ "name": name, "value": value });
    let most = |counts: &BTreeMap<String, u64>| -> Vec<_> {
        most_of(counts, top).into_iter().map(|(name, value)| shown(name, value)).collect()
    };
    let mut values: BTreeMap<String, u64> = BTreeMap::new();
    if !found.metrics.is_empty() {
        values.insert(NAME.to_owned(), found.metrics.len() as u64);
    }
    for (name, _) in found.pairs.keys() {
        *values.entry(name.clone()).or_default() += 1;
    }
    // As Prometheus writes them; which `=` parts them does not show, so two may look alike.
    let pairs = most_of(&found.pairs, top).into_iter();
    let pairs: Vec<_> = pairs.map(|((name, value), count)| shown(&format!("{name}={value}"), count)).collect();
    let nothing: [u64; 0] = [];
    success(
        &json!({
            "headStats": {
                "numSeries": found.metrics.values().sum::<u64>(),
                "numLabelPairs": found.metrics.len() + found.pairs.len(),
            },
            "seriesCountByMetricName": most(&found.metrics),
            "labelValueCountByLabelName": most(&values),
            "memoryInBytesByLabelName": nothing,
            "seriesCountByLabelValuePair": pairs,
        })
        .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_when_they_are_not_whole() {
        for (ms, wanted) in [(0, "0"), (1_435_781_430_781, "1435781430.781"), (1005, "1.005"), (-1500, "-1.500")] {
            let mut to = String::new();
            time(ms, &mut to);
            assert_eq!(to, wanted);
        }
    }

    #[test]
    fn texts_are_escaped() {
        let mut to = String::new();
        text("a\"\\\n\u{e9}", &mut to);
        assert_eq!(to, "\"a\\\"\\\\\\n\u{e9}\"");
        assert_eq!(texts(&["a".to_owned(), "b".to_owned()], None), r#"{"status":"success","data":["a","b"]}"#);
        let few = r#"{"status":"success","data":["a"],"warnings":["results truncated due to limit"]}"#;
        assert_eq!(texts(&["a".to_owned(), "b".to_owned()], Some(1)), few);
    }
}
