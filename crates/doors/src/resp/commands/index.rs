//! KV.INDEX: what a secondary index holds, a page at a time.
//!
//! Handled on the event loop, so it is bounded by what it looks at and not only by what it returns: a regular expression
//! that matches little ends a page with few entries, or none, and a cursor to go on from.
//!
//! May use: `call`, `own`, the facade. Must not know: sockets, dispatch.

use std::sync::Arc;

use holdfast::{IndexCursor, IndexList, IndexQuery, Snapshot, Term, TermRef};

use super::own::{LIMIT_DEFAULT, page_limit, reading, write_durability, write_term};
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::number;

/// What one more query of the store costs, in entries: it has to be found in each partition.
const QUERY_COST: usize = 64;

/// The options of KV.INDEX.
#[derive(Default)]
struct Wanted<'a> {
    from: Option<&'a [u8]>,
    to: Option<&'a [u8]>,
    is_integer: bool,
    with_terms: bool,
    regex: Option<holdfast::Regex>,
    limit: usize,
    after: Option<IndexCursor>,
}

/// Text that is to be a pattern or a cursor.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fail> {
    std::str::from_utf8(bytes).map_err(|_| "ERR a pattern or a cursor is UTF-8 text".into())
}

/// The regular expression that the argument says.
pub(crate) fn regex(pattern: &[u8]) -> Result<holdfast::Regex, Fail> {
    holdfast::regex(text(pattern)?).map_err(|error| format!("ERR {error}").into())
}

fn parse<'a>(call: &mut Call<'a, '_>) -> Result<Wanted<'a>, Fail> {
    let args = call.args();
    let mut wanted = Wanted { limit: LIMIT_DEFAULT, ..Wanted::default() };
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("int") || is("terms") {
            wanted.is_integer |= is("int");
            wanted.with_terms |= is("terms");
            index += 1;
            continue;
        }
        let value = args.get(index + 1).ok_or(SYNTAX)?;
        if is("eq") && wanted.from.is_none() && wanted.to.is_none() {
            (wanted.from, wanted.to) = (Some(value), Some(value));
        } else if is("from") && wanted.from.is_none() {
            wanted.from = Some(value);
        } else if is("to") && wanted.to.is_none() {
            wanted.to = Some(value);
        } else if is("regex") {
            wanted.regex = Some(regex(value)?);
        } else if is("limit") {
            wanted.limit = page_limit("LIMIT", value)?;
        } else if is("after") {
            wanted.after = Some(IndexCursor::decode(text(value)?)?);
        } else if !reading(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    wanted.limit = wanted.limit.clamp(1, call.door.options.limits.fold_entries_max);
    Ok(wanted)
}

fn term(text: &[u8], is_integer: bool) -> Result<Term, Fail> {
    Ok(match is_integer {
        true => Term::Integer(number::parse_i64(text).ok_or(NOT_INTEGER)?),
        false => Term::Binary(text.to_vec()),
    })
}

pub(crate) fn index(call: &mut Call<'_, '_>) -> Answer {
    let wanted = parse(call)?;
    let (Some(from), Some(to)) = (wanted.from, wanted.to) else {
        return Err("ERR an index is asked FROM a term TO a term, or for those that are EQ to one".into());
    };
    let (from, to) = (term(from, wanted.is_integer)?, term(to, wanted.is_integer)?);
    let (bucket, index) = (call.args.at(1), call.args.at(2));
    let snapshot = match &call.view {
        View::Snapshot(snapshot) => snapshot.clone(),
        _ => Arc::new(call.door.store.snapshot()?),
    };
    let query = IndexQuery { bucket, index, from: &from, to: &to, term_regex: None, limit: 0, after: None };
    let limits = &call.door.options.limits;
    let examined_max = limits.fold_examined_max;
    let (entries, next) = page(&snapshot, &query, &wanted, examined_max)?;
    call.view = View::Snapshot(snapshot);
    call.reply.array(3);
    call.reply.array(entries.len());
    for (term, key) in entries.iter() {
        if wanted.with_terms {
            call.reply.array(2);
            call.reply.bulk(key);
            write_term(call.reply, term);
        } else {
            call.reply.bulk(key);
        }
    }
    match next {
        Some(next) => call.reply.text(&next.encode()),
        None => call.reply.null(),
    }
    write_durability(call);
    Ok(())
}

/// The next entries whose terms match, among so many at the most.
fn page(
    snapshot: &Snapshot,
    query: &IndexQuery<'_>,
    wanted: &Wanted<'_>,
    examined_max: usize,
) -> Result<(IndexList, Option<IndexCursor>), Fail> {
    let (mut found, mut after, mut examined) = (IndexList::default(), wanted.after.clone(), 0);
    loop {
        // Never more than may be returned yet, so that the page's end is where to go on.
        let limit = wanted.limit - found.len();
        let page = snapshot.index(&IndexQuery { limit, after: after.as_ref(), ..*query })?;
        examined += page.entries.len() + QUERY_COST;
        let matches = |term| match (&wanted.regex, term) {
            (None, _) => true,
            (Some(regex), TermRef::Binary(bytes)) => regex.is_match(bytes),
            (Some(regex), TermRef::Integer(number)) => regex.is_match(number.to_string().as_bytes()),
        };
        if found.is_empty() && wanted.regex.is_none() {
            found = page.entries;
        } else {
            page.entries.iter().filter(|(term, _)| matches(*term)).for_each(|(term, key)| found.push(term, key));
        }
        after = page.next;
        if after.is_none() || found.len() >= wanted.limit || examined >= examined_max {
            return Ok((found, after));
        }
    }
}
