//! What texts mean, and which are refused and why.
//!
//! May use: everything of the crate. Must not know: nothing.

use proptest::prelude::*;

use super::*;
use crate::document::Document;
use crate::error::Error;
use crate::predicate::Operator;
use crate::value::{Decimal, Value};

fn compare(path: &str, operator: Operator, value: impl Into<Value>) -> Predicate {
    Predicate::Compare { path: Path::parse(path).unwrap(), operator, operand: Operand::from(&value.into()) }
}

#[test]
fn literals_are_what_they_look_like() {
    let decimal = |mantissa, scale| Value::Decimal(Decimal { mantissa, scale });
    let table: Vec<(&str, Value)> = vec![
        ("1", 1.into()),
        ("-1", (-1).into()),
        ("+1", 1.into()),
        ("(1)", 1.into()),
        ("-9223372036854775808", i64::MIN.into()),
        ("18446744073709551615", u64::MAX.into()),
        ("18446744073709551616", decimal(1 << 64, 0)),
        ("12.50", decimal(1250, 2)),
        ("-.5", decimal(-5, 1)),
        ("1e3", 1000.0.into()),
        ("1.5E-3", 0.0015.into()),
        ("'it''s \\'", "it's \\".into()),
        ("TRUE", true.into()),
        ("NULL", Value::Null),
        ("TIMESTAMP '2026-01-01T00:00:00Z'", Value::Timestamp(1_767_225_600_000_000_000)),
        ("X'00fF'", Value::Bytes(vec![0, 255])),
        ("x''", Value::Bytes(vec![])),
    ];
    for (text, value) in table {
        let query = Query::parse(&format!("a = {text}")).unwrap();
        assert_eq!(query.predicate, compare("a", Operator::Equal, value), "{text}");
    }
}

#[test]
fn conditions_match_what_they_say() {
    let document = Document::from_pairs([
        ("name", Value::from("Ada")),
        ("price", Value::Decimal(Decimal { mantissa: 1250, scale: 2 })),
        ("tags", vec!["x", "y"].into()),
        ("active", true.into()),
        ("order", 3.into()),
        ("a b", 1.into()),
        ("lines", Value::List(vec![Value::Map([("sku".to_owned(), "s1".into())].into())])),
        ("user", "u".into()),
        ("at", Value::Timestamp(1_767_225_600_000_000_000)),
    ]);
    let table = [
        ("WHERE price > 12", true),
        ("price > 12 AND price < 12.6", true),
        ("12 < price", true),
        ("price BETWEEN 12.5 AND 13", true),
        ("price NOT BETWEEN 12.5 AND 13", false),
        ("name LIKE 'A%'", true),
        ("name NOT LIKE 'A%'", false),
        ("name LIKE 'A!%' ESCAPE '!'", false),
        ("name RLIKE '^A.a$'", true),
        ("name REGEXP 'z'", false),
        ("name NOT REGEXP 'z'", true),
        ("name IN ('Bob', 'Ada')", true),
        ("name NOT IN ('Bob', NULL)", false),
        ("tags[*] = 'y'", true),
        ("tags [ * ] = 'z'", false),
        ("lines[*].sku = 's1'", true),
        ("lines[*].\"sku\" IN ('s2')", false),
        ("missing IS NULL", true),
        ("price IS NOT NULL", true),
        ("active", true),
        ("NOT active", false),
        ("active = TRUE AND NOT (price < 5 OR name = 'Bob')", true),
        ("name = 'Bob' OR price = 12.5 AND active", true),
        ("(name = 'Bob' OR price = 12.5) AND active = false", false),
        ("\"order\" = 3 and `a b` = 1", true),
        ("user = 'u'", true),
        ("interval IS NULL AND date.order IS NULL AND group.by IS NULL", true),
        ("1 = 1", true),
        ("1 > 1.5", false),
        ("FALSE OR name = 'Ada' -- a comment", true),
        ("name != 'Ada'", false),
        ("at >= TIMESTAMP '2026-01-01 00:00:00'", true),
        ("name = 'Ada';", true),
    ];
    for (text, expected) in table {
        assert_eq!(Query::parse(text).unwrap().predicate.matches(document.fields()), expected, "{text}");
    }
}

#[test]
fn a_select_says_all_that_is_wanted() {
    let query = Query::parse(
        "EXPLAIN SELECT city, count(*) AS n, avg(a.price), max(tags[*]) FROM shop.Order WHERE a.price > ? GROUP BY city \
         HAVING count(*) > ? AND min(age) < 5 ORDER BY n DESC, city NULLS LAST LIMIT ? OFFSET 5",
    )
    .unwrap();
    assert!(query.explain && query.is_grouped());
    assert_eq!(query.type_name.as_deref(), Some("shop.Order"));
    assert_eq!(query.parameters, 3);
    assert_eq!((query.limit, query.offset), (Some(Amount::Parameter(2)), Some(Amount::Number(5))));
    let Projection::Outputs(outputs) = &query.projection else { panic!("outputs") };
    let names: Vec<_> = outputs.iter().map(|output| (output.name.as_str(), output.shown)).collect();
    let expected = [
        ("city", Shown::Yes),
        ("n", Shown::Yes),
        ("avg(a.price)", Shown::Yes),
        ("max(tags[*])", Shown::Yes),
        ("min(age)", Shown::No),
    ];
    assert_eq!(names, expected);
    let order: Vec<_> = query.order.iter().map(|key| (key.path.to_string(), key.direction, key.nulls)).collect();
    let expected =
        [("n".to_owned(), Direction::Descending, Nulls::Last), ("city".to_owned(), Direction::Ascending, Nulls::Last)];
    assert_eq!(order, expected);
    let bound = query.bind(&[1.into(), 2.into(), 10.into()]).unwrap();
    assert_eq!((bound.window(), bound.reach()), ((Some(10), 5), Some(15)));
    assert_eq!(
        bound.having,
        Some(Predicate::And(vec![compare("n", Operator::Greater, 2), compare("\"min(age)\"", Operator::Less, 5)]))
    );
    for wrong in [vec![], vec![1.into(), 2.into(), Value::from(-1)], vec![1.into(), 2.into(), "3".into()]] {
        assert!(query.bind(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_condition_may_have_the_clauses_behind_it() {
    let query = Query::parse("price > $2 AND tags[*] = $1 ORDER BY price DESC LIMIT 10").unwrap();
    assert_eq!((query.type_name.as_deref(), query.parameters), (None, 2));
    assert_eq!(query.projection, Projection::All);
    assert_eq!(query.order.len(), 1);
    assert_eq!(query.limit, Some(Amount::Number(10)));
    for text in ["ORDER BY a", "LIMIT 3", "WHERE a = 1", "EXPLAIN a = 1", ";"] {
        assert!(Query::parse(text).is_ok(), "{text}");
    }
    let distinct = Query::parse("SELECT DISTINCT a, b.c FROM t").unwrap();
    assert_eq!(distinct.group_by, [Path::field("a"), Path::parse("b.c").unwrap()]);
}

#[test]
fn what_is_not_ours_is_refused_by_name() {
    let table = [
        ("SELECT * FROM a JOIN b ON a.x = b.x", "JOIN"),
        ("SELECT * FROM a, b", "more than one type"),
        ("SELECT * FROM (SELECT * FROM a)", "subquery"),
        ("SELECT * FROM a AS b", "another name"),
        ("SELECT * FROM a UNION SELECT * FROM b", "UNION"),
        ("WITH x AS (SELECT * FROM a) SELECT * FROM x", "subquery"),
        ("SELECT *", "FROM is missing"),
        ("SELECT *, a FROM t", "`*`"),
        ("SELECT a, a FROM t", "called a"),
        ("SELECT upper(a) FROM t", "function upper"),
        ("SELECT a + 1 FROM t", "operator +"),
        ("SELECT sum(distinct a) FROM t", "function sum"),
        ("SELECT sum(*) FROM t", "function sum"),
        ("SELECT count(*) OVER () FROM t", "function OVER"),
        ("SELECT a, count(*) FROM t", "GROUP BY"),
        ("SELECT * FROM t GROUP BY a", "GROUP BY"),
        ("SELECT tags[*] FROM t GROUP BY tags[*]", "without [*]"),
        ("SELECT a FROM t HAVING a > 1", "HAVING"),
        ("SELECT count(*) FROM t HAVING b > 1", "GROUP BY"),
        ("SELECT * FROM t LIMIT -1", "LIMIT"),
        ("SELECT * FROM t LIMIT a", "LIMIT"),
        ("SELECT * FROM t FOR UPDATE", "UPDATE"),
        ("SELECT * FROM t FETCH FIRST 5 ROWS ONLY", "FIRST"),
        ("SELECT DISTINCT * FROM t", "DISTINCT"),
        ("SELECT TOP 5 * FROM t", "5"),
        ("ORDER BY tags[*]", "without [*]"),
        ("ORDER BY 1", "`1`"),
        ("a = b", "literal or a parameter"),
        ("a + 1 > 2", "operator +"),
        ("a = upper('x')", "upper"),
        ("upper(a) = 'X'", "upper"),
        ("a IN (SELECT b FROM c)", "subquery"),
        ("EXISTS (SELECT 1)", "function EXISTS"),
        ("a LIKE 5", "string"),
        ("a LIKE 'x' ESCAPE 'ab'", "ESCAPE"),
        ("a RLIKE '('", "RLIKE"),
        ("a ILIKE 'x'", "ILIKE"),
        ("tags[0] = 1", "[*]"),
        ("tags[* = 1", "[*]"),
        ("a = TIMESTAMP 'today'", "today"),
        ("a = X'0'", "X'0'"),
        ("a = X'é'", "X'é'"),
        ("a = 1e999", "1e999"),
        ("a = 'x", "Unterminated"),
        ("a = ? AND b = $2", "parameters"),
        ("a = $0", "$0"),
        ("a = $x", "$x"),
        ("a = 1 b", "b"),
        ("a = 1; a = 2", "not expected"),
        ("a::int = 1", "`::`"),
        ("{d '2026-01-01'} = a", "`{`"),
        ("a || 'x' = 'y'", "`||`"),
        ("CASE WHEN a THEN b END", "WHEN"),
        ("CAST(a AS INT) = 1", "function CAST"),
        ("DELETE FROM t", "FROM"),
        ("a =", "Expected"),
        ("SELECT a FROM t WHERE", "Expected"),
    ];
    let surprises: Vec<_> = table
        .iter()
        .filter_map(|(text, word)| match Query::parse(text) {
            Ok(query) => Some(format!("{text} is {query:?}")),
            Err(error) if error.to_string().contains(word) => None,
            Err(error) => Some(format!("{text}: {error}")),
        })
        .collect();
    assert!(surprises.is_empty(), "{surprises:#?}");
}

#[test]
fn what_is_too_large_is_refused_and_harms_nothing() {
    let long = vec!["a = 1"; 900].join(" AND ");
    let query = Query::parse(&long).unwrap();
    assert!(matches!(query.predicate, Predicate::And(parts) if parts.len() == 900));
    let many = format!("a IN ({})", vec!["1234567"; 60_000].join(","));
    assert!(Query::parse(&many).is_ok());
    let too_large = [
        vec!["a = 1"; 5_000].join(" AND "),
        vec!["a RLIKE 'b'"; 65].join(" OR "),
        vec!["a RLIKE $1"; 65].join(" OR "),
        "a".repeat(token::TEXT_BYTES_MAX + 1),
        "a IS NULL ".to_owned() + &"IS NULL ".repeat(3_000),
        "a".to_owned() + &" + 1".repeat(3_990),
        "a".to_owned() + &"::int".repeat(1_990),
        "a".to_owned() + &" IS NULL".repeat(1_990),
        "(a".to_owned() + &" AND a".repeat(1_990) + ") IS NULL",
        "SELECT 1".to_owned() + &" UNION SELECT 1".repeat(1_990),
        "SELECT a".to_owned() + &" + 1".repeat(3_990) + " FROM t",
        "NOT ".repeat(1_000) + "a",
        "(".repeat(3_000),
        "(".repeat(1_000) + "a" + &")".repeat(1_000),
        "CAST(".repeat(100) + "a",
        "CASE WHEN ".repeat(100) + "a",
        "count(".repeat(100) + "a",
        "a IN (".repeat(100) + "a",
        "a = ".to_owned() + &"- ".repeat(3_000) + "1",
        vec!["a"; DEPTH + 1].join(".") + " = 1",
        "a".to_owned() + &"[*]".repeat(1_300) + " = 1",
    ];
    for text in too_large {
        let error = Query::parse(&text).unwrap_err();
        assert!(matches!(error, Error::Limit { .. } | Error::Invalid { .. }), "{error}");
    }
}

/// They were said to be not expected where they were.
#[test]
fn nots_and_parentheses_may_lie_within_each_other_and_too_many_are_told_so() {
    for word in ["NOT ", "("] {
        let within =
            |times: usize| word.repeat(times) + "a = 1" + &if word == "(" { ")".repeat(times) } else { String::new() };
        assert!(Query::parse(&within(20)).is_ok());
        for times in [30, 100, 900] {
            let error = Query::parse(&within(times)).unwrap_err().to_string();
            assert!(error.contains("too many parentheses or NOT within each other"), "{error}");
        }
    }
    for nothing in ["", "  ", "-- all of them", "/* */"] {
        assert!(Query::parse(nothing).unwrap_err().to_string().contains("without a word"), "{nothing}");
    }
    assert!(Query::parse("a NOT").unwrap_err().to_string().contains("`NOT` was not expected"));
}

const DEPTH: usize = crate::value::DEPTH_MAX;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_words_are_a_query_or_refused(words in proptest::collection::vec(proptest::sample::select(vec![
        "SELECT", "*", "FROM", "t", "WHERE", "a", "b.c", "tags[*]", "=", "<>", "<", ">=", "LIKE", "RLIKE", "IN", "(", ")", ",",
        "BETWEEN", "AND", "OR", "NOT", "IS", "NULL", "TRUE", "1", "'x'", "2.5", "?", "$1", "GROUP", "ORDER", "BY", "HAVING",
        "LIMIT", "OFFSET", "count(*)", "sum(a)", "AS", "DISTINCT", "TIMESTAMP", "X'00'", "EXPLAIN", "-", "[", "]", ";", "CASE",
        "DESC", "user", "INTERVAL", "CAST", "::", "ARRAY", "{", "}", "FILTER", "OVER", "\"q\"", "é", "\\", "@", "#", "ESCAPE",
    ]), 0..14)) {
        let text = words.join(" ");
        if let Ok(query) = Query::parse(&text) {
            let _ = query.predicate.matches(Document::from_pairs([("a", Value::from(1))]).fields());
        }
    }

    #[test]
    fn any_text_is_a_query_or_refused(text: String) {
        let _ = Query::parse(&text);
    }
}
