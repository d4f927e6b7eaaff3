//! Commands that go over the keys of a database.
//!
//! May use: `call`, `glob`. Must not know: sockets, dispatch.

use std::ops::Bound;

use holdfast::Page;

use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::effort::Use;
use crate::resp::{glob, number};

/// Keys fetched in one piece while going over a whole bucket.
const PIECE_KEYS: usize = 1024;

/// Calls `visit` with every key of a bucket that begins with `prefix`, in order, until it answers false.
pub(crate) fn each_key(
    call: &mut Call<'_, '_>,
    bucket: &[u8],
    prefix: &[u8],
    mut visit: impl FnMut(Vec<u8>) -> bool,
) -> Answer {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let start = match &after {
            Some(key) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(prefix),
        };
        let page = Page { bucket, start, end: Bound::Unbounded, limit: PIECE_KEYS, values: false };
        let out = call.view.page(&page)?;
        call.session.effort.add_items(out.entries.len())?;
        let more = out.more;
        after = out.entries.last().map(|(key, _, _)| key.clone());
        for (key, _, _) in out.entries {
            if !key.starts_with(prefix) || !visit(key) {
                return Ok(());
            }
        }
        if !more || after.is_none() {
            return Ok(());
        }
    }
}

pub(crate) fn keys(call: &mut Call<'_, '_>) -> Answer {
    let pattern = call.args.at(1);
    let bucket = call.session.bucket;
    let bytes_max = call.door.options.limits.output_bytes_max;
    let (mut found, mut bytes) = (Vec::new(), 0usize);
    each_key(call, bucket.as_bytes(), glob::literal_prefix(pattern), |key| {
        if glob::matches(pattern, &key) {
            bytes += key.len() + 16;
            found.push(key);
        }
        bytes <= bytes_max
    })?;
    if bytes > bytes_max {
        return Err("ERR the answer is too big, use SCAN".into());
    }
    call.session.effort.add(bytes as u64, Use::Show)?;
    call.reply.array(found.len());
    for key in &found {
        call.reply.bulk(key);
    }
    Ok(())
}

pub(crate) fn randomkey(call: &mut Call<'_, '_>) -> Answer {
    let bucket = call.session.bucket;
    let random = call.session.next_random();
    match call.view.random_key(bucket.as_bytes(), random)? {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn scan(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let id = number::parse_u64(args.at(1)).ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut is_string) = (None, 10, true);
    let mut index = 2;
    while let Some(option) = args.get(index) {
        let Some(value) = args.get(index + 1) else {
            return Err(SYNTAX.into());
        };
        if option.eq_ignore_ascii_case(b"count") {
            let wanted = number::parse_i64(value).ok_or(NOT_INTEGER)?;
            count = usize::try_from(wanted).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
        } else if option.eq_ignore_ascii_case(b"match") {
            pattern = Some(value);
        } else if option.eq_ignore_ascii_case(b"type") {
            is_string = value.eq_ignore_ascii_case(b"string");
        } else {
            return Err(SYNTAX.into());
        }
        index += 2;
    }
    let bucket = call.session.bucket;
    let bucket = bucket.as_bytes();
    let place = match id {
        0 => None,
        id => Some(call.door.cursors().get(id, bucket).ok_or_else(|| {
            Fail::from(
                "ERR invalid cursor: it is unknown, was forgotten or belongs to another database; start again with 0",
            )
        })?),
    };
    let count = count.min(call.door.options.limits.scan_count_max);
    call.session.effort.add_items(count)?;
    let (keys, next) = call.view.scan(bucket, place.as_ref(), count)?;
    let next = next.map_or(0, |next| call.door.cursors().add(bucket, next));
    let keys: Vec<Vec<u8>> =
        keys.into_iter().filter(|key| is_string && pattern.is_none_or(|pattern| glob::matches(pattern, key))).collect();
    call.reply.array(2);
    call.reply.bulk(number::Decimal::of_u64(next).as_bytes());
    call.reply.array(keys.len());
    for key in &keys {
        call.reply.bulk(key);
    }
    Ok(())
}
