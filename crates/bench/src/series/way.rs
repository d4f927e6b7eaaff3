//! The ways in, and the bytes of a request on each.
//!
//! May use: `scenario.rs`. Must not know: sockets, who listens.

use std::io::Write;

use clap::ValueEnum;

use super::family::Wave;
use super::scenario::{Block, GROUP, Scenario};

/// A way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// `put` lines over TCP.
    Telnet,
    /// `put` lines in the body of `POST /api/put`.
    Put,
    /// An array of JSON objects in the body of `POST /api/put`.
    Json,
    /// Influx lines over TCP.
    Line,
    /// Influx lines in the body of `POST /write`.
    LineHttp,
}

/// How points are named when they came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A sensor is a metric; `device` and `group` are tags.
    Metrics,
    /// The group is a measurement, `device` its tag, a sensor one of its fields.
    Fields,
}

impl Way {
    /// What reports call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Telnet => "telnet TCP",
            Self::Put => "put HTTP",
            Self::Json => "JSON HTTP",
            Self::Line => "line TCP",
            Self::LineHttp => "line HTTP",
        }
    }

    /// Whether each request is answered.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self, Self::Put | Self::Json | Self::LineHttp)
    }

    /// How its points are named.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Telnet | Self::Put | Self::Json => Shape::Metrics,
            Self::Line | Self::LineHttp => Shape::Fields,
        }
    }

    fn head(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Telnet | Self::Line => None,
            Self::Put => Some(("/api/put", "text/plain")),
            Self::Json => Some(("/api/put", "application/json")),
            Self::LineHttp => Some(("/write?db=default", "text/plain")),
        }
    }

    /// Appends the request that writes a block.
    pub(crate) fn request(self, scenario: &Scenario, block: &Block, to: &mut Vec<u8>) {
        let Some((path, kind)) = self.head() else { return self.body(scenario, block, to) };
        let mut body = Vec::new();
        self.body(scenario, block, &mut body);
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        to.extend_from_slice(head.as_bytes());
        to.append(&mut body);
    }

    fn body(self, scenario: &Scenario, block: &Block, to: &mut Vec<u8>) {
        if self == Self::Json {
            to.push(b'[');
        }
        for device in block.devices.clone() {
            let waves: Vec<(u32, Wave)> = (0..scenario.sensors).map(|s| (s, scenario.wave(device, s))).collect();
            for row in block.rows.clone() {
                let millis = scenario.millis(row);
                self.row(Row { device, row, millis, waves: &waves }, to);
            }
        }
        if self == Self::Json {
            // The comma behind the last point becomes the end of the array.
            to.pop();
            to.push(b']');
        }
    }

    fn row(self, row: Row<'_>, to: &mut Vec<u8>) {
        let Row { device, millis, waves, .. } = row;
        if self.shape() == Shape::Fields {
            push(to, format_args!("{GROUP},device=d_{device}"));
            for (at, (sensor, wave)) in waves.iter().enumerate() {
                to.extend_from_slice(if at == 0 { b" s_" } else { b",s_" });
                push_number(to, u64::from(*sensor));
                to.push(b'=');
                push_value(to, wave.hundredths(row.row));
            }
            to.push(b' ');
            push_number(to, millis.unsigned_abs());
            return to.extend_from_slice(b"000000\n");
        }
        for (sensor, wave) in waves {
            let json = self == Self::Json;
            to.extend_from_slice(if json { b"{\"metric\":\"s_" } else { b"put s_" });
            push_number(to, u64::from(*sensor));
            to.extend_from_slice(if json { b"\",\"timestamp\":" } else { b" " });
            push_number(to, millis.unsigned_abs());
            to.extend_from_slice(if json { b",\"value\":" } else { b" " });
            push_value(to, wave.hundredths(row.row));
            to.extend_from_slice(if json { b",\"tags\":{\"device\":\"d_" } else { b" device=d_" });
            push_number(to, u64::from(device));
            to.extend_from_slice(if json { b"\",\"group\":\"" } else { b" group=" });
            to.extend_from_slice(GROUP.as_bytes());
            to.extend_from_slice(if json { b"\"}}," } else { b"\n" });
        }
    }
}

/// One moment of one device.
#[derive(Clone, Copy)]
struct Row<'a> {
    device: u32,
    row: u64,
    millis: i64,
    waves: &'a [(u32, Wave)],
}

fn push(to: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    to.write_fmt(text).expect("memory takes what is written");
}

/// A value with its two decimals.
fn push_value(to: &mut Vec<u8>, hundredths: u64) {
    push_number(to, hundredths / 100);
    let decimals = u8::try_from(hundredths % 100).unwrap_or_default();
    to.extend_from_slice(&[b'.', b'0' + decimals / 10, b'0' + decimals % 10]);
}

/// Digits without the machinery of `format!`: the client shares its processors with the server.
fn push_number(to: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let (mut left, mut count) = (number, 0);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
        (left, count) = (left / 10, count + 1);
        if left == 0 {
            break;
        }
    }
    let (_, shown) = digits.split_at(digits.len() - count);
    to.extend_from_slice(shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: Scenario = Scenario { seed: 5, devices: 4, sensors: 3, step_millis: 5_000 };

    fn text(way: Way, block: &Block) -> String {
        let mut bytes = Vec::new();
        way.request(&SCENARIO, block, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    fn value(device: u32, sensor: u32, row: u64) -> String {
        let hundredths = SCENARIO.wave(device, sensor).hundredths(row);
        format!("{}.{:02}", hundredths / 100, hundredths % 100)
    }

    #[test]
    fn a_telnet_request_has_a_line_for_each_point() {
        let put = text(Way::Telnet, &Block { devices: 1..2, rows: 7..9 });
        let lines: Vec<&str> = put.lines().collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[4], format!("put s_1 {} {} device=d_1 group=g_0", SCENARIO.millis(8), value(1, 1, 8)));
        assert!(put.ends_with('\n'));
    }

    #[test]
    fn an_influx_request_has_a_line_for_each_row_with_nanoseconds() {
        let line = text(Way::Line, &Block { devices: 0..2, rows: 0..2 });
        assert_eq!(line.lines().count(), 4);
        let wanted = format!(
            "g_0,device=d_1 s_0={},s_1={},s_2={} {}000000\n",
            value(1, 0, 1),
            value(1, 1, 1),
            value(1, 2, 1),
            SCENARIO.millis(1)
        );
        assert!(line.ends_with(&wanted), "{line}");
    }

    #[test]
    fn http_requests_say_their_length_and_json_is_json() {
        let block = Block { devices: 2..3, rows: 0..20 };
        for (way, path) in [(Way::Put, "/api/put "), (Way::Json, "/api/put "), (Way::LineHttp, "/write?db=default ")] {
            let request = text(way, &block);
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("POST {path}HTTP/1.1\r\n")), "{head}");
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            if way == Way::Json {
                let points: serde_json::Value = serde_json::from_str(body).unwrap();
                assert_eq!(points.as_array().unwrap().len(), 60);
                assert_eq!(points[59]["value"].to_string(), as_json(&value(2, 2, 19)));
                assert_eq!(points[59]["tags"]["device"], "d_2");
            } else {
                assert_eq!(body.lines().count(), if way == Way::Put { 60 } else { 20 });
            }
        }
    }

    fn as_json(value: &str) -> String {
        serde_json::Value::from(value.parse::<f64>().unwrap()).to_string()
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for number in [0, 1, 9, 10, 99, 100, 1_699_999_200_000, u64::MAX] {
            let mut to = Vec::new();
            push_number(&mut to, number);
            assert_eq!(String::from_utf8(to).unwrap(), number.to_string());
        }
        let mut to = Vec::new();
        push_value(&mut to, 1_205);
        assert_eq!(to, b"12.05");
    }
}
