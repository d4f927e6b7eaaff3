//! Every kind there and back, and whole documents.

use proptest::prelude::*;

use super::*;
use Dialect::{MariaDb, Postgres};
use holdfast::space::Decimal;

const BOTH: [Dialect; 2] = [Postgres, MariaDb];
const DECIMAL: ColumnKind = ColumnKind::Decimal { scale: None };
const CENTS: ColumnKind = ColumnKind::Decimal { scale: Some(2) };

fn decimal(text: &str) -> Value {
    Value::Decimal(Decimal::parse(text).unwrap())
}

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Map(pairs.map(|(name, value)| (name.to_owned(), value)).into())
}

/// In stored form NaN are equal, and 0.0 and -0.0 are not.
fn assert_same(found: Option<Value>, wanted: &Value, of: &str) {
    assert_eq!(found.map(|value| value.stored()), Some(wanted.stored()), "{of}");
}

#[test]
fn values_are_text_in_the_form_of_each_database_and_come_back() {
    let largest = i128::MAX.to_string();
    let table: Vec<(ColumnKind, Value, &str, &str)> = vec![
        (ColumnKind::Integer, i64::MIN.into(), "-9223372036854775808", "-9223372036854775808"),
        (ColumnKind::Integer, i64::MAX.into(), "9223372036854775807", "9223372036854775807"),
        (ColumnKind::Integer, u64::MAX.into(), "18446744073709551615", "18446744073709551615"),
        (ColumnKind::Double, (-0.0).into(), "-0.0", "-0.0"),
        (ColumnKind::Double, 0.1.into(), "0.1", "0.1"),
        (ColumnKind::Double, 5e-324.into(), "5e-324", "5e-324"),
        (ColumnKind::Double, f64::MAX.into(), "1.7976931348623157e308", "1.7976931348623157e308"),
        (DECIMAL, decimal("-12.05"), "-12.05", "-12.05"),
        (DECIMAL, decimal(&largest), &largest, &largest),
        (
            DECIMAL,
            decimal("0.00000000000000000000000001"),
            "0.00000000000000000000000001",
            "0.00000000000000000000000001",
        ),
        (CENTS, decimal("12.50"), "12.50", "12.50"),
        (CENTS, decimal("-0.01"), "-0.01", "-0.01"),
        (ColumnKind::String, "".into(), "", ""),
        (ColumnKind::String, "O'Hara \\ \"é\" 𝄞\n".into(), "O'Hara \\ \"é\" 𝄞\n", "O'Hara \\ \"é\" 𝄞\n"),
        (ColumnKind::Boolean, true.into(), "1", "1"),
        (ColumnKind::Boolean, false.into(), "0", "0"),
        (ColumnKind::Timestamp, Value::Timestamp(-1000), "1969-12-31T23:59:59.999999Z", "1969-12-31 23:59:59.999999"),
        (ColumnKind::Timestamp, Value::Timestamp(0), "1970-01-01T00:00:00Z", "1970-01-01 00:00:00"),
        (ColumnKind::Nanoseconds, Value::Timestamp(i64::MIN), "-9223372036854775808", "-9223372036854775808"),
        (ColumnKind::Nanoseconds, Value::Timestamp(1), "1", "1"),
        (ColumnKind::Bytes, Value::Bytes(vec![0, 255]), "\\x00ff", "00ff"),
        (ColumnKind::Bytes, Value::Bytes(vec![]), "\\x", ""),
        (ColumnKind::Json, vec![1, 2].into(), "[1,2]", "[1,2]"),
        (ColumnKind::Json, map([("$bytes", "x".into())]), r#"{"$$bytes":"x"}"#, r#"{"$$bytes":"x"}"#),
        (ColumnKind::Json, decimal("1.50"), r#"{"$decimal":"1.50"}"#, r#"{"$decimal":"1.50"}"#),
        (ColumnKind::Json, "x".into(), "\"x\"", "\"x\""),
    ];
    for (kind, value, postgres, mariadb) in table {
        for (dialect, text) in [(Postgres, postgres), (MariaDb, mariadb)] {
            assert_eq!(kind.to_text(&value, dialect).as_deref(), Ok(text), "{kind:?} {value:?}");
            assert_same(kind.to_value(text, dialect), &value, text);
        }
    }
    for (number, text) in [(f64::NAN, "NaN"), (f64::INFINITY, "Infinity"), (f64::NEG_INFINITY, "-Infinity")] {
        assert_eq!(ColumnKind::Double.to_text(&number.into(), Postgres).as_deref(), Ok(text));
        assert_same(ColumnKind::Double.to_value(text, Postgres), &number.into(), text);
    }
}

#[test]
fn what_has_another_form_in_its_column_comes_back_in_that() {
    let table: Vec<(ColumnKind, Value, Value, Value)> = vec![
        (ColumnKind::Double, 5.into(), 5.0.into(), 5.0.into()),
        (ColumnKind::Double, (1_i64 << 62).into(), (2.0_f64).powi(62).into(), (2.0_f64).powi(62).into()),
        (DECIMAL, 7.into(), decimal("7"), decimal("7")),
        (DECIMAL, decimal("12.500"), decimal("12.500"), decimal("12.5")),
        (DECIMAL, decimal("100.0"), decimal("100.0"), decimal("100")),
        (CENTS, 7.into(), decimal("7.00"), decimal("7.00")),
        (CENTS, decimal("12.5000"), decimal("12.50"), decimal("12.50")),
    ];
    for (kind, value, postgres, mariadb) in table {
        for (dialect, wanted) in [(Postgres, postgres), (MariaDb, mariadb)] {
            let text = kind.to_text(&value, dialect).unwrap();
            assert_same(kind.to_value(&text, dialect), &wanted, &text);
        }
    }
    // As the databases write what they were given.
    for (kind, text, dialect, wanted) in [
        (ColumnKind::Boolean, "true", Postgres, true.into()),
        (ColumnKind::Boolean, "f", Postgres, false.into()),
        (ColumnKind::Double, "-0", Postgres, (-0.0).into()),
        (ColumnKind::Double, "1e+300", Postgres, 1e300.into()),
        (ColumnKind::Timestamp, "1969-12-31 23:59:59.9+00", Postgres, Value::Timestamp(-100_000_000)),
        (ColumnKind::Timestamp, "1969-12-31 23:59:59.9", Postgres, Value::Timestamp(-100_000_000)),
        (ColumnKind::Timestamp, "1970-01-01 00:00:01.000000", MariaDb, Value::Timestamp(1_000_000_000)),
        (DECIMAL, "12.50000000000000000000000000", MariaDb, decimal("12.5")),
        (CENTS, "12.5000", MariaDb, decimal("12.50")),
        (ColumnKind::Bytes, "00FF", MariaDb, Value::Bytes(vec![0, 255])),
        (ColumnKind::Json, "null", Postgres, Value::Null),
    ] {
        assert_same(kind.to_value(text, dialect), &wanted, text);
    }
}

#[test]
fn what_a_column_cannot_have_is_refused_in_words() {
    for (kind, value, why) in [
        (ColumnKind::Integer, 1.0.into(), "is a floating-point number"),
        (ColumnKind::Integer, decimal("1"), "is a decimal"),
        (ColumnKind::Integer, "1".into(), "is a string"),
        (ColumnKind::Integer, true.into(), "is a boolean"),
        (ColumnKind::Double, i64::MAX.into(), "is an integer that no double is"),
        (ColumnKind::Double, ((1_i64 << 53) + 1).into(), "is an integer that no double is"),
        (ColumnKind::Double, u64::MAX.into(), "is an integer that no double is"),
        (ColumnKind::Double, decimal("1"), "is a decimal"),
        (DECIMAL, 1.0.into(), "is a floating-point number"),
        (CENTS, decimal("0.001"), "has too many digits"),
        // It has one digit more with its two zeros than comes back.
        (CENTS, decimal(&i128::MAX.to_string()), "has too many digits"),
        (ColumnKind::String, 1.into(), "is an integer"),
        (ColumnKind::Boolean, 1.into(), "is an integer"),
        (ColumnKind::Timestamp, Value::Timestamp(1), "is finer than a microsecond"),
        (ColumnKind::Timestamp, Value::Timestamp(i64::MIN), "is finer than a microsecond"),
        (ColumnKind::Timestamp, "1970-01-01".into(), "is a string"),
        (ColumnKind::Nanoseconds, 1.into(), "is an integer"),
        (ColumnKind::Bytes, "x".into(), "is a string"),
        (ColumnKind::Bytes, Value::List(vec![]), "is a list"),
        (ColumnKind::String, map([]), "is a map"),
    ] {
        for dialect in BOTH {
            assert_eq!(kind.to_text(&value, dialect), Err(why.to_owned()), "{kind:?} {value:?}");
        }
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = ColumnKind::Double.to_text(&number.into(), MariaDb);
        assert_eq!(refused, Err("is not finite, as numbers are in MariaDB".to_owned()));
    }
    let small = decimal("0.000000000000000000000000001");
    assert_eq!(DECIMAL.to_text(&small, MariaDb), Err("has too many digits".to_owned()));
    assert_same(DECIMAL.to_value(&DECIMAL.to_text(&small, Postgres).unwrap(), Postgres), &small, "PostgreSQL has all");
    for (kind, text) in [
        (ColumnKind::Integer, "1.5"),
        (ColumnKind::Integer, "18446744073709551616"),
        (ColumnKind::Double, "x"),
        (DECIMAL, "NaN"),
        (CENTS, "0.001"),
        (ColumnKind::Boolean, "2"),
        (ColumnKind::Timestamp, "infinity"),
        (ColumnKind::Timestamp, "0044-03-15 00:00:00+00"),
        (ColumnKind::Timestamp, "\"}"),
        (ColumnKind::Nanoseconds, "now"),
        (ColumnKind::Bytes, "\\x0"),
        (ColumnKind::Json, "{"),
    ] {
        for dialect in BOTH {
            assert_eq!(kind.to_value(text, dialect), None, "{kind:?} {text}");
        }
    }
}

/// Columns `total`, `city` of `address.city` and `zip` of `address.zip`.
fn columns(rest: Rest) -> Columns {
    let of = |name: &str, path: &str| FieldColumn::new(name, ColumnKind::String).of(path.parse().unwrap());
    let total = FieldColumn::new("total", ColumnKind::Integer);
    Columns {
        key: "number".to_owned(),
        fields: vec![total, of("city", "address.city"), of("zip", "address.zip")],
        rest,
    }
}

fn table(rest: Rest) -> ColumnTable {
    ColumnTable::of(&Definition::new("shop", "order"), IdKind::Integer, columns(rest)).unwrap()
}

fn in_rest() -> Rest {
    Rest::In("more".to_owned())
}

fn order<const N: usize>(pairs: [(&str, Value); N]) -> Document {
    Document::from_pairs(pairs.into_iter().chain([("id", 7.into())]))
}

fn back(table: &ColumnTable, row: &[Option<String>]) -> Result<Document> {
    table.document("7", &row.iter().map(Option::as_deref).collect::<Vec<_>>())
}

#[test]
fn a_table_has_the_columns_in_their_order_and_the_rest_behind_them() {
    let types = |table: &ColumnTable| -> Vec<(String, String)> {
        table.table().all().map(|column| (column.name.clone(), column.sql_type.clone())).collect()
    };
    let names = |types: [(&str, &str); 5]| types.map(|(name, sql_type)| (name.to_owned(), sql_type.to_owned()));
    let postgres = table(in_rest()).in_table("archive.orders");
    assert_eq!(postgres.table().name, "archive.orders");
    let wanted = [("number", "bigint"), ("total", "bigint"), ("city", "text"), ("zip", "text"), ("more", "json")];
    assert_eq!(types(&postgres), names(wanted));
    let (integer, text) = ("bigint", "longtext CHARACTER SET utf8mb4");
    let wanted = [("number", integer), ("total", integer), ("city", text), ("zip", text), ("more", "json")];
    assert_eq!(types(&postgres.clone().in_mariadb()), names(wanted));
    assert!(!postgres.has_unique_ids() && postgres.with_unique_ids().has_unique_ids());
    let typed =
        FieldColumn { sql_type: Some("numeric(20)".to_owned()), ..FieldColumn::new("total", ColumnKind::Integer) };
    let of_strings = Columns { key: "id".to_owned(), fields: vec![typed], rest: Rest::LeftOut };
    let of_strings =
        ColumnTable::of(&Definition::new("shop", "order"), IdKind::String, of_strings).unwrap().in_mariadb();
    assert_eq!(of_strings.table().columns[0].sql_type, "numeric(20)");
    assert!(of_strings.table().key.sql_type.ends_with("utf8mb4_nopad_bin"));
    assert_eq!(of_strings.key(ValueRef::String("a")).unwrap(), "a");
    assert!(of_strings.key(ValueRef::I64(1)).is_err());
}

#[test]
fn with_a_column_for_the_rest_every_document_comes_back_as_it_was() {
    let table = table(in_rest());
    let rows: [(Document, [Option<&str>; 4]); 9] = [
        (order([]), [None, None, None, None]),
        (order([("total", 1.into())]), [Some("1"), None, None, None]),
        (order([("address", map([("city", "".into())]))]), [None, Some(""), None, None]),
        (
            order([("total", Value::Null), ("address", map([("city", Value::Null), ("zip", "5".into())]))]),
            [None, None, Some("5"), Some(r#"{"address":{"city":null},"total":null}"#)],
        ),
        // The parent is there and empty, null, or no map.
        (order([("address", map([]))]), [None, None, None, Some(r#"{"address":{}}"#)]),
        (order([("address", Value::Null)]), [None, None, None, Some(r#"{"address":null}"#)]),
        (order([("address", "Bonn".into())]), [None, None, None, Some(r#"{"address":"Bonn"}"#)]),
        (
            order([("address", map([("city", "Bonn".into()), ("street", map([]))])), ("note", 1.5.into())]),
            [None, Some("Bonn"), None, Some(r#"{"address":{"street":{}},"note":1.5}"#)],
        ),
        (order([("more", "x".into())]), [None, None, None, Some(r#"{"more":"x"}"#)]),
    ];
    for (document, wanted) in rows {
        let row = table.row(&document).unwrap();
        assert_eq!(row.iter().map(Option::as_deref).collect::<Vec<_>>(), wanted, "{document:?}");
        assert_eq!(back(&table, &row).unwrap(), document);
    }
}

#[test]
fn without_one_other_fields_are_refused_or_left_out_as_was_said() {
    let (strict, loose) = (table(Rest::Refused), table(Rest::LeftOut));
    let whole = order([("total", 1.into()), ("address", map([("city", "Bonn".into()), ("zip", "5".into())]))]);
    for table in [&strict, &loose] {
        let row = table.row(&whole).unwrap();
        assert_eq!(row, [Some("1".to_owned()), Some("Bonn".to_owned()), Some("5".to_owned())]);
        assert_eq!(back(table, &row).unwrap(), whole);
        // Null is as missing.
        let nulls = order([("total", Value::Null), ("address", map([("city", Value::Null), ("zip", Value::Null)]))]);
        assert_eq!(table.row(&nulls).unwrap(), [None, None, None]);
        assert_eq!(back(table, &[None, None, None]).unwrap(), order([]));
    }
    for (document, field) in [
        (
            order([("address", map([("city", "Bonn".into()), ("street", map([("no", 5.into())]))]))]),
            "address.street.no",
        ),
        (order([("address", "Bonn".into())]), "address"),
        (order([("address", map([]))]), "address"),
        (order([("note", Value::Null)]), "note"),
    ] {
        let error = strict.row(&document).unwrap_err();
        let wanted = format!(
            "the entry 7 does not fit its table: its field {field} has no column, and there is none for the rest"
        );
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Invalid, wanted));
        assert!(loose.row(&document).is_ok());
    }
}

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_entry_field_and_column() {
    for table in [table(in_rest()), table(Rest::LeftOut)] {
        let error = table.row(&order([("address", map([("zip", 5.into())]))])).unwrap_err();
        let wanted =
            "the entry 7 does not fit its table: its field address.zip is an integer, and the column zip has strings";
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Invalid, wanted));
    }
}

#[test]
fn rows_that_others_wrote_are_entries_if_they_can_be() {
    let table = table(in_rest());
    let row = |row: [Option<&str>; 4]| table.document("7", &row);
    // What a column has counts over what the rest has of it, and the key over both.
    let merged = row([Some("2"), Some("Bonn"), None, Some(r#"{"total":1,"address":null,"id":8}"#)]).unwrap();
    assert_eq!(merged, order([("total", 2.into()), ("address", map([("city", "Bonn".into())]))]));
    let deep = format!("{{\"address\":{}1{}}}", "[".repeat(32), "]".repeat(32));
    assert!(row([None, None, None, Some(&deep)]).is_ok());
    for (found, why) in [
        (row([Some("x"), None, None, None]), "its column total has something else than integers"),
        (row([None, None, None, Some("[]")]), "its column more: "),
        (
            row([None, Some("Bonn"), None, Some(r#"{"address":"Bonn"}"#)]),
            "of its column city, a part of address.city is no map",
        ),
        (table.document("x", &[None; 4]), "its key is of another kind than ids are"),
    ] {
        let error = found.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
    }
    let json = FieldColumn::new("j", ColumnKind::Json).of("a.b".parse().unwrap());
    let columns = Columns { key: "id".to_owned(), fields: vec![json], rest: Rest::Refused };
    let nested = ColumnTable::of(&Definition::new("shop", "order"), IdKind::Integer, columns).unwrap();
    let error = nested.document("7", &[Some(&format!("{}1{}", "[".repeat(32), "]".repeat(32)))]).unwrap_err();
    assert!(error.to_string().ends_with("the row 7 is no entry: it is too deep"), "{error}");
}

#[test]
fn columns_that_cannot_be_of_one_table_are_refused() {
    let of = |fields: Vec<FieldColumn>, rest: Rest| Columns { key: "id".to_owned(), fields, rest };
    let one = |name: &str| FieldColumn::new(name, ColumnKind::Integer);
    let at = |name: &str, path: &str| one(name).of(path.parse().unwrap());
    let typed = |sql_type: &str| vec![FieldColumn { sql_type: Some(sql_type.to_owned()), ..one("a") }];
    let long = "x".repeat(64);
    for (columns, why) in [
        (of(vec![one("a"), one("A")], Rest::Refused), "two columns have the name A"),
        (of(vec![at("ID", "a")], Rest::Refused), "two columns have the name ID"),
        (of(vec![one("a")], Rest::In("a".to_owned())), "two columns have the name a"),
        (of(vec![one("a")], Rest::In("id".to_owned())), "two columns have the name id"),
        (of(vec![at("", "a")], Rest::Refused), "a column needs a name"),
        (of(vec![], Rest::In(String::new())), "a column needs a name"),
        (of(vec![one("a\n")], Rest::Refused), "is no name of a column"),
        (of(vec![one("a ")], Rest::Refused), "is no name of a column"),
        (of(vec![one(&long)], Rest::Refused), "is too long for a column; it may have 63 bytes"),
        (of(vec![at("a", "x"), at("b", "x")], Rest::Refused), "two columns have the field x"),
        (of(vec![at("a", "x.y"), at("b", "x1"), at("c", "x")], Rest::Refused), "the field x.y lies within x"),
        (of(vec![at("a", "x[*].y")], Rest::Refused), "x[*].y goes to every item of a list"),
        (of(typed("text); DROP TABLE x; --"), Rest::Refused), "is no type of SQL"),
        (of(typed(" "), Rest::Refused), "is no type of SQL"),
        (of(typed("varbinary(16)"), Rest::Refused), "the column a: what is in varbinary(16) is of the kind bytes"),
        (of(typed("BYTEA"), Rest::Refused), "is of the kind bytes"),
        (of(vec![FieldColumn::new("a", ColumnKind::Decimal { scale: Some(39) })], Rest::Refused), "39 digits behind"),
        (of((0..1001).map(|number| one(&format!("c{number}"))).collect(), Rest::Refused), "1001 columns are too many"),
    ] {
        let error = columns.check().unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(why), "{error}");
        assert!(ColumnTable::of(&Definition::new("shop", "order"), IdKind::Integer, columns).is_err());
    }
    let good = of(vec![at("a", "x.y"), at("b", "x.y1"), at("c", "\"x.y\"")], Rest::Refused);
    good.check().unwrap();
    let bytes = FieldColumn::new("a", ColumnKind::Bytes);
    of(vec![FieldColumn { sql_type: Some("varbinary(16)".to_owned()), ..bytes }], Rest::Refused).check().unwrap();
    let of_id = of(vec![at("a", "id.x")], Rest::Refused);
    let error = ColumnTable::of(&Definition::new("shop", "order"), IdKind::Integer, of_id).unwrap_err();
    assert!(error.to_string().contains("the column a is for id, the id, which is the key"), "{error}");
}

const KINDS: [ColumnKind; 10] = [
    ColumnKind::Integer,
    ColumnKind::Double,
    DECIMAL,
    CENTS,
    ColumnKind::String,
    ColumnKind::Boolean,
    ColumnKind::Timestamp,
    ColumnKind::Nanoseconds,
    ColumnKind::Bytes,
    ColumnKind::Json,
];

/// Documents of few names, so that columns are met, missed, and found to be maps or none.
fn documents() -> impl Strategy<Value = BTreeMap<String, Value>> {
    let scalar = prop_oneof![Just(Value::Null), Just(Value::from("x")), any::<i64>().prop_map(Value::I64)];
    let value = scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::btree_map("[abc]", inner.clone(), 0..3).prop_map(Value::Map),
            proptest::collection::vec(inner, 0..2).prop_map(Value::List),
        ]
    });
    proptest::collection::btree_map("[abcd]", value, 0..4)
}

proptest! {
    #[test]
    fn any_document_comes_back_with_its_rest(mut fields in documents()) {
        let column = |(at, path): (usize, &str)| {
            FieldColumn::new(format!("c{at}"), ColumnKind::Json).of(path.parse().unwrap())
        };
        let columns = ["a", "b.a", "b.b.a", "b.b.b", "c.c"].into_iter().enumerate().map(column).collect();
        let columns = Columns { key: "id".to_owned(), fields: columns, rest: in_rest() };
        let table = ColumnTable::of(&Definition::new("shop", "order"), IdKind::Integer, columns).unwrap();
        fields.insert("id".to_owned(), 7.into());
        let document = Document::new(&fields);
        prop_assert_eq!(back(&table, &table.row(&document).unwrap()).unwrap(), document);
    }

    #[test]
    fn any_text_of_a_database_is_a_value_or_refused(text in "[-+0-9a-fxZT:. \"\\\\{}]{0,32}|\\PC{0,8}") {
        for kind in KINDS {
            for dialect in BOTH {
                // A value that is of the kind is that again.
                if let Some(value) = kind.to_value(&text, dialect).filter(|value| *value != Value::Null)
                    && let Ok(text) = kind.to_text(&value, dialect)
                {
                    assert_same(kind.to_value(&text, dialect), &value, &text);
                }
            }
        }
    }
}
