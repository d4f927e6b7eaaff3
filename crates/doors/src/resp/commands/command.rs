//! COMMAND: what the table says about itself; and HELP of every container.
//!
//! May use: `call`, `table`, `rows`. Must not know: sockets, dispatch.

use crate::resp::call::{Answer, Call, Fail, SYNTAX};
use crate::resp::reply::Reply;
use crate::resp::rows::COMMANDS;
use crate::resp::table::{BucketOf, Command, Found, find, find_command, find_subcommand, flag};
use crate::resp::{glob, number};

/// The flags that Redis names, in its order.
const FLAG_NAMES: &[(u32, &str)] = &[
    (flag::WRITE, "write"),
    (flag::READONLY, "readonly"),
    (flag::DENYOOM, "denyoom"),
    (flag::ADMIN, "admin"),
    (flag::NOSCRIPT, "noscript"),
    (flag::LOADING, "loading"),
    (flag::STALE, "stale"),
    (flag::SKIP_MONITOR, "skip_monitor"),
    (flag::SKIP_SLOWLOG, "skip_slowlog"),
    (flag::FAST, "fast"),
    (flag::NO_AUTH, "no_auth"),
    (flag::NO_MULTI, "no_multi"),
    (flag::ALLOW_BUSY, "allow_busy"),
];

/// The handler of containers: dispatch finds subcommands first, and the arity of a container asks for one.
pub(crate) fn subcommand_missing(call: &mut Call<'_, '_>) -> Answer {
    Err(call.wrong_arity())
}

fn top_level() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().filter(|row| !row.is_subcommand())
}

fn flag_names(row: &Command) -> Vec<&'static str> {
    FLAG_NAMES.iter().filter(|(flag, _)| row.has(*flag)).map(|(_, name)| *name).collect()
}

/// The categories of Redis' access control that clients filter by.
fn categories(row: &Command) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    names.extend((row.group == "generic").then_some("@keyspace"));
    names.extend(row.has(flag::READONLY).then_some("@read"));
    names.extend(row.has(flag::WRITE).then_some("@write"));
    names.extend((row.group == "string").then_some("@string"));
    names.extend(row.has(flag::ADMIN).then_some("@admin"));
    names.push(if row.has(flag::FAST) { "@fast" } else { "@slow" });
    names.extend(row.has(flag::ADMIN | flag::DANGEROUS | flag::CLEARS).then_some("@dangerous"));
    names.extend((row.group == "connection").then_some("@connection"));
    names.extend((row.group == "transactions").then_some("@transaction"));
    names.extend((row.group == "scripting").then_some("@scripting"));
    names
}

/// The ten fields of COMMAND INFO.
fn describe(row: &Command, reply: &mut Reply) {
    reply.array(10);
    reply.text(row.name);
    reply.integer(i64::from(row.arity));
    let flags = flag_names(row);
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    reply.integer(i64::from(row.keys.first));
    reply.integer(i64::from(row.keys.last));
    reply.integer(i64::from(row.keys.step));
    let categories = categories(row);
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.simple(name));
    reply.set(0);
    if row.keys.first > 0 {
        reply.set(1);
        describe_keys(row, reply);
    } else {
        reply.set(0);
    }
    let subcommands: Vec<_> = row.subcommands().collect();
    if subcommands.is_empty() {
        reply.set(0)
    } else {
        reply.array(subcommands.len())
    }
    subcommands.iter().for_each(|sub| describe(sub, reply));
}

/// One key specification: where keys begin and how far they go, counted from the first.
fn describe_keys(row: &Command, reply: &mut Reply) {
    let flags: &[&str] = if row.has(flag::WRITE) { &["RW", "access", "update"] } else { &["RO", "access"] };
    reply.map(3);
    reply.text("flags");
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.simple(name));
    reply.text("begin_search");
    reply.map(2);
    reply.text("type");
    reply.text("index");
    reply.text("spec");
    reply.map(1);
    reply.text("index");
    reply.integer(i64::from(row.keys.first));
    reply.text("find_keys");
    reply.map(2);
    reply.text("type");
    reply.text("range");
    reply.text("spec");
    reply.map(3);
    reply.text("lastkey");
    let last = if row.keys.last >= 0 { row.keys.last - row.keys.first } else { row.keys.last };
    reply.integer(i64::from(last));
    reply.text("keystep");
    reply.integer(i64::from(row.keys.step));
    reply.text("limit");
    reply.integer(0);
}

pub(crate) fn all(call: &mut Call<'_, '_>) -> Answer {
    call.reply.array(top_level().count());
    top_level().for_each(|row| describe(row, call.reply));
    Ok(())
}

pub(crate) fn count(call: &mut Call<'_, '_>) -> Answer {
    call.reply.unsigned(top_level().count() as u64);
    Ok(())
}

/// A row by `command` or `command|subcommand`.
fn find_any(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        None => find_command(name).map(|(row, _)| row),
        Some(at) => {
            let (container, sub) = (name.get(..at)?, name.get(at + 1..)?);
            find_subcommand(find_command(container)?.0, sub).map(|(row, _)| row)
        }
    }
}

pub(crate) fn info(call: &mut Call<'_, '_>) -> Answer {
    let names = call.args().from(2);
    if names.len() == 0 {
        return all(call);
    }
    call.reply.array(names.len());
    for name in names.iter() {
        match find_any(name) {
            Some(row) => describe(row, call.reply),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn document(row: &Command, reply: &mut Reply) {
    let subcommands: Vec<_> = row.subcommands().collect();
    reply.text(row.name);
    reply.map(5 + usize::from(!subcommands.is_empty()));
    reply.text("summary");
    reply.text(row.summary);
    reply.text("since");
    reply.text(row.since);
    reply.text("group");
    reply.text(row.group);
    reply.text("complexity");
    reply.text(row.complexity);
    reply.text("syntax");
    reply.text(row.syntax);
    if !subcommands.is_empty() {
        reply.text("subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|sub| document(sub, reply));
    }
}

pub(crate) fn docs(call: &mut Call<'_, '_>) -> Answer {
    let names = call.args().from(2);
    let rows: Vec<&Command> =
        if names.len() == 0 { top_level().collect() } else { names.iter().filter_map(find_any).collect() };
    call.reply.map(rows.len());
    rows.iter().for_each(|row| document(row, call.reply));
    Ok(())
}

pub(crate) fn list(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args();
    let rows: Vec<&Command> = match args.len() {
        2 => top_level().collect(),
        5 if args.at(2).eq_ignore_ascii_case(b"filterby") => {
            let (by, what) = (args.at(3), args.at(4));
            if by.eq_ignore_ascii_case(b"module") {
                Vec::new()
            } else if by.eq_ignore_ascii_case(b"aclcat") {
                let category = format!("@{}", String::from_utf8_lossy(what).to_ascii_lowercase());
                COMMANDS.iter().filter(|row| categories(row).contains(&category.as_str())).collect()
            } else if by.eq_ignore_ascii_case(b"pattern") {
                COMMANDS.iter().filter(|row| glob::matches(what, row.name.as_bytes())).collect()
            } else {
                return Err(SYNTAX.into());
            }
        }
        _ => return Err(SYNTAX.into()),
    };
    call.reply.array(rows.len());
    rows.iter().for_each(|row| call.reply.text(row.name));
    Ok(())
}

/// Commands that say themselves how many keys follow.
const SCRIPTS: &[&str] = &["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

pub(crate) fn getkeys(call: &mut Call<'_, '_>) -> Answer {
    let args = call.args().from(2);
    let Found::Row { row, .. } = find(args) else {
        return Err("ERR Invalid command specified".into());
    };
    let is_script = SCRIPTS.contains(&row.name);
    if row.keys.first == 0 && !is_script {
        return Err("ERR The command has no key arguments".into());
    }
    if !row.accepts(args.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let indices: Vec<usize> = match is_script {
        true => {
            // script numkeys key ...
            let keys = number::parse_u64(args.at(2)).and_then(|keys| usize::try_from(keys).ok());
            let keys =
                keys.filter(|keys| *keys <= args.len() - 3).ok_or("ERR Invalid arguments specified for command")?;
            (3..3 + keys).collect()
        }
        false => row.key_arguments(args.len()).collect(),
    };
    call.reply.array(indices.len());
    indices.iter().for_each(|index| call.reply.bulk(args.at(*index)));
    Ok(())
}

/// HELP of the container that the call names.
pub(crate) fn help(call: &mut Call<'_, '_>) -> Answer {
    let (container, _) = find_command(call.args.at(0)).ok_or_else(|| Fail::from(SYNTAX))?;
    let subcommands: Vec<_> = container.subcommands().collect();
    let name = container.name.to_uppercase();
    call.reply.array(1 + subcommands.len() * 2);
    call.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in subcommands {
        call.reply.simple(format!("{} {}", sub.short_name().to_uppercase(), sub.syntax).trim_end());
        call.reply.simple(&format!("    {}", sub.summary));
    }
    Ok(())
}

/// The reference page: every row of the table, by group.
pub fn reference_markdown() -> String {
    let mut page = String::from(
        "# Commands\n\n<!-- Generated from crates/doors/src/resp/rows.rs; to renew it: HOLDFAST_BLESS=1 cargo test -p \
         holdfast-doors reference -->\n\n\
         Everything that speaks the Redis protocol can call these. `SELECT n` stands for the bucket `db<n>`; the `KV.*` commands \
         name a bucket themselves. Commands of other Redis types answer an error that says so.\n",
    );
    for (group, title) in [
        ("string", "Values"),
        ("generic", "Keys"),
        ("holdfast", "Holdfast's own"),
        ("transactions", "Transactions"),
        ("scripting", "Scripts"),
        ("connection", "Connection"),
        ("server", "Server"),
    ] {
        page.push_str(&format!("\n## {title}\n\n"));
        for row in COMMANDS.iter().filter(|row| row.group == group && !row.has(flag::CONTAINER)) {
            page.push_str(&entry(row));
        }
    }
    page
}

fn entry(row: &Command) -> String {
    let name = row.name.replace('|', " ").to_uppercase();
    let origin = if row.group == "holdfast" { "Holdfast" } else { "Redis" };
    let kind = match row.keys.bucket {
        _ if row.has(flag::SCRIPT) => "what the script does",
        BucketOf::None => "no data",
        _ if row.has(flag::WRITE) => "writes",
        _ => "reads",
    };
    let usage = format!("{name} {}", row.syntax);
    format!(
        "### {name}\n\n`{}`\n\n{} {}; {kind}; since {origin} {}.\n\n",
        usage.trim_end(),
        row.summary,
        row.complexity,
        row.since
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_says_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
        let page = reference_markdown();
        if std::env::var_os("HOLDFAST_BLESS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference")).unwrap();
            std::fs::write(path, &page).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page,
            "docs/reference/commands.md is old: HOLDFAST_BLESS=1 cargo test -p holdfast-doors reference"
        );
    }
}
