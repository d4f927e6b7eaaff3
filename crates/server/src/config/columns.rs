//! The keys of a mirror's columns: which field is in which column of its table.
//!
//! May use: `reading`, `file`, `grid`. Must not know: how mirrors run.

use std::ops::RangeInclusive;

use grid::{ColumnKind, Columns, FieldColumn, Rest};
use holdfast::space;

use super::error::ConfigError;
use super::file::{KindWord, MirrorColumnTable};
use super::reading::Reading;

/// Digits behind the point: MariaDB has no more.
pub(super) const SCALE: RangeInclusive<i64> = 0..=38;

/// As the table of a mirror has them.
pub(super) struct ColumnKeys {
    pub(super) key: Option<String>,
    pub(super) columns: Vec<MirrorColumnTable>,
    pub(super) rest: Option<String>,
    pub(super) leave_out: Option<bool>,
    /// Whether entries come back from the table.
    pub(super) comes_back: bool,
}

/// The columns that a table has, for who looks at what is in force.
pub(super) fn describe(columns: &Columns) -> String {
    let each = columns.fields.iter().map(|FieldColumn { name, field, kind, sql_type }| {
        let kind = match kind {
            ColumnKind::Decimal { scale: Some(scale) } => format!("decimal of scale {scale}"),
            kind => word(*kind).to_owned(),
        };
        let of = if *field == space::Path::field(name) { String::new() } else { format!(" of {field}") };
        let sql_type = sql_type.as_ref().map(|sql_type| format!(" as {sql_type}")).unwrap_or_default();
        format!("{name} ({kind}{of}{sql_type})")
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let rest = match &columns.rest {
        Rest::In(name) => format!("other fields in {name}"),
        Rest::LeftOut => "other fields left out".to_owned(),
        Rest::Refused => "no other fields".to_owned(),
    };
    format!("key {}, columns {each}, {rest}", columns.key)
}

fn word(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Integer => "integer",
        ColumnKind::Double => "double",
        ColumnKind::Decimal { .. } => "decimal",
        ColumnKind::String => "string",
        ColumnKind::Boolean => "boolean",
        ColumnKind::Timestamp => "timestamp",
        ColumnKind::Nanoseconds => "nanoseconds",
        ColumnKind::Bytes => "bytes",
        ColumnKind::Json => "json",
    }
}

impl Reading<'_> {
    /// The columns of this mirror, if its documents are not to be in one.
    pub(super) fn columns(&self, mirror: &str, keys: ColumnKeys) -> Result<Option<Columns>, ConfigError> {
        let wrong = |key: &str, problem: &str| self.wrong(&format!("mirrors.{mirror}.{key}"), problem);
        let ColumnKeys { key, columns, rest, leave_out, comes_back } = keys;
        let leaves_out = leave_out.unwrap_or(false);
        if columns.is_empty() {
            let lonely = [("key", key.is_some()), ("rest", rest.is_some()), ("leave_out", leaves_out)];
            return match lonely.iter().find(|(_, is_there)| *is_there) {
                Some((key, _)) => Err(wrong(key, "this is for a table with columns; name them: mirrors.columns")),
                None => Ok(None),
            };
        }
        let rest = match (rest, leaves_out) {
            (Some(_), true) => return Err(wrong("leave_out", "there is a column for the rest; keep one of them")),
            (None, true) if comes_back => {
                let problem = "with load or read_through entries would come back without what was left out; name a \
                               column for it: rest";
                return Err(wrong("leave_out", problem));
            }
            (Some(rest), false) => Rest::In(rest),
            (None, true) => Rest::LeftOut,
            (None, false) => Rest::Refused,
        };
        let fields = columns.into_iter().enumerate().map(|(place, table)| self.column(mirror, place + 1, table));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let columns = Columns { key: key.unwrap_or_else(|| "id".to_owned()), fields, rest };
        columns.check().map_err(|error| wrong("columns", &error.to_string()))?;
        Ok(Some(columns))
    }

    /// A key is named by the column's place, counted from 1, until it has a name.
    fn column(&self, mirror: &str, place: usize, table: MirrorColumnTable) -> Result<FieldColumn, ConfigError> {
        let wrong = |key: &str, problem: &str| self.wrong(&format!("mirrors.{mirror}.{key}"), problem);
        let name = table.name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| wrong(&format!("columns[{place}].name"), "this is missing; name the column"))?;
        let wrong = |key: &str, problem: &str| wrong(&format!("columns.{name}.{key}"), problem);
        let field = match &table.field {
            Some(path) => space::Path::parse(path).map_err(|error| wrong("field", &error.to_string()))?,
            None => space::Path::field(&name),
        };
        let kind =
            table.kind.ok_or_else(|| wrong("kind", "this is missing; say what the column has, such as \"string\""))?;
        let scale = self.number(&format!("mirrors.{mirror}.columns.{name}.scale"), table.scale, SCALE)?;
        let kind = match (kind, scale) {
            (KindWord::Decimal, scale) => ColumnKind::Decimal { scale },
            (_, Some(_)) => return Err(wrong("scale", "this is for decimals; the kind is another")),
            (KindWord::Integer, None) => ColumnKind::Integer,
            (KindWord::Double, None) => ColumnKind::Double,
            (KindWord::String, None) => ColumnKind::String,
            (KindWord::Boolean, None) => ColumnKind::Boolean,
            (KindWord::Timestamp, None) => ColumnKind::Timestamp,
            (KindWord::Nanoseconds, None) => ColumnKind::Nanoseconds,
            (KindWord::Bytes, None) => ColumnKind::Bytes,
            (KindWord::Json, None) => ColumnKind::Json,
        };
        Ok(FieldColumn { field, kind, sql_type: table.sql_type, name })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::mirrors::describe;
    use super::super::tests::{error, load};
    use super::*;

    const GOOD: &str =
        "[[mirrors]]\nname = \"orders\"\nspace = \"shop\"\ntype = \"order\"\naddress = \"host=db password=secret\"\n";
    const TOTAL: &str = "[[mirrors.columns]]\nname = \"total\"\nkind = \"integer\"\n";

    #[test]
    fn columns_are_what_their_keys_say() {
        let more = [
            "key = \"number\"\nrest = \"more\"\nread_through = true\n",
            TOTAL,
            "[[mirrors.columns]]\nname = \"town\"\nfield = \"address.\\\"the town\\\"\"\nkind = \"string\"\ntype = \"varchar(40)\"\n",
            "[[mirrors.columns]]\nname = \"price\"\nkind = \"decimal\"\nscale = 2\n",
        ];
        let config = load(&format!("{GOOD}{}", more.concat()));
        let columns = config.mirrors[0].columns.as_ref().unwrap();
        assert_eq!((columns.key.as_str(), &columns.rest), ("number", &Rest::In("more".to_owned())));
        let price = ColumnKind::Decimal { scale: Some(2) };
        let [total, town, found] = columns.fields.as_slice() else { panic!("{columns:?}") };
        assert_eq!(
            (total, found),
            (&FieldColumn::new("total", ColumnKind::Integer), &FieldColumn::new("price", price))
        );
        assert_eq!((town.kind, town.sql_type.as_deref()), (ColumnKind::String, Some("varchar(40)")));
        assert_eq!(town.field.names().collect::<Vec<_>>(), ["address", "the town"]);
        let wanted = [
            "mirror orders: order of space shop into the table order of PostgreSQL, which is read through",
            "mirror orders: key number, columns total (integer), town (string of address.\"the town\" as varchar(40)), \
             price (decimal of scale 2), other fields in more",
        ];
        assert_eq!(describe(&config.mirrors), wanted);
        for (more, rest) in [("", "no other fields"), ("leave_out = true\n", "other fields left out")] {
            let config = load(&format!("{GOOD}{more}{TOTAL}"));
            assert_eq!(describe(&config.mirrors)[1], format!("mirror orders: key id, columns total (integer), {rest}"));
        }
        assert_eq!(load(GOOD).mirrors[0].columns, None);
    }

    #[test]
    fn every_kind_has_its_word() {
        for kind in ["integer", "double", "decimal", "string", "boolean", "timestamp", "nanoseconds", "bytes", "json"] {
            let config = load(&format!("{GOOD}[[mirrors.columns]]\nname = \"a\"\nkind = \"{kind}\"\n"));
            assert_eq!(word(config.mirrors[0].columns.as_ref().unwrap().fields[0].kind), kind);
        }
    }

    #[test]
    fn the_example_of_the_manual_is_in_order() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/configuration.md");
        let text = fs::read_to_string(path).unwrap();
        let example = text.split("### Columns").nth(1).and_then(|text| text.split("```").nth(1)).unwrap();
        let example = example.strip_prefix("toml").unwrap().replace("address_file = ", "address = \"user=shop\" # ");
        let wanted = "mirror orders: key number, columns customer (string as varchar(40)), city (string of address.city), \
                      total (decimal of scale 2), placed_at (timestamp of placed), other fields in more";
        assert_eq!(describe(&load(&example).mirrors)[1], wanted);
    }

    #[test]
    fn what_is_wrong_with_columns_is_said_with_mirror_and_column() {
        let column = |keys: &str| format!("{GOOD}[[mirrors.columns]]\n{keys}");
        let named = |keys: &str| column(&format!("name = \"a\"\n{keys}"));
        let of = |name: &str| format!("[[mirrors.columns]]\nname = \"{name}\"\nkind = \"json\"\n");
        for (text, wanted) in [
            (
                named("kind = \"uuid\"\n"),
                ", line 8: mirrors.columns.kind: it cannot be `uuid`; there are `integer`, `double`,",
            ),
            (
                named("sort = \"a\"\n"),
                ", line 8: mirrors.columns.sort: there is no key `sort`; there are `name`, `field`,",
            ),
            (column("kind = \"json\"\n"), "mirrors.orders.columns[1].name: this is missing; name the column"),
            (named(""), "mirrors.orders.columns.a.kind: this is missing; say what the column has, such as \"string\""),
            (
                named("kind = \"json\"\nscale = 2\n"),
                "mirrors.orders.columns.a.scale: this is for decimals; the kind is",
            ),
            (
                named("kind = \"decimal\"\nscale = 39\n"),
                "mirrors.orders.columns.a.scale: 39 is out of range; choose a number from 0 to 38",
            ),
            (
                named("kind = \"json\"\nfield = \"a..b\"\n"),
                "mirrors.orders.columns.a.field: `a..b` is no path: a name is",
            ),
            (named("kind = \"json\"\nfield = \"\"\n"), "mirrors.orders.columns.a.field: `` is no path: a name is"),
            (
                named("kind = \"json\"\nfield = \"a[*]\"\n"),
                "mirrors.orders.columns: the column a: a[*] goes to every item of a list; have the list as json",
            ),
            (
                named("kind = \"json\"\ntype = \"text; DROP TABLE a\"\n"),
                "mirrors.orders.columns: the column a: `text; DROP TABLE a` is no type of SQL",
            ),
            (format!("{GOOD}{}{}", of("a"), of("A")), "mirrors.orders.columns: two columns have the name A,"),
            (format!("{GOOD}{}", of("id")), "mirrors.orders.columns: two columns have the name id,"),
            (format!("{GOOD}key = \"a\"\n{}", of("a")), "mirrors.orders.columns: two columns have the name a,"),
            (format!("{GOOD}rest = \"a\"\n{}", of("a")), "mirrors.orders.columns: two columns have the name a,"),
            (format!("{GOOD}rest = \"id\"\n{}", of("a")), "mirrors.orders.columns: two columns have the name id,"),
            (format!("{GOOD}key = \"\"\n{}", of("a")), "mirrors.orders.columns: a column needs a name"),
            (
                format!("{GOOD}{}{}field = \"a.b\"\n", of("a"), of("b")),
                "mirrors.orders.columns: the field a.b lies within a, which has a column too",
            ),
            (format!("{GOOD}rest = \"more\"\n"), "mirrors.orders.rest: this is for a table with columns; name them:"),
            (format!("{GOOD}key = \"id\"\n"), "mirrors.orders.key: this is for a table with columns; name them:"),
            (
                format!("{GOOD}leave_out = true\n"),
                "mirrors.orders.leave_out: this is for a table with columns; name them:",
            ),
            (
                format!("{GOOD}leave_out = true\nrest = \"more\"\n{TOTAL}"),
                "mirrors.orders.leave_out: there is a column for the rest; keep one of them",
            ),
            (
                format!("{GOOD}leave_out = true\nload = true\n{TOTAL}"),
                "mirrors.orders.leave_out: with load or read_through entries would come back without what was left out",
            ),
            (
                format!("{GOOD}leave_out = true\nread_through = true\n{TOTAL}"),
                "mirrors.orders.leave_out: with load or read_through entries would come back without what was left out",
            ),
            (format!("{GOOD}columns = 5\n"), ", line 6: mirrors.columns: this must be a list in [ ], not a number"),
        ] {
            let found = error(&text);
            let found = found.trim_start_matches("holdfast.toml").trim_start_matches([':', ' ']);
            assert!(found.starts_with(wanted), "{found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }
}
