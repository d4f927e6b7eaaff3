//! What operations ask for, as words of commands.
//!
//! May use: `remote`, the facade. Must not know: stores, sockets, replies.

use std::time::Duration;

use holdfast::space::{
    AtLimit, Change, Definition, Direction, Hears, IndexKind, Lease, Listen, Order, Placement, ReadOptions, Storage,
    Value, Wanted, WantedBy, WriteMode, WriteOptions,
};
use holdfast::{Durability, Error, ErrorKind, Result};

use crate::remote::Words;

fn value(value: &Value) -> String {
    value.to_json()
}

fn invalid<T>(text: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, text))
}

fn milliseconds(time: Duration) -> String {
    // A part of a millisecond is one: zero means something else.
    let whole = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    whole.max(1).to_string()
}

/// A lease or an age within what the server's numbers hold.
fn lease(lease: Lease) -> Option<String> {
    match lease {
        Lease::Default => None,
        Lease::For(time) => Some(milliseconds(time)),
        Lease::Forever => Some("FOREVER".to_owned()),
    }
}

/// The name of a durability. A window is as wide as the server's own.
pub(crate) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Window(_) => "window",
        _ => "written",
    }
}

impl Words {
    pub(crate) fn wanted(mut self, wanted: &Wanted) -> Result<Self> {
        match (wanted.by_id(), wanted.by()) {
            (Some(id), WantedBy::All) => self = self.and("ID").and(value(id)),
            (Some(_), _) => return invalid("on a server entries are wanted by their id, a template or a query"),
            (None, WantedBy::All) => self.add("ANY"),
            (None, WantedBy::Template(template)) => self = self.and("TEMPLATE").and(template.to_msgpack()),
            (None, WantedBy::Query { sql, parameters }) => {
                self = self.and("WHERE").and(sql.as_bytes()).and(parameters.len().to_string());
                parameters.iter().for_each(|parameter| self.add(value(parameter)));
            }
        }
        Ok(self.routing(wanted))
    }

    /// The id alone, for commands that are about one entry.
    pub(crate) fn id(self, wanted: &Wanted, what: &str) -> Result<Self> {
        match wanted.by_id() {
            Some(id) => Ok(self.and(value(id))),
            None => invalid(&format!("{what} by its id")),
        }
    }

    pub(crate) fn routing(self, wanted: &Wanted) -> Self {
        match wanted.routing() {
            Some(routing) => self.and("ROUTING").and(value(routing)),
            None => self,
        }
    }

    pub(crate) fn durability(self, durability: Option<Durability>) -> Self {
        match durability {
            Some(durability) => self.and("DURABILITY").and(durability_name(durability)),
            None => self,
        }
    }

    pub(crate) fn writing(mut self, options: &WriteOptions) -> Self {
        match options.mode {
            WriteMode::Upsert => {}
            WriteMode::Insert => self.add("INSERT"),
            WriteMode::Update => self.add("UPDATE"),
            WriteMode::Partial => self.add("PARTIAL"),
        }
        let this = self.and("PREVIOUS").lease(options.lease).version(options);
        this.lock_wait(options.lock_timeout).durability(options.durability)
    }

    /// How long a write waits for the transaction that has locked its entry.
    pub(crate) fn lock_wait(self, lock_timeout: Option<Duration>) -> Self {
        match lock_timeout {
            None => self,
            Some(Duration::ZERO) => self.and("LOCKWAIT").and("0"),
            Some(time) => self.and("LOCKWAIT").and(milliseconds(time)),
        }
    }

    fn version(self, options: &WriteOptions) -> Self {
        match options.version {
            Some(version) => self.and("VERSION").and(version.get().to_string()),
            None => self,
        }
    }

    pub(crate) fn lease(self, of: Lease) -> Self {
        match lease(of) {
            Some(lease) => self.and("LEASE").and(lease),
            None => self,
        }
    }

    pub(crate) fn reading(mut self, options: &ReadOptions) -> Self {
        if let Some(wait) = options.wait.filter(|wait| !wait.is_zero()) {
            self = self.and("BLOCK").and(milliseconds(wait));
        }
        if options.if_exists {
            self.add("IFEXISTS");
        }
        if let Some(version) = options.version {
            self = self.and("VERSION").and(version.get().to_string());
        }
        self.durability(options.durability)
    }

    pub(crate) fn changes(mut self, changes: &[Change]) -> Self {
        for change in changes {
            self = match change {
                Change::Set { path, value: new } => self.and("SET").and(path.to_string()).and(value(new)),
                Change::Unset { path } => self.and("UNSET").and(path.to_string()),
                Change::Increment { path, by } => self.and("INCR").and(path.to_string()).and(value(by)),
                Change::Append { path, value: new } => self.and("APPEND").and(path.to_string()).and(value(new)),
                Change::AddUnique { path, value: new } => self.and("ADD").and(path.to_string()).and(value(new)),
                Change::RemoveItem { path, value: old } => self.and("REMOVE").and(path.to_string()).and(value(old)),
                Change::PutKey { path, key, value: new } => {
                    self.and("PUTKEY").and(path.to_string()).and(key).and(value(new))
                }
                Change::RemoveKey { path, key } => self.and("REMOVEKEY").and(path.to_string()).and(key),
            };
        }
        self
    }

    pub(crate) fn changing(self, options: &WriteOptions) -> Self {
        let this = self.version(options).lease(options.lease).and("PREVIOUS");
        this.lock_wait(options.lock_timeout).durability(options.durability)
    }

    pub(crate) fn listening(mut self, listen: &Listen, from: Option<&str>) -> Self {
        let Hears { written, updated, taken, expired, entered, left } = listen.hears;
        let kinds = [
            (written, "written"),
            (updated, "updated"),
            (taken, "taken"),
            (expired, "expired"),
            (entered, "entered"),
            (left, "left"),
        ];
        let heard: Vec<&str> = kinds.iter().filter(|(hears, _)| *hears).map(|(_, name)| *name).collect();
        self = self.and("HEARS").and(heard.join(",")).and("DETAILS");
        if let Some(from) = from {
            self = self.and("FROM").and(from);
        }
        if listen.conflate { self.and("CONFLATE") } else { self }
    }
}

/// SPACE.DECLARE of a type.
pub(crate) fn declare(definition: &Definition) -> Words {
    let mut words = Words::new("SPACE.DECLARE").and(&definition.space).and(&definition.name);
    words = words.and("ID").and(&definition.id);
    if let Some(routing) = &definition.routing {
        words = words.and("ROUTING").and(routing.to_string());
    }
    if let Some(lease) = definition.lease_ms {
        words = words.and("LEASE").and(lease.to_string());
    }
    if definition.storage == Storage::Volatile {
        words.add("VOLATILE");
    }
    match &definition.order {
        Order::Any if definition.placement == Placement::Together => words.add("TOGETHER"),
        Order::Any => {}
        Order::Fifo => words.add("FIFO"),
        Order::Groups(path) => words = words.and("GROUPS").and(path.to_string()),
    }
    if definition.history {
        words.add("HISTORY");
    }
    if definition.memory_bytes_max > 0 {
        words = words.and("MEMORY").and(definition.memory_bytes_max.to_string());
    }
    if definition.at_limit == AtLimit::Evict {
        words.add("EVICT");
        if let Some(by) = &definition.evict_by {
            words = words.and("BY").and(by.path.to_string());
            words.add(if by.direction == Direction::Ascending { "ASC" } else { "DESC" });
        }
    }
    for index in &definition.indexes {
        let kind = if index.kind == IndexKind::Ordered { "ORDERED" } else { "HASH" };
        words = words.and("INDEX").and(&index.name).and(kind);
        if index.unique {
            words.add("UNIQUE");
        }
        words.add(index.paths.len().to_string());
        index.paths.iter().for_each(|path| words.add(path.to_string()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &Words) -> String {
        let bytes = words.to_bytes();
        let lines = String::from_utf8_lossy(&bytes).into_owned();
        lines.split("\r\n").filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ").trim().to_owned()
    }

    #[test]
    fn what_is_wanted_is_said_as_the_commands_have_it() {
        let query = Wanted::query("a = ? AND b < ?", &["x".into(), 4.into()]).unwrap().routed("r");
        for (wanted, words) in [
            (Wanted::all(), "X ANY"),
            (Wanted::id(7), "X ID 7"),
            (Wanted::id("7").routed(1), r#"X ID "7" ROUTING 1"#),
            (query, r#"X WHERE a = ? AND b < ? 2 "x" 4 ROUTING "r""#),
        ] {
            assert_eq!(said(&Words::new("X").wanted(&wanted).unwrap()), words);
        }
    }

    #[test]
    fn options_are_said_and_a_short_time_is_not_none() {
        let options = WriteOptions {
            mode: WriteMode::Partial,
            lease: Lease::For(Duration::from_micros(1)),
            durability: Some(Durability::Written),
            ..WriteOptions::default()
        };
        assert_eq!(said(&Words::new("X").writing(&options)), "X PARTIAL PREVIOUS LEASE 1 DURABILITY written");
        let waits = |time| WriteOptions { lock_timeout: Some(time), ..WriteOptions::default() };
        assert_eq!(said(&Words::new("X").writing(&waits(Duration::ZERO))), "X PREVIOUS LOCKWAIT 0");
        assert_eq!(said(&Words::new("X").changing(&waits(Duration::from_micros(7)))), "X PREVIOUS LOCKWAIT 1");
        let options = ReadOptions { wait: Some(Duration::from_nanos(1)), if_exists: true, ..ReadOptions::default() };
        assert_eq!(said(&Words::new("X").reading(&options)), "X BLOCK 1 IFEXISTS");
        let options = ReadOptions { wait: Some(Duration::ZERO), ..ReadOptions::default() };
        assert_eq!(said(&Words::new("X").reading(&options)), "X");
    }

    #[test]
    fn a_type_is_declared_with_all_that_it_has() {
        let definition = Definition {
            lease_ms: Some(5),
            order: Order::Groups(holdfast::space::Path::parse("a.b").unwrap()),
            history: true,
            memory_bytes_max: 9,
            at_limit: AtLimit::Evict,
            ..Definition::new("s", "t").index("c", IndexKind::Ordered).unwrap()
        };
        let words = "SPACE.DECLARE s t ID id LEASE 5 GROUPS a.b HISTORY MEMORY 9 EVICT INDEX c ORDERED 1 c";
        assert_eq!(said(&declare(&definition)), words);
        let by = holdfast::space::EvictBy {
            path: holdfast::space::Path::parse("c").unwrap(),
            direction: Direction::Descending,
        };
        let definition = Definition { evict_by: Some(by), ..definition };
        assert_eq!(said(&declare(&definition)), words.replace("EVICT", "EVICT BY c DESC"));
        let together = Definition { placement: Placement::Together, ..Definition::new("s", "t") };
        assert_eq!(said(&declare(&together)), "SPACE.DECLARE s t ID id TOGETHER");
    }
}
