//! Questions in PromQL. A range in brackets ends with the moment that is asked for and does not have its first one, so it is asked
//! for the last millisecond before the end.
//!
//! May use: nothing but the question. Must not know: who is asked.

use serde_json::Value;

use super::super::scenario::{GROUP, device_name, sensor_name};
use super::super::way::Shape;
use super::{Ask, Found, HOUR_MILLIS, MINUTE_MILLIS, Read, get};

/// The request; `None` for descending order, for which it has no words.
pub(super) fn request(ask: &Ask) -> Option<Vec<u8>> {
    let sensor = sensor_name(ask.sensor);
    let metric = match ask.shape {
        Shape::Metrics => sensor,
        Shape::Fields => format!("{GROUP}_{sensor}"),
    };
    let one = format!("{metric}{{device=\"{}\"}}", device_name(ask.device));
    let length = ask.until - ask.from;
    let last = ask.until - 1;
    Some(match ask.read {
        Read::Precise => at(&one, ask.from),
        Read::Range => at(&format!("{one}[{length}ms]"), last),
        Read::Sum => at(&format!("sum_over_time({one}[{length}ms])"), last),
        Read::Hourly => each(&format!("avg_over_time({one}[1h])"), ask, HOUR_MILLIS),
        // It knows no latest point, only one that is not too old.
        Read::Latest => at(&format!("last_over_time({one}[1h])"), last),
        Read::Filter => {
            let step = ask.step_millis.into();
            steps(&format!("{one} > {}", ask.above), [ask.from, ask.until - i64::from(ask.step_millis)], step)
        }
        Read::Descending => return None,
        Read::Devices => each(&format!("avg_over_time({metric}[1m])"), ask, MINUTE_MILLIS),
        Read::Count => at(&format!("count_over_time({metric}[{length}ms])"), last),
    })
}

fn at(query: &str, millis: i64) -> Vec<u8> {
    get("/api/v1/query", &[("query", query), ("time", &seconds(millis)), ("nocache", "1")])
}

/// A value for each of these parts of the range.
fn each(query: &str, ask: &Ask, millis: u64) -> Vec<u8> {
    steps(query, [ask.from.saturating_add_unsigned(millis) - 1, ask.until - 1], millis)
}

fn steps(query: &str, [first, last]: [i64; 2], step_millis: u64) -> Vec<u8> {
    let (start, end, step) = (seconds(first), seconds(last), format!("{step_millis}ms"));
    let parameters = [("query", query), ("start", &start), ("end", &end), ("step", &step), ("nocache", "1")];
    get("/api/v1/query_range", &parameters)
}

fn seconds(millis: i64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// What was found.
pub(super) fn found(answer: &Value) -> Option<Vec<Found>> {
    let point = |pair: &Value| -> Option<(i64, f64)> {
        let millis = (pair.get(0)?.as_f64()? * 1000.0).round() as i64;
        Some((millis, pair.get(1)?.as_str()?.parse().ok()?))
    };
    let one = |series: &Value| {
        let device = series.get("metric").and_then(|tags| Some(tags.get("device")?.as_str()?.to_owned()));
        let points = match (series.get("value"), series.get("values")) {
            (Some(value), _) => vec![point(value)?],
            (_, Some(values)) => values.as_array()?.iter().map(point).collect::<Option<Vec<_>>>()?,
            _ => return None,
        };
        Some(Found { device, points })
    };
    answer.get("data")?.get("result")?.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_its_devices_and_points() {
        let metric = json!({"__name__": "s_0", "device": "d_1"});
        let vector = json!({"status": "success", "data": {"resultType": "vector",
            "result": [{"metric": metric, "value": [1700000000.25, "1.5"]}]}});
        let matrix = json!({"status": "success", "data": {"resultType": "matrix",
            "result": [{"metric": metric, "values": [[1700000000, "1.5"], [1700000005, "2"]]}]}});
        let first = (1_700_000_000_000, 1.5);
        let of = |points| Some(vec![Found { device: Some("d_1".into()), points }]);
        assert_eq!(found(&vector), of(vec![(1_700_000_000_250, 1.5)]));
        assert_eq!(found(&matrix), of(vec![first, (1_700_000_005_000, 2.0)]));
        assert_eq!(found(&json!({"status": "error", "error": "no"})), None);
    }

    #[test]
    fn moments_are_seconds_with_three_decimals() {
        assert_eq!(seconds(1_699_999_200_007), "1699999200.007");
    }
}
