//! Commands on the connection itself: who it is, what it speaks, which database it selected.
//!
//! May use: `call`, `session`. Must not know: sockets, dispatch.

use crate::resp::call::{Answer, Call, SYNTAX};
use crate::resp::door::Door;
use crate::resp::reply::{Documents, Protocol, Reply};
use crate::resp::session::{Hello, Pending, ReplyMode, Session};
use crate::resp::{number, open};

/// The version of Redis whose behaviour this door follows: clients choose features by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

pub(crate) const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const OTHER_DOOR: &str =
    "NOPERM this user may not come in over RESP: users.doors of the server's configuration names other doors";

pub(crate) fn ping(call: &mut Call<'_, '_>) -> Answer {
    match (call.args.get(1), call.args.len()) {
        (None, _) => call.reply.simple("PONG"),
        (Some(message), 2) => call.reply.bulk(message),
        _ => return Err(call.wrong_arity()),
    }
    Ok(())
}

pub(crate) fn echo(call: &mut Call<'_, '_>) -> Answer {
    call.reply.bulk(call.args.at(1));
    Ok(())
}

pub(crate) fn quit(call: &mut Call<'_, '_>) -> Answer {
    call.session.closing = true;
    call.reply.ok();
    Ok(())
}

pub(crate) fn select(call: &mut Call<'_, '_>) -> Answer {
    call.integer(1)?;
    let database = call.door.database(call.args.at(1)).ok_or("ERR DB index is out of range")?;
    call.session.select(database);
    call.reply.ok();
    Ok(())
}

pub(crate) fn reset(call: &mut Call<'_, '_>) -> Answer {
    call.session.xa_owner = None;
    call.door.snapshots().close_all(call.session.client.id);
    let session = &mut *call.session;
    session.track(None);
    session.multi = None;
    session.end_open();
    session.watched.clear();
    session.client.set_transaction(-1, 0);
    session.select(0);
    session.user = None;
    session.durability = call.door.durability();
    session.reply_mode = ReplyMode::On;
    let mut names = session.client.names();
    names.name.clear();
    names.user = "default".to_owned();
    drop(names);
    session.client.set_protocol(2);
    call.reply.protocol = Protocol::Resp2;
    call.reply.documents = Documents::Json;
    call.reply.simple("RESET");
    Ok(())
}

pub(crate) fn auth(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (name, password) = match args.len() {
        2 => (b"default".as_slice(), args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(SYNTAX.into()),
    };
    let users = &call.door.options.users;
    if !users.is_required() {
        if args.len() == 2 {
            return Err(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                        configuration is correct?"
                    .into(),
            );
        }
        // As in Redis: the default user without a password takes any.
        if name != b"default" {
            return Err(WRONG_PASSWORD.into());
        }
        call.reply.ok();
        return Ok(());
    }
    // Never on the event loop: argon2 is slow on purpose. The connection goes on in `authenticated`.
    call.session.pending = Some(Pending::Auth { name: name.to_vec(), password: password.to_vec(), hello: None });
    Ok(())
}

pub(crate) fn hello(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let protocol = match args.get(1) {
        None => None,
        Some(version) => match number::parse_i64(version) {
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        },
    };
    let (mut credentials, mut name, mut index) = (None, None, 2);
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"auth") && index + 2 < args.len() {
            credentials = Some((args.at(index + 1), args.at(index + 2)));
            index += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && index + 1 < args.len() {
            check_name(call.door, args.at(index + 1), "Client names")?;
            name = Some(args.at(index + 1).to_vec());
            index += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)).into());
        }
    }
    let hello = Hello { protocol, name };
    let is_required = call.door.options.users.is_required();
    match credentials {
        Some((name, password)) if is_required => {
            let (name, password) = (name.to_vec(), password.to_vec());
            call.session.pending = Some(Pending::Auth { name, password, hello: Some(hello) });
            return Ok(());
        }
        Some((name, _)) if name != b"default" => return Err(WRONG_PASSWORD.into()),
        None if is_required && call.session.user.is_none() => {
            return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                        <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                        the same time"
                .into());
        }
        _ => {}
    }
    greet(call.session, hello, call.reply);
    Ok(())
}

/// Refuses names that would break the lines of CLIENT LIST.
pub(crate) fn check_name(door: &Door, name: &[u8], what: &str) -> Answer {
    if name.len() > door.options.limits.client_name_bytes_max {
        return Err(
            format!("ERR {what} cannot be longer than {} bytes.", door.options.limits.client_name_bytes_max).into()
        );
    }
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(format!("ERR {what} cannot contain spaces, newlines or special characters.").into());
    }
    Ok(())
}

/// The end of AUTH or of HELLO with AUTH: the user that may come in, or why it may not. Writes the reply.
pub(crate) fn authenticated(
    session: &mut Session,
    user: Result<std::sync::Arc<crate::auth::User>, &'static str>,
    hello: Option<Hello>,
    reply: &mut Reply,
) {
    match user {
        Err(why) => {
            open::fail(session, &why.into());
            reply.error(why);
        }
        Ok(user) => {
            session.client.names().user.clone_from(&user.name);
            // What another user has begun is not this one's to commit, and what it hears of not this one's to hear.
            session.end_open();
            session.track(None);
            session.user = Some(user);
            match hello {
                Some(hello) => greet(session, hello, reply),
                None => reply.ok(),
            }
        }
    }
    if session.reply_mode == ReplyMode::On {
        session.replies += 1;
    }
}

/// Applies what HELLO asked for and writes its reply.
fn greet(session: &mut Session, hello: Hello, reply: &mut Reply) {
    if let Some(protocol) = hello.protocol {
        if protocol == Protocol::Resp2 {
            // It cannot be told any more.
            session.track(None);
        }
        reply.protocol = protocol;
    }
    if let Some(name) = hello.name {
        session.client.names().name = String::from_utf8_lossy(&name).into_owned();
    }
    let version = if reply.protocol == Protocol::Resp3 { 3 } else { 2 };
    session.client.set_protocol(version);
    reply.map(8);
    reply.text("server");
    // Clients of Redis look here; the next entry tells who it really is.
    reply.text("redis");
    reply.text("version");
    reply.text(REDIS_VERSION);
    reply.text("proto");
    reply.integer(i64::from(version));
    reply.text("id");
    reply.unsigned(session.client.id);
    reply.text("mode");
    reply.text("standalone");
    reply.text("role");
    reply.text("master");
    reply.text("modules");
    reply.array(0);
    reply.text("holdfast");
    reply.text(env!("CARGO_PKG_VERSION"));
}
