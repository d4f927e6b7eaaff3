//! How documents become rows of a table, and back.
//!
//! May use: `holdfast`. Must not know: connections.

use holdfast::space::{Definition, Document, Value, ValueRef};
use holdfast::{Error, ErrorKind, Result};

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type in the target, such as `bigint`.
    pub sql_type: String,
}

/// Whether a column of this type has bytes.
pub(super) fn has_bytes(sql_type: &str) -> bool {
    let sql_type = sql_type.trim_start().to_ascii_lowercase();
    let word = sql_type.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
    word == "bytea" || word.ends_with("blob") || word.ends_with("binary")
}

/// A table, whose first column is its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name, with its schema before a point if that is not the connection's.
    pub name: String,
    /// The key, by which rows are replaced and removed: it has to be unique in the table, and made of the id alone. Entries have to
    /// have different ids, see [`Mapping::has_unique_ids`], and different ids have to be different for the table too, which texts in most of MariaDB's collations are not.
    pub key: Column,
    /// The other columns.
    pub columns: Vec<Column>,
}

impl Table {
    pub(super) fn all(&self) -> impl Iterator<Item = &Column> {
        std::iter::once(&self.key).chain(&self.columns)
    }
}

/// How documents of a type become rows of a table, and back. Values travel as text, in the form that the target reads and writes
/// for the column's type: times in UTC, and bytes as hexadecimal digits, in PostgreSQL behind `\x`. `None` is NULL.
pub trait Mapping: Send + Sync {
    /// The table. Mirrors make it if it is not there.
    fn table(&self) -> &Table;

    /// Whether no two entries share an id, also where the type has a routing, by which it would tell them apart: they would share a row.
    fn has_unique_ids(&self) -> bool {
        false
    }

    /// The key of the row for an entry with this id.
    ///
    /// # Errors
    /// `Invalid` when the table cannot have it: the mirror stands still until it can, or sets it aside.
    fn key(&self, id: ValueRef<'_>) -> Result<String>;

    /// The values of the other columns, in their order.
    ///
    /// # Errors
    /// `Invalid` when the table cannot have them: the mirror stands still until it can, or sets it aside.
    fn row(&self, document: &Document) -> Result<Vec<Option<String>>>;

    /// The document of a row: the key, and the values of the other columns.
    ///
    /// # Errors
    /// `Invalid` when it is no document of the type.
    fn document(&self, key: &str, row: &[Option<&str>]) -> Result<Document>;
}

/// The database that a table is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    MariaDb,
}

/// What the ids of a type are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// Integers, in a column `bigint`.
    Integer,
    /// Strings, in a column `text`; in MariaDB `varchar(255)`, compared as they are written.
    String,
}

impl IdKind {
    /// The type of a key that is made for it.
    pub(super) fn sql_type(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (Self::Integer, _) => "bigint",
            (Self::String, Dialect::Postgres) => "text",
            // Else `a` and `A`, or `a` with a space behind it, would be one row.
            (Self::String, Dialect::MariaDb) => "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        }
    }

    /// The key of an id.
    pub(super) fn key(self, id: ValueRef<'_>) -> Result<String> {
        match (self, id) {
            (Self::Integer, ValueRef::I64(number)) => Ok(number.to_string()),
            (Self::String, ValueRef::String(text)) => Ok(text.to_owned()),
            (_, other) => {
                let text = format!(
                    "an id is {}, and the table's key is not: say what ids are (`IdKind`, `mirrors.id` of a server's configuration), or map it yourself",
                    other.kind()
                );
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    /// The id of a key.
    pub(super) fn id(self, key: &str) -> Option<Value> {
        match self {
            Self::Integer => key.parse().map(Value::I64).ok(),
            Self::String => Some(key.into()),
        }
    }
}

/// The mapping for who wants none of his own: a table named as the type is, with the columns `id`, and `document` as `jsonb`, in
/// MariaDB as `json`.
///
/// What JSON does not have is in the document as the space's JSON tells it. `jsonb` keeps the digits of numbers, but has no `-0.0`, and an integer for a
/// floating-point number from 10^16 on without a fraction; it refuses strings with the character 0.
#[derive(Debug, Clone)]
pub struct DocumentTable {
    table: Table,
    id_field: String,
    id: IdKind,
    has_unique_ids: bool,
}

impl DocumentTable {
    /// The mapping for this type, to PostgreSQL.
    #[must_use]
    pub fn of(definition: &Definition, id: IdKind) -> Self {
        let column = |name: &str, sql_type: &str| Column { name: name.to_owned(), sql_type: sql_type.to_owned() };
        let key = column("id", id.sql_type(Dialect::Postgres));
        let table = Table { name: definition.name.clone(), key, columns: vec![column("document", "jsonb")] };
        Self { table, id_field: definition.id.clone(), id, has_unique_ids: false }
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
    pub fn in_mariadb(mut self) -> Self {
        self.table.key.sql_type = self.id.sql_type(Dialect::MariaDb).to_owned();
        self.table.columns.iter_mut().for_each(|column| column.sql_type = "json".to_owned());
        self
    }
}

impl Mapping for DocumentTable {
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
        Ok(vec![Some(document.to_json())])
    }

    fn document(&self, key: &str, row: &[Option<&str>]) -> Result<Document> {
        let invalid = || Error::new(ErrorKind::Invalid, format!("the row {key} has no document"));
        let json = row.first().copied().flatten().ok_or_else(invalid)?;
        let document = Document::from_json(json.as_bytes())?;
        let id = self.id.id(key).ok_or_else(invalid)?;
        if document.get(&self.id_field) == Some(id.stored().get()) {
            return Ok(document);
        }
        let text = format!("the document of the row {key} has another id");
        Err(Error::new(ErrorKind::Invalid, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_become_rows_and_come_back() {
        let definition = Definition::new("shop", "order");
        let mapping = DocumentTable::of(&definition, IdKind::Integer);
        let document = Document::from_pairs([("id", Value::I64(7)), ("name", "O'Hara \"x\"".into())]);
        let row = mapping.row(&document).unwrap();
        let row: Vec<Option<&str>> = row.iter().map(Option::as_deref).collect();
        assert_eq!(mapping.document("7", &row).unwrap(), document);
        assert!(mapping.document("8", &row).is_err() && mapping.document("x", &row).is_err());
        assert!(mapping.document("7", &[None]).is_err());
        assert_eq!(mapping.key(ValueRef::I64(7)).unwrap(), "7");
        assert!(mapping.key(ValueRef::String("7")).is_err());
    }
}
