//! FUNCTION and FCALL: scripts that the store keeps by name.
//!
//! May use: `call`, `script`, `commands::script`. Must not know: sockets, dispatch, how scripts run.

use super::script::{flush_option, keys_count, play};
use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::glob;

fn fcall_with(call: &mut Call<'_, '_>, is_reading: bool) -> Answer {
    keys_count(call.args())?;
    let table = call.door.functions.table();
    let name = std::str::from_utf8(call.args().at(1)).unwrap_or_default();
    let (library, only_reads) = table.function(name).ok_or("ERR Function not found")?;
    call.session.need.add(call.durability, table.position);
    play(call, &library.known, Some(name), is_reading || only_reads)
}

pub(crate) fn fcall(call: &mut Call<'_, '_>) -> Answer {
    fcall_with(call, false)
}

pub(crate) fn fcall_ro(call: &mut Call<'_, '_>) -> Answer {
    fcall_with(call, true)
}

pub(crate) fn load(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let replaces = match args.len() {
        3 => false,
        4 if args.at(2).eq_ignore_ascii_case(b"replace") => true,
        _ => return Err(SYNTAX.into()),
    };
    let source = args.at(args.len() - 1);
    let loaded = call.door.functions.load(&call.door.store, source, replaces);
    let (name, position) = loaded.inspect_err(|_| show_table(call))?;
    changed(call, position);
    call.reply.text(&name);
    Ok(())
}

/// That there is a library, or is not, may be why something is refused.
fn show_table(call: &mut Call<'_, '_>) {
    call.session.need.add(call.durability, call.door.functions.table().position);
}

fn changed(call: &mut Call<'_, '_>, position: holdfast::Position) {
    call.session.need.add(call.durability, position);
    call.session.last_write = call.session.last_write.max(position);
}

pub(crate) fn delete(call: &mut Call<'_, '_>) -> Answer {
    let name = std::str::from_utf8(call.args().at(2)).unwrap_or_default();
    let position = call.door.functions.remove(&call.door.store, Some(name))?;
    let position = position.ok_or("ERR Library not found").inspect_err(|_| show_table(call))?;
    changed(call, position);
    call.reply.ok();
    Ok(())
}

pub(crate) fn flush(call: &mut Call<'_, '_>) -> Answer {
    flush_option(call)?;
    if let Some(position) = call.door.functions.remove(&call.door.store, None)? {
        changed(call, position);
    }
    call.reply.ok();
    Ok(())
}

pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let (mut pattern, mut with_code, mut index) = (None, false, 2);
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"withcode") && !with_code {
            with_code = true;
            index += 1;
        } else if option.eq_ignore_ascii_case(b"libraryname") && pattern.is_none() {
            pattern = Some(args.get(index + 1).ok_or("ERR library name argument was not given")?);
            index += 2;
        } else {
            return Err(Fail::from(SYNTAX));
        }
    }
    let table = call.door.functions.table();
    call.session.need.add(call.durability, table.position);
    let is_wanted = |name: &str| pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes()));
    let libraries: Vec<_> =
        table.libraries.values().map(|library| &library.said).filter(|library| is_wanted(&library.name)).collect();
    call.reply.array(libraries.len());
    for library in libraries {
        call.reply.map(if with_code { 4 } else { 3 });
        call.reply.text("library_name");
        call.reply.text(&library.name);
        call.reply.text("engine");
        call.reply.text("LUAU");
        call.reply.text("functions");
        call.reply.array(library.functions.len());
        for function in &library.functions {
            call.reply.map(3);
            call.reply.text("name");
            call.reply.text(&function.name);
            call.reply.text("description");
            match &function.description {
                Some(description) => call.reply.text(description),
                None => call.reply.null(),
            }
            call.reply.text("flags");
            call.reply.set(usize::from(function.is_reading));
            if function.is_reading {
                call.reply.text("no-writes");
            }
        }
        if with_code {
            call.reply.text("library_code");
            call.reply.bulk(&library.source);
        }
    }
    Ok(())
}
