//! Expiration of keys.
//!
//! May use: `call`. Must not know: sockets, dispatch.

use crate::resp::call::{Answer, Call, Fail};

/// In what an expiry is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Millis,
}

/// From when an expiry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    FromNow,
    UnixTime,
}

impl Expiry {
    /// What an option such as EX means.
    pub(crate) fn option(name: &[u8]) -> Option<(Unit, Expiry)> {
        if name.eq_ignore_ascii_case(b"ex") {
            Some((Unit::Seconds, Expiry::FromNow))
        } else if name.eq_ignore_ascii_case(b"px") {
            Some((Unit::Millis, Expiry::FromNow))
        } else if name.eq_ignore_ascii_case(b"exat") {
            Some((Unit::Seconds, Expiry::UnixTime))
        } else if name.eq_ignore_ascii_case(b"pxat") {
            Some((Unit::Millis, Expiry::UnixTime))
        } else {
            None
        }
    }
}

fn invalid(call: &Call<'_, '_>) -> Fail {
    format!("ERR invalid expire time in '{}' command", call.command.name).into()
}

/// Unix milliseconds of an expiry; nothing when it does not fit.
fn absolute_ms(value: i64, unit: Unit, expiry: Expiry, now_ms: u64) -> Option<i64> {
    let value = match unit {
        Unit::Seconds => value.checked_mul(1000)?,
        Unit::Millis => value,
    };
    match expiry {
        Expiry::FromNow => value.checked_add(i64::try_from(now_ms).ok()?),
        Expiry::UnixTime => Some(value),
    }
}

/// The expiry at argument `index` of a command that sets a value: it must be positive.
pub(crate) fn checked_expiry(call: &Call<'_, '_>, index: usize, unit: Unit, expiry: Expiry) -> Result<u64, Fail> {
    let value = call.integer(index)?;
    if value <= 0 {
        return Err(invalid(call));
    }
    let at = absolute_ms(value, unit, expiry, call.now_ms).ok_or_else(|| invalid(call))?;
    u64::try_from(at).map_err(|_| invalid(call))
}

/// The condition of EXPIRE.
#[derive(Default)]
struct Conditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl Conditions {
    fn parse(call: &Call<'_, '_>) -> Result<Self, Fail> {
        let mut conditions = Conditions::default();
        for option in call.args().from(3).iter() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("nx") {
                conditions.absent = true;
            } else if is("xx") {
                conditions.present = true;
            } else if is("gt") {
                conditions.greater = true;
            } else if is("lt") {
                conditions.less = true;
            } else {
                return Err(format!("ERR Unsupported option {}", String::from_utf8_lossy(option)).into());
            }
        }
        if conditions.absent && (conditions.present || conditions.greater || conditions.less) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if conditions.greater && conditions.less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    fn hold(&self, current: Option<u64>, wanted: i64) -> bool {
        let current = current.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        match current {
            None => !self.present && !self.greater,
            Some(current) => !self.absent && (!self.greater || wanted > current) && (!self.less || wanted < current),
        }
    }
}

fn expire_at(call: &mut Call<'_, '_>, unit: Unit, expiry: Expiry) -> Answer {
    let key = call.args.at(1);
    let conditions = Conditions::parse(call)?;
    let value = call.integer(2)?;
    let at = absolute_ms(value, unit, expiry, call.now_ms).ok_or_else(|| invalid(call))?;
    let Some(head) = call.head(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    if !conditions.hold(head.expires_ms, at) {
        call.reply.integer(0);
        return Ok(());
    }
    match u64::try_from(at) {
        Ok(at) if at > call.now_ms => call.set_expiry(key, Some(at))?,
        _ => call.delete(key)?,
    };
    call.reply.integer(1);
    Ok(())
}

pub(crate) fn expire(call: &mut Call<'_, '_>) -> Answer {
    expire_at(call, Unit::Seconds, Expiry::FromNow)
}

pub(crate) fn pexpire(call: &mut Call<'_, '_>) -> Answer {
    expire_at(call, Unit::Millis, Expiry::FromNow)
}

pub(crate) fn expireat(call: &mut Call<'_, '_>) -> Answer {
    expire_at(call, Unit::Seconds, Expiry::UnixTime)
}

pub(crate) fn pexpireat(call: &mut Call<'_, '_>) -> Answer {
    expire_at(call, Unit::Millis, Expiry::UnixTime)
}

/// Answers when a key expires, through `show`; -1 without expiry, -2 without key.
fn show_expiry(call: &mut Call<'_, '_>, show: impl Fn(u64, u64) -> u64) -> Answer {
    match call.head(call.args.at(1))? {
        None => call.reply.integer(-2),
        Some(head) => match head.expires_ms {
            None => call.reply.integer(-1),
            Some(at) => call.reply.unsigned(show(at, call.now_ms)),
        },
    }
    Ok(())
}

pub(crate) fn ttl(call: &mut Call<'_, '_>) -> Answer {
    show_expiry(call, |at, now| at.saturating_sub(now).saturating_add(500) / 1000)
}

pub(crate) fn pttl(call: &mut Call<'_, '_>) -> Answer {
    show_expiry(call, u64::saturating_sub)
}

pub(crate) fn expiretime(call: &mut Call<'_, '_>) -> Answer {
    show_expiry(call, |at, _| at.saturating_add(500) / 1000)
}

pub(crate) fn pexpiretime(call: &mut Call<'_, '_>) -> Answer {
    show_expiry(call, |at, _| at)
}

pub(crate) fn persist(call: &mut Call<'_, '_>) -> Answer {
    let key = call.args.at(1);
    let expires = call.head(key)?.is_some_and(|head| head.expires_ms.is_some());
    if expires {
        call.set_expiry(key, None)?;
    }
    call.reply.integer(i64::from(expires));
    Ok(())
}
