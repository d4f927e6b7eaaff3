//! EVAL, EVALSHA and SCRIPT.
//!
//! May use: `call`, `script`. Must not know: sockets, dispatch, how scripts run.

use std::sync::Arc;
use std::time::Duration;

use crate::resp::call::{Answer, Call, Fail, NOT_INTEGER, SYNTAX};
use crate::resp::number;
use crate::resp::script::{Here, Known, Task, failure, limits, run};
use crate::resp::wire::Args;

/// Where the keys begin: behind the script and their number.
const FIRST: usize = 3;

/// How many of the arguments behind their number are keys.
pub(super) fn keys_count(args: Args<'_>) -> Result<usize, Fail> {
    let count = number::parse_i64(args.at(2)).ok_or(NOT_INTEGER)?;
    let count = usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative")?;
    if count > args.from(FIRST).len() {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    Ok(count)
}

/// Runs a script, or a function of a library, with the keys and arguments of the call.
pub(super) fn play(call: &mut Call<'_, '_>, known: &Arc<Known>, function: Option<&str>, is_reading: bool) -> Answer {
    play_after(call, known, function, is_reading, Duration::ZERO)
}

fn play_after(
    call: &mut Call<'_, '_>,
    known: &Arc<Known>,
    function: Option<&str>,
    is_reading: bool,
    spent: Duration,
) -> Answer {
    let args = call.args();
    let count = keys_count(args)?;
    let key_bytes_max = call.door.store.limits().key_bytes_max;
    let keys: Vec<&[u8]> = args.from(FIRST).iter().take(count).collect();
    if keys.iter().any(|key| key.len() > key_bytes_max) {
        return Err(format!("ERR the key exceeds {key_bytes_max} bytes").into());
    }
    let arguments = args.from(FIRST + count).iter().collect();
    let result_bytes_max = usize::MAX;
    let here = Here::ANY;
    run(call, Task { known, function, keys, arguments, is_reading, result_bytes_max, here, spent }, FIRST)
}

fn by_text(call: &mut Call<'_, '_>, is_reading: bool) -> Answer {
    keys_count(call.args())?;
    let limits = limits(&call.door.options);
    // Compiling is not interrupted; what it takes is not there for running.
    let (known, spent) = call.door.scripts.of_text(call.args().at(1), &limits).map_err(|error| failure(&error))?;
    play_after(call, &known, None, is_reading, spent)
}

fn by_hash(call: &mut Call<'_, '_>, is_reading: bool) -> Answer {
    let known = call.door.scripts.get(call.args().at(1));
    let known = known.ok_or("NOSCRIPT No matching script. Please use EVAL.")?;
    play(call, &known, None, is_reading)
}

pub(crate) fn eval(call: &mut Call<'_, '_>) -> Answer {
    by_text(call, false)
}

pub(crate) fn eval_ro(call: &mut Call<'_, '_>) -> Answer {
    by_text(call, true)
}

pub(crate) fn evalsha(call: &mut Call<'_, '_>) -> Answer {
    by_hash(call, false)
}

pub(crate) fn evalsha_ro(call: &mut Call<'_, '_>) -> Answer {
    by_hash(call, true)
}

pub(crate) fn load(call: &mut Call<'_, '_>) -> Answer {
    let limits = limits(&call.door.options);
    let (sha, _) = call.door.scripts.add(call.args().at(2), &limits).map_err(|error| failure(&error))?;
    call.reply.text(&sha);
    Ok(())
}

pub(crate) fn exists(call: &mut Call<'_, '_>) -> Answer {
    let hashes = call.args().from(2);
    call.reply.array(hashes.len());
    for sha in hashes.iter() {
        let is_known = call.door.scripts.get(sha).is_some();
        call.reply.integer(i64::from(is_known));
    }
    Ok(())
}

/// The option of SCRIPT FLUSH and FUNCTION FLUSH, which changes nothing here: both are done when they are answered.
pub(super) fn flush_option(call: &Call<'_, '_>) -> Answer {
    match (call.args.get(2), call.args.len()) {
        (None, _) => Ok(()),
        (Some(mode), 3) if mode.eq_ignore_ascii_case(b"async") || mode.eq_ignore_ascii_case(b"sync") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

pub(crate) fn flush(call: &mut Call<'_, '_>) -> Answer {
    flush_option(call)?;
    call.door.scripts.clear();
    call.reply.ok();
    Ok(())
}

pub(crate) fn kill(call: &mut Call<'_, '_>) -> Answer {
    if !call.door.scripts.kill() {
        return Err("NOTBUSY No scripts in execution right now.".into());
    }
    call.reply.ok();
    Ok(())
}
