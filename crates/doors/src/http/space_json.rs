//! Types and queries as JSON. docs/reference/http.md describes both for users.
//!
//! May use: the facade, `failure`. Must not know: routes, the store.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast::space::{
    AtLimit, Change, Definition, Document, Entry, IndexDefinition, IndexKind, Order, Path, Storage, Usage, Value,
    Wanted,
};

use super::failure::Failure;
use super::space::{Place, Query};

/// The fields of an object, taken out one by one; what is left is not known.
struct Fields(BTreeMap<String, Value>);

impl Fields {
    fn parse(text: &[u8]) -> Result<Self, Failure> {
        match Value::from_json(text).map_err(holdfast::Error::from)? {
            Value::Map(fields) => Ok(Fields(fields)),
            _ => Err(Failure::bad("the body has to be a JSON object")),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| *value != Value::Null)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::bad(format!("{name} has to be a string"))),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let number = match self.take(name) {
            None => return Ok(None),
            Some(Value::I64(number)) => u64::try_from(number).ok(),
            Some(Value::U64(number)) => Some(number),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| Failure::bad(format!("{name} has to be a whole number")))
    }

    fn flag(&mut self, name: &str) -> Result<bool, Failure> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Failure::bad(format!("{name} has to be true or false"))),
        }
    }

    fn list(&mut self, name: &str) -> Result<Vec<Value>, Failure> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::List(items)) => Ok(items),
            Some(_) => Err(Failure::bad(format!("{name} has to be a list"))),
        }
    }

    fn path(&mut self, name: &str) -> Result<Option<Path>, Failure> {
        self.text(name)?.map(|text| path(&text)).transpose()
    }

    fn end(self) -> Result<(), Failure> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(Failure::bad(format!("{name} is not known here"))),
        }
    }
}

fn path(text: &str) -> Result<Path, Failure> {
    Ok(Path::parse(text).map_err(holdfast::Error::from)?)
}

/// The definition that a body says. An empty one is a type as it comes.
pub(crate) fn definition(place: &Place, body: &[u8]) -> Result<Definition, Failure> {
    let mut fields = if body.is_empty() { Fields(BTreeMap::new()) } else { Fields::parse(body)? };
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
    this.indexes = fields.list("indexes")?.into_iter().map(index).collect::<Result<_, _>>()?;
    fields.end()?;
    this.check().map_err(holdfast::Error::from)?;
    Ok(this)
}

fn index(value: Value) -> Result<IndexDefinition, Failure> {
    let Value::Map(fields) = value else { return Err(Failure::bad("an index has to be an object")) };
    let mut fields = Fields(fields);
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
    let index_bytes: serde_json::Map<String, serde_json::Value> =
        usage.indexes.iter().map(|(name, bytes)| (name.clone(), (*bytes).into())).collect();
    serde_json::json!({
        "definition": {
            "id": definition.id,
            "routing": definition.routing.as_ref().map(ToString::to_string),
            "lease_ms": definition.lease_ms,
            "storage": if definition.storage == Storage::Durable { "durable" } else { "volatile" },
            "order": order,
            "group": group,
            "history": definition.history,
            "memory_bytes_max": definition.memory_bytes_max,
            "at_limit": if definition.at_limit == AtLimit::Evict { "evict" } else { "refuse" },
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

/// The query that a body says: `id`, `template` or `where` with `parameters`, or none of them; `select` where that is allowed.
pub(crate) fn query(body: &[u8], bounds: Bounds, is_taking: bool) -> Result<Query, Failure> {
    let mut fields = Fields::parse(body)?;
    let parameters = fields.list("parameters")?;
    let (id, template, sql) = (fields.take("id"), fields.take("template"), fields.text("where")?);
    let select = if is_taking { None } else { fields.text("select")? };
    let ways = [id.is_some(), template.is_some(), sql.is_some(), select.is_some()];
    if ways.iter().filter(|is_there| **is_there).count() > 1 {
        return Err(Failure::bad("of id, template, where and select there is one at the most"));
    }
    if !parameters.is_empty() && sql.is_none() && select.is_none() {
        return Err(Failure::bad("parameters are of where or select"));
    }
    let mut wanted = match (id, template, sql) {
        (Some(id), _, _) => Wanted::id(id),
        (_, Some(Value::Map(fields)), _) => Wanted::template(&Document::new(&fields)),
        (_, Some(_), _) => return Err(Failure::bad("template has to be an object")),
        (_, _, Some(sql)) => Wanted::query(&sql, &parameters)?,
        _ => Wanted::all(),
    };
    if let Some(routing) = fields.take("routing") {
        wanted = wanted.routed(routing);
    }
    let limit = fields.number("limit")?.map_or(bounds.limit_default, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let wait = if is_taking { fields.number("wait_ms")?.map(Duration::from_millis) } else { None };
    fields.end()?;
    let limit = wanted.limit().map_or(limit, |it| limit.min(usize::try_from(it).unwrap_or(usize::MAX)));
    let limit = if select.is_some() { bounds.limit } else { limit.min(bounds.limit) };
    let wait = wait.unwrap_or_default().min(bounds.wait);
    Ok(Query { wanted, select: select.map(|sql| (sql, parameters)), limit, wait })
}

/// The changes that a body says: `{"changes": [{"set": path, "value": value}, ..]}`.
pub(crate) fn changes(body: &[u8]) -> Result<Vec<Change>, Failure> {
    let mut fields = Fields::parse(body)?;
    let changes: Vec<Change> = fields.list("changes")?.into_iter().map(change).collect::<Result<_, _>>()?;
    fields.end()?;
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
    let Value::Map(fields) = value else { return Err(Failure::bad("a change has to be an object")) };
    let unknown =
        || Failure::bad("a change is one of set, unset, increment, append, add, remove, put_key and remove_key");
    let (word, with) = CHANGES.into_iter().find(|(word, _)| fields.contains_key(*word)).ok_or_else(unknown)?;
    let mut fields = Fields(fields);
    let path = fields.path(word)?.ok_or_else(|| Failure::bad(format!("{word} has to be a path")))?;
    let missing = |name: &str| Failure::bad(format!("{word} needs {name}"));
    let key = match word {
        "put_key" | "remove_key" => fields.text("key")?.ok_or_else(|| missing("key"))?,
        _ => String::new(),
    };
    // Null is a value as any other here.
    let value = match with {
        "" => Value::Null,
        name => fields.0.remove(name).ok_or_else(|| missing(name))?,
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

/// Entries as JSON: the version is that of the entity tag.
pub(crate) fn entries(entries: &[Entry]) -> String {
    let one = |entry: &Entry| {
        let expires = entry.expires_ms.map_or_else(|| "null".to_owned(), |at| at.to_string());
        let (version, document) = (entry.version.get(), entry.document.to_json());
        format!("{{\"version\":\"{version:016x}\",\"expires_ms\":{expires},\"document\":{document}}}")
    };
    format!("{{\"entries\":[{}]}}", entries.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Documents as JSON.
pub(crate) fn rows(documents: &[Document]) -> String {
    format!("{{\"rows\":[{}]}}", documents.iter().map(Document::to_json).collect::<Vec<_>>().join(","))
}
