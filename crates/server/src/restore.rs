//! `holdfast restore BACKUP DATA`: checks a backup whole, makes a data directory of it, and builds the ledger.
//!
//! May use: the facade. Must not know: file formats.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use holdfast::{DamageKind, ErrorKind, Limits, Restore, RestoreDamage, RestoreFiles, World};

use crate::announce::describe;
use crate::cli::RestoreArguments;
use crate::failure::Failure;
use crate::inspect::open;
use crate::output::{Bytes, say};
use crate::progress;

/// How the error begins of a backup of which what is intact can be restored.
const DAMAGED: &str = "the backup in ";

/// Restores, and says what was verified.
pub(crate) fn restore(arguments: &RestoreArguments) -> Result<ExitCode, Failure> {
    let data = &arguments.data;
    if !is_empty(data)? {
        return Err(Failure::RestoreTarget(data.clone()));
    }
    let how = Restore {
        files: if arguments.link { RestoreFiles::Link } else { RestoreFiles::Copy },
        damage: if arguments.accept_damage { RestoreDamage::Accept } else { RestoreDamage::Refuse },
    };
    let shown = progress::show("checking the backup");
    let done = holdfast::restore(&arguments.backup, data, how, &mut |progress| shown(progress));
    let done = done.map_err(|error| match error.kind() {
        // Of a list of files that is damaged itself nothing can be restored.
        ErrorKind::Corrupt if how.damage == RestoreDamage::Refuse && error.to_string().starts_with(DAMAGED) => {
            Failure::RestoreDamaged(error)
        }
        _ => Failure::Restore(error),
    })?;
    for one in &done.damage {
        say(format_args!("damage     {}", describe(one)));
    }
    for one in &done.aside {
        say(format_args!("missing    {}; the store lacked it when the backup was made", describe(one)));
    }
    let holdfast::Restored { batches, segments, bytes, position, .. } = done;
    say(format_args!("verified   {batches} batches in {segments} segments, {}", Bytes(bytes)));
    say(format_args!("position   {position}"));
    let limits = Limits::default();
    let store = open(data, World::real(data, &limits), limits, "building the ledger")?;
    // Segments that the store lacked were never in the backup: only the chain through the others tells of them.
    for one in store.stats().damage.iter().filter(|one| one.kind == DamageKind::Missing) {
        say(format_args!("missing    {}", describe(one)));
    }
    store.close().map_err(Failure::Close)?;
    say(format_args!("restored   {}", data.display()));
    Ok(ExitCode::SUCCESS)
}

/// Whether there is nothing in the directory, or no directory.
fn is_empty(dir: &Path) -> Result<bool, Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Failure::Path { path: dir.to_owned(), error }),
    }
}
