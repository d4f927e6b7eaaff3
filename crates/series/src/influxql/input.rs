//! What a selection reads: the measurements' rows, each a metric with its tags, and the series that are their fields.
//!
//! May use: `source`, `condition`. Must not know: what is computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::{Table, Tables};
use super::ast::{Cast, Expr, Measurement, Operand, Pattern};
use super::cast::{Class, class_of};
use super::condition::Condition;
use super::{Env, run};
use crate::error::{Error, Result};
use crate::held::Held;
use crate::key::Key;
use crate::points::Points;
use crate::rollup::Windows;
use crate::select::{Match, Select};
use crate::source::{Piece, Range, Series, SeriesId, Source};
use crate::value::{Kind, Value};

/// Where the points of a field are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    Stored(SeriesId, Kind),
    Made(usize),
}

/// A metric with tags.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: Arc<Key>,
    pub(crate) fields: Vec<(Arc<Key>, Column)>,
}

impl Member {
    pub(crate) fn field(&self, name: &str) -> Option<Column> {
        self.fields.iter().find(|(key, _)| key.field == name).map(|(_, column)| *column)
    }

    /// The column of what may be a field, unless it is said to be a tag.
    pub(crate) fn field_of(&self, operand: &Operand) -> Option<Column> {
        if operand.cast == Some(Cast::Tag) { None } else { self.field(&operand.name) }
    }
}

pub(crate) struct Input<'a> {
    pub(crate) source: &'a dyn Source,
    /// What was read, until it is let go of: see [`Input::let_go`].
    pub(crate) held: Held,
    /// Sorted by their keys, within one thing that is read from.
    pub(crate) members: Vec<Member>,
    made: Vec<Points>,
    /// Names that conditions take for tags and that are fields.
    pub(crate) fields: Vec<String>,
    /// Series of the measurements that conditions exclude: what patterns of names stand for does not depend on conditions.
    others: Vec<Series>,
}

fn pattern(pattern: &Pattern) -> Match {
    match pattern {
        Pattern::Is(name) => Match::is(name.clone()),
        Pattern::Regex(regex) => Match::Regex(regex.clone()),
    }
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            held: Held::default(),
            members: Vec::new(),
            made: Vec::new(),
            fields: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Adds the series of a measurement that a condition does not exclude by their tags; of the fields `names`, or of all.
    pub(crate) fn add_stored(
        &mut self,
        env: &Env<'_>,
        from: &Measurement,
        condition: &Condition,
        names: Option<Vec<String>>,
    ) -> Result<()> {
        let database = env.database(from.database.as_deref())?.to_owned();
        let field = names.map(Match::In);
        let mut select = Select { database, metric: Some(pattern(&from.name)), field, tags: Vec::new() };
        select.tags = condition.tags(&self.fields);
        let mut found = self.source.series(&select)?;
        let doubtful = select.tags.iter().map(|tag| &tag.tag);
        let doubtful = doubtful.filter(|tag| found.iter().all(|series| series.key.tag(tag).is_empty()));
        let doubtful: Vec<String> = doubtful.cloned().collect();
        // A name that no series has for a tag may be that of a field. That is looked for only now: most often it is a tag.
        if !doubtful.is_empty() {
            let before = self.fields.len();
            for name in doubtful {
                let field = Some(Match::is(name.clone()));
                let asked = Select { field, tags: Vec::new(), ..select.clone() };
                if !self.source.series(&asked)?.is_empty() {
                    self.fields.push(name);
                }
            }
            if self.fields.len() > before {
                select.tags = condition.tags(&self.fields);
                if let Some(Match::In(names)) = &mut select.field {
                    names.extend(self.fields.iter().cloned());
                }
                found = self.source.series(&select)?;
            }
        }
        if found.is_empty() {
            env.check_database(&select.database)?;
        }
        if select.field.is_none() && !select.tags.is_empty() && !found.is_empty() {
            self.others.extend(self.source.series(&Select { tags: Vec::new(), ..select })?);
        }
        self.add_series(found);
        Ok(())
    }

    fn add_series(&mut self, found: Vec<Series>) {
        for series in found {
            let column = Column::Stored(series.id, series.kind);
            match self.members.last_mut() {
                Some(last)
                    if last.key.metric == series.key.metric
                        && last.key.tags == series.key.tags
                        && last.key.database == series.key.database =>
                {
                    last.fields.push((series.key, column));
                }
                _ => self.members.push(Member { key: series.key.clone(), fields: vec![(series.key, column)] }),
            }
        }
    }

    /// Adds the rows that an inner selection answers. There is no index of their tags: conditions on them are left to the filter.
    pub(crate) fn add_selected(
        &mut self,
        env: &Env<'_>,
        select: &super::ast::Select,
        condition: &Condition,
    ) -> Result<()> {
        self.fields.extend(condition.tags(&[]).into_iter().map(|tag| tag.tag));
        let mut tables = Tables::new(env.source);
        run::select(env, select, condition.range, &mut tables)?;
        for Table { name, tags, columns, layers, .. } in tables.all {
            let tags: Vec<_> = tags.into_iter().filter(|(_, value)| !value.is_empty()).collect();
            let key = Key { database: String::new(), metric: name, tags, field: String::new() };
            for layer in layers {
                let mut member = Member { key: Arc::new(key.clone()), fields: Vec::new() };
                for (field, points) in columns.iter().zip(layer) {
                    let points = if points.times().is_sorted() { points } else { reversed(&points) };
                    let key = Key { field: field.clone(), ..key.clone() };
                    member.fields.push((Arc::new(key), Column::Made(self.made.len())));
                    self.made.push(points);
                }
                self.members.push(member);
            }
        }
        Ok(())
    }

    /// Appends the points of a column in a range.
    pub(crate) fn read(&self, column: Column, range: Range, to: &mut Points) -> Result<()> {
        if range.from > range.to {
            return Ok(());
        }
        match column {
            Column::Stored(id, _) => self.source.points(id, range, to)?,
            Column::Made(at) => {
                if let Some(points) = self.made.get(at) {
                    to.extend_from(points, points.between(range.from, range.to));
                }
            }
        }
        // What is made of points on their way takes about as much as they do.
        self.held.add(self.source, 2 * to.memory_bytes() as u64)
    }

    /// Holds the memory for what is made of points, of which each takes so many bytes.
    pub(crate) fn hold(&self, points: usize, bytes: u64) -> Result<()> {
        self.held.add(self.source, (points as u64).saturating_mul(bytes))
    }

    /// Lets go of what was read since so many bytes were held.
    pub(crate) fn let_go(&self, held: u64) {
        self.held.back_to(self.source, held);
    }

    /// Tells what is in a column, or summaries of it; false when it has none, and nothing was told.
    pub(crate) fn pieces(
        &self,
        column: Column,
        range: Range,
        windows: Windows,
        tell: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<bool> {
        match column {
            Column::Stored(..) if range.from > range.to => Ok(true),
            Column::Stored(id, _) => self.source.pieces(id, range, windows, tell).map(|()| true),
            Column::Made(_) => Ok(false),
        }
    }

    /// The last point of a column.
    pub(crate) fn last(&self, column: Column) -> Result<Option<(i64, Value)>> {
        match column {
            Column::Stored(id, _) => self.source.last(id),
            Column::Made(at) => Ok(self.made.get(at).and_then(Points::last)),
        }
    }

    /// What sort of values a column has; of several the one that counts.
    fn class(&self, column: Column) -> Option<Class> {
        match column {
            Column::Stored(_, kind) => Some(Class::of(kind)),
            Column::Made(at) => class_of(self.made.get(at)?),
        }
    }

    /// The fields there are, sorted, each with the sort of values that counts.
    pub(crate) fn field_classes(&self) -> Vec<(String, Class)> {
        let own = self.members.iter().flat_map(|member| member.fields.iter().map(|(key, column)| (key, *column)));
        let others = self.others.iter().map(|series| (&series.key, Column::Stored(series.id, series.kind)));
        let mut classes = BTreeMap::new();
        for (key, column) in own.chain(others) {
            if let Some(class) = self.class(column) {
                let known = classes.entry(&key.field).or_insert(class);
                *known = class.min(*known);
            }
        }
        classes.into_iter().map(|(name, class)| (name.clone(), class)).collect()
    }

    /// Of the fields that are named: the sort of values that functions are computed of.
    pub(crate) fn classes<'n>(&self, names: &[&'n str]) -> BTreeMap<&'n str, Class> {
        let mut classes = BTreeMap::new();
        for (name, column) in
            self.members.iter().flat_map(|member| names.iter().map(|name| (*name, member.field(name))))
        {
            if let Some(class) = column.and_then(|column| self.class(column)) {
                let known = classes.entry(name).or_insert(class);
                *known = class.min(*known);
            }
        }
        classes
    }

    /// Whether a column has nothing of a sort, as far as is known without reading it.
    pub(crate) fn is_without(&self, column: Column, class: Class) -> bool {
        matches!(column, Column::Stored(_, kind) if Class::of(kind) != class)
    }

    /// The names of tags there are, sorted.
    pub(crate) fn tag_names(&self) -> Vec<String> {
        let keys = self.members.iter().map(|member| &member.key).chain(self.others.iter().map(|series| &series.key));
        let names = keys.flat_map(|key| key.tags.iter().map(|(name, _)| name));
        let names: std::collections::BTreeSet<&String> = names.collect();
        names.into_iter().cloned().collect()
    }

    /// Whether there is a field of that name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.field(name).is_some())
    }
}

fn reversed(points: &Points) -> Points {
    let mut all = Points::new();
    for (time, value) in points.iter().rev() {
        all.push(time, value);
    }
    all
}

/// The names of fields that a selection may have to read; `None` when it names them by a pattern.
pub(crate) fn names<'e>(exprs: impl Iterator<Item = &'e Expr>) -> Option<Vec<String>> {
    let (mut names, mut is_open) = (Vec::new(), false);
    for expr in exprs {
        expr.walk(&mut |part| {
            match part {
                Expr::Name(name) | Expr::Cast(Operand { name, .. }) => names.push(name.clone()),
                Expr::Star(_) => is_open = true,
                Expr::Binary(binary) if matches!(binary.right, Expr::Regex(_)) => {
                    names.extend(binary.left.names().into_iter().map(str::to_owned));
                    return false;
                }
                Expr::Regex(_) => is_open = true,
                _ => {}
            }
            true
        });
    }
    names.sort();
    names.dedup();
    (!is_open).then_some(names)
}

impl Env<'_> {
    /// The database that is meant.
    pub(crate) fn database<'n>(&'n self, named: Option<&'n str>) -> Result<&'n str> {
        let name = named.unwrap_or(self.database);
        if name.is_empty() { Err(Error::invalid("database name required")) } else { Ok(name) }
    }

    /// # Errors
    /// [`Error::Invalid`] in InfluxDB's words when there is no such database.
    pub(crate) fn check_database(&self, name: &str) -> Result<()> {
        if self.source.databases()?.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(Error::invalid(format!("database not found: {name}")))
    }
}
