//! Values that are numbers: INCR and its like.
//!
//! May use: `call`, `number`, `extended`. Must not know: sockets, dispatch.

use holdfast::{Object, PutOptions};

use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER};
use crate::resp::effort::Use;
use crate::resp::extended::{Extended, Parsed};
use crate::resp::number::{self, Decimal};

pub(crate) fn incr(call: &mut Call<'_, '_>) -> Answer {
    add(call, 1)
}

pub(crate) fn decr(call: &mut Call<'_, '_>) -> Answer {
    add(call, -1)
}

pub(crate) fn incrby(call: &mut Call<'_, '_>) -> Answer {
    let amount = call.integer(2)?;
    add(call, amount)
}

pub(crate) fn decrby(call: &mut Call<'_, '_>) -> Answer {
    let amount = call.integer(2)?;
    let amount = amount.checked_neg().ok_or("ERR decrement would overflow")?;
    add(call, amount)
}

/// What the new value keeps of the object it replaces.
fn kept(old: Option<Object>) -> PutOptions {
    old.map(|object| PutOptions::keeping(object.head)).unwrap_or_default()
}

fn add(call: &mut Call<'_, '_>, amount: i64) -> Answer {
    let key = call.args.at(1);
    let old = call.get(key, Use::Look)?;
    let value = match &old {
        Some(object) => number::parse_i64(object.value.as_ref()).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let value = value.checked_add(amount).ok_or("ERR increment or decrement would overflow")?;
    call.put(key, Decimal::of_i64(value).as_bytes(), &kept(old))?;
    call.reply.integer(value);
    Ok(())
}

pub(crate) fn incrbyfloat(call: &mut Call<'_, '_>) -> Answer {
    let key = call.args.at(1);
    let old = call.get(key, Use::Look)?;
    let value = match &old {
        Some(object) => float(object.value.as_ref())?,
        None => float(b"0")?,
    };
    let amount = float(call.args.at(2))?;
    let sum = match (value, amount) {
        (Some(value), Some(amount)) => value.add(amount),
        _ => None,
    };
    let text = sum.ok_or("ERR increment would produce NaN or Infinity")?.print();
    call.put(key, text.as_bytes(), &kept(old))?;
    call.reply.text(&text);
    Ok(())
}

/// A number, or nothing if it is infinite.
fn float(text: &[u8]) -> Result<Option<Extended>, Fail> {
    match Extended::parse(text) {
        Parsed::Number(number) => Ok(Some(number)),
        Parsed::Infinite => Ok(None),
        Parsed::Invalid => Err("ERR value is not a valid float".into()),
    }
}
