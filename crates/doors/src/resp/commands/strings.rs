//! Commands on the values of keys.
//!
//! May use: `call`, `expiry`. Must not know: sockets, dispatch.

use holdfast::PutOptions;

use super::expiry::{Expiry, Unit, checked_expiry};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, TOO_LONG};
use crate::resp::effort::Use;
use crate::resp::number;

/// The options of SET and GETEX.
#[derive(Default)]
struct SetOptions {
    absent: bool,
    present: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Unit, Expiry, usize)>,
}

impl SetOptions {
    /// Reads options from argument `first` on; GETEX has other ones than SET.
    fn parse(call: &Call<'_, '_>, first: usize, is_set: bool) -> Result<Self, Fail> {
        let args = call.args();
        let mut options = SetOptions::default();
        let mut index = first;
        while let Some(option) = args.get(index) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            let timeless = options.expiry.is_none() && !options.keep_ttl && !options.persist;
            if is_set && is("nx") && !options.present {
                options.absent = true;
            } else if is_set && is("xx") && !options.absent {
                options.present = true;
            } else if is_set && is("get") {
                options.get = true;
            } else if is_set && is("keepttl") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if !is_set && is("persist") && options.expiry.is_none() {
                options.persist = true;
            } else if let Some((unit, expiry)) = Expiry::option(option)
                && timeless
                && index + 1 < args.len()
            {
                options.expiry = Some((unit, expiry, index + 1));
                index += 1;
            } else {
                return Err(SYNTAX.into());
            }
            index += 1;
        }
        Ok(options)
    }

    /// The Unix milliseconds that the expiry option means.
    fn expires_ms(&self, call: &Call<'_, '_>) -> Result<Option<u64>, Fail> {
        self.expiry.map(|(unit, expiry, index)| checked_expiry(call, index, unit, expiry)).transpose()
    }
}

pub(crate) fn get(call: &mut Call<'_, '_>) -> Answer {
    match call.get(call.args.at(1), Use::Show)? {
        Some(object) => call.reply.bulk(object.value.as_ref()),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn set(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (key, value) = (args.at(1), args.at(2));
    if args.len() == 3 {
        call.reply.ok();
        return call.put(key, value, &PutOptions::default());
    }
    let options = SetOptions::parse(call, 3, true)?;
    let expires_ms = options.expires_ms(call)?;
    let old = if options.get { call.get(key, Use::Show)? } else { None };
    if options.absent || options.present {
        let exists = if options.get { old.is_some() } else { call.head(key)?.is_some() };
        if exists == options.absent {
            match old {
                Some(object) => call.reply.bulk(object.value.as_ref()),
                None => call.reply.null(),
            }
            return Ok(());
        }
    }
    let put = PutOptions { expires_ms, keep_expiry: options.keep_ttl, ..PutOptions::default() };
    call.put(key, value, &put)?;
    match old {
        Some(object) => call.reply.bulk(object.value.as_ref()),
        None if options.get => call.reply.null(),
        None => call.reply.ok(),
    }
    Ok(())
}

pub(crate) fn setnx(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let absent = call.head(args.at(1))?.is_none();
    if absent {
        call.put(args.at(1), args.at(2), &PutOptions::default())?;
    }
    call.reply.integer(i64::from(absent));
    Ok(())
}

pub(crate) fn setex(call: &mut Call<'_, '_>) -> Answer {
    set_expiring(call, Unit::Seconds)
}

pub(crate) fn psetex(call: &mut Call<'_, '_>) -> Answer {
    set_expiring(call, Unit::Millis)
}

fn set_expiring(call: &mut Call<'_, '_>, unit: Unit) -> Answer {
    let args = call.args();
    let expires_ms = Some(checked_expiry(call, 2, unit, Expiry::FromNow)?);
    call.put(args.at(1), args.at(3), &PutOptions { expires_ms, ..PutOptions::default() })?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn getset(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let old = call.get(args.at(1), Use::Show)?;
    call.put(args.at(1), args.at(2), &PutOptions::default())?;
    match old {
        Some(object) => call.reply.bulk(object.value.as_ref()),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn getdel(call: &mut Call<'_, '_>) -> Answer {
    let key = call.args.at(1);
    match call.get(key, Use::Show)? {
        Some(object) => {
            call.delete(key)?;
            call.reply.bulk(object.value.as_ref());
        }
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn getex(call: &mut Call<'_, '_>) -> Answer {
    let key = call.args.at(1);
    let options = SetOptions::parse(call, 2, false)?;
    let object = call.get(key, Use::Show)?;
    let Some(object) = object else {
        call.reply.null();
        return Ok(());
    };
    match options.expires_ms(call)? {
        Some(expires_ms) if expires_ms <= call.now_ms => {
            call.delete(key)?;
        }
        Some(expires_ms) => {
            call.set_expiry(key, Some(expires_ms))?;
        }
        None if options.persist && object.head.expires_ms.is_some() => {
            call.set_expiry(key, None)?;
        }
        None => {}
    }
    call.reply.bulk(object.value.as_ref());
    Ok(())
}

pub(crate) fn mget(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    call.reply.array(args.len() - 1);
    for key in args.from(1).iter() {
        match call.get(key, Use::Show)? {
            Some(object) => call.reply.bulk(object.value.as_ref()),
            None => call.reply.null(),
        }
    }
    Ok(())
}

pub(crate) fn mset(call: &mut Call<'_, '_>) -> Answer {
    put_pairs(call)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn msetnx(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    if args.len().is_multiple_of(2) {
        return Err(call.wrong_arity());
    }
    for key in args.from(1).iter().step_by(2) {
        if call.head(key)?.is_some() {
            call.reply.integer(0);
            return Ok(());
        }
    }
    put_pairs(call)?;
    call.reply.integer(1);
    Ok(())
}

fn put_pairs(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    if args.len().is_multiple_of(2) {
        return Err(call.wrong_arity());
    }
    // Nothing is staged before everything is known to fit: inside EXEC a failed command leaves no trace.
    if args.from(1).iter().skip(1).step_by(2).any(|value| value.len() > call.door.value_bytes_max()) {
        return Err(TOO_LONG.into());
    }
    let mut words = args.from(1).iter();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        call.put(key, value, &PutOptions::default())?;
    }
    Ok(())
}

pub(crate) fn append(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (key, tail) = (args.at(1), args.at(2));
    let length = match call.get(key, Use::Look)? {
        None => {
            call.put(key, tail, &PutOptions::default())?;
            tail.len()
        }
        Some(object) => {
            let head: &[u8] = object.value.as_ref();
            if head.len() + tail.len() > call.door.value_bytes_max() {
                return Err(TOO_LONG.into());
            }
            let value = [head, tail].concat();
            call.put(key, &value, &PutOptions::keeping(object.head))?;
            value.len()
        }
    };
    call.reply.unsigned(length as u64);
    Ok(())
}

pub(crate) fn strlen(call: &mut Call<'_, '_>) -> Answer {
    let bytes = call.head(call.args.at(1))?.map_or(0, |head| head.value_bytes);
    call.reply.unsigned(bytes);
    Ok(())
}

pub(crate) fn getrange(call: &mut Call<'_, '_>) -> Answer {
    let (mut start, mut end) = (call.integer(2)?, call.integer(3)?);
    let Some(object) = call.get(call.args.at(1), Use::Look)? else {
        call.reply.bulk(b"");
        return Ok(());
    };
    let value: &[u8] = object.value.as_ref();
    let length = value.len() as i64;
    if start < 0 && end < 0 && start > end {
        call.reply.bulk(b"");
        return Ok(());
    }
    if start < 0 {
        start = start.saturating_add(length);
    }
    if end < 0 {
        end = end.saturating_add(length);
    }
    let (start, end) = (start.max(0), end.max(0).min(length - 1));
    let part = if start > end { &[] } else { value.get(start as usize..=end as usize).unwrap_or_default() };
    call.reply.bulk(part);
    Ok(())
}

pub(crate) fn setrange(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (key, part) = (args.at(1), args.at(3));
    let offset = number::parse_i64(args.at(2)).ok_or(NOT_INTEGER)?;
    let offset = usize::try_from(offset).map_err(|_| Fail::from("ERR offset is out of range"))?;
    let old = call.get(key, Use::Look)?;
    if part.is_empty() {
        call.reply.unsigned(old.map_or(0, |object| object.head.value_bytes));
        return Ok(());
    }
    let end = offset.saturating_add(part.len());
    if end > call.door.value_bytes_max() {
        return Err(TOO_LONG.into());
    }
    // Zeros before the part take as long as bytes that were there.
    call.session.effort.add(end as u64, Use::Look)?;
    let mut value = old.as_ref().map_or(Vec::new(), |object| AsRef::<[u8]>::as_ref(&object.value).to_vec());
    if value.len() < end {
        value.resize(end, 0);
    }
    if let Some(place) = value.get_mut(offset..end) {
        place.copy_from_slice(part);
    }
    call.put(key, &value, &old.map(|object| PutOptions::keeping(object.head)).unwrap_or_default())?;
    call.reply.unsigned(value.len() as u64);
    Ok(())
}
