//! KV.*: the key-value engine as it is, with buckets, versions, metadata and durability.
//!
//! May use: `call`, `expiry`, `glob`. Must not know: sockets, dispatch.

use std::ops::Bound;

use holdfast::{Condition, Durability, Metadata, Page, Position, PutOptions};

use super::expiry::{Expiry, checked_expiry};
use crate::auth::Right;
use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::{glob, number};

/// Entries of KV.KEYS and KV.RANGE unless LIMIT says otherwise.
const LIMIT_DEFAULT: usize = 1000;

fn version(text: &[u8]) -> Result<Position, Fail> {
    Ok(Position::new(number::parse_u64(text).ok_or(NOT_INTEGER)?))
}

/// Reads the option DURABILITY at `index`, if it is there.
fn durability(call: &mut Call<'_, '_>, option: &[u8], index: usize) -> Result<bool, Fail> {
    if !option.eq_ignore_ascii_case(b"durability") {
        return Ok(false);
    }
    let name = call.args.get(index + 1).ok_or(SYNTAX)?;
    call.durability = call.parse_durability(name)?;
    Ok(true)
}

/// Commands whose only option is DURABILITY.
fn only_durability(call: &mut Call<'_, '_>, first: usize) -> Answer {
    match call.args.get(first) {
        None => Ok(()),
        Some(option) if call.args.len() == first + 2 && durability(call, option, first)? => Ok(()),
        Some(_) => Err(SYNTAX.into()),
    }
}

fn write_durability(call: &mut Call<'_, '_>) {
    let name = match call.durability {
        Durability::Synced => "synced",
        Durability::Window(_) => "window",
        _ => "written",
    };
    call.reply.text(name);
}

pub(crate) fn put(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (bucket, key, value) = (args.at(1), args.at(2), args.at(3));
    let (mut put, mut metadata) = (PutOptions::default(), Vec::new());
    let mut index = 4;
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
        } else if is("keepttl") && timeless {
            put.keep_expiry = true;
            index += 1;
        } else if is("meta") && following >= 2 {
            metadata.push((args.at(index + 1).to_vec(), args.at(index + 2).to_vec()));
            index += 3;
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
    // Checked here and not by the store, so that a condition that fails inside EXEC fails alone.
    if !holds(call, bucket, key, &put.condition)? {
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

fn holds(call: &mut Call<'_, '_>, bucket: &[u8], key: &[u8], condition: &Condition) -> Result<bool, Fail> {
    Ok(match condition {
        Condition::None => true,
        Condition::Absent => call.view.head(bucket, key)?.is_none(),
        Condition::Present => call.view.head(bucket, key)?.is_some(),
        Condition::Version(version) => call.view.head(bucket, key)?.is_some_and(|head| head.version == *version),
    })
}

pub(crate) fn get(call: &mut Call<'_, '_>) -> Answer {
    only_durability(call, 3)?;
    let object = call.view.get(call.args.at(1), call.args.at(2))?;
    call.session.counters.looked_up(object.is_some());
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
fn write_version(call: &mut Call<'_, '_>, version: Position) {
    if call.in_exec && version == Position::MAX {
        call.reply.commit_position();
    } else {
        call.reply.unsigned(version.get());
    }
}

pub(crate) fn head(call: &mut Call<'_, '_>) -> Answer {
    only_durability(call, 3)?;
    let Some(head) = call.view.head(call.args.at(1), call.args.at(2))? else {
        call.reply.null_array();
        return Ok(());
    };
    call.reply.map(7);
    call.reply.text("version");
    write_version(call, head.version);
    call.reply.text("bytes");
    call.reply.unsigned(head.value_bytes);
    call.reply.text("checksum");
    call.reply.unsigned(u64::from(head.checksum));
    call.reply.text("modified");
    call.reply.unsigned(head.modified_ms);
    call.reply.text("expires");
    match head.expires_ms {
        Some(at) => call.reply.unsigned(at),
        None => call.reply.null(),
    }
    call.reply.text("metadata");
    call.reply.map(head.metadata.iter().count());
    for (name, value) in head.metadata.iter() {
        call.reply.bulk(name);
        call.reply.bulk(value);
    }
    call.reply.text("durability");
    write_durability(call);
    Ok(())
}

pub(crate) fn del(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (bucket, key) = (args.at(1), args.at(2));
    let mut condition = Condition::None;
    let mut index = 3;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"ifversion") && index + 1 < args.len() {
            condition = Condition::Version(version(args.at(index + 1))?);
        } else if !durability(call, option, index)? {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    if !holds(call, bucket, key, &condition)? {
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

/// The options of KV.KEYS and KV.RANGE.
struct Window<'a> {
    start: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
    prefix: &'a [u8],
    pattern: Option<&'a [u8]>,
    limit: usize,
    values: bool,
}

impl<'a> Window<'a> {
    fn parse(call: &mut Call<'a, '_>, is_range: bool) -> Result<Self, Fail> {
        let args = call.args();
        let mut window =
            Window { start: None, end: None, prefix: b"", pattern: None, limit: LIMIT_DEFAULT, values: false };
        let mut index = 2;
        while let Some(option) = args.get(index) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is_range && is("values") {
                window.values = true;
                index += 1;
                continue;
            }
            let value = args.get(index + 1).ok_or(SYNTAX)?;
            if is("start") {
                window.start = Some(value);
            } else if is("end") {
                window.end = Some(value);
            } else if is("prefix") {
                window.prefix = value;
            } else if !is_range && is("match") {
                window.pattern = Some(value);
            } else if is("limit") {
                let limit =
                    number::parse_i64(value).and_then(|limit| usize::try_from(limit).ok()).ok_or(NOT_INTEGER)?;
                window.limit = limit.clamp(1, call.door.options.limits.scan_count_max);
            } else if !durability(call, option, index)? {
                return Err(SYNTAX.into());
            }
            index += 2;
        }
        Ok(window)
    }

    /// The first key behind all keys with the prefix, if there is one.
    fn behind_prefix(&self) -> Option<Vec<u8>> {
        let mut key = self.prefix.to_vec();
        while let Some(last) = key.pop() {
            if last < u8::MAX {
                key.push(last + 1);
                return Some(key);
            }
        }
        None
    }
}

/// One page of a bucket: entries, and where the next page starts.
fn page(
    call: &mut Call<'_, '_>,
    bucket: &[u8],
    window: &Window<'_>,
) -> Result<(holdfast::PageOut, Option<Vec<u8>>), Fail> {
    let behind = window.behind_prefix();
    let start = window.start.unwrap_or_default().max(window.prefix);
    let end = match (window.end, behind.as_deref()) {
        (Some(end), Some(behind)) => Bound::Excluded(end.min(behind)),
        (Some(end), None) | (None, Some(end)) => Bound::Excluded(end),
        (None, None) => Bound::Unbounded,
    };
    if let Bound::Excluded(end) = end
        && end <= start
    {
        return Ok((holdfast::PageOut { entries: Vec::new(), more: false }, None));
    }
    let out = call.view.page(&Page {
        bucket,
        start: Bound::Included(start),
        end,
        limit: window.limit,
        values: window.values,
    })?;
    // The smallest key behind the last one shown.
    let next = out.entries.last().filter(|_| out.more).map(|(key, _, _)| [key.as_slice(), b"\0"].concat());
    Ok((out, next))
}

fn write_next(call: &mut Call<'_, '_>, next: Option<Vec<u8>>) {
    match next {
        Some(next) => call.reply.bulk(&next),
        None => call.reply.null(),
    }
    write_durability(call);
}

pub(crate) fn keys(call: &mut Call<'_, '_>) -> Answer {
    let window = Window::parse(call, false)?;
    let (out, next) = page(call, call.args.at(1), &window)?;
    let keys: Vec<Vec<u8>> = out
        .entries
        .into_iter()
        .map(|(key, _, _)| key)
        .filter(|key| window.pattern.is_none_or(|pattern| glob::matches(pattern, key)))
        .collect();
    call.reply.array(3);
    call.reply.array(keys.len());
    keys.iter().for_each(|key| call.reply.bulk(key));
    write_next(call, next);
    Ok(())
}

pub(crate) fn range(call: &mut Call<'_, '_>) -> Answer {
    let window = Window::parse(call, true)?;
    let (out, next) = page(call, call.args.at(1), &window)?;
    call.reply.array(3);
    call.reply.array(out.entries.len());
    for (key, head, value) in &out.entries {
        call.reply.array(if window.values { 4 } else { 3 });
        call.reply.bulk(key);
        write_version(call, head.version);
        call.reply.unsigned(head.value_bytes);
        if window.values {
            match value {
                Some(value) => call.reply.bulk(value.as_ref()),
                None => call.reply.null(),
            }
        }
    }
    write_next(call, next);
    Ok(())
}

pub(crate) fn stats(call: &mut Call<'_, '_>) -> Answer {
    if call.args.len() > 2 {
        return Err(call.wrong_arity());
    }
    if let Some(bucket) = call.args.get(1) {
        if call.session.user.as_ref().is_some_and(|user| !user.may(Right::Read, bucket)) {
            return Err("NOPERM this user has no permissions to access one of the keys used as arguments".into());
        }
        let count = call.view.count(bucket)?;
        call.reply.map(1);
        call.reply.text("keys");
        call.reply.unsigned(count);
        return Ok(());
    }
    let (marks, stats) = (call.door.store.watermarks(), call.door.store.stats());
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
