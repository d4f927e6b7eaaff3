//! Bodies of requests, and what compresses them: gzip, deflate, and snappy's blocks; bounded in what they become.
//!
//! May use: `failure`, `upload`, flate2, snap. Must not know: what bodies mean.

use std::borrow::Cow;
use std::io::Read;

use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, StatusCode};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::super::failure::Failure;
use super::super::shared::Shared;
use super::super::upload::SETTINGS;
use crate::budget::Share;

/// How much is made room for at a time: memory grows with what comes out, not with what is announced.
const STEP_BYTES: usize = 64 << 10;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Gzip,
    Deflate,
    Snappy,
}

impl Encoding {
    /// What the headers say.
    ///
    /// # Errors
    /// 415 when it is none of these.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let Some(name) = headers.get(CONTENT_ENCODING) else { return Ok(Encoding::Plain) };
        match name.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Encoding::Plain),
            b"gzip" | b"x-gzip" => Ok(Encoding::Gzip),
            b"deflate" => Ok(Encoding::Deflate),
            b"snappy" => Ok(Encoding::Snappy),
            _ => Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the content encoding is not known; send gzip, deflate, snappy, or the body as it is",
            )),
        }
    }

    /// What the headers say of a message of Prometheus' remote protocols: it is snappy's, whether they say so or not.
    ///
    /// # Errors
    /// As [`Encoding::of`].
    pub(crate) fn of_remote(headers: &HeaderMap) -> Result<Self, Failure> {
        if headers.contains_key(CONTENT_ENCODING) { Self::of(headers) } else { Ok(Encoding::Snappy) }
    }
}

/// The body as it was before it was compressed; `None` when that is more than `wanted_max` bytes. What it becomes counts as a body in
/// memory for as long as `share` lives.
///
/// # Errors
/// 400 when it is damaged, 413 when it becomes too large, 503 when all bodies together are.
pub(crate) fn plain<'b>(
    shared: &Shared,
    encoding: Encoding,
    body: &'b [u8],
    wanted_max: usize,
    share: &mut Share,
) -> Result<Option<Cow<'b, [u8]>>, Failure> {
    let bytes = match encoding {
        Encoding::Plain => return Ok(Some(Cow::Borrowed(body))),
        Encoding::Gzip => inflate(shared, MultiGzDecoder::new(body), wanted_max, share),
        Encoding::Deflate if is_zlib(body) => inflate(shared, ZlibDecoder::new(body), wanted_max, share),
        // What HTTP calls deflate is zlib's format, and some clients send it without zlib's header.
        Encoding::Deflate => inflate(shared, DeflateDecoder::new(body), wanted_max, share),
        Encoding::Snappy => unsnap(shared, body, wanted_max, share),
    };
    Ok(bytes?.map(Cow::Owned))
}

fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [first, second, ..] if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0)
}

fn too_large(bytes_max: u64) -> Failure {
    let text = format!("a body holds at most {bytes_max} bytes, and this one more when it is decompressed{SETTINGS}");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn inflate(
    shared: &Shared,
    mut decoder: impl Read,
    wanted_max: usize,
    share: &mut Share,
) -> Result<Option<Vec<u8>>, Failure> {
    let bytes_max = shared.body_bytes_max();
    let mut bytes = Vec::new();
    loop {
        shared.budget.grow(share, bytes.len() + STEP_BYTES)?;
        let before = bytes.len();
        let mut step = Read::take(&mut decoder, STEP_BYTES as u64);
        step.read_to_end(&mut bytes).map_err(|_| Failure::bad("the body cannot be decompressed: it is damaged"))?;
        if bytes.len() as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        if bytes.len() > wanted_max {
            return Ok(None);
        }
        if bytes.len() == before {
            return Ok(Some(bytes));
        }
    }
}

fn unsnap(shared: &Shared, body: &[u8], wanted_max: usize, share: &mut Share) -> Result<Option<Vec<u8>>, Failure> {
    let bad = |_| Failure::bad("the body cannot be decompressed: it is no block of snappy");
    let bytes = snap::raw::decompress_len(body).map_err(bad)?;
    let bytes_max = shared.body_bytes_max();
    if bytes as u64 > bytes_max {
        return Err(too_large(bytes_max));
    }
    if bytes > wanted_max {
        return Ok(None);
    }
    shared.budget.grow(share, bytes)?;
    snap::raw::Decoder::new().decompress_vec(body).map(Some).map_err(bad)
}
