//! Questions in InfluxQL. The end of a range does not belong to it.
//!
//! May use: nothing but the question. Must not know: who is asked.

use serde_json::Value;

use super::super::scenario::{GROUP, device_name, sensor_name};
use super::super::way::Shape;
use super::{Ask, Found, Read, get};

/// The request.
pub(super) fn request(ask: &Ask) -> Vec<u8> {
    let sensor = sensor_name(ask.sensor);
    let (measurement, field) = match ask.shape {
        Shape::Metrics => (sensor.as_str(), "value"),
        Shape::Fields => (GROUP, sensor.as_str()),
    };
    let (from, until) = (ask.from, ask.until);
    let device = format!("\"device\" = '{}'", device_name(ask.device));
    let time = format!("time >= {from}ms AND time < {until}ms");
    let (what, wanted, rest) = match ask.read {
        Read::Precise => (format!("\"{field}\""), format!("{device} AND time = {from}ms"), ""),
        Read::Range => (format!("\"{field}\""), format!("{device} AND {time}"), ""),
        Read::Sum => (format!("sum(\"{field}\")"), format!("{device} AND {time}"), ""),
        Read::Hourly => (format!("mean(\"{field}\")"), format!("{device} AND {time}"), " GROUP BY time(1h)"),
        Read::Latest => (format!("last(\"{field}\")"), device, ""),
        Read::Filter => (format!("\"{field}\""), format!("{device} AND {time} AND \"{field}\" > {}", ask.above), ""),
        Read::Descending => (format!("\"{field}\""), format!("{device} AND {time}"), " ORDER BY time DESC"),
        Read::Devices => (format!("mean(\"{field}\")"), time, " GROUP BY time(1m), \"device\""),
        Read::Count => (format!("count(\"{field}\")"), time, " GROUP BY \"device\""),
    };
    let text = format!("SELECT {what} FROM \"{measurement}\" WHERE {wanted}{rest}");
    get("/query", &[("db", "default"), ("epoch", "ms"), ("q", &text)])
}

/// What was found.
pub(super) fn found(answer: &Value) -> Option<Vec<Found>> {
    let results = answer.get("results")?.as_array()?;
    let mut found = Vec::new();
    for result in results {
        if result.get("error").is_some() {
            return None;
        }
        let Some(series) = result.get("series") else { continue };
        for one in series.as_array()? {
            let device = one.get("tags").and_then(|tags| Some(tags.get("device")?.as_str()?.to_owned()));
            let point = |row: &Value| Some((row.get(0)?.as_i64()?, row.get(1)?.as_f64()?));
            let points = one.get("values")?.as_array()?.iter().map(point).collect::<Option<Vec<_>>>()?;
            found.push(Found { device, points });
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_its_devices_and_points() {
        let answer = json!({"results": [{"statement_id": 0, "series": [
            {"name": "g_0", "tags": {"device": "d_1"}, "columns": ["time", "count"], "values": [[5, 7]]}]}]});
        assert_eq!(found(&answer), Some(vec![Found { device: Some("d_1".into()), points: vec![(5, 7.0)] }]));
        assert_eq!(found(&json!({"results": [{"statement_id": 0}]})), Some(Vec::new()));
        for wrong in [json!({"error": "no"}), json!({"results": [{"error": "database not found"}]})] {
            assert_eq!(found(&wrong), None);
        }
    }
}
