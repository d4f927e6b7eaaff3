//! Messages of protobuf, as far as Prometheus' remote writes and remote reads need them.
//!
//! A message is fields: a varint of the field's number and form, then the value. What is read is read where it lies.
//!
//! May use: nothing. Must not know: what messages mean.

/// The message is cut off, or is none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoMessage;

/// A field of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<'t> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'t [u8]),
    Fixed32,
}

pub(crate) fn varint(text: &mut &[u8]) -> Result<u64, NoMessage> {
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
///
/// # Errors
/// When it is no message.
pub(crate) fn field<'t>(text: &mut &'t [u8]) -> Result<Option<(u64, Field<'t>)>, NoMessage> {
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

/// Appends a number.
pub(crate) fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a field of bytes: a text, or a message.
pub(crate) fn put_bytes(to: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(to, number << 3 | 2);
    put_varint(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends a field that is a double.
pub(crate) fn put_double(to: &mut Vec<u8>, number: u64, value: f64) {
    put_varint(to, number << 3 | 1);
    to.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends a field that is an integer.
pub(crate) fn put_integer(to: &mut Vec<u8>, number: u64, value: i64) {
    put_varint(to, number << 3);
    put_varint(to, value.cast_unsigned());
}
