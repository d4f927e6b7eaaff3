//! Prometheus' remote write, version 1: a snappy block of the protobuf message `WriteRequest`.
//!
//! ```text
//! WriteRequest  1 timeseries*          TimeSeries  1 labels*, 2 samples*
//! Label         1 name, 2 value        Sample      1 value (double), 2 timestamp (milliseconds)
//! ```
//! Other fields are ignored: metadata, exemplars. Native histograms are counted as not understood.
//!
//! May use: `message`, the facade's `series`. Must not know: HTTP.

use std::borrow::Cow;

use holdfast::series::{FIELD_DEFAULT, Rows, SeriesError};

use crate::http::message::{Field, NoMessage, field};

const METRIC: &[u8] = b"__name__";
const MILLISECOND: i64 = 1_000_000;

/// The next series of a message, which [`add`] takes; `None` at the end.
///
/// # Errors
/// When it is no message.
pub(crate) fn next<'t>(text: &mut &'t [u8]) -> Result<Option<&'t [u8]>, NoMessage> {
    while let Some((key, value)) = field(text)? {
        if let (1, Field::Bytes(series)) = (key, value) {
            return Ok(Some(series));
        }
    }
    Ok(None)
}

/// Adds the samples of one series; or what is wrong with it. `name` is memory for its name.
///
/// # Errors
/// When it is no message.
pub(crate) fn add(
    series: &[u8],
    name: &mut Vec<u8>,
    rows: &mut Rows,
) -> Result<Result<(), Cow<'static, str>>, NoMessage> {
    name.clear();
    name.extend_from_slice(b"\nr");
    let (mut rest, mut histograms) = (series, 0);
    while let Some((key, value)) = field(&mut rest)? {
        match (key, value) {
            (1, Field::Bytes(label)) => {
                let length = u32::try_from(label.len()).map_err(|_| NoMessage)?;
                name.extend_from_slice(&length.to_le_bytes());
                name.extend_from_slice(label);
            }
            (4, _) => histograms += 1,
            _ => {}
        }
    }
    if histograms > 0 {
        return Ok(Err("native histograms are not stored: send classic ones".into()));
    }
    let refused = |error: SeriesError| Ok(Err(Cow::Owned(error.to_string())));
    let row = match rows.row(name, |_| names(series)) {
        Ok(row) => row,
        Err(error) => return refused(error),
    };
    let slot = match rows.field(row, 0, FIELD_DEFAULT.as_bytes(), |_| Ok(FIELD_DEFAULT.to_owned())) {
        Ok(slot) => slot,
        Err(error) => return refused(error),
    };
    let mut rest = series;
    while let Some((key, value)) = field(&mut rest)? {
        if let (2, Field::Bytes(mut sample)) = (key, value) {
            let (mut value, mut at) = (0.0, 0i64);
            while let Some((key, field)) = field(&mut sample)? {
                match (key, field) {
                    (1, Field::Fixed64(bits)) => value = f64::from_bits(bits),
                    (2, Field::Varint(ms)) => at = ms.cast_signed(),
                    _ => {}
                }
            }
            match at.checked_mul(MILLISECOND) {
                Some(at) => rows.push_float(slot, at, value),
                None => return Ok(Err("a timestamp is out of range: it is in milliseconds since 1970".into())),
            }
        }
    }
    Ok(Ok(()))
}

/// Metric and labels of a series.
fn names(mut series: &[u8]) -> Result<(String, Vec<(String, String)>), SeriesError> {
    let wrong = |_: NoMessage| SeriesError::invalid("a label is no message");
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| SeriesError::invalid("a label is not UTF-8"));
        text.map(str::to_owned)
    };
    let (mut metric, mut tags) = (String::new(), Vec::new());
    while let Some((key, value)) = field(&mut series).map_err(wrong)? {
        let (1, Field::Bytes(mut label)) = (key, value) else { continue };
        let (mut name, mut value) = (&b""[..], &b""[..]);
        while let Some((key, field)) = field(&mut label).map_err(wrong)? {
            match (key, field) {
                (1, Field::Bytes(bytes)) => name = bytes,
                (2, Field::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        if name == METRIC {
            metric = text(value)?;
        } else if !value.is_empty() {
            tags.push((text(name)?, text(value)?));
        }
    }
    Ok((metric, tags))
}

#[cfg(test)]
#[path = "remote_tests.rs"]
pub(super) mod tests;
