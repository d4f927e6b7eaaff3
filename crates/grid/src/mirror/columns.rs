//! A table with a column for each field: how documents become its rows, and come back from them.
//!
//! The key is the id. A column has the value at a path of names in the document; what no column has is the *rest*: in a column of its own as one
//! JSON object, or refused, or left out. NULL is a field that is missing. A field that is null is NULL too, and besides in the rest's column, if there is
//! one, so that with one every document comes back as it was, but for what `columns/kind.rs` says of numbers.
//!
//! May use: `holdfast`, `table`. Must not know: connections.

mod kind;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use holdfast::space::{Definition, Document, Path, Value, ValueRef};
use holdfast::{Error, ErrorKind, Result};

use super::table::{Column, Dialect, IdKind, Mapping, Table, has_bytes};
pub use kind::ColumnKind;
use kind::SCALE_MAX;

/// Columns of a table, the key and the rest aside: no database has more, by far.
const COLUMNS_MAX: usize = 1000;
/// PostgreSQL cuts longer names off, MariaDB refuses those from 65 on.
const NAME_BYTES_MAX: usize = 63;

/// A column for a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldColumn {
    /// Its name.
    pub name: String,
    /// Where its value is in the document: names alone, such as `address.city`.
    pub field: Path,
    /// What it has.
    pub kind: ColumnKind,
    /// Its type in the target, if not that of its kind: values are cast to it, and have to come back from it as text of the kind.
    pub sql_type: Option<String>,
}

impl FieldColumn {
    /// A column for the document's field of the same name.
    pub fn new(name: impl Into<String>, kind: ColumnKind) -> Self {
        let name = name.into();
        Self { field: Path::field(&name), name, kind, sql_type: None }
    }

    /// The same for the field at this path.
    #[must_use]
    pub fn of(self, field: Path) -> Self {
        Self { field, ..self }
    }
}

/// What becomes of fields that no column has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Rest {
    /// An entry that has one is refused: the mirror stands still, or sets it aside.
    #[default]
    Refused,
    /// They are not in the table, and an entry that comes back from there has them no more.
    LeftOut,
    /// They are an object of JSON in the column of this name, as `json`, which keeps text as it is; NULL when there are none.
    In(String),
}

/// The columns of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// The name of the key.
    pub key: String,
    /// The others. Those of the table that are not named here are left alone, and so have to have a default or may be NULL.
    pub fields: Vec<FieldColumn>,
    /// What becomes of other fields.
    pub rest: Rest,
}

impl Columns {
    /// Whether they can be columns of one table, without a look at it.
    ///
    /// # Errors
    /// `Invalid` when a name is none or two have it, a path goes to items of lists, one field lies in another, a type of SQL or a scale is none, or there are too many.
    pub fn check(&self) -> Result<()> {
        let Self { key, fields, rest } = self;
        if fields.len() > COLUMNS_MAX {
            return Err(invalid(format!("{} columns are too many; {COLUMNS_MAX} may be", fields.len())));
        }
        let rest = if let Rest::In(name) = rest { Some(name) } else { None };
        let mut names = BTreeSet::new();
        for name in std::iter::once(key).chain(fields.iter().map(|column| &column.name)).chain(rest) {
            check_name(name)?;
            // MariaDB does not tell them apart otherwise.
            if !names.insert(name.to_lowercase()) {
                return Err(invalid(format!("two columns have the name {name}, upper and lower case aside")));
            }
        }
        let mut paths: Vec<Vec<&str>> = Vec::with_capacity(fields.len());
        for column in fields {
            check_column(column)?;
            paths.push(column.field.names().collect());
        }
        paths.sort_unstable();
        // What begins with another one comes behind it.
        for (one, next) in paths.iter().zip(paths.iter().skip(1)) {
            if next.starts_with(one) {
                let (one, next) = (one.join("."), next.join("."));
                return Err(invalid(match one == next {
                    true => format!("two columns have the field {one}"),
                    false => format!("the field {next} lies within {one}, which has a column too"),
                }));
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<()> {
    let problem = match name {
        "" => "a column needs a name".to_owned(),
        name if name.len() > NAME_BYTES_MAX => {
            format!("the name {name} is too long for a column; it may have {NAME_BYTES_MAX} bytes")
        }
        name if name.chars().any(char::is_control) || name.trim() != name => {
            format!("{name:?} is no name of a column: control characters, and blanks at its ends, are not")
        }
        _ => return Ok(()),
    };
    Err(invalid(problem))
}

fn check_column(column: &FieldColumn) -> Result<()> {
    let FieldColumn { name, field, kind, sql_type } = column;
    if field.has_items() {
        return Err(invalid(format!("the column {name}: {field} goes to every item of a list; have the list as json")));
    }
    if let ColumnKind::Decimal { scale: Some(scale) } = kind
        && *scale > SCALE_MAX
    {
        let text = format!("the column {name}: {scale} digits behind the point are too many; {SCALE_MAX} may be");
        return Err(invalid(text));
    }
    // It stands in statements as it is.
    let may_be = |letter: char| letter.is_alphanumeric() || "_(),.[] ".contains(letter);
    match sql_type {
        Some(text) if text.trim().is_empty() || !text.chars().all(may_be) => {
            Err(invalid(format!("the column {name}: `{text}` is no type of SQL")))
        }
        // They travel in another form.
        Some(text) if has_bytes(text) && *kind != ColumnKind::Bytes => {
            Err(invalid(format!("the column {name}: what is in {text} is of the kind bytes")))
        }
        _ => Ok(()),
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, text.into())
}

/// The mapping to a table with a column for each field.
///
/// With a column for the rest every document comes back from its row as it was, but for numbers that a column has in one form only, as [`ColumnKind`] says. Without,
/// a field that is null, and a map in which all that columns have is null, come back as missing.
#[derive(Debug, Clone)]
pub struct ColumnTable {
    table: Table,
    id_field: String,
    id: IdKind,
    dialect: Dialect,
    fields: Vec<Field>,
    rest: Rest,
    has_unique_ids: bool,
}

/// A field that has a column.
#[derive(Debug, Clone)]
struct Field {
    names: Vec<String>,
    column: FieldColumn,
}

impl ColumnTable {
    /// The mapping for this type, to PostgreSQL: a table named as the type is.
    ///
    /// # Errors
    /// `Invalid` when [`Columns::check`] says so, or a column is for the id, which is the key.
    pub fn of(definition: &Definition, id: IdKind, columns: Columns) -> Result<Self> {
        columns.check()?;
        let Columns { key, fields, rest } = columns;
        if let Some(column) = fields.iter().find(|column| column.field.names().next() == Some(definition.id.as_str())) {
            let text = format!("the column {} is for {}, the id, which is the key {key}", column.name, definition.id);
            return Err(invalid(text));
        }
        let names = |column: &FieldColumn| column.field.names().map(str::to_owned).collect();
        let fields = fields.into_iter().map(|column| Field { names: names(&column), column }).collect();
        let key = Column { name: key, sql_type: String::new() };
        let table = Table { name: definition.name.clone(), key, columns: Vec::new() };
        let (id_field, dialect) = (definition.id.clone(), Dialect::Postgres);
        Ok(Self { table, id_field, id, dialect, fields, rest, has_unique_ids: false }.in_dialect(dialect))
    }

    /// The same in a table of this name, with its schema before a point if that is not the connection's.
    #[must_use]
    pub fn in_table(mut self, name: impl Into<String>) -> Self {
        self.table.name = name.into();
        self
    }

    /// The same for a type with a routing whose ids are unique all the same: its writers have to see to that.
    #[must_use]
    pub fn with_unique_ids(self) -> Self {
        Self { has_unique_ids: true, ..self }
    }

    /// The same to MariaDB.
    #[must_use]
    pub fn in_mariadb(self) -> Self {
        self.in_dialect(Dialect::MariaDb)
    }

    fn in_dialect(mut self, dialect: Dialect) -> Self {
        let of_field = |field: &Field| {
            let FieldColumn { name, kind, sql_type, .. } = &field.column;
            Column { name: name.clone(), sql_type: sql_type.clone().unwrap_or_else(|| kind.sql_type(dialect)) }
        };
        let mut columns: Vec<Column> = self.fields.iter().map(of_field).collect();
        if let Rest::In(name) = &self.rest {
            columns.push(Column { name: name.clone(), sql_type: "json".to_owned() });
        }
        self.table.columns = columns;
        self.table.key.sql_type = self.id.sql_type(dialect).to_owned();
        Self { dialect, ..self }
    }

    /// The values of a document's columns.
    fn values(&self, mut fields: BTreeMap<String, Value>) -> std::result::Result<Vec<Option<String>>, String> {
        fields.remove(&self.id_field);
        let keeps_null = matches!(self.rest, Rest::In(_));
        let mut row = Vec::with_capacity(self.table.columns.len());
        for Field { names, column } in &self.fields {
            row.push(match take(&mut fields, names, keeps_null) {
                None | Some(Value::Null) => None,
                Some(value) => {
                    let FieldColumn { name, field, kind, .. } = column;
                    let text = kind.to_text(&value, self.dialect);
                    Some(text.map_err(|why| format!("its field {field} {why}, and the column {name} has {kind}"))?)
                }
            });
        }
        match &self.rest {
            Rest::In(_) => row.push((!fields.is_empty()).then(|| Document::new(&fields).to_json())),
            Rest::LeftOut => {}
            Rest::Refused => {
                if let Some(name) = first_of(&fields) {
                    return Err(format!("its field {name} has no column, and there is none for the rest"));
                }
            }
        }
        Ok(row)
    }

    /// The fields of a row, the id aside.
    fn fields(&self, row: &[Option<&str>]) -> std::result::Result<BTreeMap<String, Value>, String> {
        let rest = row.get(self.fields.len()).copied().flatten();
        let mut fields = match (&self.rest, rest) {
            (Rest::In(name), Some(text)) => {
                let rest = Document::from_json(text.as_bytes());
                rest.map_err(|error| format!("its column {name}: {error}"))?.to_fields()
            }
            _ => BTreeMap::new(),
        };
        for (Field { names, column }, text) in self.fields.iter().zip(row) {
            let Some(text) = text else { continue };
            let FieldColumn { name, field, kind, .. } = column;
            let value = kind.to_value(text, self.dialect);
            let value = value.ok_or_else(|| format!("its column {name} has something else than {kind}"))?;
            put(&mut fields, names, value)
                .ok_or_else(|| format!("of its column {name}, a part of {field} is no map"))?;
        }
        Ok(fields)
    }
}

impl Mapping for ColumnTable {
    fn table(&self) -> &Table {
        &self.table
    }

    fn has_unique_ids(&self) -> bool {
        self.has_unique_ids
    }

    fn key(&self, id: ValueRef<'_>) -> Result<String> {
        self.id.key(id)
    }

    fn row(&self, document: &Document) -> Result<Vec<Option<String>>> {
        self.values(document.to_fields()).map_err(|why| {
            let id = document.get(&self.id_field).map(ValueRef::to_value).unwrap_or_default();
            invalid(format!("the entry {} does not fit its table: {why}", id.to_json()))
        })
    }

    fn document(&self, key: &str, row: &[Option<&str>]) -> Result<Document> {
        let wrong = |why: &str| invalid(format!("the row {key} is no entry: {why}"));
        let id = self.id.id(key).ok_or_else(|| wrong("its key is of another kind than ids are"))?;
        let mut fields = self.fields(row).map_err(|why| wrong(&why))?;
        fields.insert(self.id_field.clone(), id);
        let document = Document::new(&fields);
        // Each part of it is, but one may lie within another.
        Document::from_stored(document.as_bytes()).map_err(|_| wrong("it is too deep"))
    }
}

/// Takes the value at a path away, and maps that have nothing else. A null stays if it is to be kept.
///
/// The depth of this recursion is that of the path, which is bounded.
fn take(fields: &mut BTreeMap<String, Value>, names: &[String], keeps_null: bool) -> Option<Value> {
    let (first, rest) = names.split_first()?;
    if rest.is_empty() {
        let is_kept = keeps_null && matches!(fields.get(first), Some(Value::Null));
        return if is_kept { None } else { fields.remove(first) };
    }
    let Value::Map(below) = fields.get_mut(first)? else { return None };
    let taken = take(below, rest, keeps_null)?;
    if below.is_empty() {
        fields.remove(first);
    }
    Some(taken)
}

/// Puts a value at a path, over what is there; `None` when something on the way is neither a map nor missing nor null.
fn put(fields: &mut BTreeMap<String, Value>, names: &[String], value: Value) -> Option<()> {
    let (first, rest) = names.split_first()?;
    if rest.is_empty() {
        fields.insert(first.clone(), value);
        return Some(());
    }
    let below = fields.entry(first.clone()).or_default();
    if matches!(below, Value::Null) {
        *below = Value::Map(BTreeMap::new());
    }
    match below {
        Value::Map(below) => put(below, rest, value),
        _ => None,
    }
}

/// The path of the first field that is no map, for messages.
fn first_of(fields: &BTreeMap<String, Value>) -> Option<String> {
    let (name, mut value) = fields.first_key_value()?;
    let mut path = name.clone();
    while let Value::Map(below) = value
        && let Some((name, inner)) = below.first_key_value()
    {
        path = format!("{path}.{name}");
        value = inner;
    }
    Some(path)
}
