//! Prometheus' remote write, version 1: a snappy block of the protobuf message `WriteRequest`.
//!
//! ```text
//! WriteRequest  1 timeseries*          TimeSeries  1 labels*, 2 samples*
//! Label         1 name, 2 value        Sample      1 value (double), 2 timestamp (milliseconds)
//! ```
//! Other fields are ignored: metadata, exemplars. Native histograms are counted as not understood.
//!
//! May use: `intake`. Must not know: sockets.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use holdfast::Store;
use holdfast::series::{FIELD_DEFAULT, SeriesError, Typing};

use super::super::failure::Failure;
use super::super::handle::{Asked, say_durability};
use super::super::shared::Shared;
use super::super::upload::{Share, Upload};
use super::body::{self, Encoding};
use super::exposition::partial;
use super::intake::Intake;

const METRIC: &[u8] = b"__name__";
const SECOND_VERSION: &[u8] = b"io.prometheus.write.v2.Request";
const MILLISECOND: i64 = 1_000_000;

/// The message is cut off, or is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMessage;

/// A field of a message.
#[derive(Debug, PartialEq, Eq)]
enum Field<'t> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'t [u8]),
    Fixed32,
}

/// `POST /api/v1/write`.
pub(crate) async fn write(asked: &Asked<'_>, database: String, upload: &mut Upload) -> Result<Response, Failure> {
    let kind = asked.parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if kind.windows(SECOND_VERSION.len()).any(|part| part == SECOND_VERSION) {
        let text = "remote write 2.0 is not spoken here: send prometheus.WriteRequest";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let durability = asked.durability()?;
    let is_told = asked.parts.headers.contains_key(axum::http::header::CONTENT_ENCODING);
    let take = move |shared: &Shared, store: &Store, body: &[u8]| {
        // The protocol says that the body is snappy's, whether its headers do or not.
        let mut share = Share::default();
        let encoding = if is_told { Encoding::Plain } else { Encoding::Snappy };
        let body = body::plain(shared, encoding, body, &mut share)?;
        let mut intake = Intake::new(shared, store, &database, Typing::Numbers);
        let read = request(&mut intake, &body);
        let outcome = intake.end(Some(durability))?;
        match read {
            Ok(()) => Ok(outcome),
            Err(Unread::Store(error)) => Err(error.into()),
            Err(Unread::NoMessage) => Err(Failure::bad("the body is no message prometheus.WriteRequest")),
        }
    };
    let outcome = super::take(asked, upload, take).await?;
    partial(&outcome)?;
    Ok(say_durability(StatusCode::NO_CONTENT.into_response(), durability))
}

enum Unread {
    Store(holdfast::Error),
    NoMessage,
}

impl From<NoMessage> for Unread {
    fn from(_: NoMessage) -> Self {
        Unread::NoMessage
    }
}

impl From<holdfast::Error> for Unread {
    fn from(error: holdfast::Error) -> Self {
        Unread::Store(error)
    }
}

fn varint(text: &mut &[u8]) -> Result<u64, NoMessage> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = text.split_first().ok_or(NoMessage)?;
        *text = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(NoMessage)
}

fn bytes<'t>(text: &mut &'t [u8], count: u64) -> Result<&'t [u8], NoMessage> {
    let count = usize::try_from(count).map_err(|_| NoMessage)?;
    let (bytes, rest) = text.split_at_checked(count).ok_or(NoMessage)?;
    *text = rest;
    Ok(bytes)
}

/// The next field of a message, with its number; `None` at the end.
fn field<'t>(text: &mut &'t [u8]) -> Result<Option<(u64, Field<'t>)>, NoMessage> {
    if text.is_empty() {
        return Ok(None);
    }
    let tag = varint(text)?;
    let value = match tag & 7 {
        0 => Field::Varint(varint(text)?),
        1 => {
            let eight = bytes(text, 8)?.try_into().map_err(|_| NoMessage)?;
            Field::Fixed64(u64::from_le_bytes(eight))
        }
        2 => {
            let count = varint(text)?;
            Field::Bytes(bytes(text, count)?)
        }
        5 => {
            bytes(text, 4)?;
            Field::Fixed32
        }
        _ => return Err(NoMessage),
    };
    Ok(Some((tag >> 3, value)))
}

fn request(intake: &mut Intake<'_>, mut text: &[u8]) -> Result<(), Unread> {
    let mut number = 0;
    while let Some((key, value)) = field(&mut text)? {
        if let (1, Field::Bytes(series)) = (key, value) {
            number += 1;
            intake.make_room()?;
            if let Err(reason) = add(intake, series)? {
                intake.complain(number, b"", reason);
            }
        }
    }
    Ok(())
}

/// Adds the samples of one series; or what is wrong with it.
fn add(intake: &mut Intake<'_>, series: &[u8]) -> Result<Result<(), Cow<'static, str>>, NoMessage> {
    let kit = &mut intake.kit;
    kit.name.clear();
    kit.name.extend_from_slice(b"\nr");
    let (mut rest, mut histograms) = (series, 0);
    while let Some((key, value)) = field(&mut rest)? {
        match (key, value) {
            (1, Field::Bytes(label)) => {
                let length = u32::try_from(label.len()).map_err(|_| NoMessage)?;
                kit.name.extend_from_slice(&length.to_le_bytes());
                kit.name.extend_from_slice(label);
            }
            (4, _) => histograms += 1,
            _ => {}
        }
    }
    if histograms > 0 {
        return Ok(Err("native histograms are not stored: send classic ones".into()));
    }
    let refused = |error: SeriesError| Ok(Err(Cow::Owned(error.to_string())));
    let row = match kit.rows.row(&kit.name, |_| names(series)) {
        Ok(row) => row,
        Err(error) => return refused(error),
    };
    let slot = match kit.rows.field(row, 0, FIELD_DEFAULT.as_bytes(), |_| Ok(FIELD_DEFAULT.to_owned())) {
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
                Some(at) => kit.rows.push_float(slot, at, value),
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
