//! Which entries an operation is about.
//!
//! May use: `space`. Must not know: where entries lie.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::space::{Definition, Document, Filter, MapRef, Projection, Query, Value};

use super::memory::Held;
use super::prepared::ToQuery;
use super::route::is_single;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// What a [`Wanted`] was made of, besides an id and a routing value: for whoever asks another store for the same.
#[derive(Debug, Clone)]
pub enum WantedBy {
    /// No more is asked of the entries.
    All,
    /// A template.
    Template(Document),
    /// An SQL condition and what its parameters were.
    Query {
        /// The condition.
        sql: Arc<str>,
        /// The values of its parameters, in order.
        parameters: Arc<[Value]>,
    },
}

/// Which entries an operation is about: one by its id, or those that match a template or a query.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub(crate) filter: Filter,
    pub(crate) id: Option<Value>,
    pub(crate) routing: Option<Value>,
    pub(crate) limit: Option<u64>,
    pub(crate) query: Option<Arc<Query>>,
    pub(crate) by: WantedBy,
    /// Keys of entries to be passed over: [`Definition::entry_key`].
    pub(crate) except: Arc<BTreeSet<Vec<u8>>>,
    /// What it and its copies count as, if they are kept.
    pub(crate) counted: Option<Arc<Held>>,
}

/// Refuses a query that names another type.
pub(super) fn check_type(query: &Query, definition: &Definition) -> Result<()> {
    match query.type_name.as_ref().filter(|name| **name != definition.name) {
        None => Ok(()),
        Some(name) => {
            let text = format!("the query is of the type {name}, not of {}", definition.name);
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

impl Wanted {
    fn of(filter: Filter) -> Self {
        Self {
            filter,
            id: None,
            routing: None,
            limit: None,
            query: None,
            by: WantedBy::All,
            except: Arc::default(),
            counted: None,
        }
    }

    /// All entries.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Filter::all())
    }

    /// The entry with this id.
    #[must_use]
    pub fn id(id: impl Into<Value>) -> Self {
        Self { id: Some(id.into()), ..Self::all() }
    }

    /// Entries whose fields are equal to those of the template; a field that is null there counts for nothing.
    #[must_use]
    pub fn template(template: &Document) -> Self {
        Self { by: WantedBy::Template(template.clone()), ..Self::of(Filter::template(template)) }
    }

    /// Entries for which the SQL condition is true, such as `price > ? AND tags[*] = 'new' ORDER BY price DESC LIMIT 10`, with
    /// the values for `?` or `$1` in order. Of a [`PreparedQuery`](super::PreparedQuery) nothing is parsed any more.
    ///
    /// # Errors
    /// `Invalid` names what is not understood, and what would be. A whole `SELECT * FROM` names its type: that it is another than the one
    /// that is asked is told there.
    pub fn query(query: &(impl ToQuery + ?Sized), parameters: &[Value]) -> Result<Self> {
        let prepared = query.prepared()?;
        let query = prepared.bind(parameters)?;
        if query.is_grouped() || query.projection != Projection::All {
            let text = "this operation gives whole entries: leave out columns, aggregates and GROUP BY, or use select";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let by = WantedBy::Query { sql: Arc::clone(prepared.text()), parameters: parameters.into() };
        Ok(Self { by, ..Self::of_query(query) })
    }

    pub(crate) fn of_query(query: Query) -> Self {
        let filter = Filter::new(query.predicate.clone());
        let (limit, _) = query.window();
        Self { limit, query: Some(Arc::new(query)), ..Self::of(filter) }
    }

    /// What it takes of memory, roughly.
    fn memory_bytes(&self) -> usize {
        let by = match &self.by {
            WantedBy::All => 0,
            WantedBy::Template(template) => template.as_bytes().len(),
            WantedBy::Query { sql, parameters } => {
                sql.len() + parameters.iter().map(Value::memory_bytes).sum::<usize>()
            }
        };
        let named = self.id.iter().chain(&self.routing).map(Value::memory_bytes).sum::<usize>();
        size_of::<Self>() + self.filter.memory_bytes() + by + named
    }

    /// The same, to be kept: for as long as it or a copy is there it counts as memory of queries. What waits, listens and iterates keeps
    /// it so by itself; this is for who has many of them wait for something else.
    ///
    /// # Errors
    /// `Limit` when those that are kept take half of [`Limits::space_query_memory_bytes`](crate::Limits) together.
    pub fn kept(&self, store: &Store) -> Result<Self> {
        let counted = match &self.counted {
            Some(counted) => Arc::clone(counted),
            None => Arc::new(store.inner().query_memory.keep(self.memory_bytes() as u64)?),
        };
        Ok(Self { counted: Some(counted), ..self.clone() })
    }

    /// How many entries at most the query wants, if it says so.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Whether its query has an order.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.query.as_deref().is_some_and(|query| !query.order.is_empty())
    }

    /// What it was made of.
    #[must_use]
    pub fn by(&self) -> &WantedBy {
        &self.by
    }

    /// The id of the entry, if it is about one.
    #[must_use]
    pub fn by_id(&self) -> Option<&Value> {
        self.id.as_ref()
    }

    /// The routing value, if it was given one.
    #[must_use]
    pub fn routing(&self) -> Option<&Value> {
        self.routing.as_ref()
    }

    /// Refuses a query that names another type.
    pub(crate) fn check_type(&self, definition: &Definition) -> Result<()> {
        self.query.as_deref().map_or(Ok(()), |query| check_type(query, definition))
    }

    /// Refuses a query whose ORDER BY or OFFSET the operation, which the error names, would pass over.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check_unordered(&self, operation: &str) -> Result<()> {
        let is_plain = |query: &Query| query.order.is_empty() && query.window().1 == 0;
        if self.query.as_deref().is_none_or(is_plain) {
            return Ok(());
        }
        let text = format!(
            "{operation} takes entries in their type's order: ORDER BY and OFFSET are for reading many and select"
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// As [`Wanted::check_unordered`], for an operation that would pass over LIMIT too.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn check_unlimited(&self, operation: &str) -> Result<()> {
        self.check_unordered(operation)?;
        if self.limit.is_none() {
            return Ok(());
        }
        let text = format!("{operation} is of all entries that match: leave LIMIT out");
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// Only those with this routing value, if the type has a routing: one partition is looked at, not all.
    #[must_use]
    pub fn routed(self, routing: impl Into<Value>) -> Self {
        Self { routing: Some(routing.into()), ..self }
    }

    /// Whether an entry with these fields is wanted.
    pub(crate) fn matches(&self, definition: &Definition, fields: MapRef<'_>) -> bool {
        self.names(definition, fields) && self.filter.matches(fields)
    }

    /// As [`Wanted::matches`], for an entry that matches the filter.
    pub(crate) fn names(&self, definition: &Definition, fields: MapRef<'_>) -> bool {
        let has_id = self.id.as_ref().is_none_or(|id| fields.get(&definition.id) == Some(id.scalar()));
        // Entries with other routing may lie in the same partition. That of a type without a routing is the id, unless all lie together.
        let has_routing = self.routing.as_ref().is_none_or(|routing| match definition.routed_by() {
            Some(path) => path.first(fields) == routing.scalar(),
            None => is_single(definition) || fields.get(&definition.id) == Some(routing.scalar()),
        });
        let is_excepted = || !self.except.is_empty() && self.except.contains(&definition.entry_key(fields));
        has_id && has_routing && !is_excepted()
    }
}
