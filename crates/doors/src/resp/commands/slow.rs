//! SLOWLOG and LATENCY.
//!
//! May use: `call`, `slowlog`. Must not know: sockets, dispatch.

use std::fmt::Write;

use crate::resp::call::{Answer, Call};
use crate::resp::number;

pub(crate) fn slowlog_get(call: &mut Call<'_, '_>) -> Answer {
    let count = match call.args.get(2) {
        None => 10,
        Some(_) if call.args.len() > 3 => return Err(call.wrong_arity()),
        Some(count) => match number::parse_i64(count) {
            Some(-1) => usize::MAX,
            count => count
                .and_then(|count| usize::try_from(count).ok())
                .ok_or("ERR count should be greater than or equal to -1")?,
        },
    };
    let entries = call.door.slowlog.latest(count);
    call.reply.array(entries.len());
    for entry in entries {
        call.reply.array(6);
        call.reply.unsigned(entry.id);
        call.reply.unsigned(entry.unix_s);
        call.reply.unsigned(entry.micros);
        call.reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| call.reply.bulk(arg));
        call.reply.text(&entry.client);
        call.reply.text(&entry.client_name);
    }
    Ok(())
}

pub(crate) fn slowlog_len(call: &mut Call<'_, '_>) -> Answer {
    call.reply.unsigned(call.door.slowlog.len() as u64);
    Ok(())
}

pub(crate) fn slowlog_reset(call: &mut Call<'_, '_>) -> Answer {
    call.door.slowlog.reset();
    call.reply.ok();
    Ok(())
}

pub(crate) fn latency_latest(call: &mut Call<'_, '_>) -> Answer {
    let events = call.door.latency.events();
    call.reply.array(events.len());
    for (name, event) in events {
        let (second, millis) = event.samples.back().copied().unwrap_or_default();
        call.reply.array(4);
        call.reply.text(name);
        call.reply.unsigned(second);
        call.reply.unsigned(millis);
        call.reply.unsigned(event.longest_ms);
    }
    Ok(())
}

pub(crate) fn latency_history(call: &mut Call<'_, '_>) -> Answer {
    let wanted = call.args.at(2);
    let events = call.door.latency.events();
    let samples = events.into_iter().find(|(name, _)| name.as_bytes() == wanted).map(|(_, event)| event.samples);
    let samples = samples.unwrap_or_default();
    call.reply.array(samples.len());
    for (second, millis) in samples {
        call.reply.array(2);
        call.reply.unsigned(second);
        call.reply.unsigned(millis);
    }
    Ok(())
}

pub(crate) fn latency_reset(call: &mut Call<'_, '_>) -> Answer {
    let names = call.args().from(2);
    let forgotten = if names.len() == 0 {
        call.door.latency.reset(None)
    } else {
        names.iter().map(|name| call.door.latency.reset(Some(name))).sum()
    };
    call.reply.unsigned(forgotten as u64);
    Ok(())
}

pub(crate) fn latency_doctor(call: &mut Call<'_, '_>) -> Answer {
    let mut text = String::new();
    for (name, event) in call.door.latency.events() {
        let sum: u64 = event.samples.iter().map(|(_, millis)| millis).sum();
        let count = event.samples.len() as u64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name}: {count} latency spikes, {} ms on average, {} ms at worst. Look at SLOWLOG for the commands.",
            sum / count.max(1),
            event.longest_ms
        );
    }
    if text.is_empty() {
        text.push_str("No latency spike was observed. CONFIG SET latency-monitor-threshold <milliseconds> turns the monitor on.\n");
    }
    call.reply.verbatim(&text);
    Ok(())
}
