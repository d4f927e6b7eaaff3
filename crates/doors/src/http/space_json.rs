//! Types and queries as JSON. docs/reference/http.md describes both for users.
//!
//! May use: the facade, `failure`, `fields`; `showing`; of the store only the queries that it has parsed. Must not know: routes.

use std::time::Duration;

use holdfast::space::{
    AtLimit, Change, Definition, Direction, Document, Entry, EvictBy, IndexDefinition, IndexKind, Order, Placement,
    Storage, Usage, Value, Wanted, WriteMode,
};
use holdfast::{Position, Store};

use super::failure::Failure;
use super::fields::{Fields, path};
use super::showing::Text;
use super::space::{Place, Query};
use crate::budget::Exhausted;

/// The definition that a body says. An empty one is a type as it comes.
pub(crate) fn definition(place: &Place, body: &[u8]) -> Result<Definition, Failure> {
    let mut fields = if body.is_empty() { Fields::default() } else { Fields::parse(body)? };
    let mut this = Definition::new(&place.space, &place.name);
    if let Some(id) = fields.text("id")? {
        this.id = id;
    }
    this.routing = fields.path("routing")?;
    this.lease_ms = fields.number("lease_ms")?.filter(|ms| *ms > 0);
    this.history = fields.flag("history")?;
    this.memory_bytes_max = fields.number("memory_bytes_max")?.unwrap_or(0);
    let group = fields.path("group")?;
    this.order = match (fields.text("order")?.as_deref(), group) {
        (None | Some("any"), None) => Order::Any,
        (Some("fifo"), None) => Order::Fifo,
        (Some("groups"), Some(path)) => Order::Groups(path),
        _ => return Err(Failure::bad("order is any, fifo, or groups with the path group")),
    };
    this.placement = match fields.text("placement")?.as_deref() {
        None | Some("spread") => Placement::Spread,
        Some("together") => Placement::Together,
        Some(_) => return Err(Failure::bad("placement is spread or together")),
    };
    this.storage = match fields.text("storage")?.as_deref() {
        None | Some("durable") => Storage::Durable,
        Some("volatile") => Storage::Volatile,
        Some(_) => return Err(Failure::bad("storage is durable or volatile")),
    };
    this.at_limit = match fields.text("at_limit")?.as_deref() {
        None | Some("refuse") => AtLimit::Refuse,
        Some("evict") => AtLimit::Evict,
        Some(_) => return Err(Failure::bad("at_limit is refuse or evict")),
    };
    let direction = match fields.text("evict_order")?.as_deref() {
        None => None,
        Some("asc") => Some(Direction::Ascending),
        Some("desc") => Some(Direction::Descending),
        Some(_) => return Err(Failure::bad("evict_order is asc or desc")),
    };
    this.evict_by = match (fields.path("evict_by")?, direction) {
        (Some(path), direction) => Some(EvictBy { path, direction: direction.unwrap_or(Direction::Ascending) }),
        (None, None) => None,
        (None, Some(_)) => return Err(Failure::bad("evict_order goes with evict_by, which is a path")),
    };
    this.indexes = fields.list("indexes")?.into_iter().map(index).collect::<Result<_, _>>()?;
    fields.end()?;
    this.check().map_err(holdfast::Error::from)?;
    Ok(this)
}

/// Reads a space's limit of memory.
pub(crate) fn memory_limit(body: &[u8]) -> Result<Option<u64>, Failure> {
    let mut fields = Fields::parse(body)?;
    let limit = fields.number("memory_bytes_max")?;
    fields.end()?;
    let limit = limit.ok_or_else(|| Failure::bad("memory_bytes_max is missing: 0 is without a limit"))?;
    Ok(Some(limit).filter(|limit| *limit > 0))
}

fn index(value: Value) -> Result<IndexDefinition, Failure> {
    let mut fields = Fields::of("an index", value)?;
    let name = fields.text("name")?.ok_or_else(|| Failure::bad("an index needs a name"))?;
    let kind = match fields.text("kind")?.as_deref() {
        Some("hash") => IndexKind::Hash,
        Some("ordered") => IndexKind::Ordered,
        _ => return Err(Failure::bad("the kind of an index is hash or ordered")),
    };
    let unique = fields.flag("unique")?;
    let one = |value| match value {
        Value::String(text) => path(&text),
        _ => Err(Failure::bad("paths are strings")),
    };
    let paths = fields.list("paths")?.into_iter().map(one).collect::<Result<_, _>>()?;
    fields.end()?;
    Ok(IndexDefinition { name, kind, unique, paths })
}

/// A definition as it can be declared, with what the type takes of memory.
pub(crate) fn describe(definition: &Definition, usage: &Usage, waiters: usize) -> serde_json::Value {
    let (order, group) = match &definition.order {
        Order::Any => ("any", None),
        Order::Fifo => ("fifo", None),
        Order::Groups(path) => ("groups", Some(path.to_string())),
    };
    let index = |index: &IndexDefinition| {
        serde_json::json!({
            "name": index.name,
            "kind": if index.kind == IndexKind::Ordered { "ordered" } else { "hash" },
            "unique": index.unique,
            "paths": index.paths.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    let by = definition.evict_by.as_ref();
    let index_bytes: serde_json::Map<String, serde_json::Value> =
        usage.indexes.iter().map(|(name, bytes)| (name.clone(), (*bytes).into())).collect();
    serde_json::json!({
        "definition": {
            "id": definition.id,
            "routing": definition.routing.as_ref().map(ToString::to_string),
            "lease_ms": definition.lease_ms,
            "storage": if definition.storage == Storage::Durable { "durable" } else { "volatile" },
            "placement": if definition.placement == Placement::Together { "together" } else { "spread" },
            "order": order,
            "group": group,
            "history": definition.history,
            "memory_bytes_max": definition.memory_bytes_max,
            "at_limit": if definition.at_limit == AtLimit::Evict { "evict" } else { "refuse" },
            "evict_by": by.map(|by| by.path.to_string()),
            "evict_order": by.map(|by| if by.direction == Direction::Ascending { "asc" } else { "desc" }),
            "indexes": definition.indexes.iter().map(index).collect::<Vec<_>>(),
        },
        "entries": usage.entries,
        "bytes": usage.bytes,
        "index_bytes": index_bytes,
        "waiters": waiters,
    })
}

/// Bounds on a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) limit: usize,
    pub(crate) limit_default: usize,
    pub(crate) wait: Duration,
}

/// Which entries fields say: `id`, `template` or `where` with `parameters`, or none of them, and `routing`.
pub(crate) fn wanted(fields: &mut Fields, store: &Store) -> Result<Wanted, Failure> {
    let parameters = fields.list("parameters")?;
    wanted_with(fields, store, &parameters)
}

fn wanted_with(fields: &mut Fields, store: &Store, parameters: &[Value]) -> Result<Wanted, Failure> {
    let wanted = match (fields.take_any("id"), fields.take("template"), fields.text("where")?) {
        // Who has no id to send means no other entry.
        (Some(Value::Null), ..) => return Err(Failure::bad("id is null: say which entry, or leave it out for any")),
        (_, _, None) if !parameters.is_empty() => return Err(Failure::bad("parameters are of where or select")),
        (Some(id), None, None) => Wanted::id(id),
        (None, Some(Value::Map(fields)), None) => Wanted::template(&Document::new(&fields)),
        (None, Some(_), None) => return Err(Failure::bad("template has to be an object")),
        (None, None, Some(sql)) => Wanted::query(&store.prepared(&sql)?, parameters)?,
        (None, None, None) => Wanted::all(),
        _ => return Err(Failure::bad("of id, template, where and select there is one at the most")),
    };
    Ok(match fields.take("routing") {
        Some(routing) => wanted.routed(routing),
        None => wanted,
    })
}

/// The most entries that are wanted: what `limit` says, or a default, and no more than the SQL does.
pub(crate) fn limit(fields: &mut Fields, wanted: &Wanted, default: usize) -> Result<usize, Failure> {
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let limit = fields.number("limit")?.map_or(default, whole);
    Ok(wanted.limit().map_or(limit, |of_sql| limit.min(whole(of_sql))))
}

/// The query that a body says: which entries, or `select` where that is allowed.
pub(crate) fn query(body: &[u8], (store, bounds): (&Store, Bounds), is_taking: bool) -> Result<Query, Failure> {
    let mut fields = Fields::parse(body)?;
    let select = if is_taking { None } else { fields.text("select")? };
    let parameters = fields.list("parameters")?;
    let wanted = match select {
        None => wanted_with(&mut fields, store, &parameters)?,
        Some(_) if ["id", "template", "where"].into_iter().any(|name| fields.has(name)) => {
            return Err(Failure::bad("of id, template, where and select there is one at the most"));
        }
        Some(_) if fields.has("limit") => {
            return Err(Failure::bad("of select and limit there is one at the most: LIMIT is said in the SQL"));
        }
        Some(_) => wanted_with(&mut fields, store, &[])?,
    };
    let limit = limit(&mut fields, &wanted, bounds.limit_default)?;
    let is_waiting = ["wait_ms", "if_exists"].into_iter().any(|name| fields.has(name));
    if select.is_some() && is_waiting {
        return Err(Failure::bad("a whole query waits for nothing: wait_ms and if_exists are for entries"));
    }
    let wait = fields.number("wait_ms")?.map(Duration::from_millis);
    let if_exists = fields.flag("if_exists")?;
    if if_exists && is_taking && limit > 1 {
        return Err(Failure::bad("if_exists is for one entry: say limit 1"));
    }
    if wait.is_some() {
        wanted.check_unordered("waiting")?;
    }
    fields.end()?;
    let limit = if select.is_some() { bounds.limit } else { limit.min(bounds.limit) };
    let wait = wait.unwrap_or_default().min(bounds.wait);
    Ok(Query { wanted, select: select.map(|sql| (sql, parameters)), limit, wait, if_exists })
}

/// The changes that a body says: `{"changes": [{"set": path, "value": value}, ..]}`.
pub(crate) fn changes(body: &[u8]) -> Result<Vec<Change>, Failure> {
    let mut fields = Fields::parse(body)?;
    let changes = changes_of(&mut fields)?;
    fields.end()?;
    Ok(changes)
}

/// The changes among fields.
pub(crate) fn changes_of(fields: &mut Fields) -> Result<Vec<Change>, Failure> {
    let changes: Vec<Change> = fields.list("changes")?.into_iter().map(change).collect::<Result<_, _>>()?;
    if changes.is_empty() {
        return Err(Failure::bad("changes has to be a list of at least one change"));
    }
    Ok(changes)
}

/// The words of changes, and beside which fields they stand.
const CHANGES: [(&str, &str); 8] = [
    ("set", "value"),
    ("unset", ""),
    ("increment", "by"),
    ("append", "value"),
    ("add", "value"),
    ("remove", "value"),
    ("put_key", "value"),
    ("remove_key", ""),
];

fn change(value: Value) -> Result<Change, Failure> {
    let mut fields = Fields::of("a change", value)?;
    let unknown =
        || Failure::bad("a change is one of set, unset, increment, append, add, remove, put_key and remove_key");
    let (word, with) = CHANGES.into_iter().find(|(word, _)| fields.has(word)).ok_or_else(unknown)?;
    let path = fields.path(word)?.ok_or_else(|| Failure::bad(format!("{word} has to be a path")))?;
    let missing = |name: &str| Failure::bad(format!("{word} needs {name}"));
    let key = match word {
        "put_key" | "remove_key" => fields.text("key")?.ok_or_else(|| missing("key"))?,
        _ => String::new(),
    };
    // Null is a value as any other here.
    let value = match with {
        "" => Value::Null,
        name => fields.take_any(name).ok_or_else(|| missing(name))?,
    };
    fields.end()?;
    Ok(match word {
        "set" => Change::Set { path, value },
        "unset" => Change::Unset { path },
        "increment" => Change::Increment { path, by: value },
        "append" => Change::Append { path, value },
        "add" => Change::AddUnique { path, value },
        "remove" => Change::RemoveItem { path, value },
        "put_key" => Change::PutKey { path, key, value },
        _ => Change::RemoveKey { path, key },
    })
}

/// What becomes of an entry that is there, or is not: what `absent`, `present` and `merge` among fields say.
pub(crate) fn mode(fields: &mut Fields) -> Result<WriteMode, Failure> {
    match (fields.flag("absent")?, fields.flag("present")?, fields.flag("merge")?) {
        (false, false, false) => Ok(WriteMode::Upsert),
        (true, false, false) => Ok(WriteMode::Insert),
        (false, true, false) => Ok(WriteMode::Update),
        (false, _, true) => Ok(WriteMode::Partial),
        _ => Err(Failure::bad("absent goes with neither present nor merge")),
    }
}

/// What was written, and, where that is wanted, what was there before: null or an entry as JSON.
pub(crate) fn written(id: &Value, version: Option<Position>, previous: Option<String>) -> String {
    let previous = previous.map(|previous| format!(",\"previous\":{previous}")).unwrap_or_default();
    format!("{{\"id\":{},\"version\":{}{previous}}}", id.to_json(), self::version(version))
}

/// What is there now, and, where that is wanted, what was there before.
pub(crate) fn changed(now: String, previous: Option<String>) -> String {
    previous.map_or(now.clone(), |previous| format!("{{\"now\":{now},\"previous\":{previous}}}"))
}

/// An entry as JSON, or null.
pub(crate) fn maybe_entry(entry: Option<&Entry>) -> String {
    entry.map_or_else(|| "null".to_owned(), |entry| self::entry(entry, Some(entry.version)))
}

/// An entry as JSON: the version is that of the entity tag.
pub(crate) fn entry(entry: &Entry, version: Option<Position>) -> String {
    let expires = entry.expires_ms.map_or_else(|| "null".to_owned(), |at| at.to_string());
    let (version, document) = (self::version(version), entry.document.to_json());
    format!("{{\"version\":{version},\"expires_ms\":{expires},\"document\":{document}}}")
}

/// A version as JSON; null where it is known later.
pub(crate) fn version(version: Option<Position>) -> String {
    version.map_or_else(|| "null".to_owned(), |version| format!("\"{:016x}\"", version.get()))
}

/// Bytes of entries where they are stored.
pub(crate) fn stored_bytes<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> usize {
    entries.into_iter().map(|entry| entry.document.as_bytes().len()).sum()
}

/// Adds entries as the last field of an object.
pub(crate) fn add_entries(text: &mut Text, entries: &[Entry]) -> Result<(), Exhausted> {
    text.add("\"entries\":[")?;
    text.add_list(entries.iter().map(|it| entry(it, Some(it.version))))?;
    text.add("]}")
}

/// Documents as JSON.
pub(crate) fn rows(documents: &[Document]) -> String {
    format!("{{\"rows\":[{}]}}", documents.iter().map(Document::to_json).collect::<Vec<_>>().join(","))
}
