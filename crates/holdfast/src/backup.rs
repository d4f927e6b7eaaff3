//! Backups: a folder that is a whole store without its ledger, made while the store serves, and brought back by restoring.
//!
//! The segments of a backup are hard links to those of the store: see `journal/src/link.rs`, which also says what a crash
//! leaves. Beside them lies the file `store`, so without its manifest a backup would open like any store; but what opens it
//! changes it, so that is refused, and restoring copies.
//!
//! A store that was restored goes on by itself, and so does the one that the backup was made of, if it lives: both give out the same
//! positions for different things. So restoring makes the file `store.lineage`, which backups take along, and a folder with
//! a backup of another lineage is refused: it would become a mixture of both, and lose what only one of them has.
//!
//! A restore writes the file `restoring` first and removes it last. A folder that has it is half of a store and is refused.
//!
//! May use: `journal`, `identity`. Must not know: protocols.

use std::io;
use std::path::Path;

use base::{Files, OsFiles, copy_whole, link_or_copy, read_whole, remove_if_there, write_new_file};
use journal::{Damage, DamageKind, Examined, Linked, Position};

use crate::beside::Beside;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{self, Identity, Used};
use crate::options::Progress;
use crate::series;
use crate::space;
use crate::store::{Store, lock};

const RESTORING_FILE: &str = "restoring";
/// Some bytes that no other restored store has; there is none in a store that was never restored.
const LINEAGE_FILE: &str = "store.lineage";
const LINEAGE_BYTES_MAX: u64 = 64;
/// What a store that is, or was, open has in its folder.
pub(crate) const LOCK_FILE: &str = "lock";

/// What a backup holds and what was done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Every batch below this position is in the backup.
    pub position: Position,
    /// Segments that it holds.
    pub segments: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Segments that were linked now.
    pub linked: u64,
    /// Bytes in them, for which no space was taken.
    pub linked_bytes: u64,
    /// Segments that were copied now, because the backup lies on another file system.
    pub copied: u64,
    /// Bytes in them.
    pub copied_bytes: u64,
    /// Segments that the backup had already.
    pub kept: u64,
    /// Segments that were removed from the backup, because the store has let them go.
    pub removed: u64,
    /// Damaged ranges of the store: what lay there is missing in the backup too. See [`crate::Stats::damage`].
    pub damaged_ranges: u64,
}

/// How to restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restore {
    /// What becomes of the backup's files.
    pub files: RestoreFiles,
    /// What is done about damage that costs data.
    pub damage: RestoreDamage,
}

/// What becomes of a backup's files when it is restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RestoreFiles {
    /// They are copied: a byte that rots in one place is sound in the other.
    #[default]
    Copy,
    /// They are linked where that can be, which takes no time and no space.
    Link,
}

/// What is done about damage that costs data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RestoreDamage {
    /// Nothing is restored.
    #[default]
    Refuse,
    /// Everything that is intact is restored.
    Accept,
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Every batch below this position was in the backup.
    pub position: Position,
    /// When the backup was made, in milliseconds since 1970.
    pub taken_ms: u64,
    /// Batches that were read and found intact.
    pub batches: u64,
    /// Segments whose checksums were compared.
    pub segments: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Damaged ranges of the backup. Unless [`RestoreDamage::Accept`] was asked for, none costs data.
    pub damage: Vec<Damage>,
    /// What the store lacked already when the backup was made: it is missing in what was restored too.
    pub aside: Vec<Damage>,
}

impl Store {
    /// Identity of the store, the same in all of its backups.
    #[must_use]
    pub fn identity(&self) -> u128 {
        self.inner().journal.store()
    }

    /// Makes the folder `dir` a backup of everything committed so far, or brings the backup that is there up to date, which
    /// takes only what is new. The store serves meanwhile. Segments are hard links, so the folder has to be on the same
    /// file system to cost neither time nor space; elsewhere they are copied.
    ///
    /// Blocks until the backup is on stable storage. A crash before leaves the backup that was there, or a folder without
    /// the file `backup`, which is none and becomes one the next time.
    ///
    /// # Errors
    /// `Invalid` when the folder holds something else, such as a store, another store's backup, or one that was opened, or when it
    /// is within the store's own;
    /// `Unavailable` when the disk refuses or is full; `Closed`.
    pub fn backup(&self, dir: impl AsRef<Path>) -> Result<Backup> {
        let (inner, dir) = (self.inner(), dir.as_ref());
        let _one = lock(&inner.backing_up);
        inner.check_open()?;
        let files = &*inner.files;
        // What is noted later may not be in what is copied now.
        let identity = *lock(&inner.identity);
        refuse_within(files, dir, inner.dir())?;
        files.create_dir(dir).map_err(|error| unusable(dir, &error))?;
        let lineage = lineage(files, inner.dir())?;
        check_target(files, dir, (identity, &lineage))?;
        let before = identity::read(files, dir)?.filter(|it| it.is_same_store(&identity));
        if before.is_none() {
            // First, as the folder is nobody's until it has an identity.
            match &lineage {
                Some(lineage) => write_new_file(files, &dir.join(LINEAGE_FILE), lineage),
                None => remove_if_there(files, &dir.join(LINEAGE_FILE)),
            }
            .map_err(|error| unusable(dir, &error))?;
            identity::write(files, dir, Identity { used: Used::default(), ..identity })?;
        }
        // First the snapshots of spaces and what is sealed of series, then what came after them, of which nothing goes meanwhile.
        let _held = inner.journal.hold();
        {
            // A file that is being replaced is not there for a moment.
            let _none = lock(&inner.spaces.snapshots);
            space::files::copy_for_backup(files, inner.dir(), dir)?;
        }
        series::backup::copy_for_backup(files, &inner.shelf, dir)?;
        let done = inner.journal.link_into(dir, inner.clock.wall_ms())?;
        space::files::settle_backup(files, dir)?;
        series::backup::settle_backup(files, dir)?;
        // Only now: the manifest before, which a crash leaves, has no more than was noted then.
        if before != Some(identity) {
            identity::write(files, dir, identity)?;
        }
        let Linked { manifest, linked, linked_bytes, copied, copied_bytes, kept, removed } = done;
        Ok(Backup {
            position: manifest.position,
            segments: manifest.segments.len() as u64,
            bytes: manifest.bytes(),
            linked,
            linked_bytes,
            copied,
            copied_bytes,
            kept,
            removed,
            damaged_ranges: self.stats().damage.iter().filter(|one| is_loss(one)).count() as u64,
        })
    }
}

/// Refuses a folder that lies in the store's own, however it is named. Of that itself [`check_target`] tells.
fn refuse_within(files: &dyn Files, dir: &Path, store: &Path) -> Result<()> {
    let resolve = |path: &Path| files.resolve(path).map_err(|error| unusable(path, &error));
    let (inner, outer) = (resolve(dir)?, resolve(store)?);
    if inner == outer || !inner.starts_with(&outer) {
        return Ok(());
    }
    let text = format!(
        "{} is within the folder of the store itself, {}: a backup there is lost together with it; choose a folder outside of it",
        dir.display(),
        store.display()
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Whether `dir` may become, or is, a backup of this store.
fn check_target(files: &dyn Files, dir: &Path, (identity, of): (Identity, &Option<Vec<u8>>)) -> Result<()> {
    let refuse = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("{} {why}", dir.display())));
    let names = names(files, dir)?;
    if names.iter().any(|name| name == LOCK_FILE) {
        return refuse("is the folder of a store, or a backup that was opened as one; choose another");
    }
    match identity::find(files, dir) {
        Ok(Some(found)) if found.is_same_store(&identity) && lineage(files, dir)? == *of => Ok(()),
        Ok(Some(found)) if found.is_same_store(&identity) => refuse(
            "holds backups from before this store was restored, or of another that was: they went on from the same state in different \
             ways, and do not mix; choose another folder",
        ),
        Ok(Some(_)) => refuse("holds a backup of another store; choose another folder"),
        // What a crash left of the very first step.
        Ok(None) if names.iter().all(|name| name.starts_with("store")) => Ok(()),
        Ok(None) => refuse("is not empty and holds no backup; choose another folder"),
        // There is no folder of segments yet.
        Err(_) if names.iter().all(|name| name.starts_with("store")) => Ok(()),
        Err(_) if !names.iter().any(|name| name == "journal") => {
            refuse("is not empty and holds no backup; choose another folder")
        }
        Err(error) => Err(error),
    }
}

/// Checks the backup in `backup` whole, and makes the folder `dir`, which must hold nothing, the store that it was: to be
/// opened with [`Store::open`], which builds the ledger anew and so takes as long as reading the journal. `progress` is told
/// how much of the backup was read.
///
/// A crash leaves a folder that does not open; remove it and begin again.
///
/// # Errors
/// `Corrupt`, with each file and offset, when anything in the backup is damaged so that data would be missing, unless the
/// options accept that; `Invalid` when there is no finished backup, or `dir` is not empty; `Unavailable` when the disk
/// refuses.
pub fn restore(
    backup: impl AsRef<Path>,
    dir: impl AsRef<Path>,
    how: Restore,
    progress: &mut dyn FnMut(Progress),
) -> Result<Restored> {
    restore_in(&OsFiles, (backup.as_ref(), dir.as_ref()), how, progress)
}

/// As [`restore`], from the first folder to the second, with other files: for simulations.
///
/// # Errors
/// As [`restore`].
pub fn restore_in(
    files: &dyn Files,
    (backup, dir): (&Path, &Path),
    how: Restore,
    progress: &mut dyn FnMut(Progress),
) -> Result<Restored> {
    let journal = dir.join("journal");
    if !names(files, dir)?.is_empty() || !names(files, &journal)?.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, format!("{} is not empty; choose another folder", dir.display())));
    }
    let found = names(files, backup)?;
    let no_backup = |what: &str| Err(Error::new(ErrorKind::Invalid, format!("{} {what}", backup.display())));
    if found.is_empty() {
        return no_backup("is not there, or empty: name the folder that `holdfast backup` wrote");
    }
    if !found.iter().any(|name| name == journal::MANIFEST_FILE) {
        return no_backup(
            "holds no finished backup: name the folder that `holdfast backup` wrote; a store's own folder is none",
        );
    }
    let told = &mut |done_bytes, total_bytes| progress(Progress { done_bytes, total_bytes, batches: 0 });
    let Examined { manifest, verified, mut damage, aside } = journal::examine(files, backup, told)?;
    // Without an intact file `store` nothing is known to be missing but what the rest tells.
    let used = identity::read(files, backup)?.map(|identity| identity.used).unwrap_or_default();
    let beside = Beside::open(files, backup, (manifest.partitions, used), Some(manifest.position), &mut |one| {
        damage.push(one);
    })?;
    beside.check(&mut |one| damage.push(one))?;
    if how.damage == RestoreDamage::Refuse && damage.iter().any(is_loss) {
        let ranges: Vec<String> = damage.iter().map(ToString::to_string).collect();
        let text = format!("the backup in {} is damaged: {}", backup.display(), ranges.join("; "));
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let fail = |error: io::Error| unusable(dir, &error);
    files.create_dir(&journal).map_err(fail)?;
    let restoring = dir.join(RESTORING_FILE);
    write_new_file(files, &restoring, b"").map_err(fail)?;
    for segment in &manifest.segments {
        let (from, to) = (backup.join("journal").join(segment.name()), journal.join(segment.name()));
        let placed = match how.files {
            RestoreFiles::Copy => copy_whole(files, &from, &to),
            RestoreFiles::Link => link_or_copy(files, &from, &to).map(|_| ()),
        };
        match placed {
            // Known to be missing, and accepted.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !damage.is_empty() => {}
            placed => placed.map_err(fail)?,
        }
    }
    // Backups that were made before there was one have none.
    match copy_whole(files, &backup.join("journal").join(journal::BEGIN_FILE), &journal.join(journal::BEGIN_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        copied => copied.map_err(fail)?,
    }
    files.sync_dir(&journal).map_err(fail)?;
    space::files::restore(files, backup, dir, manifest.position)?;
    series::backup::restore(files, backup, dir, manifest.position, how.files == RestoreFiles::Link)?;
    write_new_file(files, &dir.join(LINEAGE_FILE), format!("{:016x}\n", base::entropy()).as_bytes()).map_err(fail)?;
    identity::write(files, dir, Identity { store: manifest.store, partitions: manifest.partitions, used })?;
    remove_if_there(files, &restoring).map_err(fail)?;
    files.sync_dir(dir).map_err(fail)?;
    Ok(Restored {
        position: manifest.position,
        taken_ms: manifest.taken_ms,
        batches: verified.batches,
        segments: verified.segments,
        bytes: verified.bytes,
        damage,
        aside,
    })
}

/// What tells a store in `dir` from others of its identity.
fn lineage(files: &dyn Files, dir: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(files, &dir.join(LINEAGE_FILE), LINEAGE_BYTES_MAX) {
        Ok(lineage) => Ok(Some(lineage)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(dir, &error)),
    }
}

/// Whether something is lost with it.
fn is_loss(damage: &Damage) -> bool {
    !matches!(damage.kind, DamageKind::Header | DamageKind::Footer | DamageKind::Copy)
}

/// Refuses a folder in which a restore was interrupted, which holds a part of a store, and a backup: what opens one changes it, and
/// no later backup would go there.
pub(crate) fn refuse_what_is_no_store(files: &dyn Files, dir: &Path) -> Result<()> {
    let (has, shown) = (|name| files.open_to_read(&dir.join(name)).is_ok(), dir.display());
    let text = if has(RESTORING_FILE) {
        format!("a restore into {shown} was interrupted; remove the folder and restore again")
    } else if has(journal::MANIFEST_FILE) {
        format!(
            "{shown} holds a backup: restore it into another folder. (To have the folder become a store, without the check that restoring \
             does, remove the file `backup` from it)"
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Files in a folder, which need not be there.
fn names(files: &dyn Files, dir: &Path) -> Result<Vec<String>> {
    match files.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| unusable(dir, &error)),
    }
}

pub(crate) fn unusable(dir: &Path, error: &io::Error) -> Error {
    let text = match error.kind() {
        // It says who has it, where that is known.
        io::ErrorKind::WouldBlock => format!("{} is {error}", dir.display()),
        io::ErrorKind::NotADirectory => format!("{error}: name a directory, or one that is to be made"),
        _ => format!("{} cannot be used: {error}", dir.display()),
    };
    Error::new(ErrorKind::Unavailable, text)
}
