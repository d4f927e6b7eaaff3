//! SPACE.DECLARE, SPACE.DROP and SPACE.LIMIT. They change the journal and wait for its sync, in a thread.
//!
//! May use: the facade. Must not know: sockets, dispatch.

use holdfast::space::{
    AtLimit, Definition, Direction, EvictBy, IndexDefinition, IndexKind, Order, Path, Placement, Storage,
};

use super::text;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::number;
use crate::resp::session::Need;
use crate::resp::wire::Args;

fn path(argument: &[u8]) -> Result<Path, Fail> {
    let text = std::str::from_utf8(argument).map_err(|_| Fail::from("ERR a path has to be UTF-8"))?;
    Path::parse(text).map_err(|error| Fail::Store(error.into()))
}

fn number(argument: &[u8]) -> Result<u64, Fail> {
    number::parse_u64(argument).ok_or_else(|| NOT_INTEGER.into())
}

/// Reads `name HASH|ORDERED [UNIQUE] n path ...` from `at` on: the index, and where the next option begins.
fn index(args: Args<'_>, mut at: usize) -> Result<(IndexDefinition, usize), Fail> {
    let name = text("index", args.get(at).ok_or(SYNTAX)?)?.to_owned();
    let kind = match args.get(at + 1).ok_or(SYNTAX)?.to_ascii_lowercase().as_slice() {
        b"hash" => IndexKind::Hash,
        b"ordered" => IndexKind::Ordered,
        _ => return Err("ERR an index is HASH or ORDERED".into()),
    };
    at += 2;
    let unique = args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"unique"));
    at += usize::from(unique);
    let count = number(args.get(at).ok_or(SYNTAX)?)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= args.from(at + 1).len());
    let count = count.ok_or("ERR fewer paths follow than are announced")?;
    let paths = args.from(at + 1).iter().take(count).map(path).collect::<Result<_, Fail>>()?;
    Ok((IndexDefinition { name, kind, unique, paths }, at + 1 + count))
}

/// Reads `BY path [ASC | DESC]`, if that stands at `at`: and where the next option begins.
fn evict_by(args: Args<'_>, at: usize) -> Result<(Option<EvictBy>, usize), Fail> {
    if !args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"by")) {
        return Ok((None, at));
    }
    let path = path(args.get(at + 1).ok_or(SYNTAX)?)?;
    let word = args.get(at + 2).unwrap_or_default().to_ascii_lowercase();
    let (direction, words) = match word.as_slice() {
        b"asc" => (Direction::Ascending, 3),
        b"desc" => (Direction::Descending, 3),
        _ => (Direction::Ascending, 2),
    };
    Ok((Some(EvictBy { path, direction }), at + words))
}

/// Reads a definition.
fn definition(args: Args<'_>) -> Result<Definition, Fail> {
    let mut this = Definition::new(text("space", args.at(1))?, text("type", args.at(2))?);
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let argument = || args.get(at + 1).ok_or(SYNTAX);
        let mut arguments = 1;
        if is("id") {
            text("id field", argument()?)?.clone_into(&mut this.id);
        } else if is("routing") {
            this.routing = Some(path(argument()?)?);
        } else if is("lease") {
            this.lease_ms = Some(number(argument()?)?).filter(|ms| *ms > 0);
        } else if is("groups") && this.order == Order::Any {
            this.order = Order::Groups(path(argument()?)?);
        } else if is("memory") {
            this.memory_bytes_max = number(argument()?)?;
        } else if is("index") {
            let (index, next) = index(args, at + 1)?;
            this.indexes.push(index);
            at = next;
            continue;
        } else {
            arguments = 0;
            if is("volatile") {
                this.storage = Storage::Volatile;
            } else if is("fifo") && this.order == Order::Any {
                this.order = Order::Fifo;
            } else if is("together") {
                this.placement = Placement::Together;
            } else if is("history") {
                this.history = true;
            } else if is("evict") {
                this.at_limit = AtLimit::Evict;
                let (by, next) = evict_by(args, at + 1)?;
                if by.is_some() {
                    this.evict_by = by;
                }
                at = next;
                continue;
            } else {
                return Err(SYNTAX.into());
            }
        }
        at += 1 + arguments;
    }
    this.check().map_err(|error| Fail::Store(error.into()))?;
    Ok(this)
}

pub(crate) fn declare(call: &mut Call<'_, '_>) -> Answer {
    let definition = definition(call.args())?;
    let space = call.door.store.space(&definition.space);
    call.defer(move |reply| {
        space.declare(definition)?;
        reply.ok();
        Ok(Need::NOTHING)
    });
    Ok(())
}

pub(crate) fn limit(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let space = call.door.store.space(text("space", args.at(1))?);
    let bytes_max = number(args.at(2))?;
    call.defer(move |reply| {
        space.limit_memory((bytes_max > 0).then_some(bytes_max))?;
        reply.ok();
        Ok(Need::NOTHING)
    });
    Ok(())
}

pub(crate) fn drop_type(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let space = call.door.store.space(text("space", args.at(1))?);
    let name = text("type", args.at(2))?.to_owned();
    call.defer(move |reply| {
        reply.integer(i64::from(space.drop_type(&name)?));
        Ok(Need::NOTHING)
    });
    Ok(())
}
