//! SPACE.TYPES and SPACE.INFO.
//!
//! May use: the facade. Must not know: sockets, dispatch.

use holdfast::space::{AtLimit, Definition, Direction, IndexKind, Order, Placement, Storage, Usage};

use super::{entries, text};
use crate::auth::Right;
use crate::resp::call::{Answer, Call, SYNTAX};
use crate::resp::reply::Reply;

pub(crate) fn types(call: &mut Call<'_, '_>) -> Answer {
    let store = &call.door.store;
    let spaces = match call.args().get(1) {
        Some(name) => vec![text("space", name)?.to_owned()],
        None => store.spaces(),
    };
    let user = call.session.user.clone();
    let may_read = |space: &String| user.as_ref().is_none_or(|user| user.may(Right::Read, space.as_bytes()));
    let types: Vec<_> = spaces.iter().filter(|space| may_read(space)).flat_map(|it| store.space(it).types()).collect();
    call.reply.array(types.len());
    for definition in types {
        call.reply.array(2);
        call.reply.text(&definition.space);
        call.reply.text(&definition.name);
    }
    Ok(())
}

pub(crate) fn info(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    if args.len() == 2 {
        return of_space(call);
    }
    if args.len() > 3 {
        return Err(SYNTAX.into());
    }
    let entries = entries(call)?;
    let (definition, usage, waiters) = (entries.definition(), entries.usage(), entries.waiters());
    write_info(call.reply, &definition, &usage, waiters);
    Ok(())
}

fn of_space(call: &mut Call<'_, '_>) -> Answer {
    let space = call.door.store.space(text("space", call.args.at(1))?);
    let (memory, types) = (space.memory()?, space.types());
    let reply = &mut *call.reply;
    reply.map(4);
    reply.text("space");
    reply.text(space.name());
    reply.text("memory");
    reply.unsigned(memory.bytes_max.unwrap_or(0));
    reply.text("bytes");
    reply.unsigned(memory.bytes);
    reply.text("types");
    reply.array(types.len());
    types.iter().for_each(|definition| reply.text(&definition.name));
    Ok(())
}

fn write_info(reply: &mut Reply, definition: &Definition, usage: &Usage, waiters: usize) {
    reply.map(18);
    let mut word = |name: &str, value: Option<&str>| {
        reply.text(name);
        match value {
            Some(value) => reply.text(value),
            None => reply.null(),
        }
    };
    word("space", Some(&definition.space));
    word("type", Some(&definition.name));
    word("id", Some(&definition.id));
    word("routing", definition.routing.as_ref().map(ToString::to_string).as_deref());
    word("storage", Some(if definition.storage == Storage::Durable { "durable" } else { "volatile" }));
    let (order, group) = match &definition.order {
        Order::Any => ("any", None),
        Order::Fifo => ("fifo", None),
        Order::Groups(path) => ("groups", Some(path.to_string())),
    };
    word("order", Some(order));
    word("group", group.as_deref());
    word("at_limit", Some(if definition.at_limit == AtLimit::Evict { "evict" } else { "refuse" }));
    let by = definition.evict_by.as_ref();
    word("evict_by", by.map(|by| by.path.to_string()).as_deref());
    word("evict_order", by.map(|by| if by.direction == Direction::Ascending { "asc" } else { "desc" }));
    let numbers = [
        ("lease", definition.lease_ms.unwrap_or(0)),
        ("together", u64::from(definition.placement == Placement::Together)),
        ("history", u64::from(definition.history)),
        ("memory", definition.memory_bytes_max),
        ("entries", usage.entries),
        ("bytes", usage.bytes),
        ("waiters", waiters as u64),
    ];
    for (name, number) in numbers {
        reply.text(name);
        reply.unsigned(number);
    }
    reply.text("indexes");
    reply.array(definition.indexes.len());
    for index in &definition.indexes {
        reply.array(5);
        reply.text(&index.name);
        reply.text(if index.kind == IndexKind::Ordered { "ordered" } else { "hash" });
        reply.unsigned(u64::from(index.unique));
        reply.array(index.paths.len());
        index.paths.iter().for_each(|path| reply.text(&path.to_string()));
        let bytes = usage.indexes.iter().find(|(name, _)| *name == index.name).map_or(0, |(_, bytes)| *bytes);
        reply.unsigned(bytes);
    }
}
