//! Continuous queries as text again, in the form that InfluxDB shows them in: names qualified, quoted where they must be.
//!
//! The text means what was said: it is kept and parsed again whenever the query runs.
//!
//! May use: `ast`. Must not know: what there is in a database.

use std::fmt::Write;

use regex::Regex;

use super::ast::{
    Call, Cast, Continuous, Dimension, Expr, Field, Fill, From, Measurement, Operand, Operator, Order, Pattern, Select,
    Star,
};
use crate::value::Kind;

/// Units of time, the longest first.
const UNITS: [(i64, &str); 8] = [
    (604_800_000_000_000, "w"),
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "u"),
    (1, "ns"),
];

/// Words of InfluxDB's language, which are no names unless they are quoted.
const WORDS: &str = " ALL ALTER ANALYZE AND ANY AS ASC BEGIN BY CARDINALITY CREATE CONTINUOUS DATABASE DATABASES DEFAULT DELETE DESC \
    DESTINATIONS DIAGNOSTICS DISTINCT DROP DURATION END EVERY EXACT EXPLAIN FALSE FIELD FOR FROM GRANT GRANTS GROUP GROUPS IN INF \
    INSERT INTO KEY KEYS KILL LIMIT MEASUREMENT MEASUREMENTS NAME OFFSET ON OR ORDER PASSWORD POLICY POLICIES PRIVILEGES \
    QUERIES QUERY READ REPLICATION RESAMPLE RETENTION REVOKE SELECT SERIES SET SHARD SHARDS SHOW SLIMIT SOFFSET STATS \
    SUBSCRIPTION SUBSCRIPTIONS TAG TIME TO TRUE USER USERS VALUES WHERE WITH WRITE ";

/// The one retention policy.
pub(super) const POLICY: &str = "autogen";

/// A length of time in the longest unit that it is a multiple of.
pub(crate) fn duration(nanos: i64) -> String {
    let unit = UNITS.iter().find(|(length, _)| nanos % length == 0).filter(|_| nanos != 0);
    unit.map_or_else(|| "0s".to_owned(), |(length, name)| format!("{}{name}", nanos / length))
}

/// A name, in quotes where it needs them.
pub(crate) fn name(name: &str) -> String {
    let is_plain = name
        .bytes()
        .enumerate()
        .all(|(at, byte)| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()));
    if is_plain && !name.is_empty() && !WORDS.contains(&format!(" {} ", name.to_ascii_uppercase())) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn regex(regex: &Regex) -> String {
    format!("/{}/", regex.as_str().replace('/', "\\/"))
}

/// A number as InfluxDB shows it, with three digits behind the point, unless it needs more.
fn float(number: f64) -> String {
    let short = format!("{number:.3}");
    if short.parse() == Ok(number) { short } else { format!("{number:?}") }
}

/// The whole statement.
pub(crate) fn continuous(query: &Continuous) -> String {
    let mut text = format!("CREATE CONTINUOUS QUERY {} ON {} ", name(&query.name), name(&query.database));
    if query.every.is_some() || query.span.is_some() {
        text.push_str("RESAMPLE ");
    }
    for (word, length) in [("EVERY", query.every), ("FOR", query.span)] {
        if let Some(length) = length {
            put(&mut text, format_args!("{word} {} ", duration(length)));
        }
    }
    text.push_str("BEGIN ");
    select(&query.select, &mut text);
    text.push_str(" END");
    text
}

fn put(to: &mut String, what: std::fmt::Arguments<'_>) {
    to.write_fmt(what).expect("memory takes what is written");
}

fn list<T>(to: &mut String, all: &[T], mut one: impl FnMut(&T, &mut String)) {
    for (at, item) in all.iter().enumerate() {
        to.push_str(if at == 0 { "" } else { ", " });
        one(item, to);
    }
}

fn select(of: &Select, to: &mut String) {
    to.push_str("SELECT ");
    list(to, &of.fields, field);
    if let Some(target) = &of.into {
        let database =
            target.database.as_deref().map_or_else(String::new, |database| format!("{}.{POLICY}.", name(database)));
        let target = target.name.as_deref().map_or_else(|| ":MEASUREMENT".to_owned(), name);
        put(to, format_args!(" INTO {database}{target}"));
    }
    to.push_str(" FROM ");
    list(to, &of.from, |from, to| match from {
        From::Measurement(of) => measurement(of, to),
        From::Select(inner) => {
            to.push('(');
            select(inner, to);
            to.push(')');
        }
    });
    if let Some(condition) = &of.condition {
        to.push_str(" WHERE ");
        expr(condition, 0, to);
    }
    group(of, to);
    match of.fill {
        Fill::Null => {}
        Fill::None => to.push_str(" fill(none)"),
        Fill::Previous => to.push_str(" fill(previous)"),
        Fill::Linear => to.push_str(" fill(linear)"),
        Fill::Number(number) => put(to, format_args!(" fill({number})")),
    }
    if of.order == Order::Descending {
        to.push_str(" ORDER BY time DESC");
    }
    let page = of.page;
    for (word, count) in
        [("LIMIT", page.limit), ("OFFSET", page.offset), ("SLIMIT", page.series_limit), ("SOFFSET", page.series_offset)]
    {
        if count > 0 {
            put(to, format_args!(" {word} {count}"));
        }
    }
    if let Some(zone) = of.zone.as_ref().and_then(|zone| zone.iana_name()) {
        put(to, format_args!(" TZ('{zone}')"));
    }
}

fn field(field: &Field, to: &mut String) {
    expr(&field.expr, 0, to);
    if let Some(alias) = &field.alias {
        put(to, format_args!(" AS {}", name(alias)));
    }
}

fn measurement(of: &Measurement, to: &mut String) {
    if let Some(database) = &of.database {
        put(to, format_args!("{}.{POLICY}.", name(database)));
    }
    match &of.name {
        Pattern::Is(of) => to.push_str(&name(of)),
        Pattern::Regex(of) => to.push_str(&regex(of)),
    }
}

fn group(of: &Select, to: &mut String) {
    let mut word = " GROUP BY ";
    if let Some(every) = &of.every {
        put(to, format_args!("{word}time({}", duration(every.length)));
        if let Some(offset) = &every.offset {
            to.push_str(", ");
            expr(offset, 0, to);
        }
        to.push(')');
        word = ", ";
    }
    for dimension in &of.dimensions {
        to.push_str(word);
        word = ", ";
        match dimension {
            Dimension::Tag(tag) => to.push_str(&name(tag)),
            Dimension::All => to.push('*'),
            Dimension::Regex(of) => to.push_str(&regex(of)),
        }
    }
}

/// How close an operator binds, and what it looks like.
fn sign(operator: Operator) -> (u8, &'static str) {
    match operator {
        Operator::Add => (4, "+"),
        Operator::Subtract => (4, "-"),
        Operator::Or => (4, "|"),
        Operator::Xor => (4, "^"),
        Operator::Multiply => (5, "*"),
        Operator::Divide => (5, "/"),
        Operator::Modulo => (5, "%"),
        Operator::And => (5, "&"),
        Operator::Equal => (3, "="),
        Operator::NotEqual => (3, "!="),
        Operator::Less => (3, "<"),
        Operator::LessEqual => (3, "<="),
        Operator::Greater => (3, ">"),
        Operator::GreaterEqual => (3, ">="),
        Operator::Match => (3, "=~"),
        Operator::NotMatch => (3, "!~"),
    }
}

/// An expression in a place where operators that bind less than `level` stand in parentheses.
fn expr(of: &Expr, level: u8, to: &mut String) {
    let (own, parts, word) = match of {
        Expr::Any(parts) => (1, parts, " OR "),
        Expr::All(parts) => (2, parts, " AND "),
        Expr::Binary(binary) => {
            let (own, sign) = sign(binary.operator);
            return within(own < level, to, |to| {
                expr(&binary.left, own, to);
                put(to, format_args!(" {sign} "));
                expr(&binary.right, own + 1, to);
            });
        }
        single => return operand(single, to),
    };
    within(own < level, to, |to| {
        for (at, part) in parts.iter().enumerate() {
            to.push_str(if at == 0 { "" } else { word });
            expr(part, own + 1, to);
        }
    });
}

fn within(needs_parentheses: bool, to: &mut String, print: impl FnOnce(&mut String)) {
    to.push_str(if needs_parentheses { "(" } else { "" });
    print(to);
    to.push_str(if needs_parentheses { ")" } else { "" });
}

fn operand(of: &Expr, to: &mut String) {
    match of {
        Expr::Float(number) => to.push_str(&float(*number)),
        Expr::Integer(number) => put(to, format_args!("{number}")),
        Expr::Unsigned(number) => put(to, format_args!("{number}")),
        Expr::Text(text) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            put(to, format_args!("'{text}'"));
        }
        Expr::Boolean(is_so) => put(to, format_args!("{is_so}")),
        Expr::Duration(nanos) => to.push_str(&duration(*nanos)),
        Expr::Regex(of) => to.push_str(&regex(of)),
        Expr::Star(star) => to.push_str(match star {
            Star::All => "*",
            Star::Fields => "*::field",
            Star::Tags => "*::tag",
        }),
        Expr::Name(of) if of == "time" => to.push_str(of),
        Expr::Name(of) => to.push_str(&name(of)),
        Expr::Cast(Operand { name: of, cast }) => {
            put(to, format_args!("{}{}", name(of), cast.map_or("", suffix)));
        }
        Expr::Call(Call { name: of, arguments }) => {
            put(to, format_args!("{of}("));
            list(to, arguments, |argument, to| expr(argument, 0, to));
            to.push(')');
        }
        Expr::Binary(_) | Expr::All(_) | Expr::Any(_) => expr(of, 0, to),
    }
}

fn suffix(cast: Cast) -> &'static str {
    match cast {
        Cast::Field => "::field",
        Cast::Tag => "::tag",
        Cast::To(Kind::Float) => "::float",
        Cast::To(Kind::Integer) => "::integer",
        Cast::To(Kind::Unsigned) => "::unsigned",
        Cast::To(Kind::Text) => "::string",
        Cast::To(Kind::Boolean) => "::boolean",
    }
}
