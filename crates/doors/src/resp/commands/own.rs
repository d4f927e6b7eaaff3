//! KV.*: the key-value engine as it is, with buckets, versions, metadata and durability.
//!
//! May use: `call`, `expiry`, `glob`. Must not know: sockets, dispatch.

use holdfast::{Condition, Durability, Head, Indexes, Metadata, Position, PutOptions, Term, TermRef};

use super::expiry::{Expiry, checked_expiry};
use crate::auth::Right;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX, View};
use crate::resp::effort::Use;
use crate::resp::reply::Reply;
use crate::resp::{glob, number, permit};

/// Entries of one reply unless LIMIT says otherwise.
pub(crate) const LIMIT_DEFAULT: usize = 1000;

fn version(text: &[u8]) -> Result<Position, Fail> {
    Ok(Position::new(number::parse_u64(text).ok_or(NOT_INTEGER)?))
}

/// A count or a limit.
pub(crate) fn count(text: &[u8]) -> Result<usize, Fail> {
    number::parse_i64(text).and_then(|count| usize::try_from(count).ok()).ok_or_else(|| NOT_INTEGER.into())
}

/// A limit of a page, which has something on it, by the name of its option.
pub(crate) fn page_limit(name: &str, text: &[u8]) -> Result<usize, Fail> {
    match count(text)? {
        0 => Err(format!("ERR {name} is at least 1").into()),
        limit => Ok(limit),
    }
}

/// Reads the option DURABILITY at `index`, if it is there.
pub(crate) fn durability(call: &mut Call<'_, '_>, option: &[u8], index: usize) -> Result<bool, Fail> {
    if !option.eq_ignore_ascii_case(b"durability") {
        return Ok(false);
    }
    let name = call.args.get(index + 1).ok_or(SYNTAX)?;
    call.durability = call.parse_durability(name)?;
    Ok(true)
}

/// Reads the option at `index` if it is one that commands which read take: DURABILITY, SNAPSHOT. Each has one value.
pub(crate) fn reading(call: &mut Call<'_, '_>, option: &[u8], index: usize) -> Result<bool, Fail> {
    if option.eq_ignore_ascii_case(b"snapshot") {
        let id = call.args.get(index + 1).ok_or(SYNTAX)?;
        call.view = View::Snapshot(call.snapshot(id)?);
        return Ok(true);
    }
    durability(call, option, index)
}

/// Commands whose only options are those of reading.
fn only_reading(call: &mut Call<'_, '_>, first: usize) -> Answer {
    let mut index = first;
    while let Some(option) = call.args().get(index) {
        if !reading(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    Ok(())
}

/// The name of a durability.
pub(crate) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Window(_) => "window",
        _ => "written",
    }
}

pub(crate) fn write_durability(call: &mut Call<'_, '_>) {
    call.reply.text(durability_name(call.durability));
}

pub(crate) fn put(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (bucket, key, value) = (args.at(1), args.at(2), args.at(3));
    let (mut put, mut metadata, mut indexes) = (PutOptions::default(), Vec::new(), Vec::new());
    let (mut index, mut strict) = (4, false);
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let unconditional = matches!(put.condition, Condition::None);
        let timeless = put.expires_ms.is_none() && !put.keep_expiry;
        let following = args.len() - index - 1;
        if is("nx") && unconditional {
            put.condition = Condition::Absent;
            index += 1;
        } else if is("xx") && unconditional {
            put.condition = Condition::Present;
            index += 1;
        } else if is("ifversion") && unconditional && following >= 1 {
            put.condition = Condition::Version(version(args.at(index + 1))?);
            index += 2;
        } else if is("strict") && !strict {
            strict = true;
            index += 1;
        } else if is("keepttl") && timeless {
            put.keep_expiry = true;
            index += 1;
        } else if is("meta") && following >= 2 {
            metadata.push((args.at(index + 1).to_vec(), args.at(index + 2).to_vec()));
            index += 3;
        } else if is("index") && following >= 2 {
            indexes.push((args.at(index + 1), Term::Binary(args.at(index + 2).to_vec())));
            index += 3;
        } else if is("indexint") && following >= 2 {
            indexes.push((args.at(index + 1), Term::Integer(call.integer(index + 2)?)));
            index += 3;
        } else if is("compression") && put.compression.is_none() && following >= 1 {
            let name = std::str::from_utf8(args.at(index + 1)).ok().and_then(|name| name.parse().ok());
            put.compression = Some(name.ok_or("ERR compression is one of none, lz4, zstd")?);
            index += 2;
        } else if let Some((unit, expiry)) = Expiry::option(option)
            && timeless
            && following >= 1
        {
            put.expires_ms = Some(checked_expiry(call, index + 1, unit, expiry)?);
            index += 2;
        } else if durability(call, option, index)? {
            index += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > call.door.store.limits().metadata_bytes_max {
        return Err("ERR the metadata is too big".into());
    }
    put.metadata = Metadata::from_pairs(metadata);
    put.indexes = Indexes::from_pairs(indexes);
    if put.indexes.len() > call.door.store.limits().indexes_bytes_max {
        return Err("ERR the index entries are too big".into());
    }
    // Checked here and not by the store, so that a condition that fails inside EXEC fails alone.
    if !holds(call, bucket, key, &put.condition)? {
        if strict {
            return Err(Fail::Store(unfit()));
        }
        call.reply.null_array();
        return Ok(());
    }
    put.condition = Condition::None;
    call.put_in(bucket, key, value, &put)?;
    call.reply.array(2);
    call.reply.commit_position();
    write_durability(call);
    Ok(())
}

/// With STRICT, a condition that does not hold fails, and with it the whole of EXEC.
fn unfit() -> holdfast::Error {
    let text = "the object is not as the condition wants it: read it again";
    holdfast::Error::new(holdfast::ErrorKind::Conflict, text)
}

fn holds(call: &mut Call<'_, '_>, bucket: &[u8], key: &[u8], condition: &Condition) -> Result<bool, Fail> {
    Ok(match condition {
        Condition::None => true,
        Condition::Absent => call.view.head(bucket, key)?.is_none(),
        Condition::Present => call.view.head(bucket, key)?.is_some(),
        Condition::Version(version) => call.view.head(bucket, key)?.is_some_and(|head| head.version == *version),
    })
}

pub(crate) fn get(call: &mut Call<'_, '_>) -> Answer {
    only_reading(call, 3)?;
    let object = call.get_in(call.args.at(1), call.args.at(2), Use::Show)?;
    match object {
        None => call.reply.null_array(),
        Some(object) => {
            call.reply.array(3);
            call.reply.bulk(object.value.as_ref());
            write_version(call, object.head.version);
            write_durability(call);
        }
    }
    Ok(())
}

/// A version that this transaction has just staged is its own commit, which has no position yet.
pub(crate) fn write_version(call: &mut Call<'_, '_>, version: Position) {
    if call.in_exec && version == Position::MAX {
        call.reply.commit_position();
    } else {
        call.reply.unsigned(version.get());
    }
}

pub(crate) fn head(call: &mut Call<'_, '_>) -> Answer {
    only_reading(call, 3)?;
    let Some(head) = call.view.head(call.args.at(1), call.args.at(2))? else {
        call.reply.null_array();
        return Ok(());
    };
    call.reply.map(HEAD_FIELDS + 1);
    if call.in_exec && head.version == Position::MAX {
        call.reply.text("version");
        call.reply.commit_position();
        write_head_behind_version(call.reply, &head);
    } else {
        write_head(call.reply, &head);
    }
    call.reply.text("durability");
    write_durability(call);
    Ok(())
}

/// Pairs that [`write_head`] writes.
pub(crate) const HEAD_FIELDS: usize = 8;

/// Writes the pairs of a map of what is known of an object.
pub(crate) fn write_head(reply: &mut Reply, head: &Head) {
    reply.text("version");
    reply.unsigned(head.version.get());
    write_head_behind_version(reply, head);
}

fn write_head_behind_version(reply: &mut Reply, head: &Head) {
    reply.text("bytes");
    reply.unsigned(head.value_bytes);
    reply.text("checksum");
    reply.unsigned(u64::from(head.checksum));
    reply.text("modified");
    reply.unsigned(head.modified_ms);
    reply.text("expires");
    match head.expires_ms {
        Some(at) => reply.unsigned(at),
        None => reply.null(),
    }
    reply.text("metadata");
    write_metadata(reply, &head.metadata);
    reply.text("indexes");
    write_indexes(reply, &head.indexes);
    reply.text("compression");
    reply.text(&head.compression.to_string());
}

/// Writes metadata, as a map.
pub(crate) fn write_metadata(reply: &mut Reply, metadata: &Metadata) {
    reply.map(metadata.iter().count());
    for (name, value) in metadata.iter() {
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// Writes index entries, each [index, term].
pub(crate) fn write_indexes(reply: &mut Reply, indexes: &Indexes) {
    reply.array(indexes.iter().count());
    for (name, term) in indexes.iter() {
        reply.array(2);
        reply.bulk(name);
        write_term(reply, (&term).into());
    }
}

/// Writes a term: an integer, or a string.
pub(crate) fn write_term(reply: &mut Reply, term: TermRef<'_>) {
    match term {
        TermRef::Integer(number) => reply.integer(number),
        TermRef::Binary(bytes) => reply.bulk(bytes),
    }
}

pub(crate) fn del(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (bucket, key) = (args.at(1), args.at(2));
    let (mut condition, mut strict) = (Condition::None, false);
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let unconditional = matches!(condition, Condition::None);
        if is("strict") && !strict {
            strict = true;
            index += 1;
            continue;
        }
        if is("nx") && unconditional {
            condition = Condition::Absent;
            index += 1;
            continue;
        }
        if is("xx") && unconditional {
            condition = Condition::Present;
            index += 1;
            continue;
        }
        if is("ifversion") && index + 1 < args.len() {
            condition = Condition::Version(version(args.at(index + 1))?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    if !holds(call, bucket, key, &condition)? {
        if strict {
            return Err(Fail::Store(unfit()));
        }
        call.reply.null_array();
        return Ok(());
    }
    let deleted = call.delete_in(bucket, key)?;
    call.reply.array(3);
    call.reply.integer(i64::from(deleted));
    call.reply.commit_position();
    write_durability(call);
    Ok(())
}

pub(crate) fn buckets(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let mut pattern = None;
    let mut index = 1;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"match") && index + 1 < args.len() {
            pattern = Some(args.at(index + 1));
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let user = call.session.user.clone();
    let mut names = call.view.buckets()?;
    names.retain(|name| {
        pattern.is_none_or(|pattern| glob::matches(pattern, name))
            && user.as_ref().is_none_or(|user| user.may(Right::Read, name))
    });
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

pub(crate) fn stats(call: &mut Call<'_, '_>) -> Answer {
    if call.args.len() > 2 {
        return Err(call.wrong_arity());
    }
    if let Some(bucket) = call.args.get(1) {
        permit::check_read(call.session.user.as_deref(), bucket)?;
        let count = call.view.count(bucket)?;
        call.reply.map(1);
        call.reply.text("keys");
        call.reply.unsigned(count);
        return Ok(());
    }
    let (marks, stats) = (call.door.store.watermarks(), call.stats());
    let age_ms = u64::try_from(stats.unsynced_age.as_millis()).unwrap_or(u64::MAX);
    let durability = call.door.store.durability().to_string();
    let numbers = [
        ("appended_position", marks.appended.get()),
        ("written_position", marks.written.get()),
        ("synced_position", marks.synced.get()),
        ("unsynced_bytes", stats.unsynced_bytes),
        ("unsynced_batches", stats.unsynced_batches),
        ("unsynced_age_ms", age_ms),
        ("segments", stats.segments),
        ("journal_bytes", stats.journal_bytes),
    ];
    call.reply.map(numbers.len() + 1);
    call.reply.text("durability");
    call.reply.text(&durability);
    for (name, number) in numbers {
        call.reply.text(name);
        call.reply.unsigned(number);
    }
    Ok(())
}
