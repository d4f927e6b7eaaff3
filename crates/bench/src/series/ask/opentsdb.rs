//! Questions as OpenTSDB's JSON queries. Both ends of a range belong to it. There are no fields: see `way.rs` for their shape.
//!
//! May use: nothing but the question. Must not know: who is asked.

use serde_json::{Value, json};

use super::super::scenario::{GROUP, device_name, sensor_name};
use super::super::way::Shape;
use super::{Ask, Found, Read, post};

/// The request; `None` for fields, for which it has no words, for conditions on values, and for descending order.
pub(super) fn request(ask: &Ask) -> Option<Vec<u8>> {
    if ask.shape == Shape::Fields {
        return None;
    }
    let (metric, device) = (sensor_name(ask.sensor), device_name(ask.device));
    let (device, downsample) = match ask.read {
        Read::Precise | Read::Range => (device.as_str(), None),
        Read::Sum => (device.as_str(), Some("0all-sum")),
        Read::Hourly => (device.as_str(), Some("1h-avg")),
        Read::Devices => ("*", Some("1m-avg")),
        Read::Count => ("*", Some("0all-count")),
        Read::Latest => {
            let tags = json!({"device": device, "group": GROUP});
            let body = json!({"queries": [{"metric": metric, "tags": tags}], "resolveNames": true, "backScan": 0});
            return Some(post("/api/query/last", &body));
        }
        Read::Filter | Read::Descending => return None,
    };
    let mut query = json!({"aggregator": "none", "metric": metric, "tags": {"device": device}});
    if let (Some(downsample), Some(query)) = (downsample, query.as_object_mut()) {
        query.insert("downsample".to_owned(), downsample.into());
    }
    let body = json!({"start": ask.from, "end": ask.until - 1, "msResolution": true, "queries": [query]});
    Some(post("/api/query", &body))
}

/// What `/api/query` found.
pub(super) fn found(answer: &Value) -> Option<Vec<Found>> {
    let one = |series: &Value| {
        let point = |(time, value): (&String, &Value)| Some((time.parse().ok()?, value.as_f64()?));
        let points = series.get("dps")?.as_object()?.iter().map(point).collect::<Option<Vec<_>>>()?;
        Some(Found { device: device_of(series), points })
    };
    answer.as_array()?.iter().map(one).collect()
}

/// What `/api/query/last` found.
pub(super) fn latest(answer: &Value) -> Option<Vec<Found>> {
    let one = |point: &Value| {
        let value = point.get("value")?;
        let value = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        Some(Found { device: device_of(point), points: vec![(point.get("timestamp")?.as_i64()?, value)] })
    };
    answer.as_array()?.iter().map(one).collect()
}

fn device_of(series: &Value) -> Option<String> {
    Some(series.get("tags")?.get("device")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_devices_and_points() {
        let answer = json!([{"metric": "s_0", "tags": {"device": "d_1"}, "aggregateTags": [],
            "dps": {"1000": 1.5, "2000": 2}}]);
        let wanted = Found { device: Some("d_1".into()), points: vec![(1000, 1.5), (2000, 2.0)] };
        assert_eq!(found(&answer), Some(vec![wanted]));
        let answer = json!([{"metric": "s_0", "timestamp": 7, "value": "12.34", "tags": {"device": "d_2"}}]);
        assert_eq!(latest(&answer), Some(vec![Found { device: Some("d_2".into()), points: vec![(7, 12.34)] }]));
        assert_eq!((found(&json!([])), found(&json!({"error": {"code": 400}}))), (Some(Vec::new()), None));
    }
}
