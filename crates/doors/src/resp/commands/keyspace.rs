//! Commands on keys as such: deleting, renaming, copying, looking into.
//!
//! May use: `call`. Must not know: sockets, dispatch.

use holdfast::PutOptions;

use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::effort::Use;
use crate::resp::handle::copy_database;
use crate::resp::number;
use crate::resp::session::BucketName;

/// Bytes that a key costs in index and journal besides name and value: an estimate for MEMORY USAGE.
const OVERHEAD_BYTES: u64 = 96;
/// Values up to so many bytes are `embstr` in Redis.
const EMBEDDED_BYTES_MAX: u64 = 44;
/// What a key counts that FLUSHDB removes with all others, beside bytes that are copied.
const CLEARED_BYTES: u64 = 64;

pub(crate) fn del(call: &mut Call<'_, '_>) -> Answer {
    let mut deleted = 0;
    for key in call.args().from(1).iter() {
        deleted += i64::from(call.delete(key)?);
    }
    call.reply.integer(deleted);
    Ok(())
}

pub(crate) fn exists(call: &mut Call<'_, '_>) -> Answer {
    let mut found = 0;
    for key in call.args().from(1).iter() {
        found += i64::from(call.head(key)?.is_some());
    }
    call.reply.integer(found);
    Ok(())
}

pub(crate) fn type_of(call: &mut Call<'_, '_>) -> Answer {
    let exists = call.head(call.args.at(1))?.is_some();
    call.reply.simple(if exists { "string" } else { "none" });
    Ok(())
}

fn rename_to(call: &mut Call<'_, '_>, overwrite: bool) -> Result<bool, Fail> {
    let args = call.args();
    let (from, to) = (args.at(1), args.at(2));
    let object = call.get(from, Use::Look)?.ok_or("ERR no such key")?;
    if from == to {
        return Ok(overwrite);
    }
    if !overwrite && call.head(to)?.is_some() {
        return Ok(false);
    }
    let options = PutOptions::keeping(object.head.clone());
    call.put(to, object.value.as_ref(), &options)?;
    call.delete(from)?;
    Ok(true)
}

pub(crate) fn rename(call: &mut Call<'_, '_>) -> Answer {
    rename_to(call, true)?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn renamenx(call: &mut Call<'_, '_>) -> Answer {
    let renamed = rename_to(call, false)?;
    call.reply.integer(i64::from(renamed));
    Ok(())
}

pub(crate) fn copy(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (from, to) = (args.at(1), args.at(2));
    let mut replace = false;
    let mut index = 3;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if option.eq_ignore_ascii_case(b"db") && index + 1 < args.len() {
            let database = call.integer(index + 1)?;
            if !(0..i64::from(call.door.options.databases)).contains(&database) {
                return Err("ERR DB index is out of range".into());
            }
            index += 1;
        } else {
            return Err(SYNTAX.into());
        }
        index += 1;
    }
    let source = call.session.bucket;
    let target = copy_database(args).map_or(source, BucketName::of);
    if source == target && from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(object) = call.get(from, Use::Look)? else {
        call.reply.integer(0);
        return Ok(());
    };
    if !replace && call.view.head(target.as_bytes(), to)?.is_some() {
        call.reply.integer(0);
        return Ok(());
    }
    let options = PutOptions::keeping(object.head.clone());
    call.put_in(target.as_bytes(), to, object.value.as_ref(), &options)?;
    call.reply.integer(1);
    Ok(())
}

pub(crate) fn object_encoding(call: &mut Call<'_, '_>) -> Answer {
    let key = call.args.at(2);
    let Some(head) = call.head(key)? else {
        call.reply.null();
        return Ok(());
    };
    let is_integer = head.value_bytes <= 20
        && call.get(key, Use::Look)?.is_some_and(|object| number::parse_i64(object.value.as_ref()).is_some());
    call.reply.text(match head.value_bytes {
        _ if is_integer => "int",
        bytes if bytes <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    });
    Ok(())
}

pub(crate) fn object_freq(call: &mut Call<'_, '_>) -> Answer {
    if call.head(call.args.at(2))?.is_none() {
        call.reply.null();
        return Ok(());
    }
    Err("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
         policies at runtime LRU and LFU data will take some time to adjust."
        .into())
}

pub(crate) fn object_idletime(call: &mut Call<'_, '_>) -> Answer {
    match call.head(call.args.at(2))? {
        Some(head) => call.reply.unsigned(call.now_ms.saturating_sub(head.modified_ms) / 1000),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn object_refcount(call: &mut Call<'_, '_>) -> Answer {
    match call.head(call.args.at(2))? {
        Some(_) => call.reply.integer(1),
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn memory_usage(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    match (args.get(3), args.len()) {
        (None, _) => {}
        (Some(option), 5) if option.eq_ignore_ascii_case(b"samples") => {
            if call.integer(4)? < 0 {
                return Err(SYNTAX.into());
            }
        }
        _ => return Err(SYNTAX.into()),
    }
    let key = args.at(2);
    match call.head(key)? {
        Some(head) => {
            let metadata: usize = head.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
            call.reply.unsigned(head.value_bytes + (key.len() + metadata) as u64 + OVERHEAD_BYTES);
        }
        None => call.reply.null(),
    }
    Ok(())
}

pub(crate) fn dbsize(call: &mut Call<'_, '_>) -> Answer {
    let bucket = call.session.bucket;
    let count = call.view.count(bucket.as_bytes())?;
    call.reply.unsigned(count);
    Ok(())
}

fn flush_options(call: &Call<'_, '_>) -> Answer {
    match (call.args.get(1), call.args.len()) {
        (None, _) => Ok(()),
        (Some(option), 2) if option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

pub(crate) fn flushdb(call: &mut Call<'_, '_>) -> Answer {
    flush_options(call)?;
    let bucket = call.session.bucket;
    let keys = call.view.count(bucket.as_bytes())?;
    call.session.effort.add(keys * CLEARED_BYTES, Use::Look)?;
    call.clear(bucket.as_bytes())?;
    call.reply.ok();
    Ok(())
}

pub(crate) fn flushall(call: &mut Call<'_, '_>) -> Answer {
    flush_options(call)?;
    let full: Vec<BucketName> = (0..call.door.options.databases).map(BucketName::of).collect();
    for bucket in full {
        let keys = call.view.count(bucket.as_bytes())?;
        call.session.effort.add(keys * CLEARED_BYTES, Use::Look)?;
        if keys > 0 {
            call.clear(bucket.as_bytes())?;
        }
    }
    call.reply.ok();
    Ok(())
}
