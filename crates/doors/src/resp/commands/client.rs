//! CLIENT: connections, seen and changed from one of them.
//!
//! May use: `call`, `clients`. Must not know: sockets, dispatch.

use std::sync::Arc;

use super::connection::check_name;
use crate::resp::call::{Answer, Call, SYNTAX};
use crate::resp::clients::{Ask, Client};
use crate::resp::number;
use crate::resp::reply::Documents;
use crate::resp::session::ReplyMode;

pub(crate) fn id(call: &mut Call<'_, '_>) -> Answer {
    call.reply.unsigned(call.session.client.id);
    Ok(())
}

pub(crate) fn info(call: &mut Call<'_, '_>) -> Answer {
    let line = call.session.client.line(call.now_ms) + "\n";
    call.reply.verbatim(&line);
    Ok(())
}

pub(crate) fn getname(call: &mut Call<'_, '_>) -> Answer {
    let name = call.session.client.names().name.clone();
    if name.is_empty() {
        call.reply.null()
    } else {
        call.reply.text(&name)
    }
    Ok(())
}

pub(crate) fn setname(call: &mut Call<'_, '_>) -> Answer {
    let name = call.args.at(2);
    check_name(call.door, name, "Client names")?;
    call.session.client.names().name = String::from_utf8_lossy(name).into_owned();
    call.reply.ok();
    Ok(())
}

pub(crate) fn setinfo(call: &mut Call<'_, '_>) -> Answer {
    let (attribute, value) = (call.args.at(2), call.args.at(3));
    let what = String::from_utf8_lossy(attribute).to_ascii_lowercase();
    if what != "lib-name" && what != "lib-ver" {
        return Err(format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(attribute)).into());
    }
    check_name(call.door, value, &what)?;
    let value = String::from_utf8_lossy(value).into_owned();
    let mut names = call.session.client.names();
    if what == "lib-name" {
        names.library = value;
    } else {
        names.library_version = value;
    }
    drop(names);
    call.reply.ok();
    Ok(())
}

pub(crate) fn no_evict(call: &mut Call<'_, '_>) -> Answer {
    let choice = call.args.at(2);
    if !choice.eq_ignore_ascii_case(b"on") && !choice.eq_ignore_ascii_case(b"off") {
        return Err(SYNTAX.into());
    }
    call.reply.ok();
    Ok(())
}

pub(crate) fn reply(call: &mut Call<'_, '_>) -> Answer {
    let mode = call.args.at(2);
    if mode.eq_ignore_ascii_case(b"on") {
        call.session.reply_mode = ReplyMode::On;
        call.reply.ok();
    } else if mode.eq_ignore_ascii_case(b"off") {
        call.session.reply_mode = ReplyMode::Off;
    } else if mode.eq_ignore_ascii_case(b"skip") {
        if call.session.reply_mode == ReplyMode::On {
            call.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

pub(crate) fn durability(call: &mut Call<'_, '_>) -> Answer {
    match (call.args.get(2), call.args.len()) {
        (None, _) => {
            let name = call.session.durability.to_string();
            call.reply.text(&name);
        }
        (Some(name), 3) => {
            call.session.durability = call.parse_durability(name)?;
            // This very command shows nothing that would have to wait.
            call.reply.ok();
        }
        _ => return Err(call.wrong_arity()),
    }
    Ok(())
}

pub(crate) fn documents(call: &mut Call<'_, '_>) -> Answer {
    let names = [("json", Documents::Json), ("msgpack", Documents::MessagePack)];
    match (call.args.get(2), call.args.len()) {
        (None, _) => {
            let is = names.iter().find(|(_, documents)| *documents == call.reply.documents);
            call.reply.text(is.map_or("json", |(name, _)| name));
        }
        (Some(name), 3) => {
            let named = names.iter().find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()));
            call.reply.documents = named.ok_or("ERR documents are json or msgpack")?.1;
            call.reply.ok();
        }
        _ => return Err(call.wrong_arity()),
    }
    Ok(())
}

/// Which connections CLIENT KILL and CLIENT LIST mean.
#[derive(Default)]
struct Filter {
    ids: Option<Vec<u64>>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    /// Of a kind that does not exist here: replica, master, pubsub.
    nobody: bool,
}

impl Filter {
    fn takes(&self, client: &Client) -> bool {
        let is =
            |wanted: &Option<Vec<u8>>, text: String| wanted.as_ref().is_none_or(|wanted| wanted == text.as_bytes());
        !self.nobody
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && is(&self.address, client.address.to_string())
            && is(&self.local_address, client.local_address.to_string())
            && is(&self.user, client.names().user.clone())
    }

    fn set_type(&mut self, kind: &[u8]) -> Answer {
        let lower = String::from_utf8_lossy(kind).to_ascii_lowercase();
        self.nobody = match lower.as_str() {
            "normal" => false,
            "master" | "replica" | "slave" | "pubsub" => true,
            _ => return Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind)).into()),
        };
        Ok(())
    }
}

pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let mut filter = Filter::default();
    match args.get(2) {
        None => {}
        Some(option) if option.eq_ignore_ascii_case(b"type") && args.len() == 4 => filter.set_type(args.at(3))?,
        Some(option) if option.eq_ignore_ascii_case(b"id") && args.len() > 3 => {
            let ids: Option<Vec<u64>> =
                args.from(3).iter().map(|id| number::parse_u64(id).filter(|id| *id > 0)).collect();
            filter.ids = Some(ids.ok_or("ERR Invalid client ID")?);
        }
        Some(_) => return Err(SYNTAX.into()),
    }
    let mut lines = String::new();
    for client in call.door.clients.all() {
        if filter.takes(&client) {
            lines.push_str(&client.line(call.now_ms));
            lines.push('\n');
        }
    }
    call.reply.verbatim(&lines);
    Ok(())
}

pub(crate) fn kill(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let mut filter = Filter::default();
    let (mut skip_me, mut is_old_form) = (true, false);
    if args.len() == 3 {
        filter.address = Some(args.at(2).to_vec());
        (skip_me, is_old_form) = (false, true);
    } else {
        let mut index = 2;
        while let Some(option) = args.get(index) {
            let Some(value) = args.get(index + 1) else {
                return Err(SYNTAX.into());
            };
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("id") {
                let id = number::parse_u64(value).filter(|id| *id > 0);
                filter.ids = Some(vec![id.ok_or("ERR client-id should be greater than 0")?]);
            } else if is("addr") {
                filter.address = Some(value.to_vec());
            } else if is("laddr") {
                filter.local_address = Some(value.to_vec());
            } else if is("user") {
                let name = String::from_utf8_lossy(value);
                if name != "default" && call.door.options.users.get(&name).is_none() {
                    return Err(format!("ERR No such user '{name}'").into());
                }
                filter.user = Some(value.to_vec());
            } else if is("type") {
                filter.set_type(value)?;
            } else if is("skipme") {
                skip_me = match () {
                    () if value.eq_ignore_ascii_case(b"yes") => true,
                    () if value.eq_ignore_ascii_case(b"no") => false,
                    () => return Err(SYNTAX.into()),
                };
            } else {
                return Err(SYNTAX.into());
            }
            index += 2;
        }
    }
    let me = call.session.client.id;
    let victims: Vec<Arc<Client>> = call
        .door
        .clients
        .all()
        .into_iter()
        .filter(|client| filter.takes(client) && !(skip_me && client.id == me))
        .collect();
    for victim in &victims {
        if victim.id == me {
            call.session.closing = true;
        } else {
            victim.ask(Ask::Kill);
        }
    }
    match (is_old_form, victims.is_empty()) {
        (true, true) => return Err("ERR No such client".into()),
        (true, false) => call.reply.ok(),
        (false, _) => call.reply.unsigned(victims.len() as u64),
    }
    Ok(())
}
