//! CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR: what a connection hears of keys that change.
//!
//! May use: `call`, `tracking`. Must not know: sockets, dispatch.

use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::reply::Protocol;
use crate::resp::tracking::{Mode, Tracked, Wish};

/// Prefixes of one connection at the most: each is looked at for each key that changes.
const PREFIXES_MAX: usize = 128;

pub(crate) fn tracking(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let is_on = match args.at(2) {
        word if word.eq_ignore_ascii_case(b"on") => true,
        word if word.eq_ignore_ascii_case(b"off") => false,
        _ => return Err(SYNTAX.into()),
    };
    let wish = wish(call)?;
    if !is_on {
        call.session.track(None);
        call.reply.ok();
        return Ok(());
    }
    if call.reply.protocol == Protocol::Resp2 {
        return Err("ERR tracking needs messages that nobody asked for, which RESP2 has not: say HELLO 3 first".into());
    }
    let before = call.session.tracked.as_ref().map(|tracked| tracked.listener.wish());
    let wish = match &before {
        Some(before) => wish.behind(before)?,
        None => wish,
    };
    if let Some(tracked) = &call.session.tracked {
        tracked.listener.wish_again(wish);
    } else {
        let tracked = Tracked::begin(&call.door.tracking, &call.session.client, call.session.user.clone(), wish);
        call.session.track(Some(tracked));
    }
    call.reply.ok();
    Ok(())
}

/// What the options say.
fn wish(call: &Call<'_, '_>) -> Result<Wish, Fail> {
    let args = call.args();
    let (mut broadcast, mut opt_in, mut opt_out, mut no_loop) = (false, false, false, false);
    let mut prefixes: Vec<Vec<u8>> = Vec::new();
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("bcast") => broadcast = true,
            () if is("optin") => opt_in = true,
            () if is("optout") => opt_out = true,
            () if is("noloop") => no_loop = true,
            () if is("prefix") => {
                index += 1;
                prefixes.push(args.get(index).ok_or(SYNTAX)?.to_vec());
            }
            () if is("redirect") => {
                return Err("ERR REDIRECT needs pub/sub, which there is not here: turn tracking on for the connection that is to hear, with HELLO 3".into());
            }
            () => return Err(SYNTAX.into()),
        }
        index += 1;
    }
    if !broadcast && !prefixes.is_empty() {
        return Err("ERR PREFIX goes with BCAST".into());
    }
    if opt_in && opt_out {
        return Err("ERR OPTIN and OPTOUT exclude each other".into());
    }
    if broadcast && (opt_in || opt_out) {
        return Err("ERR OPTIN and OPTOUT do not go with BCAST".into());
    }
    let mode = match (broadcast, opt_in, opt_out) {
        (true, ..) => Mode::Broadcast,
        (_, true, _) => Mode::OptIn,
        (_, _, true) => Mode::OptOut,
        _ => Mode::Read,
    };
    let wish = Wish { mode, prefixes: Vec::new(), no_loop };
    wish.with_prefixes(prefixes)
}

impl Wish {
    fn with_prefixes(mut self, more: Vec<Vec<u8>>) -> Result<Self, Fail> {
        for prefix in more {
            let other = self.prefixes.iter().find(|other| other.starts_with(&prefix) || prefix.starts_with(other));
            match other {
                Some(other) if *other == prefix => {}
                Some(other) => {
                    let [one, other] = [&prefix, other].map(|prefix| String::from_utf8_lossy(prefix));
                    return Err(
                        format!("ERR the prefixes '{one}' and '{other}' overlap: each key may be told once").into()
                    );
                }
                None if self.prefixes.len() >= PREFIXES_MAX => {
                    return Err(format!("LIMIT a connection has {PREFIXES_MAX} prefixes at the most").into());
                }
                None => self.prefixes.push(prefix),
            }
        }
        Ok(self)
    }

    /// What holds when this is said of a connection that is tracking already: the same mode, and prefixes come to those that there are.
    fn behind(self, before: &Self) -> Result<Self, Fail> {
        if self.mode != before.mode {
            return Err("ERR the mode cannot be changed while tracking is on: say CLIENT TRACKING OFF first".into());
        }
        let Self { mode, prefixes, no_loop } = self;
        Self { mode, prefixes: before.prefixes.clone(), no_loop }.with_prefixes(prefixes)
    }
}

pub(crate) fn caching(call: &mut Call<'_, '_>) -> Answer {
    let wanted = match call.args.at(2) {
        word if word.eq_ignore_ascii_case(b"yes") => Mode::OptIn,
        word if word.eq_ignore_ascii_case(b"no") => Mode::OptOut,
        _ => return Err(SYNTAX.into()),
    };
    let Some(tracked) = call.session.tracked.as_mut() else {
        return Err("ERR CLIENT CACHING is for connections with CLIENT TRACKING ON and OPTIN or OPTOUT".into());
    };
    if tracked.listener.wish().mode != wanted {
        return Err("ERR CLIENT CACHING YES goes with OPTIN, and NO with OPTOUT".into());
    }
    tracked.is_said = true;
    call.reply.ok();
    Ok(())
}

pub(crate) fn info(call: &mut Call<'_, '_>) -> Answer {
    let tracked = call.session.tracked.as_ref();
    let mut flags = Vec::new();
    match tracked.map(|tracked| (tracked.listener.wish(), tracked.is_said)) {
        None => flags.push("off"),
        Some((wish, is_said)) => {
            flags.push("on");
            match (wish.mode, is_said) {
                (Mode::Read, _) => {}
                (Mode::Broadcast, _) => flags.push("bcast"),
                (Mode::OptIn, false) => flags.push("optin"),
                (Mode::OptIn, true) => flags.extend(["optin", "caching-yes"]),
                (Mode::OptOut, false) => flags.push("optout"),
                (Mode::OptOut, true) => flags.extend(["optout", "caching-no"]),
            }
            if wish.no_loop {
                flags.push("noloop");
            }
        }
    }
    let prefixes: Vec<Vec<u8>> = tracked.map(|tracked| tracked.listener.wish().prefixes.clone()).unwrap_or_default();
    let redirects = if tracked.is_some() { 0 } else { -1 };
    let reply = &mut *call.reply;
    reply.map(3);
    reply.text("flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.text(flag));
    reply.text("redirect");
    reply.integer(redirects);
    reply.text("prefixes");
    reply.set(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

pub(crate) fn getredir(call: &mut Call<'_, '_>) -> Answer {
    call.reply.integer(if call.session.tracked.is_some() { 0 } else { -1 });
    Ok(())
}
