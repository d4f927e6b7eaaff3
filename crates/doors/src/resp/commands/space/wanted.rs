//! Which entries a command is about, and its options.
//!
//!   ID id | TEMPLATE json | WHERE sql n parameter ... | ANY     then [ROUTING value]
//!
//! May use: `argument`, the facade. Must not know: what is done with the entries.

use std::time::Duration;

use holdfast::Position;
use holdfast::space::{Lease, Wanted};

use super::argument;
use crate::argument::regexes_in;
use crate::iterations;
use crate::resp::call::{Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::commands::own::durability;
use crate::resp::effort::{REGEX_BYTES, Use};
use crate::resp::number;
use crate::resp::open::LOCK_MAX;
use crate::resp::wire::Args;

/// Which entries, and at which argument the options begin.
pub(crate) struct Chosen {
    pub(crate) wanted: Wanted,
    /// Whether it is one entry, by its id.
    pub(crate) is_id: bool,
    /// Whether it is every entry.
    pub(crate) is_any: bool,
    pub(crate) next: usize,
}

/// Options of reading.
#[derive(Default)]
pub(crate) struct Options {
    /// How long to wait; zero is without end.
    pub(crate) block: Option<Duration>,
    pub(crate) if_exists: bool,
    /// No entry is a failure.
    pub(crate) strict: bool,
    pub(crate) version: Option<Position>,
    pub(crate) count: Option<usize>,
    /// How long a cursor is remembered.
    pub(crate) life: Option<Duration>,
}

/// What a command takes of [`Options`]; all take ROUTING and DURABILITY.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    Count,
    /// And a life of the cursor.
    CountAndLife,
    Waiting,
    WaitingAndCount,
}

/// Reads which entries are meant, from the argument at `at` on. What is not one entry, or all, counts as a query that is kept: it may
/// have to wait for its turn, if for nothing else.
pub(crate) fn chosen(call: &mut Call<'_, '_>, at: usize) -> Result<Chosen, Fail> {
    let (args, store) = (call.args(), &call.door.store);
    let word = args.get(at).ok_or(SYNTAX)?;
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let one = |wanted: Wanted, next: usize| Chosen { wanted, is_id: false, is_any: false, next };
    if is("any") {
        return Ok(Chosen { is_any: true, ..one(Wanted::all(), at + 1) });
    }
    let argument = args.get(at + 1).ok_or(SYNTAX)?;
    if is("id") {
        Ok(Chosen { is_id: true, ..one(Wanted::id(argument::value(argument)?), at + 2) })
    } else if is("template") {
        Ok(one(Wanted::template(&argument::document(argument)?).kept(store)?, at + 2))
    } else if is("where") {
        let sql = std::str::from_utf8(argument).map_err(|_| Fail::from("ERR SQL has to be UTF-8"))?;
        call.session.effort.add(regexes_in(argument) as u64 * REGEX_BYTES, Use::Look)?;
        let (parameters, next) = parameters(args, at + 2)?;
        Ok(one(Wanted::query(&store.prepared(sql)?, &parameters)?.kept(store)?, next))
    } else {
        Err("ERR say which entries: ID, TEMPLATE, WHERE or ANY".into())
    }
}

/// Reads `n parameter ...`.
pub(crate) fn parameters(args: Args<'_>, at: usize) -> Result<(Vec<holdfast::space::Value>, usize), Fail> {
    let count = args.get(at).and_then(number::parse_u64).and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or("ERR behind SQL stands how many parameters follow")?;
    let rest = args.from(at + 1);
    if count > rest.len() {
        return Err("ERR fewer parameters follow than are announced".into());
    }
    let parameters = rest.iter().take(count).map(argument::value).collect::<Result<_, Fail>>()?;
    Ok((parameters, at + 1 + count))
}

fn milliseconds(argument: &[u8]) -> Result<Duration, Fail> {
    number::parse_u64(argument).map(Duration::from_millis).ok_or_else(|| NOT_INTEGER.into())
}

/// Reads the options that stand behind.
pub(crate) fn options(call: &mut Call<'_, '_>, chosen: &mut Chosen, takes: Takes) -> Result<Options, Fail> {
    let args = call.args();
    let mut options = Options::default();
    let (waits, counts) = match takes {
        Takes::Nothing => (false, false),
        Takes::Count | Takes::CountAndLife => (false, true),
        Takes::Waiting => (true, false),
        Takes::WaitingAndCount => (true, true),
    };
    let mut index = chosen.next;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if waits && is("ifexists") && !options.if_exists {
            options.if_exists = true;
            index += 1;
            continue;
        }
        if waits && !counts && is("strict") && !options.strict {
            options.strict = true;
            index += 1;
            continue;
        }
        let argument = args.get(index + 1).ok_or(SYNTAX)?;
        if is("routing") {
            chosen.wanted = chosen.wanted.clone().routed(argument::value(argument)?);
        } else if waits && is("block") && options.block.is_none() {
            options.block = Some(milliseconds(argument)?);
        } else if waits && !counts && is("version") && options.version.is_none() {
            options.version = Some(Position::new(number::parse_u64(argument).ok_or(NOT_INTEGER)?));
        } else if matches!(takes, Takes::CountAndLife) && is("lease") && options.life.is_none() {
            options.life = Some(life(argument)?);
        } else if counts && is("count") && options.count.is_none() {
            let count = number::parse_u64(argument).and_then(|count| usize::try_from(count).ok());
            options.count = Some(count.ok_or(NOT_INTEGER)?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    if options.version.is_some() && (!chosen.is_id || options.block.is_some()) {
        return Err("ERR VERSION is of one entry, by ID and without BLOCK".into());
    }
    if options.strict && options.block.is_some() {
        return Err("ERR STRICT is without BLOCK".into());
    }
    Ok(options)
}

/// Reads how long a cursor is remembered.
pub(crate) fn life(argument: &[u8]) -> Result<Duration, Fail> {
    number::parse_u64(argument).and_then(iterations::life).ok_or_else(|| {
        format!("ERR the LEASE of a cursor is from 1 to {} milliseconds", iterations::LIFE_MAX.as_millis()).into()
    })
}

/// Reads how long a write waits for the transaction that has locked its entry: more than the door lets anybody wait is that.
pub(crate) fn lock_wait(argument: &[u8]) -> Result<Duration, Fail> {
    Ok(milliseconds(argument)?.min(LOCK_MAX))
}

/// Reads `ms` or FOREVER.
pub(crate) fn lease(argument: &[u8]) -> Result<Lease, Fail> {
    if argument.eq_ignore_ascii_case(b"forever") {
        return Ok(Lease::Forever);
    }
    let time = milliseconds(argument)?;
    if time.is_zero() {
        return Err("ERR a lease has 1 millisecond at least, or is FOREVER".into());
    }
    Ok(Lease::For(time))
}
