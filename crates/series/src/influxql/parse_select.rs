//! SELECT and the clauses that other statements share with it.
//!
//! May use: `words`, `parse_expr`, `ast`. Must not know: what there is in a database.

use jiff::tz::TimeZone;

use super::ast::{Dimension, Every, Expr, Field, Fill, From, Measurement, Order, Page, Pattern, Select, Target};
use super::lexer::Token;
use super::parse_expr::{cast, expr};
use super::print::POLICY;
use super::words::Words;
use crate::error::{Error, Result};

/// How deep SELECTs stand in SELECTs.
const SELECTS_MAX: usize = 8;

/// Whether a selection says where its rows are written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    /// As it likes.
    May,
    /// It has to.
    Must,
    /// Selections within others cannot.
    Cannot,
}

/// What comes after the word SELECT.
pub(crate) fn select(words: &mut Words<'_>, depth: usize, into: Into) -> Result<Select> {
    if depth > SELECTS_MAX {
        return Err(words.error("subqueries nest too deeply"));
    }
    let mut fields = Vec::new();
    loop {
        let expr = expr(words, 0)?;
        let alias = if words.takes("AS")? { Some(words.name()?) } else { None };
        fields.push(Field { expr, alias });
        if !words.takes_sign(",")? {
            break;
        }
    }
    let into = match into {
        Into::Cannot => None,
        Into::May if !words.takes("INTO")? => None,
        Into::May => Some(target(words)?),
        Into::Must => {
            words.take("INTO")?;
            Some(target(words)?)
        }
    };
    words.take("FROM")?;
    let mut from = Vec::new();
    loop {
        from.push(source(words, depth)?);
        if !words.takes_sign(",")? {
            break;
        }
    }
    let condition = condition(words)?;
    let (every, dimensions) = group(words)?;
    let fill = fill(words)?;
    let order = order(words)?;
    let page = page(words)?;
    let zone = if words.takes("TZ")? { zone(words)? } else { None };
    Ok(Select { fields, into, from, condition, every, dimensions, fill, order, page, zone, within: None })
}

/// `m`, `rp.m`, `db.rp.m`, `db..m`, and `:MEASUREMENT` in the place of m. There is one retention policy.
fn target(words: &mut Words<'_>) -> Result<Target> {
    let mut parts = Vec::new();
    loop {
        if words.takes_sign(":")? {
            words.take("MEASUREMENT")?;
            parts.push(None);
            break;
        }
        if parts.len() == 1 && words.takes_sign(".")? {
            parts.push(Some(String::new()));
            continue;
        }
        parts.push(Some(words.name()?));
        if parts.len() == 3 || !words.takes_sign(".")? {
            break;
        }
    }
    let name = parts.pop().flatten();
    match parts.pop().flatten().as_deref() {
        None | Some("" | POLICY) => Ok(Target { database: parts.pop().flatten(), name }),
        // With all policies in one, means would replace what they are the means of.
        Some(other) => Err(Error::invalid(format!(
            "retention policy not found: {other}: there is {POLICY} alone; name another measurement, or another database as db..m"
        ))),
    }
}

/// The zone in `tz('Area/City')`; `None` for UTC.
fn zone(words: &mut Words<'_>) -> Result<Option<TimeZone>> {
    words.take_sign("(")?;
    let Token::Text(name) = words.next()? else {
        return Err(Error::invalid("error parsing query: expected string argument in tz()"));
    };
    words.take_sign(")")?;
    if matches!(name.as_str(), "" | "UTC") {
        return Ok(None);
    }
    let unknown = |_| Error::invalid(format!("error parsing query: unable to find time zone {name}"));
    TimeZone::get(&name).map(Some).map_err(unknown)
}

fn source(words: &mut Words<'_>, depth: usize) -> Result<From> {
    if words.takes_sign("(")? {
        words.take("SELECT")?;
        let inner = select(words, depth + 1, Into::Cannot)?;
        words.take_sign(")")?;
        return Ok(From::Select(Box::new(inner)));
    }
    measurement(words).map(From::Measurement)
}

fn pattern(words: &mut Words<'_>) -> Result<Pattern> {
    match words.regex()? {
        Some(regex) => Ok(Pattern::Regex(regex)),
        None => words.name().map(Pattern::Is),
    }
}

/// `m`, `rp.m`, `db.rp.m`, `db..m`; names may be expressions. There is one retention policy, whatever it is called.
pub(crate) fn measurement(words: &mut Words<'_>) -> Result<Measurement> {
    let mut parts = vec![pattern(words)?];
    while parts.len() < 3 && words.takes_sign(".")? {
        if parts.len() == 1 && words.takes_sign(".")? {
            parts.push(Pattern::Is(String::new()));
        }
        parts.push(pattern(words)?);
    }
    let database = match parts.first() {
        Some(Pattern::Is(database)) if parts.len() == 3 => Some(database.clone()),
        _ => None,
    };
    parts.pop().map(|name| Measurement { database, name }).ok_or_else(|| words.expected("identifier"))
}

/// `FROM a, b` if it is there.
pub(crate) fn from(words: &mut Words<'_>) -> Result<Vec<Measurement>> {
    let mut from = Vec::new();
    if words.takes("FROM")? {
        loop {
            from.push(measurement(words)?);
            if !words.takes_sign(",")? {
                break;
            }
        }
    }
    Ok(from)
}

/// `WHERE ...` if it is there.
pub(crate) fn condition(words: &mut Words<'_>) -> Result<Option<Expr>> {
    if words.takes("WHERE")? { expr(words, 0).map(Some) } else { Ok(None) }
}

fn group(words: &mut Words<'_>) -> Result<(Option<Every>, Vec<Dimension>)> {
    let (mut every, mut dimensions) = (None, Vec::new());
    if !words.takes("GROUP")? {
        return Ok((every, dimensions));
    }
    words.take("BY")?;
    loop {
        if words.takes_sign("*")? {
            dimensions.push(Dimension::All);
        } else if let Some(regex) = words.regex()? {
            dimensions.push(Dimension::Regex(regex));
        } else {
            let is_word = matches!(words.peek()?, Token::Word(_));
            let name = words.name()?;
            if is_word && words.takes_sign("(")? {
                if !name.eq_ignore_ascii_case("time") {
                    return Err(words.error("only time() calls allowed in dimensions"));
                }
                if every.replace(time(words)?).is_some() {
                    return Err(words.error("multiple time dimensions not allowed"));
                }
            } else {
                cast(words)?;
                dimensions.push(Dimension::Tag(name));
            }
        }
        if !words.takes_sign(",")? {
            return Ok((every, dimensions));
        }
    }
}

fn time(words: &mut Words<'_>) -> Result<Every> {
    let Token::Duration(length) = *words.peek()? else {
        return Err(words.error("time dimension must have duration argument"));
    };
    if length <= 0 {
        return Err(words.error("time dimension must be longer than nothing"));
    }
    words.next()?;
    let offset = if words.takes_sign(",")? { Some(expr(words, 0)?) } else { None };
    words.take_sign(")")?;
    Ok(Every { length, offset })
}

fn fill(words: &mut Words<'_>) -> Result<Fill> {
    if !words.takes("FILL")? {
        return Ok(Fill::Null);
    }
    words.take_sign("(")?;
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
    let fill = match expr(words, 0)? {
        Expr::Name(name) => match name.to_ascii_lowercase().as_str() {
            "null" => Fill::Null,
            "none" => Fill::None,
            "previous" => Fill::Previous,
            "linear" => Fill::Linear,
            _ => return Err(words.error("expected null, none, previous, linear or a number in fill()")),
        },
        Expr::Integer(number) => Fill::Number(number as f64),
        Expr::Unsigned(number) => Fill::Number(number as f64),
        Expr::Float(number) => Fill::Number(number),
        _ => return Err(words.error("expected null, none, previous, linear or a number in fill()")),
    };
    words.take_sign(")")?;
    Ok(fill)
}

/// `ORDER BY time [ASC|DESC]` if it is there.
pub(crate) fn order(words: &mut Words<'_>) -> Result<Order> {
    if !words.takes("ORDER")? {
        return Ok(Order::Ascending);
    }
    words.take("BY")?;
    let is_bare =
        matches!(words.peek()?, Token::Word(word) if matches!(word.to_ascii_uppercase().as_str(), "ASC" | "DESC"));
    if !is_bare && !words.name()?.eq_ignore_ascii_case("time") {
        return Err(words.error("only ORDER BY time supported at this time"));
    }
    if words.takes("DESC")? {
        return Ok(Order::Descending);
    }
    words.takes("ASC")?;
    Ok(Order::Ascending)
}

/// `LIMIT`, `OFFSET`, `SLIMIT`, `SOFFSET`, each if it is there.
pub(crate) fn page(words: &mut Words<'_>) -> Result<Page> {
    let mut page = Page::default();
    loop {
        let place = match words.peek()? {
            Token::Word(word) => match word.to_ascii_uppercase().as_str() {
                "LIMIT" => &mut page.limit,
                "OFFSET" => &mut page.offset,
                "SLIMIT" => &mut page.series_limit,
                "SOFFSET" => &mut page.series_offset,
                _ => return Ok(page),
            },
            _ => return Ok(page),
        };
        words.next()?;
        *place = words.count()?;
    }
}
