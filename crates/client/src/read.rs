//! Answers about spaces, out of replies.
//!
//! May use: `remote`, the facade. Must not know: stores, sockets, commands.

use holdfast::space::{
    AtLimit, Bookmark, Changed, Definition, Direction, Document, Entry, EvictBy, IndexDefinition, IndexKind,
    KnownListener, Notice, NoticeKind, Order, Path, Placement, Plan, Reason, Storage, Usage, Value, Written,
};
use holdfast::{Error, ErrorKind, Result};

use crate::remote::{Reply, strange};

/// Documents of a list.
pub(crate) fn documents(reply: Reply) -> Result<Vec<Document>> {
    reply.list()?.into_iter().map(document).collect()
}

pub(crate) fn document(reply: Reply) -> Result<Document> {
    let bytes = reply.bytes()?;
    Document::from_msgpack(&bytes).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("the server answered a document that is none: {error}"))
    })
}

fn some_document(reply: Reply) -> Result<Option<Document>> {
    reply.some()?.map(document).transpose()
}

/// `[document, version, expires]`.
pub(crate) fn entry(reply: Reply) -> Result<Entry> {
    let [json, version, expires] = reply.items()?;
    let expires_ms = expires.some()?.map(|at| at.unsigned()).transpose()?;
    Ok(Entry { document: document(json)?, version: version.position()?, expires_ms })
}

pub(crate) fn some_entry(reply: Reply) -> Result<Option<Entry>> {
    reply.some()?.map(entry).transpose()
}

pub(crate) fn entries(reply: Reply) -> Result<Vec<Entry>> {
    reply.list()?.into_iter().map(entry).collect()
}

/// An id: an integer, or text that could be sent back.
fn id(reply: &Reply) -> Result<Value> {
    match reply {
        Reply::Integer(number) => Ok(Value::I64(*number)),
        reply => {
            let text = reply.text()?;
            Ok(Value::from_json(text.as_bytes()).unwrap_or_else(|_| Value::String(text.into_owned())))
        }
    }
}

/// `[id, version, previous]`.
pub(crate) fn written(reply: Reply) -> Result<Written> {
    let [key, version, previous] = reply.items()?;
    Ok(Written { id: id(&key)?, version: version.position()?, previous: some_entry(previous)? })
}

/// `[now, before]`.
pub(crate) fn changed(reply: Reply) -> Result<Option<Changed>> {
    let Some(reply) = reply.some()? else { return Ok(None) };
    let [now, before] = reply.items()?;
    Ok(Some(Changed { before: entry(before)?, now: entry(now)? }))
}

/// `[bookmark, events]`.
pub(crate) fn notices(reply: Reply) -> Result<(Bookmark, Vec<Notice>)> {
    let [bookmark, events] = reply.items()?;
    let notices = events.list()?.into_iter().map(notice).collect::<Result<_>>()?;
    Ok((bookmark.text()?.parse()?, notices))
}

/// `[kind, bookmark, now, before, reason]`.
fn notice(reply: Reply) -> Result<Notice> {
    let [kind, bookmark, after, before, reason] = reply.items()?;
    let kind = match kind.text()?.as_ref() {
        "written" => NoticeKind::Written,
        "updated" => NoticeKind::Updated,
        "taken" => NoticeKind::Taken,
        "expired" => NoticeKind::Expired,
        "entered" => NoticeKind::Entered,
        "left" => NoticeKind::Left,
        _ => return Err(strange(&kind)),
    };
    let removed = match reason.some()? {
        None => None,
        Some(reason) => Some(match reason.text()?.as_ref() {
            "taken" => Reason::Taken,
            "expired" => Reason::Expired,
            "cleared" => Reason::Cleared,
            "evicted" => Reason::Evicted,
            _ => return Err(strange(&reason)),
        }),
    };
    let (after, before) = (some_document(after)?, some_document(before)?);
    Ok(Notice { kind, before, after, removed, bookmark: bookmark.text()?.parse()? })
}

/// One of SPACE.LISTENERS.
pub(crate) fn known_listener(reply: &Reply) -> Result<KnownListener> {
    let number = |name: &str| reply.field(name).and_then(Reply::unsigned);
    Ok(KnownListener {
        name: reply.field("name")?.text()?.into_owned(),
        bookmark: reply.field("bookmark")?.text()?.parse()?,
        retain_bytes: number("retain")?,
        behind_bytes: number("behind")?,
        is_held: number("held")? != 0,
        is_damaged: number("damaged")? != 0,
    })
}

/// What SPACE.INFO says of a type: what it is, what it takes, and how many wait.
pub(crate) fn info(reply: &Reply) -> Result<(Definition, Usage, u64)> {
    let text = |name: &str| reply.field(name).and_then(|value| value.text().map(std::borrow::Cow::into_owned));
    let number = |name: &str| reply.field(name).and_then(Reply::unsigned);
    let path = |name: &str| -> Result<Option<Path>> {
        match reply.field(name)? {
            Reply::Null => Ok(None),
            path => Ok(Some(Path::parse(&path.text()?)?)),
        }
    };
    let mut definition = Definition::new(text("space")?, text("type")?);
    definition.id = text("id")?;
    definition.routing = path("routing")?;
    definition.placement = if number("together")? == 0 { Placement::Spread } else { Placement::Together };
    definition.lease_ms = Some(number("lease")?).filter(|ms| *ms > 0);
    definition.storage = if text("storage")? == "volatile" { Storage::Volatile } else { Storage::Durable };
    definition.order = match (text("order")?.as_str(), path("group")?) {
        ("any", None) => Order::Any,
        ("fifo", None) => Order::Fifo,
        ("groups", Some(path)) => Order::Groups(path),
        _ => return Err(strange(reply)),
    };
    definition.history = number("history")? != 0;
    definition.memory_bytes_max = number("memory")?;
    definition.at_limit = if text("at_limit")? == "evict" { AtLimit::Evict } else { AtLimit::Refuse };
    // Servers of before have no such field.
    if let Some(path) = path("evict_by").ok().flatten() {
        let direction = if text("evict_order")? == "desc" { Direction::Descending } else { Direction::Ascending };
        definition.evict_by = Some(EvictBy { path, direction });
    }
    let mut usage = Usage { entries: number("entries")?, bytes: number("bytes")?, indexes: Vec::new() };
    for index in reply.field("indexes")?.clone().list()? {
        let [name, kind, unique, paths, bytes] = index.items()?;
        let name = name.text()?.into_owned();
        let kind = if kind.text()? == "ordered" { IndexKind::Ordered } else { IndexKind::Hash };
        let path = |path: Reply| Ok(Path::parse(&path.text()?)?);
        let paths = paths.list()?.into_iter().map(path).collect::<Result<_>>()?;
        usage.indexes.push((name.clone(), bytes.unsigned()?));
        definition.indexes.push(IndexDefinition { name, kind, unique: unique.unsigned()? != 0, paths });
    }
    Ok((definition, usage, number("waiters")?))
}

/// How entries would be found: one plan for each way, with the partitions that go it.
pub(crate) fn plans(reply: &Reply) -> Result<Vec<Plan>> {
    let mut plans = Vec::new();
    for way in reply.field("by")?.clone().list()? {
        let [how, partitions, candidates] = way.items()?;
        let index = how.text()?.strip_prefix("index ").map(str::to_owned);
        let partitions = partitions.unsigned()?.max(1);
        let candidates = candidates.unsigned()?;
        for number in 0..partitions {
            // The sum is what the server tells.
            let share = candidates / partitions + u64::from(number < candidates % partitions);
            plans.push(Plan { index: index.clone(), candidates: share });
        }
    }
    Ok(plans)
}
