//! Commands on the server: configuration, time, waiting, stopping.
//!
//! May use: `call`, `settings`, `info`. Must not know: sockets, dispatch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{info as information, settings};
use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::session::Pending;
use crate::resp::{glob, number};

pub(crate) fn time(call: &mut Call<'_, '_>) -> Answer {
    // The store's clock counts milliseconds; clients of TIME expect microseconds.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    call.reply.array(2);
    call.reply.text(&now.as_secs().to_string());
    call.reply.text(&now.subsec_micros().to_string());
    Ok(())
}

pub(crate) fn info(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let names: Vec<String> =
        args.from(1).iter().map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let text = information::text(call, &names)?;
    call.reply.verbatim(&text);
    Ok(())
}

pub(crate) fn config_get(call: &mut Call<'_, '_>) -> Answer {
    let patterns = call.args().from(2);
    let found: Vec<(&str, String)> = settings::all(call.door)
        .into_iter()
        .filter(|(name, _)| {
            patterns.iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
        })
        .collect();
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.text(name);
        call.reply.text(&value);
    }
    Ok(())
}

pub(crate) fn config_set(call: &mut Call<'_, '_>) -> Answer {
    let pairs = call.args().from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let mut changes = Vec::with_capacity(pairs.len() / 2);
    let mut words = pairs.iter();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        changes.push(settings::check(call.door, name, value)?);
    }
    let names = || pairs.iter().step_by(2);
    if let Some(twice) =
        names().enumerate().find(|(at, name)| names().take(*at).any(|one| one.eq_ignore_ascii_case(name)))
    {
        let name = String::from_utf8_lossy(twice.1);
        return Err(
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter").into()
        );
    }
    changes.into_iter().for_each(|change| settings::apply(call.door, change));
    call.reply.ok();
    Ok(())
}

pub(crate) fn config_resetstat(call: &mut Call<'_, '_>) -> Answer {
    call.door.counters.iter().for_each(|counters| counters.reset());
    call.reply.ok();
    Ok(())
}

pub(crate) fn config_rewrite(_: &mut Call<'_, '_>) -> Answer {
    Err("ERR the server never writes its configuration file: change it there, by hand, and start anew".into())
}

/// A timeout in milliseconds at argument `index`; 0 is none.
fn timeout(call: &Call<'_, '_>, index: usize) -> Result<Option<Duration>, Fail> {
    let millis = number::parse_i64(call.args.at(index)).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}

pub(crate) fn wait(call: &mut Call<'_, '_>) -> Answer {
    call.integer(1)?;
    timeout(call, 2)?;
    call.reply.integer(0);
    Ok(())
}

pub(crate) fn waitaof(call: &mut Call<'_, '_>) -> Answer {
    let (local, replicas) = (call.integer(1)?, call.integer(2)?);
    if !(0..=1).contains(&local) || replicas < 0 {
        return Err("ERR value is out of range, must between 0 and 1".into());
    }
    let timeout = timeout(call, 3)?;
    let position = call.session.last_write;
    let is_synced = call.door.syncer.is_synced(position);
    if call.in_exec || local == 0 || is_synced {
        call.reply.array(2);
        call.reply.integer(i64::from(is_synced));
        call.reply.integer(0);
        return Ok(());
    }
    call.door.syncer.want(position);
    call.session.pending = Some(Pending::Sync { position, timeout });
    Ok(())
}

pub(crate) fn shutdown(call: &mut Call<'_, '_>) -> Answer {
    let (mut saves, mut saves_not) = (false, false);
    for option in call.args().from(1).iter() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("abort") && call.args.len() == 2 {
            return Err("ERR No shutdown in progress.".into());
        }
        if !(is("nosave") || is("save") || is("now") || is("force")) {
            return Err(SYNTAX.into());
        }
        saves |= is("save");
        saves_not |= is("nosave");
    }
    if saves && saves_not {
        return Err(SYNTAX.into());
    }
    let hook = call.door.options.on_shutdown.clone().ok_or("ERR SHUTDOWN is not enabled for this server")?;
    tracing::info!(client = %call.session.client.address, "a client asked for SHUTDOWN");
    call.session.closing = true;
    hook();
    Ok(())
}
